"""Jobs on task files: what a task is, what its graph is, what its reference computes. Run in a sandboxed child.

The reference never meets a candidate: it runs in a child of its own and its results go to the caller only.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.load import TaskDefect, TaskError, describe_error, init_arguments, load_task
from orienteer.environments.kernel.tensors import describe, to_bytes

#: A case whose inputs, or outputs, have more elements than this is no small one.
MAX_ELEMENTS = 400_000
#: Ways to fill floating-point inputs, beside the task's own: name -> meaning for people.
DISTRIBUTIONS = {
    "given": "the task's own inputs",
    "wide": "normal, standard deviation 3",
    "large": "normal, standard deviation 100",
    "negative": "negative only",
    "small": "the task's own, times 0.001",
    "sparse": "half of the elements zero",
    "stepped": "multiples of 0.5, so that equal values occur",
    "special": "the task's own, with a few elements infinite, NaN, minus zero, denormal or large",
    "zeros": "all zero",
}
#: An output is examined for signs of a task that is easily fooled from this many elements on.
_EXAMINED = 8
#: Below this range, deviation or variation an output tells little (robust-kbench's task filter).
_NARROW = 0.01


#: What can be sent, compared and made into a kernel's argument.
SUPPORTED_DTYPES = frozenset(
    {"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"}
)


def inspect_task(message: Message) -> Message:
    """Describe a task: inputs, outputs and state at its true shapes.

    Header in: ``source``. Header out: ``inputs`` and ``outputs`` (descriptions or plain values), ``state`` (name,
    description, kind), ``fake`` (whether shapes were derived without computing), or ``error``.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    try:
        with _shapes_only() as fake:
            task = load_task(message.header["source"])
            inputs, model = _instantiate(task)
            with torch.no_grad():
                outputs = model(*inputs)
    except BaseException:
        # Some operators have no shape rule, some task files look at values; then everything is really run once.
        try:
            fake = False
            task = load_task(message.header["source"])
            inputs, model = _instantiate(task)
            with torch.no_grad():
                outputs = model(*inputs)
        except TaskError as error:
            return Message({"error": str(error)})
        except BaseException as error:
            return Message({"error": f"the reference raises {describe_error(error, 'task.py')}"})
    leaves = tree_leaves(outputs)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return Message({"error": "forward must return a tensor or a tuple of tensors"})
    if not any(isinstance(item, torch.Tensor) for item in inputs):
        return Message({"error": "get_inputs returns no tensor"})
    parameters = {name for name, _ in model.named_parameters()}
    try:
        plain = [None if isinstance(item, torch.Tensor) else _plain(item) for item in inputs]
        init = _plain(init_arguments(task))
    except TaskError as error:
        return Message({"error": str(error)})
    for item in [*inputs, *leaves]:
        if isinstance(item, torch.Tensor) and str(item.dtype).removeprefix("torch.") not in SUPPORTED_DTYPES:
            return Message({"error": f"tensors of dtype {str(item.dtype).removeprefix('torch.')} are not supported"})
    return Message(
        {
            "fake": fake,
            "inputs": [
                describe(item) if isinstance(item, torch.Tensor) else {"value": value}
                for item, value in zip(inputs, plain, strict=True)
            ],
            "outputs": [describe(leaf) for leaf in leaves],
            "single_output": isinstance(outputs, torch.Tensor),
            "state": [
                {"name": name, "kind": "parameter" if name in parameters else "buffer", **describe(value)}
                for name, value in model.state_dict().items()
            ],
            "init": init,
        }
    )


@contextlib.contextmanager
def _shapes_only() -> Iterator[bool]:
    """Make tensors without memory: shapes and dtypes are derived, nothing is computed."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=False):
        yield True


def _instantiate(task: Any) -> tuple[list[Any], Any]:
    try:
        inputs = task.get_inputs()
    except Exception as error:
        raise TaskError(f"get_inputs raises {describe_error(error, 'task.py')}") from None
    if not isinstance(inputs, (list, tuple)):
        raise TaskError("get_inputs must return a list")
    arguments, keywords = init_arguments(task)
    try:
        model = task.Model(*arguments, **keywords)
    except Exception as error:
        raise TaskError(f"Model(...) raises {describe_error(error, 'task.py')}") from None
    return list(inputs), model


def _plain(value: Any) -> Any:
    """Return constructor or input values as JSON-ready data.

    Raises:
        TaskError: a value has no plain form.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    raise TaskError(f"a constructor argument or input of type {type(value).__name__} is not supported")


