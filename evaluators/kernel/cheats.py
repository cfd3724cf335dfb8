"""The static cheat check: a candidate must compute in its kernels and may not reach for anything else.

The file is read as a syntax tree, never as text, so comments and strings prove nothing. The rules have two aims: what
``forward`` returns must come from launched kernels (rows 1 to 4, 7 and 21 of the table in the design page of
EvoKernel), and the candidate's process must hold nothing with which candidate code could change how it is judged (rows
4, 6, 12 and 18). Both are lists of what is allowed (:mod:`.vocabulary`).

Three zones have rules of their own: *kernels* (``@triton.jit`` functions), *launching code* (everything that
``forward`` reaches) and the rest (constructors, module level, dead code), in which PyTorch may compute tables and
initial values.
"""

from __future__ import annotations

import ast
import codecs
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from orienteer.environments.kernel.load import source_lines
from orienteer.evaluators.kernel import vocabulary as words
from orienteer.evaluators.kernel.scopes import Function, Names, bindings, device_reads, import_time_nodes, stored_names
from orienteer.evaluators.kernel.zones import kernel_findings, launching_findings
from orienteer.syntax import parse

__all__ = ["Finding", "check"]


@dataclass(frozen=True)
class Finding:
    """One broken rule."""

    #: Stable code: ``library-call``, ``no-kernel``, ``fallback``, ``reference``, ``import``, ``reflection``,
    #: ``background``, ``files``, ``dynamic-code``, ``patching``, ``stream``, ``state``, ``deferred``, ``kernel-code``;
    #: ``syntax`` and ``contract`` are no cheats. :mod:`.rejections` says what to do about each.
    code: str
    line: int
    message: str


def check(source: str) -> list[Finding]:
    """Return the broken rules of a candidate file, in the order of their lines; none means that it may run."""
    unreadable = [Finding(*item) for item in _text(source)]
    if unreadable:
        return unreadable
    try:
        tree = parse(source)
        names = Names(tree)
        found = [Finding(*item) for item in [*_run(tree, names), *_kernel_texts(source, names)]]
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        return [Finding("syntax", line, f"the file is no Python: {text}")]
    except (RecursionError, MemoryError):
        return [Finding("syntax", 0, "the file is nested too deeply to be read")]
    unique = {(f.code, f.line, f.message): f for f in found}
    return sorted(unique.values(), key=lambda f: (f.line, f.code))


def names_used(source: str) -> frozenset[str]:
    """Return every attribute and imported name in a file that can be parsed."""
    out: set[str] = set()
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Attribute):
            out.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            out |= {item.name for item in node.names}
    return frozenset(out)


_Found = tuple[str, int, str]
_NO_TEXT = re.compile("[^\\t\\n\\r -~\\xa0-\\u2027\\u202a-\\U0010ffff]")
_DEF = re.compile(r"^def\s+\w+\s*\(", re.MULTILINE)


def _text(source: str) -> Iterator[_Found]:
    """Refuse what makes one text read differently by two readers: unseen line ends, other encodings."""
    if source.startswith("\ufeff"):
        yield "syntax", 1, "line 1 begins with a byte order mark"
        return
    for number, line in enumerate(source_lines(source), 1):
        for character in sorted(set(_NO_TEXT.findall(line))):
            yield "syntax", number, f"line {number} holds the control character U+{ord(character):04X}"
    try:
        data = source.encode()
    except UnicodeEncodeError as error:
        number = len(source_lines(source[: error.start] + "x"))
        yield "syntax", number, f"line {number} holds a character that UTF-8 cannot write"
        return
    for form in (data, "".join(source_lines(source)).encode()):
        try:
            cookie = tokenize.detect_encoding(io.BytesIO(form).readline)[0]
            good = codecs.lookup(cookie).name == "utf-8"
        except (SyntaxError, LookupError):
            good = False
        if not good:
            yield "syntax", 1, "the file declares another encoding than utf-8"
            return


def _kernel_texts(source: str, names: Names) -> Iterator[_Found]:
    """Triton reads a kernel's text again, from its first ``def``: that text must be the kernel that was checked."""
    lines = source_lines(source)
    for name, kernel in names.kernels.items():
        first = kernel.decorator_list[0].lineno
        try:
            block = textwrap.dedent("".join(inspect.getblock(lines[first - 1 :])))
            start = _DEF.search(block)
            read = parse(block[start.start() :]).body if start else []
        except (SyntaxError, ValueError, tokenize.TokenError):
            read = []
        same = ast.FunctionDef(**{**dict(ast.iter_fields(kernel)), "decorator_list": []})
        if not lines[first - 1].lstrip().startswith("@") or [ast.dump(n) for n in read] != [ast.dump(same)]:
            yield "kernel-code", kernel.lineno, f"the text of the kernel {name} can be read in two ways"


