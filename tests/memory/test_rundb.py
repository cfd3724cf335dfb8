"""The run database refuses what it must, says the cure, and never loses what was committed."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import textwrap
import threading

import pytest
from sqlalchemy import create_engine, insert, select

from orienteer.errors import StoreError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.journal import KEEP_STATES, Journal, NewCandidate, NewEvaluation
from orienteer.memory.rundb import RunDB, migrate
from orienteer.memory.schema import APPLICATION_ID, SCHEMA_VERSION, metadata, runs


def row(name="r1"):
    return {
        "id": name,
        "method": "m",
        "seed": 0,
        "status": "done",
        "run_version": 1,
        "config_json": "{}",
        "created": 1.0,
    }


def add(db, name="r1"):
    with db.write() as conn:
        conn.execute(insert(runs), row(name))


def child(code, *args, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        **kwargs,
    )


def test_new_database(tmp_path):
    with RunDB(tmp_path / "deep" / "runs.sqlite") as db:
        assert db.schema_version == SCHEMA_VERSION
        add(db)
    conn = sqlite3.connect(tmp_path / "deep" / "runs.sqlite")
    assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert conn.execute("SELECT id FROM runs").fetchall() == [("r1",)]
    conn.close()
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["runs.sqlite"]


def test_migrations_build_the_declared_schema(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    engine = create_engine(f"sqlite:///{tmp_path / 'plain.sqlite'}")
    with engine.begin() as conn:
        migrate(conn)
        context = MigrationContext.configure(conn, opts={"version_table": "schema_version"})
        assert compare_metadata(context, metadata) == []


def test_opening_a_current_database_does_not_import_alembic(tmp_path):
    RunDB(tmp_path / "runs.sqlite").close()
    done = child(
        """
        import sys
        from orienteer.memory.rundb import RunDB
        RunDB(sys.argv[1]).close()
        sys.exit("alembic" in sys.modules)
        """,
        tmp_path / "runs.sqlite",
    )
    assert done.returncode == 0, done.stderr


def empty(path):
    path.touch()


def foreign(path):
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE theirs (x)")
    conn.close()


def other_application(path):
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA application_id=77")
    conn.execute("CREATE TABLE schema_version (version_num)")
    conn.close()


def garbage(path):
    path.write_bytes(b"SQLite format 4, honestly" * 400)


def newer(path):
    RunDB(path).close()
    conn = sqlite3.connect(path)
    with conn:
        conn.execute("UPDATE schema_version SET version_num='0999'")
    conn.close()


def truncated(path):
    with RunDB(path) as db:
        add(db)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def scrambled(path):
    with RunDB(path) as db:
        add(db)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(6000))


def folder(path):
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (empty, "empty"), (foreign, "another program"), (other_application, "another program"), (garbage, "corrupt"),
        (newer, "999"), (truncated, "corrupt"), (scrambled, "corrupt"), (folder, "cannot be opened"),
    ],
)  # fmt: skip
def test_bad_files_are_refused_in_one_line_with_the_cure(tmp_path, make, says):
    path = tmp_path / "runs.sqlite"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError) as caught:
        RunDB(path)
    assert says in caught.value.problem
    assert caught.value.cure and "\n" not in str(caught.value)
    assert before is None or path.read_bytes() == before


def test_a_missing_database_is_not_made_for_reading(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        RunDB(tmp_path / "runs.sqlite", create=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["nosuch://x/y", "sqlite://", "postgresql+nodriver://h/d"])
def test_bad_addresses(address):
    with pytest.raises(StoreError):
        RunDB(address)


def test_locked(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunDB(path, timeout=0.2) as db:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            add(db)
        other.execute("ROLLBACK")
        add(db)


def test_two_writers_wait_for_each_other(tmp_path):
    path = tmp_path / "runs.sqlite"
    first, second = RunDB(path), RunDB(path)

    def work(db, mark):
        for i in range(50):
            with db.write() as conn:
                # Reads, then writes: fails at once without BEGIN IMMEDIATE.
                count = len(conn.execute(select(runs.c.id)).all())
                conn.execute(insert(runs), row(f"{mark}-{i}-{count}"))

    threads = [
        threading.Thread(target=work, args=(db, mark)) for db, mark in ((first, "a"), (second, "b"), (first, "c"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with first.read() as conn:
        names = list(conn.execute(select(runs.c.id)).scalars())
    assert len(names) == 150
    assert sorted(int(name.rsplit("-", 1)[1]) for name in names) == list(range(150))


def test_many_processes_make_one_database(tmp_path):
    code = """
    import sys
    from sqlalchemy import insert
    from orienteer.memory.rundb import RunDB
    from orienteer.memory.catalogue import Catalogue
    with RunDB(sys.argv[1]) as db:
        Catalogue(db).create(id=sys.argv[2], method="m", seed=0, status="x", run_version=1, config_json="{}")
    """
    started = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "runs.sqlite"), f"r{i}"])
        for i in range(4)
    ]
    assert [process.wait(60) for process in started] == [0] * 4
    with RunDB(tmp_path / "runs.sqlite") as db:
        assert len(Catalogue(db).all()) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.sqlite"]


def test_read_only(tmp_path):
    path = tmp_path / "runs.sqlite"
    with RunDB(path) as db:
        add(db)
    path.chmod(0o444)
    tmp_path.chmod(0o555)
    code = """
    import os, sys
    from orienteer.memory.rundb import RunDB
    from orienteer.memory.catalogue import Catalogue
    from orienteer.errors import StoreError
    RunDB(sys.argv[2]).close()  # imports what it needs while we may
    if os.getuid() == 0:
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
    try:
        with RunDB(sys.argv[1]) as db:
            Catalogue(db).create(id="r2", method="m", seed=0, status="x", run_version=1, config_json="{}")
    except StoreError as exc:
        print(exc)
    """
    for parent in [*tmp_path.parents][:3]:
        parent.chmod(parent.stat().st_mode | 0o755)
    other = tmp_path.with_name(tmp_path.name + "-other") / "runs.sqlite"
    try:
        done = child(code, path, other)
    finally:
        tmp_path.chmod(0o755)
    assert "writable" in done.stdout, done.stdout + done.stderr


def test_disk_full_is_said_and_the_database_survives(tmp_path):
    path = tmp_path / "runs.sqlite"
    RunDB(path).close()
    code = """
    import resource, sys
    from orienteer.memory.rundb import RunDB
    from orienteer.memory.catalogue import Catalogue
    from orienteer.errors import StoreError
    with RunDB(sys.argv[1]) as db:
        Catalogue(db).create(id="kept", method="m", seed=0, status="x", run_version=1, config_json="{}")
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        try:
            for i in range(100):
                Catalogue(db).create(id=str(i), method="m" * 50_000, seed=0, status="x", run_version=1, config_json="")
        except StoreError as exc:
            print(exc)
    """
    done = child(code, path)
    assert "free some space" in done.stdout, done.stdout + done.stderr
    with RunDB(path) as db:
        assert Catalogue(db).get("kept") is not None
        with db.read() as conn:
            assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


def test_full_file_system(tmp_path):
    """A real small disk, where we may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.getuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], check=False).returncode
    ):
        pytest.skip("no right to mount a tmpfs")
    try:
        with RunDB(disk / "runs.sqlite") as db:
            add(db, "kept")
            store = ArtifactStore(disk / "artifacts")
            first = store.put(b"small")
            with pytest.raises(StoreError, match="full"):
                store.put(os.urandom(3 << 20))
            assert not list((disk / "artifacts" / "tmp").iterdir())
            with pytest.raises(StoreError, match="full"):
                for i in range(1000):
                    with db.write() as conn:
                        conn.execute(insert(runs), row(str(i)) | {"reason": os.urandom(20_000).hex()})
            assert ArtifactStore(disk / "artifacts").get(first) == b"small"
            assert Catalogue(db).get("kept") is not None
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_failed_transaction_leaves_nothing(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        with pytest.raises(RuntimeError), db.write() as conn:
            conn.execute(insert(runs), row())
            raise RuntimeError
        assert Catalogue(db).all() == []


def test_backup_while_written_holds_what_the_file_alone_does_not(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        add(db)
        copy = db.backup(tmp_path / "copy.sqlite")
        with pytest.raises(StoreError, match="exists"):
            db.backup(copy)
    with RunDB(copy) as db:
        assert Catalogue(db).get("r1") is not None


def test_removing_a_run_removes_all_of_it(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        add(db)
        journal = Journal(db, ArtifactStore(tmp_path / "artifacts"), "r1")
        journal.write_asks(0, [("t", "{}")])
        sha = journal.keep("x", "text/plain")
        journal.proposed(0, 0, NewCandidate("c1", "t", sha, "text/plain", "{}", ("p", "q")))
        journal.evaluated(0, NewEvaluation("c1", sha, "e", "{}", "0" * 64, "ok", 1.0, 2.0, score=1.0))
        journal.note(1.0, 0, "k", {})
        journal.save_state(0, "{}", complete=True)
        assert journal.candidate("c1")[1] == ("p", "q")
        Catalogue(db).remove("r1")
        with db.read() as conn:
            for name in ("proposals", "candidates", "lineage", "evaluations", "events", "method_states"):
                assert conn.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() == 0


def test_old_states_go_and_the_first_and_newest_stay(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        add(db)
        journal = Journal(db, ArtifactStore(tmp_path / "artifacts"), "r1")
        for step in range(-1, 50):
            journal.save_state(step, f'{{"n":{step}}}', complete=True)
        with db.read() as conn:
            steps = [s for (s,) in conn.exec_driver_sql("SELECT step FROM method_states ORDER BY step")]
        assert steps[0] == -1 and steps[-2:] == [48, 49]
        assert len(steps) <= 2 * KEEP_STATES + 1


def test_of_two_slots_with_one_content_the_lower_is_the_maker_in_either_order(tmp_path):
    for order in ((0, 1), (1, 0)):
        with RunDB(tmp_path / f"runs-{order[0]}.sqlite") as db:
            add(db)
            journal = Journal(db, ArtifactStore(tmp_path / "artifacts"), "r1")
            journal.write_asks(0, [("t", "{}"), ("t", "{}")])
            for slot in order:
                new = NewCandidate("c1", "t", "0" * 64, "text/plain", f'{{"slot":{slot}}}', (f"p{slot}",))
                journal.proposed(0, slot, new)
            found, parents = journal.candidate("c1")
            assert (found.slot, found.notes_json, parents) == (0, '{"slot":0}', ("p0",))


def test_a_database_score_needs_an_ok_verdict(tmp_path):
    with RunDB(tmp_path / "runs.sqlite") as db:
        add(db)
        journal = Journal(db, ArtifactStore(tmp_path / "artifacts"), "r1")
        journal.write_asks(0, [("t", "{}")])
        journal.proposed(0, 0, NewCandidate("c1", "t", "0" * 64, "text/plain", "{}", ()))
        with pytest.raises(Exception, match="CHECK"):
            journal.evaluated(0, NewEvaluation("c1", "0" * 64, "e", "{}", "1" * 64, "failed", 1.0, 2.0, score=0.0))


def test_documented_schema_names_every_table_and_column():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "database.md").read_text()
    for table in metadata.sorted_tables:
        assert f"`{table.name}`" in text
        for column in table.columns:
            assert f"`{column.name}`" in text, f"{table.name}.{column.name}"


FILL = """
    import os, resource, sys
    from pathlib import Path
    from orienteer.errors import StoreError
    from orienteer.memory.rundb import RunDB
    kind, place = sys.argv[1], Path(sys.argv[2])
    for size in (*range(8, 260, 12), 2000):
        if kind == "mount":
            assert os.system(f"mount -t tmpfs -o size={size}k none '{place}'") == 0
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size << 10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        file = place / "runs.sqlite"
        try:
            RunDB(file).close()
            print("made")
        except StoreError as exc:
            assert "full" in str(exc) and "free some space" in exc.cure, exc
            print("full")
        names = [p.name for p in place.iterdir()]
        assert not names or ("runs.sqlite" in names and not any(n.endswith(".new") for n in names)), names
        if kind == "mount" and names:
            # What is there is whole: with space it opens.
            assert os.system(f"mount -o remount,size=4m '{place}'") == 0
            RunDB(file).close()
        elif names:
            resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            RunDB(file).close()
            file.unlink()
        if kind == "mount":
            assert os.system(f"umount '{place}'") == 0
"""


@pytest.mark.parametrize("kind", ["mount", "limit"])
def test_a_disk_that_is_full_at_the_start_is_said_and_nothing_half_made_stays(tmp_path, kind):
    prefix = ["unshare", "-rm"] if kind == "mount" else []
    if prefix:
        try:
            probe = subprocess.run([*prefix, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=False)
        except FileNotFoundError:
            pytest.skip("there is no unshare")
        if probe.returncode:
            pytest.skip("this user cannot mount in a namespace of its own")
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(FILL), kind, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said[0] == "full" and said[-1] == "made"


@pytest.mark.parametrize("way", ["deleted", "replaced", "moved"])
def test_a_file_that_is_gone_from_its_place_is_noticed(tmp_path, way):
    path = tmp_path / "runs.sqlite"
    with RunDB(path) as db:
        add(db)
        db.check_place()
        if way == "moved":
            path.rename(tmp_path / "other.sqlite")
        else:
            path.unlink()
        if way == "replaced":
            path.write_bytes(b"")
        with pytest.raises(StoreError, match="while it was in use"):
            db.check_place()
