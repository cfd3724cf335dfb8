"""What the command prints: for people, for machines, on terminals, into pipes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import time
from pathlib import Path

import pytest

TOY = "cli_toys:Count"


@pytest.fixture(scope="module")
def done(shared):
    """A finished run."""
    ended = shared("run", TOY, "--seed", "3", "--task", "one", "--task", "two")
    assert ended.code == 0, ended
    shared.report = ended
    shared.run = shared("runs", "ls", "--json").document["runs"][0]["id"]
    return shared


def test_the_report_says_what_was_proven_and_where_the_files_are(done):
    out = done.report.out
    assert re.search(r"^task +best score +evidence +candidate +step$", out, re.M)
    assert re.search(r"^one +2 +counted +c\w+ +2$", out, re.M)
    assert f"run {done.run}: done; evaluations: 2 rejected, 4 ok" in out
    assert f"files: {done.home}/runs/{done.run}\n  count.txt" in out
    # The course of the run is on stderr, in plain lines, harmless to a terminal.
    assert "proposer: offline" in done.report.err and "step 0: 2 asked" in done.report.err
    assert r"rejected (odd: step \x1b[31m1" in done.report.err and "\x1b" not in done.report.err


def test_show(done):
    shown = done("runs", "show", "last")
    assert shown.code == 0 and shown.err == ""
    for words in (
        f"run:         {done.run}",
        "status:      done",
        "tasks:       one, two",
        "seed:        3",
        "evaluations: 2 rejected, 4 ok",
        "count pass, device SKIPPED",
        r"odd: step \x1b[31m1",
        "count.txt",
    ):
        assert words in shown.out, words
    document = done("runs", "show", done.run[:-2], "--json").document
    assert document["id"] == done.run and len(document["candidates"]) == 6
    for item in document["candidates"]:
        assert item["id"] in shown.out


def test_every_command_gives_one_json_document(done):
    document = done("run", TOY, "--json").document
    assert {"run", "status", "exit_code", "method", "seed", "result", "best", "counts", "provenance", "folder"} <= set(
        document
    )
    assert document["provenance"]["proposer"] == "offline"
    for args in (["runs", "ls"], ["runs", "show", "last"], ["memory", "ls"], ["tasks", "ls"], ["methods"], ["doctor"]):
        ended = done(*args, "--json")
        assert ended.code == 0 and ended.err == "" and isinstance(ended.document, dict), args
        assert ended.out.isascii()
    exported = done("runs", "export", "last", "--to", "there", "--json").document
    whole = json.loads((done.folder / exported["file"]).read_text())
    assert [(done.folder / "there" / item["file"]).is_file() for item in whole["candidates"]] == [True] * 3
    again = done("runs", "export", "last", "--to", "there")
    assert again.code == 2 and "not an empty folder" in again.line
    closed = done("runs", "export", "last", "--to", "/proc/nothing")
    assert closed.code == 5 and "/proc/nothing" in closed.line


def test_methods_tasks_and_memory_are_helpful(done):
    methods = done("methods")
    assert re.search(r"^evokernel: \w+", methods.out, re.M) and "verifications per task" in methods.out
    one = done("methods", TOY)
    assert re.search(r"^steps +int +3 +loop iterations$", one.out, re.M)
    tasks = done("tasks", "ls")
    assert re.search(r"^softmax +\S+", tasks.out, re.M) and "--task FILE" in tasks.out
    memory = done("memory", "stats")
    assert re.search(rf"^runs +\d+ +\d+ KiB +{done.home}/runs.sqlite$", memory.out, re.M), memory.out
    assert re.search(r"^artifacts +\d+ +\d+ KiB", memory.out, re.M)


def test_the_doctor_says_how_to_enable_what_is_missing(done):
    seen = done("doctor", env={"PATH": "/nowhere", "DOCKER_HOST": "tcp://127.0.0.1:9"})
    assert seen.code == 0 and "Traceback" not in seen.err
    for part in ("python", "torch", "home", "bubblewrap", "docker engine", "Ascend", "KLayout", "GPU", "default model"):
        assert part in seen.out, part
    cures = seen.out.split("to enable")[1]
    assert "agent setup npu" in cures and "DOCKER_HOST" in cures and "OPENAI_BASE_URL" in cures


def test_readers_that_go_away_and_outputs_that_cannot_be_written(done):
    command = f"{shlex.quote(done.agent)} runs show last | head -1; echo ${{PIPESTATUS[0]}}"
    ended = done.finish(
        subprocess.Popen(
            ["bash", "-c", command],
            env=done.env, cwd=done.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
    )  # fmt: skip
    assert ended.out.splitlines()[1] == "0" and ended.err == ""
    with Path("/dev/full").open("w") as full:
        ended = done.alone("runs", "ls", stdout=full)
    assert ended.code == 1 and "No space left" in ended.line
    closed = done.alone("runs", "ls", prefix=("bash", "-c", 'exec "$@" >&- 2>&- <&-', "x"))
    assert closed.code == 0
    closed = done.alone("run", TOY, "--home", "elsewhere", prefix=("bash", "-c", 'exec "$@" >&- 2>&- <&-', "x"))
    assert closed.code == 0
    narrow = done.alone("runs", "show", "last", env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"})
    assert narrow.code == 0 and narrow.err == ""


def screen(agent, *args, columns=80, env=None):
    """Run on a terminal; return status and everything that it was sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, 0x5414, struct.pack("HHHH", 24, columns, 0, 0))  # TIOCSWINSZ
    variables = {"TERM": "xterm-256color"} | (env or {})
    process = agent.start(*args, env=variables, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    end = time.monotonic() + 100
    while time.monotonic() < end:
        try:
            said += os.read(master, 65536)
        except OSError:
            break
    os.close(master)
    return process.wait(60), said.decode()


def test_a_terminal_gets_a_live_table_that_goes_away(done):
    code, said = screen(done, "run", TOY, "--set", "delay=0.3", "--task", "one", "--task", "two")
    assert code == 0, said
    assert "evaluating" in said and "detail" in said and "\x1b[2K" in said
    assert "step 0: 2 asked" not in said
    after = said[said.rindex("\x1b[2K") :]
    assert "best score" in after and "detail" not in after
    assert said.rfind("\x1b[?25h") > said.rfind("\x1b[?25l")


def test_no_color_and_dumb_terminals_and_narrow_ones(done):
    color = re.compile(r"\x1b\[[0-9;]*3[0-9]m")
    run = ("run", TOY, "--set", "delay=0.1", "--task", "one")
    _, said = screen(done, *run)
    assert color.search(said)
    code, said = screen(done, *run, env={"NO_COLOR": "1"}, columns=20)
    assert code == 0 and not color.search(said) and "Traceback" not in said
    _, said = screen(done, *run, env={"TERM": "dumb"})
    assert "\x1b" not in said and "step 0: 1 asked" in said
    code, said = screen(done, "runs", "ls", columns=60)
    assert code == 0 and max(len(line) for line in said.splitlines()) <= 90
    code, said = screen(done, "run", TOY, "--json")
    assert json.loads(said[said.index("{") :])["status"] == "done"


def test_help_costs_little(done):
    code = (
        "import sys; sys.argv = ['agent', '--help']\n"
        "from orienteer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'triton', 'langgraph', 'openai', 'docker', 'sqlalchemy', 'numpy'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    ended = subprocess.run([done.python, "-c", code], capture_output=True, text=True, check=True, env=done.env)
    assert ended.stdout.endswith("heavy: []\n"), ended.stdout
