"""Which folders of this machine a sandbox needs to see so that our Python runs in it, and nothing more."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import orienteer
from orienteer.errors import UsageError

#: Read-only parts of /etc without which the dynamic linker and /usr's links do not work.
ETC = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
#: The accounts that exist inside.
PASSWD = b"nobody:x:65534:65534:nobody:/tmp:/bin/sh\n"
GROUP = b"nogroup:x:65534:\n"
#: Below a Python prefix only these are shown: a prefix may be somebody's home.
_PARTS = ("bin", "lib", "lib64", "include", "share", "pyvenv.cfg")
_SUBPACKAGES = ("agents", "environments", "evaluators", "kernels", "memory")


def package_root() -> Path:
    """Return the folder of the ``orienteer`` package."""
    return Path(str(orienteer.__file__)).resolve().parent


def interpreter() -> str:
    """Return the path of the running Python without ``..`` in it, which would lead elsewhere inside a sandbox."""
    return os.path.normpath(sys.executable)


@cache
def software() -> tuple[Path, ...]:
    """Return the files and folders outside /usr that hold Python, its packages and our own package."""
    wanted: list[Path] = []
    for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix):
        for place in (Path(prefix), Path(prefix).resolve()):
            wanted += [place / part for part in _PARTS]
    wanted += _link_chain(Path(sys.executable))
    for entry in sys.path:
        if Path(entry).name in ("site-packages", "dist-packages"):
            wanted.append(Path(entry))
    root = package_root()
    wanted += [root / name for name in _SUBPACKAGES]
    wanted += [*root.glob("*.py"), root / "py.typed"]
    return tuple(_outermost(wanted))


def _link_chain(executable: Path) -> list[Path]:
    """Return what each symbolic link on the way to the real interpreter points to."""
    found = []
    for _ in range(20):
        found.append(executable)
        if not executable.is_symlink():
            break
        target = executable.readlink()
        executable = target if target.is_absolute() else executable.parent / target
    return [Path(os.path.normpath(path)) for path in found]


def _outermost(paths: list[Path]) -> list[Path]:
    kept: list[Path] = []
    for path in sorted({path for path in paths if path.exists()}, key=lambda path: len(path.parts)):
        if path.is_relative_to("/usr") or any(path.is_relative_to(other) for other in kept):
            continue
        kept.append(path)
    return kept


def checked(binds: tuple[str | Path, ...] | list[str | Path]) -> tuple[Path, ...]:
    """Return the extra folders to show, made absolute.

    Raises:
        UsageError: one does not exist (an engine would silently make an empty folder of it).
    """
    found = []
    for bind in binds:
        path = Path(bind).absolute()
        if not path.exists():
            raise UsageError(f"cannot show {path} in the sandbox: it does not exist", "give an existing file or folder")
        found.append(path)
    return tuple(found)


def search_path() -> list[str]:
    """Return the module search path that holds inside as well."""
    return [entry for entry in sys.path if entry and Path(entry).exists()]


def below_tmp(binds: Sequence[Path]) -> list[str]:
    """Return what is shown below /tmp, where a job's private file system would hide it."""
    shown = [path for path in (*software(), *binds) if path.is_relative_to("/tmp") and path != Path("/tmp")]
    return [str(path) for path in _outermost(shown)]
