"""What the loop does with a method, good or bad."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_toys import Climb, fingerprint
from sorting_network import SortingNetwork

from orienteer.agents.runtime import Ask, Evaluation, Failure, Method, Outcome, Proposal
from orienteer.agents.runtime.config import Budgets, RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
from orienteer.agents.runtime.records import export_run, list_runs, remove_run, show_run
from orienteer.agents.runtime.run import derive
from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.memory.artifacts import ArtifactStore

HERE = Path(__file__).parent


def toy(name="Climb", **kwargs):
    given = {"method": f"runtime_toys:{name}", "tasks": ["one", "two"], "model": "offline", "workers": 2} | kwargs
    return RunConfig(**given)


# -- the example that the documentation shows -------------------------------------------------------------------------


def test_the_example_finds_a_network_that_sorts(home):
    events = []
    report = start_run(
        RunConfig("sorting_network:SortingNetwork", model="offline", settings={"wires": "4"}), events.append
    )
    assert (report.status, report.exit_code) == ("done", 0)
    network = report.result["best"]
    assert len(network) == report.best["network"]["score"] <= 8 < len(SortingNetwork().start(_run(4))["best"])
    for number in range(16):
        values = [number >> i & 1 for i in range(4)]
        for low, high in network:
            values[low], values[high] = min(values[low], values[high]), max(values[low], values[high])
        assert values == sorted(values)
    stored = json.loads(ArtifactStore(home / "artifacts").text(report.best["network"]["content_sha"]))
    assert stored == network
    kinds = [event.kind for event in events]
    assert kinds[0] == "run.start" and kinds[-1] == "run.end"
    assert kinds.count("step.learn") == kinds.count("step.plan") == report.steps
    assert report.provenance["proposer"] == "offline" and report.provenance["seed"] == 0


def _run(wires):
    class Run:
        settings = SortingNetwork.Settings(wires=wires)

    return Run()


def test_the_example_is_short():
    source = (HERE.parents[1] / "docs/examples/sorting_network.py").read_text().splitlines()
    first = next(i for i, line in enumerate(source) if line.startswith("class "))
    assert len([line for line in source[first:] if line.strip()]) <= 40


# -- the same seed is the same run ------------------------------------------------------------------------------------


def test_same_seed_same_run_whatever_the_hash_seed_and_the_number_of_workers(home, tmp_path, script):
    code = (
        "import sys,json; sys.path.insert(0, sys.argv[1]); from runtime_toys import *; "
        "from orienteer.agents.runtime.engine import start_run; from orienteer.agents.runtime.config import RunConfig; "
        "from orienteer.agents.runtime.records import show_run; "
        "r = start_run(RunConfig('runtime_toys:Climb', tasks=['one','two'], seed=3, model=sys.argv[2], "
        "workers=int(sys.argv[3]))); print(json.dumps(fingerprint(show_run(r.id))))"
    )
    found = []
    for hash_seed, workers in (("1", 1), ("2", 4), ("77", 3)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(HERE), script, str(workers)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "ORIENTEER_HOME": str(tmp_path / hash_seed)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        found.append(json.loads(done.stdout))
    assert found[0] == found[1] == found[2]
    assert len(found[0]["candidates"]) > 10


def test_another_seed_another_run(home):
    first, second = (start_run(toy(seed=seed)) for seed in (1, 2))
    assert fingerprint(show_run(first.id)) != fingerprint(show_run(second.id))


labels = st.lists(st.text(max_size=5) | st.integers(-9, 9), max_size=4)


@given(st.integers(), labels, st.integers(), labels)
def test_rng_is_a_function_of_seed_and_labels(seed, one, other_seed, two):
    assert derive(seed, *one).random() == derive(seed, *one).random()
    if (seed, [(type(x), x) for x in one]) != (other_seed, [(type(x), x) for x in two]):
        assert derive(seed, *one).random() != derive(other_seed, *two).random()


# -- contents, verdicts, best -----------------------------------------------------------------------------------------


class Fixed(Method):
    """Proposes what its options say and judges by a table."""

    minimise = True
    calls: ClassVar[list] = []

    def plan(self, run, state):
        steps = run.options["contents"]
        return [Ask(task) for task, _ in steps[run.step]] if run.step < len(steps) else []

    def propose(self, run, ask):
        return Proposal(run.options["contents"][ask.step][ask.slot][1], notes={"slot": ask.slot})

    def evaluate(self, run, candidate):
        type(self).calls.append((candidate.task, candidate.content))
        return VERDICTS.get(candidate.content) or Evaluation("ok", score=float(candidate.content))

    def learn(self, run, state, outcomes):
        assert [o.ask.slot for o in outcomes] == list(range(len(outcomes)))
        best = run.best()
        kept = state.get("kept", []) + [[o.candidate.id, o.evaluation.status, o.evaluation.score] for o in outcomes]
        return {"kept": kept, "best": best and best.evaluation.score}


VERDICTS = {
    "bad": Evaluation("failed", failure=Failure("wrong", "it is\x00 wrong \ud800"), log="the log\ud800"),
    "unknown": Evaluation("unknown", evidence="no compiler"),
    "odd": Evaluation("ok", score=5.0, metrics={"error": math.inf, "deep": [math.nan, (1, 2)]}),
}


def fixed(contents, **kwargs):
    Fixed.calls.clear()
    return start_run(RunConfig(f"{__name__}:Fixed", model="offline", options={"contents": contents}, **kwargs))


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or sys.modules[Fixed.__module__])


def test_the_same_content_is_one_candidate_per_task_and_judged_once(home):
    report = fixed([[("a", "3"), ("a", "3"), ("b", "3")], [("a", "3"), ("a", "4")]], workers=3)
    assert report.status == "done"
    assert sorted(Fixed.calls) == [("a", "3"), ("a", "4"), ("b", "3")]
    document = show_run(report.id)
    assert len(document["candidates"]) == 3
    assert [(c["step"], c["slot"], c["notes"]["slot"]) for c in document["candidates"]] == [
        (0, 0, 0),
        (0, 2, 2),
        (1, 1, 1),
    ]
    assert len(report.result["kept"]) == 5


def test_failures_have_no_score_and_the_best_of_a_minimised_goal_is_right(home):
    report = fixed([[("a", "7"), ("a", "bad"), ("a", "unknown"), ("b", "odd")], [("a", "6"), ("a", "8")]])
    assert report.best["a"]["score"] == 6.0 and report.best["a"]["step"] == 1
    assert report.best["b"]["score"] == 5.0
    assert report.result["best"] == 5.0
    document = show_run(report.id, contents=True)
    by_status = {e["status"]: e for e in document["evaluations"]}
    assert by_status["failed"]["score"] is None and by_status["failed"]["failure_kind"] == "wrong"
    assert by_status["failed"]["log"] == "the log\ud800"
    assert by_status["unknown"]["failure_kind"] is None
    odd = next(e for e in document["evaluations"] if e["score"] == 5.0)
    assert odd["metrics"] == {"error": "Infinity", "deep": ["NaN", [1, 2]]}
    json.dumps(document, allow_nan=False)


def test_verdicts_of_other_runs_are_taken_only_when_asked_for(home):
    first = fixed([[("a", "3"), ("a", "4")]])
    fixed([[("a", "3")]])
    assert Fixed.calls == [("a", "3")]
    third = fixed([[("a", "3"), ("a", "4")], [("a", "5")]], reuse_evaluations=True, budgets=Budgets(evals=1))
    assert Fixed.calls == [("a", "5")]
    assert third.status == "done" and third.provenance["evaluations_reused"] is True
    assert third.best["a"] == first.best["a"]
    reused = [e for e in show_run(third.id)["evaluations"] if e["reused_from"]]
    assert len(reused) == 2


# -- things go wrong --------------------------------------------------------------------------------------------------


def test_a_method_bug_in_evaluate_is_machinery_and_kept_with_its_traceback(home, log):
    report = start_run(toy("Broken", options={"log": log.path, "trip": {"evaluate": ["bug", [2]]}}))
    assert (report.status, report.exit_code) == ("failed", 1)
    assert "step 2" in report.reason and "ZeroDivisionError" in report.reason
    document = show_run(report.id, contents=True)
    spoiled = [e for e in document["evaluations"] if e["status"] == "machinery"]
    assert spoiled and "ZeroDivisionError" in spoiled[0]["log"] and "Traceback" in spoiled[0]["log"]
    assert report.steps == 2 and report.best


def test_machinery_is_tried_once_more_then_given_up_and_repaired_by_a_resume(home, log, tmp_path):
    base = start_run(toy())
    switch = tmp_path / "repaired"
    options = {"log": log.path, "trip": {"evaluate": ["machinery", [2]]}, "switch": str(switch)}
    report = start_run(toy("Broken", options=options))
    assert report.status == "failed" and "on fire" in report.reason
    tried = [entry[2] for entry in log.entries("tried") if entry[1] == 2]
    assert max(tried.count(name) for name in tried) == 2
    again = resume_run(report.id)
    assert again.status == "failed"
    switch.touch()
    final = resume_run(report.id)
    assert final.status == "done"
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))


def test_much_machinery_failure_is_not_tried_to_the_end(home, log):
    options = {"log": log.path, "trip": {"evaluate": ["machinery", [0]]}}
    report = start_run(toy("Broken", options=options, settings={"width": 60}))
    assert report.status == "failed"
    assert len(log.entries("tried")) < 30


@pytest.mark.parametrize("kind", ["bug", "exit", "machinery"])
def test_what_goes_wrong_in_propose_is_machinery_too(home, kind, tmp_path):
    base = start_run(toy())
    switch = tmp_path / "repaired"
    report = start_run(toy("Broken", options={"trip": {"propose": [kind, [1]]}, "switch": str(switch)}))
    assert report.status == "failed" and "step 1" in report.reason
    switch.touch()
    final = resume_run(report.id)
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))


@pytest.mark.parametrize("where", ["plan", "learn"])
def test_a_bug_in_plan_or_learn_ends_the_run_with_one_line_and_it_can_go_on(home, where, tmp_path, log):
    base = start_run(toy())
    switch = tmp_path / "repaired"
    options = {"log": log.path, "trip": {where: ["bug", [2]]}, "switch": str(switch)}
    report = start_run(toy("Broken", options=options))
    assert report.status == "failed" and f"Broken.{where} raised ZeroDivisionError" in report.reason
    assert "\n" not in report.reason
    assert "Traceback" in (report.folder / "traceback.txt").read_text()
    before = len(log.entries("evaluate"))
    switch.touch()
    final = resume_run(report.id)
    assert fingerprint(show_run(final.id)) == fingerprint(show_run(base.id))
    evaluated = [entry[2] for entry in log.entries("evaluate")]
    assert len(set(evaluated)) == len(evaluated) > before


class Refusing(Climb):
    def start(self, run):
        raise {"usage": UsageError, "missing": MissingPrerequisite}[run.options["why"]]("no such task", "name another")


@pytest.mark.parametrize(("why", "kind"), [("usage", UsageError), ("missing", MissingPrerequisite)])
def test_a_request_that_cannot_be_served_leaves_no_run(home, why, kind):
    with pytest.raises(kind, match="no such task"):
        start_run(RunConfig(f"{__name__}:Refusing", model="offline", options={"why": why}))
    assert list_runs() == []


class NotPlain(Climb):
    def learn(self, run, state, outcomes):
        return super().learn(run, state, outcomes) | {"place": {"x": {1, 2}}}


def test_a_state_that_is_not_plain_is_named(home):
    report = start_run(RunConfig(f"{__name__}:NotPlain", tasks=["one"], model="offline"))
    assert report.status == "failed" and "the state.place.x is a set" in report.reason


def test_a_broken_listener_does_not_end_a_run(home):
    def listener(event):
        raise RuntimeError("the display is broken")

    assert start_run(toy(), listener).status == "done"


# -- small state, many asks -------------------------------------------------------------------------------------------


def test_the_graph_holds_ids_and_counters_only(home, monkeypatch):
    from orienteer.agents.runtime import checkpoint

    sizes = []
    original = checkpoint.Checkpoints.put

    def put(self, config, check, metadata, versions):
        values = {k: v for k, v in check["channel_values"].items() if not k.startswith(("__", "branch:"))}
        sizes.append(len(json.dumps(values)))
        return original(self, config, check, metadata, versions)

    monkeypatch.setattr(checkpoint.Checkpoints, "put", put)
    report = start_run(toy(settings={"width": 100, "steps": 1}))  # 200 asks
    assert report.status == "done" and len(show_run(report.id)["proposals"]) == 200
    assert sizes and max(sizes) < 4096


def test_old_checkpoints_are_pruned(home):
    import sqlite3

    report = start_run(toy(settings={"steps": 40, "width": 1}))
    assert report.steps == 40
    conn = sqlite3.connect(home / "checkpoints.sqlite")
    assert conn.execute("SELECT count(*) FROM checkpoints").fetchone()[0] <= 3
    conn.close()


# -- records ----------------------------------------------------------------------------------------------------------


def test_records(home, tmp_path):
    report = start_run(toy())
    assert [row["id"] for row in list_runs()] == [report.id]
    assert show_run(report.id[:-2])["id"] == show_run("last")["id"] == report.id
    with pytest.raises(UsageError, match="no run"):
        show_run("nope")
    path = export_run("last", tmp_path / "out")
    document = json.loads(path.read_text())
    assert document["status"] == "done"
    for item in document["candidates"]:
        assert (tmp_path / "out" / item["file"]).read_text().isdecimal()
    with pytest.raises(UsageError, match="empty"):
        export_run("last", tmp_path / "out")
    remove_run(report.id)
    assert list_runs() == []


def test_no_runs_without_a_database(home):
    assert list_runs() == []
    assert not home.exists()


def test_outcomes_and_candidates_as_a_method_sees_them(home):
    seen = []

    class Look(Climb):
        def learn(self, run, state, outcomes):
            assert run.outcomes(step=run.step) == list(outcomes)
            assert run.outcomes(task="one", step=run.step) == [o for o in outcomes if o.ask.task == "one"]
            everything = run.outcomes()
            assert everything[-len(outcomes) :] == list(outcomes)
            assert all(isinstance(o, Outcome) for o in everything)
            found = run.candidates("one")
            assert found and found == sorted(found, key=lambda c: (c.step, c.slot))
            assert run.candidate(found[0].id) == found[0]
            seen.append(len(everything))
            return super().learn(run, state, outcomes)

    sys.modules[__name__].Look = Look
    assert start_run(RunConfig(f"{__name__}:Look", tasks=["one", "two"], model="offline", workers=2)).status == "done"
    assert seen == [6, 12, 18, 24, 30]


@settings(max_examples=3, deadline=None)
@given(cap=st.integers(1, 12), workers=st.integers(1, 5))
def test_evaluations_never_exceed_their_budget(tmp_path_factory, cap, workers):
    place = tmp_path_factory.mktemp("home")
    report = start_run(toy(home=place, workers=workers, budgets=Budgets(evals=cap)))
    assert sum(report.counts["evaluations"].values()) == cap
