"""``agent runs report``, ``runs show`` in a method's words, ``--strict``: what every method gets from the command."""

from __future__ import annotations

from pathlib import Path

TOLD = "cli_toys:Told"


def test_a_run_leaves_a_report_and_it_can_be_written_again(agent):
    ended = agent("run", TOLD, "--task", "one", "--task", "two", "--json")
    assert ended.code == 0
    folder = Path(ended.document["folder"])
    first = (folder / "report.html").read_text()
    assert first.startswith("<!doctype html>0 ") and list(folder.glob(".report*")) == []
    (folder / "report.html").unlink()
    assert agent("runs", "report", "last").out == f"{folder}/report.html\n"
    assert (folder / "report.html").read_text() == first
    target = agent.folder / "new" / "mine.html"
    assert agent("runs", "report", "last", "--to", str(target), "--json").document == {"file": str(target)}
    assert target.read_text() == first
    (agent.home / "artifacts").rename(agent.home / "gone")
    assert agent("runs", "report", "last").code == 0
    assert "(lost: " in (folder / "report.html").read_text()


def test_what_goes_wrong_with_a_report(agent):
    ended = agent("run", TOLD, "--set", "report=false", "--json")
    assert ended.code == 0 and ended.document["status"] == "done"
    assert "note: the report was not written: ZeroDivisionError: a bug in the report" in ended.err
    assert agent("run", TOLD).code == 0
    refused = agent("runs", "report", "last", "--to", "/proc/nowhere/report.html")
    assert refused.code == 5 and "the report /proc/nowhere/report.html" in refused.line
    assert agent("run", "cli_toys:Count").code == 0
    none = agent("runs", "report", "last")
    assert none.code == 2 and "writes no report" in none.line
    assert agent("runs", "report", "r-none").code == 2


def test_show_in_the_words_of_the_method(agent):
    assert agent("run", TOLD, "--task", "one", "--task", "two").code == 0
    shown = agent("runs", "show", "last").out
    assert shown.count("counted one\\x1b[31m") == 3 and shown.count("counted two") == 3 and "\nproposals\n" not in shown
    only = agent("runs", "show", "last", "--task", "two").out
    assert "counted one" not in only and only.count("counted two") == 3
    assert "\nproposals\n" in agent("runs", "show", "last", "--proposals").out
    assert agent("runs", "show", "last", "--json").document["counted"] == 6
    document = agent("runs", "show", "last", "--task", "two", "--json").document
    assert {item["task"] for item in document["candidates"]} == {"two"} and list(document["best"]) == ["two"]
    wrong = agent("runs", "show", "last", "--task", "to")
    assert wrong.code == 2 and "has no task 'to'" in wrong.line and "did you mean two?" in wrong.err


def test_strict(agent):
    assert agent("run", TOLD, "--strict").code == 0
    assert agent("runs", "show", "last", "--strict").code == 0
    ended = agent("run", TOLD, "--set", "proven=false", "--strict", "--json")
    assert ended.code == 1 and ended.document["exit_code"] == 1 and "--strict" in ended.err
    assert agent("runs", "show", "last", "--strict").code == 1
    assert agent("runs", "show", "last").code == 0
    assert agent("run", TOLD, "--set", "proven=false").code == 0
    assert agent("runs", "resume", "last", "--strict").code == 1
