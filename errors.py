"""Errors that a person reads: one line that says what is wrong and one that says how to cure it.

This module is the leaf of the house: every layer may import it, it imports nothing of ours.
The command prints such an error without a traceback and exits with its code.
"""

from __future__ import annotations


class OrienteerError(Exception):
    """Something the person in front of the screen can understand and mend.

    Args:
        problem: what is wrong, one line, no trailing full stop.
        cure: what to do about it, one line; may be empty when there is nothing to do.
    """

    #: Exit status of the ``agent`` command when this error ends it.
    exit_code = 1

    def __init__(self, problem: str, cure: str = "") -> None:
        self.problem = " ".join(str(problem).split())
        self.cure = " ".join(str(cure).split())
        super().__init__(self.problem)

    def __str__(self) -> str:
        return f"{self.problem}: {self.cure}" if self.cure else self.problem


class UsageError(OrienteerError):
    """The request itself is wrong: an unknown method, target, task, flag value or file."""

    exit_code = 2


class MissingPrerequisite(OrienteerError):
    """Something that must be installed or started is not there; ``cure`` says how to get it."""

    exit_code = 3


class BudgetReached(OrienteerError):
    """A limit that the person set (evaluations, tokens, money, time) allows no more work."""

    exit_code = 4


class StoreError(OrienteerError):
    """The run database or the artifact store cannot be used: locked, read-only, corrupt, newer, full."""

    exit_code = 5


class EndpointError(OrienteerError):
    """The model endpoint cannot serve this run at all: wrong key, unknown model, dead host."""

    exit_code = 6


class Interrupted(OrienteerError):
    """The person (or a supervisor) asked the run to stop; it can be resumed."""

    exit_code = 130
