"""The commands ``agent verify ...``: one verdict on one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orienteer.agents.command import options as o
from orienteer.agents.command.output import print_json, print_table, say

verify_app = o.group("Judge one file by the gates that a run uses.")


@verify_app.command("kernel")
def verify_kernel(
    candidate: Annotated[Path, typer.Argument(metavar="FILE", help="The kernel file: Python with ModelNew, or C++.")],
    task: Annotated[str, typer.Option("--task", metavar="TASK", help="A shipped task's name, or a task file.")],
    target: Annotated[str, typer.Option("--target", metavar="T", help="npu, triton or cpu.")] = "npu",
    chip: Annotated[str, typer.Option("--chip", metavar="NAME", help="Ascend chip for npu.")] = "Ascend910B3",
    arch: Annotated[
        list[str] | None,
        typer.Option("--arch", metavar="NAME", help="GPU architecture for triton (default: sm_90); may be repeated."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, metavar="N", help="Threads for cpu (default: every core).")
    ] = None,
    compiled: Annotated[bool, typer.Option("--torch-compile", help="For cpu: time torch.compile too.")] = False,
    cases: Annotated[int, typer.Option("--cases", min=1, max=16, metavar="N", help="Hidden cases.")] = 6,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Decides the hidden cases.")] = 0,
    sandbox: o.Sandbox = "auto",
    allow_unsafe: o.Unsafe = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
) -> None:
    """Judge a kernel: feasible with its evidence and latency, or rejected with the reason. Exit 1 unless feasible."""
    from orienteer.agents.verify import verify_kernel as judge
    from orienteer.memory.home import home as place

    answer = judge(
        candidate,
        task,
        target,
        place(home).path,
        chip=chip,
        archs=tuple(arch or ("sm_90",)),
        cases=cases,
        seed=seed,
        threads=threads,
        compiled=compiled,
        sandbox=sandbox,
        allow_unsafe=allow_unsafe,
    )
    if json_:
        print_json(answer)
    else:
        _print(answer)
    raise typer.Exit(0 if answer["verdict"] == "feasible" else 1)


def _print(answer: dict[str, Any]) -> None:
    from orienteer.agents.evokernel.results import seconds

    print_table(
        [{"gate": g["gate"], "answer": g["status"], "detail": g["detail"]} for g in answer["gates"]], widest=110
    )
    if answer["verdict"] == "feasible":
        say(f"feasible: {answer['evidence'] or 'no evidence'}")
    else:
        say(f"{answer['verdict']}: {answer['class']}, {answer['code']}")
        say(f"what to do: {answer['feedback']}")
    latency = answer["latency"]
    reason = next((g["facts"]["no_latency"] for g in answer["gates"] if g["facts"].get("no_latency")), None)
    if latency is None and reason is not None:
        say(f"no latency: {reason}")
    if latency is not None:
        level = latency["level"]
        where = level if latency["device"] in level else f"{level} {latency['device']}"
        line = f"latency: {seconds(latency['seconds'])} ({where}; {latency['how']})"
        if latency.get("bottleneck"):
            line += f", bound by {latency['bottleneck']}"
        if latency.get("floor_s") is not None:
            line += f", floor {seconds(latency['floor_s'])}"
        if latency.get("baseline_s") is not None:
            line += f"; PyTorch eager {seconds(latency['baseline_s'])}"
        say(line)
