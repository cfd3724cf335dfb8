"""A run of the DRC method told: its result as a document, as a table, as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from orienteer.agents.drc import case
from orienteer.agents.drc.case import file_name
from orienteer.agents.drc.selectors import Book, Test
from orienteer.agents.drc.selectors.split import behaviours
from orienteer.agents.drc.showing import shown
from orienteer.agents.runtime.method import Plain
from orienteer.agents.runtime.run import Run
from orienteer.environments.layout.runner import DeckRunner
from orienteer.environments.layout.tasks import RuleTask

#: Layouts listed in a task's result.
_MOST_TESTS = 12


def result(run: Run, state: Plain, tasks: Mapping[str, RuleTask], settings: Any, runner: DeckRunner) -> Plain:
    """Return the chosen decks with what is known of them, and write each into the run's folder, pictures beside."""
    drawn = runner if len(state["tasks"]) <= settings.pictures else None
    found = [_task(run, name, task, tasks.get(name), drawn) for name, task in state["tasks"].items()]
    found += [{"task": name, "status": "rejected", "reason": why} for name, why in state["rejected"].items()]
    scored = [item for item in found if "success" in item]
    summary: Plain = {"selector": settings.selector, "tasks": len(found)}
    if scored:
        for name in ("success", "first", "oracle"):
            summary[name] = sum(bool(item[name]) for item in scored)
        summary["scored"] = len(scored)
        summary["case_accuracy"] = mean(item["case_accuracy"] for item in scored)
    asked = [item["asked"] for item in found if "asked" in item]
    if asked:
        summary["asked"] = sum(asked)
    return {"tasks": found, "summary": summary}


def _task(run: Run, name: str, state: Mapping[str, Any], task: RuleTask | None, runner: DeckRunner | None) -> Plain:
    decks = state["decks"]
    known: Plain = {"task": name, "candidates": len(decks), "run": sum(deck["runs"] for deck in decks)}
    if state["phase"] == "failed" or not decks:
        reason = next((deck["failure"] for deck in decks if deck["failure"]), "no deck was proposed")
        return known | {"status": "failed", "reason": reason}
    if state["chosen"] is None:
        return known | {"status": "open", "reason": "the selection is not finished"}
    chosen = state["chosen"]
    deck = decks[chosen["deck"]]
    book = case.book_of(run, state)
    known |= {
        "status": "chosen" if deck["runs"] else "failed",
        "deck": deck["candidate"],
        "deck_sha": deck["sha"],
        "reading": deck["why"],
        "number": chosen["deck"] + 1,
        "why": chosen["why"],
        "facts": chosen["facts"],
        "file": _written(run, name, deck["sha"]),
        "others": [
            {"number": n + 1, "candidate": other["candidate"], "reading": other["why"], "prior": other["prior"],
             "failure": other["failure"]}
            for n, other in enumerate(decks)
        ],
        "asked": sum(answer.want[0] == "label" and bool(answer.expected) for answer in book.answers),
        "layouts": [_layout(test, book) for test in book.tests[:_MOST_TESTS]],
    }  # fmt: skip
    remarks = [(int(a.facts["test"]), a.facts["remark"]) for a in book.answers if a.facts.get("remark")]
    known["remarks"] = [{"about": book.tests[test].about, "said": said} for test, said in remarks]
    alive = [one for one in book.decks if one.runs]
    known["behaviours"] = len(behaviours(alive, book.tests)) if book.tests else 1
    if task is not None and runner is not None:
        folder = run.folder / "pictures" / file_name(name)
        known["apart"] = shown(task, book, chosen["deck"], runner, run.artifacts, folder)
    if task is not None and task.layouts:
        known |= _truth(run, decks, chosen["deck"])
    return known


