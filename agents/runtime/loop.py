"""The one loop that drives every method: ``plan -> propose -> evaluate -> learn``, as a langgraph ``StateGraph``.

The graph's state holds ids and counters only. The run database is the truth: each node looks there for what is done
already, does the rest, and writes each result down in one transaction. Running a node again is therefore harmless,
which is what makes a resume after ``kill -9`` exact.
"""

from __future__ import annotations

import hashlib
import json
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, cast

from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from orienteer.agents.runtime.budget import Budget
from orienteer.agents.runtime.events import EventLog
from orienteer.agents.runtime.judging import Judge
from orienteer.agents.runtime.method import Ask, AskPerson, Method, Proposal, ProposalFailed
from orienteer.agents.runtime.models import ModelFailure
from orienteer.agents.runtime.run import PLACE, Run, ask_from, ask_of
from orienteer.errors import BudgetReached, Interrupted, OrienteerError
from orienteer.memory.journal import Journal, NewCandidate
from orienteer.memory.plain import dumps, plain

#: Version of the graph and of what its nodes expect in the database; a checkpoint of another one is not used.
RUN_VERSION = 1


class LoopState(TypedDict, total=False):
    """Everything that a checkpoint holds."""

    run: str
    version: int
    step: int
    #: Empty while the loop turns; then ``done``, ``budget`` or ``failed``.
    stop: str
    evals: int
    tokens: int


class Place(TypedDict):
    """What a fan-out task is told."""

    step: int
    slot: int


