"""E2 for Ascend: how long the launches of a candidate take on a chip, by a model of its cores (modelled, uncalibrated).

One program instance is walked on a model of its core (``program``, ``core``); a launch is as many waves of instances as
the cores need. What is loaded more than once comes from the L2 cache as far as it fits there; the first launch finds
nothing in it. The memory's bandwidth bounds the whole. Sources of the rates are in ``chips``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.kernel.targets import AscendChip
from orienteer.evaluators.kernel.latency import mlir
from orienteer.evaluators.kernel.latency.chips import ASCEND, ASSUMED, AscendRates
from orienteer.evaluators.kernel.latency.core import Core, Unmodelled
from orienteer.evaluators.kernel.latency.program import Program, argument_ref
from orienteer.evaluators.kernel.latency.roofline import Floor
from orienteer.evaluators.kernel.verdict import Latency

HOW = "modelled, uncalibrated"
LEVEL = "E2"
_UNITS = {
    "S": "scalar",
    "MTE2": "mte2",
    "V": "vector",
    "MTE3": "mte3",
    "MTE1": "mte1",
    "M": "cube",
    "FIX": "fixpipe",
}
#: Arguments that the compiler puts before the kernel's own, and the three sizes of the grid after them.
_BEFORE, _AFTER = 3, 3
#: What a module of an unforeseen form can raise; a verdict does without a latency then.
_BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
#: An instance that takes more operations to walk than this is walked for fewer places of the grid.
_MANY_STEPS = 8_000
#: Turns of a loop between cores that are walked: the difference is what a turn takes.
_TURNS = (3, 6)


@dataclass(frozen=True)
class KernelTime:
    """What the model says of one launch."""

    seconds: float
    #: Seconds for which each unit of the busiest core works.
    units: Mapping[str, float]
    bottleneck: str
    #: Bytes that memory moves for the whole launch, and those that the L2 cache serves.
    memory_bytes: float
    l2_bytes: float
    cores: int
    waves: int

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "seconds": self.seconds,
            "units": {name: round(value, 9) for name, value in self.units.items() if value},
            "bottleneck": self.bottleneck,
            "memory_bytes": int(self.memory_bytes),
            "l2_bytes": int(self.l2_bytes),
            "cores": self.cores,
            "waves": self.waves,
        }


def model(
    kernels: Sequence[Mapping[str, Any]], modules: Sequence[str], chip: AscendChip, floor: Floor | None = None
) -> tuple[Latency | None, str]:
    """Model all launches of a candidate.

    Args:
        kernels: launches as ``compile_job.lower_launches`` records them, with ``calls``.
        modules: the HIVM text of each.
        chip: the chip that they were compiled for.
        floor: what nothing can beat.

    Returns:
        The latency, or None with the reason why the model has none: it never guesses.
    """
    total, facts = 0.0, []
    weights: dict[str, float] = {}
    for kernel, text in zip(kernels, modules, strict=True):
        for call in kernel["calls"]:
            try:
                one = kernel_time({**kernel, **call}, text, chip)
            except (Unmodelled, mlir.NotRead) as error:
                return None, f"{kernel['name']}: the latency model does not know this: {error}"
            except _BROKEN as error:
                return None, f"{kernel['name']}: the latency model failed ({type(error).__name__}: {error})"
            seconds = one.seconds * int(call["count"])
            total += seconds
            weights[one.bottleneck] = weights.get(one.bottleneck, 0.0) + seconds
            facts.append({"name": kernel["name"], "launches": call["count"], "grid": call["grid"], **one.describe()})
    least = floor.seconds(chip) if floor is not None else None
    if least is not None and total < least:
        return None, f"the latency model gives {total:.3e} s, below the floor of {least:.3e} s: an error of the model"
    bottleneck = max(weights, key=lambda name: weights[name])
    found = Latency(
        total, f"{LEVEL}:{chip.name}", chip.name, HOW, floor_s=least, bottleneck=bottleneck, facts={"kernels": facts}
    )
    return found, ""


def kernel_time(kernel: Mapping[str, Any], text: str, chip: AscendChip) -> KernelTime:
    """Model one launch, by its ``signature``, ``grid``, ``scalars`` and ``tensors``.

    Raises:
        Unmodelled, NotRead: the model has no answer.
    """
    rates = ASCEND[chip.name]
    module = mlir.read(text)
    entries = {name: function for name, function in module.functions.items() if "hacc.entry" in function.attributes}
    if not entries:
        raise Unmodelled("a module without an entry function")
    others = {name: function for name, function in module.functions.items() if name not in entries}
    programs = {_core_type(function): Program(function, module.maps, others) for function in entries.values()}
    mixed = len(programs) > 1
    cores = chip.vector_cores if set(programs) == {"AIV"} else chip.cube_cores
    grid = math.prod(int(n) for n in kernel["grid"])
    sharing = min(grid, cores) * (1 if not mixed else 2)
    sizes = {name: float(size) for name, size in kernel.get("tensors", {}).items()}

    def walk(cold: dict[str, float], blocks: Sequence[int]) -> list[_Walk]:
        return [_walk(programs, kernel, rates, sharing, cold, block) for block in blocks]

    first = walk({"workspace": 0.0}, [0])[0]
    cold = _cold(first, grid, sizes, rates)
    # Instances that have more or less to do than the first: the last one, and some in between where that is cheap.
    blocks = {grid - 1} if first.steps > _MANY_STEPS else {grid // 3, 2 * grid // 3, grid - 1}
    if any(share < 1 for name, share in cold.items() if name != "workspace"):
        walks = walk(cold, sorted({0, *blocks}))
    else:
        walks = [first, *walk(cold, sorted(blocks - {0}))]
    waves = math.ceil(grid / cores)
    longest = max(one.cycles for one in walks)
    mean = sum(one.cycles for one in walks) / len(walks)
    cycles = longest if waves == 1 else max(longest, mean * waves)
    seconds = waves * ASSUMED.instance_s + cycles / rates.clock_hz
    memory, from_l2 = _bytes(walks, grid, cold)
    by_memory = memory / rates.hbm
    busiest = max(walks, key=lambda one: one.cycles)
    units = {_UNITS[name]: value * waves / rates.clock_hz for name, value in busiest.busy.items()}
    bottleneck = max(units, key=lambda name: units[name])
    if waves * ASSUMED.instance_s + ASSUMED.launch_s > seconds / 2 + ASSUMED.launch_s:
        bottleneck = "launch"
    if by_memory > seconds:
        seconds, bottleneck = by_memory, "memory"
    if ASSUMED.launch_s > seconds:
        bottleneck = "launch"
    return KernelTime(seconds + ASSUMED.launch_s, units, bottleneck, memory, from_l2, min(grid, cores), waves)


def _core_type(function: mlir.Function) -> str:
    return "AIC" if "func_core_type<AIC>" in function.attributes else "AIV"


@dataclass(frozen=True)
class _Walk:
    cycles: float
    busy: dict[str, float]
    #: Bytes read and written by argument.
    traffic: dict[str, tuple[float, float]]
    #: Operations that were walked.
    steps: int


def _walk(
    programs: Mapping[str, Program],
    kernel: Mapping[str, Any],
    rates: AscendRates,
    sharing: int,
    cold: dict[str, float],
    block: int,
) -> _Walk:
    """Walk one program instance."""
    crossing = [program.crossing_loops for program in programs.values()]
    if max(crossing) == 0:
        return _walk_cores(programs, kernel, rates, sharing, cold, block, 0)[0]
    if set(crossing) != {1}:
        return _walk_cores(programs, kernel, rates, sharing, cold, block, 0)[0]
    # A loop in which cores wait for each other: what a turn takes when it is steady, times its turns.
    few, trips = _walk_cores(programs, kernel, rates, sharing, cold, block, _TURNS[0])
    if len(set(trips)) > 1:
        return _walk_cores(programs, kernel, rates, sharing, cold, block, 0)[0]
    if trips[0] <= _TURNS[0]:
        return few
    more, _ = _walk_cores(programs, kernel, rates, sharing, cold, block, _TURNS[1])
    if trips[0] <= _TURNS[1]:
        return more
    times = (trips[0] - _TURNS[1]) / (_TURNS[1] - _TURNS[0])

    def on(new: float, old: float) -> float:
        return new + times * (new - old)

    return _Walk(
        on(more.cycles, few.cycles),
        {name: on(value, few.busy.get(name, 0.0)) for name, value in more.busy.items()},
        {
            name: (on(value[0], few.traffic.get(name, (0, 0))[0]), on(value[1], few.traffic.get(name, (0, 0))[1]))
            for name, value in more.traffic.items()
        },
        few.steps + more.steps,
    )


def _walk_cores(
    programs: Mapping[str, Program],
    kernel: Mapping[str, Any],
    rates: AscendRates,
    sharing: int,
    cold: dict[str, float],
    block: int,
    turn_limit: int,
) -> tuple[_Walk, list[int]]:
    cores, waiting = {}, {}
    for kind, program in programs.items():
        core = Core(rates, sharing, cold, block)
        core.turn_limit = turn_limit
        cores[kind] = core
        waiting[kind] = program.start(core, _arguments(program.function, kernel))
    blocked: dict[str, int | None] = dict.fromkeys(programs)
    running = set(programs)
    while running:
        moved = False
        for kind in sorted(running):
            flag = blocked[kind]
            if flag is not None:
                signal = next(
                    (other.tokens.get(("out", "core", flag)) for name, other in cores.items() if name != kind), None
                )
                if not signal:
                    continue
                cores[kind].clock["S"] = max(cores[kind].clock["S"], signal.pop(0))
            moved = True
            try:
                blocked[kind] = next(waiting[kind])
            except StopIteration:
                running.discard(kind)
        if not moved:
            raise Unmodelled("cores that wait for each other for ever")
    busy: dict[str, float] = {}
    traffic: dict[str, tuple[float, float]] = {}
    for kind, core in cores.items():
        for name, value in core.busy().items():
            busy[name] = max(busy.get(name, 0.0), value)
        for name, (read, written) in core.traffic().items():
            old = traffic.get(name, (0.0, 0.0))
            # A cube core's two vector cores both load what they need.
            both = 2 if kind == "AIV" and len(cores) > 1 else 1
            traffic[name] = (old[0] + both * read, old[1] + written)
    steps = sum(core.steps for core in cores.values())
    found = _Walk(max(core.end() for core in cores.values()), busy, traffic, steps)
    return found, [core.crossing_trips for core in cores.values()]


def _arguments(function: mlir.Function, kernel: Mapping[str, Any]) -> list[Any]:
    """Return the values of a function's arguments at the launch."""
    own = [name for name, kind in kernel["signature"].items() if kind != "constexpr"]
    if len(function.arguments) != _BEFORE + len(own) + _AFTER:
        raise Unmodelled("a function whose arguments are not those of the launch")
    values: list[Any] = []
    names = ["", "lock", "workspace", *own]
    for position, (_, kind) in enumerate(function.arguments):
        if kind.startswith("memref"):
            values.append(argument_ref(kind, names[position]))
        elif _BEFORE <= position < _BEFORE + len(own):
            value = kernel["scalars"].get(names[position])
            values.append(int(value) if isinstance(value, (bool, int)) else None)
        else:
            values.append(None)
    values[-_AFTER:] = [int(size) for size in kernel["grid"]]
    return values


def _cold(walk: _Walk, grid: int, sizes: Mapping[str, float], rates: AscendRates) -> dict[str, float]:
    """Return by argument which share of its loads comes from memory: each byte once, if the cache holds them all."""
    footprint = sum(sizes.values())
    fits = min(1.0, rates.l2_bytes / footprint) if footprint else 1.0
    cold = {"workspace": 0.0}
    for name, (read, _) in walk.traffic.items():
        total = read * grid
        if name in sizes and total > 0:
            once = min(1.0, sizes[name] / total)
            cold[name] = once + (1 - once) * (1 - fits)
    return cold


def _bytes(walks: Sequence[_Walk], grid: int, cold: Mapping[str, float]) -> tuple[float, float]:
    """Return the bytes that memory and the cache move for a launch."""
    memory = cache = 0.0
    for one in walks:
        for name, (read, written) in one.traffic.items():
            share = cold.get(name, 1.0)
            memory += read * share
            cache += read * (1 - share)
            if name == "workspace":
                cache += written
            else:
                memory += written
    return memory * grid / len(walks), cache * grid / len(walks)
