"""What an engineer does with decks by hand: run one, compare two, have one explained, look at a report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.drc.layouts import draw_file, in_words
from orienteer.environments.layout.layouts import check_layout
from orienteer.environments.layout.pictures import Panel, draw
from orienteer.environments.layout.results import DeckResult, RunStatus, Violation
from orienteer.environments.layout.runner import DeckRunner, open_runner
from orienteer.errors import UsageError

#: Largest deck that is read, bytes.
_MOST_DECK = 16 << 20


def read_deck(path: Path) -> str:
    """Return a deck's text.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        if not path.is_file():
            raise UsageError(f"{path} is no file", "give a KLayout DRC deck (.drc, .rb, .lydrc)")
        if path.stat().st_size > _MOST_DECK:
            raise UsageError(f"{path} is too large for a deck", "give a KLayout DRC deck (.drc, .rb, .lydrc)")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror or exc}", "give a KLayout DRC deck") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text in UTF-8", "give a KLayout DRC deck (.drc, .rb, .lydrc)") from None
    if path.suffix == ".lydrc" or text.lstrip().startswith("<?xml"):
        return _macro_text(text, path)
    return text


def _macro_text(text: str, path: Path) -> str:
    """Return the script in a KLayout macro file (.lydrc)."""
    import xml.etree.ElementTree as ET

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise UsageError(f"{path} has a document type of its own", "give a macro as KLayout writes it")
    try:
        script = ET.fromstring(text).findtext("text")
    except ET.ParseError as exc:
        raise UsageError(f"{path} is no KLayout macro: {exc}", "give a KLayout DRC deck") from None
    if not script:
        raise UsageError(f"{path} has no script in it", "give a macro as KLayout writes it")
    return script


def check(
    deck: Path,
    layouts: Sequence[Path],
    runner: DeckRunner,
    *,
    report: Path | None = None,
    most_mb: int | None = None,
) -> list[dict[str, Any]]:
    """Run a deck on layouts and return what it reports, one document a layout.

    Args:
        deck, layouts: files.
        runner: who runs it.
        report: where the report database goes; with several layouts a folder.
        most_mb: largest layout, MiB.

    Raises:
        UsageError: the deck cannot be read, or a report cannot be written.
    """
    text = read_deck(deck)
    good: list[Path] = []
    wrong: dict[Path, str] = {}
    for path in layouts:
        try:
            check_layout(path, **({} if most_mb is None else {"most_mb": most_mb}))
            good.append(path)
        except UsageError as exc:
            if len(layouts) == 1:
                raise
            wrong[path] = str(exc)
    reports = _reports(report, good, many=len(layouts) > 1)
    results = dict(zip(good, runner.run(text, good, reports=reports), strict=True)) if good else {}
    places = dict(zip(good, reports, strict=True))
    return [
        _told(path, results[path], places[path])
        if path in results
        else {"layout": str(path), "status": str(RunStatus.BAD_LAYOUT), "message": wrong[path], "counts": {}}
        for path in layouts
    ]


def _reports(report: Path | None, layouts: Sequence[Path], *, many: bool) -> list[Path | None]:
    if report is None:
        return [None] * len(layouts)
    if not many:
        return [report]
    if report.exists() and not report.is_dir():
        raise UsageError(f"{report} is a file", "give a folder for the reports of several layouts")
    report.mkdir(parents=True, exist_ok=True)
    names = [path.name for path in layouts]
    # Two layouts of one name in different folders get a report each.
    return [
        report / (f"{path.stem}.lyrdb" if names.count(path.name) == 1 else f"{number}-{path.stem}.lyrdb")
        for number, path in enumerate(layouts, 1)
    ]


def _told(path: Path, result: DeckResult, report: Path | None) -> dict[str, Any]:
    return {
        "layout": str(path),
        "status": str(result.status),
        "counts": dict(result.counts),
        "violations": sum(result.counts.values()),
        "descriptions": dict(result.descriptions),
        "message": result.message,
        "line": result.line,
        "backend": result.backend,
        "version": result.version,
        "cached": result.cached,
        "report": None if report is None or not result.ok else str(report),
    }


