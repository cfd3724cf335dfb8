"""What a candidate's launching code does with PyTorch, seen from below: every ATen call, every fresh allocation.

Used inside sandboxed children only. Fresh memory is fenced and filled with NaN, so that a kernel that leaves elements
out, reads memory that nothing has written, or writes beside its output is seen.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from orienteer.environments.kernel.recording import ALLOWED_ATEN
from orienteer.environments.kernel.tensors import Guarded

#: Elements that launching code may read to the host in one call: a scale, a length; not a tensor.
MAX_HOST_READS = 16
_BLANK = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_FILLED = frozenset(
    {"zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full"}
    | {"clone", "_to_copy", "contiguous"}
)
_READS = frozenset({"_local_scalar_dense", "item"})


class Watch(TorchDispatchMode):
    """Sees every ATen call outside kernels.

    Args:
        fence: put fresh memory between margins and poison it; without real memory (fake tensors) there is nothing to
            fence.
    """

    def __init__(self, fence: bool = True) -> None:
        super().__init__()
        self.library_calls: set[str] = set()
        self._reads = 0
        self._fence = fence
        self._guards: list[Guarded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and note it."""
        name = func.name().split("::")[-1].split(".")[0]
        if name in _READS:
            self._reads += 1
            if self._reads > MAX_HOST_READS:
                self.library_calls.add(f"{name} (more than {MAX_HOST_READS} elements read to the host)")
        elif name not in ALLOWED_ATEN and not name.startswith("sym_") and func.namespace != "prim":
            self.library_calls.add(name)
        result = func(*args, **(kwargs or {}))
        if self._fence and name in _BLANK | _FILLED:
            return self._fenced(result, args, blank=name in _BLANK)
        return result

    def _fenced(self, result: Any, args: Any, *, blank: bool) -> Any:
        import torch

        dense = type(result) is torch.Tensor and result.layout is torch.strided and result.device.type == "cpu"
        if not dense or any(result is item for item in args) or not _own_memory(result):
            return result
        guard = Guarded((result.numel(),), result.dtype)
        flat = guard.tensor
        if not blank:
            flat.copy_(result.as_strided((result.numel(),), (1,)))
        elif result.dtype.is_floating_point or result.dtype.is_complex:
            # NaN with bits that no arithmetic gives: what nobody wrote can be told from a wrong result.
            flat.view(torch.uint8).fill_(0xFF)
        elif flat.numel():
            flat.view(torch.uint8).fill_(0x5A if result.dtype != torch.bool else 1)
        self._guards.append(guard)
        return flat.as_strided(result.shape, result.stride(), flat.storage_offset())

    def intact(self) -> bool:
        """Return True while nothing was written beside the memory that the candidate allocated."""
        return all(guard.intact() for guard in self._guards)


def _own_memory(tensor: Any) -> bool:
    """True when a tensor fills its storage without gaps or overlaps."""
    order = sorted(zip(tensor.stride(), tensor.shape, strict=True), key=lambda pair: pair[0])
    expected = 1
    for stride, size in order:
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())


def refuse_host_arguments(fn: Any, arguments: dict[str, Any]) -> None:
    """Check what a launch hands to a kernel: tensors, numbers, texts, types, kernels; nothing that is Python code.

    In the interpreter a kernel is Python, and a constant reaches it as it is: a function would be called, a tensor
    computed with, where nothing watches.

    Raises:
        TypeError: an argument is none of these.
    """
    constants = {name for name, kind in fn.__annotations__.items() if "constexpr" in str(kind)}
    for name, value in arguments.items():
        if not _passable(value, constant=name in constants):
            raise TypeError(
                f"the kernel argument {name} is a {type(value).__name__}: tensors, numbers and kernels only"
            )


def _passable(value: Any, *, constant: bool) -> bool:
    import torch
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction
    from triton.tools.tensor_descriptor import TensorDescriptor

    if isinstance(value, tl.constexpr):
        return _passable(value.value, constant=True)
    if type(value) in (tuple, list):
        return all(_passable(item, constant=constant) for item in value)
    if value is None or type(value) in (bool, int, float, str, InterpretedFunction, JITFunction):
        return True
    if isinstance(value, (torch.dtype, tl.dtype, torch.SymInt, torch.SymFloat)):
        return True
    tensors = (torch.Tensor, torch.nn.Parameter)
    fake = getattr(value, "fake_mode", None) is not None and isinstance(value, torch.Tensor)
    return not constant and (type(value) in tensors or fake or type(value) is TensorDescriptor)


def _load_what_torch_loads_late() -> None:
    """Dispatch once: torch then imports its compiler, a second that every job would pay for itself."""
    import torch

    with Watch():
        torch.empty(1)


_load_what_torch_loads_late()
