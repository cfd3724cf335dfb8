"""What a method is: the policy inside the one loop.

The runtime drives every method the same way::

    start -> plan -> propose (fan-out) -> evaluate (fan-out) -> learn -> plan ... -> finish

A method decides; it never writes graph wiring, retries, budgets, persistence, progress or parallelism. To add one,
subclass :class:`Method`, implement ``plan``, ``propose`` and ``evaluate`` (``learn`` and ``finished`` have defaults)
and name it in the ``orienteer.methods`` entry-point group, or run it by its import path:
``agent run package.module:Class``.

All of ``plan``, ``propose``, ``evaluate`` and ``learn`` may be called again with the same arguments after a crash.
They must give the same answer again: take randomness from ``run.rng(...)`` only, and key effects outside the run
(shared memories) by ``run.id`` and ``run.step``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from orienteer.agents.runtime.run import Run

#: Plain data that survives JSON: what may be kept between steps.
Plain = dict[str, Any]

#: ``ok`` has proof and may have a score; ``failed`` is the candidate's own fault; ``unknown`` means that a gate could
#: not be applied here (a compiler is missing), which is neither.
Status = Literal["ok", "failed", "unknown"]


@dataclass(frozen=True)
class Failure:
    """Why a proposal or a candidate failed, in a form that the next proposal can use."""

    #: Stable, short, machine-readable: ``compile``, ``mismatch``, ``timeout``, ``cheat:library-call`` ...
    kind: str
    #: For a person and for the next prompt: what happened and where.
    message: str


@dataclass(frozen=True)
class Ask:
    """One candidate that the plan wants proposed."""

    #: The goal by name (a kernel task, a design rule, a problem).
    task: str
    #: What the policy decided for this proposal; plain data.
    directive: Plain = field(default_factory=dict)
    #: Ids of the candidates that this one starts from.
    parents: tuple[str, ...] = ()
    #: Given by the runtime: which loop iteration, which place in its fan-out.
    step: int = -1
    slot: int = -1


@dataclass(frozen=True)
class Proposal:
    """A candidate's content as a proposer made it."""

    content: str
    #: Plain facts about its making (building block, schedule parameters, items in context ...).
    notes: Plain = field(default_factory=dict)
    media: str = "text/x-python"


