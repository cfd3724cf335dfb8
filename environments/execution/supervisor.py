"""The process in the sandbox that starts jobs, watches them from outside and reports their end.

It is ours and it outlives its jobs: in bubblewrap and docker it is process 1 of the sandbox's pid namespace, so no job
can signal it, and it is not dumpable, so no job of the same user can trace it or open its memory. It takes one job at
a time from the control channel. When that channel closes it ends, and with it everything in the sandbox.
Standard library and our own leaf modules only, until the caller names modules to preload.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orienteer.environments.execution import job, linux, seccomp
from orienteer.environments.execution.aftermath import remove
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.tree import kill_descendants
from orienteer.environments.execution.watch import Host, Run


def main(where: str) -> None:
    """Serve jobs until the channel closes. Never returns normally."""
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.wipe_freed_memory(True)
    channel = _open_channel(where)
    host = Host(channel, "process")
    try:
        config, _, _ = channel.receive()
        host.backend = config["backend"]
        host.base = Path(config["base"])
        host.grouped = tuple(config["grouped"])
        host.shown = tuple(config["shown"])
        channel.send(_prepare(host, config))
        while True:
            _serve(host)
            _scrub()
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()  # the caller reads the last line of it
    finally:
        kill_descendants()
        if host.backend == "process":
            remove(host.base)
        os._exit(0)


def _serve(host: Host) -> None:
    """Do one job. A function of its own: no local of it, so no content of this job, lives into the next one's fork."""
    header, blobs, fds = host.channel.receive()
    reply, out = Run(host, header, blobs, fds).finish()
    reply["worker_mb"] = _resident_mb()
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    reply["worker_cpu_s"] = sum(usage.ru_utime + usage.ru_stime for usage in used)
    host.channel.send(reply, out)


def _scrub() -> None:
    """Overwrite what the C library's cache of small freed chunks still holds (``M_PERTURB`` spares it)."""
    gc.collect()
    # Eight of each size class: the cache keeps at most seven.
    held = [b"\0" * size for size in range(1, 1100, 16) for _ in range(8)]
    del held


def _open_channel(where: str) -> Channel:
    if where != "-":
        fd = int(where)
        os.set_inheritable(fd, False)
        return Channel(fd, fd, sock=True)
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)
    return Channel(read_fd, write_fd, sock=False)


def _prepare(host: Host, config: dict[str, Any]) -> dict[str, Any]:
    """Import what is to be warm, build the filter, find out which isolation jobs can have."""
    began = time.monotonic()
    facts: dict[str, Any] = {"ready": False}
    try:
        for path in config["paths"]:
            if path not in sys.path:
                sys.path.append(path)
        for name in config["preload"]:
            importlib.import_module(name)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
            torch.set_num_interop_threads(1)
    except BaseException as error:
        facts["error"] = f"cannot import {config['preload']}: {type(error).__name__}: {error}"
        return facts
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        facts["error"] = (
            f"the preloaded modules {config['preload']} started {threads - 1} threads; a fork would lose them"
        )
        return facts
    if seccomp.supported():
        host.filter = seccomp.build(network=host.backend != "process")
        if not _works(lambda: _load_filter(host)):
            host.filter = b""
    if config["nest"]:
        host.nested = _works(lambda: _nest(host), lambda: linux.fork_into(job.OWN))
    gc.collect()
    gc.freeze()
    gc.disable()
    facts.update(
        ready=True,
        nested=host.nested,
        seccomp=bool(host.filter),
        pid=os.getpid(),
        rss_mb=_resident_mb(),
        prepare_s=time.monotonic() - began,
    )
    return facts


def _works(trial: Callable[[], None], fork: Callable[[], int] = os.fork) -> bool:
    """Say whether ``trial`` succeeds in a child of ours."""
    try:
        pid = fork()
    except OSError:
        return False
    if pid == 0:
        try:
            linux.prctl(linux.PR_SET_DUMPABLE, 1)
            trial()
            os._exit(0)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _load_filter(host: Host) -> None:
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.install_seccomp(host.filter)


def _nest(host: Host) -> None:
    linux.become_mapped(job.NOBODY, job.NOBODY)
    job.private_mounts(1, job.WORK, host.shown)


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
