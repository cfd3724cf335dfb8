"""Kills, stops and budgets: a run that goes on ends as if nothing had happened, and repeats nothing it had finished."""

from __future__ import annotations

import collections
import os
import random
import signal
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from runtime_toys import fingerprint

from orienteer.agents.runtime.config import Budgets, RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
from orienteer.agents.runtime.records import list_runs, show_run
from orienteer.errors import Interrupted, UsageError

METHOD = "runtime_toys:Climb"


def request(home, log, model, **settings):
    kept = {"steps": 6, "width": 3, "delay": 0.004} | settings
    return {
        "method": METHOD, "tasks": ["one", "two"], "settings": kept, "seed": 5, "model": model, "workers": 2,
        "home": str(home), "options": {"log": log.path},
    }  # fmt: skip


def finished(home):
    """What the database holds as finished: evaluations and answered model calls."""
    conn = sqlite3.connect(home / "runs.sqlite")
    try:
        verdicts = {row[0] for row in conn.execute("SELECT candidate_id FROM evaluations")}
        calls = {row[0] for row in conn.execute("SELECT request_sha FROM model_calls WHERE status='done'")}
    finally:
        conn.close()
    return verdicts, calls


def wait_for(server, log, size):
    """Wait until a run has written down so many bytes of effects, or has ended."""
    limit = time.monotonic() + 60
    while size > 0 and time.monotonic() < limit and not server.answer.exists():
        if Path(log.path).exists() and Path(log.path).stat().st_size >= size:
            return
        time.sleep(0.001)


def check_nothing_repeated(home, log, before):
    """No evaluation or call that was finished at a kill was begun again after it."""
    conn = sqlite3.connect(home / "runs.sqlite")
    try:
        calls = conn.execute("SELECT request_sha, count(*) FROM model_calls WHERE status='done' GROUP BY 1").fetchall()
        twice = conn.execute(
            "SELECT count(*) FROM evaluations GROUP BY run_id, candidate_id, evaluator, settings_sha HAVING count(*)>1"
        ).fetchall()
    finally:
        conn.close()
    assert all(count == 1 for _, count in calls)
    assert not twice
    for verdicts, mark in before:
        again = {entry[2] for entry in log.entries()[mark:] if entry[0] == "evaluate"}
        assert not (again & verdicts)


def test_killed_at_twenty_random_moments(home, log, script, forks, tmp_path):
    server = forks()
    base_home, base_log = tmp_path / "base", type(log)()
    base_log.path = str(tmp_path / "base-effects")
    server.start(config=request(base_home, base_log, script))
    assert server.wait()[1]["status"] == "done"
    whole = Path(base_log.path).stat().st_size
    base = fingerprint(show_run("last", base_home))
    assert len(base["evaluations"]) >= 15

    rng, hits = random.Random(1), 0
    for number in range(20):
        place, effects = tmp_path / f"home-{number}", type(log)()
        effects.path = str(tmp_path / f"effects-{number}")
        pid = server.start(config=request(place, effects, script))
        # A moment by what the run has done, not by the clock: the machine may be slow or fast.
        wait_for(server, effects, whole * (number + rng.random()) / 21)
        time.sleep(rng.random() * 0.01)
        os.kill(pid, signal.SIGKILL)
        status, _ = server.wait()
        hits += os.WIFSIGNALED(status)
        if not list_runs(place):
            server.start(config=request(place, effects, script))  # killed before there was a run
            assert server.wait()[1]["status"] == "done"
        else:
            before = [(finished(place)[0], len(effects.entries()))]
            row = list_runs(place)[0]
            assert row["status"] in ("crashed", "done")
            server.start(resume=row["id"], home=str(place))
            answer = server.wait()[1]
            assert answer["status"] == "done", answer
            check_nothing_repeated(place, effects, before)
        assert fingerprint(show_run("last", place)) == base
    assert hits >= 15


def test_one_run_killed_again_and_again(home, log, script, forks):
    server = forks()
    pid = server.start(config=request(home, log, script, steps=8))
    before, rng, answer = [], random.Random(2), None
    for _ in range(40):
        written = Path(log.path).stat().st_size if Path(log.path).exists() else 0
        wait_for(server, log, written + rng.randrange(100, 700))
        os.kill(pid, signal.SIGKILL)
        status, answer = server.wait()
        if not os.WIFSIGNALED(status):
            break
        runs = list_runs(home)
        if runs:
            before.append((finished(home)[0], len(log.entries())))
            pid = server.start(resume=runs[0]["id"], home=str(home))
        else:
            pid = server.start(config=request(home, log, script, steps=8))
    else:
        status, answer = server.wait()
    assert answer["status"] == "done"
    assert len(before) >= 2
    check_nothing_repeated(home, log, before)
    other = start_run(RunConfig(**request(home, log, script, steps=8)))
    assert fingerprint(show_run(other.id)) == fingerprint(show_run(answer["id"]))


