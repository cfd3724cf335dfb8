"""A deck in an engineer's words."""

from __future__ import annotations

from orienteer.environments.layout.dsl.tree import Program


def explain(program: Program) -> list[str]:
    """Return lines that say what a deck reports."""
    return [f"{len(program.statements)} statements"]
