"""Memory of a C++ candidate's tensors: fenced buffers and the structs of the ABI. Used inside sandboxed children."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from orienteer.kernels.cpp.abi import ALIGNMENT, DTYPES, ITEM_SIZE, NOTHING

_PAGE = mmap.PAGESIZE
#: Stands round floating-point tensors: NaN in every width; and round tensors of integers: as an index it leads away.
_NAN_BYTE, _CANARY_BYTE = 0xFF, 0xA7
#: What outputs hold before a call: NaN, and for a second run something that is none.
POISON = {"nan": (0xFF, 0x5A), "number": (0x41, 0x33)}
_libc = ctypes.CDLL(None, use_errno=True)


class Tensor(ctypes.Structure):
    """``struct Tensor`` of ``orienteer.h``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class Fenced:
    """A tensor's memory between canaries and two pages that cannot be touched.

    The data begins at a multiple of 64 bytes and ends less than 64 bytes before the closed page, so an access that
    leaves the tensor by more than that ends the process; a write by less is seen in the canary, and a read gives NaN.
    """

    def __init__(self, nbytes: int, floating: bool) -> None:
        body = -(-max(1, nbytes) // ALIGNMENT) * ALIGNMENT
        middle = -(-(body + ALIGNMENT) // _PAGE) * _PAGE
        self._map = mmap.mmap(-1, middle + 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        whole: np.ndarray[Any, Any] = np.frombuffer(self._map, dtype=np.uint8)
        base = int(whole.ctypes.data)
        for place in (base, base + _PAGE + middle):
            if _libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(_PAGE), 0) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
        inner = whole[_PAGE : _PAGE + middle]
        start = middle - body
        self._canary = _NAN_BYTE if floating else _CANARY_BYTE
        inner[:] = self._canary
        self.bytes = inner[start : start + nbytes]
        self._margins = (inner[:start], inner[start + nbytes :])
        self.address = base + _PAGE + start

    def fill(self, data: bytes) -> None:
        """Set the tensor's bytes."""
        if data:
            self.bytes[:] = np.frombuffer(data, dtype=np.uint8)

    def intact(self) -> bool:
        """Return True while nothing was written beside the tensor."""
        return all(bool((part == self._canary).all()) for part in self._margins)


class Arguments:
    """An array of ``Tensor`` over buffers, kept alive together with sizes and strides."""

    def __init__(self, specs: Sequence[Mapping[str, Any]], addresses: Sequence[int]) -> None:
        self.array = (Tensor * max(1, len(specs)))()
        self._held: list[Any] = []
        for item, spec, address in zip(self.array, specs, addresses, strict=False):
            shape = [int(n) for n in spec["shape"]]
            strides = [1] * len(shape)
            for axis in range(len(shape) - 2, -1, -1):
                strides[axis] = strides[axis + 1] * max(1, shape[axis + 1])
            for name, numbers in (("sizes", shape), ("strides", strides)):
                held = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
                self._held.append(held)
                setattr(item, name, ctypes.addressof(held))
            item.data = address or None
            item.rank = len(shape)
            item.dtype = DTYPES.get(spec["dtype"], NOTHING)

    @property
    def address(self) -> int:
        """Address of the first ``Tensor``."""
        return ctypes.addressof(self.array)


def byte_count(spec: Mapping[str, Any]) -> int:
    """Return the size of a tensor in bytes."""
    count = ITEM_SIZE.get(spec["dtype"], 0)
    for size in spec["shape"]:
        count *= int(size)
    return count


def floating(dtype: str) -> bool:
    """Say whether a dtype is a floating-point one."""
    return "float" in dtype


def as_tensor(spec: Mapping[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    """Return an input's tensor description, and its bytes where it is a plain Python value.

    Numbers come as tensors of rank 0; what is neither tensor nor number has no data.
    """
    if "value" not in spec:
        return dict(spec), None
    value = spec["value"]
    for kind, dtype in ((bool, "bool"), (int, "int64"), (float, "float64")):
        if type(value) is kind:
            return {"shape": [], "dtype": dtype}, np.array(value, dtype=dtype).tobytes()
    return {"shape": [], "dtype": "none"}, b""


def load_forward(library: bytes, path: str = "candidate.so") -> Any:
    """Write a shared object into the working folder and return its ``forward``.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it has no ``forward``.
    """
    with open(path, "wb") as handle:  # noqa: PTH123 - inside the job's empty folder
        handle.write(library)
    forward = ctypes.CDLL(f"./{path}").forward
    forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    forward.restype = None
    return forward
