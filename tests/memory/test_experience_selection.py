"""The choice among the recalled: value, ties, epsilon, lambda."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.memory.experience.selection import Rated, choose, lambda_at, recall_size

rated = st.lists(
    st.builds(
        Rated,
        id=st.integers(0, 10_000).map(lambda n: f"{n:05d}"),
        similarity=st.sampled_from([0.1, 0.5, 0.9]),
        q=st.sampled_from([-1.0, 0.0, 0.5]),
        visits=st.integers(0, 2),
    ),
    max_size=30,
    unique_by=lambda item: item.id,
)


@given(rated, st.integers(0, 8), st.floats(0, 1), st.integers())
def test_a_choice_is_a_small_part_of_what_was_recalled_and_follows_from_the_seed(recalled, n, epsilon, seed):
    chosen = choose(recalled, n, epsilon, random.Random(seed))
    assert len(chosen) == min(n, len(recalled))
    assert {item.id for item, _ in chosen} <= {item.id for item in recalled}
    assert len({item.id for item, _ in chosen}) == len(chosen)
    again = choose(list(reversed(recalled)), n, epsilon, random.Random(seed))
    assert again == chosen


@given(rated, st.integers(0, 8), st.integers())
def test_without_epsilon_the_best_by_value_similarity_and_id_come_back(recalled, n, seed):
    chosen = [item for item, _ in choose(recalled, n, 0.0, random.Random(seed))]
    assert chosen == sorted(recalled, key=lambda i: (-i.q, -i.similarity, i.id))[:n]


def test_how_an_item_was_chosen():
    known, new = Rated("a", 0.1, 0.5, 3), Rated("b", 0.9, 0.0, 0)
    assert choose([new, known], 2, 1.0, random.Random(0)) == [(known, "value"), (new, "fill")]
    assert [how for _, how in choose([new, known], 1, 1.0, random.Random(0))] == ["explore"]


def test_similarity_can_be_mixed_in():
    near, good = Rated("near", 0.9, 0.0, 1), Rated("good", 0.1, 0.5, 1)
    for weight, best in ((0.0, good), (0.5, near), (1.0, near)):
        assert choose([near, good], 1, 0.0, random.Random(0), weight)[0][0] == best


def test_slots_explore_as_often_as_epsilon_says():
    recalled = [Rated(f"{i:02d}", 0.0, float(i), 1) for i in range(20)]
    rng = random.Random(7)
    hows = [how for _ in range(4000) for _, how in choose(recalled, 5, 0.1, rng)]
    # 20,000 draws: six standard deviations are 0.013.
    assert hows.count("explore") / len(hows) == pytest.approx(0.1, abs=0.013)


def test_an_exploring_slot_takes_any_item_that_is_left():
    recalled = [Rated(f"{i:02d}", 0.0, float(i), 1) for i in range(10)]
    rng = random.Random(3)
    first = [choose(recalled, 1, 1.0, rng)[0][0].id for _ in range(5000)]
    counts = [first.count(item.id) for item in recalled]
    assert min(counts) > 380 and max(counts) < 630  # 500 each, sigma 21


def test_lambda_grows_from_its_first_to_its_last():
    course = [lambda_at(r) for r in range(40)]
    assert course[0] == 3.0 and course[30] == course[39] == 45.0
    assert all(a < b for a, b in itertools.pairwise(course[:31]))
    assert lambda_at(5, first=3.0, last=3.0) == pytest.approx(3.0)
    assert lambda_at(0, first=2.0, last=8.0, rounds=0) == 8.0
    assert lambda_at(5, first=2.0, last=8.0, rounds=10) == pytest.approx(4.0)


def test_the_size_of_the_recall():
    assert [recall_size(lam, 5) for lam in (1.0, 1.1, 3.0, 45.0)] == [5, 6, 15, 225]
    assert recall_size(1.1, 30) == 33 and recall_size(3.0, 0) == 0
    for lam, n in ((0.5, 5), (float("nan"), 5), (float("inf"), 5), (3.0, -1)):
        with pytest.raises(ValueError, match=r"cannot be negative|at least 1"):
            recall_size(lam, n)
