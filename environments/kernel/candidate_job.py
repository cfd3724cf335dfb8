"""Running a candidate in Triton's interpreter on hidden cases. Run in a sandboxed child, never in the caller.

What comes back are raw outputs and facts about the run. Outputs are judged by the caller against a reference that this
process has never seen; the facts (launches, library calls, changed inputs) are this process's word, which is why the
static check bars a candidate from everything with which it could tamper with them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.load import describe_error, load_module
from orienteer.environments.kernel.recording import ALLOWED_ATEN, patch_tuners
from orienteer.environments.kernel.tensors import Guarded, describe, from_bytes, to_bytes

#: Most elements of one output that are sent back.
MAX_OUTPUT = 1 << 22


class Refused(Exception):
    """The candidate cannot be run as given; ``kind`` is the failure class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def run_candidate(message: Message) -> Message:
    """Run a candidate on cases.

    Header in: ``source`` and ``cases`` (as from ``reference_cases``, without the expected values, plus ``strided``).
    Header out: ``cases`` in order with ``calls`` (``outputs`` descriptions with blob numbers), ``launches``,
    ``library_calls``, ``mutated``, ``overrun``, ``idle`` (outputs that stay the same with kernels switched off), or
    ``error`` with ``kind``.
    """
    os.environ.setdefault("TRITON_INTERPRET", "1")
    harness = _Harness()
    blobs: list[bytes] = []
    try:
        module = load_module("candidate", message.header["source"])
    except BaseException as error:
        return Message({"error": {"kind": "load", "message": describe_error(error, "candidate.py")}})
    factory = getattr(module, "ModelNew", None)
    if not isinstance(factory, type):
        return Message({"error": {"kind": "load", "message": "the candidate defines no class ModelNew"}})
    cases = []
    for case in message.header["cases"]:
        mark = len(blobs)
        try:
            cases.append(harness.run(factory, case, message.blobs, blobs))
        except Refused as error:
            del blobs[mark:]
            cases.append({"error": {"kind": error.kind, "message": str(error)}})
        except BaseException as error:
            del blobs[mark:]
            kind = "interpreter" if type(error).__name__ == "InterpreterError" else "runtime"
            cases.append({"error": {"kind": kind, "message": _explain(error)}})
            break
    return Message({"cases": cases, "notes": sorted(harness.notes)}, tuple(blobs))


def _explain(error: BaseException) -> str:
    """Describe an exception by its cause: the interpreter wraps what really went wrong."""
    cause = error.__cause__ if error.__cause__ is not None else error
    return describe_error(cause, "candidate.py")


