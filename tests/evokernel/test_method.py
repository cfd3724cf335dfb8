"""EvoKernel through the real command with a scripted model: feedback, bad replies, the document, repetition, resume."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from task_sources import DOUBLE, GOOD

CHEAT = DOUBLE.replace("return out", "return x + x")


def entry(sample, code=None, **more):
    return {"sample": sample, **({"reply": {"code": code}} if code is not None else {}), **more}


SCRIPT = [
    # The second attempt is right, and is given only to a prompt that holds what was wrong with the first.
    entry("good/0", DOUBLE.replace("* 2.0", "* 3.0"), delay=0.1),
    entry("good/1", DOUBLE, match="mismatch", delay=2.0),
    # No JSON, also when asked to mend it; then a right one.
    entry("other/0", reply="I would write a kernel like this: ...", delay=0.1),
    entry("other/1", "\n\n" + DOUBLE, delay=2.0),
    # Never right.
    entry("hopeless/0", CHEAT, delay=0.1),
    entry("hopeless/1", CHEAT + "\n# again\n", match="compute", delay=2.0),
]


class Command:
    """The command in a folder of its own."""

    def __init__(self, folder: Path, toolchains: Path | None) -> None:
        self.folder = folder
        self.home = folder / "home"
        tasks = folder / "tasks"
        tasks.mkdir(parents=True)
        for name in ("good", "other", "hopeless"):
            (tasks / f"{name}.py").write_text(f"# {name}\n{GOOD}")
        (folder / "script.jsonl").write_text("".join(json.dumps(item) + "\n" for item in SCRIPT))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORIENTEER_"))}
        self.env["ORIENTEER_HOME"] = str(self.home)
        if toolchains is not None:
            self.env["ORIENTEER_TOOLCHAINS"] = str(toolchains)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "orienteer.cli", *arguments, "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.env, cwd=self.folder, text=True, **pipes)

    def run(self) -> subprocess.Popen[str]:
        settings = ["--set", "cases=2", "--set", "iterations=2"]
        model = ["--model", "scripted/script.jsonl", "--seed", "7", "--workers", "2"]
        return self.start("run", "evokernel", "--target", "npu", "--task", "tasks", *model, *settings)

    def document(self, process: subprocess.Popen[str]) -> dict:
        out, err = process.communicate(timeout=170)
        assert process.returncode == 0, err
        assert "Traceback" not in err
        return json.loads(out)


def told(document: dict) -> dict:
    """Return what a document says besides places, times and names of the run."""
    rows = json.loads(json.dumps(document["result"]))["tasks"]
    for row in rows:
        row["kernel"] = Path(row["kernel"]).name if row["kernel"] else None
        row.pop("candidate")
        for gate in row["gates"]:
            gate["facts"].pop("job", None)
    return {"tasks": rows, "counts": document["counts"], "seed": document["seed"], "status": document["status"]}


@pytest.fixture(scope="module")
def once(shared, tmp_path_factory):
    """One uninterrupted run: its command and its document."""
    shared.world()
    command = Command(tmp_path_factory.mktemp("once"), shared.toolchain_home())
    return command, command.document(command.run())


def rows(document):
    return {row["task"]: row for row in document["result"]["tasks"]}


def test_feedback_leads_to_the_right_kernel(once, shared):
    _, document = once
    row = rows(document)["good"]
    proven = shared.toolchain_home() is not None
    assert row["status"] == ("proven" if proven else "unproven") and row["attempts"] == 2 and row["failure"] is None
    assert row["evidence"] == ("E1:Ascend910B3" if proven else "E0")
    assert Path(row["kernel"]).read_text() == DOUBLE


def test_a_malformed_reply_is_one_lost_attempt(once):
    _, document = once
    row = rows(document)["other"]
    assert row["attempts"] == 2 and row["failure"] is None and row["kernel"]


def test_what_never_passes_has_no_kernel_and_the_last_reason(once):
    _, document = once
    row = rows(document)["hopeless"]
    assert row["status"] == "failed" and row["kernel"] is None and row["evidence"] == "" and row["attempts"] == 2
    assert row["failure"]["kind"] == "cheat:library-call" and "add" in row["failure"]["message"]


def test_the_document_says_what_was_proven_how_and_by_whom(once):
    _, document = once
    assert document["method"] == "evokernel" and document["seed"] == 7 and document["status"] == "done"
    for row in document["result"]["tasks"]:
        assert row["proposer"].startswith("scripted/") and row["seed"] == 7
        assert [gate["gate"] for gate in row["gates"]] == ["static", "compile", "run", "honest"][: len(row["gates"])]
        assert {"gate", "status", "kind", "detail", "facts"} <= set(row["gates"][0])
        assert {"evidence", "kernel", "made_of", "candidate"} <= set(row)
    provenance = document["provenance"]
    assert provenance["target"] == "Ascend910B3" and provenance["triton"] and provenance["torch"]
    # Two attempts of three tasks; the malformed reply cost a repair.
    assert document["counts"]["model_calls"] == 7
    assert sum(document["counts"]["evaluations"].values()) == 5


def test_the_same_seed_gives_the_same_result(once, shared, tmp_path):
    _, document = once
    command = Command(tmp_path / "again", shared.toolchain_home())
    assert told(command.document(command.run())) == told(document)


def evaluations(database: Path) -> int:
    """Return how many verdicts a run has recorded so far."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT count(*) FROM evaluations").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def test_resume_after_a_kill_gives_the_same_result(once, shared, tmp_path):
    _, document = once
    command = Command(tmp_path / "killed", shared.toolchain_home())
    process = command.run()
    while process.poll() is None and evaluations(command.home / "runs.sqlite") == 0:
        time.sleep(0.05)
    process.kill()  # the first verdict is in; the second round is still to come
    out, err = process.communicate()
    assert process.returncode == -signal.SIGKILL and out == "", err
    resumed = command.document(command.start("runs", "resume", "last"))
    assert told(resumed) == told(document)
