"""Writing one kernel: scopes of straight-line code and the value of any graph node at any position.

A value is computed where it is needed: :meth:`Kernel.value` writes the expression of a node at an index into the
current scope and returns the name of the variable that holds it. Equal expressions are written once per scope.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.graph import Graph, Node, Ref, Size, SizeArg
from orienteer.kernels.blocks.index import ZERO, Index, linear
from orienteer.kernels.blocks.schedule import Schedule

REDUCTIONS = frozenset(
    {
        "aten.sum",
        "prims.sum",
        "aten.mean",
        "aten.amax",
        "aten.amin",
        "prims.amax",
        "prims.amin",
        "aten.prod",
        "aten.var",
        "prims.var",
        "aten.argmax",
        "aten.argmin",
        "aten.max",
        "aten.min",
        "aten.any",
        "aten.all",
    }
)
#: Scans: every element depends on those before it along one dimension.
ORDERED = frozenset({"aten.cumsum", "aten.cumprod"})
MATMULS = frozenset({"aten.mm", "aten.bmm"})
#: Convolutions that are added up tap by tap.
CONVOLUTIONS = frozenset({"conv.direct"})
#: Several sources side by side: always stored, by one loop for every source.
JOINS = frozenset({"aten.cat"})
#: The largest elements in order: always stored, by a kernel of their own.
SELECTIONS = frozenset({"aten.topk"})


class Unsupported(Exception):
    """The offline proposer has no building block for this; the message says for what."""


class NeedsBuffer(Exception):
    """The kernel at hand cannot compute this value in its iteration space; it must be stored by a kernel before."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Value:
    """A variable of the kernel."""

    text: str
    dtype: str
    variables: frozenset[str] = frozenset()
    #: True for what came from memory as it is: masked lanes are zero.
    loaded: bool = False


@dataclass(frozen=True)
class Guard:
    """Where a position along one axis exists."""

    condition: Value
    #: Positions along the axis.
    size: Size
    #: True when the axis is walked in steps of one.
    unit: bool = False


@dataclass
class Scope:
    """Straight-line code at one indentation; inner scopes see what outer ones computed."""

    parent: Scope | None = None
    lines: list[str] = field(default_factory=list)
    known: dict[str, Value] = field(default_factory=dict)
    values: dict[Any, Value] = field(default_factory=dict)

    def find(self, expression: str) -> Value | None:
        """Return the variable that already holds an expression."""
        scope: Scope | None = self
        while scope is not None:
            if expression in scope.known:
                return scope.known[expression]
            scope = scope.parent
        return None

    def recall(self, key: Any) -> Value | None:
        """Return the value of a node at an index if it was computed in this scope or an outer one."""
        scope: Scope | None = self
        while scope is not None:
            if key in scope.values:
                return scope.values[key]
            scope = scope.parent
        return None


