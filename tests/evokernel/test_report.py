"""The report: real runs through the command, hostile names and replies, runs that were cut, memories that are gone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from task_sources import DOUBLE, GOOD

from orienteer.agents.evokernel import telling
from orienteer.agents.evokernel.course import courses, groups
from orienteer.agents.evokernel.report import page
from orienteer.evaluators.kernel import rejections

#: A file name that is markup, quotes, and turns round what follows it.
HOSTILE = "<script>alert(1)<script>\"'&\u202egnp"
FASTER = DOUBLE.replace("import torch\n", "import torch\n\n# </pre><script>alert(2)</script>\n", 1)
WRONG = DOUBLE.replace("* 2.0", "* 2.5")
FOURIER = """
import torch
import torch.nn as nn

N = 64


class Model(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).real


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
"""


class Page(HTMLParser):
    """What a browser would take from a page: tags with their attributes, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self._quiet = 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._quiet += tag == "style"

    def handle_endtag(self, tag):
        self._quiet -= tag == "style"

    def handle_data(self, data):
        self.said += "" if self._quiet else data


def harmless(text: str) -> Page:
    """Check that a page runs nothing, loads nothing and leads nowhere; return it."""
    seen = Page(text)
    names = {tag for tag, _ in seen.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "image", "use", "b>"}
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in seen.tags:
        assert not {name for name in attributes if name.startswith("on") or name in ("src", "style", "srcset")}
        if "href" in attributes:
            assert attributes["href"].startswith("#") and attributes["href"][1:] in ids
    (policy,) = [a["content"] for tag, a in seen.tags if tag == "meta" and a.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "url(" not in text.split("</style>")[0]
    assert not re.search("[\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    return seen


class Command:
    """The command in a folder of its own."""

    def __init__(self, folder, toolchains) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORIENTEER_"))}
        self.env["ORIENTEER_HOME"] = str(self.home)
        if toolchains is not None:
            self.env["ORIENTEER_TOOLCHAINS"] = str(toolchains)

    def start(self, *arguments):
        command = [sys.executable, "-m", "orienteer.cli", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.env, cwd=self.folder, text=True, **pipes)

    def __call__(self, *arguments, code=0):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=170)
        assert process.returncode == code and "Traceback" not in err, err
        return json.loads(out) if "--json" in arguments else out + err


@pytest.fixture(scope="module")
def scripted(shared, tmp_path_factory):
    """A run of two tasks with a scripted model; one task has a hostile name."""
    command = Command(tmp_path_factory.mktemp("scripted"), shared.toolchain_home())
    (command.folder / "tasks").mkdir()
    for name in ("good", HOSTILE):
        (command.folder / "tasks" / f"{name}.py").write_text(f"# {name}\n{GOOD}")
    change = "<img src=x onerror=alert(3)> \x1b[31m"
    script = [
        {"sample": "good/0", "reply": {"code": WRONG, "change": change}},
        {"sample": "good/1", "reply": {"code": DOUBLE, "change": change}},
        {"sample": "good/2", "reply": {"code": FASTER, "change": change}},
        *({"sample": f"{HOSTILE}/{n}", "reply": {"code": WRONG.replace("2.5", f"3.{n}")}} for n in range(3)),
    ]
    (command.folder / "script.jsonl").write_text("".join(json.dumps(item) + "\n" for item in script))
    document = command(
        "run", "evokernel", "--task", "tasks", "--model", "scripted/script.jsonl", "--workers", "2",
        "--set", "cases=2", "--set", "iterations=3", "--strict", "--json", code=1,
    )  # fmt: skip
    return command, document


def test_a_run_writes_a_report_that_runs_and_loads_nothing(scripted):
    command, document = scripted
    assert document["status"] == "done" and document["exit_code"] == 1, "one task has no kernel, and --strict was given"
    (path,) = (command.home / "runs" / document["run"]).glob("*.html")
    seen = harmless(path.read_text(encoding="utf-8"))
    for words in (
        "good",
        "<script>alert(1)<script>",
        "\\u202e",
        "<img src=x onerror=alert(3)>",
        "\\x1b[31m",
        "mismatch",
    ):
        assert words in seen.said, words
    assert "as given" in seen.said or "primes" in seen.said, "the hidden cases are described"
    assert sum(tag == "svg" and "tree" in a["class"] for tag, a in seen.tags) == 2


def test_show_tells_the_lineage_of_one_task(scripted, shared):
    command, _ = scripted
    said = command("runs", "show", "last", "--task", "good")
    said = said.split("\nresult\n")[1].split("\nmemory items")[0]
    assert "good: " in said and "alert(1)" not in said
    first = next(line for line in said.splitlines() if re.match(r" +1 draft", line))
    second = next(line for line in said.splitlines() if re.match(r" +2 ", line))
    assert "rejected" in first and "incorrect mismatch" in first
    assert len(second) - len(second.lstrip()) > len(first) - len(first.lstrip())
    if shared.toolchain_home() is not None:
        assert "BEST" in said and "best so far (seconds) by attempt: 2: " in said


def test_the_report_says_what_of_the_memory_was_forgotten_since(scripted):
    command, document = scripted
    before = command("runs", "show", document["run"], "--json")["memory"]
    if not before["items"]:
        pytest.skip("the run had no memory (chromadb is not installed)")
    assert before["forgotten"] == [] and any(item["history"] for item in before["items"])
    used = [item for item in before["items"] if item["used"]]
    assert used and all(item["text"] and item["kind"] for item in used)
    path = command.home / "runs" / document["run"] / "report.html"
    assert used[0]["id"][:8] in harmless(path.read_text()).said
    command("memory", "forget", "--all", "--yes")
    command("runs", "report", "last")
    seen = harmless(path.read_text())
    lost = sum(item["used"] + item["recalled"] > 0 for item in before["items"])
    assert f"{lost} items that the run recalled were forgotten since" in seen.said


def test_a_run_by_levels_that_is_killed_and_goes_on(shared, tmp_path):
    command = Command(tmp_path, shared.toolchain_home())
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "1_double.py").write_text(GOOD)
    (level / "2_fourier.py").write_text(FOURIER)
    (level / "3_broken.py").write_text(GOOD.replace("def forward", "def forwards"))
    process = command.start(
        "run", "evokernel", "--task", "KernelBench", "--model", "offline", "--memory", "run", "--set", "cases=2",
        "--set", "iterations=1",
    )  # fmt: skip
    for line in process.stderr:
        if "double: ok" in line or "double: not decided" in line:
            break
    process.kill()
    process.communicate()
    seen = harmless(Path(command("runs", "report", "last").strip()).read_text())
    assert "The run is crashed" in seen.said and "level1_1_double" in seen.said
    assert "level1_3_broken: rejected" in seen.said and "The task was turned away: " in seen.said

    assert "--model KIND/NAME" in command("runs", "resume", "last")
    document = command("runs", "show", "last", "--json")
    rows = {row["task"]: row for row in document["result"]["tasks"]}
    assert {row["group"] for row in rows.values()} == {"level1"}
    assert rows["level1_2_fourier"]["status"] == "failed" and rows["level1_3_broken"]["status"] == "rejected"
    assert [item["group"] for item in document["groups"]] == ["level1", "all"]
    assert document["groups"][0]["tasks"] == 3 and document["groups"][0]["rejected"] == 1
    assert document["groups"][0]["fast"] == {} and document["groups"] == document["result"]["groups"]
    seen = harmless((tmp_path / "home" / "runs" / document["id"] / "report.html").read_text())
    assert all(name in seen.said for name in rows) and "no reference latency at this level" in seen.said
    assert "is crashed" not in seen.said
    assert "no reference latency at this level" in command("runs", "show", "last")


