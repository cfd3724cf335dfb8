"""Triton's interpreter as the judge uses it: faster, right in bfloat16, and watched for races.

Used inside sandboxed children only. The interpreter runs the program instances of a launch one after another, so two
things that a device shows are shown here by other means: instances may run in reversed order, and every element that
an instance reads or writes can be noted, so that two instances which touch the same element without an atomic are seen.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from orienteer.environments.kernel import quick

#: Most element accesses of a candidate that are noted; what comes after is not looked at.
MAX_NOTED = 400_000

_BFLOAT16 = "bf16"
_UINT16 = np.dtype(np.uint16).num
Array = np.ndarray[Any, Any]


def widen(bits: Array) -> Array:
    """Return bfloat16 numbers, given as their bits, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: Array) -> Array:
    """Return the bits of float32 numbers rounded to bfloat16, to nearest and ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


class Interpreter:
    """Triton's interpreter with the repairs; there is one in a process.

    Args:
        note: called with what a reader of the result must know.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        from triton.runtime import interpreter

        self._module = interpreter
        self._builder = interpreter.interpreter_builder
        self._note = note
        self._patched = False
        #: Run the instances of a launch from the last to the first.
        self.reversed = False
        self._accesses: _Accesses | None = None
        self._noted = 0

    # -- launches ------------------------------------------------------------------------------------------------------

    def launch(self, run: Callable[[], None], name: str, *, watched: bool) -> str | None:
        """Run a launch; returns what two of its instances do to each other, or None."""
        self._prepare()
        self._accesses = _Accesses() if watched and self._noted < MAX_NOTED else None
        try:
            run()
            if self._accesses is None:
                return None
            self._noted += self._accesses.count
            found = self._accesses.conflict()
            return f"{name}: {found}" if found else None
        finally:
            self._accesses = None

    def _prepare(self) -> None:
        """Put the repairs in place before the first launch."""
        if self._patched:
            return
        self._patched = True
        import triton.language as tl

        module, builder = self._module, self._builder
        # The checks for overflowing integers double the work; a device wraps round, and the result shows it.
        builder.options = module.InterpreterOptions(sanitize_overflow=False)
        quick.shorten_calls(module, tl.core)
        # The language is patched for every launch and every call of a device function; once is enough here.
        module._patch_lang(types.SimpleNamespace(__globals__={"language": tl, "core": tl.core}))
        scope = types.SimpleNamespace(restore=lambda: None)
        module._patch_lang = lambda fn: scope
        module._get_np_dtype = _numpy_types(module._get_np_dtype)
        _remember_shapes(tl)
        _broadcast(module)
        quick.shorten_operators(module, tl.core)
        quick.shorten_types(module, tl.core)
        quick.shorten_operands(module, tl.core)
        self._order(builder)
        self._bfloat16(type(builder))
        self._memory(builder)

    def _order(self, builder: Any) -> None:
        place = builder.set_grid_idx

        def set_grid_idx(x: int, y: int, z: int) -> None:
            if self.reversed:
                x, y, z = (size - 1 - index for size, index in zip(builder.grid_dim, (x, y, z), strict=True))
            if self._accesses is not None:
                self._accesses.instance += 1
            place(x, y, z)

        builder.set_grid_idx = set_grid_idx

    # -- bfloat16 ------------------------------------------------------------------------------------------------------

    def _bfloat16(self, kind: Any) -> None:
        """Compute with bfloat16 numbers: the interpreter computes with their bits as if they were integers."""
        handle = self._module.TensorHandle
        binary, unary, ternary, dot, cast = (
            kind.binary_op,
            kind.unary_op,
            kind.ternary_op,
            kind.create_dot,
            kind.cast_impl,
        )
        fma, erf, rsqrt, convert = kind.create_fma, kind.create_erf, kind.create_rsqrt, kind.create_fp_to_fp

        def held(value: Any) -> bool:
            return value.data.dtype.num == _UINT16 and value.dtype.scalar.name == _BFLOAT16

        def wide(value: Any) -> Any:
            import triton.language as tl

            return handle(widen(value.data), tl.float32) if held(value) else value

        def back(result: Any, like: Any) -> Any:
            if result.data.dtype.kind != "f":
                return handle(result.data, like.dtype.scalar)
            return handle(narrow(result.data), like.dtype.scalar)

        def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
            if not held(lhs) and not held(rhs):
                return binary(self, lhs, rhs, op)
            values = op(wide(lhs).data, wide(rhs).data)
            return back(handle(values, lhs.dtype.scalar) if values.dtype == bool else _Wide(values), lhs)

        def unary_op(self: Any, arg: Any, op: Any) -> Any:
            return back(unary(self, wide(arg), op), arg) if held(arg) else unary(self, arg, op)

        def ternary_op(self: Any, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
            # Selecting moves bits and needs no repair; clamping compares numbers.
            if op is np.where or not held(other):
                return ternary(self, lhs, rhs, other, op)
            return back(ternary(self, wide(lhs), wide(rhs), wide(other), op), other)

        def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
            return back(fma(self, wide(x), wide(y), wide(z)), z) if held(z) else fma(self, x, y, z)

        def create_erf(self: Any, arg: Any) -> Any:
            return back(erf(self, wide(arg)), arg) if held(arg) else erf(self, arg)

        def create_rsqrt(self: Any, arg: Any) -> Any:
            return back(rsqrt(self, wide(arg)), arg) if held(arg) else rsqrt(self, arg)

        def create_dot(builder: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
            if held(a) or held(b):
                self._note("bfloat16 tl.dot was computed by an upcast copy: the interpreter's own is wrong")
            if held(d):
                return back(dot(builder, wide(a), wide(b), wide(d), *rest), d)
            return dot(builder, wide(a), wide(b), d, *rest)

        def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
            import triton.language as tl

            if held(src):
                wider = wide(src)
                return wider if dst_type.scalar.name == "fp32" else cast(self, wider, dst_type)
            if dst_type.scalar.name == _BFLOAT16:
                values = src.data if src.data.dtype == np.float32 else cast(self, src, tl.float32).data
                return handle(narrow(values), dst_type.scalar)
            return cast(self, src, dst_type)

        def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding: Any) -> Any:
            simple = held(src) and dst_type.scalar.name in ("fp32", "fp16", "fp64")
            nearest = "RTNE" in str(rounding) and dst_type.scalar.name == _BFLOAT16
            if simple or (nearest and src.dtype.scalar.name in ("fp32", "fp16", "fp64")):
                return cast_impl(self, src, dst_type)
            return convert(self, src, dst_type, rounding)

        kind.binary_op, kind.unary_op, kind.ternary_op = binary_op, unary_op, ternary_op
        kind.create_fma, kind.create_erf, kind.create_rsqrt = create_fma, create_erf, create_rsqrt
        kind.create_dot, kind.cast_impl, kind.create_fp_to_fp = create_dot, cast_impl, create_fp_to_fp

    # -- memory --------------------------------------------------------------------------------------------------------

    def _memory(self, builder: Any) -> None:
        load, store = builder.create_masked_load, builder.create_masked_store
        interpreter = self

        def create_masked_load(ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            if interpreter._accesses is not None:
                interpreter._accesses.read(ptrs.data, mask.data)
            return load(ptrs, mask, *rest, **named)

        def create_masked_store(ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
            if interpreter._accesses is not None:
                interpreter._accesses.write(ptrs.data, value.data, mask.data)
            return store(ptrs, value, mask, *rest, **named)

        def atomic(original: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **named: Any) -> Any:
                if interpreter._accesses is not None:
                    interpreter._accesses.atomics = True
                return original(*args, **named)

            return call

        builder.create_masked_load, builder.create_masked_store = create_masked_load, create_masked_store
        for name in ("rmw", "cas", "poll", "load", "store"):
            if hasattr(builder, f"create_atomic_{name}"):
                setattr(builder, f"create_atomic_{name}", atomic(getattr(builder, f"create_atomic_{name}")))


class _Wide:
    """Float32 values on their way back to bfloat16."""

    def __init__(self, data: Array) -> None:
        self.data = data


class _Accesses:
    """What the instances of one launch read and write."""

    def __init__(self) -> None:
        self.instance = -1
        #: With atomics instances can agree on an order, which is not followed here.
        self.atomics = False
        self.count = 0
        self._reads: list[tuple[int, Array]] = []
        self._writes: list[tuple[int, Array, Array]] = []

    def read(self, addresses: Array, mask: Array) -> None:
        if self.count < MAX_NOTED:
            kept = addresses[np.broadcast_to(mask, addresses.shape)]
            self.count += kept.size
            self._reads.append((self.instance, kept))

    def write(self, addresses: Array, values: Array, mask: Array) -> None:
        mask = np.broadcast_to(mask, addresses.shape)
        kept = addresses[mask]
        self.count += kept.size
        stored = np.broadcast_to(values, addresses.shape)[mask]
        stored = np.ascontiguousarray(stored).view(f"u{stored.dtype.itemsize}")
        self._writes.append((self.instance, kept, stored.astype(np.uint64)))

    def conflict(self) -> str | None:
        """Return in words which two instances use one element in an order that nothing decides, or None."""
        if self.atomics or not self._writes or self.instance < 1:
            return None
        written = np.concatenate([item[1] for item in self._writes])
        values = np.concatenate([item[2] for item in self._writes])
        writer = np.concatenate([np.full(item[1].size, item[0]) for item in self._writes])
        order = np.lexsort((writer, written))
        written, values, writer = written[order], values[order], writer[order]
        same = written[1:] == written[:-1]
        clash = same & (writer[1:] != writer[:-1]) & (values[1:] != values[:-1])
        if clash.any():
            at = int(np.argmax(clash))
            return f"instances {writer[at]} and {writer[at + 1]} store different values to one element"
        if not self._reads:
            return None
        read = np.concatenate([item[1] for item in self._reads])
        reader = np.concatenate([np.full(item[1].size, item[0]) for item in self._reads])
        first = np.searchsorted(written, read)
        last = np.searchsorted(written, read, side="right") - 1
        hit = last >= first
        read, reader, first, last = read[hit], reader[hit], first[hit], last[hit]
        foreign = (writer[first] != reader) | (writer[last] != reader)
        if foreign.any():
            at = int(np.argmax(foreign))
            other = writer[first[at]] if writer[first[at]] != reader[at] else writer[last[at]]
            return f"instance {reader[at]} reads an element that instance {other} writes in the same launch"
        return None


def _numpy_types(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Remember which NumPy type stands for a scalar type of the language; Triton builds the table at every call."""
    known: dict[str, Any] = {}

    def of(kind: Any) -> Any:
        scalar = kind.scalar
        if scalar.is_ptr():
            return original(kind)
        found = known.get(scalar.name)
        if found is None:
            found = known[scalar.name] = original(scalar)
        return found

    return of


def _remember_shapes(tl: Any) -> None:
    """Let equal block types be one object, and tensors of one type share the description of their shape.

    Triton makes both anew for every value, which is a third of the interpreter's time on small blocks.
    """
    known: dict[int, tuple[Any, Any, Any, Any]] = {}
    types_: dict[tuple[int, tuple[int, ...]], Any] = {}
    core = tl.core
    constexpr, block_type, tensor, base_init = core.constexpr, core.block_type, core.tensor, core.base_value.__init__
    make_type, make_tensor = block_type.__init__, tensor.__init__

    def __new__(cls: Any, element_ty: Any, shape: Any) -> Any:
        key = (id(element_ty), tuple([size.value if type(size) is constexpr else size for size in shape]))
        found = types_.get(key)
        if found is None:
            # It holds its element type, so that the number of that one is not given to another.
            found = types_[key] = object.__new__(cls)
        return found

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        if "name" not in self.__dict__:
            make_type(self, element_ty, shape)

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        found = known.get(id(type))
        if found is None:
            make_tensor(self, handle, type)
            known[id(type)] = (type, self.shape, self.numel, self.dtype)
            return
        base_init(self)
        self.handle, self.type = handle, type
        _, self.shape, self.numel, self.dtype = found

    block_type.__new__, block_type.__init__, tensor.__init__ = staticmethod(__new__), init_type, init_tensor


def _broadcast(module: Any) -> None:
    """Shorten what happens to the operands of every operation: equal types stay, a scalar fills a block.

    What Triton did with two blocks of one rank is done again with the next two of the same types.
    """
    semantic = type(module.interpreter_semantic)
    original = semantic.broadcast_impl_value
    handle, numpy_type = module.TensorHandle, module._get_np_dtype
    # The types stand in the values, so that their numbers are not given to others.
    blocks: dict[tuple[int, int], tuple[Any, ...]] = {}
    pairs: dict[tuple[int, int], tuple[Any, ...]] = {}

    def fill(self: Any, scalar: Any, block: Any) -> Any:
        element, shape = scalar.type.scalar, block.type
        found = blocks.get((id(element), id(shape)))
        if found is None:
            kind = shape.with_element_ty(element)
            found = blocks[id(element), id(shape)] = (kind, numpy_type(kind), element, shape)
        value = scalar.handle.data
        data = np.empty(block.handle.data.shape, dtype=found[1])
        data.fill(value.item() if value.size == 1 else value)
        return self.make_tensor(handle(data, found[0].scalar), found[0])

    def widen_to(self: Any, block: Any, kind: Any, shape: tuple[int, ...]) -> Any:
        return block if kind is None else self.make_tensor(self.builder.create_broadcast(block.handle, shape), kind)

    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        left, right = lhs.type, rhs.type
        if left is right:
            return lhs, rhs
        if left.is_block() != right.is_block():
            return (lhs, fill(self, rhs, lhs)) if left.is_block() else (fill(self, lhs, rhs), rhs)
        found = pairs.get((id(left), id(right)))
        if found is not None:
            return widen_to(self, lhs, found[0], found[2]), widen_to(self, rhs, found[1], found[2])
        one, other = cast(tuple[Any, Any], original(self, lhs, rhs))
        if left.is_block() and len(left.shape) == len(right.shape):
            wider = [None if made.type is kind else made.type for made, kind in ((one, left), (other, right))]
            pairs[id(left), id(right)] = (*wider, one.handle.data.shape, left, right)
        return one, other

    semantic.broadcast_impl_value = broadcast_impl_value
