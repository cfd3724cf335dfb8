"""After a job: taking files out of what hostile code left, and removing it. Standard library only."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any


def read_inside(folder: Path, name: str, room: int) -> bytes | None:
    """Return a regular file's content below ``folder`` (at most ``room`` + 1 bytes), following no link out of it."""
    try:
        path = (folder / name).resolve(strict=True)
        if not path.is_relative_to(folder.resolve()):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError, RuntimeError):
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(room + 1)


def remove(path: Path) -> None:
    """Remove a file or a folder that hostile code filled; never follows a link out of it."""

    def unlock(function: Callable[..., Any], where: str, _: Any) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(where), 0o700)  # noqa: PTH101, PTH120
            if not os.path.islink(where):  # noqa: PTH114
                os.chmod(where, 0o700)  # noqa: PTH101
            function(where)

    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(RecursionError):
            shutil.rmtree(path, onerror=unlock)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
