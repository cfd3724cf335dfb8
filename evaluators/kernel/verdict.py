"""What a judgement on a kernel is made of: gates, evidence, latency."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Gate:
    """One gate's answer."""

    name: str
    #: ``passed``, ``failed`` or ``skipped``.
    status: str
    detail: str = ""
    #: Failure class: ``cheat:library-call``, ``compile:ub-overflow``, ``mismatch``, ``timeout`` ...
    kind: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return first quartile, median and third quartile (linear interpolation, the ends included).

    Raises:
        statistics.StatisticsError: there are no values.
    """
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive") if len(values) != 1 else 3 * [*values]
    return first, middle, third


@dataclass(frozen=True)
class Latency:
    """How long a kernel takes, with what stands behind the number.

    A number of one level and device is comparable with no other: an uncalibrated model ranks candidates of one task.
    """

    #: Seconds for one call of ``forward``: all its launches.
    seconds: float
    #: ``E2`` modelled, ``E4`` measured on the device.
    level: str
    #: ``Ascend910B3``, ``sm_90``, ``cpu`` ...
    device: str
    #: The method in words: ``modelled, uncalibrated``, ``median of 15 paired rounds, 1 thread`` ...
    how: str
    #: What nothing can beat: bytes that must move and operations that must be done at the device's peak rates.
    floor_s: float | None = None
    #: What bounds it: a pipe of the chip (``mte2``, ``vector``, ``cube`` ...), ``memory``, ``compute``, ``launch``.
    bottleneck: str = ""
    #: First and third quartile where it was measured.
    spread: tuple[float, float] | None = None
    #: The reference's time (PyTorch eager), measured in the same way in the same minute.
    baseline_s: float | None = None
    #: Further plain facts: per kernel, per pipe, ratios.
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> float:
        """What a search minimises: the share of the reference's time where both ran side by side, else the seconds.

        On a shared machine the paired ratio of one minute can be compared with that of another; seconds cannot. The
        first quartile of the ratio is taken, not its median: of many measurements the search picks the best, and a
        noisy one must not win by its noise.
        """
        paired = self.facts.get("speedup_quartiles", [self.facts.get("speedup")])[0]
        return 1.0 / paired if paired else self.seconds

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Verdict:
    """All gates of one candidate."""

    gates: tuple[Gate, ...]
    #: Highest level proven: ``""``, ``E0`` or ``E1:Ascend910B3`` ...
    evidence: str
    log: str = ""
    #: None where no latency is known; never a guess.
    latency: Latency | None = None

    @property
    def failed(self) -> Gate | None:
        """The gate that failed, if one did."""
        return next((gate for gate in self.gates if gate.status == "failed"), None)

    @property
    def skipped(self) -> list[Gate]:
        """Gates that could not be applied here."""
        return [gate for gate in self.gates if gate.status == "skipped"]


#: Rejection classes, in the words of a report.
CLASSES = ("cheat", "incorrect", "compile", "limit", "crash", "time-out", "contract", "ours")
_BY_KIND = {
    "timeout": "time-out",
    "oom": "limit",
    "pids": "limit",
    "output-limit": "limit",
    "crash": "crash",
    "no-result": "crash",
    "runtime": "crash",
    "interpreter": "crash",
    "overrun": "incorrect",
    "unjudged-kernel": "cheat",
    "impossible-speed": "cheat",
    "machinery": "ours",
    "syntax": "compile",
    "contract": "contract",
}
_COMPILE_LIMITS = ("overflow", "grid", "shared", "registers", "oom")


def rejection_class(kind: str) -> str:
    """Return the class of a failure kind: one of :data:`CLASSES`.

    ``cheat`` is work that is not done by the kernels or could be hidden from the judge, ``incorrect`` a wrong result,
    ``limit`` more of a resource than there is, ``contract`` a file that has not the form of a candidate, ``ours`` a
    fault of this program or machine.
    """
    if kind.startswith("cheat"):
        return "cheat"
    if kind.startswith("compile:"):
        rest = kind.removeprefix("compile:")
        if rest == "timeout":
            return "time-out"
        return "limit" if any(word in rest for word in _COMPILE_LIMITS) else "compile"
    return _BY_KIND.get(kind, "incorrect")
