"""The run database: one SQLite file in WAL mode by default, or any database that SQLAlchemy can address.

Rules that the rest of the house relies on:

- a file is made whole (built beside its name and linked into place) and carries our application id; an empty, foreign,
  corrupt or newer file is refused with one line, never "repaired";
- every writing transaction begins with ``BEGIN IMMEDIATE``: one that starts by reading and then writes would fail at
  once under a second writer, in spite of the busy time-out;
- a copy is made by :meth:`RunDB.backup` only: copying the file loses what is still in its ``-wal``.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, make_url, text
from sqlalchemy import exc as sa

from orienteer.errors import StoreError
from orienteer.memory.faults import from_database, from_os
from orienteer.memory.home import expanded
from orienteer.memory.schema import APPLICATION_ID, SCHEMA_VERSION

if TYPE_CHECKING:
    from sqlalchemy import Table

#: How long a writer waits for another process (seconds), unless the variable says otherwise.
BUSY_TIMEOUT = 60.0
TIMEOUT_VARIABLE = "ORIENTEER_DB_TIMEOUT"
#: One turn of waiting (milliseconds), and all that is waited after somebody asked to stop (seconds).
_TURN_MS = 100
_LAST_PATIENCE = 0.3


class RunDB:
    """A run database that is open and of the right schema.

    Args:
        url_or_path: a SQLAlchemy URL (``postgresql+psycopg://...``, ``sqlite:////path``) or the path of an SQLite file,
            which is made when it is not there.
        timeout: seconds to wait for a lock that another process holds; None: ``$ORIENTEER_DB_TIMEOUT``, else a minute.
        create: make the file or the tables where there are none.
        readonly: open an SQLite file for reading only (a copy on a read-only disk, another person's file).

    Raises:
        StoreError: the database is locked, read-only, full, corrupt, empty, foreign or of a newer schema.
    """

    def __init__(
        self, url_or_path: str | Path, *, timeout: float | None = None, create: bool = True, readonly: bool = False
    ) -> None:
        self.url = _url(url_or_path)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        self.file = Path(self.url.database) if self.sqlite and self.url.database else None
        self.what = f"the run database {self.file}" if self.file else f"the run database {self.url!r}"
        self._timeout = _patience() if timeout is None else timeout
        self._readonly = readonly
        #: Set by whoever uses the database: once it is set nobody waits for another process's lock any more.
        self.cancel: threading.Event | None = None
        self._hurry: float | None = None
        # SQLite lets one writer in at a time. Waiting for a lock of our own costs nothing; waiting for SQLite's means
        # sleeping and trying again.
        self._writing = threading.RLock() if self.sqlite else contextlib.nullcontext()
        if self.sqlite and self.file is None:
            raise StoreError("a run database in memory cannot be resumed", "give the path of a file")
        if self.file is not None and not self.file.exists():
            if not create or readonly:
                raise StoreError(f"{self.what} does not exist", "start a run, or set ORIENTEER_HOME to where it is")
            self._build_file(self.file)
        self.engine = self._engine(self.url)
        try:
            with self._translated():
                self._check(create)
            self._opened = _identity(self.file)
        except BaseException:
            self.engine.dispose()
            raise

    # -- transactions -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection in one consistent reading transaction."""
        with self._translated(), self.engine.connect() as conn:
            yield conn

    @contextlib.contextmanager
    def write(self, *, durable: bool = False) -> Iterator[Connection]:
        """Give a connection in one writing transaction: committed at the end, rolled back on any exception.

        Args:
            durable: wait until the commit, and all before it, would survive a power cut. Without it a killed process
                loses nothing, a power cut perhaps the last moments; the database is whole in any case.
        """
        with self._translated(), self._writing, (self._durable if durable else self._writer).begin() as conn:
            yield conn

    def insert_new(self, conn: Connection, table: Table, rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
        """Insert the rows whose ``key`` is not there yet; leave the others as they are."""
        if not rows:
            return
        if self.sqlite:
            from sqlalchemy.dialects.sqlite import insert as sqlite_insert

            conn.execute(sqlite_insert(table).on_conflict_do_nothing(index_elements=list(key)), rows)
        elif self.url.get_backend_name() == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgres_insert

            conn.execute(postgres_insert(table).on_conflict_do_nothing(index_elements=list(key)), rows)
        else:
            for row in rows:
                with contextlib.suppress(sa.IntegrityError), conn.begin_nested():
                    conn.execute(insert(table), row)

    # -- life -------------------------------------------------------------------------------------------------------

    @property
    def schema_version(self) -> int:
        """The schema version that the database says it has (0: no tables of ours)."""
        with self.read() as conn:
            return _version(conn, self.what)

    def backup(self, target: str | Path) -> Path:
        """Copy an SQLite database, whole and consistent, while others use it.

        Raises:
            StoreError: the target exists or cannot be written, or the database is not SQLite.
        """
        path = Path(target)
        if self.file is None:
            raise StoreError(f"{self.what} is no SQLite file", "use the backup tool of its server")
        if path.exists():
            raise StoreError(f"{path} exists", "choose another name for the backup")
        with self._translated(), self.engine.connect() as conn:
            source: Any = conn.connection.driver_connection
            try:
                copy = sqlite3.connect(path)
                try:
                    source.backup(copy)
                finally:
                    copy.close()
            except sqlite3.Error as exc:
                path.unlink(missing_ok=True)
                raise from_database(exc, f"the backup {path}") from exc
        return path

    def check_place(self) -> None:
        """See that the path still leads to the file that was opened; without effect where there is no file.

        Raises:
            StoreError: the file was deleted, moved or replaced, so that what is written is nowhere to be found.
        """
        if _identity(self.file) != self._opened:
            raise StoreError(
                f"{self.what} was deleted, moved or replaced while it was in use",
                "put it back if it was moved; otherwise what this run recorded is lost, start it again",
            )

    def close(self) -> None:
        """Close all connections. The object must not be used afterwards."""
        self.engine.dispose()

    def __enter__(self) -> RunDB:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.IntegrityError:
            raise  # a bug of ours, not a fault of the store
        except (sa.DBAPIError, sa.TimeoutError, sqlite3.Error) as exc:
            raise from_database(exc, self.what) from exc

    def _engine(self, url: URL) -> Engine:
        if not self.sqlite:
            engine = create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=64)
            self._writer = self._durable = engine
            return engine
        query: dict[str, Any] = {"timeout": self._timeout, "check_same_thread": False}
        if self._readonly:
            assert url.database is not None
            path = Path(url.database)
            options = {"uri": "true", "mode": "ro"}
            if not os.access(path.parent, os.W_OK) and not _has_content(path.with_name(f"{path.name}-wal")):
                # SQLite wants to make its -shm file, which it cannot here; the file alone is the whole database.
                options["immutable"] = "1"
            url = URL.create("sqlite", database=path.as_uri(), query=options)
        engine = create_engine(url, connect_args=query, pool_size=8, max_overflow=64, pool_reset_on_return=None)
        event.listen(engine, "connect", self._prepare)
        self._writer = engine.execution_options(orienteer_begin="BEGIN IMMEDIATE")
        self._durable = engine.execution_options(orienteer_begin="BEGIN IMMEDIATE", orienteer_sync="FULL")
        event.listen(engine, "begin", self._begin)
        return engine

    def _prepare(self, raw: Any, _record: object) -> None:
        # The driver must not begin transactions on its own: ours begin in _begin, with the right kind.
        raw.isolation_level = None
        cursor = raw.cursor()
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.close()

    def _begin(self, conn: Connection) -> None:
        # Straight to the driver: this happens several times in every step of a run.
        raw: Any = conn.connection.driver_connection
        options = conn.get_execution_options()
        sync = options.get("orienteer_sync", "NORMAL")
        try:
            if conn.info.get("sync", "NORMAL") != sync:
                raw.execute(f"PRAGMA synchronous={sync}")
                conn.info["sync"] = sync
            if "orienteer_begin" in options:
                self._begin_writing(raw, options["orienteer_begin"])
            else:
                raw.execute("BEGIN")
        except sqlite3.Error as exc:
            raise sa.OperationalError("BEGIN", None, exc) from exc

    def _begin_writing(self, raw: Any, statement: str) -> None:
        """Wait for the lock in short turns: SQLite's own wait hears nobody who wants to stop."""
        until = time.monotonic() + self._timeout
        raw.execute(f"PRAGMA busy_timeout={min(_TURN_MS, round(self._timeout * 1000))}")
        try:
            while True:
                try:
                    raw.execute(statement)
                    return
                except sqlite3.OperationalError as exc:
                    if exc.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                        raise
                    if time.monotonic() >= self._deadline(until):
                        raise
        finally:
            raw.execute(f"PRAGMA busy_timeout={round(self._timeout * 1000)}")

    def _deadline(self, until: float) -> float:
        if self.cancel is not None and self.cancel.is_set():
            if self._hurry is None:
                self._hurry = time.monotonic() + _LAST_PATIENCE
            return min(until, self._hurry)
        return until

    def _check(self, create: bool) -> None:
        if self.file is not None:
            with self.engine.connect() as conn:
                application = conn.exec_driver_sql("PRAGMA application_id").scalar_one()
                if application != APPLICATION_ID:
                    pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
                    kind = "is empty" if pages == 0 else "belongs to another program"
                    raise StoreError(f"{self.what} {kind}", "move the file away, or name another database")
                version = _version(conn, self.what)
                if not self._readonly:
                    mode = conn.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            if version == SCHEMA_VERSION and not self._readonly and mode != "wal":
                with self.engine.connect() as conn:
                    conn.rollback()
                    conn.connection.driver_connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[union-attr]
        else:
            with self.engine.connect() as conn:
                version = _version(conn, self.what)
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.what} has schema {version}, this version of Orienteer knows {SCHEMA_VERSION}",
                "upgrade Orienteer, or name another database",
            )
        if version < SCHEMA_VERSION:
            self._upgrade(version, create)

    def _upgrade(self, version: int, create: bool) -> None:
        if self._readonly or (version == 0 and not create):
            raise StoreError(f"{self.what} has schema {version}, not {SCHEMA_VERSION}", "open it for writing once")
        if self.file is not None:
            if version == 0:
                raise StoreError(f"{self.what} has no tables of ours", "move the file away, or restore a backup")
            self.backup(self.file.with_name(f"{self.file.name}.schema-{version}-{secrets.token_hex(3)}.bak"))
        with self.write() as conn:
            # Another process may have been faster; look again under the lock.
            if _version(conn, self.what) < SCHEMA_VERSION:
                migrate(conn)

    def _build_file(self, path: Path) -> None:
        """Make a new SQLite file beside ``path`` and link it there, so that nobody ever sees half of one."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            engine = self._engine(URL.create("sqlite", database=str(temporary)))
            try:
                with engine.connect() as conn:
                    conn.rollback()
                    raw: Any = conn.connection.driver_connection
                    raw.execute("PRAGMA auto_vacuum=INCREMENTAL")
                    raw.execute(f"PRAGMA application_id={APPLICATION_ID}")
                with self._durable.begin() as conn:
                    migrate(conn)
                with engine.connect() as conn:
                    conn.rollback()
                    # Last of all: what is in a write-ahead log reaches the file at the closing only, and SQLite does
                    # not say when that fails.
                    conn.connection.driver_connection.execute("PRAGMA journal_mode=WAL")  # type: ignore[union-attr]
            finally:
                engine.dispose()
            with contextlib.suppress(FileExistsError):  # another process made it meanwhile: take that one
                os.link(temporary, path)
        except (sa.DBAPIError, sqlite3.Error) as exc:
            raise from_database(exc, self.what, new=True) from exc
        except OSError as exc:
            raise from_os(exc, self.what) from exc
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with contextlib.suppress(OSError):
                    temporary.with_name(temporary.name + suffix).unlink(missing_ok=True)


def migrate(conn: Connection, target: str = "head") -> None:
    """Bring the database on the other end of the connection to a schema version, inside its transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, target)


