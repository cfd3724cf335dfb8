"""Index arithmetic for generated kernels: which element of a tensor a program instance touches.

An :class:`Index` is the text of a Triton expression together with the iteration variables that it depends on; the
variables decide which masks a memory access needs and how the expression broadcasts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orienteer.kernels.blocks.graph import Size


@dataclass(frozen=True)
class Index:
    """The position along one dimension."""

    text: str
    #: Iteration variables (``r``, ``m``, ``n`` ...) that carry a mask; scalars such as a row number are not listed.
    variables: frozenset[str] = frozenset()

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
    """Return the offset of a position in a contiguous tensor of the given shape."""
    total = ZERO
    for position, (item, size) in enumerate(zip(index, shape, strict=True)):
        if size == "1":
            continue
        total = add(total, scale(item, product(shape[position + 1 :])))
    return total


def split(offset: Index, shape: Sequence[Size]) -> list[Index]:
    """Return the position in a contiguous tensor of the given shape that an offset names."""
    out: list[Index] = []
    first = True
    for position, size in enumerate(shape):
        if size == "1":
            out.append(ZERO)
            continue
        inner = product(shape[position + 1 :])
        text = offset.text if inner == "1" else f"{wrap(offset.text)} // {wrap(inner)}"
        if not first:
            text = f"{wrap(text)} % {wrap(size)}"
        out.append(Index(text, offset.variables))
        first = False
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
