"""What a run is worth, in words: levels of evidence, warnings, what to try; and its course for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.agents.evokernel import results
from orienteer.agents.evokernel.course import FAST, WORDS, Attempt, Course, courses, groups
from orienteer.agents.evokernel.stages import REFINE

#: So many tasks are told with their lineages.
_FEW = 20
#: Levels of evidence in a line each.
_LEVELS = {
    "E0": "right on hidden shapes and values, in an interpreter or on the CPU; the target's compiler has not seen it",
    "E1": "E0, and the target's real compiler accepts every launch at the task's own shapes; nothing ran on the target",
    "E2": "a modelled latency; it ranks kernels of one task on one device and predicts no run time",
    "E3": "the vendor's compiler made a binary; nothing ran on the target",
    "E4": "compiled, run and measured on the device itself",
}
#: What a reader must not conclude from a pass; docs/kernels.md has the whole list.
_LIMITS = (
    "A pass was given on the hidden shapes only: what is wrong only beyond them (a launch that covers too few rows, a "
    "branch on a size) is not found. See docs/kernels.md, 'What a pass does not say'."
)


def advice(course: Course, proposer: str = "") -> str:
    """Return what to try about a task; see :func:`.results.hint`."""
    failure = course.failure
    return results.hint(course.status, course.ended, failure.kind if failure is not None else "", proposer)


def evidence_words(found: Sequence[Course]) -> dict[str, str]:
    """Return the levels that occur in a run, each in one line."""
    seen = set()
    for course in found:
        for item in course.attempts:
            seen |= {str(item.evidence)[:2], str(item.latency.get("level", ""))[:2]}
    if "E1" in seen:
        seen.add("E0")
    return {level: text for level, text in _LEVELS.items() if level in seen}


def warnings(document: Mapping[str, Any], found: Sequence[Course]) -> list[str]:
    """Return what a reader has to know before believing a number."""
    said = []
    status = document["status"]
    if status not in ("done", "budget"):
        said.append(f"The run is {status}: what follows is what was recorded until then.")
    bests = [course.best for course in found if course.best is not None]
    levels = {str(item.latency.get("level", "")) for item in bests if item.latency}
    hows = {str(item.latency.get("how", "")) for item in bests if item.latency}
    if any(level.startswith("E2") for level in levels):
        how = next((text for text in sorted(hows) if "uncalibrated" in text), "modelled")
        said.append(
            f"Latencies of level E2 are {how}: nobody compared them with a device. Ratios between kernels of one task "
            "are what the search used, not measured speed-ups."
        )
    if any(item.latency.get("baseline_s") is None for item in bests if item.latency):
        said.append("The reference was not measured where no figure is given: no speed-up over PyTorch is claimed.")
    if any((item.latency.get("facts") or {}).get("remark") for item in bests):
        said.append("A kernel is so much faster than the reference that a person should look at it; see its latency.")
    said += _spread(bests, document["provenance"].get("cores"))
    skipped = sorted({g["gate"] for c in found for a in c.attempts for g in a.gates if g["status"] == "skipped"})
    if skipped:
        said.append(f"Gates that could not be applied here: {', '.join(skipped)}. Such kernels are unproven.")
    if not document["provenance"].get("isolation") and found:
        said.append("It is not recorded in what sandbox candidates ran.")
    if document["provenance"].get("evaluations_reused") or document["provenance"].get("replies_reused"):
        said.append("Verdicts or replies of earlier runs were taken over where they were the same question (--reuse).")
    forgotten = len((document.get("memory") or {}).get("forgotten", ()))
    if forgotten:
        said.append(
            f"{forgotten} memory items that the run recalled were forgotten since; their texts and values are lost."
        )
    if bests:
        said.append(_LIMITS)
    return said


def _spread(bests: Sequence[Attempt], cores: Any) -> list[str]:
    """Return what measured speed-ups are worth on this machine."""
    known = [item.latency.get("facts") or {} for item in bests]
    said = []
    loads = [facts["load"] for facts in known if isinstance(facts.get("load"), int | float)]
    if loads and isinstance(cores, int) and max(loads) > cores:
        said.append(
            f"Others worked while kernels were measured: load up to {max(loads):.1f} on {cores} cores. Only ratios to "
            "the reference of the same minute can be compared."
        )
    near = sum(
        facts["speedup_quartiles"][0] <= 1.0 <= facts["speedup_quartiles"][1]
        for facts in known
        if len(facts.get("speedup_quartiles") or ()) == 2
    )
    if near:
        said.append(
            f"For {near} of {len(bests)} kernels the quartiles of the speed-up hold 1: no difference was shown."
        )
    return said


def unit(course: Course) -> str:
    """Return what the cost of a task's kernels is."""
    paired = any((item.latency.get("facts") or {}).get("speedup") for item in course.attempts)
    return "share of the reference's time" if paired else "seconds"


def value(cost: float, measure: str) -> str:
    """Write a cost."""
    return results.seconds(cost) if measure == "seconds" else f"{cost:.3f}"


def share_of_floor(latency: Mapping[str, Any]) -> str:
    """Write which share of the speed that nothing can beat a kernel reaches."""
    floor, took = latency.get("floor_s"), latency.get("seconds")
    return f"{floor / took:.0%}" if floor and took else "-"


def latency_words(latency: Mapping[str, Any]) -> str:
    """Write a latency with its level."""
    return f"{results.seconds(latency.get('seconds'))} ({latency.get('level', '')})"


