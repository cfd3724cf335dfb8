"""The ``Sandbox`` contract, the choice among its three backends, and what they share.

Every backend starts the same small supervisor (``supervisor.py``) inside its walls and speaks with it over one
channel; ``exec`` is one supervisor for one program, a warm worker is one supervisor for many function calls.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from orienteer.environments.execution import cgroups
from orienteer.environments.execution.limits import DEFAULT_LIMITS, ExitCause, Limits
from orienteer.environments.execution.results import ExecResult
from orienteer.environments.execution.session import SandboxFault, Session, Spec, never
from orienteer.errors import Interrupted, MissingPrerequisite, UsageError

CHOICES = ("auto", "docker", "bwrap", "process")
#: Set in every sandbox: quiet, single-threaded numerics; nothing else is inherited.
BASE_ENV = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
    "LANG": "C.UTF-8",
    "USER": "nobody",
    "LOGNAME": "nobody",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}


@runtime_checkable
class Sandbox(Protocol):
    """Runs programs behind walls. Thread-safe; use :func:`open_sandbox` to get one."""

    #: ``bwrap``, ``docker`` or ``process``.
    name: str
    #: What stands between a program and the host: ``namespaces``, ``container`` or ``none``; parts that are in force
    #: besides are appended (``+seccomp``, ``+cgroup``).
    isolation: str

    def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        files: Mapping[str, bytes] = {},
        binds: Sequence[str | Path] = (),
        env: Mapping[str, str] = {},
        limits: Limits = DEFAULT_LIMITS,
        collect: Sequence[str] = (),
        cancel: threading.Event | None = None,
    ) -> ExecResult:
        """Run a program in an empty working folder and return how it ended; never raises for what it did.

        Args:
            argv: program and arguments as the sandbox sees them.
            stdin: its standard input.
            files: content by path relative to the working folder.
            binds: files and folders of this machine to show read-only at their own path.
            env: its environment, besides a small fixed one; nothing is inherited.
            limits: what it may use.
            collect: paths relative to the working folder to bring back; missing ones are left out.
            cancel: when set, the program is killed and :class:`~orienteer.errors.Interrupted` raised.

        Raises:
            UsageError: a bind does not exist, or a path leads out of the working folder.
            Interrupted: ``cancel`` was set.
        """
        ...

    def launch(self, spec: Spec, check: Callable[[], None] = ...) -> Session:
        """Start a supervisor and return the session with it. For :class:`WorkerPool`."""
        ...

    def close(self) -> None:
        """Release what the backend holds."""
        ...


def isolation_of(sandbox_isolation: str, facts: Mapping[str, Any], group: cgroups.JobGroup | None) -> str:
    """Return the stamp of a job: the walls of the backend and what else was in force."""
    if sandbox_isolation == "none":
        return "none"
    parts = [sandbox_isolation]
    if facts.get("nested"):
        parts.append("own-namespaces")
    if facts.get("seccomp"):
        parts.append("seccomp")
    if group is not None or sandbox_isolation == "container":
        parts.append("cgroup")
    return "+".join(parts)


def run_program(
    sandbox: Sandbox,
    argv: Sequence[str],
    stdin: bytes,
    files: Mapping[str, bytes],
    spec: Spec,
    limits: Limits,
    collect: Sequence[str],
    check: Callable[[], None] = never,
) -> ExecResult:
    """Run one program in a sandbox of its own: what every backend's ``exec`` does."""
    for name in [*files, *collect]:
        if Path(name).is_absolute() or ".." in Path(name).parts or not name or "\0" in name:
            raise UsageError(f"{name!r} is not a path inside the working folder", "give a relative path without ..")
    if not argv:
        raise UsageError("no program to run", "give at least one argument")
    began = time.monotonic()
    group = cgroups.make(limits) if sandbox.name != "docker" else None
    session: Session | None = None
    report: dict[str, Any] = {}
    blobs: tuple[bytes, ...] = (b"", b"")
    stamp = sandbox.isolation
    try:
        session = sandbox.launch(spec, check)
        stamp = isolation_of(sandbox.isolation.partition("+")[0], session.facts, group)
        job = {
            "kind": "exec",
            "argv": list(argv),
            "env": dict(spec.env),
            "files": list(files),
            "collect": list(collect),
        }
        report, blobs = session.run(job, [stdin, *files.values()], limits, check, group)
    except SandboxFault as fault:
        report = {"cause": str(ExitCause.SANDBOX_ERROR), "error": str(fault)}
    finally:
        if session is not None:
            session.close()
        usage = close_group(group)
    cause = final_cause(report, usage, failed=report.get("code") != 0)
    return ExecResult(
        cause,
        report.get("code"),
        blobs[0],
        blobs[1],
        float(report.get("wall_s", time.monotonic() - began)),
        float(report.get("cpu_s", 0.0)),
        peak_mb(report, usage),
        sandbox.name,
        stamp,
        limits.as_dict(),
        dict(zip(report.get("names", []), blobs[2:], strict=False)),
        str(report.get("error", "")),
    )


