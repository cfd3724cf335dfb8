"""How results reach stdout, and notes stderr."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orienteer.agents import plainly
from orienteer.agents.command import now

if TYPE_CHECKING:
    from orienteer.agents.runtime.config import RunReport
    from orienteer.agents.runtime.method import Method


def say(text: str) -> None:
    """Print on stdout. A reader that went away is no fault: the rest is dropped."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Print one line on stderr."""
    with suppress(BrokenPipeError):
        print(plainly.clean(text), file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """Print the command's one JSON document: ASCII, no NaN."""
    text = json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False, default=str)
    now.json_written = True
    say(text)


def print_table(rows: Sequence[Mapping[str, str]], widest: int = 60) -> None:
    """Print rows in columns; on a terminal they fit its width."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    say(plainly.table(rows, widest, width))


# -- runs --------------------------------------------------------------------------------------------------------------


def print_report(report: RunReport, kind: type[Method] | None) -> None:
    """Print how a run ended: what was proven, where the files are, how to go on."""
    rows = kind.rows(report.result) if kind is not None else []
    if rows:
        print_table(rows, widest=120)
    else:
        _print_plain_result(report.result, report.best)
    line = f"run {report.id}: {report.status}; evaluations: {evaluations(report.counts) or 'none'}"
    say(line + _calls(report.counts))
    _print_files(report.folder)
    if report.reason:
        note(f"{report.status}: {report.reason}")
    if report.status == "budget":
        note(f"go on with a larger budget: agent runs resume {report.id} --evals N (or --tokens, --cost, --time)")
    elif report.status == "failed":
        note(f"see what happened: agent runs show {report.id}; try again: agent runs resume {report.id}")


def _print_plain_result(result: Mapping[str, Any], best: Mapping[str, Mapping[str, Any]]) -> None:
    """A method without a table of its own: its best candidate per task, and what it returned."""
    print_best(best)
    if result:
        text = json.dumps(result, ensure_ascii=True)
        say(f"result: {plainly.cut(text, 2000)}")


def print_best(best: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the best candidate of every task."""
    if best:
        print_table(
            [
                {"task": task, "best score": f"{facts['score']:g}", "evidence": facts["evidence"] or "none"}
                | {"candidate": facts["candidate"], "step": str(facts["step"])}
                for task, facts in best.items()
            ]
        )


def evaluations(counts: Mapping[str, Any]) -> str:
    """Return the evaluations by status in words."""
    words = {"ok": "ok", "failed": "rejected", "unknown": "not decided", "machinery": "broken by our machinery"}
    return ", ".join(f"{n} {words.get(k, k)}" for k, n in sorted(counts.get("evaluations", {}).items()))


def _calls(counts: Mapping[str, Any]) -> str:
    if not counts.get("model_calls"):
        return ""
    price = "price unknown" if counts.get("cost") is None else f"cost {counts['cost']:.4f}"
    return f"; model calls: {counts['model_calls']} ({counts['tokens_in']} + {counts['tokens_out']} tokens, {price})"


def _print_files(folder: Path) -> None:
    with suppress(OSError):
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        if files:
            say(f"files: {folder}")
            for name in files:
                say(f"  {plainly.clean(name)}")


def print_run(document: Mapping[str, Any], rows: Sequence[Mapping[str, str]], course: Sequence[str] = ()) -> None:
    """Print one run for people: request, provenance, result, and how it went.

    Args:
        document: the run.
        rows: its result as the method shows it.
        course: how it went in the method's words; without them every proposal is listed with its verdict and its gates.
    """
    config, provenance = document["config"], document["provenance"]
    budget = ", ".join(f"{k} {v:g}" for k, v in config.get("budgets", {}).items() if v is not None)
    facts = {
        "run": document["id"],
        "status": document["status"] + (f" ({document['reason']})" if document["reason"] else ""),
        "method": document["method"] + (f", target {document['target']}" if document["target"] else ""),
        "tasks": ", ".join(document["tasks"]) or "all",
        "proposer": document["proposer"],
        "seed": document["seed"],
        "settings": ", ".join(f"{k}={v}" for k, v in config.get("settings", {}).items()),
        "budget": budget,
        "started": plainly.clock(document["created"]),
        "ended": plainly.clock(document["ended"]),
        "active": f"{document['active_s']:.1f} s, {document['steps']} steps",
        "evaluations": evaluations(document["counts"]) + _calls(document["counts"]),
    }
    for key, value in facts.items():
        if value not in (None, ""):
            say(f"{key + ':':<13}{plainly.clean(str(value))}")
    made = {k: v for k, v in provenance.items() if v not in (None, "", False) and k not in facts and k != "model"}
    say("provenance:  " + ", ".join(f"{k} {plainly.clean(str(v))}" for k, v in sorted(made.items())))
    if rows:
        say("\nresult")
        print_table(rows, widest=120)
    elif document["best"]:
        say("\nbest")
        print_best(document["best"])
    for line in course:
        indent = len(line) - len(line.lstrip())
        say(" " * indent + plainly.clean(line))
    if not course:
        _print_proposals(document)
    _print_model_calls(document["model_calls"])
    _print_files(Path(document["folder"]))


def _print_proposals(document: Mapping[str, Any]) -> None:
    verdicts = {item["candidate_id"]: item for item in document["evaluations"]}
    words = {"ok": "ok", "failed": "rejected", "unknown": "not decided", "machinery": "broken by our machinery"}
    rows = []
    for item in document["proposals"]:
        verdict = verdicts.get(item["candidate_id"] or "")
        failed = verdict if verdict is not None and verdict["failure_kind"] else item
        gates = (verdict or {}).get("metrics", {}).get("gates", [])
        failure = ": ".join(str(failed[k]) for k in ("failure_kind", "failure_message") if failed[k])
        rows.append(
            {
                "step": str(item["step"]),
                "task": item["task"],
                "candidate": item["candidate_id"] or "none",
                "verdict": words.get(verdict["status"], verdict["status"]) if verdict else item["status"],
                "score": "" if verdict is None or verdict["score"] is None else f"{verdict['score']:g}",
                "evidence": verdict["evidence"] if verdict else "",
                "gates": ", ".join(f"{g['gate']} {plainly.GATE_MARKS.get(g['status'], g['status'])}" for g in gates),
                "seconds": f"{verdict['seconds']:.2f}" if verdict else "",
                "why": failure,
            }
        )
    if not rows:
        return
    empty = [column for column in rows[0] if not any(row[column] for row in rows)]
    say("\nproposals")
    print_table([{k: v for k, v in row.items() if k not in empty} for row in rows], widest=100)


def _print_model_calls(calls: Sequence[Mapping[str, Any]]) -> None:
    if not calls:
        return
    say("\nmodel calls")
    print_table(
        [
            {
                "step": "" if call["step"] is None else str(call["step"]),
                "model": call["reported_model"] or call["model"],
                "status": call["status"] + (" (cached)" if call["cached"] else ""),
                "in": f"{call['tokens_in']}" + ("~" if call["estimated"] else ""),
                "out": f"{call['tokens_out']}" + ("~" if call["estimated"] else ""),
                "seconds": "" if call["latency"] is None else f"{call['latency']:.2f}",
                "why": ": ".join(str(call[k]) for k in ("failure_kind", "failure_message") if call[k]),
            }
            for call in calls
        ]
    )
