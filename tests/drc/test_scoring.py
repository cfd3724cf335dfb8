"""Scores as Rule2DRC counts them, and what they hide."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.environments.layout.results import DeckResult, RunStatus
from orienteer.environments.layout.tasks import LabelledLayout, Rule, RuleTask
from orienteer.evaluators.drc import clusters, scoring
from orienteer.evaluators.drc.observed import Test, observed, telling


def task(*labels, categories=("A", "B")):
    layouts = tuple(
        LabelledLayout(Path(f"{n}.gds"), dict(zip(categories, map(bool, row), strict=True)))
        for n, row in enumerate(labels)
    )
    rules = tuple(Rule(c, c) for c in categories)
    return RuleTask("t", "t", "t", {"m": (1, 0)}, rules, tuple(categories), layouts)


def ok(**counts):
    return DeckResult(RunStatus.OK, counts)


FAILED = DeckResult(RunStatus.ERROR, message="undefined method")


def test_right_everywhere_is_a_success():
    found = scoring.score(task((1, 0), (0, 1), (0, 0)), [ok(A=3, B=0), ok(B=1), ok()])
    assert found.success and found.right and found.case_accuracy == 1 and found.ran == 1
    assert found.categories["A"] == scoring.Confusion(tp=1, tn=2)


def test_a_category_that_nothing_violates_cannot_be_won_and_is_said_to():
    found = scoring.score(task((1, 0), (0, 0)), [ok(A=1), ok()])
    assert not found.success and found.right and found.unwinnable == ("B",)


def test_an_unknown_category_is_no_success_but_one_with_nothing_in_it_is_nothing():
    rows = task((1,), (0,), categories=("A",))
    assert not scoring.score(rows, [ok(A=1, X=1), ok()]).success
    assert scoring.score(rows, [ok(A=1, X=0), ok()]).success


def test_a_failed_run_counts_as_no_violation_and_shows_as_a_failure():
    found = scoring.score(task((1,), (0,), categories=("A",)), [ok(A=1), FAILED])
    assert found.success and not found.right and found.ran == 0.5 and found.case_accuracy == 0.5
    assert found.failures == {"error: undefined method": 1}


def test_pools_are_those_published():
    assert [list(map(len, scoring.pools(count, size))) for size, count in scoring.POOLS.items()] == [
        [10, 10, 10], [15, 15, 15], [20, 20, 20],
    ]  # fmt: skip
    assert scoring.best_of([0.5, 1.0, 1.0, -1]) == 1
    mean, spread = scoring.over_pools([[True, False], [True, True], [False, False]])
    assert mean == pytest.approx(0.5) and spread == pytest.approx((1 / 6) ** 0.5)


# -- clusters -------------------------------------------------------------------------------------------------------


@st.composite
def standings(draw):
    tests = draw(st.integers(0, 4))
    extra = draw(st.integers(0, 3))
    expected = draw(st.text("01", min_size=tests, max_size=tests))
    labels = tuple(draw(st.lists(st.integers(0, 1), min_size=extra, max_size=extra)))
    found = []
    for index in range(draw(st.integers(1, 8))):
        pattern = draw(st.text("01", min_size=tests, max_size=tests))
        bits = tuple(draw(st.lists(st.sampled_from([0, 1, None]), min_size=extra, max_size=extra)))
        base = draw(st.sampled_from([-1.0, 0.5, 1.0]))
        found.append(clusters.Standing(index, f"cand_{index:04d}", pattern, expected, base, bits, labels))
    return found


@given(standings())
def test_clusters_part_the_valid_candidates_by_what_they_do(items):
    groups = clusters.clusters(items)
    assert sorted(s.index for g in groups for s in g) == [s.index for s in items if s.valid]
    assert all(len({(s.pattern, s.extra) for s in g}) == 1 for g in groups)
    assert len({(g[0].pattern, g[0].extra) for g in groups}) == len(groups)


@given(standings())
def test_the_target_is_worth_most_and_ties_go_to_size_then_to_the_lowest_index(items):
    target = clusters.target(items)
    others = [g for g in clusters.clusters(items) if len(g) > 1]
    assert bool(target) == bool(others)
    for group in others:
        mine, theirs = target[0].score * len(target), group[0].score * len(group)
        assert (mine, len(target), -target[0].index) >= (theirs, len(group), -group[0].index)


@given(standings(), st.integers(0, 9), st.integers(0, 9))
def test_representatives_are_members_in_order_and_the_same_every_time(items, step, seed):
    chosen = clusters.representatives(items, step, seed)
    assert len(chosen) == min(3, len(items)) and [s.index for s in chosen] == sorted(s.index for s in chosen)
    assert chosen == clusters.representatives(list(reversed(items)), step, seed)


def test_a_failed_run_is_an_answer_of_its_own_and_wrong():
    one = clusters.Standing(0, "cand_0000", "1", "1", 1.0, (None,), (0,))
    assert one.right == 1 and one.tests == 2 and clusters.splits([one, one], [None, 0])


# -- layouts that tell decks apart ----------------------------------------------------------------------------------

answers = st.text("01N", min_size=4, max_size=4)


@given(st.lists(answers, min_size=1, max_size=8), st.integers(1, 8))
def test_what_tells_decks_apart_tells_as_much_as_all_layouts_do(said, most):
    tests = [Test(str(n), {"A": text}, size=n) for n, text in enumerate(said)]
    chosen = telling(tests, range(4), most)
    assert len(chosen) <= most and all(len(set(test.answers["A"])) > 1 for test in chosen)

    def parted(tests):
        return len({tuple(test.answer(deck) for test in tests) for deck in range(4)})

    if most >= 3:  # three layouts are enough for four decks
        assert parted(chosen) == parted(tests)


def test_what_decks_say_of_a_layout_is_kept_per_category():
    found, unknown = observed([ok(A=1), ok(B=2, X=1), FAILED], ["A", "B"])
    assert found == {"A": "10N", "B": "01N"} and unknown == "010"
    test = Test("x", found, unknown=unknown)
    assert [test.bit(deck) for deck in range(3)] == [1, 1, None]
