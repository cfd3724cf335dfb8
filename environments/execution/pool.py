"""Warm workers: heavy packages are imported once, every job is a forked child with limits and walls of its own.

How long a job takes to start is the cost of the forks (two or three of a process with torch and triton in it, about
25 ms in all), not of the imports (seconds). A worker serves one job at a time; the pool holds ``size`` of them, started
when first needed and replaced when they die, stop answering, or grow past :data:`MAX_WORKER_MB`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.execution import cgroups, frames, paths
from orienteer.environments.execution.channel import MAX_FRAME
from orienteer.environments.execution.limits import DEFAULT_LIMITS, ExitCause, Limits
from orienteer.environments.execution.results import JobResult, Message
from orienteer.environments.execution.sandbox import (
    BASE_ENV,
    Sandbox,
    cancelled,
    close_group,
    final_cause,
    isolation_of,
    peak_mb,
)
from orienteer.environments.execution.session import SandboxFault, Session, Spec
from orienteer.errors import OrienteerError

#: A worker that has grown past this is replaced before its next job, MiB.
MAX_WORKER_MB = 1500
#: Exceptions that say that memory was refused.
_MEMORY_ERRORS = ("MemoryError", "_ArrayMemoryError", "OutOfMemoryError")
_FORK_ERRORS = ("BlockingIOError", "RuntimeError")
_FORK_TEXT = ("Resource temporarily unavailable", "can't start new thread")
_MEMORY_TEXT = ("can't allocate memory", "not enough memory", "std::bad_alloc")


class WorkerPool:
    """Calls functions in children of warm workers.

    Args:
        sandbox: where the workers live.
        preload: modules that a worker imports before its first job; none may leave a thread running.
        env: environment of workers and jobs, besides a small fixed one; nothing is inherited.
        size: workers, and so jobs at one time.
        binds: files and folders of this machine to show read-only.
        cancel: when set, running jobs are killed and :meth:`run` raises :class:`~orienteer.errors.Interrupted`.

    Raises:
        UsageError: a bind does not exist.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        preload: Sequence[str],
        env: Mapping[str, str] | None = None,
        size: int = 1,
        binds: Sequence[str | Path] = (),
        cancel: threading.Event | None = None,
    ) -> None:
        if size < 1:
            raise ValueError("a pool needs at least one worker")
        self.sandbox = sandbox
        self.size = size
        self._cancel = cancelled(cancel)
        self._env = {**BASE_ENV, "PYTHONMALLOC": "malloc", **(env or {})}
        self._binds = paths.checked(list(binds))
        self._preload = tuple(preload)
        self._lock = threading.Condition()
        self._idle: list[Session] = []
        self._busy: set[Session] = set()
        self._out = 0
        self._closed = False

    def run(self, function: str, message: Message, limits: Limits) -> JobResult:
        """Call ``package.module:function`` with the message in a child of a worker and return how it ended.

        Blocks until a worker is free and the job has ended; may be called from many threads. The function takes a
        :class:`Message` and returns one. Whatever it raises becomes ``error`` and ``error_type``. ``result_mb`` limits
        what it returns.

        Raises:
            Interrupted: the pool's ``cancel`` was set.
            ValueError, TypeError: the message's header is no JSON, or nested too deep.
        """
        # A bad message is the caller's fault and must not cost a worker.
        frames.unpack(frames.pack({"message": dict(message.header)}), MAX_FRAME)
        self._acquire()
        session: Session | None = None
        group: cgroups.JobGroup | None = None
        began = time.monotonic()
        report: dict[str, Any] = {}
        blobs: tuple[bytes, ...] = (b"", b"")
        healthy = False
        try:
            session = self._worker(limits)
            began = time.monotonic()
            group = cgroups.make(limits) if self.sandbox.name != "docker" else None
            job = {"kind": "call", "function": function, "message": dict(message.header), "env": {}}
            report, blobs = session.run(job, message.blobs, limits, self._check, group)
            session.facts.update(rss_mb=report.get("worker_mb", 0.0), cpu_s=report.get("worker_cpu_s", 0.0))
            healthy = bool(report.get("clean", True))
        except SandboxFault as fault:
            report = {"cause": str(ExitCause.SANDBOX_ERROR), "error": str(fault)}
        finally:
            if session is not None and not healthy:
                session.close()
            usage = close_group(group)
            self._release(session, healthy)
        stamp = isolation_of(self.sandbox.isolation.partition("+")[0], session.facts if session else {}, group)
        return self._result(report, blobs, usage, stamp, limits, time.monotonic() - began)

    def warm(self) -> dict[str, Any]:
        """Start one worker if none is idle and return what it says of itself (``rss_mb``, ``nested``, ...).

        Raises:
            OrienteerError: it does not start; the reason is the error's problem.
        """
        self._acquire()
        session: Session | None = None
        try:
            session = self._worker(Limits())
            return dict(session.facts)
        except SandboxFault as fault:
            raise OrienteerError(f"no warm worker: {fault}") from None
        finally:
            self._release(session, session is not None)

    def close(self) -> None:
        """Kill all workers, running jobs included. Waiting calls of :meth:`run` raise ``RuntimeError``."""
        with self._lock:
            self._closed = True
            doomed = [*self._idle, *self._busy]
            self._idle.clear()
            self._lock.notify_all()
        for session in doomed:
            session.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        self._cancel()
        if self._closed:
            raise SandboxFault("the worker pool was closed")

    def _acquire(self) -> None:
        with self._lock:
            while self._out >= self.size:
                self._cancel()
                if self._closed:
                    break
                self._lock.wait(0.1)
            self._cancel()
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            self._out += 1

    def _worker(self, limits: Limits) -> Session:
        with self._lock:
            session = self._idle.pop() if self._idle else None
        if session is not None and not session.facts.get("nested") and 0 < session.disk_mb < limits.disk_mb:
            session.close()  # its temporary file system is too small for this job
            session = None
        if session is None:
            size = max(limits.disk_mb, DEFAULT_LIMITS.disk_mb)
            spec = Spec(self._env, self._binds, self._preload, size, limits, worker=True)
            session = self.sandbox.launch(spec, self._check)
        with self._lock:
            self._busy.add(session)
        return session

    def _release(self, session: Session | None, healthy: bool) -> None:
        spare: Session | None = None
        with self._lock:
            self._out -= 1
            if session is not None:
                self._busy.discard(session)
                if healthy and not self._closed and session.facts.get("rss_mb", 0) <= MAX_WORKER_MB:
                    self._idle.append(session)
                elif healthy:
                    spare = session
            self._lock.notify()
        if spare is not None:
            spare.close()

    def _result(
        self,
        report: Mapping[str, Any],
        blobs: tuple[bytes, ...],
        usage: cgroups.Usage,
        stamp: str,
        limits: Limits,
        wall_s: float,
    ) -> JobResult:
        value: Message | None = None
        error, error_type = str(report.get("error", "")), ""
        cause = ExitCause(report.get("cause", "sandbox_error"))
        if cause == ExitCause.OK:
            value, error, error_type = _read_result(report, blobs[2], limits)
        elif cause == ExitCause.SANDBOX_ERROR:
            error_type = "SandboxError"
        cause = final_cause(report, usage, failed=value is None)
        if cause == ExitCause.OK and value is None:
            # Where only an rlimit holds, a refusal is an exception that the function let through.
            if error_type in _MEMORY_ERRORS or any(text in error for text in _MEMORY_TEXT):
                cause = ExitCause.OOM
            elif error_type in _FORK_ERRORS and any(text in error for text in _FORK_TEXT):
                cause = ExitCause.PIDS
        return JobResult(
            cause,
            value,
            error,
            error_type,
            blobs[0],
            blobs[1],
            float(report.get("wall_s", wall_s)),
            float(report.get("cpu_s", 0.0)),
            peak_mb(report, usage),
            self.sandbox.name,
            stamp,
            limits.as_dict(),
        )


def _read_result(report: Mapping[str, Any], raw: bytes, limits: Limits) -> tuple[Message | None, str, str]:
    """Return (value, error, error type) from the bytes that came out of the child."""
    if not raw:
        return None, f"the process ended with status {report.get('code')} and no result", "NoResult"
    try:
        header, blobs = frames.unpack(raw, (limits.result_mb << 20) + 4096, bytes.fromhex(str(report["key"])))
    except frames.BadFrame as error:
        return None, f"the process wrote something that is no result: {error}", "BadResult"
    if header.get("ok") is True and isinstance(header.get("header"), dict):
        return Message(header["header"], blobs), "", ""
    if header.get("ok") is False and isinstance(header.get("type"), str) and isinstance(header.get("error"), str):
        return None, header["error"], header["type"] or "Exception"
    return None, "the process wrote something that is no result: unknown header", "BadResult"
