"""Index arithmetic for generated kernels: which element of a tensor a program instance touches.

An :class:`Index` is the text of a Triton expression together with the iteration variables that it depends on; the
variables decide which masks a memory access needs and how the expression broadcasts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from orienteer.kernels.blocks.graph import Size


@dataclass(frozen=True)
class Index:
    """The position along one dimension."""

    text: str
    #: Iteration variables (``r``, ``m``, ``n`` ...) that carry a mask; scalars such as a row number are not listed.
    variables: frozenset[str] = frozenset()
    #: Which part of an offset this is, when it was taken apart: the offset, the sizes, and the place among them.
    part: tuple[str, tuple[Size, ...], int] | None = field(default=None, compare=False)

    @property
    def is_zero(self) -> bool:
        """True for the constant first position (a broadcast or size-one dimension)."""
        return self.text == "0"


ZERO = Index("0")


def is_atom(text: str) -> bool:
    """Return True when an expression needs no parentheses as an operand."""
    return re.fullmatch(r"[A-Za-z_]\w*|\d+", text) is not None


def wrap(text: str) -> str:
    """Parenthesise an expression unless it is a name or a number."""
    return text if is_atom(text) or (text.startswith("(") and _closes_at_end(text)) else f"({text})"


def _closes_at_end(text: str) -> bool:
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and position < len(text) - 1:
            return False
    return depth == 0


def product(sizes: Sequence[Size]) -> Size:
    """Return the product of sizes as a size expression; ones are dropped, an empty product is ``"1"``."""
    kept = [size for size in sizes if size != "1"]
    if not kept:
        return "1"
    if any(size == "0" for size in kept):
        return "0"
    if len(kept) == 1:
        return kept[0]
    return " * ".join(wrap(size) for size in kept)


def add(left: Index, right: Index) -> Index:
    """Return the sum of two indices."""
    if left.is_zero:
        return right
    if right.is_zero:
        return left
    return Index(f"{left.text} + {right.text}", left.variables | right.variables)


def scale(index: Index, factor: Size) -> Index:
    """Return an index times a size."""
    if index.is_zero or factor == "1":
        return index
    return Index(f"{wrap(index.text)} * {wrap(factor)}", index.variables)


def linear(index: Sequence[Index], shape: Sequence[Size]) -> Index:
    """Return the offset of a position in a contiguous tensor of the given shape.

    Neighbouring parts of one offset, taken apart by the same sizes, are put together again without a division.
    """
    total = ZERO
    kept = [(item, size) for item, size in zip(index, shape, strict=True) if size != "1"]
    position = 0
    while position < len(kept):
        end = position + 1
        while end < len(kept) and _continues(kept[position : end + 1]):
            end += 1
        item = kept[position][0]
        if end - position > 1:
            item = _together(kept[position:end])
        total = add(total, scale(item, product([size for _, size in kept[end:]])))
        position = end
    return total


def _continues(run: Sequence[tuple[Index, Size]]) -> bool:
    first = run[0][0].part
    if first is None:
        return False
    offset, sizes, start = first
    for step, (item, size) in enumerate(run):
        # The size of the first part of a run does not matter: nothing is carried beyond it.
        at = start + step
        if item.part != (offset, sizes, at) or at >= len(sizes) or (step > 0 and sizes[at] != size):
            return False
    return True


def _together(run: Sequence[tuple[Index, Size]]) -> Index:
    first = run[0][0]
    assert first.part is not None
    offset, sizes, start = first.part
    end = start + len(run)
    text = offset
    inner = product(sizes[end:])
    if inner != "1":
        text = f"{wrap(text)} // {wrap(inner)}"
    if start > 0:
        text = f"{wrap(text)} % {wrap(product(sizes[start:end]))}"
    part = (offset, (*sizes[:start], product(sizes[start:end]), *sizes[end:]), start) if len(run) < len(sizes) else None
    return Index(text, first.variables, part)


def split(offset: Index, shape: Sequence[Size]) -> list[Index]:
    """Return the position in a contiguous tensor of the given shape that an offset names."""
    out: list[Index] = []
    sizes = tuple(size for size in shape if size != "1")
    place = 0
    for position, size in enumerate(shape):
        if size == "1":
            out.append(ZERO)
            continue
        inner = product(shape[position + 1 :])
        text = offset.text if inner == "1" else f"{wrap(offset.text)} // {wrap(inner)}"
        if place:
            text = f"{wrap(text)} % {wrap(size)}"
        out.append(Index(text, offset.variables, (offset.text, sizes, place) if len(sizes) > 1 else None))
        place += 1
    return out


def reshape(index: Sequence[Index], old: Sequence[Size], new: Sequence[Size]) -> list[Index]:
    """Map a position in a tensor viewed as ``new`` to the position in the same memory viewed as ``old``.

    Dimensions that the two shapes share are passed through unchanged; only the runs that differ are merged and split,
    so that a view which adds or drops ones, or folds the batch, costs no division.
    """
    new_left = [(i, s) for i, s in zip(index, new, strict=True) if s != "1"]
    old_sizes = [s for s in old if s != "1"]
    # Common dimensions at the front and at the back pass through.
    front = 0
    while front < min(len(new_left), len(old_sizes)) and new_left[front][1] == old_sizes[front]:
        front += 1
    back = 0
    while (
        back < min(len(new_left), len(old_sizes)) - front
        and new_left[len(new_left) - 1 - back][1] == old_sizes[len(old_sizes) - 1 - back]
    ):
        back += 1
    middle_new = new_left[front : len(new_left) - back]
    middle_old = old_sizes[front : len(old_sizes) - back]
    middle = _regroup(middle_new, middle_old)
    flat = [i for i, _ in new_left[:front]] + middle + [i for i, _ in new_left[len(new_left) - back :]]
    out: list[Index] = []
    remaining = iter(flat)
    for size in old:
        out.append(ZERO if size == "1" else next(remaining))
    return out


def _regroup(new: list[tuple[Index, Size]], old: list[Size]) -> list[Index]:
    if not old:
        return []
    if not new:
        return [ZERO] * len(old)
    offset = linear([i for i, _ in new], [s for _, s in new])
    return split(offset, old) if len(old) > 1 else [offset]
