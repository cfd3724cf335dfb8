"""Small methods that the runtime's tests drive, and a server that forks runs without paying the imports each time."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pydantic import Field

from orienteer.agents.runtime import (
    Ask,
    Evaluation,
    Failure,
    MachineryError,
    Method,
    Proposal,
    ProposalFailed,
    Settings,
)
from orienteer.agents.runtime.models import ModelRequest


def write_line(path: str, text: str) -> None:
    """Append one line at once, whoever else appends."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (text + "\n").encode())
    finally:
        os.close(handle)


class Climb(Method):
    """Walks to 500 through numbers that a scripted model (or chance) gives; writes down every effect it has."""

    name = "climb"

    class Settings(Settings):
        steps: int = Field(default=5, description="loop iterations")
        width: int = Field(default=3, description="asks per step and task")
        delay: float = Field(default=0.0, description="seconds per evaluation")

    def start(self, run):
        self.log("start", run)
        return {"best": {task: [0, None] for task in run.tasks}, "seen": 0}

    def log(self, what, run, *facts):
        if run.options.get("log"):
            write_line(run.options["log"], json.dumps([what, run.step, *facts]))

    def plan(self, run, state):
        self.log("plan", run)
        if run.step >= run.settings.steps:
            return []
        return [
            Ask(task=task, directive={"from": state["best"][task][0]}, parents=tuple(filter(None, [best[1]])))
            for _ in range(run.settings.width)
            for task, best in state["best"].items()
        ]

    def propose(self, run, ask):
        rng = run.rng("propose", ask.step, ask.slot)
        if run.model is None:
            jump = rng.randrange(-99, 100)
        else:
            words = f"from {ask.directive['from']} for {ask.task}"
            jump = int(run.model.ask(ModelRequest((("user", words),), max_tokens=20, sample=f"{ask.slot}")).text)
        self.log("proposed", run, ask.slot)
        if rng.random() < 0.15:
            raise ProposalFailed("shy", "nothing came to mind")
        return Proposal(str((ask.directive["from"] + jump) % 1000), notes={"jump": jump})

    def evaluate(self, run, candidate):
        self.log("evaluate", run, candidate.id)
        time.sleep(run.settings.delay)
        number = int(candidate.content)
        if number % 7 == 3:
            return Evaluation("failed", failure=Failure("seven", f"{number} is unlucky"), log="a log")
        return Evaluation("ok", score=-abs(number - 500), evidence="counted", metrics={"number": number})

    def learn(self, run, state, outcomes):
        self.log("learn", run)
        best = dict(state["best"])
        for outcome in outcomes:
            verdict = outcome.evaluation
            if verdict is not None and verdict.score is not None:
                number = int(outcome.candidate.content)
                if best[outcome.ask.task][1] is None or verdict.score > -abs(best[outcome.ask.task][0] - 500):
                    best[outcome.ask.task] = [number, outcome.candidate.id]
        return {"best": best, "seen": state["seen"] + len(outcomes)}


class Broken(Climb):
    """Fails where ``options`` say: a map from a method's name to a kind of exception and the steps it befalls."""

    name = "broken"

    def trip(self, run, where):
        kind, steps = run.options.get("trip", {}).get(where, ("", []))
        switch = run.options.get("switch")
        if run.step not in steps or (switch and Path(switch).exists()):
            return
        if kind == "machinery":
            raise MachineryError("the sandbox is on fire")
        if kind == "exit":
            sys.exit(3)
        raise ZeroDivisionError("a bug in the method")

    def plan(self, run, state):
        self.trip(run, "plan")
        return super().plan(run, state)

    def propose(self, run, ask):
        self.trip(run, "propose")
        return super().propose(run, ask)

    def evaluate(self, run, candidate):
        self.log("tried", run, candidate.id)
        self.trip(run, "evaluate")
        return super().evaluate(run, candidate)

    def learn(self, run, state, outcomes):
        self.trip(run, "learn")
        return super().learn(run, state, outcomes)


def fingerprint(document: dict) -> dict:
    """Return what must be equal in equal runs: everything but ids of the run, times and places."""
    evaluations = [
        {
            k: e[k]
            for k in ("candidate_id", "evaluator", "settings_sha", "step", "status", "score", "failure_kind", "metrics")
        }
        for e in document["evaluations"]
    ]
    return {
        "status": document["status"],
        "result": document["result"],
        "best": document["best"],
        "steps": document["steps"],
        "proposals": document["proposals"],
        "candidates": document["candidates"],
        "evaluations": sorted(evaluations, key=lambda e: (e["step"], e["candidate_id"])),
    }


def drive(request: dict) -> None:
    """Start or resume a run as a request says, and write how it ended where it says."""
    from orienteer.agents.runtime.config import Budgets, RunConfig
    from orienteer.agents.runtime.engine import resume_run, start_run
    from orienteer.errors import OrienteerError

    try:
        if "resume" in request:
            report = resume_run(request["resume"], request.get("overrides"), home_path=request["home"])
        else:
            config = dict(request["config"])
            config["budgets"] = Budgets(**config.get("budgets", {}))
            report = start_run(RunConfig(**config))
        answer = {"status": report.status, "id": report.id, "reason": report.reason}
    except OrienteerError as exc:
        answer = {"error": type(exc).__name__, "text": str(exc), "code": exc.exit_code}
    # Whole or not at all: the process may be killed here too.
    place = Path(request["answer"])
    place.with_suffix(".part").write_text(json.dumps(answer))
    place.with_suffix(".part").replace(place)


def serve() -> None:
    """Fork a process per line of standard input; say its pid, then how it ended."""
    import orienteer.agents.runtime.engine
    import orienteer.agents.runtime.session  # noqa: F401

    while line := sys.stdin.readline():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                drive(json.loads(line))
                code = 0
            finally:
                os._exit(code)
        print(pid, flush=True)
        sys.stdin.readline()  # not reaped before the test asks: the pid stays its own
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
