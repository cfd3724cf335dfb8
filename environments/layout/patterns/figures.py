"""Figures at a limit: the shapes on which readings of a rule part ways, in database units.

Every figure is the simplest that shows one thing: a gap of the limit less one unit, a corner to a corner, a notch, a
neighbour that only passes by. The subject is layer A, a partner layer B. Distances are whole database units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

#: Corner points of a hull in database units.
Polygon = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Figure:
    """Shapes of a subject A and a partner B.

    Attributes:
        about: what it shows, for a person.
        a, b: polygons.
    """

    about: str
    a: tuple[Polygon, ...] = ()
    b: tuple[Polygon, ...] = ()


@dataclass(frozen=True)
class Scale:
    """What the figures of one measurement are drawn with.

    Attributes:
        limit: the distance, database units.
        others: further distances at which candidates differ (other limits, conditions), database units.
        unit: micrometres of a database unit.
    """

    limit: int
    others: tuple[int, ...] = ()
    unit: float = 0.001
    large: int = field(default=0)

    @property
    def body(self) -> int:
        """A length that is well above every limit: the size of shapes that are not to be found fault with."""
        return self.large or 4 * max(self.limit, *self.others, 100)

    def near(self) -> list[int]:
        """Return the distances at and just beside the limits, ascending."""
        return sorted({d + e for d in (self.limit, *self.others) for e in (-1, 0, 1) if d + e > 0})

    def text(self, distance: float) -> str:
        """Return a distance in micrometres for a person."""
        return f"{distance * self.unit:.6g} um"


def box(left: int, bottom: int, right: int, top: int) -> Polygon:
    """Return a rectangle."""
    return ((left, bottom), (left, top), (right, top), (right, bottom))


def ring(left: int, bottom: int, right: int, top: int, wall: int) -> tuple[Polygon, ...]:
    """Return a frame as four rectangles that merge."""
    return (
        box(left, bottom, right, bottom + wall),
        box(left, top - wall, right, top),
        box(left, bottom, left + wall, top),
        box(right - wall, bottom, right, top),
    )


def _diagonal(limit: int) -> int:
    """Return the largest equal step in x and y whose length is below the limit."""
    step = math.isqrt(limit * limit // 2)
    while 2 * step * step >= limit * limit:
        step -= 1
    return max(step, 1)


def width(s: Scale) -> Iterator[Figure]:
    """Yield figures for the width of A."""
    body = s.body
    for d in s.near():
        yield Figure(f"bar {s.text(d)} wide", (box(0, 0, body, d),))
    v = s.limit
    step = _diagonal(v)
    for name, d in (("below", step), ("above", step + 1)):
        # Two bodies that overlap at a corner: the neck is measured across the corner only.
        about = f"neck across a corner, {s.text(math.hypot(d, d))} ({name} the limit)"
        yield Figure(about, (box(0, 0, body, body), box(body - d, body - d, 2 * body, 2 * body)))
    yield Figure("two squares that meet in a point", (box(0, 0, body, body), box(body, body, 2 * body, 2 * body)))
    yield Figure(f"frame with a wall of {s.text(max(v - 1, 1))}", ring(0, 0, body, body, max(v - 1, 1)))
    for name, d in (("below", v - 2), ("above", v + 2)):
        run = round(d * math.sqrt(2))
        if run > 0:
            yield Figure(
                f"bar at 45 degrees, width {name} the limit", (((0, 0), (body, body), (body + run, body), (run, 0)),)
            )
    yield Figure("triangle with a sharp tip", (((0, 0), (0, body), (3 * body, 0)),))
    if v > 2:
        yield Figure(f"square of {s.text(v - 1)}", (box(0, 0, v - 1, v - 1),))


def space(s: Scale) -> Iterator[Figure]:
    """Yield figures for the space within A."""
    body, v = s.body, s.limit
    for d in s.near():
        yield Figure(f"gap of {s.text(d)}", (box(0, 0, body, body), box(body + d, 0, 2 * body + d, body)))
    step = _diagonal(v)
    for name, d in (("below", step), ("above", step + 1)):
        about = f"corner to corner, {s.text(math.hypot(d, d))} ({name} the limit)"
        yield Figure(about, (box(0, 0, body, body), box(body + d, body + d, 2 * body + d, 2 * body + d)))
    under = max(v - 1, 1)
    yield Figure(
        f"corner to corner, {s.text(under)} apart in x and in y",
        (box(0, 0, body, body), box(body + under, body + under, 2 * body, 2 * body)),
    )
    for d in (under, v):
        arms = (
            box(0, 0, 2 * body + d, body),
            box(0, body, body, 2 * body),
            box(body + d, body, 2 * body + d, 2 * body),
        )
        yield Figure(f"notch of {s.text(d)} in one shape", arms)
    yield Figure(f"hole of {s.text(under)} in one shape", ring(0, 0, 2 * body + under, 2 * body + under, body))
    yield Figure("two shapes that touch", (box(0, 0, body, body), box(body, 0, 2 * body, body)))
    yield Figure("two shapes that meet in a corner", (box(0, 0, body, body), box(body, body, 2 * body, 2 * body)))
    yield Figure("two shapes that overlap", (box(0, 0, body, body), box(body - under, 0, 2 * body, body)))
    run = round(under * math.sqrt(2)) - 1
    if run > 0:
        first = ((0, 0), (0, body), (body, 0))
        second = ((body + run, 0), (run, body), (body + run, body))
        yield Figure("facing edges at 45 degrees, below the limit", (first, second))
    for share in s.others:
        if share > 1:
            for d in (share - 1, share):
                about = f"gap of {s.text(under)} along {s.text(d)} only"
                yield Figure(about, (box(0, 0, body, body), box(body + under, body - d, 2 * body, 2 * body - d)))
            for wide in (share, share + 1):
                about = f"gap of {s.text(under)} beside a shape {s.text(wide)} wide"
                yield Figure(about, (box(0, 0, wide, 3 * body), box(wide + under, 0, wide + under + body, 3 * body)))
    thin = max(v // 4, 1)
    yield Figure(
        f"long thin neighbour at {s.text(under)}",
        (box(0, 0, body, body), box(-2 * body, body + under, 4 * body, body + under + thin)),
    )


def separation(s: Scale) -> Iterator[Figure]:
    """Yield figures for the distance of B from A."""
    body, v = s.body, s.limit
    a = (box(0, 0, body, body),)
    for d in s.near():
        yield Figure(f"B {s.text(d)} from A", a, (box(body + d, 0, 2 * body + d, body),))
    step = _diagonal(v)
    for name, d in (("below", step), ("above", step + 1)):
        about = f"A and B corner to corner, {s.text(math.hypot(d, d))} ({name} the limit)"
        yield Figure(about, a, (box(body + d, body + d, 2 * body + d, 2 * body + d),))
    under = max(v - 1, 1)
    about = f"A and B corner to corner, {s.text(under)} apart in x and in y"
    yield Figure(about, a, (box(body + under, body + under, 2 * body, 2 * body),))
    yield Figure("A and B side by side, touching", a, (box(body, 0, 2 * body, body),))
    yield Figure("A and B that meet in a corner", a, (box(body, body, 2 * body, 2 * body),))
    yield Figure("B partly over A", a, (box(body // 2, body // 4, 2 * body, 3 * body // 4),))
    yield Figure("B within A", a, (box(body // 3, body // 3, 2 * body // 3, 2 * body // 3),))
    yield Figure("A within B", a, (box(-body, -body, 2 * body, 2 * body),))
    yield Figure("B in a hole of A, below the limit", ring(0, 0, 3 * body, 3 * body, body),
                 (box(body + under, body + under, 2 * body - under, 2 * body - under),))  # fmt: skip
    yield Figure("B across A", a, (box(-body, body // 3, 2 * body, 2 * body // 3),))
    yield Figure(f"two shapes of A {s.text(under)} apart, no B", (*a, box(body + under, 0, 2 * body, body)))
    yield Figure(f"two shapes of B {s.text(under)} apart, no A", (), (*a, box(body + under, 0, 2 * body, body)))


def enclosure(s: Scale) -> Iterator[Figure]:
    """Yield figures for the margin of A (outside) around B (inside)."""
    body, v = s.body, s.limit
    far = 2 * body
    inner = box(0, 0, body, body)
    for d in s.near():
        yield Figure(
            f"B in A with a margin of {s.text(d)} on one side", (box(-d, -far, body + far, body + far),), (inner,)
        )
    for d in (v - 1, v):
        if d > 0:
            yield Figure(f"B in A with a margin of {s.text(d)} all round", (box(-d, -d, body + d, body + d),), (inner,))
    step = _diagonal(v)
    for name, d in (("below", step), ("above", step + 1)):
        # A is an L whose inner corner looks at a corner of B.
        arms = (box(-far, -far, body + far, body + d), box(-far, body + d, body + d, body + far))
        about = f"corner of B at an inner corner of A, {s.text(math.hypot(d, d))} ({name} the limit)"
        yield Figure(about, arms, (inner,))
    yield Figure("B flush with the edge of A", (box(0, -far, body + far, body + far),), (inner,))
    yield Figure("B flush with A on two sides", (box(0, -far, body, body + far),), (inner,))
    yield Figure("A and B the same", (inner,), (inner,))
    under = max(v - 1, 1)
    yield Figure(f"B sticks out of A by {s.text(under)}", (box(under, -far, body + far, body + far),), (inner,))
    yield Figure("B half outside A", (box(body // 2, -far, body + far, body + far),), (inner,))
    yield Figure("B across A, out on both sides", (box(body // 3, -far, 2 * body // 3, body + far),), (inner,))
    yield Figure("B apart from A", (box(2 * body, 0, 3 * body, body),), (inner,))
    yield Figure(f"B outside A, {s.text(under)} away", (box(body + under, 0, 2 * body + under, body),), (inner,))
    yield Figure("B beside A, touching from outside", (box(body, 0, 2 * body, body),), (inner,))
    yield Figure("B alone", (), (inner,))
    yield Figure("A alone", (inner,))
    yield Figure("A within B", (box(body // 3, body // 3, 2 * body // 3, 2 * body // 3),), (inner,))
    yield Figure("B over two shapes of A that touch", (box(-far, -far, body // 2, body + far),
                 box(body // 2, -far, body + far, body + far)), (inner,))  # fmt: skip
    yield Figure("B over the hole of A", ring(-far, -far, body + far, body + far, far + body // 3), (inner,))


def overlap(s: Scale) -> Iterator[Figure]:
    """Yield figures for how deep A and B overlap."""
    body = s.body
    for d in s.near():
        yield Figure(
            f"A and B overlap by {s.text(d)}", (box(0, 0, body, body),), (box(body - d, -body, 2 * body, 2 * body),)
        )
        yield Figure(f"overlap of A and B is a bar of {s.text(d)}", (box(-body, 0, 2 * body, d),),
                     (box(0, -body, body, 2 * body),))  # fmt: skip
    v = s.limit
    step = _diagonal(v)
    for name, d in (("below", step), ("above", step + 1)):
        about = f"A and B overlap at a corner, {s.text(math.hypot(d, d))} ({name} the limit)"
        yield Figure(about, (box(0, 0, body, body),), (box(body - d, body - d, 2 * body, 2 * body),))
    yield from enclosure(s)


def area(s: Scale) -> Iterator[Figure]:
    """Yield figures for the area of A; ``limit`` is an area in square database units."""
    side = math.isqrt(s.limit)
    exact = _factors(s.limit)
    found = [
        ("just under", (side, max(s.limit // side - 1, 1) if side else 1)),
        ("just over", (side, s.limit // max(side, 1) + 1)),
    ]
    if exact is not None:
        found.append(("exactly at", exact))
    for name, (w, h) in found:
        if w > 0 and h > 0:
            yield Figure(f"rectangle with an area {name} the limit", (box(0, 0, w, h),))
            if w > 2:
                half = w // 2
                yield Figure(
                    f"two touching parts with an area {name} the limit", (box(0, 0, half, h), box(half, 0, w, h))
                )
            frame = max(w, h)
            yield Figure(f"hole with an area {name} the limit",
                         (box(-frame, -frame, w + frame, 0), box(-frame, h, w + frame, h + frame),
                          box(-frame, 0, 0, h), box(w, 0, w + frame, h)))  # fmt: skip
    yield Figure("large square", (box(0, 0, 4 * side + 4, 4 * side + 4),))
    yield Figure("small square", (box(0, 0, max(side // 4, 1), max(side // 4, 1)),))


def _factors(size: int) -> tuple[int, int] | None:
    """Return whole sides of a rectangle of exactly this area, the squarest; None where only a needle would do."""
    for side in range(math.isqrt(size), 0, -1):
        if size % side == 0:
            return (side, size // side) if size // side <= 20 * side else None
    return None


def shape(s: Scale) -> Iterator[Figure]:
    """Yield figures of A by their form: sizes, angles, corners, grid."""
    v, body = s.limit, s.body
    for d in s.near():
        yield Figure(f"square of {s.text(d)}", (box(0, 0, d, d),))
        yield Figure(f"rectangle {s.text(d)} x {s.text(2 * d)}", (box(0, 0, 2 * d, d),))
    yield Figure(f"rectangle {s.text(v)} x {s.text(v + 5)}", (box(0, 0, v, v + 5),))
    yield Figure("shape with an edge at 45 degrees", (((0, 0), (0, body), (body, body), (2 * body, 0)),))
    yield Figure("shape with an edge at 30 degrees", (((0, 0), (0, body), (round(body * math.sqrt(3)), 0)),))
    turns = [k * math.pi / 4 + 0.3 for k in range(8, 0, -1)]
    yield Figure("octagon", (tuple((round(body * math.cos(t)), round(body * math.sin(t))) for t in turns),))
    yield Figure("L shape", (box(0, 0, 2 * body, body), box(0, body, body, 2 * body)))
    yield Figure("rectangle off the grid by one unit", (box(1, 0, body + 1, body),))
    yield Figure("frame", ring(0, 0, 3 * body, 3 * body, body))


def density(s: Scale) -> Iterator[Figure]:
    """Yield A covering shares of a window in B's place; ``limit`` is the window's edge."""
    edge = max(s.limit, 1000)
    for share in (0, 10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 90, 100):
        bar = edge * share // 100
        bars = (box(0, 0, edge, bar),) if bar else ()
        yield Figure(
            f"{share} % of a window covered", (*bars, box(edge - 1, edge - 1, edge, edge)), (box(0, 0, edge, edge),)
        )


#: Figures of a measurement by the deck's word for it.
FIGURES: dict[str, Callable[[Scale], Iterator[Figure]]] = {
    "width": width,
    "space": space,
    "isolated": space,
    "notch": space,
    "separation": separation,
    "enclosing": enclosure,
    "enclosed": enclosure,
    "overlap": overlap,
    "with_area": area,
    "without_area": area,
    "with_density": density,
    "without_density": density,
}


def figures(name: str, scale: Scale) -> list[Figure]:
    """Return the figures for a measurement; those of forms where the word is not one of a distance."""
    return list(FIGURES.get(name, shape)(scale))


def bounds(polygons: Sequence[Polygon]) -> tuple[int, int, int, int]:
    """Return left, bottom, right, top of polygons (at least one)."""
    xs = [x for polygon in polygons for x, _ in polygon]
    ys = [y for polygon in polygons for _, y in polygon]
    return min(xs), min(ys), max(xs), max(ys)
