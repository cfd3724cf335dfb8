"""The ``py`` backend: the embedded interpreter, with nothing but the ``klayout`` wheel.

Small layouts are run in this process: a run takes well under a millisecond. klayout.db cannot be stopped within an
operation, so whatever is not small, or grows while a deck runs, goes to a process of its own, which is killed when the
time-out passes and whose memory the system limits.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import select
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orienteer.environments.layout.dsl import worker
from orienteer.environments.layout.dsl.engine import Source
from orienteer.environments.layout.dsl.interpreter import Interpreter, failed
from orienteer.environments.layout.dsl.interpreter import supported as supported
from orienteer.environments.layout.dsl.plan import Guard, TooLarge
from orienteer.environments.layout.dsl.tree import Program, Refusal
from orienteer.environments.layout.rdb import write_report
from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.errors import Interrupted, UsageError

log = logging.getLogger(__name__)

#: A layout is small when it cannot hold more corner points than this, every placed cell counted.
SMALL_POINTS = 8000
#: A point of an uncompressed GDS file takes eight bytes.
_POINT_BYTES = 8
#: An uncompressed GDS file begins with a header record of six bytes. Others can unfold to any size when they are read.
_GDS = b"\x00\x06\x00\x02"
#: Largest layout file, MiB.
MOST_MB = 4096
#: What the process for large layouts may take beside six times the file, MiB.
MEMORY_MB = 3072
#: Small layouts kept open.
_OPEN = 512


class PyRunner:
    """Runs decks by the embedded interpreter. Thread-safe; a context manager.

    Args:
        timeout_s: wall clock of one run.
        why: why this backend, in one line.
        workers: taken for the sake of the other backends; one process runs the large layouts.
        cancel: when set, a run ends with ``Interrupted``.
        like: the version of KLayout whose checks are followed where shapes meet in a point (docs/deck-subset.md); empty
            for the wheel's own.
    """

    name = "py"

    def __init__(
        self,
        *,
        timeout_s: float = 120.0,
        why: str = "asked for py",
        workers: int = 1,
        cancel: threading.Event | None = None,
        like: str = "",
    ) -> None:
        import klayout.db

        self.version: str = klayout.db.__version__
        self.why = why
        self.timeout_s = timeout_s
        self._cancel = cancel
        self._lock = threading.RLock()
        self._like = like
        self._interpreter = Interpreter(like)
        self._open: OrderedDict[str, Source] = OrderedDict()
        self._process: _Process | None = None

    def __enter__(self) -> PyRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process for large layouts, and forget all layouts."""
        with self._lock:
            self._open.clear()
            if self._process is not None:
                self._process.close()
                self._process = None

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
            layouts: files.
            geometry: whether the shapes are wanted besides the counts.
            reports: where to write the report databases; None for none.

        Raises:
            UsageError: a report cannot be written.
            Interrupted: ``cancel`` was set.
        """
        if reports is not None and len(reports) != len(layouts):
            raise UsageError("as many reports as layouts are needed", "give one path, or None, for each layout")
        made: list[DeckResult] = []
        for index, layout in enumerate(layouts):
            report = reports[index] if reports is not None else None
            result = self._runs([deck], Path(layout), geometry or report is not None)[0]
            if report is not None and result.ok and result.violations is not None:
                write_report(Path(report), result.violations, title=self._title(deck), descriptions=result.descriptions)
            made.append(result if geometry else replace(result, violations=None))
        return made

    def run_many(
        self, decks: Sequence[str], layouts: Sequence[Path], *, geometry: bool = False
    ) -> list[list[DeckResult]]:
        """Run each deck on each layout; ``[deck][layout]``. A layer that several decks derive is computed once."""
        columns = [self._runs(decks, Path(layout), geometry) for layout in layouts]
        return [[column[index] for column in columns] for index in range(len(decks))]

    # --- one layout ---------------------------------------------------------------------------------------------------

    def _title(self, deck: str) -> str:
        program = self._interpreter.program(deck)
        plan = self._interpreter.plan(program, 0.001) if isinstance(program, Program) else None
        return getattr(plan, "title", None) or "DRC"

    def _runs(self, decks: Sequence[str], path: Path, geometry: bool) -> list[DeckResult]:
        if self._cancel is not None and self._cancel.is_set():
            raise Interrupted("cancelled")
        with self._lock:
            made: list[DeckResult | None] = []
            source, wrong = self._source(path)
            for deck in decks:
                program = self._interpreter.program(deck)
                if isinstance(program, Refusal):
                    made.append(self._named(failed(program)))
                elif wrong is not None:
                    made.append(wrong)
                elif source is None:
                    made.append(None)
                else:
                    made.append(self._here(program, source, geometry))
            if source is not None:
                # What the decks derived holds for this call: kept for ever it would grow with every new deck.
                source.known.clear()
            later = [index for index, result in enumerate(made) if result is None]
            if later:
                results = self._elsewhere([decks[index] for index in later], path, geometry)
                for index, result in zip(later, results, strict=True):
                    made[index] = result
            return [result for result in made if result is not None]

    def _here(self, program: Program, source: Source, geometry: bool) -> DeckResult | None:
        """Run in this process; None where it gets too large for that."""
        start = time.process_time()
        try:
            result = self._interpreter.run(program, source, geometry=geometry, guard=Guard())
        except TooLarge:
            source.known.clear()
            return None
        return self._named(result, time.process_time() - start)

    def _named(self, result: DeckResult, cpu_s: float | None = None) -> DeckResult:
        cpu = result.cpu_s if cpu_s is None else cpu_s
        return replace(result, backend=self.name, version=self.version, cpu_s=cpu)

    def _source(self, path: Path) -> tuple[Source | None, DeckResult | None]:
        """Open a layout: here where it is small, or say why it cannot be."""
        try:
            if not path.is_file():
                raise OSError("no such file")
            if path.stat().st_size > MOST_MB << 20:
                return None, self._bad(f"larger than {MOST_MB} MiB")
            with path.open("rb") as file:
                data = file.read(SMALL_POINTS * _POINT_BYTES + 1)
        except OSError as error:
            return None, self._bad(str(error.strerror or error))
        if not data:
            return None, self._bad("the file is empty")
        if len(data) > SMALL_POINTS * _POINT_BYTES or not data.startswith(_GDS):
            return None, None
        sha = hashlib.sha256(data).hexdigest()
        found = self._open.get(sha)
        if found is not None:
            self._open.move_to_end(sha)
            return found, None
        from klayout import db

        layout = db.Layout()
        try:
            layout.read_bytes(data)
        except RuntimeError as error:
            return None, self._bad(worker.short(error))
        if len(data) // _POINT_BYTES * _most_placed(layout) > SMALL_POINTS:
            return None, None
        source = self._open[sha] = Source(layout)
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)
        return source, None

    def _bad(self, why: str) -> DeckResult:
        return self._named(DeckResult(RunStatus.BAD_LAYOUT, message=f"the layout cannot be read: {why}"))

    # --- the process for large layouts --------------------------------------------------------------------------------

    def _elsewhere(self, decks: Sequence[str], path: Path, geometry: bool) -> list[DeckResult]:
        made: list[DeckResult] = []
        while len(made) < len(decks):
            if self._process is None or not self._process.alive():
                try:
                    memory = MEMORY_MB + 6 * (path.stat().st_size >> 20)
                except OSError as error:
                    gone = DeckResult(RunStatus.BAD_LAYOUT, message=f"{path} cannot be read: {error.strerror or error}")
                    return made + [self._named(gone)] * (len(decks) - len(made))
                self._process = _Process(memory)
            results, why = self._process.ask(
                decks[len(made) :], path, geometry, self._like, self.timeout_s, self._cancel
            )
            made += [self._named(result) for result in results]
            if len(made) < len(decks) and why is not None:
                made.append(self._named(why))
        return made


def _most_placed(layout: Any) -> int:
    """Return how often the most often placed cell is placed below a top cell, each array's members counted."""
    if layout.cells() == 1:
        return 1
    placed: dict[int, int] = {}
    most = 1
    for index in layout.each_cell_top_down():
        times = placed.setdefault(index, 1)
        most = max(most, times)
        for instance in layout.cell(index).each_inst():
            members = max(1, instance.na) * max(1, instance.nb)
            placed[instance.cell_index] = placed.get(instance.cell_index, 0) + times * members
    return most