class RunBroken(Exception):
    """The method itself raised where it must not: the run ends as failed.

    Args:
        reason: one line.
        traceback_sha: artifact with the traceback.
    """

    def __init__(self, reason: str, traceback_sha: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.traceback_sha = traceback_sha


@dataclass
class Stop:
    """Why the loop ends."""

    status: str
    reason: str


class Loop:
    """Nodes of the graph for one run.

    Args:
        run: the context handed to the method.
        method: the policy.
        journal: the run's record.
        budget: its limits.
        events: its events.
        reuse: take verdicts of other runs.
    """

    def __init__(
        self, run: Run, method: Method, journal: Journal, budget: Budget, events: EventLog, *, reuse: bool = False
    ) -> None:
        self.run = run
        self.method = method
        self.journal = journal
        self.budget = budget
        self.events = events
        self.judge = Judge(run, method, journal, budget, events, reuse=reuse)
        #: Set when the loop ends for a reason other than an exception.
        self.stop: Stop | None = None
        self._lock = threading.Lock()
        self._step = -1
        self._asks: dict[int, Ask] = {}
        self._status: dict[int, str] = {}
        self._state: tuple[int, str] | None = None
        self._turns = 0

    # -- graph ------------------------------------------------------------------------------------------------------

    def graph(self) -> StateGraph[Any, Any, Any, Any]:
        """Return the graph, not compiled."""
        # Any: langgraph's types know no node that is sent something else than the state.
        graph: Any = StateGraph(LoopState)
        graph.add_node("plan", self.plan, destinations=("propose", "evaluate", "learn", END))
        graph.add_node("propose", self.propose, destinations=("evaluate",))
        graph.add_node("evaluate", self.evaluate)
        graph.add_node("learn", self.learn, destinations=("plan", END))
        graph.add_edge(START, "plan")
        graph.add_edge("evaluate", "learn")
        return cast(StateGraph[Any, Any, Any, Any], graph)

    def plan(self, state: LoopState) -> Command[Any]:
        """Ask the method for this step's candidates, unless that is written down already, and fan out."""
        step = state["step"]
        self._alive()
        PLACE.set(("plan", step, None))
        self.run.step = step
        text = self.state_before(step)
        if self._guarded("finished", lambda: self.method.finished(self.run, _load(text))):
            return self._end("done", "the goal is reached")
        self._open_step(step)
        if not self._asks:
            try:
                self.budget.check_time()
                asks = self._guarded("plan", lambda: _checked_asks(self.method.plan(self.run, _load(text))))
            except BudgetReached as reached:
                return self._end("budget", str(reached))
            if not asks:
                return self._end("done", "the method wants nothing more")
            self.events.emit(step, "step.plan", {"asks": len(asks), "tasks": sorted({task for task, _ in asks})})
            self.journal.write_asks(step, [(task, dumps(ask)) for task, ask in asks])
            self._asks = {slot: ask_from(ask, step, slot) for slot, (_, ask) in enumerate(asks)}
            self._status = dict.fromkeys(self._asks, "asked")
        fresh = all(status == "asked" for status in self._status.values())
        if fresh and self.budget.evaluations_left(self.judge.performed()) == 0:
            return self._end("budget", str(self.budget.evaluations_reached()))
        todo = [slot for slot, status in self._status.items() if status == "asked"]
        if todo:
            return Command(goto=[Send("propose", Place(step=step, slot=slot)) for slot in todo])
        return Command(goto=[Send("evaluate", Place(step=step, slot=slot)) for slot in self._status])

    def propose(self, place: Place) -> Command[Any]:
        """Make one candidate and write it down."""
        step, slot = place["step"], place["slot"]
        self._alive()
        self._open_step(step)
        onward: Command[Any] = Command(goto=Send("evaluate", place))
        if self._status[slot] != "asked" or self.stop is not None:
            return onward
        PLACE.set(("propose", step, slot))
        try:
            self.budget.check_time()
            self._propose(self._asks[slot])
        except BudgetReached as reached:
            self._reached(reached)
        return onward

    def evaluate(self, place: Place) -> dict[str, Any]:
        """Judge one candidate of this step, unless that is written down already or no budget is left."""
        self._alive()
        self._open_step(place["step"])
        PLACE.set(("evaluate", place["step"], place["slot"]))
        try:
            self.judge.judge(place["step"], place["slot"])
        except BudgetReached as reached:
            self._reached(reached)
        return {}

    def learn(self, state: LoopState) -> Command[Any]:
        """Hand the outcomes to the method, in the order of the plan, and keep its new state."""
        step = state["step"]
        self._alive()
        PLACE.set(("learn", step, None))
        self.run.step = step
        self._open_step(step)
        outcomes = self.judge.outcomes(step)
        settled = [o for o in outcomes if o.evaluation is not None or o.failure is not None]
        if self.stop is None and self.judge.reached is not None:
            self._reached(self.judge.reached)
        ours = [o for o in settled if o.failure is not None and o.failure.kind == "machinery"]
        if ours and (len(ours) == len(settled) or self.judge.hopeless()):
            failure = ours[0].failure
            assert failure is not None
            return self._end("failed", f"our own machinery failed for all of step {step}: {failure.message}")
        if len(settled) < len(outcomes) and self.stop is None:
            # A checkpoint ran ahead of the database (a power cut): do what is missing.
            self._turns += 1
            if self._turns > 2:
                raise RuntimeError(f"step {step} does not settle")
            self._step = -1
            return Command(goto="plan")
        self._turns = 0
        complete = len(settled) == len(outcomes)
        if settled:
            text = self.state_before(step)
            try:
                new = self._guarded(
                    "learn", lambda: dumps(plain(self.method.learn(self.run, _load(text), settled), "the state"))
                )
            except BudgetReached as reached:
                return self._end("budget", str(reached))
            self.events.emit(step, "step.learn", {"outcomes": len(settled), "complete": complete})
            self.journal.save_state(step, new, complete=complete)
            if complete:
                self._state = (step, new)
        if self.stop is not None:
            return self._end(self.stop.status, self.stop.reason)
        return Command(
            update={"step": step + 1, "evals": self.judge.performed(), "tokens": self.budget.tokens}, goto="plan"
        )

    # -- parts of the nodes -----------------------------------------------------------------------------------------

    def state_before(self, step: int) -> str:
        """Return the method's state that a step starts from, as JSON."""
        if self._state is None or self._state[0] != step - 1:
            row = self.journal.state(step - 1)
            if row is None or not row.complete:
                raise RuntimeError(f"the state before step {step} is not in the database")
            self._state = (step - 1, row.state_json)
        return self._state[1]

    def _propose(self, ask: Ask) -> None:
        step, slot = ask.step, ask.slot
        facts: dict[str, Any] = {"slot": slot, "task": ask.task}
        for attempt in (1, 2):
            try:
                proposal = self._made(ask)
                content, notes = proposal.content, dumps(plain(proposal.notes, "notes", lenient=True))
                if not isinstance(content, str):
                    raise TypeError(f"the content of a proposal is text, not {type(content).__name__}")
                break
            except (OrienteerError, GraphBubbleUp):
                raise
            except (ProposalFailed, ModelFailure) as exc:
                self._alive()  # what fails because of a stop is no failure
                kind, message = (exc.failure.kind, exc.failure.message) if isinstance(exc, ProposalFailed) else (
                    exc.kind, exc.message)  # fmt: skip
                self.events.emit(step, "proposal.failed", facts | {"failure": kind, "message": message[:500]})
                self.journal.not_proposed(step, slot, "failed", kind, message, None)
                self._status[slot] = "failed"
                return
            except (Exception, SystemExit) as exc:
                self._alive()
                if attempt == 1 and self.judge.is_machinery(exc):
                    continue
                message = describe(exc)
                sha = self.journal.keep(traceback.format_exc(), "text/plain")
                self.events.emit(step, "proposal.machinery", facts | {"message": message, "traceback": sha})
                self.journal.not_proposed(step, slot, "machinery", "machinery", message, sha)
                self._status[slot] = "machinery"
                return
        sha = self.journal.keep(content, proposal.media)
        candidate_id = candidate_name(ask.task, sha)
        new = NewCandidate(candidate_id, ask.task, sha, proposal.media, notes, ask.parents)
        self.events.emit(step, "proposal.done", facts | {"candidate": candidate_id})
        self.journal.proposed(step, slot, new)
        self._status[slot] = "proposed"

    def _made(self, ask: Ask) -> Proposal:
        """Return the method's proposal, a person's answer to its question included."""
        try:
            return self.method.propose(self.run, ask)
        except AskPerson as wanted:
            # Outside the graph somebody is asked; then this node runs again and the answer is returned here.
            answer = interrupt(asdict(wanted.question))
        return self.method.answered(self.run, ask, str(answer))

    def _open_step(self, step: int) -> None:
        """Load the asks of a step once; on a resume the graph may start in the middle of it."""
        if self._step == step and self._asks:
            return
        with self._lock:
            if self._step == step and self._asks:
                return
            self.run.step = step
            rows = self.journal.asks(step)
            self._asks = {row.slot: ask_of(row) for row in rows}
            self._status = {row.slot: row.status for row in rows}
            self.judge.open(step)
            self._step = step

    def _alive(self) -> None:
        if self.run.cancel.is_set():
            raise Interrupted(f"run {self.run.id} was stopped", f"go on with: agent runs resume {self.run.id}")

    def _reached(self, reached: BudgetReached) -> None:
        with self._lock:
            if self.stop is not None:
                return
            self.stop = Stop("budget", str(reached))
        self.events.emit(self.run.step, "budget.reached", {"message": str(reached)})

    def _end(self, status: str, reason: str) -> Command[Any]:
        if self.stop is None:
            if status == "budget":
                self.events.emit(self.run.step, "budget.reached", {"message": reason})
            self.stop = Stop(status, reason)
        return Command(update={"stop": status}, goto=END)

    def _guarded(self, name: str, call: Callable[[], Any]) -> Any:
        """Call the method where it must not fail; what it raises ends the run with one line."""
        try:
            return call()
        except OrienteerError:
            raise
        except (Exception, SystemExit) as exc:
            self._alive()
            sha = self.journal.keep(traceback.format_exc(), "text/plain")
            raise RunBroken(f"{type(self.method).__name__}.{name} raised {describe(exc)}", sha) from exc


def candidate_name(task: str, content_sha: str) -> str:
    """Return the id of a candidate: a function of task and content, so that it is the same in every run."""
    return "c" + hashlib.sha256(f"{task}\x00{content_sha}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def describe(exc: BaseException) -> str:
    """Return an exception in one line."""
    text = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {text[:500]}" if text else type(exc).__name__


def _checked_asks(asks: Sequence[Ask]) -> list[tuple[str, dict[str, Any]]]:
    asks = list(asks)
    for ask in asks:
        if not isinstance(ask, Ask) or not isinstance(ask.task, str):
            raise TypeError(f"a plan is a list of Ask with a task by name, not {ask!r:.100}")
    return [
        (
            ask.task,
            {
                "task": ask.task,
                "directive": plain(ask.directive, "directive"),
                "parents": [str(parent) for parent in ask.parents],
            },
        )
        for ask in asks
    ]


def _load(text: str) -> Any:
    return json.loads(text)


__all__ = ["RUN_VERSION", "Loop", "LoopState", "Place", "RunBroken", "Stop", "candidate_name", "describe"]
