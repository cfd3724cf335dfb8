"""Turns the faults of files and databases into errors that a person can act on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from orienteer.errors import StoreError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EROFS, errno.EACCES, errno.EPERM}
_FULL_DATABASE = "{what} cannot be written, the disk seems to be full"

#: What SQLite (and friends) say, what is wrong, what to do. First match wins; matched in lower case.
_SAYINGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("database is locked", "database table is locked", "database schema is locked"),
        "{what} is locked by another process",
        "wait for it to finish or end it, then try again",
    ),
    (
        ("readonly database", "read-only"),
        "{what} is read-only",
        "make the file and its folder writable, or choose another place with ORIENTEER_HOME",
    ),
    (
        ("database or disk is full", "disk i/o error", "no space left"),
        _FULL_DATABASE,
        "free some space on its disk, then `agent runs resume`; nothing recorded so far is lost",
    ),
    (
        ("file is not a database", "malformed", "file is encrypted", "unsupported file format"),
        "{what} is corrupt or not a database of ours",
        "restore a backup or move the file away; a new one is made at the next start",
    ),
    (
        ("unable to open database file",),
        "{what} cannot be opened",
        "check that its folder exists and is writable, or choose another place with ORIENTEER_HOME",
    ),
)


def from_os(exc: OSError, what: str) -> StoreError:
    """Return the readable form of a file system error.

    Args:
        exc: the error.
        what: the thing that was being used, as a person would call it.
    """
    if exc.errno in _FULL:
        return StoreError(f"{what} cannot be written, the disk is full", "free some space on its disk and try again")
    if exc.errno in _DENIED:
        return StoreError(
            f"{what} is not accessible ({exc.strerror})",
            "give this user the right to read and write it, or choose another place with ORIENTEER_HOME",
        )
    return StoreError(f"{what} cannot be used ({exc.strerror or exc})", "check the path, or set ORIENTEER_HOME")


def from_database(exc: BaseException, what: str, *, new: bool = False) -> StoreError:
    """Return the readable form of a database error (of SQLAlchemy or of the driver).

    Args:
        exc: the error.
        what: the database, as a person would call it.
        new: it was just being made, so that there is nothing in it to go on with.
    """
    cause = getattr(exc, "orig", None) or exc
    text = str(cause).strip().splitlines()[0] if str(cause).strip() else type(cause).__name__
    lower = text.lower()
    for sayings, problem, cure in _SAYINGS:
        if any(saying in lower for saying in sayings):
            if new and problem == _FULL_DATABASE:
                cure = (
                    "free some space on its disk, or choose another place with ORIENTEER_HOME; nothing was left behind"
                )
            return StoreError(problem.format(what=what), cure)
    return StoreError(f"{what} failed ({text})", "check the database and its address, then try again")


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Translate operating system errors inside the block into ``StoreError``."""
    try:
        yield
    except OSError as exc:
        raise from_os(exc, what) from exc
