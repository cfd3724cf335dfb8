"""Processes that die between two writes, two processes at once, indexes that are broken, foreign or not installed."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from orienteer.memory.experience import index as index_module
from orienteer.memory.experience import search
from orienteer.memory.experience.embedding import Hashing
from orienteer.memory.experience.index import Collection, Folder
from orienteer.memory.experience.items import NewItem, Query
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB

pytest.importorskip("chromadb")

OPEN = """
    import os, signal, sys
    from pathlib import Path
    from orienteer.memory.experience import search
    from orienteer.memory.experience.embedding import Hashing
    from orienteer.memory.experience.items import NewItem
    from orienteer.memory.experience.store import ExperienceStore
    from orienteer.memory.rundb import RunDB
    home = Path(sys.argv[1])
    db = RunDB(home / "runs.sqlite")
    store = ExperienceStore.open(home, db, embedder=Hashing(64), tell=print)
    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def child(code, home, *args, wait=True):
    command = [sys.executable, "-c", textwrap.dedent(OPEN) + textwrap.dedent(code), str(home), *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    return (process.wait(60), process.stdout.read()) if wait else process


class Opened:
    """A store that was opened anew, and what it said."""

    def __init__(self, home, **given):
        self.told = []
        self.db = RunDB(home / "runs.sqlite")
        self.store = ExperienceStore.open(
            home, self.db, **({"embedder": Hashing(64), "tell": self.told.append} | given)
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.store.close()
        self.db.close()

    def whole(self, monkeypatch, count):
        """Check that facts, marks and index agree, and that the index finds every item by its text."""
        with self.db.read() as conn:
            rows = conn.exec_driver_sql("SELECT id, text, indexed FROM memory_items").all()
        assert len(rows) == count
        monkeypatch.setattr(search, "EXACT", 0)
        for row in rows:
            found = self.store.retrieve(Query(row.text, "draft", n=1, policy="similarity"), random.Random(0))
            assert found.items[0].item.id == row.id
        if self.store.stats()["index"] == "chromadb":
            collection = self.store._search._collection
            assert isinstance(collection, Collection)
            assert collection.ids() == {row.id for row in rows}
            with self.db.read() as conn:
                marks = set(conn.exec_driver_sql("SELECT indexed FROM memory_items").scalars())
            assert marks == {self.store.embedder}


def several(home, count=8):
    with Opened(home) as opened:
        return opened.store.add_many(NewItem("trace", f"an item about {word(i)}") for i in range(count))


def word(i):
    return "".join(random.Random(i).choices("abcdefghij", k=8))


@pytest.mark.parametrize(
    "where",
    ["search.Search._load", "search.Collection.upsert", "search.Search._mark"],
    ids=["facts, no vector", "cache, no index", "index, no mark"],
)
def test_a_process_killed_between_the_writes_leaves_what_the_next_repairs(tmp_path, monkeypatch, where):
    several(tmp_path)
    code, _ = child(f'{where} = die\nstore.add(NewItem("trace", "the last one"))', tmp_path)
    assert code == -signal.SIGKILL
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 9)
        assert opened.told == []


def test_a_process_killed_while_forgetting(tmp_path, monkeypatch):
    ids = several(tmp_path)
    first = 'store.add(NewItem("trace", "the last one"))\n'  # the index is in use
    code, _ = child(f'{first}search.Collection.delete = die\nstore.forget(item="{ids[3]}")', tmp_path)
    assert code == -signal.SIGKILL
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 8)
        assert opened.store.get([ids[3]]) == []


def test_two_processes_at_once_on_one_home(tmp_path, monkeypatch):
    ids = several(tmp_path)
    code = """
    store.add(NewItem("trace", f"first of {sys.argv[2]}"))
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(30):
        item = store.add(NewItem("trace", f"number {i} of {sys.argv[2]}"))
        store.update(f"{sys.argv[2]}:{i}:0", "draft", [item, sys.argv[3]], "", 1.0)
    print(store.stats()["index"], flush=True)
    sys.stdin.readline()
    store.close()
    """
    both = [child(code, tmp_path, name, ids[0], wait=False) for name in ("one", "two")]
    try:
        assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
        for process in both:
            process.stdin.write("go\n")
            process.stdin.flush()
        said = sorted(process.stdout.readline().strip() for process in both)
        assert said == [index_module.BUSY, "chromadb"]
        with Opened(tmp_path) as third:  # a third one, while both live, finds everything too
            for name in ("one", "two"):
                query = Query(f"number 17 of {name}", "draft", n=1, policy="similarity")
                assert third.store.retrieve(query, random.Random(0)).items[0].item.text == f"number 17 of {name}"
            assert third.store.values("draft", ids)[ids[0]] == pytest.approx(1 - 0.7**60)
    finally:
        for process in both:
            process.stdin.close()
            assert process.wait(60) == 0
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 8 + 62)


def a_file(chroma):
    shutil.rmtree(chroma)
    chroma.write_text("not a folder")


def one_segment(chroma):
    return next(path for path in chroma.iterdir() if path.is_dir())


def without_an_item(chroma):
    """Two clients at once did this: an item is counted and never found."""
    import chromadb

    client = chromadb.PersistentClient(str(chroma))
    collection = client.list_collections()[0]
    name, told = collection.name, collection.metadata
    client.delete_collection(name)
    fresh = client.create_collection(name, metadata=told, embedding_function=None)
    ids = [f"{i:032x}" for i in range(8)]
    fresh.upsert(ids=ids, embeddings=np.eye(8, 64, dtype=np.float32))
    client.close()


