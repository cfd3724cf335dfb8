"""A running supervisor and what it takes to start one; shared by the three backends and the worker pool."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from orienteer.environments.execution import cgroups
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.limits import DEFAULT_LIMITS, Limits

#: How much longer than its own deadline a supervisor may take before it counts as lost.
PATIENCE_S = 10.0
#: How long a sandbox may take to start; importing torch on a busy machine is the slow part.
START_S = 300.0


class SandboxFault(Exception):
    """Our machinery failed: the sandbox did not start, died, or stopped answering."""


@dataclass(frozen=True)
class Spec:
    """What a sandbox is started for."""

    env: Mapping[str, str]
    binds: tuple[Path, ...] = ()
    preload: tuple[str, ...] = ()
    #: Size of its temporary file systems, MiB.
    disk_mb: int = 64
    #: For backends whose memory and process limits are the sandbox's own.
    limits: Limits = DEFAULT_LIMITS
    #: A warm worker (jobs are forked children) rather than one program.
    worker: bool = False


def python_flags(spec: Spec) -> list[str]:
    """Return the interpreter's options for a supervisor: isolated, but a worker's own environment is read.

    A worker needs ``PYTHONMALLOC`` (see :func:`linux.wipe_freed_memory`) and site-packages; ``-P`` and ``-s`` keep the
    current folder and the user's packages out.
    """
    return ["-P", "-s"] if spec.worker else ["-I", "-S"]


class Session:
    """A running supervisor and the channel to it. One job at a time."""

    def __init__(self, backend: str, channel: Channel, kill: Callable[[], None], complaint: Callable[[], str]) -> None:
        self.backend = backend
        self.channel = channel
        self.facts: dict[str, Any] = {}
        self._kill = kill
        self._complaint = complaint
        self._closing = threading.Lock()
        self._closed = False
        #: Size of the temporary file systems that jobs without their own share, MiB.
        self.disk_mb = 0
        #: Sets the sandbox's own limits to those of the next job, where it has any.
        self.adjust: Callable[[Limits], None] = lambda limits: None

    def configure(self, config: Mapping[str, Any], check: Callable[[], None]) -> None:
        """Send the configuration and wait until the supervisor is ready.

        Raises:
            SandboxFault: it did not start, or cannot import what is to be preloaded.
        """
        deadline = time.monotonic() + START_S

        def patience() -> None:
            check()
            if time.monotonic() > deadline:
                raise SandboxFault(f"the {self.backend} sandbox did not start within {START_S:.0f} s")

        try:
            self.channel.send(config, check=patience)
            self.facts, _, _ = self.channel.receive(patience)
        except (EOFError, OSError, ValueError) as error:
            raise SandboxFault(f"the {self.backend} sandbox did not start: {self.complaint() or error}") from None
        if not self.facts.get("ready"):
            raise SandboxFault(str(self.facts.get("error") or "the sandbox's supervisor is not ready"))

    def run(
        self,
        job: dict[str, Any],
        blobs: Sequence[bytes],
        limits: Limits,
        check: Callable[[], None],
        group: cgroups.JobGroup | None,
    ) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Run one job and return the supervisor's report.

        Raises:
            SandboxFault: the supervisor died or stopped answering; the session is of no more use.
        """
        self.adjust(limits)
        job = {**job, "limits": limits.as_dict(), "grouped": list(_held(group))}
        deadline = time.monotonic() + limits.wall_s + PATIENCE_S

        looked = [time.monotonic()]

        def patience() -> None:
            check()
            now = time.monotonic()
            if now > deadline:
                raise SandboxFault(f"the {self.backend} sandbox stopped answering")
            if group is not None and now > looked[0] + 0.2:
                looked[0] = now
                if group.usage().oom_kills:  # the kernel killed one of the job's processes: the job as a whole is over
                    group.kill()

        try:
            self.channel.send(job, blobs, group.fds if group is not None else (), patience)
            header, out, _ = self.channel.receive(patience)
        except (EOFError, OSError, ValueError) as error:
            raise SandboxFault(f"the {self.backend} sandbox died: {self.complaint() or error}") from None
        return header, out

    def complaint(self) -> str:
        """Return the last line that the sandbox itself wrote, for an error message."""
        lines = self._complaint().strip().splitlines()
        return lines[-1][:300] if lines else ""

    def close(self) -> None:
        """Kill the sandbox and everything in it. Can be called from any thread, more than once."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.channel.close()
            self._kill()


def _held(group: cgroups.JobGroup | None) -> tuple[str, ...]:
    if group is None:
        return ()
    return tuple(n for n, place in (("memory", group.memory), ("pids", group.pids)) if place is not None)


def never() -> None:
    """Check nothing: for waits that only a deadline ends."""


class _Spawner:
    """Starts processes from one thread that lives as long as we do.

    The kernel's parent-death signal is sent when the *thread* that started a process ends; a pool thread would take
    its workers with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Any = None
        self._pid = 0

    def popen(self, *args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="orienteer-spawn")
                self._pid = os.getpid()
            pool = self._pool
        return pool.submit(subprocess.Popen, *args, **kwargs).result()


spawner = _Spawner()


def tail_of(file: IO[bytes]) -> str:
    """Return the end of a temporary file that a process wrote to."""
    with contextlib.suppress(OSError, ValueError):
        file.flush()
        size = file.seek(0, 2)
        file.seek(max(0, size - 4096))
        return file.read().decode("utf-8", "replace")
    return ""


def scratch() -> IO[bytes]:
    """Return an unnamed temporary file for a process's own complaints."""
    return tempfile.TemporaryFile()