@pytest.mark.parametrize("cap", [1, 4, 7])
def test_budget_then_more_is_as_if_there_had_been_no_limit(home, log, cap):
    base = start_run(RunConfig(**request(home, log, "offline", delay=0)))
    capped = start_run(RunConfig(**request(home, log, "offline", delay=0), budgets=Budgets(evals=cap)))
    assert (capped.status, capped.exit_code) == ("budget", 4)
    assert sum(capped.counts["evaluations"].values()) == cap
    assert str(cap) in capped.reason
    assert capped.best  # learnt from what was done
    again = resume_run(capped.id)
    assert again.status == "budget"
    assert sum(again.counts["evaluations"].values()) == cap
    final = resume_run(capped.id, {"evals": None})
    assert final.status == "done"
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))


def test_token_budget_is_never_exceeded_and_can_be_raised(home, log, script):
    base = start_run(RunConfig(**request(home, log, script, delay=0)))
    used = base.counts["tokens_in"] + base.counts["tokens_out"]
    assert used > 0
    capped = start_run(RunConfig(**request(home, log, script, delay=0), budgets=Budgets(tokens=used // 2)))
    assert capped.status == "budget"
    assert capped.counts["tokens_in"] + capped.counts["tokens_out"] <= used // 2
    final = resume_run(capped.id, {"tokens": None})
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))
    assert final.counts["model_calls"] == base.counts["model_calls"]


def test_time_budget_adds_up_over_resumes(home, log):
    config = RunConfig(**request(home, log, "offline", delay=0.05, steps=50), budgets=Budgets(time=0.5))
    first = start_run(config)
    assert first.status == "budget" and "time" in first.reason
    used = show_run(first.id)["active_s"]
    assert used >= 0.5
    again = resume_run(first.id)
    assert again.status == "budget" and again.counts == first.counts
    limit = show_run(first.id)["active_s"] + 2.0
    second = resume_run(first.id, {"time": limit})
    assert second.status == "budget"
    assert sum(second.counts["evaluations"].values()) > sum(first.counts["evaluations"].values())
    assert show_run(first.id)["active_s"] >= limit


def test_unknown_override_is_refused(home, log):
    report = start_run(RunConfig(**request(home, log, "offline", delay=0), budgets=Budgets(evals=1)))
    with pytest.raises(UsageError, match="seed"):
        resume_run(report.id, {"seed": 3})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_run_and_it_goes_on_later(home, log, script, forks, number):
    server = forks()
    pid = server.start(config=request(home, log, script, delay=0.05))
    while len(log.entries("evaluate")) < 5:
        time.sleep(0.01)
    os.kill(pid, number)
    answer = server.wait()[1]
    assert answer["error"] == "Interrupted" and answer["code"] == 130
    row = list_runs(home)[0]
    assert row["status"] == "interrupted"
    assert row["id"] in answer["text"]
    before = [(finished(home)[0], len(log.entries()))]
    final = resume_run(row["id"])
    assert final.status == "done"
    check_nothing_repeated(home, log, before)
    base = start_run(RunConfig(**request(home, log, script, delay=0.05)))
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))


def test_interrupted_at_random_moments_from_the_first_on(home, log, script, forks, tmp_path):
    server = forks()
    server.start(config=request(tmp_path / "base", log, script))
    assert server.wait()[1]["status"] == "done"
    whole = Path(log.path).stat().st_size
    base = fingerprint(show_run("last", tmp_path / "base"))
    rng = random.Random(3)
    for number in range(8):
        place, effects = tmp_path / f"home-{number}", type(log)()
        effects.path = str(tmp_path / f"effects-{number}")
        pid = server.start(config=request(place, effects, script))
        wait_for(server, effects, whole * (number - 1 + rng.random()) / 9)
        time.sleep(rng.random() * 0.02)
        os.kill(pid, signal.SIGINT)
        _, answer = server.wait()
        runs = list_runs(place) if place.exists() else []
        if not runs:
            continue  # before there was a run
        if answer is not None and "error" in answer:
            assert answer["error"] == "Interrupted", answer
            assert runs[0]["status"] == "interrupted"
        before = [(finished(place)[0], len(effects.entries()))]
        assert resume_run(runs[0]["id"], home_path=str(place)).status == "done"
        check_nothing_repeated(place, effects, before)
        assert fingerprint(show_run("last", place)) == base


