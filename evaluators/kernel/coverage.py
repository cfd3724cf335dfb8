"""How many operators the offline proposer proves, and why it does not prove the rest.

Every task is inspected, traced and written under the first schedule, then under the safer ones until a candidate passes
every gate. What does not is put into a class: ``bad task`` (the task itself cannot be judged), ``untraced``, ``no
building block``, and the classes of rejections (``verdict.rejection_class``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orienteer.environments.kernel.tasks import KernelTask, find_tasks
from orienteer.environments.kernel.world import BadTask, KernelWorld
from orienteer.errors import UsageError
from orienteer.evaluators.kernel.bench import standard_verifier
from orienteer.evaluators.kernel.gates import KernelVerifier
from orienteer.evaluators.kernel.verdict import rejection_class
from orienteer.kernels.blocks.emit import Unsupported
from orienteer.kernels.blocks.search import TritonSearch


@dataclass(frozen=True)
class Answer:
    """What became of one task."""

    task: str
    group: str
    #: ``E1:Ascend910B3`` ..., empty where no candidate passed.
    evidence: str = ""
    #: Class of the reason where none passed.
    reason: str = ""
    detail: str = ""
    #: Modelled seconds of the candidate that passed, where they are known.
    seconds: float | None = None
    #: Candidates that were judged.
    judged: int = 0


def coverage(tasks: Sequence[str], target: str, workers: int, home: Path) -> dict[str, Any]:
    """Measure which tasks the offline proposer proves.

    Args:
        tasks: names of shipped tasks, files and folders; none means all shipped ones.
        target: ``npu`` or ``triton``.
        workers: tasks at one time.
        home: Orienteer's folder, where the Ascend compiler is installed.

    Returns:
        ``groups`` (rows of a table: group, tasks, proven, share, candidates judged), ``reasons`` (rows: class, tasks,
        example), and ``answers``, one plain dictionary for each task.

    Raises:
        MissingPrerequisite: the Ascend compiler or a sandbox is missing.
        UsageError: another target.
    """
    if target not in ("npu", "triton"):
        raise UsageError(f"coverage is not measured for the target {target!r}", "use npu or triton")
    problems: dict[str, str] = {}
    found = find_tasks(tasks, problems)
    world = KernelWorld.open("auto", workers=max(1, workers))
    try:
        verifier = standard_verifier(world, target, home)
        search = TritonSearch(target, verifier.chip.vector_cores if verifier.chip is not None else 0)
        with ThreadPoolExecutor(max(1, workers)) as pool:
            answers = list(pool.map(lambda task: judge(task, world, verifier, search), found))
    finally:
        world.close()
    answers += [Answer(name, "", reason="bad task", detail=text) for name, text in problems.items()]
    return {
        "target": target,
        "groups": group_rows(answers),
        "reasons": reason_rows(answers),
        "answers": [asdict(answer) for answer in answers],
    }


def judge(task: KernelTask, world: KernelWorld, verifier: KernelVerifier, search: TritonSearch) -> Answer:
    """Write candidates for one task until one passes every gate.

    Raises:
        MachineryFault: our own machinery failed.
    """
    try:
        info = world.inspect(task)
        hidden = verifier.hidden_cases(info)
    except BadTask as error:
        return Answer(task.name, task.group, "", "bad task", str(error))
    graph = world.trace(info)
    if isinstance(graph, str):
        return Answer(task.name, task.group, "", "untraced", graph)
    last = Answer(task.name, task.group)
    tried: set[str] = set()
    for schedule in (search.first(graph), *search.fallbacks(graph)):
        try:
            draft = search.write(graph, task.name, task.source, schedule)
        except Unsupported as error:
            return last if last.judged else Answer(task.name, task.group, "", "no building block", str(error))
        if draft.source in tried:
            continue
        tried.add(draft.source)
        verdict = verifier.judge(info, hidden, draft.source)
        failed = verdict.failed
        if failed is None and verdict.evidence:
            seconds = verdict.latency.seconds if verdict.latency is not None else None
            return Answer(task.name, task.group, verdict.evidence, seconds=seconds, judged=len(tried))
        gate = failed or verdict.skipped[0]
        reason = rejection_class(gate.kind) if failed is not None else "not judged"
        last = Answer(task.name, task.group, "", reason, f"{gate.kind}: {gate.detail}".lstrip(": "), judged=len(tried))
    return last


def group_rows(answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Return rows of group, tasks, proven, share and candidates judged; the last one is all groups together."""
    names = sorted({answer.group for answer in answers})
    rows = [_row(name or "tasks", [a for a in answers if a.group == name]) for name in names]
    return [*rows, _row("all", answers)] if len(names) > 1 else rows


def _row(name: str, answers: Sequence[Answer]) -> dict[str, str]:
    proven = sum(bool(answer.evidence) for answer in answers)
    judged = sum(answer.judged for answer in answers)
    share = f"{100 * proven / len(answers):.1f} %" if answers else "-"
    return {
        "group": name,
        "tasks": str(len(answers)),
        "proven": str(proven),
        "share": share,
        "candidates judged": str(judged),
    }


def reason_rows(answers: Sequence[Answer]) -> list[dict[str, str]]:
    """Return rows of class, tasks and one example, the most frequent class first."""
    left = [answer for answer in answers if not answer.evidence]
    rows = []
    for reason, count in Counter(answer.reason for answer in left).most_common():
        example = next(answer for answer in left if answer.reason == reason)
        text = f"{example.task}: {' '.join(example.detail.split())[:160]}"
        rows.append({"class": reason, "tasks": str(count), "example": text})
    return rows
