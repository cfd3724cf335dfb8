"""Compiling a candidate's launches for GPUs without one: cubin and hsaco, with what the binary says of itself.

Run in a sandboxed child after the launches were recorded at the task's true shapes.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel import compile_job
from orienteer.environments.kernel.load import describe_error, load_module


def compile_launches(message: Message) -> Message:
    """Record a candidate's launches and compile each for every architecture.

    Header in: as ``lower_launches``, with ``archs``: list of ``{name, backend, arch, warp_size, shared_bytes}``. Header
    out: ``kernels``, each ``name``, ``grid``, ``signature``, ``constants``, ``scalars`` and ``archs`` (by name:
    ``ok``, ``shared``, ``registers``, ``stack``, ``num_warps``, ``binary`` size, or ``kind`` and ``message``), with
    ``outputs`` and ``library_calls`` as there, or ``error``.
    """
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    notes: set[str] = set()
    recorder = compile_job.Recorder(notes)
    try:
        module = load_module("candidate", message.header["source"])
        recorder.record(module, message.header)
    except BaseException as error:
        return Message({"error": {"kind": "launch", "message": describe_error(error, "candidate.py")}})
    if not recorder.launches:
        return Message({"error": {"kind": "no-launch", "message": "forward launches no kernel at the task's shapes"}})
    kernels = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for launch in list(recorder.launches.values())[: compile_job.MAX_KERNELS]:
            archs = {arch["name"]: _compile(launch, arch) for arch in message.header["archs"]}
            plain = {k: v for k, v in launch.items() if k not in ("fn", "attrs", "raw_constants")}
            kernels.append({**plain, "archs": archs})
    return Message({"kernels": kernels, "notes": sorted(notes), **recorder.seen})


def _compile(launch: Mapping[str, Any], arch: Mapping[str, Any]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(launch["fn"], dict(launch["signature"]), dict(launch["raw_constants"]), dict(launch["attrs"]))
    target = GPUTarget(arch["backend"], arch["arch"], arch["warp_size"])
    try:
        with _stop_when_too_large(arch["shared_bytes"]):
            compiled = triton.compile(source, target=target, options=dict(launch["options"]))
    except _TooLarge as error:
        return _too_large(launch, arch, {"ok": False, "shared": error.shared})
    except BaseException as error:
        return {"ok": False, "kind": "compile", "message": compile_job.explain(error)}
    metadata = compiled.metadata
    binary_name = "cubin" if arch["backend"] == "cuda" else "hsaco"
    binary = compiled.asm.get(binary_name)
    facts: dict[str, Any] = {
        "ok": bool(binary),
        "shared": int(getattr(metadata, "shared", 0) or 0),
        "num_warps": int(getattr(metadata, "num_warps", 0) or 0),
        "binary": len(binary or b""),
    }
    if not binary:
        return {**facts, "kind": "compile", "message": f"no {binary_name} was produced"}
    if arch["backend"] == "cuda":
        facts.update(_cuda_resources(binary))
    else:
        facts.update(_hip_resources(compiled.asm.get("amdgcn", "")))
    return _too_large(launch, arch, facts) if facts["shared"] > arch["shared_bytes"] else facts


def _too_large(launch: Mapping[str, Any], arch: Mapping[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    text = (
        f"{launch['name']}: {facts['shared']} bytes of shared memory a block, {arch['name']} has "
        f"{arch['shared_bytes']}; use smaller tiles or fewer stages"
    )
    return {**facts, "ok": False, "kind": "shared-memory", "message": text}


class _TooLarge(Exception):
    def __init__(self, shared: int) -> None:
        super().__init__(shared)
        self.shared = shared


@contextlib.contextmanager
def _stop_when_too_large(limit: int) -> Iterator[None]:
    """End a compilation as soon as its shared memory is known: the assembler takes minutes over tiles that spill."""
    from triton import knobs

    def hook(*stage: Any) -> Any:
        if not stage:
            return f"shared-limit-{limit}", f"shared-limit-{limit}"  # a part of the cache's key
        stages = stage[1]
        make = stages["llir"]

        def llir(module: Any, metadata: dict[str, Any]) -> Any:
            made = make(module, metadata)
            if int(metadata.get("shared") or 0) > limit:
                raise _TooLarge(int(metadata["shared"]))
            return made

        stages["llir"] = llir
        return None

    knobs.runtime.add_stages_inspection_hook = hook
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook = None


def _cuda_resources(binary: bytes) -> dict[str, int]:
    """Read registers and stack (a sign of spills) from a cubin by the packaged ``cuobjdump``."""
    import triton.backends.nvidia as nvidia

    tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as handle:
        handle.write(binary)
        handle.flush()
        try:
            done = subprocess.run(
                [str(tool), "-res-usage", handle.name], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return {}
    found = {key.lower(): int(value) for key, value in re.findall(r"\b(REG|STACK):(\d+)", done.stdout + done.stderr)}
    return {"registers": found.get("reg", 0), "stack": found.get("stack", 0)} if found else {}


def _hip_resources(assembly: str) -> dict[str, int]:
    found = {key: int(value) for key, value in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s*(\d+)", assembly)}
    out = {}
    if "vgpr_count" in found:
        out["registers"] = found["vgpr_count"]
    if "vgpr_spill_count" in found:
        out["stack"] = found["vgpr_spill_count"] * 4
    return out
