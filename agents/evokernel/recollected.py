"""The memory's part of a report: what was recalled and used, and how its values moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.agents.evokernel import drawings
from orienteer.agents.evokernel.course import Course
from orienteer.agents.markup import esc, table

#: Most items that are shown with their course.
_MOST = 400


def remembered(document: Mapping[str, Any], found: Sequence[Course], anchors: Mapping[str, str]) -> str:
    """Return the section on the memory.

    Args:
        document: the run; ``memory`` holds its items, their history and the ids of those that were forgotten since.
        found: the courses of its tasks.
        anchors: the anchor of every item by its id.
    """
    memory = document.get("memory") or {}
    items, forgotten = memory.get("items", ()), memory.get("forgotten", ())
    kind = str(document["provenance"].get("memory", "none"))
    parts = ["<h2>Memory</h2>\n"]
    if kind == "none" and not items:
        return parts[0] + "<p>The run had no memory.</p>\n"
    tasks: dict[str, list[str]] = {}
    for course in found:
        for attempt in course.attempts:
            for name in attempt.items:
                tasks.setdefault(name, []).append(course.task)
    shown = [item for item in items if item["used"] or item["history"]]
    shown.sort(key=lambda item: (-item["used"], -len(item["history"]), item["id"]))
    recalled = sum(not item["used"] and item["recalled"] > 0 for item in items)
    only = f"; {recalled} more were only recalled" if recalled else ""
    parts.append(
        f"<p>Memory: {esc(kind)}. {len(shown)} items were used or rated by this run{only}. Q1 judges an item's help "
        "while drafting, Q2 while refining; a line shows how a value moved in this run, from -1 to 1 or further.</p>\n"
    )
    if forgotten:
        ids = ", ".join(esc(name[:8]) for name in forgotten[:60])
        more = f" and {len(forgotten) - 60} more" if len(forgotten) > 60 else ""
        parts.append(
            f'<div class="warn"><p>{len(forgotten)} items that the run recalled were forgotten since; their texts and '
            f"values are lost: {ids}{more}.</p></div>\n"
        )
    rows = [_row(item, anchors, tasks) for item in shown[:_MOST]]
    if rows:
        head = ("item", "kind", "evidence", "of", "text", "used", "Q1", "Q2")
        parts.append(table(head, rows))
    if len(shown) > _MOST:
        parts.append(f"<p>{len(shown) - _MOST} more items: <code>agent runs show --json</code>.</p>\n")
        parts.append("".join(f'<span id="{anchors[item["id"]]}"></span>' for item in shown[_MOST:]))
    return "".join(parts)


def _row(item: Mapping[str, Any], anchors: Mapping[str, str], tasks: Mapping[str, Sequence[str]]) -> Sequence[str]:
    own = list(dict.fromkeys(tasks.get(item["id"], ())))
    where = f"{len(own)} tasks" if len(own) > 3 else ", ".join(own)
    origin = " ".join(part for part in (item["task"] or item["family"], item["target"]) if part)
    return (
        f'<span id="{anchors[item["id"]]}"><code>{esc(item["id"][:8])}</code></span>',
        esc(f"{item['kind']} {item['outcome']}".strip()),
        esc(item["evidence"] or "none"),
        esc(origin, 60),
        esc(item["text"], 300),
        f"{item['used']}{f' ({esc(where, 90)})' if where else ''}",
        _values(item, "draft"),
        _values(item, "refine"),
    )


def _values(item: Mapping[str, Any], stage: str) -> str:
    """Return how a value under any state moved in the run; earlier updates are counted."""
    changes = [change for change in item["history"] if change["stage"] == stage and not change["signature"]]
    if not changes:
        return "-"
    first, last = changes[0], changes[-1]
    line = drawings.spark([first["before"], *(change["after"] for change in changes)], zero=True)
    earlier = first["visits"] - 1
    before = f", {earlier} before" if earlier > 0 else ""
    return f"{line}<br>{first['before']:.2f} to {last['after']:.2f} ({len(changes)} updates{before})"
