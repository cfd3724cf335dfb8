"""Requests: names, settings, budgets."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from orienteer.agents.runtime import Method, Settings, registry
from orienteer.agents.runtime.budget import Budget
from orienteer.agents.runtime.config import Budgets, RunConfig, build_settings, parse_set
from orienteer.errors import BudgetReached, Interrupted, UsageError


class Inner(Settings):
    depth: int = 1


class Options(Settings):
    beam: int = Field(default=4, ge=1)
    rate: float = 0.5
    fast: bool = False
    names: list[str] = Field(default_factory=list)
    inner: Inner = Inner()


def test_set_is_read_as_the_types_say():
    values = parse_set(["beam=8", "rate=1e-3", "fast=yes", 'names=["a", "b"]', "inner.depth=3"])
    assert build_settings(Options, values) == Options(
        beam=8, rate=1e-3, fast=True, names=["a", "b"], inner=Inner(depth=3)
    )


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["beem=8"], "did you mean beam"), (["beam=x"], "beam='x'"), (["beam=0"], "greater than or equal to 1"),
        (["beam"], "name=value"), (["=3"], "name=value"), (["a..b=3"], "name=value"), (["inner.dept=3"], "inner.dept"),
        (["inner=3", "inner.depth=2"], "was given a value"), (["inner.depth=2", "inner=3"], "overwrites"),
        (["zzz=1"], "there are: beam"), (["names=a"], "names='a'"),
    ],
)  # fmt: skip
def test_bad_settings_are_said_in_one_line(pairs, says):
    with pytest.raises(UsageError) as caught:
        build_settings(Options, parse_set(pairs))
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_registry_knows_paths_and_names():
    assert registry.find("sorting_network:SortingNetwork").name == "sorting-network"
    assert "evokernel" in registry.names()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("evokernal", "did you mean evokernel"), ("", "known: "), ("json:dumps", "no method"),
        ("nosuch:Thing", "nosuch"), ("json:nosuch", "nosuch"),
        ("orienteer.agents.runtime.method:Ask", "no method"), (":X", "cannot be imported"),
    ],
)  # fmt: skip
def test_unknown_methods(name, says):
    with pytest.raises(UsageError, match=says):
        registry.find(name)
    assert issubclass(registry.find("sorting_network:SortingNetwork"), Method)


@pytest.mark.parametrize("limits", [{"evals": -1}, {"tokens": float("nan")}, {"time": float("inf")}, {"cost": "x"}])
def test_bad_budgets(limits):
    with pytest.raises(UsageError, match=next(iter(limits))):
        Budgets(**limits)


@settings(max_examples=40, deadline=None)
@given(
    limit=st.integers(0, 400),
    calls=st.lists(st.tuples(st.integers(1, 120), st.integers(0, 100)), min_size=1, max_size=24),
)
def test_reservations_at_once_never_exceed_the_budget(limit, calls):
    budget = Budget(Budgets(tokens=limit))
    work, lock, most = list(calls), threading.Lock(), [0]

    def worker():
        while True:
            with lock:
                if not work:
                    return
                tokens, share = work.pop()
            try:
                held = budget.reserve(tokens, None)
            except BudgetReached:
                continue
            with lock:
                most[0] = max(most[0], budget.tokens + sum(r.tokens for r in list(budget._open.values())))
            budget.settle(held, tokens * share // 100, None)
            budget.settle(held, 10**9, None)  # a second settlement changes nothing

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert most[0] <= limit and budget.tokens <= limit


def test_money_is_limited_where_the_price_is_known():
    budget = Budget(Budgets(cost=1.0))
    held = budget.reserve(10, 0.6)
    with pytest.raises(BudgetReached, match="money"):
        budget.reserve(10, 0.6)
    budget.settle(held, 10, 0.1)
    budget.settle(budget.reserve(10, 0.6), 10, 0.6)
    assert budget.cost == pytest.approx(0.7)


def test_an_unknown_price_is_said_once_and_tokens_still_count():
    events = []
    budget = Budget(Budgets(cost=1.0, tokens=25), on_event=lambda kind, facts: events.append(kind))
    for _ in range(2):
        budget.settle(budget.reserve(10, None), 10, None)
    assert events == ["budget.blind"]
    with pytest.raises(BudgetReached, match="tokens"):
        budget.reserve(10, None)


def test_waiting_for_calls_in_flight_ends_when_they_settle_or_the_run_stops():
    budget = Budget(Budgets(tokens=100), cancel=(cancel := threading.Event()))
    held, got = budget.reserve(90, None), []

    def other():
        try:
            got.append(budget.reserve(50, None))
        except Interrupted:
            got.append("stopped")

    thread = threading.Thread(target=other)
    thread.start()
    budget.settle(held, 10, None)
    thread.join(10)
    assert got[0].tokens == 50
    budget.settle(got[0], 0, None)
    budget.reserve(90, None)
    thread = threading.Thread(target=other)
    thread.start()
    cancel.set()
    thread.join(10)
    assert got[1] == "stopped"


@pytest.mark.parametrize("bad", [{"seed": 2**63}, {"seed": "x"}, {"workers": 0}, {"settings": {"x": float("nan")}}])
def test_bad_requests(bad):
    with pytest.raises(UsageError):
        RunConfig("x", **bad).document()


def test_time_that_is_up_ends_also_a_wait_for_calls_in_flight():
    now = [0.0]
    budget = Budget(Budgets(tokens=100, time=10), clock=lambda: now[0])
    assert budget.time_left() == 10
    assert Budget(Budgets()).time_left() is None
    other = threading.Thread(target=lambda: budget.reserve(80, 0.0))
    other.start()
    other.join()
    later = threading.Timer(0.1, lambda: now.__setitem__(0, 11.0))
    later.start()
    with pytest.raises(BudgetReached, match="time"):
        budget.reserve(50, 0.0)
    assert budget.time_left() == 0
