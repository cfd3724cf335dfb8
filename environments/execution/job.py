"""The inside of a job: builds its isolation, then becomes the program or calls the function. Standard library only.

Chain of a job with its own namespaces: the worker forks I into new user, pid, mount, ipc, net and uts namespaces, of
which it is process 1. I enters the control groups, mounts the private file systems, forks C, in which candidate code
runs, and gives up all capabilities. When C ends, I reports its status on a pipe that only I holds and ends; the kernel
then kills every process that is left in the namespace. C cannot signal, trace or read I (process 1, not dumpable) and
cannot see the worker at all.

Without namespaces of its own the job is C alone, a session leader, forked by the worker.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orienteer.environments.execution import frames, linux

#: User and group inside; nobody.
NOBODY = 65534
WORK = "/tmp/work"
ERROR_TEXT = 64 << 10


@dataclass
class Plan:
    """Everything a job needs to know before its first fork."""

    limits: dict[str, Any]
    #: Own namespaces (``True``) or only a session (``False``).
    nested: bool
    #: Filter to load, empty for none.
    filter: bytes
    #: Folder to run in; made and owned by the job's own tmpfs when nested.
    work: str
    stdin: int
    stdout: int
    stderr: int
    #: Where the status of setup and of the end is reported; never reaches candidate code.
    status: int
    groups: list[int] = field(default_factory=list)
    #: ``memory``, ``pids`` as far as control groups hold them.
    grouped: tuple[str, ...] = ()
    #: Pipe of the result of a function and the secret that seals it.
    result: int = -1
    key: bytes = b""
    function: Callable[..., Any] | None = None
    message: tuple[dict[str, Any], tuple[bytes, ...]] | None = None
    argv: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    #: Paths below /tmp that stay visible in a private /tmp.
    shown: Sequence[str] = ()


#: The namespaces of a job of a warm worker.
OWN = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWUTS
)


def start(plan: Plan) -> int:
    """Fork the job and return the pid of its first process, whose end is the end of the job.

    Raises:
        OSError: the kernel refused.
    """
    pid = linux.fork_into(OWN) if plan.nested else os.fork()
    if pid == 0:
        _run_forked(plan)
    return pid


def _run_forked(plan: Plan) -> None:
    """Go on as the job's first process. Never returns."""
    try:
        linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else /proc/self/uid_map belongs to root
        for fd in plan.groups:
            os.write(fd, b"0")
            os.close(fd)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # if anything must die, then the candidate
        if plan.nested:
            _nest(plan)
        else:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            _candidate(plan)
    except BaseException as error:
        report(plan.status, {"setup": f"{type(error).__name__}: {error}"})
    os._exit(125)


def report(fd: int, facts: dict[str, Any]) -> None:
    """Write one line of status; shorter than a pipe's atomic size."""
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(facts)[:4000].encode() + b"\n")


def _nest(plan: Plan) -> None:
    linux.become_mapped(NOBODY, NOBODY)
    private_mounts(int(plan.limits["disk_mb"]), plan.work, plan.shown)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    candidate = os.fork()
    if candidate == 0:
        _candidate(plan)
        os._exit(125)
    linux.drop_capabilities()
    os.dup2(plan.status, 3)
    os.closerange(4, 1 << 20)
    for fd in (0, 1, 2):  # hold no end of the candidate's pipes
        os.close(fd)
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == candidate:
            report(3, end_facts(status, usage))
            os._exit(0)


def end_facts(status: int, usage: resource.struct_rusage) -> dict[str, Any]:
    """Return how a process ended and what it and its ended children used."""
    return {
        "code": os.waitstatus_to_exitcode(status),
        "cpu": usage.ru_utime + usage.ru_stime,
        "maxrss_kb": usage.ru_maxrss,
    }


def private_mounts(disk_mb: int, work: str, shown: Sequence[str] = ()) -> None:
    """Give this mount namespace its own /tmp, /dev/shm and /proc, and make ``work``.

    ``shown`` are the paths below /tmp that stay visible (a checkout or a bind may lie there): the new file system is
    built up at /dev/shm with them in it and then moved over the old /tmp.
    """
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    quiet = linux.MS_NOSUID | linux.MS_NODEV
    options = f"size={disk_mb}m,mode=1777,nr_inodes=65536"
    if shown:
        linux.mount("tmpfs", "/dev/shm", "tmpfs", quiet, options)
        for path in shown:
            target = Path("/dev/shm") / Path(path).relative_to("/tmp")
            target.parent.mkdir(parents=True, exist_ok=True)
            if Path(path).is_dir():
                target.mkdir(exist_ok=True)
            else:
                target.touch()
            linux.mount(path, str(target), None, linux.MS_BIND | linux.MS_REC)
        linux.mount("/dev/shm", "/tmp", None, linux.MS_MOVE)
    else:
        linux.mount("tmpfs", "/tmp", "tmpfs", quiet, options)
    if Path("/dev/shm").is_dir():
        linux.mount("tmpfs", "/dev/shm", "tmpfs", quiet, options)
    try:
        linux.mount("proc", "/proc", "proc", quiet | linux.MS_NOEXEC)
    except OSError:  # refused where parts of the outer /proc are covered; then none at all, never the worker's
        linux.mount("tmpfs", "/proc", "tmpfs", quiet | linux.MS_NOEXEC, "size=4k,mode=555")
    Path(work).mkdir(parents=True, exist_ok=True)


