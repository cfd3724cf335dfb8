"""Compiling Triton IR for Ascend by the vendor's compiler: no NPU, no CANN.

The chain is ``triton-adapter-opt`` (Triton IR to linalg) and ``bishengir-compile`` (linalg to HIVM, the vendor's IR
with planned on-chip addresses and pipe flags). It ends before machine code, because ``hivmc`` is part of CANN; the exit
status is 1 even then. A compilation counts only when the final HIVM module was written and the pipeline did not
report failure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orienteer.environments.execution import ExitCause, Limits
from orienteer.environments.execution.sandbox import Sandbox
from orienteer.environments.kernel.jobs import MachineryFault
from orienteer.environments.kernel.targets import AscendChip
from orienteer.environments.kernel.toolchain import AscendToolchain

HIVM_FILE = "temps/module.hivm.opt.mlir"
_PIPELINE_FAILED = re.compile(r"Failed to run BiShengH\w*IR pipeline")
#: Said by every successful run without CANN; no news.
_NOISE = re.compile(r"hivmc|External hivmc|Failed to run BiShengIR pipeline|^\s*$")
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits available")
_SPACES = {"ub": "the unified buffer (UB)", "cc": "the cube's accumulator (L0C)", "cbuf": "the L1 buffer"}
LIMITS = Limits(wall_s=120, memory_mb=4096, disk_mb=256, output_bytes=1 << 20, result_mb=64, pids=64)


@dataclass(frozen=True)
class AscendCompilation:
    """What the compiler made of one kernel."""

    ok: bool
    #: The HIVM module's text when it compiled.
    hivm: str = ""
    #: ``adapter``, ``hivm``, ``ub-overflow`` ..., ``timeout``, ``oom``; empty when it compiled.
    kind: str = ""
    #: For people and for the next proposal, one line.
    message: str = ""
    #: The compiler's full output.
    log: str = ""
    cpu_s: float = 0.0


def compile_ttir(
    sandbox: Sandbox,
    toolchain: AscendToolchain,
    chip: AscendChip,
    name: str,
    ttir: str,
    *,
    multi_buffer: bool = True,
) -> AscendCompilation:
    """Compile one kernel's Triton IR for a chip, inside the sandbox.

    Args:
        sandbox: where the compiler runs.
        toolchain: the compiler.
        chip: what for.
        name: the kernel's, for messages.
        ttir: its Triton IR.
        multi_buffer: let the compiler give loops two buffers, so that transfers run beside computation.

    Raises:
        MachineryFault: the sandbox failed; the kernel is not to blame.
    """
    a5 = "True" if chip.a5 else "False"
    adapter = [
        str(toolchain.adapter),
        "kernel.ttir.mlir",
        f"--discrete-mask-access-conversion=compile-on-910-95={a5} force-simt-template=False",
        "--triton-to-annotation",
        f"--triton-to-unstructure=compile-on-910-95={a5} force-simt-template=False",
        "--triton-to-hivm",
        "--triton-to-hfusion",
        "--triton-to-llvm",
        "--bubble-up-operation",
        "--triton-to-linalg=global-kernel=false named-ops=True enable-nd2nz-on-vector=False "
        f"enable-select-analysis=True compile-on-910-95={a5}",
        "-o",
        "kernel.linalg.mlir",
    ]
    first = sandbox.exec(
        adapter,
        files={"kernel.ttir.mlir": ttir.encode()},
        binds=[toolchain.folder],
        limits=LIMITS,
        collect=["kernel.linalg.mlir"],
    )
    log = first.stderr.decode(errors="replace")
    if first.cause is ExitCause.SANDBOX_ERROR:
        raise MachineryFault(f"the sandbox failed while the Ascend adapter ran: {first.error}")
    linalg = first.files.get("kernel.linalg.mlir")
    if first.cause is not ExitCause.OK or first.returncode != 0 or not linalg:
        kind = str(first.cause) if first.cause in (ExitCause.TIMEOUT, ExitCause.OOM) else "adapter"
        return AscendCompilation(False, "", kind, _explain(name, log, first.cause), log, first.cpu_s)
    compiler = [
        str(toolchain.compiler(chip.a5)),
        "kernel.linalg.mlir",
        f"--target={chip.name}",
        "--enable-hfusion-compile=true",
        "--enable-hivm-compile=true",
        "--enable-triton-kernel-compile=true",
        f"--enable-auto-multi-buffer={str(multi_buffer).lower()}",
        "--save-temps=temps",
        "-o",
        "kernel.o",
    ]
    second = sandbox.exec(
        compiler,
        files={"kernel.linalg.mlir": linalg, "temps/.keep": b""},
        binds=[toolchain.folder],
        limits=LIMITS,
        collect=[HIVM_FILE],
    )
    log += second.stderr.decode(errors="replace")
    cpu = first.cpu_s + second.cpu_s
    if second.cause is ExitCause.SANDBOX_ERROR:
        raise MachineryFault(f"the sandbox failed while the Ascend compiler ran: {second.error}")
    hivm = second.files.get(HIVM_FILE, b"").decode(errors="replace")
    if second.cause is ExitCause.OK and hivm and not _PIPELINE_FAILED.search(log):
        return AscendCompilation(True, hivm, log=log, cpu_s=cpu)
    overflow = _OVERFLOW.search(log)
    if overflow:
        kind = f"{overflow[1]}-overflow"
    elif second.cause in (ExitCause.TIMEOUT, ExitCause.OOM):
        kind = str(second.cause)
    else:
        kind = "hivm"
    return AscendCompilation(False, "", kind, _explain(name, log, second.cause), log, cpu)


def _explain(kernel: str, log: str, cause: ExitCause) -> str:
    """Return one line that says what the compiler objects to."""
    overflow = _OVERFLOW.search(log)
    if overflow:
        space = _SPACES.get(overflow[1], overflow[1].upper())
        need, have = int(overflow[2]) // 8192, int(overflow[3]) // 8192
        return f"{kernel}: {space} overflows: {need} KiB needed, {have} KiB available; use smaller blocks"
    if cause is not ExitCause.OK:
        return f"{kernel}: the compiler ended by {cause} (limits: {LIMITS.wall_s:.0f} s, {LIMITS.memory_mb} MiB)"
    lines = [line.strip() for line in log.splitlines() if not _NOISE.search(line)]
    errors = [
        re.sub(r'^(?:loc\([^)]*\)|"?[\w./-]+"?(?::\d+)*):\s*', "", line) for line in lines if "error" in line.lower()
    ]
    text = " | ".join(dict.fromkeys(errors[:3])) or (lines[0] if lines else "no output")
    return f"{kernel}: {text}"[:800]
