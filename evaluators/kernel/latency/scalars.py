"""Scalar operations and views of buffers: what each computes, and the scalar unit's cycles for it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orienteer.evaluators.kernel.latency.chips import ASSUMED
from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled
from orienteer.evaluators.kernel.latency.mlir import AffineMap, Buffer, NotRead, Op, buffer_type

Env = dict[str, Any]
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
            return _buffer(op, short.removeprefix("hir."))
    except (NotRead, IndexError, ValueError) as error:
        raise Unmodelled(f"{op.name}: {error}") from None
    raise Unmodelled(f"the operation {op.name}")


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


# -- buffers -----------------------------------------------------------------------------------------------------------


def contiguous(sizes: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the strides of a buffer without gaps."""
    strides: list[int | None] = []
    step: int | None = 1
    for size in reversed(sizes):
        strides.append(step)
        step = None if step is None or size is None else step * size
    return tuple(reversed(strides))


def _made(buffer: Buffer, argument: str = "") -> Ref:
    strides = buffer.strides if buffer.strides is not None else contiguous(buffer.sizes)
    return Ref(buffer.space, buffer.bits, buffer.sizes, strides, argument)


def _result_type(op: Op) -> Buffer:
    return buffer_type(op.text)


def _list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _value(item: str, env: Env) -> int | None:
    return env.get(item) if item.startswith("%") else int(item)


def _buffer(op: Op, short: str) -> Step:
    if short in ("load", "dim"):
        return _unknown(op) if short == "load" else _dim(op)
    if short == "store":
        return lambda core, env: None
    if op.name == "annotation.mark":
        return lambda core, env: None
    name = op.results[0]
    if short in ("pointer_cast", "alloc", "alloca"):
        made = _made(_result_type(op))
        return lambda core, env: env.__setitem__(name, made)
    source = op.operands()[0]
    if short in ("cast", "memory_space_cast"):
        return lambda core, env: env.__setitem__(name, env.get(source))
    if short == "bitcast":
        return _bitcast(op, source, name)
    if short == "reinterpret_cast":
        return _reinterpret(op, source, name)
    if short == "subview":
        return _subview(op, source, name)
    if short == "collapse_shape":
        return _collapse(op, source, name)
    if short == "expand_shape":
        return _expand(op, source, name)
    if short == "view":
        return _view(op, source, name)
    if short == "extract_strided_metadata":
        return _metadata(op, source)
    raise NotRead("another view than expected")


def _source(env: Env, name: str) -> Ref:
    ref = env.get(name)
    if not isinstance(ref, Ref):
        raise Unmodelled("a buffer that depends on data")
    return ref


def _dim(op: Op) -> Step:
    names, result = op.operands(), op.results[0]

    def run(core: Core, env: Env) -> None:
        ref, position = _source(env, names[0]), env.get(names[1])
        env[result] = ref.sizes[position] if position is not None and position < len(ref.sizes) else None

    return run


def _bitcast(op: Op, source: str, name: str) -> Step:
    buffer = _result_type(op)

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        if None not in buffer.sizes:
            env[name] = replace(_made(buffer, ref.argument), space=ref.space)
        else:
            env[name] = replace(ref, bits=buffer.bits)

    return run


def _reinterpret(op: Op, source: str, name: str) -> Step:
    found = re.search(r"sizes: \[([^\]]*)\], strides: \[([^\]]*)\]", op.text)
    if found is None:
        raise NotRead("another form than expected")
    sizes, strides = _list(found[1]), _list(found[2])

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        env[name] = replace(
            ref,
            sizes=tuple(_value(item, env) for item in sizes),
            strides=tuple(_value(item, env) for item in strides),
        )

    return run


def _subview(op: Op, source: str, name: str) -> Step:
    found = re.match(r"\s*%[\w.$#-]+\s*\[([^\]]*)\]\s*\[([^\]]*)\]\s*\[([^\]]*)\]", op.text)
    if found is None:
        raise NotRead("another form than expected")
    sizes, steps, rank = _list(found[2]), _list(found[3]), len(_result_type(op).sizes)
    static = _result_type(op).sizes

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        extents = [_value(item, env) for item in sizes]
        strides = [
            None if stride is None or (step := _value(item, env)) is None else stride * step
            for stride, item in zip(ref.strides, steps, strict=True)
        ]
        kept = list(range(len(extents)))
        # Dimensions of one element that the result's type does not have.
        for position in list(kept):
            place = kept.index(position)
            if len(kept) > rank and sizes[position] == "1" and (place >= rank or static[place] != 1):
                kept.remove(position)
        for position in list(kept):
            if len(kept) > rank and sizes[position] == "1":
                kept.remove(position)
        env[name] = replace(ref, sizes=tuple(extents[p] for p in kept), strides=tuple(strides[p] for p in kept))

    return run


def _groups(op: Op) -> list[list[int]]:
    found = re.search(r"\[(\[.*?\])\]", op.text)
    if found is None:
        return []
    return [[int(item) for item in _list(group)] for group in re.findall(r"\[([^\[\]]*)\]", found[1])]


def _collapse(op: Op, source: str, name: str) -> Step:
    groups = _groups(op)

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        sizes: list[int | None] = []
        strides: list[int | None] = []
        for group in groups:
            total: int | None = 1
            for position in group:
                size = ref.sizes[position]
                total = None if total is None or size is None else total * size
            sizes.append(total)
            inner = [position for position in group if ref.sizes[position] != 1]
            strides.append(ref.strides[inner[-1] if inner else group[-1]])
        env[name] = replace(ref, sizes=tuple(sizes), strides=tuple(strides))

    return run


def _expand(op: Op, source: str, name: str) -> Step:
    groups = _groups(op)
    shape = re.search(r"output_shape \[([^\]]*)\]", op.text)
    if shape is None:
        raise NotRead("another form than expected")
    items = _list(shape[1])

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        sizes = [_value(item, env) for item in items]
        strides: list[int | None] = [None] * len(sizes)
        for outer, group in enumerate(groups):
            step = ref.strides[outer]
            for position in reversed(group):
                strides[position] = step
                size = sizes[position]
                step = None if step is None or size is None else step * size
        env[name] = replace(ref, sizes=tuple(sizes), strides=tuple(strides))

    return run


def _view(op: Op, source: str, name: str) -> Step:
    found = re.match(r"\s*%[\w.$#-]+\s*\[[^\]]*\]\s*\[([^\]]*)\]", op.text)
    buffer, items = _result_type(op), _list(found[1]) if found else []

    def run(core: Core, env: Env) -> None:
        ref, given = _source(env, source), iter(items)
        sizes = tuple(_value(next(given), env) if size is None else size for size in buffer.sizes)
        env[name] = replace(ref, bits=buffer.bits, sizes=sizes, strides=contiguous(sizes))

    return run


def _metadata(op: Op, source: str) -> Step:
    results = op.results

    def run(core: Core, env: Env) -> None:
        ref = _source(env, source)
        rank = len(ref.sizes)
        values: list[Any] = [replace(ref, sizes=(), strides=()), None, *ref.sizes, *ref.strides]
        for position, name in enumerate(results):
            env[name] = values[position] if position < 2 + 2 * rank else None

    return run
