"""The one shared runtime: what a method implements, and what starts, resumes and reports its runs.

A method's module needs the names of :mod:`~orienteer.agents.runtime.method` only; they are repeated here.
"""

from typing import TYPE_CHECKING, Any

from orienteer.agents.runtime.method import (
    Ask,
    AskPerson,
    Candidate,
    Evaluation,
    Failure,
    MachineryError,
    Method,
    Outcome,
    Plain,
    Proposal,
    ProposalFailed,
    Question,
    Settings,
)

if TYPE_CHECKING:
    from orienteer.agents.runtime.run import Run

__all__ = [
    "Ask",
    "AskPerson",
    "Candidate",
    "Evaluation",
    "Failure",
    "MachineryError",
    "Method",
    "Outcome",
    "Plain",
    "Proposal",
    "ProposalFailed",
    "Question",
    "Run",
    "Settings",
]


def __getattr__(name: str) -> Any:
    # Run brings the stores along, which a command that only lists methods does not need.
    if name == "Run":
        from orienteer.agents.runtime.run import Run

        return Run
    raise AttributeError(name)
