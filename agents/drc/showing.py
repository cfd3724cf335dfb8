"""The layouts that tell the chosen deck from each that was not, with pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.drc.asking import with_names
from orienteer.agents.drc.selectors import Book, Test
from orienteer.environments.layout.pictures import Panel, draw
from orienteer.environments.layout.results import Violation
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.tasks import RuleTask
from orienteer.memory.artifacts import ArtifactStore

#: Layouts drawn for one task.
_MOST = 8


def apart(book: Book, chosen: int) -> list[tuple[Test, list[int]]]:
    """Return the layouts that tell a deck from the others, each with the decks that it tells it from.

    For every other deck that runs it is the smallest layout on which the two differ; a deck that does the same on all
    layouts has none.
    """
    found: dict[int, list[int]] = {}
    for deck in book.decks:
        differing = [n for n, test in enumerate(book.tests) if test.answer(deck.index) != test.answer(chosen)]
        if deck.index == chosen or not deck.runs or not differing:
            continue
        found.setdefault(min(differing, key=lambda n: (book.tests[n].size, n)), []).append(deck.index)
    return [(book.tests[n], decks) for n, decks in sorted(found.items())]


def shown(
    task: RuleTask, book: Book, chosen: int, runner: DeckRunner, store: ArtifactStore, folder: Path
) -> list[dict[str, Any]]:
    """Draw the layouts of :func:`apart`, the chosen deck's markers beside another's, and return what they show.

    Args:
        task, book: the rule and what is known.
        chosen: a deck's index.
        runner: runs the decks for their markers.
        store: keeps layouts, and the pictures for the report.
        folder: where pictures and layouts are put.
    """
    names = {number: name for name, number in task.layers.items()}
    found = []
    for number, (test, others) in enumerate(apart(book, chosen)[:_MOST], 1):
        folder.mkdir(parents=True, exist_ok=True)
        layout = folder / f"{number}.gds"
        layout.write_bytes(store.get(test.layout))
        titles = (f"reading {chosen + 1} (chosen)", f"reading {others[0] + 1}")
        panels = [
            Panel(_title(title, marks), marks)
            for title, marks in (
                (title, _marks(runner, book.decks[index].text, layout, task.categories))
                for title, index in zip(titles, (chosen, others[0]), strict=True)
            )
        ]
        picture = draw(layout, panels, names)
        layout.with_suffix(".png").write_bytes(picture)
        found.append(
            {
                "about": with_names(test.about, names),
                "readings": [index + 1 for index in others],
                "layout": str(layout),
                "picture": store.put(base64.b64encode(picture).decode("ascii"), "text/plain"),
            }
        )
    return found


def _title(title: str, marks: Sequence[Violation]) -> str:
    return f"{title}: {len(marks) or 'no'} violation{'s' * (len(marks) != 1)}"


def _marks(runner: DeckRunner, deck: str, layout: Path, categories: Sequence[str]) -> list[Violation]:
    result = runner.run(deck, [layout], geometry=True)[0]
    return [shape for category in categories for shape in (result.violations or {}).get(category, ())]
