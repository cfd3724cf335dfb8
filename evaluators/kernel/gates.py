"""The gates: what must be proven about a candidate, in order, and what each gate says when it is not.

``static`` (no cheating in the syntax tree), ``compile`` (E1: the target's real compiler), ``run`` (E0: right on hidden
small shapes in the interpreter), ``honest`` (run-time facts: kernels did the work). A gate that cannot be applied here
is ``skipped`` with the cure and never counts as passed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.ascend import compile_ttir
from orienteer.environments.kernel.jobs import JobFailed
from orienteer.environments.kernel.targets import ASCEND_MAX_GRID, AscendChip, GpuArch
from orienteer.environments.kernel.tensors import array
from orienteer.environments.kernel.toolchain import CURE, AscendToolchain
from orienteer.environments.kernel.world import BadTask, KernelWorld, TaskInfo
from orienteer.evaluators.kernel import cheats
from orienteer.evaluators.kernel.compare import compare

#: Most elements, and most lines along the last dimension, of one hidden case: the interpreter takes about a
#: millisecond for every turn of a program.
MAX_CASE_ELEMENTS = 12_000
MAX_CASE_LINES = 400
_ORDER = ("given", "wide", "negative", "sparse", "stepped", "small")


@dataclass(frozen=True)
class Gate:
    """One gate's answer."""

    name: str
    #: ``passed``, ``failed`` or ``skipped``.
    status: str
    detail: str = ""
    #: Failure class: ``cheat:library-call``, ``compile:ub-overflow``, ``mismatch``, ``timeout`` ...
    kind: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """All gates of one candidate."""

    gates: tuple[Gate, ...]
    #: Highest level proven: ``""``, ``E0`` or ``E1:Ascend910B3`` ...
    evidence: str
    log: str = ""

    @property
    def failed(self) -> Gate | None:
        """The gate that failed, if one did."""
        return next((gate for gate in self.gates if gate.status == "failed"), None)

    @property
    def skipped(self) -> list[Gate]:
        """Gates that could not be applied here."""
        return [gate for gate in self.gates if gate.status == "skipped"]


@dataclass(frozen=True)
class HiddenCases:
    """Small shapes and values that a candidate never sees in advance, with what the reference gives for them."""

    cases: Sequence[Mapping[str, Any]]
    blobs: tuple[bytes, ...]
    #: In words, for the record.
    described: Sequence[str]


