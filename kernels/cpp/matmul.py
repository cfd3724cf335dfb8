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
from orienteer.kernels.blocks.index import Index
from orienteer.kernels.cpp.kernel import CppKernel, Lanes, Level, Loop, block, indent, variable
from orienteer.kernels.cpp.nests import PARALLEL_FROM, simd

#: The register tile: MR rows by NV vectors, summed over one stretch of the inner dimension.
MICRO = """\
typedef {kind} vec_{kind} __attribute__((vector_size({vector}), aligned({align})));
template <int MR, int NV>
static inline void register_tile_{kind}(const {kind}* a, const {kind}* b, int64_t steps, {kind}* c, int64_t pitch, bool more) {{
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
        if node.shape != mm.shape:
            raise NeedsBuffer(mm.name)
        left, right = (kernel.graph.nodes[arg.name] for arg in mm.args[:2])
        if left.dtype not in ops.FLOATS or right.dtype not in ops.FLOATS:
            raise Unsupported("a matrix product of integers")
        plan = kernel.plan
        self.kind = kind = kernel.kind(mm.dtype)
        width = plan.vector // (8 if kind == "double" else 4)
        mr, nr = plan.mr, plan.nv * width
        kernel.helpers.add(MICRO.format(kind=kind, vector=plan.vector, align=8 if kind == "double" else 4))
        batched = mm.op == "aten.bmm"
        rows, cols = (kernel.cpp(kernel.size(size), "int64") for size in mm.shape[-2:])
        inner = kernel.cpp(kernel.size(left.shape[-1]), "int64")
        batch = [variable("batch")] if batched else []
        function = kernel.top
        each = function.inner(frozenset({"batch"}))
        tile_m = max(mr, plan.tile_m // mr * mr)
        tile_n = max(nr, plan.tile_n // nr * nr)
        pack_b = self._pack(each, right, [*batch, variable("k"), variable("n")], "n", nr, cols, inner)
        pack_a = self._pack(each, left, [*batch, variable("m"), variable("k")], "m", mr, rows, inner)
        finish = self._finish(each, [*batch, variable("m"), variable("n")], tile_n)
        panels = block(f"for (int64_t panel = 0; panel < (cols + {nr - 1}) / {nr}; ++panel)", pack_b)
        tiles = block(
            "for (int64_t tile = 0; tile < down * across; ++tile)", self._tile(tile_m, tile_n, pack_a, finish)
        )
        right_memory = [
            f"Scratch<{kind}> right_memory((cols + {nr - 1}) / {nr} * {nr} * inner);",
            f"{kind}* const right = right_memory.data;",
        ]
        own_memory = [
            f"Scratch<{kind}> left_memory({tile_m} * inner), block_memory({tile_m * tile_n});",
            f"{kind}* const left = left_memory.data;",
            f"{kind}* const sums = block_memory.data;",
        ]
        team = f"#pragma omp parallel num_threads({kernel.team()}) if (work > {PARALLEL_FROM * 2})"
        setup = [
            f"const int64_t rows = {rows}, cols = {cols}, inner = {inner};",
            f"const int64_t down = (rows + {tile_m - 1}) / {tile_m}, across = (cols + {tile_n - 1}) / {tile_n};",
        ]
        if batched:
            # Every thread takes whole products: they share nothing.
            count = kernel.cpp(kernel.size(mm.shape[0]), "int64")
            setup.append(f"const double work = (double)({count}) * (double)rows * (double)cols * (double)inner;")
            each_batch = block(
                f"for (int64_t batch = 0; batch < {count}; ++batch)",
                [*each.rendered(), *panels, "int64_t packed = -1;", *tiles],
            )
            region = [*own_memory, *right_memory, "#pragma omp for schedule(static)", *each_batch]
            kernel.body = [*function.rendered(), *setup, team, "{", *indent(region), "}"]
            return kernel
        setup.append("const double work = (double)rows * (double)cols * (double)inner;")
        region = [*own_memory, "#pragma omp for schedule(static)", *panels, "int64_t packed = -1;"]
        region += ["#pragma omp for schedule(static)", *tiles]
        kernel.body = [*function.rendered(), *setup, *each.rendered(), *right_memory, team, "{", *indent(region), "}"]
        return kernel

    def _pack(
        self, each: Level, operand: Node, index: Sequence[Index], lane: str, lanes: int, extent: str, inner: str
    ) -> list[str]:
        """Return the copy of one panel: ``lanes`` neighbouring rows or columns, step by step along the inner dimension.

        What depends on the lane alone (where a place of an image lies) is computed once for the panel.
        """
        kernel = self.kernel
        start = f"panel * {lanes}"
        goal, pointer = ("right", "to") if lane == "n" else ("left", "to")
        setup = (f"const int64_t {lane} = first + l;",)
        held = Lanes("l", str(lanes), "lanes", setup)
        panel = each.inner(frozenset({lane}), held)
        step = panel.inner(frozenset({"k"}))
        step.variables = each.variables | {"k"}
        both = step.inner(frozenset({lane}))
        both.variables = step.variables | {lane}
        outer = kernel.scope
        kernel.scope = both
        try:
            value = kernel.value(operand.name, list(index))
        finally:
            kernel.scope = outer
        both.lines.append(f"{pointer}[k * {lanes} + l] = {kernel.cpp(value.text, operand.dtype)};")
        step.lines.append(Loop([simd(kernel), "for (int64_t l = 0; l < lanes; ++l)"], both, setup))
        step.lines.append(f"for (int64_t l = lanes; l < {lanes}; ++l) {pointer}[k * {lanes} + l] = 0;")
        base = start if lane == "n" else f"m0 + panel * {lanes}"
        where = f"{goal} + panel * {lanes} * inner"
        return [
            f"const int64_t first = {base}, lanes = smaller({extent} - first, {lanes});",
            f"{self.kind}* const {pointer} = {where};",
            *panel.rendered(),
            *Loop(["for (int64_t k = 0; k < inner; ++k)"], step).rendered(),
        ]

    def _tile(self, tile_m: int, tile_n: int, pack_a: list[str], finish: list[str]) -> list[str]:
        """Return the work on one block of the result."""
        plan = self.kernel.plan
        width = plan.vector // (8 if self.kind == "double" else 4)
        mr, nr = plan.mr, plan.nv * width
        panels = f"(smaller(rows - m0, {tile_m}) + {mr - 1}) / {mr}"
        call = (
            f"register_tile_{self.kind}<{mr}, {plan.nv}>(left + i * {mr} * inner + k0 * {mr}, "
            f"right + (n0 / {nr} + j) * {nr} * inner + k0 * {nr}, steps, "
            f"sums + i * {mr * tile_n} + j * {nr}, {tile_n}, k0 > 0);"
        )
        return [
            f"const int64_t m0 = tile / across * {tile_m}, n0 = tile % across * {tile_n};",
            f"const int64_t panels = {panels};",
            *block(
                "if (packed != m0)",
                [*block("for (int64_t panel = 0; panel < panels; ++panel)", pack_a), "packed = m0;"],
            ),
            f"const int64_t m1 = smaller(m0 + {tile_m}, rows), n1 = smaller(n0 + {tile_n}, cols);",
            f"const int64_t columns = (n1 - n0 + {nr - 1}) / {nr};",
            *block(
                f"for (int64_t k0 = 0; k0 < inner || k0 == 0; k0 += {plan.tile_k})",
                [
                    f"const int64_t steps = smaller(inner - k0, {plan.tile_k});",
                    *block(
                        "for (int64_t j = 0; j < columns; ++j)",
                        [f"for (int64_t i = 0; i < panels; ++i) {call}"],
                    ),
                ],
            ),
            *finish,
        ]

    def _finish(self, each: Level, position: list[Index], tile_n: int) -> list[str]:
        """Return the loops that compute what follows the product and store it."""
        kernel, node, mm = self.kernel, self.node, self.product
        row = each.inner(frozenset({"m"}))
        element = row.inner(frozenset({"n"}))
        texts = [item.text for item in position]

        def anchor(other: Node, index: Sequence[Index]) -> Value:
            if other.name == mm.name and [item.text for item in index] == texts:
                text = f"sums[(m - m0) * {tile_n} + (n - n0)]"
                return kernel.declare(text, mm.dtype, frozenset({"m", "n"}))
            raise NeedsBuffer(other.name)

        outer, kernel.anchor, kernel.scope = kernel.scope, anchor, element
        try:
            value = kernel.value(node.name, position)
            kernel.store(node.name, position, value, element)
        finally:
            kernel.scope = outer
        element_loop = Loop([simd(kernel), "for (int64_t n = n0; n < n1; ++n)"], element)
        row.lines.append(element_loop)
        return Loop(["for (int64_t m = m0; m < m1; ++m)"], row).rendered()
