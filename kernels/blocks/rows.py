"""Reductions and scans: one program instance takes one row after another.

A *row* is what is reduced together: the elements along the reduced dimensions for one position of all others. Three
forms, by what lies contiguous and how long the row is:

``whole``    the row is held at once (BLOCK covers it), everything about it is computed from one load;
``blocked``  the row is walked in blocks, once for every reduction that needs the result of an earlier one;
``columns``  the reduced dimension is not the last: a block of neighbouring columns is walked together, element by
             element along the reduced dimension, so that memory is still read in line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import ORDERED, REDUCTIONS, Kernel, NeedsBuffer, Scope, Unsupported, Value, indent
from orienteer.kernels.blocks.graph import Node, Size
from orienteer.kernels.blocks.index import ZERO, Index, product, split, wrap

Element = Callable[[], Value]


def reduced_dims(node: Node, rank: int) -> tuple[int, ...]:
    """Return the dimensions that a reduction or scan runs over."""
    argument = node.args[1] if len(node.args) > 1 else None
    if argument is None or argument == ():
        return tuple(range(rank))
    dims = argument if isinstance(argument, tuple) else (argument,)
    return tuple(sorted(int(d) % rank for d in dims)) if rank else ()


class RowNest:
    """See the module's text."""

    block = "row"

    def __init__(self, kernel: Kernel, node: Node, anchor: Node) -> None:
        self.kernel, self.node, self.first = kernel, node, anchor
        self.source = kernel.graph.nodes[next(anchor.refs())]
        self.full: tuple[Size, ...] = self.source.shape
        self.dims = reduced_dims(anchor, len(self.full))
        self.scalars: dict[str, Value] = {}
        self.carries: list[tuple[str, str, str]] = []

    # -- set-up ------------------------------------------------------------------------------------------------------

    def build(self) -> Kernel:
        """Write the kernel."""
        kernel = self.kernel
        rank = len(self.full)
        outer = [i for i in range(rank) if i not in self.dims]
        length = product([self.full[d] for d in self.dims])
        columns = bool(outer) and bool(self.dims) and len(self.dims) == 1 and self.dims[0] < outer[-1]
        hint = kernel.graph.value(length) if self.dims else 1
        if columns:
            self.form = "columns"
        elif 1 << max(0, hint - 1).bit_length() <= kernel.schedule.whole_row:
            self.form = "whole"
        else:
            self.form = "blocked"
        kernel.block = f"{'scan' if self.first.op in ORDERED else 'row'}-{self.form}"
        kernel.anchor = self._anchor
        kernel.loop_variables = frozenset() if self.form == "whole" else frozenset({"r"})
        self.length = kernel.size(length)
        self.shape = [kernel.size(size) for size in self.full]
        if self.form == "columns":
            return self._build_columns(outer)
        return self._build_rows(outer)

    def _outer_index(self, outer: list[int], name: str) -> tuple[list[str], dict[int, Index]]:
        setup: list[str] = []
        positions: dict[int, Index] = {}
        for dimension, item in zip(outer, split(Index(name), [self.shape[i] for i in outer]), strict=True):
            if item.text in ("0", name):
                positions[dimension] = item
            else:
                setup.append(f"o{dimension} = {item.text}")
                positions[dimension] = Index(f"o{dimension}")
        return setup, positions

    def _build_rows(self, outer: list[int]) -> Kernel:
        kernel = self.kernel
        setup, self.outer = self._outer_index(outer, "row")
        self.inner = dict(
            zip(self.dims, split(Index("r", frozenset({"r"})), [self.shape[d] for d in self.dims]), strict=True)
        )
        kernel.masks = {"r": f"r < {self.length}"}
        rows_host = product([self.full[i] for i in outer])
        rows = kernel.size(rows_host)
        host_length = product([self.full[d] for d in self.dims])
        if self.form == "whole":
            # The shape at run time decides, so that one file serves every shape.
            kernel.constants["BLOCK"] = f"triton.next_power_of_2({host_length})"
        else:
            kernel.constants["BLOCK"] = str(kernel.schedule.row_block)
        self._store_output()
        start = ["r = tl.arange(0, BLOCK)"] if self.form == "whole" else []
        body = [*start, *setup, *kernel.top_lines()]
        kernel.lines = [
            f"for row in range({kernel.first}, {rows}, tl.num_programs(0)):",
            *indent(body),
        ]
        kernel.work = rows_host
        return kernel

    def _build_columns(self, outer: list[int]) -> Kernel:
        kernel = self.kernel
        before = [i for i in outer if i < self.dims[0]]
        after = [i for i in outer if i > self.dims[0]]
        setup, self.outer = self._outer_index(before, "row")
        width_host = product([self.full[i] for i in after])
        width = kernel.size(width_host)
        columns = split(Index("c", frozenset({"c"})), [self.shape[i] for i in after])
        self.outer.update(dict(zip(after, columns, strict=True)))
        self.inner = {self.dims[0]: Index("r", frozenset({"r"}))}
        kernel.masks = {"c": f"c < {width}"}
        block = min(kernel.schedule.row_block, max(16, 1 << max(0, kernel.graph.value(width_host) - 1).bit_length()))
        kernel.constants["BLOCK"] = str(block)
        self._store_output()
        across = f"tl.cdiv({width}, BLOCK)"
        rows_host = product([self.full[i] for i in before])
        rows = kernel.size(rows_host)
        body = [
            f"row = piece // {across}",
            f"c = (piece % {across}) * BLOCK + tl.arange(0, BLOCK)",
            *setup,
            *kernel.top_lines(),
        ]
        kernel.lines = [
            f"for piece in range({kernel.first}, {wrap(rows)} * {across}, tl.num_programs(0)):",
            *indent(body),
        ]
        kernel.work = f"{wrap(rows_host)} * triton.cdiv({width_host}, {block})"
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
        if self.form == "columns":
            kernel.top.lines.append(f"for r in range(0, {self.length}):")
        else:
            kernel.top.lines.append(f"for start in range(0, {self.length}, BLOCK):")
            lines = ["r = start + tl.arange(0, BLOCK)", *lines]
        kernel.top.lines.extend(indent([*lines, *(update for _, _, update in carries)]))
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
        return frozenset({"c"}) if self.form == "columns" else frozenset()

    def _reduce_node(self, node: Node, source: Node) -> Value:
        kind = node.op.split(".")[1]
        dtype = source.dtype

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
    _FINISH: ClassVar[dict[str, str]] = {
        "sum": "tl.sum({0}, axis=0)",
        "amax": "tl.max({0}, axis=0)",
        "amin": "tl.min({0}, axis=0)",
    }

    def _fold(self, element: Element, kind: str, dtype: str) -> Value:
        """Reduce the elements of the row to one value."""
        if kind not in self._COMBINE:
            raise Unsupported(f"no building block for the reduction {kind}")
        kernel = self.kernel
        floating = dtype in ops.FLOATS
        identity = (self._IDENTITY if floating else self._INT_IDENTITY)[kind]
        compute = ops.COMPUTE[dtype]
        finish = self._FINISH.get(kind, "tl.reduce({0}, 0, _multiply)")
        if kind == "prod":
            kernel.helpers.add("_multiply")
        if self.form == "whole":
            value = element()
            inside = kernel.assign(f"tl.where({kernel.masks['r']}, {value.text}, {identity})", dtype, frozenset({"r"}))
            return kernel.assign(finish.format(inside.text), dtype, frozenset(), "s")
        name = kernel.fresh("acc")
        start = f"{name} = tl.full((BLOCK,), {identity}, dtype={compute})"

        def work() -> None:
            value = element()
            text = value.text
            if self.form == "blocked":
                text = f"tl.where({kernel.masks['r']}, {text}, {identity})"
            kernel.scope.lines.append(f"{name} = {self._COMBINE[kind].format(name, text)}")

        self._in_pass(work, before=[start])
        if self.form == "columns":
            return Value(name, dtype, self._row_variables)
        result = kernel.fresh("s")
        kernel.top.lines.append(f"{result} = {finish.format(name)}")
        return Value(result, dtype)

    def _arg(self, element: Element, kind: str, dtype: str) -> Value:
        """Position of the extreme element, the first where several are equal."""
        kernel = self.kernel
        best, where = kernel.fresh("best"), kernel.fresh("at")
        low = kind == "argmax"
        floating = dtype in ops.FLOATS
        key = "amax" if low else "amin"
        identity = (self._IDENTITY if floating else self._INT_IDENTITY)[key]
        pick = "tl.argmax" if low else "tl.argmin"
        reduce = "tl.max" if low else "tl.min"
        better = ">" if low else "<"
        compute = ops.COMPUTE[dtype]
        if self.form == "whole":
            value = element()
            inside = kernel.assign(f"tl.where({kernel.masks['r']}, {value.text}, {identity})", dtype, frozenset({"r"}))
            return kernel.assign(f"{pick}({inside.text}, axis=0).to(tl.int64)", "int64", frozenset(), "s")
        shape = "(BLOCK,)" if self.form == "columns" else "()"
        before = [
            f"{best} = tl.full({shape}, {identity}, dtype={compute})",
            f"{where} = tl.full({shape}, 0, dtype=tl.int32)",
        ]

        def work() -> None:
            value = element()
            lines = kernel.scope.lines
            if self.form == "columns":
                lines.append(f"{where} = tl.where({value.text} {better} {best}, r, {where})")
                lines.append(f"{best} = tl.where({value.text} {better} {best}, {value.text}, {best})")
                return
            inside = kernel.assign(f"tl.where({kernel.masks['r']}, {value.text}, {identity})", dtype, frozenset({"r"}))
            top, place = kernel.fresh("top"), kernel.fresh("place")
            lines.append(f"{top} = {reduce}({inside.text}, axis=0)")
            lines.append(f"{place} = start + {pick}({inside.text}, axis=0)")
            lines.append(f"{where} = tl.where({top} {better} {best}, {place}, {where})")
            lines.append(f"{best} = tl.where({top} {better} {best}, {top}, {best})")

        self._in_pass(work, before=before)
        return kernel.assign(f"{where}.to(tl.int64)", "int64", self._row_variables, "s")

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
        if self.form == "columns":
            carry = kernel.fresh("carry")
            self.carries.append((carry, f"tl.full((BLOCK,), {identity}, dtype={compute})", ""))
            name = kernel.fresh("run")
            kernel.scope.lines.append(f"{name} = {carry} {sign} {value.text}")
            self.carries[-1] = (carry, self.carries[-1][1], f"{carry} = {name}")
            return Value(name, node.dtype, frozenset({"c", "r"}))
        inside = kernel.assign(f"tl.where({kernel.masks['r']}, {value.text}, {identity})", node.dtype, frozenset({"r"}))
        if self.form == "whole":
            return kernel.assign(f"{scan}({inside.text}, axis=0)", node.dtype, frozenset({"r"}), "run")
        carry, name = kernel.fresh("carry"), kernel.fresh("run")
        kernel.scope.lines.append(f"{name} = {carry} {sign} {scan}({inside.text}, axis=0)")
        if summing:
            update = f"{carry} = {carry} + tl.sum({inside.text}, axis=0)"
        else:
            kernel.helpers.add("_multiply")
            update = f"{carry} = {carry} * tl.reduce({inside.text}, 0, _multiply)"
        self.carries.append((carry, f"tl.full((), {identity}, dtype={compute})", update))
        return Value(name, node.dtype, frozenset({"r"}))
