"""``agent bench evokernel-memory``: does the learnt value of memory items help, and by how much?

The *planted* world is a generator whose success depends on which items are in its context, and on nothing else that
the search decides: every operator family has a few items that help, drawn by lot from many that read alike. It is
driven through the ordinary runtime by the same search as kernels are; only proposing and judging are replaced. So it
measures retrieval and value learning (EvoKernel, arXiv 2603.10846, the ablation of the retrieval policy), not kernels.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from orienteer.agents.evokernel import stages
from orienteer.agents.evokernel.staged import Operator, SearchSettings, StagedSearch
from orienteer.agents.runtime.config import RunConfig
from orienteer.agents.runtime.engine import start_run
from orienteer.agents.runtime.method import Ask, Candidate, Evaluation, Failure, Plain, Proposal, Settings
from orienteer.agents.runtime.run import Run
from orienteer.memory.experience.items import NewItem

#: Ways to recall that are compared; ``none`` has no memory.
POLICIES = ("none", "similarity", "value")
FAMILIES = ("softmax", "convolution", "pooling", "scan", "matrix product", "gather")
TASKS = ("plain", "masked", "batched", "fused")
_TOPICS = (
    "blocks",
    "masks",
    "loops",
    "strides",
    "tails",
    "warps",
    "tiles",
    "buffers",
    "casts",
    "grids",
    "stages",
    "rows",
)
#: Items per family, and how many of them help to draft, and others that help to refine; which ones the seed decides.
ITEMS, HELPFUL = len(_TOPICS), 2
#: Chance of a feasible kernel without and with a helpful item in context; what a helpful item does to the latency.
P_PLAIN, P_HELPED = 0.06, 0.7
GAIN = 0.8


class PlantedSettings(SearchSettings):
    """Options of the planted world."""

    iterations: int = 10


class Planted(StagedSearch):
    """The search over a generator whose success is planted."""

    name: ClassVar[str] = "planted"
    Settings: ClassVar[type[Settings]] = PlantedSettings
    evaluator: ClassVar[str] = "planted"

    def start(self, run: Run) -> Plain:
        """Make the operators, and the items that a memory begins with."""
        self.device = "planted"
        names = [f"{kind} {family}" for family in FAMILIES for kind in TASKS]
        for name in names:
            family = name.split(" ", 1)[1]
            self.operators[name] = Operator(name, f"{name} operator of float tensors", family)
        if run.options["memory"]:
            self._plant_items(run)
        return {"tasks": {name: stages.fresh(name) for name in names}, "rejected": {}}

    def _plant_items(self, run: Run) -> None:
        from orienteer.agents.evokernel.memories import Memories
        from orienteer.memory.experience.store import ExperienceStore

        settings = run.settings
        assert isinstance(settings, PlantedSettings)
        store = ExperienceStore.open(run.home, run.db, f"run:{run.id}", "hashing", index=False)
        self.memories = Memories(store, run.artifacts, run.id, settings.choice(), "shared")
        items = []
        for family in FAMILIES:
            lots = run.rng("planted", family).sample(range(ITEMS), 2 * HELPFUL)
            for number, topic in enumerate(_TOPICS):
                helps = stages.DRAFT if number in lots[:HELPFUL] else stages.REFINE if number in lots else ""
                text = f"{family} operator of float tensors: a remark on {topic}"
                facts = {"helps": helps, "family": family}
                items.append(
                    NewItem(
                        "experience", text, "success", target=self.device, family=family, evidence="seed", facts=facts
                    )
                )
        store.add_many(items)

    def propose(self, run: Run, ask: Ask) -> Proposal:
        """Decide by lot whether the attempt succeeds; what is in context decides the odds."""
        stage, family = ask.directive["stage"], self.operators[ask.task].family
        items = self.context(ask.directive)
        helped = any(item.facts.get("helps") == stage and item.family == family for item in items)
        rng = run.rng("lot", ask.step, ask.task)
        works = rng.random() < (P_HELPED if helped else P_PLAIN)
        made: Plain = {"task": ask.task, "attempt": ask.directive["attempt"], "works": True}
        if stage == stages.DRAFT:
            made |= {"works": works, "latency": 1e-3}
        else:
            made["latency"] = ask.directive["latency"] * (GAIN if works else rng.uniform(1.0, 1.3))
        notes = {"stage": stage, "used": [item.id for item in items], "helped": helped}
        return Proposal(json.dumps(made), notes, "application/json")

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        """Read off what was decided."""
        made = json.loads(candidate.content)
        if not made["works"]:
            return Evaluation("failed", failure=Failure("mismatch", "run: not this time"))
        return Evaluation("ok", made["latency"], "planted", metrics={"latency": {"level": "planted", "bottleneck": ""}})

    def result(self, run: Run, state: Plain) -> Plain:
        """Return what is compared: share of feasible tasks after each attempt, attempts to it, gain over the draft."""
        items = list(state["tasks"].values())
        first = [item["curve"][0][0] if item["curve"] else None for item in items]
        most = run.settings.iterations if isinstance(run.settings, SearchSettings) else 0
        gains = [math.log(i["draft_latency"] / i["best_latency"]) for i in items if i.get("draft")]
        return {
            "accuracy": [sum(f is not None and f <= n for f in first) / len(items) for n in range(1, most + 1)],
            "tries": statistics.mean(most + 1 if f is None else f for f in first),
            "log_gain": sum(gains) / len(items),
        }


def planted(seeds: int = 5, iterations: int = 10, policies: Sequence[str] = POLICIES) -> dict[str, Any]:
    """Run the planted world under every policy.

    Args:
        seeds: runs per policy, at least 1.
        iterations: attempts per task (T).
        policies: which of :data:`POLICIES`.

    Returns:
        ``rows``: per policy ``accuracy`` (share of tasks feasible within T), ``half`` (within T / 2), ``tries``
        (attempts to the first feasible one), ``log_gain`` (natural logarithm of draft over best latency, 0 where
        nothing was feasible), each as ``[mean, standard deviation]`` over the seeds; ``chance`` for comparison.
    """
    rows = []
    for policy in policies:
        found = [_one(policy, seed, iterations) for seed in range(seeds)]
        rows.append(
            {
                "policy": policy,
                "seeds": seeds,
                "accuracy": spread([r["accuracy"][-1] for r in found]),
                "half": spread([r["accuracy"][iterations // 2 - 1] for r in found]),
                "tries": spread([r["tries"] for r in found]),
                "log_gain": spread([r["log_gain"] for r in found]),
            }
        )
    return {"world": "planted", "iterations": iterations, "tasks": len(FAMILIES) * len(TASKS), "rows": rows}


def _one(policy: str, seed: int, iterations: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="orienteer-bench-") as folder:
        report = start_run(
            RunConfig(
                f"{Planted.__module__}:Planted",
                settings={"iterations": iterations} | ({"policy": policy} if policy != "none" else {}),
                options={"memory": policy != "none"},
                model="offline",
                seed=seed,
                workers=1,
                home=Path(folder),
                handle_signals=False,
            )
        )
        return dict(report.result)


def spread(values: Sequence[float]) -> list[float]:
    """Return mean and standard deviation."""
    return [round(statistics.mean(values), 4), round(statistics.stdev(values), 4) if len(values) > 1 else 0.0]


# -- the offline proposer on real operators ----------------------------------------------------------------------------

#: Operators whose verification is quick: simple ones, and chains of them.
SIMPLE = ("add", "relu", "silu", "softplus", "row_sum", "row_max", "softmax", "transpose")
FUSED = ("swiglu", "sigmoid_gate", "l2_normalize", "log_softmax", "residual_layernorm", "linear_swish_scale")


def searched(seeds: int = 5, iterations: int = 10, target: str = "npu") -> dict[str, Any]:
    """Run the offline proposer over operators under every policy, and from the memory of simple ones to fused ones.

    Drafts begin with a textbook's schedule, so that there is something to learn. Verdicts are shared between the runs
    (equal kernels are judged once), so the policies are compared on equal ground.

    Args:
        seeds: runs per policy.
        iterations: verifications per task (T).
        target: ``npu`` or ``triton``; ranked by the modelled latency.

    Returns:
        ``rows``: per setting the logarithmic gap to the best kernel that any run found, after the first verification,
        after T / 2 and after T, as ``[mean, standard deviation]`` over seeds, and ``within_5``: the share of tasks
        within 5 % of it after T / 2.
    """
    settings = {"iterations": iterations, "cases": 2, "hidden_seed": 0, "drafts": "plain"}
    curves: dict[str, list[dict[str, list[float]]]] = {}
    with tempfile.TemporaryDirectory(prefix="orienteer-bench-") as folder:
        home = Path(folder)

        def go(name: str, tasks: Sequence[str], seed: int, **more: Any) -> str:
            report = start_run(
                RunConfig(
                    "evokernel", tasks, target, {**settings, **more}, seed, "offline", home=home,
                    reuse_evaluations=True, handle_signals=False,
                )
            )  # fmt: skip
            found = {row["task"]: _filled(row["curve"], iterations) for row in report.result["tasks"] if row["curve"]}
            curves.setdefault(name, []).append(found)
            return report.id

        for seed in range(seeds):
            go("none", SIMPLE, seed, memory="none")
            go("similarity", SIMPLE, seed, memory="run", policy="similarity")
            run_id = go("value", SIMPLE, seed, memory="run", policy="value")
            learnt = home / f"learnt-{seed}.jsonl"
            _export(home, run_id, learnt)
            go("fused, cold", FUSED, seed, memory="run")
            go("fused, from simple", FUSED, seed, memory=str(learnt), held_out=list(FUSED))
    best: dict[str, float] = {}
    for runs in curves.values():
        for found in runs:
            for task, curve in found.items():
                best[task] = min(best.get(task, curve[-1]), curve[-1])
    rows = [{"setting": name, "seeds": seeds, **_gaps(runs, best, iterations)} for name, runs in curves.items()]
    return {"world": f"offline on {target}", "iterations": iterations, "tasks": len(best), "rows": rows}


def _filled(curve: Sequence[Sequence[float]], iterations: int) -> list[float]:
    """Return the best cost after each attempt; infinite before the first feasible kernel."""
    out, at = [], math.inf
    known = {int(tries): cost for tries, cost in curve}
    for number in range(1, iterations + 1):
        at = min(at, known.get(number, at))
        out.append(at)
    return out


def _gaps(runs: Sequence[Mapping[str, Sequence[float]]], best: Mapping[str, float], iterations: int) -> dict[str, Any]:
    half = iterations // 2 - 1

    def gap(found: Mapping[str, Sequence[float]], place: int) -> float:
        gaps = [math.log(curve[place] / best[task]) for task, curve in found.items() if math.isfinite(curve[place])]
        return statistics.mean(gaps) if gaps else math.inf

    def near(found: Mapping[str, Sequence[float]]) -> float:
        return statistics.mean(curve[half] <= 1.05 * best[task] for task, curve in found.items())

    return {
        "first": spread([gap(found, 0) for found in runs]),
        "half": spread([gap(found, half) for found in runs]),
        "last": spread([gap(found, iterations - 1) for found in runs]),
        "within_5": spread([near(found) for found in runs]),
    }


def _export(home: Path, run_id: str, path: Path) -> None:
    from orienteer.memory.experience.store import ExperienceStore
    from orienteer.memory.rundb import RunDB

    with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, f"run:{run_id}") as store:
        store.export(path)
