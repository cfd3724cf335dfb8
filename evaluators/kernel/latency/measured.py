"""Measured latency (E4): what is made of the times of single calls, and whether a number can be true."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from orienteer.environments.kernel.device_ascend import TaskTime
from orienteer.evaluators.kernel.facts import judge_case, only_inputs
from orienteer.evaluators.kernel.verdict import Gate, Latency, quartiles

#: A speed-up above this is looked at by a person.
SUSPICIOUS = 10.0
#: Host time may exceed the device's own by this much before work outside the timed stream is suspected, seconds.
_HOST_SLACK = 200e-6

#: Runs ``device_job.time_module`` in a sandboxed child: header and blobs in, header and blobs out.
Job = Callable[[Mapping[str, Any], Sequence[bytes]], tuple[Mapping[str, Any], Sequence[bytes]]]


def plausible(latency: Latency) -> Gate:
    """Judge whether a measured latency can be true.

    A call faster than the roofline floor did not do the work (failed, ``impossible-speed``). A speed-up above
    :data:`SUSPICIOUS` over the reference passes with a note for a person.
    """
    facts: dict[str, Any] = {"seconds": latency.seconds, "floor_s": latency.floor_s, "baseline_s": latency.baseline_s}
    if latency.floor_s is not None and latency.seconds < latency.floor_s:
        text = f"{latency.seconds:.3e} s is below the floor of {latency.floor_s:.3e} s that memory and arithmetic set"
        return Gate("plausible", "failed", text, "impossible-speed", facts)
    ratio = latency.baseline_s / latency.seconds if latency.baseline_s and latency.seconds > 0 else None
    if ratio is not None and ratio > SUSPICIOUS:
        text = f"{ratio:.1f} times as fast as the reference: a person should look at it"
        return Gate("plausible", "passed", text, "", {**facts, "ratio": ratio, "inspect": True})
    if latency.floor_s is None and ratio is None:
        return Gate("plausible", "skipped", "neither a floor nor a reference's time is known", "", facts)
    return Gate("plausible", "passed", "", "", facts if ratio is None else {**facts, "ratio": ratio})


def summarise(
    candidate: Sequence[float], reference: Sequence[float], device: str, floor_s: float | None = None
) -> Latency:
    """Make a latency of the seconds of single calls: medians, and the quartiles of the candidate's.

    Raises:
        ValueError: fewer than three calls, or a time that is not positive.
    """
    if min(len(candidate), len(reference)) < 3:
        raise ValueError("at least three timed calls are needed")
    if min(*candidate, *reference) <= 0:
        raise ValueError("a time that is not positive")
    first, middle, third = quartiles(candidate)
    base = statistics.median(reference)
    return Latency(
        middle,
        f"E4:{device}",
        device,
        f"median of {len(candidate)} calls by device events, fresh inputs, cache overwritten before each",
        floor_s=floor_s,
        spread=(first, third),
        baseline_s=base,
        facts={"ratio": base / middle, "rounds": len(candidate)},
    )


def from_profiles(passes: Sequence[Sequence[TaskTime]], kernels: Sequence[str], device: str) -> Latency:
    """Make a latency of the profiler's passes: the mean of their sums over a candidate's kernels.

    Args:
        passes: the tasks of each pass, of one call after warm-up.
        kernels: names of the candidate's kernels.
        device: the chip.

    Raises:
        ValueError: a pass has no task of a kernel.
    """
    sums, units = [], dict[str, float]()
    for tasks in passes:
        own = [task for task in tasks if any(name in task.name for name in kernels)]
        if not own:
            raise ValueError("a pass of the profiler has no task of the candidate's kernels")
        sums.append(sum(task.seconds for task in own))
        for task in own:
            for name, value in task.units.items():
                units[name] = max(units.get(name, 0.0), value)
    return Latency(
        statistics.fmean(sums),
        f"E4:{device}",
        device,
        f"mean of {len(sums)} passes of msprof",
        bottleneck=max(units, key=lambda name: units[name]) if units else "",
        facts={"passes": sums, "units": units},
    )


def measure(
    run: Job,
    candidate: str,
    reference: str,
    case: Mapping[str, Any],
    blobs: Sequence[bytes],
    *,
    device: str,
    floor_s: float | None = None,
    warmup: int = 5,
    rounds: int = 30,
    seed: int = 0,
) -> tuple[Gate, Latency | None]:
    """Time a candidate and the reference on a device, each in a process of its own, and check timed outputs.

    Args:
        run: runs the job.
        candidate: the candidate's source.
        reference: the task's source.
        case: the task at its true shapes with the reference's results, as ``reference_cases`` gives it.
        blobs: its tensors.
        device: ``cuda`` or ``npu``.
        floor_s: what nothing can beat.
        warmup: calls before the timed ones.
        rounds: timed calls.
        seed: decides which timed calls are checked.

    Returns:
        The gate ``latency`` (``skipped`` with the reason where there is no device) and the latency.
    """
    keep = sorted(random.Random(f"{seed}:timed").sample(range(rounds), min(3, rounds)))
    public, inputs = only_inputs([{**case, "strided": False, "probe_idle": False}], blobs)
    answers = []
    for source, name in ((reference, "Model"), (candidate, "ModelNew")):
        header = {"source": source, "name": name, "device": device, "case": public[0], "warmup": warmup}
        answer, out = run({**header, "rounds": rounds, "keep": keep}, inputs)
        if "unavailable" in answer:
            return Gate("latency", "skipped", str(answer["unavailable"])), None
        if "error" in answer:
            found = answer["error"]
            return Gate("latency", "failed", f"{name}: {found['message']}", found["kind"]), None
        answers.append((answer, out))
    timed, out = answers[1]
    for kept in timed["kept"]:
        one = {**case, "calls": [case["calls"][kept["call"]]]}
        problem, _ = judge_case(one, {"calls": [kept["outputs"]]}, blobs, out)
        if problem is not None:
            return Gate("latency", "failed", f"timed call {kept['round']}: {problem[1]}", problem[0]), None
    late = statistics.median(timed["host_seconds"]) - statistics.median(timed["seconds"])
    if late > _HOST_SLACK + statistics.median(timed["seconds"]):
        text = f"the host waited {late:.1e} s longer than the device's events say: work outside the timed stream"
        return Gate("latency", "failed", text, "cheat:other-stream"), None
    latency = summarise(timed["seconds"], answers[0][0]["seconds"], str(timed["device"]), floor_s)
    return plausible(latency), latency