class ProposalFailed(Exception):
    """The proposer has no candidate for this ask: malformed reply, refusal, no building block.

    It is recorded with its reason and handed to ``learn``; the run goes on.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message)


@dataclass(frozen=True)
class Question:
    """What a person is asked in the middle of a run.

    Attributes:
        task: the goal it is about.
        text: what is asked, a few lines.
        choices: what may be answered by a word; any other text is an answer as well.
        files: pictures and other files that show what is meant.
        facts: plain data for other front ends than a terminal.
    """

    task: str
    text: str
    choices: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    facts: Plain = field(default_factory=dict)


class AskPerson(Exception):
    """A proposal that a person has to make; raised from ``propose``.

    The run stops at this place until there is an answer (langgraph's interrupt), however often the process is ended in
    between; the answer goes to :meth:`Method.answered`.
    """

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


class MachineryError(Exception):
    """Our own machinery failed (sandbox, compiler, disk), not the candidate.

    Raised from ``evaluate``. Nothing is recorded against the candidate; the evaluation is tried once more, then the
    outcome carries a failure of kind ``machinery`` and a resume tries it again.
    """


@dataclass(frozen=True)
class Candidate:
    """A proposal that the run database knows."""

    id: str
    task: str
    content: str
    #: SHA-256 of the content.
    sha: str
    step: int
    slot: int
    parents: tuple[str, ...] = ()
    notes: Plain = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """What was proven about a candidate. A failed candidate has no score: never 0, never infinity."""

    status: Status
    #: Higher is better unless the method's ``minimise`` is set; finite; only when ``status`` is ``ok``.
    score: float | None = None
    #: What stands behind it, in the method's words (``E0``, ``E1:Ascend910B3``, KLayout version ...).
    evidence: str = ""
    failure: Failure | None = None
    #: Plain facts: gates, errors, resources. Printed, queried, kept.
    metrics: Plain = field(default_factory=dict)
    #: Free text kept as an artifact (compiler output and so on).
    log: str = ""

    def __post_init__(self) -> None:
        if self.score is not None:
            if self.status != "ok":
                raise ValueError(f"an evaluation with status {self.status!r} has no score")
            if self.score != self.score or self.score in (float("inf"), float("-inf")):
                raise ValueError("a score is a finite number")
        if (self.status == "failed") != (self.failure is not None):
            raise ValueError("exactly a failed evaluation carries a failure")


@dataclass(frozen=True)
class Outcome:
    """What became of one ask: handed to ``learn`` in the order of the plan."""

    ask: Ask
    candidate: Candidate | None
    evaluation: Evaluation | None
    #: Set when there is no evaluation: the proposal failed, or our machinery did.
    failure: Failure | None = None


class Settings(BaseModel):
    """A method's own options: ``--set name=value``; subclass it and give every field a description."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Method:
    """Base class of all methods. See the module's text for the contract."""

    #: The name after ``agent run``.
    name: ClassVar[str] = ""
    #: Options that ``--set`` takes.
    Settings: ClassVar[type[Settings]] = Settings
    #: Name of the judgement; with ``evaluation_key`` it identifies an evaluation.
    evaluator: ClassVar[str] = "default"
    #: True where a smaller score is better.
    minimise: ClassVar[bool] = False

    def start(self, run: Run) -> Plain:
        """Check the request before anything is paid for and return the initial state (plain data).

        Called once more at every resume, to open what the method needs; the state it returns is then not used.

        Raises:
            OrienteerError: the request cannot be served (unknown target, missing compiler, bad task file).
        """
        return {}

    def plan(self, run: Run, state: Plain) -> Sequence[Ask]:
        """Return the candidates wanted in this step, in order; none ends the run."""
        raise NotImplementedError

    def propose(self, run: Run, ask: Ask) -> Proposal:
        """Make one candidate. Called in parallel.

        Raises:
            ProposalFailed: there is none, and why.
            AskPerson: a person has to say.
        """
        raise NotImplementedError

    def answered(self, run: Run, ask: Ask, answer: str) -> Proposal:
        """Make the candidate of a person's answer to the question that ``propose`` raised for this ask.

        Raises:
            ProposalFailed: the answer is of no use, and why.
        """
        raise NotImplementedError

    def evaluation_key(self, run: Run, candidate: Candidate) -> Mapping[str, Any]:
        """Return the settings on which the verdict depends; the same candidate is not evaluated twice under one key."""
        return {"task": candidate.task}

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        """Judge one candidate. Called in parallel.

        Raises:
            MachineryError: our own machinery failed, the candidate is not to blame.
        """
        raise NotImplementedError

    def learn(self, run: Run, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        """Return the state for the next step; must not change ``state`` in place."""
        return state

    def finished(self, run: Run, state: Plain) -> bool:
        """Say whether the goal is reached (a plan without asks ends the run as well)."""
        return False

    def result(self, run: Run, state: Plain) -> Plain:
        """Return the run's result as one plain document; printed by ``--json`` and kept with the run."""
        return state

    @classmethod
    def rows(cls, result: Plain) -> list[dict[str, str]]:
        """Return the result as rows of a table for people (column title -> cell), every row with the same columns."""
        return []

    @classmethod
    def proven(cls, result: Plain) -> bool:
        """Say whether everything that was asked for is proven; ``--strict`` makes the exit status of it."""
        return True

    @classmethod
    def summary(cls, document: Plain) -> Plain:
        """Return what ``agent runs show --json`` adds to a run's document (see ``records.show_run``)."""
        return {}

    @classmethod
    def course(cls, document: Plain, task: str = "") -> list[str]:
        """Return how a run went, in lines for a terminal, of one task or all; none: its proposals are listed instead.

        Like :meth:`report` it must also tell runs that were interrupted, from their record alone.
        """
        return []

    @classmethod
    def report(cls, document: Callable[[], Plain], read: Callable[[str], str]) -> str | None:
        """Return a run's report as one HTML page without outside resources, or None: the method writes none.

        Args:
            document: returns the run as ``records.show_run`` gives it.
            read: returns the text of an artifact; a note in brackets where it is lost.
        """
        return None

    @classmethod
    def setups(cls, target: str, home: Path) -> tuple[str, ...]:
        """Return the ``agent setup`` steps that a run for this target would gain from and that are not done yet."""
        return ()

    def close(self) -> None:
        """Release what the method opened (workers, sandboxes). Called once, also after an error."""
