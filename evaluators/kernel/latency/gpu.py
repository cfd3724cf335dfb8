"""E2 for GPUs: a roofline estimate of a candidate's launches, and the theoretical occupancy (both uncalibrated).

A launch takes as long as the slowest of four: bytes from memory, sectors from the L2 cache, products on the matrix
units, arithmetic outside them; each at the data sheet's peak, lowered when too few program instances keep the device
busy. What is loaded more than once comes from the cache as far as the tensors fit there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.kernel.targets import GpuArch
from orienteer.evaluators.kernel.latency import ttir
from orienteer.evaluators.kernel.latency.chips import GPUS, GpuRates
from orienteer.evaluators.kernel.latency.core import Unmodelled
from orienteer.evaluators.kernel.latency.mlir import NotRead
from orienteer.evaluators.kernel.latency.roofline import Floor
from orienteer.evaluators.kernel.verdict import Latency

HOW = "roofline estimate, uncalibrated"


def occupancy(arch: GpuArch, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many blocks one multiprocessor holds, by the resources that the binary needs.

    Args:
        arch: the architecture.
        facts: ``registers`` a thread, ``shared`` bytes a block, ``num_warps`` a block.

    Returns:
        ``blocks``, ``warps``, ``occupancy`` (share of the most warps) and ``limited_by``.
    """
    rates = GPUS[arch.name]
    warps = max(1, int(facts.get("num_warps") or 1))
    threads = warps * arch.warp_size
    limits = {"blocks": rates.blocks, "threads": rates.threads // threads}
    registers = int(facts.get("registers") or 0)
    if registers:
        per_warp = math.ceil(registers * arch.warp_size / rates.register_unit) * rates.register_unit
        limits["registers"] = rates.registers // (per_warp * warps)
    shared = int(facts.get("shared") or 0)
    if shared:
        # The system keeps 1 KiB of every block's shared memory on NVIDIA's devices.
        limits["shared memory"] = rates.shared_bytes // (shared + (1024 if arch.backend == "cuda" else 0))
    least = min(limits, key=lambda name: limits[name])
    blocks = limits[least]
    return {
        "blocks": blocks,
        "warps": blocks * warps,
        "occupancy": round(blocks * threads / rates.threads, 3),
        "limited_by": least,
    }


def estimate(
    kernels: Sequence[Mapping[str, Any]], arch: GpuArch, floor: Floor | None = None
) -> tuple[Latency | None, str]:
    """Estimate all launches of a candidate on one architecture.

    Args:
        kernels: as ``gpu_job.compile_launches`` gives them: ``calls``, ``ttir`` and ``archs``.
        arch: one of the architectures that they were compiled for.
        floor: what nothing can beat.

    Returns:
        The latency, or None with the reason.
    """
    rates = GPUS[arch.name]
    total, facts = 0.0, []
    weights: dict[str, float] = {}
    for kernel in kernels:
        binary = kernel["archs"][arch.name]
        for call in kernel["calls"]:
            try:
                counts = ttir.count(kernel["ttir"], {**kernel, **call})
            except (Unmodelled, NotRead) as error:
                return None, f"{kernel['name']}: the roofline estimate does not know this: {error}"
            except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                return None, f"{kernel['name']}: the roofline estimate failed ({type(error).__name__}: {error})"
            one = launch(counts, call, binary, arch, rates)
            seconds = one["seconds"] * int(call["count"])
            total += seconds
            weights[one["bottleneck"]] = weights.get(one["bottleneck"], 0.0) + seconds
            facts.append({"name": kernel["name"], "launches": call["count"], "grid": call["grid"], **one})
    least = floor.seconds(arch) if floor is not None else None
    if least is not None and total < least:
        return None, f"the estimate gives {total:.3e} s, below the floor of {least:.3e} s: an error of the model"
    bottleneck = max(weights, key=lambda name: weights[name])
    found = Latency(
        total,
        f"E2:{arch.name}",
        arch.name,
        HOW,
        floor_s=least,
        bottleneck=bottleneck,
        facts={"product": rates.product, "kernels": facts},
    )
    return found, ""


def launch(
    counts: ttir.Counts, call: Mapping[str, Any], binary: Mapping[str, Any], arch: GpuArch, rates: GpuRates
) -> dict[str, Any]:
    """Estimate one launch; returns ``seconds``, ``bottleneck`` and the facts behind them."""
    held = occupancy(arch, binary)
    grid = math.prod(int(size) for size in call["grid"])
    slots = rates.multiprocessors * max(1, held["blocks"])
    waves = math.ceil(grid / slots)
    # The last wave keeps only some multiprocessors busy; few instances cannot use all of the memory either.
    rounds = math.ceil(grid / rates.multiprocessors)
    busy = grid / (rounds * rates.multiprocessors)
    reach = min(1.0, 2 * grid / rates.multiprocessors)
    memory, cache = traffic(counts, call["tensors"], rates)
    stack = int(binary.get("stack") or 0)
    # A spilled value is written and read again through the cache.
    cache += 2.0 * stack * grid * int(binary.get("num_warps") or 1) * arch.warp_size
    speeds = {"16": rates.tensor16, "tf32": rates.tensor32, "8": rates.tensor8, "32": rates.simt32, "64": rates.simt32}
    units = {
        "memory": memory / (rates.hbm * reach),
        "l2": cache / (rates.hbm * rates.l2_share * reach),
        "compute": sum(count / speeds[kind] for kind, count in counts.products.items()) / busy,
        "arithmetic": counts.simple / (rates.simt32 * busy),
    }
    bottleneck = max(units, key=lambda name: units[name])
    seconds = units[bottleneck]
    if seconds < rates.launch_s:
        bottleneck = "launch"
    return {
        "seconds": seconds + rates.launch_s,
        "bottleneck": bottleneck,
        "units": {name: round(value, 9) for name, value in units.items()},
        "memory_bytes": int(memory),
        "l2_bytes": int(cache),
        "asked_bytes": int(counts.wanted),
        "irregular_bytes": int(counts.irregular),
        "products": {kind: int(value) for kind, value in counts.products.items()},
        "waves": waves,
        "tail": round(busy, 3),
        "occupancy": held,
    }


def traffic(counts: ttir.Counts, sizes: Mapping[str, int], rates: GpuRates) -> tuple[float, float]:
    """Return the bytes that memory and the L2 cache move for a launch."""
    footprint = float(sum(sizes.values()))
    missed = 1.0 - min(1.0, rates.l2_bytes / footprint) if footprint else 0.0
    memory = 0.0
    for name, moved in counts.read.items():
        once = min(moved, float(sizes.get(name, moved)))
        memory += once + (moved - once) * missed
    memory += sum(counts.written.values())
    return memory, sum(counts.read.values()) + sum(counts.written.values())
