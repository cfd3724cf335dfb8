"""``connect`` and ``antenna_check``: nets by layers that touch, and the ratio of metal to gate on each net."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orienteer.environments.layout.dsl.plan import POLYGONS, Op
from orienteer.environments.layout.dsl.values import Arguments, Layer, Nothing, Word, describe

if TYPE_CHECKING:
    from orienteer.environments.layout.dsl.compiler import Deck


@dataclass
class Connections:
    """What a deck has connected so far: its layers in order of their first use, and pairs of them."""

    layers: list[Layer] = field(default_factory=list)
    #: What each layer was when it was first connected: nets are made of that.
    ops: list[Op] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def place(self, layer: Layer) -> int | None:
        """Return a layer's place, or None for one that is not connected."""
        for index, known in enumerate(self.layers):
            if known is layer:
                return index
        return None

    def enter(self, args: Arguments, layer: Layer) -> int:
        """Return a layer's place, a new one where it has none."""
        found = self.place(layer)
        if found is not None:
            if self.ops[found] is not layer.op:
                raise args.refuse("a connected layer that was changed since")
            return found
        self.layers.append(layer)
        self.ops.append(layer.op)
        return len(self.layers) - 1


def connect(deck: Deck, args: Arguments) -> Nothing:
    """Plan ``connect(a, b)``."""
    args.count(2, 2)
    deck.need_source(args)
    for value in args.values:
        if not isinstance(value, Layer) or value.kind != POLYGONS:
            raise args.refuse(f"{describe(value)}: only polygon layers are known here")
    first, second = (deck.connections.enter(args, value) for value in args.values)
    deck.connections.pairs.append((first, second))
    return Nothing("connect")


def clear(deck: Deck, args: Arguments) -> Nothing:
    """Plan ``clear_connections``."""
    args.count(0, 0)
    deck.connections = Connections()
    return Nothing("clear_connections")


def weighted(deck: Deck, args: Arguments) -> Word:
    """Return a gate or metal layer with the weights of its area and perimeter."""
    args.count(1 if args.name == "area_only" else 2, 1 if args.name == "area_only" else 2)
    factor = 0.0 if args.name == "area_only" else float(args.number(args.values[1]))
    area = 0.0 if args.name == "perimeter_only" else 1.0
    return Word("antenna area", (args.values[0], area, factor))


def check(deck: Deck, args: Arguments) -> Layer:
    """Plan ``antenna_check(gate, metal, ratio, diodes ...)``."""
    args.count(3, 20)
    known = deck.connections
    gate, metal = (_weighted(args, value) for value in args.values[:2])
    ratio = float(args.number(args.values[2]))
    diodes = [_weighted(args, value) for value in args.values[3:]]
    places: list[int] = []
    for layer, _, _ in (gate, metal, *diodes):
        found = known.place(layer)
        if found is None:
            raise args.refuse("a layer that is not connected")
        if known.ops[found] is not layer.op:
            raise args.refuse("a connected layer that was changed since")
        places.append(found)
    pairs, factors = tuple(known.pairs), (*gate[1:], *metal[1:])
    cell_name, line = deck.need_source(args).cell, args.line

    def run(source: Any, *regions: Any) -> Any:
        from klayout import db

        # One collection for each layer of the deck: nets tell them apart by what they are, not by their shapes.
        own = [region.dup() for region in regions]
        nets = db.LayoutToNetlist(source.cell(cell_name, line).name, source.dbu)
        for index, region in enumerate(own):
            nets.register(region, f"l{index}")
            nets.connect(region)
        for first, second in pairs:
            nets.connect(own[first], own[second])
        nets.extract_netlist()
        drains = [[own[place], 0.0] for place in places[2:]]
        found = nets.antenna_check(
            own[places[0]], factors[0], factors[1], own[places[1]], factors[2], factors[3], ratio, drains
        )
        # What it returns lives in the nets' own store, which ends with this call.
        made = db.Region()
        for polygon in found.each():
            made.insert(polygon)
        return made

    constants = (pairs, tuple(places), factors, ratio, cell_name)
    return Layer(POLYGONS, deck.planner.op("antenna_check", POLYGONS, tuple(known.ops), constants, run, line))


def _weighted(args: Arguments, value: Any) -> tuple[Layer, float, float]:
    layer, area, perimeter = value, 1.0, 0.0
    if isinstance(value, Word) and value.kind == "antenna area":
        layer, area, perimeter = value.value
    if not isinstance(layer, Layer):
        raise args.error(f"{describe(layer)} is no layer")
    if layer.kind != POLYGONS:
        raise args.refuse(f"{describe(layer)}: only polygon layers are known here")
    return layer, area, perimeter
