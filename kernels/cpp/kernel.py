"""One C++ kernel under construction: levels of loops, and values written at the outermost level that knows them.

The C++ kernel extends the Triton kernel of ``kernels/blocks``: operators, views, gathers and windows are the same
code. What differs is how a value is written (a typed constant instead of a tile), how memory is read (under a
condition instead of a mask), and that loops are explicit. A *laned* level stands for a short loop over neighbouring
positions whose values live in arrays, so that what does not depend on an inner loop is computed before it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import Guard, Kernel, Scope, Value
from orienteer.kernels.blocks.graph import Graph, Node, Size
from orienteer.kernels.blocks.index import Index, linear, product, wrap
from orienteer.kernels.blocks.schedule import Schedule
from orienteer.kernels.cpp.expression import COMPUTED, STORED, translate
from orienteer.kernels.cpp.schedule import CpuSchedule


@dataclass(frozen=True)
class Lanes:
    """A loop over neighbouring positions that is written anew for every statement."""

    #: Name of the loop variable, e.g. ``l``.
    name: str
    #: Most lanes: the size of arrays.
    most: str
    #: Lanes of this turn.
    count: str
    #: Lines at the top of the loop: the position of a lane.
    setup: tuple[str, ...]


@dataclass
class Level(Scope):
    """Statements at one depth of loops."""

    #: Loop variables that are known here, those of outer levels included.
    variables: frozenset[str] = frozenset()
    lanes: Lanes | None = None
    #: Lines and loops, which are rendered last: a finished loop may still be given a statement.
    lines: list[Any] = field(default_factory=list)

    def rendered(self) -> list[str]:
        """Return the statements as text."""
        out: list[str] = []
        for item in self.lines:
            out += item.rendered() if isinstance(item, Loop) else [item]
        return out

    def inner(self, variables: frozenset[str], lanes: Lanes | None = None) -> Level:
        """Return a level inside this one."""
        return Level(parent=self, variables=self.variables | variables, lanes=lanes)


@dataclass
class Loop:
    """A loop whose body can still grow."""

    #: Pragmas and, last, the ``for`` itself.
    heads: list[str]
    level: Level
    #: Lines at the top of the body.
    setup: tuple[str, ...] = ()

    def rendered(self) -> list[str]:
        """Return the loop as text."""
        return [*self.heads[:-1], *block(self.heads[-1], [*self.setup, *self.level.rendered()])]


class CppKernel(Kernel):
    """A function of the generated file."""

    def __init__(self, name: str, graph: Graph, buffers: set[str], schedule: CpuSchedule) -> None:
        super().__init__(name, graph, buffers, Schedule())
        self.plan = schedule
        self.wide = any(node.dtype == "float64" for node in graph.nodes.values())
        self.top: Level = Level()
        self.scope: Level = self.top
        #: The whole body, set by the nest.
        self.body: list[str] = []
        #: Conditions that loads must respect at the moment.
        self.active: tuple[Value, ...] = ()
        #: What was read into a variable, as memory holds it: dtype and text.
        self.raw: dict[str, tuple[str, str]] = {}
        #: Gives the value of a node that an earlier loop has left in memory, if one has.
        self.kept: Callable[[str, Sequence[Index]], Value | None] | None = None

    # -- levels ------------------------------------------------------------------------------------------------------

    def scope_for(self, variables: frozenset[str]) -> Scope:
        """Return the outermost level at which all variables are known."""
        chain: list[Scope] = []
        level: Scope | None = self.scope
        while level is not None:
            chain.append(level)
            level = level.parent
        for level in reversed(chain):
            if isinstance(level, Level) and variables <= level.variables:
                return level
        return self.scope

    def kind(self, dtype: str) -> str:
        """Return the C++ type in which values of a dtype are computed."""
        return "double" if self.wide and dtype in ops.FLOATS else COMPUTED[dtype]

    # -- writing -----------------------------------------------------------------------------------------------------

    def cpp(self, text: str, dtype: str = "float32") -> str:
        """Translate an expression of the building blocks."""
        return translate(text, dtype, self.wide)

    def assign(self, expression: str, dtype: str, variables: frozenset[str], stem: str = "v") -> Value:
        """Write a typed constant unless the expression is a name, a number, or known already."""
        if re.fullmatch(r"[A-Za-z_]\w*(\[\w+\])?|-?[\d.]+(e-?\d+)?", expression):
            return Value(expression, dtype, variables)
        return self.declare(self.cpp(expression, dtype), dtype, variables, stem)

    def declare(self, text: str, dtype: str, variables: frozenset[str], stem: str = "v") -> Value:
        """Write a C++ expression into a constant, or into an array at a laned level."""
        level = self.scope_for(variables)
        assert isinstance(level, Level)
        kind = self.kind(dtype)
        key = f"{kind}:{text}"
        known = level.find(key)
        if known is not None:
            return known
        name = self.fresh(stem)
        if level.lanes is None:
            value = Value(name, dtype, variables)
            level.lines.append(f"const {kind} {name} = {text};")
        else:
            value = Value(f"{name}[{level.lanes.name}]", dtype, variables)
            level.lines.append(f"{kind} {name}[{level.lanes.most}];")
            level.lines += self.laned(level.lanes, [f"{value.text} = {text};"])
        level.known[key] = value
        return value

    @staticmethod
    def laned(lanes: Lanes, statements: Sequence[str]) -> list[str]:
        """Return a loop over lanes."""
        return [
            f"for (int64_t {lanes.name} = 0; {lanes.name} < {lanes.count}; ++{lanes.name}) {{",
            *indent([*lanes.setup, *statements]),
            "}",
        ]

    # -- memory ------------------------------------------------------------------------------------------------------

    def load_flat(self, name: str, offset: Index) -> Value:
        """Load the element at an offset of a stored value; nothing is read where a guard says so."""
        node = self.graph.nodes[name]
        variables = offset.variables.union(*(guard.variables for guard in self.active))
        text = f"{self.pointer(name)}[{self.cpp(offset.text, 'int64')}]"
        raw = text
        if node.dtype in ops.HALVES:
            text = f"from_{node.dtype}({text})"
        elif self.kind(node.dtype) != STORED[node.dtype]:
            text = f"({self.kind(node.dtype)}){text}"
        if self.active:
            test = " & ".join(wrapped(guard.text) for guard in self.active)
            nothing = "0" if node.dtype not in ops.FLOATS else "0.0" if self.wide else "0.0f"
            text = f"{test} ? {text} : {'false' if node.dtype == 'bool' else nothing}"
        value = replace(self.declare(text, node.dtype, variables, "x"), loaded=True)
        if not self.active:
            self.raw[value.text] = (node.dtype, raw)
        return value

    def _value(self, name: str, index: Sequence[Index]) -> Value:
        known = self.kept(name, index) if self.kept is not None else None
        if known is not None:
            return known
        node = self.graph.nodes[name]
        if name not in self.buffers:
            taps = unrolled_taps(self.graph, node)
            if taps is not None:
                return self._unrolled(node, index, taps)
        return super()._value(name, index)

    def _unrolled(self, node: Node, index: Sequence[Index], taps: Sequence[int]) -> Value:
        """Return a sum over the few terms of a window, written out."""
        source = next(node.refs())
        total: Value | None = None
        for tap in itertools.product(*(range(size) for size in taps)):
            term = self.value(source, [*index, *(Index(str(place)) for place in tap)])
            both = (
                term
                if total is None
                else self.assign(
                    f"{total.text} + {term.text}", node.dtype, frozenset().union(total.variables, term.variables)
                )
            )
            total = both
        assert total is not None
        return total

    def held(self, item: Index) -> Index:
        """Return a position as a variable of the outermost level that knows it."""
        if not item.variables or re.fullmatch(r"\w+", item.text):
            return item
        value = self.assign(item.text, "int64", item.variables, "i")
        return Index(value.text, item.variables)

    def _offset(self, node: Node, index: Sequence[Index]) -> Index:
        if self.flat_shape is not None and node.shape == self.flat_shape:
            return super()._offset(node, index)
        return linear(*merged(index, self.shape(node)))

    def guarded(self, name: str, index: Sequence[Index], conditions: Mapping[int, Guard], otherwise: str) -> Value:
        """Return a node's value where its position exists and a constant elsewhere."""
        outer = self.active
        self.active = self.guards = (*outer, *(guard.condition for guard in conditions.values()))
        try:
            value = self.value(name, index)
        finally:
            self.active = self.guards = outer
        if value.loaded and otherwise in ("0", "0.0"):
            return value  # what was not read is zero already
        variables = value.variables.union(*(guard.condition.variables for guard in conditions.values()))
        text = " & ".join(f"({guard.condition.text})" for guard in conditions.values())
        return self.assign(f"tl.where({text}, {value.text}, {otherwise})", value.dtype, variables)

    def stored_text(self, name: str, value: Value) -> str:
        """Return a value's text converted to what memory holds."""
        dtype = self.graph.nodes[name].dtype
        kept, raw = self.raw.get(value.text, ("", ""))
        if kept == dtype:
            return raw  # a copy needs no conversion
        text = self.cpp(value.text, dtype)
        if dtype in ops.HALVES:
            return f"to_{dtype}({text})"
        return text if self.kind(dtype) == STORED[dtype] and value.dtype == dtype else f"({STORED[dtype]})({text})"

    def store(self, name: str, index: Sequence[Index], value: Value, target: Scope | None = None) -> None:
        """Store a value at a position of an output or intermediate."""
        offset = self._offset(self.graph.nodes[name], index)
        level = target or self.scope_for(offset.variables | value.variables)
        assert isinstance(level, Level)
        line = f"{self.pointer(name)}[{self.cpp(offset.text, 'int64')}] = {self.stored_text(name, value)};"
        level.lines += [line] if level.lanes is None else self.laned(level.lanes, [line])

    # -- text --------------------------------------------------------------------------------------------------------

    def parameters(self) -> list[str]:
        """Return the function's parameters."""
        out = []
        for node, pointer in self.pointers.items():
            constant = "" if node == self.stores else "const "
            out.append(f"{constant}{STORED[self.graph.nodes[node].dtype]}* __restrict {pointer}")
        out += [f"{'float' if fractional(size) else 'int64_t'} {name}" for size, name in self.size_args.items()]
        return [*out, "int threads"]

    def source(self) -> str:
        """Return the function."""
        head = f"static void {self.name}({', '.join(self.parameters())}) {{\n"
        return head + "".join(f"    {line}\n" if line else "\n" for line in self.body) + "}\n"

    def team(self) -> str:
        """Return the number of threads of a parallel region."""
        most = self.plan.threads
        return f"smaller(threads, {most})" if most else "threads"


