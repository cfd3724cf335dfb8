"""The embedded interpreter and KLayout's own engine report the same shapes, for every method the interpreter has.

The decks come from the interpreter's method table (``deck_samples.decks``), so that a new method is covered when it is
entered there. What the two versions of KLayout see differently is listed here and in docs/deck-subset.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from orienteer.environments.layout.results import DeckResult, RunStatus, Violation
from orienteer.errors import MissingPrerequisite

pytest.importorskip("klayout.db")

import deck_samples

from orienteer.environments.layout.py_runner import PyRunner
from orienteer.environments.layout.runner import DeckRunner, open_runner

#: Older KLayouts lack these; the engine then says that the method is undefined.
NEWER = frozenset({"interacting", "not_interacting"})
#: Edges on the border of a polygon are outside of it for 0.29 and later, and were partly inside before.
BORDER = frozenset(
    {"outside", "not_outside", "select_outside", "select_not_outside", "split_outside", "split_interacting"}
)
#: Rounded off differently on slanted sides.
SLANTED = frozenset({"smoothed"})


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeckRunner]:
    try:
        runner = open_runner("strmrun", cache=False, home=tmp_path_factory.mktemp("home"))
    except MissingPrerequisite as error:
        pytest.skip(f"KLayout's engine: {error}")
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


@settings(max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate])
@given(seed=st.integers(0, 10**6), dbu=st.sampled_from([0.001, 0.0005, 0.005]))
def test_every_method_reports_what_klayout_reports(engine: DeckRunner, folder: Path, seed: int, dbu: float) -> None:
    layout = folder / f"{seed}_{dbu}.gds"
    deck_samples.write_layout(layout, seed, dbu)
    decks = deck_samples.decks(seed)
    assert len(decks) > 300
    with PyRunner(like=engine.version) as embedded:
        ours = embedded.run_many([text for _, _, _, text in decks], [layout], geometry=True)
    theirs = engine.run_many([text for _, _, _, text in decks], [layout], geometry=True)
    compared, differ = 0, []
    for (name, kind, call, _), mine, real in zip(decks, ours, theirs, strict=True):
        if known_difference(name, kind, real[0]):
            continue
        compared += 1
        if not agree(mine[0], real[0], dbu):
            differ.append((call, told(mine[0]), told(real[0])))
    assert not differ
    assert compared > 300


@pytest.mark.parametrize("seed", range(3))
def test_antennas_are_those_of_klayout(engine: DeckRunner, folder: Path, seed: int) -> None:
    layout = folder / f"antenna{seed}.gds"
    dbu = (0.001, 0.0005, 0.005)[seed]
    deck_samples.write_layout(layout, seed + 1000, dbu)
    decks = [deck_samples.HEAD + "g = a & b\n" + lines for lines in deck_samples.ANTENNA]
    with PyRunner(like=engine.version) as embedded:
        ours = embedded.run_many(decks, [layout], geometry=True)
    theirs = engine.run_many(decks, [layout], geometry=True)
    assert all(mine[0].ok for mine in ours)
    assert sum(sum(mine[0].counts.values()) for mine in ours) > 0
    assert all(agree(mine[0], real[0], dbu) for mine, real in zip(ours, theirs, strict=True))


def known_difference(name: str, kind: str, real: DeckResult) -> bool:
    """Say whether the two versions are known to differ in a call."""
    if kind == "edge pairs" and name in NEWER:
        return real.status is RunStatus.ERROR and "undefined method" in real.message
    return (kind == "edges" and name in BORDER) or name in SLANTED


def agree(mine: DeckResult, real: DeckResult, dbu: float) -> bool:
    """Say whether two results are the same but for the order and for specks."""
    if mine.status is not real.status or dict(mine.descriptions) != dict(real.descriptions):
        return False
    if not mine.ok or mine.violations is None or real.violations is None:
        return mine.ok == real.ok
    if mine.violations.keys() != real.violations.keys():
        return False
    return all(same(mine.violations[name], real.violations[name], dbu) for name in mine.violations)


def same(mine: tuple[Violation, ...], real: tuple[Violation, ...], dbu: float) -> bool:
    """Say whether two lists of shapes are the same: as they are, or covering the same sides or the same area."""
    first, second = Counter(map(plain, mine)), Counter(map(plain, real))
    if all(speck(shape, dbu) for shape in ((first - second) + (second - first))):
        return True
    if {shape.kind for shape in (*mine, *real)} == {"edge-pair"}:
        # Where two layers share a side, the versions cut the same markers into other pieces.
        return bool((sides_of(mine, dbu) ^ sides_of(real, dbu)).is_empty())
    if len(mine) != len(real) or {shape.kind for shape in (*mine, *real)} != {"polygon"}:
        return False
    return bool((area_of(mine) ^ area_of(real)).is_empty())


def speck(shape: tuple[Any, ...], dbu: float) -> bool:
    """Say whether a marker has an edge of two units or less: the versions do not round slanted corners alike."""
    kind, contours, _ = shape
    return kind in ("edge", "edge-pair") and any(math.dist(first, second) < 2.1 * dbu for first, second in contours)


def plain(shape: Violation) -> tuple[Any, ...]:
    """Return a shape so that equal ones compare equal."""
    contours = shape.contours
    if shape.kind == "edge-pair":
        # Which of the two edges comes first is chance.
        contours = tuple(sorted(contours))
    elif shape.kind == "polygon" and any(len({point[axis] for point in contours[0]}) == 1 for axis in (0, 1)):
        # So is where a polygon without an area begins.
        contours = (tuple(sorted(contours[0])),)
    return shape.kind, contours, shape.text


def sides_of(shapes: tuple[Violation, ...], dbu: float) -> Any:
    from klayout import db

    made = db.Edges()
    for shape in shapes:
        if not speck(plain(shape), dbu):
            for (x1, y1), (x2, y2) in shape.contours:
                made.insert(db.DEdge(x1, y1, x2, y2).to_itype(1e-6))
    return made.merged()


def area_of(shapes: tuple[Violation, ...]) -> Any:
    from klayout import db

    made = db.Region()
    for shape in shapes:
        hull, *holes = ([db.DPoint(x, y) for x, y in contour] for contour in shape.contours)
        polygon = db.DPolygon(hull)
        for hole in holes:
            polygon.insert_hole(hole)
        made.insert(polygon.to_itype(1e-6))
    return made


def told(result: DeckResult) -> str:
    return f"{result.status} {result.message[:80]} {dict(result.counts)}"
