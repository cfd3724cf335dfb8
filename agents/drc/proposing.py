"""Who answers what a selection wants: the decks' own measurements, a model, an engineer, or nobody."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orienteer.agents.drc import asking, layouts, prompting
from orienteer.agents.drc.selectors import Book, Test, Want
from orienteer.agents.runtime.method import AskPerson, Proposal, ProposalFailed
from orienteer.agents.runtime.models import ModelFailure, ModelSession, code_from
from orienteer.environments.execution.sandbox import Sandbox
from orienteer.environments.layout.results import RunStatus
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.scripts import expected_bit, run_script
from orienteer.environments.layout.tasks import RuleTask
from orienteer.evaluators.drc.probing import Probed, probe
from orienteer.memory.artifacts import ArtifactStore

#: Who says what is right on a layout.
Answers = Literal["person", "model", "gold", "nobody"]
#: A script that failed is asked for again this often, as published.
RETRIES = 5
#: How wrong a label may be: an engineer's, the reference deck's, a model's when all its votes agree, when most do.
DOUBT = {"person": 0.02, "gold": 0.0, "all": 0.08, "most": 0.25}


@dataclass
class Desk:
    """What the answers of one task are made with.

    Attributes:
        task: the rule.
        runner: runs decks.
        sandbox: runs scripts.
        folder: the task's own folder in the run.
        model: whom to ask; None offline.
        options: ``seed``, ``max_tokens``, ``temperature`` of model calls.
        answers: who says what is right.
        votes: how often a model is asked for a label.
        seed: the run's.
        artifacts: keeps layouts.
        cancel: set when the run is to stop.
    """

    task: RuleTask
    runner: DeckRunner
    sandbox: Sandbox
    folder: Path
    model: ModelSession | None
    options: Mapping[str, Any]
    answers: Answers
    votes: int
    seed: int
    artifacts: ArtifactStore
    cancel: threading.Event

    def place(self, name: str) -> Path:
        """Return a folder of the task, made on first use."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def answer(desk: Desk, book: Book, want: Want) -> Proposal:
    """Return what was wanted, as a candidate.

    Raises:
        ProposalFailed: there is none, and why.
        AskPerson: the engineer has to say.
    """
    if want.kind == "label":
        return _label(desk, book, want)
    if want.kind == "choice":
        return _choice(desk, book, want)
    if desk.model is None or want.name == "probe":
        return _drawn(desk, book, want)
    return _script(desk, book, want)


# -- layouts -----------------------------------------------------------------------------------------------------------


def _drawn(desk: Desk, book: Book, want: Want) -> Proposal:
    """Draw layouts from the decks' own measurements; a label is what the likelier decks say, if one is wanted."""
    indices = list(want.decks) or [deck.index for deck in book.decks if deck.runs]
    texts = [book.decks[index].text for index in indices]
    known = {test.about + str(test.size) for test in book.tests}
    found: list[Probed] = []
    if len(texts) > 1:
        desk.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="probe-", dir=desk.folder) as folder:
            found = probe(texts, desk.task.categories, desk.runner, Path(folder), most=want.most + len(known))
    fresh = [item for item in found if item.pattern.about + str(item.pattern.size) not in known][: want.most]
    if not fresh:
        raise ProposalFailed("nothing-splits", "no layout was found on which these decks differ")
    text = layouts.content([item.pattern for item in fresh])
    return Proposal(text, _notes(want, maker="measurements"), "application/json")


def _script(desk: Desk, book: Book, want: Want) -> Proposal:
    """Have the model write a script that draws layouts; what fails goes back to it, with what it printed."""
    assert desk.model is not None
    last: tuple[str, str] | None = None
    ready = str(want.facts.get("script") or "")
    for attempt in range(1 + RETRIES):
        if ready and attempt == 0:
            script, said = ready, ""
        else:
            if want.kind == "suite":
                request = prompting.suite_request(desk.task, want.most, last, attempt, **desk.options)
            else:
                shown = "\n".join(f"They part on this layout:\n{shown}" for shown in _shown(desk, book, want).values())
                request = prompting.layouts_request(desk.task, book, want, shown, last, attempt, **desk.options)
            try:
                data = desk.model.ask(request).data
                script, said = code_from(data["script"]), str(data.get("expected") or "")
            except ModelFailure as exc:
                last = ("", f"no script ({exc})")
                continue
        expected = 1 if said == "VIOLATION" else 0 if said == "PASS" else expected_bit(script)
        if want.label and want.kind == "layouts" and expected is None:
            last = (script, "it does not say what is expected: PASS or VIOLATION")
            continue
        drawn = run_script(
            script,
            desk.sandbox,
            cases=want.most,
            seed=desk.seed,
            categories=desk.task.categories,
            cancel=desk.cancel,
        )
        if drawn.failure:
            last = (script, drawn.failure)
            continue
        return Proposal(script, _notes(want, maker="model", expected=expected), "text/x-python")
    raise ProposalFailed("script", f"no script worked in {1 + RETRIES} attempts: {(last or ('', ''))[1][-300:]}")


