"""The model proposer of EvoKernel: what is asked and what is accepted. The prompts are the text files beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orienteer.agents.evokernel import results, stages
from orienteer.agents.runtime.method import Candidate, Evaluation
from orienteer.agents.runtime.models import ModelRequest
from orienteer.environments.kernel.world import TaskInfo

if TYPE_CHECKING:
    from orienteer.agents.evokernel.kits import Kit
    from orienteer.agents.evokernel.memories import Memories
    from orienteer.memory.experience.items import Item

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "minLength": 1}, "change": {"type": "string"}},
    "required": ["code"],
    "additionalProperties": False,
}
#: Characters of one recalled kernel, and of the whole context, in a prompt.
_MOST_CODE, _MOST_CONTEXT = 4000, 16000


@dataclass(frozen=True)
class Attempt:
    """What is known when a kernel is asked for."""

    number: int
    stage: str
    failure: Mapping[str, Any] | None = None
    #: The last attempt's file while drafting, the start point's while refining.
    previous: str = ""
    #: How many times as fast as the start point the best kernel so far is.
    ahead: float = 1.0
    #: What is known about the start point's latency (``Latency.describe()``).
    measured: Mapping[str, Any] = field(default_factory=dict)
    #: Variants of the start point that were tried already.
    children: Sequence[tuple[Candidate, Evaluation | None]] = ()


@cache
def prompt(name: str) -> str:
    """Return a prompt file's text."""
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def system_prompt(kit: Kit) -> str:
    """Return the standing instructions for a target."""
    if kit.target == "cpu":
        return prompt("system_cpu")
    if kit.chip is not None:
        return prompt("system").format(
            target_text=f"Huawei Ascend NPUs ({kit.chip.name})",
            target_rules=prompt("npu").format(chip=kit.chip.name).rstrip(),
        )
    names = ", ".join(arch.name for arch in kit.archs)
    shared = min((arch.shared_bytes for arch in kit.archs), default=0) >> 10
    return prompt("system").format(
        target_text=f"GPUs ({names})", target_rules=prompt("triton").format(archs=names, shared=shared).rstrip()
    )


def context(items: Sequence[Item], memories: Memories, device: str) -> list[str]:
    """Return what the memory adds to a prompt: API notes (those that recalled code names first), recalled items."""
    from orienteer.agents.evokernel.memories import as_context

    code = [memories.artifacts.text(item.content_sha) for item in items if item.content_sha]
    parts = [item.text for item in memories.api(device, code)]
    used = sum(len(part) for part in parts)
    for item in items:
        text = as_context(item, memories.artifacts, _MOST_CODE)
        if used + len(text) > _MOST_CONTEXT:
            break
        used += len(text)
        parts.append(text)
    return parts


def request(
    info: TaskInfo,
    kit: Kit,
    attempt: Attempt,
    known: Sequence[str],
    *,
    seed: int,
    max_tokens: int,
    temperature: float | None,
) -> ModelRequest:
    """Build the request for one attempt.

    Args:
        info: the task.
        kit: the target.
        attempt: stage, start point, what was wrong with the last attempt.
        known: what the memory adds.
        seed, max_tokens, temperature: of the model call.
    """
    text = prompt("draft").format(
        source=info.task.source, inputs=_shapes(info.inputs), outputs=_shapes(info.outputs), state=_shapes(info.state)
    )
    if known:
        text += prompt("memory").format(items="\n".join(f"- {part}" for part in known))
    if attempt.stage == stages.REFINE:
        text += _refine(attempt)
    elif attempt.failure is not None:
        text += prompt("retry").format(
            attempt=attempt.number,
            gate=attempt.failure.get("gate", "proposal"),
            kind=attempt.failure.get("kind", ""),
            message=attempt.failure.get("message", ""),
            previous=attempt.previous or "(no file)",
        )
    return ModelRequest(
        messages=(("system", system_prompt(kit)), ("user", text)),
        schema=SCHEMA,
        schema_name="kernel_file",
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        sample=f"{info.task.name}/{attempt.number}",
    )


def _refine(attempt: Attempt) -> str:
    measured = attempt.measured
    lines = []
    for child, evaluation in attempt.children:
        what = str(child.notes.get("change") or "a variant")
        if evaluation is None or evaluation.failure is not None:
            became = evaluation.failure.kind if evaluation is not None and evaluation.failure is not None else "lost"
        else:
            became = results.seconds((evaluation.metrics.get("latency") or {}).get("seconds"))
        lines.append(f"- {what}: {became}")
    last = ""
    if attempt.failure is not None:
        last = f"The last attempt failed ({attempt.failure.get('kind', '')}): {attempt.failure.get('message', '')}\n"
    floor = measured.get("floor_s")
    return prompt("refine").format(
        latency=results.seconds(measured.get("seconds")),
        ahead=f"{attempt.ahead:.2f}",
        how=measured.get("how", "unknown"),
        bottleneck=measured.get("bottleneck") or "unknown",
        floor=results.seconds(floor) if isinstance(floor, float) else "unknown",
        children="\n".join(lines) or "- none yet",
        last=last,
        previous=attempt.previous,
    )


def _shapes(items: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for item in items:
        if "value" in item:
            parts.append(repr(item["value"]))
        else:
            name = f"{item['name']}: " if "name" in item else ""
            parts.append(f"{name}{item['dtype']}[{', '.join(str(n) for n in item['shape'])}]")
    return "; ".join(parts) or "none"
