"""What differs between targets: who judges, who proposes offline, what a candidate is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orienteer.agents.evokernel.offline import Search
from orienteer.environments.kernel import targets, toolchain
from orienteer.environments.kernel.world import KernelWorld, TaskInfo
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.evaluators.kernel.hidden import HiddenCases
from orienteer.evaluators.kernel.verdict import Verdict


class Verifier(Protocol):
    """Judges the candidates of one target."""

    def settings(self) -> dict[str, Any]:
        """Return everything on which a verdict depends besides task and candidate."""

    def hidden_cases(self, info: TaskInfo) -> HiddenCases:
        """Choose hidden cases for a task."""

    def judge(self, info: TaskInfo, hidden: HiddenCases, source: str) -> Verdict:
        """Put a candidate through the gates."""


@dataclass(frozen=True)
class Request:
    """What a kit is opened with."""

    target: str
    chip: str
    archs: Sequence[str]
    cases: int
    seed: int
    #: Let the offline proposer draft with a textbook schedule instead of the target's own.
    plain: bool = False
    #: Of the cpu target: threads (None: every core), seconds of measuring, and whether torch.compile is timed too.
    threads: int | None = None
    seconds: float = 1.5
    compiled: bool = False


@dataclass(frozen=True)
class Kit:
    """One target, open."""

    target: str
    #: What a latency holds for.
    device: str
    verifier: Verifier
    search: Search
    suffix: str
    media: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    #: Set where a gate cannot be applied here: gate and cure.
    skipped: tuple[str, str] | None = None
    chip: targets.AscendChip | None = None
    archs: Sequence[targets.GpuArch] = ()


def check(request: Request) -> None:
    """Check a request before anything is opened.

    Raises:
        UsageError: unknown target, chip or architecture.
        MissingPrerequisite: what the target needs is not installed.
    """
    target = targets.check_target(request.target)
    if target == "npu":
        targets.chip(request.chip)
    if target == "triton":
        if not request.archs:
            raise UsageError("no architecture is given", "for example --set archs='[\"sm_90\"]'")
        for name in request.archs:
            targets.arch(name)
    _require("torch", *(() if target == "cpu" else ("triton",)))


def open_kit(request: Request, world: KernelWorld, home: Path) -> Kit:
    """Open a target."""
    if request.target == "cpu":
        return _cpu(request, world, home)
    from orienteer.evaluators.kernel.gates import KernelVerifier
    from orienteer.kernels.blocks.search import TritonSearch

    npu = request.target == "npu"
    chip = targets.chip(request.chip) if npu else None
    archs = [] if npu else [targets.arch(name) for name in request.archs]
    found = toolchain.find(home) if npu else None
    verifier = KernelVerifier(world, chip=chip, toolchain=found, archs=archs, cases=request.cases, seed=request.seed)
    skipped = None
    if npu and found is None:
        skipped = ("compile", f"the Ascend compiler is not installed: {toolchain.CURE}")
    return Kit(
        target=request.target,
        device=chip.name if chip is not None else archs[0].name,
        verifier=verifier,
        search=TritonSearch(request.target, chip.vector_cores if chip is not None else 0, plain=request.plain),
        suffix=".py",
        media="text/x-python",
        provenance={
            "target": chip.name if chip is not None else [arch.name for arch in archs],
            **(found.versions if found is not None else {}),
            **_versions("torch", "triton"),
        },
        skipped=skipped,
        chip=chip,
        archs=archs,
    )


def _cpu(request: Request, world: KernelWorld, home: Path) -> Kit:
    from orienteer.evaluators.kernel.cpu import CpuVerifier
    from orienteer.kernels.cpp.search import CppSearch

    verifier = CpuVerifier(
        world,
        cases=request.cases,
        seed=request.seed,
        home=home,
        threads=request.threads,
        seconds=request.seconds,
        compiled=request.compiled,
    )
    return Kit(
        target="cpu",
        device="cpu",
        verifier=verifier,
        search=CppSearch(verifier.threads),
        suffix=".cpp",
        media="text/x-c++",
        provenance={"target": "cpu", **verifier.provenance(), **_versions("torch")},
    )


def _require(*packages: str) -> None:
    import importlib.util

    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPrerequisite(f"{' and '.join(missing)} is not installed", "pip install 'orienteer[npu]'")


def _versions(*packages: str) -> dict[str, str]:
    from importlib import metadata

    return {name: metadata.version(name) for name in packages}
