"""What a run's progress shows is text and nothing else."""

from __future__ import annotations

import io

import pytest

from orienteer.agents.runtime.display import Display
from orienteer.agents.runtime.events import Event

EVIL = "a\x1b]0;owned\x07\x1b[2J\r\nb\u202e"


@pytest.mark.parametrize(
    ("kind", "facts"),
    [
        ("evaluation.done", {"status": "ok", "evidence": EVIL, "score": 1.0, "seconds": 1.0}),
        ("evaluation.done", {"status": "failed", "failure": EVIL, "message": EVIL, "score": None, "seconds": 1.0}),
        ("evaluation.done", {"status": EVIL, "evidence": "x", "score": None, "seconds": 1.0}),
        ("proposal.failed", {"failure": EVIL, "message": EVIL}),
        ("task.rejected", {"message": EVIL}),
    ],
)
def test_no_line_drives_a_terminal(kind, facts):
    shown = io.StringIO()
    with Display(shown) as display:
        display(Event("r-1", 0.0, 0, kind, {"task": EVIL} | facts))
    line = shown.getvalue()
    assert line.startswith("  a\\x1b]0;owned") and line.endswith("\n") and line[:-1].isprintable()
