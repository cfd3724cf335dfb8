"""Tensors on the wire between the caller and a sandboxed child: a plain description and raw bytes, never pickle.

Runs inside workers (torch) as well as in the caller (NumPy only); torch is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch

#: Elements of canary on each side of a guarded buffer.
GUARD = 64
#: What stands round a tensor of integers: as an index it leads far away.
_CANARY_BYTE = 0xA7
#: What stands round a floating-point tensor: NaNs with a payload that no arithmetic gives. A value read from
#: beside a tensor shows in every result that it enters.
_NAN_BYTE = 0xFF


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Return shape, strides and dtype of a tensor as plain data."""
    return {
        "shape": [int(n) for n in tensor.shape],
        "stride": [int(n) for n in tensor.stride()],
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }


def to_bytes(tensor: torch.Tensor) -> bytes:
    """Return the elements of a tensor in row-major order."""
    import torch

    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    if flat.numel() == 0:
        return b""
    return flat.view(torch.uint8).numpy().tobytes()


def from_bytes(spec: Mapping[str, Any], data: bytes) -> torch.Tensor:
    """Build a contiguous tensor from its description and bytes."""
    import torch

    dtype = getattr(torch, spec["dtype"])
    shape = tuple(spec["shape"])
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


class Guarded:
    """A tensor inside a larger buffer whose margins show whether something wrote beside it."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, strided: bool = False) -> None:
        """Allocate; ``strided`` leaves a gap after every element of the last dimension (a non-contiguous tensor)."""
        import torch

        count = 1
        for size in shape:
            count *= int(size)
        item = torch.empty(0, dtype=dtype).element_size()
        self._step = 2 if strided and count > 1 and len(shape) > 0 else 1
        body = count * self._step
        self._canary = _NAN_BYTE if dtype.is_floating_point or dtype.is_complex else _CANARY_BYTE
        self._raw = torch.full(((2 * GUARD + body) * item,), self._canary, dtype=torch.uint8)
        typed = self._raw.view(dtype)
        inner = typed[GUARD : GUARD + body]
        if self._step == 2:
            wide = inner.reshape(*shape[:-1], int(shape[-1]) * 2)
            self.tensor = wide[..., ::2]
            self._gaps = wide[..., 1::2]
        else:
            self.tensor = inner.reshape(tuple(shape))
            self._gaps = None
        self._margins = (typed[:GUARD], typed[GUARD + body :])

    def intact(self) -> bool:
        """Return True while nothing has written outside the tensor."""
        import torch

        parts = [*self._margins, *([self._gaps] if self._gaps is not None else [])]
        # Copying a bool would turn every byte into 0 or 1, so single bytes are looked at where they are.
        seen = [part if part.element_size() == 1 else part.contiguous() for part in parts if part.numel()]
        return all(bool((part.view(torch.uint8) == self._canary).all()) for part in seen)


def array(spec: Mapping[str, Any], data: bytes) -> np.ndarray[Any, Any]:
    """Build a NumPy array from a description and bytes; bfloat16 is widened to float32 without loss.

    Raises:
        ValueError: the bytes do not fit the description.
    """
    import numpy as np

    shape = tuple(int(n) for n in spec["shape"])
    if spec["dtype"] == "bfloat16":
        raw = np.frombuffer(data, dtype=np.uint16).astype(np.uint32) << 16
        return raw.view(np.float32).reshape(shape)
    return np.frombuffer(data, dtype=np.dtype(spec["dtype"])).reshape(shape)
