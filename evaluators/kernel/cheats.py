"""The static cheat check: a candidate must compute in its kernels and may not reach for anything else.

The file is read as a syntax tree, never as text, so comments and strings prove nothing. The rules have two aims: what
``forward`` returns must come from launched kernels (rows 1 to 4, 7 and 21 of the table in the design page of
EvoKernel),
and the candidate's process must hold nothing with which candidate code could change how it is judged (rows 4, 12 and
18: no imports beside the few that a kernel needs, no reflection, no dunder attributes, no patching).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

#: Modules that a candidate may import.
IMPORTS = frozenset(
    {
        "__future__",
        "math",
        "typing",
        "torch",
        "torch.nn",
        "torch.nn.functional",
        "triton",
        "triton.language",
        "triton.language.extra",
        "triton.language.extra.libdevice",
        "triton.tools.tensor_descriptor",
    }
)
#: Built-in functions that open a way around the rules.
BANNED_NAMES = frozenset(
    {
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
        "input",
        "breakpoint",
        "__builtins__",
        "memoryview",
        "__loader__",
        "__spec__",
        "dir",
        "id",
        "hash",
    }
)
#: Functions of ``torch`` that a launching wrapper may call.
TORCH_FUNCTIONS = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "device",
        "Size",
        "Tensor",
        "no_grad",
        "inference_mode",
        "is_tensor",
        "broadcast_shapes",
        "finfo",
        "iinfo",
        "is_floating_point",
        "numel",
        "reshape",
        "permute",
        "transpose",
        "squeeze",
        "unsqueeze",
        "flatten",
        "get_default_dtype",
        "promote_types",
        "result_type",
        "contiguous_format",
        "preserve_format",
        "dtype",
        "randn",
        "rand",
        "tensor",
        "float32",
        "float16",
        "bfloat16",
        "float64",
        "float",
        "half",
        "double",
        "int",
        "int8",
        "int16",
        "int32",
        "int64",
        "long",
        "short",
        "uint8",
        "bool",
        "nn",
        "inf",
        "nan",
        "pi",
        "strided",
    }
)
#: In ``forward`` these make values out of nothing and are not what a kernel's output may come from.
_NOT_IN_FORWARD = frozenset({"randn", "rand", "tensor"})
#: Tensor methods that compute; calling one in ``forward`` is doing the work outside the kernel.
COMPUTING_METHODS = frozenset(
    """
    abs acos add addbmm addcdiv addcmul addmm addmv addr all allclose amax amin aminmax any apply_ argmax
    argmin argsort asin atan atan2 backward baddbmm bernoulli bincount bitwise_and bitwise_or bitwise_xor bmm
    bucketize ceil cholesky clamp clamp_max clamp_min clip conj copysign corrcoef cos cosh count_nonzero cross
    cummax cummin cumprod cumsum deg2rad det diff dist div divide dot eq erf erfc erfinv exp exp2 expm1 floor
    floor_divide fmod gather ge geqrf ger gt hardshrink histc hypot index_add index_copy index_fill index_put
    index_reduce index_select inner inverse isclose isfinite isinf isnan kron kthvalue le lerp log log10 log1p
    log2 log_softmax logaddexp logcumsumexp logdet logical_and logical_not logical_or logical_xor logit
    logsumexp lt map2_ map_ masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max
    maximum mean median min minimum mm mode mul multinomial multiply mv nanmean nansum ne neg negative nonzero
    norm normal_ numpy outer pinverse polygamma pow prelu prod put qr quantile reciprocal register_hook relu
    relu_ remainder renorm repeat_interleave rot90 round rsqrt scatter scatter_add scatter_reduce searchsorted
    sigmoid sigmoid_ sign sin sinc sinh slogdet smm softmax sort sqrt square std sub subtract sum svd take
    take_along_dim tan tanh tanh_ tensordot tolist topk trace tril triu true_divide trunc unique var vdot
    where xlogy
    """.split()  # noqa: SIM905 (a table of words reads best as one)
)
#: Reads of ``torch`` that touch clocks, streams, compilers or the disk.
_DANGEROUS = (
    "cuda",
    "ops",
    "library",
    "utils",
    "compile",
    "jit",
    "load",
    "save",
    "fx",
    "export",
    "hub",
    "multiprocessing",
)
_KERNEL_DECORATORS = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})
_PLAIN_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "torch.no_grad", "torch.inference_mode"})
_ALLOWED_DUNDERS = frozenset({"__init__", "__name__", "__future__", "__all__", "__doc__"})


@dataclass(frozen=True)
class Finding:
    """One broken rule."""

    #: Stable code: ``library-call``, ``no-kernel``, ``fallback``, ``reference``, ``import``, ``reflection``,
    #: ``patching``, ``stream``, ``syntax``.
    code: str
    line: int
    message: str


def check(source: str) -> list[Finding]:
    """Return the broken rules of a candidate file, in the order of their lines; none means that it may run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        return [
            Finding("syntax", line, f"the file is no Python: {error.msg if isinstance(error, SyntaxError) else error}")
        ]
    except (RecursionError, MemoryError):
        return [Finding("syntax", 0, "the file is nested too deeply to be read")]
    found = list(_Checker(tree).run())
    unique = {(f.code, f.line, f.message): f for f in found}
    return sorted(unique.values(), key=lambda f: (f.line, f.code))


