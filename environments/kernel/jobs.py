"""Calling functions in warm workers and telling apart whose fault a failure is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution import ExitCause, JobResult, Limits, Message
from orienteer.environments.execution.pool import WorkerPool


class MachineryFault(Exception):
    """Our own machinery failed: a sandbox, a worker, a tool. No candidate is to blame."""


class JobRaised(MachineryFault):
    """The job's function raised where it catches everything: a fault of ours, or of code that tampers with it."""


class JobFailed(Exception):
    """The code in the job ended it: a time-out, too much memory, a crash, an exit without a result.

    Attributes:
        kind: ``timeout``, ``oom``, ``pids``, ``crash``, ``output-limit`` or ``no-result``.
        result: everything that is known about the job.
    """

    def __init__(self, kind: str, message: str, result: JobResult) -> None:
        super().__init__(message)
        self.kind = kind
        self.result = result


_CAUSES = {
    ExitCause.TIMEOUT: ("timeout", "it was killed after {wall_s:.0f} s"),
    ExitCause.OOM: ("oom", "it needed more than {memory_mb} MiB of memory"),
    ExitCause.PIDS: ("pids", "it started more than {pids} processes or threads"),
    ExitCause.SIGNAL: ("crash", "the process crashed (a signal ended it), as an access outside a tensor does"),
    ExitCause.OUTPUT_LIMIT: ("output-limit", "it wrote more output than allowed"),
}


def call(
    pool: WorkerPool, function: str, header: Mapping[str, Any], blobs: Sequence[bytes], limits: Limits
) -> tuple[Message, JobResult]:
    """Run a job function and return its message.

    Raises:
        JobFailed: the code in the job is to blame.
        MachineryFault: we are.
    """
    result = pool.run(function, Message(header, tuple(blobs)), limits)
    if result.cause is ExitCause.SANDBOX_ERROR:
        raise MachineryFault(f"the sandbox failed: {result.error}")
    if result.cause in _CAUSES:
        kind, text = _CAUSES[result.cause]
        raise JobFailed(kind, text.format(**limits.as_dict()), result)
    if result.value is not None:
        return result.value, result
    if result.error_type in ("NoResult", "BadResult", "SystemExit"):
        raise JobFailed("no-result", "the process ended without a result", result)
    last = (result.error.strip().splitlines() or [result.error_type])[-1]
    raise JobRaised(f"the job {function} failed: {last}")
