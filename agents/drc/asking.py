"""The question to an engineer: a layout, a picture of it with two verdicts, and what each takes the rule to mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orienteer.agents.drc.case import file_name
from orienteer.agents.drc.layouts import in_words
from orienteer.agents.drc.selectors import Book, Test
from orienteer.agents.runtime.method import Question
from orienteer.environments.layout.pictures import Panel, draw
from orienteer.environments.layout.results import Violation
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.tasks import LayerNumber, RuleTask

#: What may be answered.
VIOLATION, FINE, OTHER = "violation", "fine", "other"


def question(
    task: RuleTask, book: Book, test: Test, layout: Path, runner: DeckRunner, folder: Path, number: int
) -> Question:
    """Return the question whether a layout violates a rule, about the first category in which the decks differ.

    Args:
        task, book: the rule and what is known.
        test: the layout's answers.
        layout: its file.
        runner: runs the two decks that are shown for their markers.
        folder: where the picture and the layout are put.
        number: which question of the task it is.
    """
    category = differing(test)
    rule = next(rule.text for rule in task.rules if rule.category == category)
    yes, no = (_spokesman(book, test, category, bit) for bit in "10")
    marks = _marks(runner, book.decks[yes].text, layout, category)
    titles = (f"says violation: reading {yes + 1}", f"says fine: reading {no + 1}")
    names = {value: name for name, value in task.layers.items()}
    picture = folder / f"{file_name(task.id)}-{number + 1}.png"
    picture.write_bytes(draw(layout, [Panel(titles[0], marks), Panel(titles[1])], names))
    shown = folder / f"{file_name(task.id)}-{number + 1}{layout.suffix}"
    shown.write_bytes(layout.read_bytes())
    text = "\n".join(
        (
            f"rule {category}: {rule}",
            f"question {number + 1}: {with_names(test.about, names)}",
            *(f"  {line}" for line in in_words(layout, names).splitlines()),
            f"  violation, if {book.decks[yes].why or 'reading ' + str(yes + 1)}",
            f"  fine, if {book.decks[no].why or 'reading ' + str(no + 1)}",
            "does this layout violate the rule?",
        )
    )
    facts = {"category": category, "readings": {VIOLATION: yes, FINE: no}, "about": test.about}
    return Question(task.id, text, (VIOLATION, FINE, OTHER), (str(picture), str(shown)), facts)


def with_names(text: str, names: Mapping[LayerNumber, str]) -> str:
    """Return a text with layers called by their names instead of their numbers."""

    def name(match: re.Match[str]) -> str:
        return names.get((int(match[1]), int(match[2])), match[0])

    return re.sub(r"\b(\d+)/(\d+)\b", name, text)


def differing(test: Test) -> str:
    """Return the first category in which decks that ran differ on a layout."""
    return next((c for c, said in test.answers.items() if len(set(said) - {"N"}) > 1), next(iter(test.answers)))


def _spokesman(book: Book, test: Test, category: str, bit: str) -> int:
    """Return the likeliest deck that gives this answer."""
    said = test.answers[category]
    saying = [deck for deck in book.decks if said[deck.index] == bit] or list(book.decks)
    return max(saying, key=lambda deck: (deck.prior, -deck.index)).index


def _marks(runner: DeckRunner, deck: str, layout: Path, category: str) -> tuple[Violation, ...]:
    result = runner.run(deck, [layout], geometry=True)[0]
    return tuple((result.violations or {}).get(category, ()))
