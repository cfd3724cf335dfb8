"""Disks, databases and endpoints that fail while a run is under way."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runtime_toys import fingerprint

from orienteer.agents.runtime.config import Budgets, RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
from orienteer.agents.runtime.records import list_runs, show_run
from orienteer.errors import EndpointError, StoreError, UsageError

HERE = Path(__file__).parent


def toy(name="Climb", **kwargs):
    given = {"method": f"runtime_toys:{name}", "tasks": ["one", "two"], "model": "offline", "workers": 2} | kwargs
    return RunConfig(**given)


def test_disk_full_in_mid_run_is_one_line_and_the_run_goes_on_later(home, tmp_path):
    base = start_run(toy(home=tmp_path / "base"))
    code = (
        "import resource, sys; sys.path.insert(0, sys.argv[1]); "
        "from orienteer.agents.runtime.engine import start_run; from orienteer.agents.runtime.config import RunConfig; "
        "from orienteer.errors import StoreError\n"
        "def tight(event):\n"
        "    if event.kind == 'step.learn' and event.step == 1:\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))\n"
        "try:\n"
        "    start_run(RunConfig('runtime_toys:Climb', tasks=['one', 'two'], model='offline', workers=2), tight)\n"
        "except StoreError as exc:\n"
        "    print('said:', exc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(HERE)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("said: ") and "space" in done.stdout, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    row = list_runs()[0]
    assert row["status"] in ("crashed", "failed")
    final = resume_run(row["id"])
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id, tmp_path / "base"))


def test_a_database_locked_for_long_ends_the_run_and_it_goes_on_later(home, monkeypatch):
    from orienteer.memory import rundb

    monkeypatch.setattr(rundb.RunDB.__init__, "__kwdefaults__", {"timeout": 0.3, "create": True, "readonly": False})
    locked = []

    def lock(event):
        if event.kind == "step.learn" and event.step == 1 and not locked:
            other = sqlite3.connect(home / "runs.sqlite", isolation_level=None, check_same_thread=False)
            locked.append(other)
            threading.Thread(target=lambda: other.execute("BEGIN IMMEDIATE")).start()
            time.sleep(0.1)

    with pytest.raises(StoreError, match="locked"):
        start_run(toy(), lock)
    locked[0].close()
    assert list_runs()[0]["status"] == "crashed"
    assert resume_run("last").status == "done"


def test_a_lost_artifact_is_said(home):
    report = start_run(toy(budgets=Budgets(evals=4)))
    for path in (home / "artifacts").rglob("*.zst"):
        path.unlink()
    with pytest.raises(StoreError, match="missing"):
        resume_run(report.id, {"evals": None})


def test_an_endpoint_that_cannot_serve_ends_the_run_and_nothing_is_lost(home, tmp_path, log):
    script = tmp_path / "script.jsonl"
    replies = ["7", "-3", "12", "55"]
    dead = {"match": "for", "fail": "endpoint", "message": "no such model"}
    script.write_text("\n".join(json.dumps(entry) for entry in ({"match": "from 0 ", "replies": replies}, dead)))
    with pytest.raises(EndpointError):
        start_run(toy(model=f"scripted/{script}", options={"log": log.path}))
    row = list_runs()[0]
    assert row["status"] == "failed" and row["reason"]
    document = show_run(row["id"])
    first = [e for e in document["evaluations"] if e["step"] == 0]
    assert first
    script.write_text(json.dumps({"match": "for", "replies": replies}))
    final = resume_run(row["id"])
    assert final.status == "done"
    begun = [entry[2] for entry in log.entries("evaluate")]
    assert len(begun) == len(set(begun))


def test_lost_calls_count_with_what_they_had_reserved(home, script):
    capped = start_run(toy(model=script, budgets=Budgets(evals=3)))
    used = capped.counts["tokens_in"] + capped.counts["tokens_out"]
    conn = sqlite3.connect(home / "runs.sqlite")
    with conn:  # what a process leaves that dies between sending and recording
        conn.execute(
            "INSERT INTO model_calls (id, run_id, phase, model, reported_model, status, cached, request_sha,"
            " tokens_reserved, tokens_in, tokens_out, estimated, http_calls, sent_json, created)"
            " VALUES ('x', ?, 'propose', 'm', '', 'sent', 0, ?, 10000, 0, 0, 0, 0, '{}', 1.0)",
            (capped.id, "0" * 64),
        )
    conn.close()
    again = resume_run(capped.id, {"evals": None, "tokens": used + 10_050})
    assert again.status == "budget" and "tokens" in again.reason
    lost = [call for call in show_run(capped.id)["model_calls"] if call["status"] == "lost"]
    assert len(lost) == 1
    assert show_run(capped.id)["budget"]["tokens"] >= 10_000 + used


def test_a_token_limit_in_mid_step_still_judges_what_was_proposed(home, script):
    base = start_run(toy(model=script, settings={"steps": 1}, workers=1))
    calls = [c for c in show_run(base.id)["model_calls"] if c["status"] == "done"]
    assert len(calls) == 6
    enough_for_some = sum(c["tokens_in"] + c["tokens_out"] for c in calls[:3]) + 40
    capped = start_run(toy(model=script, settings={"steps": 1}, workers=1, budgets=Budgets(tokens=enough_for_some)))
    assert capped.status == "budget"
    document = show_run(capped.id)
    proposed = {p["candidate_id"] for p in document["proposals"] if p["status"] == "proposed"}
    assert 0 < len(proposed) < 6
    assert {e["candidate_id"] for e in document["evaluations"]} == proposed


def test_every_call_has_its_request_its_reply_and_its_place(home, script):
    from orienteer.memory.artifacts import ArtifactStore

    report = start_run(toy(model=script))
    assert report.provenance["proposer"] == script
    store = ArtifactStore(home / "artifacts")
    calls = show_run(report.id)["model_calls"]
    assert len(calls) == report.counts["model_calls"] > 10
    for call in calls:
        assert call["status"] == "done" and call["phase"] == "propose" and call["slot"] is not None
        assert "messages" in json.loads(store.text(call["request_artifact"]))
        assert json.loads(store.text(call["reply_artifact"]))["text"]


def test_answers_of_other_runs_are_taken_only_when_asked_for(home, script):
    first = start_run(toy(model=script))
    second = start_run(toy(model=script))
    assert second.counts["model_calls"] == first.counts["model_calls"] > 0
    third = start_run(toy(model=script, reuse_replies=True))
    assert third.counts["model_calls"] == 0 and third.provenance["replies_reused"] is True
    assert fingerprint(show_run(third.id)) == fingerprint(show_run(first.id))


def test_keys_are_nowhere_in_the_home(home, script, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    start_run(toy(model=script))
    for path in home.rglob("*"):
        if path.is_file():
            assert b"sk-very-secret" not in path.read_bytes()


def test_home_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError):
        start_run(toy(home=tmp_path / "file" / "home"))


def test_resuming_nothing(home):
    with pytest.raises(StoreError, match="does not exist"):
        resume_run("r-1")
    start_run(toy(settings={"steps": 0}))
    with pytest.raises(UsageError, match="no run"):
        resume_run("r-1999")


def test_bench_measures(home):
    from orienteer.agents.runtime.bench import bench, figure

    found = bench(40, extra=[lambda: figure("start", 1.0, "ms", 50.0, "given")])
    names = {item["name"]: item for item in found["figures"]}
    assert {"cpu_per_step", "database_per_1000_steps", "database_growth_ratio", "peak_memory", "start"} <= set(names)
    assert names["start"]["met"] is True and 0 < names["cpu_per_step"]["value"] < 1000
    json.dumps(found, allow_nan=False)
    assert not home.exists()  # measured in a place of its own


@pytest.mark.parametrize("what", ["database", "home"])
def test_a_database_deleted_under_a_run_is_no_success(home, what):
    def delete(event):
        if event.kind == "step.learn" and event.step == 2:
            if what == "home":
                shutil.rmtree(home)
            for path in home.glob("runs.sqlite*"):
                path.unlink()

    with pytest.raises(StoreError):
        start_run(toy(home=home), delete)
    assert list_runs() == []