class KernelVerifier:
    """Judges candidates for one target.

    Args:
        world: where things run.
        chip: the Ascend chip for the target ``npu``; None for ``triton``.
        toolchain: its compiler, or None when it is not installed.
        archs: GPU architectures for the target ``triton``.
        cases: hidden cases per candidate.
        seed: decides the hidden cases.
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
    ) -> None:
        self.world = world
        self.chip = chip
        self.toolchain = toolchain
        self.archs = list(archs)
        self.cases = cases
        self.seed = seed

    def settings(self) -> dict[str, Any]:
        """Return everything on which a verdict depends besides task and candidate."""
        compiler: dict[str, Any] = {}
        if self.chip is not None:
            compiler = {"chip": self.chip.name, "toolchain": self.toolchain.versions if self.toolchain else None}
        else:
            compiler = {"archs": [arch.name for arch in self.archs]}
        return {"version": 2, "cases": self.cases, "seed": self.seed, **compiler}

    # -- hidden cases --------------------------------------------------------------------------------------------------

    def hidden_cases(self, info: TaskInfo) -> HiddenCases:
        """Choose cases for a task and compute the reference on them.

        Raises:
            BadTask: the reference works on no small shape.
        """
        rng = random.Random(f"{self.seed}:{info.task.sha}:hidden")
        proposed = shapes.assignments(info.dims, rng)
        asked: list[dict[str, Any]] = []
        for position, (_, assignment) in enumerate(proposed):
            asked.append(self._case(info, assignment, _ORDER[position % len(_ORDER)], rng))
        answers, blobs = self.world.reference(asked)
        usable: list[tuple[int, dict[str, Any]]] = []
        reasons = []
        for position, answer in enumerate(answers):
            if answer.get("defect"):
                # A case of one element may hide it; it is the task's all the same.
                raise BadTask(str(answer["error"]))
            if "error" in answer:
                reasons.append(str(answer["error"]))
            else:
                usable.append((position, answer))
        cheap = [item for item in usable if _cost(item[1]) <= 1.0]
        usable = cheap if len(cheap) >= 2 else sorted(usable, key=lambda item: _cost(item[1]))[:2]
        if not usable:
            if reasons and len(reasons) == len(answers):
                raise BadTask(reasons[0])
            raise BadTask("no small version of the task was found; give its sizes as integers at module level")
        chosen = self._spread(usable)
        kept: list[bytes] = []
        cases, described = [], []
        for number, (position, answer) in enumerate(chosen):
            case = _repack(answer, blobs, kept)
            reason = proposed[position][0]
            case["strided"] = number == 1
            case["probe_idle"] = number == 0
            case["label"] = f"{reason}, {asked[position]['distribution']}{', strided' if case['strided'] else ''}"
            cases.append(case)
            described.append(case["label"])
        return HiddenCases(cases, tuple(kept), described)

    @staticmethod
    def _case(info: TaskInfo, assignment: Mapping[str, int], distribution: str, rng: random.Random) -> dict[str, Any]:
        return {
            "source": shapes.rewrite(info.task.source, assignment),
            "seed": rng.randrange(2**31),
            "distribution": distribution,
            "calls": 2,
        }

    def _spread(self, usable: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
        """Take cases from the whole list of kinds, not only its first ones."""
        if len(usable) <= self.cases:
            return usable
        step = len(usable) / self.cases
        return [usable[int(i * step)] for i in range(self.cases)]

    # -- the gates -----------------------------------------------------------------------------------------------------

    def judge(self, info: TaskInfo, hidden: HiddenCases, source: str) -> Verdict:
        """Put a candidate through the gates; the first failure ends it.

        Raises:
            MachineryFault: our own machinery failed.
        """
        gates: list[Gate] = []
        log = ""
        static = self._static(source)
        gates.append(static)
        if static.status == "failed":
            return Verdict(tuple(gates), "")
        compiled, log = self._compile(info, source)
        gates.append(compiled)
        if compiled.status == "failed":
            return Verdict(tuple(gates), "", log)
        ran, honest = self._run(info, hidden, source)
        gates.append(ran)
        if honest is not None:
            gates.append(_judged_everywhere(compiled, ran, honest))
        if any(gate.status == "failed" for gate in gates):
            return Verdict(tuple(gates), "", log)
        level = "E0" if ran.status == "passed" else ""
        if level and compiled.status == "passed":
            names = [self.chip.name] if self.chip is not None else [arch.name for arch in self.archs]
            level = f"E1:{','.join(names)}"
        return Verdict(tuple(gates), level, log)

    def _static(self, source: str) -> Gate:
        findings = cheats.check(source)
        if not findings:
            return Gate("static", "passed")
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        kind = first.code if first.code in ("syntax", "contract") else f"cheat:{first.code}"
        where = f"line {first.line}: " if first.line else ""
        listed = [{"code": f.code, "line": f.line, "message": f.message} for f in findings[:20]]
        return Gate("static", "failed", f"{where}{first.message}{more}", kind, {"findings": listed})

    def _compile(self, info: TaskInfo, source: str) -> tuple[Gate, str]:
        if self.chip is None:
            return self._compile_gpu(info, source), ""
        try:
            header, blobs = self.world.lower(source, info)
        except JobFailed as error:
            return Gate("compile", "failed", f"while its launches were recorded, {error}", f"compile:{error.kind}"), ""
        if "error" in header:
            return Gate("compile", "failed", header["error"]["message"], f"compile:{header['error']['kind']}"), ""
        wrong = _at_true_shapes(header, info)
        if wrong is not None:
            return wrong, ""
        facts: dict[str, Any] = {"kernels": [], "notes": header.get("notes", [])}
        logs: list[str] = []
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
                return Gate("compile", "failed", message, "compile:grid", facts), "\n".join(logs)
            if size < 1:
                return Gate("compile", "failed", f"{kernel['name']}: an empty grid", "compile:grid", facts), ""
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
                return Gate("compile", "failed", done.message, f"compile:{done.kind}", facts), "\n".join(logs)
        if self.toolchain is None:
            return Gate("compile", "skipped", f"the Ascend compiler is not installed: {CURE}", "", facts), ""
        return Gate("compile", "passed", f"HIVM for {self.chip.name}", "", facts), "\n".join(logs)

    def _compile_gpu(self, info: TaskInfo, source: str) -> Gate:
        try:
            header = self.world.compile_gpu(source, info, self.archs)
        except JobFailed as error:
            return Gate("compile", "failed", f"while its launches were compiled, {error}", f"compile:{error.kind}")
        if "error" in header:
            return Gate("compile", "failed", header["error"]["message"], f"compile:{header['error']['kind']}")
        wrong = _at_true_shapes(header, info)
        if wrong is not None:
            return wrong
        kernels = [
            {"name": k["name"], "grid": k["grid"], "launches": k["launches"], "archs": k["archs"]}
            for k in header["kernels"]
        ]
        facts = {"kernels": kernels, "notes": header.get("notes", [])}
        for kernel in kernels:
            for name, found in kernel["archs"].items():
                if not found["ok"]:
                    return Gate("compile", "failed", f"{name}: {found['message']}", f"compile:{found['kind']}", facts)
        return Gate("compile", "passed", f"binaries for {', '.join(arch.name for arch in self.archs)}", "", facts)

    def _run(self, info: TaskInfo, hidden: HiddenCases, source: str) -> tuple[Gate, Gate | None]:
        if "bfloat16" in info.dtypes and cheats.names_used(source) & {"dot", "dot_scaled"}:
            return Gate(
                "run", "skipped", "Triton's interpreter computes bfloat16 tl.dot wrongly; not judged here"
            ), None
        # The expected values stay here.
        sent = [
            {
                **{k: v for k, v in case.items() if k != "calls"},
                "calls": [{"inputs": call["inputs"]} for call in case["calls"]],
            }
            for case in hidden.cases
        ]
        public, renumbered = _only_inputs(sent, hidden.blobs)
        try:
            header, blobs, job = self.world.run(source, public, renumbered)
        except JobFailed as error:
            return Gate("run", "failed", f"in the interpreter, {error}", error.kind), None
        if "error" in header:
            return Gate("run", "failed", header["error"]["message"], header["error"]["kind"]), None
        worst = 0.0
        for case, answer in zip(hidden.cases, header["cases"], strict=False):
            if "error" in answer:
                return (
                    Gate(
                        "run",
                        "failed",
                        f"{answer['error']['message']} (case: {case['label']})",
                        answer["error"]["kind"],
                    ),
                    None,
                )
            problem, largest = _judge_case(case, answer, hidden.blobs, blobs)
            if problem is not None:
                text = f"{problem[1]} (case: {case['label']}{_hint(answer)})"
                return Gate("run", "failed", text, problem[0]), None
            worst = max(worst, largest)
        if len(header["cases"]) != len(hidden.cases):
            return Gate("run", "failed", "not every case was answered", "no-result"), None
        facts = {"cases": len(hidden.cases), "largest_error": worst, "job": dict(job), "notes": header.get("notes", [])}
        facts["launched"] = sorted({name for answer in header["cases"] for name in answer["launches"]})
        ran = Gate(
            "run", "passed", f"{len(hidden.cases)} hidden cases, largest error {worst:.1e} of the RMS", "", facts
        )
        return ran, _honest(header["cases"])


def _at_true_shapes(header: Mapping[str, Any], info: TaskInfo) -> Gate | None:
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


def _judged_everywhere(compiled: Gate, ran: Gate, honest: Gate) -> Gate:
    """Refuse kernels that are launched at the task's shapes and on no hidden case: their results were never seen."""
    launched = set(ran.facts.get("launched", ()))
    unseen = [k["name"] for k in compiled.facts.get("kernels", ()) if k["name"] not in launched]
    if honest.status == "failed" or ran.status != "passed" or not unseen:
        return honest
    text = f"{unseen[0]} is launched at the task's shapes and on no small one, so it was never checked; use one for all"
    return Gate("honest", "failed", text, "unjudged-kernel")


