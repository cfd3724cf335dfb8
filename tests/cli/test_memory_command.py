"""``agent memory``: list, show, export, import, forget, stats, through the real command."""

from __future__ import annotations

import json

import pytest

from orienteer.memory.experience.items import NewItem
from orienteer.memory.experience.store import ExperienceStore
from orienteer.memory.rundb import RunDB


@pytest.fixture
def filled(agent):
    """A home that remembers three items."""
    agent.home.mkdir()
    with (
        RunDB(agent.home / "runs.sqlite") as db,
        ExperienceStore.open(agent.home, db, embedder="hashing", index=False) as store,
    ):
        agent.items = store.add_many(
            [
                NewItem("trace", "row softmax", content="def kernel():\n    return '\x1b[31m'\n", task="softmax",
                        target="npu", run_id="r-1", evidence="E2", facts={"latency": 1e-5}),
                NewItem("experience", "tile too\nlarge \x1b[2J", outcome="failure", task="matmul", run_id="r-2"),
                NewItem("api", "tl.dot multiplies two tiles", name="tl.dot"),
            ]
        )  # fmt: skip
        store.update("r-1:0:0", "draft", agent.items[:1], "npu/row", 1.0)
        store.update("r-1:1:0", "refine", agent.items[:2], "", store.normalise("r-1:1:0", "refine", "E2", 0.5))
    agent.env |= {"PYTHONWARNINGS": "ignore"}
    return agent


def listed(agent, *args):
    return [item["id"] for item in agent("memory", "ls", "--json", *args).document["items"]]


def test_listing(filled):
    a, b, c = filled.items
    assert listed(filled) == [c, b, a]
    assert listed(filled, "--kind", "trace") == [a]
    assert listed(filled, "--task", "matmul", "--store", "shared") == [b]
    assert listed(filled, "--target", "npu") == [a] and listed(filled, "--run", "r-2") == [b]
    assert listed(filled, "--store", "run:r-1") == []
    short = filled("memory", "ls", "--limit", "2")
    assert a[:12] not in short.out and "more than 2" in short.err
    whole = filled("memory", "ls")
    assert "\x1b" not in whole.out and "+0.300 (1)" in whole.out and "experience failure" in whole.out
    unknown = filled("memory", "ls", "--kind", "rumour")
    assert unknown.code == 2 and "api, experience, trace, practice" in unknown.line


def test_showing(filled):
    item = filled.items[0]
    document = filled("memory", "show", item[:8], "--json").document
    assert document["id"] == item and document["facts"] == {"latency": 1e-5}
    assert document["content"].startswith("def kernel()")
    assert {(v["stage"], v["signature"]): v["q"] for v in document["values"]} == {
        ("draft", ""): 0.3, ("draft", "npu/row"): 0.3, ("refine", ""): 0.15,
    }  # fmt: skip
    assert [c["event"] for c in document["history"]] == ["r-1:0:0", "r-1:0:0", "r-1:1:0"]
    shown = filled("memory", "show", item)
    assert "+0.0000 -> +0.3000" in shown.out and "return '\\x1b[31m'" in shown.out and "\x1b" not in shown.out
    assert filled("memory", "show", "nope").code == 2


def test_a_home_without_a_memory(agent):
    assert agent("memory", "ls").out == "nothing is remembered yet\n"
    assert agent("memory", "ls", "--json").document == {"items": [], "more": False}
    assert agent("memory", "stats", "--json").document["stores"] == []
    assert agent("memory", "forget", "--all", "--yes", "--json").document == {"forgotten": 0}
    for args in (["show", "x"], ["export", "f.jsonl"]):
        ended = agent("memory", *args)
        assert ended.code == 2 and ended.line
    assert not (agent.home / "runs.sqlite").exists()


def test_export_and_import(filled, tmp_path):
    out = filled.folder / "memory.jsonl"
    assert filled("memory", "export", str(out), "--json").document == {"file": str(out), "items": 3}
    assert len(listed(filled, "--store", "run:copy")) == 0
    done = filled("memory", "import", str(out), "--store", "run:copy", "--json")
    assert done.document == {"file": str(out), "store": "run:copy", "items": 3, "new": 3}
    again = filled("memory", "import", str(out), "--store", "run:copy")
    assert again.out == "0 of 3 items are new in run:copy\n"
    copies = filled("memory", "ls", "--json", "--store", "run:copy").document["items"]
    assert {c["text"]: c["values"].get("draft") for c in copies}["row softmax"] == {"q": 0.3, "visits": 1}
    filled("memory", "export", str(out), "--run", "r-2")
    assert [json.loads(line)["item"]["task"] for line in out.read_text().splitlines()[1:3]] == ["matmul", "matmul"]
    for args in (["--store", "run:none"], ["--run", "r-none"]):
        assert filled("memory", "export", str(out), *args).code == 2
    out.write_text('{"format": "orienteer-memory", "version": 7}\n')
    bad = filled("memory", "import", str(out))
    assert bad.code == 2 and "line 1: version 7" in bad.line and "nothing was changed" in bad.line
    assert filled("memory", "import", str(filled.folder / "nowhere")).code == 5
    assert filled("memory", "import", str(filled.folder / "nowhere"), "--store", "x" * 90).code in (2, 5)


def test_forgetting(filled):
    a, b, c = filled.items
    for args in ([], ["--all", "--task", "softmax"], ["--kind", "rumour", "--yes"], ["--id", "nope", "--yes"]):
        ended = filled("memory", "forget", *args)
        assert ended.code == 2, args
    refused = filled("memory", "forget", "--task", "softmax")
    assert refused.code == 2 and "--yes" in refused.line and len(listed(filled)) == 3
    assert filled("memory", "forget", "--task", "softmax", "--run", "r-2", "--yes").out == "forgot 0 items\n"
    assert filled("memory", "forget", "--run", "r-1", "--yes", "--json").document == {"forgotten": 1}
    assert filled("memory", "forget", "--id", b[:10], "--yes").code == 0
    assert listed(filled) == [c]
    assert filled("memory", "forget", "--all", "--store", "run:other", "--yes").out == "forgot 0 items\n"
    assert filled("memory", "forget", "--all", "--yes").out == "forgot 1 items\n"
    (store,) = filled("memory", "stats", "--json").document["stores"]
    assert store["items"] == store["history"] == 0 and store["rewards"] == []
    assert a not in listed(filled)


def test_stats(filled):
    document = filled("memory", "stats", "--json").document
    (store,) = document["stores"]
    assert store["kinds"] == {"api": 1, "experience": 1, "trace": 1} and store["outcomes"] == {"": 2, "failure": 1}
    assert store["history"] == 4 and store["rewards"][0]["count"] == 1
    assert {"runs", "artifacts"} <= {kept["store"] for kept in document["kept"]}
    assert "3 items (1 api, 1 experience, 1 trace)" in filled("memory", "stats").out


def test_a_reader_that_goes_away_and_other_databases(filled):
    other = str(filled.folder / "other.sqlite")
    assert filled("memory", "ls", "--db", other).code == 5
    made = filled.folder / "memory.jsonl"
    filled("memory", "export", str(made))
    assert filled("memory", "import", str(made), "--db", other, "--json").document["new"] == 3
    assert len(filled("memory", "ls", "--db", other, "--json").document["items"]) == 3