#: A window of more elements is a loop, not written out.
MOST_UNROLLED = 64


def unrolled_taps(graph: Graph, node: Node) -> list[int] | None:
    """Return the window of a grouped convolution's sum when it is small and constant, else None."""
    if node.op != "aten.sum":
        return None
    source = graph.nodes[next(node.refs())]
    taps = source.shape[len(node.shape) :]
    if source.op != "conv.terms" or not all(size.isdigit() for size in taps):
        return None
    sizes = [int(size) for size in taps]
    return sizes if 0 < math.prod(sizes) <= MOST_UNROLLED else None


def merged(index: Sequence[Index], shape: Sequence[Size]) -> tuple[list[Index], list[Size]]:
    """Join neighbouring dimensions whose positions are quotient and remainder of the same position.

    ``[r // w, r % w]`` in a tensor of shape ``(h, w)`` is position ``r`` of ``h * w``: no division is left.
    """
    out, sizes = list(index), list(shape)
    at = len(out) - 2
    while at >= 0:
        first, second, width = out[at], out[at + 1], wrap(sizes[at + 1])
        found = re.fullmatch(rf"(.+) % {re.escape(width)}", second.text)
        if found is not None and sizes[at + 1] != "1":
            base = found[1]
            quotient = f"{base} // {width}"
            size = product([sizes[at], sizes[at + 1]])
            text = ""
            if first.text == quotient:
                text = base
            elif first.text == f"({quotient}) % {wrap(sizes[at])}":
                text = f"{base} % {wrap(size)}"
            if text:
                out[at : at + 2] = [Index(text, first.variables | second.variables)]
                sizes[at : at + 2] = [size]
                at = min(at, len(out) - 1)
        at -= 1
    return out, sizes


def fractional(size: Size) -> bool:
    """Say whether a size expression is no whole number."""
    return "**" in size or re.search(r"(?<!/)/(?!/)", size) is not None


def wrapped(text: str) -> str:
    """Parenthesise a C++ expression unless it is a name or a number."""
    return text if re.fullmatch(r"[\w.\[\]]+", text) else f"({text})"


def indent(lines: Sequence[str], levels: int = 1) -> list[str]:
    """Indent code lines."""
    return ["    " * levels + line if line else line for line in lines]


def block(head: str, lines: Sequence[str]) -> list[str]:
    """Return a braced block."""
    return [f"{head} {{", *indent(lines), "}"]


def variable(name: str) -> Index:
    """Return a loop variable as a position."""
    return Index(name, frozenset({name}))


__all__ = ["CppKernel", "Lanes", "Level", "Loop", "block", "fractional", "indent", "variable", "wrapped"]
