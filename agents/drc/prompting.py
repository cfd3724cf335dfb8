"""What a model is asked and what is accepted. The prompts are the text files beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from orienteer.agents.drc.selectors import Book, Want
from orienteer.agents.runtime.models import ModelRequest
from orienteer.environments.layout.tasks import RuleTask

#: Layouts shown as evidence in one question, and characters of a deck.
_MOST_EVIDENCE, _MOST_DECK = 24, 12_000
_CODE: dict[str, Any] = {"type": "string", "minLength": 1}
DECK: dict[str, Any] = {
    "type": "object",
    "properties": {"deck": _CODE, "reading": {"type": "string"}},
    "required": ["deck"],
    "additionalProperties": False,
}
SCRIPT: dict[str, Any] = {
    "type": "object",
    "properties": {"script": _CODE, "expected": {"enum": ["PASS", "VIOLATION"]}},
    "required": ["script"],
    "additionalProperties": False,
}


@cache
def prompt(name: str) -> str:
    """Return a prompt file's text."""
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def spec(task: RuleTask) -> str:
    """Return the task in words: description, obligations, layers, rules with their categories."""
    layers = "\n".join(
        f"- {name}: layer {layer}, datatype {datatype}" for name, (layer, datatype) in task.layers.items()
    )
    rules = "\n".join(f'- {rule.text} -> category "{rule.category}"' for rule in task.rules)
    return prompt("spec").format(description=task.description, title=task.title or task.id, layers=layers, rules=rules)


def deck_request(task: RuleTask, reference: str, sample: int, **options: Any) -> ModelRequest:
    """Build the request for one deck.

    Args:
        task: what is wanted.
        reference: text on the deck language to put before it; empty for none.
        sample: which draw this is.
        options: ``seed``, ``max_tokens``, ``temperature`` of the call.
    """
    text = prompt("deck").format(spec=spec(task))
    if reference:
        text = prompt("reference").format(reference=reference) + text
    return _request("system", text, DECK, "deck", f"{task.id}/deck/{sample}", options)


def suite_request(
    task: RuleTask, most: int, last: tuple[str, str] | None, attempt: int, **options: Any
) -> ModelRequest:
    """Build the request for the script of the shared tests; ``last`` is the failed script and what it printed."""
    text = prompt("suite").format(spec=spec(task), most=most, categories=", ".join(task.categories)) + _retry(last)
    return _request("system", text, SCRIPT, "layouts", f"{task.id}/suite/{attempt}", options)


def layouts_request(
    task: RuleTask, book: Book, want: Want, evidence: str, last: tuple[str, str] | None, attempt: int, **options: Any
) -> ModelRequest:
    """Build the request for a script that draws a layout on which these decks differ."""
    text = prompt("split").format(spec=spec(task), decks=_decks(book, want.decks), most=want.most, evidence=evidence)
    return _request(
        "system", text + _retry(last), SCRIPT, "layouts", f"{task.id}/{want.name}/{want.step}/{attempt}", options
    )


def choice_request(task: RuleTask, book: Book, want: Want, shown: Mapping[int, str], **options: Any) -> ModelRequest:
    """Build the request for a choice among decks.

    Args:
        task: what is wanted.
        book: decks and tests.
        want: the choice.
        shown: layouts in words by the tests' positions.
        options: as for :func:`deck_request`.
    """
    last = len(want.decks) - 1 + bool(want.facts.get("tie"))
    properties: dict[str, Any] = {
        "choice": {"type": "integer", "minimum": 0, "maximum": last},
        "why": {"type": "string"},
    }
    required = ["choice"]
    rule = f"a number from 0 to {len(want.decks) - 1}"
    if want.facts.get("tie"):
        rule += f", or {len(want.decks)} where you cannot tell"
    if want.name == "decide" and want.facts.get("left"):
        # One may also ask for another layout.
        properties |= {"script": {"type": "string"}}
        required = []
        rule += "; or, where the layouts do not settle it, a script that draws another layout"
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    text = prompt("choice").format(
        spec=spec(task), decks=_decks(book, want.decks), evidence=_evidence(task, book, want, shown), rule=rule
    )
    return _request("system", text, schema, "choice", f"{task.id}/{want.name}/{want.step}", options)


def label_request(task: RuleTask, layout: str, about: str, vote: int, want: Want, **options: Any) -> ModelRequest:
    """Build the request for what is right on a layout; no deck is shown, so that no deck can talk anybody into it."""
    schema = {
        "type": "object",
        "properties": {category: {"enum": ["violation", "fine", "unclear"]} for category in task.categories}
        | {"why": {"type": "string"}},
        "required": list(task.categories),
        "additionalProperties": False,
    }
    text = prompt("label").format(spec=spec(task), layout=layout, about=about, categories=", ".join(task.categories))
    return _request("system", text, schema, "label", f"{task.id}/label/{want.facts.get('test')}/{vote}", options)


def _request(
    system: str, text: str, schema: dict[str, Any], name: str, sample: str, options: Mapping[str, Any]
) -> ModelRequest:
    return ModelRequest(
        messages=(("system", prompt(system)), ("user", text)), schema=schema, schema_name=name, sample=sample, **options
    )


def _decks(book: Book, decks: Sequence[int]) -> str:
    return "\n\n".join(
        f"[{position}]\n<deck>\n{book.decks[index].text[:_MOST_DECK].strip()}\n</deck>"
        for position, index in enumerate(decks)
    )


def _evidence(task: RuleTask, book: Book, want: Want, shown: Mapping[int, str]) -> str:
    """Return layouts with what each deck reports on them, per category."""
    parts = []
    for position in want.tests[:_MOST_EVIDENCE]:
        test = book.tests[position]
        said = "\n".join(
            f"deck {n}: " + ", ".join(f"{c} {_WORDS[test.answers[c][index]]}" for c in task.categories)
            for n, index in enumerate(want.decks)
        )
        parts.append(f"<layout>\n{shown.get(position, '')}\n</layout>\n{said}")
    return "\n\n".join(parts) or "(there is no layout on which they differ)"


_WORDS = {"0": "PASS", "1": "VIOLATION", "N": "ERROR"}


def _retry(last: tuple[str, str] | None) -> str:
    return "" if last is None else prompt("retry").format(script=last[0], output=last[1])
