"""The ``strmrun`` backend: a server in the sandbox that loads layouts once and forks a child per deck.

What a run gave is told by the server's parent process, which never evaluates deck text (see ``driver.rb`` and
docs/decks.md). Whatever a deck does, it can only spoil its own runs.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orienteer.environments.execution.conversation import Conversation
from orienteer.environments.execution.limits import ExitCause, Limits
from orienteer.environments.execution.sandbox import Sandbox
from orienteer.environments.execution.session import SandboxFault
from orienteer.environments.layout.cache import ResultCache
from orienteer.environments.layout.ended import NO_REPORT, Answer, death, said_line
from orienteer.environments.layout.finding import Installation
from orienteer.environments.layout.installed import MEMORY_MB, InstalledRunner
from orienteer.environments.layout.rdb import merged, read_report, read_value
from orienteer.environments.layout.results import DeckResult, RunStatus, Violation
from orienteer.environments.layout.shelf import Shelved
from orienteer.errors import UsageError

log = logging.getLogger(__name__)

_DRIVER = Path(__file__).with_name("driver.rb")
#: How long the server may take to start, and to load one layout, seconds.
START_S = 120.0
LOAD_S = 600.0
#: How much longer than a run's own time-out the server may be silent.
PATIENCE_S = 10.0
#: What kept layouts may add to the server's memory before the oldest is dropped, MiB.
KEEP_MB = 128
#: No answer is larger.
_LARGEST = 600 << 20
#: So many deaths of a server that nothing can be blamed for end a request.
_STRIKES = 2


class ServerDied(Exception):
    """The server ended or fell silent; ``loading`` and ``running`` are the places that it was at, or -1."""

    def __init__(self, status: RunStatus, message: str, loading: int = -1, running: int = -1) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.loading = loading
        self.running = running


class Server:
    """A running server. One deck at a time.

    Args:
        installation: the KLayout to use.
        engine: the folder with the engine's sources.
        sandbox: where the server lives.
        folder: the folder that layouts are taken from, shown read-only.
        memory_mb: what one child may take beside what it shares.
        check: asked while waiting; raises to give up.

    Raises:
        SandboxFault: it does not start.
    """

    def __init__(
        self,
        installation: Installation,
        engine: Path,
        sandbox: Sandbox,
        folder: Path,
        *,
        memory_mb: int,
        check: Callable[[], None],
    ) -> None:
        assert installation.strmrun is not None
        self._version = installation.version
        self._memory_mb = memory_mb
        self._check = check
        alone = "1" if sandbox.name in ("bwrap", "docker") else "0"
        env = {
            **installation.environment,
            "ORIENTEER_ENGINE": str(engine),
            "ORIENTEER_KEEP_MB": str(KEEP_MB),
            "ORIENTEER_ALONE": alone,
        }
        limits = Limits(wall_s=30 * 86400, memory_mb=2 * memory_mb, pids=128, disk_mb=512, output_bytes=1 << 20)
        self._talk = Conversation(
            sandbox, [str(installation.strmrun), str(_DRIVER)], folder=folder,
            binds=[*installation.folders, engine], env=env, limits=limits, check=check,
        )  # fmt: skip
        self.resident_mb = 0
        #: How often a layout was read.
        self.loads = 0
        try:
            first = self._next(START_S)
            self._talk.forget_names()
        except (EOFError, TimeoutError) as error:
            end = self._talk.wait_end(2)
            lines = str(end.get("stderr", "")).strip().splitlines()
            self.close()
            last = lines[-1] if lines else str(end.get("error") or error)
            said = next((line for line in lines if line.startswith("ERROR")), last)
            raise SandboxFault(f"strmrun does not start: {said}") from None
        except BaseException:
            self.close()
            raise
        if first[0] != b"ready" or first[-1]:
            self.close()
            raise SandboxFault(f"strmrun cannot be guarded from its decks: {first[-1].decode('utf-8', 'replace')}")

    def run(
        self, deck: str, layouts: Sequence[Path], *, timeout_s: float, isolate: str, geometry: bool, report: bool
    ) -> Iterator[Answer]:
        """Run a deck on layouts, yielding each answer when it is there.

        Raises:
            ServerDied: and with it the server; what was not answered is to be asked of a new one.
        """
        flags = ("g" if geometry else "") + ("r" if report else "")
        job = ["deck", deck, repr(timeout_s), str(self._memory_mb), isolate, flags, *(str(path) for path in layouts)]
        loading = running = -1
        try:
            self._talk.send(
                _packed([part.encode("utf-8", "replace") for part in job]), time.monotonic() + LOAD_S, self._check
            )
            while True:
                said = self._next(LOAD_S if running < 0 else timeout_s + PATIENCE_S)
                kind = said[0]
                if kind == b"end":
                    self.resident_mb = int(said[1])
                    return
                index = int(said[1])
                if kind == b"load":
                    loading, running = index, -1
                    self.loads += 1
                elif kind == b"run":
                    loading, running = -1, index
                else:
                    loading = running = -1
                    yield self._answer(kind, index, said[2:], geometry)
        except TimeoutError:
            what = "loading the layout takes too long" if running < 0 else "the deck stopped the server that ran it"
            raise ServerDied(RunStatus.TIMEOUT, what, loading, running) from None
        except (EOFError, ValueError, IndexError, struct.error):
            raise self._death(loading, running) from None

    def peak_mb(self) -> float | None:
        """Return the server's and its children's peak memory, MiB, where a control group counts it."""
        return self._talk.peak_mb()

    def finish(self) -> float:
        """End the server in peace and return the processor seconds of it, its children and its supervisor."""
        return float(self._talk.finish(5).get("cpu_s", 0.0))

    def close(self) -> None:
        """Kill the server."""
        self._talk.close()

    def _next(self, seconds: float) -> list[bytes]:
        deadline = time.monotonic() + seconds
        (size,) = struct.unpack(">I", self._talk.receive(4, deadline, self._check))
        if size > _LARGEST:
            raise ValueError("an answer that is too large")
        return unpacked(self._talk.receive(size, deadline, self._check))

    def _answer(self, kind: bytes, index: int, rest: list[bytes], geometry: bool) -> Answer:
        if kind == b"bad":
            return Answer(index, self._result(RunStatus.BAD_LAYOUT, said_line(rest[0]), None, 0.0))
        cpu = float(rest[0])
        if kind == b"timeout":
            return Answer(index, self._result(RunStatus.TIMEOUT, "the run took longer than its time-out", None, cpu))
        if kind == b"died":
            return Answer(index, self._result(*death(rest[1].decode()), None, cpu))
        try:
            return self._said(index, unpacked(rest[1]), cpu, geometry)
        except (ValueError, IndexError, struct.error):
            message = "the deck wrote something that is no result in the result's place"
            return Answer(index, self._result(RunStatus.CRASH, message, None, cpu))

    def _said(self, index: int, fields: list[bytes], cpu: float, geometry: bool) -> Answer:
        """Read what the child says. It is the deck's word: every shape of it must be expected."""
        kind = fields[0]
        if kind == b"no-report":
            return Answer(index, self._result(RunStatus.NO_REPORT, NO_REPORT, None, cpu))
        if kind == b"file":
            return self._from_file(index, fields[1], cpu, geometry)
        if kind in (b"error", b"limit"):
            line = int(fields[2]) if fields[2].isdigit() and len(fields[2]) < 9 else None
            status = RunStatus.ERROR if kind == b"error" else RunStatus.LIMIT
            return Answer(index, self._result(status, said_line(fields[1]), line, cpu))
        if kind != b"ok":
            raise ValueError("unknown answer")
        at, parts = 3, []
        shapes: dict[str, list[Violation]] = {}
        descriptions: dict[str, str] = {}
        for _ in range(int(fields[2])):
            name = fields[at].decode("utf-8", "replace")
            parts.append((name, int(fields[at + 1])))
            if fields[at + 2]:
                descriptions[name] = fields[at + 2].decode("utf-8", "replace")
            many = int(fields[at + 3])
            at += 4
            if many < 0 or at + many > len(fields):
                raise ValueError("fewer shapes than announced")
            values = fields[at : at + many]
            shapes.setdefault(name, []).extend(read_value(value.decode("utf-8", "replace")) for value in values)
            at += many
        counts = merged(parts)
        if any(count < 0 for count in counts.values()):
            raise ValueError("a negative count")
        found = {name: tuple(values) for name, values in shapes.items()} if geometry else None
        result = DeckResult(
            RunStatus.OK, counts, found, descriptions, backend="strmrun", version=self._version, cpu_s=cpu
        )
        return Answer(index, result, fields[1])

    def _from_file(self, index: int, data: bytes, cpu: float, geometry: bool) -> Answer:
        try:
            report = read_report(data, geometry=geometry)
        except UsageError as error:
            return Answer(index, self._result(RunStatus.NO_REPORT, error.problem, None, cpu))
        result = DeckResult(
            RunStatus.OK, report.counts, report.violations, report.descriptions,
            backend="strmrun", version=self._version, cpu_s=cpu,
        )  # fmt: skip
        return Answer(index, result, data)

    def _result(self, status: RunStatus, message: str, line: int | None, cpu: float) -> DeckResult:
        return DeckResult(status, message=message, line=line, backend="strmrun", version=self._version, cpu_s=cpu)

    def _death(self, loading: int, running: int) -> ServerDied:
        end = self._talk.wait_end(5)
        cause = end.get("cause")
        if cause in (ExitCause.OOM, ExitCause.PIDS, ExitCause.OUTPUT_LIMIT):
            what = {ExitCause.OOM: "memory", ExitCause.PIDS: "processes"}.get(cause, "files")
            return ServerDied(RunStatus.LIMIT, f"more {what} than the sandbox allows", loading, running)
        lines = str(end.get("stderr", "")).strip().splitlines()
        said = (lines or [str(end.get("error", ""))])[-1][:200]
        message = "the deck ended the server that ran it" if running >= 0 else f"the server ended: {said}"
        return ServerDied(RunStatus.CRASH, message, loading, running)


