"""The few Linux calls that Python does not offer, by ctypes. Standard library only: also used inside a sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 8192, 16384, 1 << 18

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, arg2: int = 0, arg3: int = 0, arg4: int = 0, arg5: int = 0) -> int:
    """Call prctl(2).

    Raises:
        OSError: the kernel refused.
    """
    words = [ctypes.c_ulong(arg) for arg in (arg2, arg3, arg4, arg5)]
    return _check(_libc.prctl(option, *words), f"prctl {option}")


def unshare(flags: int) -> None:
    """Call unshare(2)."""
    _check(_libc.unshare(flags), "unshare")


def fork_into(flags: int) -> int:
    """Fork into new namespaces and return as ``os.fork`` does; the child is process 1 if they include a pid namespace.

    A raw clone(2): one copy of a big process less than fork, unshare, fork. The C library does not notice, so the
    caller must have a single thread and the child should do little more than fork again, properly.
    """
    number = _CLONE.get(platform.machine())
    if number is None:
        raise OSError(f"no number of clone(2) known for {platform.machine()}")
    # PyDLL keeps the interpreter lock held, so that the child finds it held by itself.
    pid = ctypes.PyDLL(None, use_errno=True).syscall(
        ctypes.c_long(number), ctypes.c_ulong(flags | signal.SIGCHLD), *[ctypes.c_ulong(0)] * 4
    )
    return _check(int(pid), "clone")


_CLONE = {"x86_64": 56, "aarch64": 220}


def mount(source: str, target: str, kind: str | None, flags: int = 0, data: str = "") -> None:
    """Call mount(2)."""
    encoded = kind.encode() if kind is not None else None
    _check(
        _libc.mount(source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), data.encode()),
        f"mount {kind or source} on {target}",
    )


def become_mapped(uid: int, gid: int) -> None:
    """Map the current user of a fresh user namespace to ``uid`` and ``gid`` inside it (single-id map)."""
    outer_uid, outer_gid = _outer_ids
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {outer_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {outer_gid} 1")


_outer_ids = (os.geteuid(), os.getegid())


def drop_capabilities() -> None:
    """Give up all capabilities, the bounding and the ambient set included (as far as the kernel lets us)."""
    for number in range(64):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break  # past the last capability, or not allowed: then there is nothing to lose either
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, data), "capset")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def install_seccomp(code: bytes) -> None:
    """Load a seccomp BPF program (8 bytes an instruction) for this thread and what it starts.

    ``PR_SET_NO_NEW_PRIVS`` must be set before, or CAP_SYS_ADMIN held.
    """
    program = _Program(len(code) // 8, code)
    _check(_libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(program), 0, 0), "seccomp")


def wipe_freed_memory(on: bool) -> None:
    """Make the C library overwrite what is freed (``M_PERTURB``), or stop doing so; nothing where it cannot.

    A worker forks its jobs from the memory in which it handled the jobs before; what they sent must not be found
    there. Python's own allocator keeps freed blocks to itself, so the worker runs with ``PYTHONMALLOC=malloc``.
    """
    with contextlib.suppress(AttributeError):
        _libc.mallopt(-6, 0x5A if on else 0)


def linux() -> bool:
    """Say whether this is Linux at all."""
    return sys.platform.startswith("linux")
