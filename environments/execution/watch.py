"""One job from its fork to its report, watched from outside by the supervisor. Our leaf modules only."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orienteer.environments.execution import frames, job
from orienteer.environments.execution.aftermath import read_inside, remove
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.limits import ExitCause
from orienteer.environments.execution.tree import Counters, Meter, kill_descendants

#: After a complete result the process has this long to end by itself.
GRACE_S = 0.5
TICK_S = 0.05


@dataclass
class Sink:
    """Bytes read from one pipe of the job, up to a limit."""

    fd: int
    limit: int
    data: bytearray = field(default_factory=bytearray)
    over: bool = False

    def read(self) -> bool:
        """Take what is there; return False at end of file."""
        while True:
            try:
                piece = os.read(self.fd, 1 << 18)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not piece:
                return False
            room = self.limit - len(self.data)
            self.data += piece[: max(room, 0)]
            if len(piece) > room:
                self.over = True
                return True


@dataclass
class Host:
    """What the supervisor knows about the sandbox that it lives in."""

    channel: Channel
    #: ``bwrap``, ``docker`` or ``process``.
    backend: str
    nested: bool = False
    base: Path = Path("/tmp")
    filter: bytes = b""
    grouped: tuple[str, ...] = ()
    #: What is shown below /tmp.
    shown: tuple[str, ...] = ()


class Run:
    """One job from its fork to its report."""

    def __init__(self, host: Host, header: dict[str, Any], blobs: tuple[bytes, ...], fds: list[int]) -> None:
        self.host = host
        self.limits = header["limits"]
        self.key = os.urandom(32)
        self.cause: ExitCause | None = None
        self.error = ""
        self.facts: dict[str, Any] = {}
        self.own_end: tuple[int, resource.struct_rusage] | None = None
        self.complete_at: float | None = None
        self.header = header
        self.calls = header["kind"] == "call"
        nested = host.nested and self.calls
        self.work = job.WORK if host.backend != "process" else str(host.base / f"job-{os.urandom(4).hex()}")
        self.grouped = tuple(header["grouped"]) or host.grouped
        self.began = time.monotonic()
        self.pipes: list[int] = []
        stdin = os.memfd_create("stdin")
        plan = job.Plan(self.limits, nested, host.filter, self.work, stdin, -1, -1, -1, fds, self.grouped)
        try:
            self._fill_plan(plan, blobs)
        except BaseException as error:
            self.cause, self.error = ExitCause.SANDBOX_ERROR, f"{type(error).__name__}: {error}"
            self.sinks: list[Sink] = []
            for fd in (plan.stdin, *fds):
                os.close(fd)
            return
        self.nested = nested
        out, collected = self._pipe()
        if plan.stdout < 0:
            plan.stdout = collected
        else:  # the program writes to its caller's own pipe; nothing of that is collected here
            os.close(collected)
        err, plan.stderr = self._pipe()
        status, plan.status = self._pipe()
        size = int(self.limits["output_bytes"])
        self.out, self.err, self.status = Sink(out, size), Sink(err, size), Sink(status, 1 << 16)
        self.sinks = [self.out, self.err, self.status]
        result, plan.result = self._pipe()
        self.result = Sink(result, (int(self.limits["result_mb"]) << 20) + 4096)
        self.sinks.append(self.result)
        sys.stdout.flush()
        sys.stderr.flush()
        self.began = time.monotonic()
        self.pid = job.start(plan)
        for fd in (plan.stdin, plan.stdout, plan.stderr, plan.status, plan.result, *fds):
            os.close(fd)
        self._watch()
        self._clean_up()

    def _fill_plan(self, plan: job.Plan, blobs: tuple[bytes, ...]) -> None:
        header = self.header
        plan.shown = self.host.shown
        plan.env = dict(header["env"])
        plan.env.update(HOME=self.work, TMPDIR="/tmp" if self.host.backend != "process" else self.work, PWD=self.work)
        if self.calls:
            plan.key = self.key
            plan.function = resolve(header["function"])
            plan.message = (header["message"], blobs)
            if _threads() > 1:
                raise RuntimeError(f"the module of {header['function']} started a thread; a fork would lose it")
            return
        plan.argv = list(header["argv"])
        names = list(header["files"])
        if header.get("streams"):
            # Named pipes that the caller holds open and removes once we have them: no job finds them by name.
            os.close(plan.stdin)
            plan.stdin = os.open(header["streams"][0], os.O_RDONLY)
            plan.stdout = os.open(header["streams"][1], os.O_WRONLY)
            return
        _write_all(plan.stdin, blobs[0])
        os.lseek(plan.stdin, 0, os.SEEK_SET)
        plan.files = list(zip(names, blobs[1:], strict=True))

    def _pipe(self) -> tuple[int, int]:
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        self.pipes.append(read_fd)
        return read_fd, write_fd

    # -- while it runs ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        deadline = self.began + float(self.limits["wall_s"])
        shared = self.host.backend == "process" or (self.calls and not self.nested)
        folders = (self.work,) if self.host.backend == "process" else ("/tmp", "/dev/shm") if shared else ()
        meter = Meter(self.limits, self.grouped, folders, self.calls)
        counters = Counters() if self.host.backend == "docker" else None
        with selectors.DefaultSelector() as selector:
            for sink in self.sinks:
                selector.register(sink.fd, selectors.EVENT_READ, sink)
            selector.register(self.host.channel.read_fd, selectors.EVENT_READ, "caller")
            self._watch_end(selector, self.pid)
            while not self._ended():
                now = time.monotonic()
                if self.complete_at is not None and now > self.complete_at + GRACE_S:
                    break
                if now >= deadline:
                    self.cause = ExitCause.TIMEOUT
                    break
                for key, _ in selector.select(min(TICK_S, deadline - now)):
                    sink = key.data
                    if sink == "end":
                        continue
                    if sink == "caller":  # nothing is sent to us during a job: the caller is gone
                        raise EOFError
                    if not sink.read() or sink.over:
                        selector.unregister(sink.fd)
                    if sink.over:
                        self.cause = ExitCause.OUTPUT_LIMIT
                if self.complete_at is None and self._complete():
                    self.complete_at = time.monotonic()
                self.cause = self.cause or meter.exceeded() or (counters.exceeded() if counters else None)
                if self.cause is not None:
                    break
        self.cause = self.cause or meter.filled()
        self.pids_hit = meter.pids_hit
        self.counted = counters.since() if counters else {}

    def _watch_end(self, selector: selectors.BaseSelector, pid: int) -> None:
        """Wake up when the process ends, not at the next tick."""
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            self.pipes.append(fd)
            selector.register(fd, selectors.EVENT_READ, "end")

    def _complete(self) -> bool:
        try:
            size = frames.size_needed(self.result.data, self.result.limit)
        except frames.BadFrame:
            return bool(self.result.data)
        return size is not None and len(self.result.data) >= size

    def _ended(self) -> bool:
        """Reap what ended; True when the job is over."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                self.own_end = (status, usage)
        return self.own_end is not None

    def _read_status(self) -> None:
        self.status.read()
        for line in bytes(self.status.data).splitlines():
            with contextlib.suppress(ValueError):
                self.facts.update(json.loads(line))

    # -- after it ------------------------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Kill everything of the job, then take what its pipes still hold; nobody is left who could write."""
        usage = kill_descendants()
        if self.own_end is None:
            self.own_end = usage.get(self.pid)
        for sink in self.sinks:
            if not sink.over:
                sink.read()
            if sink.over and self.cause is None:
                self.cause = ExitCause.OUTPUT_LIMIT
        self._read_status()
        if not self.nested and self.own_end is not None:
            self.facts.update(job.end_facts(*self.own_end))

    def finish(self) -> tuple[dict[str, Any], list[bytes]]:
        """Return the report: header and blobs stdout, stderr and then the sealed result or the collected files."""
        wall = time.monotonic() - self.began
        reply: dict[str, Any] = {"wall_s": wall, "error": self.error, "cause": str(self.cause or ""), "names": []}
        blobs = [b"", b""]
        if self.sinks:
            blobs = [bytes(self.out.data), bytes(self.err.data)]
            self._judge(reply)
            if self.calls:
                reply["key"] = self.key.hex()
                blobs.append(bytes(self.result.data))
            else:
                self._collect(reply, blobs)
        for fd in self.pipes:
            os.close(fd)
        reply["clean"] = self._wipe() and _threads() == 1
        return reply, blobs

    def _judge(self, reply: dict[str, Any]) -> None:
        code = self.facts.get("code")
        if self.own_end is not None:
            status, usage = self.own_end
            reply["cpu_s"] = self.facts.get("cpu", usage.ru_utime + usage.ru_stime)
            reply["maxrss_kb"] = self.facts.get("maxrss_kb", usage.ru_maxrss)
            if code is None and self.complete_at is None:
                code = os.waitstatus_to_exitcode(status)
        reply["pids_hit"] = self.pids_hit
        reply.update(self.counted)
        reply["complete"] = self.complete_at is not None
        reply["code"] = code
        cpu_limit = self.limits.get("cpu_s")
        if "setup" in self.facts:
            reply["cause"], reply["error"] = str(ExitCause.SANDBOX_ERROR), self.facts["setup"]
        elif self.cause is None and code is not None and code < 0:
            spent = cpu_limit is not None and reply.get("cpu_s", 0) >= cpu_limit * 0.98
            if code == -signal.SIGXCPU or (code == -signal.SIGKILL and spent):
                reply["cause"] = str(ExitCause.TIMEOUT)
            elif code == -signal.SIGXFSZ:
                reply["cause"] = str(ExitCause.OUTPUT_LIMIT)
            elif self.complete_at is None or code != -signal.SIGKILL:
                reply["cause"] = str(ExitCause.SIGNAL)
        reply["cause"] = reply["cause"] or str(ExitCause.OK)

    def _collect(self, reply: dict[str, Any], blobs: list[bytes]) -> None:
        room = int(self.limits["result_mb"]) << 20
        for name in self.header["collect"]:
            content = read_inside(Path(self.work), name, room)
            if content is None:
                continue
            room -= len(content)
            if room < 0:
                reply["cause"] = str(ExitCause.OUTPUT_LIMIT)
                return
            reply["names"].append(name)
            blobs.append(content)

    def _wipe(self) -> bool:
        """Leave nothing for the next job to find; return whether that worked."""
        if self.host.backend == "process":
            remove(Path(self.work))
            return not Path(self.work).exists()
        if getattr(self, "nested", False):
            return True
        folders = [Path(folder) for folder in ("/tmp", "/dev/shm", "/dev/mqueue") if Path(folder).is_dir()]
        for folder in folders:
            for entry in folder.iterdir():
                remove(entry)
        shown = {Path(path).relative_to("/tmp").parts[0] for path in self.host.shown}
        left = {entry.name for folder in folders for entry in folder.iterdir()}
        return left <= shown


def resolve(name: str) -> Callable[..., Any]:
    """Return the function as a call on plain header and blobs."""
    from orienteer.environments.execution.results import Message

    module, _, attribute = name.partition(":")
    function: Any = importlib.import_module(module)
    for part in attribute.split("."):
        function = getattr(function, part)

    def run(header: dict[str, Any], blobs: tuple[bytes, ...]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        answer = function(Message(header, blobs))
        if not isinstance(answer, Message):
            raise TypeError(f"{name} returned {type(answer).__name__}, not a Message")
        return dict(answer.header), tuple(answer.blobs)

    return run


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
