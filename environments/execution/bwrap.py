"""Bubblewrap: namespaces for everything, without a daemon and without root."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from orienteer.environments.execution import cgroups, paths, seccomp
from orienteer.environments.execution.channel import Channel
from orienteer.environments.execution.limits import DEFAULT_LIMITS, Limits
from orienteer.environments.execution.results import ExecResult
from orienteer.environments.execution.sandbox import BASE_ENV, cancelled, run_program
from orienteer.environments.execution.session import (
    SandboxFault,
    Session,
    Spec,
    never,
    python_flags,
    scratch,
    spawner,
    tail_of,
)
from orienteer.errors import MissingPrerequisite

CURE = "apt-get install bubblewrap (dnf and pacman: bubblewrap), or use --sandbox docker"
NAMESPACE_CURE = (
    "allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=15000"
    " kernel.apparmor_restrict_unprivileged_userns=0, or use --sandbox docker"
)


class BwrapSandbox:
    """Programs see /usr, our Python, what is bound, and private empty folders; no network, no other process.

    Args:
        nest: give each job of a warm worker namespaces of its own where the kernel allows it. Without, jobs of one
            worker share its namespaces and are told apart by killing and wiping between them.

    Raises:
        MissingPrerequisite: bubblewrap does not work here.
    """

    name = "bwrap"

    def __init__(self, *, nest: bool = True) -> None:
        self._nest = nest
        reason = unusable()
        if reason:
            raise MissingPrerequisite(*reason)
        parts = ["namespaces"]
        if seccomp.supported():
            parts.append("seccomp")
        if cgroups.support().controllers:
            parts.append("cgroup")
        self.isolation = "+".join(parts)

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
        """Run a program; see :meth:`Sandbox.exec`."""
        spec = Spec({**BASE_ENV, **env}, paths.checked(list(binds)), disk_mb=limits.disk_mb, limits=limits)
        return run_program(self, argv, stdin, files, spec, limits, collect, cancelled(cancel))

    def launch(self, spec: Spec, check: Callable[[], None] = never) -> Session:
        """Start a supervisor as process 1 of a new sandbox.

        Raises:
            SandboxFault: bubblewrap or the supervisor did not start.
        """
        ours, theirs = socket.socketpair()
        filter_fd = _memory_file(seccomp.build(setup=True))
        accounts = {"/etc/passwd": _memory_file(paths.PASSWD), "/etc/group": _memory_file(paths.GROUP)}
        complaints = scratch()
        command = [executable(), *_walls(spec)]
        for place, fd in accounts.items():
            command += ["--ro-bind-data", str(fd), place]
        command += ["--remount-ro", "/"]
        if seccomp.supported():
            command += ["--seccomp", str(filter_fd)]
        inside = str(Path(__file__).with_name("inside.py"))
        flags = python_flags(spec)
        command += [paths.interpreter(), *flags, inside, str(theirs.fileno())]
        command += [str(paths.package_root()), ":".join(paths.search_path()) if spec.worker else ""]
        try:
            process = spawner.popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=complaints,
                stderr=complaints,
                env={},
                cwd="/",
                pass_fds=(theirs.fileno(), filter_fd, *accounts.values()),
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxFault(f"cannot start bubblewrap: {error}") from None
        finally:
            theirs.close()
            for fd in (filter_fd, *accounts.values()):
                os.close(fd)

        def kill() -> None:
            with contextlib.suppress(OSError):
                process.kill()  # its child dies with it, and with that, process 1, the whole namespace
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            complaints.close()

        session = Session("bwrap", Channel.over(ours), kill, lambda: tail_of(complaints))
        session.disk_mb = spec.disk_mb
        config = {
            "backend": "bwrap",
            "base": "/tmp",
            "grouped": [],
            "paths": paths.search_path() if spec.worker else [],
            "preload": list(spec.preload),
            "shown": paths.below_tmp(spec.binds),
            "nest": spec.worker and self._nest,
        }
        try:
            session.configure(config, check)
        except BaseException:
            session.close()
            raise
        return session

    def close(self) -> None:
        """Nothing is held between runs."""


def executable() -> str:
    """Return the path of bubblewrap."""
    return shutil.which("bwrap") or "/usr/bin/bwrap"


def _walls(spec: Spec) -> list[str]:
    """Return bubblewrap's arguments."""
    size = ["--size", str(spec.disk_mb << 20)]
    walls = ["--unshare-all", "--unshare-user", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL"]
    walls += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox", "--clearenv"]
    for name, value in spec.env.items():
        walls += ["--setenv", name, value]
    walls += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        top = Path("/") / name
        if top.is_symlink():
            walls += ["--symlink", str(top.readlink()), str(top)]
        elif top.is_dir():
            walls += ["--ro-bind", str(top), str(top)]
    for place in paths.ETC:
        walls += ["--ro-bind-try", place, place]
    walls += ["--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    walls += [*size, "--perms", "1777", "--tmpfs", "/tmp"]
    for bind in (*paths.software(), *spec.binds):
        walls += ["--ro-bind", str(bind), str(bind)]
    return [*walls, "--chdir", "/"]


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("orienteer")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@cache
def unusable() -> tuple[str, str] | None:
    """Return why bubblewrap cannot be used here and the cure, or ``None`` when it can: a real run decides."""
    if shutil.which("bwrap") is None and not Path("/usr/bin/bwrap").exists():
        return "bubblewrap is not installed", CURE
    command = [executable(), *_walls(Spec(BASE_ENV)), "/usr/bin/env", "true"]
    try:
        trial = subprocess.run(command, capture_output=True, timeout=30, env={}, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap does not run: {error}", CURE
    if trial.returncode == 0:
        return None
    lines = trial.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit status {trial.returncode}"]
    said = lines[-1]
    if "unknown option" in said.lower():
        return f"bubblewrap is too old ({said})", "install bubblewrap 0.8 or newer, or use --sandbox docker"
    return f"bubblewrap does not work here ({said})", NAMESPACE_CURE
