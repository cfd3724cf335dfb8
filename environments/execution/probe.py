"""Which sandboxes and which parts of them work on this machine: the table that ``agent doctor`` prints."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orienteer.environments.execution import bwrap, cgroups, linux, seccomp


@dataclass(frozen=True)
class Check:
    """One line of the doctor's table."""

    name: str
    #: ``None``: cannot be told here.
    works: bool | None
    detail: str
    #: What to do when it does not work; empty when it does.
    cure: str = ""


def probe() -> list[Check]:
    """Try each part for real and return one line each; never raises."""
    if not linux.linux():
        return [Check("sandboxes", False, f"this is {sys.platform}", "run Orienteer on Linux")]
    checks: list[Callable[[], Check]] = [_bwrap, _namespaces, _memory, _pids, _seccomp, _docker, _landlock]
    found = []
    for check in checks:
        try:
            found.append(check())
        except Exception as error:
            found.append(Check(check.__name__.strip("_"), None, f"{type(error).__name__}: {error}"))
    return found


def _bwrap() -> Check:
    reason = bwrap.unusable()
    if reason is not None:
        return Check("bubblewrap", False, *reason)
    version = subprocess.run([bwrap.executable(), "--version"], capture_output=True, text=True, check=False).stdout
    return Check("bubblewrap", True, version.strip())


def _namespaces() -> Check:
    trial = _alone("import linux; linux.unshare(0x10000000)")
    who = "root" if os.geteuid() == 0 else f"user {os.geteuid()}"
    if trial.returncode == 0:
        return Check("user namespaces", True, f"{who} can make them")
    lines = trial.stderr.strip().splitlines() or ["refused"]
    return Check("user namespaces", False, f"{who}: {lines[-1]}", bwrap.NAMESPACE_CURE)


def _alone(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process of its own, with our leaf modules importable by their bare names."""
    start = f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
    command = [sys.executable, "-I", "-S", "-c", start + code]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", timeout=60)


def _group(name: str) -> Check:
    able = cgroups.support()
    if name in able.controllers:
        place = able.memory if name == "memory" else able.pids
        return Check(f"cgroup {name}", True, f"version {able.version}, {place}")
    cure = "systemd-run --user --scope -p Delegate=yes agent ...; without it limits hold per process (rlimits) only"
    return Check(f"cgroup {name}", False, able.reason or "not delegated to this process", cure)


def _memory() -> Check:
    return _group("memory")


def _pids() -> Check:
    return _group("pids")


def _seccomp() -> Check:
    if not seccomp.supported():
        return Check("seccomp", False, f"no filter for {platform.machine()}", "the namespaces hold without it")
    trial = _alone(
        "import os, linux, seccomp; linux.prctl(38, 1); linux.install_seccomp(seccomp.build())\n"
        "try: linux.unshare(0x00020000)\nexcept PermissionError: os._exit(7)"
    )
    if trial.returncode == 7:
        return Check("seccomp", True, f"filter of {len(seccomp.build()) // 8} instructions loads and refuses")
    return Check("seccomp", False, "the kernel does not load a filter", "use a kernel with CONFIG_SECCOMP_FILTER")


def _docker() -> Check:
    from orienteer.environments.execution import docker_engine

    works, detail, cure = docker_engine.answers()
    return Check("docker engine", works, detail, cure)


def _landlock() -> Check:
    number = 444  # landlock_create_ruleset, the same on all architectures since it came late
    version = ctypes.CDLL(None, use_errno=True).syscall(number, None, 0, 1)
    if version > 0:
        return Check("landlock", True, f"ABI {version} (not needed by any backend)")
    modules = Path("/sys/kernel/security/lsm")
    detail = f"not enabled (active: {modules.read_text().strip()})" if modules.is_file() else "not enabled"
    return Check("landlock", False, detail, "nothing to do: no backend needs it")