def reference_cases(message: Message) -> Message:
    """Compute the reference on hidden cases, natively and in float64.

    Header in: ``cases``, each with ``source`` (rewritten to the case's shapes), ``seed``, ``distribution``, ``calls``
    (how many input sets for one instance) and perhaps ``dtype`` (floating-point inputs and state are cast to it) and
    ``whole`` (of any size). Header out: ``cases`` in the same order, each either ``{"error": ..., "defect": bool}`` (a
    defect rules the whole task out) or the descriptions of ``init``, ``state`` and ``calls`` (``inputs``,
    ``expected``, ``exact``), whose blobs follow in that order, with ``moving`` (buffers that a call changes) and
    ``signs`` (see :func:`_signs`; None where the outputs are too few to tell).
    """
    blobs: list[bytes] = []
    out = [_reference_case(case, blobs) for case in message.header["cases"]]
    return Message({"cases": out}, tuple(blobs))


def _reference_case(case: Mapping[str, Any], blobs: list[bytes]) -> dict[str, Any]:
    import torch

    mark = len(blobs)

    def put(tensor: torch.Tensor) -> dict[str, Any]:
        blobs.append(to_bytes(tensor))
        return {**describe(tensor), "blob": len(blobs) - 1}

    try:
        torch.manual_seed(case["seed"])
        task = load_task(case["source"])
        _, model = _instantiate(task)
        _perturb(model)
        dtype = getattr(torch, case["dtype"]) if "dtype" in case else None
        if dtype is not None:
            model = model.to(dtype)
        arguments, keywords = init_arguments(task)
        state = [{"name": name, **put(value)} for name, value in model.state_dict().items()]
        frozen = {name: value.clone() for name, value in model.state_dict().items()}
        calls, moving, results = [], set(), []
        for call in range(case["calls"]):
            torch.manual_seed(case["seed"] + 1 + call)
            inputs = [_fill(item, case["distribution"]) for item in task.get_inputs()]
            if dtype is not None:
                inputs = [item.to(dtype) if _floating(item) else item for item in inputs]
            kept = [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs]
            if not case.get("whole"):
                _small_enough([*inputs, *frozen.values()])
            expected = _run(model, inputs)
            if not case.get("whole"):
                _small_enough(expected)
            if any(isinstance(a, torch.Tensor) and not _same(a, b) for a, b in zip(inputs, kept, strict=True)):
                raise TaskDefect("the reference changes its inputs; in-place operators are not supported")
            moving |= {name for name, value in model.state_dict().items() if not _same(value, frozen[name])}
            model.load_state_dict(frozen)
            again = _run(model, [k.clone() if isinstance(k, torch.Tensor) else k for k in kept])
            model.load_state_dict(frozen)
            if not all(_same(a, b) for a, b in zip(expected, again, strict=True)):
                raise TaskDefect("the reference is not deterministic (dropout or another random operator)")
            if call == 0 and not _determined_by_state(task, case["seed"], frozen, kept, expected, dtype):
                raise TaskDefect("the reference holds random tensors that are neither parameters nor buffers")
            exact = _exact(task, frozen, kept, expected)
            if case["distribution"] == "special":
                if not all(_agree(a, b) for a, b in zip(expected, exact, strict=True)):
                    raise TaskError("with special values the reference differs between float32 and float64")
            elif case["distribution"] != "given" and _spoiled(task, case, call, model, frozen, expected):
                raise TaskError(f"the distribution {case['distribution']!r} leaves the operator's domain")
            results.append((kept, expected))
            calls.append(
                {
                    "inputs": [put(k) if isinstance(k, torch.Tensor) else {"value": _plain(k)} for k in kept],
                    "expected": [put(item) for item in expected],
                    "exact": [put(item) for item in exact],
                }
            )
    except BaseException as error:
        del blobs[mark:]
        text = (
            str(error) if isinstance(error, TaskError) else f"the reference raises {describe_error(error, 'task.py')}"
        )
        return {"error": text, "defect": isinstance(error, TaskDefect)}
    signs = _signs(task, case, frozen, results) if case["distribution"] == "given" and dtype is None else None
    return {
        "init": _plain((arguments, keywords)),
        "state": state,
        "calls": calls,
        "moving": sorted(moving),
        "signs": signs,
    }


