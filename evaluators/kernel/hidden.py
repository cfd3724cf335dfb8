"""Hidden cases: small shapes and values that a candidate never sees in advance; signs of tasks that are easily fooled.

A verdict costs what its cases cost in the interpreter, about a millisecond for every turn of a program. So small cases
are called twice on one instance, the second time with the program instances in reversed order; large ones once, every
other of them in reversed order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.evaluators.kernel.facts import HiddenCases, cost, elements, lines, repack, row_length

__all__ = ["HiddenCases", "choose_cases"]

_PLAIN_SHAPES = ("as given", "primes", "tied primes", "few", "in proportion, largest 16")
_ORDER = ("given", "wide", "negative", "sparse", "stepped", "small")
#: Distributions of which every task has a case where its operator is defined on them, at a small plain shape.
_ALWAYS = ("large", "special", "zeros")
#: A case that costs more than this share of what is allowed is called once.
_TWO_CALLS = 0.15
#: Signs for which a task is turned away; the others are only named.
_DEGENERATE = {
    "ignores-inputs": "its output does not depend on its inputs",
    "constant": "its output is one number everywhere",
}


#: Operators whose result is not defined where values are equal: PyTorch promises no order of ties.
_TIES_MATTER = re.compile(r"\b(topk|sort|argsort|kthvalue|median|mode)\b")
#: Values with ties, and what is used in their place.
_TIED = {"sparse": "wide", "stepped": "given"}


def choose_cases(world: KernelWorld, info: TaskInfo, count: int, seed: int, *, dtypes: bool = False) -> HiddenCases:
    """Choose cases for a task and compute the reference on them.

    Args:
        world: where the reference runs.
        info: the task.
        count: cases; there are more where the kinds that every task needs (longest rows, most rows, most elements,
            large, special and zero values) are more.
        seed: decides shapes and values.
        dtypes: for a float32 task, add a small case in float16 and one in bfloat16 where the reference runs in it.

    Raises:
        BadTask: the reference works on no small shape, or the task is degenerate (``degenerate-task``).
    """
    rng = random.Random(f"{seed}:{info.task.sha}:hidden")
    proposed = shapes.assignments(info.dims, rng)
    asked: list[dict[str, Any]] = []
    ties = _TIES_MATTER.search(info.task.source) is not None
    for position, (_, assignment) in enumerate(proposed):
        distribution = _ORDER[position % len(_ORDER)]
        asked.append(_case(info, assignment, _TIED.get(distribution, distribution) if ties else distribution, rng))
    # Values that overflow an exponential, or are no numbers, at shapes that most operators have.
    plain = [item for item in proposed if item[0] in _PLAIN_SHAPES]
    floating = any(name.startswith(("float", "bfloat")) for name in _dtypes(info.inputs))
    further = [name for name in ("float16", "bfloat16") if dtypes and _all_float32(info)]
    for reason, assignment in plain:
        for distribution in [name for name in _ALWAYS if floating and not (ties and name == "zeros")]:
            proposed.append((reason, assignment))
            asked.append(_case(info, assignment, distribution, rng))
        for name in further:
            proposed.append((reason, assignment))
            asked.append({**_case(info, assignment, "given", rng), "dtype": name})
    answers, blobs = world.reference(asked)
    usable: list[tuple[int, dict[str, Any]]] = []
    others: list[tuple[int, dict[str, Any]]] = []
    reasons = []
    for position, answer in enumerate(answers):
        if answer.get("defect") and "dtype" not in asked[position]:
            # A case of one element may hide it; it is the task's all the same.
            raise BadTask(str(answer["error"]))
        if "dtype" in asked[position]:
            others += [] if "error" in answer else [(position, answer)]
        elif "error" in answer:
            reasons.append(str(answer["error"]))
        else:
            usable.append((position, answer))
    flags = _flags([answer["signs"] for _, answer in usable if answer.get("signs") is not None])
    cheap = [item for item in usable if cost(item[1]) <= 1.0]
    usable = cheap if len(cheap) >= 2 else sorted(usable, key=lambda item: cost(item[1]))[:2]
    if not usable:
        if reasons and len(reasons) == len(answers):
            raise BadTask(reasons[0])
        raise BadTask("no small version of the task was found; give its sizes as integers at module level")
    chosen = _spread(usable, count, {i: case["distribution"] for i, case in enumerate(asked)})
    kept: list[bytes] = []
    cases, described = [], []
    backward = False
    for number, (position, answer) in enumerate(chosen):
        once = cost(answer) > _TWO_CALLS and number > 1
        case = repack({**answer, "calls": answer["calls"][:1]} if once else answer, blobs, kept)
        reason = proposed[position][0]
        case["distribution"] = asked[position]["distribution"]
        case["strided"] = number == 1
        case["probe_idle"] = number == 0
        if once:
            backward = not backward
            case["backward"] = backward
        case["label"] = f"{reason}, {asked[position]['distribution']}{', strided' if case['strided'] else ''}"
        cases.append(case)
        described.append(case["label"])
    dtype_cases = []
    for name in further:
        found = [item for item in others if asked[item[0]]["dtype"] == name]
        if found:
            position, answer = min(found, key=lambda item: abs(elements(item[1]) - 200))
            case = repack({**answer, "calls": answer["calls"][:1]}, blobs, kept)
            case |= {"strided": False, "probe_idle": False, "dtype": name}
            dtype_cases.append({**case, "label": f"{proposed[position][0]}, {name}"})
    return HiddenCases(cases, tuple(kept), described, flags, tuple(dtype_cases))


def _dtypes(items: Sequence[Mapping[str, Any]]) -> set[str]:
    return {str(item["dtype"]) for item in items if "dtype" in item}


def _all_float32(info: TaskInfo) -> bool:
    names = {name for name in info.dtypes if "float" in name}
    return names == {"float32"} and "float32" in _dtypes(info.outputs)


def _flags(signs: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the signs that every examined case shows.

    Raises:
        BadTask: one of them makes the task degenerate.
    """
    common = set.intersection(*(set(item) for item in signs)) if len(signs) > 1 else set()
    for name, text in _DEGENERATE.items():
        if name in common:
            raise BadTask(f"degenerate-task: {text}, so any kernel could pass without doing the work")
    return tuple(sorted(common))


