"""Rules for the two zones that matter: kernels, and the code that launches them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from orienteer.evaluators.kernel import vocabulary as words
from orienteer.evaluators.kernel.scopes import Function, Names

_Found = tuple[str, int, str]
_LIMITS = frozenset({"torch.finfo", "torch.iinfo"})
_NOT_IN_KERNELS = (
    ast.Try,
    ast.TryStar,
    ast.With,
    ast.Lambda,
    ast.FunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Delete,
)
_HOLDERS = frozenset({"weight", "bias", "weight_ih", "weight_hh", "running_mean", "running_var"})

# -- kernels -------------------------------------------------------------------------------------------------------


def kernel_findings(kernel: Function, names: Names) -> Iterator[_Found]:
    """Yield what a kernel uses besides the kernel language.

    The interpreter runs a kernel as Python with every watch switched off, so nothing of the host may be in its reach.
    """
    bound = set(names.locals(kernel)) | {n.id for n in ast.walk(kernel) if isinstance(n, ast.Name) and _stored(n)}
    skip = {id(n) for d in kernel.decorator_list for n in ast.walk(d)}
    for node in ast.walk(kernel):
        if id(node) in skip or node is kernel:
            continue
        if isinstance(node, _NOT_IN_KERNELS):
            yield _in_kernel(kernel, node, f"a {type(node).__name__.lower()} statement")
        elif isinstance(node, ast.Name) and not _stored(node) and node.id not in bound:
            yield from _kernel_name(kernel, node, names)
        elif isinstance(node, ast.Attribute):
            yield from _kernel_attribute(kernel, node, names)
        elif _logical(node) and not (
            _logical(names.parents[node]) or _tested(node, names) or _truth(node, kernel, names)
        ):
            what = f"the value of {ast.unparse(node)[:60]!r} (the language's and, or, not give no numbers)"
            yield _in_kernel(kernel, node, what)


def _logical(node: ast.AST) -> bool:
    return isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _tested(node: ast.AST, names: Names) -> bool:
    """True for what is only asked for its truth."""
    parent = names.parents[node]
    if isinstance(parent, ast.comprehension):
        return any(node is item for item in parent.ifs)
    return isinstance(parent, (ast.If, ast.While, ast.Assert, ast.IfExp)) and parent.test is node


def _truth(node: ast.AST, kernel: Function, names: Names, depth: int = 0) -> bool:
    """True for comparisons, compile-time names and logic of them: interpreter and compiler agree on their values."""
    if isinstance(node, ast.BoolOp):
        return all(_truth(item, kernel, names, depth) for item in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _truth(node.operand, kernel, names, depth)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool)
    if not isinstance(node, ast.Name) or depth > 8:
        return False
    arguments = {a.arg: a.annotation for a in ast.walk(kernel.args) if isinstance(a, ast.arg)}
    stores = [n for n in ast.walk(kernel) if isinstance(n, ast.Name) and n.id == node.id and _stored(n)]
    if node.id in arguments:
        return not stores and _compile_time(arguments[node.id], names)
    if not stores:
        return node.id not in names.locals(kernel) and _constant(node.id, names)
    for store in stores:
        parent = names.parents[store]
        if isinstance(parent, ast.AnnAssign) and _compile_time(parent.annotation, names):
            continue
        if not isinstance(parent, (ast.Assign, ast.AnnAssign)) or parent.value is None:
            return False
        if not _truth(parent.value, kernel, names, depth + 1):
            return False
    return True


def _compile_time(annotation: ast.expr | None, names: Names) -> bool:
    if isinstance(annotation, ast.Constant):
        return annotation.value in ("tl.constexpr", "constexpr", "triton.language.constexpr")
    return annotation is not None and names.path(annotation) == "triton.language.constexpr"


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _in_kernel(kernel: Function, node: ast.AST, what: str) -> _Found:
    line = getattr(node, "lineno", kernel.lineno)
    return "kernel-code", line, f"{what} in the kernel {kernel.name}: only the kernel language is allowed there"


def _kernel_name(kernel: Function, node: ast.Name, names: Names) -> Iterator[_Found]:
    name = node.id
    if name in names.kernels:
        return
    if name in names.imported:
        if not isinstance(names.parents.get(node), ast.Attribute):
            yield from _library_in_kernel(kernel, node, names.path(node))
    elif name in names.functions or name in names.classes:
        yield _in_kernel(kernel, node, f"the plain Python object {name}")
    elif name in words.KERNEL_BUILTINS:
        return
    elif not _constant(name, names):
        yield _in_kernel(kernel, node, f"the name {name}, which is no module-level constant,")


def _constant(name: str, names: Names) -> bool:
    """True when a module-level name is bound to numbers, texts, types and ``tl.constexpr`` of them only."""
    values = [
        node.value
        for node in ast.walk(names.tree)
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == name
    ]
    stores = sum(1 for n in ast.walk(names.tree) if isinstance(n, ast.Name) and n.id == name and _stored(n))
    if not values or stores != len(values):
        return False
    return all(value is not None and _plain(value, names) for value in values)


def _plain(node: ast.expr, names: Names) -> bool:
    for item in ast.walk(node):
        if isinstance(
            item, (ast.Constant, ast.UnaryOp, ast.BinOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
        ):
            continue
        if isinstance(item, ast.Call):
            path = names.path(item.func)
            if path in ("triton.language.constexpr", "float", "int", "bool") or path.startswith("math."):
                continue
        elif isinstance(item, ast.Attribute):
            path = names.path(item)
            if path.startswith(("math.", "triton.language.", "torch.float", "torch.bfloat", "torch.int")):
                continue
        elif isinstance(item, ast.Name) and (item.id in names.imported or item.id in ("float", "int", "bool")):
            continue
        elif isinstance(item, ast.Name) and not _stored(item) and item.id.isupper():
            continue  # another constant; judged by its own binding where a kernel names it
        return False
    return True


def _library_in_kernel(kernel: Function, node: ast.AST, path: str) -> Iterator[_Found]:
    if path.startswith("triton.language.") and words.allowed_language(path):
        return
    if path in ("triton.cdiv", "triton.next_power_of_2") or (path.startswith("math.") and path.count(".") == 1):
        return
    yield _in_kernel(kernel, node, f"use of {path}")


def _kernel_attribute(kernel: Function, node: ast.Attribute, names: Names) -> Iterator[_Found]:
    if isinstance(names.parents.get(node), ast.Attribute) and names.path(names.parents[node]):
        return
    path = names.path(node)
    root: ast.AST = node
    chain = []
    while isinstance(root, ast.Attribute):
        chain.append(root.attr)
        root = root.value
    if path and isinstance(root, ast.Name) and root.id in names.imported and not names.is_local(root):
        yield from _library_in_kernel(kernel, node, path)
    elif not isinstance(node.ctx, ast.Load):
        yield _in_kernel(kernel, node, f"assignment to .{node.attr}")
    else:
        for attribute in chain:
            if attribute not in words.KERNEL_ATTRIBUTES:
                yield _in_kernel(kernel, node, f"the attribute .{attribute}")


# -- launching code ------------------------------------------------------------------------------------------------


def launching_findings(
    forward: Function, launching: Sequence[Function], decorators: Sequence[ast.expr], names: Names
) -> Iterator[_Found]:
    """Yield what is wrong with the code that forward reaches, and whether it launches anything at all."""
    launches = 0
    for function in launching:
        zone = _Launching(function, names)
        yield from zone.findings()
        launches += zone.launches
    for decorator in decorators:
        for node in ast.walk(decorator):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                yield "library-call", node.lineno, "the operator @ outside a kernel"
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and not _library(node.func, names)
                and node.func.attr not in words.WRAPPER_METHODS
            ):
                yield "library-call", node.lineno, f"the method .{node.func.attr}() outside a kernel"
    if not names.kernels:
        yield "no-kernel", 0, "the file defines no function decorated with triton.jit"
    elif launches == 0:
        yield "no-kernel", forward.lineno, "forward launches no kernel: write kernel[grid](...)"


class _Launching:
    """One function that forward reaches."""

    def __init__(self, function: Function, names: Names) -> None:
        self.function, self.names = function, names
        self.values = names.values(function)
        self.launches = 0
        self.kernel_argument = False

    def findings(self) -> Iterator[_Found]:
        for default in [*self.function.args.defaults, *self.function.args.kw_defaults]:
            if isinstance(default, (ast.List, ast.Dict, ast.Set, ast.Call, ast.ListComp, ast.DictComp, ast.SetComp)):
                yield "state", default.lineno, "a mutable default argument keeps state between calls"
        for node in self.names.own_nodes(self.function):
            if isinstance(node, ast.Call):
                yield from self._call(node)
            elif isinstance(node, (ast.Try, ast.TryStar)):
                yield "fallback", node.lineno, "try/except in code that forward reaches: no fallback is allowed"
            elif isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
                yield "library-call", node.lineno, "the operator @ outside a kernel"
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left):
                yield from self._text([node.right], node)
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)) and _touches_parameter(node):
                text = ast.unparse(node)[:80]
                yield "library-call", node.lineno, f"tensor arithmetic outside a kernel: {text}"
            elif isinstance(node, ast.Attribute):
                yield from self._attribute(node)
            elif isinstance(node, ast.FormattedValue):
                yield from self._text([node.value], node)
            elif isinstance(node, ast.Name) and node.id in ("str", "repr") and not self.names.is_local(node):
                yield from self._text_function(node)
            elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and self._lasting(node.value):
                yield (
                    "state",
                    node.lineno,
                    f"{ast.unparse(node)[:60]} outlives the call: a result depends on inputs only",
                )

    def _text(self, values: Sequence[ast.expr], place: ast.expr) -> Iterator[_Found]:
        for value in values:
            if not self._harmless(value, place):
                yield "reflection", place.lineno, f"the text of {ast.unparse(value)[:60]}, which may name a device"

    def _text_function(self, node: ast.Name) -> Iterator[_Found]:
        parent = self.names.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node:
            yield from self._text(parent.args, parent)
        elif isinstance(parent, ast.Call) and self.names.path(parent.func) not in ("isinstance", "issubclass"):
            yield "reflection", node.lineno, f"{node.id} as a value: the text of a tensor names its device"

    def _harmless(self, value: ast.AST, place: ast.AST) -> bool:
        """True where a value's text says nothing of its device, or is only an error's message or printed."""
        if isinstance(value, ast.Attribute) and value.attr in ("dtype", "shape", "ndim"):
            return True
        method = value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else ""
        if method in ("size", "dim", "numel", "stride", "element_size"):
            return True
        child, parent = place, self.names.parents.get(place)
        while parent is not None and parent is not self.function:
            printed = isinstance(parent, ast.Call) and self.names.path(parent.func) == "print"
            if printed or isinstance(parent, ast.Raise) or (isinstance(parent, ast.Assert) and parent.msg is child):
                return True
            child, parent = parent, self.names.parents.get(parent)
        return isinstance(value, ast.Constant)

    def _attribute(self, node: ast.Attribute) -> Iterator[_Found]:
        if not isinstance(node.ctx, ast.Load):
            if self.function.name == "__init__":
                return  # a helper object that is made during the call
            text = ast.unparse(node)[:60]
            yield "state", node.lineno, f"assignment to {text} where forward reaches it: keep no state between calls"
        elif node.attr in words.COMPUTING and node.attr not in self.names.fields and not _library(node, self.names):
            parent = self.names.parents.get(node)
            limits = isinstance(node.value, ast.Call) and self.names.path(node.value.func) in _LIMITS
            called = isinstance(parent, ast.Call) and parent.func is node
            if not called and not limits and not _rooted_in_self(node):
                yield "library-call", node.lineno, f"the tensor method .{node.attr} outside a kernel"

    def _lasting(self, node: ast.AST) -> bool:
        """True for containers that live longer than a call: of self, of a class, of the module."""
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            if isinstance(node, ast.Attribute) and _rooted_in_self(node):
                return True
            node = node.value
        if not isinstance(node, ast.Name) or node.id in self.values:
            return False
        return node.id not in words.BUILTINS

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Iterator[_Found]:
        func = node.func
        if isinstance(func, ast.Subscript):
            yield from self._launch(node, func)
        elif isinstance(func, ast.Name):
            yield from self._named(node, func)
        elif isinstance(func, ast.Attribute):
            yield from self._method(node, func)
        elif not isinstance(func, ast.Lambda):
            yield "library-call", node.lineno, f"call of a computed value: {ast.unparse(func)[:60]}"

    def _launch(self, node: ast.Call, func: ast.Subscript) -> Iterator[_Found]:
        kind = self._launchable(func.value)
        if kind == "kernel":
            self.launches += 1
            for argument in [*node.args, *(k.value for k in node.keywords)]:
                if isinstance(argument, ast.Lambda) or (
                    isinstance(argument, ast.Name)
                    and argument.id in self.names.functions
                    and argument.id not in self.names.kernels
                ):
                    yield "kernel-code", argument.lineno, "a Python function as a kernel's argument"
        elif _rooted_in_self(func):
            yield "library-call", node.lineno, "call of a submodule: compute it in a Triton kernel"
        else:
            yield "library-call", node.lineno, f"call of {ast.unparse(func)[:60]}, which is no launch of a kernel"

    def _launchable(self, node: ast.AST, depth: int = 0) -> str:
        """Return ``kernel`` when an expression can only be a kernel (or an argument that may be one)."""
        names = self.names
        if depth > 8:
            return ""
        if isinstance(node, ast.IfExp):
            both = {self._launchable(node.body, depth + 1), self._launchable(node.orelse, depth + 1)}
            return "kernel" if both == {"kernel"} else ""
        if isinstance(node, ast.Name):
            if node.id in self.values:
                bound = self.values[node.id]
                arguments = {a.arg for a in ast.walk(self.function.args) if isinstance(a, ast.arg)} - {"self", "cls"}
                if bound == [None]:
                    return "kernel" if node.id in arguments and self._gets_kernels() else ""
                return "kernel" if all(v is not None and self._launchable(v, depth + 1) for v in bound) else ""
            return "kernel" if node.id in names.kernels else ""
        if isinstance(node, ast.Attribute) and _rooted_in_self(node):
            values = [
                item.value
                for item in ast.walk(names.tree)
                if isinstance(item, (ast.Assign, ast.AnnAssign)) and item.value is not None
                for target in (item.targets if isinstance(item, ast.Assign) else [item.target])
                if (isinstance(target, ast.Attribute) and target.attr == node.attr)
                or (isinstance(target, ast.Name) and target.id == node.attr)
            ]
            good = all(isinstance(v, ast.Name) and v.id in names.kernels for v in values)
            return "kernel" if values and good else ""
        return ""

    def _gets_kernels(self) -> bool:
        """True when every call of this function passes kernels for what it launches; here: some kernel is passed."""
        for node in ast.walk(self.names.tree):
            if isinstance(node, ast.Call) and self.names.path(node.func).split(".")[-1] == self.function.name:
                passed = [*node.args, *(k.value for k in node.keywords)]
                if any(isinstance(a, ast.Name) and a.id in self.names.kernels for a in passed):
                    return True
        return False

    def _callbacks(self, node: ast.Call, name: str) -> Iterator[_Found]:
        """A function that a built-in calls must be one that can be seen here."""
        given = [k.value for k in node.keywords if k.arg == "key"]
        if name in ("map", "filter") or (name == "iter" and len(node.args) > 1):
            given += node.args[:1]
        for item in given:
            seen = isinstance(item, ast.Lambda) or (isinstance(item, ast.Constant) and item.value is None)
            if isinstance(item, ast.Name) and not self.names.is_local(item):
                seen = item.id in self.names.functions or item.id in words.BUILTINS
            if not seen and not _library(item, self.names):
                yield (
                    "library-call",
                    node.lineno,
                    f"{name} calls {ast.unparse(item)[:60]}: it is not clear what that is",
                )

    def _named(self, node: ast.Call, func: ast.Name) -> Iterator[_Found]:
        name, names = func.id, self.names
        yield from self._callbacks(node, name)
        if name in self.values and names.is_local(func):
            for value in self.values[name]:
                callable_here = isinstance(value, (ast.Lambda, ast.FunctionDef))
                launch = isinstance(value, ast.Subscript) and self._launchable(value.value) == "kernel"
                self.launches += int(launch)
                if not callable_here and not launch:
                    yield "library-call", node.lineno, f"call of {name}, of which it is not clear what it is"
                    return
        elif name in names.kernels:
            yield "no-kernel", node.lineno, f"the kernel {name} is called without a grid: write {name}[grid](...)"
        elif name in names.imported or name in names.functions or name in names.classes:
            return  # judged by path, or reached
        elif name not in words.BUILTINS:
            yield "library-call", node.lineno, f"call of {name}: only functions made by def and kernels are called"

    def _method(self, node: ast.Call, func: ast.Attribute) -> Iterator[_Found]:
        names, name, owner = self.names, func.attr, func.value
        if _library(func, names):
            return  # judged by path
        if isinstance(owner, ast.Name) and owner.id in ("self", "cls"):
            if name in names.methods or name in names.submodules or name == "parameters":
                return
            yield "library-call", node.lineno, f"call of the submodule self.{name}: compute it in a Triton kernel"
        elif name == "__init__" and self.function.name == "__init__":
            return
        elif name == "format":
            yield from self._text([*node.args, *(k.value for k in node.keywords)], node)
        elif name in ("forward", "__call__", "apply"):
            yield "library-call", node.lineno, f"call of .{name}(): compute it in a Triton kernel"
        elif isinstance(owner, ast.Name) and owner.id in names.classes and name in names.methods:
            return
        elif name in words.MUTATORS and name not in words.COMPUTING and self._lasting(owner):
            text = ast.unparse(func)[:60]
            yield "state", node.lineno, f"{text}() changes what outlives the call: a result depends on inputs only"
        elif name in words.COMPUTING or name.rstrip("_") in words.COMPUTING:
            yield "library-call", node.lineno, f"the tensor method .{name}() outside a kernel"
        elif name not in words.WRAPPER_METHODS and name not in names.methods:
            yield (
                "library-call",
                node.lineno,
                f"the method .{name}() outside a kernel: only allocation, views and sizes are allowed there",
            )


def _library(node: ast.AST, names: Names) -> bool:
    """True for a path into a library; those are judged by their path."""
    return names.path(node).split(".")[0] in ("torch", "triton", "math", "typing")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _rooted_in_self(node: ast.AST) -> bool:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _touches_parameter(node: ast.BinOp | ast.UnaryOp) -> bool:
    """True for arithmetic directly on a parameter tensor (``self.weight * 2``); sizes are free to compute with.

    Arithmetic on arguments cannot be told from arithmetic on sizes here; the log of library calls at run time sees it.
    """
    operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
    return any(isinstance(item, ast.Attribute) and _rooted_in_self(item) and item.attr in _HOLDERS for item in operands)
