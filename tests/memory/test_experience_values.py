"""Q-values and reward statistics: the update rule, its hull, events that count once, golden numbers of PopArt."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.memory.experience.items import NewItem
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.experience.values import gathered, normalised, step
from orienteer.memory.rundb import RunDB

EVENTS = itertools.count()
finite = st.floats(-1e6, 1e6)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, embedder="hashing", index=False) as opened:
        yield opened


def items(store, count=3):
    mark = next(EVENTS)
    return store.add_many(NewItem("experience", f"lesson {mark} {i}") for i in range(count))


@given(st.lists(finite, min_size=1, max_size=30), st.floats(0.01, 1))
def test_q_stays_in_the_hull_of_its_start_and_the_rewards(rewards, alpha):
    q = 0.0
    for reward in rewards:
        q = step(q, reward, alpha)
        assert min(0.0, *rewards) <= q <= max(0.0, *rewards)
    if alpha == 1:
        assert q == rewards[-1]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.floats(-3, 3), st.sampled_from(["", "a", "b"]), st.sampled_from(["draft", "refine"])
        ),
        min_size=1,
        max_size=12,
    )
)
def test_repeated_events_change_nothing_and_the_course_is_a_chain(store, told):
    ids = items(store)
    mark = next(EVENTS)
    first = {}
    for number, reward, signature, stage in told:
        event = f"r{mark}:{number}:0"
        changes = store.update(event, stage, ids, signature, reward)
        known = first.get((event, stage, signature))
        if known is not None:
            assert changes == known
        else:
            first[event, stage, signature] = changes
    for (event, stage, signature), changes in first.items():
        assert store.update(event, stage, ids, signature, 99.0) == changes
    for item in ids:
        last = {}
        for change in store.history([item]):
            key = (change.stage, change.signature)
            assert change.before == last.get(key, (0.0, 0))[0]
            assert change.visits == last.get(key, (0.0, 0))[1] + 1
            assert change.after == step(change.before, change.reward, 0.3)
            last[key] = (change.after, change.visits)
        for stage, signature in last:
            assert store.values(stage, [item], signature)[item] == last[stage, signature][0]


def test_golden_numbers_of_the_update(store):
    a, b = items(store, 2)
    mark = next(EVENTS)
    (first, second) = store.update(f"g{mark}:0:0", "draft", [a, b], "npu/norm", 1.0)
    assert (first.item, first.before, first.after, first.visits) == (a, 0.0, 0.3, 1)
    assert (second.item, second.after) == (b, 0.3)
    (third,) = store.update(f"g{mark}:1:0", "draft", [a], "npu/norm", -1.0)
    assert third.after == pytest.approx(0.3 + 0.3 * (-1 - 0.3))
    assert store.update(f"g{mark}:2:0", "draft", [a], "", 1.0, alpha=1.0)[0].after == 1.0
    # Stages are apart; a state of which nothing is known falls back to any state.
    assert store.values("refine", [a, b], "npu/norm") == {}
    assert store.values("draft", [a], "npu/norm") == {a: pytest.approx(-0.09)}
    assert store.values("draft", [a], "other") == {a: 1.0}


def test_one_event_with_more_items_changes_the_new_ones_only(store):
    a, b = items(store, 2)
    mark = next(EVENTS)
    store.update(f"m{mark}:0:0", "draft", [a], "", 1.0)
    changes = store.update(f"m{mark}:0:0", "draft", [a, b, a, "unknown"], "", 1.0)
    assert [(c.item, c.visits) for c in changes] == [(a, 1), (b, 1)]


@pytest.mark.parametrize(
    "bad",
    [{"reward": math.nan}, {"reward": math.inf}, {"alpha": 0.0}, {"alpha": 1.5}, {"event": ""}, {"event": "e" * 201},
     {"signature": "s" * 201}, {"stage": "polish"}],
)  # fmt: skip
def test_what_cannot_be_an_update_is_refused(store, bad):
    (item,) = items(store, 1)
    given = {"event": "e:0:0", "stage": "draft", "items": [item], "signature": "", "reward": 1.0} | bad
    with pytest.raises(ValueError, match=r"."):
        store.update(**given)
    assert store.history([item]) == []


def test_golden_numbers_of_the_normalisation(store):
    mark = next(EVENTS)
    raws = [0.5, 0.1, -1.0, 0.3]
    got = [store.normalise(f"p{mark}:{i}:0", "refine", "E2:golden", raw) for i, raw in enumerate(raws)]
    # By hand: the first has no past; the second meets a spread of 0, hence the floor, hence the cut; then mean 0.3,
    # sigma 0.2; then mean -0.4/3, sigma sqrt((0.25 + 0.01 + 1)/3 - (0.4/3)^2).
    sigma = math.sqrt(1.26 / 3 - (0.4 / 3) ** 2)
    assert got == [0.5, -3.0, -3.0, pytest.approx((0.3 + 0.4 / 3) / sigma)]
    # The same event is counted once and gets the same answer, whatever is said the second time.
    assert store.normalise(f"p{mark}:2:0", "refine", "E2:golden", 7.0) == -3.0
    (spread,) = [s for s in store.stats()["rewards"] if s["evidence"] == "E2:golden"]
    assert spread["count"] == 4 and spread["mean"] == pytest.approx(sum(raws) / 4)
    assert spread["sigma"] == pytest.approx(math.sqrt(sum((r + 0.025) ** 2 for r in raws) / 4))


def test_levels_of_evidence_and_stages_are_never_mixed(store):
    mark = next(EVENTS)
    for i, raw in enumerate([0.5, 0.7, 0.6]):
        store.normalise(f"x{mark}:{i}:0", "refine", "E2:apart", raw)
    assert store.normalise(f"x{mark}:9:0", "refine", "E4:apart", 0.25) == 0.25
    assert store.normalise(f"x{mark}:9:0", "draft", "E2:apart", 0.125) == 0.125


def test_the_raw_reward_stands_beside_the_one_that_was_used(store):
    (item,) = items(store, 1)
    mark = next(EVENTS)
    for i, raw in enumerate([0.2, 0.4]):
        event = f"w{mark}:{i}:0"
        store.update(event, "refine", [item], "", store.normalise(event, "refine", "E2:raw", raw))
    assert [(c.raw, c.reward) for c in store.history([item])] == [(0.2, 0.2), (0.4, 3.0)]
    assert [c.item for c in store.history(run_id=f"w{mark}")] == [item, item]
    assert store.history(run_id="w") == []


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_running_statistics_are_those_of_the_whole(raws):
    state = (0, 0.0, 0.0)
    for raw in raws:
        state = gathered(raw, *state)
    mean = math.fsum(raws) / len(raws)
    assert state[0] == len(raws)
    assert state[1] == pytest.approx(mean, abs=1e-9)
    assert state[2] == pytest.approx(math.fsum((raw - mean) ** 2 for raw in raws) / len(raws), abs=1e-9)


@given(finite, st.integers(0, 5), finite, st.floats(0, 1e6))
def test_a_normalised_reward_is_finite_and_cut(raw, count, mean, variance):
    assert -3.0 <= normalised(raw, count, mean, variance) <= 3.0


def test_two_processes_lose_no_update(tmp_path):
    code = """
    import sys
    from pathlib import Path
    from orienteer.memory.experience.store import ExperienceStore
    from orienteer.memory.rundb import RunDB
    home = Path(sys.argv[1])
    with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, embedder="hashing", index=False) as store:
        for i in range(40):
            event = f"{sys.argv[2]}:{i}:0"
            store.normalise(event, "refine", "E2", i / 40)
            store.update(event, "refine", [sys.argv[3]], "s", 1.0)
    """
    with (
        RunDB(tmp_path / "runs.sqlite") as db,
        ExperienceStore.open(tmp_path, db, embedder="hashing", index=False) as s,
    ):
        item = s.add(NewItem("trace", "shared by both"))
        started = [
            subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path), name, item]) for name in "ab"
        ]
        assert [process.wait(100) for process in started] == [0, 0]
        assert len(s.history([item])) == 160
        assert s.values("refine", [item], "s")[item] == pytest.approx(1 - 0.7**80)
        assert s.stats()["rewards"][0]["count"] == 80
