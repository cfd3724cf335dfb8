"""Task files that are wrong, each with the words that its rejection must hold."""

from __future__ import annotations

GOOD = """
import torch
import torch.nn as nn

n = 300


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0


def get_inputs():
    return [torch.randn(n)]


def get_init_inputs():
    return []
"""

#: A right kernel for the good task.
DOUBLE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        double[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
"""


def changed(*pairs: tuple[str, str]) -> str:
    source = GOOD
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return source


RETURN = "return x * 2.0"
INPUTS = "return [torch.randn(n)]"

#: name -> (words of the reason, source); the file can be read, its code is wrong.
BAD: dict[str, tuple[str, str]] = {
    "raises_at_import": (
        "raises ValueError: broken here at line 5",
        changed(("\nn = 300\n", "\nraise ValueError('broken here')\n")),
    ),
    "raises_in_inputs": ("get_inputs raises RuntimeError: no data", changed((INPUTS, "raise RuntimeError('no data')"))),
    "raises_in_model": (
        "Model(...) raises TypeError",
        changed(("    def forward", "    def __init__(self):\n        raise TypeError('never')\n\n    def forward")),
    ),
    "raises_in_init_inputs": ("KeyError", changed(("return []", "raise KeyError('nothing')"))),
    "raises_in_forward": ("raises NotImplementedError: later", changed((RETURN, "raise NotImplementedError('later')"))),
    "imports_what_is_missing": (
        "ModuleNotFoundError",
        changed(("import torch\n", "import torch\nimport not_installed_anywhere\n")),
    ),
    "returns_no_tensor": ("must return a tensor", changed((RETURN, "return 3.0"))),
    "returns_nothing": ("must return a tensor", changed((RETURN, "return None"))),
    "returns_a_dict_of_numbers": ("must return a tensor", changed((RETURN, "return {'a': 1}"))),
    "inputs_are_no_list": ("must return a list", changed((INPUTS, "return torch.randn(n)"))),
    "inputs_hold_no_tensor": (
        "no tensor",
        changed(
            (INPUTS, "return [1, 2]"), (RETURN, "return torch.zeros(n)"), ("forward(self, x)", "forward(self, x, y)")
        ),
    ),
    "inputs_hold_objects": (
        "is not supported",
        changed((INPUTS, "return [torch.randn(n), object()]"), ("forward(self, x)", "forward(self, x, y)")),
    ),
    "too_many_inputs": ("takes 2 positional arguments", changed((INPUTS, "return [torch.randn(n), torch.randn(n)]"))),
    "complex_numbers": ("complex64", changed((RETURN, "return x.to(torch.complex64)"))),
    "random": ("not deterministic", changed((RETURN, "return torch.nn.functional.dropout(x, 0.5, True)"))),
    "changes_its_inputs": ("changes its inputs", changed((RETURN, "return x.mul_(2.0)"))),
    "exits": ("without a result", changed((RETURN, "import os; os._exit(0)"))),
    "exits_politely": ("SystemExit", changed((RETURN, "raise SystemExit(0)"))),
    "crashes": ("crash", changed((RETURN, "import ctypes; ctypes.string_at(0)"))),
    "class_is_no_class": ("no Model", changed(("def get_inputs", "Model = None\n\n\ndef get_inputs"))),
}
