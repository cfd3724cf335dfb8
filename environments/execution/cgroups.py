"""Memory and process limits by control groups, where this process may make them: probed, never assumed.

Runs on the host side. A job's group is made per job; its entry file is opened here and the open files are handed
to the job, which enters by writing ``0`` (the kernel judges that write by who opened the file). So the supervisor in
the sandbox needs no view of the control group file system, and the job is in the group before its first instruction.

Version 1 (separate ``memory`` and ``pids`` hierarchies) and version 2 (with delegation: root, a container with its
own writable group, or ``systemd-run --user --scope -p Delegate=yes``) are understood.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orienteer.environments.execution.limits import Limits

PREFIX = "orienteer-job-"
_counter = itertools.count()
_lock = threading.Lock()
_support: Support | None = None


@dataclass(frozen=True)
class Support:
    """Where job groups can be made; ``None`` where they cannot, with the reason."""

    memory: Path | None
    pids: Path | None
    version: int
    reason: str = ""

    @property
    def controllers(self) -> tuple[str, ...]:
        """Names of the limits that a group can hold here."""
        return tuple(name for name, place in (("memory", self.memory), ("pids", self.pids)) if place is not None)


@dataclass
class Usage:
    """What a job's group saw."""

    peak_mb: float | None = None
    oom_kills: int = 0
    pids_refused: int = 0


@dataclass
class JobGroup:
    """The control groups of one job. Call :meth:`close` always; it kills what is left inside."""

    version: int
    memory: Path | None = None
    pids: Path | None = None
    fds: list[int] = field(default_factory=list)

    @property
    def folders(self) -> list[Path]:
        """Each folder once (version 2 has one for both)."""
        return list(dict.fromkeys(place for place in (self.memory, self.pids) if place is not None))

    def usage(self) -> Usage:
        """Read peak memory and the counts of out-of-memory kills and of refused processes."""
        seen = Usage()
        if self.memory is not None:
            peak = "memory.max_usage_in_bytes" if self.version == 1 else "memory.peak"
            events = "memory.oom_control" if self.version == 1 else "memory.events"
            value = _read(self.memory / peak).strip()
            seen.peak_mb = int(value) / 2**20 if value.isdigit() else None
            seen.oom_kills = _field(self.memory / events, "oom_kill")
        if self.pids is not None:
            seen.pids_refused = _field(self.pids / "pids.events", "max")
        return seen

    def kill(self) -> None:
        """Kill everything in the group, however fast it forks (it is stopped from growing by its pids limit)."""
        deadline = time.monotonic() + 5
        for folder in self.folders:
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    (folder / "cgroup.kill").write_text("1")
                left = [int(pid) for pid in _read(folder / "cgroup.procs").split()]
                if not left:
                    break
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(0.005)

    def release_fds(self) -> None:
        """Close our end of the entry files (after they were handed over)."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds.clear()

    def close(self) -> None:
        """Kill what is left and remove the groups."""
        self.release_fds()
        self.kill()
        for folder in self.folders:
            for _ in range(50):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.002)


def support() -> Support:
    """Probe once what this process may do with control groups."""
    global _support
    with _lock:
        if _support is None:
            _support = _probe()
            _sweep(_support)
        return _support


def make(limits: Limits) -> JobGroup | None:
    """Return a group with the limits' memory and pids, or ``None`` where there can be none."""
    able = support()
    if not able.controllers:
        return None
    group = JobGroup(able.version)
    name = f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-{next(_counter)}"
    size = limits.memory_mb << 20
    try:
        if able.memory is not None:
            group.memory = able.memory / name
            group.memory.mkdir()
            if able.version == 1:
                (group.memory / "memory.limit_in_bytes").write_text(str(size))
                with contextlib.suppress(OSError):  # no swap accounting: then swap is not limited by it either
                    (group.memory / "memory.memsw.limit_in_bytes").write_text(str(size))
            else:
                (group.memory / "memory.max").write_text(str(size))
                for file, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                    with contextlib.suppress(OSError):
                        (group.memory / file).write_text(value)
        if able.pids is not None:
            group.pids = able.pids / name
            group.pids.mkdir(exist_ok=able.version == 2)
            (group.pids / "pids.max").write_text(str(limits.pids))
        # A single-threaded process may enter by `tasks` as well: the kernel then needs no global lock, whose write side
        # waits for a grace period (some 10 ms). Version 2 has no such file for groups of processes.
        entry = "tasks" if able.version == 1 else "cgroup.procs"
        for folder in group.folders:
            group.fds.append(os.open(folder / entry, os.O_WRONLY | os.O_CLOEXEC))
    except OSError:
        group.close()
        return None
    return group


