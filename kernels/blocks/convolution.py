"""Convolutions as matrix products: the patches of the input are computed where the product reads them.

A convolution with one group is ``patches @ weight`` with ``patches[m, k]`` the input element under the window position
``k = (channel, offset)`` of the output position ``m = (batch, place)``; nothing of that matrix is ever stored. With
several groups it is a sum of products per output element. Transposed convolutions gather in the same way, from the
places whose window covers the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Guard, Kernel, Unsupported, Value
from orienteer.kernels.blocks.graph import Graph, Node, Ref, Size
from orienteer.kernels.blocks.index import Index, product, split, wrap

OP = "aten.convolution"


def replacement(graph: Graph, node: Node, direct: bool = False) -> list[Node]:
    """Return the nodes that stand for a convolution; the last one has its name.

    Args:
        graph: the traced operator.
        node: the convolution.
        direct: add the taps up one by one (see ``direct.py``); a window of one place is a batched product.

    Raises:
        Unsupported: the window is not constant.
    """
    x, weight = graph.nodes[node.args[0].name], graph.nodes[node.args[1].name]
    bias = node.args[2]
    groups = node.args[8]
    if not isinstance(groups, int):
        # The number of groups is a size of the task: a depthwise convolution.
        groups = 0
    transposed = bool(node.args[6])
    window = weight.shape[2:]
    if not all(size.isdigit() for size in window):
        raise Unsupported("a convolution whose window is not constant")
    rank = len(window)
    facts = {
        "window": tuple(int(size) for size in window),
        "stride": _spread(node.args[3], rank),
        "padding": _spread(node.args[4], rank),
        "dilation": _spread(node.args[5], rank),
        "transposed": transposed,
    }
    made: list[Node] = []

    def make(suffix: str, op: str, args: tuple[Any, ...], shape: tuple[Size, ...], **kwargs: Any) -> Node:
        made.append(Node(f"{node.name}_{suffix}", op, args, kwargs, shape, node.dtype))
        return made[-1]

    if groups == 1 and direct and set(window) == {"1"} and _plain(facts):
        # A window of one place: the same product for every picture.
        picture = product(x.shape[2:])
        opened = make("pictures", "aten.view", (Ref(x.name), ()), (*x.shape[:2], picture))
        order = (1, 0) if transposed else (0, 1)
        flat_shape = tuple(weight.shape[i] for i in order)
        flat = make("flat", "aten.view", (Ref(weight.name), ()), weight.shape[:2])
        turned = make("turned", "aten.permute", (Ref(flat.name), order), flat_shape)
        spread = make("weights", "aten.expand", (Ref(turned.name), ()), (x.shape[0], *flat_shape))
        gemm = make("bmm", "aten.bmm", (Ref(spread.name), Ref(opened.name)), (*node.shape[:2], picture))
        result = make("back", "aten.view", (Ref(gemm.name), ()), node.shape)
    elif groups == 1 and direct:
        order = (*range(2, rank + 2), *((1, 0) if transposed else (0, 1)))
        taps = make(
            "taps", "aten.permute", (Ref(weight.name), order), tuple(weight.shape[i] for i in order), stored=True
        )
        result = make("direct", "conv.direct", (Ref(x.name), Ref(taps.name)), node.shape, **facts)
    elif groups == 1:
        places = (node.shape[0], *node.shape[2:])
        under_window = (x.shape[1], *window)
        rows, inner, cols = product(places), product(under_window), node.shape[1]
        patch = make(
            "patches", "conv.patches", (Ref(x.name),), (rows, inner), **facts, places=places, taps=under_window
        )
        order = (0, *range(2, rank + 2), 1) if transposed else (*range(1, rank + 2), 0)
        turned = make("weight", "aten.permute", (Ref(weight.name), order), tuple(weight.shape[i] for i in order))
        matrix = make("matrix", "aten.view", (Ref(turned.name), ()), (inner, cols))
        gemm = make("mm", "aten.mm", (Ref(patch.name), Ref(matrix.name)), (rows, cols))
        opened = make("open", "aten.view", (Ref(gemm.name), ()), (*places, cols))
        result = make("back", "aten.permute", (Ref(opened.name), (0, rank + 1, *range(1, rank + 1))), node.shape)
    else:
        # Input channels of a group.
        share = f"({x.shape[1]}) // (({node.shape[1]}) // ({weight.shape[1]}))" if transposed else weight.shape[1]
        term = make("terms", "conv.terms", (Ref(x.name), Ref(weight.name)), (*node.shape, share, *window), **facts)
        result = make("sum", "aten.sum", (Ref(term.name), tuple(range(rank + 2, 2 * rank + 3))), node.shape)
    if isinstance(bias, Ref):
        wide = make("bias", "aten.view", (bias, ()), (graph.nodes[bias.name].shape[0], *("1" for _ in range(rank))))
        added = Node(node.name, "aten.add", (Ref(result.name), Ref(wide.name)), {}, node.shape, node.dtype)
        return [*made, added]
    return [*made, Node(node.name, "aten.clone", (Ref(result.name),), {}, node.shape, node.dtype)]


def _plain(facts: Mapping[str, Any]) -> bool:
    return set(facts["stride"]) == {1} and set(facts["padding"]) == {0}


def _spread(value: Any, rank: int) -> tuple[int, ...]:
    items = list(value) if isinstance(value, tuple) else [value]
    if not all(isinstance(item, int) for item in items):
        raise Unsupported("a convolution whose stride, padding or dilation is not constant")
    return tuple(items if len(items) == rank else items * rank)


def under(
    kernel: Kernel, node: Node, place: Sequence[Index], tap: Sequence[Index], sizes: Sequence[Size]
) -> tuple[list[Index], dict[int, Guard]]:
    """Return the input position under window position ``tap`` at output position ``place``, and where it exists.

    The guards are keyed by the axis of the input, whose first two axes are batch and channel.
    """
    facts = node.kwargs
    position: list[Index] = []
    guards: dict[int, Guard] = {}
    for axis, (out, offset) in enumerate(zip(place, tap, strict=True)):
        stride, padding, dilation = facts["stride"][axis], facts["padding"][axis], facts["dilation"][axis]
        both = out.variables | offset.variables
        moved = offset.text if dilation == 1 else f"{wrap(offset.text)} * {dilation}"
        condition = ""
        if facts["transposed"]:
            at = kernel.assign(f"{wrap(out.text)} + {padding} - {wrap(moved)}", "int32", both, "t")
            text = at.text if stride == 1 else f"{at.text} // {stride}"
            parts = [f"({at.text} >= 0)", f"({wrap(text)} < {sizes[axis]})"]
            if stride != 1:
                parts.append(f"({at.text} % {stride} == 0)")
            condition = " & ".join(parts)
        else:
            base = out.text if stride == 1 else f"{wrap(out.text)} * {stride}"
            text = f"{base} + {wrap(moved)}" + (f" - {padding}" if padding else "")
            if padding:
                condition = f"({text} >= 0) & ({text} < {sizes[axis]})"
        position.append(Index(text, both))
        if condition:
            unit = stride == 1 and offset.variables <= kernel.numbers
            guards[axis + 2] = Guard(kernel.assign(condition, "bool", both, "c"), sizes[axis], unit=unit)
    return position, guards


def patches(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """Write the element of the patch matrix at (output place, window position)."""
    x = kernel.graph.nodes[node.args[0].name]
    places = split(index[0], [kernel.size(size) for size in node.kwargs["places"]])
    taps = split(index[1], [kernel.size(size) for size in node.kwargs["taps"]])
    position, guards = under(kernel, node, places[1:], taps[1:], kernel.shape(x)[2:])
    full = [places[0], taps[0], *position]
    return kernel.guarded(x.name, full, guards, "0.0") if guards else kernel.value(x.name, full)


def terms(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """Write one product of a grouped convolution's sum: (batch, channel, place..., tap channel, offset...)."""
    x, weight = (kernel.graph.nodes[arg.name] for arg in node.args[:2])
    facts = node.kwargs
    rank = len(facts["window"])
    batch, channel = index[0], index[1]
    place, tap = index[2 : 2 + rank], index[2 + rank :]
    position, guards = under(kernel, node, place, tap[1:], kernel.shape(x)[2:])
    # Output channels and input channels are dealt out to the groups in equal runs.
    inside = kernel.size(node.shape[2 + rank])
    variables = channel.variables | tap[0].variables
    if facts["transposed"]:
        outputs = kernel.size(weight.shape[1])
        source = Index(f"({wrap(channel.text)} // {wrap(outputs)}) * {wrap(inside)} + {wrap(tap[0].text)}", variables)
        at = [source, Index(f"{wrap(channel.text)} % {wrap(outputs)}", channel.variables), *tap[1:]]
    else:
        per_group = f"({kernel.size(x.shape[1])} // {wrap(inside)})"
        group = f"{wrap(channel.text)} // ({kernel.size(weight.shape[0])} // {per_group})"
        source = Index(f"({group}) * {wrap(inside)} + {wrap(tap[0].text)}", variables)
        at = [channel, *tap]
    full = [batch, source, *position]
    value = kernel.guarded(x.name, full, guards, "0.0") if guards else kernel.value(x.name, full)
    factor = kernel.value(weight.name, at)
    return kernel.assign(
        ops.BINARY["aten.mul"].format(value.text, factor.text), node.dtype, value.variables | factor.variables
    )
