"""DRC decks through the real command: check, split, explain, view; a run, and a session with an engineer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = str(Path(sys.executable).with_name("agent"))
HEAD = 'source($input)\nreport("t", $output)\n'
SPACE = HEAD + 'input(68, 20).space(0.14.um).output("M1.S", "too near")\n'
ISOLATED = SPACE.replace("space", "isolated")
RULE = ("--rule", "Minimum space of met1 is 0.14 um", "--layer", "met1=68/20", "--backend", "py")


@pytest.fixture
def place(tmp_path):
    """A folder with two decks, two layouts (a gap of 0.13 um, and of 0.14 um) and a home."""
    from orienteer.environments.layout.layouts import write_layout
    from orienteer.environments.layout.patterns.figures import box

    (tmp_path / "space.drc").write_text(SPACE)
    (tmp_path / "isolated.drc").write_text(ISOLATED)
    for name, gap in (("near.gds", 130), ("far.oas", 140)):
        write_layout(tmp_path / name, {(68, 20): [box(0, 0, 500, 500), box(500 + gap, 0, 1000, 500)]})
    (tmp_path / "broken.gds").write_bytes(b"\x00\x06\x00\x02 and then nothing")
    return tmp_path


def agent(place, *args, typed=None):
    env = {"PATH": "/usr/bin:/bin", "ORIENTEER_HOME": str(place / "home"), "HOME": str(place)}
    return subprocess.run(
        [AGENT, *args], cwd=place, env=env, input=typed, capture_output=True, text=True, timeout=100,
        stdin=subprocess.DEVNULL if typed is None else None,
    )  # fmt: skip


def test_check_counts_and_writes_reports_and_goes_on_after_a_bad_layout(place):
    done = agent(place, "drc", "check", "space.drc", "near.gds", "broken.gds", "far.oas", "--report", "out", "--json",
                 "--backend", "py")  # fmt: skip
    found = {Path(item["layout"]).name: item for item in json.loads(done.stdout)["layouts"]}
    assert found["near.gds"]["counts"] == {"M1.S": 1} and found["far.oas"]["counts"] == {"M1.S": 0}
    assert found["broken.gds"]["status"] == "bad-layout" and "damaged" in found["broken.gds"]["message"]
    assert done.returncode == 3 and (place / "out" / "near.lyrdb").is_file() and (place / "out" / "far.lyrdb").is_file()


@pytest.mark.parametrize("layout, code", [("near.gds", 1), ("far.oas", 0)])
def test_the_exit_status_of_check_says_whether_there_are_violations(place, layout, code):
    done = agent(place, "drc", "check", "space.drc", layout, "--backend", "py")
    assert done.returncode == code and "M1.S" in done.stdout


def test_split_finds_the_notch_and_draws_it(place):
    done = agent(place, "drc", "split", "space.drc", "isolated.drc", "--to", "s.gds", "--png", "s.png", "--json",
                 "--backend", "py")  # fmt: skip
    found = json.loads(done.stdout)
    assert done.returncode == 1 and found["differs"]
    assert [item["counts"]["M1.S"] > 0 for item in found["decks"]] == [True, False]
    assert (place / "s.png").read_bytes().startswith(b"\x89PNG")
    again = agent(place, "drc", "check", "space.drc", "s.gds", "--backend", "py")
    assert again.returncode == 1


def test_split_of_a_deck_with_itself_finds_nothing_and_says_it_is_no_proof(place):
    done = agent(place, "drc", "split", "space.drc", "space.drc", "--most", "64", "--backend", "py")
    assert done.returncode == 0 and "no proof" in done.stdout


def test_explain_says_what_is_checked(place):
    done = agent(place, "drc", "explain", "isolated.drc")
    assert done.returncode == 0 and "68/20" in done.stdout and "0.14" in done.stdout and "notch" in done.stdout


def test_view_marks_the_violations_of_a_report(place):
    agent(place, "drc", "check", "space.drc", "near.gds", "--report", "near.lyrdb", "--backend", "py")
    done = agent(place, "drc", "view", "near.gds", "near.lyrdb", "--png", "v.png", "--json")
    assert json.loads(done.stdout) == {"picture": "v.png", "marked": 1}
    wrong = agent(place, "drc", "view", "near.gds", "near.lyrdb", "--png", "v.png", "--category", "X")
    assert wrong.returncode == 2 and "M1.S" in wrong.stderr


WRONG = [
    (["drc", "check", "nothing.drc", "near.gds"], "nothing.drc is no file"),
    (["drc", "check", "near.gds", "near.gds"], "near.gds is no text in UTF-8"),
    (["drc", "check", "space.drc", "broken.gds"], "damaged"),
    (["drc", "check", "space.drc", "nothing.gds"], "nothing.gds"),
    (["drc", "check", "space.drc", "near.gds", "--backend", "magic"], "unknown backend 'magic'"),
    (["run", "drc"], "nothing to do: no rule"),
    (["run", "drc", "--rule", "Minimum space of met1 is 0.14 um"], "the rule has no layers"),
    (["run", "drc", "--rule", "x", "--layer", "met1"], "NAME=LAYER/DATATYPE"),
    (["run", "drc", "--rule", "x", "--layer", "met1=a/b"], "is no layer for met1"),
    (["run", "drc", "--rule", "Minimum space of met1 is 0.14", "--layer", "met1=68/20"], "unit"),
    (["run", "drc", "--rule", "Minimum space of met2 is 0.14 um", "--layer", "met1=68/20"], "met1"),
    (["run", "drc", "--spec", "space.drc"], "is no"),
    (["run", "drc", "--spec", "."], "has no spec.yaml"),
    (["run", "drc", "--rulr", "x"], "no such option: --rulr: did you mean --rule"),
    (["run", "drc", *RULE, "--interactive", "--selector", "sstar"], "asks no engineer"),
    (["run", "drc", *RULE, "--answers", "model"], "no model to answer"),
]


@pytest.mark.parametrize("args, said", WRONG, ids=[" ".join(args)[:60] for args, _ in WRONG])
def test_what_is_wrong_is_said_in_one_line(place, args, said):
    done = agent(place, *args)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("agent: ")]
    assert len(lines) == 1 and said in lines[0], done.stderr


def test_a_rule_becomes_a_deck_that_runs(place):
    done = agent(place, "run", "drc", *RULE, "--json")
    result = json.loads(done.stdout)["result"]["tasks"][0]
    assert done.returncode == 0 and result["status"] == "chosen" and result["behaviours"] > 3
    assert "space(0.14.um" in Path(result["file"]).read_text()
    report = agent(place, "runs", "report", "last", "--to", "r.html")
    page = (place / "r.html").read_text()
    assert report.returncode == 0 and "space(0.14.um" in page
    # What tells the chosen reading from each of the others is drawn.
    others = {number for shown in result["apart"] for number in shown["readings"]}
    assert others == set(range(1, result["candidates"] + 1)) - {result["number"]}
    assert page.count("data:image/png;base64,iVBOR") == len(result["apart"])
    assert all(Path(shown["layout"]).with_suffix(".png").is_file() for shown in result["apart"])
    shown = agent(place, "runs", "show", "last")
    assert "chosen: reading" in shown.stdout


def test_a_session_asks_shows_and_stops_when_sure(place):
    """An engineer who means space between polygons only: a notch is fine, so is a corner, a gap below is not."""
    answers = {"notch": "fine", "hole": "fine", "corner": "fine"}
    typed = []
    for _ in range(12):
        done = agent(place, "run", "drc", *RULE, "--interactive", "--json", typed="".join(f"{t}\n" for t in typed))
        if done.returncode == 0:
            break
        assert done.returncode == 130 and "agent runs resume" in done.stderr, done.stderr
        question = [line for line in done.stderr.splitlines() if line.startswith("question ")][-1]
        typed.append(next((said for word, said in answers.items() if word in question), "violation"))
    item = json.loads(done.stdout)["result"]["tasks"][0]
    deck = Path(item["file"]).read_text()
    assert item["why"] in ("sure", "nothing splits") and ".isolated(0.14.um" in deck and "projection" in deck
    pictures = sorted((Path(item["file"]).parent.parent / "questions").glob("*.png"))
    assert len(pictures) == len(typed) == item["asked"]


def test_a_session_that_was_left_goes_on_with_the_same_question(place):
    left = agent(place, "run", "drc", *RULE, "--interactive", typed="")
    assert left.returncode == 130 and "waits for an answer" in left.stderr
    first = [line for line in left.stderr.splitlines() if line.startswith("question 1")]
    again = agent(place, "runs", "resume", "last", typed="other\nquit\n")
    assert [line for line in again.stderr.splitlines() if line.startswith("question 1")] == first
    assert any(line.startswith("question 2") for line in again.stderr.splitlines())


def test_what_is_neither_yes_nor_no_is_kept_as_a_remark(place):
    typed = "depends on the voltage\n" + "fine\n" * 12
    done = agent(place, "run", "drc", *RULE, "--interactive", "--json", typed=typed)
    item = json.loads(done.stdout)["result"]["tasks"][0]
    assert [remark["said"] for remark in item["remarks"]] == ["depends on the voltage"]
    assert "depends on the voltage" in agent(place, "runs", "show", "last").stdout


def test_ids_of_tasks_lead_nowhere_outside_the_run_and_share_no_file(place):
    for folder, name, limit in (("a", "a/b", 0.14), ("b", "a_b", 0.2), ("c", "../../../../out", 0.3)):
        (place / "specs" / folder).mkdir(parents=True)
        spec = f"id: {name}\nlayers: {{met1: [68, 20]}}\n"
        spec += f"rules: [{{text: Minimum space of met1 is {limit} um., category: S}}]\n"
        (place / "specs" / folder / "spec.yaml").write_text(spec)
    before = sorted(place.iterdir())
    done = agent(place, "run", "drc", "--spec", "specs", "--backend", "py", "--candidates", "2", "--json")
    tasks = {item["task"]: Path(item["file"]) for item in json.loads(done.stdout)["result"]["tasks"]}
    assert done.returncode == 0
    for name, limit in (("a/b", "0.14.um"), ("a_b", "0.2.um"), ("../../../../out", "0.3.um")):
        assert tasks[name].parent.name == "decks" and limit in tasks[name].read_text()
    assert sorted({*place.iterdir()} - {place / "home"}) == before


def test_a_name_that_leads_out_of_the_folder_stays_in_it(place):
    (place / "spec.yaml").write_text(
        "id: ../../../odd\nlayers: {met1: [68, 20]}\nrules: [{text: Minimum space of met1 is 0.14 um, category: S}]\n"
    )
    done = agent(place, "run", "drc", "--spec", "spec.yaml", "--backend", "py", "--json")
    file = Path(json.loads(done.stdout)["result"]["tasks"][0]["file"])
    assert file.is_file() and (place / "home" / "runs") in file.resolve().parents
    assert not (place / "odd").exists() and not list(place.glob("odd*"))