def _candidate(plan: Plan) -> None:
    os.setsid()
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    if plan.function is not None:  # as Python has them: a full disk or a closed pipe is an exception
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.umask(0o022)
    Path(plan.work).mkdir(parents=True, exist_ok=True)
    os.chdir(plan.work)
    for name, content in plan.files:
        target = Path(plan.work) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        if content[:2] == b"#!" or content[:4] == b"\x7fELF":
            target.chmod(0o755)
    _arrange(plan)
    _limit(plan)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    if plan.argv:
        linux.prctl(linux.PR_SET_DUMPABLE, 1)
        if plan.filter:
            linux.install_seccomp(plan.filter)
        os.execvpe(plan.argv[0], plan.argv, plan.env)  # the status pipe closes by close-on-exec
    linux.wipe_freed_memory(False)
    if plan.filter:
        linux.install_seccomp(plan.filter)
    os.environ.update(plan.env)
    report(plan.status, {"started": True})
    os.close(plan.status)
    call(plan, plan.result)


def _arrange(plan: Plan) -> None:
    """Put stdin, stdout, stderr on 0-2, result on 3, status on 4, and close all else."""
    wanted = [plan.stdin, plan.stdout, plan.stderr, plan.result if plan.result >= 0 else plan.status, plan.status]
    high = []
    for fd in wanted:  # first out of the way of each other
        copy = os.dup(fd)
        while copy < 5:
            copy = os.dup(copy)
        high.append(copy)
    for place, fd in enumerate(high):
        os.dup2(fd, place, inheritable=place < 3)
    os.closerange(5, 1 << 20)
    plan.result, plan.status = 3, 4


def _limit(plan: Plan) -> None:
    limits = plan.limits
    _rlimit(resource.RLIMIT_CORE, 0)
    _rlimit(resource.RLIMIT_FSIZE, int(limits["disk_mb"]) << 20)
    if limits.get("cpu_s") is not None:
        seconds = math.ceil(limits["cpu_s"])
        _rlimit(resource.RLIMIT_CPU, seconds, seconds + 1)
    if "memory" not in plan.grouped:
        base = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if plan.function else 0
        _rlimit(resource.RLIMIT_AS, base + (int(limits["memory_mb"]) << 20))
    if "pids" not in plan.grouped and (ceiling := _process_ceiling(plan)) is not None:
        _rlimit(resource.RLIMIT_NPROC, ceiling)
    _rlimit(resource.RLIMIT_NOFILE, int(limits["open_files"]))


def _rlimit(kind: int, soft: int, hard: int | None = None) -> None:
    hard = soft if hard is None else hard
    _, ceiling = resource.getrlimit(kind)
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(kind, (soft, hard))


def _process_ceiling(plan: Plan) -> int | None:
    """Return the value for RLIMIT_NPROC, or ``None`` where that limit would count other people's processes."""
    allowed = int(plan.limits["pids"])
    release = tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in os.uname().release.split(".")[:2])
    if (plan.nested or os.getppid() == 1) and release >= (5, 14):
        return allowed + 2  # counted per user namespace: this job, its init and the worker
    if plan.nested or os.getppid() == 1:
        return None
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == os.getuid():
                    count += len(list((entry / "task").iterdir()))
    return count + allowed


def call(plan: Plan, fd: int) -> None:
    """Call the function, write its sealed result to ``fd`` and end the process. Never returns."""
    assert plan.function is not None and plan.message is not None
    own = os.getpid()
    try:
        gc.enable()
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
        header, blobs = plan.function(*plan.message)
        frame = frames.pack({"ok": True, "header": dict(header)}, blobs, plan.key)
    except BaseException as error:
        frame = _failure(error, plan.key)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    if os.getpid() != own:  # a process that the function forked and let return has no result to give
        os._exit(1)
    view = memoryview(frame)
    while view:
        view = view[os.write(fd, view) :]
    os._exit(0)


def _failure(error: BaseException, key: bytes) -> bytes:
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:
        text = "(the exception cannot be printed)"
    text = text[-ERROR_TEXT:].encode("utf-8", "replace").decode()
    return frames.pack({"ok": False, "type": type(error).__name__[:200], "error": text}, (), key)
