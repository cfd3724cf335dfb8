"""Candidates that must be refused: by the static check (:data:`STATIC`) or by what they do when run (:data:`RUN`).

All are for the task ``y = x * scale + z`` (see ``TASK``). ``file(...)`` makes a whole candidate out of the part that
matters; entries that need more are whole files.
"""

from __future__ import annotations

TASK = """
import torch
import torch.nn as nn

rows = 512
cols = 768


class Model(nn.Module):
    def __init__(self, cols):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))

    def forward(self, x, z):
        return x * self.scale + z


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return [cols]
"""

KERNEL = """
@triton.jit
def axpy(x_ptr, s_ptr, z_ptr, o_ptr, n, cols, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        keep = i < n
        x = tl.load(x_ptr + i, mask=keep, other=0.0)
        s = tl.load(s_ptr + i % cols, mask=keep, other=0.0)
        z = tl.load(z_ptr + i, mask=keep, other=0.0)
        tl.store(o_ptr + i, x * s + z, mask=keep)
"""
LAUNCH = """
        x, z = x.contiguous(), z.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        if n > 0:
            axpy[(min(triton.cdiv(n, 1024), 40),)](x, self.scale, z, out, n, x.shape[1], BLOCK=1024)
"""
HONEST = f"{LAUNCH}        return out\n"


def file(
    forward: str = HONEST, *, top: str = "", init: str = "", members: str = "", kernel: str = KERNEL, bases="nn.Module"
) -> str:
    """Return a candidate file; ``forward`` and ``init`` are bodies indented by eight spaces, ``members`` by four."""
    return f"""import math

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
{top}
{kernel}

class ModelNew({bases}):
    def __init__(self, cols):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(cols))
{init}
{members}
    def forward(self, x, z):
{forward}
"""


def launched(rest: str) -> str:
    """Return a forward that launches the kernel honestly and then does something else."""
    return LAUNCH + "".join(f"        {line}\n" for line in rest.splitlines())


def plain(rest: str) -> str:
    """Return the lines as the body of a method."""
    return "".join(f"        {line}\n" for line in rest.splitlines())


IMPORTED = {
    **dict.fromkeys(("threading", "subprocess"), "background"),
    **dict.fromkeys(("os", "socket", "pickle"), "files"),
    "importlib": "dynamic-code",
}
NAMED = {**dict.fromkeys(("exec", "eval", "compile", "__import__"), "dynamic-code"), "open": "files"}

