"""What ``agent setup NAME`` can bring to this machine."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from orienteer.errors import UsageError

Say = Callable[[str], None]
Progress = Callable[[str, int, int], None]


def _npu(home: Path, say: Say, progress: Progress) -> str:
    from orienteer.environments.kernel import toolchain

    return str(toolchain.install(home, say, progress).folder)


#: Name -> (what it is, how it is done).
SETUPS: dict[str, tuple[str, Callable[[Path, Say, Progress], str]]] = {
    "npu": ("the Ascend compiler (ascendnpu-ir and triton-ascend wheels, 215 MB to download, 590 MB on disk)", _npu),
}


def run_setup(name: str, home: Path, say: Say, progress: Progress) -> str:
    """Do one setup and return where it went.

    Raises:
        UsageError: there is no setup of that name.
        MissingPrerequisite, StoreError: it cannot be done; see the cure.
    """
    describe(name)
    return SETUPS[name][1](home, say, progress)


def describe(name: str) -> str:
    """Return what a setup brings.

    Raises:
        UsageError: there is no setup of that name.
    """
    if name not in SETUPS:
        near = difflib.get_close_matches(name, SETUPS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"unknown setup {name!r}", f"{hint}there are: {', '.join(SETUPS)}")
    return SETUPS[name][0]