class _Process:
    """The process for large layouts."""

    def __init__(self, memory_mb: int) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            worker.command(memory_mb),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=worker.environment(),
            start_new_session=True,
        )
        self._rest = b""

    def alive(self) -> bool:
        """Say whether it still runs."""
        return self._process.poll() is None

    def ask(
        self,
        decks: Sequence[str],
        path: Path,
        geometry: bool,
        like: str,
        timeout_s: float,
        cancel: threading.Event | None,
    ) -> tuple[list[DeckResult], DeckResult | None]:
        """Run decks on a layout.

        Returns:
            the results so far, and why there are no more: the run after them timed out or killed the process.
        """
        request = json.dumps({"layout": str(path.resolve()), "decks": list(decks), "geometry": geometry, "like": like})
        assert self._process.stdin is not None
        made: list[DeckResult] = []
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
            while len(made) < len(decks):
                line = self._line(timeout_s, cancel)
                if line is None:
                    self.close()
                    return made, DeckResult(RunStatus.TIMEOUT, message=f"longer than {timeout_s:g} s")
                made.append(worker.read(json.loads(line)))
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            code = self._ended()
            self.close()
            if code == 1:
                log.debug("deck process: %s", error)
                return made, DeckResult(RunStatus.MACHINERY, message="the process that runs large layouts failed")
            return made, DeckResult(RunStatus.CRASH, message=f"the process running the deck died ({code})")
        return made, None

    def _line(self, timeout_s: float, cancel: threading.Event | None) -> bytes | None:
        """Return the next line; None when the time is up."""
        assert self._process.stdout is not None
        end = time.monotonic() + timeout_s
        stream = self._process.stdout.fileno()
        pieces = [self._rest]
        while b"\n" not in pieces[-1]:
            if cancel is not None and cancel.is_set():
                self.close()
                raise Interrupted("cancelled")
            left = end - time.monotonic()
            if left <= 0:
                return None
            if select.select([stream], [], [], min(left, 0.5))[0]:
                data = os.read(stream, 1 << 20)
                if not data:
                    raise EOFError
                pieces.append(data)
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return line

    def _ended(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(2)
        return None

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
