"""Pooling windows that are too large to be written out: one more reduction, over the positions of the window.

``pool.terms`` is the value under one position of the window for one output position, of shape (output..., window...);
what lies outside of the input is the neutral element. A maximum or a sum along the window's dimensions follows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orienteer.kernels.blocks.emit import Guard, Kernel, Value
from orienteer.kernels.blocks.graph import Graph, Node, Ref
from orienteer.kernels.blocks.index import Index, wrap

#: Windows up to this size are unrolled in one kernel; Ascend's compiler takes minutes for 16 fused loads.
UNROLLED = 9
_KINDS = {
    f"aten.{kind}_pool{rank}d{tail}": (kind, rank)
    for kind, tail in (("max", "_with_indices"), ("avg", ""))
    for rank in (1, 2, 3)
}


def as_reduction(graph: Graph, node: Node) -> list[Node] | None:
    """Return the nodes that stand for a pooling with a large window, or None where it is none."""
    if node.op not in _KINDS or node.kwargs.get("item", 0) != 0:
        return None
    kind, rank = _KINDS[node.op]
    facts = _facts(node, kind, rank)
    if facts is None or math.prod(facts["window"]) <= UNROLLED:
        return None
    source = graph.nodes[node.args[0].name]
    window = facts["window"]
    full = (*node.shape, *(str(size) for size in window))
    dims = tuple(range(len(node.shape), len(full)))
    terms = Node(f"{node.name}_terms", "pool.terms", (Ref(source.name),), facts, full, node.dtype)
    if kind == "max":
        return [terms, Node(node.name, "aten.amax", (Ref(terms.name), dims, False), {}, node.shape, node.dtype)]
    total = Node(f"{node.name}_sum", "aten.sum", (Ref(terms.name), dims, False), {}, node.shape, node.dtype)
    divisor = node.args[6] if len(node.args) > 6 and isinstance(node.args[6], int) else None
    including = bool(node.args[5]) if len(node.args) > 5 else True
    if divisor is None and not including and any(facts["padding"]):
        counted = {**facts, "ones": True}
        ones = Node(f"{node.name}_ones", "pool.terms", (Ref(source.name),), counted, full, node.dtype)
        count = Node(f"{node.name}_count", "aten.sum", (Ref(ones.name), dims, False), {}, node.shape, node.dtype)
        by: Any = Ref(count.name)
        made = [terms, total, ones, count]
    else:
        by = float(divisor or math.prod(window))
        made = [terms, total]
    return [*made, Node(node.name, "aten.div", (Ref(total.name), by), {}, node.shape, node.dtype)]


def _facts(node: Node, kind: str, rank: int) -> dict[str, Any] | None:
    def spread(position: int, default: Sequence[int]) -> list[int] | None:
        value = node.args[position] if len(node.args) > position else None
        if value is None or value == ():
            return list(default)
        items = list(value) if isinstance(value, tuple) else [value]
        if not all(isinstance(item, int) for item in items):
            return None
        return items if len(items) == rank else items * rank

    window = spread(1, ())
    if not window:
        return None
    stride, padding = spread(2, window), spread(3, [0] * rank)
    dilation = spread(4, [1] * rank) if kind == "max" else [1] * rank
    ceil = node.args[5 if kind == "max" else 4] if len(node.args) > (5 if kind == "max" else 4) else False
    if stride is None or padding is None or dilation is None or (ceil and kind == "avg"):
        return None
    return {
        "window": window,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "edges": bool(ceil),
        "empty": 'float("-inf")' if kind == "max" else "0.0",
    }


def terms(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """Write the element under one position of the window."""
    source = kernel.graph.nodes[node.args[0].name]
    facts = node.kwargs
    rank = len(facts["window"])
    lead = list(index[: len(source.shape) - rank])
    places, offsets = index[len(lead) : len(lead) + rank], index[len(lead) + rank :]
    sizes = kernel.shape(source)[len(lead) :]
    position: list[Index] = []
    guards: dict[int, Guard] = {}
    for axis, (place, offset) in enumerate(zip(places, offsets, strict=True)):
        stride, padding, dilation = facts["stride"][axis], facts["padding"][axis], facts["dilation"][axis]
        both = place.variables | offset.variables
        base = place.text if stride == 1 else f"{wrap(place.text)} * {stride}"
        moved = offset.text if dilation == 1 else f"{wrap(offset.text)} * {dilation}"
        text = moved if place.is_zero else base if offset.is_zero else f"{base} + {moved}"
        if padding:
            text = f"{text} - {padding}"
        position.append(Index(text, both))
        if padding or facts["edges"]:
            condition = f"({text} >= 0) & ({text} < {sizes[axis]})"
            inside = kernel.assign(condition, "bool", both, "c")
            guards[len(lead) + axis] = Guard(
                inside, sizes[axis], unit=stride == 1 and offset.variables <= kernel.numbers
            )
    if not guards:
        return Value("1.0", node.dtype) if facts.get("ones") else kernel.value(source.name, [*lead, *position])
    if facts.get("ones"):
        variables = frozenset[str]().union(*(guard.condition.variables for guard in guards.values()))
        text = " & ".join(guard.condition.text for guard in guards.values())
        return kernel.assign(f"tl.where({text}, 1.0, 0.0)", node.dtype, variables)
    return kernel.guarded(source.name, [*lead, *position], guards, facts["empty"])