def _truth(run: Run, decks: Sequence[Mapping[str, Any]], chosen: int) -> Plain:
    """Return how the chosen deck, the first and the best one do on the labelled layouts."""
    scores: list[Mapping[str, Any] | None] = []
    for deck in decks:
        evaluation = run.evaluation(deck["candidate"])
        scores.append(None if evaluation is None else evaluation.metrics.get("truth"))
    won = [bool(score and score["success"]) for score in scores]
    mine = scores[chosen]
    return {
        "success": won[chosen],
        "first": won[next((n for n, deck in enumerate(decks) if deck["runs"]), 0)],
        "oracle": any(won),
        "case_accuracy": mine["case_accuracy"] if mine else 0.0,
        "wrong": mine["wrong"][:8] if mine else [],
        "unwinnable": mine["unwinnable"] if mine else [],
        "truth": mine,
    }


def _layout(test: Test, book: Book) -> Plain:
    """Return one layout that told decks apart: what it shows, who says what, what was held right."""
    label = next(
        (
            a
            for a in book.answers
            if a.want[0] == "label" and a.facts.get("test") == _position(book, test) and a.expected
        ),
        None,
    )
    return {
        "about": test.about,
        "layout": test.layout,
        "answers": dict(test.answers),
        "expected": dict(label.expected if label is not None else test.expected),
        "who": label.facts.get("who", "") if label is not None else "",
    }


def _position(book: Book, test: Test) -> int:
    return next(n for n, other in enumerate(book.tests) if other is test)


def _written(run: Run, name: str, sha: str) -> str:
    folder = run.folder / "decks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(name)}.drc"
    path.write_text(run.artifacts.text(sha), encoding="utf-8")
    return str(path)


def rows(result: Plain) -> list[dict[str, str]]:
    """Return a row a task; with labels how it did on them."""
    items = result.get("tasks", [])
    scored = any("success" in item for item in items)
    found = []
    for item in items:
        row = {
            "task": item["task"],
            "status": item["status"],
            "reading": str(item.get("reading") or item.get("reason", ""))[:90],
            "of": f"{item.get('number', '-')}/{item.get('candidates', '-')}",
            "behaviours": str(item.get("behaviours", "-")),
            "chosen by": item.get("why", "-"),
        }
        if scored:
            row |= {
                "right": {True: "yes", False: "no"}.get(item.get("success"), "-"),
                "layouts": f"{item['case_accuracy']:.0%}" if "case_accuracy" in item else "-",
            }
        found.append(row)
    return found


def proven(result: Plain) -> bool:
    """Say whether every task has a deck, and with labels one that is right on all of them."""
    items = result.get("tasks", [])
    return bool(items) and all(item["status"] == "chosen" and item.get("success", True) for item in items)


def course(document: Plain, task: str = "") -> list[str]:
    """Return how each deck was chosen, in lines."""
    lines: list[str] = []
    for item in document.get("result", {}).get("tasks", []):
        if task and item["task"] != task:
            continue
        lines.append(f"{item['task']}: {item['status']}" + (f", {item['reason']}" if item.get("reason") else ""))
        if "deck" not in item:
            continue
        lines.append(f"  chosen: reading {item['number']} of {item['candidates']} ({item['why']}): {item['reading']}")
        for other in item["others"]:
            mark = "*" if other["number"] == item["number"] else " "
            state = other["failure"] or f"held likely {other['prior']:.0%}"
            lines.append(f"  {mark} {other['number']}. {other['reading'] or other['candidate']} ({state})")
        for layout in item.get("apart", ()):
            others = ", ".join(map(str, layout["readings"]))
            lines.append(f"    not reading {others}: {layout['about']} ({layout['layout']})")
        lines += [f"    remark on {remark['about']}: {remark['said']}" for remark in item.get("remarks", ())]
        for layout in item["layouts"]:
            said = "; ".join(f"{name} {bits}" for name, bits in layout["answers"].items())
            right = ", ".join(f"{c}: {'violation' if v else 'fine'}" for c, v in layout["expected"].items())
            who = f" (said {layout['who']})" if layout["who"] else ""
            lines.append(f"    {layout['about']}: {said}" + (f"; right: {right}{who}" if right else ""))
    return lines
