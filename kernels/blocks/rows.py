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
from typing import ClassVar

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import ORDERED, REDUCTIONS, Kernel, NeedsBuffer, Scope, Unsupported, Value, indent
from orienteer.kernels.blocks.graph import Graph, Node, Ref, Size
from orienteer.kernels.blocks.index import ZERO, Index, product, split, wrap

Element = Callable[[], Value]
#: Values under the positions of a window: the window's dimensions come last.
TAPS = frozenset({"conv.terms", "pool.terms"})


def reduced_dims(node: Node, rank: int) -> tuple[int, ...]:
    """Return the dimensions that a reduction or scan runs over."""
    argument = node.args[1] if len(node.args) > 1 else None
    if argument is None or argument == ():
        return tuple(range(rank))
    dims = argument if isinstance(argument, tuple) else (argument,)
    return tuple(sorted(int(d) % rank for d in dims)) if rank else ()


def _nan_is_seen_later(graph: Graph, node: Node, source: Node, dims: Sequence[int]) -> bool:
    """True when a NaN that a maximum drops reaches the result all the same: through ``sum(exp(x - max(x)))``."""
    less = {n.name for n in graph.nodes.values() if n.op == "aten.sub" and n.args[0] == Ref(source.name)}
    uses: dict[str, list[Node]] = {}
    for user in graph.nodes.values():
        for name in user.refs():
            uses.setdefault(name, []).append(user)

    def reaches(name: str, wanted: Callable[[Node], bool], through: frozenset[str]) -> bool:
        return any(
            wanted(user) or (user.op in through and reaches(user.name, wanted, through)) for user in uses.get(name, ())
        )

    views = frozenset({"aten.view", "aten.where", "aten.unsqueeze", "aten.expand", "aten.clone"})

    def summed(user: Node) -> bool:
        return user.op in ("aten.sum", "prims.sum") and reduced_dims(user, len(source.shape)) == tuple(dims)

    def centred(user: Node) -> bool:
        return user.name in less and any(
            power.op == "aten.exp" and any(summed(total) for total in uses.get(power.name, ()))
            for power in uses.get(user.name, ())
        )

    return reaches(node.name, centred, views)


