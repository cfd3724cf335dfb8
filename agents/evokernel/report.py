"""The report of a run: one HTML file that needs nothing outside itself, for a sceptical reader.

It is made from the run's record alone, so that a run that was interrupted, or whose memory was forgotten since, has one
too. All names, messages, programs and replies in it are hostile input (see ``markup``); the page's own policy forbids
scripts and everything outside.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orienteer.agents.evokernel import drawings, results
from orienteer.agents.evokernel.course import FAST, WORDS, Attempt, Course, courses, groups
from orienteer.agents.evokernel.judged import gates, latency_of
from orienteer.agents.evokernel.recollected import remembered
from orienteer.agents.evokernel.telling import (
    advice,
    evidence_words,
    latency_words,
    share_of_floor,
    unit,
    value,
    warnings,
)
from orienteer.agents.markup import code, diff, esc, facts, folded, table, whole
from orienteer.agents.plainly import clock
from orienteer.evaluators.kernel import rejections

#: All differences between attempts together, and those of one task, in characters.
_DIFFS, _TASK_DIFFS = 3_000_000, 60_000
_LONGEST_SOURCE = 60_000

Read = Callable[[str], str]


def page(document: Mapping[str, Any], read: Read) -> str:
    """Return the report.

    Args:
        document: the run as :func:`orienteer.agents.runtime.records.show_run` gives it.
        read: returns the text of an artifact; a note in brackets where it is lost.
    """
    found = courses(document)
    anchors = {item["id"]: f"m{i}" for i, item in enumerate(document.get("memory", {}).get("items", ()), 1)}
    parts = [
        _head(document, found),
        _groups(found),
        _summary(found, _proposer(document)),
        _rejections(found),
        *_tasks(document, found, read, anchors),
        remembered(document, found, anchors),
    ]
    return whole(f"{document['method']} {document['id']}", parts)


# -- the run -----------------------------------------------------------------------------------------------------------


def _head(document: Mapping[str, Any], found: Sequence[Course]) -> str:
    provenance, config = document["provenance"], document["config"]
    target = document["target"] or "npu"
    device = provenance.get("target", "")
    counts = {word: sum(c.status == word for c in found) for word in ("proven", "unproven", "failed", "rejected")}
    counts["not tried"] = sum(c.status == "not tried" for c in found)
    marks = "".join(
        f'<li><b class="{_kind(word)}">{n}</b>{esc(word)}</li>' for word, n in counts.items() if n or word == "proven"
    )
    return (
        f"<h1>Kernels for {len(found)} operators: {counts['proven']} proven</h1>\n"
        f'<p class="soft">Run {esc(document["id"])} of {esc(document["method"])} for {esc(target)}'
        f"{f' ({esc(device)})' if device else ''}, {esc(document['status'])}"
        f"{esc(': ' + document['reason']) if document['reason'] else ''}</p>\n"
        f'<ul class="counts">{marks}</ul>\n'
        + _warnings(document, found)
        + facts(_facts(document))
        + folded("Versions and settings", facts(_more_facts(provenance, config)))
        + "<h3>Levels of evidence</h3>\n"
        + facts(evidence_words(found))
    )


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    provenance, counts = document["provenance"], document["counts"]
    calls = counts.get("model_calls")
    price = "unknown" if counts.get("cost") is None else f"{counts['cost']:.4f}"
    sandbox = " ".join(str(provenance.get(key, "")) for key in ("sandbox", "isolation"))
    verdicts = ", ".join(f"{n} {key}" for key, n in sorted(counts.get("evaluations", {}).items()))
    return {
        "proposer": _proposer(document),
        "seed": document["seed"],
        "sandbox": sandbox.strip(),
        "memory": ", ".join(str(provenance[key]) for key in ("memory", "embedder") if provenance.get(key)),
        "verdicts": verdicts,
        "model calls": f"{calls} ({counts['tokens_in']} + {counts['tokens_out']} tokens, price {price})"
        if calls
        else "",
        "started": clock(document["created"]),
        "ended": clock(document["ended"]),
        "active": f"{document['active_s']:.0f} s in {document['steps']} rounds",
    }


def _more_facts(provenance: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    shown = {"sandbox", "isolation", "memory", "embedder", "seed", "proposer"}
    made = {key: value for key, value in sorted(provenance.items()) if key not in shown and value not in ("", None)}
    budget = ", ".join(f"{key} {value:g}" for key, value in config.get("budgets", {}).items() if value is not None)
    chosen = ", ".join(f"{key}={value}" for key, value in config.get("settings", {}).items())
    return {
        **made,
        "settings": chosen or "defaults",
        "budget": budget or "none",
        "tasks": ", ".join(config.get("tasks", [])),
    }


def _proposer(document: Mapping[str, Any]) -> str:
    return str(document["proposer"] or document["provenance"].get("proposer", ""))


def _warnings(document: Mapping[str, Any], found: Sequence[Course]) -> str:
    said = warnings(document, found)
    return f'<div class="warn"><ul>{"".join(f"<li>{esc(text)}</li>" for text in said)}</ul></div>\n' if said else ""


def _kind(status: str) -> str:
    return "untried" if status == "not tried" else status


def _status(status: str) -> str:
    return f'<span class="{_kind(status)}">{esc(status)}</span>'


def _summary(found: Sequence[Course], proposer: str) -> str:
    rows: list[tuple[str, ...]] = []
    for number, course in enumerate(found, 1):
        latency = (course.best.latency if course.best is not None else {}) or {}
        reference = course.over_reference
        rows.append(
            (
                f'<a href="#t{number}">{esc(course.task, 80)}</a>',
                _status(course.status),
                esc((course.chosen.evidence if course.chosen is not None else "") or "none"),
                esc(results.seconds(latency.get("seconds"))),
                esc(latency.get("level", "-")),
                esc(results.seconds(latency.get("floor_s"))),
                esc(share_of_floor(latency)),
                esc(results.times(course.over_draft)),
                esc(results.times(reference) if reference else "not measured" if latency else "-"),
                str(course.tries),
                drawings.spark([cost for _, cost in course.curve]),
                esc(advice(course, proposer) or course.ended, 120),
            )
        )
    head = ["task", "status", "evidence", "latency", "level", "floor", "of floor", "x draft", "x reference", "attempts"]
    head += ["best so far", "what to try"]
    if not any(row[-1] for row in rows):
        head, rows = head[:-1], [row[:-1] for row in rows]
    return "<h2>Tasks</h2>\n" + table(head, rows, "nums")


def _groups(found: Sequence[Course]) -> str:
    made = groups([course.row() for course in found])
    if len(made) == 1 and not made[0]["measured"]:
        return ""
    rows = []
    for item in made:
        fast = [results.share(item["fast"].get(f"{p:g}")) for p in FAST]
        if not item["fast"]:
            fast = ["no reference latency at this level", *[""] * (len(FAST) - 1)]
        rows.append(
            [
                esc(cell)
                for cell in (
                    item["group"], item["tasks"], item["feasible"], item["rejected"], item["measured"], *fast,
                    results.spread(item["over_draft"]), results.spread(item["over_reference"]),
                )
            ]
        )  # fmt: skip
    head = ["level", "tasks", "feasible", "turned away", "measured", *(f"fast_{p:g}" for p in FAST)]
    note = (
        "fast_p is the share of all tasks whose kernel is feasible and more than p times as fast as the reference; a "
        "kernel without a measured reference counts as not fast. Speed-ups are medians with quartiles in brackets."
    )
    return (
        "<h2>Results by level</h2>\n"
        + table([*head, "over draft", "over reference"], rows, "nums")
        + f'<p class="soft">{note}</p>'
    )


def _rejections(found: Sequence[Course]) -> str:
    """Return how often attempts failed for which reason, and what a proposer can do about it."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for course in found:
        for item in course.attempts:
            if item.kind:
                word = item.rejection or WORDS[item.outcome]
                reasons.setdefault((word, item.kind), []).append(course.task)
    if not reasons:
        return ""
    rows = [
        (esc(word), esc(kind, 80), str(len(tasks)), str(len(set(tasks))), esc(rejections.advice(kind)))
        for (word, kind), tasks in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return "<h2>Why attempts failed</h2>\n" + table(("class", "reason", "attempts", "tasks", "what to do"), rows)


# -- one task ----------------------------------------------------------------------------------------------------------


def _tasks(document: Mapping[str, Any], found: Sequence[Course], read: Read, anchors: Mapping[str, str]) -> list[str]:
    room = min(_TASK_DIFFS, _DIFFS // max(1, len(found)))
    parts = ["<h2>Every task</h2>\n" + _legend()]
    for number, course in enumerate(found, 1):
        best = course.best
        latency = f", {esc(latency_words(best.latency))}" if best is not None and best.latency else ""
        head = f'<b id="t{number}">{esc(course.task, 120)}</b>: {_status(course.status)}{latency}'
        body = _rejected(course) if course.rejected else _task(course, read, anchors, room, _proposer(document))
        parts.append(folded(head, f'<div class="inner">{body}</div>', "task", opened=len(found) <= 3))
    return parts


def _legend() -> str:
    letters = ", ".join(f"{letter} {name}" for name, letter in drawings.LETTERS.items() if name != "ours")
    return (
        '<p class="soft">Lineages run from left to right, one mark an attempt, below what it started from. A disc is a '
        f"feasible kernel (the best has a ring), a square a rejected one ({esc(letters)}), a dashed square no kernel."
        "</p>\n"
    )


def _rejected(course: Course) -> str:
    return f"<p>The task was turned away: {esc(course.rejected, 2000)}</p>"


def _task(course: Course, read: Read, anchors: Mapping[str, str], room: int, proposer: str) -> str:
    sources = _Sources(read)
    timed = [item.cost for item in course.attempts if item.outcome == "ok" and item.cost is not None]
    measure = unit(course)
    parts = []
    if course.status != "proven":
        parts.append(_why_not(course, proposer))
    if course.attempts:
        parts.append("<h3>Lineage</h3>\n" + drawings.tree(course))
    if timed:
        words = [value(pick(timed), measure) for pick in (max, min)]
        parts.append(f"<h3>Best so far ({esc(measure)})</h3>\n" + drawings.curve(course, measure, words))
    chosen = course.chosen
    if chosen is not None:
        parts.append(f"<h3>Gates of the {'best' if course.best else 'undecided'} kernel</h3>\n" + gates(chosen.gates))
        parts.append(latency_of(chosen.latency))
    parts.append(_sources(course, sources))
    if course.cases:
        cases = "".join(f"<li>{esc(text, 300)}</li>" for text in course.cases)
        parts.append(folded(f"Hidden cases ({len(course.cases)}): shapes and values, in words", f"<ul>{cases}</ul>"))
    if course.source:
        parts.append(folded("The task", f"<pre>{code(sources.text(course.source), _LONGEST_SOURCE)}</pre>"))
    if course.attempts:
        parts.append(folded(f"Every attempt ({course.tries})", _attempts(course, sources, anchors, room)))
    return "\n".join(parts)


def _why_not(course: Course, proposer: str) -> str:
    failure = course.failure
    text = f"<p>{esc(failure.kind)}: {esc(failure.message, 2000)}</p>" if failure is not None else ""
    hint = advice(course, proposer)
    return text + (f"<p>What to try: {esc(hint)}</p>" if hint else "")


class _Sources:
    """Artifacts of one task, each read once."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._kept: dict[str, str] = {}

    def text(self, sha: str) -> str:
        if sha not in self._kept:
            self._kept[sha] = self._read(sha)
        return self._kept[sha]

    def diff(self, old: str, new: str, names: tuple[str, str]) -> list[str]:
        before, after = (self.text(sha).splitlines() for sha in (old, new))
        return list(difflib.unified_diff(before, after, *names, n=2, lineterm=""))


def _sources(course: Course, sources: _Sources) -> str:
    draft, chosen = course.draft, course.chosen
    if chosen is None or not chosen.sha:
        return ""
    parts = []
    if draft is not None and draft.candidate != chosen.candidate:
        lines = sources.diff(draft.sha, chosen.sha, (f"attempt {draft.number}", f"attempt {chosen.number}"))
        text = f"What changed from the first feasible kernel to the best ({_counted(lines)})"
        parts.append(folded(text, f"<pre>{diff(lines[:800])}</pre>" + _left_out(len(lines) - 800)))
    title = f"Source of the {'best kernel' if course.best else 'undecided kernel'} (attempt {chosen.number})"
    parts.append(folded(title, f"<pre>{code(sources.text(chosen.sha), _LONGEST_SOURCE)}</pre>"))
    return "\n".join(parts)


def _counted(lines: Sequence[str]) -> str:
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    gone = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return f"+{added} -{gone} lines"


def _left_out(lines: int) -> str:
    return (
        f'<p class="soft">{lines} more lines; <code>agent runs export</code> writes every source.</p>'
        if lines > 0
        else ""
    )


def _attempts(course: Course, sources: _Sources, anchors: Mapping[str, str], room: int) -> str:
    numbers: dict[str, Attempt] = {}
    rows = []
    for item in course.attempts:
        parent = numbers.get(item.parent)
        shown = ""
        if item.sha and not item.again and parent is not None and parent.sha and room > 0:
            names = (f"attempt {parent.number}", f"attempt {item.number}")
            lines = sources.diff(parent.sha, item.sha, names)
            text = f"<pre>{diff(lines[:200])}</pre>{_left_out(len(lines) - 200)}"
            room -= len(text)
            shown = folded(f"diff to attempt {parent.number} ({_counted(lines)})", text) if room > 0 else ""
        if item.candidate:
            numbers.setdefault(item.candidate, item)
        rows.append(
            (
                str(item.number),
                esc(item.stage),
                str(parent.number) if parent is not None else "-",
                _outcome(item),
                esc(results.seconds(item.latency.get("seconds")) if item.latency else "-"),
                esc(value(item.cost, unit(course)) if item.cost is not None else "-"),
                _told(item) + shown,
                " ".join(_link(name, anchors) for name in item.items[:12]),
                "-" if item.seconds is None else f"{item.seconds:.1f}",
            )
        )
    head = (
        "attempt",
        "stage",
        "from",
        "verdict",
        "latency",
        "cost",
        "what changed, what was said",
        "memory used",
        "judged in s",
    )
    return table(head, rows)


def _outcome(item: Attempt) -> str:
    kind = {"ok": "proven", "failed": "failed"}.get(item.outcome, "unproven")
    words = WORDS[item.outcome] + (" (proposed before)" if item.again else "")
    return f'<span class="{kind}">{esc(words)}</span>' + (f" {esc(item.rejection)}" if item.rejection else "")


def _told(item: Attempt) -> str:
    parts = [f"<p>{esc(item.change, 300)}</p>"] if item.change else []
    if item.kind:
        parts.append(f"<p>{esc(item.kind)}: {esc(item.message, 600)}</p>")
    if item.gates:
        words = {"passed": "pass", "failed": "FAIL", "skipped": "SKIPPED"}
        said = ", ".join(f"{gate['gate']} {words.get(gate['status'], gate['status'])}" for gate in item.gates)
        parts.append(f'<p class="soft">{esc(said)}</p>')
    return "".join(parts)


def _link(name: str, anchors: Mapping[str, str]) -> str:
    short = esc(name[:6])
    return f'<a href="#{anchors[name]}">{short}</a>' if name in anchors else f"{short} (forgotten)"
