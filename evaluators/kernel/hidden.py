"""Hidden cases: small shapes and values that a candidate never sees in advance."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.evaluators.kernel.facts import cost, elements, lines, repack, row_length

_PLAIN_SHAPES = ("as given", "primes", "tied primes", "in proportion, largest 16")
_ORDER = ("given", "wide", "negative", "sparse", "stepped", "small")


@dataclass(frozen=True)
class HiddenCases:
    """Small shapes and values that a candidate never sees in advance, with what the reference gives for them."""

    cases: Sequence[Mapping[str, Any]]
    blobs: tuple[bytes, ...]
    #: In words, for the record.
    described: Sequence[str]


def choose_cases(world: KernelWorld, info: TaskInfo, count: int, seed: int) -> HiddenCases:
    """Choose cases for a task and compute the reference on them.

    Raises:
        BadTask: the reference works on no small shape.
    """
    rng = random.Random(f"{seed}:{info.task.sha}:hidden")
    proposed = shapes.assignments(info.dims, rng)
    asked: list[dict[str, Any]] = []
    for position, (_, assignment) in enumerate(proposed):
        asked.append(_case(info, assignment, _ORDER[position % len(_ORDER)], rng))
    # Values that overflow an exponential, at shapes that most operators have.
    for reason, assignment in [item for item in proposed if item[0] in _PLAIN_SHAPES]:
        proposed.append((reason, assignment))
        asked.append(_case(info, assignment, "large", rng))
    answers, blobs = world.reference(asked)
    usable: list[tuple[int, dict[str, Any]]] = []
    reasons = []
    for position, answer in enumerate(answers):
        if answer.get("defect"):
            # A case of one element may hide it; it is the task's all the same.
            raise BadTask(str(answer["error"]))
        if "error" in answer:
            reasons.append(str(answer["error"]))
        else:
            usable.append((position, answer))
    cheap = [item for item in usable if cost(item[1]) <= 1.0]
    usable = cheap if len(cheap) >= 2 else sorted(usable, key=lambda item: cost(item[1]))[:2]
    if not usable:
        if reasons and len(reasons) == len(answers):
            raise BadTask(reasons[0])
        raise BadTask("no small version of the task was found; give its sizes as integers at module level")
    chosen = _spread(usable, count, [i for i, case in enumerate(asked) if case["distribution"] == "large"])
    kept: list[bytes] = []
    cases, described = [], []
    for number, (position, answer) in enumerate(chosen):
        case = repack(answer, blobs, kept)
        reason = proposed[position][0]
        case["strided"] = number == 1
        case["probe_idle"] = number == 0
        case["label"] = f"{reason}, {asked[position]['distribution']}{', strided' if case['strided'] else ''}"
        cases.append(case)
        described.append(case["label"])
    return HiddenCases(cases, tuple(kept), described)


def _case(info: TaskInfo, assignment: Mapping[str, int], distribution: str, rng: random.Random) -> dict[str, Any]:
    return {
        "source": shapes.rewrite(info.task.source, assignment),
        "seed": rng.randrange(2**31),
        "distribution": distribution,
        "calls": 2,
    }


def _spread(
    usable: list[tuple[int, dict[str, Any]]], count: int, large: Sequence[int]
) -> list[tuple[int, dict[str, Any]]]:
    """Take cases from the whole list of kinds, not only its first ones."""
    if len(usable) <= count:
        return usable
    step = len(usable) / count
    chosen = {usable[int(i * step)][0] for i in range(count)}
    # The longest rows and the most elements are what a kernel without a loop is wrong on: always among them.
    needed = {max(usable, key=lambda item: measure(item[1]))[0] for measure in (row_length, lines, elements)}
    needed.update([position for position, _ in usable if position in large][:1])
    spare = sorted(chosen - needed, reverse=True)
    while len(chosen | needed) > count and spare:
        chosen.discard(spare.pop(0))
    return [item for item in usable if item[0] in chosen | needed]
