"""Kernels for PyTorch operators: drafted until one is right, then refined for speed, with a memory that learns.

Every round sweeps the whole task set (batch order), so that what one operator taught is recalled for the next. A task
drafts until its first feasible kernel; from then on it refines: a start point is picked by its learnt value from the
feasible kernels, and a variant is proposed with recalled practices, experiences and traces. All verifications of both
stages count towards the budget of a task. (EvoKernel, arXiv 2603.10846; the stages, rewards and normalisation are those
of its sections on cold-start drafting and continual refining.)
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from orienteer.agents.evokernel import kits, offline, prompting, results, stages, telling
from orienteer.agents.evokernel.course import courses, groups
from orienteer.agents.evokernel.memories import describe
from orienteer.agents.evokernel.staged import Operator, SearchSettings, StagedSearch
from orienteer.agents.runtime.method import (
    Ask,
    Candidate,
    Evaluation,
    Failure,
    MachineryError,
    Plain,
    Proposal,
    ProposalFailed,
    Settings,
    Status,
)
from orienteer.agents.runtime.run import Run
from orienteer.environments.kernel import toolchain
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.environments.kernel.tasks import KernelTask, find_tasks
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.evaluators.kernel.hidden import HiddenCases
from orienteer.kernels.blocks.graph import Graph

_T = TypeVar("_T")


class EvoKernelSettings(SearchSettings):
    """Options of ``agent run evokernel``."""

    chip: str = Field("Ascend910B3", description="Ascend chip for --target npu")
    archs: list[str] = Field(
        ["sm_90", "sm_80", "sm_100", "gfx942"],
        description="GPU architectures for --target triton; refining ranks by the first one",
    )
    threads: int | None = Field(None, ge=1, le=1024, description="threads for --target cpu; every core if unset")
    measure_seconds: float = Field(1.5, gt=0, le=600, description="seconds of measuring a candidate on --target cpu")
    torch_compile: bool = Field(False, description="time torch.compile too on --target cpu (half a minute a candidate)")
    cases: int = Field(6, ge=1, le=16, description="hidden cases per candidate")
    drafts: Literal["tuned", "plain"] = Field(
        "tuned", description="first schedule of the offline proposer: the target's own or a textbook's"
    )
    hidden_seed: int | None = Field(None, description="decides the hidden cases; the run's seed if unset")
    job_seconds: float | None = Field(None, gt=0, description="longest job in a sandbox; its kind's own limit if unset")
    max_tokens: int = Field(8192, ge=256, description="upper limit of a model's reply in tokens")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature; the endpoint's own if unset")


class EvoKernel(StagedSearch):
    """See the module's text."""

    name: ClassVar[str] = "evokernel"
    Settings: ClassVar[type[Settings]] = EvoKernelSettings
    evaluator: ClassVar[str] = "kernel-gates"

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._world: KernelWorld | None = None
        self._kit: kits.Kit | None = None
        self._infos: dict[str, TaskInfo] = {}
        self._graphs: dict[str, Graph | str] = {}
        self._hidden: dict[str, HiddenCases] = {}
        self._proposers: dict[str, offline.Proposer] = {}

    # -- the request -------------------------------------------------------------------------------------------------

    def start(self, run: Run) -> Plain:
        """Check target and tasks, open world and memory, and look at every task once."""
        settings = _settings(run)
        hidden = run.seed if settings.hidden_seed is None else settings.hidden_seed
        request = kits.Request(
            target=run.target or "npu",
            chip=settings.chip,
            archs=settings.archs,
            cases=settings.cases,
            seed=hidden,
            plain=settings.drafts == "plain",
            threads=settings.threads,
            seconds=settings.measure_seconds,
            compiled=settings.torch_compile,
        )
        kits.check(request)
        self.check_memory(run)
        kept = run.first_state()
        rejected: dict[str, str] = dict(kept["rejected"]) if kept is not None else {}
        if kept is None:
            tasks = find_tasks(run.tasks, rejected)
            for name, reason in rejected.items():
                run.emit("task.rejected", task=name, message=reason)
        else:
            # A resume works on what the run began with, whatever became of the files.
            tasks = [
                KernelTask(name, run.artifacts.text(item["source"]), item.get("group", ""))
                for name, item in kept["tasks"].items()
            ]
        self._open(run, settings, request)
        inspected = self._in_parallel(run, [(task.name, partial(self._prepare, task)) for task in tasks])
        good: dict[str, Any] = {}
        for task in tasks:
            problem = inspected[task.name]
            if problem is None:
                run.emit("task.ready", task=task.name, cases=len(self._hidden[task.name].cases))
            else:
                rejected[task.name] = str(problem)
                run.emit("task.rejected", task=task.name, message=str(problem))
                continue
            source = run.artifacts.put(task.source, "text/x-python")
            good[task.name] = stages.fresh(source, task.group, self._hidden[task.name].described)
        if not good:
            name, reason = next(iter(rejected.items()), ("", "there is none"))
            more = f" (and {len(rejected) - 1} more tasks)" if len(rejected) > 1 else ""
            raise UsageError(f"task {name}: {reason}{more}", "mend the task file; docs/kernels.md says what a task is")
        self.remember(run, self.kit.target)
        return {"tasks": good, "rejected": rejected}

    def _open(self, run: Run, settings: EvoKernelSettings, request: kits.Request) -> None:
        self._world = KernelWorld.open(
            run.sandbox_choice,
            allow_unsafe=run.allow_unsafe,
            workers=run.workers,
            cancel=run.cancel,
            job_seconds=settings.job_seconds,
        )
        self._kit = kits.open_kit(request, self._world, run.home)
        self.device = self._kit.device
        if self._kit.skipped is not None:
            gate, cure = self._kit.skipped
            run.emit("gate.skipped", gate=gate, message=cure)
        run.provenance(
            sandbox=self._world.sandbox.name, isolation=self._world.sandbox.isolation, **self._kit.provenance
        )

    def _prepare(self, task: KernelTask) -> BadTask | None:
        """Inspect a task, compute its hidden cases and trace it; returns what is wrong with it, if anything is."""
        try:
            info = self.world.inspect(task)
            self._infos[task.name] = info
            self._hidden[task.name] = self.kit.verifier.hidden_cases(info)
            graph = self.world.trace(info)
        except BadTask as error:
            return error
        except MachineryFault as error:
            raise MissingPrerequisite(f"task {task.name} cannot be run: {error}", "see `agent doctor`") from error
        self._graphs[task.name] = graph
        family = self.kit.search.family(graph) if isinstance(graph, Graph) else "untraced"
        self.operators[task.name] = Operator(task.sha, describe(info, graph, family), family)
        return None

    @staticmethod
    def _in_parallel(run: Run, jobs: Sequence[tuple[str, Callable[[], _T]]]) -> dict[str, _T]:
        with ThreadPoolExecutor(max_workers=run.workers) as pool:
            futures = {name: pool.submit(job) for name, job in jobs}
            return {name: future.result() for name, future in futures.items()}

    @property
    def world(self) -> KernelWorld:
        """The open kernel world."""
        assert self._world is not None, "start() opens the world"
        return self._world

    @property
    def kit(self) -> kits.Kit:
        """The open target."""
        assert self._kit is not None, "start() opens the target"
        return self._kit

    # -- proposing ---------------------------------------------------------------------------------------------------

    def propose(self, run: Run, ask: Ask) -> Proposal:
        """Write one kernel file, offline or by the model."""
        if ask.task not in self._hidden:
            raise ProposalFailed("bad-task", f"the task {ask.task} could not be inspected again")
        return self._propose_offline(run, ask) if run.model is None else self._propose_by_model(run, ask)

    def _propose_offline(self, run: Run, ask: Ask) -> Proposal:
        graph = self._graphs[ask.task]
        if isinstance(graph, str):
            raise ProposalFailed("not-traceable", graph)
        with self._lock:
            proposer = self._proposers.setdefault(
                ask.task,
                offline.Proposer(self.kit.search, graph, ask.task, self._infos[ask.task].task.source),
            )
        tried = run.tried(ask.task)
        recalled = [
            offline.Recalled(item.id, item.outcome, item.family, item.facts) for item in self.context(ask.directive)
        ]
        try:
            if ask.directive["stage"] == stages.DRAFT:
                step = proposer.draft(recalled, tried)
            else:
                start = run.candidate(ask.directive["point"]).notes.get("schedule", {})
                step = proposer.refine(start, recalled, tried, run.rng("refine", ask.step, ask.task))
        except offline.Unsupported as error:
            raise ProposalFailed("no-building-block", str(error)) from error
        if step is None:
            raise ProposalFailed("exhausted", "every schedule of the offline proposer was tried")
        made = step.draft
        notes: Plain = {"family": made.family, "blocks": list(made.blocks), "schedule": dict(made.schedule)}
        notes |= {
            "stage": ask.directive["stage"],
            "used": list(step.used),
            "moves": [dict(move) for move in step.moves],
        }
        return Proposal(made.source, notes, self.kit.media)

    def _propose_by_model(self, run: Run, ask: Ask) -> Proposal:
        assert run.model is not None
        settings = _settings(run)
        context = self.context(ask.directive)
        reply = run.model.ask(
            prompting.request(
                self._infos[ask.task],
                self.kit,
                prompting.Attempt(
                    number=ask.directive["attempt"],
                    stage=ask.directive["stage"],
                    failure=ask.directive.get("failure"),
                    previous=run.candidate(ask.parents[0]).content if ask.parents else "",
                    ahead=ask.directive["latency"] / ask.directive["best"] if "best" in ask.directive else 1.0,
                    measured=self.measured(run, ask.directive.get("point")),
                    children=self._children(run, ask),
                ),
                [] if self.memories is None else prompting.context(context, self.memories, self.kit.device),
                seed=random.Random(f"{run.seed}:{ask.task}:{ask.directive['attempt']}").randrange(2**31),
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
            )
        )
        notes = {"model": reply.model, "finish_reason": reply.finish_reason, "stage": ask.directive["stage"]}
        notes["used"] = [item.id for item in context]
        change = str(reply.data.get("change", ""))[:300]
        return Proposal(str(reply.data["code"]), {**notes, "change": change} if change else notes, self.kit.media)

    @staticmethod
    def _children(run: Run, ask: Ask) -> list[tuple[Candidate, Evaluation | None]]:
        """Return the variants of the start point that were tried already, with what became of them."""
        point = ask.directive.get("point")
        if point is None:
            return []
        return [(child, run.evaluation(child.id)) for child in run.children(point)[-6:]]

    # -- judging -----------------------------------------------------------------------------------------------------

    def evaluation_key(self, run: Run, candidate: Candidate) -> Mapping[str, Any]:
        """Everything on which the gates' answer depends."""
        return {
            "task": candidate.task,
            "source": self._infos[candidate.task].task.sha,
            **self.kit.verifier.settings(),
        }

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        """Put a candidate through the gates; its score is its latency (``Latency.cost``), where that is known."""
        try:
            verdict = self.kit.verifier.judge(
                self._infos[candidate.task], self._hidden[candidate.task], candidate.content
            )
        except MachineryFault as error:
            raise MachineryError(str(error)) from error
        metrics: Plain = {"gates": [results.gate(item) for item in verdict.gates]}
        failed = verdict.failed
        if failed is not None:
            failure = Failure(failed.kind or failed.name, f"{failed.name}: {failed.detail}")
            return Evaluation("failed", evidence=verdict.evidence, failure=failure, metrics=metrics, log=verdict.log)
        status: Status = "unknown" if verdict.skipped else "ok"
        score = None
        if verdict.latency is not None:
            metrics["latency"] = verdict.latency.describe()
            score = verdict.latency.cost if status == "ok" else None
        return Evaluation(status, score, verdict.evidence, metrics=metrics, log=verdict.log)

    # -- the result --------------------------------------------------------------------------------------------------

    def result(self, run: Run, state: Plain) -> Plain:
        """Return one row per task and write the kernels that passed into the run's folder."""
        kit = self._kit
        document: Plain = results.document(run, state, kit.suffix if kit is not None else ".py")
        return document

    @classmethod
    def rows(cls, result: Plain) -> list[dict[str, str]]:
        """One row per task: every gate's answer, evidence, latency, proposer and attempts."""
        return results.rows(result)

    @classmethod
    def proven(cls, result: Plain) -> bool:
        """Say whether every task has a proven kernel."""
        return bool(result.get("of")) and result["proven"] == result["of"]

    @classmethod
    def summary(cls, document: Plain) -> Plain:
        """Return the results by level."""
        return {"groups": groups([course.row() for course in courses(document)])}

    @classmethod
    def course(cls, document: Plain, task: str = "") -> list[str]:
        """Return lineages, curves, the memory that was used and the results by level, in lines."""
        return telling.lines(document, task)

    @classmethod
    def report(cls, document: Callable[[], Plain], read: Callable[[str], str]) -> str | None:
        """Return the report as HTML."""
        from orienteer.agents.evokernel.report import page

        return page(document(), read)

    @classmethod
    def setups(cls, target: str, home: Path) -> tuple[str, ...]:
        """The Ascend compiler, for the target ``npu``."""
        return ("npu",) if (target or "npu") == "npu" and toolchain.find(home) is None else ()

    def close(self) -> None:
        """Kill the workers and close the memory."""
        super().close()
        if self._world is not None:
            self._world.close()
            self._world = None


def _settings(run: Run) -> EvoKernelSettings:
    assert isinstance(run.settings, EvoKernelSettings)
    return run.settings
