"""Processes below this one: killing them all, and counting what they use where no control group does it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from orienteer.environments.execution.limits import ExitCause

_PAGE = resource.getpagesize()


def descendants() -> list[int]:
    """Return the pids of all processes below this one, by parent links (orphans come to us: we are subreaper)."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - hot loop
        if not entry.isdigit():
            continue
        try:
            parent = int(Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_descendants(patience_s: float = 5.0) -> dict[int, tuple[int, resource.struct_rusage]]:
    """Kill and reap everything below this process; return status and usage of what was reaped here.

    As process 1 one ``kill(-1)`` reaches all at once. Otherwise they are stopped first, so that a fork bomb cannot
    outrun the kill, and the round is repeated until none is left.
    """
    ended: dict[int, tuple[int, resource.struct_rusage]] = {}
    deadline = time.monotonic() + patience_s
    while True:
        if os.getpid() == 1:
            with contextlib.suppress(OSError):
                os.kill(-1, signal.SIGKILL)
        else:
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in descendants():
                    with contextlib.suppress(OSError):
                        os.kill(pid, number)
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                break
            ended[pid] = (status, usage)
        if time.monotonic() > deadline:
            return ended
        time.sleep(0.001)


class Meter:
    """Second-best measuring of a job's memory, processes and files, by looking ten times a second."""

    def __init__(
        self, limits: dict[str, Any], grouped: tuple[str, ...], folders: tuple[str, ...], forked: bool
    ) -> None:
        self.memory = 0 if "memory" in grouped else int(limits["memory_mb"]) << 20
        self.pids = 0 if "pids" in grouped else int(limits["pids"])
        self.disk = int(limits["disk_mb"]) << 20 if folders else 0
        self.folders = folders
        self.pids_hit = False
        #: A forked child starts with our own pages; only what it adds counts.
        self.base = _private(os.getpid()) if forked and self.memory else 0
        self._next = 0.0

    def exceeded(self) -> ExitCause | None:
        """Return the limit that the job is over, if any."""
        now = time.monotonic()
        if now < self._next or not (self.memory or self.pids or self.disk):
            return None
        self._next = now + 0.1
        if self.memory or self.pids:
            below = descendants()
            if self.pids and len(below) >= self.pids:
                self.pids_hit = True
            if self.memory and sum(max(0, _private(pid) - self.base) for pid in below) > self.memory:
                return ExitCause.OOM
        return self.filled()

    def filled(self) -> ExitCause | None:
        """Return ``OUTPUT_LIMIT`` when the watched folders hold more than they may; also asked after the end."""
        if self.disk and sum(_size(Path(folder), self.disk) for folder in self.folders) > self.disk:
            return ExitCause.OUTPUT_LIMIT
        return None


def _private(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _size(folder: Path, enough: int) -> int:
    total = 0
    stack = [str(folder)]
    try:
        device = folder.stat().st_dev
    except OSError:
        return 0
    while stack and total <= enough:
        try:
            with os.scandir(stack.pop()) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.is_dir(follow_symlinks=False):
                            # What is mounted below (our own code, read-only) is not the job's.
                            if entry.stat(follow_symlinks=False).st_dev == device:
                                stack.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            continue
    return total


class Counters:
    """What this container's own control group counted since the job began."""

    _FILES = (
        ("oom_kills", "oom_kill", "memory/memory.oom_control"),
        ("oom_kills", "oom_kill", "memory.events"),
        ("pids_refused", "max", "pids/pids.events"),
        ("pids_refused", "max", "pids.events"),
    )

    def __init__(self) -> None:
        self._before = self._read()
        self._next = 0.0

    def since(self) -> dict[str, int]:
        """Return kills for memory and refused processes."""
        return {name: count - self._before.get(name, 0) for name, count in self._read().items()}

    def exceeded(self) -> ExitCause | None:
        """Return ``OOM`` when the kernel killed one of several processes: then the job as a whole is over."""
        now = time.monotonic()
        if now < self._next:
            return None
        self._next = now + 0.1
        return ExitCause.OOM if self.since().get("oom_kills") else None

    def _read(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, field, file in self._FILES:
            with contextlib.suppress(OSError, ValueError):
                for line in (Path("/sys/fs/cgroup") / file).read_text().splitlines():
                    key, _, value = line.partition(" ")
                    if key == field:
                        found[name] = int(value)
        return found
