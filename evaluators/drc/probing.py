"""Layouts on which decks differ: made from the decks, run, and boiled down to the few that matter.

:func:`probe` serves a pool of decks, :func:`smallest_difference` two of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orienteer.environments.layout.dsl.tree import DeckError, Program, Refusal
from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.patterns.expressions import checks, outputs
from orienteer.environments.layout.patterns.figures import Polygon, bounds, box
from orienteer.environments.layout.patterns.generating import Pattern, layers_of, patterns
from orienteer.environments.layout.results import DeckResult
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.tasks import LayerNumber
from orienteer.evaluators.drc.observed import Test, observed, telling

#: Micrometres of a database unit in layouts made here.
UNIT = 0.001
#: Changes made to a layout to make it smaller.
_MOST_CHANGES = 60
#: Random layouts added to those made from the decks.
_RANDOM = 128
#: Layouts made for a pool whose decks the embedded interpreter cannot run: each costs a run of KLayout a deck.
_MOST_SLOW = 96


@dataclass(frozen=True)
class Probed:
    """A layout with what decks say of it.

    Attributes:
        pattern: the layout.
        test: the answers.
    """

    pattern: Pattern
    test: Test


def programs(decks: Sequence[str]) -> list[Program | None]:
    """Return the decks' trees; None for a deck that the embedded interpreter does not take."""
    from orienteer.environments.layout.dsl.parser import parse

    found: list[Program | None] = []
    for deck in decks:
        try:
            found.append(parse(deck))
        except (Refusal, DeckError):
            found.append(None)
    return found


def probe(
    decks: Sequence[str], categories: Sequence[str], runner: DeckRunner, folder: Path, *, most: int = 48
) -> list[Probed]:
    """Return the layouts that tell the decks apart, the best first; none where nothing was found.

    Args:
        decks: their texts.
        categories: the wanted ones.
        runner: whose answers count. Where the embedded interpreter takes all decks, it looks through the layouts first
            and the runner gets those that matter.
        folder: where layout files are put.
        most: layouts returned at most.
    """
    trees = programs(decks)
    made = layouts_for([tree for tree in trees if tree is not None])
    kept = _first_look(decks, categories, made, folder, most) if all(trees) else made[:_MOST_SLOW]
    files = [file_of(pattern, folder / f"probe_{n:03d}.gds") for n, pattern in enumerate(kept)]
    tests = run_tests(decks, categories, runner, files, [p.about for p in kept], [p.size for p in kept])
    by_layout = {test.layout: pattern for test, pattern in zip(tests, kept, strict=True)}
    return [Probed(by_layout[test.layout], test) for test in telling(tests, range(len(decks)), most)]


def layouts_for(trees: Sequence[Program], *, seed: int = 0) -> list[Pattern]:
    """Return layouts on which decks may differ: made from what they measure, then a number of random ones."""
    rng = random.Random(seed)
    layers, near = list(layers_of(trees)), distances(trees)
    boxes = [random_pattern(rng, layers, near) for _ in range(_RANDOM)] if layers else []
    return patterns(trees, unit=UNIT) + boxes


def run_tests(
    decks: Sequence[str],
    categories: Sequence[str],
    runner: DeckRunner,
    files: Sequence[Path],
    about: Sequence[str] = (),
    sizes: Sequence[int] = (),
    names: Sequence[str] = (),
) -> list[Test]:
    """Run all decks on layouts and return a test for each; its ``layout`` is the given name, else the file's."""
    if not files:
        return []
    results = runner.run_many(list(decks), list(files))
    found = []
    for n, file in enumerate(files):
        answers, unknown = observed([results[deck][n] for deck in range(len(decks))], categories)
        found.append(
            Test(
                names[n] if names else str(file),
                answers,
                unknown=unknown,
                about=about[n] if about else "",
                size=sizes[n] if sizes else 0,
            )
        )
    return found


