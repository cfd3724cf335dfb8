"""The ladder: pairs of kernels of which the vendor's tuning guide says which is faster, and what the model says.

An uncalibrated model can still be checked for sense: it must order schedules as the hardware does. The rules are those
of Huawei's public guide to the performance of operators: move large pieces (16 KiB and more), keep them contiguous and
at least 512 bytes a burst, overlap transfers and computing by two buffers, use all cores and start each once, keep
intermediate results on the chip, and give the cube tiles that are large enough to reuse what was loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.kernel.ascend import compile_ttir
from orienteer.environments.kernel.targets import AscendChip
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.environments.kernel.toolchain import AscendToolchain
from orienteer.environments.kernel.world import KernelWorld, TaskInfo
from orienteer.evaluators.kernel.latency import npu

_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
_FLAT = """@triton.jit
def {name}(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n, other=0.0)
        y = tl.load(y_ptr + i, mask=i < n, other=0.0)
        tl.store(o_ptr + i, {value}, mask=i < n)


"""
_ADD = _FLAT.format(name="add", value="x + y")
_ONCE = """@triton.jit
def add(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, x + y, mask=i < n)


"""
_MODEL = """class ModelNew(nn.Module):
    def forward(self, x, y):
        o = torch.empty_like(x)
{launches}
        return o
