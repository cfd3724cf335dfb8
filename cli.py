"""The ``agent`` command: reads what a person asks, calls the agents, prints. No logic of its own.

Everything heavy is imported inside the commands, so that ``agent --help`` answers at once. Results go to stdout, one
JSON document with ``--json``; everything else goes to stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from orienteer import __version__
from orienteer.errors import OrienteerError, UsageError

app = typer.Typer(
    help="Search driven by language models, with proof.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs_app = typer.Typer(
    help="List, show, resume, export, stop and remove runs.", no_args_is_help=True, rich_markup_mode=None
)
memory_app = typer.Typer(help="What is remembered on this machine.", no_args_is_help=True, rich_markup_mode=None)
tasks_app = typer.Typer(help="The tasks that come with Orienteer.", no_args_is_help=True, rich_markup_mode=None)
bench_app = typer.Typer(help="Measure, and compare with goals.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(runs_app, name="runs")
app.add_typer(memory_app, name="memory")
app.add_typer(tasks_app, name="tasks")
app.add_typer(bench_app, name="bench")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home", metavar="DIR", help="Orienteer's folder (default: $ORIENTEER_HOME or the user's data folder)."
    ),
]
Database = Annotated[
    str | None, typer.Option("--db", metavar="PATH|URL", help="Run database (default: runs.sqlite in the home folder).")
]
Evals = Annotated[int | None, typer.Option("--evals", "--budget-evals", min=0, metavar="N", help="Most evaluations.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens", "--budget-tokens", min=0, metavar="N", help="Most tokens of model calls.")
]
Cost = Annotated[
    float | None,
    typer.Option("--cost", "--budget-cost", min=0, metavar="X", help="Most money, in the price table's currency."),
]
Time = Annotated[str | None, typer.Option("--time", metavar="30m", help="Most time: seconds, or 90s, 30m, 2h.")]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="KIND/NAME", help="openai/NAME, local/smollm2, scripted/FILE or offline."),
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, max=256, help="Proposals and evaluations at one time (default: cores)."),
]
Sandbox = Annotated[str, typer.Option("--sandbox", help="auto, bwrap, docker or process.")]
Unsafe = Annotated[bool, typer.Option("--allow-unsafe", help="Allow the process sandbox, which isolates nothing.")]


def _version(shown: bool) -> None:
    if shown:
        typer.echo(f"orienteer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Search driven by language models, with proof."""


# -- running -----------------------------------------------------------------------------------------------------------