# -- from a record -----------------------------------------------------------------------------------------------------


def record(attempts, **more):
    """Return a run's document; an attempt is (task, parent, status, score, failure kind)."""
    proposals, candidates, evaluations = [], [], []
    for number, (task, parent, status, score, kind) in enumerate(attempts):
        name = f"k{number}" if status != "none" else None
        proposals.append(
            {"step": number, "slot": 0, "task": task, "candidate_id": name, "parents": [parent] if parent else [],
             "status": "failed" if name is None else "proposed", "failure_kind": kind if name is None else "",
             "failure_message": "", "directive": {"stage": "refine" if parent else "draft", "attempt": number}}
        )  # fmt: skip
        if name is None:
            continue
        candidates.append({"id": name, "task": task, "content_sha": name, "notes": {"change": f"change {number}"}})
        latency = (
            {} if score is None else {"seconds": score, "level": "E4", "device": "cpu", "facts": {"speedup": 1 / score}}
        )
        evaluations.append(
            {"candidate_id": name, "status": status, "score": score, "evidence": "E4:cpu", "failure_kind": kind,
             "failure_message": "it went wrong" if kind else "", "metrics": {"gates": [], "latency": latency},
             "seconds": 1.0}
        )  # fmt: skip
    return {
        "id": "r-1", "method": "evokernel", "target": "cpu", "status": "done", "reason": "", "proposer": "offline",
        "seed": 0, "created": 0.0, "ended": 1.0, "active_s": 1.0, "steps": 1, "counts": {}, "config": {},
        "provenance": {}, "state": {"tasks": {}, "rejected": {}}, "memory": {"items": [], "forgotten": []},
        "proposals": proposals, "candidates": candidates, "evaluations": evaluations,
    } | more  # fmt: skip