def _first_look(
    decks: Sequence[str], categories: Sequence[str], made: Sequence[Pattern], folder: Path, most: int
) -> list[Pattern]:
    """Return the layouts on which the embedded interpreter finds the decks to differ."""
    from orienteer.environments.layout.py_runner import PyRunner

    files = [file_of(pattern, folder / f"look_{n:03d}.gds") for n, pattern in enumerate(made)]
    with PyRunner() as quick:
        tests = run_tests(decks, categories, quick, files, sizes=[pattern.size for pattern in made])
    for file in files:
        file.unlink(missing_ok=True)
    by_layout = {test.layout: pattern for test, pattern in zip(tests, made, strict=True)}
    return [by_layout[test.layout] for test in telling(tests, range(len(decks)), most)]


# -- two decks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """The smallest layout that was found on which two decks differ.

    Attributes:
        pattern: the layout.
        first, second: what the decks report on it.
        tried: layouts looked at before it was found, and while it was made smaller.
    """

    pattern: Pattern
    first: DeckResult
    second: DeckResult
    tried: int


def smallest_difference(
    first: str, second: str, runner: DeckRunner, folder: Path, *, seed: int = 0, most: int = 2000
) -> tuple[Difference | None, int]:
    """Return the smallest layout found on which two decks report differently, and how many layouts were looked at.

    Layouts made from the decks' own measurements come first, then random ones at the same distances. What is found is
    made smaller as long as the decks still differ: shapes are left out, then drawn in. Not to find one is no proof.

    Args:
        first, second: the decks' texts.
        runner: whose answers count.
        folder: where layout files are put.
        seed: of the random layouts.
        most: layouts looked at at most.
    """
    trees = [tree for tree in programs([first, second]) if tree is not None]
    tried = 0
    found: Pattern | None = None

    def differ(batch: Sequence[Pattern]) -> Pattern | None:
        nonlocal tried
        tried += len(batch)
        pairs = _both(first, second, runner, folder, batch)
        apart = [pattern for pattern, (a, b) in zip(batch, pairs, strict=True) if unlike(a, b)]
        return min(apart, key=_how_large) if apart else None

    for batch in _batches(patterns(trees, unit=UNIT), 64):
        found = differ(batch)
        if found is not None:
            break
    rng = random.Random(seed)
    layers = list(layers_of(trees))
    near = distances(trees)
    while found is None and tried < most and layers:
        found = differ([random_pattern(rng, layers, near) for _ in range(64)])
    if found is None:
        return None, tried
    found = _shrunk(found, differ, min(distances(trees)))
    a, b = _both(first, second, runner, folder, [found], geometry=True)[0]
    return Difference(found, a, b, tried), tried


def _both(
    first: str, second: str, runner: DeckRunner, folder: Path, batch: Sequence[Pattern], *, geometry: bool = False
) -> list[tuple[DeckResult, DeckResult]]:
    files = [file_of(pattern, folder / f"split_{n:03d}.gds") for n, pattern in enumerate(batch)]
    one, two = runner.run_many([first, second], files, geometry=geometry)
    return list(zip(one, two, strict=True))


def unlike(a: DeckResult, b: DeckResult) -> bool:
    """Say whether two results differ in who is flagged; a failed run differs from one that is none."""
    if a.ok != b.ok:
        return True
    flagged = [{name for name, count in result.counts.items() if count} for result in (a, b)]
    return flagged[0] != flagged[1] if set(a.counts) & set(b.counts) or not (a.counts and b.counts) else (
        bool(flagged[0]) != bool(flagged[1])
    )  # fmt: skip


def _how_large(pattern: Pattern) -> tuple[int, int]:
    """Return corners and summed extent of a layout's shapes: what makes it large to look at."""
    extents = (bounds([polygon]) for polygons in pattern.shapes.values() for polygon in polygons)
    return pattern.size, sum(right - left + top - bottom for left, bottom, right, top in extents)