def _packed(fields: Sequence[bytes]) -> bytes:
    body = b"".join(struct.pack(">I", len(field)) + field for field in fields)
    return struct.pack(">I", len(body)) + body


def unpacked(data: bytes) -> list[bytes]:
    """Split fields, each with its length before it.

    Raises:
        ValueError: they do not fill the data.
    """
    fields, at, end = [], 0, len(data)
    while at < end:
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4 + size
        if at > end:
            raise ValueError("a field longer than the frame")
        fields.append(data[at - size : at])
    return fields


class Servers:
    """As many servers as work at one time, started when first needed and replaced when they die."""

    def __init__(self, make: Callable[[], Server], size: int) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._room = threading.Semaphore(size)
        self._idle: list[Server] = []
        self._all: set[Server] = set()
        self._closed = False

    def take(self) -> Server:
        """Return a free server, waiting for one.

        Raises:
            SandboxFault: none starts.
        """
        self._room.acquire()
        try:
            with self._lock:
                if self._closed:
                    raise SandboxFault("the runner is closed")
                if self._idle:
                    return self._idle.pop()
            server = self._make()
            with self._lock:
                self._all.add(server)
            return server
        except BaseException:
            self._room.release()
            raise

    def give(self, server: Server, *, healthy: bool) -> None:
        """Hand a server back."""
        with self._lock:
            keep = healthy and not self._closed
            if keep:
                self._idle.append(server)
            else:
                self._all.discard(server)
        self._room.release()
        if not keep:
            server.close()

    def peak_mb(self) -> float | None:
        """Return the largest peak memory of the servers that live, MiB."""
        with self._lock:
            peaks = [peak for server in self._all if (peak := server.peak_mb()) is not None]
        return max(peaks, default=None)

    def close(self) -> float:
        """End all servers, idle ones in peace; return the processor seconds of those."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._all.difference(idle)
            self._all.clear()
        for server in busy:
            server.close()
        return sum(server.finish() for server in idle)


class StrmrunRunner(InstalledRunner):
    """KLayout's engine in servers that fork a child per deck (or per run)."""

    name = "strmrun"

    def __init__(
        self,
        installation: Installation,
        engine: Path,
        sandbox: Sandbox,
        why: str,
        timeout_s: float,
        isolate: str,
        store: ResultCache | None,
        workers: int,
        cancel: threading.Event | None,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        super().__init__(installation, sandbox, why, timeout_s, store, workers, cancel, memory_mb)
        self._isolate = isolate
        #: Processor seconds of the servers with all their children; known after :meth:`close`.
        self.servers_cpu_s = 0.0
        #: How often a layout was read, over all servers.
        self.loads = 0
        self._servers = Servers(
            lambda: Server(installation, engine, sandbox, self._layouts.folder, memory_mb=memory_mb, check=self._check),
            workers,
        )

    def peak_mb(self) -> float | None:
        """Return the largest peak memory of a server with its children, MiB; None where nothing counts it."""
        return self._servers.peak_mb()

    def close(self) -> None:
        """End the servers and remove the copies."""
        self.servers_cpu_s += self._servers.close()
        super().close()

    def _kind(self) -> str:
        return f"{self.name}/{self._isolate}"

    def _execute(self, deck: str, layouts: Sequence[Shelved], geometry: bool, report: bool) -> list[Answer]:
        left = list(range(len(layouts)))
        answers: list[Answer] = []
        strikes = 0
        while left:
            self._check()
            batch = list(left)

            def answered(index: int, result: DeckResult, data: bytes = b"", batch: list[int] = batch) -> None:
                place = batch[index]
                left.remove(place)
                answers.append(Answer(place, result, data))

            try:
                server = self._servers.take()
            except SandboxFault as fault:
                return [*answers, *(Answer(place, self._failed(RunStatus.MACHINERY, str(fault))) for place in left)]
            healthy = False
            try:
                paths = [layouts[place].path for place in batch]
                for answer in server.run(
                    deck, paths, timeout_s=self._timeout_s, isolate=self._isolate, geometry=geometry, report=report
                ):
                    answered(answer.index, answer.result, answer.report)
                healthy = True
                if left:  # the server forgot something
                    strikes += 1
            except ServerDied as death:
                if death.running >= 0:
                    answered(death.running, self._failed(death.status, death.message))
                elif death.loading >= 0:
                    answered(
                        death.loading,
                        self._failed(RunStatus.BAD_LAYOUT, f"reading it ended the server: {death.message}"),
                    )
                else:
                    strikes += 1
                    log.warning("a server of decks ended between runs: %s", death.message)
            finally:
                self.loads, server.loads = self.loads + server.loads, 0
                self._servers.give(server, healthy=healthy)
            if strikes > _STRIKES:
                message = "the server of decks ends again and again"
                return [*answers, *(Answer(place, self._failed(RunStatus.MACHINERY, message)) for place in left)]
        return answers
