"""Loop nests of C++ kernels without a reduction: flat walks, walks line by line, transposing copies, joins.

The decisions (which values share a position, which dimension a transposed source runs along) are those of
``kernels/blocks``; the loops are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orienteer.kernels.blocks import nests as blocks
from orienteer.kernels.blocks.graph import Node, Size
from orienteer.kernels.blocks.index import ZERO, Index, add, product, split, wrap
from orienteer.kernels.cpp.expression import STORED
from orienteer.kernels.cpp.kernel import CppKernel, Level, block, variable

#: Loops over fewer elements are not worth waking other threads for.
PARALLEL_FROM = 16384


def parallel_for(kernel: CppKernel, work: str, extra: str = "schedule(static)") -> str:
    """Return the line that deals a loop out to threads where there is enough work (an expression: elements)."""
    return f"#pragma omp parallel for {extra} num_threads({kernel.team()}) if ({work} > {PARALLEL_FROM})"


def simd(kernel: CppKernel, clauses: str = "") -> str:
    """Return the line that asks for a vectorised loop."""
    lanes = f" simdlen({kernel.plan.simdlen})" if kernel.plan.simdlen else ""
    return f"#pragma omp simd{lanes}{' ' + clauses if clauses else ''}"


class ElementNest(blocks.ElementNest):
    """Independent elements: arithmetic, gathers, pooling, contiguous copies."""

    kernel: CppKernel

    def _flat(self, shape: list[Size]) -> CppKernel:
        kernel, node = self.kernel, self.node
        total = kernel.size(product(node.shape))
        outer = kernel.top
        kernel.scope = inner = outer.inner(frozenset({"i"}))
        kernel.flat_shape = node.shape
        index = [*([ZERO] * (len(shape) - 1)), variable("i")] if shape else []
        value = kernel.value(node.name, index)
        if not shape:
            kernel.store(node.name, index, value, outer)
            kernel.body = outer.lines
            return kernel
        kernel.body = [
            *outer.lines,
            parallel_for(kernel, kernel.cpp(total, "int64")),
            *_run(kernel, node, Index("i"), value, inner, "from", total, f"{kernel.plan.chunk}"),
        ]
        return kernel

    def _lines(self, shape: list[Size], last: Size) -> CppKernel:
        kernel, node = self.kernel, self.node
        kernel.body = walk_lines(kernel, node, shape, lambda index: index)
        return kernel


def _run(
    kernel: CppKernel, node: Node, offset: Index, value: object, inner: Level, start: str, total: str, chunk: str
) -> list[str]:
    """Return a loop over the chunks of a flat output."""
    from orienteer.kernels.blocks.emit import Value

    assert isinstance(value, Value)
    pointer, kind = kernel.pointer(node.name), STORED[node.dtype]
    text = kernel.stored_text(node.name, value)
    stream = bool(kernel.plan.stream)
    goal = f"tile[i - {start}]" if stream else f"{pointer}[{offset.text}]"
    loop = [
        simd(kernel),
        *block(f"for (int64_t i = {start}; i < to; ++i)", [*inner.lines, f"{goal} = {text};"]),
    ]
    if stream:
        loop = [
            f"alignas(64) {kind} tile[{chunk}];",
            *loop,
            f"stream_out({pointer} + {start}, tile, (to - {start}) * (int64_t)sizeof({kind}));",
        ]
    count = kernel.cpp(total, "int64")
    return block(
        f"for (int64_t {start} = 0; {start} < {count}; {start} += {chunk})",
        [f"const int64_t to = smaller({start} + {chunk}, {count});", *loop],
    )


def walk_lines(
    kernel: CppKernel, node: Node, shape: Sequence[Size], target: Callable[[list[Index]], Sequence[Index]], of: str = ""
) -> list[str]:
    """Return loops over the lines of ``shape`` that store the value of ``of`` (or ``node``) at ``target``."""
    width = shape[-1] if shape else "1"
    kernel.top.lines.clear()
    kernel.top = Level()
    piece = kernel.top.inner(frozenset({"line"}))
    kernel.scope = inner = piece.inner(frozenset({"i"}))
    index = split(Index("line", frozenset({"line"})), list(shape[:-1]))
    index.append(variable("i") if width != "1" else ZERO)
    for position, item in enumerate(index[:-1]):
        if item.text not in ("0", "line"):
            piece.lines.append(f"const int64_t o{position} = {kernel.cpp(item.text, 'int64')};")
            index[position] = Index(f"o{position}", frozenset({"line"}))
    value = kernel.value(of or node.name, index)
    kernel.store(node.name, target(index), value, inner)
    lines = kernel.cpp(product(list(shape[:-1])), "int64")
    across = kernel.cpp(width, "int64")
    chunk = kernel.plan.chunk
    return [
        *kernel.top.lines,
        f"const int64_t pieces = ({across} + {chunk - 1}) / {chunk};",
        parallel_for(kernel, f"({lines}) * {across}"),
        *block(
            f"for (int64_t piece = 0; piece < ({lines}) * pieces; ++piece)",
            [
                "const int64_t line = piece / pieces;",
                f"const int64_t from = (piece % pieces) * {chunk}, to = smaller(from + {chunk}, {across});",
                *piece.lines,
                simd(kernel),
                *block("for (int64_t i = from; i < to; ++i)", inner.lines),
            ],
        ),
    ]


class JoinNest:
    """Several values side by side along one dimension: one walk over the lines of each."""

    def __init__(self, kernel: CppKernel, node: Node) -> None:
        self.kernel, self.node = kernel, node

    def build(self) -> CppKernel:
        """Write the kernel."""
        kernel, node = self.kernel, self.node
        kernel.block = "join"
        axis = int(node.args[1]) % len(node.shape) if len(node.args) > 1 else 0
        start: Size = "0"
        for argument in node.args[0]:
            part = kernel.graph.nodes[argument.name]
            shape = kernel.shape(part)

            def moved(index: list[Index], start: Size = start) -> list[Index]:
                out = list(index)
                if start != "0":
                    out[axis] = add(index[axis], Index(start))
                return out

            kernel.body += block("", walk_lines(kernel, node, shape, moved, part.name))
            start = shape[axis] if start == "0" else f"{start} + {shape[axis]}"
        kernel.body = [line if line != " {" else "{" for line in kernel.body]
        return kernel


class TileNest(blocks.TileNest):
    """A copy whose source runs along another dimension than its target: read and written in square tiles."""

    kernel: CppKernel

    def build(self) -> CppKernel:
        """Write the kernel."""
        kernel, node = self.kernel, self.node
        kernel.block = "tile"
        axis = self._other_axis(kernel, node)
        assert axis is not None
        shape = kernel.shape(node)
        rows, cols = kernel.cpp(shape[axis], "int64"), kernel.cpp(shape[-1], "int64")
        outer = [i for i in range(len(shape) - 1) if i != axis]
        tiles = kernel.top.inner(frozenset({"outer"}))
        kernel.scope = inner = tiles.inner(frozenset({"n"})).inner(frozenset({"m"}))
        index: list[Index] = [ZERO] * len(shape)
        for position, item in zip(
            outer, split(Index("outer", frozenset({"outer"})), [shape[i] for i in outer]), strict=True
        ):
            index[position] = item
            if item.text not in ("0", "outer"):
                tiles.lines.append(f"const int64_t o{position} = {kernel.cpp(item.text, 'int64')};")
                index[position] = Index(f"o{position}", frozenset({"outer"}))
        index[axis], index[-1] = variable("m"), variable("n")
        value = kernel.value(node.name, index)
        middle = inner.parent
        assert isinstance(middle, Level)
        edge = kernel.plan.tile
        kind = STORED[node.dtype]
        offset = kernel.cpp(kernel._offset(node, index).text, "int64")
        lead = kernel.cpp(product([shape[i] for i in outer]), "int64")
        pointer, text = kernel.pointer(node.name), kernel.stored_text(node.name, value)
        down, across = f"({rows} + {edge - 1}) / {edge}", f"({cols} + {edge - 1}) / {edge}"
        # The source is read along m and the target written along n, whole cache lines at a time; the turn happens in
        # a small buffer, whose pitch is no power of two so that its columns do not share a set of the cache.
        body = [
            "const int64_t outer = tile / (down * across);",
            f"const int64_t m0 = (tile / across) % down * {edge}, m1 = smaller(m0 + {edge}, {rows});",
            f"const int64_t n0 = tile % across * {edge}, n1 = smaller(n0 + {edge}, {cols});",
            f"alignas(64) {kind} turned[{edge}][{edge + 64 // _size(kind)}];",
            *tiles.lines,
            *block(
                "for (int64_t n = n0; n < n1; ++n)",
                [
                    *middle.lines,
                    simd(kernel),
                    *block("for (int64_t m = m0; m < m1; ++m)", [*inner.lines, f"turned[n - n0][m - m0] = {text};"]),
                ],
            ),
            *block(
                "for (int64_t m = m0; m < m1; ++m)",
                [
                    simd(kernel),
                    *block("for (int64_t n = n0; n < n1; ++n)", [f"{pointer}[{offset}] = turned[n - n0][m - m0];"]),
                ],
            ),
        ]
        kernel.body = [
            *kernel.top.lines,
            f"const int64_t down = {down}, across = {across};",
            parallel_for(kernel, f"down * across * {edge * edge}"),
            *block(f"for (int64_t tile = 0; tile < {wrap(lead)} * down * across; ++tile)", body),
        ]
        return kernel


def _size(kind: str) -> int:
    return {"double": 8, "int64_t": 8, "float": 4, "int32_t": 4, "uint16_t": 2, "int16_t": 2}.get(kind, 1)
