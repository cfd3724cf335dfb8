"""The cache of embeddings: one SQLite file, a vector per embedder and text hash, so that no text is embedded twice.

It belongs to the home folder and not to a database or store: a text has the same vector wherever it stands. It can be
deleted at any time; what is missing is embedded again.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from orienteer.errors import StoreError
from orienteer.memory.experience.embedding import Embedder
from orienteer.memory.experience.items import sha
from orienteer.memory.faults import from_database, from_os
from orienteer.memory.rundb import parts

#: SQLite's application id of this file: "ORTV".
_APPLICATION_ID = 0x4F525456
#: So many new texts at one time are a matter of many seconds; a person is told.
_MANY = 1_000
# With a row id: rows of this size make the tree of a table without one three times slower to search.
_TABLE = "CREATE TABLE IF NOT EXISTS vectors (embedder TEXT, sha TEXT, vector BLOB, PRIMARY KEY (embedder, sha))"


class VectorCache:
    """Vectors by text, made by one embedder; safe to share between threads and processes.

    Args:
        path: the file; made at the first use.
        embedder: makes what is missing.
        tell: is told in one line when a damaged file was made anew.
    """

    def __init__(self, path: Path, embedder: Embedder, tell: Callable[[str], None]) -> None:
        self.path = path
        self.embedder = embedder
        self._key = f"{embedder.name}-{embedder.size}"
        self._tell = tell
        self._lock = threading.RLock()
        self._conn: sqlite3.Connection | None = None

    def vectors(self, texts: Mapping[str, str]) -> dict[str, np.ndarray]:
        """Return the vectors of texts by their SHA-256; what the cache lacks is embedded and kept.

        Args:
            texts: text by its SHA-256.

        Raises:
            StoreError: the cache cannot be written.
        """
        found = self.known(list(texts))
        missing = [key for key in texts if key not in found]
        if len(missing) > _MANY:
            self._tell(f"memory: {len(missing)} texts are embedded by {self._key}, once; this may take a while")
        for start in range(0, len(missing), 256):
            part = missing[start : start + 256]
            made = self.embedder.embed([texts[key] for key in part])
            if made.shape != (len(part), self.embedder.size) or not np.isfinite(made).all():
                raise StoreError(f"the embedder {self._key} gave no usable vectors", "choose --set embedder=hashing")
            self._keep(part, made)
            found.update(zip(part, made, strict=True))
        return found

    def vector(self, text: str) -> np.ndarray:
        """Return the vector of one text, shape (size,)."""
        key = sha(text)
        return self.vectors({key: text})[key]

    def known(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the vectors that the cache has, by text hash."""
        found: dict[str, np.ndarray] = {}
        wide = 4 * self.embedder.size
        with self._using() as conn:
            for part in parts(sorted(keys)):  # near each other in the file
                marks = ",".join("?" * len(part))
                query = f"SELECT sha, vector FROM vectors WHERE embedder = ? AND sha IN ({marks})"
                for key, blob in conn.execute(query, (self._key, *part)):
                    if len(blob) == wide:
                        found[key] = np.frombuffer(blob, dtype="<f4")
        return found

    def count(self) -> int:
        """Return how many vectors of this embedder are kept."""
        with self._using() as conn:
            return int(conn.execute("SELECT count(*) FROM vectors WHERE embedder = ?", (self._key,)).fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    def _keep(self, keys: Sequence[str], made: np.ndarray) -> None:
        rows = [(self._key, key, row.astype("<f4").tobytes()) for key, row in zip(keys, made, strict=True)]
        with self._using() as conn, conn:
            conn.execute("BEGIN IMMEDIATE")
            conn.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._conn is None:
                    self._conn = self._open()
                yield self._conn
            except sqlite3.DatabaseError as exc:
                raise from_database(exc, f"the vector cache {self.path}") from exc
            except OSError as exc:
                raise from_os(exc, f"the vector cache {self.path}") from exc

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        conn: sqlite3.Connection | None = None
        try:
            conn = self._connect()
            whose = conn.execute("PRAGMA application_id").fetchone()[0]
            pages = conn.execute("PRAGMA page_count").fetchone()[0]
            if whose == _APPLICATION_ID or pages == 0:
                self._prepare(conn)
                return conn
        except sqlite3.DatabaseError as exc:
            damaged = exc.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            if not damaged:
                if conn is not None:
                    conn.close()
                raise
        if conn is not None:
            conn.close()
        # Nothing in it is worth a question: every vector can be made again.
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._tell(f"memory: the vector cache {self.path} was damaged; it is made anew")
        conn = self._connect()
        self._prepare(conn)
        return conn

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60.0, check_same_thread=False, isolation_level=None)

    @staticmethod
    def _prepare(conn: sqlite3.Connection) -> None:
        conn.execute("PRAGMA journal_mode=WAL")
        conn.execute("PRAGMA synchronous=NORMAL")
        conn.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        conn.execute(_TABLE)
