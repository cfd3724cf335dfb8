"""The ``klayout`` backend: a process of the application for each run, as everybody runs decks. Slow, and the reference.

A run costs one to three processor seconds, nearly all of it the start of the application. It is there for a KLayout
that ``strmrun`` cannot be used with, and to check the other backends against.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from orienteer.environments.execution.limits import ExitCause, Limits
from orienteer.environments.execution.results import ExecResult
from orienteer.environments.layout.ended import NO_REPORT, Answer, death, said_line
from orienteer.environments.layout.installed import InstalledRunner
from orienteer.environments.layout.rdb import read_report
from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.environments.layout.shelf import Shelved
from orienteer.errors import UsageError

DECK = "deck.drc"
_REPORT = "report.lyrdb"
#: What a deck writes to the standard error is kept up to this; more ends it.
_COMPLAINT_BYTES = 16 << 20
# Through a shell for the full path of the working folder: a relative output would land beside the layout.
_COMMAND = f'exec "$0" -b -r {DECK} -rd input="$1" -rd output="$PWD/{_REPORT}" >/dev/null'
_ERROR = re.compile(rf"^ERROR: (?:In {re.escape(DECK)}: )?(.*)$", re.MULTILINE)
_LINE = re.compile(rf"{re.escape(DECK)}:(\d{{1,8}})")
_LIMIT = re.compile(r"bad_alloc|failed to allocate memory|not enough memory|out of memory|can't create Thread", re.I)


class ProcessRunner(InstalledRunner):
    """A process per run."""

    name = "klayout"

    def _execute(self, deck: str, layouts: Sequence[Shelved], geometry: bool, report: bool) -> Sequence[Answer]:
        def one(place: int) -> Answer:
            result, data = self._run(deck, layouts[place], geometry)
            return Answer(place, result, data)

        if self._workers == 1 or len(layouts) == 1:
            return [one(place) for place in range(len(layouts))]
        with ThreadPoolExecutor(self._workers, thread_name_prefix="orienteer-klayout") as pool:
            return list(pool.map(one, range(len(layouts))))

    def _run(self, deck: str, layout: Shelved, geometry: bool) -> tuple[DeckResult, bytes]:
        limits = Limits(
            wall_s=self._timeout_s, memory_mb=self._memory_mb, pids=128, disk_mb=512,
            output_bytes=_COMPLAINT_BYTES, result_mb=512,
        )  # fmt: skip
        ended = self._sandbox.exec(
            ["/bin/sh", "-c", _COMMAND, str(self._installation.program), str(layout.path)],
            files={DECK: deck.encode("utf-8", "replace")},
            binds=[layout.path, *self._installation.folders],
            env=self._installation.environment,
            limits=limits,
            collect=[_REPORT],
            cancel=self._cancel,
        )
        status, message, line = _judged(ended, str(layout.path))
        data = ended.files.get(_REPORT, b"")
        counts, violations, descriptions = {}, None, {}
        if status is RunStatus.OK:
            try:
                found = read_report(data, geometry=geometry)
                counts, violations, descriptions = dict(found.counts), found.violations, dict(found.descriptions)
            except UsageError as error:
                status, message = RunStatus.NO_REPORT, error.problem
        result = DeckResult(
            status, counts, violations, descriptions, message, line, self.name, self.version, ended.cpu_s
        )
        return result, data


def _judged(ended: ExecResult, layout: str) -> tuple[RunStatus, str, int | None]:
    """Return status, message and the deck's line for the way the process ended."""
    if ended.cause is ExitCause.SANDBOX_ERROR:
        return RunStatus.MACHINERY, said_line(ended.error or "the sandbox failed"), None
    if ended.cause is ExitCause.TIMEOUT:
        return RunStatus.TIMEOUT, "the run took longer than its time-out", None
    if ended.cause in (ExitCause.OOM, ExitCause.PIDS, ExitCause.OUTPUT_LIMIT):
        what = {ExitCause.OOM: "memory", ExitCause.PIDS: "processes"}.get(ended.cause, "output")
        return RunStatus.LIMIT, f"more {what} than the sandbox allows", None
    code = ended.returncode or 0
    if code < 0:
        return *death(f"signal {-code}"), None
    if code == 0:
        return (RunStatus.OK, "", None) if _REPORT in ended.files else (RunStatus.NO_REPORT, NO_REPORT, None)
    complaint = ended.stderr.decode("utf-8", "replace")
    said = _ERROR.search(complaint)
    place = _LINE.search(complaint)
    line = int(place.group(1)) if place else None
    if said is None:
        return RunStatus.ERROR, f"the deck ended with exit status {code}", line
    message = said_line(said.group(1))
    if layout in message and message.endswith("in Layout::read"):
        return RunStatus.BAD_LAYOUT, message, None
    return (RunStatus.LIMIT if _LIMIT.search(message) else RunStatus.ERROR), message, line
