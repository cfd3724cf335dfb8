"""What a rejection means and what to do about it: the 21 cheats that a verifier must catch, and the plain failures.

Rows 1 to 21 are those of the design page of EvoKernel (after KernelBench, robust-kbench and the published failures of
kernel agents); row 0 holds what is no cheat. A code is the ``kind`` of a failed gate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from orienteer.evaluators.kernel.verdict import Gate, rejection_class

__all__ = ["OTHERS", "ROWS", "Rejection", "advice", "advised", "find"]


@dataclass(frozen=True)
class Rejection:
    """One row of the table."""

    row: int
    name: str
    #: Kinds of failed gates; the first one is the row's own, no other row has it.
    codes: tuple[str, ...]
    #: What a proposer can do, one sentence.
    advice: str
    #: Where it is no matter of a single candidate: ``contract`` for tasks.
    fixed_class: str = ""

    @property
    def rejection_class(self) -> str:
        """The class of the row's own code: one of ``verdict.CLASSES``."""
        return self.fixed_class or rejection_class(self.codes[0])


ROWS: tuple[Rejection, ...] = (
    Rejection(
        1,
        "the library computes",
        ("cheat:library-call", "cheat:foreign-function"),
        "move this computation into a kernel; the launching code may only allocate, view, copy and compute sizes",
    ),
    Rejection(
        2,
        "no kernel, or one whose result is not used",
        ("cheat:no-kernel", "cheat:unused-kernel"),
        "launch the kernel as kernel[grid](...) and return the tensor that it stores to",
    ),
    Rejection(
        3,
        "fallback",
        ("cheat:fallback",),
        "remove try/except from what forward reaches; raise an error for shapes that the kernel does not support",
    ),
    Rejection(
        4,
        "reach for the reference or the harness",
        ("cheat:reference", "cheat:reflection", "cheat:import", "cheat:header"),
        "use only torch, triton, math and typing, and no names of the task, frames, modules or private attributes",
    ),
    Rejection(
        5,
        "memory that nobody wrote is returned",
        ("unwritten-output",),
        "let grid and masks cover every element of the output, or allocate with torch.zeros before adding to it",
    ),
    Rejection(
        6,
        "results kept between calls",
        ("cheat:state",),
        "allocate outputs and scratch memory inside forward and keep nothing between calls",
    ),
    Rejection(
        7,
        "constant output",
        ("constant-output",),
        "compute from the inputs: check that the kernel loads them and that its stores are not masked off",
    ),
    Rejection(
        8,
        "inputs changed",
        ("cheat:mutated-input",),
        "store to a new tensor, for example torch.empty_like(x); inputs are read only",
    ),
    Rejection(
        9,
        "work on another stream",
        ("cheat:stream", "cheat:other-stream"),
        "launch on the current stream and use no devices, streams or events",
    ),
    Rejection(
        10,
        "work in the background",
        ("cheat:background", "cheat:threads"),
        "remove threads and processes; all work is done when forward returns",
    ),
    Rejection(
        11,
        "deferred results",
        ("cheat:deferred",),
        "return plain torch.Tensor objects that are complete; no subclasses, generators or coroutines",
    ),
    Rejection(
        12,
        "patching",
        ("cheat:patching", "cheat:patched", "cheat:clock"),
        "define every name once and assign to nothing of torch, triton, nn.Module or the language",
    ),
    Rejection(
        13,
        "later calls do not work",
        ("cheat:skipped-launch", "cheat:timed-work"),
        "launch the same kernels in every call with the same shapes",
    ),
    Rejection(
        14,
        "lower precision",
        ("precision",),
        "compute and accumulate in float32 (.to(tl.float32) before sums and products) and round once, when storing",
    ),
    Rejection(
        15,
        "work left out where tests may not look",
        ("special-values", "unjudged-kernel"),
        "treat every shape and value alike: NaN and infinities go where the reference has them "
        "(tl.maximum and tl.max drop NaN unless propagate_nan is given), one kernel serves all sizes",
    ),
    Rejection(
        16,
        "memory outside a tensor, or shared without an order",
        ("overrun", "race", "nondeterministic"),
        "mask loads and stores by the tensor's size, let each element belong to one program instance, or use atomics",
    ),
    Rejection(
        17,
        "parameters changed",
        ("cheat:changed-parameter",),
        "weights and buffers are read only and keep the names, shapes and values of Model",
    ),
    Rejection(
        18,
        "files, environment, network",
        ("cheat:files", "cheat:process"),
        "read and write nothing but tensors",
    ),
    Rejection(
        19,
        "degenerate task",
        ("degenerate-task",),
        "change the task so that its output depends on its inputs",
        "contract",
    ),
    Rejection(
        20,
        "impossible speed",
        ("impossible-speed",),
        "do all of the work in the timed call: this is faster than memory and arithmetic allow",
    ),
    Rejection(
        21,
        "text that is read in two ways, code made at run time",
        (
            "cheat:kernel-code",
            "cheat:dynamic-code",
            "cheat:preprocessor",
            "cheat:hidden-code",
            "cheat:function-pointer",
            "cheat:attribute",
            "cheat:assembly",
            "cheat:control",
        ),
        "write kernels as plain functions at module level in the kernel language only, and make no code at run time",
    ),
)

