"""One task in a run: what is kept of it between steps, and the book that a selection reads."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orienteer.agents.drc.selectors import Answer, Book, Chosen, Deck, Test, Want
from orienteer.agents.runtime.method import Plain
from orienteer.agents.runtime.run import Run
from orienteer.environments.layout.tasks import LabelledLayout, Rule, RuleTask


def task_document(task: RuleTask) -> Plain:
    """Return a task as plain data."""
    return {
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "layers": {name: list(number) for name, number in task.layers.items()},
        "rules": [[rule.text, rule.category] for rule in task.rules],
        "categories": list(task.categories),
        "layouts": [[str(item.path), {c: int(v) for c, v in item.labels.items()}] for item in task.layouts],
        "gold": None if task.gold is None else str(task.gold),
    }


def task_from(document: Mapping[str, Any]) -> RuleTask:
    """Rebuild a task from :func:`task_document`."""
    return RuleTask(
        id=document["id"],
        title=document["title"],
        description=document["description"],
        layers={name: (number[0], number[1]) for name, number in document["layers"].items()},
        rules=tuple(Rule(text, category) for text, category in document["rules"]),
        categories=tuple(document["categories"]),
        layouts=tuple(
            LabelledLayout(Path(path), {c: bool(v) for c, v in labels.items()}) for path, labels in document["layouts"]
        ),
        gold=None if document["gold"] is None else Path(document["gold"]),
    )


def fresh(task: RuleTask, wanted: int) -> Plain:
    """Return the state of a task that nothing was done for yet; ``wanted`` decks are asked for first."""
    return {"phase": "decks", "wanted": wanted, "decks": [], "answers": [], "want": None, "chosen": None}


def pool_key(state: Mapping[str, Any]) -> str:
    """Return what the answers of a pool depend on: its decks, in order."""
    return hashlib.sha256(json.dumps([deck["sha"] for deck in state["decks"]]).encode()).hexdigest()[:16]


def deck_texts(run: Run, state: Mapping[str, Any]) -> list[str]:
    """Return the sources of a pool."""
    return [run.artifacts.text(deck["sha"]) for deck in state["decks"]]


def book_of(run: Run, state: Mapping[str, Any]) -> Book:
    """Return what a selection knows of a task."""
    decks = tuple(
        Deck(n, run.artifacts.text(deck["sha"]), deck["runs"], deck["prior"], deck["why"])
        for n, deck in enumerate(state["decks"])
    )
    answers = tuple(answer_from(json.loads(run.artifacts.text(sha))) for sha in state["answers"])
    return Book(decks, run.seed, answers)


def want_document(want: Want) -> Plain:
    """Return a want as plain data."""
    found = asdict(want)
    return found | {"decks": list(want.decks), "tests": list(want.tests), "facts": dict(want.facts)}


def want_from(document: Mapping[str, Any]) -> Want:
    """Rebuild a want from :func:`want_document`."""
    return Want(**{**document, "decks": tuple(document["decks"]), "tests": tuple(document["tests"])})


def answer_document(answer: Answer) -> Plain:
    """Return an answer as plain data."""
    return {
        "want": list(answer.want),
        "tests": [test.document() for test in answer.tests],
        "choice": answer.choice,
        "failure": answer.failure,
        "expected": dict(answer.expected),
        "doubt": answer.doubt,
        "facts": dict(answer.facts),
    }


def answer_from(document: Mapping[str, Any]) -> Answer:
    """Rebuild an answer from :func:`answer_document`."""
    return Answer(
        want=(document["want"][0], document["want"][1]),
        tests=tuple(Test.from_document(test) for test in document["tests"]),
        choice=document["choice"],
        failure=document["failure"],
        expected=document["expected"],
        doubt=document["doubt"],
        facts=document["facts"],
    )


def chosen_document(chosen: Chosen) -> Plain:
    """Return a choice as plain data."""
    return {"deck": chosen.deck, "why": chosen.why, "scores": list(chosen.scores), "facts": dict(chosen.facts)}


def file_name(name: str) -> str:
    """Return a task's name as one part of a path: of its own for every task, and never outside the folder."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80]
    if plain == name and plain.strip("."):
        return plain
    return f"{plain.lstrip('._')}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
