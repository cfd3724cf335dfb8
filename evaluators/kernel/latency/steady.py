"""Loops that have become steady: each turn moves every clock, every flag and every carried value by the same amount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orienteer.evaluators.kernel.latency.core import Core

#: Turns after which a loop may repeat itself: buffers are used in turn.
PERIODS = (1, 2, 3, 4)
#: Turns that are walked at the end of a loop whose middle was skipped.
LAST_TURNS = 2


class Snapshot:
    """All clocks, flags and carried values after a turn."""

    def __init__(self, core: Core, values: Sequence[Any]) -> None:
        self.clock = dict(core.clock)
        self.tokens = {key: tuple(queue) for key, queue in core.tokens.items()}
        self.values = list(values)

    def since(self, before: Snapshot) -> list[float] | None:
        """Return how much everything moved; None when there is something now that was not there before."""
        sizes = [(len(one.clock), len(one.tokens), len(one.values)) for one in (self, before)]
        if sizes[0] != sizes[1]:
            return None
        moved = [value - before.clock[key] for key, value in self.clock.items()]
        for key, queue in self.tokens.items():
            old = before.tokens.get(key, ())
            if len(old) != len(queue):
                return None
            moved += [new - was for new, was in zip(queue, old, strict=True)]
        for new, was in zip(self.values, before.values, strict=True):
            if isinstance(new, int) and isinstance(was, int):
                moved.append(new - was)
            elif new != was:
                return None
        return moved


def steady(history: Sequence[Snapshot]) -> int:
    """Return after how many turns everything has moved by the same amount again, or 0."""
    for period in PERIODS:
        if len(history) < 2 * period + 1:
            return 0
        last = history[-1].since(history[-1 - period])
        before = history[-1 - period].since(history[-1 - 2 * period])
        if (
            last is not None
            and before is not None
            and all(abs(a - b) <= 1e-6 * max(1.0, abs(a)) for a, b in zip(last, before, strict=False))
        ):
            return period
    return 0


def skip(core: Core, history: Sequence[Snapshot], period: int, times: int) -> list[Any]:
    """Move everything on by a number of periods; returns the carried values."""
    now, before = history[-1], history[-1 - period]
    for key, value in now.clock.items():
        core.clock[key] = value + times * (value - before.clock[key])
    for token, queue in now.tokens.items():
        old = before.tokens[token]
        core.tokens[token] = [new + times * (new - was) for new, was in zip(queue, old, strict=True)]
    return [
        new + times * (new - was) if isinstance(new, int) and isinstance(was, int) else new
        for new, was in zip(now.values, before.values, strict=True)
    ]
