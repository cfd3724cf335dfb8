"""Plain data: what survives JSON unchanged. Canonical text for hashing, strict text for keeping."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

_INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def plain(value: Any, where: str = "value", *, lenient: bool = False) -> Any:
    """Return a copy made of dict, list, str, int, float, bool and None only.

    Tuples become lists, numpy scalars become numbers. With ``lenient`` numbers that JSON has no word for become the
    text ``"NaN"``, ``"Infinity"``, ``"-Infinity"``, keys become text and unknown objects their ``str()``.

    Raises:
        ValueError: something is not plain data (sets have no order, so they are refused too), naming the place.
    """
    if value is None or isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        if lenient:
            return _INFINITE.get(value, "NaN")
        raise ValueError(f"{where} is {value}, which is not a finite number")
    if isinstance(value, Mapping):
        result = {}
        for key, item in value.items():
            if not isinstance(key, str) and not lenient:
                raise ValueError(f"{where} has the key {key!r}; keys of plain data are text")
            result[str(key)] = plain(item, f"{where}.{key}", lenient=lenient)
        return result
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]", lenient=lenient) for index, item in enumerate(value)]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return plain(value.item(), where, lenient=lenient)
    if lenient:
        return [plain(i, where, lenient=True) for i in sorted(map(str, value))] if _is_set(value) else str(value)
    raise ValueError(f"{where} is a {type(value).__name__}, which is not plain data")


def _is_set(value: Any) -> bool:
    return isinstance(value, set | frozenset)


def dumps(value: Any) -> str:
    """Return compact JSON (ASCII, so that any database can hold it) in the given key order."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def canonical(value: Any) -> str:
    """Return JSON that is equal for equal plain data: sorted keys, no spaces."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of the canonical form."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def clean(text: str, limit: int = 20_000) -> str:
    """Return text that every database can hold: no NUL, no lone surrogates, at most ``limit`` characters."""
    text = text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else text[:limit] + " [cut]"
