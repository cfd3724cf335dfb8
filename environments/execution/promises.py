"""What each backend promises against hostile code. The tests assert this table and ``docs/sandboxes.md`` prints it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """One attack, and whether each backend holds it."""

    name: str
    attack: str
    bwrap: bool
    docker: bool
    process: bool
    note: str = ""

    def holds(self, backend: str) -> bool:
        """Say whether the backend of that name promises to hold this attack."""
        return bool(getattr(self, backend.partition("-")[0]))


PROMISES: tuple[Promise, ...] = (
    Promise("time", "endless loop, one long C call, ignored signals", True, True, True),
    Promise("forks", "fork bomb", True, True, True, "by the pids cgroup, else by RLIMIT_NPROC (not for root)"),
    Promise(
        "memory", "memory hog, in one process or in many", True, True, True, "by the cgroup, else rlimit and watch"
    ),
    Promise("disk", "filling the disk", True, True, False, "process: only the working folder is watched"),
    Promise("output", "flooding stdout, stderr or the result", True, True, True),
    Promise("survivors", "double fork, own session, holding the pipes open", True, True, True),
    Promise("results", "exit without result, partial, forged, repeated or oversized results", True, True, True),
    Promise(
        "environment",
        "reading the environment of the caller",
        True,
        True,
        False,
        "process: its own is clean, but /proc",
    ),
    Promise("home", "reading your files", True, True, False),
    Promise("others", "reading what other candidates left", True, True, False),
    Promise("network", "connecting to anything", True, True, True, "process: seccomp refuses internet sockets"),
    Promise("signals", "killing or stopping the caller or the worker", True, True, False),
    Promise("tracing", "ptrace and process_vm_readv", True, True, True, "process: by seccomp"),
    Promise("proc-memory", "opening /proc/PID/mem of others", True, True, False),
    Promise("privilege", "mounts, namespaces, setuid programs, kernel interfaces", True, True, True),
)


def table() -> str:
    """Return the promises as a Markdown table."""
    lines = ["| attack | bwrap | docker | process | note |", "|---|---|---|---|---|"]
    for promise in PROMISES:
        marks = ["held" if promise.holds(name) else "**not held**" for name in ("bwrap", "docker", "process")]
        lines.append(f"| {promise.attack} | {' | '.join(marks)} | {promise.note} |")
    return "\n".join(lines)
