"""Drawn shapes for a derived layer: what to draw so that the layer comes out as wanted.

A derived layer is a formula over drawn layers. Going through it from the top, each operation says what its parts have
to be: an intersection wants both to hold the shape, a difference wants the second part away, "interacting" wants
something of the second part inside. Where there is a choice, several are tried and the layer is computed, so that what
is returned does hold the shape, and in the best case nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orienteer.environments.layout.patterns.expressions import Drawn, Expression, Made, within
from orienteer.environments.layout.patterns.figures import Polygon, bounds, box
from orienteer.environments.layout.tasks import LayerNumber

#: Shapes by drawn layer.
Drawing = dict[LayerNumber, tuple[Polygon, ...]]
#: Ways tried to draw one figure.
_MOST_WAYS = 48
#: How a part is drawn that only has to be there: the shape itself, a blanket over it, a mark inside, or left away.
_CHOICES = ("blanket", "same", "mark", "nothing")
_OWN = ("nothing", "mark", "blanket", "same")
_TIGHT = ("same", "mark", "blanket", "nothing")
_BOTH = frozenset(("and",))
_EITHER = frozenset(("or", "xor", "join"))
_WITHOUT = frozenset(
    ("not", "not_interacting", "outside", "not_overlapping", "not_touching", "not_covering", "not_inside")
)
_WITH = frozenset(("interacting", "overlapping", "touching", "not_outside", "inside", "covering", "pull_interacting"))


def realise(wanted: Sequence[tuple[Expression, Sequence[Polygon]]], margin: int, *, tight: bool = False) -> Drawing:
    """Return drawn shapes for which each expression gives its polygons, as nearly as was found.

    Args:
        wanted: expressions with the polygons that they are to give; an expression may be a drawn layer.
        margin: how far a blanket reaches over a shape, database units.
        tight: draw what only has to be there as the shape itself first, and as a blanket last.
    """
    best: tuple[float, Drawing] | None = None
    for ways in itertools.islice(_ways([expression for expression, _ in wanted], tight), _MOST_WAYS):
        drawing: dict[LayerNumber, list[Polygon]] = {}
        for expression, polygons in wanted:
            _draw(expression, list(polygons), ways, margin, drawing, 0)
        found: Drawing = {layer: tuple(dict.fromkeys(shapes)) for layer, shapes in drawing.items() if shapes}
        wrong = _difference(found, wanted)
        if best is None or wrong < best[0]:
            best = wrong, found
        if wrong == 0:
            break
    return best[1] if best is not None else {}


def _ways(expressions: Sequence[Expression], tight: bool) -> Iterator[Mapping[int, str]]:
    """Yield choices for the operations that leave one, the likely ones first."""
    given = {e.layer for e in expressions if isinstance(e, Drawn)}
    free: dict[int, tuple[str, ...]] = {}
    for expression in expressions:
        for e in within(expression):
            if isinstance(e, Made) and len(e.parts) > 1 and e.name in _BOTH | _WITH | _WITHOUT:
                partner = e.parts[1]
                # A partner that is drawn for its own sake need not be drawn for this one's.
                own = isinstance(partner, Drawn) and partner.layer in given
                free[id(e)] = _OWN if own else _TIGHT if tight else _CHOICES
    nodes = list(free.items())[:6]
    order = sorted(itertools.product(range(len(_CHOICES)), repeat=len(nodes)), key=lambda picks: (sum(picks), picks))
    for picks in order:
        yield {node: choices[pick] for (node, choices), pick in zip(nodes, picks, strict=True)}


def _draw(
    expression: Expression,
    polygons: list[Polygon],
    ways: Mapping[int, str],
    margin: int,
    drawing: dict[LayerNumber, list[Polygon]],
    depth: int,
) -> None:
    if not polygons or depth > 60:
        return
    if isinstance(expression, Drawn):
        drawing.setdefault(expression.layer, []).extend(polygons)
        return
    if not expression.parts:
        return
    first, *others = expression.parts
    if expression.name in _EITHER:
        _draw(first, polygons, ways, margin, drawing, depth + 1)
        return
    _draw(first, polygons, ways, margin, drawing, depth + 1)
    choice = ways.get(id(expression), "blanket")
    if expression.name in _WITHOUT:
        # Usually nothing is to be drawn; where the second part is wanted elsewhere, it comes from there.
        return
    if expression.name in _BOTH | _WITH:
        for other in others:
            for part in _partner(polygons, choice, margin):
                _draw(other, [part], ways, margin, drawing, depth + 1)


def _partner(polygons: list[Polygon], choice: str, margin: int) -> list[Polygon]:
    if choice == "same":
        return polygons
    if choice == "mark":
        return [_mark(polygon) for polygon in polygons]
    if choice == "nothing":
        return []
    left, bottom, right, top = bounds(polygons)
    return [box(left - margin, bottom - margin, right + margin, top + margin)]


def _mark(polygon: Polygon) -> Polygon:
    """Return a small box inside a polygon: in the middle of its first piece."""
    import klayout.db as db

    pieces = db.Polygon([db.Point(x, y) for x, y in polygon]).decompose_trapezoids()
    if not pieces:
        return polygon
    middle = pieces[0].bbox().center()
    size = max(1, min(pieces[0].bbox().width(), pieces[0].bbox().height()) // 8)
    return box(middle.x - size, middle.y - size, middle.x + size, middle.y + size)


def _difference(drawing: Drawing, wanted: Sequence[tuple[Expression, Sequence[Polygon]]]) -> float:
    """Return by how much area the expressions miss what is wanted; infinite where one cannot be computed."""
    regions = {layer: _region(shapes) for layer, shapes in drawing.items()}
    wrong = 0.0
    for expression, polygons in wanted:
        got = compute(expression, regions)
        if got is None:
            # Unknown operations are taken as they come; their figures still are layouts to run decks on.
            continue
        wrong += (got ^ _region(polygons)).area()
    return wrong


def _region(polygons: Sequence[Polygon]) -> Any:
    import klayout.db as db

    region = db.Region()
    for polygon in polygons:
        region.insert(db.Polygon([db.Point(x, y) for x, y in polygon]))
    return region.merged()


def compute(expression: Expression, regions: Mapping[LayerNumber, Any]) -> Any | None:
    """Return a derived layer's region for drawn regions; None where an operation is not one of selecting or joining."""
    import klayout.db as db

    if isinstance(expression, Drawn):
        return regions.get(expression.layer, db.Region())
    parts: list[Any] = [compute(part, regions) for part in expression.parts]
    if not parts or any(part is None for part in parts):
        return None
    if expression.name in ("holes", "hulls") and len(parts) == 1:
        return getattr(parts[0].merged(), expression.name)()
    if len(parts) != 2:
        return None
    operation = _COMPUTED.get(expression.name)
    return None if operation is None else operation(*parts).merged()


_COMPUTED: dict[str, Any] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a + b,
    "not": lambda a, b: a - b,
    "xor": lambda a, b: a ^ b,
    **{
        name: (lambda a, b, name=name: getattr(a.merged(), name)(b))
        for name in (
            "interacting", "not_interacting", "inside", "not_inside", "outside", "not_outside", "overlapping",
            "not_overlapping", "covering", "not_covering", "pull_interacting",
        )
    },
}  # fmt: skip
