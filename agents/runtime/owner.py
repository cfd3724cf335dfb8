"""Which process drives a run, whether it is alive, and the thread that says so every few seconds."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from typing import Any

from orienteer.memory.catalogue import Catalogue

#: Seconds between two signs of life.
BEAT = 3.0
#: Without a sign of life for so long a process on another machine counts as dead (seconds).
STALE = 60.0

#: Claims of this very process.
_MINE: set[str] = set()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process started (clock ticks since boot), "" where that cannot be known or it is not there."""
    stat = _read(f"/proc/{pid}/stat")
    # The name in parentheses may hold anything; the fields after it are regular. A zombie is dead.
    rest = stat.rpartition(")")[2].split()
    return rest[19] if len(rest) > 19 and rest[0] not in "ZX" else ""


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def identity() -> str:
    """Return a new claim of this process as JSON."""
    token = secrets.token_hex(6)
    pid = os.getpid()
    claim = {
        "pid": pid, "start": _start_of(pid), "host": socket.gethostname(),
        "boot": _read("/proc/sys/kernel/random/boot_id"), "pids": _namespace(), "token": token,
    }  # fmt: skip
    _MINE.add(token)
    return json.dumps(claim, sort_keys=True)


def release(claim: str) -> None:
    """Forget a claim of this process."""
    _MINE.discard(json.loads(claim)["token"])


def alive(claim: str, heartbeat: float | None) -> bool:
    """Say whether the process that made a claim still drives its run."""
    if not claim:
        return False
    owner: dict[str, Any] = json.loads(claim)
    same_place = owner["host"] == socket.gethostname() and owner["pids"] == _namespace()
    if not same_place:
        return heartbeat is not None and time.time() - heartbeat < STALE
    if owner["boot"] != _read("/proc/sys/kernel/random/boot_id"):
        return False
    if owner["pid"] == os.getpid() and owner["start"] == _start_of(os.getpid()):
        return owner["token"] in _MINE
    if owner["start"]:
        return _start_of(owner["pid"]) == owner["start"]
    try:
        os.kill(owner["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Heartbeat:
    """A thread that keeps the run's sign of life fresh and looks whether somebody asked it to stop.

    Args:
        catalogue: the list of runs.
        run_id: the run.
        claim: our claim.
        active_s: returns the seconds of activity to record.
        cancel: set when the run is to stop (asked by another process, or lost to one).
        flush: called with every beat.
    """

    def __init__(
        self, catalogue: Catalogue, run_id: str, claim: str, active_s: Any, cancel: threading.Event, flush: Any
    ) -> None:
        self._catalogue = catalogue
        self._run_id = run_id
        self._claim = claim
        self._active_s = active_s
        self._cancel = cancel
        self._flush = flush
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"heartbeat-{run_id}", daemon=True)
        #: Why the run was stopped by this thread.
        self.reason = ""

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        self._thread.join()

    def _live(self) -> None:
        while not self._end.wait(BEAT):
            try:
                self._flush()
                if self._catalogue.beat(self._run_id, self._claim, self._active_s()):
                    self.reason = "another process asked it to stop"
                    self._cancel.set()
            except LookupError:
                self.reason = "another process took the run over, or it was removed"
                self._cancel.set()
                return
            except Exception:
                # A full disk or a lock: the nodes will meet it too and say so; a missed beat harms nobody.
                continue
