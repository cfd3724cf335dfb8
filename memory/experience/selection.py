"""Which of the recalled items go into the context: the value filter, epsilon-greedy, and the schedule of lambda.

EvoKernel (arXiv 2603.10846): dense recall gives K = lambda*N candidates, the stage's Q-value filters them to N, with
epsilon-greedy exploration. The paper does not print whether epsilon is drawn once per retrieval or per item. Here it
is drawn per slot: one exploring draw then costs one item of the context and not all that was learnt about it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

#: The paper saturated at lambda 2 and went on after multiplying it by 15.
FIRST_LAMBDA, LAST_LAMBDA, LAMBDA_ROUNDS = 3.0, 45.0, 30


@dataclass(frozen=True)
class Rated:
    """A recalled item before the choice: its similarity, its value and how often the value was updated."""

    id: str
    similarity: float
    q: float
    visits: int


def recall_size(lam: float, n: int) -> int:
    """Return K, the number of items to recall for ``n`` slots: ``ceil(lam * n)``, never fewer than ``n``.

    Raises:
        ValueError: ``lam`` is below 1 or not finite, or ``n`` is negative.
    """
    if not math.isfinite(lam) or lam < 1:
        raise ValueError(f"lambda is {lam}; it is a finite number of at least 1")
    if n < 0:
        raise ValueError(f"n is {n}; it cannot be negative")
    # Rounded first: 1.1 * 30 is 33.000000000000004 in floating point.
    return max(n, math.ceil(round(lam * n, 9)))


def lambda_at(
    round_: int, *, first: float = FIRST_LAMBDA, last: float = LAST_LAMBDA, rounds: int = LAMBDA_ROUNDS
) -> float:
    """Return lambda in a round of the sweep over the tasks: from ``first`` to ``last`` by equal factors, then ``last``.

    A wide recall is worth more the more values are known, so it widens as the run goes on.

    Args:
        round_: from 0.
        first, last: lambda in round 0 and from round ``rounds`` on.
        rounds: how many rounds the growth takes; 0: ``last`` at once.
    """
    if rounds <= 0 or round_ >= rounds:
        return last
    return first * (last / first) ** (max(0, round_) / rounds)


def rank(rated: Rated, weight: float) -> tuple[float, float, str]:
    """Return the key by which items are put in order, best first: value, then similarity, then id."""
    value = rated.q if weight == 0 else weight * rated.similarity + (1 - weight) * rated.q
    return (-value, -rated.similarity, rated.id)


def choose(
    rated: Sequence[Rated], n: int, epsilon: float, rng: random.Random, weight: float = 0.0
) -> list[tuple[Rated, str]]:
    """Return at most ``n`` of the recalled items, each with how it was chosen (``value``, ``explore``, ``fill``).

    Every slot draws once from ``rng``: below ``epsilon`` it takes any item that is left, else the first by
    :func:`rank`. ``fill`` marks a greedy choice about which nothing was learnt yet. Where no more than ``n`` items
    were recalled all of them come back, in order of rank, and nothing is drawn.
    """
    left = sorted(rated, key=lambda item: rank(item, weight))
    if len(left) <= n:
        return [(item, "value" if item.visits else "fill") for item in left]
    chosen: list[tuple[Rated, str]] = []
    for _ in range(n):
        if rng.random() < epsilon:
            chosen.append((left.pop(rng.randrange(len(left))), "explore"))
        else:
            best = left.pop(0)
            chosen.append((best, "value" if best.visits else "fill"))
    return chosen
