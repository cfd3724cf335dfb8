"""What is computed along a row: reductions and running sums, in every form in which a row is walked.

The walk itself (which loop, which positions) is :mod:`.rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Kernel, Unsupported, Value
from orienteer.kernels.blocks.graph import Graph, Node, Ref, Size
from orienteer.kernels.blocks.index import Index, wrap

Element = Callable[[], Value]


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


class RowReductions:
    """Writes reductions and scans; a nest derives from it, which knows how the rows are walked."""

    kernel: Kernel
    #: Shape of what is reduced, and the dimensions that are.
    full: tuple[Size, ...]
    dims: tuple[int, ...]
    #: Reduced dimensions that lie in one piece at the end of a row.
    run: tuple[int, ...]
    #: ``whole``, ``blocked``, ``columns`` or ``taps``; see :mod:`.rows`.
    form: str
    #: Length of a row as the kernel writes it.
    length: str
    #: Several rows as a tile; rows of neighbouring columns, and positions along the row, at once.
    tiled: bool
    lines_at_once: int
    step: int
    nan_is_seen_later: bool
    #: What a block hands on to the next: name, first value, update.
    carries: list[tuple[str, str, str]]

    def _full_index(self) -> list[Index]:
        raise NotImplementedError

    def _in_pass(self, work: Callable[[], None], before: Sequence[str] = (), after: Sequence[str] = ()) -> None:
        raise NotImplementedError

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