def test_a_second_signal_ends_the_process_at_once(home, log, forks):
    server = forks()
    pid = server.start(config=request(home, log, "offline", delay=60))
    while len(log.entries("evaluate")) < 2:
        time.sleep(0.01)
    for _ in range(3):  # at once: one Ctrl-C and its echoes
        os.kill(pid, signal.SIGINT)
    time.sleep(0.6)
    os.kill(pid, 0)
    os.kill(pid, signal.SIGINT)
    began = time.monotonic()
    status, _ = server.wait()
    assert os.waitstatus_to_exitcode(status) == 130
    assert time.monotonic() - began < 30
    assert list_runs(home)[0]["status"] == "interrupted"


def test_a_forked_child_dies_of_its_own_signal_and_the_run_does_not_notice():
    from orienteer.agents.runtime.stopping import stoppable

    cancel, marks = threading.Event(), []
    before = signal.getsignal(signal.SIGTERM)
    with stoppable(cancel, lambda: marks.append(1)):
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.1)
        os.kill(pid, signal.SIGTERM)
        assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM
        lives = os.fork()  # holds our pipe open beyond the block
        if lives == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.1)
        assert not cancel.is_set()
    os.kill(lives, signal.SIGKILL)
    os.waitpid(lives, 0)
    assert signal.getsignal(signal.SIGTERM) is before and not marks


def test_a_wake_up_descriptor_that_its_owner_spoiled_is_no_fault_of_the_run():
    from orienteer.agents.runtime.stopping import stoppable

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        with stoppable(threading.Event(), lambda: None):
            os.set_blocking(writer, True)
        assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def test_a_live_run_cannot_be_resumed_and_a_dead_one_at_once(home, log, forks):
    server = forks()
    pid = server.start(config=request(home, log, "offline", delay=0.3))
    while not log.entries("evaluate"):
        time.sleep(0.01)
    run_id = list_runs(home)[0]["id"]
    with pytest.raises(UsageError, match=str(pid)):
        resume_run(run_id)
    os.kill(pid, signal.SIGKILL)
    server.wait()
    assert list_runs(home)[0]["status"] == "crashed"
    assert resume_run(run_id, {"evals": 2}).status == "budget"


def test_of_two_resumes_at_once_one_wins(home, log, forks):
    report = start_run(RunConfig(**request(home, log, "offline"), budgets=Budgets(evals=1)))
    servers = [forks(), forks()]
    for number, server in enumerate(servers):
        server.folder = server.folder / f"s{number}"
        server.folder.mkdir()
        server.start(resume=report.id, home=str(home), overrides={"evals": 9})
    answers = [server.wait()[1] for server in servers]
    begun = collections.Counter(entry[2] for entry in log.entries("evaluate"))
    assert max(begun.values()) == 1
    # The loser is told so, or came so late that the winner had ended: then it found nothing to do.
    refused = [a for a in answers if a.get("error") == "UsageError"]
    assert len(refused) <= 1
    assert all(a["status"] == "budget" for a in answers if "status" in a)
    assert sum(show_run(report.id)["counts"]["evaluations"].values()) == 9


def test_a_finished_run_is_only_reported_again(home, log):
    report = start_run(RunConfig(**request(home, log, "offline", delay=0)))
    effects = len(log.entries())
    assert resume_run(report.id) == report
    assert len(log.entries()) == effects


def test_checkpoints_lost_or_damaged_are_rebuilt_from_the_database(home, log):
    base = start_run(RunConfig(**request(home, log, "offline", delay=0)))
    capped = start_run(RunConfig(**request(home, log, "offline", delay=0), budgets=Budgets(evals=7)))
    for suffix in ("-wal", "-shm"):
        (home / f"checkpoints.sqlite{suffix}").unlink(missing_ok=True)
    (home / "checkpoints.sqlite").write_bytes(b"not a database at all" * 500)
    final = resume_run(capped.id, {"evals": None})
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))
    assert list(home.glob("checkpoints.sqlite.damaged-*"))


def test_an_unknown_run_version_is_refused(home, log):
    report = start_run(RunConfig(**request(home, log, "offline", delay=0), budgets=Budgets(evals=1)))
    conn = sqlite3.connect(home / "runs.sqlite")
    with conn:
        conn.execute("UPDATE runs SET run_version = 99")
    conn.close()
    with pytest.raises(UsageError, match="99"):
        resume_run(report.id)


def test_stop_from_another_process(home, log, forks, monkeypatch):
    from orienteer.agents.runtime.records import stop_run

    server = forks()
    server.start(config=request(home, log, "offline", delay=0.1, steps=200))
    while not log.entries("evaluate"):
        time.sleep(0.01)
    run_id = stop_run("last")
    assert server.wait()[1]["error"] == "Interrupted"
    assert show_run(run_id)["status"] == "interrupted"


def test_interrupted_says_how_to_go_on():
    assert "resume" in str(Interrupted("run x was stopped", "go on with: agent runs resume x"))
