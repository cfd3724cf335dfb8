"""Reductions and scans in C++: a thread takes one row after another and walks it in passes.

What is reduced together is a *row*, as in ``kernels/blocks``. Three forms:

``rows``     the reduced dimensions are last: a row lies in one piece, every pass is a vectorised loop over it;
``single``   there are too few rows for the threads: the passes themselves are dealt out, line by line where a row has
             several dimensions;
``columns``  the reduced dimension is not the last: a strip of neighbouring columns is walked together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import ORDERED, Unsupported, Value
from orienteer.kernels.blocks.graph import Node
from orienteer.kernels.blocks.index import Index, linear, product, split
from orienteer.kernels.blocks.reductions import Element
from orienteer.kernels.blocks.rows import RowNest as BlockRowNest
from orienteer.kernels.cpp.expression import STORED
from orienteer.kernels.cpp.kernel import CppKernel, Lanes, Level, Loop, block, indent
from orienteer.kernels.cpp.nests import PARALLEL_FROM, parallel_for, simd

#: With fewer rows than this the passes over a row are dealt out to threads, not the rows.
FEW_ROWS = 4
#: A last dimension of fewer elements is not walked by a loop of its own.
SHORTEST_LINE = 32
#: Operators whose result is worth keeping from one pass to the next.
_COSTLY = frozenset(
    {"aten.exp", "aten.exp2", "aten.log", "aten.erf", "aten.tanh", "aten.sigmoid", "aten.sin", "aten.cos", "aten.pow"}
    | {"aten.div", "aten.sqrt", "aten.rsqrt", "aten.log1p", "aten.expm1", "aten.embedding", "aten.index", "aten.gather"}
)


class RowNest(BlockRowNest):
    """See the module's text."""

    kernel: CppKernel

    # -- set-up ------------------------------------------------------------------------------------------------------

    def build(self) -> CppKernel:
        """Write the kernel."""
        kernel = self.kernel
        rank = len(self.full)
        outer = [i for i in range(rank) if i not in self.dims]
        length = product([self.full[d] for d in self.dims])
        rows = kernel.graph.numel([self.full[i] for i in outer])
        if outer and len(self.dims) == 1 and self.dims[0] < outer[-1]:
            self.form = "columns"
        elif rows < FEW_ROWS and self.first.op not in ORDERED:
            self.form = "single"
        else:
            self.form = "rows"
        kernel.block = f"{'scan' if self.first.op in ORDERED else 'row'}-{self.form}"
        kernel.anchor = self._anchor
        self.length = kernel.size(length)
        self.count = kernel.cpp(self.length, "int64")
        self.shape = [kernel.size(size) for size in self.full]
        #: Passes that are finished, with the values that they computed: what can be kept.
        self.passes: list[Level] = []
        #: The value that is being reduced, and the means of those that were.
        self.reduced = self.source.name
        self.means: dict[str, Value] = {}
        #: Declarations of kept rows.
        self.scratch: list[str] = []
        if kernel.plan.keep and self.form == "rows":
            kernel.kept = self._kept
        return self._columns(outer) if self.form == "columns" else self._rows(outer)

    def _positions(self, outer: list[int], name: str, level: Level) -> dict[int, Index]:
        positions: dict[int, Index] = {}
        variables = frozenset({name})
        for dimension, item in zip(outer, split(Index(name, variables), [self.shape[i] for i in outer]), strict=True):
            positions[dimension] = item
            if item.text not in ("0", name):
                level.lines.append(f"const int64_t o{dimension} = {self.kernel.cpp(item.text, 'int64')};")
                positions[dimension] = Index(f"o{dimension}", variables)
        return positions

    def _rows(self, outer: list[int]) -> CppKernel:
        kernel = self.kernel
        self.row = kernel.top.inner(frozenset({"row"}))
        self.outer = self._positions(outer, "row", self.row)
        self.lines = self._lines() if self.form == "single" else None
        if self.lines is not None:
            lead = split(Index("q", frozenset({"q"})), [self.shape[d] for d in self.dims[:-1]])
            places = [*lead, Index("i", frozenset({"i"}))]
        else:
            places = split(Index("r", frozenset({"r"})), [self.shape[d] for d in self.dims])
        self.inner = dict(zip(self.dims, places, strict=True))
        function, kernel.top, kernel.scope = kernel.top, self.row, self.row
        self._store_output()
        rows = kernel.cpp(kernel.size(product([self.full[i] for i in outer])), "int64")
        schedule = f"schedule(static, {kernel.plan.rows})" if kernel.plan.rows else "schedule(static)"
        loop = block(f"for (int64_t row = 0; row < {rows}; ++row)", self.row.rendered())
        work = f"({rows}) * {self.count}"
        if self.form == "single":
            kernel.body = [*function.rendered(), *loop]
        elif self.scratch:
            region = f"#pragma omp parallel num_threads({kernel.team()}) if ({work} > {PARALLEL_FROM})"
            body = ["{", *indent([*self.scratch, f"#pragma omp for {schedule}", *loop]), "}"]
            kernel.body = [*function.rendered(), region, *body]
        else:
            kernel.body = [*function.rendered(), parallel_for(kernel, work, schedule), *loop]
        return kernel

    def _lines(self) -> tuple[str, str] | None:
        """Return number and length of the lines of a row whose last dimension is long enough to be a loop, or None."""
        graph = self.kernel.graph
        if len(self.dims) < 2 or graph.value(self.full[self.dims[-1]]) < SHORTEST_LINE:
            return None
        lead = product([self.shape[d] for d in self.dims[:-1]])
        return f"({self.kernel.cpp(lead, 'int64')})", self.kernel.cpp(self.shape[self.dims[-1]], "int64")

    def _columns(self, outer: list[int]) -> CppKernel:
        kernel = self.kernel
        before = [i for i in outer if i < self.dims[0]]
        after = [i for i in outer if i > self.dims[0]]
        strip = kernel.plan.columns
        width = kernel.cpp(kernel.size(product([self.full[i] for i in after])), "int64")
        piece = kernel.top.inner(frozenset({"row"}))
        self.outer = self._positions(before, "row", piece)
        setup = ["const int64_t c = first + l;"]
        columns = split(Index("c", frozenset({"c"})), [self.shape[i] for i in after])
        self.lanes = Lanes("l", str(strip), "lanes", tuple(setup))
        self.row = piece.inner(frozenset({"c"}), self.lanes)
        for dimension, item in zip(after, columns, strict=True):
            self.outer[dimension] = item
        self.inner = {self.dims[0]: Index("r", frozenset({"r"}))}
        function, kernel.top, kernel.scope = kernel.top, self.row, self.row
        self._store_output()
        rows = kernel.cpp(kernel.size(product([self.full[i] for i in before])), "int64")
        body = [
            "const int64_t row = piece / strips;",
            f"const int64_t first = piece % strips * {strip}, lanes = smaller({width} - first, {strip});",
            *piece.rendered(),
            *self.row.rendered(),
        ]
        kernel.body = [
            *function.rendered(),
            f"const int64_t strips = ({width} + {strip - 1}) / {strip};",
            parallel_for(kernel, f"({rows}) * {width} * {self.count}"),
            *block(f"for (int64_t piece = 0; piece < ({rows}) * strips; ++piece)", body),
        ]
        return kernel

    # -- passes over the row -----------------------------------------------------------------------------------------

    def _in_pass(
        self, work: Callable[[], None], before: Sequence[str] = (), after: Sequence[str] = (), clauses: str = ""
    ) -> None:
        """Write a loop over the row, in which ``work`` stands for every element."""
        kernel = self.kernel
        turn = self.row.inner(frozenset({"r"}))
        level = turn
        if self.form == "single" and self.lines is not None:
            turn.variables = self.row.variables | {"q"}
            level = turn.inner(frozenset({"i", "r"}))
        if self.form == "columns":
            # What depends on r alone stands before the loop over the columns.
            turn.variables = frozenset({"row", "r"})
            level = turn.inner(frozenset({"c"}))
        outer_scope, outer_carries = kernel.scope, self.carries
        try:
            if kernel.kept is not None:
                # Written once for nothing: the passes that this one needs then stand before it, and what they keep
                # is known when it is written for good.
                kernel.scope, self.carries = self.row.inner(frozenset({"r"})), []
                work()
            kernel.scope, self.carries = level, []
            work()
            carries = self.carries
        finally:
            kernel.scope, self.carries = outer_scope, outer_carries
        for _, start, _ in carries:
            self.row.lines += start.split("\n")
        self.row.lines += before
        level.lines += [update for _, _, update in carries]
        head = f"for (int64_t r = 0; r < {self.count}; ++r)"
        if self.form == "columns":
            across = "for (int64_t l = 0; l < lanes; ++l)"
            turn.lines.append(Loop([simd(kernel), across], level, self.lanes.setup))
            self.row.lines.append(Loop([head], turn))
        elif self.form == "single" and self.lines is not None:
            count, width = self.lines
            setup = (f"const int64_t r = q * {width} + i;",)
            turn.lines.append(Loop([simd(kernel, clauses), f"for (int64_t i = 0; i < {width}; ++i)"], level, setup))
            pragma = parallel_for(kernel, self.count, f"schedule(static) {clauses}")
            self.row.lines.append(Loop([pragma, f"for (int64_t q = 0; q < {count}; ++q)"], turn))
        elif carries:
            self.row.lines.append(Loop([head], turn))
        elif self.form == "single":
            lanes = f" simdlen({kernel.plan.simdlen})" if kernel.plan.simdlen else ""
            team = f"num_threads({kernel.team()}) if ({self.count} > {PARALLEL_FROM})"
            pragma = f"#pragma omp parallel for simd{lanes} schedule(static) {clauses} {team}"
            self.row.lines.append(Loop([pragma, head], turn))
        else:
            self.row.lines.append(Loop([simd(kernel, clauses), head], turn))
        self.row.lines += after
        self.passes.append(level)

    def _store_output(self) -> None:
        kernel, node = self.kernel, self.node
        rank = len(self.full)
        whole = node.shape == self.full and (node.name != self.first.name or node.op in ORDERED)
        trailing = self.dims == tuple(range(rank - len(self.dims), rank))
        if not (kernel.plan.stream and self.form == "rows" and whole and trailing):
            super()._store_output()
            return
        # The finished row is put together in the cache and then written past it.
        kind = STORED[node.dtype]
        self.scratch += [f"Scratch<{kind}> line_memory({self.count});", f"{kind}* const line = line_memory.data;"]
        lead = [i for i in range(rank) if i not in self.dims]
        row = linear([self.outer[i] for i in lead], [self.shape[i] for i in lead])
        target = f"{kernel.pointer(node.name)} + ({kernel.cpp(row.text, 'int64')}) * {self.count}"

        def work() -> None:
            value = kernel.value(node.name, self._full_index())
            kernel.scope.lines.append(f"line[r] = {kernel.stored_text(node.name, value)};")

        self._in_pass(work, after=[f"stream_out({target}, line, {self.count} * (int64_t)sizeof({kind}));"])

    def _kept(self, name: str, index: Sequence[Index]) -> Value | None:
        """Return a value that an earlier pass computed for the same element, from the row in which it is kept."""
        kernel = self.kernel
        node = kernel.graph.nodes[name]
        costly = node.op in _COSTLY or node.dtype in ops.HALVES
        if not costly or node.dtype not in ops.FLOATS or kernel.guards:
            return None
        texts = tuple(item.text for item in index)
        if texts != tuple(item.text for item in self._full_index()):
            return None
        for level in self.passes:
            value = level.values.get((name, texts, ()))
            if value is None:
                continue
            kept, kind = f"kept_{name}", kernel.kind(node.dtype)
            declared = f"Scratch<{kind}> {kept}_memory({self.count});"
            if declared not in self.scratch:
                self.scratch += [declared, f"{kind}* __restrict const {kept} = {kept}_memory.data;"]
                level.lines.append(f"{kept}[r] = {value.text};")
            return kernel.declare(f"{kept}[r]", node.dtype, frozenset({"row", "r"}))
        return None

    # -- reductions --------------------------------------------------------------------------------------------------

    @property
    def _row_variables(self) -> frozenset[str]:
        return frozenset({"row", "c"}) if self.form == "columns" else frozenset({"row"})

    _WHOLE_IDENTITY: ClassVar[dict[str, str]] = {"sum": "0", "prod": "1", "amax": "INT64_MIN", "amin": "INT64_MAX"}
    _FLOAT_IDENTITY: ClassVar[dict[str, str]] = {"sum": "0", "prod": "1", "amax": "-INFINITY", "amin": "INFINITY"}
    _CLAUSE: ClassVar[dict[str, str]] = {"sum": "+", "prod": "*", "amax": "amax", "amin": "amin"}

    def _reduce_node(self, node: Node, source: Node) -> Value:
        self.reduced = source.name
        return super()._reduce_node(node, source)

    def _mean(self, element: Element) -> Value:
        name = self.reduced
        if name not in self.means:
            self.means[name] = super()._mean(element)
        return self.means[name]

    def _started(self, kind: str, identity: str, stem: str) -> tuple[str, list[str]]:
        """Return how an accumulator is written inside a pass, and the lines that declare it."""
        name = self.kernel.fresh(stem)
        if self.form != "columns":
            return name, [f"{kind} {name} = {identity};"]
        start = CppKernel.laned(self.lanes, [f"{name}[l] = {identity};"])
        return f"{name}[l]", [f"{kind} {name}[{self.lanes.most}];", *start]

    def _fold(self, element: Element, kind: str, dtype: str) -> Value:
        if kind not in self._CLAUSE:
            raise Unsupported(f"no building block for the reduction {kind}")
        kernel = self.kernel
        floating = dtype in ops.FLOATS
        identity = (self._FLOAT_IDENTITY if floating else self._WHOLE_IDENTITY)[kind]
        name, start = self._started(kernel.kind(dtype), identity, "acc")

        def work() -> None:
            value = element()
            text = kernel.cpp(value.text, dtype)
            if kind in ("sum", "prod"):
                line = f"{name} {'+' if kind == 'sum' else '*'}= {text};"
            else:
                better = f"({text} {'>' if kind == 'amax' else '<'} {name})"
                # NaN wins, as in PyTorch.
                test = f"{better} | ({text} != {text})" if floating else better
                line = f"{name} = {test} ? {text} : {name};"
            kernel.scope.lines.append(line)

        self._in_pass(work, before=start, clauses=f"reduction({self._CLAUSE[kind]} : {name})")
        return Value(name, dtype, self._row_variables)

    def _arg(self, element: Element, kind: str, dtype: str) -> Value:
        """Position of the extreme element, the first where several are equal; NaN is the most extreme."""
        kernel = self.kernel
        if kernel.kind(dtype) == "bool":
            raise Unsupported(f"{kind} of booleans")
        best = self._fold(element, "amax" if kind == "argmax" else "amin", dtype)
        name, start = self._started("int64_t", self.count, "at")

        def work() -> None:
            text = kernel.cpp(element().text, dtype)
            odd = f" | ({text} != {text})" if dtype in ops.FLOATS else ""
            kernel.scope.lines.append(f"{name} = (({text} == {best.text}){odd}) & (r < {name}) ? r : {name};")

        self._in_pass(work, before=start, clauses=f"reduction(min : {name})")
        return Value(name, "int64", self._row_variables)

    # -- scans -------------------------------------------------------------------------------------------------------

    def _scan(self, node: Node, source: Node) -> Value:
        """Running sum or product along the row."""
        kernel = self.kernel
        if source.dtype == "bool":
            raise Unsupported("a scan of booleans")
        value = kernel.value(source.name, self._full_index())
        kind = kernel.kind(node.dtype)
        summing = node.op == "aten.cumsum"
        name, start = self._started(kind, "0" if summing else "1", "carry")
        run = kernel.fresh("run")
        kernel.scope.lines.append(f"const {kind} {run} = {name} {'+' if summing else '*'} {kernel.cpp(value.text)};")
        self.carries.append((name, "\n".join(start), f"{name} = {run};"))
        return Value(run, node.dtype, frozenset({"row", "r", "c"} if self.form == "columns" else {"row", "r"}))
