"""Homes and databases that cannot be used, through the real command."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

TOY = "cli_toys:Count"
ROOT = os.geteuid() == 0
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.fixture
def used(agent):
    """A home with one run in it."""
    ended = agent("run", TOY, "--json")
    assert ended.code == 0, ended.err
    agent.run = ended.document["run"]
    return agent


def corrupt(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:4000] = os.urandom(3900)
    path.write_bytes(bytes(data))


def newer(path: Path) -> None:
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE schema_version SET version_num = '0999'")
    conn.close()


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE bookmarks (url TEXT)")
    conn.close()


DAMAGES = {
    "corrupt": (corrupt, "corrupt"),
    "text": (lambda path: path.write_text("not a database at all " * 100), "corrupt or not a database"),
    "foreign": (foreign, "belongs to another program"),
    "empty": (lambda path: path.write_bytes(b""), "is empty"),
    "newer": (newer, "upgrade Orienteer"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "cannot be opened"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_databases(used, damage):
    break_it, says = DAMAGES[damage]
    path = used.home / "runs.sqlite"
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    break_it(path)
    before = path.read_bytes() if path.is_file() else None
    for args in (["run", TOY], ["runs", "ls"], ["runs", "resume", "last"], ["memory", "ls"]):
        ended = used(*args)
        assert (ended.code, ended.out) == (5, ""), (args, ended)
        assert says in ended.line and ": " in ended.line
    # The doctor sees it too, and lives.
    seen = {c["name"]: c for c in used("doctor", "--json").document["checks"]}
    assert seen["run database"]["works"] is False and seen["run database"]["cure"]
    assert before is None or path.read_bytes() == before  # refused, not "repaired"


def test_a_home_that_is_a_file_or_behind_one(agent):
    place = agent.folder / "file"
    place.write_text("x")
    for home in (place, place / "below"):
        for args in (["run", TOY], ["runs", "resume", "last"]):
            ended = agent(*args, env={"ORIENTEER_HOME": str(home)})
            assert ended.code == 5 and str(home) in ended.line, ended
        ended = agent("doctor", "--json", env={"ORIENTEER_HOME": str(home)})
        assert ended.code == 0
        assert {c["name"]: c["works"] for c in ended.document["checks"]}["home"] is False


def test_a_database_that_another_process_has_locked(used):
    holder = sqlite3.connect(used.home / "runs.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    short = {"ORIENTEER_DB_TIMEOUT": "0.2"}
    ended = used("run", TOY, env=short)
    assert ended.code == 5 and "locked by another process" in ended.line, ended
    ended = used("runs", "rm", used.run, "--json", env=short)
    assert ended.document["error"]["exit_code"] == ended.code == 5
    # Looking does not need the lock.
    assert used("runs", "ls", env=short).code == 0
    assert used("runs", "show", "last", env=short).code == 0
    holder.close()
    assert used("run", TOY, env=short).code == 0


@pytest.mark.skipif(not (ROOT and shutil.which("setpriv")), reason="needs root and setpriv to become another user")
def test_read_only_homes_of_other_users_can_be_read(used, request):
    # An ordinary user must reach the folder and the program.
    for parent in (used.folder, *used.folder.parents):
        if parent.stat().st_uid == 0 and parent != Path("/") and parent.stat().st_mode & 0o005 != 0o005:
            before = parent.stat().st_mode
            request.addfinalizer(lambda p=parent, m=before: p.chmod(m))
            parent.chmod(before | 0o755)
    trial = used.alone("--version", prefix=NOBODY)
    if trial.code != 0:
        pytest.skip("another user cannot start this Python")
    for path in (used.home, *used.home.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for args in (["runs", "ls"], ["runs", "show", "last"], ["memory", "ls"]):
        ended = used.alone(*args, prefix=NOBODY)
        assert ended.code == 0 and ended.out, (args, ended)
    for args in (["run", TOY], ["runs", "resume", "last", "--evals", "100"], ["runs", "rm", "last"]):
        ended = used.alone(*args, prefix=NOBODY)
        assert ended.code == 5 and "ORIENTEER_HOME" in ended.line, (args, ended)
    new = used.alone("run", TOY, prefix=NOBODY, env={"ORIENTEER_HOME": "/nowhere"})
    assert new.code == 5 and "/nowhere" in new.line


@pytest.fixture
def small_disk(agent):
    """A home on a disk of its own."""
    agent.home.mkdir()
    if (
        not ROOT
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", agent.home], check=False, capture_output=True
        ).returncode
    ):
        pytest.skip("needs the right to mount")
    yield agent
    subprocess.run(["umount", "-l", agent.home], check=True)


def test_a_full_disk_is_one_line_and_nothing_paid_for_is_lost(small_disk):
    ballast = small_disk.home / "ballast"
    ballast.write_bytes(bytes(11 << 20))
    ended = small_disk("run", TOY, "--json", "--set", "steps=60", "--set", "size=40000")
    assert ended.code == 5 and "free some space" in ended.line, ended
    error = ended.document
    assert error["error"]["exit_code"] == 5 and error["run"]
    kept = small_disk("runs", "show", error["run"], "--json").document
    assert kept["evaluations"]
    ballast.unlink()
    again = small_disk("runs", "resume", error["run"], "--json")
    assert again.code == 0, again.err
    whole = small_disk("runs", "show", error["run"], "--json").document
    assert whole["result"] == {"seen": 60}
    keys = [(e["candidate_id"], e["settings_sha"]) for e in whole["evaluations"]]
    assert len(keys) == len(set(keys))
    before = {e["candidate_id"]: e["seconds"] for e in kept["evaluations"]}
    after = {e["candidate_id"]: e["seconds"] for e in whole["evaluations"]}
    assert before.items() <= after.items()  # the very same verdicts: none was computed again


def test_two_commands_at_once_on_one_home(agent):
    # The first ones ever: both find no database.
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda seed: agent.alone("run", TOY, "--seed", seed, "--json"), ("1", "2")))
    assert [e.code for e in both] == [0, 0], both
    listed = {row["id"]: row for row in agent("runs", "ls", "--json").document["runs"]}
    assert set(listed) == {e.document["run"] for e in both}
    assert all(row["status"] == "done" for row in listed.values())


def test_resuming_what_is_finished_unknown_ambiguous_or_stopped_by_a_budget(used):
    again = used("runs", "resume", used.run, "--json")
    assert again.code == 0 and again.document["run"] == used.run
    assert used("runs", "ls", "--json").document["runs"][0]["counts"]["evaluations"] == {"ok": 2, "failed": 1}
    unknown = used("runs", "resume", "r-nope")
    assert unknown.code == 2 and "no run 'r-nope'" in unknown.line and "runs ls" in unknown.line
    short = used("run", TOY, "--evals", "1", "--json")
    assert short.code == 4 and short.document["status"] == "budget"
    both = used("runs", "show", "r-")
    assert both.code == 2 and "begins several" in both.line and used.run in both.line
    same = used("runs", "resume", "last")
    assert same.code == 4 and "--evals" in same.err
    more = used("runs", "resume", "last", "--evals", "50")
    assert more.code == 0, more.err
    none = used("run", TOY, "--time", "0")
    assert none.code == 4 and "agent runs resume" in none.err
    assert used("run", TOY, "--evals", "0").code == 4
    huge = used("run", TOY, "--tokens", "999999999999", "--cost", "1e12", "--time", "100000d", "--seed", str(-(2**63)))
    assert huge.code == 0, huge.err


def test_removing_and_stopping(used):
    assert used("runs", "stop", "last").code == 2
    assert "is not running" in used("runs", "stop", "last").line
    assert used("runs", "rm", "last", "--json").document == {"run": used.run, "removed": True}
    gone = used("runs", "show", used.run)
    assert gone.code == 2 and "no run" in gone.line
    assert used("runs", "ls").out.startswith("no runs yet")


@pytest.mark.parametrize("name", ["h o%20m#e?ü'\"", "new\nline", "bad\udcff", "-rf"])
def test_names_with_odd_characters(agent, name):
    agent.env["ORIENTEER_HOME"] = str(agent.folder / name)
    odd = ["--task", "t\udcfft", "--task", "\x1b[2J", "--task", ""]
    ended = agent("run", TOY, *odd, "--json")
    assert ended.code == 0 and ended.document["counts"]["evaluations"], ended
    for args in (
        ["runs", "show", "last"],
        ["runs", "resume", "last"],
        ["memory", "ls"],
        ["runs", "export", "last", "--to", f"{agent.folder / name}-x"],
    ):
        ended = agent(*args)
        assert ended.code == 0 and "\x1b" not in ended.out + ended.err, (args, ended)
