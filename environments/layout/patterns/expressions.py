"""What a deck measures on what: its outputs with every variable put in, and the checks within.

This reads a deck's tree as a tester does: it follows names to the drawn layers and gathers limits, metrics and
conditions. What it does not know it keeps as an operation by name, so that no deck is too strange to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.dsl import tree
from orienteer.environments.layout.tasks import LayerNumber

#: Methods that measure and take a limit.
CHECKS = frozenset(
    (
        "width",
        "space",
        "notch",
        "isolated",
        "separation",
        "enclosing",
        "enclosed",
        "overlap",
        "with_area",
        "without_area",
        "with_length",
        "without_length",
        "with_angle",
        "without_angle",
        "with_perimeter",
        "without_perimeter",
        "with_bbox_min",
        "without_bbox_min",
        "with_bbox_max",
        "without_bbox_max",
        "with_bbox_width",
        "without_bbox_width",
        "with_bbox_height",
        "without_bbox_height",
        "with_density",
        "without_density",
        "ongrid",
        "offgrid",
        "with_holes",
        "without_holes",
        "rectangles",
        "squares",
    )
)
_UNITS = {"um": 1.0, "micron": 1.0, "um2": 1.0, "nm": 1e-3, "nm2": 1e-6, "mm": 1e3, "mm2": 1e6, "m": 1e6, "dbu": 1e-3}
_BOOLEANS = {"&": "and", "|": "or", "+": "or", "-": "not", "^": "xor", "join": "or"}
_SAME = frozenset(("merged", "raw", "clean", "polygons", "flatten", "strict", "non_strict", "dup"))
#: Steps into an expression at most; deeper ones are cut off.
_DEEPEST = 200


@dataclass(frozen=True)
class Drawn:
    """A drawn layer."""

    layer: LayerNumber


@dataclass(frozen=True)
class Made:
    """The result of a method.

    Attributes:
        name: the method.
        parts: the layers that it works on, the receiver first.
        lengths: numbers it was given, in micrometres (square micrometres for areas, degrees for angles), in order.
        words: option words and comparisons it was given.
        line: where in the deck.
    """

    name: str
    parts: tuple[Expression, ...] = ()
    lengths: tuple[float, ...] = ()
    words: tuple[str, ...] = ()
    line: int = 0


Expression = Drawn | Made


def outputs(program: tree.Program) -> list[Expression]:
    """Return what a deck reports, one expression for every ``output``."""
    names: dict[str, Any] = {}
    found: list[Expression] = []
    for statement in program.statements:
        if isinstance(statement, tree.Assign):
            value = _value(statement.value, names, 0)
            for name in statement.names:
                names[name] = value
            continue
        node = statement.value
        if isinstance(node, tree.Call) and node.name == "output" and node.receiver is not None:
            value = _value(node.receiver, names, 0)
            if isinstance(value, Drawn | Made):
                found.append(value)
    return found


def within(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all that it is made of, the outermost first, each once."""
    seen: set[int] = set()
    todo = [expression]
    while todo:
        here = todo.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, Made):
            todo.extend(reversed(here.parts))


def checks(expression: Expression) -> list[Made]:
    """Return the measuring operations of an expression."""
    return [e for e in within(expression) if isinstance(e, Made) and (e.name in CHECKS or e.name == "drc")]


def drawn(expression: Expression) -> list[LayerNumber]:
    """Return the drawn layers of an expression, each once, in order."""
    return list(dict.fromkeys(e.layer for e in within(expression) if isinstance(e, Drawn)))


def _value(node: tree.Node, names: dict[str, Any], depth: int) -> Any:
    """Return a node's value: an expression, a number of micrometres, a word, or None."""
    if depth > _DEEPEST:
        return None
    if isinstance(node, tree.Number):
        return float(node.value) if isinstance(node.value, float) else _Whole(node.value)
    if isinstance(node, tree.Text):
        return "".join(part for part in node.parts if isinstance(part, str))
    if isinstance(node, tree.Symbol):
        return node.name
    if isinstance(node, tree.Unary):
        value = _value(node.operand, names, depth + 1)
        return -value if isinstance(value, float) and node.operator == "-" else value
    if isinstance(node, tree.Binary):
        return _binary(node, names, depth)
    if isinstance(node, tree.Range):
        return tuple(_value(end, names, depth + 1) for end in (node.low, node.high) if end is not None)
    if isinstance(node, tree.Call):
        return _call(node, names, depth)
    return None


