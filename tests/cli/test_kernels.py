"""The kernel method through the command where the Ascend compiler is not installed."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")


def test_without_the_compiler_its_gate_is_skipped_never_passed(agent, monkeypatch):
    ended = agent("run", "evokernel", "--target", "npu", "--task", "add", "--allow-unsafe", "--workers", "1")
    assert ended.code == 0, ended
    assert "agent setup npu" in ended.err and "SKIPPED" in ended.err
    header, row = ended.out.splitlines()[:2]
    cells = dict(zip(header.split(), row.split(), strict=False))
    assert cells["task"] == "add" and cells["compile"].startswith("SKIP") and cells["status"] != "proven"
    assert "E1" not in row
    document = agent("runs", "show", "last", "--json").document
    (item,) = document["result"]["tasks"]
    assert {g["gate"]: g["status"] for g in item["gates"]}["compile"] == "skipped"
    shown = agent("runs", "show", "last")
    assert "compile SKIPPED" in shown.out and "kernels/add.py" in shown.out


def test_on_a_terminal_the_compiler_is_offered(agent):
    master, slave = pty.openpty()
    process = agent.start(
        "run", "evokernel", "--target", "npu", "--task", "nothing-of-that-name",
        stdin=slave, stderr=slave, stdout=subprocess.PIPE,
    )  # fmt: skip
    os.close(slave)
    said = b""
    while b"[Y/n]" not in said:
        said += os.read(master, 4096)
    assert b"Install it now?" in said and b"Ascend compiler" in said
    os.write(master, b"n\n")
    while True:
        try:
            said += os.read(master, 4096)
        except OSError:
            break
    assert process.wait(60) == 2
    process.stdout.close()
    os.close(master)
    assert b"agent setup npu" in said and b"no task" in said