#: name -> (code that must be among the findings, source).
STATIC: dict[str, tuple[str, str]] = {
    # -- row 1: the library does the work
    "torch-function": ("library-call", file(launched("return torch.addcmul(z, x, self.scale)"))),
    "torch-alias": ("library-call", file(launched("return T.add(x, z)"), top="import torch as T")),
    "torch-from-import": ("library-call", file(launched("return mul(x, z)"), top="from torch import mul")),
    "torch-from-import-as": (
        "library-call",
        file(launched("return zeros(x, z)"), top="from torch import mul as zeros"),
    ),
    "torch-function-value": ("library-call", file(launched("return f(x, z)"), top="f = torch.mul")),
    "torch-function-in-list": ("library-call", file(launched("return fs[0](x, z)"), top="fs = [torch.mul]")),
    "torch-function-mapped": ("library-call", file(launched("return list(map(torch.relu, [x]))[0]"))),
    "functional": ("library-call", file(launched("return F.relu(x)"))),
    "functional-long": ("library-call", file(launched("return torch.nn.functional.relu(x)"))),
    "functional-import": (
        "library-call",
        file(launched("return g(x)"), top="from torch.nn.functional import gelu as g"),
    ),
    "functional-default": (
        "library-call",
        file(launched("return self.h(x)"), members="    def h(self, x, f=F.relu):\n        return f(x)\n"),
    ),
    "method": ("library-call", file(launched("return x.mul(self.scale).add(z)"))),
    "method-inplace": ("library-call", file(launched("out.mul_(2).div_(2)\nreturn out"))),
    "method-unknown": ("library-call", file(launched("return x.some_new_operator(z)"))),
    "method-value": ("library-call", file(launched("f = x.mul\nreturn f(z)"))),
    "method-mapped": ("library-call", file(launched("return sum(map(x.mul, [z]))"))),
    "unbound-method": ("library-call", file(launched("return torch.Tensor.mul(x, z)"))),
    "unbound-method-alias": ("library-call", file(launched("return T.mul(x, z)"), top="T = torch.Tensor")),
    "dunder-method": ("reflection", file(launched("return torch.Tensor.__matmul__(x, z)"))),
    "type-method": ("library-call", file(launched("return type(x).mul(x, z)"))),
    "matmul-operator": ("library-call", file(launched("return x @ z"))),
    "matmul-augmented": ("library-call", file(launched("x @= z\nreturn x"))),
    "weight-operator": (
        "library-call",
        file(launched("return self.proj.weight * x"), init="        self.proj = nn.Linear(3, 3)\n"),
    ),
    "submodule-call": ("library-call", file(launched("return self.act(x)"), init="        self.act = nn.ReLU()\n")),
    "submodule-list": (
        "library-call",
        file(launched("return self.acts[0](x)"), init="        self.acts = nn.ModuleList([nn.ReLU()])\n"),
    ),
    "submodule-local": (
        "library-call",
        file(launched("f = self.act\nreturn f(x)"), init="        self.act = nn.ReLU()\n"),
    ),
    "submodule-loop": (
        "library-call",
        file(launched("for f in [self.act]:\n    out = f(x)\nreturn out"), init="        self.act = nn.ReLU()\n"),
    ),
    "submodule-forward": (
        "library-call",
        file(launched("return self.act.forward(x)"), init="        self.act = nn.ReLU()\n"),
    ),
    "submodule-dunder": (
        "reflection",
        file(launched("return nn.Module.__call__(self.act, x)"), init="        self.act = nn.ReLU()\n"),
    ),
    "submodule-lambda": (
        "library-call",
        file(launched("return self.act(x)"), init="        self.act = lambda v: torch.relu(v)\n"),
    ),
    "module-in-forward": ("library-call", file(launched("return nn.ReLU()(x)"))),
    "module-made-and-called": ("library-call", file(launched("f = nn.Identity()\nreturn f(x)"))),
    "own-module-computes": (
        "library-call",
        file(
            launched("return self.inner(x)"),
            top="class Inner(nn.Module):\n    def forward(self, x):\n        return x.relu()\n",
            init="        self.inner = Inner()\n",
        ),
    ),
    "base-class-computes": (
        "library-call",
        file(
            launched("return self.work(x)"),
            top="class Base(nn.Module):\n    def work(self, x):\n        return torch.relu(x)\n",
            bases="Base",
        ),
    ),
    "helper-computes": (
        "library-call",
        file(launched("return helper(x)"), top="def helper(x):\n    return x.relu()\n"),
    ),
    "helper-under-if": (
        "library-call",
        file(launched("return helper(x)"), top="if True:\n    def helper(x):\n        return x.relu()\n"),
    ),
    "helper-of-helper": (
        "library-call",
        file(launched("return one(x)"), top="def one(x):\n    return two(x)\n\n\ndef two(x):\n    return x.exp()\n"),
    ),
    "static-method-computes": (
        "library-call",
        file(
            launched("return ModelNew.work(x)"), members="    @staticmethod\n    def work(x):\n        return x.exp()\n"
        ),
    ),
    "property-computes": (
        "library-call",
        file(
            launched("return self.work"),
            members="    @property\n    def work(self):\n        return self.scale.exp()\n",
        ),
    ),
    "lambda-computes": ("library-call", file(launched("f = lambda v: v.exp()\nreturn f(x)"))),
    "immediate-lambda": ("library-call", file(launched("return (lambda v: v.exp())(x)"))),
    "walrus": ("library-call", file(launched("if (y := torch.exp(x)) is not None:\n    return y"))),
    "comprehension": ("library-call", file(launched("return [t.exp() for t in (x,)][0]"))),
    "fstring": ("library-call", file(launched("f'{out.copy_(torch.exp(x))}'\nreturn out"))),
    "nested-function": ("library-call", file(launched("def inner():\n    return x.exp()\nreturn inner()"))),
    "grid-computes": (
        "library-call",
        file(
            plain(
                "out = torch.empty_like(x)\naxpy[lambda meta: (len([out.copy_(x.exp())]),)](x, self.scale, z, out, 0, 1, BLOCK=16)\nreturn out"
            )
        ),
    ),
    "helper-in-a-table": (
        "library-call",
        file(
            launched("return list(map(TABLE['f'], [x]))[0]"),
            top="def helper(v):\n    return v.exp()\n\n\nTABLE = {'f': helper}\n",
        ),
    ),
    "helper-in-an-attribute": (
        "library-call",
        file(
            launched("return next(f for f in self.fs)"),
            top="def helper(v):\n    return v.exp()\n",
            init="        self.fs = [helper]\n",
        ),
    ),
    "lambda-in-an-attribute": (
        "library-call",
        file(launched("return list(map(self.f, [x]))[0]"), init="        self.f = lambda v: v.exp()\n"),
    ),
    "key-function": (
        "library-call",
        file(launched("return max([x], key=self.f)"), init="        self.f = lambda v: v.exp()\n"),
    ),
    "subscription-computes": (
        "library-call",
        file(
            launched("return self.h[x]"),
            top="class H:\n    def __getitem__(self, v):\n        return v.exp()\n",
            init="        self.h = H()\n",
        ),
    ),
    "property-by-call": (
        "patching",
        file(launched("return self.work"), members="    work = property(lambda self: self.scale.exp())\n"),
    ),
    "super-forward": ("library-call", file(launched("return super().forward(x)"), bases="nn.ReLU")),
    "tensor-literal": ("library-call", file(launched("return torch.tensor([[1.0]])"))),
    "random": ("library-call", file(launched("return torch.randn(x.shape)"))),
    "einsum": ("library-call", file(launched("return torch.einsum('ij,j->ij', x, self.scale)"))),
    "ops-namespace": ("library-call", file(launched("return torch.ops.aten.mul(x, z)"))),
    "torch-compile": ("library-call", file(launched("return torch.compile(h)(x)"), top="def h(x):\n    return x\n")),
    "inductor-jit": ("library-call", file(launched("return h(x)"), top="h = torch.jit.script(None)")),
    "private-torch": ("library-call", file(launched("return torch._C._nn.gelu(x)"))),
    "autograd-function": (
        "patching",
        file(
            launched("return Fn.apply(x)"),
            top="class Fn(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x\n",
        ),
    ),
    "heuristic-computes": (
        "library-call",
        file(
            kernel="@triton.heuristics({'EVEN': lambda a: a['o_ptr'].copy_(a['x_ptr'].exp()) is None})\n"
            + KERNEL.strip().replace("BLOCK: tl", "EVEN: tl.constexpr, BLOCK: tl")
        ),
    ),
    # -- row 2, 7: no kernel
    "no-kernel": ("no-kernel", file(plain("return x"), kernel="")),
    "kernel-never-launched": ("no-kernel", file(plain("return torch.zeros_like(x)"))),
    "kernel-in-comment": ("no-kernel", file(plain("# axpy[(1,)](x)\nreturn torch.zeros_like(x)"))),
    "kernel-in-string": (
        "no-kernel",
        file(plain("'axpy[(1,)](x)'\nreturn torch.zeros_like(x)"), kernel="SOURCE = '''" + KERNEL + "'''\n"),
    ),
    "kernel-without-grid": ("no-kernel", file(plain("axpy(x, self.scale, z, x, 1, 1, 16)\nreturn x"))),
    "launched-in-constructor-only": (
        "no-kernel",
        file(plain("return x"), init="        axpy[(1,)](None, None, None, None, 0, 1, BLOCK=16)\n"),
    ),
    # -- row 3: fallbacks
    "try-fallback": ("fallback", file(plain("try:\n    axpy[(1,)](x)\nexcept Exception:\n    pass\nreturn x"))),
    "try-in-helper": (
        "fallback",
        file(
            plain("axpy[(1,)](x)\nreturn help(x)").replace("help(", "assist("),
            top="def assist(x):\n    try:\n        return x\n    finally:\n        pass\n",
        ),
    ),
    "suppress": (
        "import",
        file(plain("with suppress(Exception):\n    axpy[(1,)](x)\nreturn x"), top="from contextlib import suppress"),
    ),
    # -- row 4, 12, 18: reference, harness, reflection, patches, files
    "inherits-model": ("reference", file(bases="Model")),
    "calls-model": ("reference", file(launched("return Model(1)(x, z)"))),
    "calls-get-inputs": ("reference", file(launched("return get_inputs()[0]"))),
    **{
        f"import-{name.split('.')[0].replace(' ', '-')}": (IMPORTED.get(name, "import"), file(top=f"import {name}"))
        for name in (
            "os",
            "sys",
            "gc",
            "inspect",
            "builtins",
            "ctypes",
            "threading",
            "subprocess",
            "socket",
            "functools",
            "dataclasses",
            "importlib",
            "operator",
            "numpy",
            "weakref",
            "time",
            "pickle",
            "types",
            "task",
            "orienteer.environments.kernel.candidate_job",
            "__main__",
        )
    },
    "import-torch-utils": ("import", file(top="import torch.utils.cpp_extension")),
    "import-torch-dispatch": ("import", file(top="from torch.utils._python_dispatch import _disable_current_modes")),
    "import-triton-runtime": ("import", file(top="from triton.runtime import driver")),
    "import-interpreter": ("import", file(top="import triton.runtime.interpreter")),
    "import-relative": ("import", file(top="from . import candidate_job")),
    "import-star": ("import", file(top="from torch import *")),
    "import-in-function": ("import", file(plain("import sys\n") + HONEST)),
    "import-two-meanings": ("reflection", file(top="import math as m\n\n\ndef f():\n    import torch as m\n")),
    "import-private": ("library-call", file(top="from torch import _C")),
    "import-rebound": ("patching", file(top="F = math")),
    "module-as-value": ("reflection", file(launched("return pick(torch, x)"), top="def pick(m, x):\n    return x\n")),
    "module-in-tuple": ("reflection", file(top="MODULES = (nn.functional, F)")),
    **{
        f"builtin-{name.strip('_')}": (NAMED.get(name, "reflection"), file(launched(f"{name}\nreturn out")))
        for name in (
            "exec",
            "eval",
            "compile",
            "open",
            "__import__",
            "globals",
            "locals",
            "vars",
            "getattr",
            "setattr",
            "delattr",
            "dir",
            "id",
            "hash",
            "memoryview",
            "input",
            "breakpoint",
            "__builtins__",
            "__loader__",
            "__spec__",
            "exit",
            "quit",
            "help",
            "SystemExit",
            "BaseException",
            "bytearray",
            "__file__",
        )
    },
    "name-in-other-letters": ("dynamic-code", file(launched("ｅｘｅｃ('1')\nreturn out"))),
    "sorted-self": ("reflection", file(launched("sorted.__self__\nreturn out"))),
    "dunder-class": ("reflection", file(launched("().__class__.__base__.__subclasses__()\nreturn out"))),
    "dunder-globals": ("reflection", file(launched("self.forward.__globals__\nreturn out"))),
    "dunder-code": ("reflection", file(launched("axpy.fn.__code__\nreturn out"))),
    "frame": ("reflection", file(launched("g = (1 for _ in x.shape)\ng.gi_frame.f_back\nreturn out"))),
    "traceback": (
        "reflection",
        file(top="try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    FRAME = e.__traceback__.tb_frame\n"),
    ),
    "match-attributes": (
        "reflection",
        file(launched("match x:\n    case object(__class__=c):\n        pass\nreturn out")),
    ),
    "get-type-hints": ("reflection", file(top="import typing\nH = typing.get_type_hints")),
    "type-makes-class": ("reflection", file(top="X = type('X', (), {})")),
    "metaclass": ("reflection", file(top="class M(nn.Module, metaclass=type(nn.Module)):\n    pass\n")),
    "private-tensor": ("reflection", file(launched("x._version\nreturn out"))),
    "private-module": ("reflection", file(launched("return self._call_impl(x, z)"))),
    "patch-torch": ("patching", file(top="torch.empty = None")),
    "patch-torch-for": ("patching", file(top="for torch.allclose in [1]:\n    pass")),
    "patch-triton": ("patching", file(top="triton.cdiv = None")),
    "patch-language": ("patching", file(launched("tl.load = None\nreturn out"))),
    "patch-delete": ("patching", file(top="del torch.equal")),
    "patch-builtin": ("patching", file(top="len = None")),
    "patch-class": ("patching", file(top="class A:\n    k = 1\n\n\nA.k = 2")),
    "patch-method": ("patching", file(init="        self.forward = None\n")),
    "overrides-state-dict": ("patching", file(members="    def state_dict(self):\n        return {}\n")),
    "overrides-call": ("patching", file(members="    def __call__(self, *a):\n        return a[0]\n")),
    "overrides-getattr": ("patching", file(members="    def __getattr__(self, n):\n        return None\n")),
    "overrides-del": ("patching", file(members="    def __del__(self):\n        return None\n")),
    "overrides-call-impl": ("patching", file(members="    def _call_impl(self, *a):\n        return a[0]\n")),
    "context-manager": ("patching", file(top="class C:\n    def __enter__(self):\n        return 1\n")),
    "hook": ("reflection", file(init="        self.register_forward_hook(lambda m, a, o: o)\n")),
    "decorated": (
        "patching",
        file(top="def deco(f):\n    return f\n", members="    @deco\n    def h(self):\n        return 1\n"),
    ),
    "kernel-rebound": ("patching", file(kernel=KERNEL + "\naxpy = None\n")),
    "class-twice": ("patching", file(top="class ModelNew(nn.Module):\n    pass\n")),
    "triton-runtime": ("reflection", file(launched("triton.runtime.driver.active\nreturn out"))),
    "triton-knobs": ("reflection", file(launched("triton.knobs.runtime\nreturn out"))),
    "triton-testing": ("reflection", file(launched("triton.testing.do_bench\nreturn out"))),
    "triton-compile": ("reflection", file(launched("triton.compile(axpy)\nreturn out"))),
    "language-core": ("reflection", file(top="X = tl.core.builtin")),
    "language-semantic": ("reflection", file(top="X = triton.language.semantic.os")),
    "jit-as-function": ("kernel-code", file(top="k = triton.jit(None)")),
    "storage": ("reflection", file(launched("x.untyped_storage().from_file('/etc/passwd', False, 9)\nreturn out"))),
    "numpy": ("reflection", file(launched("x.numpy().tofile('/tmp/x')\nreturn out"))),
    "torch-load": ("files", file(launched("return torch.load('answer.pt')"))),
    "torch-save-in-init": ("files", file(init="        torch.save(self.scale, 'x.pt')\n")),
    "torch-set-default": ("library-call", file(top="torch.set_default_dtype(torch.float16)")),
    "written-then-imported": ("files", file(top="open('m.py', 'w').write('x = 1')\nimport m")),
    # -- rows 9 to 11: streams, threads, lazy results
    "stream": ("stream", file(launched("with torch.cuda.stream(None):\n    return out"))),
    "stream-alias": (
        "stream",
        file(top="from torch.cuda import Stream").replace("from torch.cuda", "from torch").replace("Stream", "cuda"),
    ),
    "tensor-cuda": ("stream", file(launched("return out.cuda()"))),
    "lazy-tensor": ("deferred", file(top="class Lazy(torch.Tensor):\n    pass\n")),
    "lazy-parameter": ("deferred", file(top="class Lazy(nn.Parameter):\n    pass\n")),
    "generator": ("deferred", file(launched("yield out"))),
    "async": ("deferred", file(top="async def f():\n    return 1\n")),
    # -- row 6: state between calls
    "global": ("state", file(launched("global LAST\nLAST = out\nreturn out"), top="LAST = None")),
    "nonlocal": ("state", file(launched("def f():\n    nonlocal out\n    out = x\nf()\nreturn out"))),
    "module-dict": ("state", file(launched("CACHE[x.shape] = out\nreturn CACHE[x.shape]"), top="CACHE = {}")),
    "module-list": ("state", file(launched("SEEN.append(out)\nreturn SEEN[0]"), top="SEEN = []")),
    "module-setdefault": ("state", file(launched("return CACHE.setdefault(x.data_ptr(), out)"), top="CACHE = {}")),
    "default-argument": (
        "state",
        file(launched("return self.h(out)"), members="    def h(self, x, seen={}):\n        return x\n"),
    ),
    "self-attribute": ("state", file(launched("self.last = out\nreturn self.last"))),
    "self-dict": ("state", file(launched("self.cache[0] = out\nreturn out"), init="        self.cache = {}\n")),
    "class-attribute": ("state", file(launched("ModelNew.cache[0] = out\nreturn out"), members="    cache = {}\n")),
    "class-attribute-update": (
        "state",
        file(launched("self.cache.update(a=out)\nreturn out"), members="    cache = {}\n"),
    ),
    "function-attribute": (
        "state",
        file(launched("helper.last = out\nreturn out"), top="def helper():\n    return 1\n"),
    ),
    # -- kernels that hold host code
    "kernel-uses-torch": ("kernel-code", file(kernel=KERNEL + "    torch.exp(x_ptr)\n")),
    "kernel-calls-python": ("kernel-code", file(kernel="def f():\n    return 1\n" + KERNEL + "    f()\n")),
    "kernel-lambda": ("kernel-code", file(kernel=KERNEL + "    (lambda: 1)()\n")),
    "kernel-nested-def": ("kernel-code", file(kernel=KERNEL + "    def f():\n        return 1\n    f()\n")),
    "kernel-try": ("kernel-code", file(kernel=KERNEL + "    try:\n        pass\n    finally:\n        pass\n")),
    "kernel-handle": ("kernel-code", file(kernel=KERNEL + "    tl.static_print(x_ptr.handle.data)\n")),
    "kernel-host-method": ("kernel-code", file(kernel=KERNEL + "    tl.static_print(o_ptr.copy_(x_ptr))\n")),
    "kernel-global-tensor": (
        "kernel-code",
        file(kernel="BUF = torch.empty(4)\n" + KERNEL + "    tl.static_print(BUF + BUF)\n"),
    ),
    "kernel-language-core": ("kernel-code", file(kernel=KERNEL + "    tl.core.get_bool_env_var('X')\n")),
    "kernel-triton-runtime": ("kernel-code", file(kernel=KERNEL + "    triton.runtime.driver.active\n")),
    "kernel-in-forward": (
        "kernel-code",
        file(plain("@triton.jit\ndef k(p):\n    tl.store(p, 1.0)\nk[(1,)](x)\nreturn x")),
    ),
    "lambda-argument": ("kernel-code", file(plain("axpy[(1,)](x, lambda: x, z, x, 1, 1, BLOCK=16)\nreturn x"))),
    "function-argument": (
        "kernel-code",
        file(plain("axpy[(1,)](x, f, z, x, 1, 1, BLOCK=16)\nreturn x"), top="def f():\n    return 1\n"),
    ),
    # -- one text, two readings
    **{
        f"separator-{ord(c):x}": ("syntax", file(top=f"# {c}{c}\n'{c}'\n"))
        for c in "\x01\x0b\x0c\x1c\x1d\x1e\x7f\x85\u2028\u2029"
    },
    "separator-hides-a-kernel": (
        "syntax",
        file(top="# " + "\u2028" * 9, kernel=f'"""{KERNEL.replace("x * s + z", "x")}"""{KERNEL}'),
    ),
    "lone-surrogate": ("syntax", file(top="x = '\ud800'")),
    "byte-order-mark": ("syntax", "\ufeff" + file()),
    "cookie": ("syntax", "# coding: raw_unicode_escape\n" + file()),
    "cookie-second-line": ("syntax", "#!/usr/bin/python\n# -*- coding: latin-1 -*-\n" + file()),
    "cookie-after-carriage-return": ("syntax", "#\r# vim: set fileencoding=utf_7 :\r" + file()),
    "cookie-unknown": ("syntax", "# coding: no-such-thing\n" + file()),
    "kernel-in-a-decorator": (
        "kernel-code",
        file(
            kernel=f"@triton.autotune(configs=[], key=['''{KERNEL.replace('@triton.jit', '').replace('x * s', 'x')}'''])"
            + KERNEL
        ),
    ),
    "kernel-in-its-own-text": (
        "kernel-code",
        file(
            kernel="if True:\n"
            + "".join(f"    {line}\n" for line in KERNEL.strip().splitlines()).replace(
                "        for block", "        '''\ndef axpy(x_ptr, s_ptr):\n  '''\n        for block", 1
            )
        ),
    ),
    # -- logic as a number: interpreter and compiler disagree
    **{
        f"logic-{name}": ("kernel-code", file(kernel=KERNEL.replace("x * s + z", f"x * s + z + ({text}) * 1.0")))
        for name, text in {
            "and": "n and 2",
            "or": "cols or 2",
            "not": "not n",
            "nested": "(n > 1) and (cols or 2)",
            "in-a-test": "1 if (n and 2) == 2 else 3",
            "constexpr-and-number": "BLOCK and 2",
            "call": "tl.abs(n and 2)",
        }.items()
    },
    "logic-held": (
        "kernel-code",
        file(kernel=KERNEL.replace("    for block", "    t = n\n    t = n > 1\n    u = t and n > 2\n    for block")),
    ),
    "text-in-a-kernel": (
        "kernel-code",
        file(kernel=KERNEL.replace("    for block", "    if str(BLOCK) == '16':\n        n = 0\n    for block")),
    ),
    # -- a look at where the tensors lie
    **{
        f"device-{name}": ("reflection", file(launched(f"{text}\nreturn out"), top=top))
        for name, (text, top) in {
            "is-cuda": ("n = 1 if x.is_cuda else 2", ""),
            "is-cpu": ("if x.is_cpu:\n    n = 2", ""),
            "get-device": ("n = x.get_device()", ""),
            "address": ("n = x.data_ptr()", ""),
            "type": ("n = 1 if x.device.type == 'cpu' else 2", ""),
            "index": ("n = 1 if x.device.index is None else 2", ""),
            "compared": ("if x.device == torch.device('cpu'):\n    n = 2", ""),
            "held": ("d = x.device\nn = 1 if d == torch.device('cpu') else 2", ""),
            "held-type": ("d = x.device\nn = len(d.type)", ""),
            "tensor-type": ("n = len(x.type())", ""),
            "in-a-list": ("n = [x.device].count(torch.device('cpu'))", ""),
            "passed": ("n = f(device=x.device)", "def f(device):\n    return device == torch.device('cpu')\n"),
            "passed-on": (
                "n = f(device=x.device)",
                "def f(device):\n    return g(device=device)\n\n\ndef g(device):\n    return len({device})\n",
            ),
            "in-a-dict": ("n = dict(device=x.device)['device'] == torch.device('cpu')", ""),
            "str": ("n = len(str(x))", ""),
            "repr": ("n = len(repr(x))", ""),
            "f-string": ("n = len(f'{x}')", ""),
            "format": ("n = len('{}'.format(x))", ""),
            "percent": ("n = len('%s' % x)", ""),
            "mapped-str": ("n = len(list(map(str, [x]))[0])", ""),
            "assert-with-walrus": ("assert (n := x.is_cuda) or True", ""),
            "own-field": ("n = 1 if x.is_cuda else 2", "class Own:\n    is_cuda = 1\n"),
        }.items()
    },
    # -- a tensor that outlives the calls
    **{
        f"tensor-{name}": ("state", file(top=top))
        for name, top in {
            "module": "SEEN = torch.zeros(1)",
            "module-alias": "from torch import zeros as z\nSEEN = [z(1)]",
            "module-type": "SEEN = torch.Tensor(1)",
            "module-parameter": "SEEN = nn.Parameter(torch.empty(1))",
            "module-under-if": "if True:\n    SEEN = torch.ones(1)",
            "module-function": "def make():\n    return torch.zeros(1)\n\n\nSEEN = make()",
            "module-function-held": "def make():\n    return torch.zeros(1)\n\n\nF = make\nSEEN = F()",
            "module-function-mapped": "def make(n):\n    return torch.zeros(n)\n\n\nSEEN = list(map(make, [1]))",
            "module-lambda": "SEEN = (lambda: torch.zeros(1))()",
            "module-object": "class H:\n    def __init__(self):\n        self.a = torch.zeros(1)\n\n\nSEEN = H()",
            "module-method": "class H:\n    @staticmethod\n    def a():\n        return torch.zeros(1)\n\n\nSEEN = H.a()",
            "class": "class H:\n    SEEN = torch.zeros(1)\n",
            "default": "def h(a=torch.zeros(1)):\n    return a\n",
            "keyword-default": "def h(*, a=torch.zeros(1)):\n    return a\n",
            "lambda-default": "h = lambda a=torch.zeros(1): a",
        }.items()
    },
    "tensor-class-attribute": ("state", file(members="    seen = torch.zeros(1)\n")),
    "tensor-method-default": ("state", file(members="    def h(self, a=torch.zeros(1)):\n        return a\n")),
    # -- no file at all
    "syntax": ("syntax", "def broken(:\n"),
    "null-byte": ("syntax", "x = 1\0"),
    "too-deep": ("syntax", "x = " + "(" * 5000 + "1" + ")" * 5000),
    "deep-attributes": ("syntax", "x = a" + ".b" * 20000),
    "no-model": ("contract", "x = 1\n"),
    "no-forward": ("contract", "import torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    pass\n"),
}
