"""Triton kernels for PyTorch operators, drafted until the first one that passes every gate (EvoKernel, first cut).

Every round sweeps the whole task set (batch order): each task without a feasible kernel gets one more attempt, which
carries what was wrong with the last. A task ends at its first feasible kernel, when the attempts are used up, or when
the proposer has nothing more. (arXiv 2603.10846, section on cold-start drafting; the value-learnt memory is not in
yet.)
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from orienteer.agents.evokernel import offline, prompting
from orienteer.agents.runtime.method import (
    Ask,
    Candidate,
    Evaluation,
    Failure,
    MachineryError,
    Method,
    Outcome,
    Plain,
    Proposal,
    ProposalFailed,
    Settings,
    Status,
)
from orienteer.agents.runtime.run import Run
from orienteer.environments.kernel import targets, toolchain
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.environments.kernel.tasks import KernelTask, find_tasks
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.evaluators.kernel.gates import KernelVerifier
from orienteer.evaluators.kernel.hidden import HiddenCases
from orienteer.kernels.blocks.graph import Graph

_T = TypeVar("_T")
#: Columns of the table for people, and how it shows a gate's answer.
_GATES = ("static", "compile", "run", "honest")
_MARKS = {"passed": "pass", "failed": "FAIL", "skipped": "SKIPPED"}
#: Proposal failures after which another attempt would fail in the same way.
_FINAL = frozenset({"bad-task", "no-building-block", "not-traceable", "exhausted"})


class EvoKernelSettings(Settings):
    """Options of ``agent run evokernel``."""

    attempts: int = Field(8, ge=1, le=200, description="attempts per task before it is given up")
    chip: str = Field("Ascend910B3", description="Ascend chip for --target npu")
    archs: list[str] = Field(["sm_80", "sm_90", "gfx942"], description="GPU architectures for --target triton")
    cases: int = Field(6, ge=1, le=16, description="hidden cases per candidate")
    job_seconds: float | None = Field(None, gt=0, description="longest job in a sandbox; its kind's own limit if unset")
    max_tokens: int = Field(8192, ge=256, description="upper limit of a model's reply in tokens")
    temperature: float | None = Field(None, ge=0, le=2, description="sampling temperature; the endpoint's own if unset")


class EvoKernel(Method):
    """See the module's text."""

    name: ClassVar[str] = "evokernel"
    Settings: ClassVar[type[Settings]] = EvoKernelSettings
    evaluator: ClassVar[str] = "kernel-gates"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keyed: dict[str, threading.Lock] = {}
        self._world: KernelWorld | None = None
        self._verifier: KernelVerifier | None = None
        self._infos: dict[str, TaskInfo] = {}
        self._graphs: dict[str, Graph | str] = {}
        self._hidden: dict[str, HiddenCases] = {}
        self._chip: targets.AscendChip | None = None
        self._archs: list[targets.GpuArch] = []

    # -- the request -------------------------------------------------------------------------------------------------

    def start(self, run: Run) -> Plain:
        """Check target and tasks, open the kernel world and look at every task once."""
        settings = _settings(run)
        target = targets.check_target(run.target or "npu")
        if target == "npu":
            self._chip = targets.chip(settings.chip)
        else:
            self._archs = [targets.arch(name) for name in settings.archs]
            if not self._archs:
                raise UsageError("no architecture is given", "for example --set archs='[\"sm_90\"]'")
        kept = run.first_state()
        rejected: dict[str, str] = dict(kept["rejected"]) if kept is not None else {}
        if kept is None:
            tasks = find_tasks(run.tasks, rejected)
            for name, reason in rejected.items():
                run.emit("task.rejected", task=name, message=reason)
        else:
            # A resume works on what the run began with, whatever became of the files.
            tasks = [KernelTask(name, run.artifacts.text(item["source"])) for name, item in kept["tasks"].items()]
        _require_triton()
        self._open(run, settings)
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
            good[task.name] = {"source": run.artifacts.put(task.source, "text/x-python"), "tries": 0}
        if not good:
            name, reason = next(iter(rejected.items()), ("", "there is none"))
            more = f" (and {len(rejected) - 1} more tasks)" if len(rejected) > 1 else ""
            raise UsageError(f"task {name}: {reason}{more}", "mend the task file; docs/kernels.md says what a task is")
        return {"tasks": good, "rejected": rejected}

    def _open(self, run: Run, settings: EvoKernelSettings) -> None:
        found = toolchain.find(run.home) if self._chip is not None else None
        if self._chip is not None and found is None:
            run.emit("gate.skipped", gate="compile", message=f"the Ascend compiler is not installed: {toolchain.CURE}")
        self._world = KernelWorld.open(
            run.sandbox_choice,
            allow_unsafe=run.allow_unsafe,
            workers=run.workers,
            cancel=run.cancel,
            job_seconds=settings.job_seconds,
        )
        self._verifier = KernelVerifier(
            self._world,
            chip=self._chip,
            toolchain=found,
            archs=self._archs,
            cases=settings.cases,
            seed=run.seed,
        )
        run.provenance(
            sandbox=self._world.sandbox.name,
            isolation=self._world.sandbox.isolation,
            target=self._chip.name if self._chip is not None else [arch.name for arch in self._archs],
            **(found.versions if found is not None else {}),
            **_versions("torch", "triton"),
        )

    def _prepare(self, task: KernelTask) -> BadTask | None:
        """Inspect a task and compute its hidden cases; returns what is wrong with it, if anything is."""
        try:
            info = self.world.inspect(task)
            self._infos[task.name] = info
            self._hidden[task.name] = self.verifier.hidden_cases(info)
        except BadTask as error:
            return error
        except MachineryFault as error:
            raise MissingPrerequisite(f"task {task.name} cannot be run: {error}", "see `agent doctor`") from error
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
    def verifier(self) -> KernelVerifier:
        """The open verifier."""
        assert self._verifier is not None, "start() opens the verifier"
        return self._verifier

    # -- the loop ----------------------------------------------------------------------------------------------------

    def plan(self, run: Run, state: Plain) -> Sequence[Ask]:
        """Ask for one more attempt at every task that has no feasible kernel yet."""
        settings = _settings(run)
        return [
            Ask(
                task=name,
                directive={"attempt": item["tries"], "failure": item.get("failure")},
                parents=(item["last"],) if item.get("last") else (),
            )
            for name, item in state["tasks"].items()
            if not item.get("feasible") and not item.get("given_up") and item["tries"] < settings.attempts
        ]

    def propose(self, run: Run, ask: Ask) -> Proposal:
        """Draft one kernel file, offline or by the model."""
        if run.model is None:
            return self._propose_offline(run, ask)
        return self._propose_by_model(run, ask)

    def _propose_offline(self, run: Run, ask: Ask) -> Proposal:
        info = self._info(ask.task)
        graph = self._graph(ask.task)
        if isinstance(graph, str):
            raise ProposalFailed("not-traceable", graph)
        cores = self._chip.vector_cores if self._chip is not None else 0
        schedule = offline.first_schedule(run.target or "npu", cores)
        try:
            made = offline.draft(graph, ask.task, info.task.source, schedule, ask.directive["attempt"])
        except offline.Unsupported as error:
            raise ProposalFailed("no-building-block", str(error)) from error
        if made is None:
            raise ProposalFailed("exhausted", "every schedule of the offline proposer was tried")
        return Proposal(
            made.source, {"family": made.family, "blocks": list(made.blocks), "schedule": made.schedule.describe()}
        )

    def _propose_by_model(self, run: Run, ask: Ask) -> Proposal:
        assert run.model is not None
        settings = _settings(run)
        failure = ask.directive.get("failure")
        previous = run.candidate(ask.parents[0]).content if ask.parents else ""
        reply = run.model.ask(
            prompting.request(
                self._info(ask.task),
                self._chip,
                self._archs,
                attempt=ask.directive["attempt"],
                failure=failure,
                previous=previous,
                seed=random.Random(f"{run.seed}:{ask.task}:{ask.directive['attempt']}").randrange(2**31),
                max_tokens=settings.max_tokens,
                temperature=settings.temperature,
            )
        )
        return Proposal(str(reply.data["code"]), {"model": reply.model, "finish_reason": reply.finish_reason})

    def _info(self, task: str) -> TaskInfo:
        """Return what is known of a task.

        Raises:
            ProposalFailed: a resume found that the task cannot be used any more.
        """
        if task not in self._hidden:
            raise ProposalFailed("bad-task", f"the task {task} could not be inspected again")
        return self._infos[task]

    def _graph(self, task: str) -> Graph | str:
        with self._lock:
            lock = self._keyed.setdefault(task, threading.Lock())
        with lock:
            if task not in self._graphs:
                try:
                    self._graphs[task] = self.world.trace(self._infos[task])
                except MachineryFault as error:
                    raise MachineryError(str(error)) from error
            return self._graphs[task]

    def evaluation_key(self, run: Run, candidate: Candidate) -> Mapping[str, Any]:
        """Everything on which the gates' answer depends."""
        return {"task": candidate.task, "source": self._infos[candidate.task].task.sha, **self.verifier.settings()}

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        """Put a candidate through the gates."""
        try:
            verdict = self.verifier.judge(self._infos[candidate.task], self._hidden[candidate.task], candidate.content)
        except MachineryFault as error:
            raise MachineryError(str(error)) from error
        metrics = {"gates": [_gate(gate) for gate in verdict.gates]}
        failed = verdict.failed
        if failed is not None:
            failure = Failure(failed.kind or failed.name, f"{failed.name}: {failed.detail}")
            return Evaluation("failed", evidence=verdict.evidence, failure=failure, metrics=metrics, log=verdict.log)
        status: Status = "unknown" if verdict.skipped else "ok"
        return Evaluation(status, evidence=verdict.evidence, metrics=metrics, log=verdict.log)

    def learn(self, run: Run, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        """Keep the first feasible kernel of every task; hand failures to the next attempt."""
        tasks = {name: dict(item) for name, item in state["tasks"].items()}
        for outcome in outcomes:
            item = tasks[outcome.ask.task]
            if outcome.failure is not None and outcome.failure.kind == "machinery":
                continue
            item["tries"] += 1
            if outcome.candidate is not None:
                item["last"] = outcome.candidate.id
            evaluation = outcome.evaluation
            if evaluation is not None and evaluation.status != "failed":
                item["feasible" if evaluation.status == "ok" else "given_up"] = (
                    outcome.candidate.id if outcome.candidate else ""
                )
                item["evidence"] = evaluation.evidence
                item.pop("failure", None)
                continue
            failure = evaluation.failure if evaluation is not None else outcome.failure
            if failure is not None:
                item["failure"] = {
                    "kind": failure.kind,
                    "message": failure.message,
                    "gate": failure.message.split(":")[0],
                }
                if failure.kind in _FINAL:
                    item["given_up"] = failure.kind
        return {**state, "tasks": tasks}

    # -- the result --------------------------------------------------------------------------------------------------

    def result(self, run: Run, state: Plain) -> Plain:
        """Return one row per task and write the kernels that passed into the run's folder."""
        rows = []
        outcomes = {o.candidate.id: o for o in run.outcomes() if o.candidate is not None}
        for name, item in state["tasks"].items():
            chosen = item.get("feasible") or (item.get("given_up") if item.get("given_up") in outcomes else None)
            outcome = outcomes.get(chosen or "") or outcomes.get(item.get("last", ""))
            evaluation = outcome.evaluation if outcome is not None else None
            rows.append(
                {
                    "task": name,
                    "status": _status(item, bool(chosen)),
                    "evidence": item.get("evidence", ""),
                    "gates": evaluation.metrics.get("gates", []) if evaluation is not None else [],
                    "proposer": run.proposer,
                    "made_of": dict(outcome.candidate.notes) if outcome is not None and outcome.candidate else {},
                    "kernel": self._write(run, name, outcome.candidate)
                    if chosen and outcome and outcome.candidate
                    else None,
                    "candidate": chosen,
                    "attempts": item["tries"],
                    "failure": item.get("failure"),
                    "seed": run.seed,
                }
            )
        for name, reason in state["rejected"].items():
            failure = {"kind": "bad-task", "message": reason}
            rows.append(
                {
                    "task": name,
                    "status": "rejected",
                    "evidence": "",
                    "gates": [],
                    "proposer": run.proposer,
                    "made_of": {},
                    "kernel": None,
                    "candidate": None,
                    "attempts": 0,
                    "failure": failure,
                    "seed": run.seed,
                }
            )
        proven = sum(row["status"] == "proven" for row in rows)
        return {"target": run.target or "npu", "tasks": rows, "proven": proven, "of": len(rows)}

    @staticmethod
    def _write(run: Run, task: str, candidate: Candidate) -> str:
        folder = run.folder / "kernels"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{task}.py"
        path.write_text(candidate.content, encoding="utf-8")
        return str(path)

    @classmethod
    def rows(cls, result: Plain) -> list[dict[str, str]]:
        """One row per task: every gate's answer, the evidence level, the proposer and the attempts."""
        rows = []
        for item in result.get("tasks", []):
            gates = {gate["gate"]: gate for gate in item["gates"]}
            failure = item.get("failure") or {}
            skipped = next((gate["detail"] for gate in item["gates"] if gate["status"] == "skipped"), "")
            rows.append(
                {
                    "task": item["task"],
                    "status": item["status"],
                    **{name: _MARKS.get(gates[name]["status"], "-") if name in gates else "-" for name in _GATES},
                    "evidence": item["evidence"] or "none",
                    "proposer": item["proposer"],
                    "tries": str(item["attempts"]),
                    "remark": skipped or failure.get("message", ""),
                }
            )
        return rows

    @classmethod
    def setups(cls, target: str, home: Path) -> tuple[str, ...]:
        """The Ascend compiler, for the target ``npu``."""
        return ("npu",) if (target or "npu") == "npu" and toolchain.find(home) is None else ()

    def close(self) -> None:
        """Kill the workers."""
        if self._world is not None:
            self._world.close()
            self._world = None


def _status(item: Plain, has_kernel: bool) -> str:
    if item.get("feasible"):
        return "proven"
    if has_kernel:
        return "unproven"
    return "failed" if item["tries"] else "not tried"


def _settings(run: Run) -> EvoKernelSettings:
    assert isinstance(run.settings, EvoKernelSettings)
    return run.settings


def _gate(gate: Any) -> Plain:
    return {
        "gate": gate.name,
        "status": gate.status,
        "kind": gate.kind,
        "detail": gate.detail,
        "facts": dict(gate.facts),
    }


def _require_triton() -> None:
    import importlib.util

    missing = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPrerequisite(f"{' and '.join(missing)} is not installed", "pip install 'orienteer[npu]'")


def _versions(*packages: str) -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in packages}
