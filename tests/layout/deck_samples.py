"""Decks and layouts for comparing the embedded interpreter with KLayout, made from the interpreter's method table."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from orienteer.environments.layout.dsl.methods import EXTRA_SAMPLES, METHODS
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, TEXTS

#: What a sample may be called on, by kind; the layers are set up by ``HEAD``.
RECEIVERS = {
    POLYGONS: ("a", "b.sized(0.02.um)", "a.or(b)"),
    EDGES: ("a.edges", "b.edges.not(c)"),
    EDGE_PAIRS: ("a.space(0.3.um)", "b.width(0.25.um, projection)"),
    TEXTS: ("t",),
}
_OTHERS = {
    "P": ("b", "c", "b.or(c)", "b", "c", "none"),
    "E": ("b.edges", "c.edges"),
    "D": ("b.space(0.25.um)",),
    "T": ("t",),
}
_LETTER = {POLYGONS: "P", EDGES: "E", EDGE_PAIRS: "D", TEXTS: "T"}
LENGTHS = ("0.1.um", "0.12.um", "60.nm", "0.2.um", "150", "0.07")
AREAS = ("0.03.um2", "0.1.um2", "0.01", "40000")

HEAD = """source($input)
report("generated", $output)
a = input(1, 0)
b = input(2, 0)
c = input(3, 0)
t = labels(4, 0)
none = input(99, 0)
"""

#: Nets: what is connected, and the ratio of metal to gate on them.
ANTENNA = (
    "connect(g, a)\nconnect(a, c)\nantenna_check(g, c, 1.0).output('A')\n",
    "connect(g, a)\nconnect(a, c)\nantenna_check(g, c, 0.5).output('A')\n"
    "connect(c, b)\nantenna_check(g, b, 2).output('B')\n",
    "connect(g, a)\nconnect(a, c)\n"
    "antenna_check(area_and_perimeter(g, 0.1), perimeter_only(c, 0.5.um), 1.0).output('A')\n",
    "connect(a, b)\nconnect(b, c)\nantenna_check(a, area_only(c), 1.0, b).output('A')\n",
    "connect(g, a)\nantenna_check(g, a, 3).output('A')\n"
    "clear_connections\nconnect(g, b)\nantenna_check(g, b, 3).output('B')\n",
    "d = input(1, 0)\nconnect(g, a)\nconnect(g, d)\n"
    "antenna_check(g, a, 1).output('A')\nantenna_check(g, d, 1).output('B')\n",
)


def calls() -> Iterator[tuple[str, str, str]]:
    """Yield every sample: the method, the kind it is called on, and the call with places left open."""
    for method in METHODS.values():
        for kind in method.kinds:
            for sample in method.samples:
                yield method.name, kind, sample.replace("{m}", method.name)
    for kind, samples in EXTRA_SAMPLES.items():
        for sample in samples:
            yield sample[1:].split("(")[0], kind, sample


def filled(call: str, kind: str, chance: random.Random) -> str:
    """Fill the open places of a sample."""
    for letter, layers in _OTHERS.items():
        while "{" + letter + "}" in call:
            call = call.replace("{" + letter + "}", chance.choice(layers), 1)
    call = call.replace("{S}", chance.choice(_OTHERS[_LETTER[kind]]))
    while "{d}" in call:
        call = call.replace("{d}", chance.choice(LENGTHS), 1)
    return call.replace("{a}", chance.choice(AREAS))


def decks(seed: int) -> list[tuple[str, str, str, str]]:
    """Return a deck for every sample: the method, the kind of layer, the call, and the deck."""
    chance = random.Random(seed)
    made = []
    for name, kind, sample in calls():
        call = filled(sample, kind, chance)
        receiver = chance.choice(RECEIVERS[kind])
        text = f'x = {receiver}\ny = x{call}\ny.output("Y.1", "what the call gives")\nx.output("X")\n'
        made.append((name, kind, receiver + call, HEAD + text))
    return made


def write_layout(path: Path, seed: int, dbu: float = 0.001) -> None:
    """Write a layout with boxes, L and U shapes, slopes, holes, paths, texts, overlaps, shapes that touch at a side,
    shapes exactly at a limit and one unit off it, and a placed cell: turned, mirrored, in an array.
    """
    from klayout import db

    chance = random.Random(seed)
    slots: list[int] = []

    def at() -> int:
        return chance.randrange(1200)

    def side() -> int:
        return chance.randrange(30, 390)

    def polygon(x: int, y: int, corners: list[tuple[int, int]]) -> db.Polygon:
        return db.Polygon([db.Point(x + p, y + q) for p, q in corners])

    def shape() -> db.Polygon | db.Box | db.Path:
        x, y, w, h = at(), at(), side(), side()
        n = max(11, min(w, h) // 3)
        kind = chance.randrange(9)
        if kind == 3:
            return polygon(x, y, [(0, 0), (0, h), (w, h + w), (w, 0)])
        if kind == 4:
            return polygon(x, y, [(0, 0), (0, h + 3 * n), (n, h + 3 * n), (n, n), (n + w, n), (n + w, 0)])
        if kind == 5:
            u = [(0, 0), (0, h + n), (n, h + n), (n, n), (2 * n + w, n), (2 * n + w, h + n), (3 * n + w, h + n)]
            return polygon(x, y, [*u, (3 * n + w, 0)])
        if kind == 6:
            frame = db.Polygon(db.Box(x, y, x + w + 60, y + h + 60))
            frame.insert_hole(db.Box(x + 21, y + 31, x + w + 33, y + h + 22))
            return frame
        if kind == 7:
            points = [db.Point(x, y), db.Point(x + w + 50, y), db.Point(x + w + 50, y + h + 50)]
            return db.Path(points, 2 * chance.randrange(10, 40))
        if kind == 8:
            # Where slanted sides cross others, corners are rounded, and not alike by all versions: a place of its own.
            slots.append(x)
            return polygon(2200 + 500 * len(slots), y, [(0, 0), (chance.randrange(3, w), h), (w, h // 3 + 1)])
        return db.Box(x, y, x + w, y + h)

    layout = db.Layout()
    layout.dbu = dbu
    top = layout.create_cell("TOP")
    child = layout.create_cell("CHILD")
    for number in (1, 2, 3):
        layer = layout.layer(number, 0)
        for _ in range(chance.randrange(7) + (number < 3)):
            top.shapes(layer).insert(shape())
        if chance.random() < 0.6:
            x, y, w = at(), at(), side()
            top.shapes(layer).insert(db.Box(x, y, x + w, y + 80))
            top.shapes(layer).insert(db.Box(x + w, y, x + w + 90, y + 121))
        if chance.random() < 0.6:
            x, y, limit = at(), at(), round(chance.choice((100, 120, 60, 200, 150, 70)) * 0.001 / dbu)
            gap = limit + chance.randrange(-1, 2)
            top.shapes(layer).insert(db.Box(x, y, x + gap, y + 333))
            top.shapes(layer).insert(db.Box(x + 2 * gap, y + 17, x + 2 * gap + limit, y + 222))
        if chance.random() < 0.5:
            child.shapes(layer).insert(db.Box(0, 0, side(), side()))
    texts = layout.layer(4, 0)
    for index in range(chance.randrange(4)):
        top.shapes(texts).insert(db.Text(f"A{index}", db.Trans(db.Vector(at(), at()))))
    where = db.Trans(chance.randrange(4), chance.random() < 0.3, db.Vector(at(), at()))
    step = 20 + side()
    top.insert(db.CellInstArray(child.cell_index(), where, db.Vector(step, 0), db.Vector(0, step + 7), 2, 2))
    if chance.random() < 0.4:
        top.insert(db.CellInstArray(child.cell_index(), db.Trans(db.Vector(at(), at()))))
    layout.write(str(path))