def _floating(item: Any) -> bool:
    return bool(hasattr(item, "dtype") and item.dtype.is_floating_point)


def _agree(left: Any, right: Any) -> bool:
    """True when NaN and the infinities stand at the same places."""
    import torch

    one, other = left.double(), right.double()
    return bool(
        torch.equal(torch.isnan(one), torch.isnan(other))
        and torch.equal(torch.isposinf(one), torch.isposinf(other))
        and torch.equal(torch.isneginf(one), torch.isneginf(other))
    )


def _signs(
    task: Any, case: Mapping[str, Any], frozen: Mapping[str, Any], results: list[tuple[list[Any], list[Any]]]
) -> list[str] | None:
    """Return the signs of a task whose result can be had without its work, after robust-kbench's task filter.

    ``ignores-inputs`` (other inputs, same outputs), ``constant`` (one value everywhere), ``ignores-parameters`` (other
    parameters, same outputs), ``narrow-range`` (all within 0.01 of zero), ``low-deviation`` (standard deviation below
    0.01), ``low-variation`` (along some axis the mean deviation is below 0.01). None where outputs are too small to
    tell.
    """
    import torch

    outputs = [[item.double() for item in expected] for _, expected in results]
    if max(item.numel() for item in outputs[0]) < _EXAMINED and len(outputs) < 2:
        return None
    out = []
    if all(_same(a, b) for other in outputs[1:] for a, b in zip(outputs[0], other, strict=True)):
        out.append("ignores-inputs")
    parameters = any(_floating(value) and value.numel() for value in frozen.values())
    if parameters and _parameters_ignored(task, case["seed"], *results[0]):
        out.append("ignores-parameters")
    large = [item for item in outputs[0] if item.numel() >= _EXAMINED]
    if not large:
        return out or None
    if all(bool((item == item.flatten()[0]).all()) for item in large):
        out.append("constant")
    if all(float(item.abs().max()) <= _NARROW for item in large):
        out.append("narrow-range")
    if all(float(item.std()) < _NARROW for item in large):
        out.append("low-deviation")
    axes = [(item, axis) for item in large for axis in range(item.dim()) if item.shape[axis] > 1]
    if any(float(torch.std(item, dim=axis).mean()) < _NARROW for item, axis in axes):
        out.append("low-variation")
    return out


def _parameters_ignored(task: Any, seed: int, inputs: list[Any], expected: list[Any]) -> bool:
    """Return whether an instance with other parameters gives the same outputs."""
    import torch

    torch.manual_seed(seed + 104729)
    arguments, keywords = init_arguments(task)
    model = task.Model(*arguments, **keywords)
    _perturb(model)
    other = _run(model, [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs])
    return len(other) == len(expected) and all(_same(a, b) for a, b in zip(other, expected, strict=True))


def _small_enough(values: list[Any]) -> None:
    elements = sum(item.numel() for item in values if hasattr(item, "numel"))
    if elements > MAX_ELEMENTS:
        raise TaskError(f"{elements} elements are no small shape")


def _run(model: Any, inputs: list[Any]) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [leaf.detach().clone() for leaf in tree_leaves(model(*inputs)) if isinstance(leaf, torch.Tensor)]


def _same(left: Any, right: Any) -> bool:
    import torch

    return left.shape == right.shape and torch.equal(
        torch.nan_to_num(left.double(), nan=0.125), torch.nan_to_num(right.double(), nan=0.125)
    )


