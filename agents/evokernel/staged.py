"""The two-stage search with a memory, whatever the kernels are: plans, rewards, lessons.

:class:`StagedSearch` is EvoKernel without its world: who proposes and who judges is up to the method that derives from
it. Every round sweeps the whole task set (batch order), so that what one operator taught is recalled for the next.
(arXiv 2603.10846, sections on retrieval, cold-start drafting and continual refining.)
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from orienteer.agents.evokernel import stages
from orienteer.agents.evokernel.memories import Memories, Policy, Situation
from orienteer.agents.runtime.method import Ask, Candidate, Evaluation, Method, Outcome, Plain, Settings
from orienteer.agents.runtime.run import Run
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.memory.experience.items import Item

#: Kinds of items that a proposer can read at each stage.
OFFLINE_KINDS = {stages.DRAFT: ("trace", "experience"), stages.REFINE: ("experience", "practice", "trace")}
MODEL_KINDS = {stages.DRAFT: ("trace", "experience"), stages.REFINE: ("trace", "experience", "practice")}
#: ``task``: an operator sees its own items of this run; ``run``: all operators of this run share; ``shared``: all runs.
#: Anything else is the path of an export that a run's own memory begins with.
_SCOPES = ("task", "run", "shared")


class SearchSettings(Settings):
    """Options of the search."""

    iterations: int = Field(30, ge=1, le=1000, description="verifications per task, both stages together (T)")
    stop_at: Literal["", "feasible"] = Field("", description="'feasible' ends a task at its first feasible kernel")
    memory: str = Field("shared", description="none, task, run, shared or an export to begin with (also --memory)")
    policy: Literal["value", "similarity"] = Field(
        "value", description="how recalled items and start points are chosen"
    )
    items: int = Field(5, ge=1, le=50, description="memory items in context (N)")
    recall: float = Field(3.0, ge=1, le=100, description="recall factor lambda of the first round")
    most_recall: float = Field(12.0, ge=1, le=100, description="recall factor lambda of late rounds")
    epsilon: float = Field(0.1, ge=0, le=1, description="share of random choices")
    alpha: float = Field(0.3, gt=0, le=1, description="step of a value update")
    held_out: list[str] = Field([], description="names of operators whose earlier traces are not recalled (leak guard)")

    def choice(self) -> Policy:
        """Return how items are chosen."""
        return Policy(self.policy, self.items, self.recall, self.most_recall, self.epsilon, self.alpha)


@dataclass(frozen=True)
class Operator:
    """A task as the search sees it."""

    #: SHA-256 of its source.
    sha: str
    #: In words, for similarity.
    text: str
    family: str


class StagedSearch(Method):
    """See the module's text. A deriving method fills ``operators`` and opens the memory in its ``start``."""

    #: A score is a latency (``Latency.cost``).
    minimise: ClassVar[bool] = True

    def __init__(self) -> None:
        self.memories: Memories | None = None
        self.operators: dict[str, Operator] = {}
        #: What latencies and lessons hold for: a chip, an architecture, ``cpu``.
        self.device = ""

    @staticmethod
    def check_memory(run: Run) -> None:
        """Check the choice of a memory before anything is opened.

        Raises:
            UsageError: it is neither a scope nor a file.
        """
        memory = search_settings(run).memory
        if memory != "none" and memory not in _SCOPES and run.first_state() is None and not Path(memory).is_file():
            raise UsageError(
                f"the memory {memory!r} is no file",
                f"give none, {', '.join(_SCOPES)} or what `agent memory export` wrote",
            )

    def remember(self, run: Run, target: str) -> None:
        """Open the memory that the settings name; without what it needs the run goes on without one and says so."""
        settings = search_settings(run)
        self.memories = None
        if settings.memory == "none":
            run.provenance(memory="none")
            return
        try:
            self.memories = self._memories(run, settings, target)
        except MissingPrerequisite as error:
            if settings.memory not in _SCOPES:
                raise
            run.emit("note", message=f"the run goes on without memory: {error} ({error.cure})")
            run.provenance(memory="none")
            return
        store = self.memories.store
        run.provenance(memory=settings.memory, memory_items=store.count(), embedder=store.embedder)

    def _memories(self, run: Run, settings: SearchSettings, target: str) -> Memories:
        """Open the memory with its seed knowledge in it."""
        from orienteer.memory.experience.store import ExperienceStore

        name = "shared" if settings.memory == "shared" else f"run:{run.id}"
        store = ExperienceStore.open(run.home, run.db, name, tell=lambda text: run.emit("note", message=text))
        try:
            scope = "task" if settings.memory == "task" else "shared"
            made = Memories(store, run.artifacts, run.id, settings.choice(), scope, settings.held_out)
            if settings.memory not in _SCOPES and run.first_state() is None:
                store.seed_from(Path(settings.memory))
            made.plant(target, self.device)
        except BaseException:
            store.close()
            raise
        return made

    # -- planning ----------------------------------------------------------------------------------------------------

    def plan(self, run: Run, state: Plain) -> Sequence[Ask]:
        """Ask for one more attempt at every task that wants one, with its stage, start point and context."""
        settings = search_settings(run)
        asks = []
        for name, item in state["tasks"].items():
            if not stages.open_for_more(item, settings.iterations) or name not in self.operators:
                continue
            if settings.stop_at == "feasible" and item.get("draft"):
                continue
            asks.append(self._ask(run, settings, name, item))
        return asks

    def _ask(self, run: Run, settings: SearchSettings, name: str, item: Plain) -> Ask:
        rng = run.rng("plan", run.step, name)
        directive: Plain = {"attempt": item["tries"], "stage": item["stage"], "failure": item.get("failure")}
        parents: tuple[str, ...] = (item["last"],) if item.get("last") else ()
        if item["stage"] == stages.REFINE:
            point = self._point(run, settings, name, item, rng)
            directive.update(point=point["id"], point_item=point["item"], latency=point["latency"])
            directive["best"] = item["best_latency"]
            parents = (point["id"],)
        if self.memories is not None:
            situation = self.situation(run, name, directive.get("point"))
            kinds = (OFFLINE_KINDS if run.model is None else MODEL_KINDS)[item["stage"]]
            found = self.memories.recall(item["stage"], situation, item["tries"], rng, kinds)
            directive["context"] = [recalled.item.id for recalled in found]
            directive["explored"] = sum(recalled.how == "explore" for recalled in found)
        return Ask(task=name, directive=directive, parents=parents)

    def _point(self, run: Run, settings: SearchSettings, name: str, item: Plain, rng: random.Random) -> dict[str, Any]:
        values: dict[str, float] = {}
        if self.memories is not None:
            items = [point["item"] for point in item["points"] if point["item"]]
            values = self.memories.values(stages.REFINE, items, self.situation(run, name, None).signature)
        return stages.pick_point(item["points"], values, settings.epsilon, rng)

    def situation(self, run: Run, task: str, point: str | None) -> Situation:
        """Return a task's state as the memory sees it; ``point`` is the candidate whose bottleneck counts."""
        bottleneck = ""
        if point is not None:
            evaluation = run.evaluation(point)
            bottleneck = str((evaluation.metrics.get("latency") or {}).get("bottleneck", "")) if evaluation else ""
        operator = self.operators[task]
        return Situation(task, operator.sha, operator.text, operator.family, self.device, bottleneck)

    # -- learning ----------------------------------------------------------------------------------------------------

    def learn(self, run: Run, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        """Move every task on, keep what is worth keeping, and update the values of what was used."""
        tasks = {name: dict(item) for name, item in state["tasks"].items()}
        for outcome in outcomes:
            name = outcome.ask.task
            if outcome.failure is not None and outcome.failure.kind == "machinery":
                continue
            if outcome.candidate is None or outcome.evaluation is None:
                failure = outcome.failure
                assert failure is not None, "an outcome without an evaluation carries a failure"
                tasks[name] = stages.lost(tasks[name], failure.kind, failure.message)
                continue
            tasks[name] = self._settle(run, tasks[name], outcome.ask, outcome.candidate, outcome.evaluation)
        return {**state, "tasks": tasks}

    def _settle(self, run: Run, item: Plain, ask: Ask, candidate: Candidate, evaluation: Evaluation) -> Plain:
        failure = None
        if evaluation.failure is not None:
            message = evaluation.failure.message
            failure = {"kind": evaluation.failure.kind, "message": message, "gate": message.split(":")[0]}
        memory_item = ""
        if self.memories is not None and ask.task in self.operators and evaluation.status != "unknown":
            memory_item = self._keep(run, self.memories, item, ask, candidate, evaluation)
        return stages.settle(
            item,
            candidate=candidate.id,
            status=evaluation.status,
            evidence=evaluation.evidence,
            latency=evaluation.score,
            memory_item=memory_item,
            failure=failure,
        )

    def _keep(
        self, run: Run, memories: Memories, item: Plain, ask: Ask, candidate: Candidate, evaluation: Evaluation
    ) -> str:
        """Keep what an attempt taught and reward what it used; returns the memory item of a feasible kernel.

        A refined kernel and a change that helped are born with one update by their own reward, so that a fast variant
        is worth more as a start point, and a good change more as advice, than one of which nothing is known.
        """
        stage = str(ask.directive["stage"])
        measured = evaluation.metrics.get("latency") or {}
        level = str(measured.get("level") or self.measured(run, ask.directive.get("point")).get("level", ""))
        situation = self.situation(run, ask.task, ask.directive.get("point"))
        notes = candidate.notes
        used = list(notes.get("used", ()))
        facts: Plain = {key: notes[key] for key in ("schedule", "moves", "change") if notes.get(key)}
        feasible, latency = evaluation.status == "ok", evaluation.score
        kernel = ""
        born: list[str] = []
        if feasible:
            if latency is not None:
                facts |= {"latency": measured.get("seconds", latency), "bottleneck": measured.get("bottleneck", "")}
            kernel = memories.keep_kernel(
                situation,
                candidate=candidate.id,
                content_sha=candidate.sha,
                stage=stage,
                evidence=level or evaluation.evidence,
                champion=not item.get("draft") or (latency is not None and latency < item["best_latency"]),
                facts=facts,
            )
            born.append(kernel)
        else:
            assert evaluation.failure is not None
            memories.keep_failure(situation, stage, evaluation.failure.kind, evaluation.failure.message, facts)
        event = f"{run.id}:{ask.step}:{ask.slot}"
        if stage == stages.DRAFT:
            memories.reward(event, stage, situation, level, used, stages.draft_reward(feasible))
            return kernel
        if feasible and latency is not None:
            gain = ask.directive["latency"] / latency
            change = memories.keep_change(situation, level, notes.get("moves", ()), gain, str(notes.get("change", "")))
            if change is not None and gain > 1:
                born.append(change)
        raw = stages.refine_reward(latency if feasible else None, item["best_latency"])
        memories.reward(event, stage, situation, level, [ask.directive["point_item"], *used, *born], raw)
        return kernel

    def context(self, directive: Mapping[str, Any]) -> list[Item]:
        """Return the memory items that an ask was given."""
        if self.memories is None or not directive.get("context"):
            return []
        return self.memories.store.get(directive["context"])

    @staticmethod
    def measured(run: Run, point: str | None) -> Mapping[str, Any]:
        """Return what is known about a kernel's latency (``Latency.describe()``)."""
        evaluation = run.evaluation(point) if point is not None else None
        return (evaluation.metrics.get("latency") or {}) if evaluation is not None else {}

    def close(self) -> None:
        """Close the memory."""
        if self.memories is not None:
            self.memories.close()
            self.memories = None


def search_settings(run: Run) -> SearchSettings:
    """Return the run's settings."""
    assert isinstance(run.settings, SearchSettings)
    return run.settings
