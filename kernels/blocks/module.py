"""The candidate file: kernels, and a ``ModelNew`` that launches them.

``ModelNew`` keeps the constructor of the task's ``Model`` word for word, so it has the same parameters under the same
names; only ``forward`` is new. Sizes are read from the tensors at run time.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Sequence

from orienteer.kernels.blocks.emit import Unsupported
from orienteer.kernels.blocks.graph import Graph
from orienteer.kernels.blocks.lower import Plan
from orienteer.kernels.blocks.schedule import Schedule
from orienteer.syntax import parse

_HELPERS = {
    "_multiply": '@triton.jit\ndef _multiply(a, b):\n    """Combine two factors of a product."""\n    return a * b\n',
}
_DROPPED_FUNCTIONS = {"get_inputs", "get_init_inputs"}


def assemble(graph: Graph, plan: Plan, schedule: Schedule, task_source: str, title: str) -> str:
    """Return the source of a candidate.

    Args:
        graph: the traced operator.
        plan: its kernels in launch order.
        schedule: tile sizes and launch width.
        task_source: the task file; its imports, helper classes and ``Model``'s constructor are kept.
        title: first line of the file's docstring.
    """
    graph = plan.graph or graph
    tree = parse(task_source)
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is None:
        raise Unsupported("the task file has no class Model")
    kept = _prelude(tree, model)
    kernels = [kernel.source() for kernel in plan.kernels]
    helpers = sorted({name for kernel in plan.kernels for name in kernel.helpers})
    parts = [
        f'"""{title}"""',
        "",
        *_imports(tree, model, kept),
        "",
        *(ast.unparse(node) + "\n" for node in kept),
        f"MAX_PROGRAMS = {schedule.programs}",
        "",
        "",
        *[text + "\n" for name in helpers for text in [_HELPERS[name]]],
        *[text + "\n" for text in kernels],
        _model_new(graph, plan, schedule, model),
    ]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(parts)).rstrip() + "\n"


#: Modules that a candidate may import; see ``evaluators/kernel/vocabulary.py`` for the rule.
_MODULES = ("torch", "math", "typing", "__future__")


def _imports(tree: ast.Module, model: ast.ClassDef, kept: Sequence[ast.stmt]) -> list[str]:
    """Return the imports of the candidate: its own, and those of the task file that the kept code uses.

    Raises:
        Unsupported: the kept code needs a module that a candidate may not import.
    """
    forward = next((item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "forward"), None)
    bodies = [item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    read: list[ast.AST] = [*kept, *bodies, *model.bases, *([forward.args] if forward is not None else [])]
    used = {node.id for part in read for node in ast.walk(part) if isinstance(node, ast.Name)}
    lines = {"import torch", "import torch.nn as nn", "import triton", "import triton.language as tl"}
    bound = {"torch", "nn", "triton", "tl"}
    future: list[str] = []
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if module == "__future__":
            future.append(ast.unparse(node))
            continue
        for item in node.names:
            name = item.asname or item.name.split(".")[0]
            if name == "*":
                raise Unsupported(f"a task with `from {module} import *`")
            if name not in used or name in bound:
                continue
            if (module or item.name).split(".")[0] not in _MODULES:
                raise Unsupported(f"a constructor that needs the module {module or item.name}")
            bound.add(name)
            lines.add(ast.unparse(ast.ImportFrom(module, [item], 0) if module else ast.Import([item])))
    return [*future, *sorted(lines)]


def _prelude(tree: ast.Module, model: ast.ClassDef) -> list[ast.stmt]:
    """Keep what the constructor may use: constants, helper classes and functions."""
    constructor = [item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    used = {n.id for item in constructor for n in ast.walk(item) if isinstance(n, ast.Name)}
    used -= {a.arg for item in constructor for a in ast.walk(item.args) if isinstance(a, ast.arg)}
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if node is model or (isinstance(node, ast.FunctionDef) and node.name in _DROPPED_FUNCTIONS):
            continue
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            definitions[node.name] = node
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        definitions[name.id] = node
    kept: list[ast.stmt] = []
    queue = [name for name in definitions if name in used]
    while queue:
        definition = definitions[queue.pop()]
        if definition in kept:
            continue
        kept.append(definition)
        queue.extend(n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and n.id in definitions)
    return [node for node in tree.body if node in kept]


def _model_new(graph: Graph, plan: Plan, schedule: Schedule, model: ast.ClassDef) -> str:
    body: list[str] = []
    forward = next((i for i in model.body if isinstance(i, ast.FunctionDef) and i.name == "forward"), None)
    if forward is None:
        raise Unsupported("the class Model has no method forward")
    for item in model.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            renamed = copy.deepcopy(item)
            for node in ast.walk(renamed):
                if isinstance(node, ast.Name) and node.id == "Model":
                    node.id = "ModelNew"
            body.append(_indent(ast.unparse(renamed)) + "\n")
    names = [argument.arg for argument in forward.args.args[1:]]
    if len(names) < len(graph.inputs) and forward.args.vararg is None:
        raise Unsupported("forward takes fewer arguments than get_inputs returns")
    if forward.args.vararg is not None:
        raise Unsupported("forward with *args")
    lines = _forward(graph, plan, schedule, names)
    signature = ast.unparse(forward.args)
    doc = '"""Launch the kernels."""'
    body.append(_indent(f"def forward({signature}):\n{_indent(doc)}\n" + "\n".join(f"    {line}" for line in lines)))
    return (
        f"class ModelNew({', '.join(ast.unparse(b) for b in model.bases)}):\n"
        '    """The operator as Triton kernels."""\n\n' + "\n".join(body)
    )


def _forward(graph: Graph, plan: Plan, schedule: Schedule, names: Sequence[str]) -> list[str]:
    variables: dict[str, str] = {}
    lines: list[str] = []
    used = {name for kernel in plan.kernels for name in kernel.pointers}
    for position, node in enumerate(graph.inputs):
        if node is None:
            continue
        variables[node] = names[position]
        if node in used:
            lines.append(f"{names[position]} = {names[position]}.contiguous()")
    for node, path in graph.state.items():
        variables[node] = "self." + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", path)
    sizes = _size_names(graph, plan)
    for name in sizes:
        node, dimension = graph.sizes[name]
        lines.append(f"{name} = {variables[node]}.shape[{dimension}]")
    device = next((variables[n] for n in graph.inputs if n is not None), None) or next(iter(variables.values()), None)
    if device is None:
        raise Unsupported("an operator without tensor inputs")
    for kernel, stored in zip(plan.kernels, plan.stored, strict=True):
        made = graph.nodes[stored]
        local = _local(stored, variables)
        variables[stored] = local
        shape = ", ".join(made.shape) + ("," if len(made.shape) == 1 else "")
        lines.append(f"{local} = torch.empty(({shape}), dtype=torch.{made.dtype}, device={device}.device)")
        arguments = [variables[name] for name in kernel.pointers]
        arguments += list(kernel.size_args)
        arguments += [f"{key}={value}" for key, value in {**kernel.constants, **schedule.options}.items()]
        lines.append(f"if {local}.numel() > 0:")
        lines.append(f"    {kernel.name}[(min({kernel.work}, MAX_PROGRAMS),)]({', '.join(arguments)})")
    results = [variables[name] for name in graph.outputs]
    lines.append(
        f"return {results[0]}"
        if graph.single_output
        else f"return {', '.join(results)}{',' if len(results) == 1 else ''}"
    )
    return lines


def _size_names(graph: Graph, plan: Plan) -> list[str]:
    text = " ".join(
        [
            *(size for kernel in plan.kernels for size in kernel.size_args),
            *(value for kernel in plan.kernels for value in kernel.constants.values()),
            *(kernel.work for kernel in plan.kernels),
            *(size for stored in plan.stored for size in graph.nodes[stored].shape),
        ]
    )
    return [name for name in graph.sizes if re.search(rf"\b{name}\b", text)]


def _local(node: str, variables: dict[str, str]) -> str:
    base = re.sub(r"_\d+$", "", node)
    name = base if base not in ("sum", "max", "min", "abs", "pow", "any", "all") else f"{base}_out"
    serial = 1
    while name in variables.values():
        serial += 1
        name = f"{base}_{serial}"
    return name


def _indent(text: str, levels: int = 1) -> str:
    pad = "    " * levels
    return "\n".join(pad + line if line.strip() else line for line in text.splitlines())


__all__ = ["assemble"]
