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
    out: ``kernels``, each ``name``, ``grid``, ``signature``, ``constants``, ``scalars``, ``calls``, ``ttir`` (text) and
    ``archs`` (by name: ``ok``, ``shared``, ``registers``, ``stack``, ``num_warps``, ``binary`` size, ``instructions``
    by class, or ``kind`` and ``message``), with ``outputs`` and ``library_calls`` as there, or ``error``.
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
            archs, texts = {}, [""]
            for arch in message.header["archs"]:
                archs[arch["name"]] = _compile(launch, arch, texts)
            plain = {k: v for k, v in launch.items() if k not in ("fn", "attrs", "raw_constants")}
            kernels.append({**plain, "ttir": texts[-1], "archs": archs})
    return Message({"kernels": kernels, "notes": sorted(notes), **recorder.seen})


def _compile(launch: Mapping[str, Any], arch: Mapping[str, Any], texts: list[str]) -> dict[str, Any]:
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
    texts.append(str(compiled.asm.get("ttir", "")))
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


def _cuda_resources(binary: bytes) -> dict[str, Any]:
    """Read registers, stack (a sign of spills) and instructions from a cubin by the packaged disassemblers."""
    import triton.backends.nvidia as nvidia

    tools = Path(nvidia.__file__).parent / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as handle:
        handle.write(binary)
        handle.flush()
        usage = _output([str(tools / "cuobjdump"), "-res-usage", handle.name])
        assembly = _output([str(tools / "nvdisasm"), "-c", handle.name])
    found = {key.lower(): int(value) for key, value in re.findall(r"\b(REG|STACK):(\d+)", usage)}
    out: dict[str, Any] = {"registers": found.get("reg", 0), "stack": found.get("stack", 0)} if found else {}
    names = re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]+)", assembly, re.MULTILINE)
    if names:
        out["instructions"] = _histogram(names, _SASS)
    return out


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


#: Classes of instructions by the beginning of their names.
_SASS = (
    ("global", ("LDG", "STG", "LDGSTS", "UTMALDG", "UTMASTG", "RED", "ATOMG")),
    ("local", ("LDL", "STL")),
    ("shared", ("LDS", "STS", "LDSM", "STSM", "ATOMS")),
    ("tensor", ("HMMA", "IMMA", "DMMA", "QMMA", "HGMMA", "QGMMA", "IGMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTC")),
    ("special", ("MUFU",)),
    ("float", ("FADD", "FMUL", "FFMA", "HADD", "HMUL", "HFMA", "DADD", "DMUL", "DFMA", "FMNMX", "FSETP", "FSEL")),
    ("barrier", ("BAR", "WARPSYNC", "SYNCS", "DEPBAR", "LDGDEPBAR")),
    ("branch", ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET")),
)
_GCN = (
    ("global", ("global_", "buffer_", "flat_")),
    ("local", ("scratch_",)),
    ("shared", ("ds_",)),
    ("tensor", ("v_mfma", "v_smfmac")),
    ("special", ("v_exp", "v_log", "v_rcp", "v_rsq", "v_sqrt", "v_sin", "v_cos")),
    ("barrier", ("s_barrier", "s_waitcnt")),
    ("branch", ("s_cbranch", "s_branch", "s_endpgm")),
    ("vector", ("v_",)),
    ("scalar", ("s_",)),
)


def _histogram(names: list[str], classes: tuple[tuple[str, tuple[str, ...]], ...]) -> dict[str, int]:
    """Count instructions by class; ``all`` is their number."""
    out: dict[str, int] = {"all": len(names)}
    for name in names:
        kind = next((kind for kind, starts in classes if name.startswith(starts)), "other")
        out[kind] = out.get(kind, 0) + 1
    return out


def _hip_resources(assembly: str) -> dict[str, Any]:
    """Read registers, spills, LDS and instructions from the assembly's own notes."""
    keys = "vgpr_count|vgpr_spill_count|sgpr_count|sgpr_spill_count|agpr_count|group_segment_fixed_size"
    found = {key: int(value) for key, value in re.findall(rf"\.({keys}):\s*(\d+)", assembly)}
    out: dict[str, Any] = {}
    if "vgpr_count" in found:
        out["registers"] = found["vgpr_count"]
    if "vgpr_spill_count" in found:
        out["stack"] = found["vgpr_spill_count"] * 4
    for key, name in (("sgpr_count", "scalar_registers"), ("group_segment_fixed_size", "lds")):
        if key in found:
            out[name] = found[key]
    names = re.findall(r"^\s+([a-z]\w+_\w+)", assembly, re.MULTILINE)
    if names:
        out["instructions"] = _histogram(names, _GCN)
    return out
