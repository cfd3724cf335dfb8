"""From rounds to a latency: the arithmetic, the checks of timed calls, and one real measurement."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

from orienteer.environments.kernel import cpu_machine
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.errors import MissingPrerequisite
from orienteer.evaluators.kernel import cpu
from orienteer.evaluators.kernel.cpp_roofline import Roofline, floor
from orienteer.evaluators.kernel.cpp_timing import quartiles, summarise

_spec = importlib.util.spec_from_file_location("cpp_sources", Path(__file__).with_name("cpp_sources.py"))
sources = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sources)


def header(own, other, **more):
    rounds = [{"candidate": a, "reference": b, "outside": a + 1e-5} for a, b in zip(own, other, strict=True)]
    base = {"rounds": rounds, "calls": 4, "sets": 3, "checks": [0.0] * len(own), "full": 0.0, "load": [1, 1, 1]}
    return {**base, "flops": 0.0, **more}


def test_the_ratio_is_paired():
    # The machine is ten times slower in half of the rounds; each round's ratio is 2 all the same.
    timing = summarise(header([1.0, 10.0, 1.0, 10.0, 1.0], [2.0, 20.0, 2.0, 20.0, 2.0]))
    assert timing.seconds == 1.0
    assert timing.baseline_s == 2.0
    assert timing.speedup == 2.0
    assert timing.speedup_spread == (2.0, 2.0)
    assert timing.rounds == 5


def test_torch_compile_is_paired_too_or_says_why_not():
    both = header([1.0, 2.0], [2.0, 4.0])
    for item in both["rounds"]:
        item["compiled"] = 1.5 * item["candidate"]
    assert summarise(both).facts()["torch_compile"] == 1.5
    assert summarise(header([1.0], [1.0], not_compiled="no compiler")).facts()["torch_compile"] == "no compiler"
    assert "torch_compile" not in summarise(header([1.0], [1.0])).facts()


def test_interrupted_rounds_are_left_out_when_enough_others_remain():
    quiet = header([1.0] * 8 + [50.0] * 6, [2.0] * 14)
    for item in quiet["rounds"][8:]:
        item["preempted"] = 3
    timing = summarise(quiet)
    assert (timing.seconds, timing.rounds, timing.left_out) == (1.0, 8, 6)
    # Few of many would be a choice of rounds.
    mostly = header([1.0] * 6 + [50.0] * 8, [2.0] * 14)
    for item in mostly["rounds"][6:]:
        item["preempted"] = 3
    assert (summarise(mostly).rounds, summarise(mostly).left_out) == (14, 0)
    busy = header([1.0] * 4 + [50.0] * 8, [2.0] * 12)
    for item in busy["rounds"][4:]:
        item["preempted"] = 3
    assert (summarise(busy).rounds, summarise(busy).left_out) == (12, 0)


def test_quartiles():
    assert quartiles([3.0]) == (3.0, 3.0)
    assert quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)


def test_timed_calls_must_leave_right_outputs():
    good = header([1.0] * 4, [1.0] * 4)
    assert cpu._timed_outputs(good, 1e-2) is None
    some = cpu._timed_outputs({**good, "checks": [0.0, 9.0, 0.0, 0.0]}, 1e-2)
    assert some is not None
    assert some.kind == "cheat:timed-work"
    every = cpu._timed_outputs({**good, "checks": [9.0] * 4, "full": 9.0}, 1e-2)
    assert every is not None
    assert every.kind == "mismatch"
    unseen = cpu._timed_outputs({**good, "full": float("inf")}, 1e-2)
    assert unseen is not None
    assert unseen.kind == "mismatch"


def test_a_claim_that_the_system_account_contradicts_is_refused():
    timing = summarise(header([1e-3] * 5, [1e-3] * 5))
    assert cpu._clock_agrees(timing) is None
    refused = cpu._clock_agrees(replace(timing, least_gap=5e-3))
    assert refused is not None
    assert refused.kind == "cheat:clock"


def test_the_floor_counts_outputs_and_products():
    class Info:
        outputs = ({"shape": [1000, 1000], "dtype": "float32"}, {"shape": [10], "dtype": "int64"})

    rates = {"memory_bytes_s": 1e9, "cache_bytes_s": 4e9, "flops_s": 1e11}
    assert floor(Info, rates, 0.0, True) == pytest.approx(4.00008e-3)
    assert floor(Info, rates, 0.0, False) == pytest.approx(1.00002e-3)
    assert floor(Info, rates, 1e10, True) == pytest.approx(0.04)


def test_the_lock_keeps_measurements_apart(tmp_path, monkeypatch):
    import fcntl

    monkeypatch.setattr(cpu_machine.tempfile, "gettempdir", lambda: str(tmp_path))
    with cpu_machine.machine_lock():
        place = next(tmp_path.iterdir())
        with place.open("rb") as handle, pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with place.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.fixture(scope="module")
def verifier(shared, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    try:
        return cpu.CpuVerifier(shared.world(), cases=2, home=home, seconds=0.1, threads=1)
    except MissingPrerequisite as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def task(shared, verifier):
    info = shared.world().inspect(KernelTask("add", sources.TASK))
    return info, verifier.hidden_cases(info)


def test_a_right_candidate_has_a_latency(verifier, task, shared):
    verdict = verifier.judge(*task, sources.PLAIN)
    assert verdict.failed is None, verdict.failed
    assert verdict.evidence == "E4:cpu"
    latency = verdict.latency
    assert latency is not None
    assert (latency.level, latency.device) == ("E4", "cpu")
    assert latency.floor_s > 0
    assert latency.spread[0] <= latency.seconds <= latency.spread[1]
    assert latency.baseline_s > 0
    assert latency.facts["rounds"] >= 2
    assert json.loads(json.dumps(verifier.settings())) == verifier.settings()
    # The rates of the machine were kept and are read again.
    kept = Roofline(shared.world(), verifier.compiler, verifier.roofline._place.parent, verifier.roofline.cpus)
    assert kept._read() == verifier.roofline.rates()


def test_work_left_out_at_the_true_shapes_is_seen(verifier, task):
    lazy = sources.program("    if (n == 96 * 160) return;\n" + sources.LOOP)
    failed = verifier.judge(*task, lazy).failed
    assert failed is not None
    assert (failed.name, failed.kind) == ("measure", "mismatch")


def test_a_crash_at_the_true_shapes_is_the_candidates(verifier, task):
    bad = sources.program("    if (n == 96 * 160) out[(int64_t)1 << 40] = 1;\n" + sources.LOOP)
    failed = verifier.judge(*task, bad).failed
    assert failed is not None
    assert (failed.name, failed.kind) == ("measure", "crash")


def test_faster_than_the_machine_is_refused(verifier, task, monkeypatch):
    monkeypatch.setattr(cpu, "floor", lambda *arguments: 10.0)
    failed = verifier.judge(*task, sources.PLAIN).failed
    assert failed is not None
    assert failed.kind == "impossible-speed"


def test_a_task_that_is_too_large_is_not_measured():
    from orienteer.environments.kernel.tasks import KernelTask
    from orienteer.environments.kernel.world import TaskInfo
    from orienteer.evaluators.kernel import cpu

    huge = {"shape": [1 << 16, 1 << 16], "dtype": "float32"}
    info = TaskInfo(KernelTask("huge", ""), [huge], [huge], [], [[], {}], True)
    with pytest.raises(cpu._Unmeasured, match=r"32\.0 GiB are too large"):
        cpu.CpuVerifier._check_size(info)
    small = {"shape": [16], "dtype": "float32"}
    cpu.CpuVerifier._check_size(TaskInfo(KernelTask("small", ""), [small], [small], [], [[], {}], True))
