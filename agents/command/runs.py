"""Driving a run and showing how it ended; the commands ``agent runs ...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orienteer.agents.command import now
from orienteer.agents.command import options as o
from orienteer.agents.command.asking import asker
from orienteer.agents.command.output import evaluations as in_words
from orienteer.agents.command.output import note, print_json, print_report, print_run, print_table, say
from orienteer.errors import OrienteerError

if TYPE_CHECKING:
    from orienteer.agents.runtime.config import RunReport
    from orienteer.agents.runtime.events import Event
    from orienteer.agents.runtime.method import Method
    from orienteer.agents.runtime.session import AskSomebody

_NOT_PROVEN = "not everything is proven: exit status 1 (--strict)"
runs_app = o.group("List, show, report, resume, export, stop and remove runs.")


def drive(
    go: Callable[[Callable[[Event], None], AskSomebody | None], RunReport],
    json_: bool,
    kind: type[Method] | None,
    strict: bool = False,
) -> NoReturn:
    """Drive a run, show its course, print its report and leave with its exit status.

    Args:
        go: starts or resumes it, given who listens and whom to ask.
        json_: print one JSON document.
        kind: the method's class; None: find it by the report.
        strict: the exit status is 1 unless everything is proven.
    """
    from orienteer.agents.runtime.display import Display

    with Display(quiet=json_) as display:

        def listen(event: Event) -> None:
            now.run_id = event.run_id
            display(event)

        report = go(listen, asker(display))
    kind = kind or _method(report.method)
    failed = strict and not _proven(kind, report.result)
    exit_code = report.exit_code or int(failed)
    if json_:
        print_json(
            {
                "run": report.id,
                "status": report.status,
                "reason": report.reason,
                "exit_code": exit_code,
                "method": report.method,
                "seed": report.provenance.get("seed"),
                "result": report.result,
                "best": report.best,
                "counts": report.counts,
                "provenance": report.provenance,
                "folder": str(report.folder),
            }
        )
    else:
        print_report(report, kind)
    if failed:
        note(_NOT_PROVEN)
    raise typer.Exit(exit_code)


def _proven(kind: type[Method] | None, result: dict[str, Any]) -> bool:
    return kind is None or kind.proven(result)


def _method(name: str) -> type[Method] | None:
    from orienteer.agents.runtime import registry

    try:
        return registry.find(name)
    except OrienteerError:
        return None


@runs_app.command("ls")
def runs_ls(json_: o.Json = False, home: o.HomeOption = None, db: o.Database = None) -> None:
    """List all runs, newest first."""
    from orienteer.agents.runtime.records import list_runs

    found = list_runs(home, db)
    if json_:
        print_json({"runs": found})
        return
    if not found:
        say("no runs yet; start one with: agent run evokernel --target npu")
        return
    columns = ("id", "method", "target", "proposer", "status", "seed")
    print_table(
        [
            {c: str(row[c] if row[c] is not None else "") for c in columns}
            | {"active": f"{row['active_s']:.0f} s", "evaluations": in_words(row["counts"])}
            for row in found
        ]
    )


@runs_app.command("show")
def runs_show(
    run_id: o.RunId,
    task: Annotated[str, typer.Option("--task", metavar="NAME", help="Only this task.")] = "",
    proposals: Annotated[
        bool, typer.Option("--proposals", help="List every proposal with its gates instead of the lineages.")
    ] = False,
    strict: o.Strict = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Show one run: request, provenance, result, lineages, what was remembered, every proposal and verdict."""
    from orienteer.agents.runtime.records import only_task, show_run

    document = show_run(run_id, home, db)
    kind = _method(document["method"])
    failed = strict and not _proven(kind, document["result"])
    if task:
        document = only_task(document, task)
    if json_:
        print_json(document)
    else:
        rows = kind.rows(document["result"]) if kind is not None else []
        print_run(document, rows, kind.course(document, task) if kind is not None and not proposals else ())
    if failed:
        note(_NOT_PROVEN)
        raise typer.Exit(1)


@runs_app.command("report")
def runs_report(
    run_id: o.RunId,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FILE", help="Where to write it (default: in the run's folder).")
    ] = None,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Write a run's report: one HTML file that needs nothing else."""
    from orienteer.agents.runtime.records import write_report

    path = write_report(run_id, to, home, db)
    if json_:
        print_json({"file": str(path)})
    else:
        say(str(path))


@runs_app.command("resume")
def runs_resume(
    run_id: o.RunId,
    evals: o.Evals = None,
    tokens: o.Tokens = None,
    cost: o.Cost = None,
    time: o.Time = None,
    model: o.Model = None,
    workers: o.Workers = None,
    sandbox: Annotated[
        str | None, typer.Option("--sandbox", metavar="KIND", help="auto, bwrap, docker or process.")
    ] = None,
    allow_unsafe: Annotated[
        bool | None, typer.Option("--allow-unsafe/--no-allow-unsafe", help="Allow the process sandbox.")
    ] = None,
    strict: o.Strict = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Go on with a run that was stopped, crashed or reached a budget; nothing finished is done again."""
    from orienteer.agents.runtime.engine import resume_run

    given = {
        "evals": evals,
        "tokens": tokens,
        "cost": cost,
        "time": o.seconds(time),
        "model": model,
        "workers": workers,
        "sandbox": sandbox,
        "allow_unsafe": allow_unsafe,
    }
    overrides = {key: value for key, value in given.items() if value is not None}
    drive(
        lambda listener, ask: resume_run(run_id, overrides, listener, ask, home_path=home, database=db),
        json_,
        None,
        strict,
    )


@runs_app.command("export")
def runs_export(
    run_id: o.RunId,
    folder: Annotated[str, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Write a run into a folder: run.json and one file per candidate."""
    from orienteer.agents.runtime.records import export_run

    path = export_run(run_id, folder, home, db)
    if json_:
        print_json({"file": str(path)})
    else:
        say(str(path))


@runs_app.command("stop")
def runs_stop(run_id: o.RunId, json_: o.Json = False, home: o.HomeOption = None, db: o.Database = None) -> None:
    """Ask the process that drives a run to stop cleanly."""
    from orienteer.agents.runtime.records import stop_run

    stopped = stop_run(run_id, home, db)
    if json_:
        print_json({"run": stopped, "asked": "stop"})
    else:
        say(f"asked {stopped} to stop")


@runs_app.command("rm")
def runs_rm(run_id: o.RunId, json_: o.Json = False, home: o.HomeOption = None, db: o.Database = None) -> None:
    """Remove a run and its folder."""
    from orienteer.agents.runtime.records import remove_run

    removed = remove_run(run_id, home, db)
    if json_:
        print_json({"run": removed, "removed": True})
    else:
        say(f"removed {removed}")