def _run(tree: ast.Module, names: Names) -> Iterator[_Found]:
    yield from _imports(tree, names)
    yield from _everywhere(tree, names)
    yield from _classes(names)
    yield from _definitions(tree, names)
    for node in device_reads(tree, names):
        text = ast.unparse(node)[:60]
        yield (
            "reflection",
            node.lineno,
            f"use of {text}: a result may not depend on the device (device=x.device is fine)",
        )
    yield from _import_time(names)
    model = names.classes.get("ModelNew")
    if model is None:
        yield "contract", 0, "the file defines no class ModelNew"
        return
    forward = names.method("ModelNew", "forward")
    if forward is None:
        yield "contract", model.lineno, "ModelNew has no method forward"
        return
    # Methods with names of the language's own (``__getitem__``) are called without being named.
    unnamed = [f for group in names.methods_of.values() for name in group for f in group[name] if _unnamed(name)]
    launching = names.reached([forward, *unnamed])
    decorators = [d for kernel in names.kernels.values() for d in kernel.decorator_list]
    yield from _torch(tree, names, launching, decorators)
    for kernel in names.kernels.values():
        yield from kernel_findings(kernel, names)
    yield from launching_findings(forward, launching, decorators, names)


def _unnamed(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name != "__init__"


# -- the whole file ------------------------------------------------------------------------------------------------


def _imports(tree: ast.Module, names: Names) -> Iterator[_Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                if item.name not in words.MODULES:
                    yield _bad_import(node, item.name)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for item in node.names:
                path = f"{base}.{item.name}"
                if base == "__future__":
                    continue
                if base not in words.MODULES or item.name == "*":
                    yield _bad_import(node, path)
                elif path not in words.MODULES:
                    yield from _path_rule(path, node.lineno, names, build=False, called=True, imported=True)
    for name, paths in names.imported.items():
        if len(paths) > 1:
            yield "reflection", 0, f"the name {name} stands for several imports: {', '.join(sorted(paths))}"


def _bad_import(node: ast.stmt, name: str) -> _Found:
    code = words.IMPORT_CODES.get(name.split(".")[0], "import")
    return code, node.lineno, f"import of {name}: a kernel file may import torch, torch.nn, triton, math, typing"


def _everywhere(tree: ast.Module, names: Names) -> Iterator[_Found]:
    known = stored_names(tree) | words.BUILTINS
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield from _name(node, known, names)
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node, names)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            yield "state", node.lineno, "global or nonlocal state: a kernel's result depends on its inputs only"
        elif isinstance(node, (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await, ast.Yield, ast.YieldFrom)):
            yield "deferred", node.lineno, "deferred execution (async or generator)"
        elif isinstance(node, ast.MatchClass) and node.kwd_attrs:
            yield "reflection", node.lineno, "a class pattern that reads attributes"
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield from _decorators(node, names)


def _import_time(names: Names) -> Iterator[_Found]:
    """A tensor that is made when the file is loaded or a function defined outlives every call."""
    for node, made in import_time_nodes(names):
        path = names.path(made.func)
        if path.startswith("torch.") and path not in words.STATELESS:
            yield "state", node.lineno, f"call of {path} outside functions: what it makes is kept between calls"


def _name(node: ast.Name, known: frozenset[str], names: Names) -> Iterator[_Found]:
    name = node.id
    if isinstance(node.ctx, ast.Load) and name not in known:
        if name in ("Model", "get_inputs", "get_init_inputs"):
            yield "reference", node.lineno, f"the reference ({name}) is not available to a candidate"
        else:
            code = words.NAME_CODES.get(name, "reflection")
            yield code, node.lineno, f"use of {name}, which the file does not define"
    elif name.startswith("__") and name != "__name__":
        yield "reflection", node.lineno, f"use of {name}"
    elif not isinstance(node.ctx, ast.Load) and name in words.BUILTINS and names.at_module_level(node):
        yield "patching", node.lineno, f"assignment to the built-in {name}"
    elif name == "type" and isinstance(node.ctx, ast.Load):
        parent = names.parents.get(node)
        if isinstance(parent, ast.Call) and parent.func is node and (len(parent.args) != 1 or parent.keywords):
            yield "reflection", node.lineno, "type() with more than one argument makes a class"
    elif name in ("property", "staticmethod", "classmethod") and not _decorates(node, names):
        yield "patching", node.lineno, f"{name} is used as a decorator only"
    elif names.path(node) in words.MODULES and not isinstance(names.parents.get(node), ast.Attribute):
        yield "reflection", node.lineno, f"the module {names.path(node)} used as a value"


def _decorates(node: ast.Name, names: Names) -> bool:
    parent = names.parents.get(node)
    return isinstance(parent, ast.FunctionDef) and any(node is item for item in parent.decorator_list)


def _attribute(node: ast.Attribute, names: Names) -> Iterator[_Found]:
    name = node.attr
    path = names.path(node)
    root = path.split(".")[0]
    if isinstance(node.ctx, (ast.Store, ast.Del)) and (
        root in ("torch", "triton", "math", "typing") or _class(node, names)
    ):
        yield "patching", node.lineno, f"assignment to {path or ast.unparse(node)}"
    elif name.startswith("__"):
        if name not in words.DUNDER_ATTRIBUTES:
            yield "reflection", node.lineno, f"use of the attribute {name}"
    elif name.startswith("_"):
        own = isinstance(node.value, ast.Name) and (node.value.id in ("self", "cls") or node.value.id in names.classes)
        if not own or name in words.MODULE_MEMBERS:
            yield "reflection", node.lineno, f"use of the private attribute {name}"
    elif name in words.FORBIDDEN_ATTRIBUTES and name not in names.fields:
        code = words.ATTRIBUTE_CODES.get(name, "reflection")
        yield code, node.lineno, f"use of the attribute {name}: a wrapper needs none of devices, storage, files, hooks"
    elif isinstance(node.ctx, ast.Store) and _self(node) and (name in words.MODULE_MEMBERS or name in names.methods):
        yield "patching", node.lineno, f"assignment to self.{name}, which is a method or belongs to nn.Module"


def _self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def _class(node: ast.Attribute, names: Names) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in names.classes


def _decorators(node: ast.FunctionDef | ast.ClassDef, names: Names) -> Iterator[_Found]:
    for decorator in node.decorator_list:
        path = names.path(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if path in words.KERNEL_DECORATORS:
            if isinstance(node, ast.ClassDef) or names.kernels.get(node.name) is not node:
                yield "kernel-code", decorator.lineno, f"the kernel {node.name} must stand once, at module level"
        elif path not in words.PLAIN_DECORATORS:
            own = isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter")
            text = path or ast.unparse(decorator)[:60]
            yield "patching", decorator.lineno, f"{'property setter' if own else 'decorator'} {text}"


def _classes(names: Names) -> Iterator[_Found]:
    for node in names.classes.values():
        module = False
        for base in node.bases:
            path = names.path(base.value if isinstance(base, ast.Subscript) else base)
            if path in ("torch.Tensor", "torch.nn.Parameter", "torch.nn.parameter.Parameter"):
                yield "deferred", node.lineno, f"subclass of {path}: outputs must be plain tensors"
            elif path == "Model" and "Model" not in names.classes:
                continue  # said where the name stands
            elif path.startswith("torch.nn.") and path.count(".") == 2:
                module = True
            elif path not in names.classes and path not in ("object", "typing.NamedTuple", "typing.Generic"):
                yield "patching", node.lineno, f"base class {path or ast.unparse(base)[:60]}: derive from nn.Module"
            module |= path in names.classes
        if node.keywords:
            yield "reflection", node.lineno, "a metaclass or class arguments"
        for item in node.body:
            if not isinstance(item, ast.FunctionDef):
                continue
            dunder = item.name.startswith("__") and item.name.endswith("__")
            if dunder and item.name not in words.DUNDER_METHODS:
                yield "patching", item.lineno, f"definition of {item.name}"
            elif module and item.name in words.MODULE_MEMBERS:
                yield "patching", item.lineno, f"definition of {item.name}, which belongs to nn.Module"


def _definitions(tree: ast.Module, names: Names) -> Iterator[_Found]:
    """A function, class or kernel has one meaning."""
    counted = bindings(tree)
    for name in [*names.functions, *names.classes]:
        if len(counted.get(name, [])) > 1:
            yield "patching", names.line(name), f"{name} is bound more than once at module level"
    for name in names.imported:
        for node in counted.get(name, []):
            if not isinstance(node, ast.alias):
                yield "patching", getattr(node, "lineno", 0), f"the import {name} is bound again at module level"
    for group in names.methods_of.values():
        for name, found in group.items():
            if len(found) > 1 and not any(_setter(item) for item in found):
                yield "patching", found[-1].lineno, f"the method {name} is defined more than once"


def _setter(node: Function) -> bool:
    return any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


# -- what is used of torch, triton, math ---------------------------------------------------------------------------


def _torch(tree: ast.Module, names: Names, launching: list[Function], decorators: list[ast.expr]) -> Iterator[_Found]:
    """Check every dotted path into a library, by the zone in which it stands."""
    strict = {id(n) for function in launching for n in names.own_nodes(function)}
    strict |= {id(n) for decorator in decorators for n in ast.walk(decorator)}
    kernels = {id(n) for kernel in names.kernels.values() for n in ast.walk(kernel)}
    deco = {
        id(d.func if isinstance(d, ast.Call) else d) for f in ast.walk(tree) for d in getattr(f, "decorator_list", [])
    }
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or isinstance(names.parents.get(node), ast.Attribute):
            continue
        path = names.path(node)
        if "." not in path or path in words.MODULES or path.split(".")[0] not in ("torch", "triton", "math", "typing"):
            if path in words.MODULES and isinstance(node, ast.Attribute):
                yield "reflection", node.lineno, f"the module {path} used as a value"
            continue
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            continue  # an assignment: said as patching
        if id(node) in deco or (id(node) in kernels and id(node) not in strict):
            continue
        parent = names.parents.get(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        yield from _path_rule(path, node.lineno, names, build=id(node) not in strict, called=called)


def _path_rule(
    path: str, line: int, names: Names, *, build: bool, called: bool, imported: bool = False
) -> Iterator[_Found]:
    """Say what is wrong with a dotted path; ``build`` is true where PyTorch may make tables and parameters."""
    parts = path.split(".")
    if parts[0] == "math":
        if len(parts) > 2 or parts[1].startswith("_"):
            yield "reflection", line, f"use of {path}"
    elif parts[0] == "typing":
        if parts[1] not in words.TYPING:
            yield "reflection", line, f"use of {path}"
    elif parts[0] == "triton":
        yield from _triton_rule(path, parts, line, called, imported)
    elif parts[1] in ("load", "save"):
        yield "files", line, f"use of {path}: a candidate reads and writes no files"
    elif parts[1] in ("cuda", "npu", "xpu", "Stream", "Event"):
        yield "stream", line, f"use of {path}: devices and streams are the harness's"
    elif parts[:2] == ["torch", "nn"]:
        yield from _nn_rule(path, parts, line, build)
    elif parts[1] in words.TORCH_VALUES and (len(parts) == 2 or path in ("torch.Tensor.shape",)):
        return
    elif parts[1] in words.TORCH_VALUES and len(parts) == 3 and parts[1] not in ("Tensor", "Size", "Generator"):
        if parts[2] not in ("itemsize", "is_floating_point", "is_complex"):
            yield "library-call", line, f"use of {path}"
    elif len(parts) == 2 and imported and parts[1] in words.TORCH_BUILD | words.TORCH_WRAPPER:
        return  # judged where it is used
    elif len(parts) == 2 and called and parts[1] in words.TORCH_WRAPPER | (words.TORCH_BUILD if build else frozenset()):
        return
    elif len(parts) == 2 and parts[1] in words.TORCH_BUILD | words.TORCH_WRAPPER and not called:
        yield "library-call", line, f"the function {path} used as a value: compute it in a Triton kernel"
    elif len(parts) == 2 and parts[1] in words.TORCH_BUILD:
        yield "library-call", line, f"call of {path}: compute it in a Triton kernel"
    else:
        yield "library-call", line, f"use of {path}: only allocation, views and dtypes are allowed from torch"


def _nn_rule(path: str, parts: list[str], line: int, build: bool) -> Iterator[_Found]:
    if any(part.startswith("_") for part in parts):
        yield "reflection", line, f"use of {path}"
    elif parts[2] in ("functional", "init"):
        if len(parts) != 4 or not build:
            yield "library-call", line, f"use of {path}: compute it in a Triton kernel"
    elif len(parts) > 3 or not parts[2][:1].isupper():
        yield "library-call", line, f"use of {path}: modules only hold parameters"
    elif not build and parts[2] not in ("Module", "Parameter"):
        yield "library-call", line, f"use of {path} where forward reaches it: modules only hold parameters"


def _triton_rule(path: str, parts: list[str], line: int, called: bool, imported: bool) -> Iterator[_Found]:
    """Rule for the host; kernels have their own."""
    if path in words.TRITON_HOST:
        return
    if path in words.KERNEL_DECORATORS:
        if not imported:
            yield "kernel-code", line, f"{path} is used as a decorator only"
        return
    if parts[1] == "language" and words.allowed_language(path):
        if called and parts[-1] not in ("constexpr", "cdiv") and not imported:
            yield "kernel-code", line, f"call of {path} outside a kernel"
        return
    yield "reflection", line, f"use of {path}: only the kernel language, launches and size arithmetic are allowed"
