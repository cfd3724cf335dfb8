"""What a person sees while a run goes on: a live table on a terminal, plain lines otherwise. Always on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TextIO

from orienteer.agents import plainly
from orienteer.agents.runtime.events import Event

if TYPE_CHECKING:
    from rich.live import Live

#: Events that a plain log shows, and how.
_LINES = {
    "run.start": "run {run}: {method}, proposer {proposer}, seed {seed}",
    "run.resume": "run {run}: going on from step {from_step}",
    "step.plan": "step {step}: {asks} asked",
    "proposal.failed": "  {task}: no proposal ({failure}: {message})",
    "proposal.machinery": "  {task}: our machinery failed ({message})",
    "evaluation.machinery": "  {task}: our machinery failed ({message})",
    "evaluation.reused": "  {task}: verdict taken from run {from_run}",
    "budget.blind": "note: {message}",
    "budget.reached": "budget: {message}",
    "checkpoint.rebuilt": "note: the checkpoint was not usable; the run database took its place",
    "method.close_failed": "note: the method could not close what it opened ({message})",
    "task.rejected": "  {task}: rejected ({message})",
    "gate.skipped": "note: the gate {gate} is SKIPPED: {message}",
    "note": "note: {message}",
    "run.cut": "ended at once; go on with: agent runs resume {run}",
    "model.warning": "note: {message}",
}
#: Told even where nothing else is (``--json``).
_ALWAYS = ("note", "gate.skipped", "budget.reached", "budget.blind", "task.rejected", "run.cut", "model.warning")


class Display:
    """Listens to a run's events.

    Args:
        stream: where to write; a terminal gets a live table.
        quiet: show nothing but notes.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._live: Live | None = None
        self._began = time.monotonic()
        self._run = ""
        self._step = 0
        self._rows: dict[str, dict[str, str]] = {}
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Display:
        if self._stream.isatty() and not self._quiet and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            # The result's own table follows on stdout: what was live goes away.
            self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._table)
            self._live.start()
            # Whatever ends us must leave a terminal with a cursor.
            console.show_cursor(True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def pause(self) -> None:
        """Take what is live off the terminal, for somebody to be asked something."""
        if self._live is not None:
            self._live.stop()

    def go_on(self) -> None:
        """Show the course again after :meth:`pause`."""
        if self._live is not None:
            self._live.start()

    def __call__(self, event: Event) -> None:
        """Take one event."""
        facts = {"run": event.run_id, "step": event.step, **event.facts}
        self._run, self._step = event.run_id, event.step
        self._follow(event.kind, facts)
        line = self._line(event.kind, facts)
        if line is None:
            return
        text = line.lstrip(" ")
        line = " " * (len(line) - len(text)) + plainly.clean(text)
        if self._live is not None:
            if event.kind in ("step.plan", "run.start", "proposal.failed"):
                return
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif not self._quiet or event.kind in _ALWAYS:
            print(line, file=self._stream, flush=True)

    def _line(self, kind: str, facts: dict[str, Any]) -> str | None:
        if kind == "evaluation.done":
            if self._live is not None:
                return None
            said = {"ok": "ok", "failed": "rejected", "unknown": "not decided"}.get(facts["status"], facts["status"])
            detail = facts["evidence"] if facts["status"] != "failed" else f"{facts['failure']}: {facts['message']}"
            score = "" if facts["score"] is None else f", score {facts['score']:.6g}"
            return f"  {facts['task']}: {said} ({_short(detail)}{score}, {facts['seconds']:.1f} s)"
        template = _LINES.get(kind)
        if template is None:
            return None
        try:
            return template.format(**{key: _short(value) for key, value in facts.items()})
        except (KeyError, IndexError):
            return None

    def _follow(self, kind: str, facts: dict[str, Any]) -> None:
        task = facts.get("task")
        if task is None:
            return
        row = self._rows.setdefault(str(task), {"state": "", "tries": "0", "detail": ""})
        if kind == "task.ready":
            row["state"] = "ready"
        elif kind == "proposal.done":
            row["state"] = "proposed"
            row["tries"] = str(int(row["tries"]) + 1)
        elif kind == "evaluation.start":
            row["state"] = "evaluating"
        elif kind == "evaluation.done":
            self._counts[facts["status"]] += 1
            row["state"] = facts["status"]
            row["detail"] = (
                facts["evidence"] if facts["status"] != "failed" else f"{facts['failure']}: {facts['message']}"
            )
        elif kind in ("proposal.failed", "evaluation.machinery", "proposal.machinery", "task.rejected"):
            row["state"] = "failed" if kind != "task.rejected" else "rejected"
            row["detail"] = str(facts.get("message", ""))

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        styles = {"ok": "green", "failed": "red", "rejected": "red", "evaluating": "yellow", "unknown": "magenta"}
        seconds = time.monotonic() - self._began
        done = ", ".join(f"{count} {status}" for status, count in sorted(self._counts.items())) or "nothing judged yet"
        table = Table(
            title=f"{self._run}  step {self._step}  {seconds:.0f} s  {done}", title_justify="left", expand=True
        )
        table.add_column("task", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("tries", justify="right", no_wrap=True)
        table.add_column("detail", no_wrap=True, overflow="ellipsis", ratio=1)
        for task, row in self._rows.items():
            state = Text(row["state"], style=styles.get(row["state"], ""))
            table.add_row(Text(plainly.clean(task)), state, row["tries"], Text(_short(row["detail"], 200)))
        return table


def _short(value: Any, most: int = 240) -> Any:
    return plainly.cut(plainly.clean(value), most) if isinstance(value, str) else value
