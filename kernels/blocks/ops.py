"""Pointwise operators: how each core ATen operator reads in Triton.

Every entry is a format of operand texts; values of half precision are computed in float32 as PyTorch's own kernels do.
NaN behaviour follows PyTorch: ``relu``, ``clamp``, ``maximum`` and ``minimum`` propagate it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

#: One operand: expressions are already parenthesised by the caller where needed.
UNARY: Mapping[str, str] = {
    "aten.abs": "tl.abs({0})",
    "aten.neg": "-{0}",
    "aten.exp": "tl.exp({0})",
    "aten.exp2": "tl.exp2({0})",
    "aten.log": "tl.log({0})",
    "aten.log2": "tl.log2({0})",
    "aten.log10": "(tl.log({0}) * 0.4342944819032518)",
    "aten.sqrt": "tl.sqrt({0})",
    "aten.rsqrt": "(1.0 / tl.sqrt({0}))",
    "aten.reciprocal": "(1.0 / {0})",
    "aten.sin": "tl.sin({0})",
    "aten.cos": "tl.cos({0})",
    "aten.erf": "tl.erf({0})",
    "aten.erfc": "(1.0 - tl.erf({0}))",
    "aten.floor": "tl.floor({0})",
    "aten.ceil": "tl.ceil({0})",
    "aten.relu": "tl.where({0} < 0, 0.0, {0})",
    "aten.sigmoid": "(1.0 / (1.0 + tl.exp(-{0})))",
    "aten.sign": "(tl.where({0} > 0, 1.0, 0.0) - tl.where({0} < 0, 1.0, 0.0))",
    "aten.isnan": "({0} != {0})",
    "aten.logical_not": "({0} == 0)",
    "aten.bitwise_not": "~{0}",
    "aten.square": "({0} * {0})",
    "aten.tan": "(tl.sin({0}) / tl.cos({0}))",
}

#: Two operands.
BINARY: Mapping[str, str] = {
    "aten.add": "({0} + {1})",
    "aten.sub": "({0} - {1})",
    "aten.mul": "({0} * {1})",
    "aten.div": "({0} / {1})",
    "prims.div": "({0} / {1})",
    "aten.maximum": "tl.where(({0} > {1}) | ({0} != {0}), {0}, {1})",
    "aten.minimum": "tl.where(({0} < {1}) | ({0} != {0}), {0}, {1})",
    "aten.eq": "({0} == {1})",
    "aten.ne": "({0} != {1})",
    "aten.lt": "({0} < {1})",
    "aten.le": "({0} <= {1})",
    "aten.gt": "({0} > {1})",
    "aten.ge": "({0} >= {1})",
    "aten.logical_and": "(({0} != 0) & ({1} != 0))",
    "aten.logical_or": "(({0} != 0) | ({1} != 0))",
    "aten.bitwise_and": "({0} & {1})",
    "aten.bitwise_or": "({0} | {1})",
    "aten.bitwise_xor": "({0} ^ {1})",
}

FLOATS = frozenset({"float32", "float16", "bfloat16", "float64"})
HALVES = frozenset({"float16", "bfloat16"})
#: What a value of each dtype is computed in.
COMPUTE = {
    "float16": "tl.float32",
    "bfloat16": "tl.float32",
    "float32": "tl.float32",
    "float64": "tl.float64",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}


def literal(value: float | int | bool) -> str:
    """Write a Python number as a Triton literal."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int):
        return str(value)
    if math.isinf(value):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    if math.isnan(value):
        return 'float("nan")'
    return repr(value)


def power(base: str, exponent: float | int) -> str | None:
    """Write a power with a constant exponent by multiplications and roots; None where that is not possible."""
    special: Mapping[float, str] = {
        0.0: f"({base} * 0.0 + 1.0)",
        0.5: f"tl.sqrt({base})",
        1.0: base,
        1.5: f"({base} * tl.sqrt({base}))",
        -0.5: f"(1.0 / tl.sqrt({base}))",
        -1.0: f"(1.0 / {base})",
        -2.0: f"(1.0 / ({base} * {base}))",
    }
    if float(exponent) in special:
        return special[float(exponent)]
    if float(exponent) == int(exponent) and 2 <= exponent <= 8:
        return "(" + " * ".join([base] * int(exponent)) + ")"
    return None


def tanh(x: str) -> str:
    """Write tanh by exp of a non-positive argument, with the first terms of the series where that would cancel."""
    exact = f"(1.0 - tl.exp(-2.0 * tl.abs({x}))) / (1.0 + tl.exp(-2.0 * tl.abs({x})))"
    return f"tl.where(tl.abs({x}) < 0.04, {x} * (1.0 - {x} * {x} / 3.0), tl.where({x} < 0, -1.0, 1.0) * {exact})"


def log1p(x: str) -> str:
    """Write log(1 + x) with the classical correction for small x (Goldberg 1991, theorem 4)."""
    return f"tl.where((1.0 + {x}) == 1.0, {x}, tl.log(1.0 + {x}) * {x} / ((1.0 + {x}) - 1.0 + ((1.0 + {x}) == 1.0)))"


def expm1(x: str) -> str:
    """Write exp(x) - 1 with a series where it would cancel."""
    series = f"({x} * (1.0 + {x} * (0.5 + {x} * (0.16666666666666666 + {x} * 0.041666666666666664))))"
    return f"tl.where(tl.abs({x}) < 0.05, {series}, tl.exp({x}) - 1.0)"


COMPOSED: Mapping[str, Callable[[str], str]] = {"aten.tanh": tanh, "aten.log1p": log1p, "aten.expm1": expm1}
