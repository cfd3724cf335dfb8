"""Small methods that the command's tests run by import path."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import Field

from orienteer.agents.runtime import Ask, Evaluation, Failure, Method, Proposal, Settings
from orienteer.agents.runtime.models import ModelRequest


class Count(Method):
    """Counts; may take its time, may ask a model, may write a file."""

    name = "count"

    class Settings(Settings):
        steps: int = Field(default=3, ge=0, description="loop iterations")
        delay: float = Field(default=0.0, description="seconds per evaluation")
        slow_start: float = Field(default=0.0, description="seconds before the first step")
        size: int = Field(default=10, description="characters per candidate")
        bad: bool = Field(default=False, description="fail in plan")

    def start(self, run):
        if run.settings.slow_start:
            run.cancel.wait(run.settings.slow_start)
        return {"seen": 0}

    def plan(self, run, state):
        if run.settings.bad:
            raise ZeroDivisionError("a bug in the method")
        tasks = run.tasks or ["one"]
        return [Ask(task=task) for task in tasks] if run.step < run.settings.steps else []

    def propose(self, run, ask):
        if run.model is not None:
            text = run.model.ask(ModelRequest((("user", f"number {ask.step}"),), max_tokens=20)).text
            return Proposal(f"{ask.step} {text}")
        rng = run.rng("content", ask.step, ask.slot)
        return Proposal(f"{ask.step} " + "".join(rng.choice("abcdefgh") for _ in range(run.settings.size)))

    def evaluate(self, run, candidate):
        until = time.monotonic() + run.settings.delay
        while time.monotonic() < until and not run.cancel.is_set():
            time.sleep(0.01)
        gates = [{"gate": "count", "status": "passed"}, {"gate": "device", "status": "skipped"}]
        if candidate.step % 3 == 1:
            return Evaluation("failed", failure=Failure("odd", "step \x1b[31m1"), metrics={"gates": gates})
        return Evaluation("ok", score=float(candidate.step), evidence="counted", metrics={"gates": gates})

    def learn(self, run, state, outcomes):
        return {"seen": state["seen"] + len(outcomes)}

    def result(self, run, state):
        Path(run.folder).mkdir(parents=True, exist_ok=True)
        (run.folder / "count.txt").write_text(str(state["seen"]))
        return state


class Told(Count):
    """Counts, and tells about it: a report, a course, whether all is proven."""

    class Settings(Count.Settings):
        proven: bool = Field(default=True, description="all is proven")
        report: bool = Field(default=True, description="the report can be written")

    def result(self, run, state):
        return {"proven": run.settings.proven}

    @classmethod
    def proven(cls, result):
        return bool(result.get("proven"))

    @classmethod
    def summary(cls, document):
        return {"counted": len(document["candidates"])}

    @classmethod
    def course(cls, document, task=""):
        return [f"counted {row['task']}\x1b[31m" for row in document["proposals"] if task in ("", row["task"])]

    @classmethod
    def report(cls, document, read):
        known = document()
        if known["config"]["settings"].get("report") == "false":
            raise ZeroDivisionError("a bug in the report")
        return "<!doctype html>" + " ".join(read(item["content_sha"]) for item in known["candidates"])
