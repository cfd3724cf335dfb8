"""Matrix products in C++: packed panels, a register tile, everything around the product fused in.

The scheme is the usual one of high-performance libraries (Goto and van de Geijn, "Anatomy of high-performance matrix
multiplication", 2008): both operands are copied into panels that a register tile of ``mr`` rows and ``nv`` vectors of
columns walks in line. The copies compute whatever is fused in front of the product (a transposed or converted operand,
the patches of a convolution); the block of results is finished by what follows it (bias, activation) while it is still
in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import NeedsBuffer, Unsupported, Value
from orienteer.kernels.blocks.graph import Node
from orienteer.kernels.blocks.index import Index, linear, split
from orienteer.kernels.cpp.kernel import CppKernel, Lanes, Level, Loop, block, indent, variable
from orienteer.kernels.cpp.nests import PARALLEL_FROM, simd
from orienteer.kernels.cpp.patches import pack_patches

#: The register tile: MR rows by NV vectors, summed over one stretch of the inner dimension.
MICRO = """\
typedef {kind} vec_{kind} __attribute__((vector_size({vector}), aligned({align})));
template <int MR, int NV>
static inline void register_tile_{kind}(const {kind}* a, const {kind}* b, int64_t steps, {kind}* c, int64_t pitch,
                                        bool more) {{
    constexpr int W = {vector} / sizeof({kind});
    vec_{kind} sum[MR][NV];
    for (int i = 0; i < MR; ++i)
        for (int j = 0; j < NV; ++j) sum[i][j] = more ? *(const vec_{kind}*)(c + i * pitch + j * W) : vec_{kind}{{}};
    for (int64_t k = 0; k < steps; ++k, a += MR, b += NV * W) {{
        vec_{kind} right[NV];
        for (int j = 0; j < NV; ++j) right[j] = *(const vec_{kind}*)(b + j * W);
        for (int i = 0; i < MR; ++i)
            for (int j = 0; j < NV; ++j) sum[i][j] += a[i] * right[j];
    }}
    for (int i = 0; i < MR; ++i)
        for (int j = 0; j < NV; ++j) *(vec_{kind}*)(c + i * pitch + j * W) = sum[i][j];
}}
"""


class MatmulNest:
    """A matrix product, plain or batched."""

    def __init__(self, kernel: CppKernel, node: Node, anchor: Node) -> None:
        self.kernel, self.node, self.product = kernel, node, anchor

    def build(self) -> CppKernel:
        """Write the kernel."""
        kernel, node, mm = self.kernel, self.node, self.product
        kernel.block = "matmul"
        left, right = (kernel.graph.nodes[arg.name] for arg in mm.args[:2])
        #: Sizes of a convolution's places when its output, images by channel, is finished here.
        self.places = left.kwargs["places"] if left.op == "conv.patches" else None
        if self.places is not None and node.shape == (self.places[0], mm.shape[1], *self.places[1:]):
            kernel.block = "convolution"
        elif node.shape != mm.shape:
            raise NeedsBuffer(mm.name)
        else:
            self.places = None
        if left.dtype not in ops.FLOATS or right.dtype not in ops.FLOATS:
            raise Unsupported("a matrix product of integers")
        plan = kernel.plan
        self.kind = kind = kernel.kind(mm.dtype)
        width = plan.vector // (8 if kind == "double" else 4)
        mr, nr = plan.mr, plan.nv * width
        kernel.helpers.add(MICRO.format(kind=kind, vector=plan.vector, align=8 if kind == "double" else 4))
        batched = mm.op == "aten.bmm"
        inner = kernel.cpp(kernel.size(left.shape[-1]), "int64")
        batch = [variable("batch")] if batched else []
        function = kernel.top
        each = function.inner(frozenset({"batch"}))
        tile_m = max(mr, plan.tile_m // mr * mr)
        tile_n = max(nr, plan.tile_n // nr * nr)
        # Vectors run along the places of an image, which lie side by side; else along the product's columns.
        operands = [
            (left, [*batch, variable("m"), variable("k")], "m"),
            (right, [*batch, variable("k"), variable("n")], "n"),
        ]
        extents = [kernel.cpp(kernel.size(size), "int64") for size in mm.shape[-2:]]
        if (plan.swap == 1) != (self.places is not None):
            operands.reverse()
            extents.reverse()
        rows, cols = extents
        self.row, self.column = operands[0][2], operands[1][2]
        # One operand is packed whole, by all threads together, the other block by block by the thread that needs it:
        # the patches of a convolution are many times the image and must not go through memory.
        self.whole = "left" if self.places is not None else "right"
        pack_b = self._pack(each, *operands[1], nr, "right", "cols")
        pack_a = self._pack(each, *operands[0], mr, "left", "rows")
        finish = self._finish(each, [*batch, variable("m"), variable("n")], tile_n)
        left_panels, right_panels = (
            block(f"for (int64_t panel = 0; panel < ({count} + {size - 1}) / {size}; ++panel)", lines)
            for count, size, lines in (
                ("rows" if self.whole == "left" else "(row1 - row0)", mr, pack_a),
                ("cols" if self.whole == "right" else "(col1 - col0)", nr, pack_b),
            )
        )
        tiles = self._tiles(tile_m, tile_n, left_panels if self.whole == "right" else right_panels, finish)
        sizes = {
            "left": f"(rows + {mr - 1}) / {mr} * {mr} * inner",
            "right": f"(cols + {nr - 1}) / {nr} * {nr} * inner",
        }
        block_sizes = {"left": f"{tile_m} * inner", "right": f"{tile_n} * inner"}
        other = "left" if self.whole == "right" else "right"
        shared = self._memory(self.whole, sizes[self.whole])
        own = [*self._memory(other, block_sizes[other]), *self._memory("sums", f"{tile_m * tile_n}")]
        whole_panels = right_panels if self.whole == "right" else left_panels
        team = f"#pragma omp parallel num_threads({kernel.team()}) if (work > {PARALLEL_FROM * 2})"
        setup = [
            f"const int64_t rows = {rows}, cols = {cols}, inner = {inner};",
            f"const int64_t down = (rows + {tile_m - 1}) / {tile_m}, across = (cols + {tile_n - 1}) / {tile_n};",
        ]
        work = "(double)rows * (double)cols * (double)inner"
        if batched:
            # Every thread takes whole products: they share nothing.
            count = kernel.cpp(kernel.size(mm.shape[0]), "int64")
            setup.append(f"const double work = (double)({count}) * {work};")
            each_batch = block(
                f"for (int64_t batch = 0; batch < {count}; ++batch)", [*each.rendered(), *whole_panels, *tiles]
            )
            region = [*own, *shared, "#pragma omp for schedule(static)", *each_batch]
            kernel.body = [*function.rendered(), *setup, team, "{", *indent(region), "}"]
            return kernel
        setup.append(f"const double work = {work};")
        region = [*own, "#pragma omp for schedule(static)", *whole_panels, "#pragma omp for schedule(static)", *tiles]
        kernel.body = [*function.rendered(), *setup, *each.rendered(), *shared, team, "{", *indent(region), "}"]
        return kernel

    def _memory(self, name: str, count: str) -> list[str]:
        return [f"Scratch<{self.kind}> {name}_memory({count});", f"{self.kind}* const {name} = {name}_memory.data;"]

    def _pack(
        self, each: Level, operand: Node, index: Sequence[Index], lane: str, lanes: int, goal: str, extent: str
    ) -> list[str]:
        """Return the copy of one panel: ``lanes`` neighbouring rows or columns, step by step along the inner dimension.

        What depends on the lane alone (where a place of an image lies) is computed once for the panel.
        """
        kernel = self.kernel
        start = "" if goal == self.whole else "row0 + " if goal == "left" else "col0 + "
        if operand.op == "conv.patches":
            return pack_patches(kernel, operand, lanes, start, goal, extent, self.kind)
        setup = (f"const int64_t {lane} = first + l;",)
        panel = each.inner(frozenset({lane}), Lanes("l", str(lanes), "lanes", setup))
        step = panel.inner(frozenset())
        step.variables = each.variables | {"k"}
        both = step.inner(frozenset({lane}))
        outer, kernel.scope = kernel.scope, both
        try:
            value = kernel.value(operand.name, list(index))
        finally:
            kernel.scope = outer
        both.lines.append(f"to[k * {lanes} + l] = {kernel.cpp(value.text, operand.dtype)};")
        step.lines.append(Loop([simd(kernel), "for (int64_t l = 0; l < lanes; ++l)"], both, setup))
        step.lines.append(f"for (int64_t l = lanes; l < {lanes}; ++l) to[k * {lanes} + l] = 0;")
        return [
            f"const int64_t first = {start}panel * {lanes}, lanes = smaller({extent} - first, {lanes});",
            f"{self.kind}* const to = {goal} + panel * {lanes} * inner;",
            *panel.rendered(),
            *Loop(["for (int64_t k = 0; k < inner; ++k)"], step).rendered(),
        ]

    def _tiles(self, tile_m: int, tile_n: int, pack: list[str], finish: list[str]) -> list[str]:
        """Return the loops over the blocks of the result; the outer one is dealt out to threads."""
        plan = self.kernel.plan
        width = plan.vector // (8 if self.kind == "double" else 4)
        mr, nr = plan.mr, plan.nv * width
        i, j = (f"row0 / {mr} + i", "j") if self.whole == "left" else ("i", f"col0 / {nr} + j")
        call = (
            f"register_tile_{self.kind}<{mr}, {plan.nv}>(left + ({i}) * {mr} * inner + k0 * {mr}, "
            f"right + ({j}) * {nr} * inner + k0 * {nr}, steps, "
            f"sums + i * {mr * tile_n} + j * {nr}, {tile_n}, k0 > 0);"
        )
        row = f"const int64_t row0 = down_block * {tile_m}, row1 = smaller(row0 + {tile_m}, rows);"
        col = f"const int64_t col0 = across_block * {tile_n}, col1 = smaller(col0 + {tile_n}, cols);"
        inside = [
            f"const int64_t panels = (row1 - row0 + {mr - 1}) / {mr}, columns = (col1 - col0 + {nr - 1}) / {nr};",
            *block(
                f"for (int64_t k0 = 0; k0 < inner || k0 == 0; k0 += {plan.tile_k})",
                [
                    f"const int64_t steps = smaller(inner - k0, {plan.tile_k});",
                    "for (int64_t j = 0; j < columns; ++j)",
                    f"    for (int64_t i = 0; i < panels; ++i) {call}",
                ],
            ),
            *finish,
        ]
        loops = [("down", row), ("across", col)]
        if self.whole == "left":
            loops.reverse()
        (outer, first), (inner_loop, second) = loops
        return block(
            f"for (int64_t {outer}_block = 0; {outer}_block < {outer}; ++{outer}_block)",
            [
                first,
                *pack,
                *block(
                    f"for (int64_t {inner_loop}_block = 0; {inner_loop}_block < {inner_loop}; ++{inner_loop}_block)",
                    [second, *inside],
                ),
            ],
        )

    def _finish(self, each: Level, position: list[Index], tile_n: int) -> list[str]:
        """Return the loops that compute what follows the product and store it."""
        kernel, node, mm = self.kernel, self.node, self.product
        row, column = self.row, self.column
        setup = (f"const int64_t {column} = col0 + l;",)
        # What depends on the column alone is computed once for the block.
        block_level = each.inner(frozenset({column}), Lanes("l", str(tile_n), "col1 - col0", setup))
        line = block_level.inner(frozenset())
        line.variables = each.variables | {row}
        element = line.inner(frozenset({column}))
        outer, kernel.scope = kernel.scope, element
        expected, target = [item.text for item in position], position
        if self.places is not None:
            sizes = [kernel.size(size) for size in self.places]
            held = [kernel.held(item) for item in split(variable("m"), sizes)]
            expected = [linear(held, sizes).text, "n"]
            target = [held[0], variable("n"), *held[1:]]

        def anchor(other: Node, index: Sequence[Index]) -> Value:
            if other.name == mm.name and [item.text for item in index] == expected:
                text = f"sums[({row} - row0) * {tile_n} + l]"
                return kernel.declare(text, mm.dtype, frozenset({"m", "n"}))
            raise NeedsBuffer(other.name)

        kernel.anchor = anchor
        try:
            value = kernel.value(node.name, target)
            kernel.store(node.name, target, value, element)
        finally:
            kernel.scope = outer
        line.lines.append(Loop([simd(kernel), "for (int64_t l = 0; l < col1 - col0; ++l)"], element, setup))
        return [
            *block_level.rendered(),
            *Loop([f"for (int64_t {row} = row0; {row} < row1; ++{row})"], line).rendered(),
        ]