class _Checker:
    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        #: Local name -> dotted path of an import.
        self.aliases: dict[str, str] = {}
        self.functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
        self.classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
        self.kernels: set[str] = set()

    def run(self) -> Iterator[Finding]:
        """Yield every broken rule."""
        yield from self._imports()
        self.kernels = {name for name, node in self.functions.items() if self._is_kernel(node)}
        yield from self._everywhere()
        model = self.classes.get("ModelNew")
        if model is None:
            yield Finding("contract", 0, "the file defines no class ModelNew")
            return
        methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
        if "forward" not in methods:
            yield Finding("contract", model.lineno, "ModelNew has no method forward")
            return
        yield from self._forward(methods)

    # -- names -------------------------------------------------------------------------------------------------------

    def _imports(self) -> Iterator[Finding]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    if item.name not in IMPORTS:
                        yield self._bad_import(node, item.name)
                    self.aliases[item.asname or item.name.split(".")[0]] = (
                        item.name if item.asname else item.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    yield self._bad_import(node, "." * node.level + base)
                    continue
                for item in node.names:
                    path = f"{base}.{item.name}"
                    if base not in IMPORTS or item.name == "*":
                        yield self._bad_import(node, path)
                    self.aliases[item.asname or item.name] = path

    def _bad_import(self, node: ast.stmt, name: str) -> Finding:
        return Finding(
            "import", node.lineno, f"import of {name}: a kernel file may import torch, torch.nn, triton, math"
        )

    def path(self, node: ast.AST) -> str:
        """Return the dotted path that an expression names after resolving imports; empty when it is no plain path."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.aliases.get(node.id, node.id)
        return ".".join([root, *reversed(parts)])

    def _is_kernel(self, node: ast.FunctionDef) -> bool:
        return any(
            self.path(d.func if isinstance(d, ast.Call) else d) in _KERNEL_DECORATORS for d in node.decorator_list
        )

    # -- rules for the whole file --------------------------------------------------------------------------------------

    def _everywhere(self) -> Iterator[Finding]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and node.id in BANNED_NAMES:
                yield Finding("reflection", node.lineno, f"use of {node.id}")
            elif isinstance(node, ast.Name) and node.id == "Model" and "Model" not in self.classes:
                yield Finding("reference", node.lineno, "the reference class Model is not available to a candidate")
            elif isinstance(node, ast.Attribute):
                yield from self._attribute(node)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                yield Finding(
                    "state", node.lineno, "global or nonlocal state: a kernel's result depends on its inputs only"
                )
            elif isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.Yield, ast.YieldFrom)):
                yield Finding("deferred", node.lineno, "deferred execution (async or generator)")
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield from self._decorators(node)
        yield from self._bases()

    def _attribute(self, node: ast.Attribute) -> Iterator[Finding]:
        name = node.attr
        if name.startswith("__") and name.endswith("__") and name not in _ALLOWED_DUNDERS:
            yield Finding("reflection", node.lineno, f"use of the attribute {name}")
        path = self.path(node)
        if isinstance(node.ctx, (ast.Store, ast.Del)) and path.split(".")[0] in ("torch", "triton", "math"):
            yield Finding("patching", node.lineno, f"assignment to {path}")
        parts = path.split(".")
        if parts[0] == "torch" and len(parts) > 1:
            if parts[1].startswith("_") or parts[1] in _DANGEROUS:
                code = "stream" if parts[1] == "cuda" else "library-call"
                yield Finding(code, node.lineno, f"use of {path}: only allocation and views are allowed from torch")
            elif parts[1] not in TORCH_FUNCTIONS and not path.startswith("torch.nn"):
                yield Finding("library-call", node.lineno, f"use of {path}: compute it in a Triton kernel")

    def _decorators(self, node: ast.FunctionDef | ast.ClassDef) -> Iterator[Finding]:
        for decorator in node.decorator_list:
            path = self.path(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if path not in _KERNEL_DECORATORS and path not in _PLAIN_DECORATORS:
                yield Finding("patching", decorator.lineno, f"decorator {path or ast.unparse(decorator)[:60]}")

    def _bases(self) -> Iterator[Finding]:
        for node in self.classes.values():
            for base in node.bases:
                path = self.path(base)
                if path in ("torch.Tensor", "torch.nn.Parameter"):
                    yield Finding("deferred", node.lineno, f"subclass of {path}: outputs must be plain tensors")

    # -- rules for what forward reaches --------------------------------------------------------------------------------

    def _forward(self, methods: dict[str, ast.FunctionDef]) -> Iterator[Finding]:
        launches = 0
        for function in self._reachable(methods):
            if function.name in self.kernels:
                continue
            local = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            for node in ast.walk(function):
                if isinstance(node, ast.Call):
                    if isinstance(node.func, ast.Subscript) and self._launched(node.func.value):
                        launches += 1
                        continue
                    yield from self._call(node, methods)
                elif isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
                    yield Finding(
                        "fallback", node.lineno, "try/except in code that forward reaches: no fallback is allowed"
                    )
                elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
                    yield Finding("library-call", node.lineno, "the operator @ outside a kernel")
                elif isinstance(node, (ast.BinOp, ast.UnaryOp)) and self._touches_tensor(node, local):
                    yield Finding(
                        "library-call", node.lineno, f"tensor arithmetic outside a kernel: {ast.unparse(node)[:80]}"
                    )
        if not self.kernels:
            yield Finding("no-kernel", 0, "the file defines no function decorated with triton.jit")
        elif launches == 0:
            line = methods["forward"].lineno
            yield Finding("no-kernel", line, "forward launches no kernel: write kernel[grid](...)")

    def _launched(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.kernels
        return False

    def _reachable(self, methods: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
        seen: dict[str, ast.FunctionDef] = {}
        queue = [methods["forward"]]
        while queue:
            function = queue.pop()
            key = f"{function.lineno}:{function.name}"
            if key in seen:
                continue
            seen[key] = function
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and node.id in self.functions:
                    queue.append(self.functions[node.id])
                elif isinstance(node, ast.Attribute) and node.attr in methods and node.attr != "__init__":
                    queue.append(methods[node.attr])
        return list(seen.values())

    def _call(self, node: ast.Call, methods: dict[str, ast.FunctionDef]) -> Iterator[Finding]:
        path = self.path(node.func)
        if path.startswith("torch.nn.functional.") or path.startswith("torch.nn.init."):
            yield Finding("library-call", node.lineno, f"call of {path}: compute it in a Triton kernel")
        elif path.startswith("torch.nn."):
            yield Finding("library-call", node.lineno, f"{path} in forward: modules only hold parameters")
        elif path.startswith("torch.") and path.split(".")[1] in _NOT_IN_FORWARD:
            yield Finding("library-call", node.lineno, f"call of {path} in forward")
        elif isinstance(node.func, ast.Attribute):
            name, owner = node.func.attr, node.func.value
            if isinstance(owner, ast.Name) and owner.id == "self":
                if name not in methods:
                    yield Finding(
                        "library-call", node.lineno, f"call of the submodule self.{name}: compute it in a kernel"
                    )
            elif path.split(".")[0] in ("torch", "triton", "math", "typing"):
                return
            elif name in COMPUTING_METHODS or (name.endswith("_") and name.rstrip("_") in COMPUTING_METHODS):
                if name in ("max", "min") and not isinstance(owner, (ast.Name, ast.Attribute, ast.Call)):
                    return
                yield Finding("library-call", node.lineno, f"the tensor method .{name}() outside a kernel")
            elif isinstance(owner, ast.Attribute) and name == "forward":
                yield Finding("library-call", node.lineno, "call of a module's forward")
        elif isinstance(node.func, ast.Subscript) and self._self_attribute(node.func):
            yield Finding("library-call", node.lineno, "call of a submodule: compute it in a kernel")

    @staticmethod
    def _self_attribute(node: ast.AST) -> bool:
        while isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        return isinstance(node, ast.Name) and node.id == "self"

    def _touches_tensor(self, node: ast.BinOp | ast.UnaryOp, arguments: set[str]) -> bool:
        """True for arithmetic directly on a parameter tensor (``self.weight * 2``); sizes are free to compute with.

        Arithmetic on arguments cannot be told from arithmetic on sizes here; the run-time log of library calls sees it.
        """
        operands = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        return any(
            isinstance(item, ast.Attribute)
            and self._self_attribute(item)
            and item.attr in ("weight", "bias", "weight_ih", "weight_hh", "running_mean", "running_var")
            for item in operands
        )
