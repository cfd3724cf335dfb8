"""What happens in a run, told to whoever listens and kept in the database.

Kinds (facts in parentheses):

========================  =============================================================================================
``run.start``             a run begins (method, tasks, proposer, seed)
``run.resume``            it goes on after a stop or a crash (from_step, changed, lost_calls, reopened)
``run.end``               it ends (status, reason, steps)
``step.plan``             a step's asks are written down (asks, tasks)
``step.learn``            the method has learnt from a step (outcomes, complete)
``proposal.done``         a candidate was made (slot, task, candidate, fresh)
``proposal.failed``       there is none, and why (slot, task, failure, message)
``proposal.machinery``    our machinery failed while proposing (slot, task, message)
``evaluation.start``      an evaluation begins; told live, not kept (slot, task, candidate)
``evaluation.done``       a verdict (slot, task, candidate, status, score, evidence, failure, message, seconds)
``evaluation.reused``     a verdict of another run was taken (slot, task, candidate, from_run)
``evaluation.machinery``  our machinery failed while evaluating (slot, task, candidate, message)
``budget.blind``          the price of the model is unknown, the cost limit cannot act (message)
``budget.reached``        a limit allows no more work (message)
``question``              a person is asked (task, text)
``answer``                what they said (task, text)
``run.cut``               a second signal ends the process at once; told live, not kept
``checkpoint.rebuilt``    the graph's checkpoint was missing or of another version; the run database took its place
``model.*``, others       from the model session and from methods (``run.emit``)
========================  =============================================================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orienteer.memory.journal import Journal
from orienteer.memory.plain import plain

#: Kinds that are told but not kept.
LIVE = frozenset({"evaluation.start", "run.cut"})


@dataclass(frozen=True)
class Event:
    """Something that happened in a run."""

    run_id: str
    #: Seconds since the epoch.
    t: float
    step: int
    kind: str
    facts: dict[str, Any]


Listener = Callable[[Event], None]


class EventLog:
    """Keeps events (with the next transaction) and tells the listener.

    Args:
        journal: where they are kept.
        listener: called with every event, one at a time, from the thread where it happened. What it raises is
            swallowed: a broken display must not end a run.
    """

    def __init__(self, journal: Journal, listener: Listener | None = None) -> None:
        self._journal = journal
        self._listener = listener
        self._lock = threading.Lock()

    def emit(self, step: int, kind: str, facts: dict[str, Any]) -> None:
        """Record one event."""
        now = time.time()
        known = plain(facts, "facts", lenient=True)
        if kind not in LIVE:
            self._journal.note(now, step, kind, known)
        if self._listener is not None:
            with self._lock:
                try:
                    self._listener(Event(self._journal.run_id, now, step, kind, known))
                except Exception:
                    self._listener = None
