"""Running a compiled C++ candidate on hidden cases. Run in a sandboxed child that has NumPy and nothing else of weight.

Raw outputs go back to the caller, who alone knows what is right. Every call is made several times: with another
filling of the outputs (what is left unwritten shows), and with two threads (a race shows, if it happens).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from orienteer.environments.execution.results import Message
from orienteer.environments.kernel.cpu_buffers import (
    POISON,
    Arguments,
    Fenced,
    as_tensor,
    byte_count,
    floating,
    load_forward,
)

#: (threads, filling of the outputs) of the runs of one call; the first one is judged, the others must agree.
RUNS = ((1, "nan"), (1, "number"), (2, "nan"), (2, "number"))
#: ``mallopt(M_PERTURB)``: fresh memory of the candidate holds garbage.
_M_PERTURB, _GARBAGE = -6, 0xA5


def run_library(message: Message) -> Message:
    """Run a candidate's library on cases.

    Header in: ``cases``, each with ``state``, ``calls`` (``inputs`` and the descriptions of the ``outputs``); the first
    blob is the library, the blobs of the cases follow. Header out: ``cases`` with ``calls`` (output descriptions with
    blob numbers), ``variants`` (runs whose outputs differ from the first one's: call, threads, same_threads,
    outputs), ``mutated``, ``overrun``; or ``error``.
    """
    ctypes.CDLL(None).mallopt(_M_PERTURB, _GARBAGE)
    try:
        forward = load_forward(message.blobs[0])
    except (OSError, AttributeError) as error:
        return Message({"error": {"kind": "load", "message": f"the library cannot be loaded: {error}"}})
    blobs: list[bytes] = []
    cases = [_run_case(forward, case, message.blobs[1:], blobs) for case in message.header["cases"]]
    return Message({"cases": cases}, tuple(blobs))


class _Held:
    """Fenced tensors in the order of an argument."""

    def __init__(self, specs: Sequence[Mapping[str, Any]]) -> None:
        self.specs = [as_tensor(spec)[0] for spec in specs]
        self.buffers = [Fenced(byte_count(spec), floating(spec["dtype"])) for spec in self.specs]
        addresses = [0 if s["dtype"] == "none" else b.address for s, b in zip(self.specs, self.buffers, strict=True)]
        self.arguments = Arguments(self.specs, addresses)
        self._before: list[bytes] = [b""] * len(self.buffers)

    def fill(self, specs: Sequence[Mapping[str, Any]], data: Sequence[bytes]) -> None:
        """Set the values."""
        for position, (buffer, spec) in enumerate(zip(self.buffers, specs, strict=True)):
            own = as_tensor(spec)[1]
            self._before[position] = data[spec["blob"]] if own is None else own
            buffer.fill(self._before[position])

    def poison(self, kind: str) -> None:
        """Fill outputs with what no kernel leaves there."""
        for buffer, spec in zip(self.buffers, self.specs, strict=True):
            byte = POISON[kind][0 if floating(spec["dtype"]) else 1]
            buffer.bytes[:] = byte if spec["dtype"] != "bool" else byte & 1

    def unchanged(self) -> bool:
        """Return True while the values are those that were set."""
        pairs = zip(self.buffers, self._before, strict=True)
        return all(buffer.bytes.tobytes() == before for buffer, before in pairs)

    def intact(self) -> bool:
        """Return True while nothing was written beside a tensor."""
        return all(buffer.intact() for buffer in self.buffers)


def _run_case(forward: Any, case: Mapping[str, Any], data: Sequence[bytes], blobs: list[bytes]) -> dict[str, Any]:
    state, inputs = _Held(case["state"]), _Held(case["calls"][0]["inputs"])
    outputs = _Held(case["calls"][0]["outputs"])
    state.fill(case["state"], data)
    mutated = overrun = False
    calls: list[list[dict[str, Any]]] = []
    variants: list[dict[str, Any]] = []

    def sent(results: Sequence[bytes]) -> list[dict[str, Any]]:
        described = []
        for spec, result in zip(outputs.specs, results, strict=True):
            blobs.append(result)
            described.append({"shape": list(spec["shape"]), "dtype": spec["dtype"], "blob": len(blobs) - 1})
        return described

    for number, call in enumerate(case["calls"]):
        inputs.fill(call["inputs"], data)
        first: list[bytes] = []
        for threads, filling in RUNS:
            outputs.poison(filling)
            forward(inputs.arguments.address, state.arguments.address, outputs.arguments.address, threads)
            results = [buffer.bytes.tobytes() for buffer in outputs.buffers]
            if not first:
                first = results
                calls.append(sent(results))
            elif results != first and len(variants) < 8:
                variants.append({"call": number, "threads": threads, "outputs": sent(results)})
            overrun = overrun or not (state.intact() and inputs.intact() and outputs.intact())
            mutated = mutated or not (state.unchanged() and inputs.unchanged())
    return {"calls": calls, "variants": variants, "mutated": mutated, "overrun": overrun}
