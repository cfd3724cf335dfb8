"""The layouts of a runner, copied by content into a folder of its own: what a sandboxed program is shown of them.

A deck sees a file named by its hash in a folder that it cannot write: neither the name nor the place tells it what the
layout is (benchmarks keep theirs in ``pass`` and ``fail``), and nobody changes it between its hash and its run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

#: So many bytes of layouts are kept beyond those in use.
_ROOM = 1 << 30
_SUFFIXES = (".gds", ".gds2", ".gdsii", ".oas", ".oasis", ".gz")


@dataclass(frozen=True)
class Shelved:
    """A layout as a runner shows it: its hash and its copy."""

    sha256: str
    path: Path


class LayoutShelf:
    """Copies of layouts by content. Thread-safe.

    Args:
        passable: whether other users may pass through the folder, as a container's has to.
    """

    def __init__(self, *, passable: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="orienteer-layouts-"))
        self.folder.chmod(0o711 if passable else 0o700)
        self._finalizer = weakref.finalize(self, shutil.rmtree, self.folder, True)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int, int], str] = {}
        self._kept: OrderedDict[str, tuple[Path, int]] = OrderedDict()

    def put(self, source: Path, in_use: set[str]) -> Shelved:
        """Copy a layout if its content is not here yet.

        Args:
            source: the file.
            in_use: hashes that must stay; the new one is added.

        Raises:
            OSError: it cannot be read or copied.
        """
        with self._lock, open(source, "rb", opener=_opener) as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(0, "it is no regular file")
            if facts.st_size == 0:
                raise OSError(0, "it is empty")
            mark = (str(source.absolute()), facts.st_size, facts.st_mtime_ns, facts.st_ino)
            sha = self._known.get(mark)
            if sha is None or sha not in self._kept:
                sha = self._copy(file, source)
                self._known[mark] = sha
            self._kept.move_to_end(sha)
            in_use.add(sha)
            self._drop(in_use)
            return Shelved(sha, self._kept[sha][0])

    def close(self) -> None:
        """Remove all copies."""
        self._finalizer()

    def _copy(self, file: BinaryIO, source: Path) -> str:
        digest = hashlib.sha256()
        suffix = source.suffix.lower() if source.suffix.lower() in _SUFFIXES else ".gds"
        draft = self.folder / f".{os.urandom(8).hex()}"
        size = 0
        try:
            with draft.open("wb") as copy:
                while piece := file.read(1 << 20):
                    digest.update(piece)
                    copy.write(piece)
                    size += len(piece)
            sha = digest.hexdigest()
            if sha in self._kept:
                draft.unlink()
            else:
                place = self.folder / f"{sha[:32]}{suffix}"
                draft.chmod(0o444)
                draft.rename(place)
                self._kept[sha] = (place, size)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        return sha

    def _drop(self, in_use: set[str]) -> None:
        total = sum(size for _, size in self._kept.values())
        for sha in list(self._kept):
            if total <= _ROOM:
                return
            if sha not in in_use:
                path, size = self._kept.pop(sha)
                total -= size
                with contextlib.suppress(OSError):
                    path.unlink()


def _opener(path: str, flags: int) -> int:
    # Without waiting: a named pipe would hold us until somebody writes.
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
