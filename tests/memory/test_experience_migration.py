"""A database of the first schema becomes one of the second, with its runs, and a copy of it is kept."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import URL, create_engine

from orienteer.errors import StoreError
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.experience.items import NewItem
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB, migrate
from orienteer.memory.schema import APPLICATION_ID


@pytest.fixture
def old(tmp_path):
    """A database as schema 1 made it, with a run."""
    path = tmp_path / "runs.sqlite"
    engine = create_engine(URL.create("sqlite", database=str(path)))
    with engine.begin() as conn:
        migrate(conn, "0001")
        conn.exec_driver_sql(
            "INSERT INTO runs VALUES ('r-1', 'm', '', 0, '', 'done', '', 1, '{}', '{}', '{}', NULL, 1.0, NULL, NULL, 0,"
            " '', 0)"
        )
    engine.dispose()
    conn = sqlite3.connect(path)
    conn.execute(f"PRAGMA application_id={APPLICATION_ID}")
    conn.close()
    return path


def test_an_old_database_is_migrated_and_backed_up(old):
    with RunDB(old) as db:
        assert db.schema_version == 2
        assert Catalogue(db).get("r-1").status == "done"
        with ExperienceStore.open(old.parent, db, embedder="hashing", index=False) as store:
            assert store.get([store.add(NewItem("trace", "t"))])
    (copy,) = old.parent.glob("runs.sqlite.schema-1-*.bak")
    conn = sqlite3.connect(copy)
    assert conn.execute("SELECT version_num FROM schema_version").fetchall() == [("0001",)]
    assert conn.execute("SELECT id FROM runs").fetchall() == [("r-1",)]
    conn.close()


def test_an_old_database_is_not_changed_by_a_reader(old):
    with pytest.raises(StoreError, match="schema 1, not 2") as caught:
        RunDB(old, readonly=True)
    assert caught.value.cure and len(list(old.parent.iterdir())) == 1
