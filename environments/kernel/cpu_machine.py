"""The machine that a C++ kernel is measured on: cores, caches, load, and the lock that keeps measurements apart."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LOCK = "orienteer-measure.lock"
_GOVERNOR = "/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor"
#: Taken where the C library does not know the size of the last-level cache.
_CACHE_BYTES = 32 << 20


@contextlib.contextmanager
def machine_lock() -> Iterator[None]:
    """Hold the machine for one measurement: waits for those of all other processes, of whatever user.

    The lock is advisory and goes with the process that holds it.
    """
    place = Path(tempfile.gettempdir()) / _LOCK
    handle = -1
    try:
        with contextlib.suppress(OSError):
            handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            with contextlib.suppress(OSError):
                os.chmod(place, 0o666)  # noqa: PTH101 - the umask would keep other users out
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle >= 0:
            os.close(handle)


def cores() -> list[int]:
    """Return the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


def cache_bytes() -> int:
    """Return the size of the last-level cache."""
    for level in ("SC_LEVEL4_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        with contextlib.suppress(ValueError, OSError):
            size = os.sysconf(level)
            if size > 0:
                return size
    return _CACHE_BYTES


def describe() -> dict[str, Any]:
    """Return what a measurement must name of its machine."""
    governor = "unknown"
    with contextlib.suppress(OSError):
        governor = Path(_GOVERNOR.format(cores()[0])).read_text().strip()
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"cpu": model, "cores": len(cores()), "cache_bytes": cache_bytes(), "governor": governor}
