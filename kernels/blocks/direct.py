"""Convolutions tap by tap: for every tap of the window a matrix product of its weights with the shifted picture.

The product of one tap is ``weights[channel out, channel in] @ picture[channel in, places]`` for the places of one line,
so every read runs along memory, and no patch is gathered. The weights are brought into the order (tap, out, in) by a
kernel before.
"""

from __future__ import annotations

from collections.abc import Sequence

from orienteer.kernels.blocks.convolution import under
from orienteer.kernels.blocks.emit import Kernel, NeedsBuffer, Scope, Value, indent
from orienteer.kernels.blocks.graph import Node
from orienteer.kernels.blocks.index import Index, product, split, wrap
from orienteer.kernels.blocks.nests import fit, variable


class DirectNest:
    """One tile of output channels and places of a line, with the users of the result fused in."""

    block = "convolution"

    def __init__(self, kernel: Kernel, node: Node, anchor: Node) -> None:
        self.kernel, self.node, self.conv = kernel, node, anchor

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, node, conv, graph = self.kernel, self.node, self.conv, self.kernel.graph
        kernel.block = self.block
        if node.shape != conv.shape:
            raise NeedsBuffer(conv.name)
        x, weight = (graph.nodes[arg.name] for arg in conv.args[:2])
        shape, schedule = kernel.shape(conv), kernel.schedule
        channels, rows, cols = kernel.size(x.shape[1]), shape[1], shape[-1]
        tile_m = fit(schedule.tile_m, graph.value(conv.shape[1]))
        tile_n = fit(schedule.tile_n, graph.value(conv.shape[-1]))
        tile_k = fit(schedule.tile_k, graph.value(x.shape[1]))
        kernel.constants.update({"TILE_M": str(tile_m), "TILE_N": str(tile_n), "TILE_K": str(tile_k)})
        limits = {"am": rows, "ak": channels, "bk": channels, "bn": cols, "m": rows, "n": cols}
        kernel.masks = {name: f"{name} < {limit}" for name, limit in limits.items()}
        setup: list[str] = []
        lead: list[Index] = []
        for position, item in enumerate(split(Index("outer"), [shape[0], *shape[2:-1]])):
            if item.text in ("0", "outer"):
                lead.append(item)
            else:
                setup.append(f"o{position} = {item.text}")
                lead.append(Index(f"o{position}", item.variables, item.part))
        taps = split(Index("q", frozenset({"q"})), [str(size) for size in conv.kwargs["window"]])
        kernel.loop_variables, kernel.numbers = frozenset({"q", "ak", "bk"}), frozenset({"q"})
        outer_scope = kernel.scope
        kernel.scope = Scope(parent=kernel.top)
        places = [*lead[1:], variable("bn")]
        under_tap, guards = under(kernel, conv, places, taps, kernel.shape(x)[2:])
        full = [lead[0], variable("bk"), *under_tap]
        b = kernel.guarded(x.name, full, guards, "0.0") if guards else kernel.value(x.name, full)
        a = kernel.value(weight.name, [*taps, variable("am"), variable("ak")])
        if not b.variables >= {"bk", "bn"}:
            b = kernel.assign(f"tl.broadcast_to({b.text}, (TILE_K, TILE_N))", b.dtype, frozenset({"bk", "bn"}))
        if not a.variables >= {"am", "ak"}:
            a = kernel.assign(f"tl.broadcast_to({a.text}, (TILE_M, TILE_K))", a.dtype, frozenset({"am", "ak"}))
        if not b.loaded:
            b = kernel.assign(f"tl.where((bk < {channels}) & (bn < {cols}), {b.text}, 0.0)", b.dtype, b.variables)
        turn = [
            "ak = k + tl.arange(0, TILE_K)[None, :]",
            "bk = k + tl.arange(0, TILE_K)[:, None]",
            *kernel.scope.lines,
            f'acc = tl.dot({a.text}, {b.text}, acc, input_precision="ieee")',
        ]
        kernel.scope = outer_scope
        before_loop = kernel.top_lines()
        kernel.top.lines.clear()
        result = [lead[0], variable("m"), *lead[1:], variable("n")]
        texts = [item.text for item in result]

        def anchor(other: Node, index: Sequence[Index]) -> Value:
            if other.name == conv.name and [item.text for item in index] == texts:
                return Value("acc", "float32", frozenset({"m", "n"}))
            raise NeedsBuffer(other.name)

        kernel.anchor = anchor
        kernel.store(node.name, result, kernel.value(node.name, result))
        across, down = f"tl.cdiv({cols}, TILE_N)", f"tl.cdiv({rows}, TILE_M)"
        count = product([str(size) for size in conv.kwargs["window"]])
        body = [
            f"outer = tile // ({across} * {down})",
            f"row = ((tile // {across}) % {down}) * TILE_M",
            f"col = (tile % {across}) * TILE_N",
            *setup,
            "am = row + tl.arange(0, TILE_M)[:, None]",
            "bn = col + tl.arange(0, TILE_N)[None, :]",
            *before_loop,
            "acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)",
            f"for q in range(0, {count}):",
            *indent([f"for k in range(0, {channels}, TILE_K):", *indent(turn)]),
            "m = row + tl.arange(0, TILE_M)[:, None]",
            "n = col + tl.arange(0, TILE_N)[None, :]",
            *kernel.top_lines(),
        ]
        outer_host = product([conv.shape[0], *conv.shape[2:-1]])
        pieces = f"{wrap(kernel.size(outer_host))} * {across} * {down}"
        kernel.lines = [f"for tile in range({kernel.first}, {pieces}, tl.num_programs(0)):", *indent(body)]
        tiles = f"triton.cdiv({conv.shape[1]}, {tile_m}) * triton.cdiv({conv.shape[-1]}, {tile_n})"
        kernel.work = f"{wrap(outer_host)} * {tiles}"
        return kernel
