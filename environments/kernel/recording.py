"""What is put under a candidate before its code runs: launches are recorded, allocations poisoned, library calls seen.

Used inside sandboxed children only. Triton's launch path is the one place through which every kernel of a candidate
goes; it is replaced here, in the interpreter as well as for compilation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: ATen operators that only allocate, view, copy or convert: what a wrapper round a kernel legitimately needs.
ALLOWED_ATEN = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "zeros",
        "zeros_like",
        "new_zeros",
        "zero_",
        "ones",
        "ones_like",
        "new_ones",
        "full",
        "full_like",
        "new_full",
        "fill_",
        "fill",
        "view",
        "_unsafe_view",
        "reshape",
        "_reshape_alias",
        "permute",
        "transpose",
        "t",
        "expand",
        "unsqueeze",
        "squeeze",
        "select",
        "slice",
        "as_strided",
        "detach",
        "alias",
        "clone",
        "contiguous",
        "copy_",
        "_to_copy",
        "to",
        "split",
        "chunk",
        "unbind",
        "narrow",
        "flatten",
        "lift_fresh",
        "is_pinned",
        "_local_scalar_dense",
        "item",
        "view_as",
        "unfold",
        "movedim",
        "is_same_size",
    }
)


#: Launch keywords that are options of the compiler, not arguments of the kernel.
OPTION_NAMES = frozenset(
    {
        "num_warps",
        "num_stages",
        "num_ctas",
        "maxnreg",
        "enable_fp_fusion",
        "launch_cooperative_grid",
        "launch_pdl",
        "waves_per_eu",
        "matrix_instr_nonkdim",
        "debug",
        "warmup",
    }
)


def bind(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Match a launch's arguments to the kernel's parameters; returns arguments and compiler options."""
    names = set(fn.signature.parameters)
    options = {key: value for key, value in kwargs.items() if key in OPTION_NAMES and key not in names}
    rest = {key: value for key, value in kwargs.items() if key not in options}
    bound = fn.signature.bind(*args, **rest)
    bound.apply_defaults()
    return dict(bound.arguments), options


def grid_of(grid: Any, arguments: dict[str, Any]) -> list[int]:
    """Evaluate a launch grid (a tuple or a function of the arguments) to three integers."""
    value = grid(arguments) if callable(grid) else grid
    sizes = [int(n) for n in (value if isinstance(value, (tuple, list)) else (value,))]
    return [*sizes, 1, 1, 1][:3]


def patch_tuners(note: Callable[[str], None]) -> None:
    """Let autotuned kernels run with their first configuration everywhere, and say so."""
    from triton.runtime.autotuner import Autotuner

    original = Autotuner.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if len(self.configs) > 1:
            note(f"autotune: {len(self.configs)} configurations, the first one was judged")
            # Nothing is timed where there is no device.
            self.configs = self.configs[:1]
        return original(self, *args, **kwargs)

    Autotuner.run = run
