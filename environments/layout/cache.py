"""Results kept on disk by content: the same deck on the same layout by the same KLayout is not run again.

One private SQLite file in the home folder. It can be deleted at any time. Nothing about it stops a run: what cannot be
read is run again, what cannot be written is not kept, and a damaged file is put aside and begun anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orienteer.environments.layout.results import DeckResult, RunStatus, Violation

#: SQLite's application id of this file: "ORTD".
_APPLICATION_ID = 0x4F525444
#: Changes when the same deck on the same layout may give another result: then nothing kept before is used.
_MEANING = 1
#: What the deck and the layout alone decide; a time-out or a crash may go otherwise the next time.
KEPT = (RunStatus.OK, RunStatus.ERROR, RunStatus.REFUSED, RunStatus.NO_REPORT)
#: Larger results are not kept, bytes.
_LARGEST = 4 << 20
_TABLE = "CREATE TABLE IF NOT EXISTS results (key BLOB PRIMARY KEY, result TEXT NOT NULL)"


#: Seconds that another writer is waited for; results can be had again, so that nobody need wait long.
_PATIENCE_S = 2.0


class ResultCache:
    """Results by (deck, layout, version, backend, geometry); safe between threads and processes.

    Args:
        path: the file; made at the first use.
        tell: is told in one line, once, when results cannot be kept.
    """

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        self.path = path
        self._tell = tell
        self._told = False
        self._lock = threading.Lock()
        self._conn: sqlite3.Connection | None = None

    @staticmethod
    def key(deck: str, layout: str, version: str, backend: str, geometry: bool) -> bytes:
        """Return the key of a result.

        Args:
            deck: its text.
            layout: SHA-256 of the file.
            version: KLayout's.
            backend: its name, with whatever else decides the result.
            geometry: whether the shapes are in it.
        """
        parts = [str(_MEANING), hashlib.sha256(deck.encode("utf-8", "replace")).hexdigest(), layout, version, backend]
        return hashlib.sha256("\n".join([*parts, str(geometry)]).encode()).digest()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, DeckResult]:
        """Return what is known."""
        found: dict[bytes, DeckResult] = {}
        with self._using() as conn:
            if conn is None:
                return {}
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                query = f"SELECT key, result FROM results WHERE key IN ({','.join('?' * len(part))})"
                for key, text in conn.execute(query, part):
                    with contextlib.suppress(ValueError, KeyError, TypeError):
                        found[bytes(key)] = replace(_read(json.loads(text)), cached=True, cpu_s=0.0)
        return found

    def put(self, results: Mapping[bytes, DeckResult]) -> None:
        """Keep results whose status says that they hold."""
        rows = [(key, _written(result)) for key, result in results.items() if result.status in KEPT]
        rows = [row for row in rows if len(row[1]) <= _LARGEST]
        if not rows:
            return
        with self._using() as conn:
            if conn is not None:
                conn.execute("BEGIN IMMEDIATE")
                try:
                    conn.executemany("INSERT OR REPLACE INTO results VALUES (?, ?)", rows)
                    conn.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        conn.execute("ROLLBACK")
                    raise

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._conn is not None:
                self._conn.close()
                self._conn = None

    @contextlib.contextmanager
    def _using(self) -> Iterator[sqlite3.Connection | None]:
        """Give the connection; whatever goes wrong with it is told once and otherwise passed over."""
        with self._lock:
            try:
                if self._conn is None:
                    self._conn = self._open()
            except (sqlite3.Error, OSError) as error:
                self._give_up(error)
            try:
                yield self._conn
            except sqlite3.Error as error:
                self._give_up(error)
                if self._conn is not None and _damaged(error):
                    self._conn.close()
                    self._conn = None
                    with contextlib.suppress(OSError):
                        self._put_aside()

    def _give_up(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            self._tell(f"results of decks are not kept: {self.path}: {error}")

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        conn: sqlite3.Connection | None = None
        try:
            conn = self._connect()
            whose = conn.execute("PRAGMA application_id").fetchone()[0]
            pages = conn.execute("PRAGMA page_count").fetchone()[0]
            if whose == _APPLICATION_ID:
                return conn
            if pages == 0:
                return _prepared(conn)
            conn.close()
            raise sqlite3.DatabaseError("a database of something else stands there")
        except sqlite3.DatabaseError as error:
            if conn is not None:
                conn.close()
            if not _damaged(error):
                raise
        self._put_aside()
        return _prepared(self._connect())

    def _put_aside(self) -> None:
        aside = self.path.with_name(f"{self.path.name}.damaged")
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).replace(aside.with_name(aside.name + suffix))
        self._tell(f"the results of decks in {self.path} were damaged; it is begun anew, the old one is {aside.name}")

    def _connect(self) -> sqlite3.Connection:
        conn = sqlite3.connect(self.path, timeout=_PATIENCE_S, check_same_thread=False, isolation_level=None)
        conn.execute("PRAGMA synchronous=NORMAL")
        return conn


def _prepared(conn: sqlite3.Connection) -> sqlite3.Connection:
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute(_TABLE)
    # Last: a file that has it is whole.
    conn.execute(f"PRAGMA application_id={_APPLICATION_ID}")
    return conn


def _damaged(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _written(result: DeckResult) -> str:
    row: dict[str, Any] = {
        "status": str(result.status), "counts": dict(result.counts), "descriptions": dict(result.descriptions),
        "message": result.message, "line": result.line, "backend": result.backend, "version": result.version,
    }  # fmt: skip
    if result.violations is not None:
        row["violations"] = {
            name: [[shape.kind, shape.contours, shape.text] for shape in shapes]
            for name, shapes in result.violations.items()
        }
    return json.dumps(row, separators=(",", ":"))


def _read(row: dict[str, Any]) -> DeckResult:
    violations = None
    if "violations" in row:
        violations = {
            name: tuple(
                Violation(kind, tuple(tuple((x, y) for x, y in contour) for contour in contours), text)
                for kind, contours, text in shapes
            )
            for name, shapes in row["violations"].items()
        }
    return DeckResult(
        RunStatus(row["status"]), row["counts"], violations, row["descriptions"],
        row["message"], row["line"], row["backend"], row["version"],
    )  # fmt: skip
