"""Runs decks on layouts: one interface, three backends, results kept by content.

| backend | what it is | what it needs |
|---|---|---|
| ``strmrun`` | KLayout's own engine in a server that forks a child per deck, in the sandbox | an installed KLayout |
| ``klayout`` | a process of the application per run, in the sandbox, as everybody does it | an installed KLayout |
| ``py`` | a strict interpreter for a part of the language, in our own process | the ``klayout`` wheel |
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Protocol

from orienteer.environments.execution import Sandbox, open_sandbox
from orienteer.environments.execution.sandbox import cancelled
from orienteer.environments.execution.session import SandboxFault
from orienteer.environments.layout import finding, ruby_engine
from orienteer.environments.layout.cache import ResultCache
from orienteer.environments.layout.finding import Installation
from orienteer.environments.layout.rdb import write_whole
from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.environments.layout.shelf import LayoutShelf, Shelved
from orienteer.environments.layout.strmrun import Answer, Server, ServerDied, Servers
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.memory.home import home as home_folder

log = logging.getLogger(__name__)

BACKENDS = ("auto", "strmrun", "klayout", "py")
Isolate = Literal["deck", "run"]
#: What one deck may take beside the loaded layout, MiB.
MEMORY_MB = 2048
#: So many deaths of a server that nothing can be blamed for end a request.
_STRIKES = 2


class DeckRunner(Protocol):
    """Runs decks on layouts. Thread-safe; also a context manager."""

    #: ``strmrun``, ``klayout`` or ``py``.
    name: str
    #: KLayout's version, for example ``0.28.5``.
    version: str
    #: Why it is this one, in one line.
    why: str

    def run(
        self,
        deck: str,
        layouts: Sequence[Path],
        *,
        geometry: bool = False,
        reports: Sequence[Path | None] | None = None,
    ) -> list[DeckResult]:
        """Run a deck on each layout; a result per layout, never an exception for what deck or layout do.

        Args:
            deck: its text.
            layouts: files; the deck finds each as ``$input``.
            geometry: whether the shapes are wanted besides the counts.
            reports: where to write the report databases; None for none.

        Raises:
            UsageError: a report cannot be written.
            Interrupted: the runner's ``cancel`` was set.
        """
        ...

    def run_many(
        self, decks: Sequence[str], layouts: Sequence[Path], *, geometry: bool = False
    ) -> list[list[DeckResult]]:
        """Run each deck on each layout, several at one time where the backend can; ``[deck][layout]``."""
        ...

    def close(self) -> None:
        """End what the backend holds."""
        ...


def open_runner(
    backend: str = "auto",
    *,
    sandbox: str = "auto",
    allow_unsafe: bool = False,
    timeout_s: float = 120.0,
    isolate: Isolate = "deck",
    home: Path | None = None,
    cache: bool = True,
    workers: int = 1,
    cancel: threading.Event | None = None,
) -> DeckRunner:
    """Return a runner of decks.

    ``auto`` takes ``strmrun`` where an installed KLayout can do it and a sandbox works, else ``py``.

    Args:
        backend: ``auto``, ``strmrun``, ``klayout`` or ``py``.
        sandbox: ``auto``, ``bwrap``, ``docker`` or ``process``.
        allow_unsafe: whether ``process``, which isolates nothing, will do.
        timeout_s: wall clock of one run.
        isolate: ``deck``: one process runs a deck on all layouts of a request, so that a deck could carry state from one
            layout to the next; ``run``: a fresh process for each run, about three times as expensive.
        home: Orienteer's folder; default as everywhere.
        cache: whether results are kept and used again.
        workers: decks at one time.
        cancel: when set, what runs is killed and :class:`~orienteer.errors.Interrupted` raised.

    Raises:
        UsageError: there is no such backend or sandbox, or a number makes no sense.
        MissingPrerequisite: the backend does not work here; the cure says what to install.
    """
    if backend not in BACKENDS:
        raise UsageError(f"unknown backend {backend!r}", f"choose one of {', '.join(BACKENDS)}")
    if isolate not in ("deck", "run"):
        raise UsageError(f"unknown isolation {isolate!r}", "choose deck or run")
    if not 0 < timeout_s <= 86400 or workers < 1:
        raise UsageError("a time-out is between 0 and 86400 seconds, and workers are 1 or more", "correct the number")
    place = home_folder(home).path
    why = f"asked for {backend}"
    if backend == "auto":
        backend, why = choose(place, sandbox, allow_unsafe)
    store = ResultCache(place / "cache" / "decks.sqlite", log.warning) if cache else None
    if backend == "py":
        return _py(why, timeout_s, store, workers, cancel)
    installation = finding.find()
    engine = ruby_engine.engine(installation, place / "cache") if backend == "strmrun" else None
    if engine is not None and installation.strmrun is None:
        raise MissingPrerequisite("this KLayout has no strmrun", "use --backend py or --backend klayout")
    walls = open_sandbox(sandbox, allow_unsafe=allow_unsafe)
    if engine is None:
        from orienteer.environments.layout.klayout_process import ProcessRunner

        return ProcessRunner(installation, walls, why, timeout_s, store, workers, cancel)
    return StrmrunRunner(installation, engine, walls, why, timeout_s, isolate, store, workers, cancel)


def choose(home: Path, sandbox: str = "auto", allow_unsafe: bool = False) -> tuple[str, str]:
    """Return the backend that ``auto`` takes here and why, in one line."""
    try:
        installation = finding.find()
        if installation.strmrun is None:
            raise MissingPrerequisite(f"KLayout {installation.version} has no strmrun")
        ruby_engine.engine(installation, home / "cache")
        open_sandbox(sandbox, allow_unsafe=allow_unsafe).close()
    except MissingPrerequisite as error:
        return "py", f"py: the embedded interpreter, since {error.problem}"
    return "strmrun", f"strmrun: the engine of the installed KLayout {installation.version}"


def _py(
    why: str, timeout_s: float, store: ResultCache | None, workers: int, cancel: threading.Event | None
) -> DeckRunner:
    try:
        from orienteer.environments.layout.py_runner import PyRunner
    except ImportError as error:
        raise MissingPrerequisite(
            f"the embedded deck interpreter is not there ({error.name})", "pip install 'orienteer[drc]'"
        ) from None
    raise MissingPrerequisite(f"{PyRunner} is not joined on yet", "use --backend strmrun")


class _Base:
    """What the two backends with an installed KLayout share: copies of layouts, kept results, workers."""

    name = ""

    def __init__(
        self,
        installation: Installation,
        sandbox: Sandbox,
        why: str,
        timeout_s: float,
        store: ResultCache | None,
        workers: int,
        cancel: threading.Event | None,
    ) -> None:
        self.version = installation.version
        self.why = why
        self.isolation = sandbox.isolation
        self._installation = installation
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._store = store
        self._check = cancelled(cancel)
        self._layouts = LayoutShelf(passable=sandbox.name == "docker")
        self._workers = workers

    def run(
        self,
        deck: str,
        layouts: Sequence[Path],
        *,
        geometry: bool = False,
        reports: Sequence[Path | None] | None = None,
    ) -> list[DeckResult]:
        """Run a deck on each layout; see :class:`DeckRunner`."""
        if reports is not None and len(reports) != len(layouts):
            raise UsageError(f"{len(reports)} report files for {len(layouts)} layouts", "give one for each, or None")
        pieces = [layouts]
        if self._workers > 1 and len(layouts) > 1 and reports is None:
            size = -(-len(layouts) // self._workers)
            pieces = [layouts[start : start + size] for start in range(0, len(layouts), size)]
        return sum(self._all([(deck, piece, geometry, reports) for piece in pieces]), [])

    def run_many(
        self, decks: Sequence[str], layouts: Sequence[Path], *, geometry: bool = False
    ) -> list[list[DeckResult]]:
        """Run each deck on each layout; see :class:`DeckRunner`."""
        if len(decks) < self._workers:
            return [self.run(deck, layouts, geometry=geometry) for deck in decks]
        return self._all([(deck, layouts, geometry, None) for deck in decks])

    def close(self) -> None:
        """End what runs and remove the copies."""
        if self._store is not None:
            self._store.close()
        self._layouts.close()
        self._sandbox.close()

    def __enter__(self) -> DeckRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _all(
        self, jobs: Sequence[tuple[str, Sequence[Path], bool, Sequence[Path | None] | None]]
    ) -> list[list[DeckResult]]:
        if len(jobs) == 1 or self._workers == 1:
            return [self._one(*job) for job in jobs]
        with ThreadPoolExecutor(self._workers, thread_name_prefix="orienteer-decks") as pool:
            return list(pool.map(lambda job: self._one(*job), jobs))

    def _one(
        self, deck: str, layouts: Sequence[Path], geometry: bool, reports: Sequence[Path | None] | None
    ) -> list[DeckResult]:
        """Run one deck: look up what is known, run each content once, keep what holds."""
        self._check()
        results: dict[int, DeckResult] = {}
        shelved: dict[int, Shelved] = {}
        in_use: set[str] = set()
        for place, layout in enumerate(layouts):
            try:
                shelved[place] = self._layouts.put(Path(layout), in_use)
            except OSError as error:
                message = f"the layout cannot be read: {error.strerror or error}"
                results[place] = self._failed(RunStatus.BAD_LAYOUT, message)
        if not deck.strip() or "\0" in deck:
            what = "the deck is empty" if not deck.strip() else "the deck has a zero byte in it"
            return [results.get(place, self._failed(RunStatus.ERROR, what)) for place in range(len(layouts))]
        wanted = {place: reports[place] if reports else None for place in shelved}
        keys = {place: self._key(deck, kept.sha256, geometry) for place, kept in shelved.items()}
        known = self._store.get(list(keys.values())) if self._store else {}
        places: dict[bytes, list[int]] = {}
        for place, key in keys.items():
            if key in known and wanted[place] is None:
                results[place] = known[key]
            else:
                places.setdefault(key, []).append(place)
        if places:
            firsts = [places[key][0] for key in places]
            report = any(path is not None for path in wanted.values())
            fresh: dict[bytes, DeckResult] = {}
            for answer in self._execute(deck, [shelved[place] for place in firsts], geometry, report):
                key = keys[firsts[answer.index]]
                fresh[key] = answer.result
                for place in places[key]:
                    results[place] = answer.result
                    path = wanted[place]
                    if path is not None and answer.result.ok:
                        write_whole(Path(path), answer.report)
            if self._store:
                self._store.put(fresh)
        lost = self._failed(RunStatus.MACHINERY, "the run was lost")
        return [results.get(place, lost) for place in range(len(layouts))]

    def _key(self, deck: str, sha: str, geometry: bool) -> bytes:
        return ResultCache.key(deck, sha, self.version, self._kind(), geometry)

    def _kind(self) -> str:
        """Return what decides the result besides deck, layout and version."""
        return self.name

    def _failed(self, status: RunStatus, message: str) -> DeckResult:
        return DeckResult(status, message=message, backend=self.name, version=self.version)

    def _execute(self, deck: str, layouts: Sequence[Shelved], geometry: bool, report: bool) -> Sequence[Answer]:
        raise NotImplementedError


class StrmrunRunner(_Base):
    """KLayout's engine in servers that fork a child per deck (or per run)."""

    name = "strmrun"

    def __init__(
        self,
        installation: Installation,
        engine: Path,
        sandbox: Sandbox,
        why: str,
        timeout_s: float,
        isolate: Isolate,
        store: ResultCache | None,
        workers: int,
        cancel: threading.Event | None,
        memory_mb: int = MEMORY_MB,
    ) -> None:
        super().__init__(installation, sandbox, why, timeout_s, store, workers, cancel)
        self._isolate = isolate
        #: Processor seconds of the servers with all their children; known after :meth:`close`.
        self.servers_cpu_s = 0.0
        self._servers = Servers(
            lambda: Server(installation, engine, sandbox, self._layouts.folder, memory_mb=memory_mb, check=self._check),
            workers,
        )

    def peak_mb(self) -> float | None:
        """Return the largest peak memory of a server with its children, MiB; None where nothing counts it."""
        return self._servers.peak_mb()

    def close(self) -> None:
        """End the servers and remove the copies."""
        self.servers_cpu_s += self._servers.close()
        super().close()

    def _kind(self) -> str:
        return f"{self.name}/{self._isolate}"

    def _execute(self, deck: str, layouts: Sequence[Shelved], geometry: bool, report: bool) -> list[Answer]:
        left = list(range(len(layouts)))
        answers: list[Answer] = []
        strikes = 0
        while left:
            self._check()
            batch = list(left)

            def answered(index: int, result: DeckResult, data: bytes = b"", batch: list[int] = batch) -> None:
                place = batch[index]
                left.remove(place)
                answers.append(Answer(place, result, data))

            try:
                server = self._servers.take()
            except SandboxFault as fault:
                return [*answers, *(Answer(place, self._failed(RunStatus.MACHINERY, str(fault))) for place in left)]
            healthy = False
            try:
                paths = [layouts[place].path for place in batch]
                for answer in server.run(
                    deck, paths, timeout_s=self._timeout_s, isolate=self._isolate, geometry=geometry, report=report
                ):
                    answered(answer.index, answer.result, answer.report)
                healthy = True
                if left:  # the server forgot something
                    strikes += 1
            except ServerDied as death:
                if death.running >= 0:
                    answered(death.running, self._failed(death.status, death.message))
                elif death.loading >= 0:
                    answered(
                        death.loading,
                        self._failed(RunStatus.BAD_LAYOUT, f"reading it ended the server: {death.message}"),
                    )
                else:
                    strikes += 1
                    log.warning("a server of decks ended between runs: %s", death.message)
            finally:
                self._servers.give(server, healthy=healthy)
            if strikes > _STRIKES:
                message = "the server of decks ends again and again"
                return [*answers, *(Answer(place, self._failed(RunStatus.MACHINERY, message)) for place in left)]
        return answers
