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
from pathlib import Path
from typing import Literal, Protocol

from orienteer.environments.execution.sandbox import open_sandbox
from orienteer.environments.layout import finding, ruby_engine
from orienteer.environments.layout.cache import ResultCache
from orienteer.environments.layout.results import DeckResult
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.memory.home import home as home_folder

log = logging.getLogger(__name__)

BACKENDS = ("auto", "strmrun", "klayout", "py")
Isolate = Literal["deck", "run"]


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

    def __enter__(self) -> DeckRunner: ...

    def __exit__(self, *_: object) -> None: ...


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
        isolate: ``deck``: one process runs a deck on all layouts of a request, so that a deck could carry state from
            one layout to the next; ``run``: a fresh process for each run, some six times as expensive.
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
    if backend == "py":
        return _py(why, timeout_s, workers, cancel)
    installation = finding.find()
    if backend == "strmrun" and installation.strmrun is None:
        raise MissingPrerequisite(f"KLayout {installation.version} has no strmrun", "use --backend py or klayout")
    engine = ruby_engine.engine(installation, place / "cache") if backend == "strmrun" else None
    walls = open_sandbox(sandbox, allow_unsafe=allow_unsafe)
    store = ResultCache(place / "cache" / "decks.sqlite", log.warning) if cache else None
    if engine is None:
        from orienteer.environments.layout.klayout_process import ProcessRunner

        return ProcessRunner(installation, walls, why, timeout_s, store, workers, cancel)
    from orienteer.environments.layout.strmrun import StrmrunRunner

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


def _py(why: str, timeout_s: float, workers: int, cancel: threading.Event | None) -> DeckRunner:
    try:
        from orienteer.environments.layout.py_runner import PyRunner

        # Not kept on disk: looking a result up costs as much as a run.
        return PyRunner(timeout_s=timeout_s, why=why, workers=workers, cancel=cancel)
    except ImportError as error:
        problem = f"the embedded interpreter needs {error.name or error}"
        raise MissingPrerequisite(problem, "pip install 'orienteer[drc]'") from None
