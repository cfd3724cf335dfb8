"""What a candidate holds between its calls: everything that can be reached from its model and its file.

Used inside sandboxed children only. A tensor that a launch changes, a list that grows or an iterator that moves on is
memory of earlier calls: with it a candidate can count calls, or give a result that it has kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from orienteer.environments.kernel.tensors import to_bytes

#: How deep containers and helper objects are looked into, and how many objects are looked at.
_DEPTH = 40
_MOST = 20_000
_SCALARS = (bool, int, float, complex, str, bytes, type(None))


class Snapshot:
    """What a model and its file hold before the model's first call.

    Args:
        model: the module; its parameters are compared elsewhere.
        moving: names of buffers that the reference changes too (running statistics); they are free.
    """

    def __init__(self, model: Any, moving: Collection[str] = ()) -> None:
        import torch

        free = {id(item) for _, item in torch.nn.Module.named_parameters(model)}
        free |= {id(item) for name, item in torch.nn.Module.named_buffers(model) if name in moving}
        self._model = model
        self._leaves = dict(_leaves(model))
        self._held = [
            (path, leaf, to_bytes(leaf))
            for path, leaf in self._leaves.items()
            if isinstance(leaf, torch.Tensor) and _plain(leaf) and id(leaf) not in free
        ]

    def changed(self) -> str:
        """Return the name of what has another value than before, or an empty text."""
        for path, tensor, before in self._held:
            if to_bytes(tensor) != before:
                return path
        now = dict(_leaves(self._model))
        for path, leaf in now.items():
            # An iterator cannot be looked at without moving it; nothing that computes a result needs one.
            if hasattr(type(leaf), "__next__"):
                return f"the iterator {path}"
            if path not in self._leaves or not _same(leaf, self._leaves[path]):
                return path
        return next((path for path in self._leaves if path not in now), "")


def _same(left: Any, right: Any) -> bool:
    return left is right or (type(left) is type(right) and type(left) in _SCALARS and repr(left) == repr(right))


def _plain(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.strided and tensor.device.type == "cpu"


def _leaves(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield everything that holds nothing further, by its path: numbers, texts, tensors, iterators, kernels."""
    from triton.runtime import interpreter

    seen: set[int] = set()
    yield from _walk(model, "self", seen)
    forward = getattr(type(model), "forward", None)
    for name, value in getattr(forward, "__globals__", {}).items():
        # Triton's interpreter adds its own names when it first runs a kernel.
        if not name.startswith("__") and vars(interpreter).get(name) is not value:
            yield from _walk(value, name, seen)


def _walk(value: Any, path: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    if type(value) in _SCALARS:
        yield path, value
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    items = _parts(value, path) if depth <= _DEPTH and len(seen) <= _MOST else None
    if items is None:
        yield path, value
        return
    for name, item in items:
        yield from _walk(item, name, seen, depth + 1)


def _parts(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """Return what an object holds, or None for a leaf."""
    import torch
    import triton
    import triton.language as tl

    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, dict):
        return [(f"{path}[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    if isinstance(value, torch.nn.Module):
        items = []
        for name, item in vars(value).items():
            # A module keeps parameters, buffers and submodules in tables; people know them by their own names.
            inner = item.items() if name in ("_parameters", "_buffers", "_modules") else [(name, item)]
            items += [(f"{path}.{key}", part) for key, part in inner]
        return items
    if isinstance(value, slice):
        return [(f"{path}.{name}", getattr(value, name)) for name in ("start", "stop", "step")]
    if getattr(value, "__module__", None) == "candidate" and isinstance(value, type):
        return [(f"{path}.{name}", item) for name, item in vars(value).items() if not name.startswith("__")]
    if type(value) is type(_parts):
        if value.__module__ != "candidate":
            return None
        cells = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        held = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *cells]
        items = [(f"{path}.{name}", item) for name, item in vars(value).items()]
        return items + [(f"a default of {path} [{number}]", item) for number, item in enumerate(held)]
    if isinstance(value, (staticmethod, classmethod)):
        return [(path, value.__func__)]
    if isinstance(value, BaseException):
        return [(f"{path}.args", value.args), *((f"{path}.{name}", item) for name, item in vars(value).items())]
    if type(value).__module__ == "candidate" or isinstance(value, (triton.Config, tl.constexpr)):
        return [(f"{path}.{name}", item) for name, item in vars(value).items()] if hasattr(value, "__dict__") else None
    return None


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (raises while the name has no value)
    except ValueError:
        return False
    return True
