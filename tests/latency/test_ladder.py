"""The model of Ascend on kernels that the vendor's compiler made."""

from __future__ import annotations

import dataclasses

import pytest
from task_sources_for_latency import DOUBLE, TASK

from orienteer.environments.kernel import targets
from orienteer.evaluators.kernel.latency import ladder, steady

pytestmark = pytest.mark.ascend
CHIP = targets.chip("Ascend910B3")


@pytest.fixture(scope="module")
def rows(shared):
    return {row["name"]: row for row in ladder.ladder(CHIP, shared.world(), shared.toolchain())}


NAMES = [rung.name for rung in ladder.rungs(CHIP)]


@pytest.mark.parametrize("name", NAMES)
def test_the_model_orders_schedules_as_the_guide_does(rows, name):
    row = rows[name]
    assert row["ok"], row
    assert row["ratio"] == pytest.approx(row["worse_s"] / row["better_s"]) and row["ratio"] > 1.05


def test_a_kernel_that_does_not_compile_has_a_reason(shared):
    rung = ladder.rungs(CHIP)[0]
    kernel = dataclasses.replace(rung.better, source=rung.better.source.replace("BLOCK=4096", "BLOCK=131072"))
    seconds, reason = ladder.modelled(kernel, CHIP, shared.world(), shared.toolchain())
    assert seconds is None and "unified buffer" in reason


def test_a_loop_over_data_gets_no_latency(shared):
    rung = ladder.rungs(CHIP)[0]
    source = rung.better.source.replace("tl.cdiv(n, BLOCK)", "tl.load(x_ptr).to(tl.int32)")
    seconds, reason = ladder.modelled(
        dataclasses.replace(rung.better, source=source), CHIP, shared.world(), shared.toolchain()
    )
    assert seconds is None and "trip count depends on data" in reason


def test_a_verdict_has_the_modelled_latency(shared):
    verifier, info, hidden = shared.prepared(TASK, cases=2, chip=CHIP, toolchain=shared.toolchain())
    verdict = verifier.judge(info, hidden, DOUBLE)
    assert verdict.failed is None and verdict.evidence == "E1:Ascend910B3"
    found = verdict.latency
    assert found.level == "E2:Ascend910B3" and found.how == "modelled, uncalibrated"
    assert found.floor_s == pytest.approx(2.4e6 / 1.6e12) and found.seconds > found.floor_s
    assert found.facts["kernels"][0]["memory_bytes"] == pytest.approx(2.4e6, rel=0.1)


def test_the_950_has_a_latency_too_and_skipped_turns_give_what_walked_turns_give(shared, monkeypatch):
    chip = targets.chip("Ascend950PR_9589")
    kernel = ladder.rungs(chip)[0].better
    skipped, reason = ladder.modelled(kernel, chip, shared.world(), shared.toolchain())
    assert reason == "" and skipped > 8 * 1024 * 1024 * 4 * 3 / 1.6e12
    monkeypatch.setattr(steady, "steady", lambda history: 0)
    walked, _ = ladder.modelled(kernel, chip, shared.world(), shared.toolchain())
    assert walked == pytest.approx(skipped, rel=1e-6)