class _Harness:
    """Runs the cases of one candidate and watches."""

    def __init__(self) -> None:
        import triton  # noqa: F401  (the launch path must exist before it is replaced)
        from triton.runtime.interpreter import InterpretedFunction

        self.launches: dict[str, int] = {}
        self.active = True
        self.notes: set[str] = set()
        self.watch: Any = None
        original = InterpretedFunction.run
        harness = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            from torch.utils._python_dispatch import _disable_current_modes

            name = getattr(function.fn, "__name__", "kernel")
            harness.launches[name] = harness.launches.get(name, 0) + 1
            if not harness.active:
                return None
            with _disable_current_modes():
                return original(function, *args, grid=grid, warmup=warmup, **kwargs)

        InterpretedFunction.run = run
        patch_tuners(self.notes.add)

    def run(self, factory: type, case: Mapping[str, Any], data: Sequence[bytes], blobs: list[bytes]) -> dict[str, Any]:
        """Run one case: a fresh instance, called once for every input set with the same tensors refilled."""
        import torch

        self.launches = {}
        arguments, keywords = case["init"]
        torch.manual_seed(0)
        model = factory(*arguments, **keywords)
        if not isinstance(model, torch.nn.Module):
            raise Refused("contract", "ModelNew must be an nn.Module")
        self._load_state(model, case["state"], data)
        held: list[Guarded | None] = []
        inputs: list[Any] = []
        for spec in case["calls"][0]["inputs"]:
            if "value" in spec:
                held.append(None)
                inputs.append(spec["value"])
            else:
                guard = Guarded(spec["shape"], getattr(torch, spec["dtype"]), strided=case.get("strided", False))
                held.append(guard)
                inputs.append(guard.tensor)
        calls, library, mutated, overrun = [], set(), False, False
        with torch.no_grad():
            for call in case["calls"]:
                originals = []
                for holder, spec in zip(held, call["inputs"], strict=True):
                    if holder is not None:
                        value = from_bytes(spec, data[spec["blob"]])
                        holder.tensor.copy_(value)
                        originals.append((holder, value))
                watch = _Watch()
                with watch:
                    result = model(*inputs)
                outputs = self._outputs(result)
                library |= watch.library_calls
                overrun = overrun or not watch.intact() or any(not guard.intact() for guard, _ in originals)
                mutated = mutated or any(not _bitwise_equal(guard.tensor, value) for guard, value in originals)
                sent = []
                for output in outputs:
                    blobs.append(to_bytes(output))
                    sent.append({**describe(output), "blob": len(blobs) - 1})
                calls.append(sent)
            launches = dict(self.launches)
            idle = self._idle(model, inputs, outputs) if case.get("probe_idle") else False
        return {
            "calls": calls,
            "launches": launches,
            "library_calls": sorted(library),
            "mutated": mutated,
            "overrun": overrun,
            "idle": idle,
        }

    def _load_state(self, model: Any, state: Sequence[Mapping[str, Any]], data: Sequence[bytes]) -> None:
        own = model.state_dict()
        wanted = {item["name"]: item for item in state}
        missing = sorted(set(wanted) - set(own))
        if missing:
            raise Refused(
                "contract", f"ModelNew lacks the parameters or buffers {', '.join(missing[:4])}; keep Model's names"
            )
        extra = sorted(set(own) - set(wanted))
        if extra:
            raise Refused("contract", f"ModelNew has parameters or buffers that Model lacks: {', '.join(extra[:4])}")
        for name, item in wanted.items():
            if list(own[name].shape) != list(item["shape"]):
                raise Refused(
                    "contract", f"{name} has shape {list(own[name].shape)}, the reference's has {item['shape']}"
                )
        model.load_state_dict({name: from_bytes(item, data[item["blob"]]) for name, item in wanted.items()})

    def _outputs(self, result: Any) -> list[Any]:
        import torch
        from torch.utils._pytree import tree_leaves

        leaves = tree_leaves(result)
        for leaf in leaves:
            if type(leaf) is not torch.Tensor:
                raise Refused("contract", f"forward returns a {type(leaf).__name__}; plain tensors are required")
            if leaf.numel() > MAX_OUTPUT:
                raise Refused("contract", f"an output of {leaf.numel()} elements at a small shape")
        return leaves

    def _idle(self, model: Any, inputs: list[Any], outputs: list[Any]) -> bool:
        """Run once more with every kernel switched off: outputs that stay the same do not come from the kernels."""
        before = [output.clone() for output in outputs]
        self.active = False
        try:
            with _Watch():
                after = self._outputs(model(*inputs))
        except Exception:
            return False
        finally:
            self.active = True
        return len(after) == len(before) and all(
            a.shape == b.shape and _bitwise_equal(a, b) for a, b in zip(after, before, strict=True)
        )


def _bitwise_equal(left: Any, right: Any) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and to_bytes(left) == to_bytes(right)


def _watch_class() -> type:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        """Sees every ATen call outside kernels; fresh memory is poisoned and fenced."""

        def __init__(self) -> None:
            super().__init__()
            self.library_calls: set[str] = set()
            self.guards: list[Guarded] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.name().split("::")[-1].split(".")[0]
            if name not in ALLOWED_ATEN:
                self.library_calls.add(name)
            result = func(*args, **(kwargs or {}))
            if name in ("empty", "empty_like", "new_empty") and type(result) is torch.Tensor and result.is_contiguous():
                guard = Guarded(result.shape, result.dtype)
                if result.dtype.is_floating_point:
                    guard.tensor.fill_(float("nan"))
                else:
                    guard.tensor.view(torch.uint8).fill_(0x5A) if result.dtype != torch.bool and result.dim() else None
                self.guards.append(guard)
                return guard.tensor
            return result

        def intact(self) -> bool:
            """Return True while nothing was written beside the memory that the candidate allocated."""
            return all(guard.intact() for guard in self.guards)

    return Watch


def _Watch() -> Any:
    global _watch
    if _watch is None:
        _watch = _watch_class()
    return _watch()


_watch: type | None = None