def _case(info: TaskInfo, assignment: Mapping[str, int], distribution: str, rng: random.Random) -> dict[str, Any]:
    return {
        "source": shapes.rewrite(info.task.source, assignment),
        "seed": rng.randrange(2**31),
        "distribution": distribution,
        "calls": 2,
    }


def _spread(
    usable: list[tuple[int, dict[str, Any]]], count: int, distributions: Mapping[int, str]
) -> list[tuple[int, dict[str, Any]]]:
    """Take cases from the whole list of kinds, not only its first ones."""
    ordinary = [item for item in usable if distributions[item[0]] not in _ALWAYS] or usable
    step = max(1.0, len(ordinary) / count)
    wanted = [ordinary[int(i * step)][0] for i in range(min(count, len(ordinary)))]
    # The longest rows and the most elements are what a kernel without a loop is wrong on: always among them.
    needed = {max(ordinary, key=lambda item: measure(item[1]))[0] for measure in (row_length, lines, elements)}
    for name in _ALWAYS:
        found = [item for item in usable if distributions[item[0]] == name]
        if found:
            # Enough elements for the odd ones among them, and few enough to be cheap.
            needed.add(min(found, key=lambda item: abs(elements(item[1]) - 400))[0])
    # The first one is plain and small: an instance is called on it twice, and once with its kernels off.
    needed.add(min(ordinary, key=lambda item: abs(elements(item[1]) - 400))[0])
    chosen = set(needed)
    for position in wanted:
        if len(chosen) >= count:
            break
        chosen.add(position)
    return sorted((item for item in usable if item[0] in chosen), key=lambda item: (cost(item[1]) > 0.5, item[0]))
