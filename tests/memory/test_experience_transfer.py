"""Export and import: nothing is lost, and a bad file changes nothing."""

from __future__ import annotations

import json
import os
import random

import pytest

from orienteer.errors import StoreError, UsageError
from orienteer.memory.experience import transfer
from orienteer.memory.experience.items import NewItem, Query
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB

TABLES = ("memory_items", "memory_values", "memory_updates", "memory_statistics", "memory_rewards", "artifacts")


@pytest.fixture
def home(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        yield tmp_path, db


@pytest.fixture
def filled(home):
    with ExperienceStore.open(*home, embedder="hashing", index=False) as store:
        store.ids = store.add_many(
            [
                NewItem("trace", "row softmax ü", content="def kernel(): 'ü'\n", task="softmax", run_id="r-1",
                        target="npu", facts={"latency": 1e-5, "schedule": {"BLOCK": 64}}),
                NewItem("experience", "tile too large", outcome="failure", task="matmul", run_id="r-2"),
                NewItem("api", "tl.dot multiplies", name="tl.dot"),
                NewItem("practice", "half \ud800 NUL \x00", content="\ud800\x00 raw"),
            ]
        )  # fmt: skip
        for i, reward in enumerate((1.0, -1.0, 0.5)):
            event = f"r-1:{i}:0"
            store.update(event, "refine", store.ids[: i + 1], "npu/row", store.normalise(event, "refine", "E2", reward))
        yield store


def counts(db):
    with db.read() as conn:
        return [conn.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one() for table in TABLES]


def learnt(store):
    """What is known of every text, whatever its id is."""
    out = {}
    for item in store.get([i for (i,) in ids_of(store)]):
        values = {s: store.values("refine", [item.id], s).get(item.id) for s in ("", "npu/row")}
        course = [(c.event, c.signature, c.reward, c.raw, c.before, c.after, c.visits, c.created)
                  for c in store.history([item.id])]  # fmt: skip
        facts = vars(item) | {"id": None, "store": None}
        out[item.text] = (facts, store.content(item), values, course)
    return out


def ids_of(store):
    with store.db.read() as conn:
        return conn.exec_driver_sql("SELECT id FROM memory_items WHERE store = ? ORDER BY seq", (store.store,)).all()


def test_nothing_is_lost_on_the_way_to_another_home(filled, tmp_path):
    path = tmp_path / "out" / "memory.jsonl"
    assert filled.export(path) == 4
    before = path.read_bytes()
    other = tmp_path / "other"
    with (
        RunDB(other / "runs.sqlite") as db,
        ExperienceStore.open(other, db, "run:r-9", "hashing", index=False) as store,
    ):
        assert store.seed_from(path) == transfer.Imported(4, 4)
        assert learnt(store) == learnt(filled)
        assert store.stats()["rewards"] == filled.stats()["rewards"]
        query = Query("row softmax", "refine", n=1, kinds=("trace",))
        assert store.retrieve(query, random.Random(0)).items[0].visits == 3
        # What is learnt later stays when the same file is told again, for example by a resumed run.
        (item, *_) = [i for (i,) in ids_of(store)]
        store.update("r-9:0:0", "refine", [item], "", -1.0)
        now = learnt(store)
        assert store.seed_from(path) == transfer.Imported(4, 0)
        assert learnt(store) == now
        again = tmp_path / "again.jsonl"
        store.export(again)
        assert len(again.read_text().splitlines()) == len(before.splitlines()) + 1
    assert path.read_bytes() == before and [p.name for p in path.parent.iterdir()] == ["memory.jsonl"]


def test_one_run_can_be_exported_and_then_its_statistics_stay_here(filled, tmp_path):
    path = tmp_path / "run.jsonl"
    assert filled.export(path, run_id="r-1") == 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["item"]["run_id"] for line in lines if "item" in line] == ["r-1"]
    assert not [line for line in lines if "statistic" in line]
    assert {line["update"]["event"] for line in lines if "update" in line} == {f"r-1:{i}:0" for i in range(3)}


def changed(lines, number, path, value):
    record = json.loads(lines[number])
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return [*lines[:number], json.dumps(record), *lines[number + 1 :]]


def index_of(lines, kind):
    return next(i for i, line in enumerate(lines) if kind in json.loads(line))


