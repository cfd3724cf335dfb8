"""Remembering and recalling: filters, leak guard, policies, API knowledge, and that exact and indexed search agree."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.errors import UsageError
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.experience import bench, search
from orienteer.memory.experience.embedding import Hashing
from orienteer.memory.experience.items import KINDS, NewItem, Query
from orienteer.memory.experience.selection import recall_size
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB

TASKS = ("softmax", "layernorm", "matmul", "gelu")
EVERY = {"kinds": KINDS}


@pytest.fixture
def home(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        yield tmp_path, db


@pytest.fixture
def store(home):
    with ExperienceStore.open(*home, embedder="hashing", index=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    home = tmp_path_factory.mktemp("full")
    with RunDB(home / "runs.sqlite") as db, ExperienceStore.open(home, db, embedder="hashing", index=False) as opened:
        made = [
            NewItem(
                kind=KINDS[i % 4],
                text=f"{TASKS[i % 3]} lesson {i % 17} of {i}",
                outcome=("success", "failure", "")[i % 3],
                task="" if i % 4 == 0 else TASKS[(i // 4) % 4],
                task_sha="" if i % 4 == 0 else f"sha-{TASKS[(i // 4) % 4]}",
                target=("npu", "cpu", "")[i % 3],
                bottleneck=("vector", "mte2", "")[i % 3],
            )
            for i in range(200)
        ]
        opened.made = opened.add_many(made)
        for i in range(60):
            opened.update(f"r:{i}:0", "draft", opened.made[i : i + 3], "", random.Random(i).choice([-1.0, 1.0]))
        yield opened


def texts(retrieval):
    return [found.item.text for found in retrieval.items]


def test_an_item_comes_back_as_it_was_given(store):
    new = NewItem(
        kind="trace", text="row softmax in one pass", outcome="success", content="def kernel(): ...\n", name="n",
        task="softmax", task_sha="a" * 64, target="npu", family="rowwise", bottleneck="vector", stage="refine",
        evidence="E2", run_id="r-1", candidate_id="c1", facts={"latency": 1e-5, "schedule": {"BLOCK": 128}},
    )  # fmt: skip
    item = store.add(new)
    (found,) = store.get([item])
    for field in ("kind", "text", "outcome", "name", "task", "task_sha", "target", "family", "bottleneck", "stage"):
        assert getattr(found, field) == getattr(new, field)
    assert (found.evidence, found.run_id, found.candidate_id, found.facts) == ("E2", "r-1", "c1", new.facts)
    assert store.content(found) == new.content
    assert store.add(new) == item and store.count() == 1
    assert store.get(["unknown", item, item]) == [found]


def test_the_same_text_for_another_target_or_content_is_another_item(store):
    ids = store.add_many(
        [NewItem("trace", "t"), NewItem("trace", "t", target="npu"), NewItem("trace", "t", content="x"),
         NewItem("practice", "t"), NewItem("trace", "t", task="a"), NewItem("trace", "t")]
    )  # fmt: skip
    assert len(set(ids)) == 5 and ids[0] == ids[-1] and store.count() == 5


@pytest.mark.parametrize(
    "bad", [{"kind": "rumour"}, {"text": " \n"}, {"outcome": "maybe"}, {"stage": "polish"}, {"facts": {"x": {1: 2}}}]
)
def test_bad_items_are_refused_and_nothing_is_kept(store, bad):
    if "facts" in bad:  # lenient: facts are turned into plain data
        assert store.get([store.add(NewItem("trace", "t", **bad))])[0].facts == {"x": {"1": 2}}
        return
    with pytest.raises(ValueError, match=r"."):
        store.add_many([NewItem("trace", "good"), NewItem(**({"kind": "trace", "text": "t"} | bad))])
    assert store.count() == 0


def test_hostile_texts_are_kept_in_a_form_that_every_database_holds(store):
    item = store.add(NewItem("trace", "nul \x00 and half \ud800 of a pair", content="\ud800\x00", task="\x00"))
    (found,) = store.get([item])
    assert "\x00" not in found.text and found.text.encode()
    assert store.content(found) == "\ud800\x00"
    assert store.retrieve(Query("half \ud800 of a pair \x00", "draft", n=1), random.Random(0)).items[0].item == found


@settings(max_examples=120, deadline=None)
@given(
    n=st.integers(0, 8), lam=st.floats(1, 40), epsilon=st.floats(0, 1), seed=st.integers(0, 99),
    kinds=st.sets(st.sampled_from(KINDS)), outcomes=st.sets(st.sampled_from(["success", "failure"])),
    target=st.sampled_from([None, "npu", "cpu", "gpu"]), task=st.sampled_from([None, "softmax", "sha-gelu"]),
    excluded=st.sets(st.sampled_from([*TASKS, "sha-matmul", "*norm"])), bottleneck=st.sampled_from([None, "mte2"]),
    policy=st.sampled_from(["value", "similarity", "none"]), threshold=st.sampled_from([None, 0.3]),
)  # fmt: skip
def test_what_comes_back_is_little_allowed_recalled_and_repeatable(
    full, n, lam, epsilon, seed, kinds, outcomes, target, task, excluded, bottleneck, policy, threshold
):
    query = Query(
        "softmax lesson 3", "draft", n=n, lam=lam, epsilon=epsilon, kinds=kinds, outcomes=outcomes, target=target,
        task=task, exclude_tasks=excluded, bottleneck=bottleneck, policy=policy, similarity_threshold=threshold,
        exclude=frozenset(full.made[:20]),
    )  # fmt: skip
    found = full.retrieve(query, random.Random(seed))
    assert len(found.items) <= n and found.recalled <= recall_size(lam, n)
    assert found == full.retrieve(query, random.Random(seed))
    wide = full.retrieve(
        Query(**(vars(query) | {"n": 200, "policy": "similarity", "similarity_threshold": None})), random.Random(0)
    )
    nearest = [one.item.id for one in wide.items]
    for one in found.items:
        item = one.item
        assert one.item.id in nearest[: recall_size(lam, n)]
        assert not kinds or item.kind in kinds
        assert not outcomes or item.outcome in outcomes
        assert target is None or item.target in (target, "")
        assert task is None or task in (item.task, item.task_sha)
        assert not excluded & {item.task, item.task_sha}
        assert "*norm" not in excluded or item.task != "layernorm"
        assert bottleneck is None or item.bottleneck == bottleneck
        assert threshold is None or one.similarity >= threshold
        assert item.id not in query.exclude
    if policy == "none":
        assert found.items == () and found.recalled == 0
    if policy == "similarity":
        assert [one.item.id for one in found.items] == [i for i in nearest[:n] if i in {o.item.id for o in found.items}]


def test_values_choose_among_the_recalled_and_similarity_alone_does_not(store):
    ids = store.add_many(NewItem("practice", f"use a larger tile, variant {i}") for i in range(12))
    before = store.retrieve(Query("use a larger tile", "refine", n=3, epsilon=0.0), random.Random(0))
    assert before.recalled == 9 and {one.how for one in before.items} == {"fill"}
    good = [i for i in ids if i not in {one.item.id for one in before.items}]
    recalled = {one.item.id for one in store.retrieve(
        Query("use a larger tile", "refine", n=9, policy="similarity"), random.Random(0)).items}  # fmt: skip
    (good,) = [i for i in good if i in recalled][:1]
    for i in range(3):
        store.update(f"r:{i}:0", "refine", [good], "npu", 1.0)
    value = store.retrieve(Query("use a larger tile", "refine", n=3, epsilon=0.0, signature="npu"), random.Random(0))
    assert value.items[0].item.id == good and value.items[0].how == "value" and value.items[0].visits == 3
    assert value.items[0].q == pytest.approx(1 - 0.7**3)
    # Another stage and another policy know nothing of it.
    for query in (
        Query("use a larger tile", "draft", n=3, epsilon=0.0),
        Query("use a larger tile", "refine", n=3, policy="similarity"),
    ):
        found = store.retrieve(query, random.Random(0))
        assert [one.item.id for one in found.items] == [one.item.id for one in before.items]


def test_values_of_one_state_count_before_those_of_any(store):
    a, b = store.add_many([NewItem("practice", "same words a"), NewItem("practice", "same words b")])
    store.update("r:0:0", "draft", [a], "s1", 1.0)
    store.update("r:1:0", "draft", [a], "s2", -1.0)
    store.update("r:1:0", "draft", [b], "s2", 0.5)

    def best(signature):
        query = Query("same words", "draft", n=1, lam=2.0, epsilon=0.0, signature=signature)
        return store.retrieve(query, random.Random(0)).items[0].item.id

    assert best("s1") == a and best("s2") == b and best("s3") == b


def test_the_leak_guard_keeps_held_out_operators_away(store):
    store.add_many(
        NewItem(kind, f"{task} kernel", task=task, task_sha=f"sha-{task}")
        for task in ("softmax", "log_softmax", "gelu")
        for kind in ("experience", "trace")
    )
    store.add(NewItem("practice", "softmax: subtract the maximum"))
    for guard in ({"softmax", "log_softmax"}, {"*softmax"}, {"sha-softmax", "sha-log_softmax"}):
        found = store.retrieve(Query("softmax kernel", "draft", n=20, exclude_tasks=guard), random.Random(0))
        assert {one.item.task for one in found.items} == {"gelu", ""}, guard
    everything = store.retrieve(Query("softmax kernel", "draft", n=20), random.Random(0))
    assert len(everything.items) == 7


def test_stores_are_apart(home):
    with ExperienceStore.open(*home, embedder="hashing", index=False) as shared:
        item = shared.add(NewItem("trace", "common"))
        with ExperienceStore.open(*home, "run:r-1", "hashing", index=False) as private:
            other = private.add(NewItem("trace", "common"))
            assert other != item and private.count() == 1
            private.update("r-1:0:0", "draft", [other, item], "", 1.0)
            assert shared.values("draft", [item]) == {} and private.values("draft", [other]) == {other: 0.3}
            assert private.forget(everything=True) == 1 and private.count() == 0 and shared.count() == 1
            assert not private.retrieve(Query("common", "draft"), random.Random(0)).items


def test_api_knowledge_is_found_by_bundle_name_and_likeness_not_by_value(store):
    store.add_many(
        [
            NewItem("api", "tl.load reads a block from memory", name="tl.load", family="memory", target="npu"),
            NewItem("api", "tl.dot multiplies two tiles", name="tl.dot", family="matmul"),
            NewItem("api", "a kernel is a function with the jit decorator", target="npu", facts={"bundle": True}),
            NewItem("api", "omp parallel for", name="omp", target="cpu", facts={"bundle": False}),
            NewItem("trace", "tl.load of a row"),
        ]
    )
    assert [i.text[:8] for i in store.bundle("npu")] == ["a kernel"] and store.bundle("cpu") == []
    assert [i.name for i in store.exact(["tl.dot", "tl.load", "tl.nope"], "npu")] == ["tl.dot", "tl.load"]
    assert [i.name for i in store.exact(["tl.dot", "tl.load"], "cpu")] == ["tl.dot"]
    assert [i.name for i in store.exact_in("x = tl.load(p)\ny = tl.dot(x, x)  # omp", None)] == [
        "tl.load",
        "tl.dot",
        "omp",
    ]
    assert [i.name for i in store.api("npu", ["tl.load"])] == ["", "tl.load"]
    assert store.knowledge("how to read from memory", "npu", n=1)[0].name == "tl.load"
    # No query recalls it unless it says so.
    assert texts(store.retrieve(Query("tl.load reads a block", "draft", n=9), random.Random(0))) == ["tl.load of a row"]


def test_what_another_store_object_adds_and_forgets_is_seen(home):
    with (
        ExperienceStore.open(*home, embedder="hashing", index=False) as one,
        ExperienceStore.open(*home, embedder="hashing", index=False) as two,
    ):
        first = one.add(NewItem("trace", "first", task="a"))
        assert texts(two.retrieve(Query("first", "draft"), random.Random(0))) == ["first"]
        two.add(NewItem("trace", "second", task="b"))
        assert one.forget(task="a") == 1
        assert texts(two.retrieve(Query("first", "draft"), random.Random(0))) == ["second"]
        assert two.get([first]) == [] and two.update("r:0:0", "draft", [first], "", 1.0) == []


def test_removing_a_run_leaves_what_it_taught_and_forgetting_it_does_not(store):
    Catalogue(store.db).create(id="r-1", method="m", seed=0, status="done", run_version=1, config_json="{}")
    item = store.add(NewItem("trace", "a lesson", run_id="r-1", candidate_id="c"))
    store.add(NewItem("trace", "another", run_id="r-2"))
    store.update("r-1:0:0", "draft", [item], "", 1.0)
    Catalogue(store.db).remove("r-1")
    assert store.values("draft", [item]) == {item: 0.3}
    assert store.forget(run_id="r-1") == 1
    assert store.count() == 1 and store.history([item]) == [] and store.values("draft", [item]) == {}


def test_forgetting_needs_to_be_told_what(store):
    store.add(NewItem("trace", "kept"))
    for nothing in ({}, {"everything": True, "task": "a"}):
        with pytest.raises(UsageError, match="say what"):
            store.forget(**nothing)
    assert store.count() == 1


@pytest.mark.parametrize("name", ["", "x" * 81, "a\nb"])
def test_bad_names_of_stores(home, name):
    with pytest.raises(UsageError, match="memory store"):
        ExperienceStore.open(*home, name, "hashing")


class Points:
    """Vectors in clusters, so that an index has something to find."""

    name, size = "points", 48

    def embed(self, texts):
        out = np.zeros((len(texts), self.size), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            number = int(text.split()[-1])
            centre = np.random.default_rng(number % 40).standard_normal(self.size)
            row[:] = centre + 0.5 * np.random.default_rng(1000 + number).standard_normal(self.size)
        return out / np.linalg.norm(out, axis=1, keepdims=True)


def test_the_index_brings_what_exact_search_brings(home, monkeypatch):
    pytest.importorskip("chromadb")
    with ExperienceStore.open(*home, embedder=Points()) as store:
        store.add_many(
            NewItem("trace", f"p {i}", target="npu" if i % 2 else "cpu", task=f"t{i % 50}") for i in range(3000)
        )
        queries = [
            Query(f"q {i}", "draft", n=10, policy="similarity", **extra)
            for i in range(3000, 3020)
            for extra in ({}, {"target": "npu"}, {"task": "t7"}, {"exclude_tasks": {"t1?"}}, {"exclude": {"x"}})
        ]
        exact = [store.retrieve(query, random.Random(0)) for query in queries]
        asked = []
        real = search.Collection.query
        monkeypatch.setattr(search, "EXACT", 0)
        monkeypatch.setattr(search.Collection, "query", lambda self, *a: asked.append(a[1]) or real(self, *a))
        indexed = [store.retrieve(query, random.Random(0)) for query in queries]
        assert len(asked) >= len(queries)
        same = sum(one == two for one, two in zip(exact, indexed, strict=True))
        assert same >= 0.95 * len(queries)
        # What the index does not hold yet is found all the same.
        monkeypatch.setattr(search.Search, "_attach", lambda self: False)
        late = store.add(NewItem("trace", "p 3000"))
        monkeypatch.undo()
        monkeypatch.setattr(search, "EXACT", 0)
        found = store.retrieve(Query("q 3000", "draft", n=1, policy="similarity"), random.Random(0))
        assert found.items[0].item.id == late


def test_no_text_is_embedded_twice(home):
    class Counting(Hashing):
        def embed(self, texts):
            seen.extend(texts)
            return super().embed(texts)

    seen = []
    with ExperienceStore.open(*home, embedder=Counting(64), index=False) as store:
        store.add_many([NewItem("trace", "a"), NewItem("trace", "b"), NewItem("practice", "a")])
        for _ in range(3):
            store.retrieve(Query("q", "draft"), random.Random(0))
    with ExperienceStore.open(*home, "run:other", Counting(64), index=False) as store:
        store.add(NewItem("trace", "b"))
        store.retrieve(Query("q", "draft"), random.Random(0))
        store.retrieve(Query("a", "draft"), random.Random(0))
    assert sorted(seen) == ["a", "b", "q"]


def test_the_bench_asks_every_form_of_question_of_a_real_store(tmp_path):
    found = bench.measure_retrieval(900, queries=3, folder=tmp_path, index=False)
    assert found["items"] == 900 and found["index"] == "switched off" and found["cpu_ms"].keys() == bench.QUERIES.keys()
    assert all(0 < times["median"] <= times["most"] for times in found["cpu_ms"].values())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("index", [False, True])
def test_threads_share_a_store(home, index):
    if index:
        pytest.importorskip("chromadb")
    with ExperienceStore.open(*home, embedder="hashing", index=index) as store, ThreadPoolExecutor(6) as pool:

        def work(number):
            item = store.add(NewItem("trace", f"item of thread {number}"))
            store.update(f"r:{number}:0", "draft", [item], "s", 1.0)
            query = Query(f"item of thread {number}", "draft", n=1, policy="similarity")
            return item, store.retrieve(query, random.Random(0)).items[0].item.id

        done = list(pool.map(work, range(60)))
        assert all(added == found for added, found in done) and store.count() == 60
        assert store.values("draft", [item for item, _ in done]) == {item: 0.3 for item, _ in done}
        assert store.stats()["indexed"] == 60 * index
