"""What a run of EvoKernel says in the end: one document, one table, one kernel file per task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orienteer.agents.evokernel.course import group_of, groups
from orienteer.agents.plainly import GATE_MARKS
from orienteer.agents.runtime.method import Candidate, Outcome, Plain
from orienteer.agents.runtime.run import Run
from orienteer.evaluators.kernel.verdict import Gate

#: What to try about a task without a kernel, by why its search ended or its last failure.
_TRY = {
    "no-building-block": "--model KIND/NAME: the offline proposer has no block for this operator",
    "not-traceable": "--model KIND/NAME: the offline proposer cannot trace this operator",
    "exhausted": "--model KIND/NAME: every schedule of the offline proposer was tried",
    "bad-task": "mend the task file: docs/kernels.md says what a task is",
}


#: The row of a task that was turned away before anything was tried.
_TURNED_AWAY: Plain = {
    "task": "",
    "group": "",
    "status": "rejected",
    "evidence": "",
    "latency": None,
    "draft_latency_s": None,
    "speedup_over_draft": None,
    "speedup_over_reference": None,
    "curve": [],
    "cases": [],
    "gates": [],
    "proposer": "",
    "made_of": {},
    "kernel": None,
    "candidate": None,
    "draft": None,
    "draft_kernel": None,
    "attempts": 0,
    "ended": "bad-task",
    "failure": None,
    "seed": None,
}


def hint(status: str, ended: str, kind: str, proposer: str = "") -> str:
    """Return what to try about a task that has no proven kernel; empty for one that has.

    Args:
        status: of the task.
        ended: why its search ended early; may be empty.
        kind: its last failure; may be empty.
        proposer: who proposed.
    """
    if status == "proven":
        return ""
    if status == "rejected":
        return _TRY["bad-task"]
    if status == "unproven":
        return "agent doctor: enable the gate that was skipped"
    if status == "not tried":
        return "agent runs resume"
    if ended in _TRY or kind in _TRY:
        return _TRY.get(ended) or _TRY[kind]
    return "--model KIND/NAME" if proposer == "offline" else "--set iterations=N, or another --model"


def gate(item: Gate) -> Plain:
    """Return a gate's answer as plain data."""
    return {
        "gate": item.name,
        "status": item.status,
        "kind": item.kind,
        "detail": item.detail,
        "facts": dict(item.facts),
    }


def document(run: Run, state: Plain, suffix: str) -> Plain:
    """Return the result and write the kernels of proven tasks into the run's folder."""
    rows = []
    outcomes = {o.candidate.id: o for o in run.outcomes() if o.candidate is not None}
    for name, item in state["tasks"].items():
        chosen = item.get("best") or item.get("unknown")
        outcome = outcomes.get(chosen or "") or outcomes.get(item.get("last", ""))
        evaluation = outcome.evaluation if outcome is not None else None
        candidate = outcome.candidate if outcome is not None else None
        latency = evaluation.metrics.get("latency") if evaluation is not None and chosen else None
        rows.append(
            {
                "task": name,
                "group": item.get("group", ""),
                "status": _status(item),
                "evidence": item.get("evidence", ""),
                "latency": latency,
                "draft_latency_s": _seconds(outcomes, item.get("draft")),
                "speedup_over_draft": _ratio(item.get("draft_latency"), item.get("best_latency")),
                "speedup_over_reference": ((latency or {}).get("facts") or {}).get("speedup"),
                "curve": item["curve"],
                "cases": item.get("cases", []),
                "gates": evaluation.metrics.get("gates", []) if evaluation is not None else [],
                "proposer": run.proposer,
                "made_of": dict(candidate.notes) if candidate is not None else {},
                "kernel": _write(run, name, candidate, suffix) if chosen and candidate is not None else None,
                "candidate": chosen,
                "draft": item.get("draft"),
                "draft_kernel": _draft(run, name, outcomes, item, suffix),
                "attempts": item["tries"],
                "ended": item.get("given_up", ""),
                "failure": item.get("failure") if not chosen else None,
                "seed": run.seed,
            }
        )
    for name, reason in state["rejected"].items():
        failure = {"kind": "bad-task", "message": reason}
        named = {"task": name, "group": group_of(name), "proposer": run.proposer, "seed": run.seed}
        rows.append({**_TURNED_AWAY, **named, "failure": failure})
    for row in rows:
        row["try"] = hint(row["status"], row["ended"], (row["failure"] or {}).get("kind", ""), run.proposer)
    proven = sum(row["status"] == "proven" for row in rows)
    return {
        "target": run.target or "npu",
        "tasks": rows,
        "groups": groups(rows),
        "proven": proven,
        "of": len(rows),
    }


