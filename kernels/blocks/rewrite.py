"""Rewriting a traced graph before it is lowered: operators that are easier as others.

Convolutions become matrix products over gathered patches, products with a single row or column become sums, and large
max-pooling windows are taken apart into one dimension after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orienteer.kernels.blocks import convolution, pooling
from orienteer.kernels.blocks.graph import Graph, Node, Ref, SizeArg
from orienteer.kernels.blocks.index import product
from orienteer.kernels.blocks.schedule import Schedule

#: Windows up to this size are unrolled in one kernel; Ascend's compiler takes minutes for 16 fused loads.
UNROLLED = 9


def rewrite(graph: Graph, schedule: Schedule | None = None) -> Graph:
    """Return the graph with every rewrite applied; names of values that others use stay.

    Args:
        graph: the traced operator.
        schedule: that of a Triton candidate; without one only those rewrites are applied that suit every language.
    """
    nodes: dict[str, Node] = {}
    changed = False
    rules = (_large_window, *_RULES) if schedule is None else (*_scheduled(schedule), *_RULES)
    for node in graph.nodes.values():
        made = next((new for rule in rules if (new := rule(graph, node)) is not None), None)
        changed = changed or made is not None
        for item in made or [node]:
            nodes[item.name] = item
    outputs: list[str] = []
    for name in graph.outputs:
        if nodes[name].is_leaf or name in outputs:
            # What is returned is a tensor of its own, never an input.
            copied = f"{name}_out{len(outputs)}"
            nodes[copied] = Node(copied, "aten.clone", (Ref(name),), {}, nodes[name].shape, nodes[name].dtype)
            name, changed = copied, True
        outputs.append(name)
    return replace(graph, nodes=nodes, outputs=tuple(outputs)) if changed else graph


def _convolution(graph: Graph, node: Node) -> list[Node] | None:
    return convolution.replacement(graph, node) if node.op == convolution.OP else None


def _thin_product(graph: Graph, node: Node) -> list[Node] | None:
    """``(M, K) @ (K, 1)`` as a sum of products: a tile of ``tl.dot`` would be empty but for one lane."""
    if node.op not in ("aten.mm", "aten.bmm") or "1" not in node.shape[-2:]:
        return None
    left, right = (graph.nodes[arg.name] for arg in node.args[:2])
    batch, inner = node.shape[:-2], left.shape[-1]
    rank = len(node.shape)
    order = (*range(rank - 2), rank - 1, rank - 2)
    turned_shape = (*batch, right.shape[-1], inner)
    turned = Node(f"{node.name}_turned", "aten.permute", (Ref(right.name), order), {}, turned_shape, right.dtype)
    if node.shape[-1] == "1":
        shape: tuple[str, ...] = (*batch, left.shape[-2], inner)
        dims = (*batch, left.shape[-2], "1")
    else:
        shape, dims = turned_shape, (*batch, turned_shape[-2], "1")
    terms = Node(f"{node.name}_terms", "aten.mul", (Ref(left.name), Ref(turned.name)), {}, shape, node.dtype)
    total = Node(f"{node.name}_sum", "aten.sum", (Ref(terms.name), (rank - 1,), True), {}, dims, node.dtype)
    result = Node(node.name, "aten.view", (Ref(total.name), ()), {}, node.shape, node.dtype)
    return [turned, terms, total, result]


def _large_window(graph: Graph, node: Node) -> list[Node] | None:
    """A maximum over a large window, one dimension after the other; what lies between is stored."""
    if node.op != "aten.max_pool2d_with_indices" or node.kwargs.get("item", 0) != 0:
        return None
    window, stride, padding, dilation = (_pair(node, i) for i in range(1, 5))
    stride = stride or window
    ceil = len(node.args) > 5 and node.args[5]
    if window is None or stride is None or math.prod(window) <= UNROLLED or min(window) == 1 or ceil:
        return None
    padding, dilation = padding or (0, 0), dilation or (1, 1)
    source = graph.nodes[node.args[0].name]

    def pool(name: str, of: str, axis: int, shape: tuple[str, ...], kwargs: Mapping[str, Any]) -> Node:
        def along(values: tuple[int, ...], other: int) -> tuple[int, ...]:
            return tuple(value if i == axis else other for i, value in enumerate(values))

        args = (Ref(of), along(window, 1), along(stride, 1), along(padding, 0), along(dilation, 1))
        return Node(name, node.op, args, kwargs, shape, node.dtype)

    between = (*source.shape[:-1], node.shape[-1])
    lines = pool(f"{node.name}_lines", source.name, 1, between, {"item": 0, "stored": True})
    return [lines, pool(node.name, lines.name, 0, node.shape, {"item": 0})]


def _pair(node: Node, position: int) -> tuple[int, int] | None:
    value = node.args[position] if len(node.args) > position else None
    items = tuple(value) if isinstance(value, tuple) else (value,)
    if not items or not all(isinstance(item, int) and not isinstance(item, bool) for item in items):
        return None
    return (items[0], items[-1])


def _scheduled(schedule: Schedule) -> list[Rule]:
    rules: list[Rule] = [pooling.as_reduction]
    if schedule.split_k > 1:
        rules.append(lambda graph, node: _split_product(graph, node, schedule.split_k))
    if schedule.direct_conv:
        rules.append(
            lambda graph, node: convolution.replacement(graph, node, True) if node.op == convolution.OP else None
        )
    if schedule.two_steps:
        rules.append(_two_steps)
    return rules


def _split_product(graph: Graph, node: Node, parts: int) -> list[Node] | None:
    """A product whose inner dimension is cut into parts; their results are added up by a second kernel."""
    if node.op != "aten.mm" or "1" in node.shape:
        return None
    shape = (str(parts), *node.shape)
    each = Node(f"{node.name}_parts", node.op, node.args, {"parts": parts}, shape, node.dtype)
    return [each, Node(node.name, "aten.sum", (Ref(each.name), (0,), False), {}, node.shape, node.dtype)]


#: Reductions of which parts can be reduced first, and what puts the parts together.
_PARTS = {
    "aten.sum": "aten.sum",
    "prims.sum": "aten.sum",
    "aten.mean": "aten.sum",
    "aten.amax": "aten.amax",
    "aten.amin": "aten.amin",
}


def _two_steps(graph: Graph, node: Node) -> list[Node] | None:
    """A reduction of everything to one number: first along all dimensions but the first, then along that one."""
    if node.op not in _PARTS or any(size != "1" for size in node.shape):
        return None
    source = graph.nodes[next(node.refs())]
    sized = [i for i, size in enumerate(source.shape) if size != "1"]
    if len(sized) < 2 or source.dtype not in ("float32", "float16", "bfloat16", "float64"):
        return None
    argument = node.args[1] if len(node.args) > 1 else None
    dims = range(len(source.shape)) if argument in (None, ()) else argument if isinstance(argument, tuple) else ()
    if {int(d) % len(source.shape) for d in dims} < set(sized):
        return None
    lead = sized[0]
    last = tuple(range(lead + 1, len(source.shape)))
    kind = _PARTS[node.op]
    part_shape = source.shape[: lead + 1]
    parts = Node(f"{node.name}_parts", kind, (Ref(source.name), last, False), {}, part_shape, source.dtype)
    every = tuple(range(lead + 1))
    made = [parts]
    total = Node(f"{node.name}_total", kind, (Ref(parts.name), every, False), {}, (), node.dtype)
    made.append(total)
    if node.op == "aten.mean":
        count = SizeArg(product(source.shape))
        total = Node(f"{node.name}_mean", "aten.div", (Ref(total.name), count), {}, (), node.dtype)
        made.append(total)
    return [*made, Node(node.name, "aten.view", (Ref(total.name), ()), {}, node.shape, node.dtype)]


Rule = Callable[[Graph, Node], list[Node] | None]
_RULES: tuple[Rule, ...] = (_convolution, _thin_product)
