"""Shorter ways through Triton's interpreter that give the same bits.

Used inside sandboxed children only. On small blocks nearly all of the interpreter's time is spent on the types of
operands, not on their elements. Each function here replaces one step by a shorter one for the operands that nearly
every operation has, and leaves all others to Triton.
"""

from __future__ import annotations

from typing import Any

#: Filled blocks that are kept, and the most elements of one.
_MOST_BLOCKS = 512
_LARGEST_BLOCK = 16_384
_INT32 = range(-(2**31), 2**31)
#: Normal numbers of float32: a literal outside them makes Triton compute in float64.
_LEAST, _GREATEST = 2**-126, (2 - 2**-23) * 2**127


def shorten_calls(module: Any, core: Any) -> None:
    """Spare the layers between an operator in a kernel and its meaning; before the language is patched."""
    unwrap, constexpr = core._unwrap_if_constexpr, core.constexpr
    plain = frozenset({core.tensor, core.dtype, int, float, bool, str, type(None)})
    semantic = module.interpreter_semantic
    layer = core.builtin(lambda: None).__code__

    def unwrap_if_constexpr(value: Any) -> Any:
        kind = type(value)
        if kind in plain:
            return value
        return value.value if kind is constexpr else unwrap(value)

    def patch_attr(target: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        # The layer only checks that there is a semantic, and here there always is.
        inner = member.__wrapped__ if getattr(member, "__code__", None) is layer else member

        def call(*args: Any, **named: Any) -> Any:
            named["_semantic"] = semantic
            return inner(*args, **named)

        scope.set_attr(target, name, call)

    core._unwrap_if_constexpr = unwrap_if_constexpr
    module._patch_attr = patch_attr


def shorten_operators(module: Any, core: Any) -> None:
    """Let the arithmetic of tensors go to the semantic at once; after the language is patched."""
    semantic, unwrap, tensor = module.interpreter_semantic, core._unwrap_if_constexpr, core.tensor

    def forward(meaning: Any) -> Any:
        return lambda self, other: meaning(self, unwrap(other), True)

    def backward(meaning: Any) -> Any:
        return lambda self, other: meaning(unwrap(other), self, True)

    for name in ("add", "sub", "mul"):
        meaning = getattr(semantic, name)
        setattr(tensor, f"__{name}__", forward(meaning))
        setattr(tensor, f"__r{name}__", backward(meaning))


def shorten_types(module: Any, core: Any) -> None:
    """Compare a type with itself at once, and make a value's handle without a second call."""
    equal, wide_enough = core.dtype.__eq__, module._validate_np_data_size
    handle = module.TensorHandle
    check = handle.__post_init__
    known: dict[tuple[int, int], Any] = {}

    def __eq__(self: Any, other: Any) -> Any:
        return self is other or equal(self, other)

    def __init__(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
        self.data, self.dtype, self.attr = data, dtype, {} if attr is None else attr
        key = (id(dtype), data.itemsize)
        if known.get(key) is dtype:
            return
        check(self)
        if type(dtype) is core.dtype:
            known[key] = dtype

    def validate(data: Any, dtype: Any) -> bool:
        return known.get((id(dtype), data.itemsize)) is dtype or bool(wide_enough(data, dtype))

    core.dtype.__eq__ = __eq__
    handle.__init__ = __init__
    module._validate_np_data_size = validate


def shorten_operands(module: Any, core: Any) -> None:
    """Find the common type of two operands at once where it is that of the first."""
    semantic, tensor = type(module.interpreter_semantic), core.tensor
    original, bitwise = semantic.binary_op_type_checking_impl, semantic.bitwise_op_type_checking_impl
    signed = [core.int1, core.int8, core.int16, core.int32, core.int64]
    whole = frozenset(id(kind) for kind in [*signed, core.uint8, core.uint16, core.uint32, core.uint64])
    kept = whole | {id(core.float32), id(core.float64)}
    # Quotients of these are computed in float32.
    short = frozenset({id(core.float16), id(core.bfloat16)})
    taking_int = frozenset({id(core.int32), id(core.int64), id(core.float32)})
    filled: dict[tuple[int, Any], tuple[Any, Any]] = {}

    def constant(self: Any, value: Any, like: Any) -> Any:
        key = (id(like.type), value)
        found = filled.get(key)
        if found is not None and found[0] is like.type:
            return found[1]
        _, made = self.broadcast_impl_value(like, self.scalar_constant(value, dtype=like.dtype))
        data = made.handle.data
        if data.size <= _LARGEST_BLOCK:
            if len(filled) >= _MOST_BLOCKS:
                filled.clear()
            data.flags.writeable = False
            filled[key] = (like.type, made)
        return made

    def literal(value: Any, kind: int) -> bool:
        """True for a number that does not change the type of the tensor beside it; never 0.0, -0.0 or NaN."""
        if type(value) is int:
            return kind in taking_int and value in _INT32
        return type(value) is float and kind == id(core.float32) and _LEAST <= abs(value) <= _GREATEST

    def binary_op_type_checking_impl(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        if type(lhs) is tensor:
            left = lhs.dtype
            kind = id(left)
            if type(rhs) is tensor:
                right = rhs.dtype
                if left is right:
                    if kind in kept or (kind in short and not div_or_mod):
                        return self.broadcast_impl_value(lhs, rhs)
                elif allow_lhs_ptr and id(right) in whole and left.is_ptr():
                    return self.broadcast_impl_value(lhs, rhs)
            elif arithmetic_check and literal(rhs, kind):
                return lhs, constant(self, rhs, lhs)
        elif arithmetic_check and type(rhs) is tensor and literal(lhs, id(rhs.dtype)):
            return constant(self, lhs, rhs), rhs
        return original(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    def bitwise_op_type_checking_impl(self: Any, lhs: Any, rhs: Any) -> Any:
        if type(lhs) is tensor and type(rhs) is tensor and lhs.dtype is rhs.dtype and id(lhs.dtype) in whole:
            return self.broadcast_impl_value(lhs, rhs)
        return bitwise(self, lhs, rhs)

    semantic.binary_op_type_checking_impl = binary_op_type_checking_impl
    semantic.bitwise_op_type_checking_impl = bitwise_op_type_checking_impl
