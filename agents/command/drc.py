"""The commands ``agent drc ...``: decks and layouts by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orienteer.agents.command import options as o
from orienteer.agents.command.output import note, print_json, print_table, say

drc_app = o.group("Run DRC decks on layouts, tell two decks apart, explain one, look at violations.")

Deck = Annotated[Path, typer.Argument(metavar="DECK", help="A KLayout DRC deck.")]
Backend = Annotated[str, typer.Option("--backend", metavar="KIND", help="auto, strmrun, klayout or py.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, metavar="S", help="Seconds of one run of a deck.")]
Isolate = Annotated[
    str, typer.Option("--isolate", metavar="KIND", help="strmrun: a process of its own for each deck, or each run.")
]


@drc_app.command("check")
def drc_check(
    deck: Deck,
    layouts: Annotated[list[Path], typer.Argument(metavar="LAYOUT...", help="GDS or OASIS files.")],
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE|DIR", help="Write .lyrdb reports; a folder for several layouts."),
    ] = None,
    backend: Backend = "auto",
    isolate: Isolate = "deck",
    timeout: Timeout = 120.0,
    max_mb: Annotated[int | None, typer.Option("--max-mb", min=1, metavar="N", help="Largest layout, MiB.")] = None,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Run a deck on layouts. Exit 0: no violation; 1: violations; 3: it did not run on every layout."""
    from orienteer.agents.drc import tools

    with _runner(backend, sandbox, allow_unsafe, timeout, isolate, home) as runner:
        if not json_:
            note(f"{runner.name}, KLayout {runner.version} ({runner.why})")
        found = tools.check(deck, layouts, runner, report=report, most_mb=max_mb)
    if json_:
        print_json({"deck": str(deck), "layouts": found})
    else:
        print_table([row for item in found for row in _rows(item)], widest=100)
    good = all(item["status"] == "ok" for item in found)
    raise typer.Exit(3 if not good else int(any(item["violations"] for item in found)))


def _rows(item: dict[str, Any]) -> list[dict[str, str]]:
    name = Path(item["layout"]).name
    if item["status"] != "ok":
        known = item["message"].startswith("line ")
        where = f"line {item['line']}: " if item.get("line") and not known else ""
        return [{"layout": name, "category": item["status"], "violations": "-", "what": where + item["message"]}]
    rows = [
        {"layout": name, "category": c, "violations": str(n), "what": item["descriptions"].get(c, "")}
        for c, n in item["counts"].items()
    ]
    return rows or [{"layout": name, "category": "(none reported)", "violations": "0", "what": ""}]


@drc_app.command("split")
def drc_split(
    first: Annotated[Path, typer.Argument(metavar="DECK_A", help="A KLayout DRC deck.")],
    second: Annotated[Path, typer.Argument(metavar="DECK_B", help="Another one.")],
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="Write the layout (.gds or .oas).")] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="Draw it, both decks' markers.")] = None,
    most: Annotated[
        int, typer.Option("--most", min=1, max=1_000_000, metavar="N", help="Layouts looked at at most.")
    ] = 2000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random layouts tried last.")] = 0,
    backend: Backend = "auto",
    isolate: Isolate = "deck",
    timeout: Timeout = 120.0,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Find the smallest layout on which two decks report differently. Exit 1 where one was found."""
    from orienteer.agents.drc import tools

    with _runner(backend, sandbox, allow_unsafe, timeout, isolate, home) as runner:
        found = tools.split(first, second, runner, to=to, picture=png, seed=seed, most=most)
    if json_:
        print_json(found)
    elif not found["differs"]:
        how = f"{found['backend']}, KLayout {found['version']}"
        say(f"no difference on {found['tried']} layouts ({how}); this is no proof")
    else:
        say(f"they differ (after {found['tried']} layouts): {found['about']}")
        for line in found["shapes"].splitlines():
            say(f"  {line}")
        for item in found["decks"]:
            flagged = ", ".join(f"{name} {count}" for name, count in item["counts"].items() if count)
            say(f"{item['deck']}: {flagged or item['message'] or 'no violation'}")
        for name in ("layout", "picture"):
            if found[name]:
                say(f"{name}: {found[name]}")
    raise typer.Exit(int(found["differs"]))


@drc_app.command("explain")
def drc_explain(deck: Deck, json_: o.Json = False) -> None:
    """Say in words what a deck checks, on which drawn layers, and what it does not see."""
    from orienteer.agents.drc import tools

    found = tools.explain(deck)
    if json_:
        print_json(found)
    else:
        for line in found["lines"]:
            say(line)


@drc_app.command("view")
def drc_view(
    layout: Annotated[Path, typer.Argument(metavar="LAYOUT", help="A GDS or OASIS file.")],
    reports: Annotated[
        list[Path] | None, typer.Argument(metavar="[REPORT...]", help="Report databases (.lyrdb), a panel each.")
    ] = None,
    png: Annotated[Path, typer.Option("--png", metavar="FILE", help="Where the picture goes.")] = Path("layout.png"),
    category: Annotated[
        list[str] | None, typer.Option("--category", metavar="NAME", help="Only these; may be repeated.")
    ] = None,
    width: Annotated[int, typer.Option("--width", min=64, max=4096, metavar="N", help="Pixels of a panel.")] = 640,
    height: Annotated[int, typer.Option("--height", min=64, max=4096, metavar="N", help="Pixels of a panel.")] = 520,
    json_: o.Json = False,
) -> None:
    """Draw a layout with the violations of reports, without a display."""
    from orienteer.agents.drc import tools

    marked = tools.view(layout, reports or [], png, categories=category or [], width=width, height=height)
    if json_:
        print_json({"picture": str(png), "marked": marked})
    else:
        say(f"{png}: {marked} violations")


def _runner(backend: str, sandbox: str, allow_unsafe: bool, timeout: float, isolate: str, home: str | None) -> Any:
    from orienteer.agents.drc.tools import runner_for
    from orienteer.memory.home import home as place

    return runner_for(backend, sandbox, allow_unsafe, timeout, isolate, place(home).path)