def foreign_size(chroma):
    import chromadb

    client = chromadb.PersistentClient(str(chroma))
    name = client.list_collections()[0].name
    client.delete_collection(name)
    client.create_collection(name, metadata={"embedder": "other", "size": 3}, embedding_function=None)
    client.close()


DAMAGES = {
    "gone": (shutil.rmtree, False),
    "a file": (a_file, True),
    "no database": (lambda chroma: (chroma / "chroma.sqlite3").write_bytes(b"junk" * 4000), True),
    "empty database": (lambda chroma: (chroma / "chroma.sqlite3").write_bytes(b""), False),
    "another embedder": (foreign_size, True),
    "graph gone": (lambda chroma: shutil.rmtree(one_segment(chroma)), True),
    "graph cut": (lambda chroma: (one_segment(chroma) / "data_level0.bin").write_bytes(b"x" * 10), True),
    "other items": (without_an_item, False),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_broken_index_is_built_anew_from_the_facts_and_said_in_one_line(tmp_path, monkeypatch, damage):
    # So small a threshold that the graph is on disk.
    monkeypatch.setitem(index_module._HNSW, "sync_threshold", 10)
    monkeypatch.setitem(index_module._HNSW, "batch_size", 5)
    several(tmp_path, 40)
    break_it, said = DAMAGES[damage]
    break_it(tmp_path / "memory" / "chroma")
    with Opened(tmp_path) as opened:
        opened.store.add(NewItem("trace", "one more after the damage"))
        opened.whole(monkeypatch, 41)
        assert len(opened.told) == said, opened.told
        assert all("built anew from the facts" in line and "\n" not in line for line in opened.told)
    kept = list((tmp_path / "memory").glob("chroma.broken-*"))
    assert len(kept) == said  # what was there may be somebody's: it is moved, not deleted
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 41)
        assert opened.told == []


def test_a_folder_that_cannot_be_moved_away_does_not_stop_the_memory(tmp_path, monkeypatch):
    several(tmp_path)
    monkeypatch.setattr(
        index_module.Collection, "ids", lambda self: (_ for _ in ()).throw(index_module.IndexBroken("bad"))
    )
    with Opened(tmp_path) as opened:
        opened.store.add(NewItem("trace", "one more"))
        assert opened.store.stats()["index"] == "not usable: bad"
        opened.whole(monkeypatch, 9)
        assert len(opened.told) == 2


def test_without_chromadb_every_search_is_exact_and_its_coming_is_noticed(tmp_path, monkeypatch):
    with monkeypatch.context() as absent:
        absent.setattr(Folder, "take", classmethod(lambda cls, path: index_module.MISSING))
        several(tmp_path)
        with Opened(tmp_path) as opened:
            assert opened.store.stats()["index"] == "chromadb is not installed"
            opened.whole(absent, 8)
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 8)


def test_chromadb_really_not_importable(tmp_path):
    code = """
    import importlib.util
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *a: None if name == "chromadb" else real(name, *a)
    store.add(NewItem("trace", "kept"))
    print(store.stats()["index"], store.count(), "chromadb" in sys.modules)
    """
    assert child(code, tmp_path) == (0, "chromadb is not installed 1 False\n")


def test_another_embedder_gets_a_collection_of_its_own(tmp_path, monkeypatch):
    several(tmp_path)
    with Opened(tmp_path, embedder=Hashing(128)) as opened:
        opened.whole(monkeypatch, 8)
    with Opened(tmp_path) as opened:
        opened.whole(monkeypatch, 8)


@pytest.mark.parametrize("content", [None, b"", b"junk" * 4000], ids=["gone", "empty", "junk"])
def test_a_damaged_vector_cache_is_made_anew(tmp_path, monkeypatch, content):
    several(tmp_path)
    path = tmp_path / "memory" / "vectors.sqlite"
    path.unlink() if content is None else path.write_bytes(content)
    with Opened(tmp_path) as opened:
        opened.store.add(NewItem("trace", "one more"))
        opened.whole(monkeypatch, 9)
        assert len(opened.told) == bool(content)


def test_two_stores_of_one_process_share_the_index_and_its_rebuilding(tmp_path, monkeypatch):
    several(tmp_path)
    with Opened(tmp_path) as one, Opened(tmp_path, store="run:r-1") as two:
        one.store.add(NewItem("trace", "one more"))
        two.store.add(NewItem("trace", "a private one"))
        assert one.store.stats()["index"] == two.store.stats()["index"] == "chromadb"
        one.store._search._rebuild(index_module.IndexBroken("for the test"))
        two.store._search._rebuild(index_module.IndexBroken("noticed second"))
        assert len(list((tmp_path / "memory").glob("chroma.broken-*"))) == 1
        monkeypatch.setattr(search, "EXACT", 0)
        for store, text in ((one.store, "one more"), (two.store, "a private one")):
            assert store.retrieve(Query(text, "draft", n=1), random.Random(0)).items[0].item.text == text


def test_a_fork_does_not_take_the_index_of_its_parent(tmp_path):
    code = """
    store.add(NewItem("trace", "of the parent"))
    pid = os.fork()
    if pid == 0:
        mine = ExperienceStore.open(home, RunDB(home / "runs.sqlite"), embedder=Hashing(64))
        mine.add(NewItem("trace", "of the child"))
        os._exit(mine.stats()["index"] != "another process holds the index")
    assert os.waitpid(pid, 0)[1] == 0
    store.add(NewItem("trace", "of the parent again"))
    print(store.count(), store.stats()["indexed"])
    """
    assert child(code, tmp_path) == (0, "3 3\n")
