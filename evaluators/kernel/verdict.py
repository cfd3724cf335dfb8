"""What a judgement on a kernel is made of: gates, evidence, latency."""

from __future__ import annotations

from collections.abc import Mapping
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
