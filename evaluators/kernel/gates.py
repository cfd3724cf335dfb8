"""The gates: what must be proven about a candidate, in order, and what each gate says when it is not.

``static`` (no cheating in the syntax tree), ``compile`` (E1: the target's real compiler), ``run`` (E0: right on hidden
small shapes in the interpreter), ``honest`` (run-time facts: kernels did the work). A gate that cannot be applied here
is ``skipped`` with the cure and never counts as passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from orienteer.environments.kernel.ascend import compile_ttir
from orienteer.environments.kernel.jobs import JobFailed
from orienteer.environments.kernel.targets import ASCEND_MAX_GRID, AscendChip, GpuArch
from orienteer.environments.kernel.toolchain import CURE, AscendToolchain
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.evaluators.kernel import cheats
from orienteer.evaluators.kernel.facts import (
    at_true_shapes,
    dtype_results,
    explain_wrong,
    hint,
    honest_gate,
    judge_case,
    judged_everywhere,
    only_inputs,
    static_gate,
)
from orienteer.evaluators.kernel.hidden import HiddenCases, choose_cases
from orienteer.evaluators.kernel.latency import measured
from orienteer.evaluators.kernel.latency.estimate import LatencyModels
from orienteer.evaluators.kernel.rejections import advised
from orienteer.evaluators.kernel.verdict import Gate, Latency, Verdict

_TF32 = (
    "tl.dot rounds float32 operands to TF32 on the device, the interpreter judged it in full float32; "
    'give input_precision="ieee" where that is not meant'
)


class KernelVerifier:
    """Judges candidates for one target.

    Args:
        world: where things run.
        chip: the Ascend chip for the target ``npu``; None for ``triton``.
        toolchain: its compiler, or None when it is not installed.
        archs: GPU architectures for the target ``triton``.
        cases: hidden cases per candidate.
        seed: decides the hidden cases.
        dtypes: what a wrong result in float16 or bfloat16 does to a candidate for a float32 task: ``report`` names it
            in the facts of the gate ``run``, ``require`` rejects the candidate (``dtype-support``).
    """

    def __init__(
        self,
        world: KernelWorld,
        *,
        chip: AscendChip | None = None,
        toolchain: AscendToolchain | None = None,
        archs: Sequence[GpuArch] = (),
        cases: int = 6,
        seed: int = 0,
        dtypes: Literal["report", "require"] = "report",
    ) -> None:
        self.world = world
        self.dtypes = dtypes
        self.chip = chip
        self.toolchain = toolchain
        self.archs = list(archs)
        self.cases = cases
        self.seed = seed
        self._latencies = LatencyModels(world)

    def settings(self) -> dict[str, Any]:
        """Return everything on which a verdict depends besides task and candidate."""
        compiler: dict[str, Any] = {}
        if self.chip is not None:
            compiler = {"chip": self.chip.name, "toolchain": self.toolchain.versions if self.toolchain else None}
        else:
            compiler = {"archs": [arch.name for arch in self.archs]}
        return {"version": 5, "cases": self.cases, "seed": self.seed, "dtypes": self.dtypes, **compiler}

    def hidden_cases(self, info: TaskInfo) -> HiddenCases:
        """Choose cases for a task and compute the reference on them.

        Raises:
            BadTask: the reference works on no small shape.
        """
        return choose_cases(self.world, info, self.cases, self.seed, dtypes=True)

    def prepare(self, info: TaskInfo) -> None:
        """Do what is done once a task: its operator is traced for the floor of its latency."""
        self._latencies.floor(info)

    # -- the gates -----------------------------------------------------------------------------------------------------

    def judge(self, info: TaskInfo, hidden: HiddenCases, source: str) -> Verdict:
        """Put a candidate through the gates; the first failure ends it and says what to do.

        Raises:
            MachineryFault: our own machinery failed.
        """
        found = self._judge(info, hidden, source)
        return replace(found, gates=tuple(advised(gate) for gate in found.gates))

    def _judge(self, info: TaskInfo, hidden: HiddenCases, source: str) -> Verdict:
        gates: list[Gate] = []
        log = ""
        static = static_gate(cheats.check(source))
        gates.append(static)
        if static.status == "failed":
            return Verdict(tuple(gates), "")
        compiled, log, latency = self._compile(info, source)
        gates.append(compiled)
        if compiled.status == "failed":
            return Verdict(tuple(gates), "", log)
        ran, honest = self._run(info, hidden, source)
        gates.append(ran)
        if honest is not None:
            gates.append(judged_everywhere(compiled, ran, honest))
        if any(gate.status == "failed" for gate in gates):
            return Verdict(tuple(gates), "", log)
        level = "E0" if ran.status == "passed" else ""
        if level and compiled.status == "passed":
            names = [self.chip.name] if self.chip is not None else [arch.name for arch in self.archs]
            level = f"E1:{','.join(names)}"
        if self.chip is None and not any(gate.status == "skipped" for gate in gates):
            timing, timed = self._measure(info, source, latency)
            gates += timing
            if any(gate.status == "failed" for gate in timing):
                return Verdict(tuple(gates), "", log)
            if timed is not None:
                level, latency = timed.level, timed
        return Verdict(tuple(gates), level, log, latency)

    def _measure(self, info: TaskInfo, source: str, modelled: Latency | None) -> tuple[list[Gate], Latency | None]:
        """Time a proven candidate on the device of this machine; no gate where none answers."""
        if not self.world.has_device():
            return [], None
        whole = {"source": info.task.source, "seed": self.seed, "distribution": "given", "calls": 2, "whole": True}
        started: list[str] = []

        def run(header: Mapping[str, Any], blobs: Sequence[bytes]) -> tuple[Mapping[str, Any], Sequence[bytes]]:
            started.append(str(header["name"]))
            return self.world.time_module(header, blobs)

        try:
            answers, blobs = self.world.reference([whole])
            if "error" in answers[0]:
                return [], None
            floor_s = modelled.floor_s if modelled is not None else None
            gate, latency = measured.measure(
                run, source, info.task.source, answers[0], blobs, device="cuda", floor_s=floor_s
            )
        except BadTask:
            return [], None
        except JobFailed as error:
            # What ends the reference's process is no fault of the candidate.
            if "ModelNew" not in started:
                return [], None
            return [Gate("latency", "failed", f"on the device, {error}", error.kind)], None
        return ([], None) if gate.status == "skipped" else ([gate], latency)

    def _compile(self, info: TaskInfo, source: str) -> tuple[Gate, str, Latency | None]:
        if self.chip is None:
            gate, latency = self._compile_gpu(info, source)
            return gate, "", latency
        try:
            header, blobs = self.world.lower(source, info)
        except JobFailed as error:
            message = f"while its launches were recorded, {error}"
            return Gate("compile", "failed", message, f"compile:{error.kind}"), "", None
        if "error" in header:
            found = header["error"]
            return Gate("compile", "failed", found["message"], f"compile:{found['kind']}"), "", None
        wrong = at_true_shapes(header, info)
        if wrong is not None:
            return wrong, "", None
        facts: dict[str, Any] = {"kernels": [], "notes": header.get("notes", [])}
        logs: list[str] = []
        modules: list[str] = []
        if self.toolchain is None:
            facts["kernels"] = [
                {"name": k["name"], "grid": k["grid"], "launches": k["launches"], "ok": None} for k in header["kernels"]
            ]
        for kernel in header["kernels"]:
            size = kernel["grid"][0] * kernel["grid"][1] * kernel["grid"][2]
            if size > ASCEND_MAX_GRID:
                message = (
                    f"{kernel['name']}: a grid of {size} instances, Ascend allows {ASCEND_MAX_GRID}; loop in the kernel"
                )
                return Gate("compile", "failed", message, "compile:grid", facts), "\n".join(logs), None
            if size < 1:
                return Gate("compile", "failed", f"{kernel['name']}: an empty grid", "compile:grid", facts), "", None
            if self.toolchain is None:
                continue
            done = compile_ttir(
                self.world.sandbox, self.toolchain, self.chip, kernel["name"], blobs[kernel["blob"]].decode()
            )
            logs.append(f"== {kernel['name']}\n{done.log}")
            facts["kernels"].append(
                {"name": kernel["name"], "grid": kernel["grid"], "launches": kernel["launches"], "ok": done.ok}
            )
            if not done.ok:
                return Gate("compile", "failed", done.message, f"compile:{done.kind}", facts), "\n".join(logs), None
            modules.append(done.hivm)
        if self.toolchain is None:
            return Gate("compile", "skipped", f"the Ascend compiler is not installed: {CURE}", "", facts), "", None
        latency, reason = self._latencies.ascend(info, header["kernels"], modules, self.chip)
        if latency is None:
            facts["no_latency"] = reason
        return Gate("compile", "passed", f"HIVM for {self.chip.name}", "", facts), "\n".join(logs), latency

    def _compile_gpu(self, info: TaskInfo, source: str) -> tuple[Gate, Latency | None]:
        try:
            header = self.world.compile_gpu(source, info, self.archs)
        except JobFailed as error:
            message = f"while its launches were compiled, {error}"
            return Gate("compile", "failed", message, f"compile:{error.kind}"), None
        if "error" in header:
            found = header["error"]
            return Gate("compile", "failed", found["message"], f"compile:{found['kind']}"), None
        wrong = at_true_shapes(header, info)
        if wrong is not None:
            return wrong, None
        kernels = [
            {"name": k["name"], "grid": k["grid"], "launches": k["launches"], "archs": k["archs"]}
            for k in header["kernels"]
        ]
        facts = {"kernels": kernels, "notes": header.get("notes", [])}
        for kernel in kernels:
            for name, binary in kernel["archs"].items():
                if not binary["ok"]:
                    kind = f"compile:{binary['kind']}"
                    return Gate("compile", "failed", f"{name}: {binary['message']}", kind, facts), None
        latency, reason = self._latencies.gpu(info, header["kernels"], self.archs)
        detail = f"binaries for {', '.join(arch.name for arch in self.archs)}"
        if latency is None:
            facts["no_latency"] = reason
        elif any("tf32" in launch["products"] for launch in latency.facts["kernels"]):
            facts["notes"] = [*facts["notes"], _TF32]
            detail += f"; note: {_TF32}"
        return Gate("compile", "passed", detail, "", facts), latency

    def _run(self, info: TaskInfo, hidden: HiddenCases, source: str) -> tuple[Gate, Gate | None]:
        if "dot_scaled" in cheats.names_used(source):
            text = "the interpreter does not compute tl.dot_scaled as a device does; not judged here"
            return Gate("run", "skipped", text, "unsupported-by-simulator"), None
        cases = [*hidden.cases, *hidden.dtype_cases]
        try:
            header, blobs, job = self._answers(source, cases, hidden.blobs)
        except JobFailed as error:
            return Gate("run", "failed", f"in the interpreter, {error}", error.kind), None
        if "error" in header:
            return Gate("run", "failed", header["error"]["message"], header["error"]["kind"]), None
        worst = 0.0
        answers = header["cases"][: len(hidden.cases)]
        for case, answer in zip(hidden.cases, answers, strict=False):
            failed, largest = self._case(source, case, answer, hidden.blobs, blobs)
            if failed is not None:
                return failed, None
            worst = max(worst, largest)
        if len(answers) != len(hidden.cases):
            return Gate("run", "failed", "not every case was answered", "no-result"), None
        dtypes = dtype_results(info, hidden, header["cases"], blobs)
        facts = {"cases": len(hidden.cases), "largest_error": worst, "job": dict(job), "notes": header.get("notes", [])}
        facts["launched"] = sorted({name for answer in answers for name in answer["launches"]})
        facts |= {"dtypes": dtypes, "flags": list(hidden.flags)}
        bad = next((f"in {name}: {text}" for name, text in dtypes.items() if text != "passed"), "")
        if bad and self.dtypes == "require":
            return Gate("run", "failed", bad, "dtype-support", facts), None
        text = f"{len(hidden.cases)} hidden cases, largest error {worst:.1e} of the RMS"
        return Gate("run", "passed", text, "", facts), honest_gate(answers)

    def _answers(
        self, source: str, cases: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]
    ) -> tuple[Mapping[str, Any], tuple[bytes, ...], Mapping[str, Any]]:
        """Run a candidate on cases without their expected values, which stay here."""
        public, renumbered = only_inputs(cases, blobs)
        return self.world.run(source, public, renumbered)

    def _case(
        self,
        source: str,
        case: Mapping[str, Any],
        answer: Mapping[str, Any],
        truth: Sequence[bytes],
        given: Sequence[bytes],
    ) -> tuple[Gate | None, float]:
        """Judge one case; returns the failed gate, or None, and the largest error."""
        label = f"(case: {case['label']})"
        if "error" in answer:
            return Gate("run", "failed", f"{answer['error']['message']} {label}", answer["error"]["kind"]), 0.0
        for kind, text in _changed(answer):
            return Gate("run", "failed", f"{text} {label}", kind), 0.0
        if answer["state"]:
            text = f"forward changes {answer['state']}, which outlives the call {label}"
            return Gate("run", "failed", text, "cheat:state"), 0.0
        # What a launch does to foreign memory is worse than two instances that do it at once.
        if answer["race"] and not answer["overrun"]:
            return Gate("run", "failed", f"{answer['race']} {label}", "race"), 0.0
        problem, largest = judge_case(case, answer, truth, given)
        if problem is None:
            return None, largest
        if problem[0] in ("mismatch", "nonfinite") and self._ordered(source, case, answer, truth, given):
            text = f"with the program instances run from the last to the first, {problem[1]} {label}"
            return Gate("run", "failed", text, "race"), largest
        kind, text = explain_wrong(case, answer, truth, given)
        return Gate("run", "failed", f"{text} (case: {case['label']}{hint(answer)})", kind), largest

    def _ordered(
        self,
        source: str,
        case: Mapping[str, Any],
        answer: Mapping[str, Any],
        truth: Sequence[bytes],
        given: Sequence[bytes],
    ) -> bool:
        """Return whether a wrong result becomes right when the instances run in the usual order."""
        first = {**case, "calls": case["calls"][:1]}
        if not case.get("backward") and (
            len(case["calls"]) < 2 or judge_case(first, {**answer, "calls": answer["calls"][:1]}, truth, given)[0]
        ):
            return False
        try:
            header, blobs, _ = self._answers(source, [{**case, "forward_order": True}], truth)
        except JobFailed:
            return False
        again = header.get("cases", [{"error": {}}])[0]
        return "error" not in again and judge_case(case, again, truth, blobs)[0] is None


def _changed(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a candidate did that it may not do, whatever its results are."""
    counts = answer["launches_by_call"]
    if min(counts) == 0 and max(counts) > 0:
        yield "cheat:skipped-launch", f"launches by call: {counts}; every call with the same shapes must do the work"
    if answer["parameters"]:
        yield "cheat:changed-parameter", "a parameter was changed"
    if answer["mutated"]:
        yield "cheat:mutated-input", "an input was changed"