def split(
    first: Path, second: Path, runner: DeckRunner, *, to: Path | None, picture: Path | None, seed: int, most: int
) -> dict[str, Any]:
    """Look for the smallest layout on which two decks report differently.

    Args:
        first, second: decks.
        runner: whose answers count.
        to: where the layout goes.
        picture: where a picture of it goes, both decks' markers side by side.
        seed: of the random layouts that are tried last.
        most: layouts looked at at most.
    """
    from orienteer.evaluators.drc.probing import smallest_difference

    one, two = read_deck(first), read_deck(second)
    with tempfile.TemporaryDirectory(prefix="orienteer-split-") as folder:
        found, tried = smallest_difference(one, two, runner, Path(folder), seed=seed, most=most)
        if found is None:
            return {"differs": False, "tried": tried, "backend": runner.name, "version": runner.version}
        layout = draw_file(found.pattern, to or Path(folder) / "split.gds")
        results = {str(first): found.first, str(second): found.second}
        if picture is not None:
            panels = [Panel(_title(Path(name), r), _all(r)) for name, r in results.items()]
            _write(picture, draw(layout, panels))
        return {
            "differs": True,
            "tried": tried,
            "backend": runner.name,
            "version": runner.version,
            "about": found.pattern.about,
            "shapes": in_words(layout, {}),
            "layout": None if to is None else str(to),
            "picture": None if picture is None else str(picture),
            "decks": [
                {"deck": name, "status": str(r.status), "counts": dict(r.counts), "message": r.message}
                for name, r in results.items()
            ],
        }


def explain(deck: Path) -> dict[str, Any]:
    """Return a deck in an engineer's words.

    Raises:
        UsageError: the deck is not one of the subset that is understood; the message names the line.
    """
    from orienteer.environments.layout.dsl.explain import explain as in_lines
    from orienteer.environments.layout.dsl.parser import parse

    return {"deck": str(deck), "lines": in_lines(parse(read_deck(deck)))}


def view(
    layout: Path, reports: Sequence[Path], picture: Path, *, categories: Sequence[str], width: int, height: int
) -> int:
    """Draw a layout with the violations of reports, one panel a report; return how many violations are marked.

    Raises:
        UsageError: something cannot be read or written, or a category is in none of the reports.
    """
    from orienteer.environments.layout.rdb import read_report

    check_layout(layout)
    panels = []
    known: set[str] = set()
    for path in reports:
        report = read_report(path, geometry=True)
        found = report.violations or {}
        known |= set(found) | set(report.counts)
        marks = [v for name, shapes in found.items() if not categories or name in categories for v in shapes]
        panels.append(Panel(f"{path.name}: {len(marks)}", marks))
    for name in categories:
        if known and name not in known:
            raise UsageError(f"no report has a category {name!r}", f"there are: {', '.join(sorted(known)) or 'none'}")
    _write(picture, draw(layout, panels or [Panel(layout.name)], width=width, height=height))
    return sum(len(panel.violations) for panel in panels)


def runner_for(backend: str, sandbox: str, allow_unsafe: bool, timeout: float, isolate: Any, home: Path) -> DeckRunner:
    """Open what runs decks for a command."""
    return open_runner(
        backend,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
        timeout_s=timeout,
        isolate=isolate,
        home=home,
        workers=os.cpu_count() or 1,
    )


def _title(path: Path, result: DeckResult) -> str:
    flagged = ", ".join(f"{name} {count}" for name, count in result.counts.items() if count)
    return f"{path.name}: {flagged or ('nothing' if result.ok else str(result.status))}"


def _all(result: DeckResult) -> list[Violation]:
    return [violation for shapes in (result.violations or {}).values() for violation in shapes]


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as exc:
        raise UsageError(f"{path} cannot be written: {exc.strerror or exc}", "give another file") from None
