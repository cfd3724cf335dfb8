"""Drawings of a report: lineages, curves and values as inline SVG. Colours and strokes are the style sheet's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from orienteer.agents.evokernel.course import WORDS, Attempt, Course
from orienteer.agents.markup import esc

#: What a rejected attempt's mark says of its class.
LETTERS = {
    "cheat": "!",
    "incorrect": "x",
    "compile": "c",
    "limit": "l",
    "crash": "k",
    "time-out": "t",
    "contract": "f",
    "ours": "?",
}
#: Widest drawing and widest step from one attempt to the next, in pixels.
_WIDTH, _STEP = 900.0, 28.0


def _svg(width: float, height: float, kind: str, label: str, body: Iterable[str]) -> str:
    return (
        f'<svg class="{kind}" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" aria-label="{esc(label)}">{"".join(body)}</svg>'
    )


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def spark(values: Sequence[float], width: float = 84.0, height: float = 18.0, zero: bool = False) -> str:
    """Draw a small line; with ``zero`` between -1 and 1 at least, with the axis of 0."""
    if not values:
        return ""
    low, high = min(values), max(values)
    if zero:
        low, high = min(low, -1.0), max(high, 1.0)
    span = (high - low) or 1.0

    def y(value: float) -> float:
        return 2 + (height - 4) * (1 - (value - low) / span)

    across = (width - 6) / max(1, len(values) - 1)
    points = [(3 + i * across, y(value)) for i, value in enumerate(values)]
    body = [f'<path class="axis" d="M0 {y(0):.1f}H{width:.0f}"/>'] if zero else []
    if len(points) > 1:
        body.append(f'<path class="line" d="{_path(points)}"/>')
    body.append(f'<circle class="dot" cx="{points[-1][0]:.1f}" cy="{points[-1][1]:.1f}" r="2"/>')
    return _svg(width, height, "spark", f"{len(values)} values, from {values[0]:.3g} to {values[-1]:.3g}", body)


def _across(attempts: int) -> float:
    return min(_STEP, (_WIDTH - 90) / max(1, attempts))


def _said(item: Attempt) -> str:
    """Return what a mark's tooltip says."""
    words = [f"attempt {item.number}", item.stage, WORDS[item.outcome]]
    if item.kind:
        words.append(f"{item.rejection}: {item.kind}" if item.rejection else item.kind)
    if item.change:
        words.append(item.change[:120])
    return ", ".join(words)


def tree(course: Course) -> str:
    """Draw a task's lineage: attempts from left to right, every one below what it started from."""
    across = _across(len(course.attempts))
    depth: dict[str, int] = {}
    place: dict[str, tuple[float, float]] = {}
    deep = 0
    edges, marks = [], []
    best = course.best
    for item in course.attempts:
        level = depth[item.parent] + 1 if item.parent in depth else 0
        deep = max(deep, level)
        x, y = 44 + item.place * across, 14.0 + level * 22
        if item.parent in place:
            px, py = place[item.parent]
            middle = (py + y) / 2
            edges.append(
                f'<path class="edge" d="M{px:.1f} {py:.1f}C{px:.1f} {middle:.1f} {x:.1f} {middle:.1f} '
                f'{x:.1f} {y:.1f}"/>'
            )
        marks.append(_mark(item, x, y, min(7.0, across / 2.2), item is best))
        if item.candidate and item.candidate not in place:
            place[item.candidate], depth[item.candidate] = (x, y), level
    width = 60 + (len(course.attempts) + 1) * across
    label = f"lineage of {course.task}: {len(course.attempts)} attempts"
    return _svg(width, 28 + deep * 22, "tree", label, [*edges, *marks])


def _mark(item: Attempt, x: float, y: float, r: float, best: bool) -> str:
    title = f"<title>{esc(_said(item))}</title>"
    if item.outcome == "ok":
        ring = f'<circle class="ring" cx="{x:.1f}" cy="{y:.1f}" r="{r + 3:.1f}"/>' if best else ""
        kind = "ok draft" if item.stage == "draft" else "ok"
        return f'<g>{title}{ring}<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/></g>'
    kind = {"failed": "bad", "unknown": "open", "none": "none", "ours": "ours", "pending": "open"}[item.outcome]
    letter = (
        LETTERS.get(item.rejection, "")
        if item.outcome == "failed"
        else {"none": "-", "ours": "?"}.get(item.outcome, "")
    )
    text = f'<text x="{x:.1f}" y="{y + 3.5:.1f}">{esc(letter)}</text>' if letter and r >= 5 else ""
    side = 2 * r
    place = f'x="{x - r:.1f}" y="{y - r:.1f}" width="{side:.1f}" height="{side:.1f}"'
    return f'<g>{title}<rect class="{kind}" {place}/>{text}</g>'


def curve(course: Course, unit: str, written: Sequence[str]) -> str:
    """Draw the cost of every feasible attempt and the least so far, on a logarithmic scale.

    Args:
        course: the task's.
        unit: what the cost is, for the label.
        written: the largest and the least cost of the drawing in words.
    """
    timed = [(item.place, item.cost) for item in course.attempts if item.outcome == "ok" and item.cost]
    if not timed:
        return ""
    across, height = _across(len(course.attempts)), 96.0
    low, high = (math.log(pick(cost for _, cost in timed)) for pick in (min, max))
    span = high - low

    def at(place: int, cost: float) -> tuple[float, float]:
        share = (math.log(cost) - low) / span if span > 1e-9 else 0.5
        return 44 + place * across, 12 + (height - 30) * (1 - share)

    points: list[tuple[float, float]] = []
    for item, least in course.curve:
        x, y = at(item.place, least)
        if points:
            points.append((x, points[-1][1]))
        points.append((x, y))
    last = 44 + len(course.attempts) * across
    points.append((last, points[-1][1]))
    width = 60 + (len(course.attempts) + 1) * across
    body = [
        f'<path class="axis" d="M44 {height - 14:.0f}H{width - 8:.0f}"/>',
        f'<path class="line" d="{_path(points)}"/>',
        *(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>' for x, y in (at(*item) for item in timed)),
        f'<text class="tick" x="0" y="16">{esc(written[0])}</text>',
        f'<text class="tick" x="0" y="{height - 18:.0f}">{esc(written[1])}</text>' if span > 1e-9 else "",
        f'<text class="tick" x="{44 + across:.1f}" y="{height - 2:.0f}">1</text>',
        f'<text class="tick" x="{last:.1f}" y="{height - 2:.0f}">{len(course.attempts)}</text>',
    ]
    return _svg(width, height, "curve", f"{unit} of {course.task} by attempt, least {written[1]}", body)
