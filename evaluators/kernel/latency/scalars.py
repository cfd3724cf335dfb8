"""Scalar operations: what each computes, and the scalar unit's cycles for it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from orienteer.evaluators.kernel.latency.chips import ASSUMED
from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled
from orienteer.evaluators.kernel.latency.mlir import AffineMap, NotRead, Op
from orienteer.evaluators.kernel.latency.views import compile_view

Env = dict[Any, Any]
Step = Callable[[Core, Env], None]
_SSA = re.compile(r"%[\w.$-]+(?:#\d+)?")


def _truncated(a: int, b: int) -> int | None:
    if b == 0:
        return None
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int | None:
    quotient = _truncated(a, b)
    return None if quotient is None else a - quotient * b


_BINARY: dict[str, Callable[[int, int], int | None]] = {
    "addi": operator.add,
    "subi": operator.sub,
    "muli": operator.mul,
    "divsi": _truncated,
    "divui": _truncated,
    "remsi": _remainder,
    "remui": _remainder,
    "ceildivsi": lambda a, b: -(-a // b) if b else None,
    "ceildivui": lambda a, b: -(-a // b) if b else None,
    "floordivsi": lambda a, b: a // b if b else None,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "shli": lambda a, b: a << b if 0 <= b < 64 else None,
    "shrsi": lambda a, b: a >> b if 0 <= b < 64 else None,
    "shrui": lambda a, b: a >> b if 0 <= b < 64 else None,
    "minsi": min,
    "maxsi": max,
    "minui": min,
    "maxui": max,
}
COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "slt": operator.lt,
    "sle": operator.le,
    "sgt": operator.gt,
    "sge": operator.ge,
    "ult": operator.lt,
    "ule": operator.le,
    "ugt": operator.gt,
    "uge": operator.ge,
}
#: The same operations as the LLVM dialect names them, and the one that compares.
_LLVM = {
    "add": "addi",
    "sub": "subi",
    "mul": "muli",
    "sdiv": "divsi",
    "udiv": "divui",
    "srem": "remsi",
    "urem": "remui",
    "and": "andi",
    "or": "ori",
    "xor": "xori",
    "shl": "shli",
    "ashr": "shrsi",
    "lshr": "shrui",
    "intr.smin": "minsi",
    "intr.smax": "maxsi",
    "intr.umin": "minui",
    "intr.umax": "maxui",
    "sext": "extsi",
    "zext": "extui",
    "trunc": "trunci",
}
_CASTS = {"index_cast", "index_castui", "extsi", "extui", "trunci"}
_DIVISIONS = {"divsi", "divui", "remsi", "remui", "ceildivsi", "ceildivui", "floordivsi"}
_CHOICES: dict[str, Callable[[list[int]], int]] = {"apply": lambda values: values[0], "min": min, "max": max}
_VIEWS = {
    "memref.cast",
    "memref.memory_space_cast",
    "memref.reinterpret_cast",
    "memref.subview",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.view",
    "memref.extract_strided_metadata",
    "memref.dim",
    "arith.constant",
    "hivm.hir.pointer_cast",
    "hivm.hir.bitcast",
    "annotation.mark",
}


def cost(op: Op) -> float:
    """Return the scalar unit's cycles for an operation."""
    dialect, _, short = op.name.partition(".")
    if dialect == "llvm":
        short = _LLVM.get(short, short)
        if short in ("mlir.constant", "extractvalue", "insertvalue", "bitcast", "alloca"):
            return 0.0
    if dialect == "builtin":
        return 0.0
    if op.name in _VIEWS or short in _CASTS:
        return 0.0
    if op.name == "memref.load":
        return ASSUMED.scalar_memory if "address_space<gm>" in op.text else ASSUMED.scalar_ub
    if op.name == "memref.store":
        return ASSUMED.scalar_memory if "address_space<gm>" in op.text else ASSUMED.scalar
    if dialect == "affine":
        return 2 * ASSUMED.scalar
    if dialect == "math" or short.endswith("f") or short in ("sitofp", "uitofp", "fptosi", "fptoui"):
        return ASSUMED.scalar_float
    return ASSUMED.scalar_division if short in _DIVISIONS else ASSUMED.scalar


