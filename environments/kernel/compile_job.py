"""Recording a candidate's launches at the task's true shapes and lowering them to Triton IR. Run in a sandboxed child.

Nothing is computed: tensors have shapes only. Where a candidate needs real memory (``data_ptr``), it is run again with
zeros that are never touched. Each distinct launch (kernel, argument types, constants, options) is lowered once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.load import describe_error, load_module
from orienteer.environments.kernel.recording import bind, grid_of, patch_tuners
from orienteer.environments.kernel.tensors import describe
from orienteer.environments.kernel.watching import Watch, refuse_host_arguments

#: Distinct launches of one candidate that are compiled.
MAX_KERNELS = 32


def lower_launches(message: Message) -> Message:
    """Record and lower.

    Header in: ``source``, ``init``, ``inputs`` and ``state`` (true shapes), ``arch`` (front-half target: ``[backend,
    arch, warp size]``). Header out: ``kernels``, each ``name``, ``grid``, ``signature``, ``constants``, ``scalars``
    (argument values at the true shapes), ``calls`` (each distinct ``grid``, ``scalars`` and ``tensors``, the bytes of
    the tensor behind each pointer, with its ``count``), ``options`` and the number of the blob with its TTIR, with
    ``outputs`` and ``library_calls`` (what ``forward`` returned and called at the true shapes), or ``error``.
    """
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    notes: set[str] = set()
    recorder = Recorder(notes)
    try:
        module = load_module("candidate", message.header["source"])
    except BaseException as error:
        return Message({"error": {"kind": "load", "message": describe_error(error, "candidate.py")}})
    try:
        recorder.record(module, message.header)
    except BaseException as error:
        return Message({"error": {"kind": "launch", "message": describe_error(error, "candidate.py")}})
    if not recorder.launches:
        return Message({"error": {"kind": "no-launch", "message": "forward launches no kernel at the task's shapes"}})
    if len(recorder.launches) > MAX_KERNELS:
        text = f"{len(recorder.launches)} distinct kernels are launched, at most {MAX_KERNELS} are compiled"
        return Message({"error": {"kind": "launch", "message": text}})
    kernels, blobs = [], []
    for launch in recorder.launches.values():
        try:
            ttir = _ttir(launch, message.header["arch"])
        except BaseException as error:
            return Message({"error": {"kind": "frontend", "message": f"{launch['name']}: {explain(error)}"}})
        blobs.append(ttir.encode())
        plain = {key: value for key, value in launch.items() if key not in ("fn", "attrs", "raw_constants")}
        kernels.append({**plain, "blob": len(blobs) - 1})
    return Message({"kernels": kernels, "notes": sorted(notes), **recorder.seen}, tuple(blobs))


class Recorder:
    """Stands where a launch would go to the device."""

    def __init__(self, notes: set[str]) -> None:
        from triton.runtime.jit import JITFunction

        self.launches: dict[str, dict[str, Any]] = {}
        #: ``outputs`` and ``library_calls`` at the true shapes.
        self.seen: dict[str, Any] = {"outputs": [], "library_calls": []}
        recorder = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
            arguments, options = bind(function, args, kwargs)
            refuse_host_arguments(function.fn, arguments)
            recorder.add(function, arguments, options, grid_of(grid, arguments))

        JITFunction.run = run
        patch_tuners(notes.add)

    def record(self, module: Any, header: Mapping[str, Any]) -> None:
        """Run the candidate's ``forward`` once at the true shapes."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        arguments, keywords = header["init"]
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
                model = module.ModelNew(*arguments, **keywords)
                self._call(model, self._inputs(header["inputs"], torch.empty))
            return
        except BaseException:
            # The candidate needs real memory or real values; zeros cost address space, not memory.
            self.launches.clear()
        with torch.no_grad():
            model = module.ModelNew(*arguments, **keywords)
            self._call(model, self._inputs(header["inputs"], torch.zeros))

    def _call(self, model: Any, inputs: list[Any]) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        with Watch(fence=False) as watch:
            result = model(*inputs)
        leaves = tree_leaves(result)
        self.seen = {
            "outputs": [
                describe(item) if isinstance(item, torch.Tensor) else {"type": type(item).__name__} for item in leaves
            ],
            "library_calls": sorted(watch.library_calls),
        }

    @staticmethod
    def _inputs(specs: Sequence[Mapping[str, Any]], make: Any) -> list[Any]:
        import torch

        return [
            spec["value"] if "value" in spec else make(tuple(spec["shape"]), dtype=getattr(torch, spec["dtype"]))
            for spec in specs
        ]

    def add(self, function: Any, arguments: dict[str, Any], options: dict[str, Any], grid: list[int]) -> None:
        """Keep one launch; equal ones are kept once with the largest grid."""
        import triton
        from triton.runtime.jit import JITFunction

        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        scalars: dict[str, Any] = {}
        tensors: dict[str, int] = {}
        attributes: dict[tuple[int, ...], list[Any]] = {}
        for position, parameter in enumerate(function.params):
            value = arguments[parameter.name]
            if isinstance(value, triton.language.constexpr):
                value = value.value
            if parameter.is_constexpr or value is None or isinstance(value, JITFunction):
                signature[parameter.name] = "constexpr"
                constants[parameter.name] = value
                continue
            kind, divisible = _type_of(value)
            if kind == "i32" and value == 1 and not parameter.do_not_specialize:
                # Triton turns the integer 1 into a constant.
                signature[parameter.name] = "constexpr"
                constants[parameter.name] = 1
                scalars[parameter.name] = 1
                continue
            signature[parameter.name] = kind
            if hasattr(value, "shape"):
                tensors[parameter.name] = value.numel() * value.element_size()
            else:
                scalars[parameter.name] = value
            if divisible and not parameter.do_not_specialize:
                attributes[(position,)] = [["tt.divisibility", 16]]
        name = function.fn.__name__
        key = repr((name, signature, {k: str(v) for k, v in constants.items()}, sorted(options.items())))
        call = {"grid": grid, "scalars": scalars, "tensors": tensors}
        known = self.launches.get(key)
        if known is not None:
            _count(known["calls"], call)
            if grid[0] * grid[1] * grid[2] > known["grid"][0] * known["grid"][1] * known["grid"][2]:
                known["grid"] = grid
            known["launches"] += 1
            return
        self.launches[key] = {
            "name": name,
            "fn": function,
            "signature": signature,
            "constants": {
                k: v if isinstance(v, (bool, int, float, str)) or v is None else str(v) for k, v in constants.items()
            },
            "raw_constants": constants,
            "scalars": scalars,
            "calls": [{**call, "count": 1}],
            "attrs": attributes,
            "options": {k: v for k, v in options.items() if isinstance(v, (bool, int, float, str)) or v is None},
            "grid": grid,
            "launches": 1,
        }


