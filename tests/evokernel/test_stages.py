"""The two stages of a task: budget, rewards, start points, and what each outcome does to the state."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.agents.evokernel import stages

SECONDS = st.floats(1e-9, 1e3)


def ok(item, candidate, latency, **more):
    return stages.settle(
        item, candidate=candidate, status="ok", evidence="E1", latency=latency, memory_item=f"m{candidate}",
        failure=None, **more,
    )  # fmt: skip


def failed(item, candidate, kind="mismatch"):
    return stages.settle(
        item, candidate=candidate, status="failed", evidence="", latency=None, memory_item="",
        failure={"kind": kind, "message": "run: wrong", "gate": "run"},
    )  # fmt: skip


def test_drafting_ends_at_the_first_feasible_kernel_and_both_stages_count():
    item = stages.fresh("sha")
    item = failed(item, "a")
    assert item["stage"] == stages.DRAFT and item["tries"] == 1 and item["failure"]["kind"] == "mismatch"
    item = ok(item, "b", 2e-6)
    assert item["stage"] == stages.REFINE and item["draft"] == item["best"] == "b" and "failure" not in item
    item = failed(item, "c")
    item = ok(item, "d", 1e-6)
    assert item["tries"] == 4 and item["draft"] == "b" and item["best"] == "d"
    assert item["draft_latency"] == 2e-6 and item["best_latency"] == 1e-6
    assert [point["id"] for point in item["points"]] == ["b", "d"]
    assert item["curve"] == [[2, 2e-6], [4, 1e-6]]
    assert not stages.open_for_more(item, 4) and stages.open_for_more(item, 5)


def test_a_slower_variant_is_a_start_point_and_not_the_best():
    item = ok(ok(stages.fresh("sha"), "a", 1e-6), "b", 3e-6)
    assert item["best"] == "a" and len(item["points"]) == 2 and item["curve"][-1] == [2, 1e-6]


def test_without_a_latency_there_is_nothing_to_refine_by():
    item = ok(stages.fresh("sha"), "a", None)
    assert item["draft"] == "a" and item["given_up"] == "no-latency" and not stages.open_for_more(item, 30)


def test_a_missing_gate_ends_the_task_unproven():
    item = stages.settle(
        stages.fresh("sha"), candidate="a", status="unknown", evidence="E0", latency=None, memory_item="", failure=None
    )
    assert item["unknown"] == "a" and "draft" not in item and not stages.open_for_more(item, 30)


def test_lost_attempts_count_and_final_ones_end_the_task():
    item = stages.lost(stages.fresh("sha"), "malformed", "no JSON")
    assert item["tries"] == 1 and item["failure"]["kind"] == "malformed" and stages.open_for_more(item, 30)
    item = stages.lost(item, "no-building-block", "aten.sort")
    assert item["given_up"] == "no-building-block" and item["failure"]["message"] == "aten.sort"
    done = stages.lost(ok(stages.fresh("sha"), "a", 1e-6), "exhausted", "all tried")
    assert done["given_up"] == "exhausted" and "failure" not in done and done["best"] == "a"


def test_rewards():
    assert stages.draft_reward(True) == 1.0 and stages.draft_reward(False) == -1.0
    assert stages.refine_reward(None, 1e-6) == -1.0
    assert stages.refine_reward(1e-6, 1e-6) == 0.0
    assert stages.refine_reward(5e-7, 1e-6) == pytest.approx(math.tanh(math.log(2)))
    assert stages.refine_reward(2e-6, 1e-6) == pytest.approx(-0.6)


@given(SECONDS, SECONDS)
def test_the_sign_of_the_reward_says_faster_or_slower(latency, best):
    reward = stages.refine_reward(latency, best)
    assert -1.0 <= reward <= 1.0
    if latency < best:
        assert reward >= 0
    if latency > best:
        assert reward <= 0


POINTS = [
    {"id": "a", "latency": 3e-6, "item": "ma"},
    {"id": "b", "latency": 1e-6, "item": "mb"},
    {"id": "c", "latency": 2e-6, "item": "mc"},
]


def test_start_points_are_picked_by_value_then_by_speed():
    rng = random.Random(0)
    assert stages.pick_point(POINTS, {}, 0.0, rng)["id"] == "b"
    assert stages.pick_point(POINTS, {"ma": 0.5}, 0.0, rng)["id"] == "a"
    assert stages.pick_point(POINTS, {"mb": -0.1}, 0.0, rng)["id"] == "c"


def test_epsilon_is_the_share_of_random_start_points():
    rng = random.Random(7)
    picks = [stages.pick_point(POINTS, {}, 0.3, rng)["id"] for _ in range(2000)]
    # A random pick takes the greedy point in a third of the cases.
    assert abs(sum(pick != "b" for pick in picks) / 2000 - 0.2) < 0.03