OTHERS: tuple[Rejection, ...] = (
    Rejection(0, "wrong result", ("mismatch",), "compare the formula, the indices and the masks with the reference"),
    Rejection(
        0,
        "NaN or infinity",
        ("nonfinite",),
        "look for divisions by zero, overflows and reads outside a tensor; where the reference gives NaN or infinity, "
        "give the same (comparisons, maxima and minima may drop NaN)",
    ),
    Rejection(0, "shape", ("shape",), "return tensors of the reference's shapes"),
    Rejection(0, "dtype", ("dtype",), "return tensors of the reference's dtypes"),
    Rejection(0, "other dtypes", ("dtype-support",), "load with the tensor's dtype and compute in float32"),
    Rejection(0, "contract", ("contract",), "give the file the form of a candidate; see docs/kernels.md"),
    Rejection(0, "no Python", ("syntax", "compile:load", "load"), "repair the file so that it can be imported"),
    Rejection(0, "time-out", ("timeout", "compile:timeout"), "use larger blocks, fewer instances and no endless loops"),
    Rejection(
        0,
        "resource",
        ("compile:ub-overflow", "compile:cc-overflow", "compile:cbuf-overflow", "compile:shared", "compile:registers"),
        "use smaller blocks or fewer stages",
    ),
    Rejection(0, "grid", ("compile:grid",), "launch fewer instances and loop over the work inside the kernel"),
    Rejection(0, "memory", ("oom", "compile:oom", "pids", "output-limit"), "allocate less"),
    Rejection(0, "crash", ("crash", "no-result"), "mask every load and store by the tensor's size"),
    Rejection(0, "error", ("runtime", "interpreter", "compile:launch"), "repair the error in the named line"),
    Rejection(0, "compiler", ("compile",), "use only what the compiler supports, as its message says"),
)

_BY_CODE = {code: item for item in reversed([*ROWS, *OTHERS]) for code in item.codes}


def find(kind: str) -> Rejection | None:
    """Return the row of a code, or of what stands before its colon; None for a code that is not in the table."""
    return _BY_CODE.get(kind) or _BY_CODE.get(kind.split(":", maxsplit=1)[0])


def advice(kind: str) -> str:
    """Return what to do about a failure, one sentence without a full stop; empty for an unknown code."""
    found = find(kind)
    return found.advice if found is not None else ""


def advised(gate: Gate) -> Gate:
    """Add what to do about a failure to its message: one line that a proposer can act on."""
    if gate.status != "failed" or not (text := advice(gate.kind)) or text in gate.detail:
        return gate
    return replace(gate, detail=f"{gate.detail}; to do: {text}")