# -- for a terminal ----------------------------------------------------------------------------------------------------


def lines(document: Mapping[str, Any], task: str = "") -> list[str]:
    """Return the course of a run in lines: every task's lineage and curve, the memory that was used, results by level.

    Args:
        document: the run as :func:`orienteer.agents.runtime.records.show_run` gives it.
        task: only this task.
    """
    found = [course for course in courses(document) if task in ("", course.task)]
    said = []
    for course in found:
        told = _course(course, document["proposer"] or "")
        said += ["", *told] if len(found) <= _FEW else _in_short(told)
    if len(found) > _FEW:
        said += ["", "lineages: agent runs show ID --task NAME; all of them: agent runs report ID"]
    said += _memory(document, {name for c in found for a in c.attempts for name in a.items} if task else None)
    if not task:
        said += _groups(found)
    return said


def _in_short(told: Sequence[str]) -> list[str]:
    """Leave out the lineage."""
    return [line for line in told if not line.lstrip()[:1].isdigit()]


def _course(course: Course, proposer: str) -> list[str]:
    said = [f"{course.task}: {course.status}, {course.tries} attempts"]
    if course.ended and course.status != "rejected":
        said[0] += f", ended: {course.ended}"
    if course.rejected:
        said.append(f"  turned away: {course.rejected}")
    measure = unit(course)
    children: dict[str, list[Attempt]] = {}
    known: set[str] = set()
    for item in course.attempts:
        children.setdefault(item.parent if item.parent in known else "", []).append(item)
        if item.candidate:
            known.add(item.candidate)
    shown: set[str] = set()

    def walk(parent: str, level: int) -> None:
        for item in children.get(parent, ()):
            said.append("  " + "  " * min(level, 12) + _attempt(item, item is course.best, measure))
            if item.candidate and item.candidate not in shown:
                shown.add(item.candidate)
                walk(item.candidate, level + 1)

    walk("", 0)
    if course.curve:
        curve = ", ".join(f"{item.number}: {value(cost, measure)}" for item, cost in _steps(course.curve))
        said.append(f"  best so far ({measure}) by attempt: {curve}")
    hint_ = advice(course, proposer)
    if hint_:
        said.append(f"  what to try: {hint_}")
    return said


def _steps(curve: Sequence[tuple[Attempt, float]]) -> list[tuple[Attempt, float]]:
    """Return the points of a curve at which it falls, and its last."""
    return [point for i, point in enumerate(curve) if i in (0, len(curve) - 1) or point[1] < curve[i - 1][1]]


def _attempt(item: Attempt, best: bool, measure: str) -> str:
    words = [f"{item.number} {item.stage} {item.candidate or 'none'} {WORDS[item.outcome]}"]
    if best:
        words[0] += " BEST"
    if item.again:
        words[0] += " (proposed before)"
    if item.cost is not None:
        words.append(value(item.cost, measure) + (f" {item.evidence}" if item.evidence else ""))
    skipped = [f"{gate['gate']} SKIPPED" for gate in item.gates if gate["status"] == "skipped"]
    if skipped:
        words.append(", ".join(skipped))
    if item.stage == REFINE and item.change:
        words.append(item.change[:80])
    if item.kind:
        words.append(f"{item.rejection + ' ' if item.rejection else ''}{item.kind}: {item.message[:120]}")
    return "; ".join(words)


def _memory(document: Mapping[str, Any], only: set[str] | None) -> list[str]:
    memory = document.get("memory") or {}
    rows = []
    for item in memory.get("items", ()):
        if not item["used"] or (only is not None and item["id"] not in only):
            continue
        rows.append((item["used"], item))
    rows.sort(key=lambda row: (-row[0], row[1]["id"]))
    said = (
        ["", "memory items that were used (Q by stage: before the run's first update, after its last)"] if rows else []
    )
    for used, item in rows[:30]:
        kind = f"{item['kind']} {item['outcome']}".strip()
        said.append(f"  {item['id'][:8]} {kind}, {used} times, {_values(item) or 'Q unchanged'}: {item['text'][:90]}")
    if len(rows) > 30:
        said.append(f"  and {len(rows) - 30} more: agent runs show --json, agent runs report")
    forgotten = memory.get("forgotten", ())
    if forgotten and only is None:
        said += ["", f"{len(forgotten)} memory items that the run recalled were forgotten since"]
    return said


def _values(item: Mapping[str, Any]) -> str:
    said = []
    for stage, name in (("draft", "Q1"), ("refine", "Q2")):
        changes = [change for change in item["history"] if change["stage"] == stage and not change["signature"]]
        if changes:
            said.append(f"{name} {changes[0]['before']:.2f} -> {changes[-1]['after']:.2f}")
    return ", ".join(said)


def _groups(found: Sequence[Course]) -> list[str]:
    made = groups([course.row() for course in found])
    if len(made) == 1 and not made[0]["measured"]:
        return []
    said = [
        "",
        "results by level (fast_p: share of all tasks with a feasible kernel more than p times as fast as PyTorch)",
    ]
    for item in made:
        fast = ", ".join(f"fast_{p:g} {results.share(item['fast'].get(f'{p:g}'))}" for p in FAST)
        said.append(
            f"  {item['group']}: {item['feasible']} of {item['tasks']} feasible; "
            + (fast if item["fast"] else "no reference latency at this level")
            + f"; over draft {results.spread(item['over_draft'])}"
            + f"; over reference {results.spread(item['over_reference'])}"
        )
    return said
