"""From alternating rounds to a latency: medians, quartiles, and the paired ratio."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.kernel.world import TaskInfo
from orienteer.evaluators.kernel import verdict


@dataclass(frozen=True)
class Timing:
    """What the rounds say. Times are seconds of one call."""

    seconds: float
    spread: tuple[float, float]
    baseline_s: float
    #: Reference over candidate, round by round: median and quartiles.
    speedup: float
    speedup_spread: tuple[float, float]
    rounds: int
    #: Rounds that were interrupted and are not counted.
    left_out: int
    calls: int
    sets: int
    #: Least excess of the candidate's processor time (by thread, as the system accounts it) over its claim.
    least_gap: float
    load: float
    #: Operations of the reference's matrix products and convolutions.
    flops: float
    #: ``torch.compile`` over candidate, where it was timed; else why it was not, if it was asked for.
    compiled: float | str | None = None

    def facts(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "speedup": round(self.speedup, 4),
            "speedup_quartiles": [round(value, 4) for value in self.speedup_spread],
            "rounds": self.rounds,
            "rounds_left_out": self.left_out,
            "calls_a_round": self.calls,
            "input_sets": self.sets,
            "load": round(self.load, 2),
            **({"torch_compile": self.compiled} if self.compiled is not None else {}),
        }

    def rotated_bytes(self, info: TaskInfo) -> int:
        """Return the size of all sets of inputs and outputs together."""
        return self.sets * moved_bytes([*info.inputs, *info.outputs])


def moved_bytes(specs: Sequence[Mapping[str, Any]]) -> int:
    """Return the bytes of described tensors."""
    from orienteer.kernels.cpp.abi import ITEM_SIZE

    return sum(math.prod(s["shape"]) * ITEM_SIZE.get(str(s["dtype"]), 0) for s in specs if "shape" in s)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and third quartile (linear interpolation, the ends included)."""
    first, _, third = verdict.quartiles(values)
    return first, third


#: Undisturbed rounds that suffice to leave the others out: so many, and at least this share of all. Fewer than that
#: would be a choice of rounds, and another one at every attempt.
_ENOUGH, _SHARE = 5, 0.5


def undisturbed(rounds: Sequence[Mapping[str, Any]]) -> tuple[Sequence[Mapping[str, Any]], int]:
    """Return the rounds in which nobody was interrupted, if there are enough, else all; and how many are left out."""
    quiet = [item for item in rounds if item.get("preempted", 0) == 0]
    return (quiet, len(rounds) - len(quiet)) if len(quiet) >= max(_ENOUGH, _SHARE * len(rounds)) else (rounds, 0)


def _compiled(
    header: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], own: Sequence[float]
) -> float | str | None:
    if rounds and "compiled" in rounds[0]:
        pairs = zip(own, rounds, strict=True)
        return round(statistics.median(float(item["compiled"]) / max(a, 1e-12) for a, item in pairs), 4)
    return str(header["not_compiled"]) if header.get("not_compiled") else None


def summarise(header: Mapping[str, Any]) -> Timing:
    """Summarise the answer of ``cpu_measure_job.measure``.

    The ratio is taken within each round: candidate and reference run there within milliseconds of each other, so that
    a slow phase of a shared machine falls on both.
    """
    rounds, left_out = undisturbed(header["rounds"])
    own = [float(item["candidate"]) for item in rounds]
    other = [float(item["reference"]) for item in rounds]
    ratios = [b / max(a, 1e-12) for a, b in zip(own, other, strict=True)]
    return Timing(
        seconds=statistics.median(own),
        spread=quartiles(own),
        baseline_s=statistics.median(other),
        speedup=statistics.median(ratios),
        speedup_spread=quartiles(ratios),
        rounds=len(rounds),
        left_out=left_out,
        calls=int(header["calls"]),
        sets=int(header["sets"]),
        least_gap=min(float(item["outside"]) - float(item["candidate"]) for item in rounds),
        load=float(header["load"][0]),
        flops=float(header["flops"]),
        compiled=_compiled(header, rounds, own),
    )
