"""The process for layouts that are not small: it can be killed, and the system limits its memory.

Lines of JSON on standard input and output. In: ``{"layout": path, "decks": [text, ...], "geometry": bool,
"like": version}``. Out: one
line per deck, in order. The layout is read once for all decks of a request.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from orienteer.environments.layout.results import DeckResult, RunStatus, Violation


def main(memory_mb: int) -> None:
    """Serve requests until standard input ends."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # klayout.db may print; the answers have a stream of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        for result in _serve(json.loads(line)):
            answers.write(json.dumps(written(result)) + "\n")
            answers.flush()


def _serve(request: dict[str, Any]) -> Any:
    from klayout import db

    from orienteer.environments.layout.dsl.engine import Source
    from orienteer.environments.layout.dsl.interpreter import Interpreter, failed
    from orienteer.environments.layout.dsl.tree import Program

    interpreter = Interpreter(request["like"])
    layout = db.Layout()
    wrong = None
    try:
        layout.read(request["layout"])
    except RuntimeError as error:
        wrong = DeckResult(RunStatus.BAD_LAYOUT, message=f"the layout cannot be read: {short(error)}")
    except MemoryError:
        wrong = DeckResult(RunStatus.LIMIT, message="reading the layout needs more memory than it may")
    for deck in request["decks"]:
        start = time.process_time()
        program = interpreter.program(deck)
        if wrong is not None:
            result = wrong
        elif isinstance(program, Program):
            source = Source(layout)
            try:
                result = interpreter.run(program, source, geometry=request["geometry"])
            except MemoryError:
                result = DeckResult(RunStatus.LIMIT, message="the deck needs more memory than it may")
        else:
            result = failed(program)
        if "bad_alloc" in result.message:
            result = DeckResult(RunStatus.LIMIT, message="the deck needs more memory than it may")
        yield DeckResult(
            result.status,
            result.counts,
            result.violations,
            result.descriptions,
            result.message,
            result.line,
            cpu_s=time.process_time() - start,
        )


def short(error: BaseException) -> str:
    """Return an error's text in one short line."""
    return " ".join(str(error).split())[:200]


def written(result: DeckResult) -> dict[str, Any]:
    """Return a result as plain values for JSON."""
    shapes = None
    if result.violations is not None:
        shapes = {name: [[v.kind, v.contours, v.text] for v in found] for name, found in result.violations.items()}
    return {
        "status": result.status.value,
        "counts": dict(result.counts),
        "violations": shapes,
        "descriptions": dict(result.descriptions),
        "message": result.message,
        "line": result.line,
        "cpu_s": result.cpu_s,
    }


def read(data: dict[str, Any]) -> DeckResult:
    """Return the result that ``written`` wrote."""
    shapes = data["violations"]
    if shapes is not None:
        shapes = {
            name: tuple(
                Violation(kind, tuple(tuple((float(x), float(y)) for x, y in one) for one in contours), text)
                for kind, contours, text in found
            )
            for name, found in shapes.items()
        }
    return DeckResult(
        RunStatus(data["status"]),
        {str(name): int(count) for name, count in data["counts"].items()},
        shapes,
        data["descriptions"],
        str(data["message"]),
        data["line"],
        cpu_s=float(data["cpu_s"]),
    )


def command(memory_mb: int) -> list[str]:
    """Return the command that starts this process."""
    return [sys.executable, "-c", f"from {__name__} import main; main({memory_mb})"]


def environment() -> dict[str, str]:
    """Return its environment: nothing but where Python finds its packages."""
    paths = [entry for entry in sys.path if entry and Path(entry).exists()]
    return {"PYTHONPATH": ":".join(paths), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
