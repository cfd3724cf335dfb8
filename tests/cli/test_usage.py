"""Wrong requests through the real command: one line with the cure, a fixed status, no traceback."""

from __future__ import annotations

import os
import re

import pytest

TOY = "cli_toys:Count"

#: Arguments, exit status, what the line must say. ``{dir}`` is the folder where the command runs.
WRONG = [
    (["rn"], 2, "no such command 'rn'.*run.*agent --help"),
    (["run"], 2, "[Mm]issing argument.*agent run --help"),
    (["run", "--nope", TOY], 2, "no such option: --nope.*agent run --help"),
    (["run", TOY, "--target"], 2, "--target.*requires an argument"),
    (["run", TOY, "extra"], 2, "unexpected extra argument"),
    (["runs", "sho", "x"], 2, "no such command 'sho'.*show"),
    (["run", "evokernal"], 2, "no method 'evokernal'.*did you mean evokernel"),
    (["run", ""], 2, "no method ''"),
    (["run", "nowhere:Thing"], 2, "nowhere:Thing cannot be imported.*ModuleNotFoundError"),
    (["run", "cli_toys:Nothing"], 2, "cli_toys:Nothing cannot be imported"),
    (["run", "json:dumps"], 2, "json:dumps is no method"),
    (["run", "cli_toys:"], 2, "cannot be imported"),
    (["run", "evokernel", "--target", "npv"], 2, "npv.*npu"),
    (["run", "evokernel", "--task", "sotfmax"], 2, "no task 'sotfmax'.*did you mean softmax"),
    (["run", "evokernel", "--task", "no/such/file.py"], 2, "no task 'no/such/file.py'"),
    (["run", "evokernel", "--task", ""], 2, "task"),
    (["run", "evokernel", "--task", "x" * 9000], 2, "xxx.*….*cannot be read .File name too long"),
    (["run", "evokernel", "--task", "/dev/null"], 2, "/dev/null"),
    (["run", "evokernel", "--task", "\udcff\udcfe.py"], 2, r"no task '\\+udcff"),
    (["run", "evokernel", "--task", "\x1b[31m\nred"], 2, r"no task '\\+x1b\[31m"),
    (["run", "evokernel", "--task", "{dir}"], 2, "holds no task"),
    (["run", "evokernel", "--set", "chip=Ascend999"], 2, "Ascend999"),
    (["run", "evokernel", "--set", 'archs=["\\u0000"]', "--target", "triton"], 2, "unknown"),
    (["verify", "kernel", "{dir}/kernel.cpp", "--task", "softmax"], 2, "kernel.cpp is C.*--target cpu"),
    (["verify", "kernel", "{dir}/kernel.py", "--task", "softmax", "--target", "cpu"], 2, "is Python.*--target npu"),
    (["run", TOY, "--set", "stepz=3"], 2, "no setting stepz.*did you mean steps"),
    (["run", TOY, "--set", "steps=many"], 2, "setting steps='many' is not right"),
    (["run", TOY, "--set", "steps=-1"], 2, "steps"),
    (["run", TOY, "--set", "steps"], 2, "not of the form name=value"),
    (["run", TOY, "--set", "steps.a=1", "--set", "steps=1"], 2, "overwrites"),
    (["run", TOY, "--model", "gpt-x"], 2, "unknown model 'gpt-x'.*did you mean openai/gpt-x"),
    (["run", TOY, "--model", "openai/"], 2, "has no name"),
    (["run", TOY, "--model", ""], 2, "unknown model ''"),
    (["run", TOY, "--model", "scripted/nothing.jsonl"], 2, "nothing.jsonl"),
    (["run", TOY, "--model", "openai/x"], 3, "key|OPENAI_API_KEY"),
    (["run", "evokernel", "--sandbox", "jail", "--task", "add"], 2, "jail"),
    (["run", "evokernel", "--sandbox", "process", "--task", "add"], 3, "allow-unsafe"),
    (["run", TOY, "--seed", "x"], 2, "--seed"),
    (["run", TOY, "--seed", str(10**30)], 2, "seed"),
    (["run", TOY, "--evals", "-1"], 2, "--evals"),
    (["run", TOY, "--evals", str(10**400)], 2, "evals"),
    (["run", TOY, "--cost", "nan"], 2, "cost"),
    (["run", TOY, "--cost", "1e999"], 2, "cost"),
    (["run", TOY, "--time", "-5"], 2, "--time"),
    (["run", TOY, "--time", "soon"], 2, "--time 'soon' is no duration.*30m"),
    (["run", TOY, "--time", "9" * 400], 2, "time"),
    (["run", TOY, "--workers", "0"], 2, "--workers"),
    (["run", TOY, "--workers", "9999999"], 2, "--workers"),
    (["setup", "nup"], 2, "unknown setup 'nup'.*did you mean npu"),
    (["methods", "evokernal"], 2, "did you mean evokernel"),
    (["bench", "runtime", "--steps", "-3"], 2, "--steps"),
    (["runs", "show"], 2, "[Mm]issing argument"),
    (["runs", "show", "r-1", "--home", "{dir}/none"], 5, "does not exist: start a run"),
    (["runs", "resume", "last", "--home", "{dir}/none"], 5, "does not exist"),
    (["runs", "export", "last"], 2, "--to"),
    (["runs", "ls", "--home", "~nobody-of-that-name/x"], 5, "unknown user.*write the path in full"),
    (["runs", "ls", "--db", "nosuch://x/y"], 5, "no database address"),
    (["run", "evokernel", "--task", "~nobody-of-that-name/x"], 2, "no task"),
]


