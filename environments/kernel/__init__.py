"""The kernel world: tasks, the interpreter, the Ascend and GPU compilers, all of it in sandboxes."""
