"""A whole method in one small class: search for a short sorting network, proven on every 0-1 input.

Run it with ``agent run docs.examples.sorting_network:SortingNetwork --set wires=6`` from the repository root.
A network that sorts all 0-1 inputs sorts everything (Knuth, The Art of Computer Programming 3, 5.3.4).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import Field

from orienteer.agents.runtime import (
    Ask,
    Candidate,
    Evaluation,
    Failure,
    Method,
    Outcome,
    Plain,
    Proposal,
    Run,
    Settings,
)


class SortingNetwork(Method):
    """Hill climbing on comparator lists: each step mutates the shortest network found so far."""

    name = "sorting-network"
    minimise = True

    class Settings(Settings):
        wires: int = Field(default=4, ge=2, le=10, description="values to sort")
        steps: int = Field(default=20, description="loop iterations")
        width: int = Field(default=4, description="candidates per step")

    def start(self, run: Run) -> Plain:
        wires = range(run.settings.wires)
        return {"best": [[i, i + 1] for _ in wires for i in wires[:-1]]}  # bubble sort: correct, long

    def plan(self, run: Run, state: Plain) -> Sequence[Ask]:
        if run.step < run.settings.steps:
            return [Ask(task="network", directive={"from": state["best"]}) for _ in range(run.settings.width)]
        return []

    def propose(self, run: Run, ask: Ask) -> Proposal:
        rng, network = run.rng("mutate", ask.step, ask.slot), list(ask.directive["from"])
        for _ in range(min(len(network), rng.randint(1, 3))):
            network.pop(rng.randrange(len(network)))
        if rng.random() < 0.5:
            network.insert(rng.randrange(len(network) + 1), sorted(rng.sample(range(run.settings.wires), 2)))
        return Proposal(content=json.dumps(network), media="application/json")

    def evaluate(self, run: Run, candidate: Candidate) -> Evaluation:
        network, wires = json.loads(candidate.content), run.settings.wires
        for number in range(2**wires):
            values = [number >> i & 1 for i in range(wires)]
            for low, high in network:
                values[low], values[high] = min(values[low], values[high]), max(values[low], values[high])
            if values != sorted(values):
                return Evaluation("failed", failure=Failure("unsorted", f"input {number:0{wires}b} is not sorted"))
        return Evaluation("ok", score=len(network), evidence="all 0-1 inputs")

    def learn(self, run: Run, state: Plain, outcomes: Sequence[Outcome]) -> Plain:
        good = [json.loads(o.candidate.content) for o in outcomes if o.evaluation and o.evaluation.status == "ok"]
        return {"best": min([state["best"], *good], key=len)}
