"""What EvoKernel remembers and recalls: the experience store in the method's terms.

Four kinds of items (arXiv 2603.10846, section on memory): API knowledge, experiences (one change or one failure, in a
sentence), traces (whole kernels) and best practices. Seed knowledge is in ``knowledge/``; everything else comes from
runs, with the evidence level that stood behind it. An item is recalled for a state by similarity and then chosen by
its learnt value: Q1 while drafting, Q2 while refining.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from orienteer.agents.evokernel.stages import DRAFT, REFINE
from orienteer.environments.kernel.world import TaskInfo
from orienteer.kernels.blocks.graph import Graph
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.experience.items import Item, NewItem, Query, Recalled
from orienteer.memory.experience.selection import lambda_at
from orienteer.memory.experience.store import ExperienceStore
from orienteer.syntax import parse

#: A refined kernel is worth an experience when it is at least so much faster or slower than its start point.
_GAIN, _LOSS = 1.02, 1.3


@cache
def seeds(target: str) -> tuple[Mapping[str, Any], ...]:
    """Return the seed knowledge for a target: API knowledge and best practices."""
    folder = Path(__file__).parent / "knowledge"
    found: list[Mapping[str, Any]] = []
    for name in ("api", "practices"):
        for entry in json.loads((folder / f"{name}.json").read_text(encoding="utf-8")):
            if target in entry["targets"]:
                found.append({**entry, "kind": "api" if name == "api" else "practice"})
    return tuple(found)


def describe(info: TaskInfo, graph: Graph | str, family: str) -> str:
    """Return an operator in words, for similarity: its name, purpose, operators, dtypes and ranks."""
    doc = ast.get_docstring(parse(info.task.source)) or ""
    first = doc.splitlines()[0] if doc else ""
    parts = [info.task.name.replace("_", " "), first, f"family {family}"]
    if isinstance(graph, Graph):
        ops = dict.fromkeys(node.op.split(".")[1] for node in graph.nodes.values() if not node.is_leaf)
        parts.append("operators " + " ".join(name.strip("_").replace("_", " ") for name in ops))
    ranks = sorted({len(item["shape"]) for item in info.inputs if "shape" in item})
    parts.append(f"{' '.join(sorted(info.dtypes))} rank {' '.join(map(str, ranks))}")
    return ". ".join(part for part in parts if part)


@dataclass(frozen=True)
class Situation:
    """The state of a task as the memory sees it."""

    task: str
    task_sha: str
    text: str
    family: str
    #: What latencies and lessons hold for: a chip, an architecture, ``cpu``.
    device: str
    bottleneck: str = ""

    @property
    def signature(self) -> str:
        """The compact state that Q-values are kept by, beside the item alone."""
        return "/".join(part for part in (self.device, self.family, self.bottleneck) if part)


@dataclass(frozen=True)
class Policy:
    """How items are chosen."""

    #: ``value``, ``similarity`` or ``none``.
    kind: Literal["value", "similarity", "none"] = "value"
    #: Items in context (N), recall factor (lambda) at the first round and at most, and share of random choices.
    items: int = 5
    recall: float = 3.0
    most_recall: float = 12.0
    epsilon: float = 0.1
    alpha: float = 0.3


class Memories:
    """The experience store of one run.

    Args:
        store: the open store.
        artifacts: where kernels are kept.
        run_id: names the run in items and event keys.
        policy: how items are chosen.
        scope: ``task`` (items of the same operator from this run only) or ``shared``.
        held_out: operators whose traces and experiences from other runs are not recalled (leak guard of transfer
            experiments), as patterns of names.
    """

    def __init__(
        self,
        store: ExperienceStore,
        artifacts: ArtifactStore,
        run_id: str,
        policy: Policy,
        scope: str,
        held_out: Sequence[str] = (),
    ) -> None:
        self.store = store
        self.artifacts = artifacts
        self.run_id = run_id
        self.policy = policy
        self.scope = scope
        self.held_out = frozenset(held_out)

    def plant(self, target: str, device: str) -> int:
        """Add the seed knowledge for a target; returns how many items there are of it."""
        items = [
            NewItem(
                kind=entry["kind"],
                outcome="success" if entry["kind"] == "practice" else "",
                text=entry["text"],
                name=entry.get("name", ""),
                target=device,
                family=entry.get("category", ""),
                bottleneck=entry.get("bottleneck", ""),
                evidence="seed",
                facts={"moves": entry["moves"]} if "moves" in entry else {"bundle": True},
            )
            for entry in seeds(target)
        ]
        self.store.add_many(items)
        return len(items)

    # -- recall ------------------------------------------------------------------------------------------------------

    def recall(
        self, stage: str, situation: Situation, round_: int, rng: random.Random, kinds: Sequence[str]
    ) -> list[Recalled]:
        """Recall items for a state; while refining, some of them must speak of the very bottleneck."""
        policy = self.policy
        text = f"{situation.text}. {stage}"
        own = frozenset({situation.task}) if stage == REFINE and self.scope != "task" else frozenset()
        query = Query(
            text=text,
            stage=stage,
            n=policy.items,
            lam=lambda_at(round_, first=policy.recall, last=max(policy.recall, policy.most_recall)),
            epsilon=policy.epsilon,
            signature=situation.signature,
            kinds=tuple(kinds),
            outcomes=("success", "failure"),
            target=situation.device,
            task=situation.task if self.scope == "task" else None,
            # Its own kernels are start points, not examples.
            exclude_tasks=self.held_out | own,
            policy=policy.kind,
        )
        found: list[Recalled] = []
        if stage == DRAFT and situation.task not in self.held_out:
            found += self._own_best(query, situation, rng)
        if situation.bottleneck:
            matched = replace(query, text=f"{text}, bound by {situation.bottleneck}", bottleneck=situation.bottleneck)
            found += self.store.retrieve(replace(matched, n=max(1, policy.items // 2)), rng).items
        rest = replace(query, n=policy.items - len(found), exclude=frozenset(item.item.id for item in found))
        found += self.store.retrieve(rest, rng).items
        if policy.kind == "value" and stage == REFINE:
            found.sort(key=lambda item: (item.how == "explore", -item.q, -item.similarity, item.item.id))
        return found

    def _own_best(self, query: Query, situation: Situation, rng: random.Random) -> list[Recalled]:
        """Return the fastest kernel that an earlier run found for this very operator: a search goes on from there."""
        own = replace(
            query, n=50, lam=1.0, task=situation.task_sha, kinds=("trace",), outcomes=("success",), policy="similarity"
        )
        known = [item for item in self.store.retrieve(own, rng).items if item.item.facts.get("latency")]
        return [min(known, key=lambda item: (item.item.facts["latency"], item.item.id))] if known else []

    def api(self, device: str, code: Sequence[str] = ()) -> list[Item]:
        """Return the standing API knowledge for a device, that which the given sources name first."""
        named = {item.id: item for text in code for item in self.store.exact_in(text, device)}
        return [*named.values(), *(item for item in self.store.bundle(device) if item.id not in named)]

    def values(self, stage: str, items: Sequence[str], signature: str) -> dict[str, float]:
        """Return the learnt value of items at a stage; start points are picked by it."""
        if self.policy.kind != "value":
            return {}
        return self.store.values(stage, items, signature)

    # -- learning ----------------------------------------------------------------------------------------------------

    def reward(
        self, event: str, stage: str, situation: Situation, level: str, items: Sequence[str], raw: float
    ) -> None:
        """Update the values of everything that was used for one attempt.

        The reward of refining is normalised by running statistics of its evidence level and device: levels never mix.
        """
        used = list(dict.fromkeys(item for item in items if item))
        if not used:
            return
        kept_apart = level if situation.device in level else f"{level}:{situation.device}"
        reward = raw if stage == DRAFT else self.store.normalise(event, stage, kept_apart, raw)
        self.store.update(event, stage, used, situation.signature, reward, self.policy.alpha)

    def keep_kernel(
        self,
        situation: Situation,
        *,
        candidate: str,
        content_sha: str,
        stage: str,
        evidence: str,
        champion: bool,
        facts: Mapping[str, Any],
    ) -> str:
        """Keep a feasible kernel as a trace; returns its item.

        Args:
            champion: the first feasible kernel of its task, or the fastest so far; only such are recalled for others.
        """
        return self.store.add(
            NewItem(
                kind="trace",
                outcome="success" if champion else "",
                text=f"{situation.text}. {stage}",
                content_sha=content_sha,
                task=situation.task,
                task_sha=situation.task_sha,
                target=situation.device,
                family=situation.family,
                stage=stage,
                evidence=evidence,
                run_id=self.run_id,
                candidate_id=candidate,
                facts=facts,
            )
        )

    def keep_failure(self, situation: Situation, stage: str, kind: str, message: str, facts: Mapping[str, Any]) -> str:
        """Keep what went wrong as an experience; numbers are left out of its text so that equal lessons meet."""
        lesson = re.sub(r"\d+(\.\d+)?", "n", message)[:240]
        return self.store.add(
            NewItem(
                kind="experience",
                outcome="failure",
                text=f"{situation.family} operator {situation.task} on {situation.device}: {kind}. {lesson}",
                task=situation.task,
                task_sha=situation.task_sha,
                target=situation.device,
                family=situation.family,
                stage=stage,
                evidence="",
                run_id=self.run_id,
                facts={**facts, "kind": kind, "message": message[:400]},
            )
        )

    def keep_change(
        self, situation: Situation, level: str, moves: Sequence[Mapping[str, Any]], ratio: float, text: str = ""
    ) -> str | None:
        """Keep what a change did to the latency, when it did something.

        Args:
            moves: the parameters that changed (offline proposer).
            ratio: old latency over new one.
            text: what changed in words (model).
        """
        if 1 / _LOSS < ratio < _GAIN or not (moves or text):
            return None
        gain = ratio >= _GAIN
        what = text or "; ".join(f"{m['param'].replace('_', ' ')} from {m['from']} to {m['to']}" for m in moves)
        bound = f" bound by {situation.bottleneck}" if situation.bottleneck else ""
        return self.store.add(
            NewItem(
                kind="experience",
                outcome="success" if gain else "failure",
                text=f"{situation.family} operator {situation.task} on {situation.device}{bound}: {what} made it "
                f"{'faster' if gain else 'slower'}",
                task=situation.task,
                task_sha=situation.task_sha,
                target=situation.device,
                family=situation.family,
                stage=REFINE,
                bottleneck=situation.bottleneck,
                evidence=level,
                run_id=self.run_id,
                facts={"moves": [dict(m) for m in moves], "ratio": ratio},
            )
        )

    def close(self) -> None:
        """Close the store."""
        self.store.close()


def as_context(item: Item, artifacts: ArtifactStore, most: int) -> str:
    """Return an item as a prompt shows it, its code cut to ``most`` characters."""
    facts = item.facts
    head = f"[{item.kind}{' ' + item.outcome if item.outcome else ''}] {item.text}"
    latency = f" ({facts['latency']:.3g} s, {item.evidence})" if facts.get("latency") else ""
    message = f"\n  {facts['message']}" if facts.get("message") else ""
    code = ""
    if item.content_sha:
        text = artifacts.text(item.content_sha)
        code = "\n```\n" + (text if len(text) <= most else text[:most] + "\n# (cut)") + "\n```"
    return head + latency + message + code