class RowNest:
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

    # -- reductions --------------------------------------------------------------------------------------------------

    @property
    def _row_variables(self) -> frozenset[str]:
        """Variables of a value that is one per row (in the column form: one per column)."""
        if self.form in ("columns", "taps"):
            return frozenset({"c", "j"}) if self.lines_at_once > 1 else frozenset({"c"})
        return frozenset({"row"}) if self.tiled else frozenset()

    @property
    def _accumulator(self) -> str:
        """Shape of what is accumulated element by element."""
        if self.tiled:
            return "(ROWS, BLOCK)"
        if self.lines_at_once > 1:
            return "(LINES, BLOCK)"
        return "(STEP, BLOCK)" if self.step > 1 else "(BLOCK,)"

    @property
    def _per_row(self) -> str:
        """Shape of one value per row (in the column form: per column)."""
        if self.tiled:
            return "(ROWS, 1)"
        if self.lines_at_once > 1:
            return "(LINES, BLOCK)"
        if self.step > 1:
            return "(1, BLOCK)"
        return "(BLOCK,)" if self.form in ("columns", "taps") else "()"

    def _across(self, call: str, text: str, extra: str = "") -> str:
        """Write a reduction of a tile to one value per row."""
        axis = "axis=1, keep_dims=True" if self.tiled else "axis=0, keep_dims=True" if self.step > 1 else "axis=0"
        return f"{call}({text}, {axis}{extra})"

    @property
    def _walks_scalars(self) -> bool:
        """True where the position along the row is a number: nothing is left to reduce inside a tile."""
        return self.form in ("columns", "taps") and self.step == 1

    def _reduce_node(self, node: Node, source: Node) -> Value:
        kind = node.op.split(".")[1]
        dtype = source.dtype
        self.nan_is_seen_later = _nan_is_seen_later(self.kernel.graph, node, source, self.dims)

        def element() -> Value:
            return self.kernel.value(source.name, self._full_index())

        if kind in ("max", "min"):
            kind = f"a{kind}" if node.kwargs.get("item", 0) == 0 else f"arg{kind}"
        if kind in ("argmax", "argmin"):
            return self._arg(element, kind, source.dtype)
        if kind in ("any", "all"):
            flag = self._fold(lambda: self._as_int(element(), "!= 0"), "amax" if kind == "any" else "amin", "int32")
            return self.kernel.assign(f"({flag.text} != 0)", "bool", flag.variables)
        if kind == "mean":
            return self._mean(element)
        if kind == "var":
            return self._variance(node, element)
        if kind == "sum" and dtype not in ops.FLOATS:
            narrow = dtype == "bool" and self.kernel.graph.numel(self.full) < 2**31
            counted = "int32" if narrow else "int64"
            total = self._fold(lambda: self._as_int(element(), "", counted), "sum", counted)
            return Value(total.text, node.dtype, total.variables)
        return self._fold(element, kind, dtype)

    def _as_int(self, value: Value, compare: str, dtype: str = "int32") -> Value:
        text = f"({value.text} {compare})" if compare and value.dtype != "bool" else wrap(value.text)
        return self.kernel.assign(f"{text}.to(tl.{dtype})", dtype, value.variables)

    def _mean(self, element: Element) -> Value:
        total = self._fold(element, "sum", "float32")
        return self.kernel.assign(f"{total.text} / {self.length}", "float32", total.variables)

    def _variance(self, node: Node, element: Element) -> Value:
        """Two passes (mean, then squared deviations): one pass would cancel for a large mean."""
        correction = node.kwargs.get("correction")
        if correction is None and node.op == "prims.var":
            correction = node.args[2] if len(node.args) > 2 else 1.0
        if correction is None:
            correction = 1
        mean = self._mean(element)

        def deviation() -> Value:
            value = element()
            centred = self.kernel.assign(f"{value.text} - {mean.text}", "float32", value.variables | mean.variables)
            return self.kernel.assign(f"{centred.text} * {centred.text}", "float32", centred.variables)

        total = self._fold(deviation, "sum", "float32")
        count = self.length if correction == 0 else f"({self.length} - {ops.literal(correction)})"
        return self.kernel.assign(f"{total.text} / {count}", "float32", total.variables)

    _IDENTITY: ClassVar[dict[str, str]] = {"sum": "0.0", "prod": "1.0", "amax": 'float("-inf")', "amin": 'float("inf")'}
    _INT_IDENTITY: ClassVar[dict[str, str]] = {"sum": "0", "prod": "1", "amax": "-2147483648", "amin": "2147483647"}
    _COMBINE: ClassVar[dict[str, str]] = {
        "sum": "{0} + {1}",
        "prod": "{0} * {1}",
        "amax": "tl.maximum({0}, {1})",
        "amin": "tl.minimum({0}, {1})",
    }
    #: The same for floating-point numbers: NaN wins, as in PyTorch.
    _COMBINE_NAN: ClassVar[dict[str, str]] = {
        "amax": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
        "amin": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    }

    def _finish(self, kind: str, text: str) -> str:
        if kind == "prod":
            self.kernel.helpers.add("_multiply")
            axis = "1, _multiply, keep_dims=True" if self.tiled else "0, _multiply"
            return f"tl.reduce({text}, {axis}{', keep_dims=True' if self.step > 1 else ''})"
        return self._across({"sum": "tl.sum", "amax": "tl.max", "amin": "tl.min"}[kind], text)

    def _inside(self, value: Value, identity: str, dtype: str) -> Value:
        """Replace the lanes beyond the row by a neutral element."""
        kernel = self.kernel
        return kernel.assign(
            f"tl.where({kernel.masks['r']}, {value.text}, {identity})", dtype, self._row_variables | {"r"}
        )

    def _with_nan(self, result: str, tile: str, exempt: bool) -> str:
        """Let NaN win where the reduction of a tile would drop it."""
        if exempt:
            return result
        odd = self._across("tl.max", f"tl.where({tile} != {tile}, 1.0, 0.0)")
        return f'tl.where({odd} > 0.0, float("nan"), {result})'

    def _fold(self, element: Element, kind: str, dtype: str) -> Value:
        """Reduce the elements of the row to one value."""
        if kind not in self._COMBINE:
            raise Unsupported(f"no building block for the reduction {kind}")
        kernel = self.kernel
        floating = dtype in ops.FLOATS
        identity = (self._IDENTITY if floating else self._INT_IDENTITY)[kind]
        compute = ops.COMPUTE[dtype]
        variables = self._row_variables
        exempt = not floating or kind not in self._COMBINE_NAN or self.nan_is_seen_later
        combine = self._COMBINE[kind] if exempt else self._COMBINE_NAN[kind]
        if self.form == "whole":
            inside = self._inside(element(), identity, dtype)
            text = self._with_nan(self._finish(kind, inside.text), inside.text, exempt)
            return kernel.assign(text, dtype, variables, "s")
        name = kernel.fresh("acc")
        start = f"{name} = tl.full({self._accumulator}, {identity}, dtype={compute})"

        def work() -> None:
            value = element()
            text = value.text
            if not self._walks_scalars:
                text = f"tl.where({kernel.masks['r']}, {text}, {identity})"
            kernel.scope.lines.append(f"{name} = {combine.format(name, text)}")

        self._in_pass(work, before=[start])
        if self._walks_scalars:
            return Value(name, dtype, variables)
        result = kernel.fresh("s")
        kernel.top.lines.append(f"{result} = {self._with_nan(self._finish(kind, name), name, exempt)}")
        return Value(result, dtype, variables)

    def _arg(self, element: Element, kind: str, dtype: str) -> Value:
        """Position of the extreme element, the first where several are equal; NaN is the most extreme."""
        kernel = self.kernel
        if len(self.run) != len(self.dims):
            raise Unsupported(f"{kind} over dimensions that do not lie together")
        best, where = kernel.fresh("best"), kernel.fresh("at")
        low = kind == "argmax"
        floating = dtype in ops.FLOATS
        key = "amax" if low else "amin"
        identity = (self._IDENTITY if floating else self._INT_IDENTITY)[key]
        reduce = "tl.max" if low else "tl.min"
        better = ">" if low else "<"
        compute = ops.COMPUTE[dtype]
        variables = self._row_variables
        beyond = "2147483647"

        def place(tile: str, top: str) -> str:
            """First position of the extreme element of a tile."""
            equal = f"({tile} == {top})" + (f" | ({tile} != {tile})" if floating else "")
            return self._across("tl.min", f"tl.where({equal}, r, {beyond})")

        def first_nan(tile: str) -> str:
            return self._across("tl.min", f"tl.where({tile} != {tile}, r, {beyond})")

        if self.form == "whole":
            inside = self._inside(element(), identity, dtype)
            pick = "tl.argmax" if low else "tl.argmin"
            at = kernel.assign(self._across(pick, inside.text), "int32", variables, "at")
            if floating:
                odd = kernel.assign(first_nan(inside.text), "int32", variables, "odd")
                at = kernel.assign(f"tl.where({odd.text} < {beyond}, {odd.text}, {at.text})", "int32", variables, "at")
            return kernel.assign(f"{at.text}.to(tl.int64)", "int64", variables, "s")
        before = [
            f"{best} = tl.full({self._per_row}, {identity}, dtype={compute})",
            f"{where} = tl.full({self._per_row}, 0, dtype=tl.int32)",
        ]

        def replaced(value: str, at: str) -> list[str]:
            nan = f" | (({value} != {value}) & ({best} == {best}))" if floating else ""
            test = kernel.fresh("is_better")
            return [
                f"{test} = ({value} {better} {best}){nan}",
                f"{where} = tl.where({test}, {at}, {where})",
                f"{best} = tl.where({test}, {value}, {best})",
            ]

        def work() -> None:
            value = element()
            lines = kernel.scope.lines
            if self._walks_scalars:
                lines.extend(replaced(value.text, "r"))
                return
            inside = self._inside(value, identity, dtype)
            top, at = kernel.fresh("top"), kernel.fresh("place")
            lines.append(f"{top} = {self._across(reduce, inside.text)}")
            lines.append(f"{at} = {place(inside.text, top)}")
            if floating:
                odd = kernel.fresh("odd")
                lines.append(f"{odd} = {first_nan(inside.text)}")
                lines.append(f"{at} = tl.where({odd} < {beyond}, {odd}, {at})")
                lines.append(f'{top} = tl.where({odd} < {beyond}, float("nan"), {top})')
            lines.extend(replaced(top, at))

        self._in_pass(work, before=before)
        return kernel.assign(f"{where}.to(tl.int64)", "int64", variables, "s")

    # -- scans -------------------------------------------------------------------------------------------------------

    def _scan(self, node: Node, source: Node) -> Value:
        """Running sum or product along the row; blocks hand their last value on."""
        kernel = self.kernel
        summing = node.op == "aten.cumsum"
        if source.dtype not in ops.FLOATS and source.dtype not in ("int64", "int32"):
            raise Unsupported(f"a scan of {source.dtype}")
        value = kernel.value(source.name, self._full_index())
        floating = source.dtype in ops.FLOATS
        identity = ("0.0" if summing else "1.0") if floating else ("0" if summing else "1")
        compute = ops.COMPUTE[source.dtype]
        sign = "+" if summing else "*"
        scan = "tl.cumsum" if summing else "tl.cumprod"
        if self._walks_scalars:
            carry = kernel.fresh("carry")
            self.carries.append((carry, f"tl.full((BLOCK,), {identity}, dtype={compute})", ""))
            name = kernel.fresh("run")
            kernel.scope.lines.append(f"{name} = {carry} {sign} {value.text}")
            self.carries[-1] = (carry, self.carries[-1][1], f"{carry} = {name}")
            return Value(name, node.dtype, frozenset({"c", "r"}))
        inside = self._inside(value, identity, node.dtype)
        run = f"{scan}({inside.text}, axis={1 if self.tiled else 0})"
        variables = self._row_variables | {"r"}
        if self.form == "whole":
            return kernel.assign(run, node.dtype, variables, "run")
        carry, name = kernel.fresh("carry"), kernel.fresh("run")
        kernel.scope.lines.append(f"{name} = {carry} {sign} {run}")
        update = f"{carry} = {carry} {sign} {self._finish('sum' if summing else 'prod', inside.text)}"
        self.carries.append((carry, f"tl.full({self._per_row}, {identity}, dtype={compute})", update))
        return Value(name, node.dtype, variables)
