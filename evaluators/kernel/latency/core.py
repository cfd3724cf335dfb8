"""One core of an Ascend chip as the vendor describes it: a scalar unit that hands instructions to queues, one a pipe.

Every pipe works through its queue in order and beside the others; ``set_flag`` and ``wait_flag`` are the only order
between pipes. What overlaps therefore follows from the flags that the compiler planned: with two buffers a load runs
while the vector unit works on the other buffer, with one it waits. Times are cycles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orienteer.evaluators.kernel.latency.chips import ASSUMED, AscendRates

PIPES = ("MTE2", "V", "MTE3", "MTE1", "M", "FIX")


class Unmodelled(Exception):
    """The model has no answer for this kernel; the message says what it does not know."""


@dataclass(frozen=True)
class Ref:
    """A buffer at run time. Sizes and strides count elements; None is unknown."""

    space: str
    bits: int
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    #: The kernel argument behind global memory, by position in the function's signature.
    argument: str = ""

    def numel(self) -> int:
        """Return the number of elements.

        Raises:
            Unmodelled: a size depends on data.
        """
        total = 1
        for size in self.sizes:
            if size is None:
                raise Unmodelled("a size depends on data")
            total *= max(0, size)
        return total

    def run(self, other: Ref | None = None) -> int:
        """Return how many elements lie next to each other, here and in a buffer of the same sizes.

        Raises:
            Unmodelled: a size or stride depends on data.
        """
        run = 1
        for position in range(len(self.sizes) - 1, -1, -1):
            size = self.sizes[position]
            strides = [self.strides[position]]
            if other is not None and len(other.strides) == len(self.strides):
                strides.append(other.strides[position])
            if size is None or None in strides:
                raise Unmodelled("a size or a stride depends on data")
            if size == 1:
                continue
            if any(stride != run for stride in strides):
                break
            run *= size
        return max(1, run)


def _bursts(memory: Ref, local: Ref | None) -> tuple[float, float]:
    """Return in how many pieces a buffer moves, and the bytes of each: what is contiguous on both sides."""
    count = memory.numel()
    if count == 0:
        return 0.0, 0.0
    run = memory.run(local)
    return count / run, run * memory.bits / 8


class Core:
    """Clocks, flags and counters of one core while it works through a program.

    Args:
        rates: of the chip.
        sharing: cores that work at the same time and share the memory's bandwidth.
        cold: by argument, the share of what is loaded that comes from memory; the rest comes from L2. 1 where missing.
        block: the program instance.
        sub_block: which of a cube core's vector cores this is.
    """

    def __init__(
        self, rates: AscendRates, sharing: int, cold: dict[str, float], block: int, sub_block: int = 0
    ) -> None:
        self.rates = rates
        self.block = block
        self.sub_block = sub_block
        self.cold = cold
        self.memory = min(rates.ddr, rates.hbm / rates.clock_hz / max(1, sharing))
        self.memory_out = min(rates.ub_out, rates.hbm / rates.clock_hz / max(1, sharing))
        #: Everything that grows with time: "S" and pipes (free from), "pipe!" (its last result is there), "pipe="
        #: (busy), "argument<" and "argument>" (bytes read and written).
        self.clock: dict[str, float] = dict.fromkeys(("S", *PIPES, *(f"{pipe}!" for pipe in PIPES)), 0.0)
        self.tokens: dict[tuple[str, str, int], list[float]] = {}
        self.steps = 0
        #: Turns of the outermost loop that talks to another core, and how many of them are walked at most (0: all).
        self.crossing_trips = 0
        self.turn_limit = 0
        self.in_crossing = False

    # -- instructions ----------------------------------------------------------------------------------------------

    def issue(self, pipe: str, cycles: float, latency: float) -> None:
        """Hand an instruction to a pipe: it occupies it for ``cycles``, its result is there ``latency`` later."""
        clock = self.clock
        start = max(clock["S"], clock[pipe])
        clock[pipe] = start + cycles
        clock[f"{pipe}!"] = max(clock[f"{pipe}!"], start + cycles + latency)
        self.scalar(ASSUMED.scalar)
        clock[f"{pipe}="] = clock.get(f"{pipe}=", 0.0) + cycles

    def scalar(self, cycles: float) -> None:
        """Let the scalar unit work."""
        self.clock["S"] += cycles
        self.clock["S="] = self.clock.get("S=", 0.0) + cycles

    def set_flag(self, source: str, target: str, event: int) -> None:
        """Signal that a pipe has finished what it was given."""
        clock = self.clock
        # The flag travels in the pipe's queue, so it is never earlier than the scalar unit gave it.
        time = clock["S"] if source == "S" else max(clock[f"{source}!"], clock["S"])
        self.tokens.setdefault((source, target, event), []).append(time + ASSUMED.flag)
        self.scalar(ASSUMED.scalar)

    def wait_flag(self, source: str, target: str, event: int) -> None:
        """Hold a pipe until a flag is set.

        Raises:
            Unmodelled: nobody set it.
        """
        queue = self.tokens.get((source, target, event))
        if not queue:
            raise Unmodelled(f"a wait for a flag from {source} to {target} that nobody set")
        self.clock[target] = max(self.clock[target], queue.pop(0))
        self.scalar(ASSUMED.scalar)

    def barrier(self, pipe: str) -> None:
        """Let a pipe finish before its next instruction; ``ALL`` is for all pipes and the scalar unit."""
        clock = self.clock
        if pipe == "ALL":
            latest = max(clock[name] for name in ("S", *PIPES, *(f"{item}!" for item in PIPES)))
            for name in ("S", *PIPES):
                clock[name] = latest
        elif pipe == "S":
            return
        else:
            clock[pipe] = max(clock[pipe], clock[f"{pipe}!"])
        self.scalar(ASSUMED.scalar)

    def end(self) -> float:
        """Return when everything is done."""
        return max(self.clock[name] for name in ("S", *PIPES, *(f"{item}!" for item in PIPES)))

    def busy(self) -> dict[str, float]:
        """Return the cycles for which each unit worked."""
        return {pipe: self.clock.get(f"{pipe}=", 0.0) for pipe in ("S", *PIPES)}

    def traffic(self) -> dict[str, tuple[float, float]]:
        """Return bytes read and written by argument."""
        names = {key[:-1] for key in self.clock if key.endswith(("<", ">"))}
        return {name: (self.clock.get(f"{name}<", 0.0), self.clock.get(f"{name}>", 0.0)) for name in names}

    # -- transfers -------------------------------------------------------------------------------------------------

    def load(self, memory: Ref, local: Ref | None) -> None:
        """Move a buffer from global memory (MTE2)."""
        self._count(f"{memory.argument}<", memory)
        bursts, size = _bursts(memory, local)
        share = self.cold.get(memory.argument, 1.0)
        from_memory = max(size, self.rates.granule if bursts > 1 else 32) / self.memory
        from_cache = max(size, ASSUMED.cache_line if bursts > 1 else 32) / self.rates.l2_read
        cycles = ASSUMED.burst + share * from_memory + (1 - share) * from_cache
        self._transfer("MTE2", bursts * cycles, ASSUMED.memory_latency)

    def store(self, local: Ref | None, memory: Ref, pipe: str = "MTE3") -> None:
        """Move a buffer to global memory (MTE3, or FIX from the accumulator)."""
        self._count(f"{memory.argument}>", memory)
        bursts, size = _bursts(memory, local)
        rate = min(self.memory_out, self.rates.l0c_out if pipe == "FIX" else self.rates.ub_out)
        cycles = ASSUMED.burst + max(size, self.rates.granule if bursts > 1 else 32) / rate
        self._transfer(pipe, bursts * cycles, ASSUMED.store_latency)

    def _count(self, key: str, memory: Ref) -> None:
        self.clock[key] = self.clock.get(key, 0.0) + memory.numel() * memory.bits / 8

    def _transfer(self, pipe: str, cycles: float, latency: float) -> None:
        self.issue(pipe, ASSUMED.transfer_gap + cycles, latency)

    # -- computing -------------------------------------------------------------------------------------------------

    def vector(self, buffers: Sequence[Ref], passes: float, dependent: int = 0) -> None:
        """Run vector instructions over the largest of some buffers.

        Args:
            buffers: operands.
            passes: how often the unit's full width must pass over them.
            dependent: instructions in a chain, each of which waits for the one before.
        """
        cycles, starts = 0.0, 1.0
        for ref in buffers:
            count = ref.numel()
            if count == 0:
                continue
            run = min(ref.run(), count)
            size = max(ref.bits, 1) / 8
            # A repeat takes 8 blocks of 32 bytes; elements that stand alone take a block each.
            repeats = count / run * math.ceil(run * size / 256) if run * size >= 32 else math.ceil(count / run / 8)
            if repeats * 256 / self.rates.vector > cycles:
                cycles = repeats * 256 / self.rates.vector
                starts = math.ceil(repeats / 255)
        cycles = cycles * passes + dependent * (ASSUMED.vector_start + ASSUMED.vector_drain)
        self.issue("V", cycles + starts * 2, ASSUMED.vector_start + ASSUMED.vector_drain)

    def products(
        self, sizes: tuple[int, int, int], bits: int, share: float, waits: Sequence[int], sets: Sequence[int]
    ) -> None:
        """Multiply a tile that lies in L1: parts go to L0 (MTE1) while the cube (M) works on the part before.

        Args:
            sizes: rows, columns and depth of the tile: m, n, k.
            bits: width of the inputs.
            share: speed of the cube for them, relative to float16.
            waits: events of MTE2 for which the tile waits.
            sets: events by which it gives its buffers back to MTE2.
        """
        for event in waits:
            self.wait_flag("MTE2", "MTE1", event)
        m, n, k = (max(1, size) for size in sizes)
        depth = max(1, 256 // bits)  # a fractal is 16 by 32 bytes
        blocks = math.ceil(m / 16) * math.ceil(n / 16) * math.ceil(k / depth)
        left, right = m * k * bits / 8, k * n * bits / 8
        # Each L0 buffer holds 64 KiB, used as two halves.
        parts = max(1, math.ceil(max(left, right) / 32768))
        slots = self.tokens.setdefault(("M", "MTE1", -1), [0.0, 0.0])
        cycles = blocks * (depth / 16) / share
        for _ in range(parts):
            self.clock["MTE1"] = max(self.clock["MTE1"], slots.pop(0))
            move = left / parts / self.rates.l1_to_l0a + right / parts / self.rates.l1_to_l0b
            self.issue("MTE1", move, ASSUMED.l1_latency)
            self.clock["M"] = max(self.clock["M"], self.clock["MTE1!"])
            self.issue("M", ASSUMED.cube_start + cycles / parts, ASSUMED.vector_drain)
            slots.append(self.clock["M!"])
        for event in sets:
            self.set_flag("MTE1", "MTE2", event)
