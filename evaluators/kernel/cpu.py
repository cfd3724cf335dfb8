"""The gates of the cpu target: C++ judged by the compiler, by hidden cases, and by the clock (E4).

``static`` (no cheating in the text), ``compile`` (the system's compiler; the text after the preprocessor and the object
are checked too), ``run`` (right on hidden small shapes, twice, with one thread and with two), ``honest`` (nothing
beside the outputs was changed), ``measure`` (E4: timed against PyTorch at the true shapes, outputs looked at).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orienteer.environments.kernel import cpu_machine
from orienteer.environments.kernel.cpu_compile import Compiled, CppCompiler, cache_key, compile_library, find
from orienteer.environments.kernel.jobs import JobFailed
from orienteer.environments.kernel.world import MEASURE_LIMITS, KernelWorld, TaskInfo
from orienteer.evaluators.kernel import cpp_cheats, cpp_object
from orienteer.evaluators.kernel.cpp_roofline import Roofline, floor
from orienteer.evaluators.kernel.cpp_timing import Timing, moved_bytes, summarise
from orienteer.evaluators.kernel.facts import hint, judge_case, only_inputs, static_gate
from orienteer.evaluators.kernel.hidden import HiddenCases, choose_cases
from orienteer.evaluators.kernel.rejections import advised
from orienteer.evaluators.kernel.verdict import Gate, Latency, Verdict

#: Largest deviation of a timed call's outputs from the reference's, as a share of value plus root mean square. How
#: exact a candidate is was judged on the hidden cases; here it must have done the work.
TIMED_TOLERANCE = {"float64": 1e-3, "float32": 1e-2, "float16": 3e-2, "bfloat16": 1e-1}
#: A candidate is refused when it is faster than this share of what the machine can do.
_IMPOSSIBLE = 0.7
#: More than this over PyTorch is noted for a person to look at.
_REMARKABLE = 10.0
#: The system may account this much more processor time than a candidate claims, as a share and in seconds a round.
_CLOCK_SHARE, _CLOCK_S = 0.5, 1e-3
_KEPT_LIBRARIES = 64


#: Inputs and outputs exist in both processes, and the reference makes temporary ones.
_COPIES = 3


class _Unmeasured(Exception):
    """The reference cannot be timed here; the candidate is not to blame."""


class CpuVerifier:
    """Judges C++ candidates on this machine.

    Args:
        world: where things run.
        cases: hidden cases per candidate.
        seed: decides the hidden cases and the inputs of the measurement.
        home: where the machine's measured rates are kept; None measures them anew in every process.
        threads: threads of candidate and reference; default: all cores that this process may use.
        seconds: time for the measurement of one candidate, the reference's rounds included; 0 leaves it out.
        compiled: time ``torch.compile`` of the model as well; its compilation takes ten seconds or more each time.

    Raises:
        MissingPrerequisite: there is no C++ compiler.
    """

    def __init__(
        self,
        world: KernelWorld,
        *,
        cases: int = 6,
        seed: int = 0,
        home: Path | None = None,
        threads: int | None = None,
        seconds: float = 1.5,
        compiled: bool = False,
    ) -> None:
        self.world = world
        self.cases = cases
        self.seed = seed
        self.compiler: CppCompiler = find()
        self.cpus = cpu_machine.cores()
        self.threads = max(1, min(threads or len(self.cpus), len(self.cpus)))
        self.seconds = seconds
        self.compiled = compiled
        self.roofline = Roofline(world, self.compiler, home, self.cpus[: self.threads])
        self._libraries: dict[str, Compiled] = {}
        self._lock = threading.Lock()
        #: A measurement runs alone: nothing else of this run may work beside it.
        self._alone = threading.Lock() if seconds > 0 else contextlib.nullcontext()

    def settings(self) -> dict[str, Any]:
        """Return everything on which a verdict depends besides task and candidate."""
        return {
            "version": 2,
            "target": "cpu",
            "cases": self.cases,
            "seed": self.seed,
            "threads": self.threads,
            "seconds": self.seconds,
            "compiled": self.compiled,
            **self.compiler.describe(),
            "machine": cpu_machine.describe(),
        }

    def provenance(self) -> dict[str, Any]:
        """Return what a result must name: compiler, flags, machine, threads."""
        return {**self.compiler.describe(), **cpu_machine.describe(), "threads": self.threads}

    def hidden_cases(self, info: TaskInfo) -> HiddenCases:
        """Choose cases for a task and compute the reference on them.

        Raises:
            BadTask: the reference works on no small shape.
        """
        return choose_cases(self.world, info, self.cases, self.seed)

    # -- the gates ---------------------------------------------------------------------------------------------------

    def judge(self, info: TaskInfo, hidden: HiddenCases, source: str) -> Verdict:
        """Put a candidate through the gates; the first failure ends it.

        Raises:
            MachineryFault: our own machinery failed.
        """
        static = static_gate(cpp_cheats.check(source))
        if static.status == "failed":
            return Verdict((advised(static),), "")
        with self._alone:
            found = self._judge(info, hidden, source, static)
        return replace(found, gates=tuple(advised(gate) for gate in found.gates))

    def _judge(self, info: TaskInfo, hidden: HiddenCases, source: str, static: Gate) -> Verdict:
        compiled = self._library(source)
        gates = [static, self._compile(compiled)]
        if gates[-1].status == "failed":
            return Verdict(tuple(gates), "", compiled.log)
        gates += self._run(hidden, compiled.library)
        if any(gate.status == "failed" for gate in gates):
            return Verdict(tuple(gates), "", compiled.log)
        if self.seconds <= 0:
            skipped = Gate("measure", "skipped", "no time was given for the measurement")
            return Verdict((*gates, skipped), "E1:cpu", compiled.log)
        try:
            self._check_size(info)
            measured, latency = self._measure(info, compiled.library)
        except _Unmeasured as reason:
            # The candidate is right; this machine has no number for it.
            last = gates.pop()
            gates.append(replace(last, facts={**last.facts, "no_latency": str(reason)}))
            return Verdict(tuple(gates), "E1:cpu", compiled.log)
        gates.append(measured)
        evidence = "E4:cpu" if measured.status == "passed" else "E1:cpu"
        if measured.status == "failed":
            evidence, latency = "", None
        return Verdict(tuple(gates), evidence, compiled.log, latency)

    def _library(self, source: str) -> Compiled:
        key = cache_key(self.compiler, source)
        with self._lock:
            if key in self._libraries:
                return self._libraries[key]
        done = compile_library(self.world.sandbox, self.compiler, source)
        with self._lock:
            while len(self._libraries) >= _KEPT_LIBRARIES:
                self._libraries.pop(next(iter(self._libraries)))
            self._libraries[key] = done
        return done

    def _compile(self, compiled: Compiled) -> Gate:
        facts: dict[str, Any] = dict(self.compiler.describe())
        if compiled.expanded:
            hidden = static_gate(cpp_cheats.check_expanded(compiled.expanded))
            if hidden.status == "failed":
                return Gate("compile", "failed", f"after the preprocessor, {hidden.detail}", hidden.kind, hidden.facts)
        if not compiled.ok:
            return Gate("compile", "failed", compiled.message, f"compile:{compiled.kind}", facts)
        problem = cpp_object.check(compiled.library)
        if problem is not None:
            return Gate("compile", "failed", problem.message, f"cheat:{problem.code}", facts)
        facts["bytes"] = len(compiled.library)
        return Gate("compile", "passed", self.compiler.version, "", facts)

    def _run(self, hidden: HiddenCases, library: bytes) -> list[Gate]:
        # The harness allocates the outputs.
        public, blobs = only_inputs(hidden.cases, hidden.blobs, outputs=True)
        try:
            header, given, job = self.world.run_cpp(library, public, blobs)
        except JobFailed as error:
            return [Gate("run", "failed", f"on hidden small shapes, {error}", error.kind)]
        if "error" in header:
            return [Gate("run", "failed", header["error"]["message"], header["error"]["kind"])]
        if len(header["cases"]) != len(hidden.cases):
            return [Gate("run", "failed", "not every case was answered", "no-result")]
        worst = 0.0
        for case, answer in zip(hidden.cases, header["cases"], strict=True):
            problem, largest = judge_case(case, answer, hidden.blobs, given)
            if problem is not None:
                text = f"{problem[1]} (case: {case['label']}{hint(answer)})"
                return [Gate("run", "failed", text, problem[0])]
            worst = max(worst, largest)
            honest = _honest([answer])
            if honest.status == "failed":
                return [honest]
            unsteady = _unsteady(case, answer, hidden.blobs, given)
            if unsteady is not None:
                return [unsteady]
        facts = {"cases": len(hidden.cases), "largest_error": worst, "job": dict(job)}
        detail = f"{len(hidden.cases)} hidden cases, largest error {worst:.1e} of the RMS"
        return [Gate("run", "passed", detail, "", facts), _honest(header["cases"])]

    @staticmethod
    def _check_size(info: TaskInfo) -> None:
        """Refuse to measure a task whose tensors do not fit what a measurement may use."""
        size = moved_bytes([*info.inputs, *info.state, *info.outputs])
        most = MEASURE_LIMITS.memory_mb << 20
        if _COPIES * size > most:
            raise _Unmeasured(f"tensors of {size / 2**30:.1f} GiB are too large to be measured in {most >> 30} GiB")

    # -- E4 ----------------------------------------------------------------------------------------------------------

    def _measure(self, info: TaskInfo, library: bytes) -> tuple[Gate, Latency | None]:
        settings = {
            "threads": self.threads,
            "cpus": self.cpus[: self.threads],
            "seconds": self.seconds,
            "seed": self.seed + 1,
            "cache_bytes": cpu_machine.cache_bytes(),
            "compiled": self.compiled,
        }
        rates = self.roofline.rates()
        with cpu_machine.machine_lock():
            try:
                header = self.world.measure_cpp(library, info, settings)
            except JobFailed as error:
                return Gate("measure", "failed", f"at the task's shapes, {error}", error.kind), None
        if "error" in header:
            if header["error"].get("by") == "reference":
                raise _Unmeasured(header["error"]["message"])
            return Gate("measure", "failed", header["error"]["message"], header["error"]["kind"]), None
        timing = summarise(header)
        limit = max((TIMED_TOLERANCE.get(str(item["dtype"]), 0.0) for item in info.outputs), default=0.0)
        wrong = _timed_outputs(header, limit) or _clock_agrees(timing)
        if wrong is not None:
            return wrong, None
        beyond = timing.rotated_bytes(info) > 2 * cpu_machine.cache_bytes()
        least = floor(info, rates, timing.flops, beyond)
        if timing.seconds < _IMPOSSIBLE * least:
            # A shared machine may have been slow when its rates were measured.
            rates = self.roofline.rates(anew=True)
            least = floor(info, rates, timing.flops, beyond)
            if timing.seconds < _IMPOSSIBLE * least:
                text = (
                    f"{timing.seconds:.3g} s a call is less than the {least:.3g} s that the work takes on this machine"
                )
                return Gate("measure", "failed", text, "impossible-speed"), None
        facts = {**timing.facts(), "rates": rates}
        if timing.speedup > _REMARKABLE:
            facts["remark"] = f"more than {_REMARKABLE:.0f} times as fast as PyTorch: worth a look by a person"
        latency = Latency(
            seconds=timing.seconds,
            level="E4",
            device="cpu",
            how=f"median of {timing.rounds} paired rounds against PyTorch eager, {self.threads} threads, inputs rotate",
            floor_s=least,
            bottleneck=_bottleneck(info, timing, rates),
            spread=timing.spread,
            baseline_s=timing.baseline_s,
            facts=facts,
        )
        detail = f"{timing.seconds * 1e3:.3g} ms, {timing.speedup:.2f} times PyTorch eager"
        return Gate("measure", "passed", detail, "", timing.facts()), latency


def _unsteady(
    case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> Gate | None:
    """Judge the runs that gave something else than the first one."""
    for variant in answer["variants"]:
        one = {**case, "calls": [case["calls"][variant["call"]]]}
        problem, _ = judge_case(one, {**answer, "calls": [variant["outputs"]]}, truth, given)
        threads = variant["threads"]
        if threads == 1:
            text = (
                "two runs on the same inputs differ: memory is read that nothing has written, or outputs are left out"
            )
            return Gate("run", "failed", f"{text} (case: {case['label']})", "nondeterministic")
        if problem is not None:
            text = f"with {threads} threads {problem[1]}: threads write to the same memory (case: {case['label']})"
            return Gate("run", "failed", text, "race")
    return None


def _honest(answers: Sequence[Mapping[str, Any]]) -> Gate:
    for answer in answers:
        if answer["mutated"]:
            return Gate("honest", "failed", "an input or a parameter was changed", "cheat:mutated-input")
        if answer["overrun"]:
            return Gate("honest", "failed", "memory beside a tensor was written", "overrun")
    return Gate("honest", "passed", "only outputs were written")


def _timed_outputs(header: Mapping[str, Any], limit: float) -> Gate | None:
    off = [value for value in header["checks"] if value > limit]
    if not off and header["full"] <= limit:
        return None
    if (off and len(off) < len(header["checks"])) or header["full"] <= limit:
        text = f"{len(off)} of {len(header['checks'])} timed rounds left wrong outputs: every call must do the work"
        return Gate("measure", "failed", text, "cheat:timed-work")
    text = f"at the task's shapes outputs deviate by {max([*off, header['full']]):.3g} of value plus RMS"
    return Gate("measure", "failed", text, "mismatch")


def _clock_agrees(timing: Timing) -> Gate | None:
    if timing.least_gap <= max(_CLOCK_S / timing.calls, _CLOCK_SHARE * timing.seconds):
        return None
    text = f"calls that claim {timing.seconds:.3g} s take {timing.least_gap:.3g} s longer by the system's account"
    return Gate("measure", "failed", text, "cheat:clock")


def _bottleneck(info: TaskInfo, timing: Timing, rates: Mapping[str, float]) -> str:
    """Say which of the machine's rates the kernel comes nearest to, counting every input and output once."""
    shares = {
        "memory": moved_bytes([*info.inputs, *info.outputs]) / rates["memory_bytes_s"] / timing.seconds,
        "compute": timing.flops / rates["flops_s"] / timing.seconds,
    }
    nearest = max(shares, key=lambda name: shares[name])
    return nearest if shares[nearest] > 0.3 else "instructions"
