"""One verdict on one kernel file: what stands behind ``agent verify kernel``.

The same gates judge as in a run; nothing is written to the run database.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orienteer.agents.evokernel import kits, results
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.environments.kernel.tasks import find_tasks
from orienteer.environments.kernel.world import BadTask, KernelWorld
from orienteer.errors import OrienteerError, UsageError
from orienteer.evaluators.kernel.verdict import Verdict, rejection_class

#: Endings of files that are certainly not for a target of the other language.
_CPP = (".cpp", ".cc", ".cxx", ".c++")
#: A candidate larger than this is none.
_MOST_BYTES = 1 << 20


def verify_kernel(
    candidate: Path,
    task: str,
    target: str,
    home: Path,
    *,
    chip: str = "Ascend910B3",
    archs: Sequence[str] = ("sm_90",),
    cases: int = 6,
    seed: int = 0,
    threads: int | None = None,
    compiled: bool = False,
    sandbox: str = "auto",
    allow_unsafe: bool = False,
) -> dict[str, Any]:
    """Judge a kernel file for a task on a target.

    Args:
        candidate: the file.
        task: name of a shipped task, or a task file.
        target: ``npu``, ``triton`` or ``cpu``.
        home: where toolchains are.
        chip, archs: for ``npu`` and ``triton``.
        cases, seed: hidden cases, and what decides them.
        threads, compiled: for ``cpu``: threads (None: every core), and whether torch.compile is timed too.
        sandbox, allow_unsafe: where the candidate runs.

    Returns:
        ``verdict`` (``feasible``, ``rejected`` or ``undecided``), ``class`` and ``code`` of a rejection, ``feedback``
        (what to do about it), ``evidence``, ``latency`` (or None), ``gates``, ``hidden_cases``, ``provenance``.

    Raises:
        UsageError: no such file, task or target.
        OrienteerError: our own machinery failed.
    """
    request = kits.Request(target, chip, list(archs), cases, seed, threads=threads, compiled=compiled)
    kits.check(request)
    _check_language(candidate, target)
    source = _read(candidate)
    tasks = find_tasks([task])
    if len(tasks) != 1:
        raise UsageError(f"{task} holds {len(tasks)} tasks; a candidate is judged against one", "name the task's file")
    world = KernelWorld.open(sandbox, allow_unsafe=allow_unsafe)
    try:
        kit = kits.open_kit(request, world, home)
        info = world.inspect(tasks[0])
        hidden = kit.verifier.hidden_cases(info)
        verdict = kit.verifier.judge(info, hidden, source)
        provenance = {"sandbox": world.sandbox.name, "isolation": world.sandbox.isolation, **kit.provenance}
    except BadTask as error:
        raise UsageError(f"task {tasks[0].name}: {error}", "docs/kernels.md says what a task is") from error
    except MachineryFault as error:
        raise OrienteerError(f"the candidate was not judged: {error}", "see `agent doctor`") from error
    finally:
        world.close()
    return {
        "candidate": str(candidate),
        "task": tasks[0].name,
        "target": target,
        **_answer(verdict),
        "gates": [results.gate(item) for item in verdict.gates],
        "hidden_cases": list(hidden.described),
        "seed": seed,
        "provenance": provenance,
    }


def _check_language(path: Path, target: str) -> None:
    """Refuse a C++ file for a target of Triton kernels, and a Python file for ``cpu``."""
    ending = path.suffix.lower()
    if target == "cpu" and ending == ".py":
        raise UsageError(f"{path} is Python, and the target cpu takes C++", "name --target npu or triton")
    if target != "cpu" and ending in _CPP:
        raise UsageError(f"{path} is C++, and the target {target} takes Python with Triton", "name --target cpu")


def _answer(verdict: Verdict) -> dict[str, Any]:
    failed = verdict.failed
    answer: dict[str, Any] = {"verdict": "feasible", "class": None, "code": None, "feedback": None}
    if failed is not None:
        kind = failed.kind or failed.name
        answer |= {"verdict": "rejected", "class": rejection_class(kind), "code": kind, "feedback": failed.detail}
        answer["gate"] = failed.name
    elif verdict.skipped:
        gate = verdict.skipped[0]
        answer |= {"verdict": "undecided", "class": "ours", "code": f"skipped:{gate.name}", "feedback": gate.detail}
        answer["gate"] = gate.name
    answer["evidence"] = verdict.evidence
    answer["latency"] = verdict.latency.describe() if verdict.latency is not None else None
    return answer


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder", "name one kernel file")
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise UsageError(f"{path} is no plain file", "name one kernel file")
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path} is larger than {_MOST_BYTES >> 10} KiB", "a candidate is one source file")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is no UTF-8 text", "save the file as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read ({reason})", "check the path and its permissions") from error
