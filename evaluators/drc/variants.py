"""Wrong variants of a deck: one slip each, as people and models make them, to ask whether a tester sees it.

The text of the deck is changed in place, so all else of it stays: names, comments, order. Kinds:

====================  ===================================================================================
``metric``            another metric, or one where there was none
``limit +1 dbu`` ...  a limit off by one database unit or by 5 nm, up or down (areas: of a square of that area)
``call``              space for isolated, isolated or notch for space, notch for width, width for notch
``order``             ``a.enclosing(b)`` for ``b.enclosing(a)``, enclosing for enclosed, and for separation and not
``overlap``           overlap for enclosing and enclosed
``clause dropped``    one operand of a join is missing: a coverage clause, a second check
``coverage``          ``not_outside`` before ``not`` is missing: what lies wholly outside counts too
``filter dropped``    a filter of polygons (interacting, inside ...) or an intersection is missing
``filter negated``    interacting for not_interacting, inside for not_inside ...
====================  ===================================================================================

A variant may behave as the deck does on all layouts (``order`` of a separation does); none is identical as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from orienteer.errors import UsageError

_METRICS = ("euclidian", "projection", "square")
_SINGLE = ("width", "space", "notch", "isolated", "iso")
_PAIRED = ("separation", "sep", "enclosing", "enclosed", "enc", "overlap", "ovl")
_CHECKS = frozenset(_SINGLE + _PAIRED)
_OF_TWO = frozenset(_PAIRED)
_FILTERS = ("interacting", "inside", "outside", "overlapping", "covering")
_FILTER_NAMES = frozenset(_FILTERS) | {f"not_{name}" for name in _FILTERS}
_JOINS = frozenset(("or", "join", "+", "|"))
#: A check taken for another.
_TAKEN_FOR = {
    "space": ("isolated", "notch"),
    "isolated": ("space", "notch"),
    "iso": ("space", "notch"),
    "notch": ("width", "space"),
    "width": ("notch",),
}
_OVERLAP = {"enclosing": "overlap", "enclosed": "overlap", "enc": "ovl"}
_LIMITED = _CHECKS | {"with_area", "without_area", "with_length", "without_length", "sized", "size"}
_DBU = Decimal("0.001")
_STEPS = (("+1 dbu", _DBU), ("-1 dbu", -_DBU), ("+5 nm", 5 * _DBU), ("-5 nm", -5 * _DBU))
#: What one of a unit is in um; a whole number without one is in database units.
_UNITS = {"um": Decimal(1), "micron": Decimal(1), "nm": _DBU, "mm": Decimal(1000), "dbu": _DBU, "um2": Decimal(1)}


@dataclass(frozen=True)
class Variant:
    """A deck with one slip.

    Attributes:
        kind: the kind of slip, as in the table above.
        deck: the whole text.
        line: where the slip is, from 1.
        what: what was changed, in one line.
    """

    kind: str
    deck: str
    line: int
    what: str


def variants(deck: str) -> list[Variant]:
    """Make every wrong variant of a deck, in the order of the text; texts are distinct and differ from the deck's.

    Args:
        deck: KLayout DRC script, a runnable one.

    Raises:
        UsageError: the deck is no valid Ruby.
    """
    data = deck.encode()
    root = _parse(data)
    if root.has_error:
        raise UsageError("the deck is no valid Ruby", "run it with KLayout to see where")
    edits = _Edits(data, root)
    seen = {deck}
    made = []
    for kind, line, start, end, text, what in edits.all():
        changed = (data[:start] + text.encode() + data[end:]).decode()
        if changed in seen or _parse(changed.encode()).has_error:
            continue
        seen.add(changed)
        made.append(Variant(kind, changed, line, what))
    return made


_Edit = tuple[str, int, int, int, str, str]


class _Edits:
    """Finds the places of a deck where a slip can be made."""

    def __init__(self, data: bytes, root: Any) -> None:
        self._data = data
        self._root = root
        assigned = [n for n in _walk(root) if n.type == "assignment"]
        self._values = {self._text(n.child_by_field_name("left")): n.child_by_field_name("right") for n in assigned}

    def all(self) -> Iterator[_Edit]:
        """Every edit: kind, line, start and end in bytes, new text, what in words."""
        for node in _walk(self._root):
            if node.type == "call":
                yield from self._call(node)
            elif node.type == "binary" and self._text(node.child_by_field_name("operator")) in _JOINS:
                left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
                if not (_is_number(left) or _is_number(right)):
                    yield from self._dropped(node, left, right)

    def _call(self, node: Any) -> Iterator[_Edit]:
        receiver, method = node.child_by_field_name("receiver"), node.child_by_field_name("method")
        if receiver is None or method is None:
            return
        name = self._text(method)
        arguments = self._arguments(node)
        if name in _CHECKS:
            yield from self._check(node, receiver, method, name, arguments)
        if name in _LIMITED:
            for argument in arguments:
                yield from self._limits(argument, name)
        if name in _JOINS and arguments:
            yield from self._dropped(node, receiver, arguments[0])
        if name in _FILTER_NAMES and arguments:
            other = name.removeprefix("not_") if name.startswith("not_") else f"not_{name}"
            yield self._edit("filter negated", method, other, f"{other} for {name}")
            follows = node.parent is not None and node.parent.type == "call" and self._method(node.parent) == "not"
            kind = "coverage" if name == "not_outside" and follows else "filter dropped"
            yield self._edit(kind, node, self._text(receiver), f"{name}({self._text(arguments[0])}) is missing")
        if name == "and" and arguments:
            yield self._edit(
                "filter dropped", node, self._text(receiver), f"and({self._text(arguments[0])}) is missing"
            )
        if name == "not" and arguments:
            yield from self._exchanged(node, receiver, arguments[0])

    def _check(self, node: Any, receiver: Any, method: Any, name: str, arguments: list[Any]) -> Iterator[_Edit]:
        metric = next((a for a in arguments if a.type == "identifier" and self._text(a) in _METRICS), None)
        for other in _METRICS:
            if metric is not None and other != self._text(metric):
                yield self._edit("metric", metric, other, f"{other} for {self._text(metric)}")
            elif metric is None and other != "euclidian" and arguments:
                last = arguments[-1]
                yield self._edit("metric", last, f"{self._text(last)}, {other}", f"{other} for no metric")
        for other in _TAKEN_FOR.get(name, ()):
            yield self._edit("call", method, other, f"{other} for {name}")
        if name in _OF_TWO and arguments:
            yield from self._exchanged(node, receiver, arguments[0])
        if name in _OVERLAP:
            yield self._edit("overlap", method, _OVERLAP[name], f"{_OVERLAP[name]} for {name}")
        turned = {"enclosing": "enclosed", "enclosed": "enclosing"}.get(name)
        if turned:
            yield self._edit("order", method, turned, f"{turned} for {name}")

    def _exchanged(self, node: Any, receiver: Any, argument: Any) -> Iterator[_Edit]:
        one, two = self._text(receiver), self._text(argument)
        if (
            not re.match(r"[\w$]", two)
            or _is_number(argument)
            or argument.type not in ("identifier", "call", "constant")
        ):
            return
        start, end = receiver.start_byte, node.end_byte
        between = self._data[receiver.end_byte : argument.start_byte].decode()
        after = self._data[argument.end_byte : end].decode()
        what = f"{_short(two)} and {_short(one)} exchanged in {self._method(node)}"
        yield ("order", node.start_point[0] + 1, start, end, two + between + one + after, what)

    def _dropped(self, node: Any, left: Any, right: Any) -> Iterator[_Edit]:
        for kept, gone in ((left, right), (right, left)):
            text = self._text(gone)
            meaning = self._text(self._values[text]) if text in self._values else text
            yield self._edit("clause dropped", node, self._text(kept), f"{_short(meaning)} is missing")

    def _limits(self, argument: Any, name: str) -> Iterator[_Edit]:
        for number in [n for n in _walk(argument) if _is_number(n)]:
            old = Decimal(self._text(number).replace("_", ""))
            unit = self._method(number.parent) if number.parent is not None and number.parent.type == "call" else ""
            scale = _UNITS.get(unit, _DBU if number.type == "integer" else Decimal(1))
            for label, step in _STEPS:
                if "area" in name:
                    new = _decimal((old.sqrt() + step) ** 2)
                else:
                    new = old + step / scale
                if new <= 0 or new == old:
                    continue
                text = format(new.normalize(), "f")
                if number.type == "float" and "." not in text:
                    text += ".0"
                yield self._edit(f"limit {label}", number, text, f"{text} for {self._text(number)} in {name}")

    def _arguments(self, node: Any) -> list[Any]:
        listed = node.child_by_field_name("arguments")
        return [] if listed is None else [c for c in listed.named_children if c.type != "comment"]

    def _method(self, node: Any) -> str:
        return self._text(node.child_by_field_name("method"))

    def _text(self, node: Any) -> str:
        return "" if node is None else self._data[node.start_byte : node.end_byte].decode()

    def _edit(self, kind: str, node: Any, text: str, what: str) -> _Edit:
        return kind, node.start_point[0] + 1, node.start_byte, node.end_byte, text, what


def _parse(data: bytes) -> Any:
    import tree_sitter
    import tree_sitter_ruby

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_ruby.language())).parse(data).root_node


def _walk(node: Any) -> Iterator[Any]:
    stack = [node]
    while stack:
        at = stack.pop()
        yield at
        stack.extend(reversed(at.named_children))


def _is_number(node: Any) -> bool:
    return node is not None and node.type in ("integer", "float")


def _decimal(value: Decimal) -> Decimal:
    """An area to a millionth of um2, which is one square database unit."""
    return value.quantize(Decimal("0.000001"), ROUND_HALF_UP)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."