"""
_COPY = """@triton.jit
def copy(x_ptr, o_ptr, rows, cols, R: tl.constexpr, C: tl.constexpr):
    across = cols // C
    for tile in range(tl.program_id(0), (rows // R) * across, tl.num_programs(0)):
        r = (tile // across) * R + tl.arange(0, R)[:, None]
        c = (tile % across) * C + tl.arange(0, C)[None, :]
        tl.store(o_ptr + r * cols + c, tl.load(x_ptr + {source}))


"""
_MATMUL = """@triton.jit
def matmul(a_ptr, b_ptr, o_ptr, m, n, k, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr):
    across = tl.cdiv(n, TN)
    for tile in range(tl.program_id(0), tl.cdiv(m, TM) * across, tl.num_programs(0)):
        r = (tile // across) * TM + tl.arange(0, TM)[:, None]
        c = (tile % across) * TN + tl.arange(0, TN)[None, :]
        acc = tl.zeros((TM, TN), dtype=tl.float32)
        for d in range(0, k, TK):
            a = tl.load(a_ptr + r * k + d + tl.arange(0, TK)[None, :])
            b = tl.load(b_ptr + (d + tl.arange(0, TK)[:, None]) * n + c)
            acc = tl.dot(a, b, acc)
        tl.store(o_ptr + r * n + c, acc)


class ModelNew(nn.Module):
    def forward(self, a, b):
        o = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
        matmul[({programs},)](a, b, o, a.shape[0], b.shape[1], a.shape[1], TM={tm}, TN={tn}, TK={tk})
        return o
"""
_SOFTMAX = """@triton.jit
def whole(x_ptr, o_ptr, rows, cols, C: tl.constexpr):
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        i = tl.arange(0, C)
        x = tl.load(x_ptr + r * cols + i, mask=i < cols, other=float("-inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(o_ptr + r * cols + i, e / tl.sum(e, axis=0), mask=i < cols)


@triton.jit
def thrice(x_ptr, o_ptr, rows, cols, C: tl.constexpr):
    for r in range(tl.program_id(0), rows, tl.num_programs(0)):
        high = tl.full((C,), float("-inf"), dtype=tl.float32)
        for d in range(0, cols, C):
            high = tl.maximum(high, tl.load(x_ptr + r * cols + d + tl.arange(0, C)))
        top = tl.max(high, axis=0)
        total = tl.zeros((C,), dtype=tl.float32)
        for d in range(0, cols, C):
            total += tl.exp(tl.load(x_ptr + r * cols + d + tl.arange(0, C)) - top)
        scale = 1.0 / tl.sum(total, axis=0)
        for d in range(0, cols, C):
            i = d + tl.arange(0, C)
            tl.store(o_ptr + r * cols + i, tl.exp(tl.load(x_ptr + r * cols + i) - top) * scale)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        {kernel}[({programs},)](x, o, x.shape[0], x.shape[1], C={c})
        return o
"""
_N = 1 << 23
_LONG = 65535 * 128
_SQUARE = (1024, 1024)


@dataclass(frozen=True)
class Kernel:
    """One candidate of the ladder."""

    words: str
    source: str
    #: Shape and dtype of each input.
    inputs: Sequence[tuple[tuple[int, ...], str]]
    multi_buffer: bool = True


@dataclass(frozen=True)
class Rung:
    """A pair of which the first is faster by the guide's rule."""

    name: str
    better: Kernel
    worse: Kernel


def rungs(chip: AscendChip) -> list[Rung]:
    """Return the pairs for a chip."""
    vector, cube = chip.vector_cores, chip.cube_cores

    def flat(words: str, block: int, programs: int, size: int = _N, **more: Any) -> Kernel:
        launch = f"        add[({programs},)](x, y, o, x.numel(), BLOCK={block})"
        return Kernel(words, _HEAD + _ADD + _MODEL.format(launches=launch), [((size,), "float32")] * 2, **more)

    def copy(words: str, source: str, r: int, c: int, rows: int = 4096, cols: int = 2048) -> Kernel:
        launch = f"        copy[({vector},)](x, o, {rows}, {cols}, R={r}, C={c})"
        text = _HEAD + _COPY.format(source=source) + _MODEL.format(launches=launch)
        return Kernel(words, text, [((rows, cols), "float32")] * 2)

    def matmul(tm: int, tn: int, tk: int, dtype: str = "float16", programs: int = cube, **more: Any) -> Kernel:
        text = _HEAD + _MATMUL.format(programs=programs, tm=tm, tn=tn, tk=tk)
        words = f"{tm}x{tn}x{tk} {dtype}" + (f", {programs} core" if programs != cube else "")
        return Kernel(words, text, [(_SQUARE, dtype), (_SQUARE, dtype)], **more)

    def softmax(words: str, kernel: str, c: int) -> Kernel:
        text = _HEAD + _SOFTMAX.format(kernel=kernel, programs=vector, c=c)
        return Kernel(words, text, [((4096, 4096), "float32")])

    looped = flat("one instance a core", 4096, vector, _LONG)
    once = f"        add[({_LONG // 128},)](x, y, o, x.numel(), BLOCK=128)"
    tiny = Kernel("65,535 instances", _HEAD + _ONCE + _MODEL.format(launches=once), [((_LONG,), "float32")] * 2)
    exponent = "tl.exp(x) * y + tl.exp(y)"
    one = f"        both[({vector},)](x, y, o, x.numel(), BLOCK=2048)"
    two = (
        f"        t = torch.empty_like(x)\n        first[({vector},)](x, y, t, x.numel(), BLOCK=2048)\n"
        f"        second[({vector},)](t, y, o, x.numel(), BLOCK=2048)"
    )
    fused = Kernel(
        "one kernel",
        _HEAD + _FLAT.format(name="both", value=exponent) + _MODEL.format(launches=one),
        [((_N,), "float32")] * 2,
    )
    split = Kernel(
        "two kernels",
        _HEAD
        + _FLAT.format(name="first", value="tl.exp(x) * y")
        + _FLAT.format(name="second", value="x + tl.exp(y)")
        + _MODEL.format(launches=two),
        [((_N,), "float32")] * 2,
    )
    return [
        Rung("large transfers", flat("16 KiB", 4096, vector), flat("256 bytes", 64, vector)),
        Rung("large transfers, next step", flat("4 KiB", 1024, vector), flat("1 KiB", 256, vector)),
        Rung("contiguous access", copy("rows", "r * cols + c", 32, 64), copy("columns", "c * rows + r", 32, 64)),
        Rung("bursts of 512 bytes", copy("8x512", "r * cols + c", 8, 512), copy("128x32", "r * cols + c", 128, 32)),
        Rung(
            "two buffers (vector)",
            flat("two buffers", 4096, vector),
            flat("one buffer", 4096, vector, multi_buffer=False),
        ),
        Rung("two buffers (cube)", matmul(128, 128, 64), matmul(128, 128, 64, multi_buffer=False)),
        Rung("one instance a core", looped, tiny),
        Rung("all cores (vector)", flat("all cores", 4096, vector), flat("one core", 4096, 1)),
        Rung("all cores (cube)", matmul(128, 128, 64), matmul(128, 128, 64, programs=1)),
        Rung("fused", fused, split),
        Rung("a row held on the chip", softmax("one read", "whole", 4096), softmax("three reads", "thrice", 2048)),
        Rung("cube tile", matmul(128, 128, 64), matmul(16, 16, 16)),
        Rung("cube tile, 64 against 32", matmul(64, 64, 64), matmul(32, 32, 32)),
        Rung("cube tile, 128 against 64", matmul(128, 128, 64), matmul(64, 64, 64)),
        Rung("half precision", matmul(64, 64, 64), matmul(64, 64, 64, "float32")),
    ]


def ladder(
    chip: AscendChip, world: KernelWorld, toolchain: AscendToolchain, only: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Compile both kernels of each rung and compare what the model says of them.

    Returns:
        For each rung ``name``, ``better`` and ``worse`` (in words), ``better_s`` and ``worse_s`` (seconds, None where
        the model has no answer), ``ratio`` (worse over better) and ``ok`` (the model orders them as the guide does), or
        ``reason``.
    """
    known: dict[tuple[str, bool], tuple[float | None, str]] = {}

    def seconds(kernel: Kernel) -> tuple[float | None, str]:
        key = (kernel.source + repr(kernel.inputs), kernel.multi_buffer)
        if key not in known:
            known[key] = modelled(kernel, chip, world, toolchain)
        return known[key]

    rows = []
    for rung in rungs(chip):
        if only and rung.name not in only:
            continue
        (fast, why_fast), (slow, why_slow) = seconds(rung.better), seconds(rung.worse)
        row: dict[str, Any] = {
            "name": rung.name,
            "better": rung.better.words,
            "worse": rung.worse.words,
            "better_s": fast,
            "worse_s": slow,
            "ratio": slow / fast if fast and slow else None,
            "ok": bool(fast and slow and slow > fast),
        }
        if why_fast or why_slow:
            row["reason"] = why_fast or why_slow
        rows.append(row)
    return rows


def modelled(
    kernel: Kernel, chip: AscendChip, world: KernelWorld, toolchain: AscendToolchain
) -> tuple[float | None, str]:
    """Compile a kernel and return the model's seconds, or None with the reason."""
    inputs = [
        {"shape": list(shape), "stride": _strides(shape), "dtype": dtype, "device": "cpu"}
        for shape, dtype in kernel.inputs
    ]
    info = TaskInfo(KernelTask("ladder", ""), inputs, [], [], [[], {}], True)
    header, blobs = world.lower(kernel.source, info)
    if "error" in header:
        return None, str(header["error"]["message"])
    modules = []
    for item in header["kernels"]:
        text = blobs[item["blob"]].decode()
        done = compile_ttir(world.sandbox, toolchain, chip, item["name"], text, multi_buffer=kernel.multi_buffer)
        if not done.ok:
            return None, done.message
        modules.append(done.hivm)
    latency, reason = npu.model(header["kernels"], modules, chip)
    return (latency.seconds if latency else None), reason


def _strides(shape: Sequence[int]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]
