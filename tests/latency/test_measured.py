"""Measured times: the arithmetic, what cannot be true, the profiler's tables, and machines without a device."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.environments.kernel import device_ascend
from orienteer.environments.kernel.device_ascend import BadTable, TaskTime, detect, profile_commands, read_summary
from orienteer.evaluators.kernel.latency.measured import from_profiles, measure, plausible, summarise
from orienteer.evaluators.kernel.verdict import Latency, rejection_class

TABLE = Path(__file__).with_name("op_summary_example.csv")
TIMES = st.lists(st.floats(1e-7, 10), min_size=3, max_size=50)


def latency(seconds, floor_s=None, baseline_s=None):
    return Latency(seconds, "E4:x", "x", "", floor_s=floor_s, baseline_s=baseline_s)


class TestPlausible:
    def test_faster_than_the_floor(self):
        gate = plausible(latency(1e-6, floor_s=2e-6))
        assert gate.status == "failed" and gate.kind == "impossible-speed"
        assert rejection_class(gate.kind) == "cheat"

    def test_at_the_floor(self):
        assert plausible(latency(2e-6, floor_s=2e-6)).status == "passed"

    @pytest.mark.parametrize(("ratio", "inspect"), [(9.9, False), (10.1, True), (0.1, False)])
    def test_speed_that_a_person_should_look_at(self, ratio, inspect):
        gate = plausible(latency(1.0, baseline_s=ratio))
        assert gate.status == "passed" and gate.facts.get("inspect", False) is inspect
        assert ("person" in gate.detail) is inspect

    def test_nothing_to_judge_by(self):
        assert plausible(latency(1.0)).status == "skipped"


class TestSummary:
    @given(TIMES, TIMES)
    def test_medians_and_quartiles(self, candidate, reference):
        found = summarise(candidate, reference, "x", 1e-9)
        assert found.seconds == pytest.approx(statistics.median(candidate))
        assert found.spread[0] <= found.seconds * (1 + 1e-9) and found.seconds <= found.spread[1] * (1 + 1e-9)
        assert found.baseline_s == pytest.approx(statistics.median(reference))
        assert found.facts["ratio"] == pytest.approx(found.baseline_s / found.seconds)
        assert found.level == "E4:x" and found.floor_s == 1e-9

    @pytest.mark.parametrize("times", [[1.0, 2.0], [0.0, 1.0, 1.0], [-1.0, 1.0, 1.0]])
    def test_times_that_are_none(self, times):
        with pytest.raises(ValueError):
            summarise(times, [1.0, 1.0, 1.0], "x")


class TestProfiles:
    def test_table_of_operators(self):
        softmax, matmul, memset = read_summary(TABLE.read_text())
        assert softmax.name == "softmax_kernel" and softmax.kind == "AI_VECTOR_CORE"
        assert softmax.seconds == pytest.approx(131.24e-6) and softmax.blocks == 40
        assert softmax.bottleneck == "vector" and softmax.units["mte2"] == pytest.approx(41.7e-6)
        assert matmul.bottleneck == "mte2" and matmul.units["cube"] == pytest.approx(30.5e-6)
        assert memset.units == {} and memset.bottleneck == ""

    def test_other_names_of_the_columns(self):
        text = "\ufeffName,Accelerator Core,Duration(us),Block Num\nk,AI_CORE,\t2.5 ,8\n"
        assert read_summary(text) == [TaskTime("k", "AI_CORE", pytest.approx(2.5e-6), 8)]

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no rows"),
            ("Op Name,Task Type\na,b\n", "Task Duration"),
            ("Op Name,Task Type,Task Duration(us)\na,b,N/A\n", "line 2"),
            ("Op Name,Task Type,Task Duration(us)\na,b\n", "line 2"),
        ],
    )
    def test_tables_that_cannot_be_read(self, text, words):
        with pytest.raises(BadTable, match=words):
            read_summary(text)

    def test_mean_of_three_passes(self):
        passes = [[TaskTime("softmax_kernel_0", "", t, 40, {"vector": 1e-6}), TaskTime("MemSet", "", 1.0, 1)]
                  for t in (1e-6, 2e-6, 6e-6)]  # fmt: skip
        found = from_profiles(passes, ["softmax_kernel"], "Ascend910B3")
        assert found.seconds == pytest.approx(3e-6) and found.bottleneck == "vector"
        assert found.level == "E4:Ascend910B3" and found.facts["passes"] == [1e-6, 2e-6, 6e-6]
        with pytest.raises(ValueError, match="no task"):
            from_profiles(passes, ["other"], "Ascend910B3")

    def test_commands_of_the_passes(self, tmp_path):
        commands = profile_commands(["python", "run.py"], tmp_path, "/opt/msprof")
        assert len(commands) == 3 and all(line[0] == "/opt/msprof" for line in commands)
        assert [line[-3] for line in commands] == [f"--aic-metrics={name}" for name in device_ascend.PASSES]
        assert len({line[1] for line in commands}) == 3 and all(line[-2:] == ["python", "run.py"] for line in commands)

    def test_newest_table_is_last(self, tmp_path):
        import os

        for number, name in enumerate(("b", "a")):
            folder = tmp_path / name / "mindstudio_profiler_output"
            folder.mkdir(parents=True)
            (folder / "op_summary_1.csv").write_text("")
            os.utime(folder / "op_summary_1.csv", (number, number))
        assert [path.parent.parent.name for path in device_ascend.summaries(tmp_path)] == ["b", "a"]


class TestDetection:
    def test_a_machine_with_everything(self, tmp_path, monkeypatch):
        for name in ("hivmc", "msprof"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        (tmp_path / "davinci0").touch()
        (tmp_path / "davinci_manager").touch()
        monkeypatch.setenv("PATH", str(tmp_path))
        found = detect(tmp_path)
        assert found.devices == 1 and found.missing("E3") == ""
        assert found.missing("E4") == ("" if found.torch_npu else "torch_npu is not installed")

    def test_a_machine_with_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        found = detect(tmp_path / "none")
        assert "hivmc" in found.missing("E3")
        assert "davinci0" in found.missing("E4") and "msprof" in found.missing("E4")


def spec(values, blob):
    return {"shape": list(values.shape), "stride": [1], "dtype": "float32", "blob": blob}


class TestMeasure:
    """The protocol round the job; the job itself needs a device."""

    def setup_method(self):
        self.x = [np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32) + 10]
        exact = [values.astype(np.float64) * 2 for values in self.x]
        self.blobs = tuple(
            data.tobytes() for values, right in zip(self.x, exact, strict=True)
            for data in (values, right.astype(np.float32), right)
        )  # fmt: skip
        self.case = {
            "init": [[], {}],
            "state": [],
            "calls": [
                {
                    "inputs": [spec(self.x[n], 3 * n)],
                    "expected": [spec(self.x[n], 3 * n + 1)],
                    "exact": [{**spec(self.x[n], 3 * n + 2), "dtype": "float64"}],
                }
                for n in range(2)
            ],
        }
        self.headers = []

    def job(self, header, blobs, wrong_round=None, host=0.0):
        self.headers.append((header, blobs))
        seconds = [2e-3] * header["rounds"] if header["name"] == "Model" else [1e-3] * header["rounds"]
        kept, out = [], []
        for number in header["keep"]:
            call = number % 2
            result = np.frombuffer(blobs[call], np.float32) * (3 if number == wrong_round else 2)
            kept.append({"round": number, "call": call, "outputs": [spec(result, len(out))]})
            out.append(result.tobytes())
        host_seconds = [s + host for s in seconds]
        return {"seconds": seconds, "host_seconds": host_seconds, "kept": kept, "device": "a device"}, out

    def measure(self, **job):
        return measure(
            lambda header, blobs: self.job(header, blobs, **job),
            "candidate",
            "reference",
            self.case,
            self.blobs,
            device="cuda",
            floor_s=1e-6,
            rounds=8,
        )

    def test_a_ratio_of_medians(self):
        gate, found = self.measure()
        assert gate.status == "passed" and found.seconds == 1e-3 and found.baseline_s == 2e-3
        assert found.device == "a device" and found.floor_s == 1e-6

    def test_neither_process_sees_results_or_the_others_source(self):
        self.measure()
        assert [(h["source"], h["name"]) for h, _ in self.headers] == [
            ("reference", "Model"),
            ("candidate", "ModelNew"),
        ]
        for header, blobs in self.headers:
            assert list(header["case"]["calls"][0]) == ["inputs"] and list(blobs) == [self.blobs[0], self.blobs[3]]

    def test_a_wrong_output_of_a_timed_call(self):
        keep = []
        self.measure()
        keep = self.headers[-1][0]["keep"]
        gate, found = self.measure(wrong_round=keep[1])
        assert found is None and gate.status == "failed" and f"timed call {keep[1]}" in gate.detail

    def test_work_outside_the_timed_stream(self):
        gate, found = self.measure(host=5e-3)
        assert found is None and gate.kind == "cheat:other-stream"

    def test_no_device(self, shared):
        from orienteer.environments.kernel.jobs import call

        def run(header, blobs):
            pool = shared.world()._pool("compiler")
            message, _ = call(pool, "orienteer.environments.kernel.device_job:time_module", header, blobs, _limits())
            return message.header, message.blobs

        for device, words in (("cuda", "no CUDA or HIP device"), ("npu", "torch_npu")):
            gate, found = measure(run, "x = 1", "x = 1", self.case, self.blobs, device=device)
            assert found is None and gate.status == "skipped" and words in gate.detail


def _limits():
    from orienteer.environments.execution import Limits

    return Limits(wall_s=60, memory_mb=4096, disk_mb=64, pids=64)