def test_a_course_is_read_from_proposals_and_verdicts():
    document = record(
        [
            ("a", "", "failed", None, "compile:ub-overflow"),
            ("a", "", "none", None, "malformed"),
            ("a", "k0", "ok", 0.5, ""),
            ("a", "k2", "ok", 0.8, ""),
            ("a", "k2", "machinery", None, ""),
            ("a", "k2", "ok", 0.25, ""),
            ("b", "", "none", None, "no-building-block"),
        ]
    )
    a, b = courses(document)
    assert [item.outcome for item in a.attempts] == ["failed", "none", "ok", "ok", "ours", "ok"]
    assert [item.number for item in a.attempts] == [1, 2, 3, 4, 5, 5] and a.tries == 5
    assert a.attempts[0].rejection == "limit"
    assert a.draft.candidate == "k2" and a.best.candidate == "k5" and a.status == "proven"
    assert [(item.number, cost) for item, cost in a.curve] == [(3, 0.5), (4, 0.5), (5, 0.25)]
    assert a.over_draft == 2.0 and a.over_reference == 4.0
    assert b.status == "failed" and b.failure.kind == "no-building-block"
    sources = {f"k{n}": f"line one\nline {n}\n" for n in range(6)}
    seen = harmless(page(document, sources.__getitem__))
    assert "compile:ub-overflow" in seen.said and rejections.advice("compile:ub-overflow") in seen.said
    assert "-line 2" in seen.said and "+line 5" in seen.said and "--model KIND/NAME" in seen.said


def test_every_word_of_a_record_is_escaped():
    bad = "</pre></td><script>alert(1)</script>\" onload='x' \u202e\x00\x1b"
    document = record([(bad, "", "failed", None, bad), (bad, "k0", "ok", 0.5, "")], reason=bad, proposer=bad, id=bad)
    document["state"]["tasks"][bad] = {"group": bad, "cases": [bad], "source": "s", "given_up": bad}
    document["state"]["rejected"][f"{bad}2"] = bad
    document["provenance"] = {bad: bad, "target": bad, "memory": bad}
    gate = {"gate": bad, "status": bad, "kind": bad, "detail": bad, "facts": {"notes": [bad]}}
    for item in document["evaluations"]:
        item["metrics"]["gates"] = [gate]
        item["evidence"] = item["failure_message"] = bad
    kernel = {
        "name": bad,
        "launches": 1,
        "grid": [1],
        "seconds": 1e-6,
        "bottleneck": bad,
        "units": {bad: 1e-6},
        bad: bad,
    }
    latency = document["evaluations"][1]["metrics"]["latency"]
    latency |= {"how": bad, "bottleneck": bad, "level": bad, "device": bad}
    latency["facts"] |= {"kernels": [kernel], "remark": bad}
    document["candidates"][1]["notes"] = {"change": bad, "used": [bad]}
    item = dict.fromkeys(("kind", "outcome", "evidence", "task", "target", "family", "text"), bad)
    document["memory"] = {"items": [{**item, "id": bad, "used": 1, "recalled": 0, "history": []}], "forgotten": [bad]}
    seen = harmless(page(document, lambda sha: f"{bad}\n{sha}"))
    assert seen.said.count("<script>alert(1)</script>") > 30


def test_fast_p_counts_all_tasks_and_only_measured_ones_as_fast():
    def row(group, status, speedup):
        return {"group": group, "status": status, "speedup_over_draft": None, "speedup_over_reference": speedup}

    one, two, whole = groups(
        [
            *(row("level1", "proven", value) for value in (0.6, 1.2, 3.0)),
            row("level1", "failed", None),
            row("level2", "proven", None),
            row("level2", "rejected", None),
        ]
    )
    assert (one["tasks"], one["feasible"], one["measured"]) == (4, 3, 3)
    assert one["fast"] == {"0": 0.75, "0.5": 0.75, "0.8": 0.5, "1": 0.5, "1.5": 0.25, "2": 0.25, "4": 0.0}
    assert one["over_reference"]["median"] == 1.2 and one["over_reference"]["quartiles"] == pytest.approx([0.9, 2.1])
    assert two["fast"] == {} and two["feasible"] == 1 and two["rejected"] == 1
    assert (
        whole["group"] == "all"
        and whole["fast"]["0"] == pytest.approx(4 / 6)
        and whole["fast"]["1"] == pytest.approx(2 / 6)
    )


def test_a_large_run_gives_a_page_of_bounded_size():
    tasks, attempts = 250, 30
    document = record(
        [
            (f"level1_{t}", f"k{t * attempts}" if n else "", "ok", 1.0 / (1 + (n * 7 + t) % 13), "")
            for t in range(tasks)
            for n in range(attempts)
        ]
    )
    source = [f"line {n}" for n in range(200)]
    text = page(document, lambda sha: "\n".join([sha, *source]))
    assert 1e6 < len(text) < 15e6
    assert text.count('<svg class="tree"') == tasks
    said = telling.lines(document)
    assert len(said) < 4 * tasks and said[tasks * 2 + 1].startswith("lineages: ")


def test_a_run_that_never_began_has_a_report_too():
    seen = harmless(page(record([], status="failed", reason="no task"), str))
    assert "The run is failed" in seen.said and "Kernels for 0 operators" in seen.said
