"""Asking the person in front of the terminal what a run wants to know."""

from __future__ import annotations

import select
import sys
import threading
from typing import TYPE_CHECKING

from orienteer.agents.plainly import clean

if TYPE_CHECKING:
    from orienteer.agents.runtime.display import Display
    from orienteer.agents.runtime.method import Question
    from orienteer.agents.runtime.session import AskSomebody

#: Words that leave the question open and stop the run.
_LEAVE = ("quit", "exit", "q")


def asker(display: Display) -> AskSomebody:
    """Return what asks on the terminal: the question on stderr, one line of stdin as the answer.

    An answer may also come from a pipe, one line a question. The end of input, or ``quit``, leaves the question open.
    """

    def ask(question: Question, cancel: threading.Event) -> str | None:
        display.pause()
        try:
            return _ask(question, cancel)
        except OSError:
            # The terminal, or whoever read us, is gone: the question stays open.
            return None
        finally:
            display.go_on()

    return ask


def _ask(question: Question, cancel: threading.Event) -> str | None:
    out = sys.stderr
    print(f"\n{clean(question.task)}", file=out)
    for text in question.text.splitlines():
        print(clean(text), file=out)
    for name in question.files:
        print(f"  {clean(name)}", file=out)
    hint = " / ".join(question.choices)
    while True:
        print(f"{hint} (or quit)> " if hint else "> ", end="", file=out, flush=True)
        line = _line(cancel)
        if line is None or line.strip().lower() in _LEAVE:
            print(file=out)
            return None
        answer = line.strip()
        if not answer:
            continue
        near = [choice for choice in question.choices if choice.lower().startswith(answer.lower())]
        return near[0] if len(near) == 1 else answer


def _line(cancel: threading.Event) -> str | None:
    """Return a line of stdin; None at its end, or when the run is to stop."""
    # Read in pieces: a signal to stop does not end a read that waits.
    while not cancel.is_set():
        try:
            ready, _, _ = select.select([sys.stdin], [], [], 0.2)
        except (OSError, ValueError):
            return None
        if ready:
            return sys.stdin.readline() or None
    return None
