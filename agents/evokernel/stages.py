"""Drafting and refining: the state of one task, its rewards and what its next attempt is (EvoKernel, arXiv 2603.10846).

A task drafts until its first feasible kernel and refines from then on; every verification of either stage counts
towards the budget of T. All functions are pure: state in, state out. A latency here is what the search minimises
(``Latency.cost``): seconds, or the share of the reference's time where both were measured side by side.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

DRAFT, REFINE = "draft", "refine"
#: Failures of a proposal after which another attempt would fail in the same way.
FINAL = frozenset({"bad-task", "no-building-block", "not-traceable", "exhausted"})

Item = dict[str, Any]


def fresh(source_sha: str, group: str = "", cases: Sequence[str] = ()) -> Item:
    """Return the state of a task that nothing was tried on.

    Args:
        source_sha: the artifact with its source.
        group: what it is counted with (a level of KernelBench); may be empty.
        cases: its hidden cases in words, for the report.
    """
    item: Item = {"source": source_sha, "tries": 0, "stage": DRAFT, "points": [], "curve": []}
    return item | {"group": group, "cases": list(cases)}


def open_for_more(item: Mapping[str, Any], iterations: int) -> bool:
    """Say whether a task wants another attempt."""
    return not item.get("given_up") and not item.get("unknown") and item["tries"] < iterations


def draft_reward(feasible: bool) -> float:
    """Return r1: +1 for a feasible kernel, -1 for any other (section on cold-start drafting)."""
    return 1.0 if feasible else -1.0


def refine_reward(latency: float | None, best: float) -> float:
    """Return r2: -1 for an infeasible kernel, else tanh(log b - log latency), b the best latency before this kernel.

    Args:
        latency: None when the kernel is infeasible or its latency is unknown.
        best: the draft's latency at first, so that the first refinement compares with the draft.
    """
    if latency is None:
        return -1.0
    return math.tanh(math.log(best) - math.log(latency))


def pick_point(
    points: list[dict[str, Any]], values: Mapping[str, float], epsilon: float, rng: random.Random
) -> dict[str, Any]:
    """Pick a start point from the feasible set: epsilon-greedy by Q2, of equals the fastest.

    Args:
        points: the feasible kernels, each with ``id``, ``latency`` and ``item`` (its memory item; may be empty).
        values: Q2 by memory item; a missing one counts as 0.
        epsilon: share of random picks.
        rng: the run's.
    """
    if len(points) > 1 and rng.random() < epsilon:
        return points[rng.randrange(len(points))]
    return min(points, key=lambda point: (-values.get(point["item"], 0.0), point["latency"], point["id"]))


def settle(
    item: Item,
    *,
    candidate: str,
    status: str,
    evidence: str,
    latency: float | None,
    memory_item: str,
    failure: Mapping[str, Any] | None,
) -> Item:
    """Return the state after one verified attempt.

    Args:
        item: the state before.
        candidate: its id.
        status: ``ok``, ``failed`` or ``unknown`` (a gate could not be applied here).
        evidence: level that was proven.
        latency: if known.
        memory_item: the memory item that holds this kernel; empty without a memory.
        failure: ``kind``, ``message`` and ``gate`` of a failed one.
    """
    new = {**item, "tries": item["tries"] + 1, "last": candidate}
    if status == "failed":
        return {**new, "failure": dict(failure or {})}
    new.pop("failure", None)
    if status == "unknown":
        # Another attempt would meet the same missing gate; a kernel that was proven before stays the result.
        return new if item.get("draft") else {**new, "unknown": candidate, "evidence": evidence}
    if not item.get("draft"):
        new.update(draft=candidate, best=candidate, evidence=evidence, stage=REFINE)
        if latency is None:
            # Without a latency there is nothing to refine by.
            return {**new, "given_up": "no-latency"}
        new.update(draft_latency=latency, best_latency=latency)
    elif latency is not None and latency < item["best_latency"]:
        new.update(best=candidate, best_latency=latency, evidence=evidence)
    if latency is not None and all(point["id"] != candidate for point in item["points"]):
        new["points"] = [*item["points"], {"id": candidate, "latency": latency, "item": memory_item}]
        new["curve"] = [*item["curve"], [new["tries"], new["best_latency"]]]
    return new


def lost(item: Item, kind: str, message: str) -> Item:
    """Return the state after an attempt that gave no candidate."""
    new = {**item, "tries": item["tries"] + 1}
    if kind in FINAL:
        new["given_up"] = kind
        if item.get("draft"):
            return new  # the search is over, not failed
    return {**new, "failure": {"kind": kind, "message": message, "gate": "proposal"}}
