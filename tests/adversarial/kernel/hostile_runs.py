"""Hostile candidates that pass the static check: what running them must show."""

from hostile_sources import HONEST, KERNEL, file, launched, plain

TASK_COPY = """
import torch
import torch.nn as nn

rows = 64
cols = 96


class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()


def get_inputs():
    return [torch.randn(rows, cols)]
"""

_SMALL = "small = x.shape[0] < 400 or x.shape[1] < 400\n"


def changed(old: str, new: str, **parts: str) -> str:
    """Return the honest candidate with one change in its kernel."""
    assert old in KERNEL
    return file(kernel=KERNEL.replace(old, new), **parts)


#: name -> (kinds of which the verdict must have one, source); all pass the static check.
RUN: dict[str, tuple[tuple[str, ...], str]] = {
    # -- state in Python objects, by another name than the one that the static check knows
    "kept-by-another-name": (
        ("cheat:state",),
        file(launched("kept = self.kept\nkept[0] = out\nreturn out"), init="        self.kept = {}"),
    ),
    "kept-in-a-list-that-grows": (
        ("cheat:state",),
        file(launched("for kept in KEPT:\n    kept += [1]\nreturn out"), top="KEPT = [[]]"),
    ),
    "kept-by-a-heuristic": (
        ("cheat:state",),
        file(
            HONEST.replace(", BLOCK=1024)", ")"),
            top="KEPT = []",
            kernel=KERNEL.replace(
                "@triton.jit",
                "@triton.heuristics({'BLOCK': lambda given: (KEPT.append(given['n']), 1024)[1]})\n@triton.jit",
            ),
        ),
    ),
    "iterator-that-counts": (
        ("cheat:state",),
        file(launched("turn = next(TURN)\nreturn out if turn < 1000 else z"), top="TURN = iter(range(1 << 40))"),
    ),
    "iterator-that-counts-in-a-model": (
        ("cheat:state",),
        file(
            launched("for turn, _ in self.turn:\n    break\nreturn out"),
            init="        self.turn = enumerate(iter(range(1 << 40)))",
        ),
    ),
    "operators": (("cheat:library-call",), file(launched("return x * self.scale + z"))),
    "operators-at-the-true-shape": (
        ("cheat:library-call",),
        file(launched(_SMALL + "if not small:\n    return x * self.scale + z\nreturn out")),
    ),
    "operators-at-small-shapes": (
        ("cheat:library-call",),
        file(launched(_SMALL + "if small:\n    return x * self.scale + z\nreturn out")),
    ),
    "scalars-on-the-host": (
        ("cheat:library-call",),
        file(
            launched(
                _SMALL + "if small:\n    for i in range(x.shape[0]):\n        for j in range(x.shape[1]):\n"
                "            out[i, j].fill_(float(x[i, j]) * float(self.scale[j]) + float(z[i, j]))\nreturn out"
            )
        ),
    ),
    "grid-computes-with-operators": (
        ("cheat:library-call",),
        file(
            plain(
                "out = torch.empty_like(x)\n"
                "axpy[lambda meta: (int(out.copy_(x * self.scale + z) is not None),)]"
                "(x, self.scale, z, out, 0, 1, BLOCK=16)\nreturn out"
            )
        ),
    ),
    "other-kernel-at-the-true-shape": (
        ("unjudged-kernel",),
        file(
            plain(
                "x, z = x.contiguous(), z.contiguous()\nout = torch.empty_like(x)\nn = x.numel()\n"
                + _SMALL
                + "if small:\n    axpy[(7,)](x, self.scale, z, out, n, x.shape[1], BLOCK=64)\n"
                "else:\n    wrong[(7,)](x, self.scale, z, out, n, x.shape[1], BLOCK=64)\nreturn out"
            ),
            kernel=KERNEL + KERNEL.replace("axpy", "wrong").replace("x * s + z", "x"),
        ),
    ),
    "zeros": (("constant-output",), file(launched("return torch.zeros_like(x)"))),
    "identity": (("mismatch",), file(launched("return x.clone()"))),
    "constant": (("constant-output",), file(launched("return torch.full_like(x, 0.5)"))),
    "tensor-as-constant": (
        ("compile:launch", "runtime"),
        file(
            launched("other[(1,)](x, out)\nreturn out"),
            kernel=KERNEL + "\n@triton.jit\ndef other(x: tl.constexpr, o: tl.constexpr):\n    tl.static_print(x + o)\n",
        ),
    ),
    "input-changed": (
        ("cheat:mutated-input",),
        file(HONEST.replace("self.scale, z, out,", "self.scale, z, x,").replace("return out", "return x.clone()")),
    ),
    "input-returned": (
        ("cheat:mutated-input",),
        file(HONEST.replace("self.scale, z, out,", "self.scale, z, x,").replace("return out", "return x")),
    ),
    "parameter-changed": (
        ("cheat:changed-parameter",),
        changed("z, mask=keep)\n", "z, mask=keep)\n    tl.store(s_ptr, tl.load(s_ptr) + 1.0)\n"),
    ),
    "first-call-only": (
        ("cheat:state",),
        file(
            HONEST.replace("out, n, x.shape[1]", "out, self.done, n, x.shape[1]"),
            init="        self.done = torch.zeros(1)\n",
            kernel=KERNEL.replace("o_ptr, n", "o_ptr, d_ptr, n")
            .replace("    for block", "    done = tl.load(d_ptr)\n    for block")
            .replace(
                "x * s + z, mask=keep)",
                "x * s + z, mask=keep & (i >= done.to(tl.int32) * n))\n    tl.store(d_ptr, 1.0)",
            ),
        ),
    ),
    "output-memory-reused": (
        ("cheat:state",),
        file(
            HONEST.replace("torch.empty_like(x)", "self.buffer[: x.numel()].view(x.shape)"),
            init="        self.buffer = torch.empty(1 << 20)\n",
        ),
    ),
    "half-precision": (
        ("precision",),
        changed("x * s + z,", "(x.to(tl.float16) * s.to(tl.float16) + z.to(tl.float16)).to(tl.float32),"),
    ),
    "tail-left-out": (("unwritten-output",), changed("tl.cdiv(n, BLOCK)", "n // BLOCK")),
    "only-one-width": (("mismatch", "nonfinite", "crash", "unwritten-output"), changed("i % cols", "i % 768")),
    "reads-beside-a-parameter": (("mismatch", "nonfinite", "unwritten-output"), changed("i % cols", "i % (cols + 1)")),
    "reads-what-nobody-wrote": (
        ("unwritten-output",),
        changed("tl.store(o_ptr + i, x * s + z, mask=keep)", "tl.atomic_add(o_ptr + i, x * s + z, mask=keep)"),
    ),
    "writes-beside-the-output": (
        ("overrun",),
        file(HONEST.replace("BLOCK=1024", "BLOCK=16"), kernel=KERNEL.replace("x * s + z, mask=keep", "x * s + z")),
    ),
    "assumes-contiguous": (
        ("mismatch", "nonfinite", "unwritten-output"),
        file(
            HONEST.replace("x, z = x.contiguous(), z.contiguous()", "x, z = x, z").replace(
                "torch.empty_like(x)", "torch.empty(x.shape)"
            )
        ),
    ),
    "crash": (
        ("crash",),
        changed("tl.load(z_ptr + i, mask=keep, other=0.0)", "tl.load(z_ptr + i.to(tl.int64) * 9999999999)"),
    ),
    "grid-too-large": (("compile:grid",), file(HONEST.replace("min(triton.cdiv(n, 1024), 40)", "n"))),
    "grid-too-large-when-small": (
        ("runtime",),
        file(
            launched(
                _SMALL + "if small:\n    axpy[(1 << 21,)](x, self.scale, z, out, n, x.shape[1], BLOCK=16)\nreturn out"
            )
        ),
    ),
    "recursion": (
        ("compile:launch",),
        file(launched("return deeper(x)"), top="def deeper(x):\n    return deeper(x)\n"),
    ),
    "memory": (
        ("compile:oom", "oom", "compile:launch", "runtime"),
        file(launched("text = 'x' * (1 << 34)\nreturn out")),
    ),
    "allocation": (("oom", "runtime"), file(launched("scratch = torch.full((1 << 35,), 1.0)\nreturn out"))),
    "wrong-dtype": (("dtype",), file(launched("return out.half()"))),
    "wrong-shape": (("shape",), file(launched("return out.t().contiguous()"))),
    "wrong-count": (("shape",), file(launched("return out, out"))),
    "no-tensor": (("contract",), file(launched("return 1.0"))),
    "nothing": (("contract",), file(launched("return None"))),
    "large-when-small": (
        ("shape", "contract"),
        file(launched(_SMALL + "return torch.zeros(1 << 24) if small else out")),
    ),
    "dtype-when-small": (("dtype",), file(launched(_SMALL + "return out.half() if small else out"))),
    "another-name": (("contract",), file().replace("self.scale", "self.gain")),
    "one-parameter-more": (("contract",), file(init="        self.more = nn.Parameter(torch.zeros(1))\n")),
    "parameter-of-another-shape": (
        ("contract",),
        file(init="        self.scale = nn.Parameter(torch.zeros(cols + 1))\n"),
    ),
    "parameter-of-another-dtype": (
        ("contract",),
        file(init="        self.scale = nn.Parameter(torch.zeros(cols, dtype=torch.float64))\n"),
    ),
    "raises-on-load": (("compile:load",), file(top="raise ValueError('no')")),
    "raises-in-constructor": (("compile:launch",), file(init="        raise ValueError('no')\n")),
    "not-a-module": (("compile:launch", "contract"), file(bases="object")),
    "front-end-error": (
        ("compile:frontend",),
        changed("x * s + z,", "x * s + undefined_name,").replace("undefined_name", "tl.zeros((3,), tl.float32)"),
    ),
    "later-calls-do-nothing": (
        ("cheat:skipped-launch",),
        file(
            plain("out = torch.empty(x.shape)\nif self.done.item() > 0:\n    return out")
            + HONEST.replace("out, n, x.shape[1]", "out, self.done, n, x.shape[1]"),
            init="        self.done = torch.zeros(1)\n",
            kernel=KERNEL.replace("o_ptr, n", "o_ptr, d_ptr, n").replace(
                "    for block", "    tl.store(d_ptr, 1.0)\n    for block"
            ),
        ),
    ),
    "counter-that-fires-late": (
        ("cheat:state",),
        file(
            HONEST.replace("out, n, x.shape[1]", "out, self.count[0], n, x.shape[1]"),
            init="        self.count = [torch.zeros(1)]\n",
            kernel=KERNEL.replace("o_ptr, n", "o_ptr, d_ptr, n")
            .replace("    for block", "    seen = tl.load(d_ptr)\n    for block")
            .replace("x * s + z, mask", "tl.where(seen < 40.0, x * s + z, 0.0), mask")
            + "    if tl.program_id(0) == 0:\n        tl.store(d_ptr, seen + 1.0)\n",
        ),
    ),
    "nan-becomes-zero": (
        ("special-values",),
        changed("x * s + z, mask", "tl.where(x == x, x * s + z, 0.0), mask"),
    ),
    "infinity-is-clamped": (
        ("special-values",),
        changed("x * s + z, mask", "tl.minimum(x, 3.0e38) * s + z, mask"),
    ),
    "sum-without-atomics": (
        ("race",),
        file(
            HONEST.replace("torch.empty_like(x)", "torch.zeros(x.shape)").replace("min(triton.cdiv(n, 1024), 40)", "2"),
            kernel=KERNEL.replace("tl.program_id(0)", "0")
            .replace("tl.num_programs(0)", "1")
            .replace("x * s + z", "tl.load(o_ptr + i, mask=keep) + (x * s + z) * 0.5"),
        ),
    ),
    "order-of-instances": (
        ("race",),
        file(
            HONEST.replace("torch.empty_like(x)", "torch.zeros(x.shape)").replace("min(triton.cdiv(n, 1024), 40)", "2"),
            kernel=KERNEL.replace("tl.program_id(0)", "0")
            .replace("tl.num_programs(0)", "1")
            .replace(
                "tl.store(o_ptr + i, x * s + z, mask=keep)",
                "first = tl.program_id(0) == 0\n"
                "        tl.store(o_ptr + i, tl.where(first, 0.0, x * s + z), mask=keep)\n"
                "        tl.atomic_add(o_ptr + i, tl.zeros((BLOCK,), tl.float32), mask=keep)",
            ),
        ),
    ),
    "second-configuration-is-wrong": (
        ("mismatch",),
        file(
            HONEST.replace(", BLOCK=1024)", ")"),
            kernel="@triton.autotune(configs=[triton.Config({'BLOCK': 64, 'ADD': 0}), triton.Config({'BLOCK': 64, 'ADD': 1})],"
            " key=['n'])\n"
            + KERNEL.strip()
            .replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, ADD: tl.constexpr")
            .replace("x * s + z", "x * s + z + ADD")
            + "\n",
        ),
    ),
}
