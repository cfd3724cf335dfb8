"""Running a candidate in Triton's interpreter on hidden cases. Run in a sandboxed child, never in the caller.

What comes back are raw outputs and facts about the run. Outputs are judged by the caller against a reference that this
process has never seen; the facts (launches, library calls, changed inputs) are this process's word, which is why the
static check bars a candidate from everything with which it could tamper with them.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.interpreting import Interpreter
from orienteer.environments.kernel.load import describe_error, load_module
from orienteer.environments.kernel.recording import grid_of
from orienteer.environments.kernel.snapshot import Snapshot
from orienteer.environments.kernel.tensors import Guarded, describe, from_bytes, to_bytes
from orienteer.environments.kernel.watching import Watch, refuse_host_arguments

#: Most elements of all outputs of a call, and most outputs, that are sent back.
MAX_OUTPUT = 1 << 22
MAX_OUTPUTS = 64
#: Most program instances of one launch at a small shape; the interpreter takes a millisecond for each.
MAX_PROGRAMS = 1 << 20


def _load_what_triton_loads_late() -> None:
    """Import what Triton imports at the first launch, a twentieth of a second that every job would pay for itself."""
    with contextlib.suppress(ImportError):
        importlib.import_module("triton.experimental.gluon")


_load_what_triton_loads_late()


class Refused(Exception):
    """The candidate cannot be run as given; ``kind`` is the failure class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def run_candidate(message: Message) -> Message:
    """Run a candidate on cases.

    Header in: ``source`` and ``cases`` (as from ``reference_cases``, without the expected values, plus ``strided``,
    ``backward`` and ``forward_order``). Every second call of a case runs the program instances of its launches from the
    last to the first; with ``backward`` the first call does, with ``forward_order`` none. Header out: ``cases`` in
    order with ``calls`` (``outputs`` descriptions with blob numbers), ``launches``, ``launches_by_call``,
    ``library_calls``, ``mutated`` (an input was changed), ``parameters`` (a parameter was changed), ``overrun``,
    ``reused`` (an earlier call's output changed in a later one), ``state`` (what the model holds and a call changed),
    ``race`` (what two instances of a launch do to one element), ``idle`` (outputs that stay the same with kernels
    switched off), or ``error`` with ``kind``.
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
        self.interpreter = Interpreter(self.notes.add)
        self.race: str | None = None
        self.call = 0
        original = InterpretedFunction.run
        harness = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
            from torch.utils._python_dispatch import _disable_current_modes

            arguments = _bound(function.fn, args, kwargs)
            refuse_host_arguments(function.fn, arguments)
            # The grid is the candidate's own code: it runs here, where it is watched.
            sizes = tuple(grid_of(grid, arguments))
            if len(function.pre_run_hooks) or warmup:
                raise TypeError("hooks and warm-up launches are not available to a candidate")
            name = function.fn.__name__
            harness.launches[name] = harness.launches.get(name, 0) + 1
            if math.prod(sizes) > MAX_PROGRAMS:
                raise ValueError(f"{name}: a grid of {math.prod(sizes)} instances at a small shape")
            if harness.active:
                with _disable_current_modes():
                    found = harness.interpreter.launch(
                        lambda: original(function, *args, grid=sizes, warmup=False, **kwargs),
                        name,
                        watched=harness.race is None,
                    )
                harness.race = harness.race or found
            return None

        InterpretedFunction.run = run
        self._tuners()

    def _tuners(self) -> None:
        """Let every call of an autotuned kernel run with the next of its configurations: all are judged in turn."""
        from triton.runtime.autotuner import Autotuner

        original = Autotuner.run
        harness = self

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            configs = tuner.configs
            if len(configs) > 1:
                harness.notes.add(f"autotune: {len(configs)} configurations, tried in turn; the first one was compiled")
            # Nothing is timed where there is no device.
            tuner.configs = [configs[harness.call % len(configs)]]
            try:
                return original(tuner, *args, **kwargs)
            finally:
                tuner.configs = configs

        Autotuner.run = run

    def run(self, factory: type, case: Mapping[str, Any], data: Sequence[bytes], blobs: list[bytes]) -> dict[str, Any]:
        """Run one case: a fresh instance, called once for every input set with the same tensors refilled."""
        import torch

        self.launches = {}
        self.race = None
        arguments, keywords = case["init"]
        torch.manual_seed(0)
        model = factory(*arguments, **keywords)
        if not isinstance(model, torch.nn.Module):
            raise Refused("contract", "ModelNew must be an nn.Module")
        if "dtype" in case:
            torch.nn.Module.to(model, getattr(torch, case["dtype"]))
        state = self._load_state(model, case["state"], data)
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
        calls, library, mutated, overrun, reused, changed = [], set(), False, False, False, ""
        parameters = False
        per_call: list[int] = []
        snapshot = Snapshot(model, moving=case.get("moving", ()))
        earlier: list[tuple[Any, bytes]] = []
        with torch.no_grad():
            for number, call in enumerate(case["calls"]):
                backward = (number % 2 == 1) != bool(case.get("backward"))
                self.interpreter.reversed = backward and not case.get("forward_order")
                originals = []
                for holder, spec in zip(held, call["inputs"], strict=True):
                    if holder is not None:
                        value = from_bytes(spec, data[spec["blob"]])
                        holder.tensor.copy_(value)
                        originals.append((holder, value))
                watch = Watch()
                with watch:
                    result = model(*inputs)
                self.call += 1
                changed = changed or snapshot.changed()
                outputs = self._outputs(result)
                library |= watch.library_calls
                overrun |= not watch.intact() or not all(
                    g.intact() for g in [*state.guards, *(g for g, _ in originals)]
                )
                parameters |= not state.unchanged()
                per_call.append(sum(self.launches.values()) - sum(per_call))
                reused |= any(to_bytes(output) != before for output, before in earlier)
                mutated = mutated or any(not _bitwise_equal(guard.tensor, value) for guard, value in originals)
                sent = []
                earlier = []
                for output in outputs:
                    blobs.append(to_bytes(output))
                    if not any(output.data_ptr() == guard.tensor.data_ptr() for guard, _ in originals):
                        earlier.append((output, blobs[-1]))
                    sent.append({**describe(output), "blob": len(blobs) - 1})
                calls.append(sent)
            launches = dict(self.launches)
            self.interpreter.reversed = False
            idle = self._idle(model, inputs, outputs) if case.get("probe_idle") else False
        return {
            "calls": calls,
            "launches": launches,
            "library_calls": sorted(library),
            "mutated": mutated,
            "parameters": parameters,
            "launches_by_call": per_call,
            "overrun": overrun,
            "reused": reused,
            "state": changed,
            "race": self.race,
            "idle": idle,
        }

    def _load_state(self, model: Any, state: Sequence[Mapping[str, Any]], data: Sequence[bytes]) -> _State:
        import torch

        own = torch.nn.Module.state_dict(model)
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
            if describe(own[name])["dtype"] != item["dtype"]:
                raise Refused(
                    "contract", f"{name} is {describe(own[name])['dtype']}, the reference's is {item['dtype']}"
                )
        values = {name: from_bytes(item, data[item["blob"]]) for name, item in wanted.items()}
        torch.nn.Module.load_state_dict(model, values)
        return _State(model)

    def _outputs(self, result: Any) -> list[Any]:
        import torch
        from torch.utils._pytree import tree_leaves

        leaves = tree_leaves(result)
        if not leaves or len(leaves) > MAX_OUTPUTS:
            raise Refused("contract", f"forward returns {len(leaves)} tensors")
        for leaf in leaves:
            if type(leaf) is not torch.Tensor:
                raise Refused("contract", f"forward returns a {type(leaf).__name__}; plain tensors are required")
            if leaf.layout is not torch.strided or leaf.device.type != "cpu" or leaf.is_quantized:
                raise Refused("contract", f"forward returns a tensor of layout {leaf.layout} on {leaf.device.type}")
        if (total := sum(leaf.numel() for leaf in leaves)) > MAX_OUTPUT:
            raise Refused("shape", f"outputs of {total} elements at a small shape")
        return leaves

    def _idle(self, model: Any, inputs: list[Any], outputs: list[Any]) -> bool:
        """Run once more with every kernel switched off: outputs that stay the same do not come from the kernels."""
        before = [output.clone() for output in outputs]
        self.active = False
        try:
            with Watch():
                after = self._outputs(model(*inputs))
        except Exception:
            return False
        finally:
            self.active = True
        return len(after) == len(before) and all(
            a.shape == b.shape and _bitwise_equal(a, b) for a, b in zip(after, before, strict=True)
        )


class _State:
    """A model's parameters and buffers, moved into guarded memory."""

    def __init__(self, model: Any) -> None:
        import torch

        self.guards: list[Guarded] = []
        self._values: list[tuple[Any, bytes]] = []
        parameters = [item for _, item in torch.nn.Module.named_parameters(model)]
        for item in [*parameters, *(item for _, item in torch.nn.Module.named_buffers(model))]:
            guard = Guarded(item.shape, item.dtype)
            guard.tensor.copy_(item.detach())
            item.data = guard.tensor
            self.guards.append(guard)
        self._values = [(item, to_bytes(item)) for item in parameters]

    def unchanged(self) -> bool:
        """Return True while every parameter has its value (buffers may be running statistics)."""
        return all(to_bytes(item) == before for item, before in self._values)


def _bound(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Match a launch's arguments to the kernel's parameters, as the interpreter does."""
    parameters = inspect.signature(fn).parameters
    bound = inspect.signature(fn).bind(*args, **{key: value for key, value in kwargs.items() if key in parameters})
    bound.apply_defaults()
    return dict(bound.arguments)


def _bitwise_equal(left: Any, right: Any) -> bool:
    return left.shape == right.shape and left.dtype == right.dtype and to_bytes(left) == to_bytes(right)