def _perturb(model: Any) -> None:
    """Move the parameters off their initial values, so that a kernel which ignores a weight of ones is seen."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dtype.is_floating_point and parameter.numel():
                spread = float(parameter.float().std()) if parameter.numel() > 1 else 0.0
                noise = torch.randn_like(parameter) * (spread if 0 < spread < 10 else 0.3) * 0.5
                parameter.add_(noise)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(0.3 * torch.randn_like(buffer))
            elif name.endswith("running_var"):
                buffer.mul_(1.0 + 0.5 * torch.rand_like(buffer))


def _fill(item: Any, distribution: str) -> Any:
    import torch

    if not _floating(item) or distribution == "given":
        return item
    if distribution == "zeros":
        return torch.zeros_like(item)
    if distribution == "special":
        return _special(item)
    if distribution == "wide":
        return (torch.randn_like(item.float()) * 3).to(item.dtype)
    if distribution == "large":
        return (torch.randn_like(item.float()) * 100).to(item.dtype)
    if distribution == "negative":
        return (-torch.randn_like(item.float()).abs() - 0.01).to(item.dtype)
    if distribution == "small":
        return item * 0.001
    if distribution == "sparse":
        return item * (torch.rand_like(item.float()) < 0.5).to(item.dtype)
    if distribution == "stepped":
        return (torch.round(torch.randn_like(item.float()) * 4) / 2).to(item.dtype)
    raise ValueError(f"unknown distribution {distribution!r}")


def _special(item: Any) -> Any:
    """Replace a few elements; places and order of the values come from the seed that is set."""
    import torch

    limits = torch.finfo(item.dtype)
    values = [float("inf"), float("-inf"), float("nan"), -0.0, limits.tiny / 4, limits.max**0.5 / 16]
    out = item.clone().contiguous()
    flat = out.view(-1)
    count = min(len(values), max(1, flat.numel() // 8))
    if flat.numel():
        places = torch.randperm(flat.numel())[:count]
        chosen = torch.tensor(values, dtype=torch.float64)[torch.randperm(len(values))[:count]]
        flat[places] = chosen.to(item.dtype)
    return out


def _spoiled(task: Any, case: Mapping[str, Any], call: int, model: Any, frozen: Any, expected: list[Any]) -> bool:
    """True when a distribution makes the reference non-finite although the task's own inputs do not."""
    import torch

    if all(bool(torch.isfinite(item.double()).all()) for item in expected):
        return False
    torch.manual_seed(case["seed"] + 1 + call)
    plain = _run(model, list(task.get_inputs()))
    model.load_state_dict(frozen)
    return all(bool(torch.isfinite(item.double()).all()) for item in plain)


def _determined_by_state(
    task: Any, seed: int, frozen: Mapping[str, Any], inputs: list[Any], expected: list[Any], dtype: Any = None
) -> bool:
    """Return True when another instance with the same parameters and buffers computes the same."""
    import torch

    torch.manual_seed(seed + 7919)
    arguments, keywords = init_arguments(task)
    model = task.Model(*arguments, **keywords)
    if dtype is not None:
        model = model.to(dtype)
    model.load_state_dict(dict(frozen))
    other = _run(model, [item.clone() if isinstance(item, torch.Tensor) else item for item in inputs])
    return len(other) == len(expected) and all(_same(a, b) for a, b in zip(other, expected, strict=True))


def _exact(task: Any, frozen: Mapping[str, Any], inputs: list[Any], expected: list[Any]) -> list[Any]:
    """Return the reference in float64; where it cannot run there, its native result."""
    import torch

    arguments, keywords = init_arguments(task)
    try:
        model = task.Model(*arguments, **keywords)
        model.load_state_dict(dict(frozen))
        model.double()
        wide = [i.double() if isinstance(i, torch.Tensor) and i.dtype.is_floating_point else i for i in inputs]
        exact = _run(model, wide)
    except Exception:
        return expected
    if len(exact) != len(expected) or any(a.shape != b.shape for a, b in zip(exact, expected, strict=True)):
        return expected
    return exact