def compile_op(op: Op, maps: dict[str, AffineMap]) -> Step:
    """Return what runs an operation.

    Raises:
        Unmodelled: the operation is not known.
    """
    dialect, _, short = op.name.partition(".")
    try:
        if dialect in ("llvm", "builtin"):
            return _low_level(op, short)
        if op.name == "arith.constant":
            return _constant(op)
        if dialect == "arith" and short in _BINARY:
            return _binary(op, _BINARY[short])
        if op.name == "arith.cmpi":
            return _compare(op)
        if op.name == "arith.select":
            return _select(op)
        if dialect == "arith" and short in _CASTS:
            return _cast(op)
        if dialect in ("arith", "math"):
            return _unknown(op)  # floats: no size and no trip count is made of them
        if dialect == "affine" and short in ("apply", "min", "max"):
            return _affine(op, short, maps)
        if dialect == "memref" or op.name in _VIEWS:
            return compile_view(op, short.removeprefix("hir."))
    except (NotRead, IndexError, ValueError) as error:
        raise Unmodelled(f"{op.name}: {error}") from None
    raise Unmodelled(f"the operation {op.name}")


def _low_level(op: Op, short: str) -> Step:
    """Return what runs an operation of the LLVM dialect, which the compiler for the 950 writes."""
    short = _LLVM.get(short, short)
    if short == "mlir.constant":
        return _constant(Op(op.name, op.results, op.text.replace("(", " ", 1)))
    if short in _BINARY:
        return _binary(op, _BINARY[short])
    if short in _CASTS:
        return _cast(op)
    if short == "icmp":
        return _compare(Op(op.name, op.results, re.sub(r'"(\w+)"', r"\1,", op.text, count=1)))
    if short == "select":
        return _select(op)
    if short == "unrealized_conversion_cast" and len(op.results) == 1:
        source, name = op.operands()[0], op.results[0]
        return lambda core, env: env.__setitem__(name, env.get(source))
    if op.results:
        return _unknown(op)  # pointers and floats: no size and no trip count is made of them
    if short in ("store", "intr.assume"):
        return lambda core, env: None
    raise NotRead("another operation than expected")


def _constant(op: Op) -> Step:
    found = re.match(r"\s*(?:\{[^}]*\} )?(true|false|-?\d+(?![.\dex]))", op.text)
    value = None
    if found:
        value = {"true": 1, "false": 0}.get(found[1])
        value = int(found[1]) if value is None else value
    name = op.results[0]
    return lambda core, env: env.__setitem__(name, value)


def _unknown(op: Op) -> Step:
    names = op.results

    def run(core: Core, env: Env) -> None:
        for name in names:
            env[name] = None

    return run


def _binary(op: Op, function: Callable[[int, int], int | None]) -> Step:
    left, right = op.operands()[:2]
    name = op.results[0]

    def run(core: Core, env: Env) -> None:
        a, b = env.get(left), env.get(right)
        env[name] = None if a is None or b is None else function(a, b)

    return run


def _compare(op: Op) -> Step:
    predicate = op.text.strip().partition(",")[0]
    left, right = op.operands()[:2]
    name, function = op.results[0], COMPARE.get(predicate)
    if function is None:
        raise NotRead(f"the comparison {predicate}")

    def run(core: Core, env: Env) -> None:
        a, b = env.get(left), env.get(right)
        env[name] = None if a is None or b is None else int(function(a, b))

    return run


def _select(op: Op) -> Step:
    condition, yes, no = op.operands()[:3]
    name = op.results[0]

    def run(core: Core, env: Env) -> None:
        chosen = env.get(condition)
        if chosen is None:
            a, b = env.get(yes), env.get(no)
            env[name] = a if a == b or isinstance(a, Ref) else None
        else:
            env[name] = env.get(yes if chosen else no)

    return run


def _cast(op: Op) -> Step:
    source, name = op.operands()[0], op.results[0]
    if op.text.rstrip().endswith("to i1"):

        def narrow(core: Core, env: Env) -> None:
            value = env.get(source)
            env[name] = None if value is None else value & 1

        return narrow
    return lambda core, env: env.__setitem__(name, env.get(source))


def _affine(op: Op, kind: str, maps: dict[str, AffineMap]) -> Step:
    found = re.match(r"\s*#(\w+)", op.text)
    if found is None or found[1] not in maps:
        raise NotRead("an affine map that is not named")
    function, names, result = maps[found[1]], op.operands(), op.results[0]
    choose = _CHOICES[kind]

    def run(core: Core, env: Env) -> None:
        values: list[int] = [value for name in names if (value := env.get(name)) is not None]
        if len(values) < len(names):
            env[result] = None
            return
        try:
            env[result] = choose(function(values))
        except ZeroDivisionError:
            env[result] = None

    return run
