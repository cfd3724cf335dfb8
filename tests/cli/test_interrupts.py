"""Signals at any time: one line, status 130, nothing left behind, nothing lost."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("no_orphans")
TOY = "cli_toys:Count"


def until(condition, seconds=60):
    """Wait until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def hears(process):
    """Say whether a process has handlers for SIGINT (before that Python itself would answer)."""

    def condition():
        try:
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            caught = next(line for line in lines if line.startswith("SigCgt"))
        except (OSError, StopIteration):
            return process.poll() is not None
        return int(caught.split()[1], 16) & (1 << (signal.SIGTERM - 1)) != 0

    return condition


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_is_stopped_and_goes_on(agent, number):
    process = agent.start("run", TOY, "--set", "steps=6", "--set", "delay=0.3", "--seed", "5")
    line = b""
    while b": ok" not in line:
        line = process.stderr.readline()
        assert line
    process.send_signal(number)
    ended = agent.finish(process)
    assert ended.code == 130, ended
    listed = agent("runs", "ls", "--json").document["runs"]
    assert [row["status"] for row in listed] == ["interrupted"]
    assert f"agent runs resume {listed[0]['id']}" in ended.line
    resumed = agent("runs", "resume", "last", "--json")
    assert resumed.code == 0 and resumed.document["result"] == {"seen": 6}
    shown = agent("runs", "show", "last", "--json").document
    assert len(shown["evaluations"]) == len({e["candidate_id"] for e in shown["evaluations"]}) == 6


def test_random_moments(agent):
    rng = random.Random(20)
    codes = []
    for _ in range(4):
        process = agent.start(
            "run", TOY, "--set", "steps=40", "--set", "delay=0.1", "--set", "slow_start=0.3", "--json"
        )
        until(hears(process))
        time.sleep(rng.uniform(0.0, 2.5))
        process.send_signal(signal.SIGINT)
        ended = agent.finish(process)
        codes.append(ended.code)
        assert ended.code == 130, ended
        assert "interrupted" in ended.line or "was stopped" in ended.line
        assert ended.document["error"]["exit_code"] == 130
    for row in agent("runs", "ls", "--json").document["runs"]:
        assert row["status"] in ("interrupted", "crashed")


def test_while_waiting_for_a_lock(agent):
    assert agent("run", TOY).code == 0
    holder = sqlite3.connect(agent.home / "runs.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    process = agent.start("run", TOY, env={"ORIENTEER_DB_TIMEOUT": "50"})
    until(lambda: any("runs.sqlite-shm" in str(path) for path in open_files(process.pid)))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    ended = agent.finish(process)
    holder.close()
    assert ended.code == 130 and ended.line == "agent: interrupted"


def test_in_mid_run_while_another_process_holds_the_database(agent):
    process = agent.start("run", TOY, "--set", "steps=15", "--set", "delay=0.1", env={"ORIENTEER_DB_TIMEOUT": "3600"})
    line = b""
    while b": ok" not in line:
        line = process.stderr.readline()
        assert line
    holder = sqlite3.connect(agent.home / "runs.sqlite", isolation_level=None, timeout=60)
    holder.execute("BEGIN IMMEDIATE")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    ended = agent.finish(process)
    holder.close()
    assert ended.code == 130 and "locked by another process" in ended.line and "agent runs resume" in ended.line
    assert agent("runs", "resume", "last", "--json").document["result"] == {"seen": 15}


def open_files(pid):
    try:
        return [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def test_a_second_signal_ends_a_run_that_does_not_listen(agent):
    method = agent.folder / "deaf.py"
    method.write_text(
        "import time, cli_toys\n"
        "class Deaf(cli_toys.Count):\n"
        "    def plan(self, run, state):\n"
        "        run.emit('task.rejected', task='x', message='now')\n"
        "        time.sleep(60)\n"
    )
    process = agent.start("run", "deaf:Deaf")
    while b"now" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    ended = agent.finish(process)
    assert ended.code == 130
    run = agent("runs", "ls", "--json").document["runs"][0]
    assert run["status"] == "interrupted"
    assert f"agent runs resume {run['id']}" in ended.err and "Traceback" not in ended.err


def test_while_pip_downloads(agent):
    # A pip that does not come back, found before the real one.
    fake = agent.folder / "fake" / "pip"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text("import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(600)\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        began = agent.folder / "began"
        began.unlink(missing_ok=True)
        process = agent.start("setup", "npu", "--yes", env={"PYTHONPATH": str(fake.parent)})
        until(began.exists)
        process.send_signal(number)
        ended = agent.finish(process)
        assert ended.code == 130 and ended.line == "agent: interrupted"
    assert [p for p in (agent.home / "toolchains").iterdir() if p.is_dir()] == []


def terminal():
    """Return both ends of a new terminal that becomes its child's controlling one."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, 0x5414, b"\x18\0\x50\0\0\0\0\0")  # TIOCSWINSZ: 24 lines of 80
    return master, slave


def read_until(master, word, seconds=60):
    """Read a terminal until a word appears."""
    text, end = b"", time.monotonic() + seconds
    while word not in text:
        assert time.monotonic() < end, text
        try:
            text += os.read(master, 4096)
        except OSError:
            break
    return text


def take_terminal():
    os.setsid()
    fcntl.ioctl(0, 0x540E, 0)  # TIOCSCTTY


@pytest.mark.parametrize(
    ("key", "code", "says"), [(b"\x03", 130, b"interrupted"), (b"\x04", 1, b"nothing"), (b"n\n", 1, b"nothing")]
)
def test_at_the_question(agent, key, code, says):
    master, slave = terminal()
    process = agent.start("setup", "npu", stdin=slave, stderr=slave, stdout=subprocess.PIPE, preexec_fn=take_terminal)
    os.close(slave)
    read_until(master, b"[Y/n]")
    os.write(master, key)
    said = read_until(master, says)
    assert process.wait(60) == code
    process.stdout.close()
    os.close(master)
    assert says in said and b"Traceback" not in said
    assert not (agent.home / "toolchains").exists()


def test_ctrl_c_on_a_terminal_with_the_live_table(agent):
    master, slave = terminal()
    process = agent.start(
        "run", TOY, "--set", "steps=100", "--set", "delay=0.2", env={"TERM": "xterm-256color"},
        stdin=slave, stderr=slave, stdout=slave, preexec_fn=take_terminal,
    )  # fmt: skip
    os.close(slave)
    read_until(master, b"evaluating")
    os.write(master, b"\x03")
    said = read_until(master, b"agent runs resume")
    while True:
        try:
            said += os.read(master, 4096)
        except OSError:
            break
    assert process.wait(60) == 130
    os.close(master)
    assert said.count(b"agent: ") == 1 and b"Traceback" not in said
    # The cursor is back.
    assert said.rfind(b"\x1b[?25h") >= said.rfind(b"\x1b[?25l")
    assert json.loads(agent("runs", "ls", "--json").out)["runs"][0]["status"] == "interrupted"