#: What somebody did to a file, and what is said about it.
HOSTILE = {
    "empty": (lambda x: [], "is empty"),
    "prose": (lambda x: ["hello", *x], "line 1: not JSON"),
    "another format": (lambda x: ['{"format": "other", "version": 1}', *x[1:]], "not a memory export"),
    "newer": (lambda x: changed(x, 0, ["version"], 2), "version 2, this program reads 1"),
    "no counts": (lambda x: changed(x, 0, ["items"], None), "items is missing"),
    "cut": (lambda x: x[:-1], "it was cut"),
    "half a line": (lambda x: [*x[:-1], x[-1][:20]], "not JSON"),
    "longer": (lambda x: [*x, x[-1]], "is there twice"),
    "a list": (lambda x: [*x[:-1], "[1]"], "not a JSON object"),
    "a stranger": (lambda x: [*x[:-1], '{"password": {}}'], "not one of item"),
    "two in one": (lambda x: [*x[:-1], '{"item": {}, "value": {}}'], "not one of item"),
    "an item that is none": (lambda x: changed(x, 1, ["item"], []), "item is no object"),
    "NaN": (lambda x: [line.replace('"q":', '"q":NaN,"x":') for line in x], "NaN is no number"),
    "infinite": (lambda x: [line.replace('"q":', '"q":1e999,"x":') for line in x], "q is no finite number"),
    "huge integer": (lambda x: changed(x, index_of(x, "value"), ["value", "q"], 10**400), "no finite number"),
    "too many digits": (lambda x: [*x[:-1], '{"value": ' + "9" * 5000 + "}"], "not JSON"),
    "q as text": (lambda x: changed(x, index_of(x, "value"), ["value", "q"], "1"), "q is no number"),
    "q as truth": (lambda x: changed(x, index_of(x, "value"), ["value", "q"], True), "q is no number"),
    "negative visits": (lambda x: changed(x, index_of(x, "value"), ["value", "visits"], -1), "visits is no count"),
    "negative variance": (
        lambda x: changed(x, index_of(x, "statistic"), ["statistic", "variance"], -1.0), "variance is below zero"
    ),
    "unknown stage": (lambda x: changed(x, index_of(x, "value"), ["value", "stage"], "win"), "unknown stage"),
    "value of nobody": (lambda x: changed(x, index_of(x, "value"), ["value", "item_id"], "f" * 32), "to no item"),
    "value twice": (lambda x: changed([*x, x[index_of(x, "value")]], 0, ["lines"], len(x) + 1), "value is there twice"),
    "item twice": (lambda x: [*x[:2], x[1], *x[2:]], "is there twice"),
    "another text": (lambda x: changed(x, 1, ["item", "text"], "mine"), "does not belong"),
    "another content": (lambda x: changed(x, 1, ["item", "content"], "evil"), "not what its hash says"),
    "no content": (lambda x: changed(x, 1, ["item", "content"], None), "do not go together"),
    "content as list": (lambda x: changed(x, 1, ["item", "content"], [1]), "do not go together"),
    "hash with a path": (lambda x: changed(x, 1, ["item", "content_sha"], "../../passwd"), "not what its hash says"),
    "NUL": (lambda x: changed(x, 1, ["item", "task"], "a\x00b"), "task holds a NUL"),
    "half a pair": (lambda x: changed(x, 1, ["item", "task"], "\ud800"), "task holds half a surrogate pair"),
    "not UTF-8": (lambda x: [x[0], "\udcff" + x[1], *x[2:]], "line 2: not UTF-8"),
    "unknown kind": (lambda x: changed(x, 1, ["item", "kind"], "rumour"), "unknown kind"),
    "long task": (lambda x: changed(x, 1, ["item", "task"], "t" * 1001), "task is longer than 1000"),
    "bad facts": (lambda x: changed(x, 1, ["item", "facts_json"], "{"), "facts are not JSON"),
    "NaN in facts": (lambda x: changed(x, 1, ["item", "facts_json"], '{"x": NaN}'), "NaN is no number"),
    "facts as list": (lambda x: changed(x, 1, ["item", "facts_json"], "[]"), "facts are no object"),
    "deep": (lambda x: [*x[:-1], "[" * 100_000], "line"),
    "deep facts": (lambda x: changed(x, 1, ["item", "facts_json"], "[" * 100_000), "line 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line_and_changes_nothing(filled, home, tmp_path, name):
    path = tmp_path / "memory.jsonl"
    filled.export(path)
    spoil, says = HOSTILE[name]
    lines = spoil(path.read_text().splitlines())
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    before = counts(home[1])
    with ExperienceStore.open(*home, "run:new", "hashing", index=False) as store:
        with pytest.raises(UsageError) as caught:
            store.import_(path)
        assert says in caught.value.problem and "\n" not in str(caught.value) and len(str(caught.value)) < 500
        assert caught.value.cure.startswith("nothing was changed")
        assert store.count() == 0 and counts(home[1]) == before


def test_huge_lines_are_not_read_into_memory(home, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "MOST_LINE", 10_000)
    path = tmp_path / "memory.jsonl"
    path.write_text("x" * 50_000)
    with pytest.raises(UsageError, match="line 1: longer than"):
        transfer.read(path)


def test_files_that_cannot_be_read_or_written(filled, tmp_path):
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(StoreError, match="memory file"):
            filled.import_(path)
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for a writer
    with pytest.raises(UsageError, match="no plain file"):
        filled.import_(tmp_path / "pipe")
    (tmp_path / "plain").write_text("")
    with pytest.raises(StoreError, match="export"):
        filled.export(tmp_path / "plain" / "x.jsonl")


def test_an_interrupted_export_leaves_the_old_file(filled, tmp_path, monkeypatch):
    path = tmp_path / "out" / "memory.jsonl"
    filled.export(path)
    before = path.read_bytes()
    filled.add(NewItem("trace", "its content is lost", content_sha="0" * 64))
    with pytest.raises(StoreError, match="missing"):
        filled.export(path)
    assert path.read_bytes() == before and len(list(path.parent.iterdir())) == 1
