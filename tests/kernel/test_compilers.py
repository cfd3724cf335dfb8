"""The real compilers as gates: Ascend's (where it is installed) and Triton's back ends for GPUs."""

from __future__ import annotations

import pytest
from matmul_sources import TASK as MATMUL
from matmul_sources import matmul
from task_sources import DOUBLE, GOOD

from orienteer.environments.kernel import targets

CHIP = targets.chip("Ascend910B3")
ARCHS = tuple(targets.arch(name) for name in ("sm_80", "sm_90", "gfx942"))


def gate(verdict, name="compile"):
    return next(item for item in verdict.gates if item.name == name)


@pytest.mark.ascend
class TestAscend:
    def judge(self, shared, task, source, chip=CHIP):
        verifier, info, hidden = shared.prepared(task, cases=2, chip=chip, toolchain=shared.toolchain())
        return verifier.judge(info, hidden, source)

    def test_good_kernel_passes(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE)
        assert verdict.failed is None and not verdict.skipped, verdict
        assert verdict.evidence == "E1:Ascend910B3"
        assert gate(verdict).facts["kernels"][0]["ok"] is True

    def test_good_matmul_passes(self, shared):
        verdict = self.judge(shared, MATMUL, matmul(64, 64, 64))
        assert verdict.failed is None and verdict.evidence == "E1:Ascend910B3", verdict

    def test_block_larger_than_the_unified_buffer(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE.replace("1024", "131072"))
        assert verdict.failed is gate(verdict) and verdict.failed.kind == "compile:ub-overflow", verdict
        assert "double: the unified buffer (UB) overflows: " in verdict.failed.detail
        assert "192 KiB available; use smaller blocks" in verdict.failed.detail
        assert "overflow" in verdict.log and verdict.evidence == ""

    def test_tile_larger_than_the_accumulator(self, shared):
        verdict = self.judge(shared, MATMUL, matmul(512, 512, 256))
        assert verdict.failed is gate(verdict) and verdict.failed.kind == "compile:cc-overflow", verdict
        assert "the cube's accumulator (L0C) overflows" in verdict.failed.detail
        assert "128 KiB available" in verdict.failed.detail

    def test_grid_larger_than_the_chip_takes(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE.replace("triton.cdiv(n, 1024)", "n * 500"))
        assert verdict.failed is gate(verdict) and verdict.failed.kind == "compile:grid", verdict
        assert "65535" in verdict.failed.detail and "150000" in verdict.failed.detail

    def test_product_of_the_grid_counts(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE.replace("triton.cdiv(n, 1024),", "300, 300,"))
        assert verdict.failed is not None and verdict.failed.kind == "compile:grid", verdict

    def test_what_the_front_end_refuses(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE.replace("tl.arange(0, BLOCK)", "tl.arange(0, 1000)"))
        assert verdict.failed is not None and verdict.failed.kind == "compile:frontend", verdict
        assert "power of 2" in verdict.failed.detail and "double" in verdict.failed.detail

    def test_what_a_function_of_the_language_refuses(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE.replace("tl.arange(0, BLOCK)", "tl.zeros((1000,), tl.int32)"))
        assert verdict.failed is not None and verdict.failed.kind == "compile:frontend", verdict
        assert "power of 2" in verdict.failed.detail and "tl.zeros((1000,)" in verdict.failed.detail


def test_without_the_compiler_the_gate_is_skipped_with_the_cure(shared):
    verifier, info, hidden = shared.prepared(GOOD, cases=2, chip=CHIP, toolchain=None)
    verdict = verifier.judge(info, hidden, DOUBLE)
    assert verdict.failed is None and verdict.evidence == "E0"
    assert gate(verdict).status == "skipped" and "agent setup npu" in gate(verdict).detail
    assert gate(verdict) in verdict.skipped


class TestGpu:
    def judge(self, shared, task, source, archs=ARCHS):
        verifier, info, hidden = shared.prepared(task, cases=2, archs=archs)
        return verifier.judge(info, hidden, source)

    def test_good_kernel_gives_facts_of_every_architecture(self, shared):
        verdict = self.judge(shared, GOOD, DOUBLE)
        assert verdict.failed is None and verdict.evidence == "E1:sm_80,sm_90,gfx942", verdict
        found = gate(verdict).facts["kernels"][0]["archs"]
        assert set(found) == {"sm_80", "sm_90", "gfx942"}
        for facts in found.values():
            assert facts["ok"] and facts["registers"] > 0 and facts["shared"] == 0 and facts["binary"] > 500
            assert facts["stack"] == 0

    def test_shared_memory_is_reported(self, shared):
        verdict = self.judge(shared, MATMUL, matmul(32, 32, 32), ARCHS[:1])
        assert verdict.failed is None, verdict
        assert 0 < gate(verdict).facts["kernels"][0]["archs"]["sm_80"]["shared"] <= ARCHS[0].shared_bytes

    def test_oversize_tile_is_rejected_before_it_is_assembled(self, shared):
        verdict = self.judge(shared, MATMUL, matmul(256, 256, 64, ", num_stages=4"), ARCHS[1:2])
        assert verdict.failed is gate(verdict) and verdict.failed.kind == "compile:shared-memory", verdict
        facts = verdict.failed.facts["kernels"][0]["archs"]["sm_90"]
        assert facts["shared"] > ARCHS[1].shared_bytes and "binary" not in facts
        assert str(facts["shared"]) in verdict.failed.detail and "smaller tiles" in verdict.failed.detail