# -- labels and choices ------------------------------------------------------------------------------------------------


def _label(desk: Desk, book: Book, want: Want) -> Proposal:
    test = book.tests[want.tests[0]]
    layout = layout_file(desk, test)
    if desk.answers == "person":
        number = sum(answer.want[0] == "label" for answer in book.answers)
        folder = desk.folder.parent.parent / "questions"
        folder.mkdir(parents=True, exist_ok=True)
        raise AskPerson(asking.question(desk.task, book, test, layout, desk.runner, folder, number))
    if desk.answers == "gold":
        if desk.task.gold is None:
            raise ProposalFailed("nobody", "the task has no reference deck")
        result = desk.runner.run(desk.task.gold.read_text(encoding="utf-8"), [layout])[0]
        if result.status is not RunStatus.OK:
            raise ProposalFailed("nobody", f"the reference deck does not run here ({result.message})")
        expected = {c: int(bool(result.flagged(c))) for c in desk.task.categories}
        return _labelled(want, expected, DOUBT["gold"], "the reference deck")
    if desk.answers == "nobody" or desk.model is None:
        raise ProposalFailed("nobody", "there is nobody to say what is right on a layout")
    return _voted(desk, test, layout, want)


def _voted(desk: Desk, test: Test, layout: Path, want: Want) -> Proposal:
    assert desk.model is not None
    names = {value: name for name, value in desk.task.layers.items()}
    said: list[Mapping[str, str]] = []
    for vote in range(desk.votes):
        request = prompting.label_request(
            desk.task, layouts.in_words(layout, names), test.about, vote, want, **desk.options
        )
        try:
            said.append(desk.model.ask(request).data)
        except ModelFailure:
            continue
    expected: dict[str, int] = {}
    doubt = DOUBT["all"]
    for category in desk.task.categories:
        votes = [answers[category] for answers in said if answers[category] != "unclear"]
        yes = votes.count("violation")
        if not votes or 2 * yes == len(votes):
            continue
        expected[category] = int(2 * yes > len(votes))
        if yes not in (0, len(said)):
            doubt = DOUBT["most"]
    if not said:
        raise ProposalFailed("nobody", "the model gave no label")
    return _labelled(want, expected, doubt, "the model", votes=len(said))


def _labelled(want: Want, expected: Mapping[str, int], doubt: float, who: str, **facts: Any) -> Proposal:
    content = {"test": want.facts.get("test"), "expected": dict(expected), "doubt": doubt, "who": who, **facts}
    return Proposal(json.dumps(content, sort_keys=True), _notes(want), "application/json")


def said_by_engineer(want: Want, category: str, text: str) -> Proposal:
    """Return the engineer's answer as a candidate; what is neither yes nor no is kept as their remark."""
    word = text.strip().lower()
    expected = {category: int(word == asking.VIOLATION)} if word in (asking.VIOLATION, asking.FINE) else {}
    return _labelled(want, expected, DOUBT["person"], "the engineer", remark="" if expected else text)


def _choice(desk: Desk, book: Book, want: Want) -> Proposal:
    if desk.model is None:
        best = max(want.decks, key=lambda index: (book.decks[index].prior, -index))
        data: dict[str, Any] = {"choice": want.decks.index(best), "why": "the likeliest reading of the sentence"}
    else:
        request = prompting.choice_request(desk.task, book, want, _shown(desk, book, want), **desk.options)
        data = dict(desk.model.ask(request).data)
    content = {"want": [want.name, want.step], **data}
    return Proposal(json.dumps(content, sort_keys=True), _notes(want), "application/json")


# -- parts -------------------------------------------------------------------------------------------------------------


def vote(book: Book, test: Test) -> dict[str, int]:
    """Return what the decks say of a layout, by their priors: the answers that the likelier half gives."""
    expected = {}
    for category, said in test.answers.items():
        weight = sum(
            deck.prior * (1 if said[deck.index] == "1" else -1) for deck in book.decks if said[deck.index] != "N"
        )
        expected[category] = int(weight > 0)
    return expected


def layout_file(desk: Desk, test: Test) -> Path:
    """Return the file of a test's layout."""
    path = desk.place("layouts") / f"{test.layout[:20]}.gds"
    if not path.exists():
        path.write_bytes(desk.artifacts.get(test.layout))
    return path


def keep_layout(desk: Desk, data: bytes) -> tuple[str, Path]:
    """Keep a layout; return its hash and a file that holds it."""
    name = desk.artifacts.put(data, "application/octet-stream")
    path = desk.place("layouts") / f"{name[:20]}.gds"
    if not path.exists():
        path.write_bytes(data)
    return name, path


def _shown(desk: Desk, book: Book, want: Want) -> dict[int, str]:
    names = {value: name for name, value in desk.task.layers.items()}
    return {n: layouts.in_words(layout_file(desk, book.tests[n]), names) for n in want.tests}


def _notes(want: Want, **facts: Any) -> dict[str, Any]:
    return {"kind": want.kind, "want": want.name, "step": want.step, "label": want.label, **facts}