def _count(calls: list[dict[str, Any]], call: dict[str, Any]) -> None:
    """Add one call to those with the same sizes."""
    for known in calls:
        if all(known[key] == value for key, value in call.items()):
            known["count"] += 1
            return
    calls.append({**call, "count": 1})


_DTYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float64": "fp64",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "i1",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}


def _type_of(value: Any) -> tuple[str, bool]:
    """Return Triton's type of an argument and whether it is divisible by 16."""
    if hasattr(value, "dtype"):
        name = str(value.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise TypeError(f"a kernel argument of dtype {name}")
        return f"*{_DTYPES[name]}", True
    if isinstance(value, bool):
        return "i1", False
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return "i32", value % 16 == 0
        return ("i64" if value < 2**63 else "u64"), value % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    if hasattr(value, "__index__"):
        return _type_of(int(value))
    raise TypeError(f"a kernel argument of type {type(value).__name__}")


def _ttir(launch: Mapping[str, Any], arch: Sequence[Any]) -> str:
    """Run the compiler's front half: Python syntax tree to optimised Triton IR."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend

    target = GPUTarget(*arch)
    backend = make_backend(target)
    source = ASTSource(launch["fn"], dict(launch["signature"]), dict(launch["raw_constants"]), dict(launch["attrs"]))
    options = backend.parse_options(dict(launch["options"]))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, source.language)
    module = stages["ttir"](module, {"target": target, **options.__dict__})
    return str(module)


def explain(error: BaseException) -> str:
    """Describe a front-end error with the kernel's line that it points at."""
    node = getattr(error, "node", None)
    source = getattr(error, "src", None)
    message = getattr(error, "error_message", None) or str(error)
    # Where a function of the language refused its arguments, Triton's text points at lines only; the reason stands
    # in the first error of the chain.
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    reason = getattr(cause, "error_message", None) or str(cause)
    if cause is not error and reason not in message:
        message = reason if type(cause) is type(error) else f"{type(cause).__name__}: {reason}"
    where = ""
    if node is not None and isinstance(source, str) and hasattr(node, "lineno"):
        lines = source.splitlines()
        if 0 < node.lineno <= len(lines):
            where = f" (at: {lines[node.lineno - 1].strip()[:160]})"
    return " ".join(f"{type(error).__name__}: {message}{where}".split())[:800]