def close_group(group: cgroups.JobGroup | None) -> cgroups.Usage:
    """Kill what is left in the group, read what it saw, remove it."""
    if group is None:
        return cgroups.Usage()
    group.kill()
    usage = group.usage()
    group.close()
    return usage


def final_cause(report: Mapping[str, Any], usage: cgroups.Usage, *, failed: bool) -> ExitCause:
    """Return the cause of a job's end from the supervisor's report and the control group's counters."""
    cause = ExitCause(report.get("cause", "sandbox_error"))
    if not failed or cause in (ExitCause.TIMEOUT, ExitCause.OUTPUT_LIMIT):
        return cause
    if usage.oom_kills or report.get("oom_kills"):
        return ExitCause.OOM
    if cause in (ExitCause.OK, ExitCause.SIGNAL) and (
        usage.pids_refused or report.get("pids_refused") or report.get("pids_hit")
    ):
        return ExitCause.PIDS
    return cause


def peak_mb(report: Mapping[str, Any], usage: cgroups.Usage) -> float | None:
    """Return the peak memory: the group's, else the largest resident set of one process."""
    if usage.peak_mb is not None:
        return usage.peak_mb
    resident = report.get("maxrss_kb")
    return float(resident) / 1024 if resident else None


def open_sandbox(choice: str = "auto", *, allow_unsafe: bool = False) -> Sandbox:
    """Return a sandbox that works here.

    ``auto`` takes bubblewrap when it works, else a Docker engine that answers. Bubblewrap is preferred where both
    exist because a warm worker in it can give every job namespaces of its own (a container's default profile forbids
    making them, so its jobs share the container's and are told apart only by killing and wiping between them), because
    no root daemon is involved, and because it starts in a hundredth of a second instead of half a second. ``auto``
    never falls to ``process``, which isolates nothing, unless ``allow_unsafe`` says so.

    Raises:
        UsageError: there is no backend of that name.
        MissingPrerequisite: the backend does not work here; the cure says what to install or to start.
    """
    from orienteer.environments.execution import bwrap, docker_engine, process

    if choice not in CHOICES:
        raise UsageError(f"unknown sandbox {choice!r}", f"choose one of {', '.join(CHOICES)}")
    if not sys.platform.startswith("linux"):
        raise MissingPrerequisite("sandboxes need Linux", "run Orienteer on Linux or in a Linux virtual machine")
    if choice == "process":
        if not allow_unsafe:
            raise MissingPrerequisite(
                "the process sandbox isolates nothing: candidate code runs with your rights",
                "give --allow-unsafe if you trust every candidate, else use --sandbox bwrap or docker",
            )
        return process.ProcessSandbox()
    reasons = []
    if choice in ("auto", "bwrap"):
        try:
            return bwrap.BwrapSandbox()
        except MissingPrerequisite as error:
            if choice == "bwrap":
                raise
            reasons.append(error.problem)
    try:
        return docker_engine.DockerSandbox()
    except MissingPrerequisite as error:
        if choice == "docker":
            raise
        reasons.append(error.problem)
    if allow_unsafe:
        return process.ProcessSandbox()
    raise MissingPrerequisite(
        f"no sandbox works here ({'; '.join(reasons)})",
        "apt-get install bubblewrap (or start a Docker engine), or give --allow-unsafe to run candidates unprotected",
    )


def cancelled(cancel: threading.Event | None) -> Callable[[], None]:
    """Return a check that raises when the event is set.

    Raises (when called):
        Interrupted: the run is being stopped.
    """

    def check() -> None:
        if cancel is not None and cancel.is_set():
            raise Interrupted("the run was interrupted", "resume it with: agent runs resume ID")

    return check
