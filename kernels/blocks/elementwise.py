"""Values that can be recomputed wherever they are needed: arithmetic, constants, views, gathers and pooling windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Guard, Kernel, Unsupported, Value
from orienteer.kernels.blocks.graph import Node, Ref, SizeArg
from orienteer.kernels.blocks.index import ZERO, Index, add, reshape, scale, split, wrap

Handler = Callable[[Kernel, Node, Sequence[Index]], Value]
#: A pooling window larger than this is not unrolled.
MAX_WINDOW = 64


def elementwise(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """Write the value of a node at a position.

    Raises:
        Unsupported: there is no building block for the operator.
    """
    handler = HANDLERS.get(node.op)
    if handler is not None:
        return handler(kernel, node, index)
    if node.op in ops.UNARY or node.op in ops.COMPOSED:
        operand = _compute(kernel, kernel.operand(node.args[0], index, node.shape), node.dtype, node)
        compose = ops.COMPOSED.get(node.op)
        text = compose(operand.text) if compose else ops.UNARY[node.op].format(operand.text)
        return kernel.assign(text, node.dtype, operand.variables)
    if node.op in ops.BINARY:
        return _binary(kernel, node, index)
    raise Unsupported(f"no building block for {node.op}")


def _compute(kernel: Kernel, value: Value, dtype: str, node: Node) -> Value:
    """Convert an integer operand of a floating-point operator."""
    if dtype in ops.FLOATS and value.dtype not in ops.FLOATS and not _is_number(kernel, value):
        return kernel.assign(f"{wrap(value.text)}.to({ops.COMPUTE[dtype]})", dtype, value.variables)
    return value


def _is_number(kernel: Kernel, value: Value) -> bool:
    """True for literals and size arguments, which Triton promotes by itself (a size of 1 has no ``to``)."""
    return not value.variables and (not value.text.isidentifier() or value.text in kernel.size_args.values())


def _binary(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    left = kernel.operand(node.args[0], index, node.shape)
    right = kernel.operand(node.args[1], index, node.shape)
    if node.dtype != "bool":
        left, right = _compute(kernel, left, node.dtype, node), _compute(kernel, right, node.dtype, node)
    alpha = node.kwargs.get("alpha", 1)
    if alpha != 1:
        right = kernel.assign(f"{right.text} * {ops.literal(alpha)}", right.dtype, right.variables)
    rounding = node.kwargs.get("rounding_mode")
    neutral = {"aten.mul": "1", "aten.div": "1", "aten.add": "0", "aten.sub": "0"}.get(node.op)
    if neutral is not None and right.text == neutral and left.dtype == node.dtype:
        return left
    variables = left.variables | right.variables
    text = ops.BINARY[node.op].format(left.text, right.text)
    if rounding == "floor":
        text = f"tl.floor{text}" if node.dtype in ops.FLOATS else f"({left.text} // {right.text})"
    elif rounding is not None:
        raise Unsupported(f"{node.op} with rounding_mode={rounding!r}")
    if node.op in ("aten.div", "prims.div") and node.dtype in ops.FLOATS and left.dtype not in ops.FLOATS:
        text = f"({wrap(left.text)}.to(tl.float32) / {right.text})" if not _is_number(kernel, left) else text
    return kernel.assign(text, node.dtype, variables)


# -- arithmetic with a form of its own -------------------------------------------------------------------------------


def _pow(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    base = kernel.operand(node.args[0], index, node.shape)
    exponent = node.args[1]
    if isinstance(exponent, (int, float)):
        text = ops.power(base.text, exponent)
        if text is None:
            text = f"tl.exp(tl.log({base.text}) * {ops.literal(float(exponent))})"
        return kernel.assign(text, node.dtype, base.variables)
    power = kernel.operand(exponent, index, node.shape)
    text = f"tl.exp(tl.log({base.text}) * {power.text})"
    return kernel.assign(text, node.dtype, base.variables | power.variables)


def _where(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    condition, yes, no = (kernel.operand(arg, index, node.shape) for arg in node.args[:3])
    variables = condition.variables | yes.variables | no.variables
    return kernel.assign(f"tl.where({condition.text}, {yes.text}, {no.text})", node.dtype, variables)


def _clamp(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    value = kernel.operand(node.args[0], index, node.shape)
    arguments = dict(zip(("min", "max"), node.args[1:3], strict=False)) | dict(node.kwargs)
    for key, compare in (("min", "<"), ("max", ">")):
        if arguments.get(key) is not None:
            bound = kernel.operand(arguments[key], index, node.shape)
            text = f"tl.where({value.text} {compare} {bound.text}, {bound.text}, {value.text})"
            value = kernel.assign(text, node.dtype, value.variables | bound.variables)
    return value


def _cast(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    value = kernel.operand(node.args[0], index, node.shape)
    if value.dtype == node.dtype:
        return value
    if node.dtype == "bool":
        return kernel.assign(f"({value.text} != 0)", "bool", value.variables)
    return kernel.assign(f"{wrap(value.text)}.to({ops.COMPUTE[node.dtype]})", node.dtype, value.variables)


def _constant(position: int, default: float | int | None = None) -> Handler:
    def handler(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
        value = default if default is not None else node.args[position]
        if isinstance(value, SizeArg):
            return Value(kernel.size(value.expr), node.dtype)
        if not isinstance(value, (bool, int, float)):
            raise Unsupported(f"{node.op} of a value that is not a number")
        if node.dtype in ops.FLOATS:
            value = float(value)
        return Value(ops.literal(value), node.dtype)

    return handler


def _iota(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    start = node.kwargs.get("start", 0)
    step = node.kwargs.get("step", 1)
    if node.op == "aten.arange":
        start, step = (node.args[0], node.args[2] if len(node.args) > 2 else 1) if len(node.args) > 1 else (0, 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported(f"{node.op} with a start or step that is not an integer")
    item = index[0]
    text = item.text if step == 1 else f"{wrap(item.text)} * {step}"
    return kernel.assign(text if start == 0 else f"{text} + {start}", node.dtype, item.variables, "i")


# -- views -----------------------------------------------------------------------------------------------------------


def _same(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    return kernel.value(_source(node), index)


def _source(node: Node) -> str:
    if not isinstance(node.args[0], Ref):
        raise Unsupported(f"{node.op} of something that is not a tensor")
    return node.args[0].name


def _view(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    return kernel.value(source.name, reshape(index, kernel.shape(source), kernel.shape(node)))


def _permute(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    out = [ZERO] * len(node.shape)
    for position, dimension in enumerate(node.permutation()):
        out[dimension] = index[position]
    return kernel.value(_source(node), out)


def _expand(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    return kernel.value(_source(node), kernel.broadcast(_source(node), index, node.shape))


def _unsqueeze(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    dimension = int(node.args[1]) % len(node.shape)
    return kernel.value(_source(node), [item for i, item in enumerate(index) if i != dimension])


def _squeeze(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    rank = len(source.shape)
    if len(node.args) > 1:
        dims = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        dropped = {int(d) % rank for d in dims if source.shape[int(d) % rank] == "1"}
    else:
        dropped = {i for i, size in enumerate(source.shape) if size == "1"}
    kept = iter(index)
    return kernel.value(source.name, [ZERO if i in dropped else next(kept) for i in range(rank)])


def _broadcast_in_dim(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    positions = [int(d) for d in node.args[2]]
    return kernel.value(
        source.name, [ZERO if size == "1" else index[p] for p, size in zip(positions, source.shape, strict=True)]
    )


def _select(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    dimension, position = int(node.args[1]) % len(source.shape), node.args[2]
    size = kernel.size(source.shape[dimension])
    if not isinstance(position, int):
        raise Unsupported(f"{node.op} at a position that is not a constant")
    at = Index(str(position)) if position >= 0 else Index(f"{size} - {-position}")
    return kernel.value(source.name, [*index[:dimension], at, *index[dimension:]])


def _slice(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    dimension = int(node.args[1]) % len(source.shape) if len(node.args) > 1 else 0
    start = node.args[2] if len(node.args) > 2 and node.args[2] is not None else 0
    step = node.args[4] if len(node.args) > 4 else 1
    size = kernel.size(source.shape[dimension])
    if isinstance(start, SizeArg):
        begin = kernel.size(start.expr)
    elif start < 0:
        begin = f"({size} - {-start})"
    else:
        begin = str(start)
    if not isinstance(step, int):
        raise Unsupported(f"{node.op} with a step that is not a constant")
    item = index[dimension]
    text = item.text if step == 1 else f"{wrap(item.text)} * {step}"
    moved = Index(text if begin == "0" else f"{text} + {begin}", item.variables)
    return kernel.value(source.name, [*index[:dimension], moved, *index[dimension + 1 :]])


def _flip(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    out = list(index)
    for dimension in node.args[1]:
        at = int(dimension) % len(out)
        size = kernel.size(source.shape[at])
        out[at] = ZERO if size == "1" else Index(f"{size} - 1 - {wrap(out[at].text)}", out[at].variables)
    return kernel.value(source.name, out)


# -- several sources -------------------------------------------------------------------------------------------------


def _pad(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    pads = list(node.args[1])
    if not all(isinstance(p, int) for p in pads):
        raise Unsupported(f"{node.op} by sizes that are not constants")
    fill = node.args[2] if len(node.args) > 2 else 0
    out = list(index)
    guards: dict[int, Guard] = {}
    for pair in range(len(pads) // 2):
        at = len(out) - 1 - pair
        before, after = pads[2 * pair], pads[2 * pair + 1]
        if before == 0 and after == 0:
            continue
        item = out[at]
        out[at] = Index(f"{item.text} - {before}" if before >= 0 else f"{item.text} + {-before}", item.variables)
        size = kernel.size(source.shape[at])
        condition = f"({out[at].text} >= 0) & ({out[at].text} < {size})"
        guards[at] = Guard(kernel.assign(condition, "bool", item.variables, "c"), size, unit=True)
    if not guards:
        return kernel.value(source.name, out)
    number = ops.literal(float(fill) if node.dtype in ops.FLOATS else fill)
    return kernel.guarded(source.name, out, guards, number)


def _copy(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """The second operand, broadcast and converted (what is left of an in-place copy)."""
    value = kernel.operand(node.args[1], index, node.shape)
    if value.dtype == node.dtype or node.dtype == "bool":
        return value
    return kernel.assign(f"{wrap(value.text)}.to({ops.COMPUTE[node.dtype]})", node.dtype, value.variables)


def _as_strided(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """A view by strides of a value that is contiguous."""
    source = kernel.graph.nodes[_source(node)]

    def written(value: Any) -> str:
        return kernel.size(value.expr) if isinstance(value, SizeArg) else str(value)

    offset = ZERO
    for item, stride in zip(index, node.args[2], strict=True):
        if stride != 0:
            offset = add(offset, scale(item, written(stride)))
    start = node.args[3] if len(node.args) > 3 else 0
    if start not in (0, None):
        offset = add(offset, Index(written(start)))
    if source.name in kernel.buffers:
        return kernel.load_flat(source.name, offset)
    return kernel.value(source.name, split(offset, kernel.shape(source)))


def _split(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """One part of ``split_with_sizes``; which one is in ``item``."""
    source = kernel.graph.nodes[_source(node)]
    dimension = int(node.args[2]) % len(source.shape) if len(node.args) > 2 else 0
    start = ZERO
    for size in node.args[1][: node.kwargs.get("item", 0)]:
        start = add(start, Index(kernel.size(size.expr) if isinstance(size, SizeArg) else str(size)))
    out = list(index)
    out[dimension] = add(out[dimension], start)
    return kernel.value(source.name, out)


def _round(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    """Round half to even, as PyTorch does."""
    if node.kwargs.get("decimals", 0):
        raise Unsupported("rounding to decimals")
    value = kernel.operand(node.args[0], index, node.shape)
    up = kernel.assign(f"tl.floor({value.text} + 0.5)", node.dtype, value.variables)
    odd = f"({up.text} - {value.text} == 0.5) & ({up.text} - 2.0 * tl.floor({up.text} * 0.5) != 0.0)"
    return kernel.assign(f"tl.where({odd}, {up.text} - 1.0, {up.text})", node.dtype, value.variables)


def _gathered(kernel: Kernel, index_value: Value, size: str) -> Index:
    """Turn a loaded index into a position; negative ones count from the end, as PyTorch's do."""
    wrapped = kernel.assign(
        f"tl.where({index_value.text} < 0, {index_value.text} + {size}, {index_value.text})",
        index_value.dtype,
        index_value.variables,
        "i",
    )
    return Index(wrapped.text, wrapped.variables)