@app.command()
def run(
    method: Annotated[str, typer.Argument(help="A method by name (evokernel) or package.module:Class.")],
    task: Annotated[
        list[str] | None,
        typer.Option("--task", help="A task by name, a file or a folder; may be repeated (default: all)."),
    ] = None,
    target: Annotated[str, typer.Option("--target", help="What the result is for (evokernel: npu, triton).")] = "",
    model: Model = None,
    evals: Evals = None,
    tokens: Tokens = None,
    cost: Cost = None,
    time: Time = None,
    seed: Annotated[int, typer.Option("--seed", help="Everything random derives from it.")] = 0,
    workers: Workers = None,
    sandbox: Sandbox = "auto",
    allow_unsafe: Unsafe = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; may be repeated.")
    ] = None,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="Take verdicts and model replies of earlier runs where they are the same question."
        ),
    ] = False,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="FILE", help="Price table to use instead of the packaged one.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do missing setups without asking.")] = False,
    json_: Json = False,
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Start a run and print what was proven."""
    from orienteer.agents.runtime import registry
    from orienteer.agents.runtime.config import Budgets, RunConfig, parse_set
    from orienteer.agents.runtime.engine import start_run
    from orienteer.agents.runtime.models import choose_model
    from orienteer.memory.home import home as place

    kind = registry.find(method)
    chosen, why = choose_model(model)
    if model is None:
        _note(f"proposer: {chosen} ({why})")
    for name in kind.setups(target, place(home).path):
        _offer(name, yes, home)
    options: dict[str, Any] = {"prices": prices} if prices and not chosen.startswith(("offline", "scripted")) else {}
    config = RunConfig(
        method=method,
        tasks=tuple(task or ()),
        target=target,
        settings=parse_set(set_ or []),
        seed=seed,
        model=chosen,
        model_options=options,
        budgets=Budgets(evals=evals, tokens=tokens, cost=cost, time=_seconds(time)),
        workers=workers,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
        reuse_evaluations=reuse,
        reuse_replies=reuse,
        home=home,
        database=db,
    )
    _drive(lambda listener: start_run(config, listener), json_, kind)


def _drive(go: Any, json_: bool, kind: Any) -> NoReturn:
    from orienteer.agents.runtime.display import Display

    with Display(quiet=json_) as display:
        report = go(display)
    if kind is None:
        from orienteer.agents.runtime import registry

        kind = registry.find(report.method)
    if json_:
        _print_json(
            {
                "run": report.id,
                "status": report.status,
                "reason": report.reason,
                "exit_code": report.exit_code,
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
        _print_report(report, kind.rows(report.result))
    raise typer.Exit(report.exit_code)


def _print_report(report: Any, rows: list[dict[str, str]]) -> None:
    from orienteer.agents.runtime.display import plain_table

    if rows:
        typer.echo(plain_table(rows))
    elif report.result:
        typer.echo(json.dumps(report.result, indent=1, ensure_ascii=False))
    counts = report.counts
    judged = ", ".join(f"{n} {status}" for status, n in sorted(counts.get("evaluations", {}).items())) or "none"
    line = f"run {report.id}: {report.status}; evaluations: {judged}"
    if counts.get("model_calls"):
        price = "price unknown" if counts.get("cost") is None else f"cost {counts['cost']:.4f}"
        line += (
            f"; model calls: {counts['model_calls']} ({counts['tokens_in']} + {counts['tokens_out']} tokens, {price})"
        )
    typer.echo(line)
    if report.folder.is_dir():
        typer.echo(f"files: {report.folder}")
    if report.reason:
        _note(f"{report.status}: {report.reason}")
        if report.status == "budget":
            _note(f"go on with a larger budget: agent runs resume {report.id} --evals N (or --tokens, --cost, --time)")


def _offer(name: str, yes: bool, home: str | None) -> None:
    from orienteer.agents.setups import SETUPS

    what = SETUPS[name][0]
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return
        if not typer.confirm(f"Not installed: {what}. Install it now?", default=True, err=True):
            return
    setup(name, yes=True, home=home)


@app.command()
def setup(
    name: Annotated[str, typer.Argument(help="What to install: npu (the Ascend compiler).")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
) -> None:
    """Install what a target needs."""
    from orienteer.agents.setups import SETUPS, run_setup
    from orienteer.memory.home import home as place

    if (
        name in SETUPS
        and not yes
        and sys.stdin.isatty()
        and not typer.confirm(f"Install {SETUPS[name][0]}?", default=True, err=True)
    ):
        raise typer.Exit(0)
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True)) as bars:
            known: dict[str, Any] = {}

            def progress(what: str, done: int, total: int) -> None:
                if what not in known:
                    known[what] = bars.add_task(f"unpacking {what}", total=total)
                bars.update(known[what], completed=done)

            where = run_setup(name, place(home).path, lambda text: bars.console.print(text, markup=False), progress)
    else:
        where = run_setup(name, place(home).path, _note, lambda *_: None)
    _note(f"ready: {where}")


@app.command()
def doctor(json_: Json = False, home: HomeOption = None) -> None:
    """Show what works on this machine and how to enable the rest."""
    from orienteer.agents.doctor import examine
    from orienteer.agents.runtime.display import plain_table
    from orienteer.memory.home import home as place

    checks = examine(place(home).path)
    if json_:
        _print_json({"version": __version__, "checks": checks})
        return
    words = {True: "works", False: "MISSING", None: "-"}
    rows = [{"area": c["area"], "part": c["name"], "state": words[c["works"]], "detail": c["detail"]} for c in checks]
    typer.echo(plain_table(rows, widest=90))
    cures = [c for c in checks if c["works"] is not True and c["cure"]]
    if cures:
        typer.echo("\nto enable:")
        for c in cures:
            typer.echo(f"  {c['name']}: {c['cure']}")


# -- runs --------------------------------------------------------------------------------------------------------------


@runs_app.command("ls")
def runs_ls(json_: Json = False, home: HomeOption = None, db: Database = None) -> None:
    """List all runs, newest first."""
    from orienteer.agents.runtime.display import plain_table
    from orienteer.agents.runtime.records import list_runs

    found = list_runs(home, db)
    if json_:
        _print_json({"runs": found})
        return
    if not found:
        typer.echo("no runs yet; start one with: agent run evokernel --target npu")
        return
    columns = ("id", "method", "target", "proposer", "status", "seed")
    rows = [
        {**{c: str(row.get(c) if row.get(c) is not None else "") for c in columns}, "evaluations": _count(row)}
        for row in found
    ]
    typer.echo(plain_table(rows))


def _count(row: dict[str, Any]) -> str:
    counts = row.get("counts", {}).get("evaluations", {})
    return ", ".join(f"{n} {status}" for status, n in sorted(counts.items()))


@runs_app.command("show")
def runs_show(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, its beginning, or last.")],
    json_: Json = False,
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Show one run: request, provenance, result, every proposal and verdict."""
    from orienteer.agents.runtime import registry
    from orienteer.agents.runtime.display import plain_table
    from orienteer.agents.runtime.records import show_run

    document = show_run(run_id, home, db)
    if json_:
        _print_json(document)
        return
    shown = ("id", "method", "target", "status", "reason", "proposer", "seed")
    for key in shown:
        if document.get(key) not in (None, ""):
            typer.echo(f"{key}: {document[key]}")
    for key, value in sorted(document.get("provenance", {}).items()):
        if key not in shown:
            typer.echo(f"  {key}: {value}")
    try:
        rows = registry.find(document["method"]).rows(document.get("result") or {})
    except OrienteerError:
        rows = []
    if rows:
        typer.echo("")
        typer.echo(plain_table(rows))
    verdicts = {item["candidate"]: item for item in document.get("evaluations", []) if item.get("candidate")}
    rows = []
    for item in document.get("proposals", []):
        verdict = verdicts.get(item.get("candidate") or "", {})
        failure = item.get("failure") or verdict.get("failure") or {}
        rows.append(
            {
                "step": str(item.get("step", "")),
                "task": str(item.get("task", "")),
                "candidate": str(item.get("candidate") or ""),
                "verdict": str(verdict.get("status") or item.get("status", "")),
                "evidence": str(verdict.get("evidence", "")),
                "failure": _failure(failure),
            }
        )
    if rows:
        typer.echo("")
        typer.echo(plain_table(rows, widest=90))