class _Whole(float):
    """A whole number without a unit: database units where a length is meant."""


def _binary(node: tree.Binary, names: dict[str, Any], depth: int) -> Any:
    left, right = _value(node.left, names, depth + 1), _value(node.right, names, depth + 1)
    both = [side for side in (left, right) if isinstance(side, Drawn | Made)]
    if len(both) == 2 and node.operator in _BOOLEANS:
        return Made(_BOOLEANS[node.operator], tuple(both), line=node.line)
    if isinstance(left, float) and isinstance(right, float) and not both:
        return _arithmetic(node.operator, left, right)
    # A comparison: projecting >= 0.5.um, width != 0.1.um, width(projection) < 0.3.um.
    numbers = tuple(side for side in (left, right) if isinstance(side, float))
    word = next((side for side in (left, right) if isinstance(side, str)), "")
    if isinstance(left, Made):
        return Made(
            left.name, left.parts, (*left.lengths, *map(_length, numbers)), (*left.words, node.operator), node.line
        )
    return Made(f"?{word}", (), tuple(map(_length, numbers)), (node.operator,), node.line)


def _arithmetic(operator: str, left: float, right: float) -> float | None:
    try:
        value = {"+": left + right, "-": left - right, "*": left * right}.get(operator)
        if operator == "/" and right:
            value = left / right
    except OverflowError:
        return None
    whole = isinstance(left, _Whole) and isinstance(right, _Whole)
    return None if value is None else _Whole(value) if whole else float(value)


def _call(node: tree.Call, names: dict[str, Any], depth: int) -> Any:
    if node.receiver is None and not node.arguments and not node.brackets:
        return names.get(node.name, node.name)
    receiver = None if node.receiver is None else _value(node.receiver, names, depth + 1)
    if isinstance(receiver, float) and node.name in _UNITS:
        return float(receiver) * _UNITS[node.name]
    if isinstance(receiver, float):
        return receiver
    values = [_value(a, names, depth + 1) for a in node.arguments]
    values += [_value(v, names, depth + 1) for _, v in node.options]
    flat = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    if node.name in ("input", "polygons") and not isinstance(receiver, Drawn | Made):
        layer = _layer(flat)
        if layer is not None:
            return Drawn(layer)
    if node.name in _SAME and isinstance(receiver, Drawn | Made):
        return receiver
    return _made(node, receiver, flat)


def _made(node: tree.Call, receiver: Any, values: list[Any]) -> Made:
    parts: list[Expression] = [receiver] if isinstance(receiver, Drawn | Made) else []
    lengths: list[float] = []
    words: list[str] = []
    for value in values:
        if isinstance(value, Made) and not drawn(value):
            # A comparison among the arguments: its limit counts, its word says what is compared.
            lengths += value.lengths
            words.append(value.name.removeprefix("?") + "".join(value.words))
        elif isinstance(value, Drawn | Made):
            parts.append(value)
        elif isinstance(value, float):
            lengths.append(_length(value))
        elif isinstance(value, str):
            words.append(value)
    name = {"and": "and", "join": "or", "iso": "isolated", "sep": "separation", "enc": "enclosing"}.get(
        node.name, node.name
    )
    return Made(name, tuple(parts), tuple(lengths), tuple(words), node.line)


def _length(value: float) -> float:
    return float(value) * 1e-3 if isinstance(value, _Whole) else float(value)


def _layer(values: list[Any]) -> LayerNumber | None:
    numbers = [int(v) for v in values if isinstance(v, float)]
    if numbers:
        return numbers[0], numbers[1] if len(numbers) > 1 else 0
    text = next((v for v in values if isinstance(v, str)), "")
    head, _, tail = text.partition("/")
    return (int(head), int(tail or 0)) if head.isdigit() and (tail or "0").isdigit() else None
