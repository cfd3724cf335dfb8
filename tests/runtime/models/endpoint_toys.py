"""A method that asks its model twice for a number, for the test of whole runs on an endpoint."""

from __future__ import annotations

from orienteer.agents.runtime import Ask, Evaluation, Method, Proposal
from orienteer.agents.runtime.models import ModelRequest

SCHEMA = {"type": "object", "properties": {"number": {"type": "integer"}, "note": {"type": "string"}}}


class Asker(Method):
    name = "asker"

    def plan(self, run, state):
        return [Ask("t", {"draw": draw}) for draw in range(3)] if run.step == 0 else []

    def propose(self, run, ask):
        sample = str(ask.directive["draw"])
        reply = run.model.ask(ModelRequest((("user", f"number {sample}"),), SCHEMA, max_tokens=100, sample=sample))
        return Proposal(str(reply.data), notes={"reply": reply.to_plain()})

    def evaluate(self, run, candidate):
        return Evaluation("ok", score=1.0)
