"""What is proven about a candidate: a deck on layouts, or layouts on all decks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orienteer.agents.drc import proposing
from orienteer.agents.drc.layouts import draw_file, sketches
from orienteer.agents.drc.selectors import Book, Test
from orienteer.agents.runtime.method import Candidate, Evaluation, Failure, MachineryError, Plain
from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.patterns.figures import box
from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.environments.layout.scripts import run_script
from orienteer.environments.layout.tasks import RuleTask
from orienteer.evaluators.drc.probing import run_tests
from orienteer.evaluators.drc.scoring import score

#: Layouts taken from a script at most.
_MOST_DRAWN = 64


def on_deck(desk: proposing.Desk, candidate: Candidate) -> Evaluation:
    """Run a deck on a layout with every layer, then on the labelled ones; those only make the score to report."""
    task = desk.task
    results = _run_deck(desk, candidate.content, [_smoke(task, desk.folder), *(item.path for item in task.layouts)])
    evidence = f"{desk.runner.name}:{desk.runner.version}"
    if not results[0].ok:
        first = results[0]
        return Evaluation("failed", failure=Failure(str(first.status), first.message), evidence=evidence)
    unknown = sorted(name for name in results[0].counts if name not in task.categories)
    metrics: Plain = {"unknown": unknown}
    if task.layouts:
        metrics["truth"] = score(task, results[1:]).document()
    return Evaluation("ok", evidence=evidence, metrics=metrics)


def on_layouts(desk: proposing.Desk, candidate: Candidate, book: Book, decks: Sequence[str]) -> Evaluation:
    """Run all decks on the layouts of a candidate; its metrics hold a test for each."""
    notes = candidate.notes
    drawn = _by_script(desk, candidate) if notes["maker"] == "model" else _drawn(desk, candidate)
    if isinstance(drawn, Failure):
        return Evaluation("failed", failure=drawn)
    tests = run_tests(
        decks,
        desk.task.categories,
        desk.runner,
        [item.path for item in drawn],
        [item.about for item in drawn],
        [item.size for item in drawn],
        [item.name for item in drawn],
    )
    labelled = [_with_labels(test, item.expected, notes, book) for test, item in zip(tests, drawn, strict=True)]
    if notes["kind"] == "suite" and notes["maker"] == "model":
        # As upstream: a layout that the manifest says nothing of is no test.
        labelled = [test for test in labelled if test.expected]
    evidence = f"{desk.runner.name}:{desk.runner.version}"
    return Evaluation("ok", evidence=evidence, metrics={"tests": [test.document() for test in labelled]})


@dataclass(frozen=True)
class _Drawn:
    """A layout: its hash, its file, what it shows, its size, what its author expects."""

    name: str
    path: Path
    about: str
    size: int
    expected: Mapping[str, int]


def _drawn(desk: proposing.Desk, candidate: Candidate) -> list[_Drawn]:
    found = []
    for n, sketch in enumerate(sketches(candidate.content)):
        path = draw_file(sketch, desk.place("layouts") / f"{candidate.id}-{n}.gds")
        name, kept = proposing.keep_layout(desk, path.read_bytes())
        path.unlink()
        size = sum(len(polygon) for polygons in sketch.shapes.values() for polygon in polygons)
        found.append(_Drawn(name, kept, sketch.about, size, {}))
    return found


def _by_script(desk: proposing.Desk, candidate: Candidate) -> list[_Drawn] | Failure:
    run = run_script(
        candidate.content, desk.sandbox, cases=_MOST_DRAWN, seed=desk.seed, categories=desk.task.categories,
        cancel=desk.cancel,
    )  # fmt: skip
    if run.failure:
        return Failure("script", run.failure[-400:])
    return [
        _Drawn(*proposing.keep_layout(desk, data), about, len(data), run.expected.get(about, {}))
        for about, data in run.files.items()
    ]


def _with_labels(test: Test, manifest: Mapping[str, int], notes: Mapping[str, Any], book: Any) -> Test:
    """Return a test with what is expected: by the manifest, by the script's own word, or by the likelier decks."""
    if manifest:
        return replace(test, expected=dict(manifest))
    if notes.get("expected") is not None:
        return replace(test, any_expected=notes["expected"])
    return replace(test, expected=proposing.vote(book, test)) if notes.get("label") else test


def _smoke(task: RuleTask, folder: Path) -> Path:
    """Return a small layout with a shape on every layer of a task: a deck that does not run there runs nowhere."""

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "every-layer.gds"
    if not path.exists():
        write_layout(path, {number: [box(0, 0, 10_000, 10_000)] for number in task.layers.values()})
    return path


def _run_deck(desk: proposing.Desk, deck: str, files: Sequence[Path]) -> list[DeckResult]:
    results = desk.runner.run(deck, list(files))
    broken = next((result for result in results if result.status is RunStatus.MACHINERY), None)
    if broken is not None:
        raise MachineryError(broken.message)
    return results
