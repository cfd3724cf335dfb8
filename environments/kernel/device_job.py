"""Timing one module on an accelerator. Run in a sandboxed child that sees the device.

The candidate and the reference are timed by the same code in processes of their own; neither process has the other's
source or results. Every timed call gets fresh copies of its inputs, the cache is overwritten before it, and the clock
stops only after the whole device is idle, so that work on another stream is counted. Outputs of some timed calls,
chosen by the caller, go back and are judged there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.load import describe_error, load_module
from orienteer.environments.kernel.tensors import describe, from_bytes, to_bytes

#: What is written between timed calls, bytes: more than the last-level cache of any device.
FLUSH_BYTES = 512 << 20


class _Device:
    """The parts of torch that time things, held before any candidate's code runs."""

    def __init__(self, kind: str) -> None:
        import torch

        if kind == "npu":
            try:
                import torch_npu  # type: ignore[import-not-found]  # noqa: F401
            except ImportError as error:
                raise LookupError(f"torch_npu cannot be imported ({error})") from None
        module = getattr(torch, "npu" if kind == "npu" else "cuda", None)
        if module is None or not module.is_available():
            raise LookupError(f"torch sees no {'NPU' if kind == 'npu' else 'CUDA or HIP device'}")
        self.kind = kind
        self.module = module
        self.synchronize: Callable[[], None] = module.synchronize
        self.event = module.Event
        self.clock = time.perf_counter
        self.name = str(module.get_device_name(0))

    def patched(self) -> bool:
        """Return whether a candidate replaced what times it."""
        return self.module.synchronize is not self.synchronize or self.module.Event is not self.event


def time_module(message: Message) -> Message:
    """Time a module's ``forward``.

    Header in: ``source``, ``name`` of the class, ``device`` (``cuda`` or ``npu``), ``case`` (``init``, ``state`` and
    ``calls`` with ``inputs``, as from ``reference_cases``), ``warmup``, ``rounds``, ``keep`` (numbers of timed rounds).
    Header out: ``unavailable`` with the reason; or ``error`` with ``kind``; or ``seconds`` by the device's events and
    ``host_seconds`` for each round, ``kept`` (``round``, ``call`` and ``outputs`` with blob numbers) and ``device``.
    """
    header = message.header
    try:
        device = _Device(str(header["device"]))
    except LookupError as error:
        return Message({"unavailable": str(error)})
    try:
        module = load_module("candidate", header["source"])
        return _time(device, getattr(module, header["name"]), header, message.blobs)
    except BaseException as error:
        return Message({"error": {"kind": "runtime", "message": describe_error(error, "candidate.py")}})


def _time(device: _Device, factory: Any, header: Mapping[str, Any], blobs: tuple[bytes, ...]) -> Message:
    import torch

    case = header["case"]
    arguments, keywords = case["init"]
    model = factory(*arguments, **keywords)
    state = model.state_dict()
    for spec in case["state"]:
        state[spec["name"]].copy_(from_bytes(spec, blobs[spec["blob"]]))
    model = model.to(device.kind)
    sets = [
        [
            item["value"] if "value" in item else from_bytes(item, blobs[item["blob"]]).to(device.kind)
            for item in call["inputs"]
        ]
        for call in case["calls"]
    ]
    cache = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device.kind)
    seconds: list[float] = []
    host: list[float] = []
    kept: list[dict[str, Any]] = []
    out: list[bytes] = []
    with torch.no_grad():
        for number in range(-int(header["warmup"]), int(header["rounds"])):
            chosen = number % len(sets)
            inputs = [item.clone() if hasattr(item, "clone") else item for item in sets[chosen]]
            cache.fill_(number)
            start, stop = device.event(enable_timing=True), device.event(enable_timing=True)
            device.synchronize()
            began = device.clock()
            start.record()
            result = model(*inputs)
            device.synchronize()
            stop.record()
            stop.synchronize()
            ended = device.clock()
            if device.patched():
                return Message({"error": {"kind": "cheat:patched", "message": "forward replaced the device's clock"}})
            if number < 0:
                continue
            seconds.append(start.elapsed_time(stop) / 1e3)
            host.append(ended - began)
            if number in header["keep"]:
                outputs = []
                for item in result if isinstance(result, (tuple, list)) else (result,):
                    outputs.append({**describe(item.contiguous()), "blob": len(out)})
                    out.append(to_bytes(item))
                kept.append({"round": number, "call": chosen, "outputs": outputs})
    return Message({"seconds": seconds, "host_seconds": host, "kept": kept, "device": device.name}, tuple(out))