def _cost(answer: Mapping[str, Any]) -> float:
    """Return the size of a case as a share of what is allowed."""
    elements = lines = 0
    call = answer["calls"][0]
    for spec in [*answer["state"], *call["inputs"], *call["expected"]]:
        if "shape" in spec:
            count = math.prod(spec["shape"])
            elements += count
            lines = max(lines, count // max(1, spec["shape"][-1] if spec["shape"] else 1))
    return max(elements / MAX_CASE_ELEMENTS, lines / MAX_CASE_LINES)


def _repack(answer: Mapping[str, Any], blobs: Sequence[bytes], kept: list[bytes]) -> dict[str, Any]:
    """Copy a case and give its blobs new numbers in ``kept``."""

    def move(spec: Mapping[str, Any]) -> dict[str, Any]:
        if "blob" not in spec:
            return dict(spec)
        kept.append(blobs[spec["blob"]])
        return {**spec, "blob": len(kept) - 1}

    return {
        "init": answer["init"],
        "state": [move(item) for item in answer["state"]],
        "calls": [{part: [move(item) for item in items] for part, items in call.items()} for call in answer["calls"]],
    }


def _only_inputs(
    cases: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]
) -> tuple[list[dict[str, Any]], tuple[bytes, ...]]:
    kept: list[bytes] = []
    out = []
    for case in cases:
        repacked = _repack(case, blobs, kept)
        out.append({**repacked, "strided": case["strided"], "probe_idle": case["probe_idle"]})
    return out, tuple(kept)


