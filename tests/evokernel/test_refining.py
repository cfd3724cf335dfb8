"""Refining with a scripted model: what the prompt carries, what is kept, what an earlier run teaches the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from task_sources import DOUBLE, GOOD

FASTER = DOUBLE.replace("import torch\n", "import torch\n\n# a variant\n", 1)
WRONG = DOUBLE.replace("* 2.0", "* 2.5")


def command(folder, toolchains, script, *arguments):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "good.py").write_text(GOOD)
    (folder / "script.jsonl").write_text("".join(json.dumps(item) + "\n" for item in script))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORIENTEER_"))}
    env |= {"ORIENTEER_HOME": str(folder / "home"), "ORIENTEER_TOOLCHAINS": str(toolchains)}
    done = subprocess.run(
        [sys.executable, "-m", "orienteer.cli", *arguments, "--json"],
        env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(folder, toolchains, script, iterations, *more):
    return command(
        folder, toolchains, script, "run", "evokernel", "--task", "good.py", "--model", "scripted/script.jsonl",
        "--set", "cases=2", "--set", f"iterations={iterations}", *more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def refined(shared, tmp_path_factory):
    toolchains = shared.toolchain_home()
    if toolchains is None:
        pytest.skip("the Ascend compiler is not installed")
    folder = tmp_path_factory.mktemp("refined")
    script = [
        {"sample": "good/0", "reply": {"code": DOUBLE, "change": "first"}},
        # Given only to prompts that name the latency, the bottleneck and the variants tried before.
        {"sample": "good/1", "reply": {"code": WRONG, "change": "multiplied more"}, "match": "none yet"},
        {
            "sample": "good/2",
            "reply": {"code": FASTER, "change": "nothing but a remark"},
            "match": "multiplied more: mismatch",
        },
    ]
    return folder, toolchains, run(folder, toolchains, script, 3)


def test_refining_goes_on_from_the_feasible_kernel(refined):
    _, _, document = refined
    (row,) = document["result"]["tasks"]
    assert row["status"] == "proven" and row["attempts"] == 3
    assert row["latency"]["level"].startswith("E2") and row["latency"]["seconds"] > 0
    assert row["curve"][0][0] == 1 and row["speedup_over_draft"] == pytest.approx(1.0)
    assert document["counts"]["evaluations"] == {"failed": 1, "ok": 2}


def test_lineage_names_the_start_point(refined):
    folder, toolchains, document = refined
    shown = command(folder, toolchains, [], "runs", "show", document["run"])
    parents = {item["step"]: item.get("parents") for item in shown["proposals"]}
    draft = document["result"]["tasks"][0]["draft"]
    assert parents[1] == [draft] and parents[2] == [draft]


def test_the_next_run_is_given_what_the_first_one_learnt(refined):
    folder, toolchains, _ = refined
    script = [{"sample": "good/0", "reply": {"code": DOUBLE}, "match": "[trace success]"}]
    document = run(folder, toolchains, script, 1)
    assert document["result"]["tasks"][0]["status"] == "proven"
    script = [{"sample": "good/0", "reply": {"code": DOUBLE}, "match": "[trace success]"}]
    without = run(folder, toolchains, script, 1, "--memory", "none")
    assert without["result"]["tasks"][0]["status"] == "failed"
