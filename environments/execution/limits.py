"""Limits of one job and the ways in which it can end. Plain data, no imports of ours: also read inside a sandbox."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class ExitCause(StrEnum):
    """Why a job ended. ``SANDBOX_ERROR`` is our machinery's fault, never the candidate's."""

    #: It ended by itself; ``returncode`` (or the error of the function) says how well.
    OK = "ok"
    #: Killed at ``wall_s`` or ``cpu_s``.
    TIMEOUT = "timeout"
    #: Killed or refused memory at ``memory_mb``.
    OOM = "oom"
    #: It failed after it had been refused a process at ``pids``.
    PIDS = "pids"
    #: A signal ended it that was not ours (segmentation fault, abort, its own kill).
    SIGNAL = "signal"
    #: Killed for writing more than ``output_bytes``, ``result_mb`` or, where nothing else holds it, ``disk_mb``.
    OUTPUT_LIMIT = "output_limit"
    #: The sandbox could not be started, died, or lost the job.
    SANDBOX_ERROR = "sandbox_error"


@dataclass(frozen=True)
class Limits:
    """What one job may use. Enforced from outside the job; rlimits inside are the second line."""

    #: Wall clock, seconds.
    wall_s: float = 60
    #: Processor time of each process of the job, seconds; ``None``: only the wall clock counts.
    cpu_s: float | None = None
    #: Memory, MiB: for the whole job where a cgroup can be used, else per process (address space). In a warm worker it
    #: is what the job adds to the memory that it shares with the worker.
    memory_mb: int = 1024
    #: Processes and threads at one time.
    pids: int = 64
    #: Bytes of standard output, and the same again of standard error.
    output_bytes: int = 1 << 20
    #: Size of the private temporary file system, MiB.
    disk_mb: int = 64
    #: Open file descriptors per process.
    open_files: int = 256
    #: Size of a function's result, and of all collected files together, MiB.
    result_mb: int = 64

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "cpu_s" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
                raise ValueError(f"limit {name} must be a positive number, not {value!r}")
            if name not in ("wall_s", "cpu_s") and not isinstance(value, int):
                raise ValueError(f"limit {name} must be a whole number, not {value!r}")

    def as_dict(self) -> dict[str, Any]:
        """Return the limits as plain data."""
        return asdict(self)


#: What a job gets that nobody set limits for.
DEFAULT_LIMITS = Limits()
