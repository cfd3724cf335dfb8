"""The commands ``agent bench ...``: measure, and compare with goals or with the plain alternatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from orienteer.agents.command import options as o
from orienteer.agents.command.output import print_json, print_table, say

bench_app = o.group("Measure, and compare with goals.")
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=100, metavar="N", help="Runs per setting.")]
Tasks = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME|FILE|DIR", help="Operators; may be repeated (default: all shipped ones)."),
]


@bench_app.command("runtime")
def bench_runtime(
    steps: Annotated[
        int, typer.Option("--steps", min=40, max=100_000, metavar="N", help="Loop iterations of the measured run.")
    ] = 1000,
    json_: o.Json = False,
) -> None:
    """Measure the runtime: CPU and bytes per step, start-up, memory, sandbox start. Exit 1 where a goal is missed."""
    from orienteer.agents.bench import runtime_figures

    document = runtime_figures(steps)
    if json_:
        print_json(document)
        raise typer.Exit(0 if document["met"] else 1)
    words = {True: "yes", False: "NO", None: "-"}
    print_table(
        [
            {
                "figure": f["name"],
                "value": "-" if f["value"] is None else f"{f['value']:.4g}",
                "unit": f["unit"],
                "goal": "-" if f["goal"] is None else f"<= {f['goal']:g}",
                "met": words[f["met"]],
                "how": f["how"],
            }
            for f in document["figures"]
        ],
        widest=110,
    )
    machine = document["machine"]
    say(f"machine: {machine['cores']} cores, load {machine['load'][0]}, Python {machine['python']}")
    say("all goals are met" if document["met"] else "NOT all goals were measured and met")
    raise typer.Exit(0 if document["met"] else 1)


@bench_app.command("evokernel-memory")
def bench_memory(
    seeds: Seeds = 5,
    iterations: Annotated[int, typer.Option("--iterations", min=2, max=200, metavar="T", help="Attempts a task.")] = 10,
    world: Annotated[
        str, typer.Option("--world", metavar="W", help="planted (seconds a run), offline (minutes), or both.")
    ] = "planted",
    json_: o.Json = False,
) -> None:
    """Compare recall by learnt value, by similarity and none; and a memory of simple operators with a cold start."""
    from orienteer.agents.evokernel import bench
    from orienteer.errors import UsageError

    if world not in ("planted", "offline", "both"):
        raise UsageError(f"there is no world {world!r}", "--world planted, offline or both")
    found = []
    if world != "offline":
        found.append(bench.planted(seeds, iterations))
    if world != "planted":
        found.append(bench.searched(seeds, iterations))
    if json_:
        print_json({"worlds": found})
        return
    for document in found:
        say(f"{document['world']}: {document['tasks']} tasks, T = {document['iterations']}, mean +- deviation of seeds")
        print_table([_spread(row) for row in document["rows"]])


def _spread(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        key.replace("_", " "): f"{value[0]:.3f} +- {value[1]:.3f}" if isinstance(value, list) else str(value)
        for key, value in row.items()
    }


@bench_app.command("evokernel-ladder")
def bench_ladder(
    chip: Annotated[str, typer.Option("--chip", metavar="NAME", help="Ascend chip.")] = "Ascend910B3",
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Check that the latency model orders kernels as the hardware guide does. Exit 1 where it does not."""
    from orienteer.agents.bench import ladder_figures
    from orienteer.memory.home import home as place

    rows = ladder_figures(chip, place(home).path)
    good = all(row["ok"] for row in rows)
    if json_:
        print_json({"chip": chip, "rungs": rows, "met": good})
    else:
        print_table([_rung(row) for row in rows], widest=60)
        say(f"{sum(bool(row['ok']) for row in rows)} of {len(rows)} pairs are ordered as the guide says")
    raise typer.Exit(0 if good else 1)


def _rung(row: Mapping[str, Any]) -> dict[str, str]:
    ratio = row.get("ratio")
    return {
        "pair": row["name"],
        "better": row["better"],
        "worse": row["worse"],
        "ratio": f"{ratio:.2f}" if ratio is not None else "-",
        "as the guide": "yes" if row["ok"] else "NO",
        "why": row.get("reason", ""),
    }


@bench_app.command("evokernel-throughput")
def bench_throughput(task: Tasks = None, json_: o.Json = False, home: o.HomeOption = None) -> None:
    """Measure verifications a second and core: static check, E0 and E1 with warm workers. Exit 1 below 2."""
    from orienteer.agents.bench import throughput_figures
    from orienteer.memory.home import home as place

    document = throughput_figures(task or [], place(home).path)
    if json_:
        print_json(document)
    else:
        print_table([{key: str(value) for key, value in row.items()} for row in document["rows"]])
        spent = f"{document['candidates']} candidates in {document['cpu_s']:.1f} s CPU"
        say(f"{spent}: {document['per_second']:.2f} a second and core (goal: {document['goal']:g})")
    raise typer.Exit(0 if document["met"] else 1)


@bench_app.command("evokernel-coverage")
def bench_coverage(
    task: Tasks = None,
    target: Annotated[str, typer.Option("--target", metavar="T", help="npu or triton.")] = "npu",
    workers: o.Workers = None,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Measure the share of operators that the offline proposer proves at E1, and why the rest is not."""
    from orienteer.agents.bench import coverage_figures
    from orienteer.memory.home import home as place

    document = coverage_figures(task or [], target, workers or 1, place(home).path)
    if json_:
        print_json(document)
        return
    print_table(document["groups"])
    if document["reasons"]:
        say("\nthe rest")
        print_table(document["reasons"], widest=100)


@bench_app.command("evokernel-cpu")
def bench_cpu(
    task: Tasks = None,
    iterations: Annotated[int, typer.Option("--iterations", min=2, max=200, metavar="T", help="Attempts a task.")] = 12,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Everything random derives from it.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, metavar="N", help="Threads (default: every core).")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Search C++ kernels and measure the best against their own first draft and PyTorch eager, side by side."""
    from orienteer.agents.evokernel.bench_cpu import measured

    document = measured(task or [], iterations, seed, threads)
    if json_:
        print_json(document)
        return
    print_table(document["rows"])
    for name, found in document["summary"].items():
        say(f"{name}: median {found['median']:.2f} (IQR {found['q1']:.2f} to {found['q3']:.2f}), {found['of']} tasks")


@bench_app.command("memory")
def bench_retrieval(
    items: Annotated[
        int, typer.Option("--items", min=100, max=1_000_000, metavar="N", help="Items in store.")
    ] = 100_000,
    json_: o.Json = False,
) -> None:
    """Measure a retrieval from a large memory after warm-up. Exit 1 where it takes 50 ms CPU or more."""
    from orienteer.memory.experience.bench import measure_retrieval

    document = measure_retrieval(items)
    if json_:
        print_json(document)
    else:
        _print_figures(document)
    raise typer.Exit(0 if document["met"] else 1)


def _print_figures(document: Mapping[str, Any]) -> None:
    for key, value in document.items():
        say(f"{key.replace('_', ' ')}: {_short(value)}")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_short(v)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(_short(item) for item in value)
    return str(value)
