"""The commands: each reads what a person asks, calls the agents, prints. No logic of its own.

Everything heavy is imported inside the commands, so that ``agent --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orienteer import __version__
from orienteer.agents.command import bench_drc as bench_drc  # adds its commands to the bench's
from orienteer.agents.command import options as o
from orienteer.agents.command.bench import bench_app
from orienteer.agents.command.drc import drc_app
from orienteer.agents.command.memory import memory_app
from orienteer.agents.command.output import note, print_json, print_table, say
from orienteer.agents.command.runs import drive, runs_app
from orienteer.agents.command.verify import verify_app
from orienteer.errors import UsageError

if TYPE_CHECKING:
    from orienteer.agents.runtime.config import RunReport
    from orienteer.agents.runtime.events import Event
    from orienteer.agents.runtime.session import AskSomebody


app = o.group("Search driven by language models, with proof.")
tasks_app = o.group("The tasks that come with Orienteer.")


def _version(shown: bool) -> None:
    if shown:
        say(f"orienteer {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Search driven by language models, with proof."""


# -- running -----------------------------------------------------------------------------------------------------------


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    ctx: typer.Context,
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="A name of `agent methods`, or package.module:Class.")
    ],
    task: Annotated[
        list[str] | None,
        typer.Option("--task", metavar="NAME|FILE|DIR", help="What to work on; may be repeated (default: all)."),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="NAME", help="What the result is for (evokernel: npu, triton, cpu).")
    ] = "",
    model: o.Model = None,
    evals: o.Evals = None,
    tokens: o.Tokens = None,
    cost: o.Cost = None,
    time: o.Time = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Everything random derives from it.")] = 0,
    workers: o.Workers = None,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; may be repeated.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="KIND", help="none, task, run, shared or an export (methods that remember)."),
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
    strict: o.Strict = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Start a run and print what was proven.

    Every setting of the method (see `agent methods METHOD`) is an option too: --NAME VALUE is --set NAME=VALUE, and
    may be repeated where the setting is a list.
    """
    from orienteer.agents.runtime import registry
    from orienteer.agents.runtime.config import Budgets, RunConfig, build_settings, parse_set
    from orienteer.agents.runtime.models import choose_model
    from orienteer.memory.home import home as place

    if method.startswith("-"):
        # An option that the method would have to know, before the method.
        raise UsageError(f"no such option: {method[:60]}", "give the method first; see `agent run --help`")
    kind = registry.find(method)
    chosen, why = choose_model(model)
    settings = parse_set(set_ or [])
    settings |= {name: value for name, value in o.as_settings(ctx.args, kind.Settings).items() if name not in settings}
    if memory is not None:
        if "memory" not in kind.Settings.model_fields:
            raise UsageError(f"the method {method} keeps no memory", "leave out --memory")
        settings["memory"] = memory
    priced = prices is not None and not chosen.startswith(("offline", "scripted"))
    config = RunConfig(
        method=method,
        tasks=tuple(task or ()),
        target=target,
        settings=settings,
        seed=seed,
        model=chosen,
        model_options={"prices": prices} if priced else {},
        budgets=Budgets(evals=evals, tokens=tokens, cost=cost, time=o.seconds(time)),
        workers=workers,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
        reuse_evaluations=reuse,
        reuse_replies=reuse,
        home=home,
        database=db,
    )
    # What is wrong with the request is said before the engine is loaded, which takes a moment.
    build_settings(kind.Settings, config.settings)
    if model is None:
        note(f"proposer: {chosen} ({why})")
    for name in kind.setups(target, place(home).path):
        _offer(name, yes, home)

    def go(listener: Callable[[Event], None], ask: AskSomebody | None) -> RunReport:
        from orienteer.agents.runtime.engine import start_run

        return start_run(config, listener, ask)

    drive(go, json_, kind, strict)


def _agreed(question: str) -> bool:
    """Ask on the terminal; Enter means yes, the end of input no."""
    print(f"{question} [Y/n] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        return False
    return answer.strip().lower() in ("", "y", "yes")


def _someone_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _offer(name: str, yes: bool, home: str | None) -> None:
    from orienteer.agents.setups import SETUPS

    what = SETUPS[name][0]
    if yes or (_someone_is_there() and _agreed(f"Not installed: {what}. Install it now?")):
        _set_up(name, home)
    else:
        note(f"not installed: {what}; to get it: agent setup {name}")


def _set_up(name: str, home: str | None) -> str:
    from orienteer.agents.setups import run_setup
    from orienteer.memory.home import home as place

    if not sys.stderr.isatty():
        return run_setup(name, place(home).path, note, lambda *_: None)
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        known: dict[str, Any] = {}

        def progress(what: str, done: int, total: int) -> None:
            if what not in known:
                known[what] = bars.add_task(f"unpacking {what}", total=total)
            bars.update(known[what], completed=done)

        def tell(text: str) -> None:
            bars.console.print(text, markup=False, highlight=False)

        return run_setup(name, place(home).path, tell, progress)


@app.command()
def setup(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to install: npu (the Ascend compiler).")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Install what a target needs."""
    from orienteer.agents.setups import describe

    what = describe(name)
    if not yes and not json_ and _someone_is_there() and not _agreed(f"Install {what}?"):
        note("nothing was installed")
        raise typer.Exit(1)
    where = _set_up(name, home)
    if json_:
        print_json({"setup": name, "folder": where})
    else:
        say(f"ready: {where}")


@app.command()
def doctor(json_: o.Json = False, home: o.HomeOption = None) -> None:
    """Show what works on this machine and how to enable the rest."""
    from orienteer.agents.doctor import examine
    from orienteer.memory.home import home as place

    checks = examine(place(home).path)
    if json_:
        print_json({"version": __version__, "checks": checks})
        return
    words = {True: "works", False: "MISSING", None: "-"}
    print_table(
        [{"area": c["area"], "part": c["name"], "state": words[c["works"]], "detail": c["detail"]} for c in checks],
        widest=100,
    )
    cures = [c for c in checks if c["works"] is not True and c["cure"]]
    if cures:
        say("\nto enable")
        for c in cures:
            say(f"  {c['name']}: {c['cure']}")


@app.command()
def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="[METHOD]", help="One method, by name or package.module:Class.")
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the methods and what --set takes for each."""
    from orienteer.agents.runtime import registry

    found = [registry.describe(name)] if name is not None else registry.describe_all()
    if json_:
        print_json({"methods": found})
        return
    for item in found:
        say(f"{item['name']}: {item['text']}")
        rows = [
            {"--set": s["name"], "type": s["type"], "default": s["default"], "what": s["text"]}
            for s in item["settings"]
        ]
        if rows:
            print_table(rows, widest=100)
    if name is None:
        say("\nyour own: agent run package.module:Class (see CONTRIBUTING.md)")


# -- the rest ----------------------------------------------------------------------------------------------------------


@tasks_app.command("ls")
def tasks_ls(json_: o.Json = False) -> None:
    """List the kernel tasks that come with Orienteer."""
    from orienteer.environments.kernel.tasks import describe_shipped

    found = describe_shipped()
    if json_:
        print_json({"tasks": found})
        return
    print_table([{"task": item["name"], "what": item["text"]} for item in found], widest=100)
    say("\nyour own: --task FILE or --task DIR (a Python file with Model, get_inputs and get_init_inputs)")


app.add_typer(runs_app, name="runs")
app.add_typer(memory_app, name="memory")
app.add_typer(tasks_app, name="tasks")
app.add_typer(drc_app, name="drc")
app.add_typer(bench_app, name="bench")
app.add_typer(verify_app, name="verify")