def _judge_case(
    case: Mapping[str, Any], answer: Mapping[str, Any], truth: Sequence[bytes], given: Sequence[bytes]
) -> tuple[tuple[str, str] | None, float]:
    """Return (kind, message) of the first wrong output of a case, or None, and the largest error seen."""
    worst = 0.0
    for number, (call, outputs) in enumerate(zip(case["calls"], answer["calls"], strict=True)):
        if len(outputs) != len(call["expected"]):
            return ("mismatch", f"{len(outputs)} outputs, the reference gives {len(call['expected'])}"), worst
        for position, spec in enumerate(outputs):
            expected, exact = call["expected"][position], call["exact"][position]
            name = "the output" if len(outputs) == 1 else f"output {position}"
            if number:
                name += f" of call {number + 1}"
            try:
                output = array(spec, given[spec["blob"]])
            except (ValueError, TypeError, IndexError):
                return ("no-result", f"{name} came back broken"), worst
            verdict = compare(
                output,
                spec["dtype"],
                array(expected, truth[expected["blob"]]),
                expected["dtype"],
                array(exact, truth[exact["blob"]]),
                name,
            )
            worst = max(worst, verdict.error)
            if not verdict.ok:
                return (verdict.kind, verdict.message), worst
    return None, worst


def _hint(answer: Mapping[str, Any]) -> str:
    """Name what may be behind a wrong output."""
    said = {"mutated": "an input or a parameter was changed", "overrun": "a kernel wrote outside its tensors"}
    return "".join(f"; {text}" for key, text in said.items() if answer[key])


def _honest(answers: Sequence[Mapping[str, Any]]) -> Gate:
    """Judge the run-time facts: kernels were launched, did the work, and touched nothing else."""
    for answer in answers:
        if answer["library_calls"]:
            names = ", ".join(answer["library_calls"][:4])
            return Gate("honest", "failed", f"forward computes with torch: {names}", "cheat:library-call")
        if not answer["launches"]:
            return Gate("honest", "failed", "forward launched no kernel on a hidden shape", "cheat:no-kernel")
        if answer["mutated"]:
            return Gate("honest", "failed", "an input or a parameter was changed", "cheat:mutated-input")
        if answer["overrun"]:
            return Gate("honest", "failed", "a kernel wrote outside its tensors", "overrun")
        if answer["reused"]:
            text = "an earlier call's output changed in a later call: forward must return memory of its own"
            return Gate("honest", "failed", text, "cheat:state")
        if answer["idle"]:
            return Gate("honest", "failed", "the output is the same without the kernels", "cheat:unused-kernel")
    launches = sum(sum(answer["launches"].values()) for answer in answers)
    return Gate("honest", "passed", f"{launches} launches seen", "", {"launches": launches})
