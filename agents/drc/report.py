"""The report of a run: one HTML page that needs nothing outside itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from orienteer.agents.markup import code, esc, facts, folded, table, whole

Read = Callable[[str], str]


def page(document: Mapping[str, Any], read: Read) -> str:
    """Return the report.

    Args:
        document: the run as :func:`orienteer.agents.runtime.records.show_run` gives it.
        read: returns the text of an artifact; a note in brackets where it is lost.
    """
    result = document.get("result") or {}
    provenance = document.get("provenance", {})
    head = {
        "run": document["id"],
        "status": document["status"],
        "proposer": document.get("proposer", ""),
        "decks run by": f"{provenance.get('deck_backend', '')}, KLayout {provenance.get('klayout', '')}",
        "seed": document.get("seed"),
        **result.get("summary", {}),
    }
    parts = ["<h1>DRC decks</h1>", facts(head)]
    parts += [_task(item, read) for item in result.get("tasks", [])]
    return whole(f"drc {document['id']}", parts)


def _task(item: Mapping[str, Any], read: Read) -> str:
    head = f"<h2>{esc(item['task'])}</h2>\n"
    if "deck" not in item:
        return head + f"<p>{esc(item['status'])}: {esc(item.get('reason', ''))}</p>\n"
    known: dict[str, object] = {
        "chosen": f"reading {item['number']} of {item['candidates']}: {item['reading']}",
        "by": item["why"],
        "behaviours among the candidates": item["behaviours"],
        "labels asked for": item["asked"],
        "remarks": "; ".join(f"{remark['about']}: {remark['said']}" for remark in item.get("remarks", ())),
    }
    if "success" in item:
        known["right on all labelled layouts"] = "yes" if item["success"] else "no"
        known["layouts right"] = f"{item['case_accuracy']:.1%}"
        known["wrong on"] = ", ".join(item["wrong"])
        known["cannot be won (no layout violates)"] = ", ".join(item["unwinnable"])
    readings = table(
        ("", "reading", "held likely"),
        (
            [
                "&#9733;" if other["number"] == item["number"] else str(other["number"]),
                esc(other["reading"] or other["candidate"], 400),
                esc(other["failure"] or f"{other['prior']:.0%}"),
            ]
            for other in item["others"]
        ),
    )
    layouts = table(
        ("layout", "what each reading says (1: violation)", "right", "who says so"),
        (
            [
                esc(layout["about"]),
                esc("; ".join(f"{name} {bits}" for name, bits in layout["answers"].items())),
                esc(", ".join(f"{c} {'violation' if v else 'fine'}" for c, v in layout["expected"].items())),
                esc(layout["who"]),
            ]
            for layout in item["layouts"]
        ),
    )
    pictures = "".join(
        f"<h3>not reading {esc(', '.join(map(str, shown['readings'])))}: {esc(shown['about'])}</h3>"
        f'<p><img alt="{esc(shown["about"])}" src="data:image/png;base64,{esc(read(shown["picture"]))}"></p>\n'
        for shown in item.get("apart", ())
    )
    deck = f"<pre>{code(read(item['deck_sha']))}</pre>"
    return (
        head
        + facts(known)
        + deck
        + pictures
        + folded("readings", readings, opened=True)
        + folded("layouts", layouts, opened=True)
    )
