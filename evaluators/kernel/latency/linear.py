"""Blocks of integers that are linear in their positions: what Triton's index arithmetic makes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orienteer.evaluators.kernel.latency.mlir import Buffer, NotRead, Op, buffer_type

#: Bytes of a sector, the least that a GPU's cache moves.
SECTOR = 32


@dataclass(frozen=True)
class Linear:
    """An integer block: ``base`` plus ``steps[d]`` times the position in dimension d; None is unknown."""

    shape: tuple[int, ...]
    base: int | None
    steps: tuple[int | None, ...]
    #: The argument that it points into, and the width of an element in bits.
    argument: str = ""
    bits: int = 0


@dataclass(frozen=True)
class Mask:
    """A block of conditions: how many positions are true along each dimension."""

    shape: tuple[int, ...]
    counts: tuple[int, ...]


def moved_on(old: Any, new: Any, turns: int) -> Any:
    """Return a carried value after more turns, when it moves by the same amount in each."""
    if isinstance(old, int) and isinstance(new, int):
        return new + turns * (new - old)
    if isinstance(old, Linear) and isinstance(new, Linear) and old.base is not None and new.base is not None:
        return replace(new, base=new.base + turns * (new.base - old.base))
    return new if old == new else None


def block_type(op: Op) -> Buffer | None:
    """Return the type of a block, or None for a scalar."""
    tail = op.text.rpartition(" : ")[2].rpartition("-> ")[2]
    if "tensor<" not in tail:
        return None
    try:
        return buffer_type(tail)
    except NotRead:
        return None


def block_shape(op: Op) -> tuple[int, ...]:
    """Return the sizes of the block that an operation gives; none for a scalar."""
    buffer = block_type(op)
    return tuple(size or 0 for size in buffer.sizes) if buffer is not None else ()


def numel(buffer: Buffer) -> int:
    """Return the number of elements of a block."""
    return math.prod(size or 0 for size in buffer.sizes)


def constant(op: Op) -> Any:
    """Return the value of a constant: an integer, a block or a mask; None for floats."""
    found = re.match(r"\s*(?:dense<)?(true|false|-?\d+)(?=[> :])", op.text)
    if found is None:
        return None
    shape = block_shape(op)
    if found[1] in ("true", "false"):
        if not shape:
            return int(found[1] == "true")
        return Mask(shape, shape if found[1] == "true" else tuple(0 for _ in shape))
    return Linear(shape, int(found[1]), tuple(0 for _ in shape)) if shape else int(found[1])


def spread(op: Op, value: Any) -> Any:
    """Return what ``tt.splat``, ``tt.expand_dims`` and ``tt.broadcast`` make of a value."""
    shape = block_shape(op)
    if isinstance(value, int):
        return Linear(shape, value, tuple(0 for _ in shape))
    if op.name == "tt.splat" and isinstance(value, Linear):
        return replace(value, shape=shape, steps=tuple(0 for _ in shape))
    if op.name == "tt.expand_dims" and isinstance(value, (Linear, Mask)):
        found = re.search(r"axis = (\d+)", op.text)
        axis = int(found[1]) if found else 0
        if isinstance(value, Mask):
            return Mask(shape, (*value.counts[:axis], 1, *value.counts[axis:]))
        return replace(value, shape=shape, steps=(*value.steps[:axis], 0, *value.steps[axis:]))
    if op.name == "tt.broadcast" and isinstance(value, Linear):
        steps = tuple(0 if old == 1 else step for old, step in zip(value.shape, value.steps, strict=True))
        return replace(value, shape=shape, steps=steps)
    if op.name == "tt.broadcast" and isinstance(value, Mask):
        counts = (
            new * part if old == 1 else part for old, new, part in zip(value.shape, shape, value.counts, strict=True)
        )
        return Mask(shape, tuple(counts))
    return None


def add(left: Any, right: Any, sign: int) -> Any:
    """Return the sum (or difference, by the sign) of two values, as far as it is known."""
    if isinstance(right, int) and isinstance(left, Linear):
        right = Linear(left.shape, right, tuple(0 for _ in left.shape))
    if isinstance(left, Linear) and right is None:
        # The address depends on data: where it points to is known, how it is spread is not.
        return replace(left, base=None, steps=tuple(None for _ in left.shape))
    if not isinstance(left, Linear) or not isinstance(right, Linear):
        return None
    base = None if left.base is None or right.base is None else left.base + sign * right.base
    steps = tuple(
        None if a is None or b is None else a + sign * b for a, b in zip(left.steps, right.steps, strict=True)
    )
    return replace(left, base=base, steps=steps)


def arithmetic(short: str, args: Sequence[Any]) -> Any:
    """Return what an operation of ``arith`` makes of blocks, as far as it is known."""
    if short in ("addi", "subi"):
        return add(args[0], args[1], 1 if short == "addi" else -1)
    if short in ("extsi", "extui", "trunci", "index_cast"):
        return args[0]
    if short == "muli":
        left, right = args[:2]
        if not isinstance(left, Linear) or not isinstance(right, Linear):
            return None
        if any(left.steps):
            left, right = right, left
        if any(step != 0 for step in left.steps) or left.base is None:
            return None
        factor = left.base
        return replace(
            right,
            base=None if right.base is None else right.base * factor,
            steps=tuple(None if step is None else step * factor for step in right.steps),
        )
    if short == "andi" and all(isinstance(item, Mask) for item in args[:2]):
        return Mask(args[0].shape, tuple(min(a, b) for a, b in zip(args[0].counts, args[1].counts, strict=True)))
    if short == "andi":
        return next((item for item in args[:2] if isinstance(item, Mask)), None)
    if short in ("divsi", "remsi") and all(isinstance(item, Linear) for item in args[:2]):
        left, right = args[:2]
        constant = not any(left.steps) and not any(right.steps) and None not in (*left.steps, *right.steps)
        if constant and left.base is not None and right.base:
            quotient = left.base // right.base if left.base >= 0 else -(-left.base // right.base)
            return replace(left, base=quotient if short == "divsi" else left.base - quotient * right.base)
    return None


def sectors(address: Linear, counts: Sequence[int]) -> tuple[float, float, bool]:
    """Return the bytes that a block asks for, those of the sectors that hold them, and whether that is known."""
    size = address.bits / 8
    if None in address.steps:
        wanted = math.prod(counts) * size
        return wanted, wanted, False
    moving = [(abs(step or 0), n) for step, n in zip(address.steps, counts, strict=True) if step]
    if math.prod(counts) == 0:
        return 0.0, 0.0, True
    wanted = math.prod(n for _, n in moving) * size
    # Runs that follow each other without a gap are one run.
    run, rest = 1, 1
    for step, n in sorted(moving):
        if step == run and rest == 1:
            run *= n
        elif rest == 1 and run == 1 and step * size < SECTOR:
            return wanted, math.prod(m for _, m in moving) / n * whole((n - 1) * step * size + size), True
        else:
            rest *= n
    return wanted, rest * whole(run * size), True


def whole(size: float) -> float:
    """Round bytes up to whole sectors."""
    return math.ceil(size / SECTOR) * SECTOR
