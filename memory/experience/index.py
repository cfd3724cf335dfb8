"""The vector index: one chromadb folder in the home, one collection per store and embedder.

What chromadb 1.5.9 does with two clients on one folder was tried: both see the rows that either writes, but a client
searches the graph that it loaded, without what the other added since, and two that write at once can leave items that
no later search finds. So one process at a time holds the folder, by a lock; the others search exactly (``store.py``)
and leave their items to be indexed by whoever holds it next.

Nothing here is the truth. Whatever looks wrong (not readable, foreign, another size, items that it cannot find again)
raises :class:`IndexBroken`, and the caller builds the index anew from the facts.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orienteer.memory.faults import readable

MISSING = "chromadb is not installed"
BUSY = "another process holds the index"
CURE = "pip install 'orienteer[memory]'"

#: Found by measuring 100,000 vectors of 384 dimensions: recall of the 20 nearest 1.0 at about a millisecond.
_HNSW = {"space": "cosine", "ef_construction": 100, "max_neighbors": 16, "ef_search": 128, "sync_threshold": 2000}
_BATCH = 2000
#: How long a suspect folder may take to be tried (seconds).
_TRIAL = 120.0


class IndexBroken(Exception):
    """The index cannot be used as it is; it has to be built again."""


class Folder:
    """The chromadb folder of a home in this process: its lock and its client, shared by all stores that use it."""

    _open: dict[Path, Folder] = {}  # noqa: RUF012  the register of the process
    _register = threading.RLock()

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock
        self._users = 0
        self._client: Any = None
        self._pid = os.getpid()

    @classmethod
    def take(cls, path: Path) -> Folder | str:
        """Return the folder, held by this process from now on, or why it cannot be had."""
        if importlib.util.find_spec("chromadb") is None:
            return MISSING
        with cls._register:
            found = cls._open.get(path)
            # A forked child inherits the register, but neither the client's threads nor the right to write.
            if found is None or found._pid != os.getpid():
                lock = _lock(path.with_name(f"{path.name}.lock"))
                if lock is None:
                    return BUSY
                found = cls._open[path] = Folder(path, lock)
            found._users += 1
            return found

    def leave(self) -> None:
        """Give the folder back; the last user closes it."""
        with self._register:
            self._users -= 1
            if self._users == 0 and self._pid == os.getpid():
                self._close()
                self._open.pop(self.path, None)
                os.close(self._lock)

    def client(self) -> Any:
        """Return the client.

        Raises:
            IndexBroken: the folder is not one that it can open.
        """
        with self._register:
            if self._client is None:
                import chromadb
                from chromadb.config import Settings

                self._try_first()
                with _broken():
                    self._client = chromadb.PersistentClient(
                        str(self.path), settings=Settings(anonymized_telemetry=False)
                    )
            return self._client

    def set_aside(self, client: Any) -> Path | None:
        """Move a folder that is broken out of the way; return where it went.

        Args:
            client: the client that found it broken, or None; where a newer one is in use there is nothing to do.
        """
        with self._register:
            if self._client is not client:
                return None
            self._close()
            aside = self.path.with_name(f"{self.path.name}.broken-{secrets.token_hex(3)}")
            with readable(f"the vector index {self.path}"):
                if not self.path.exists():
                    return None
                self.path.rename(aside)
            return aside

    def peek(self) -> Any:
        """Return the client where there is one."""
        return self._client

    def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                client.close()
                self._seal.write_text(_fingerprint(self.path), encoding="utf-8")

    @property
    def _seal(self) -> Path:
        return self.path.with_name(f"{self.path.name}.seal")

    def _try_first(self) -> None:
        """Try a folder in another process where it is not as a process of ours has left it in order."""
        if not self.path.exists():
            return
        with readable(f"the vector index {self.path}"):
            sealed = self._seal.read_text(encoding="utf-8") if self._seal.exists() else ""
            # From here until it is closed in order it counts as suspect.
            self._seal.unlink(missing_ok=True)
            if sealed == _fingerprint(self.path) or not sys.executable:
                return
        command = [sys.executable, "-m", "orienteer.memory.experience.probe", str(self.path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_TRIAL, check=False, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.SubprocessError) as exc:
            raise IndexBroken(f"it cannot be tried: {exc}") from exc
        if done.returncode < 0:
            raise IndexBroken(f"searching it ends the process by signal {-done.returncode}")
        if done.returncode:
            raise IndexBroken((done.stderr.strip().splitlines() or ["searching it fails"])[-1][:200])


class Collection:
    """The vectors of one store, made by one embedder.

    Args:
        folder: the chromadb folder, taken.
        token: the store's token.
        embedder: the embedder's name.
        size: dimensions.

    Raises:
        IndexBroken: the collection is not readable or not of this embedder and size.
    """

    def __init__(self, folder: Folder, token: str, embedder: str, size: int) -> None:
        self.name = f"{token}-{embedder}-{size}"
        self._client = folder.client()
        told = {"embedder": embedder, "size": size}
        with _broken():
            self._collection = self._get_or_create(told)
            found = self._collection.metadata or {}
        if {key: found.get(key) for key in told} != told:
            raise IndexBroken(f"the collection {self.name} holds vectors of {found}")

    def _get_or_create(self, told: dict[str, Any]) -> Any:
        from chromadb.errors import NotFoundError

        # Vectors come from us alone: without an embedding function chromadb has none to fetch. And what is there is
        # taken as it is: to "get or create" would write our metadata over those that are to be checked.
        try:
            return self._client.get_collection(self.name, embedding_function=None)
        except NotFoundError:
            return self._client.create_collection(
                self.name, metadata=told, configuration={"hnsw": _HNSW}, embedding_function=None
            )

    @property
    def client(self) -> Any:
        """The client through which it was opened."""
        return self._client

    def ids(self) -> set[str]:
        """Return the ids of all vectors."""
        with _broken():
            return set(self._collection.get(include=[])["ids"])

    def upsert(self, ids: Sequence[str], vectors: np.ndarray) -> None:
        """Write vectors, shape (ids, size); those of known ids are replaced."""
        with _broken():
            for start in range(0, len(ids), _BATCH):
                end = start + _BATCH
                self._collection.upsert(ids=list(ids[start:end]), embeddings=vectors[start:end])

    def delete(self, ids: Sequence[str]) -> None:
        """Remove vectors; unknown ids are no fault."""
        with _broken():
            for start in range(0, len(ids), _BATCH):
                self._collection.delete(ids=list(ids[start : start + _BATCH]))

    def query(self, vector: np.ndarray, count: int) -> list[str]:
        """Return the ids of about the ``count`` nearest vectors, nearest first."""
        with _broken():
            found = self._collection.query(query_embeddings=vector[None, :], n_results=count, include=[])
            return list(found["ids"][0])

    def drop(self) -> None:
        """Remove the collection."""
        with _broken():
            self._client.delete_collection(self.name)


@contextlib.contextmanager
def _broken() -> Iterator[None]:
    """Turn whatever chromadb raises, panics of its core included, into :class:`IndexBroken`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as exc:
        raise IndexBroken(" ".join(str(exc).split())[:200] or type(exc).__name__) from exc


def _fingerprint(folder: Path) -> str:
    """Return names, sizes and times of a folder's files; equal only if nobody wrote there meanwhile."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return "\n".join(f"{path.relative_to(folder)} {(s := path.stat()).st_size} {s.st_mtime_ns}" for path in files)


def _lock(path: Path) -> int | None:
    """Return a handle that holds the lock file until it is closed (or its process ends); None where another has it."""
    with readable(f"the vector index {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
