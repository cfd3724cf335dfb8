"""What gates are made of: answers, the judgement of single cases, the facts of a run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from orienteer.environments.kernel.tensors import array
from orienteer.environments.kernel.world import TaskInfo
from orienteer.evaluators.kernel.compare import RELATIVE, Comparison, compare
from orienteer.evaluators.kernel.verdict import Gate


@dataclass(frozen=True)
class HiddenCases:
    """Small shapes and values that a candidate never sees in advance, with what the reference gives for them."""

    cases: Sequence[Mapping[str, Any]]
    blobs: tuple[bytes, ...]
    #: In words, for the record.
    described: Sequence[str]
    #: Signs that the task is easily fooled: ``narrow-range``, ``low-variation`` ...; see :mod:`.hidden`.
    flags: tuple[str, ...] = ()
    #: One small case in each further dtype in which the reference runs; ``dtype`` names it. Their blobs are among
    #: ``blobs``.
    dtype_cases: Sequence[Mapping[str, Any]] = ()


#: Most elements by the largest rank of its tensors, and most lines along the last dimension, of one hidden case: the
#: interpreter takes about a millisecond for every turn of a program, and images are walked in short turns.
MAX_CASE_ELEMENTS = {0: 350_000, 1: 350_000, 2: 350_000, 3: 24_000, 4: 8_000}
MAX_CASE_LINES = {0: 600, 1: 600, 2: 600, 3: 270, 4: 240}

#: Errors of float16 and bfloat16 arithmetic, as a share of the root mean square, are below this.
_SHORTER = 2e-2


class Finding(Protocol):
    """One broken rule of a static check; ``code`` stands after ``cheat:`` but for ``syntax`` and ``contract``."""

    @property
    def code(self) -> str:
        """The rule."""

    @property
    def line(self) -> int:
        """Where, from 1; 0 for the whole file."""

    @property
    def message(self) -> str:
        """What is wrong."""


def static_gate(findings: Sequence[Finding]) -> Gate:
    """Return the gate of a static check: the first broken rule, and how many there are."""
    if not findings:
        return Gate("static", "passed")
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    kind = first.code if first.code in ("syntax", "contract") else f"cheat:{first.code}"
    where = f"line {first.line}: " if first.line else ""
    listed = [{"code": f.code, "line": f.line, "message": f.message} for f in findings[:20]]
    return Gate("static", "failed", f"{where}{first.message}{more}", kind, {"findings": listed})


def at_true_shapes(header: Mapping[str, Any], info: TaskInfo) -> Gate | None:
    """Judge what forward called and returned at the task's own shapes, where nothing is computed."""
    if header["library_calls"]:
        names = ", ".join(header["library_calls"][:4])
        text = f"at the task's shapes forward computes with torch: {names}"
        return Gate("compile", "failed", text, "cheat:library-call")
    given, wanted = header["outputs"], list(info.outputs)
    strange = [item["type"] for item in given if "type" in item]
    if strange:
        return Gate("compile", "failed", f"forward returns a {strange[0]}; plain tensors are required", "contract")
    if len(given) != len(wanted):
        text = f"at the task's shapes forward returns {len(given)} outputs, the reference {len(wanted)}"
        return Gate("compile", "failed", text, "shape")
    for position, (one, other) in enumerate(zip(given, wanted, strict=True)):
        for key in ("shape", "dtype"):
            if one.get(key) != other[key]:
                text = (
                    f"at the task's shapes output {position} has {key} {one.get(key)}, the reference gives {other[key]}"
                )
                return Gate("compile", "failed", text, key)
    return None


def judged_everywhere(compiled: Gate, ran: Gate, honest: Gate) -> Gate:
    """Refuse kernels that are launched at the task's shapes and on no hidden case: their results were never seen."""
    launched = set(ran.facts.get("launched", ()))
    unseen = [k["name"] for k in compiled.facts.get("kernels", ()) if k["name"] not in launched]
    if honest.status == "failed" or ran.status != "passed" or not unseen:
        return honest
    text = f"{unseen[0]} is launched at the task's shapes and on no small one, so it was never checked; use one for all"
    return Gate("honest", "failed", text, "unjudged-kernel")


def _shapes(answer: Mapping[str, Any]) -> list[list[int]]:
    call = answer["calls"][0]
    return [spec["shape"] for spec in [*answer["state"], *call["inputs"], *call["expected"]] if "shape" in spec]


def elements(answer: Mapping[str, Any]) -> int:
    """Return the number of elements of a case: parameters, inputs and outputs."""
    return sum(math.prod(shape) for shape in _shapes(answer))


def row_length(answer: Mapping[str, Any]) -> int:
    """Return the longest last dimension of a case."""
    return max((shape[-1] for shape in _shapes(answer) if shape), default=1)