@pytest.mark.parametrize(
    ("args", "code", "says"), WRONG, ids=[re.sub(r"\W+", "-", " ".join(w[0]))[:40].strip("-") or "x" for w in WRONG]
)
def test_wrong_requests(shared, args, code, says):
    args = [arg.replace("{dir}", str(shared.folder)) for arg in args]
    ended = shared(*(os.fsencode(arg) if "\udcff" in arg else arg for arg in args))
    assert re.search(says, ended.line), ended.line
    assert (ended.code, ended.out) == (code, ""), ended
    assert len(ended.line) < 1400
    assert "\x1b" not in ended.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["run", "--json", "--nope"], 2),
        (["run", "evokernal", "--json"], 2),
        (["run", TOY, "--evals", "x", "--json"], 2),
        (["run", TOY, "--model", "openai/x", "--json"], 3),
        (["setup", "nup", "--json"], 2),
        (["runs", "show", "r-1", "--json", "--home", "none"], 5),
        (["runs", "stop", "r-1", "--json", "--home", "none"], 5),
        (["runs", "rm", "r-1", "--json", "--home", "none"], 5),
        (["runs", "export", "r-1", "--to", "x", "--json", "--home", "none"], 5),
        (["runs", "resume", "r-1", "--json", "--home", "none"], 5),
    ],
)
def test_errors_are_one_json_document_too(shared, args, code):
    ended = shared(*args)
    error = ended.document["error"]
    assert ended.code == error["exit_code"] == code
    assert error["problem"] and error["problem"] in ended.line


TASKS = {
    "syntax.py": ("def (:\n", "no Python"),
    "no_model.py": ("def get_inputs(): return []\n", "no class Model"),
    "no_inputs.py": ("class Model: pass\n", "no function get_inputs"),
    "latin.py": (b"# \xe9\nclass Model: pass\n", "UTF-8"),
    "nul.py": (b"class Model: pass\n\0", "no Python"),
}


@pytest.mark.parametrize("name", TASKS)
def test_wrong_task_files(shared, name):
    content, says = TASKS[name]
    path = shared.folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    ended = shared("run", "evokernel", "--task", str(path))
    assert ended.code == 2 and says in ended.line and name in ended.line, ended


def test_bugs_of_a_method_are_a_failed_run_not_a_traceback(shared):
    ended = shared("run", TOY, "--set", "bad=true")
    assert ended.code == 1 and "Traceback" not in ended.err
    assert "failed: " in ended.err and "ZeroDivisionError" in ended.err and "traceback.txt" in ended.err


def test_environment_variables_are_checked(shared):
    ended = shared("runs", "show", "x", "--db", str(shared.home / "y"), env={"ORIENTEER_DB_TIMEOUT": "soon"})
    assert ended.code == 5 and "ORIENTEER_DB_TIMEOUT" in ended.line


def test_help_is_there_for_everything_and_cheap_to_ask(shared):
    for args in (
        [],
        ["run"],
        ["runs"],
        ["runs", "show"],
        ["setup"],
        ["doctor"],
        ["bench", "runtime"],
        ["memory", "ls"],
    ):
        ended = shared(*args, "--help")
        assert ended.code == 0 and ended.out.startswith("Usage: agent") and ended.err == ""
    assert shared("--version").out.startswith("orienteer 0.")
    alone = shared("runs")
    assert alone.code == 2 and alone.out == "" and "show" in alone.err
