"""What a model holds between its calls: every tensor that can be reached from it, and whether a call changed one.

Used inside sandboxed children only. A tensor that a launch changes is memory of earlier calls: with it a kernel can
count calls, or give a result that it has kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from orienteer.environments.kernel.tensors import to_bytes

#: How deep containers and helper objects are looked into, and how many objects are looked at.
_DEPTH = 12
_MOST = 20_000


class Snapshot:
    """The tensors of a model as they are before its first call.

    Args:
        model: the module; its parameters are compared elsewhere.
        moving: names of buffers that the reference changes too (running statistics); they are free.
    """

    def __init__(self, model: Any, moving: Collection[str] = ()) -> None:
        import torch

        free = {id(item) for _, item in torch.nn.Module.named_parameters(model)}
        free |= {id(item) for name, item in torch.nn.Module.named_buffers(model) if name in moving}
        self._held = [
            (path, tensor, to_bytes(tensor))
            for path, tensor in _tensors(model, "self", set())
            if id(tensor) not in free
        ]

    def changed(self) -> str:
        """Return the name of a tensor that has another value than before, or an empty text."""
        return next((path for path, tensor, before in self._held if to_bytes(tensor) != before), "")


def _tensors(value: Any, path: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    import torch

    if depth > _DEPTH or id(value) in seen or len(seen) > _MOST:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.device.type == "cpu":
            yield path, value
        return
    if isinstance(value, dict):
        items = [(f"{path}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = [(f"{path}[{number}]", item) for number, item in enumerate(value)]
    elif type(value).__module__ == "candidate" or isinstance(value, torch.nn.Module):
        items = []
        for name, item in vars(value).items():
            # A module keeps parameters, buffers and submodules in tables; people know them by their own names.
            inner = item.items() if name in ("_parameters", "_buffers", "_modules") else [(name, item)]
            items += [(f"{path}.{key}", part) for key, part in inner]
    else:
        return
    for name, item in items:
        yield from _tensors(item, name, seen, depth + 1)
