"""Honest candidates that look suspicious at first sight and must pass the static check."""

from __future__ import annotations

from hostile_sources import HONEST, KERNEL, LAUNCH, file, launched, plain

_MATMUL = """
@triton.jit
def mm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        b = tl.load(b_ptr + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        acc = acc + 0.0 * tl.sum(tl.where(acc > 0, acc, 0.0), axis=1)[:, None].to(tl.float32)
    out = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], out, mask=(rm[:, None] < M) & (rn[None, :] < N))
"""

HONEST_SOURCES: dict[str, str] = {
    "plain": file(),
    "fp32-accumulate": file(kernel=_MATMUL + KERNEL),
    "helper-jit": file(
        kernel="@triton.jit\ndef act(v):\n    return tl.where(v > 0, v, tl.exp(v) - 1)\n\n"
        + KERNEL.replace("x * s + z", "act(x * s + z)")
    ),
    "jit-as-constexpr": file(
        launched("axpy[(1,)](x, self.scale, z, out, 0, 1, BLOCK=16, ACT=act)\nreturn out"),
        kernel="@triton.jit\ndef act(v):\n    return v\n\n"
        + KERNEL.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, ACT: tl.constexpr").replace(
            "x * s + z", "ACT(x * s + z)"
        ),
    ),
    "autotune": file(
        kernel="@triton.autotune(configs=[triton.Config({'BLOCK': b}, num_warps=4) for b in (64, 128)], key=['n'])\n"
        + KERNEL.strip()
    ),
    "heuristics": file(
        kernel="@triton.heuristics({'BLOCK': lambda args: min(1024, triton.next_power_of_2(args['n']))})\n"
        + KERNEL.strip()
    ),
    "kernel-in-a-loop": file(
        plain(
            "out = torch.empty_like(x)\nfor row in range(x.shape[0]):\n    axpy[(1,)](x[row], self.scale, z[row], out[row], x.shape[1], x.shape[1], BLOCK=16)\nreturn out"
        )
    ),
    "two-kernels-with-an-intermediate": file(
        plain(
            "mid = torch.empty(x.shape, dtype=torch.float32, device=x.device)\n"
            "out = torch.empty_like(x)\n"
            "axpy[(1,)](x, self.scale, z, mid, x.numel(), x.shape[1], BLOCK=16)\n"
            "second[(1,)](mid, out, x.numel(), BLOCK=16)\nreturn out"
        ),
        kernel=KERNEL
        + "\n@triton.jit\ndef second(a, b, n, BLOCK: tl.constexpr):\n    i = tl.arange(0, BLOCK)\n    tl.store(b + i, tl.load(a + i, mask=i < n), mask=i < n)\n",
    ),
    "views-and-reshape": file(
        launched(
            "flat = x.reshape(-1, x.shape[-1]).view(-1).t().unsqueeze(0).permute(1, 0)\nreturn out.view(x.shape).expand_as(x).transpose(0, 1).transpose(0, 1)"
        )
    ),
    "sizes": file(
        launched(
            "n = max(x.shape[0], min(x.size(1), 8), *x.shape)\ngrid = (math.ceil(n / 8), sum(x.shape), abs(-n), int(math.log2(n + 1)), round(1.5))\nreturn out"
        )
    ),
    "sizes-named-like-methods": file(
        launched("sizes = Sizes(1, 2)\nn = sizes.max + sizes.sum\nreturn out"),
        top="from typing import NamedTuple\n\n\nclass Sizes(NamedTuple):\n    max: int\n    sum: int\n",
    ),
    "own-field-named-norm": file(
        launched("w = self.norm.weight\neps = self.norm.eps\nreturn out"),
        init="        self.norm = nn.LayerNorm(cols)\n",
    ),
    "static-method": file(
        launched("return out.view(ModelNew.shape(x))"),
        members="    @staticmethod\n    def shape(x):\n        return (x.shape[0], x.shape[1])\n",
    ),
    "method-launches": file(plain("return self._launch(x, z)"), members=f"    def _launch(self, x, z):\n{HONEST}"),
    "function-launches": file(
        plain("return run(x, self.scale, z)"),
        top="def run(x, s, z):\n    out = torch.empty_like(x)\n    axpy[(1,)](x, s, z, out, x.numel(), x.shape[1], BLOCK=16)\n    return out\n",
    ),
    "kernel-as-parameter": file(
        plain(
            "x, z = x.contiguous(), z.contiguous()\nout = torch.empty_like(x)\nrun(axpy, out, x, self.scale, z)\nreturn out"
        ),
        top="def run(kernel, out, x, s, z):\n    kernel[(1,)](x, s, z, out, x.numel(), x.shape[1], BLOCK=16)\n",
    ),
    "kernel-chosen": file(
        plain(
            "out = torch.empty_like(x)\nk = axpy if x.shape[1] > 1 else again\nk[(1,)](x, self.scale, z, out, x.numel(), x.shape[1], BLOCK=16)\nreturn out"
        ),
        kernel=KERNEL + KERNEL.replace("axpy", "again"),
    ),
    "launch-prepared": file(
        plain(
            "out = torch.empty_like(x)\nlaunch = axpy[(1,)]\nlaunch(x, self.scale, z, out, x.numel(), x.shape[1], BLOCK=16)\nreturn out"
        )
    ),
    "grid-function": file(
        plain(
            "out = torch.empty_like(x)\n\ndef grid(meta):\n    return (triton.cdiv(x.numel(), meta['BLOCK']),)\n\naxpy[grid](x, self.scale, z, out, x.numel(), x.shape[1], BLOCK=16)\nreturn out"
        )
    ),
    "grid-lambda": file(
        plain(
            "out = torch.empty_like(x)\ngrid = lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)\naxpy[grid](x, self.scale, z, out, x.numel(), x.shape[1], BLOCK=16)\nreturn out"
        )
    ),
    "parameter-holders": file(
        launched("w, b = self.fc.weight, self.fc.bias\nw2 = self.layers[0].weight.t().contiguous()\nreturn out"),
        init="        self.fc = nn.Linear(cols, cols)\n        self.layers = nn.ModuleList([nn.Linear(cols, 2)])\n",
    ),
    "own-module-with-kernel": file(
        plain("return self.inner(x, z)"),
        top=f"class Inner(nn.Module):\n    def __init__(self, cols):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(cols))\n\n    def forward(self, x, z):\n{HONEST}",
        init="        self.inner = Inner(cols)\n",
    ),
    "class-constant": file(
        launched("block = self.BLOCK * 2 + ModelNew.BLOCK\nreturn out"),
        members="    BLOCK = 1024\n    TABLE = {'a': 1}\n",
    ),
    "constructor-computes": file(
        init="        self.register_buffer('mask', torch.tril(torch.ones(4, 4)).view(1, 4, 4))\n"
        "        nn.init.normal_(self.scale, std=0.02)\n        self.eps = 1.0 / math.sqrt(cols)\n        self.apply(self._init)\n",
        members="    def _init(self, m):\n        if isinstance(m, nn.Linear):\n            m.weight.data.normal_(0, 0.02)\n",
    ),
    "constructor-default-class": file(members="    def make(self, norm=nn.LayerNorm):\n        return norm(4)\n"),
    "try-in-dead-code": file(
        top="def config():\n    try:\n        return int('8')\n    except ValueError:\n        return 4\n"
    ),
    "reference-kept-for-readers": file(
        top="class Model(nn.Module):\n    def forward(self, x, z):\n        return torch.softmax(F.relu(x), -1) @ z\n\n\ndef get_inputs():\n    return [torch.randn(4, 4)]\n"
    ),
    "main-guard": file()
    + "\n\nif __name__ == '__main__':\n    print(ModelNew(3)(torch.randn(2, 3), torch.randn(2, 3)))\n",
    "type-hints": file(
        top="from __future__ import annotations\n\nfrom typing import Optional, Tuple\n\nShape = Tuple[int, ...]\n\n\ndef f(x: Optional[torch.Tensor] = None) -> torch.dtype:\n    return torch.float32\n"
    ).replace(
        "import math\n\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport triton\nimport triton.language as tl\nfrom __future__ import annotations\n",
        "from __future__ import annotations\nimport math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\nimport triton\nimport triton.language as tl\n",
    ),
    "local-names-shadow": file(launched("F = x.shape[0]\nsum = F + 1\nid_ = 2\nt = sum * F\ntype_ = F\nreturn out")),
    "locals-are-mutable": file(
        launched(
            "shape = list(x.shape)\nshape.append(1)\nshape[0] = x.shape[0]\nseen = {}\nseen['a'] = 1\nreturn out.view(shape[:-1])"
        )
    ),
    "no-grad": file(
        launched("with torch.no_grad():\n    pass\nreturn out"),
        members="    @torch.no_grad()\n    def h(self):\n        return 1\n",
    ),
    "validation": file(
        plain(
            "assert x.dim() == 2, f'{x.dim()} dimensions'\nif x.dtype not in (torch.float32, torch.float16):\n    raise TypeError(f'dtype {x.dtype}')"
        )
        + HONEST
    ),
    "nested-function": file(plain("def pick(n):\n    return 16 if n < 16 else 64\nblock = pick(x.shape[1])") + HONEST),
    "constants-in-kernel": file(
        kernel="LOG2E = tl.constexpr(1.4426950408889634)\nHALF: tl.constexpr = 0.5\n"
        + KERNEL.replace("x * s + z", "x * s + z + LOG2E * 0.0 + HALF * 0.0")
    ),
    "libdevice": file(
        top="from triton.language.extra import libdevice",
        kernel=KERNEL.replace("x * s + z", "libdevice.tanh(x * s) + tl.math.exp(z)"),
    ),
    "reduce-with-own-function": file(
        kernel="@triton.jit\ndef mul(a, b):\n    return a * b\n\n"
        + KERNEL
        + "    tl.static_print(tl.reduce(tl.arange(0, BLOCK), 0, mul), tl.associative_scan(tl.arange(0, BLOCK), 0, mul))\n"
    ),
    "kernel-debugging": file(
        kernel=KERNEL
        + "    tl.static_assert(BLOCK >= 16)\n    tl.device_assert(n >= 0)\n    tl.static_print('block', BLOCK)\n    tl.multiple_of(cols, 16)\n"
    ),
    "descriptor": file(
        launched("d = TensorDescriptor.from_tensor(x, [16, 16])\nreturn out"),
        top="from triton.tools.tensor_descriptor import TensorDescriptor",
    ),
    "dtype-dispatch": file(
        launched(
            "kinds = {torch.float32: tl.float32, torch.float16: tl.float16}\nk = kinds[x.dtype]\nreturn out.to(x.dtype)"
        )
    ),
    "enumerate-and-zip": file(
        launched("for i, (a, b) in enumerate(zip(x.shape, z.shape)):\n    assert a == b or b == 1, i\nreturn out")
    ),
    "while-split": file(
        launched("block = 1024\nwhile block > x.shape[1] and block > 16:\n    block //= 2\nreturn out")
    ),
    "finfo": file(launched("low = torch.finfo(x.dtype).min\nreturn out")),
    "strings-and-comments": file(launched("'torch.matmul(x, z)'  # exec open getattr x @ z\nreturn out")),
    "private-helpers": file(
        launched("return _h(self._block, out)"), top="def _h(b, o):\n    return o\n", init="        self._block = 16\n"
    ),
    "two-launches-one-output": file(
        LAUNCH + plain("axpy[(1,)](x, self.scale, z, out, n, x.shape[1], BLOCK=16)\nreturn out,")
    ),
    "windows-line-ends": file().replace("\n", "\r\n"),
    "cookie-of-utf-8": "# -*- coding: utf-8 -*-\n" + file(top="# größer, 大, \U0001f600\n"),
    "docstring-with-lines": file(
        kernel=KERNEL.replace(
            "    for block", '    """Fused.\n\n    def of the result: x * s + z\n    """\n    for block'
        )
    ),
    "kernel-under-if": file(kernel="if True:\n" + "".join(f"    {line}\n" for line in KERNEL.strip().splitlines())),
    "logic-in-tests": file(
        kernel=KERNEL.replace(
            "    for block",
            "    if n and cols > 1 or not n:\n        tl.static_assert(BLOCK > 1 and BLOCK < 4096)\n"
            "    EVEN: tl.constexpr = BLOCK % 2 == 0\n    last = not (n > 4) and EVEN\n    wide = 2 if n and cols else 1\n"
            "    both = last or (0 < n and n < 5)\n    for block",
        )
    ),
    "device-passed-on": file(
        plain(
            "assert x.is_cuda and x.device == z.device, f'{x.device}'\nif z.device != x.device:\n"
            "    raise ValueError(f'{x} and {z.device}')\ndevice = x.device\nt = torch.zeros((1,), device=device)\n"
            "t = t.to(x.device).to(device, x.dtype).new_empty(1, device=device)\nbuf = make(1, device=device)"
        )
        + HONEST,
        top="def make(n, device=None):\n    return torch.empty(n, device=device)\n",
    ),
    "texts-of-sizes": file(launched("key = f'{x.dtype}-{x.size(0)}' + str(x.dtype)\nprint(f'{n}')\nreturn out")),
    "module-level-names": file(
        top="EPS = torch.finfo(torch.float32).eps\nDTYPES = (torch.float32, torch.float16)\nCPU = torch.device('cpu')\n"
        "\n\ndef helper(n):\n    return torch.empty(n)\n\n\nTABLE = dict(h=helper)\n\n\n"
        "class Op:\n    def __init__(self):\n        self.block = 16\n\n    def run(self, n):\n        return torch.empty(n)\n\n\n"
        "OP = Op()\n"
    ),
}
