"""What no kernel on this machine can beat: bytes over the memory's measured rate.

The rates are measured once per machine by a small program of ours, compiled like a candidate, and kept in the home
folder. Only bytes that every right answer must move are counted: the outputs, which are written. Which inputs must be
read depends on the operator (a gather reads few of a table's rows), so they are not counted; a floor that is too low
accuses nobody.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orienteer.environments.kernel import cpu_machine
from orienteer.environments.kernel.cpu_compile import CppCompiler, compile_library
from orienteer.environments.kernel.jobs import JobFailed, MachineryFault
from orienteer.environments.kernel.world import KernelWorld, TaskInfo
from orienteer.evaluators.kernel.cpp_timing import moved_bytes

#: Writes a large buffer past the caches; rewrites a small one again and again; multiplies and adds in registers.
PROBE = """\
#include <cstdint>
#include "orienteer.h"
typedef float vec __attribute__((vector_size(64), aligned(4)));
static void write_again(float* to, int64_t count, int64_t turns, float seed) {
    for (int64_t turn = 0; turn < turns; ++turn) {
        #pragma omp simd
        for (int64_t i = 0; i < count; ++i) to[i] = to[i] * seed;
    }
}
static void stream_all(float* to, int64_t count, float value, int threads) {
    const vec wide = vec{} + value;
    #pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count / 16; ++i) {
#if defined(__AVX512F__)
        __builtin_ia32_movntps512(to + 16 * i, wide);
#else
        *(vec*)(to + 16 * i) = wide;
#endif
    }
}
static float multiply(int64_t turns, float seed) {
    vec sum[8];
    for (int j = 0; j < 8; ++j) sum[j] = vec{} + seed * (float)j;
    for (int64_t i = 0; i < turns; ++i)
        for (int j = 0; j < 8; ++j) sum[j] = sum[j] * seed + seed;
    float total = 0;
    for (int j = 0; j < 8; ++j) total += sum[j][0];
    return total;
}
extern "C" void forward(const Tensor* inputs, const Tensor* state, const Tensor* outputs, int threads) {
    const int64_t kind = *(const int64_t*)inputs[0].data;
    float* to = (float*)outputs[0].data;
    const int64_t count = outputs[0].sizes[0];
    if (kind == 0) stream_all(to, count, 1.0f, threads);
    if (kind == 1) {
        #pragma omp parallel for schedule(static, 1) num_threads(threads)
        for (int t = 0; t < threads; ++t) write_again(to + (t << 13), 1 << 12, 1 << 10, 0.5f);
    }
    if (kind == 2) {
        float total[64] = {};
        #pragma omp parallel for schedule(static, 1) num_threads(threads)
        for (int t = 0; t < threads; ++t) total[t % 64] = multiply(1 << 20, 0.999f);
        to[0] = total[0] + total[threads % 64];
    }
}
"""
_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, kind):
        return torch.zeros({count})


def get_inputs():
    return [torch.tensor({kind})]


def get_init_inputs():
    return []
"""
_COUNT = 1 << 24
#: Kinds of the probe and the bytes or operations of one call, of all threads or of each.
_WORK = {
    "memory_bytes_s": (0, 4.0 * _COUNT, 0.0),
    "cache_bytes_s": (1, 0.0, 4.0 * (1 << 12) * (1 << 10)),
    "flops_s": (2, 0.0, 2.0 * 16 * 8 * (1 << 20)),
}


class Roofline:
    """The machine's rates, measured when first needed.

    Args:
        world: where the probe runs.
        compiler: compiles it.
        home: where the rates are kept (``cpu-rates.json``); None keeps them in this object only.
        cpus: cores that the threads are pinned to.
    """

    def __init__(self, world: KernelWorld, compiler: CppCompiler, home: Path | None, cpus: Sequence[int]) -> None:
        self.world, self.compiler, self.cpus = world, compiler, list(cpus)
        self._place = home / "cpu-rates.json" if home is not None else None
        self._rates: dict[str, float] | None = None
        self._lock = threading.Lock()
        machine = {**cpu_machine.describe(), **compiler.describe(), "cpus": self.cpus, "probe": PROBE}
        self._key = hashlib.sha256(json.dumps(machine, sort_keys=True).encode()).hexdigest()[:16]

    def rates(self, anew: bool = False) -> dict[str, float]:
        """Return ``memory_bytes_s``, ``cache_bytes_s`` and ``flops_s`` (float32) of all threads together.

        Args:
            anew: measure again and keep the better of the two.

        Raises:
            MachineryFault: the probe cannot be run.
        """
        with self._lock:
            known = self._rates or self._read()
            if known is None or anew:
                fresh = self._measure()
                known = {name: max(value, (known or {}).get(name, 0.0)) for name, value in fresh.items()}
                self._write(known)
            self._rates = known
            return dict(known)

    def _measure(self) -> dict[str, float]:
        from orienteer.environments.kernel.tasks import KernelTask

        done = compile_library(self.world.sandbox, self.compiler, PROBE)
        if not done.ok:
            raise MachineryFault(f"the machine's rates cannot be measured: {done.message}")
        out = {}
        for name, (kind, work, each) in _WORK.items():
            task = KernelTask("probe", _TASK.format(count=_COUNT, kind=kind))
            info = TaskInfo(
                task=task,
                inputs=[{"shape": [], "dtype": "int64"}],
                outputs=[{"shape": [_COUNT], "dtype": "float32"}],
                state=[],
                init=[[], {}],
                single_output=True,
            )
            settings = {"threads": len(self.cpus), "cpus": self.cpus, "seconds": 0.3, "seed": 0, "cache_bytes": 1}
            with cpu_machine.machine_lock():
                try:
                    header = self.world.measure_cpp(done.library, info, settings)
                except JobFailed as error:
                    raise MachineryFault(f"the machine's rates cannot be measured: {error}") from error
            if "error" in header:
                raise MachineryFault(f"the machine's rates cannot be measured: {header['error']['message']}")
            seconds = min(float(item["candidate"]) for item in header["rounds"])
            out[name] = (work + each * len(self.cpus)) / max(seconds, 1e-9)
        return out

    def _read(self) -> dict[str, float] | None:
        if self._place is None:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(self._place.read_text())[self._key]
            return {name: float(kept[name]) for name in _WORK}
        return None

    def _write(self, rates: Mapping[str, float]) -> None:
        if self._place is None:
            return
        kept: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            kept = json.loads(self._place.read_text())
        if not isinstance(kept, dict):
            kept = {}
        kept[self._key] = dict(rates)
        with contextlib.suppress(OSError):
            self._place.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._place.with_suffix(".new")
            fresh.write_text(json.dumps(kept, indent=1))
            fresh.replace(self._place)


#: Fast algorithms for products and convolutions save operations; none in use saves more than this.
_FEWEST_FLOPS = 0.4


def floor(info: TaskInfo, rates: Mapping[str, float], flops: float, beyond_cache: bool) -> float:
    """Return the least time in which the outputs can be written and the products be computed, seconds.

    Args:
        info: the task at its true shapes.
        rates: see :meth:`Roofline.rates`.
        flops: operations of the reference's matrix products and convolutions.
        beyond_cache: inputs and outputs of successive calls do not fit into the last-level cache together.
    """
    rate = rates["memory_bytes_s"] if beyond_cache else max(rates["cache_bytes_s"], rates["memory_bytes_s"])
    return max(moved_bytes(info.outputs) / rate, _FEWEST_FLOPS * flops / rates["flops_s"])
