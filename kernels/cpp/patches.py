"""Packing a convolution's patches: the columns of the patch matrix, tap by tap, straight from the image.

The taps of a window differ by the same step for every place, so where a place lies in the image and whether the
padding covers it is worked out once per tap and used for all channels. Where a panel's places lie side by side in the
image the copy is a plain one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.kernels.blocks import ops
from orienteer.kernels.blocks.emit import NeedsBuffer
from orienteer.kernels.blocks.graph import Node
from orienteer.kernels.blocks.index import product
from orienteer.kernels.cpp.kernel import CppKernel, block
from orienteer.kernels.cpp.nests import simd


def pack_patches(
    kernel: CppKernel, operand: Node, lanes: int, start: str, goal: str, extent: str, kind: str
) -> list[str]:
    """Return the copy of one panel of ``lanes`` neighbouring places, all taps of all channels.

    Args:
        kernel: the kernel under construction.
        operand: the ``conv.patches`` node.
        lanes: places of a panel.
        start: text of the block's first place, empty or ending in `` + ``.
        goal: name of the packed memory.
        extent: number of places.
        kind: type of the packed elements.

    Raises:
        NeedsBuffer: the image is computed by other operators; it is stored first, since every element is read often.
    """
    x = kernel.graph.nodes[next(operand.refs())]
    if x.name not in kernel.buffers:
        raise NeedsBuffer(x.name)
    facts = operand.kwargs
    rank = len(facts["window"])
    places = [kernel.size(size) for size in facts["places"][1:]]
    sizes = [kernel.size(size) for size in x.shape[2:]]
    channels = kernel.cpp(kernel.size(x.shape[1]), "int64")
    plane = kernel.cpp(product(sizes), "int64")
    taps = product([str(size) for size in facts["window"]])
    window = 1
    for size in facts["window"]:
        window *= size
    before, inside, offset = _place(kernel, facts, places, sizes, rank)
    element = f"{kernel.pointer(x.name)}[{{}}]"
    if x.dtype in ops.HALVES:
        element = f"from_{x.dtype}({element})"
    target = f"to[(c * {window} + tap) * {lanes} + l]"
    steps = []
    for axis, (size, apart) in enumerate(zip(facts["window"], facts["dilation"], strict=True)):
        steps.append(f"const int64_t t{axis} = tap / {_after(facts['window'], axis)} % {size} * {apart};")
    return [
        f"const int64_t first = {start}panel * {lanes}, lanes = smaller({extent} - first, {lanes});",
        f"{kind}* const to = {goal} + panel * {lanes} * inner;",
        f"int64_t image[{lanes}], {', '.join(f'p{axis}[{lanes}]' for axis in range(rank))}, at[{lanes}];",
        f"bool there[{lanes}];",
        *block(
            "for (int64_t l = 0; l < lanes; ++l)",
            [
                "const int64_t m = first + l;",
                f"image[l] = m / ({kernel.cpp(product(places), 'int64')}) * {channels} * ({plane});",
                *before,
            ],
        ),
        *block(
            f"for (int64_t tap = 0; tap < {taps}; ++tap)",
            [
                *steps,
                f"bool plain = lanes == {lanes};",
                *block(
                    "for (int64_t l = 0; l < lanes; ++l)",
                    [
                        f"there[l] = {inside};",
                        f"at[l] = there[l] ? image[l] + {offset} : 0;",
                        "plain = plain & there[l] & (at[l] == at[0] + l);",
                    ],
                ),
                *block(
                    f"for (int64_t c = 0; plain && c < {channels}; ++c)",
                    [
                        simd(kernel),
                        f"for (int64_t l = 0; l < {lanes}; ++l) {target} = "
                        f"{element.format(f'at[0] + c * ({plane}) + l')};",
                    ],
                ),
                *block(
                    f"for (int64_t c = 0; !plain && c < {channels}; ++c)",
                    [
                        simd(kernel),
                        f"for (int64_t l = 0; l < lanes; ++l) {target} = there[l] ? "
                        f"{element.format(f'at[l] + c * ({plane})')} : 0;",
                        f"for (int64_t l = lanes; l < {lanes}; ++l) {target} = 0;",
                    ],
                ),
            ],
        ),
    ]


def _after(window: Sequence[int], axis: int) -> int:
    out = 1
    for size in window[axis + 1 :]:
        out *= size
    return out


def _place(
    kernel: CppKernel, facts: Mapping[str, Any], places: Sequence[str], sizes: Sequence[str], rank: int
) -> tuple[list[str], str, str]:
    """Return the lines that take a place apart, the test whether a tap meets the image, and the offset in its plane."""
    stride, padding = facts["stride"], facts["padding"]
    lines: list[str] = []
    tests: list[str] = []
    parts: list[str] = []
    for axis in range(rank):
        inner = product(list(places[axis + 1 :]))
        out = f"m / ({kernel.cpp(inner, 'int64')}) % {kernel.cpp(places[axis], 'int64')}"
        size, rest = kernel.cpp(sizes[axis], "int64"), kernel.cpp(product(list(sizes[axis + 1 :])), "int64")
        if facts["transposed"]:
            lines.append(f"p{axis}[l] = {out} + {padding[axis]};")
            place = f"(p{axis}[l] - t{axis})"
            tests.append(f"({place} >= 0) & ({place} % {stride[axis]} == 0) & ({place} / {stride[axis]} < {size})")
            parts.append(f"{place} / {stride[axis]} * ({rest})")
        else:
            lines.append(f"p{axis}[l] = {out} * {stride[axis]} - {padding[axis]};")
            place = f"(p{axis}[l] + t{axis})"
            tests.append(f"({place} >= 0) & ({place} < {size})")
            parts.append(f"{place} * ({rest})")
    return lines, " & ".join(tests), " + ".join(parts)


__all__ = ["pack_patches"]
