"""Layouts drawn by a Python script: run behind the sandbox's walls, its files brought back and checked.

The script's obligations are Rule2DRC's (arXiv 2605.15669): it writes GDS files into ``OUT_DIR``, ``MAX_CASES`` of them
at most, takes randomness from ``SEED``, and may write ``manifest.jsonl`` with what it expects of each file.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orienteer.environments.execution import ExitCause, Limits
from orienteer.environments.execution.paths import interpreter, software
from orienteer.environments.execution.sandbox import Sandbox

#: Wall clock of a script, seconds, as upstream.
SECONDS = 60.0
_OUT, _BACK = "out", "back"
_LOG = 4000
#: ``# EXPECTED: PASS`` or ``# EXPECTED: VIOLATION``.
_EXPECTED = re.compile(r"EXPECTED\s*:\s*(PASS|VIOLATION)", re.IGNORECASE)


@dataclass(frozen=True)
class ScriptRun:
    """What a script drew.

    Attributes:
        files: layouts by name, in the order of their names.
        expected: what the manifest says of a file, per category (1: a violation).
        failure: why there is nothing, with the script's own output; empty where it worked.
        log: what it printed.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    failure: str = ""
    log: str = ""


def run_script(
    script: str,
    sandbox: Sandbox,
    *,
    cases: int,
    seed: int = 0,
    categories: Sequence[str] = (),
    seconds: float = SECONDS,
    cancel: threading.Event | None = None,
) -> ScriptRun:
    """Run a script and return the layouts it drew.

    Args:
        script: Python that imports ``pya`` or ``klayout.db``.
        sandbox: where it runs.
        cases: ``MAX_CASES``; further files are left out.
        seed: ``SEED``.
        categories: what the manifest may speak of.
        seconds: its wall clock.
        cancel: ends it.
    """
    places = [f"{_BACK}/{n:04d}.gds" for n in range(cases)]
    result = sandbox.exec(
        [interpreter(), "-I", "run.py"],
        files={"run.py": _RUN.encode(), "gen.py": script.encode("utf-8", "replace")},
        binds=software(),
        env={"MAX_CASES": str(cases), "SEED": str(seed)},
        limits=Limits(wall_s=seconds, memory_mb=1024, disk_mb=256),
        collect=[*places, f"{_BACK}/names.json", f"{_OUT}/manifest.jsonl"],
        cancel=cancel,
    )
    log = (result.stdout + result.stderr).decode("utf-8", "replace")[-_LOG:]
    if result.cause is ExitCause.SANDBOX_ERROR:
        raise RuntimeError(result.error)
    if result.cause is not ExitCause.OK:
        return ScriptRun(failure=f"the script ended by {result.cause}\n{log}", log=log)
    if result.returncode:
        return ScriptRun(failure=f"the script ended with status {result.returncode}\n{log}", log=log)
    names = _names(result.files.get(f"{_BACK}/names.json", b""))
    files = {names[n]: result.files[p] for n, p in enumerate(places) if n < len(names) and result.files.get(p)}
    if not files:
        return ScriptRun(failure=f"the script wrote no .gds file into OUT_DIR\n{log}", log=log)
    return ScriptRun(files, _manifest(result.files.get(f"{_OUT}/manifest.jsonl", b""), files, categories), log=log)


def expected_bit(text: str) -> int | None:
    """Return what a script's comment expects of its layout: 1 for a violation; None where it says nothing."""
    match = _EXPECTED.search(text)
    return None if match is None else int(match[1].upper() == "VIOLATION")


def _manifest(raw: bytes, files: Mapping[str, bytes], categories: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the expectations of a manifest; lines that say nothing of a file that is there are left out."""
    found: dict[str, dict[str, int]] = {}
    for line in raw.decode("utf-8", "replace").splitlines():
        try:
            item = json.loads(line)
            name = Path(str(item["filename"])).name
            said = item["expected"]
        except (ValueError, TypeError, KeyError, RecursionError):
            continue
        if name in files and isinstance(said, dict):
            found[name] = {category: int(bool(said.get(category, 0))) for category in categories}
    return found


def _names(raw: bytes) -> list[str]:
    try:
        found = json.loads(raw)
    except ValueError:
        return []
    return [str(name) for name in found] if isinstance(found, list) else []


#: Runs the script, then puts the layouts, whatever their names, where they are brought back from.
_RUN = """
import json, os, pathlib, runpy
out, back = pathlib.Path("out").resolve(), pathlib.Path("back").resolve()
out.mkdir(exist_ok=True)
back.mkdir(exist_ok=True)
os.environ["OUT_DIR"] = str(out)
runpy.run_path("gen.py", run_name="__main__")
found = sorted(p for p in out.rglob("*.gds") if p.is_file() and not p.is_symlink())[: int(os.environ["MAX_CASES"])]
for number, path in enumerate(found):
    (back / f"{number:04d}.gds").write_bytes(path.read_bytes())
(back / "names.json").write_text(json.dumps([path.name for path in found]))
"""
