"""How runs end, in words: what the backends with an installed KLayout share."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orienteer.environments.layout.results import DeckResult, RunStatus

NO_REPORT = "the deck ended without report(..., $output)"
_ADDRESS = re.compile(r":0x[0-9a-f]{4,}")


@dataclass(frozen=True)
class Answer:
    """One run of a request: its place in it, the result, and the report file where asked for."""

    index: int
    result: DeckResult
    report: bytes = b""


def said_line(text: bytes | str) -> str:
    """Return what a deck's error says as one line that is the same in every run (no addresses)."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    plain = "".join(c if c.isprintable() else " " for c in plain)
    return " ".join(_ADDRESS.sub("", plain).split())[:400]


def death(how: str) -> tuple[RunStatus, str]:
    """Return status and message for the way a deck's process died: ``signal N``, ``exit N``, or else."""
    word, _, number = how.partition(" ")
    if word == "signal":
        if number == "24":
            return RunStatus.TIMEOUT, "the deck used more processor time than its time-out"
        if number == "25":
            return RunStatus.LIMIT, "the deck wrote a larger file than the sandbox allows"
        return RunStatus.CRASH, f"the process of the deck died of signal {number}"
    if word == "exit" and number == "0":
        return RunStatus.NO_REPORT, "the deck ended its process (exec, exit!) before its report was saved"
    if word == "exit":
        return RunStatus.ERROR, f"the deck ended its process with exit status {number}"
    return RunStatus.CRASH, "the deck wrote something that is no result in the result's place"
