"""A program in a sandbox that lives long and is spoken with over two pipes.

The pipes are named ones in a folder that the sandbox sees read-only: the one way that all three backends share. Both
ends are opened before the program's first instruction, by us and by the supervisor, and the names are then removed, so
nothing in the sandbox can find them.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.execution import cgroups
from orienteer.environments.execution.limits import ExitCause, Limits
from orienteer.environments.execution.paths import checked
from orienteer.environments.execution.sandbox import BASE_ENV, Sandbox, close_group, final_cause, peak_mb
from orienteer.environments.execution.session import SandboxFault, Session, Spec, never

#: Waits are in slices of this length (seconds), so that ``check`` is asked often.
_SLICE_S = 0.1


class Conversation:
    """A running program with its standard input and output. One thread may speak, another may close.

    Args:
        sandbox: where it runs.
        argv: the program and its arguments.
        folder: a folder of the caller's that nobody else may write; shown read-only, the pipes are made in it.
        binds: what else to show read-only.
        env: its environment besides the fixed one.
        limits: what it may use; ``wall_s`` is its whole life, ``output_bytes`` what it may write to standard error.
        check: asked while waiting for the start; raises to give up.

    Raises:
        SandboxFault: the sandbox did not start.
        UsageError: a bind does not exist.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        argv: Sequence[str],
        *,
        folder: Path,
        binds: Sequence[str | Path] = (),
        env: Mapping[str, str] = {},
        limits: Limits,
        check: Callable[[], None] = never,
    ) -> None:
        self._closing = threading.Lock()
        self._closed = False
        #: How it ended, once it has: ``cause``, ``code``, ``stderr``, ``peak_mb``, ``cpu_s`` (with its children and its
        #: supervisor), ``error``.
        self.end: dict[str, Any] | None = None
        spec = Spec({**BASE_ENV, **env}, checked([folder, *binds]), disk_mb=limits.disk_mb, limits=limits)
        names = [folder / f".{what}-{os.urandom(8).hex()}" for what in ("in", "out")]
        self._write = self._read = -1
        self._group = cgroups.make(limits) if sandbox.name != "docker" else None
        self._session: Session | None = None
        try:
            for name in names:
                os.mkfifo(name)
                name.chmod(0o666)  # a container's user is not ours; the folder keeps others out
            # For reading and writing: opening does not wait then, and the program's end keeps its own life.
            self._write = os.open(names[0], os.O_RDWR | os.O_CLOEXEC)
            self._read = os.open(names[1], os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.set_blocking(self._write, False)
            self._session = sandbox.launch(spec, check)
            self.facts = self._session.facts
            job = {
                "kind": "exec",
                "argv": list(argv),
                "env": dict(spec.env),
                "files": [],
                "collect": [],
                "streams": [str(name) for name in names],
            }
            self._names = names
            self._thread = threading.Thread(
                target=self._attend, args=(job, limits), daemon=True, name="orienteer-attend"
            )
            self._thread.start()
        except BaseException as error:
            for name in names:
                name.unlink(missing_ok=True)
            self.close()
            if isinstance(error, OSError):
                raise SandboxFault(f"cannot make the pipes of a program: {error}") from None
            raise

    def forget_names(self) -> None:
        """Remove the pipes' names; call it when the program has said something, so that both ends are open."""
        for name in self._names:
            name.unlink(missing_ok=True)

    def send(self, data: bytes, deadline: float, check: Callable[[], None] = never) -> None:
        """Write to the program's standard input.

        Raises:
            EOFError: it ended.
            TimeoutError: it did not take it before the deadline (``time.monotonic``).
        """
        view = memoryview(data)
        while view:
            self._wait(self._write, select.POLLOUT, deadline, check)
            try:
                view = view[os.write(self._write, view) :]
            except BlockingIOError:
                continue
            except OSError:
                raise EOFError("the program ended") from None

    def receive(self, size: int, deadline: float, check: Callable[[], None] = never) -> bytes:
        """Read exactly so many bytes of its standard output.

        Raises:
            EOFError: it ended before.
            TimeoutError: they did not come before the deadline.
        """
        parts = []
        while size:
            try:
                part = os.read(self._read, min(size, 1 << 20))
            except BlockingIOError:
                part = None
            except OSError:
                raise EOFError("the program ended") from None
            if part is None or (part == b"" and self.end is None):  # no writer: not yet, or no more
                self._wait(self._read, select.POLLIN, deadline, check)
                continue
            if not part:
                raise EOFError("the program ended")
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def peak_mb(self) -> float | None:
        """Return the peak memory of the program and its children so far, where a control group counts it."""
        return self._group.usage().peak_mb if self._group is not None else None

    def finish(self, seconds: float) -> dict[str, Any]:
        """End the program's standard input, give it so long to end by itself, and return how it ended."""
        with self._closing:
            if not self._closed and self._write >= 0:
                os.close(self._write)
                self._write = -1
        end = self.wait_end(seconds)
        self.close()
        return end

    def close(self) -> None:
        """Kill the program and everything that it started. Can be called from any thread, more than once."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._session is not None:
            self._session.close()
        thread = getattr(self, "_thread", None)
        if thread is not None:
            thread.join(15)
        close_group(self._group)
        for name in getattr(self, "_names", []):
            name.unlink(missing_ok=True)
        for fd in (self._write, self._read):
            if fd >= 0:
                os.close(fd)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_end(self, seconds: float) -> dict[str, Any]:
        """Return how the program ended, waiting a little for the report; empty if it still runs."""
        self._thread.join(seconds)
        return self.end or {}

    def _attend(self, job: dict[str, Any], limits: Limits) -> None:
        assert self._session is not None
        report: dict[str, Any] = {}
        blobs: tuple[bytes, ...] = (b"", b"")
        try:
            report, blobs = self._session.run(job, [b""], limits, never, self._group)
        except SandboxFault as fault:
            report = {"cause": str(ExitCause.SANDBOX_ERROR), "error": str(fault)}
        except Exception as error:  # closed under our hands
            report = {"cause": str(ExitCause.SANDBOX_ERROR), "error": f"{type(error).__name__}: {error}"}
        usage = self._group.usage() if self._group is not None else cgroups.Usage()
        self.end = {
            "cause": final_cause(report, usage, failed=report.get("code") != 0),
            "code": report.get("code"),
            "error": str(report.get("error", "")),
            "stderr": blobs[1].decode("utf-8", "replace"),
            "cpu_s": float(report.get("worker_cpu_s", 0.0)),
            "peak_mb": peak_mb(report, usage),
        }

    def _wait(self, fd: int, event: int, deadline: float, check: Callable[[], None]) -> None:
        poll = select.poll()
        poll.register(fd, event)
        while True:
            check()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the program did not answer in time")
            if self.end is not None and event == select.POLLOUT:
                raise EOFError("the program ended")
            found = poll.poll(min(left, _SLICE_S) * 1000)
            if found and found[0][1] & event:
                return
            if self.end is not None:
                return
            if found:  # hung up, the report of the end is on its way
                with contextlib.suppress(TimeoutError):
                    self._thread.join(0.02)
