"""Is an output right? Judged against float64, relative to what PyTorch itself loses in the same dtype.

There is no absolute tolerance: an output of tiny numbers is not answered by zeros. An element may be off by a share of
its own exact value, by a tenth of that share of the tensor's root mean square (which is what cancellation in a
differently ordered sum costs), and by eight times the worst error that PyTorch's native result has on this case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Share of the exact value that an element may be off, by the output's dtype.
RELATIVE = {"float64": 1e-9, "float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
#: Distance from 1 to the next number of a dtype.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
#: So many of these are allowed where the exact result is zero everywhere.
_OF_UNIT = 16.0
_OWN_ERROR = 8.0
_OF_RMS = 0.1
_MOST_OWN = 1000.0

Array = NDArray[Any]


@dataclass(frozen=True)
class Comparison:
    """The judgement on one output tensor."""

    ok: bool
    #: ``shape``, ``dtype``, ``nonfinite``, ``mismatch``; empty when right.
    kind: str = ""
    message: str = ""
    #: Largest error as a share of what is allowed (at most 1 when right).
    share: float = 0.0
    #: Largest error relative to the root mean square of the exact values.
    error: float = 0.0


def compare(
    output: Array, output_dtype: str, expected: Array, expected_dtype: str, exact: Array, name: str = "the output"
) -> Comparison:
    """Judge one output.

    Args:
        output: what the candidate gave; bfloat16 comes widened to float32.
        output_dtype, expected_dtype: dtypes as PyTorch names them.
        expected: the reference's native result.
        exact: the reference's float64 result (or the native one where it has none).
        name: how feedback calls the tensor.
    """
    if output.shape != expected.shape:
        return Comparison(False, "shape", f"{name} has shape {_shape(output)}, the reference gives {_shape(expected)}")
    if output_dtype != expected_dtype:
        return Comparison(False, "dtype", f"{name} is {output_dtype}, the reference gives {expected_dtype}")
    if output.size == 0:
        return Comparison(True)
    if expected_dtype not in RELATIVE:
        return _equal(output, expected, name)
    got = output.astype(np.float64)
    native = expected.astype(np.float64)
    true = exact.astype(np.float64)
    wrong = _special_mismatch(got, native)
    if wrong is not None:
        return Comparison(
            False,
            "nonfinite",
            f"{name}{_at(wrong, got.shape)} is {got.flat[wrong]}, the reference gives {native.flat[wrong]}",
            share=float("inf"),
            error=float("inf"),
        )
    finite = np.isfinite(native) & np.isfinite(true)
    if not finite.any():
        return Comparison(True)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.where(finite, true, 0.0)
        error = np.where(finite, np.abs(got - true), 0.0)
        own = float(np.where(finite, np.abs(native - true), 0.0).max())
        rms = float(np.sqrt(np.mean(values[finite] ** 2)))
        relative = RELATIVE[expected_dtype]
        # An error of PyTorch's own beyond this is no rounding any more and excuses nothing.
        excused = min(_OWN_ERROR * own, _MOST_OWN * relative * rms)
        if rms == 0.0:
            # Zero everywhere, as the difference of equal terms is: what they round to is of their size, not of zero's.
            excused += _OF_UNIT * EPSILON[expected_dtype]
        allowed = relative * np.abs(values) + _OF_RMS * relative * rms + excused + np.finfo(np.float64).tiny
        shares = error / allowed
    worst = int(np.argmax(shares))
    share, relative_error = float(shares.flat[worst]), float(error.max() / (rms or 1.0))
    if share <= 1.0:
        return Comparison(True, share=share, error=relative_error)
    off = int((shares > 1.0).sum())
    return Comparison(
        False,
        "mismatch",
        f"{name}{_at(worst, got.shape)} is {got.flat[worst]:.7g}, exact is {true.flat[worst]:.7g}; "
        f"{off} of {got.size} elements are off by up to {share:.3g} times what is allowed",
        share=share,
        error=relative_error,
    )


def _equal(output: Array, expected: Array, name: str) -> Comparison:
    differ = output != expected
    if not differ.any():
        return Comparison(True)
    worst = int(np.argmax(differ))
    return Comparison(
        False,
        "mismatch",
        f"{name}{_at(worst, output.shape)} is {output.flat[worst]}, the reference gives {expected.flat[worst]}; "
        f"{int(differ.sum())} of {output.size} elements differ",
        share=float("inf"),
        error=float("inf"),
    )


def _special_mismatch(got: Array, native: Array) -> int | None:
    """Return the first place where NaN or an infinity stands on one side only."""
    odd = (np.isnan(got) != np.isnan(native)) | (
        (np.isinf(got) | np.isinf(native)) & (got != native) & ~(np.isnan(got) & np.isnan(native))
    )
    return int(np.argmax(odd)) if odd.any() else None


def _at(position: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(i)) for i in np.unravel_index(position, shape))}]" if shape else ""


def _shape(array: Array) -> str:
    return "(" + ", ".join(str(n) for n in array.shape) + ")"