class Kernel:
    """One Triton kernel under construction."""

    def __init__(self, name: str, graph: Graph, buffers: set[str], schedule: Schedule) -> None:
        self.name = re.sub(r"\W", "_", name) + "_kernel"
        self.graph = graph
        self.buffers = buffers
        self.schedule = schedule
        self.block = ""
        #: Tensor arguments: node name -> pointer argument, in order of use.
        self.pointers: dict[str, str] = {}
        #: Size arguments: size expression -> argument.
        self.size_args: dict[Size, str] = {}
        #: Constexpr arguments: name -> expression in the wrapper.
        self.constants: dict[str, str] = {}
        #: Work pieces of the launch: expression in the wrapper.
        self.work = "1"
        self.lines: list[str] = []
        #: Mask text of each iteration variable.
        self.masks: dict[str, str] = {}
        self.top = Scope()
        self.scope = self.top
        #: Variables that exist only inside the inner loop of the nest.
        self.loop_variables: frozenset[str] = frozenset()
        #: Those of them that are numbers, not vectors.
        self.numbers: frozenset[str] = frozenset()
        #: Conditions that loads must respect at the moment.
        self.guards: tuple[Value, ...] = ()
        #: The value that this kernel stores.
        self.stores = ""
        self.counter = 0
        #: Module-level helper functions that the kernel calls.
        self.helpers: set[str] = set()
        #: Set by a flat walk: values of this shape are addressed by one flat position.
        self.flat_shape: tuple[Size, ...] | None = None
        #: How anchors are computed here; set by the nest. Raises NeedsBuffer by default.
        self.anchor: Callable[[Node, Sequence[Index]], Value] = _no_anchor

    # -- arguments ---------------------------------------------------------------------------------------------------

    def pointer(self, name: str) -> str:
        """Return the pointer argument of a stored value."""
        if name not in self.pointers:
            label = self.graph.state.get(name) or self.graph.labels.get(name) or re.sub(r"_\d+$", "", name)
            base = re.sub(r"\W", "_", label.split(".")[-1])
            candidate, serial = f"{base}_ptr", 1
            while candidate in self.pointers.values():
                serial += 1
                candidate = f"{base}{serial}_ptr"
            self.pointers[name] = candidate
        return self.pointers[name]

    def size(self, size: Size) -> Size:
        """Return a size as it is written inside the kernel: a number or an integer argument."""
        if re.fullmatch(r"\d+", size):
            return size
        if size not in self.size_args:
            self.size_args[size] = f"d{len(self.size_args)}"
        return self.size_args[size]

    def shape(self, node: Node) -> list[Size]:
        """Return a node's shape in the kernel's own size arguments."""
        return [self.size(size) for size in node.shape]

    # -- writing -----------------------------------------------------------------------------------------------------

    def fresh(self, stem: str = "v") -> str:
        """Return a new variable name."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def scope_for(self, variables: frozenset[str]) -> Scope:
        """Return the outermost scope in which an expression over these variables can stand."""
        return self.scope if variables & self.loop_variables else self.top

    def assign(self, expression: str, dtype: str, variables: frozenset[str], stem: str = "v") -> Value:
        """Write ``name = expression`` unless the expression is known already."""
        if re.fullmatch(r"[A-Za-z_]\w*|-?[\d.]+(e-?\d+)?", expression):
            return Value(expression, dtype, variables)
        scope = self.scope_for(variables)
        known = scope.find(expression)
        if known is None:
            known = Value(self.fresh(stem), dtype, variables)
            scope.lines.append(f"{known.text} = {expression}")
            scope.known[expression] = known
        return known

    def mask_of(self, variables: frozenset[str]) -> str:
        """Return the mask under which positions over these variables exist, or an empty text."""
        parts = [self.masks[name] for name in sorted(variables) if name in self.masks]
        parts += [guard.text for guard in self.guards]
        return " & ".join(f"({part})" if len(parts) > 1 else part for part in parts)

    def _offset(self, node: Node, index: Sequence[Index]) -> Index:
        if self.flat_shape is not None and node.shape == self.flat_shape:
            return index[-1] if index else ZERO
        return linear(index, self.shape(node))

    @property
    def first(self) -> str:
        """Return the number of the first piece of work: 64 bits wide where an offset would not fit into 32."""
        graph = self.graph
        names = {*self.pointers, self.stores}
        large = any(graph.numel(graph.nodes[name].shape) >= 2**31 for name in names if name in graph.nodes)
        return "tl.program_id(0).to(tl.int64)" if large else "tl.program_id(0)"

    def top_lines(self) -> list[str]:
        """Return a copy of the straight-line code written so far."""
        return list(self.top.lines)

    def child_scope(self) -> Scope:
        """Return a scope inside the outermost one."""
        return Scope(parent=self.top)

    def load(self, name: str, index: Sequence[Index]) -> Value:
        """Load a stored value at a position; halves are widened to float32."""
        return self.load_flat(name, self._offset(self.graph.nodes[name], index))

    def load_flat(self, name: str, offset: Index) -> Value:
        """Load the element at an offset of a stored value."""
        node = self.graph.nodes[name]
        variables = offset.variables.union(*(guard.variables for guard in self.guards))
        mask = self.mask_of(variables)
        address = self.pointer(name) if offset.is_zero else f"{self.pointer(name)} + {offset.text}"
        other = "0.0" if node.dtype in ops.FLOATS else "0"
        text = f"tl.load({address}, mask={mask}, other={other})" if mask else f"tl.load({address})"
        if node.dtype in ops.FLOATS and node.dtype != "float64":
            # Also where the tensor is float32: the same kernel is then right for tensors of half precision.
            text += ".to(tl.float32)"
        elif node.dtype == "bool":
            text = f"({text} != 0)"
        return replace(self.assign(text, node.dtype, variables, "x"), loaded=True)

    def store(self, name: str, index: Sequence[Index], value: Value, target: Scope | None = None) -> None:
        """Store a value at a position of an output or intermediate."""
        node = self.graph.nodes[name]
        offset = self._offset(node, index)
        for item in index:
            if item.variables and not item.variables <= offset.variables:
                # A dimension of size 1 has no offset, but the stored tile has lanes along it.
                offset = Index(f"{offset.text} + {item.text} * 0", offset.variables | item.variables)
        address = self.pointer(name) if offset.is_zero else f"{self.pointer(name)} + {offset.text}"
        mask = self.mask_of(offset.variables)
        text = f"tl.store({address}, {value.text}, mask={mask})" if mask else f"tl.store({address}, {value.text})"
        (target or self.scope).lines.append(text)

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, name: str, index: Sequence[Index]) -> Value:
        """Return the variable that holds a node's value at a position, writing what is needed for it."""
        key = (name, tuple(item.text for item in index), tuple(guard.text for guard in self.guards))
        known = self.scope.recall(key)
        if known is not None:
            return known
        value = self._value(name, index)
        self.scope_for(value.variables).values[key] = value
        return value

    def _value(self, name: str, index: Sequence[Index]) -> Value:
        node = self.graph.nodes[name]
        if name in self.buffers:
            return self.load(name, index)
        if node.op in REDUCTIONS or node.op in ORDERED or node.op in MATMULS or node.op in CONVOLUTIONS:
            return self.anchor(node, index)
        if node.op in SELECTIONS or ((node.op in JOINS or node.kwargs.get("stored")) and name != self.stores):
            raise NeedsBuffer(name)
        from orienteer.kernels.blocks import convolution, pooling
        from orienteer.kernels.blocks.elementwise import elementwise

        if node.op == "conv.patches":
            return convolution.patches(self, node, index)
        if node.op == "conv.terms":
            return convolution.terms(self, node, index)
        if node.op == "pool.terms":
            return pooling.terms(self, node, index)
        return elementwise(self, node, index)

    def operand(self, argument: Any, index: Sequence[Index], shape: Sequence[Size]) -> Value:
        """Return an operand of a broadcasting operator at the position of its result."""
        if isinstance(argument, Ref):
            return self.value(argument.name, self.broadcast(argument.name, index, shape))
        if isinstance(argument, SizeArg):
            return Value(self.size(argument.expr), "int64")
        if isinstance(argument, (bool, int, float)):
            dtype = "bool" if isinstance(argument, bool) else "int64" if isinstance(argument, int) else "float32"
            return Value(ops.literal(argument), dtype)
        raise Unsupported(f"an operand of type {type(argument).__name__}")

    def broadcast(self, name: str, index: Sequence[Index], shape: Sequence[Size]) -> list[Index]:
        """Return the position of an operand that broadcasts to ``shape``."""
        own = self.graph.nodes[name].shape
        tail = list(index)[len(shape) - len(own) :]
        return [ZERO if size == "1" else item for item, size in zip(tail, own, strict=True)]

    def guarded(self, name: str, index: Sequence[Index], conditions: Mapping[int, Guard], otherwise: str) -> Value:
        """Return a node's value where its position exists and a constant elsewhere; nothing is read elsewhere.

        Along a vector axis that is walked in unit steps the condition becomes part of the load's mask, which compilers
        turn into a shorter transfer. Along any other axis the position is clamped to the nearest one that exists:
        Ascend's compiler cannot take a mask apart there, and its masked lanes may still read memory.
        """
        safe = list(index)
        masks: list[Value] = []
        for axis, guard in conditions.items():
            item = safe[axis]
            if item.variables - self.numbers and guard.unit:
                masks.append(guard.condition)
            elif not item.is_zero:
                clamped = f"tl.minimum(tl.maximum({item.text}, 0), {guard.size} - 1)"
                safe[axis] = Index(self.assign(clamped, "int32", item.variables, "i").text, item.variables)
        outer = self.guards
        self.guards = (*outer, *masks)
        try:
            value = self.value(name, safe)
        finally:
            self.guards = outer
        variables = value.variables.union(*(guard.condition.variables for guard in conditions.values()))
        text = " & ".join(guard.condition.text for guard in conditions.values())
        return self.assign(f"tl.where({text}, {value.text}, {otherwise})", value.dtype, variables)

    # -- text --------------------------------------------------------------------------------------------------------

    def source(self) -> str:
        """Return the kernel as Python source."""
        arguments = [*self.pointers.values(), *self.size_args.values(), *(f"{c}: tl.constexpr" for c in self.constants)]
        head = f"@triton.jit\ndef {self.name}({', '.join(arguments)}):\n"
        return head + "".join(f"    {line}\n" for line in self.lines)

    def tidy(self) -> None:
        """Drop lines whose variable nobody reads, and arguments that no line uses."""
        self.lines = _without_unused(self.lines)
        words = set(re.findall(r"[A-Za-z_]\w*", " ".join(self.lines)))
        self.pointers = {name: argument for name, argument in self.pointers.items() if argument in words}
        self.size_args = {size: argument for size, argument in self.size_args.items() if argument in words}


def _without_unused(lines: Sequence[str]) -> list[str]:
    kept = list(lines)
    while True:
        uses = Counter(re.findall(r"[A-Za-z_]\w*", " ".join(kept)))
        smaller = [
            line for line in kept if not ((made := re.match(r"\s*([A-Za-z_]\w*) = ", line)) and uses[made[1]] == 1)
        ]
        if len(smaller) == len(kept):
            return kept
        kept = smaller


def indent(lines: Sequence[str], levels: int = 1) -> list[str]:
    """Indent code lines."""
    return ["    " * levels + line for line in lines]


def _no_anchor(node: Node, index: Sequence[Index]) -> Value:
    raise NeedsBuffer(node.name)
