"""The loop nests: how a kernel walks over its output.

``ElementNest`` is a flat walk, ``TileNest`` a tiled one for transposing copies, ``RowNest`` reduces or scans along some
dimensions (softmax, norms, losses, cumulative sums), ``MatmulNest`` multiplies with everything around the product fused
into it. In all of them a launch has at most ``Schedule.programs`` instances, each of which takes several pieces of
work.
"""

from __future__ import annotations

from collections.abc import Sequence

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Kernel, NeedsBuffer, Scope, Unsupported, Value, indent
from orienteer.kernels.blocks.graph import Node, Ref, Size
from orienteer.kernels.blocks.index import ZERO, Index, add, product, split, wrap


def _pieces(kernel: Kernel, count: str, body: Sequence[str], name: str) -> list[str]:
    """Wrap the work on one piece into the loop over the pieces of this program instance."""
    return [
        f"for {name} in range({kernel.first}, {count}, tl.num_programs(0)):",
        *indent(body),
    ]


class ElementNest:
    """Independent elements in flat order: arithmetic, gathers, pooling, contiguous copies."""

    block = "element"

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self.kernel, self.node = kernel, node

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, node = self.kernel, self.node
        kernel.block = self.block
        shape = kernel.shape(node)
        last = node.shape[-1] if node.shape else "1"
        if self._flat_only():
            return self._flat(shape)
        return self._lines(shape, last)

    def _flat_only(self) -> bool:
        """True when every read is at the element's own position, so that no division is needed."""
        return all(
            self.kernel.graph.nodes[name].shape == self.node.shape or not _sized(self.kernel.graph.nodes[name].shape)
            for name in _stored_reads(self.kernel, self.node)
        ) and _only_arithmetic(self.kernel, self.node)

    def _flat(self, shape: list[Size]) -> Kernel:
        kernel, node = self.kernel, self.node
        total = kernel.size(product(node.shape))
        kernel.constants["BLOCK"] = str(kernel.schedule.flat_block)
        kernel.masks = {"i": f"i < {total}"}
        flat = Index("i", frozenset({"i"}))
        # One dimension stands for all: positions are equal everywhere, so the flat offset serves every operand.
        index = [*([ZERO] * (len(shape) - 1)), flat] if shape else []
        kernel.flat_shape = node.shape
        value = kernel.value(node.name, index)
        kernel.store(node.name, index, value)
        body = ["i = block * BLOCK + tl.arange(0, BLOCK)", *kernel.top_lines()]
        kernel.lines = _pieces(kernel, f"tl.cdiv({total}, BLOCK)", body, "block")
        kernel.work = f"triton.cdiv({product(node.shape)}, {kernel.schedule.flat_block})"
        return kernel

    def _lines(self, shape: list[Size], last: Size) -> Kernel:
        """Walk line by line along the last dimension: its positions are a vector, all others are scalars.

        Dimensions at the end that every operand has, or lacks, count as one. Several short lines make a tile.
        """
        kernel, node, schedule = self.kernel, self.node, self.kernel.schedule
        graph = kernel.graph
        rank = len(shape)
        end = max(1, self._shared_end())
        width_host = product(node.shape[rank - end :])
        width = kernel.size(width_host)
        block = min(schedule.flat_block, max(16, 1 << max(0, graph.value(width_host) - 1).bit_length()))
        kernel.constants["BLOCK"] = str(block)
        kernel.masks = {"i": f"i < {width}"}
        # One dimension stands for those at the end: positions are equal there, so one offset serves every operand.
        tail = [*([ZERO] * (end - 1)), Index("i", frozenset({"i"})) if width_host != "1" else ZERO]
        lead = list(range(rank - end))
        across = lead[-1] if lead and node.shape[lead[-1]] != "1" else None
        lines = 1
        if across is not None and width_host != "1":
            most = 1 << max(0, graph.value(node.shape[across]) - 1).bit_length()
            lines = max(1, min(schedule.line_tile // block, most))
        rest = lead[:-1] if lines > 1 else lead
        index: list[Index] = [*([ZERO] * len(lead)), *tail]
        setup = []
        for position, item in zip(rest, split(Index("line"), [shape[i] for i in rest]), strict=True):
            index[position] = item
            if item.text not in ("0", "line"):
                setup.append(f"o{position} = {item.text}")
                index[position] = Index(f"o{position}", item.variables, item.part)
        blocks = f"tl.cdiv({width}, BLOCK)"
        count = f"{kernel.size(product([node.shape[i] for i in rest]))} * {blocks}"
        kernel.work = f"{wrap(product([node.shape[i] for i in rest]))} * triton.cdiv({width_host}, {block})"
        head = [f"line = piece // {blocks}", f"i = (piece % {blocks}) * BLOCK + tl.arange(0, BLOCK)"]
        if lines > 1:
            assert across is not None
            index[across] = Index("j", frozenset({"j"}))
            kernel.masks["j"] = f"j < {shape[across]}"
            kernel.constants["LINES"] = str(lines)
            down = f"tl.cdiv({shape[across]}, LINES)"
            head = [
                f"line = piece // ({blocks} * {down})",
                f"j = ((piece // {blocks}) % {down}) * LINES + tl.arange(0, LINES)[:, None]",
                f"i = (piece % {blocks}) * BLOCK + tl.arange(0, BLOCK)[None, :]",
            ]
            count += f" * {down}"
            kernel.work += f" * triton.cdiv({node.shape[across]}, {lines})"
        value = kernel.value(node.name, index)
        kernel.store(node.name, index, value)
        kernel.lines = _pieces(kernel, count, [*head, *setup, *kernel.top_lines()], "piece")
        return kernel

    def _shared_end(self) -> int:
        """Return how many dimensions at the end every operand either has as the output has them, or lacks."""
        node = self.node
        for length in range(len(node.shape), 1, -1):
            end = node.shape[len(node.shape) - length :]
            if all(size != "1" for size in end) and self._in_place(end):
                return length
        return 1

    def _in_place(self, end: tuple[Size, ...]) -> bool:
        kernel, length = self.kernel, len(end)
        queue, seen = [self.node.name], set()
        while queue:
            name = queue.pop()
            if name in seen:
                continue
            seen.add(name)
            current = kernel.graph.nodes[name]
            own = current.shape[-length:]
            if all(size == "1" for size in own):
                continue  # nothing of it depends on the position
            if own != end:
                return False
            if name in kernel.buffers:
                continue
            if current.op not in _IN_PLACE and current.op != "aten.expand":
                return False
            queue.extend(current.refs())
        return True


def _sized(shape: Sequence[Size]) -> bool:
    return any(size != "1" for size in shape)


def _stored_reads(kernel: Kernel, node: Node) -> set[str]:
    """Names of the stored values that a node reads, through everything that is recomputed."""
    out: set[str] = set()
    queue, seen = [node.name], set()
    while queue:
        name = queue.pop()
        if name in seen:
            continue
        seen.add(name)
        if name in kernel.buffers:
            out.add(name)
            continue
        queue.extend(kernel.graph.nodes[name].refs())
    return out


#: Operators that keep an element at its place.
_IN_PLACE = frozenset(
    {
        *ops.UNARY,
        *ops.BINARY,
        *ops.COMPOSED,
        "aten.pow",
        "aten.where",
        "aten.clamp",
        "aten.clamp_min",
        "aten._to_copy",
        "prims.convert_element_type",
        "aten.clone",
        "aten.alias",
        "aten.detach",
        "aten.full",
        "aten.scalar_tensor",
        "aten.full_like",
        "aten.zeros_like",
        "aten.ones_like",
        "aten.zeros",
        "aten.ones",
        "aten.contiguous",
    }
)


def _only_arithmetic(kernel: Kernel, node: Node) -> bool:
    queue, seen = [node.name], set()
    while queue:
        name = queue.pop()
        if name in seen or name in kernel.buffers:
            continue
        seen.add(name)
        current = kernel.graph.nodes[name]
        if current.op not in _IN_PLACE or (_sized(current.shape) and current.shape != node.shape):
            return False
        queue.extend(current.refs())
    return True


class JoinNest:
    """Several values side by side along one dimension: one loop over the lines of each."""

    block = "join"

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self.kernel, self.node = kernel, node

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, node = self.kernel, self.node
        kernel.block = self.block
        axis = int(node.args[1]) % len(node.shape) if len(node.args) > 1 else 0
        widest = max(kernel.graph.value(kernel.graph.nodes[arg.name].shape[-1]) for arg in node.args[0])
        block = min(kernel.schedule.flat_block, max(16, 1 << max(0, widest - 1).bit_length()))
        kernel.constants["BLOCK"] = str(block)
        start: Size = "0"
        works = []
        for argument in node.args[0]:
            part = kernel.graph.nodes[argument.name]
            shape = kernel.shape(part)
            width = shape[-1]
            kernel.masks = {"i": f"i < {width}"}
            kernel.top = kernel.scope = Scope()
            index = [*split(Index("line"), shape[:-1]), Index("i", frozenset({"i"})) if width != "1" else ZERO]
            target = list(index)
            if start != "0":
                target[axis] = add(index[axis], Index(start))
            value = kernel.value(part.name, index)
            kernel.store(node.name, target, value)
            blocks = f"tl.cdiv({width}, BLOCK)"
            body = [
                f"line = piece // {blocks}",
                f"i = (piece % {blocks}) * BLOCK + tl.arange(0, BLOCK)",
                *kernel.top_lines(),
            ]
            lead = kernel.size(product(part.shape[:-1]))
            kernel.lines += _pieces(kernel, f"{lead} * {blocks}", body, "piece")
            works.append(f"{wrap(product(part.shape[:-1]))} * triton.cdiv({part.shape[-1]}, {block})")
            start = shape[axis] if start == "0" else f"{start} + {shape[axis]}"
        kernel.work = works[0] if len(works) == 1 else f"max({', '.join(works)})"
        return kernel


class TileNest:
    """A copy whose source runs along another dimension than its target: both are read and written in tiles."""

    block = "tile"

    def __init__(self, kernel: Kernel, node: Node) -> None:
        self.kernel, self.node = kernel, node

    @staticmethod
    def _other_axis(kernel: Kernel, node: Node) -> int | None:
        """Return the output dimension along which a permuted source is contiguous, if it is not the last one."""
        current = node
        axis_of_source: int | None = None
        seen = 0
        while seen < 32:
            seen += 1
            if current.op in ("aten.permute", "aten.t", "aten.transpose") and isinstance(current.args[0], Ref):
                if current.args[0].name not in kernel.buffers:
                    return None
                axis_of_source = current.permutation().index(len(current.shape) - 1)
                break
            refs = [r for r in current.refs() if kernel.graph.nodes[r].shape == current.shape]
            if current.name in kernel.buffers or current.op not in _IN_PLACE or not refs:
                return None
            current = kernel.graph.nodes[next((r for r in refs if r not in kernel.buffers), refs[0])]
        if axis_of_source is None or axis_of_source == len(node.shape) - 1:
            return None
        return axis_of_source

    @classmethod
    def fits(cls, kernel: Kernel, node: Node) -> bool:
        """Say whether this nest suits a value."""
        return len(node.shape) >= 2 and cls._other_axis(kernel, node) is not None

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, node = self.kernel, self.node
        kernel.block = self.block
        axis = self._other_axis(kernel, node)
        assert axis is not None
        shape = kernel.shape(node)
        rows, cols = shape[axis], shape[-1]
        outer = [i for i in range(len(shape) - 1) if i != axis]
        edge = str(kernel.schedule.tile_copy)
        kernel.constants["TILE"] = edge
        kernel.masks = {"m": f"m < {rows}", "n": f"n < {cols}"}
        index: list[Index] = [ZERO] * len(shape)
        setup = []
        for position, item in zip(outer, split(Index("outer"), [shape[i] for i in outer]), strict=True):
            index[position] = item
            if item.text not in ("0", "outer"):
                setup.append(f"o{position} = {item.text}")
                index[position] = Index(f"o{position}", item.variables, item.part)
        index[axis] = Index("m", frozenset({"m"}))
        index[-1] = Index("n", frozenset({"n"}))
        value = kernel.value(node.name, index)
        kernel.store(node.name, index, value)
        across = f"tl.cdiv({cols}, TILE)"
        down = f"tl.cdiv({rows}, TILE)"
        lead = product([shape[i] for i in outer])
        body = [
            f"m = ((tile // {across}) % {down}) * TILE + tl.arange(0, TILE)[:, None]",
            f"n = (tile % {across}) * TILE + tl.arange(0, TILE)[None, :]",
            *([f"outer = tile // ({across} * {down})"] if outer and lead != "1" else []),
            *setup,
            *kernel.top_lines(),
        ]
        count = f"{across} * {down}" if lead == "1" else f"{wrap(lead)} * {across} * {down}"
        kernel.lines = _pieces(kernel, count, body, "tile")
        parts = [f"triton.cdiv({node.shape[axis]}, {edge})", f"triton.cdiv({node.shape[-1]}, {edge})"]
        lead_host = product([node.shape[i] for i in outer])
        kernel.work = " * ".join([*([wrap(lead_host)] if lead_host != "1" else []), *parts])
        return kernel


class MatmulNest:
    """A matrix product, plain or batched, with the producers of its operands and the users of its result fused in."""

    block = "matmul"

    def __init__(self, kernel: Kernel, node: Node, anchor: Node) -> None:
        self.kernel, self.node, self.product = kernel, node, anchor

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, node, mm = self.kernel, self.node, self.product
        kernel.block = self.block
        if node.shape != mm.shape:
            raise NeedsBuffer(mm.name)
        left, right = (kernel.graph.nodes[arg.name] for arg in mm.args[:2])
        parts = "parts" in mm.kwargs
        batched = mm.op == "aten.bmm" or parts
        rows, cols = (kernel.size(size) for size in mm.shape[-2:])
        inner = kernel.size(left.shape[-1])
        schedule = kernel.schedule
        tile = {
            "TILE_M": fit(schedule.tile_m, kernel.graph.value(mm.shape[-2])),
            "TILE_N": fit(schedule.tile_n, kernel.graph.value(mm.shape[-1])),
            "TILE_K": fit(schedule.tile_k, kernel.graph.value(left.shape[-1])),
        }
        kernel.constants.update({key: str(value) for key, value in tile.items()})
        kernel.masks = {
            "am": f"am < {rows}",
            "ak": f"ak < {inner}",
            "bk": f"bk < {inner}",
            "bn": f"bn < {cols}",
            "m": f"m < {rows}",
            "n": f"n < {cols}",
        }
        batch = [Index("batch")] if batched else []
        across, down = f"tl.cdiv({cols}, TILE_N)", f"tl.cdiv({rows}, TILE_M)"

        # The loop over the inner dimension.
        outer_scope = kernel.scope
        kernel.loop_variables = frozenset({"ak", "bk"})
        kernel.scope = kernel.child_scope()
        lead = [] if parts else batch
        a = kernel.value(left.name, [*lead, variable("am"), variable("ak")])
        b = kernel.value(right.name, [*lead, variable("bk"), variable("bn")])
        # An operand is read along its own memory: a transposed one as the transposed tile.
        turn_a = schedule.turn_tiles and _runs_along(kernel, left, len(left.shape) - 2)
        turn_b = schedule.turn_tiles and _runs_along(kernel, right, len(right.shape) - 2)
        a_tile, b_tile = ("TILE_K", "TILE_M") if turn_a else ("TILE_M", "TILE_K"), ("TILE_K", "TILE_N")
        if turn_b:
            b_tile = ("TILE_N", "TILE_K")
        # An operand that does not depend on both positions (a size of 1) is spread over its tile.
        if not a.variables >= {"am", "ak"}:
            a = kernel.assign(f"tl.broadcast_to({a.text}, ({', '.join(a_tile)}))", a.dtype, frozenset({"am", "ak"}))
        if not b.variables >= {"bk", "bn"}:
            b = kernel.assign(f"tl.broadcast_to({b.text}, ({', '.join(b_tile)}))", b.dtype, frozenset({"bk", "bn"}))
        a, b = self._dot_operands(a, b, left, right)
        # Lanes beyond the inner dimension must be zero whatever was fused in front of the product.
        if not a.loaded:
            a = kernel.assign(f"tl.where((ak < {inner}) & (am < {rows}), {a.text}, 0.0)", a.dtype, a.variables)
        if not b.loaded:
            b = kernel.assign(f"tl.where((bk < {inner}) & (bn < {cols}), {b.text}, 0.0)", b.dtype, b.variables)
        if turn_a:
            a = kernel.assign(f"tl.trans({a.text})", a.dtype, a.variables)
        if turn_b:
            b = kernel.assign(f"tl.trans({b.text})", b.dtype, b.variables)
        down_axis, along = "[:, None]", "[None, :]"
        loop = [
            f"ak = k + tl.arange(0, TILE_K){down_axis if turn_a else along}",
            f"bk = k + tl.arange(0, TILE_K){along if turn_b else down_axis}",
            *kernel.scope.lines,
            f'acc = tl.dot({a.text}, {b.text}, acc, input_precision="ieee")',
        ]
        kernel.scope = outer_scope
        before_loop = kernel.top_lines()
        kernel.top.lines.clear()

        position = [*batch, variable("m"), variable("n")]
        texts = [item.text for item in position]

        def anchor(other: Node, index: Sequence[Index]) -> Value:
            if other.name == mm.name and [item.text for item in index] == texts:
                return Value("acc", "float32", frozenset({"m", "n"}))
            raise NeedsBuffer(other.name)

        kernel.anchor = anchor
        value = kernel.value(node.name, position)
        kernel.store(node.name, position, value)
        place = [f"row = (tile // {across}) * TILE_M", f"col = (tile % {across}) * TILE_N"]
        if batched:
            place = [
                f"batch = tile // ({across} * {down})",
                f"row = ((tile // {across}) % {down}) * TILE_M",
                place[1],
            ]
        elif schedule.group_m > 1:
            # Neighbouring tiles go down a few rows before they go across: they read the same columns.
            kernel.constants["GROUP"] = str(schedule.group_m)
            place = [
                f"top = (tile // (GROUP * {across})) * GROUP",
                f"height = tl.minimum({down} - top, GROUP)",
                f"row = (top + (tile % (GROUP * {across})) % height) * TILE_M",
                f"col = ((tile % (GROUP * {across})) // height) * TILE_N",
            ]
        span = f"0, {inner}"
        if parts:
            kernel.constants["PARTS"] = str(mm.kwargs["parts"])
            place.append(f"share = tl.cdiv(tl.cdiv({inner}, TILE_K), PARTS) * TILE_K")
            span = f"batch * share, tl.minimum((batch + 1) * share, {inner})"
        body = [
            *place,
            f"am = row + tl.arange(0, TILE_M){along if turn_a else down_axis}",
            f"bn = col + tl.arange(0, TILE_N){down_axis if turn_b else along}",
            *before_loop,
            "acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)",
            f"for k in range({span}, TILE_K):",
            *indent(loop),
            "m = row + tl.arange(0, TILE_M)[:, None]",
            "n = col + tl.arange(0, TILE_N)[None, :]",
            *kernel.top_lines(),
        ]
        count = f"{across} * {down}"
        work = [f"triton.cdiv({mm.shape[-2]}, {tile['TILE_M']})", f"triton.cdiv({mm.shape[-1]}, {tile['TILE_N']})"]
        if batched:
            count = f"{kernel.size(mm.shape[0])} * {count}"
            work.insert(0, wrap(mm.shape[0]))
        kernel.lines = _pieces(kernel, count, body, "tile")
        kernel.work = " * ".join(work)
        return kernel

    def _dot_operands(self, a: Value, b: Value, left: Node, right: Node) -> tuple[Value, Value]:
        """Give both operands one type: float16 stays float16, everything else is multiplied in float32."""
        if left.dtype == right.dtype == "float16":
            return tuple(self.kernel.assign(f"{v.text}.to(tl.float16)", v.dtype, v.variables) for v in (a, b))  # type: ignore[return-value]
        if left.dtype not in ops.FLOATS or right.dtype not in ops.FLOATS:
            raise Unsupported("a matrix product of integers")
        if "float64" in (left.dtype, right.dtype):
            raise Unsupported("a matrix product in float64")
        return a, b


def _runs_along(kernel: Kernel, node: Node, axis: int) -> bool:
    """Return True when what a value reads lies in memory along another of its dimensions than the last."""
    current, at = node, axis
    for _ in range(32):
        if current.name in kernel.buffers:
            return at == len(current.shape) - 1
        if current.op in ("aten.permute", "aten.t", "aten.transpose"):
            at = current.permutation()[at]
            current = kernel.graph.nodes[current.args[0].name]
            continue
        same = [r for r in current.refs() if kernel.graph.nodes[r].shape == current.shape]
        if current.op in _VIEWS and isinstance(current.args[0], Ref):
            source = kernel.graph.nodes[current.args[0].name]
            # A view that keeps the last dimensions keeps what runs along them.
            back = len(current.shape) - at
            if back > len(source.shape) or source.shape[-back:] != current.shape[at:]:
                return False
            current, at = source, len(source.shape) - back
            continue
        if current.op not in _IN_PLACE or not same:
            return False
        current = kernel.graph.nodes[next((r for r in same if r not in kernel.buffers), same[0])]
    return False


_VIEWS = frozenset({"aten.view", "aten._unsafe_view", "aten.reshape", "aten.expand", "aten.unsqueeze", "aten.squeeze"})


def fit(tile: int, extent: int) -> int:
    """Shrink a tile to a short dimension; 16 is the least that ``tl.dot`` takes."""
    return max(16, min(tile, 1 << max(0, extent - 1).bit_length()))


def variable(name: str) -> Index:
    """Return the position that an iteration variable stands for."""
    return Index(name, frozenset({name}))


from orienteer.kernels.blocks.rows import RowNest  # noqa: E402  (one nest, a file of its own)

__all__ = ["ElementNest", "JoinNest", "MatmulNest", "RowNest", "TileNest", "fit", "variable"]
