"""The commands ``agent bench ...`` about DRC decks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from orienteer.agents.command import options as o
from orienteer.agents.command.bench import bench_app
from orienteer.agents.command.output import print_json, print_table, say

Problems = Annotated[
    list[str], typer.Option("--problems", metavar="DIR", help="Problems in Rule2DRC's layout; may be repeated.")
]
Backend = Annotated[str, typer.Option("--backend", metavar="KIND", help="auto, strmrun, klayout or py.")]
_ALL = "first,tests,sstar,codemonkeys,judge,splittester,split"


@bench_app.command("rule2drc")
def bench_rule2drc(
    problems: Problems,
    selectors: Annotated[str, typer.Option("--selectors", metavar="A,B", help="Which selectors.")] = _ALL,
    candidates: Annotated[int, typer.Option("--candidates", min=2, max=60, metavar="N", help="Decks of a pool.")] = 8,
    pools: Annotated[int, typer.Option("--pools", min=1, max=10, metavar="N", help="Pools (with a model).")] = 3,
    budget: Annotated[int, typer.Option("--budget", min=0, max=200, metavar="N", help="Layouts or labels.")] = 8,
    model: o.Model = None,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Everything random derives from it.")] = 0,
    workers: o.Workers = None,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Choose among candidate decks by every selector and score the choices on the labelled layouts.

    With --home the runs are kept there, and what a model answered is not paid for again.
    """
    from orienteer.agents.drc.bench import compare
    from orienteer.agents.runtime.models import choose_model

    document = compare(
        problems,
        [name.strip() for name in selectors.split(",") if name.strip()],
        candidates=candidates,
        pools=pools,
        budget=budget,
        model=choose_model(model)[0],
        backend=backend,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
        seed=seed,
        workers=workers,
        home=None if home is None else Path(home),
    )
    if json_:
        print_json(document)
        return
    say(
        f"{document['scored']} of {document['problems']} problems scored, {document['pools']} pool(s) of "
        f"{document['candidates']}, proposer {document['proposer']}, decks run by {document['backend']}"
    )
    print_table([_selector(row) for row in document["rows"]])


def _selector(row: dict[str, Any]) -> dict[str, str]:
    spread = f" ± {row['std']:.1%}" if len(row["won"]) > 1 else ""
    return {
        "selector": row["selector"],
        "right": f"{row['success']:.1%}{spread}",
        "won": ", ".join(f"{won}/{row['of']}" for won in row["won"]),
        "layouts right": f"{row['case_accuracy']:.1%}" if "case_accuracy" in row else "",
        "ran": f"{row['ran']:.1%}" if "ran" in row else "",
        "labels a task": f"{row['labels']:.1f}" if row.get("labels") else "",
        "tokens": str(row["tokens"]) if row.get("tokens") else "",
    }


@bench_app.command("drc-throughput")
def bench_drc_throughput(
    problems: Problems,
    sample: Annotated[
        int, typer.Option("--sample", min=1, metavar="N", help="Pairs for the process per run, seconds each.")
    ] = 8,
    large_mb: Annotated[
        int, typer.Option("--large-mb", min=0, max=4096, metavar="N", help="Also a generated layout of this size.")
    ] = 0,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Run the same decks on the same layouts by a process each and by every backend. Exit 1 where a goal is missed."""
    from orienteer.environments.layout.tasks import find_tasks
    from orienteer.evaluators.drc.throughput import measure
    from orienteer.memory.home import home as place

    document = measure(
        find_tasks(problems, {}),
        place(home).path,
        sample=sample,
        large_mb=large_mb,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
    )
    if json_:
        print_json(document)
    else:
        say(f"{document['decks']} decks, {document['pairs']} pairs of deck and layout")
        print_table([_way(row) for row in document["rows"]], widest=100)
        if "large" in document:
            for name, value in document["large"].items():
                say(f"{name}: {value}")
    missed = [row for row in document["rows"] if row.get("goal") and row.get("runs_per_cpu_s", 0) < row["goal"]]
    raise typer.Exit(int(bool(missed)))


def _way(row: dict[str, Any]) -> dict[str, str]:
    if "why" in row and "cpu_s" not in row:
        return {"way": row["name"], "runs": "-", "a CPU second": row["why"]}
    return {
        "way": row["name"],
        "runs": str(row["runs"]),
        "a CPU second": f"{row['runs_per_cpu_s']:.4g}",
        "a second": f"{row['runs_per_wall_s']:.4g}",
        "ratio": "" if row.get("ratio") is None else f"{row['ratio']:.4g}",
        "goal": str(row.get("goal") or ""),
        "wrong": str(row["wrong"]),
        "differing": str(row["differing"]),
        "peak MB": "" if row.get("peak_mb") is None else f"{row['peak_mb']:.0f}",
    }


@bench_app.command("drc-variants")
def bench_drc_variants(
    problems: Problems,
    backend: Backend = "py",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the random layouts.")] = 0,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Give the gold decks slips and show which testers see them, by kind."""
    from orienteer.environments.layout.runner import open_runner
    from orienteer.environments.layout.tasks import find_tasks
    from orienteer.evaluators.drc.testers import kills
    from orienteer.memory.home import home as place

    with open_runner(
        backend, sandbox=sandbox, allow_unsafe=allow_unsafe, home=place(home).path, cache=False,
        workers=os.cpu_count() or 1,
    ) as runner:  # fmt: skip
        document = kills(find_tasks(problems, {}), runner, seed=seed)
    if json_:
        print_json(document)
        return
    rows = [{"kind": kind, **_cells(row)} for kind, row in sorted(document["kinds"].items())]
    print_table([*rows, {"kind": "all", **_cells(document["total"])}])
    left = len(document["survivors"])
    say(f"{left} variants are like the gold deck on every layout made from both decks ({document['backend']})")
    for item in document["survivors"][:20]:
        say(f"  {item['task']}: {item['kind']}, {item['what']}")


def _cells(row: dict[str, list[int]]) -> dict[str, str]:
    return {name: f"{killed}/{of}" + (f" ({killed / of:.0%})" if of else "") for name, (killed, of) in row.items()}
