"""A seccomp filter as a classic BPF program, built by hand: no dependency, x86-64 and AArch64.

A deny list: the call fails with EPERM (``clone3`` with ENOSYS, so that the C library falls back to ``clone``, whose
flags can be inspected). It stands behind the namespaces and closes what they leave open: reading other processes,
kernel attack surface with a record (bpf, io_uring, userfaultfd, keyrings, perf), new namespaces and mounts, and
pushing characters into a terminal, or leaving something behind that no kill removes. Standard library only: also used
inside a sandbox.
"""

from __future__ import annotations

import errno
import platform
import struct

# name: (x86-64, AArch64); 0 where the architecture has no such call.
CALLS: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "iopl": (172, 0),
    "ioperm": (173, 0),
    "modify_ldt": (154, 0),
    "uselib": (134, 0),
    "ustat": (136, 0),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    # System V and POSIX queues outlive the processes that made them: a message for the next job of a shared namespace.
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}

#: What only the setup of a job needs; the filter of the job itself refuses it.
SETUP_CALLS: dict[str, tuple[int, int]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
_SOCKET = (41, 198)
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06


def _errno(number: int) -> int:
    return 0x00050000 | number


def supported() -> bool:
    """Say whether there is a filter for this processor."""
    return platform.machine() in _ARCHITECTURES


def build(machine: str | None = None, *, setup: bool = False, network: bool = True) -> bytes:
    """Return the filter as BPF code, or nothing for a processor that we have no table for.

    Args:
        machine: processor as ``platform.machine()`` names it; default this one.
        setup: leave open what the supervisor needs to build a job's namespaces.
        network: leave internet sockets open (where a network namespace makes them harmless).
    """
    known = _ARCHITECTURES.get(machine or platform.machine())
    if known is None:
        return b""
    column, audit = known
    code: list[tuple[int, int, int, int]] = []

    def deny(number: int, action: int) -> None:
        code.append((_JEQ, 0, 1, number))
        code.append((_RET, 0, 0, action))

    code += [(_LOAD, 0, 0, 4), (_JEQ, 1, 0, audit), (_RET, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if column == 0:  # the x32 calls share the architecture and would slip past the numbers
        code += [(_JGE, 0, 1, 0x40000000), (_RET, 0, 0, _errno(errno.EPERM))]
    calls = CALLS if setup else {**CALLS, **SETUP_CALLS}
    for numbers in calls.values():
        if numbers[column]:
            deny(numbers[column], _errno(errno.EPERM))
    if not setup:
        deny(_CLONE3[column], _errno(errno.ENOSYS))
        code += [
            (_JEQ, 0, 4, _CLONE[column]),
            (_LOAD, 0, 0, 16),  # low word of the flags
            (_JSET, 0, 1, _NEW_NAMESPACES),
            (_RET, 0, 0, _errno(errno.EPERM)),
            (_RET, 0, 0, _ALLOW),
        ]
    code += [
        (_JEQ, 0, 5, _IOCTL[column]),
        (_LOAD, 0, 0, 24),
        (_JEQ, 1, 0, _TIOCSTI),
        (_JEQ, 0, 1, _TIOCLINUX),
        (_RET, 0, 0, _errno(errno.EPERM)),
        (_RET, 0, 0, _ALLOW),
    ]
    families = [_AF_UNIX, *([_AF_INET, _AF_INET6, _AF_NETLINK] if network else [])]
    code += [(_JEQ, 0, len(families) + 3, _SOCKET[column]), (_LOAD, 0, 0, 16)]
    for place, family in enumerate(families):
        code.append((_JEQ, len(families) - place, 0, family))
    code += [(_RET, 0, 0, _errno(errno.EAFNOSUPPORT)), (_RET, 0, 0, _ALLOW), (_RET, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
