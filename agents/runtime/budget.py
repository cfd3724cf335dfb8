"""Counts what a run may spend. Work in flight is reserved before it starts, so that no limit is ever overrun."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from orienteer.agents.runtime.config import Budgets
from orienteer.errors import BudgetReached, Interrupted

#: How often a waiting thread looks whether the run was stopped (seconds).
_LOOK = 0.1


@dataclass(frozen=True)
class Reservation:
    """Tokens and money that a model call in flight may use."""

    tokens: int
    cost: float | None
    thread: int
    number: int


class Budget:
    """The limits of a run and what was used of them; safe to share between threads.

    Args:
        limits: the limits.
        tokens: tokens used before (a resume).
        cost: money spent before.
        active_s: seconds of activity before.
        cancel: set when the run is to stop.
        on_event: told ``budget.blind`` when money cannot be counted because a price is unknown.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        limits: Budgets,
        *,
        tokens: int = 0,
        cost: float = 0.0,
        active_s: float = 0.0,
        cancel: threading.Event | None = None,
        on_event: Callable[[str, dict[str, object]], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.tokens = tokens
        self.cost = cost
        self._before = active_s
        self._clock = clock
        self._began = clock()
        self._cancel = cancel or threading.Event()
        self._on_event = on_event
        self._open: dict[int, Reservation] = {}
        self._count = 0
        self._blind = False
        self._changed = threading.Condition()

    # -- time -------------------------------------------------------------------------------------------------------

    @property
    def active_s(self) -> float:
        """Seconds of activity, all sessions of the run together."""
        return self._before + (self._clock() - self._began)

    def check_time(self) -> None:
        """Raise ``BudgetReached`` when the time is up."""
        if self.limits.time is not None and self.active_s >= self.limits.time:
            raise BudgetReached(f"the time budget of {self.limits.time:g} s is used up", "resume with a larger --time")

    def time_left(self) -> float | None:
        """Return the seconds that are left, zero when the time is up; None: no limit."""
        return None if self.limits.time is None else max(0.0, self.limits.time - self.active_s)

    # -- evaluations ------------------------------------------------------------------------------------------------

    def evaluations_left(self, performed: int) -> int | None:
        """Return how many more evaluations may be performed; None: any number."""
        return None if self.limits.evals is None else max(0, self.limits.evals - performed)

    def evaluations_reached(self) -> BudgetReached:
        """Return the error that says that no evaluation is left."""
        return BudgetReached(
            f"the budget of {self.limits.evals} evaluations is used up", "resume with a larger --evals"
        )

    # -- tokens and money -------------------------------------------------------------------------------------------

    def reserve(self, tokens: int, cost: float | None) -> Reservation:
        """Set tokens and money aside for a call about to be made.

        Where only calls in flight stand in the way, wait for them: they mostly use less than they reserved.

        Args:
            tokens: the most it can use, in and out.
            cost: the most it can cost; None when the price is unknown.

        Raises:
            BudgetReached: there is not enough left.
            Interrupted: the run was stopped while waiting.
        """
        me = threading.get_ident()
        if cost is None and self.limits.cost is not None:
            self._say_blind()
        with self._changed:
            while True:
                self.check_time()
                reached = self._reached(tokens, cost, *self._flying())
                if reached is None:
                    self._count += 1
                    given = Reservation(tokens, cost, me, self._count)
                    self._open[given.number] = given
                    return given
                others = any(item.thread != me for item in self._open.values())
                if not others or self._reached(tokens, cost, 0, 0.0) is not None:
                    raise reached
                if self._cancel.is_set():
                    raise Interrupted("the run was stopped", "resume it")
                self._changed.wait(_LOOK)

    def settle(self, reservation: Reservation, tokens: int, cost: float | None) -> None:
        """Replace a reservation by what was really used."""
        with self._changed:
            if self._open.pop(reservation.number, None) is None:
                return
            self.tokens += tokens
            self.cost += cost or 0.0
            self._changed.notify_all()
        if cost is None and tokens and self.limits.cost is not None:
            self._say_blind()

    def reserved_cost(self) -> float | None:
        """Return the money that this thread's calls in flight may cost; None when unknown."""
        me = threading.get_ident()
        with self._changed:
            costs = [item.cost for item in self._open.values() if item.thread == me]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None

    def document(self) -> dict[str, object]:
        """Return limits and use as plain data."""
        return {
            "limits": {
                "evals": self.limits.evals,
                "tokens": self.limits.tokens,
                "cost": self.limits.cost,
                "time": self.limits.time,
            },
            "tokens": self.tokens,
            "cost": self.cost,
            "cost_is_complete": not self._blind,
            "active_s": round(self.active_s, 3),
        }

    def _flying(self) -> tuple[int, float]:
        return sum(item.tokens for item in self._open.values()), sum(item.cost or 0.0 for item in self._open.values())

    def _reached(self, tokens: int, cost: float | None, flying_tokens: int, flying_cost: float) -> BudgetReached | None:
        limits = self.limits
        if limits.tokens is not None and self.tokens + flying_tokens + tokens > limits.tokens:
            left = max(0, limits.tokens - self.tokens)
            return BudgetReached(
                f"the budget of {limits.tokens} tokens allows no further call ({left} left, {tokens} needed)",
                "resume with a larger --tokens",
            )
        if limits.cost is not None and self.cost + flying_cost + (cost or 0.0) > limits.cost:
            return BudgetReached(
                f"the budget of {limits.cost:g} in money allows no further call ({self.cost:.4g} spent)",
                "resume with a larger --cost",
            )
        return None

    def _say_blind(self) -> None:
        with self._changed:
            if self._blind:
                return
            self._blind = True
        if self._on_event is not None:
            self._on_event(
                "budget.blind",
                {"message": "the price of the model is unknown: the cost limit cannot act, the token limit does"},
            )