def _probe() -> Support:
    mounts = _mounts()
    own = _own_groups()
    found: dict[str, Path] = {}
    reasons = []
    for controller in ("memory", "pids"):
        folder = _v1_folder(controller, mounts, own)
        if folder is None:
            reasons.append(f"no version 1 {controller} hierarchy")
        elif reason := _try_group(folder):
            reasons.append(f"{controller}: {reason}")
        else:
            found[controller] = folder
    if found:
        return Support(found.get("memory"), found.get("pids"), 1, "; ".join(reasons))
    place = _v2_folder(mounts, own)
    if place is None:
        return Support(None, None, 1, "; ".join(reasons) or "no control groups mounted")
    base, reason = v2_base(*place)
    if base is None:
        return Support(None, None, 2, reason)
    able = _read(base / "cgroup.subtree_control").split()
    return Support(base if "memory" in able else None, base if "pids" in able else None, 2)


def v2_base(folder: Path, top: Path, names: Sequence[str] = ("memory", "pids")) -> tuple[Path | None, str]:
    """Return the nearest group at or above ``folder`` below which jobs can have groups, or ``None`` and why not.

    A group with processes in it cannot hand controllers on, so ours itself seldom will do. Those above it often
    do: a desktop session's ``app.slice`` belongs to its user and has the controllers; the top belongs to root.

    Args:
        folder: our own group.
        top: where the hierarchy is mounted.
        names: controllers wanted; one of them is enough.
    """
    reason = ""
    for base in [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]:
        able = set(_read(base / "cgroup.subtree_control").split())
        wanted = set(names) & set(_read(base / "cgroup.controllers").split())
        if not wanted:
            reason = reason or f"neither of {', '.join(names)} reaches {base}"
            continue
        if not wanted <= able:
            # Only our own group is changed; what others set up above it is taken as it is.
            refusal = _hand_on(base, sorted(wanted - able)) if base == folder else f"{base} hands on no controllers"
            reason = reason or refusal
            if refusal and not wanted & able:
                continue
        if refusal := _try_group(base):
            reason = reason or refusal
            continue
        return base, ""
    return None, f"{reason}; try: systemd-run --user --scope -p Delegate=yes COMMAND"


def _hand_on(base: Path, missing: Sequence[str]) -> str:
    """Enable controllers for the groups below ``base``; return why that does not work."""
    request = " ".join(f"+{name}" for name in missing)
    try:
        (base / "cgroup.subtree_control").write_text(request)
        return ""
    except OSError as error:
        if _read(base / "cgroup.procs").split() != [str(os.getpid())]:
            return f"cannot enable controllers below {base}: {error.strerror}"
    try:  # we are alone in it, as in a scope of our own: step into a leaf, then it can
        leaf = base / "orienteer-main"
        leaf.mkdir(exist_ok=True)
        (leaf / "cgroup.procs").write_text(str(os.getpid()))
        (base / "cgroup.subtree_control").write_text(request)
        return ""
    except OSError as error:
        return f"cannot enable controllers below {base}: {error.strerror}"


def _try_group(folder: Path) -> str:
    """Make a group below ``folder`` and move a process into it; return why that does not work."""
    trial = folder / f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}-probe{next(_counter)}"
    try:
        trial.mkdir()
    except OSError as error:
        return f"cannot make a control group below {folder} ({error.strerror})"
    try:
        with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, close_fds=True) as process:
            try:
                (trial / "cgroup.procs").write_text(str(process.pid))
            finally:
                process.kill()
    except OSError as error:
        return f"cannot enter a control group below {folder} ({error.strerror})"
    finally:
        JobGroup(2, memory=trial).close()
    return ""


def _mounts() -> list[tuple[str, str, str, set[str]]]:
    """Return (root, mount point, type, options) of each control group mount."""
    found = []
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split()
            found.append((fields[3], fields[4], kind, set(options.split(","))))
    return found


def _own_groups() -> dict[str, str]:
    own = {}
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            own[name] = path
    return own


def _place(root: str, point: str, path: str) -> Path:
    """Return where the group ``path`` is seen under a mount of the hierarchy's ``root`` at ``point``."""
    inner = path[len(root) :] if root != "/" and path.startswith(root) else path
    folder = Path(point) / inner.lstrip("/")
    return folder if folder.is_dir() else Path(point)


def _v1_folder(controller: str, mounts: list[tuple[str, str, str, set[str]]], own: dict[str, str]) -> Path | None:
    for root, point, kind, options in mounts:
        if kind == "cgroup" and controller in options and controller in own:
            return _place(root, point, own[controller])
    return None


def _v2_folder(mounts: list[tuple[str, str, str, set[str]]], own: dict[str, str]) -> tuple[Path, Path] | None:
    for root, point, kind, _ in mounts:
        if kind == "cgroup2" and "" in own:
            return _place(root, point, own[""]), Path(point)
    return None


def _sweep(able: Support) -> None:
    """Remove groups that a killed run left behind."""
    for base in dict.fromkeys(place for place in (able.memory, able.pids) if place is not None):
        for folder in base.glob(PREFIX + "*"):
            parts = folder.name[len(PREFIX) :].split("-")
            if len(parts) != 3 or not parts[0].isdigit() or start_time(int(parts[0])) == parts[1]:
                continue
            JobGroup(able.version, memory=folder).close()


def start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks: with the pid it names one process for good."""
    text = _read(Path(f"/proc/{pid}/stat"))
    return text.rpartition(")")[2].split()[19] if text else "0"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _field(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0