def _embedding(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    at = kernel.value(node.args[1].name, index[:-1])
    return kernel.value(_source(node), [Index(at.text, at.variables), index[-1]])


def _gather(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    dimension = int(node.args[1]) % len(node.shape)
    at = kernel.value(node.args[2].name, index)
    return kernel.value(_source(node), [*index[:dimension], Index(at.text, at.variables), *index[dimension + 1 :]])


def _index_select(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    dimension = int(node.args[1]) % len(node.shape)
    at = kernel.value(node.args[2].name, [index[dimension]])
    return kernel.value(_source(node), [*index[:dimension], Index(at.text, at.variables), *index[dimension + 1 :]])


def _index(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
    source = kernel.graph.nodes[_source(node)]
    chosen = [(i, arg) for i, arg in enumerate(node.args[1]) if arg is not None]
    first, last = chosen[0][0], chosen[-1][0]
    if last - first + 1 != len(chosen):
        raise Unsupported("indexing by tensors with a slice between them")
    if any(kernel.graph.nodes[ref.name].dtype == "bool" for _, ref in chosen):
        raise Unsupported("indexing by a boolean mask (the result's shape depends on data)")
    rank = max(len(kernel.graph.nodes[ref.name].shape) for _, ref in chosen)
    shape = node.shape[first : first + rank]
    positions = []
    for dimension, ref in chosen:
        at = kernel.operand(ref, index[first : first + rank], shape)
        positions.append(_gathered(kernel, at, kernel.size(source.shape[dimension])))
    return kernel.value(source.name, [*index[:first], *positions, *index[first + rank :]])


# -- pooling ---------------------------------------------------------------------------------------------------------


def _window(node: Node, rank: int) -> tuple[list[int], list[int], list[int], list[int]]:
    def spread(value: Any, default: list[int]) -> list[int]:
        if value is None or value == ():
            return default
        items = list(value) if isinstance(value, tuple) else [value]
        if not all(isinstance(item, int) for item in items):
            raise Unsupported(f"{node.op} with a window that is not constant")
        return items if len(items) == rank else items * rank

    arguments = list(node.args[1:])
    kernel_size = spread(arguments[0], [])
    stride = spread(arguments[1] if len(arguments) > 1 else None, kernel_size)
    padding = spread(arguments[2] if len(arguments) > 2 else None, [0] * rank)
    dilation = [1] * rank
    if "max" in node.op:
        dilation = spread(arguments[3] if len(arguments) > 3 else None, [1] * rank)
    total = 1
    for size in kernel_size:
        total *= size
    if total > MAX_WINDOW:
        raise Unsupported(f"a pooling window of {total} elements (at most {MAX_WINDOW} are unrolled)")
    return kernel_size, stride, padding, dilation


def _pool(rank: int, kind: str) -> Handler:
    def handler(kernel: Kernel, node: Node, index: Sequence[Index]) -> Value:
        source = kernel.graph.nodes[_source(node)]
        if node.kwargs.get("item", 0) != 0:
            raise Unsupported("the indices of a max-pooling")
        window, stride, padding, dilation = _window(node, rank)
        if len(node.args) > 4 and kind == "avg" and node.args[4]:
            raise Unsupported(f"{node.op} with ceil_mode")
        lead, spatial = list(index[:-rank]), list(index[-rank:])
        sizes = kernel.shape(source)[-rank:]
        ceil = bool(node.args[5]) if kind == "max" and len(node.args) > 5 else False
        edges = any(padding) or ceil
        empty = 'float("-inf")' if kind == "max" else "0.0"
        total: Value | None = None
        for offsets in itertools.product(*(range(size) for size in window)):
            position: list[Index] = []
            guards: dict[int, Guard] = {}
            for axis, offset in enumerate(offsets):
                item = spatial[axis]
                base = item.text if stride[axis] == 1 else f"{wrap(item.text)} * {stride[axis]}"
                shift = offset * dilation[axis] - padding[axis]
                text = base if shift == 0 else f"{base} + {shift}" if shift > 0 else f"{base} - {-shift}"
                position.append(ZERO if text == "0" else Index(text, item.variables))
                if edges and not (text == "0" and window[axis] == 1):
                    condition = f"({text} >= 0) & ({text} < {sizes[axis]})"
                    inside = kernel.assign(condition, "bool", item.variables, "c")
                    guards[len(lead) + axis] = Guard(inside, sizes[axis], unit=stride[axis] == 1)
            if guards:
                part = kernel.guarded(source.name, [*lead, *position], guards, empty)
            else:
                part = kernel.value(source.name, [*lead, *position])
            if total is None:
                total = part
            else:
                form = ops.BINARY["aten.maximum"] if kind == "max" else "({0} + {1})"
                total = kernel.assign(
                    form.format(total.text, part.text), node.dtype, total.variables | part.variables, "p"
                )
        assert total is not None
        if kind == "avg":
            total = _average(kernel, node, total, window, stride, padding, spatial, sizes)
        return total

    return handler


def _average(
    kernel: Kernel,
    node: Node,
    total: Value,
    window: list[int],
    stride: list[int],
    padding: list[int],
    spatial: Sequence[Index],
    sizes: Sequence[str],
) -> Value:
    arguments = list(node.args)
    include_padding = bool(arguments[5]) if len(arguments) > 5 else True
    divisor = arguments[6] if len(arguments) > 6 else None
    if isinstance(divisor, int):
        return kernel.assign(f"{total.text} / {divisor}.0", node.dtype, total.variables)
    if include_padding or not any(padding):
        count = 1
        for size in window:
            count *= size
        return kernel.assign(f"{total.text} / {count}.0", node.dtype, total.variables)
    variables = total.variables
    parts = []
    for axis, item in enumerate(spatial):
        start = f"({wrap(item.text)} * {stride[axis]} - {padding[axis]})"
        parts.append(f"(tl.minimum({start} + {window[axis]}, {sizes[axis]}) - tl.maximum({start}, 0))")
        variables |= item.variables
    return kernel.assign(f"{total.text} / ({' * '.join(parts)})", node.dtype, variables)


HANDLERS: dict[str, Handler] = {
    "aten.pow": _pow,
    "aten.copy": _copy,
    "aten.copy_": _copy,
    "aten.round": _round,
    "aten.as_strided": _as_strided,
    "aten.split_with_sizes": _split,
    "aten.where": _where,
    "aten.clamp": _clamp,
    "aten.clamp_min": _clamp,
    "aten._to_copy": _cast,
    "prims.convert_element_type": _cast,
    "aten.full": _constant(1),
    "aten.scalar_tensor": _constant(0),
    "aten.full_like": _constant(1),
    "aten.zeros_like": _constant(0, 0),
    "aten.ones_like": _constant(0, 1),
    "aten.zeros": _constant(0, 0),
    "aten.ones": _constant(0, 1),
    "prims.iota": _iota,
    "aten.arange": _iota,
    "aten.clone": _same,
    "aten.alias": _same,
    "aten.detach": _same,
    "aten.contiguous": _same,
    "aten.lift_fresh_copy": _same,
    "aten.view": _view,
    "aten._unsafe_view": _view,
    "aten.reshape": _view,
    "aten.permute": _permute,
    "aten.transpose": _permute,
    "aten.t": _permute,
    "aten.expand": _expand,
    "aten.unsqueeze": _unsqueeze,
    "aten.squeeze": _squeeze,
    "prims.broadcast_in_dim": _broadcast_in_dim,
    "aten.select": _select,
    "aten.slice": _slice,
    "aten.flip": _flip,
    "prims.rev": _flip,
    "aten.constant_pad_nd": _pad,
    "aten.embedding": _embedding,
    "aten.gather": _gather,
    "aten.index_select": _index_select,
    "aten.index": _index,
    "aten.max_pool1d_with_indices": _pool(1, "max"),
    "aten.max_pool2d_with_indices": _pool(2, "max"),
    "aten.max_pool3d_with_indices": _pool(3, "max"),
    "aten.avg_pool1d": _pool(1, "avg"),
    "aten.avg_pool2d": _pool(2, "avg"),
    "aten.avg_pool3d": _pool(3, "avg"),
}
