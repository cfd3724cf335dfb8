"""The kernel world: warm workers in which tasks are inspected, traced and run, and candidates are run and compiled.

Two kinds of worker, because Triton decides at import whether kernels are interpreted: one with the interpreter, one
without (it compiles, and runs references). Every job is a child of its own with its own walls and limits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orienteer.environments.execution import Limits
from orienteer.environments.execution.pool import WorkerPool
from orienteer.environments.execution.sandbox import Sandbox, open_sandbox
from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.jobs import JobFailed, JobRaised, call
from orienteer.environments.kernel.targets import GpuArch
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.environments.kernel.tensors import array
from orienteer.kernels.blocks.graph import Graph, graph_from_json

_JOBS = "orienteer.environments.kernel"
#: Imported once by a worker, so that a job starts with them.
_PROCESSOR = ("/sys/devices/system/cpu",)
_COMPILER_MODULES = (
    f"{_JOBS}.warmup",
    "torch",
    "triton",
    "triton.language",
    "triton.compiler",
    "triton.runtime.autotuner",
    "torch.fx.experimental.proxy_tensor",
    "torch._decomp",
    "torch._subclasses.fake_tensor",
    "torch.utils._sympy.printers",
    f"{_JOBS}.task_job",
    f"{_JOBS}.trace_job",
    f"{_JOBS}.compile_job",
    f"{_JOBS}.gpu_job",
    f"{_JOBS}.warmup_compiler",
)
_INTERPRETER_MODULES = (
    f"{_JOBS}.warmup",
    "torch",
    "triton",
    "triton.language",
    "triton.runtime.interpreter",
    "triton.runtime.autotuner",
    f"{_JOBS}.watching",
    f"{_JOBS}.candidate_job",
)

_CPU_MODULES = ("numpy", f"{_JOBS}.cpu_job")
#: Files of CUDA and HIP devices, bound into the workers that time kernels where they exist.
_DEVICE_FILES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/kfd", "/dev/dri")
_MEASURE_MODULES = (f"{_JOBS}.warmup", "torch", "torch.utils.flop_counter", f"{_JOBS}.load", f"{_JOBS}.cpu_measure_job")
#: What the workers of each kind import, and their environment. A team of threads that waits for work must not keep the
#: cores from the other process of a measurement for long.
_KINDS: Mapping[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "compiler": (_COMPILER_MODULES, {"TRITON_DEFAULT_FP_FUSION": "1"}),
    "interpreter": (_INTERPRETER_MODULES, {"TRITON_INTERPRET": "1"}),
    "cpu": (_CPU_MODULES, {"OMP_DYNAMIC": "false"}),
    "device": (("torch", "triton", f"{_JOBS}.device_job"), {}),
    "measure": (_MEASURE_MODULES, {"OMP_DYNAMIC": "false", "GOMP_SPINCOUNT": "20000"}),
}

INSPECT_LIMITS = Limits(wall_s=60, memory_mb=8192, disk_mb=64, pids=64)
REFERENCE_LIMITS = Limits(wall_s=60, memory_mb=4096, disk_mb=64, pids=64, result_mb=256)
RUN_LIMITS = Limits(wall_s=120, memory_mb=4096, disk_mb=64, pids=64, result_mb=256)
CPU_RUN_LIMITS = Limits(wall_s=30, memory_mb=4096, disk_mb=64, pids=64, result_mb=256)
MEASURE_LIMITS = Limits(wall_s=180, memory_mb=12288, disk_mb=256, pids=128, result_mb=16)
COMPILE_LIMITS = Limits(wall_s=180, memory_mb=4096, disk_mb=256, pids=64, result_mb=64, open_files=512)


class BadTask(Exception):
    """A task file cannot be used; the message says why, in one line."""


@dataclass(frozen=True)
class TaskInfo:
    """A task and what is known of it at its true shapes."""

    task: KernelTask
    #: ``{"shape", "stride", "dtype"}`` or ``{"value"}`` per input.
    inputs: Sequence[Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]
    state: Sequence[Mapping[str, Any]]
    #: Positional and keyword arguments of ``Model``, plain.
    init: Any
    single_output: bool
    dims: Sequence[shapes.Dimension] = field(default_factory=tuple)

    @property
    def dtypes(self) -> set[str]:
        """Dtypes of inputs and state."""
        return {str(item["dtype"]) for item in [*self.inputs, *self.state] if "dtype" in item}


class KernelWorld:
    """Opens workers when they are first needed.

    Args:
        sandbox: the sandbox in which workers live and compilers run; closed with the world.
        workers: jobs of each kind at one time.
        cancel: when set, running jobs are killed.
        job_seconds: no job may take longer, whatever its kind; by default each kind has its own limit.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        workers: int = 1,
        cancel: threading.Event | None = None,
        job_seconds: float | None = None,
    ) -> None:
        self.job_seconds = job_seconds
        self.sandbox = sandbox
        self._workers = max(1, workers)
        self._cancel = cancel
        self._lock = threading.Lock()
        self._pools: dict[str, WorkerPool] = {}
        self._graphs: dict[str, Graph | str] = {}

    @classmethod
    def open(
        cls,
        choice: str,
        *,
        allow_unsafe: bool = False,
        workers: int = 1,
        cancel: threading.Event | None = None,
        job_seconds: float | None = None,
    ) -> KernelWorld:
        """Open a world in the chosen sandbox.

        Raises:
            MissingPrerequisite: no sandbox works here.
        """
        return cls(
            open_sandbox(choice, allow_unsafe=allow_unsafe), workers=workers, cancel=cancel, job_seconds=job_seconds
        )

    def _limits(self, limits: Limits) -> Limits:
        if self.job_seconds is None:
            return limits
        return replace(limits, wall_s=min(limits.wall_s, self.job_seconds))

    def _pool(self, kind: str) -> WorkerPool:
        with self._lock:
            if kind not in self._pools:
                preload, env = _KINDS[kind]
                self._pools[kind] = WorkerPool(
                    self.sandbox,
                    preload=preload,
                    env=env,
                    size=self._workers,
                    binds=[path for path in _files(kind) if Path(path).exists()],
                    cancel=self._cancel,
                )
            return self._pools[kind]

    def warm(self) -> dict[str, Mapping[str, Any]]:
        """Start one worker of each kind; returns what each says of itself."""
        return {kind: self._pool(kind).warm() for kind in ("compiler", "interpreter")}

    # -- tasks -------------------------------------------------------------------------------------------------------

    def inspect(self, task: KernelTask) -> TaskInfo:
        """Run a task file's functions and describe what they give.

        Raises:
            BadTask: the file raises, hangs, or has not the form of a task.
            MachineryFault: our own machinery failed.
        """
        try:
            message, _ = call(
                self._pool("compiler"),
                f"{_JOBS}.task_job:inspect_task",
                {"source": task.source},
                (),
                self._limits(INSPECT_LIMITS),
            )
        except (JobFailed, JobRaised) as error:
            raise BadTask(f"while the task's own functions ran, {error}") from None
        found = message.header
        if "error" in found:
            raise BadTask(str(found["error"]))
        with _sense_of_a_task():
            return TaskInfo(
                task=task,
                inputs=[_described(item) for item in found["inputs"]],
                outputs=[_described(item) for item in found["outputs"]],
                state=[{**_described(item), "name": str(item["name"])} for item in found["state"]],
                init=found["init"],
                single_output=bool(found["single_output"]),
                dims=shapes.dimensions(task.source),
            )

    def trace(self, info: TaskInfo) -> Graph | str:
        """Return the operator's graph, or the reason why it has none; a task is traced once."""
        with self._lock:
            known = self._graphs.get(info.task.sha)
        if known is None:
            known = self._trace(info)
            with self._lock:
                self._graphs[info.task.sha] = known
        return known

    def _trace(self, info: TaskInfo) -> Graph | str:
        cases = [shapes.rewrite(info.task.source, a) for a in shapes.trace_assignments(info.dims)]
        header = {
            "cases": cases,
            "true_inputs": list(info.inputs),
            "true_state": {item["name"]: item for item in info.state},
            "true_outputs": list(info.outputs),
        }
        try:
            message, _ = call(
                self._pool("compiler"), f"{_JOBS}.trace_job:trace_task", header, (), self._limits(INSPECT_LIMITS)
            )
        except (JobFailed, JobRaised) as error:
            return f"while the operator was traced, {error}"
        if "error" in message.header:
            return str(message.header["error"])
        try:
            return graph_from_json(message.header["graph"])
        except _NONSENSE as error:
            return f"the trace came back broken ({type(error).__name__})"

    def reference(self, cases: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[bytes, ...]]:
        """Compute the reference on cases (see ``task_job.reference_cases``).

        Raises:
            BadTask: the reference ends the process.
        """
        try:
            message, _ = call(
                self._pool("compiler"),
                f"{_JOBS}.task_job:reference_cases",
                {"cases": list(cases)},
                (),
                self._limits(REFERENCE_LIMITS),
            )
        except (JobFailed, JobRaised) as error:
            raise BadTask(f"while the reference ran on small shapes, {error}") from None
        with _sense_of_a_task():
            answers = [dict(answer) for answer in message.header["cases"]]
            for answer in answers:
                _check_answer(answer, message.blobs)
            if len(answers) != len(cases):
                raise ValueError("the number of cases")
            return answers, message.blobs

    # -- candidates --------------------------------------------------------------------------------------------------

    def run(
        self, source: str, cases: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]
    ) -> tuple[Mapping[str, Any], tuple[bytes, ...], Mapping[str, Any]]:
        """Run a candidate in the interpreter (see ``candidate_job.run_candidate``); returns header, blobs, job facts.

        Raises:
            JobFailed: the candidate ended its process.
            MachineryFault: our own machinery failed.
        """
        header = {"source": source, "cases": list(cases)}
        message, job = call(
            self._pool("interpreter"), f"{_JOBS}.candidate_job:run_candidate", header, blobs, self._limits(RUN_LIMITS)
        )
        return message.header, message.blobs, _facts(job)

    def lower(self, source: str, info: TaskInfo) -> tuple[Mapping[str, Any], tuple[bytes, ...]]:
        """Record a candidate's launches at the true shapes and lower them to Triton IR.

        Raises:
            JobFailed, MachineryFault: as :meth:`run`.
        """
        header = {"source": source, "init": info.init, "inputs": list(info.inputs), "arch": ["cuda", 90, 32]}
        message, _ = call(
            self._pool("compiler"), f"{_JOBS}.compile_job:lower_launches", header, (), self._limits(COMPILE_LIMITS)
        )
        return message.header, message.blobs

    def compile_gpu(self, source: str, info: TaskInfo, archs: Sequence[GpuArch]) -> Mapping[str, Any]:
        """Record a candidate's launches and compile them for GPU architectures.

        Raises:
            JobFailed, MachineryFault: as :meth:`run`.
        """
        header = {
            "source": source,
            "init": info.init,
            "inputs": list(info.inputs),
            "archs": [vars(arch) for arch in archs],
        }
        message, _ = call(
            self._pool("compiler"), f"{_JOBS}.gpu_job:compile_launches", header, (), self._limits(COMPILE_LIMITS)
        )
        return message.header

    def run_cpp(
        self, library: bytes, cases: Sequence[Mapping[str, Any]], blobs: Sequence[bytes]
    ) -> tuple[Mapping[str, Any], tuple[bytes, ...], Mapping[str, Any]]:
        """Run a compiled C++ candidate on cases (see ``cpu_job.run_library``); returns header, blobs, job facts.

        Raises:
            JobFailed, MachineryFault: as :meth:`run`.
        """
        message, job = call(
            self._pool("cpu"),
            f"{_JOBS}.cpu_job:run_library",
            {"cases": list(cases)},
            (library, *blobs),
            self._limits(CPU_RUN_LIMITS),
        )
        return message.header, message.blobs, _facts(job)

    def measure_cpp(self, library: bytes, info: TaskInfo, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Time a compiled C++ candidate against the reference at the true shapes (see ``cpu_measure_job.measure``).

        Raises:
            JobFailed, MachineryFault: as :meth:`run`.
        """
        header = {
            "task": info.task.source,
            "inputs": list(info.inputs),
            "state": list(info.state),
            "outputs": list(info.outputs),
            **settings,
        }
        message, _ = call(
            self._pool("measure"),
            f"{_JOBS}.cpu_measure_job:measure",
            header,
            (library,),
            self._limits(MEASURE_LIMITS),
        )
        return message.header

    @staticmethod
    def has_device() -> bool:
        """Return whether this machine shows a CUDA or HIP device."""
        return any(Path(path).exists() for path in _DEVICE_FILES)

    def time_module(
        self, header: Mapping[str, Any], blobs: Sequence[bytes]
    ) -> tuple[Mapping[str, Any], tuple[bytes, ...]]:
        """Time a module on an accelerator (see ``device_job.time_module``); returns header and blobs.

        Raises:
            JobFailed, MachineryFault: as :meth:`run`.
        """
        message, _ = call(
            self._pool("device"), f"{_JOBS}.device_job:time_module", header, blobs, self._limits(MEASURE_LIMITS)
        )
        return message.header, message.blobs

    def close(self) -> None:
        """Kill all workers and release the sandbox."""
        with self._lock:
            pools = list(self._pools.values())
            self._pools.clear()
        for pool in pools:
            pool.close()
        self.sandbox.close()


def _files(kind: str) -> tuple[str, ...]:
    return _PROCESSOR + (_DEVICE_FILES if kind == "device" else ())


_NONSENSE = (KeyError, TypeError, ValueError, IndexError, AttributeError)


@contextmanager
def _sense_of_a_task() -> Iterator[None]:
    """Turn an answer without the form that our own job gives it into the task's fault: it tampered with the job."""
    try:
        yield
    except _NONSENSE as error:
        raise BadTask(f"its answer has not the form of one ({type(error).__name__}: {error})") from None


def _described(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a tensor, or of a plain value, with its types checked."""
    if "value" in item and "shape" not in item:
        return {"value": item["value"]}
    shape = [int(n) for n in item["shape"]]
    if min(shape, default=0) < 0:
        raise ValueError("a negative size")
    return {**item, "shape": shape, "dtype": str(item["dtype"])}


def _check_answer(answer: Mapping[str, Any], blobs: Sequence[bytes]) -> None:
    """Read every tensor of a reference's answer once, so that nothing fails on it later."""
    if "error" in answer:
        return
    for item in answer["state"]:
        _described(item)
        len(blobs[item["blob"]])
    for call_ in answer["calls"]:
        if len(call_["expected"]) != len(call_["exact"]):
            raise ValueError("expected and exact outputs")
        for item in call_["inputs"]:
            if "value" not in item:
                array(_described(item), blobs[item["blob"]])
        for item in [*call_["expected"], *call_["exact"]]:
            array(_described(item), blobs[item["blob"]])


def _facts(job: Any) -> dict[str, Any]:
    return {
        "backend": job.backend,
        "isolation": job.isolation,
        "cpu_s": round(job.cpu_s, 3),
        "wall_s": round(job.wall_s, 3),
        "peak_mb": job.peak_mb,
    }
