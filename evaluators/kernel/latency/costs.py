"""What the vendor's library functions cost: the calls of which a HIVM module is made, by name.

The names are those of the compiler's own library (``meta_op.aiv`` and ``meta_op.aic``). A name that is not here has no
cost, and a kernel that calls it gets no latency.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from orienteer.evaluators.kernel.latency.chips import cube_share
from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled

#: Passes over the data at the vector unit's full width, and instructions of which each waits for the one before. The
#: cost model in pypto 0.2.0 charges 1.7 to 2.5 cycles for 256 bytes of addition, product, division, exponential,
#: logarithm and root in float32, which is one pass of 2 cycles; what it does not model (reductions, broadcasts,
#: transposes, gathers) is assumed.
_VECTOR: tuple[tuple[str, float, int], ...] = (
    (r"v(add|sub|mul|max|min|abs|relu|not|and|or|xor)", 1, 0),
    (r"v(adds|muls|maxs|mins|subs|shls|shrs|sub|shl|shr)_(vs|sv)", 1, 0),
    (r"vdiv(_vs|_sv)?", 1, 0),
    (r"v(exp|ln|sqrt|rsqrt|rec)", 1, 0),
    (r"vcmps?_(eq|ne|lt|le|gt|ge)", 1, 0),
    (r"vsel_(vv|vs|sv|ss)", 2, 1),
    (r"vcast_to", 1, 0),
    (r"copy_ubuf_to_ubuf", 1, 0),
    (r"broadcast_scalar_to", 1, 0),
    (r"broadcast", 1, 0),
    (r"broadcast_(first|middle|last)_axis_(align|unalign|unknown_align)", 1, 1),
    (r"arange", 1, 2),
    (r"(enablevc_)?reduce_(sum|max|min|prod|xori|ori|andi)_r", 1.25, 6),
    (r"(enablevc_)?reduce_(sum|max|min|prod|xori|ori|andi)_(ra|ra0a1)", 1, 4),
    (r"(enablevc_)?reduce_(sum|max|min|prod|xori|ori|andi)_ar", 2, 4),
    (r"reduce_(max|min)_with_index(_left|_right)?_(r|ra|ar)", 4, 8),
    (r"(cumsum|cumprod)_ra", 2, 0),
    (r"interleave", 2, 1),
    (r"deinterleave_channel_\d_from_(\d|n)_channels", 2, 1),
    (r"transpose_with_last_axis", 4, 2),
    (r"transpose_without_last_axis", 1, 0),
    (r"gather", 8, 1),
)
_RULES = [(re.compile(pattern), passes, chain) for pattern, passes, chain in _VECTOR]
_TYPE = re.compile(r"_(float8_e\dm\d(fn)?_t|float|half|bfloat16_t|u?int(4|8|16|32|64)_t|bool)(?=_|$)")
_RANK = re.compile(r"_\dd(?=_|$)")
_EXTRA = re.compile(r"_(with_mode|with_overflow|with_temp|last_axis|left|right)$")

#: Runs a call: the core, values of the arguments, their types as printed.
Cost = Callable[[Core, Sequence[Any], Sequence[str]], None]


def plain_name(name: str) -> str:
    """Return a library function's name without element types and ranks."""
    return _RANK.sub("", _TYPE.sub("", name))


def cost_of(name: str) -> Cost:
    """Return what runs a call of a library function.

    Raises:
        Unmodelled: the function is not known.
    """
    plain = plain_name(name)
    if plain.startswith(("load_gm_to_ubuf", "load_gm_to_cbuf")):
        return _load
    if plain == "nd2nz":
        return _load_tile
    if plain.startswith("store_ubuf_to_gm"):
        return _store
    if plain.startswith("fixpipe_"):
        return _fixpipe
    if plain.startswith("mma_tile"):
        return _hf32_products if "hf32" in plain else _products
    if plain.startswith("copy_ubuf_to_cbuf"):
        return _into_l1
    if plain.startswith("set_l1"):
        return _fill_l1
    for pattern, passes, chain in _RULES:
        if pattern.fullmatch(_EXTRA.sub("", plain)) or pattern.fullmatch(plain):
            return _vector(passes, chain)
    raise Unmodelled(f"the library function {name}")


def _refs(arguments: Sequence[Any]) -> list[Ref]:
    return [item for item in arguments if isinstance(item, Ref)]


def _vector(passes: float, chain: int) -> Cost:
    def run(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
        core.vector(_refs(arguments), passes, chain)

    return run


def _load(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    memory, local = _refs(arguments)[:2]
    core.load(memory, local)


def _load_tile(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    # Rows become columns of fractals on the way; rows that are short are short bursts.
    core.load(_refs(arguments)[0], None)


def _store(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    local, memory = _refs(arguments)[:2]
    core.store(local, memory)


def _fixpipe(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    target = next((ref for ref in _refs(arguments)[1:] if ref.space == "gm"), None)
    if target is None:
        source = _refs(arguments)[0]
        core.issue("FIX", source.numel() * source.bits / 8 / core.rates.l0c_out, 60)
        return
    core.store(None, target, "FIX")


def _into_l1(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    # From a vector core straight to its cube core (the 950 only); the platform file's rate is 128 bytes a cycle.
    source = _refs(arguments)[0]
    core.issue("MTE3", source.numel() * source.bits / 8 / core.rates.ub_to_l1, 60)


def _fill_l1(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    ref = _refs(arguments)[0]
    core.issue("MTE2", ref.numel() * ref.bits / 8 / core.rates.l1_to_l0b, 60)


def _hf32_products(core: Core, arguments: Sequence[Any], types: Sequence[str]) -> None:
    # Float32 rounded inside to 19 bits: twice the rate.
    _products(core, arguments, types, 2.0)


def _products(core: Core, arguments: Sequence[Any], types: Sequence[str], faster: float = 1.0) -> None:
    sizes = [value for value, kind in zip(arguments, types, strict=True) if kind == "index"]
    events = [value for value, kind in zip(arguments, types, strict=True) if kind == "i64"]
    tiles = _refs(arguments)
    if len(sizes) != 3 or len(events) < 4 or not tiles:
        raise Unmodelled("a product of tiles with other arguments than expected")
    if any(value is None for value in [*sizes, *events[:4]]):
        raise Unmodelled("the size of a product depends on data")
    # The function's own order: rows, depth, columns; then the events it waits for and those it sets, -1 for none.
    m, k, n = sizes
    waits = [event for event in events[:2] if event >= 0]
    sets = [event for event in events[2:4] if event >= 0]
    core.products((m, n, k), tiles[0].bits, faster * cube_share(tiles[0].bits), waits, sets)
