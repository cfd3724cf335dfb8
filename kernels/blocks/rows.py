"""Reductions and scans: one program instance takes one row after another.

A *row* is what is reduced together: the elements along the reduced dimensions for one position of all others. Three
forms, by what lies contiguous and how long the row is:

``whole``    the row is held at once (BLOCK covers it), everything about it is computed from one load;
``blocked``  the row is walked in blocks, once for every reduction that needs the result of an earlier one;
``columns``  the reduced dimension is not the last: a block of neighbouring columns is walked together, element by
             element (or STEP elements at once) along the reduced dimension, so that memory is still read in line;
``taps``     the reduced dimensions are those of a window: walked like columns, over a block of neighbouring outputs.

Several short rows are held at once as a tile (ROWS, BLOCK) where the schedule says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orienteer.kernels.blocks.emit import ORDERED, REDUCTIONS, Kernel, NeedsBuffer, Scope, Value, indent
from orienteer.kernels.blocks.graph import Node, Size
from orienteer.kernels.blocks.index import ZERO, Index, product, split, wrap
from orienteer.kernels.blocks.reductions import RowReductions, reduced_dims

#: Values under the positions of a window: the window's dimensions come last.
TAPS = frozenset({"conv.terms", "pool.terms"})


class RowNest(RowReductions):
    """See the module's text."""

    block = "row"

    def __init__(self, kernel: Kernel, node: Node, anchor: Node) -> None:
        self.kernel, self.node, self.first = kernel, node, anchor
        self.source = kernel.graph.nodes[next(anchor.refs())]
        self.full: tuple[Size, ...] = self.source.shape
        self.dims = reduced_dims(anchor, len(self.full))
        self.scalars: dict[str, Value] = {}
        self.nan_is_seen_later = False
        self.carries: list[tuple[str, str, str]] = []

    # -- set-up ------------------------------------------------------------------------------------------------------

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel, schedule = self.kernel, self.kernel.schedule
        graph = kernel.graph
        rank = len(self.full)
        outer = [i for i in range(rank) if i not in self.dims]
        length = product([self.full[d] for d in self.dims])
        hint = graph.value(length) if self.dims else 1
        #: Reduced dimensions that lie in one piece at the end of a row; those before them are walked one by one.
        self.run = self._last_run()
        taps = self.source.op in TAPS and bool(outer)
        if taps or (outer and self.dims and max(self.dims) < outer[-1]):
            self.form = "taps" if taps else "columns"
        elif len(self.run) == len(self.dims) and 1 << max(0, hint - 1).bit_length() <= schedule.whole_row:
            self.form = "whole"
        else:
            self.form = "blocked"
        kernel.block = f"{'scan' if self.first.op in ORDERED else 'row'}-{self.form}"
        kernel.anchor = self._anchor
        kernel.loop_variables = frozenset() if self.form == "whole" else frozenset({"r"})
        self.length = kernel.size(length)
        self.shape = [kernel.size(size) for size in self.full]
        #: Rows of the tile that is held at once, and the variable that numbers them.
        self.tiled, self.lines_at_once = False, 1
        if self.form in ("columns", "taps"):
            ordered = any(node.op in ORDERED for node in graph.nodes.values())
            step = schedule.column_rows if self.form == "columns" and len(self.dims) == 1 and not ordered else 1
            self.step = min(step, 1 << max(0, hint - 1).bit_length())
            return self._build_columns(outer)
        self.step = 1
        return self._build_rows(outer)

    def _last_run(self) -> tuple[int, ...]:
        run: list[int] = []
        for dimension in reversed(self.dims):
            between = range(dimension + 1, run[0]) if run else range(0)
            if any(self.full[i] != "1" for i in between):
                break
            run.insert(0, dimension)
        return tuple(run)

    def _outer_index(self, outer: list[int], name: str) -> tuple[list[str], dict[int, Index]]:
        setup: list[str] = []
        positions: dict[int, Index] = {}
        for dimension, item in zip(outer, split(Index(name), [self.shape[i] for i in outer]), strict=True):
            if item.text in ("0", name):
                positions[dimension] = item
            else:
                setup.append(f"o{dimension} = {item.text}")
                positions[dimension] = Index(f"o{dimension}", item.variables, item.part)
        return setup, positions

    def _build_rows(self, outer: list[int]) -> Kernel:
        kernel, schedule = self.kernel, self.kernel.schedule
        graph = kernel.graph
        lead = [d for d in self.dims if d not in self.run]
        run_host = product([self.full[d] for d in self.run])
        self.extent = kernel.size(run_host)
        run_hint = graph.value(run_host)
        block = 1 << max(0, run_hint - 1).bit_length()
        if self.form != "whole":
            block = min(block, schedule.row_block)
        # Neighbouring rows make a tile along the last of the other dimensions.
        across = next((d for d in reversed(outer) if self.full[d] != "1"), None)
        rows_at_once = 1
        if across is not None and schedule.row_tile > block:
            most = 1 << max(0, graph.value(self.full[across]) - 1).bit_length()
            rows_at_once = min(schedule.row_tile // block, most)
        self.tiled = rows_at_once > 1
        #: Reduced dimensions before the last run are walked by a loop of their own.
        self.lead = product([self.shape[d] for d in lead])
        self.inner = dict(zip(lead, split(Index("q"), [self.shape[d] for d in lead]), strict=True))
        run = split(Index("r", frozenset({"r"})), [self.shape[d] for d in self.run])
        self.inner.update(dict(zip(self.run, run, strict=True)))
        kernel.masks = {"r": f"r < {self.extent}"}
        # The shape at run time decides, so that one file serves every shape.
        kernel.constants["BLOCK"] = f"triton.next_power_of_2({run_host})" if self.form == "whole" else str(block)
        if self.tiled:
            assert across is not None
            rest = [d for d in outer if d != across]
            setup, self.outer = self._outer_index(rest, "lead")
            self.outer[across] = Index("row", frozenset({"row"}))
            kernel.masks["row"] = f"row < {self.shape[across]}"
            kernel.constants["ROWS"] = str(rows_at_once)
            tiles = f"tl.cdiv({self.shape[across]}, ROWS)"
            leads_host = product([self.full[d] for d in rest])
            leads = kernel.size(leads_host)
            head = [
                *([] if leads == "1" else [f"lead = piece // {tiles}"]),
                f"row = ({'piece' if leads == '1' else f'(piece % {tiles})'}) * ROWS + tl.arange(0, ROWS)[:, None]",
            ]
            count = tiles if leads == "1" else f"{wrap(leads)} * {tiles}"
            kernel.work = f"{wrap(leads_host)} * triton.cdiv({self.full[across]}, {rows_at_once})"
        else:
            setup, self.outer = self._outer_index(outer, "row")
            rows_host = product([self.full[i] for i in outer])
            head, count, kernel.work = [], kernel.size(rows_host), rows_host
        self._store_output()
        start = [f"r = {self._lanes('BLOCK')}"] if self.form == "whole" else []
        body = [*head, *start, *setup, *kernel.top_lines()]
        kernel.lines = [
            f"for {'piece' if self.tiled else 'row'} in range({kernel.first}, {count}, tl.num_programs(0)):",
            *indent(body),
        ]
        return kernel

    def _lanes(self, block: str) -> str:
        return f"tl.arange(0, {block}){'[None, :]' if self.tiled else ''}"

    def _build_columns(self, outer: list[int]) -> Kernel:
        kernel = self.kernel
        if self.form == "taps":
            before, after = outer[:-1], outer[-1:]
        else:
            before = [i for i in outer if i < max(self.dims)]
            after = [i for i in outer if i > max(self.dims)]
        width_host = product([self.full[i] for i in after])
        width_hint = max(16, 1 << max(0, kernel.graph.value(width_host) - 1).bit_length())
        # Several short lines of a picture make a tile.
        lines = 1
        if self.form == "taps" and before and self.full[before[-1]] != "1":
            most = 1 << max(0, kernel.graph.value(self.full[before[-1]]) - 1).bit_length()
            lines = max(1, min(kernel.schedule.line_tile // width_hint, most))
        self.lines_at_once = lines
        rest = before[:-1] if lines > 1 else before
        setup, self.outer = self._outer_index(rest, "row")
        width = kernel.size(width_host)
        columns = split(Index("c", frozenset({"c"})), [self.shape[i] for i in after])
        self.outer.update(dict(zip(after, columns, strict=True)))
        inner = split(Index("r", frozenset({"r"})), [self.shape[i] for i in self.dims])
        if self.step == 1:
            kernel.numbers = frozenset({"r"})
        self.inner = dict(zip(self.dims, inner, strict=True))
        kernel.masks = {"c": f"c < {width}"}
        if lines > 1:
            self.outer[before[-1]] = Index("j", frozenset({"j"}))
            kernel.masks["j"] = f"j < {self.shape[before[-1]]}"
            kernel.constants["LINES"] = str(lines)
        if self.step > 1:
            kernel.masks["r"] = f"r < {self.length}"
            kernel.constants["STEP"] = str(self.step)
        most = kernel.schedule.row_block if self.step == 1 else max(16, kernel.schedule.row_block // self.step)
        block = min(most, width_hint)
        kernel.constants["BLOCK"] = str(block)
        self._store_output()
        across = f"tl.cdiv({width}, BLOCK)"
        rows_host = product([self.full[i] for i in rest])
        rows = kernel.size(rows_host)
        flat = self.step == 1 and lines == 1
        body = [
            f"row = piece // {across}",
            f"c = (piece % {across}) * BLOCK + tl.arange(0, BLOCK){'' if flat else '[None, :]'}",
            *setup,
            *kernel.top_lines(),
        ]
        count, kernel.work = f"{wrap(rows)} * {across}", f"{wrap(rows_host)} * triton.cdiv({width_host}, {block})"
        if lines > 1:
            down = f"tl.cdiv({self.shape[before[-1]]}, LINES)"
            body = [
                f"row = piece // ({across} * {down})",
                f"j = ((piece // {across}) % {down}) * LINES + tl.arange(0, LINES)[:, None]",
                *body[1:],
            ]
            count += f" * {down}"
            kernel.work += f" * triton.cdiv({self.full[before[-1]]}, {lines})"
        kernel.lines = [f"for piece in range({kernel.first}, {count}, tl.num_programs(0)):", *indent(body)]
        return kernel

    # -- the output --------------------------------------------------------------------------------------------------

    def _full_index(self) -> list[Index]:
        return [self.inner[i] if i in self.dims else self.outer[i] for i in range(len(self.full))]

    def _store_output(self) -> None:
        kernel, node = self.kernel, self.node
        outer_shape = tuple(size for i, size in enumerate(self.full) if i not in self.dims)
        kept_shape = tuple("1" if i in self.dims else size for i, size in enumerate(self.full))
        scalar_anchor = node.name == self.first.name and node.op in REDUCTIONS
        if node.shape == self.full and not scalar_anchor:
            if kernel.schedule.store_statistics and self.first.op in REDUCTIONS:
                raise NeedsBuffer(self.first.name)
            self._in_pass(lambda: self._store_element())
            return
        if node.shape == kept_shape and (len(kept_shape) != len(outer_shape)):
            index = [ZERO if i in self.dims else self.outer[i] for i in range(len(self.full))]
        elif node.shape == outer_shape:
            index = [self.outer[i] for i in range(len(self.full)) if i not in self.dims]
        else:
            raise NeedsBuffer(self.first.name)
        value = kernel.value(node.name, index)
        if "r" in value.variables:
            raise NeedsBuffer(self.first.name)
        kernel.store(node.name, index, value, kernel.top)

    def _store_element(self) -> None:
        index = self._full_index()
        value = self.kernel.value(self.node.name, index)
        self.kernel.store(self.node.name, index, value)

    # -- passes over the row -----------------------------------------------------------------------------------------

    def _needs(self, node: Node) -> NeedsBuffer:
        """Say what to store before this kernel: the value at hand, or what is reduced here when that is no larger."""
        graph = self.kernel.graph
        if self.source.name not in self.kernel.buffers and graph.numel(self.full) <= 2 * graph.numel(node.shape):
            return NeedsBuffer(self.source.name)
        return NeedsBuffer(node.name)

    def _in_pass(self, work: Callable[[], None], before: Sequence[str] = (), after: Sequence[str] = ()) -> None:
        """Run ``work`` for every element of the row: straight on when the row is held whole, else in a loop."""
        kernel = self.kernel
        if self.form == "whole":
            kernel.top.lines.extend(before)
            work()
            kernel.top.lines.extend(after)
            return
        outer_scope, outer_carries = kernel.scope, self.carries
        kernel.scope, self.carries = Scope(parent=kernel.top), []
        try:
            work()
            lines = kernel.scope.lines
            carries = self.carries
        finally:
            kernel.scope, self.carries = outer_scope, outer_carries
        for name, start, _ in carries:
            kernel.top.lines.append(f"{name} = {start}")
        kernel.top.lines.extend(before)
        body = [*lines, *(update for _, _, update in carries)]
        if self.form == "blocked":
            walk = [
                f"for start in range(0, {self.extent}, BLOCK):",
                *indent([f"r = start + {self._lanes('BLOCK')}", *body]),
            ]
            walk = walk if self.lead == "1" else [f"for q in range(0, {self.lead}):", *indent(walk)]
        elif self.step > 1:
            walk = [
                f"for start in range(0, {self.length}, STEP):",
                *indent(["r = start + tl.arange(0, STEP)[:, None]", *body]),
            ]
        else:
            walk = [f"for r in range(0, {self.length}):", *indent(body)]
        kernel.top.lines.extend(walk)
        kernel.top.lines.extend(after)

    def _anchor(self, node: Node, index: Sequence[Index]) -> Value:
        """Compute a reduction or scan here if it runs over the very rows of this kernel."""
        if node.op not in REDUCTIONS and node.op not in ORDERED:
            raise self._needs(node)
        source = self.kernel.graph.nodes[next(node.refs())]
        if source.shape != self.full or reduced_dims(node, len(source.shape)) != self.dims:
            raise self._needs(node)
        if node.op in ORDERED:
            if [item.text for item in index] != [item.text for item in self._full_index()]:
                raise self._needs(node)
            return self._scan(node, source)
        expected = [self.outer[i].text for i in range(len(self.full)) if i not in self.dims]
        own = [item.text for item in index]
        if len(own) == len(self.full):
            own = [text for i, text in enumerate(own) if i not in self.dims]
        if own != expected:
            raise self._needs(node)
        if node.name not in self.scalars:
            self.scalars[node.name] = self._reduce_node(node, source)
        return self.scalars[node.name]
