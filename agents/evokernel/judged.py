"""A verdict as HTML: gates, and the latency by kernel and pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.agents.evokernel import results
from orienteer.agents.evokernel.telling import share_of_floor
from orienteer.agents.markup import esc, facts, table
from orienteer.agents.plainly import GATE_MARKS


def gates(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return every gate's answer."""
    rows = []
    for gate in answers:
        mark = GATE_MARKS.get(gate["status"], "")
        more = {
            key: item for key, item in gate.get("facts", {}).items() if key in ("notes", "flags", "no_latency") and item
        }
        said = "; ".join(f"{key.replace('_', ' ')}: {_listed(item)}" for key, item in more.items())
        detail = " ".join(text for text in (gate["detail"], f"({gate['kind']})" if gate["kind"] else "", said) if text)
        rows.append(
            (esc(gate["gate"]), f'<span class="{mark}">{esc(mark or gate["status"])}</span>', esc(detail, 1000))
        )
    return table(("gate", "answer", "detail"), rows) if rows else '<p class="soft">No gate was reached.</p>'


def _listed(item: Any) -> str:
    return ", ".join(map(str, item)) if isinstance(item, list) else str(item)


def latency_of(latency: Mapping[str, Any]) -> str:
    """Return a latency (``Latency.describe()``) with all that stands behind it."""
    if not latency:
        return '<p class="soft">No latency is known for this kernel.</p>'
    kept = latency.get("facts") or {}
    least = latency.get("floor_s")
    where = ", ".join(str(latency[key]) for key in ("device", "level") if latency.get(key))
    said = facts(
        {
            "latency": f"{results.seconds(latency['seconds'])} on {where}: {latency.get('how', '')}",
            "quartiles": " to ".join(results.seconds(item) for item in latency.get("spread") or ()),
            "floor": f"{results.seconds(least)}; the kernel reaches {share_of_floor(latency)} of that speed"
            if least
            else "",
            "bound by": latency.get("bottleneck", ""),
            "reference": f"{results.seconds(latency['baseline_s'])}, measured in the same minute"
            if latency.get("baseline_s")
            else "not measured at this level",
            **{
                key.replace("_", " "): _listed(item)
                for key, item in kept.items()
                if key not in ("kernels", "rates", "others") and not isinstance(item, Mapping)
            },
        }
    )
    kernels = kept.get("kernels") or ()
    return "<h3>Latency</h3>\n" + said + (_breakdown(kernels) if kernels else "")


def _breakdown(kernels: Sequence[Mapping[str, Any]]) -> str:
    """Return the latency by kernel, and by pipe where the model knows pipes."""
    pipes = list(dict.fromkeys(name for kernel in kernels for name in kernel.get("units", {})))
    scalars = [
        name
        for name in dict.fromkeys(key for kernel in kernels for key in kernel)
        if name not in ("name", "launches", "grid", "seconds", "bottleneck", "units")
        and all(isinstance(kernel.get(name, ""), str | int | float) for kernel in kernels)
    ]
    rows = []
    for kernel in kernels:
        busy = kernel.get("units", {})
        rows.append(
            [
                esc(kernel.get("name", ""), 60),
                esc(kernel.get("launches", "")),
                esc(" x ".join(map(str, kernel.get("grid", ())))),
                esc(results.seconds(kernel.get("seconds"))),
                esc(kernel.get("bottleneck", "")),
                *(esc(results.seconds(busy.get(pipe))) for pipe in pipes),
                *(esc(results.number(kernel.get(name))) for name in scalars),
            ]
        )
    head = [
        "kernel",
        "launches",
        "grid",
        "seconds each",
        "bound by",
        *pipes,
        *(name.replace("_", " ") for name in scalars),
    ]
    return table(head, rows, "nums")
