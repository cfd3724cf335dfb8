"""Views of buffers: the sizes and strides that each gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled
from orienteer.evaluators.kernel.latency.mlir import Buffer, NotRead, Op, buffer_type

Env = dict[Any, Any]
Step = Callable[[Core, Env], None]


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


def compile_view(op: Op, short: str) -> Step:
    """Return what runs an operation on buffers.

    Raises:
        NotRead: its form is not known.
    """
    if short == "dim":
        return _dim(op)
    if short == "load":
        cell, result = op.operands()[0], op.results[0]
        # Counters of buffers lie in cells of the scalar unit's own memory.
        return lambda core, env: env.__setitem__(result, env.get((cell, "cell")))
    if short == "store":
        value, place = op.operands()[:2]
        if "address_space" in op.text:
            return lambda core, env: None
        return lambda core, env: env.__setitem__((place, "cell"), env.get(value))
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