def _shrunk(pattern: Pattern, differ: Callable[[Sequence[Pattern]], Pattern | None], least: int) -> Pattern:
    """Return a smaller layout on which the decks still differ: one change at a time, until none helps.

    No side of a box is made shorter than ``least`` database units: specks are small, but nobody can read them.
    """
    for _ in range(_MOST_CHANGES):
        changed = (_without_one(pattern), _boxed(pattern), _cut(pattern, least))
        smaller = next((found for batch in changed if batch and (found := differ(batch)) is not None), None)
        if smaller is None or _how_large(smaller) >= _how_large(pattern):
            break
        pattern = smaller
    return pattern


def _cut(pattern: Pattern, least: int) -> list[Pattern]:
    """Return the layout with one side of one box drawn in, by a half or a quarter."""
    found = []
    for layer, polygons in pattern.shapes.items():
        for n, polygon in enumerate(polygons):
            left, bottom, right, top = bounds([polygon])
            if polygon != box(left, bottom, right, top):
                continue
            for share in (2, 4):
                across, up = (right - left) // share, (top - bottom) // share
                for new in (
                    (left + across, bottom, right, top),
                    (left, bottom, right - across, top),
                    (left, bottom + up, right, top),
                    (left, bottom, right, top - up),
                ):
                    wide, high = new[2] - new[0], new[3] - new[1]
                    if (wide >= least or wide == right - left) and (high >= least or high == top - bottom):
                        shapes = {**pattern.shapes, layer: (*polygons[:n], box(*new), *polygons[n + 1 :])}
                        found.append(Pattern(pattern.about, shapes))
    return found


def _without_one(pattern: Pattern) -> list[Pattern]:
    found = []
    for layer, polygons in pattern.shapes.items():
        for n in range(len(polygons)):
            rest = polygons[:n] + polygons[n + 1 :]
            shapes = {**pattern.shapes, layer: rest}
            kept = {name: value for name, value in shapes.items() if value}
            if kept:
                found.append(Pattern(pattern.about, kept))
    return found


def _boxed(pattern: Pattern) -> list[Pattern]:
    """Return the layout with fewer corners: polygons of more than four replaced by their boxes."""
    found = []
    for layer, polygons in pattern.shapes.items():
        for n, polygon in enumerate(polygons):
            if len(polygon) > 4:
                changed = (*polygons[:n], box(*bounds([polygon])), *polygons[n + 1 :])
                found.append(Pattern(pattern.about, {**pattern.shapes, layer: changed}))
    return found


def distances(trees: Sequence[Program]) -> list[int]:
    """Return distances in database units that decks measure, each with its neighbours."""
    found = {
        round(length / UNIT)
        for tree in trees
        for output in outputs(tree)
        for check in checks(output)
        for length in check.lengths
        if 0 < length < 1e4
    }
    return sorted({d + e for d in found or {100} for e in (-1, 0, 1) if d + e > 0})


def random_pattern(rng: random.Random, layers: Sequence[LayerNumber], near: Sequence[int]) -> Pattern:
    """Return a layout of a few boxes on a grid of distances, database units."""
    steps = [0, *near, *(2 * d for d in near), 4 * max(near)]

    def place() -> int:
        return rng.choice(steps) + rng.choice(steps)

    shapes: dict[LayerNumber, tuple[Polygon, ...]] = {}
    for layer in rng.sample(list(layers), rng.randint(1, len(layers))):
        boxes = []
        for _ in range(rng.randint(1, 3)):
            left, bottom = place(), place()
            boxes.append(box(left, bottom, left + rng.choice(steps[1:]), bottom + rng.choice(steps[1:])))
        shapes[layer] = tuple(boxes)
    return Pattern("boxes at the decks' distances", shapes)


def _batches(items: Sequence[Pattern], size: int) -> list[Sequence[Pattern]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def file_of(pattern: Pattern, path: Path) -> Path:
    """Write a pattern as a layout file and return its path."""
    shapes: Mapping[LayerNumber, Any] = pattern.shapes
    write_layout(path, shapes, dbu=UNIT)
    return path
