"""The methods of layers: what each takes, what it gives, and how a test calls it.

``METHODS`` is the one table of what the interpreter supports. Each entry carries sample calls; the property tests build
their decks from them, so a method that is added here is tested against KLayout without another line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, TEXTS, Op, Planner
from orienteer.environments.layout.dsl.values import Arguments, Enum, Layer, describe

Handler = Callable[[Planner, Layer, Arguments], Any]

_LETTER = {"P": POLYGONS, "E": EDGES, "D": EDGE_PAIRS, "T": TEXTS}
#: How klayout.db's Python names a method that is a Python keyword.
PYTHON = {"and": "and_", "or": "or_", "not": "not_", "in": "in_"}


@dataclass(frozen=True)
class Method:
    """One method of layers.

    Attributes:
        name: in a deck.
        kinds: of layers that have it.
        handler: plans a call.
        samples: calls for tests: ``{P}``, ``{E}``, ``{D}`` and ``{T}`` stand for layers, ``{d}`` for a length,
            ``{a}`` for an area.
        note: what an engineer should know of it, or nothing.
    """

    name: str
    kinds: tuple[str, ...]
    handler: Handler
    samples: tuple[str, ...]
    note: str = ""


METHODS: dict[str, Method] = {}


def entry(names: str, kinds: str, *samples: str, note: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a handler for each of the names; the handler gets the name in ``args.name``."""

    def enter(handler: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            METHODS[name] = Method(name, tuple(_LETTER[letter] for letter in kinds), handler, samples, note)
        return handler

    return enter


def apply(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    kind: str,
    constants: tuple[Hashable, ...] = (),
    others: Sequence[Layer] = (),
) -> Layer:
    """Return a new layer: klayout.db's ``method`` on ``layer``, other layers first and constants behind them."""
    return Layer(kind, _call(planner, args, layer, method, kind, constants, others, in_place=False))


def change(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    constants: tuple[Hashable, ...] = (),
    others: Sequence[Layer] = (),
) -> Layer:
    """Change a layer in place: every variable that holds it sees the change."""
    layer.op = _call(planner, args, layer, method, layer.kind, constants, others, in_place=True)
    return layer


def _call(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    kind: str,
    constants: tuple[Hashable, ...],
    others: Sequence[Layer],
    *,
    in_place: bool,
) -> Op:
    values = tuple(item.value() if isinstance(item, Enum) else item for item in constants)

    def run(source: Any, first: Any, *rest: Any) -> Any:
        if in_place:
            # A changed layer keeps its other settings (raw, strict): klayout.db's own change in place does so too.
            first = first.dup()
            getattr(first, method)(*rest, *values)
            return first
        return getattr(first, method)(*rest, *values)

    inputs = (layer.op, *(other.op for other in others))
    # With an empty layer on the other side many operations hand the drawn layer through as it is.
    drawn = any(op.drawn and op.kind == kind for op in inputs)
    return planner.op(f"{method}{'!' if in_place else ''}", kind, inputs, constants, run, args.line, drawn=drawn)


def layer_at(args: Arguments, index: int, kinds: str) -> Layer:
    """Return the argument at ``index`` as a layer of one of the kinds."""
    if index >= len(args.values):
        raise args.error("another layer is expected")
    value = args.values[index]
    if not isinstance(value, Layer):
        raise args.error(f"{describe(value)} is no layer")
    if value.kind not in [_LETTER[letter] for letter in kinds]:
        raise args.error(f"a layer of {value.kind} cannot be used here")
    return value


def same_kind(args: Arguments, layer: Layer, index: int = 0) -> Layer:
    """Return the argument at ``index`` as a layer of the same kind as ``layer``."""
    other = layer_at(args, index, "PEDT")
    if other.kind != layer.kind:
        raise args.error("the other layer must be of the same kind")
    return other
