"""Names of a candidate file: what they are bound to, what they resolve to, what can be reached from where."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from orienteer.evaluators.kernel import vocabulary as words

Function = ast.FunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Names:
    """Resolves the names of one file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {c: p for p in ast.walk(tree) for c in ast.iter_child_nodes(p)}
        #: Local name -> dotted paths of its imports.
        self.imported: dict[str, set[str]] = {}
        self._collect_imports()
        #: Functions at module level, also those under ``if`` and ``try``.
        self.functions: dict[str, Function] = {}
        #: All classes, wherever they stand.
        self.classes: dict[str, ast.ClassDef] = {}
        self.methods_of: dict[str, dict[str, list[Function]]] = {}
        #: Attributes that the file itself defines.
        self.fields: set[str] = set()
        self._locals: dict[ast.AST, frozenset[str]] = {}
        for node in ast.walk(tree):
            if isinstance(node, Function) and self.at_module_level(node):
                self.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self.classes[node.name] = node
                self.methods_of[node.name] = _grouped(node)
                self.fields |= set(_class_fields(node))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.fields.add(node.attr)
        self.methods = {name for group in self.methods_of.values() for name in group} - {"__init__"}
        self.kernels = {name: node for name, node in self.functions.items() if self._is_kernel(node)}
        self.submodules = self._submodules()
        #: Module-level name or ``.attribute`` -> the expressions that are assigned to it.
        self.held: dict[str, list[ast.AST]] = {}
        for node in ast.walk(tree):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Attribute):
                        self.held.setdefault(f".{target.attr}", []).append(node.value)
                    elif isinstance(target, ast.Name) and isinstance(self.parents[node], ast.ClassDef):
                        self.held.setdefault(f".{target.id}", []).append(node.value)
                    elif isinstance(target, ast.Name) and self.at_module_level(node):
                        self.held.setdefault(target.id, []).append(node.value)

    def _collect_imports(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    top = item.name.split(".")[0]
                    self.imported.setdefault(item.asname or top, set()).add(item.name if item.asname else top)
            elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
                for item in node.names:
                    path = f"{'.' * node.level}{node.module or ''}.{item.name}"
                    self.imported.setdefault(item.asname or item.name, set()).add(path)

    def at_module_level(self, node: ast.AST) -> bool:
        """True for what stands in no function and no class."""
        parent = self.parents.get(node)
        while parent is not None and not isinstance(parent, (*_SCOPES, ast.ClassDef)):
            parent = self.parents.get(parent)
        return parent is None

    def _is_kernel(self, node: Function) -> bool:
        return any(
            self.path(d.func if isinstance(d, ast.Call) else d) in words.KERNEL_DECORATORS for d in node.decorator_list
        )

    def _submodules(self) -> dict[str, set[str]]:
        """Attributes of ``self`` that hold instances of the file's own classes and nothing else."""
        found: dict[str, set[str]] = {}
        foreign: set[str] = set()
        for node in ast.walk(self.tree):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in targets:
                if not (isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)):
                    continue
                value = getattr(node, "value", None)
                own = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in self.classes
                if own and isinstance(node, (ast.Assign, ast.AnnAssign)):
                    found.setdefault(target.attr, set()).add(value.func.id)  # type: ignore[union-attr]
                else:
                    foreign.add(target.attr)
        return {name: kinds for name, kinds in found.items() if name not in foreign}

    # -- resolving -----------------------------------------------------------------------------------------------------

    def path(self, node: ast.AST) -> str:
        """Return the dotted path that an expression names after resolving imports; empty when it is no plain path."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = node.id
        if root in self.imported and not self.is_local(node):
            root = min(self.imported[root])
        elif root in ("torch", "triton", "math", "typing"):
            root = f"<local>{root}"
        return ".".join([root, *reversed(parts)])

    def is_local(self, node: ast.Name) -> bool:
        """True when a name is bound in a function or lambda round it (imports inside functions do not count)."""
        child: ast.AST = node
        parent = self.parents.get(child)
        while parent is not None:
            if isinstance(parent, _SCOPES):
                body = [parent.body] if isinstance(parent, ast.Lambda) else parent.body
                if any(child is statement for statement in body) and node.id in self.locals(parent):
                    return True
            child, parent = parent, self.parents.get(parent)
        return False

    def locals(self, scope: ast.AST) -> frozenset[str]:
        """Names that a function or lambda binds itself."""
        if scope not in self._locals:
            self._locals[scope] = frozenset(_bound_in(scope))
        return self._locals[scope]

    def method(self, class_name: str, method: str) -> Function | None:
        """Return a method of a class or of its bases in the file."""
        seen: set[str] = set()
        queue = [class_name]
        while queue:
            name = queue.pop(0)
            if name in seen or name not in self.classes:
                continue
            seen.add(name)
            found = self.methods_of[name].get(method)
            if found:
                return found[-1]
            queue += [base.id for base in self.classes[name].bases if isinstance(base, ast.Name)]
        return None

    def line(self, name: str) -> int:
        """Return the line of a function or class."""
        node = self.functions.get(name) or self.classes.get(name)
        return node.lineno if node is not None else 0

    # -- reaching ------------------------------------------------------------------------------------------------------

    def reached(self, roots: Sequence[ast.AST]) -> list[Function]:
        """Return every plain function and method that code of the roots can get at; kernels are left out."""
        seen: dict[ast.AST, None] = {}
        queue: list[ast.AST] = list(roots)
        while queue:
            function = queue.pop()
            if function in seen or (isinstance(function, Function) and self.kernels.get(function.name) is function):
                continue
            seen[function] = None
            for node in ast.walk(function):
                # What a name or an attribute holds can be got at as well.
                if isinstance(node, ast.Name) and not self.is_local(node):
                    queue += self.held.get(node.id, [])
                elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    queue += self.held.get(f".{node.attr}", [])
                if isinstance(node, ast.Name):
                    if node.id in self.functions:
                        queue.append(self.functions[node.id])
                    if node.id in self.classes and not isinstance(self.parents.get(node), ast.Attribute):
                        queue += [f for group in self.methods_of[node.id].values() for f in group]
                elif isinstance(node, ast.Attribute):
                    if node.attr in self.methods:
                        for group in self.methods_of.values():
                            queue += group.get(node.attr, [])
                    for kind in self.submodules.get(node.attr, ()):
                        forward = self.method(kind, "forward")
                        queue += [forward] if forward is not None else []
        return [function for function in seen if isinstance(function, Function)]

    def own_nodes(self, function: Function) -> Iterator[ast.AST]:
        """Walk a function without its annotations and decorators."""
        yield from (
            n for default in [*function.args.defaults, *function.args.kw_defaults] if default for n in ast.walk(default)
        )
        for statement in function.body:
            yield from ast.walk(statement)

    def values(self, function: Function) -> dict[str, list[ast.expr | Function | None]]:
        """Return what the names inside a function are bound to; None where that is no plain assignment."""
        out: dict[str, list[ast.expr | Function | None]] = {}
        plain: set[int] = set()
        for node in ast.walk(function):
            if isinstance(node, Function) and node is not function:
                out.setdefault(node.name, []).append(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    if isinstance(target, ast.Name) and node.value is not None:
                        out.setdefault(target.id, []).append(node.value)
                        plain.add(id(target))
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in plain:
                out.setdefault(node.id, []).append(None)
            elif isinstance(node, ast.arg):
                out.setdefault(node.arg, []).append(None)
            elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
                out.setdefault(node.name, []).append(None)
        return out


def _grouped(node: ast.ClassDef) -> dict[str, list[Function]]:
    out: dict[str, list[Function]] = {}
    for statement in node.body:
        for item in ast.walk(statement):
            if isinstance(item, Function):
                out.setdefault(item.name, []).append(item)
                if item is statement:
                    break
    return out


def _class_fields(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)):
            for item in ast.walk(statement):
                if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
                    yield item.id


def _bound_in(scope: ast.AST) -> Iterator[str]:
    arguments = scope.args  # type: ignore[attr-defined]
    for item in ast.walk(arguments):
        if isinstance(item, ast.arg):
            yield item.arg
    queue: list[ast.AST] = [scope.body] if isinstance(scope, ast.Lambda) else list(scope.body)  # type: ignore[attr-defined]
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, _COMPREHENSIONS):
            # Their targets are names of their own; only a walrus inside binds here.
            queue += [n.target for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            continue
        queue += list(ast.iter_child_nodes(node))


def stored_names(tree: ast.Module) -> frozenset[str]:
    """Return every name that the file binds anywhere."""
    out: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            out.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.add(node.name)
        elif isinstance(node, ast.arg):
            out.add(node.arg)
        elif isinstance(node, ast.alias):
            out.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            out.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            out.add(node.rest)
    return frozenset(out)


def bindings(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """Return the bindings of every name at module level."""
    out: dict[str, list[ast.AST]] = {}
    queue: list[ast.AST] = list(tree.body)
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.setdefault(node.name, []).append(node)
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            out.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.alias):
            out.setdefault(node.asname or node.name.split(".")[0], []).append(node)
        queue += list(ast.iter_child_nodes(node))
    return out


# -- what is evaluated when, and where ---------------------------------------------------------------------------------


def import_time_nodes(names: Names) -> Iterator[tuple[ast.expr, ast.Call]]:
    """Yield calls made while the file is loaded, each with every call that it reaches in the file's own functions.

    That is module level, class level, default arguments and decorators; bodies of lambdas there count as well, those of
    functions only where they are called from there. ``if __name__ == "__main__"`` never runs.
    """
    queue: list[ast.AST] = list(names.tree.body)
    while queue:
        node = queue.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            queue += [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
            queue += node.orelse
            continue
        queue += list(ast.iter_child_nodes(node))
        roots: list[ast.AST] = []
        if isinstance(node, ast.Attribute):
            roots += [f for group in names.methods_of.values() for f in group.get(node.attr, [])]
        elif isinstance(node, ast.Call):
            yield node, node
            plain = isinstance(node.func, ast.Name) and node.func.id in ("dict", "list", "tuple", "set", "frozenset")
            for item in ast.walk(node):
                if isinstance(item, ast.Name) and not plain:
                    roots += names.held.get(item.id, [])
                    roots += [names.functions[item.id]] if item.id in names.functions else []
                    # Methods that no one names: the constructor, representations, comparisons.
                    group = names.methods_of.get(item.id, {})
                    roots += [f for name, found in group.items() if name.startswith("__") for f in found]
        for function in names.reached(roots):
            for inner in names.own_nodes(function):
                if isinstance(inner, ast.Call) and isinstance(node, ast.expr):
                    yield node, inner


def device_reads(tree: ast.Module, names: Names) -> Iterator[ast.Attribute | ast.Name]:
    """Yield the expressions with which code learns where a tensor lies.

    ``device=x.device`` passes a device on, ``device = x.device`` names it for that; a check that can only raise
    (``assert x.device == z.device``) changes no result. Everything else is yielded.
    """
    guarded: set[int] = set()
    for node in ast.walk(tree):
        test = node.test if isinstance(node, ast.Assert) else None
        if isinstance(node, ast.If) and not node.orelse and all(isinstance(s, ast.Raise) for s in node.body):
            test = node.test
        if test is not None and not any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in ast.walk(test)):
            guarded |= {id(n) for n in ast.walk(test)}
        message = node.msg if isinstance(node, ast.Assert) else node if isinstance(node, ast.Raise) else None
        if message is not None:
            guarded |= {id(n) for n in ast.walk(message)}
    #: Names that hold a device, with the function that binds them.
    held: set[tuple[ast.AST | None, str]] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load) or id(node) in guarded:
            continue
        parent = names.parents.get(node)
        if node.attr in words.DEVICE_ATTRIBUTES:
            yield node
        elif node.attr == "type":
            called = isinstance(parent, ast.Call) and parent.func is node and (parent.args or parent.keywords)
            if not called and not any(names.kernels.get(f.name) is f for f in _functions_round(node, names)):
                yield node
        elif node.attr == "device" and names.path(node) != "torch.device":
            if isinstance(parent, ast.Assign) and all(isinstance(t, ast.Name) for t in parent.targets):
                scope = next(iter(_functions_round(node, names)), None)
                held |= {(scope, t.id) for t in parent.targets if isinstance(t, ast.Name)}
            elif not _passes_device(node, names, held):
                yield node
    for _ in range(3):  # a device may be passed on from function to function
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and _holds(node, names, held):
                _passes_device(node, names, held)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load) or id(node) in guarded:
            continue
        if _holds(node, names, held) and not _passes_device(node, names, held):
            yield node


def _holds(node: ast.Name, names: Names, held: set[tuple[ast.AST | None, str]]) -> bool:
    return any((scope, node.id) in held for scope in [*_functions_round(node, names), None])


def _passes_device(node: ast.expr, names: Names, held: set[tuple[ast.AST | None, str]]) -> bool:
    """True for ``device=`` of torch and of the file's functions, whose parameter is held then, and for ``.to(...)``."""
    parent = names.parents.get(node)
    call = names.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    if not isinstance(call, ast.Call) or (isinstance(parent, ast.keyword) and parent.arg != "device"):
        return False
    if not isinstance(parent, ast.keyword):
        return isinstance(call.func, ast.Attribute) and call.func.attr == "to" and node is not call.func
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if names.path(call.func).startswith("torch.") or (name == "to" or name.startswith("new_")):
        return name not in names.methods
    name = name or (call.func.id if isinstance(call.func, ast.Name) else "")
    own = [names.functions[name]] if name in names.functions else []
    own += [f for group in names.methods_of.values() for f in group.get(name, [])]
    own += names.methods_of.get(name, {}).get("__init__", [])
    held |= {(function, "device") for function in own}
    return bool(own) and not any(function.args.kwarg for function in own)


def _functions_round(node: ast.AST, names: Names) -> Iterator[Function]:
    parent = names.parents.get(node)
    while parent is not None:
        if isinstance(parent, Function):
            yield parent
        parent = names.parents.get(parent)
