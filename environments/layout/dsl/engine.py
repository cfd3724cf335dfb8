"""The layout as the operations see it, and the shapes as a report shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, Op
from orienteer.environments.layout.dsl.tree import DeckError
from orienteer.environments.layout.rdb import read_value
from orienteer.environments.layout.results import Points, Violation


class Source:
    """One layout, read once: the top cell that decks see, and collections of its layers."""

    def __init__(self, layout: Any, name: str = "") -> None:
        self.layout = layout
        self.dbu: float = layout.dbu
        self.name = name
        #: Results of operations on this layout (``plan.execute``).
        self.known: dict[Op, Any] = {}
        self._top: Any = None

    def cell(self, name: str | None, line: int = 0) -> Any:
        """Return the cell of this name, or the only top cell.

        Raises:
            DeckError: there is none, or more than one top cell (as KLayout says).
        """
        if name is not None:
            found = self.layout.cell(name)
            if found is None:
                raise DeckError(line, f"the cell {name!r} is not in the layout")
            return found
        if self._top is None:
            tops = self.layout.top_cells()
            if len(tops) != 1:
                what = "the layout has no cell" if not tops else "the layout has multiple top cells"
                raise DeckError(line, what)
            self._top = tops[0]
        return self._top

    def layers(self, wanted: tuple[Any, ...]) -> list[int]:
        """Return the layout's indices for ``(layer, datatype)`` or for texts like ``"1/0"``; empty for none."""
        if wanted and isinstance(wanted[0], str):
            from klayout import db

            found: list[int] = []
            for text in wanted:
                chosen = db.LayerMap()
                chosen.map(text, 0)
                found += [i for i in self.layout.layer_indexes() if chosen.is_mapped(self.layout.get_info(i))]
            return found
        index = self.layout.find_layer(*wanted)
        return [] if index is None else [index]


def count(op: Op, made: Any, source: Source) -> int:
    """Return how many items a report shows for a collection."""
    return int(_scanned(made, source).num_items()) if op.drawn else int(made.count())


def violations(op: Op, made: Any, source: Source) -> tuple[Violation, ...]:
    """Return a collection as a report shows it, in micrometres."""
    if op.drawn:
        return tuple(_drawn_values(made, source))
    return tuple(_value(shape, source.dbu, op.kind) for shape in made.each())


def _scanned(made: Any, source: Source) -> Any:
    """Return a report database that has scanned a collection.

    KLayout scans a collection that comes straight from the layout cell by cell: every cell's shapes once, however often
    the cell is placed, in the cell's own coordinates, with paths and texts as drawn.
    """
    from klayout import db, rdb

    database = rdb.ReportDatabase("")
    cell = database.create_cell("TOP")
    database.create_category("c").scan_collection(cell, db.CplxTrans(source.dbu), made)
    return database


def _drawn_values(made: Any, source: Source) -> Iterator[Violation]:
    """Yield the items of a collection that comes straight from the layout, perhaps."""
    for item in _scanned(made, source).each_item():
        for value in item.each_value():
            yield read_value(value.to_s())


def _micron(units: int, dbu: float) -> float:
    """Return a coordinate as a report file says it: twelve digits."""
    return float(f"{units * dbu:.12g}") + 0.0


def _edge(edge: Any, dbu: float) -> Points:
    return ((_micron(edge.x1, dbu), _micron(edge.y1, dbu)), (_micron(edge.x2, dbu), _micron(edge.y2, dbu)))


def _polygon(polygon: Any, dbu: float) -> tuple[Points, ...]:
    contours = [polygon.each_point_hull()] + [polygon.each_point_hole(i) for i in range(polygon.holes())]
    return tuple(tuple((_micron(p.x, dbu), _micron(p.y, dbu)) for p in one) for one in contours)


def _value(shape: Any, dbu: float, kind: str) -> Violation:
    if kind == POLYGONS:
        return Violation("polygon", _polygon(shape, dbu))
    if kind == EDGES:
        return Violation("edge", (_edge(shape, dbu),))
    if kind == EDGE_PAIRS:
        return Violation("edge-pair", (_edge(shape.first, dbu), _edge(shape.second, dbu)))
    # A text reads the same whichever way it comes to the report.
    from klayout import rdb

    return read_value(rdb.RdbItemValue(shape.to_dtype(dbu)).to_s())