def parts(ids: Sequence[str], size: int = 500) -> Iterator[list[str]]:
    """Yield ids in lists that every database takes in one statement."""
    for start in range(0, len(ids), size):
        yield list(ids[start : start + size])


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Return what tells a file from another one of its name; None where there is none."""
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _patience() -> float:
    given = os.environ.get(TIMEOUT_VARIABLE, "").strip()
    if not given:
        return BUSY_TIMEOUT
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 86400:
        raise StoreError(f"{TIMEOUT_VARIABLE}={given!r} is no number of seconds", "set it to for example 10")
    return found


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, str) and "://" in url_or_path:
        try:
            url = make_url(url_or_path)
            url.get_dialect()
        except (sa.ArgumentError, sa.NoSuchModuleError, ImportError) as exc:
            raise StoreError(f"{url_or_path!r} is no database address", f"{exc}") from exc
        if url.get_backend_name() == "sqlite" and url.database and url.database != ":memory:":
            return url.set(database=str(Path(url.database).absolute()))
        return url
    return URL.create("sqlite", database=str(expanded(url_or_path).absolute()))


def _version(conn: Connection, what: str) -> int:
    if conn.dialect.name == "sqlite":
        # One cheap question where the answer is nearly always yes.
        query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
        present = bool(conn.exec_driver_sql(query).scalar_one())
    else:
        present = inspect(conn).has_table("schema_version")
    if not present:
        return 0
    found = conn.execute(text("SELECT version_num FROM schema_version")).scalar()
    if found is None:
        return 0
    if not str(found).isdecimal():
        raise StoreError(f"{what} has the unknown schema {found!r}", "upgrade Orienteer, or name another database")
    return int(found)
