"""Runs the command in forks of a process that has its modules loaded: hundreds of commands without hundreds of imports.

Everything else is as from a shell: arguments, environment, folder, the standard streams and the exit status.
"""

from __future__ import annotations

import json
import os
import sys


def child(request: dict) -> None:
    """Become the command. Never returns."""
    from orienteer.cli import main

    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    streams = ((0, os.devnull, os.O_RDONLY), (1, request["out"], os.O_WRONLY), (2, request["err"], os.O_WRONLY))
    for number, path, mode in streams:
        handle = os.open(path, mode)
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin, sys.stdout, sys.stderr = (open(n, "r" if n == 0 else "w", closefd=False) for n in range(3))  # noqa: SIM115
    sys.argv = ["agent", *request["args"]]
    try:
        main()
    except SystemExit as leaving:
        sys.stdout.flush()
        os._exit(leaving.code)
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(99)


def serve() -> None:
    """Fork a command per line of standard input and answer with its wait status."""
    import orienteer.agents.command.app
    import orienteer.agents.evokernel.method
    import orienteer.agents.runtime.display
    import orienteer.agents.runtime.engine
    import orienteer.agents.runtime.inventory  # noqa: F401

    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            try:
                child(json.loads(line))
            finally:
                os._exit(98)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
