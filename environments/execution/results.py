"""What comes back from a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orienteer.environments.execution.limits import ExitCause


@dataclass(frozen=True)
class ExecResult:
    """The end of one program run by :meth:`Sandbox.exec`."""

    cause: ExitCause
    #: Exit status; negative is the signal that ended it; ``None`` when there is none to report.
    returncode: int | None
    stdout: bytes
    stderr: bytes
    wall_s: float
    cpu_s: float
    #: Peak memory of the job, MiB: the cgroup's where there is one, else the largest resident set of one process.
    peak_mb: float | None
    backend: str
    #: What stood between the program and the host; ``none`` for the process backend.
    isolation: str
    limits: dict[str, Any]
    #: The files asked for by ``collect`` that existed, by the name they were asked for.
    files: dict[str, bytes] = field(default_factory=dict)
    #: For ``SANDBOX_ERROR``: what went wrong in our machinery.
    error: str = ""


@dataclass(frozen=True)
class Message:
    """What travels between the caller and a job: JSON and raw bytes, never pickle."""

    header: Mapping[str, Any]
    blobs: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class JobResult:
    """The end of one function call in a warm worker.

    Everything in ``value``, ``error`` and ``error_type`` is the *claim of the child process*: candidate code runs in
    the process that writes it and can write anything there. The caller therefore asks for raw outputs and computes
    the verdict itself from what only it knows. ``cause``, the times and the memory are measured outside the child.

    ``value`` is set only when the function returned. ``cause`` OK without a value always has an ``error_type``: the
    exception's class name, ``NoResult`` (the process ended without one) or ``BadResult`` (incomplete, unauthenticated,
    more than one, or not in the format).
    """

    cause: ExitCause
    value: Message | None
    error: str
    error_type: str
    stdout: bytes
    stderr: bytes
    wall_s: float
    cpu_s: float
    peak_mb: float | None
    backend: str
    isolation: str
    limits: dict[str, Any]