def _seconds(outcomes: Mapping[str, Outcome], candidate: str | None) -> float | None:
    evaluation = outcomes[candidate].evaluation if candidate is not None and candidate in outcomes else None
    return (evaluation.metrics.get("latency") or {}).get("seconds") if evaluation is not None else None


def _ratio(old: float | None, new: float | None) -> float | None:
    return None if old is None or new is None else old / new


def _status(item: Mapping[str, Any]) -> str:
    if item.get("draft"):
        return "proven"
    if item.get("unknown"):
        return "unproven"
    return "failed" if item["tries"] else "not tried"


def _draft(run: Run, task: str, outcomes: Mapping[str, Outcome], item: Mapping[str, Any], suffix: str) -> str | None:
    """Write the first feasible kernel where a later one is the result."""
    outcome = outcomes.get(item.get("draft") or "")
    if outcome is None or outcome.candidate is None or item.get("draft") == item.get("best"):
        return None
    return _write(run, task, outcome.candidate, suffix, "drafts")


def _write(run: Run, task: str, candidate: Candidate, suffix: str, where: str = "kernels") -> str:
    folder = run.folder / where
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task}{suffix}"
    path.write_text(candidate.content, encoding="utf-8")
    return str(path)


def rows(result: Plain) -> list[dict[str, str]]:
    """Return one row per task for people."""
    shown = []
    names = list(dict.fromkeys(gate["gate"] for item in result.get("tasks", []) for gate in item["gates"]))
    for item in result.get("tasks", []):
        gates = {gate["gate"]: gate for gate in item["gates"]}
        failure = item.get("failure") or {}
        skipped = next((gate["detail"] for gate in item["gates"] if gate["status"] == "skipped"), "")
        reasons = ((gate.get("facts") or {}).get("no_latency") for gate in item["gates"])
        unknown = "" if item.get("latency") else next((reason for reason in reasons if reason), "")
        shown.append(
            {
                "task": item["task"],
                "status": item["status"],
                **{name: GATE_MARKS.get(gates[name]["status"], "-") if name in gates else "-" for name in names},
                "evidence": item["evidence"] or "none",
                "latency": seconds((item.get("latency") or {}).get("seconds")),
                "level": (item.get("latency") or {}).get("level", "-"),
                "x draft": times(item.get("speedup_over_draft")),
                "x PyTorch": times(item.get("speedup_over_reference")),
                "proposer": item["proposer"],
                "tries": str(item["attempts"]),
                "remark": skipped or failure.get("message", "") or (f"no latency: {unknown}" if unknown else ""),
                "what to try": item.get("try", ""),
            }
        )
    if not any(row["what to try"] for row in shown):
        for row in shown:
            del row["what to try"]
    if shown and all(row["x PyTorch"] == "-" for row in shown):
        for row in shown:
            del row["x PyTorch"]
    return shown


def seconds(value: float | None) -> str:
    """Write a latency with a unit that suits it."""
    if value is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1.0:
            return f"{value * factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def times(value: float | None) -> str:
    """Write a ratio."""
    return "-" if value is None else f"{value:.2f}"


def share(value: float | None) -> str:
    """Write a share of tasks."""
    return "-" if value is None else f"{value:.3g}"


def spread(values: Mapping[str, Any]) -> str:
    """Write the median of speed-ups with its quartiles."""
    if not values["n"]:
        return "-"
    low, high = values["quartiles"]
    return f"{values['median']:.2f} [{low:.2f}, {high:.2f}]"


def number(value: object) -> str:
    """Write a plain fact; large numbers in powers of ten."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "-" if value is None else str(value)
    return f"{value:.4g}" if abs(value) >= 1e5 or isinstance(value, float) else str(value)
