"""The model proposer of EvoKernel: what is asked and what is accepted. The prompts are the text files beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from orienteer.agents.runtime.models import ModelRequest
from orienteer.environments.kernel.targets import AscendChip, GpuArch
from orienteer.environments.kernel.world import TaskInfo

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string", "minLength": 1}},
    "required": ["code"],
    "additionalProperties": False,
}


@cache
def prompt(name: str) -> str:
    """Return a prompt file's text."""
    return (Path(__file__).parent / "prompts" / f"{name}.txt").read_text(encoding="utf-8")


def system_prompt(chip: AscendChip | None, archs: Sequence[GpuArch]) -> str:
    """Return the standing instructions for a target."""
    if chip is not None:
        return prompt("system").format(
            target_text=f"Huawei Ascend NPUs ({chip.name})", target_rules=prompt("npu").format(chip=chip.name).rstrip()
        )
    names = ", ".join(arch.name for arch in archs)
    shared = min((arch.shared_bytes for arch in archs), default=0) >> 10
    return prompt("system").format(
        target_text=f"GPUs ({names})", target_rules=prompt("triton").format(archs=names, shared=shared).rstrip()
    )


def request(
    info: TaskInfo,
    chip: AscendChip | None,
    archs: Sequence[GpuArch],
    *,
    attempt: int,
    failure: Mapping[str, Any] | None,
    previous: str,
    seed: int,
    max_tokens: int,
    temperature: float | None,
) -> ModelRequest:
    """Build the request for one attempt; from the second on it carries what was wrong with the last."""
    text = prompt("draft").format(
        source=info.task.source, inputs=_shapes(info.inputs), outputs=_shapes(info.outputs), state=_shapes(info.state)
    )
    if failure is not None:
        text += prompt("retry").format(
            attempt=attempt,
            gate=failure.get("gate", "proposal"),
            kind=failure.get("kind", ""),
            message=failure.get("message", ""),
            previous=previous or "(no file)",
        )
    return ModelRequest(
        messages=(("system", system_prompt(chip, archs)), ("user", text)),
        schema=SCHEMA,
        schema_name="kernel_file",
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        sample=f"{info.task.name}/{attempt}",
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