def _failure(failure: Any) -> str:
    if isinstance(failure, dict):
        return ": ".join(str(failure[k]) for k in ("kind", "message") if failure.get(k))
    return str(failure or "")


@runs_app.command("resume")
def runs_resume(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, its beginning, or last.")],
    evals: Evals = None,
    tokens: Tokens = None,
    cost: Cost = None,
    time: Time = None,
    model: Model = None,
    workers: Workers = None,
    sandbox: Annotated[str | None, typer.Option("--sandbox", help="auto, bwrap, docker or process.")] = None,
    allow_unsafe: Annotated[
        bool | None, typer.Option("--allow-unsafe/--no-allow-unsafe", help="Allow the process sandbox.")
    ] = None,
    json_: Json = False,
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Go on with a run that was stopped, crashed or reached its budget; nothing finished is done again."""
    from orienteer.agents.runtime.engine import resume_run

    given = {
        "evals": evals,
        "tokens": tokens,
        "cost": cost,
        "time": _seconds(time),
        "model": model,
        "workers": workers,
        "sandbox": sandbox,
        "allow_unsafe": allow_unsafe,
    }
    overrides = {key: value for key, value in given.items() if value is not None}
    _drive(lambda listener: resume_run(run_id, overrides, listener, home_path=home, database=db), json_, None)


@runs_app.command("export")
def runs_export(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, its beginning, or last.")],
    folder: Annotated[str, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Write a run into a folder: run.json and one file per candidate."""
    from orienteer.agents.runtime.records import export_run

    typer.echo(str(export_run(run_id, folder, home, db)))


@runs_app.command("stop")
def runs_stop(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id, its beginning, or last.")],
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Ask the process that drives a run to stop cleanly."""
    from orienteer.agents.runtime.records import stop_run

    typer.echo(f"asked {stop_run(run_id, home, db)} to stop")


@runs_app.command("rm")
def runs_rm(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="A run's id or its beginning.")],
    home: HomeOption = None,
    db: Database = None,
) -> None:
    """Remove a run from the database."""
    from orienteer.agents.runtime.records import remove_run

    typer.echo(f"removed {remove_run(run_id, home, db)}")


# -- the rest ----------------------------------------------------------------------------------------------------------


@tasks_app.command("ls")
def tasks_ls(json_: Json = False) -> None:
    """List the kernel tasks that come with Orienteer."""
    from orienteer.environments.kernel.tasks import describe_shipped

    found = describe_shipped()
    if json_:
        _print_json({"tasks": found})
        return
    width = max(len(item["name"]) for item in found)
    for item in found:
        typer.echo(f"{item['name'].ljust(width)}  {item['text']}")


@memory_app.command("ls")
def memory_ls(json_: Json = False, home: HomeOption = None, db: Database = None) -> None:
    """List what is kept: runs, candidates, evaluations, model calls, artifacts, toolchains, with sizes."""
    from orienteer.agents.runtime.display import plain_table
    from orienteer.agents.runtime.inventory import inventory

    found = inventory(home, db)
    if json_:
        _print_json({"memory": found})
        return
    rows = [
        {"store": i["store"], "items": str(i["items"]), "MiB": f"{i['bytes'] / 2**20:.1f}", "where": i["where"]}
        for i in found
    ]
    typer.echo(plain_table(rows, widest=100))


@bench_app.command("runtime")
def bench_runtime(
    steps: Annotated[int, typer.Option("--steps", min=10, help="Loop iterations of the measured run.")] = 1000,
    json_: Json = False,
) -> None:
    """Measure the runtime: CPU and bytes per step, start-up, memory, sandbox start."""
    from orienteer.agents.bench import runtime_figures
    from orienteer.agents.runtime.display import plain_table

    document = runtime_figures(steps)
    if json_:
        _print_json(document)
    else:
        words = {True: "yes", False: "NO", None: "-"}
        rows = [
            {
                "figure": f["name"],
                "value": "-" if f["value"] is None else f"{f['value']:g}",
                "unit": f["unit"],
                "goal": "-" if f["goal"] is None else f"<= {f['goal']:g}",
                "met": words[f["met"]],
                "how": f["how"],
            }
            for f in document["figures"]
        ]
        typer.echo(plain_table(rows, widest=100))
        typer.echo(f"machine: {document['machine']}")
    raise typer.Exit(0 if document["met"] else 1)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if match is None:
        raise UsageError(f"--time {text!r} is no duration", "write seconds, or 90s, 30m, 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False, default=str))


def main() -> NoReturn:
    """Run the command; every error that a person can mend is one line with its cure and a fixed exit status."""
    wants_json = "--json" in sys.argv[1:]
    try:
        app(standalone_mode=True)
        code = 0
    except OrienteerError as error:
        code = _fail(error.problem, error.cure, error.exit_code, wants_json)
    except KeyboardInterrupt:
        code = _fail("interrupted", "", 130, wants_json)
    except BrokenPipeError:
        # The reader of our output went away (`agent runs ls | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except Exception as error:
        code = _crash(error, wants_json)
    sys.exit(code)


def _fail(problem: str, cure: str, code: int, wants_json: bool) -> int:
    if wants_json:
        _print_json({"error": {"problem": problem, "cure": cure, "exit_code": code}})
    typer.echo(f"agent: {problem}" + (f": {cure}" if cure else ""), err=True)
    return code


def _crash(error: Exception, wants_json: bool) -> int:
    import tempfile
    import traceback

    text = " ".join(str(error).split())[:300]
    try:
        with tempfile.NamedTemporaryFile("w", prefix="orienteer-", suffix=".traceback", delete=False) as handle:
            handle.write(traceback.format_exc())
        where = f"the traceback is in {handle.name}; please report it"
    except OSError:
        where = "please report it"
    return _fail(f"internal error: {type(error).__name__}: {text}", where, 1, wants_json)


if __name__ == "__main__":
    main()


__all__ = ["Path", "app", "main"]