def lines(answer: Mapping[str, Any]) -> int:
    """Return the most lines along a last dimension that a tensor of a case has."""
    return max((math.prod(shape) // max(1, shape[-1]) for shape in _shapes(answer) if shape), default=1)


def cost(answer: Mapping[str, Any]) -> float:
    """Return the size of a case as a share of what is allowed."""
    rank = min(4, max((len(shape) for shape in _shapes(answer)), default=0))
    return max(elements(answer) / MAX_CASE_ELEMENTS[rank], lines(answer) / MAX_CASE_LINES[rank])


def repack(answer: Mapping[str, Any], blobs: Sequence[bytes], kept: list[bytes]) -> dict[str, Any]:
    """Copy a case and give its blobs new numbers in ``kept``."""

    def move(spec: Mapping[str, Any]) -> dict[str, Any]:
        if "blob" not in spec:
            return dict(spec)
        kept.append(blobs[spec["blob"]])
        return {**spec, "blob": len(kept) - 1}

    return {
        "init": answer["init"],
        "moving": list(answer.get("moving", ())),
        "state": [move(item) for item in answer["state"]],
        "calls": [{part: [move(item) for item in items] for part, items in call.items()} for call in answer["calls"]],
    }


def only_inputs(
    cases: Sequence[Mapping[str, Any]], blobs: Sequence[bytes], *, outputs: bool = False
) -> tuple[list[dict[str, Any]], tuple[bytes, ...]]:
    """Return cases as a candidate may see them, with the blobs of nothing else: expected values stay with the caller.

    Args:
        cases: hidden cases.
        blobs: their tensors.
        outputs: tell shapes and dtypes of the outputs, for a harness that allocates them.
    """
    kept: list[bytes] = []
    out = []
    for case in cases:
        calls: list[dict[str, Any]] = [{"inputs": call["inputs"]} for call in case["calls"]]
        if outputs:
            for shown, call in zip(calls, case["calls"], strict=True):
                shown["outputs"] = [{key: item[key] for key in ("shape", "dtype")} for item in call["expected"]]
        repacked = repack({**case, "calls": calls}, blobs, kept)
        options = {key: case[key] for key in ("dtype", "backward", "forward_order") if key in case}
        out.append({**repacked, "strided": case["strided"], "probe_idle": case["probe_idle"], **options})
    return out, tuple(kept)


@dataclass(frozen=True)
class _Judged:
    """One output of one call with what the reference gives."""

    call: int
    position: int
    spec: Mapping[str, Any]
    data: bytes
    expected: Any
    exact: Any
    comparison: Comparison


def _compared(
    case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> Iterator[_Judged | tuple[str, str]]:
    """Yield every output of a case with its comparison, or (kind, message) where there is nothing to compare."""
    for number, (call, outputs) in enumerate(zip(case["calls"], answer["calls"], strict=True)):
        if len(outputs) != len(call["expected"]):
            yield "mismatch", f"{len(outputs)} outputs, the reference gives {len(call['expected'])}"
            return
        for position, spec in enumerate(outputs):
            expected, exact = call["expected"][position], call["exact"][position]
            name = "the output" if len(outputs) == 1 else f"output {position}"
            if number:
                name += f" of call {number + 1}"
            try:
                output = array(spec, given[spec["blob"]])
            except (ValueError, TypeError, IndexError):
                yield "no-result", f"{name} came back broken"
                return
            wanted, true = array(expected, truth[expected["blob"]]), array(exact, truth[exact["blob"]])
            found = compare(output, spec["dtype"], wanted, expected["dtype"], true, name)
            yield _Judged(number, position, spec, given[spec["blob"]], wanted, true, found)


def judge_case(
    case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> tuple[tuple[str, str] | None, float]:
    """Return (kind, message) of the first wrong output of a case, or None, and the largest error seen."""
    worst = 0.0
    for item in _compared(case, answer, truth, given):
        if not isinstance(item, _Judged):
            return item, worst
        worst = max(worst, item.comparison.error)
        if not item.comparison.ok:
            return (item.comparison.kind, item.comparison.message), worst
    return None, worst


def explain_wrong(
    case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> tuple[str, str]:
    """Return (kind, message) for a wrong case, with what the output itself says of the cause.

    ``unwritten-output``: elements still have the bits of fresh memory. ``special-values``: the case has infinities,
    NaN and the like. ``constant-output``: one value everywhere, or the same for other inputs. ``precision``: most
    elements are off by what a shorter dtype loses, none by more.
    """
    problem: tuple[str, str] = ("mismatch", "")
    for item in _compared(case, answer, truth, given):
        if not isinstance(item, _Judged):
            return item
        if item.comparison.ok:
            continue
        problem = (item.comparison.kind, item.comparison.message)
        if problem[0] not in ("mismatch", "nonfinite"):
            return problem
        unwritten = _unwritten(item)
        if unwritten:
            return "unwritten-output", f"{unwritten} of {item.expected.size} elements were never stored: {problem[1]}"
        if case.get("distribution") == "special":
            return "special-values", f"with infinite, NaN, denormal and large elements {problem[1]}"
        if problem[0] == "mismatch" and _constant(item, case, answer, truth, given):
            return "constant-output", f"it does not depend on the inputs: {problem[1]}"
        if problem[0] == "mismatch" and _shorter(item):
            return "precision", f"it is computed in less than {item.spec['dtype']}: {problem[1]}"
        return problem
    return problem


def _unwritten(item: _Judged) -> int:
    """Return how many elements have the bits with which fresh memory is filled."""
    if "float" not in str(item.spec["dtype"]):
        return 0
    width = len(item.data) // max(1, item.expected.size)
    raw = np.frombuffer(item.data, dtype=np.uint8).reshape(-1, width)
    return int(((raw == 0xFF).all(axis=1) & ~np.isnan(item.expected.reshape(-1))).sum())


def _constant(
    item: _Judged, case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> bool:
    value, wanted = array(item.spec, item.data), item.expected
    if value.size > 1 and (value == value.flat[0]).all() and not (wanted == wanted.flat[0]).all():
        return True
    if len(case["calls"]) < 2:
        return False
    specs = [outputs[item.position] for outputs in answer["calls"]]
    blobs = [call["expected"][item.position]["blob"] for call in case["calls"]]
    return given[specs[0]["blob"]] == given[specs[1]["blob"]] and truth[blobs[0]] != truth[blobs[1]]


def _shorter(item: _Judged) -> bool:
    """True when the errors are those of a shorter dtype: small everywhere, and beyond rounding at many places."""
    if item.spec["dtype"] not in ("float32", "float64") or item.comparison.error > _SHORTER:
        return False
    value = array(item.spec, item.data).astype(np.float64)
    true = item.exact.astype(np.float64)
    scale = float(np.sqrt(np.mean(true**2))) or 1.0
    off = np.abs(value - true) > RELATIVE[item.spec["dtype"]] * (np.abs(true) + 0.1 * scale)
    return bool(off.mean() > 0.02)


def dtype_results(
    info: TaskInfo, hidden: HiddenCases, answers: Sequence[Mapping[str, Any]], given: Sequence[bytes]
) -> dict[str, str]:
    """Return for each floating-point dtype that was tried ``passed``, or ``failed: ...`` with the reason.

    ``answers`` are those of the hidden cases, which are all right, and of the cases in other dtypes after them.
    """
    out = dict.fromkeys(sorted(info.dtypes & set(RELATIVE)), "passed")
    rest = answers[len(hidden.cases) :]
    for case, answer in zip(hidden.dtype_cases, rest, strict=False):
        if "error" in answer:
            out[case["dtype"]] = f"failed: {answer['error']['message']}"
            continue
        problem, _ = judge_case(case, answer, hidden.blobs, given)
        out[case["dtype"]] = "passed" if problem is None else f"failed: {problem[1]}"
    for case in hidden.dtype_cases[len(rest) :]:
        out[case["dtype"]] = "failed: an earlier case ended the run"
    return out


def hint(answer: Mapping[str, Any]) -> str:
    """Name what may be behind a wrong output."""
    said = {"mutated": "an input was changed", "overrun": "a kernel wrote outside its tensors"}
    return "".join(f"; {text}" for key, text in said.items() if answer.get(key))


def honest_gate(answers: Sequence[Mapping[str, Any]]) -> Gate:
    """Judge the run-time facts: kernels were launched, did the work, and touched nothing else."""
    for answer in answers:
        if answer["library_calls"]:
            names = ", ".join(answer["library_calls"][:4])
            return Gate("honest", "failed", f"forward computes with torch: {names}", "cheat:library-call")
        if not answer["launches"]:
            return Gate("honest", "failed", "forward launched no kernel on a hidden shape", "cheat:no-kernel")
        if answer["overrun"]:
            return Gate("honest", "failed", "a kernel wrote outside its tensors", "overrun")
        if answer["reused"]:
            text = "an earlier call's output changed in a later call: forward must return memory of its own"
            return Gate("honest", "failed", text, "cheat:state")
        if answer["idle"]:
            return Gate("honest", "failed", "the output is the same without the kernels", "cheat:unused-kernel")
    launches = sum(sum(answer["launches"].values()) for answer in answers)
    return Gate("honest", "passed", f"{launches} launches seen", "", {"launches": launches})
