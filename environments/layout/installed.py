"""What the two backends with an installed KLayout share: copies of layouts, kept results, workers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orienteer.environments.execution.sandbox import Sandbox, cancelled
from orienteer.environments.layout.cache import ResultCache
from orienteer.environments.layout.ended import Answer
from orienteer.environments.layout.finding import Installation
from orienteer.environments.layout.rdb import write_whole
from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.environments.layout.shelf import LayoutShelf, Shelved
from orienteer.errors import UsageError

#: What one deck may take beside the loaded layout, MiB.
MEMORY_MB = 2048


class InstalledRunner:
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
        memory_mb: int = MEMORY_MB,
    ) -> None:
        self.version = installation.version
        self.why = why
        self.isolation = sandbox.isolation
        self._installation = installation
        self._sandbox = sandbox
        self._timeout_s = timeout_s
        self._store = store
        self._cancel = cancel
        self._check = cancelled(cancel)
        self._memory_mb = memory_mb
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
        parts = self._all([(deck, piece, geometry, reports) for piece in pieces])
        return [result for part in parts for result in part]

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

    def __enter__(self) -> InstalledRunner:
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
