"""Task files that cannot be used: one clear line each, exit code 2, and the other tasks of a folder go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from task_sources import BAD, GOOD, INPUTS, RETURN, changed

from orienteer.environments.kernel.tasks import MAX_BYTES, KernelTask, find_tasks
from orienteer.environments.kernel.world import BadTask
from orienteer.errors import UsageError
from orienteer.evaluators.kernel.gates import KernelVerifier


def agent(tmp_path, *arguments):
    """Run the real command in a home of its own."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "ORIENTEER_"))}
    command = [sys.executable, "-m", "orienteer.cli", "run", "evokernel", "--json", "--model", "offline", *arguments]
    command += ["--home", str(tmp_path / "home")]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=170, check=False)


def one_line(text):
    lines = [line for line in text.splitlines() if line.startswith("agent:")]
    assert len(lines) == 1 and "Traceback" not in text, text
    return lines[0]


@pytest.mark.parametrize("name", BAD)
def test_reason(shared, name):
    words, source = BAD[name]
    verifier = KernelVerifier(shared.world(), cases=2)
    with pytest.raises(BadTask) as caught:
        verifier.hidden_cases(shared.world().inspect(KernelTask(name, source)))
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("where", [RETURN, INPUTS])
def test_what_hangs_is_killed(shared, monkeypatch, where):
    monkeypatch.setattr(shared.world(), "job_seconds", 3)
    source = changed((where, "while True: pass"))
    with pytest.raises(BadTask, match="killed after"):
        shared.world().inspect(KernelTask("hangs", source))


def test_values_are_looked_at_where_shapes_do_not_suffice(shared):
    source = changed((INPUTS, "x = torch.randn(n)\n    assert float(x.abs().max()) > 0\n    return [x]"))
    info = shared.world().inspect(KernelTask("looks", source))
    assert info.inputs[0]["shape"] == [300]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"import torch\n", "defines no class Model"),
        (b"class Model:\n    pass\n", "defines no function get_inputs"),
        (b"class Model(:\n", "is no Python in line 1"),
        (b"", "defines no class Model"),
        ("class Modèle: pass".encode("latin-1"), "is no UTF-8"),
        (b"#" * (MAX_BYTES + 1), "is larger than"),
        (b"x = " + b"(" * 400 + b"1" + b")" * 400, "is no Python"),
        (b"x = 1\0", "is no Python"),
    ],
)
def test_files_that_are_no_tasks(tmp_path, content, words):
    path = tmp_path / "task.py"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as caught:
        find_tasks([str(path)])
    assert caught.value.exit_code == 2 and caught.value.cure


def test_unknown_names_get_a_hint(tmp_path):
    with pytest.raises(UsageError, match="did you mean softmax"):
        find_tasks(["sofmax"])
    with pytest.raises(UsageError, match="holds no task"):
        find_tasks([str(tmp_path)])


def test_two_files_of_one_name(tmp_path):
    for folder, source in (("a", GOOD), ("b", GOOD + "# other\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(source)
    with pytest.raises(UsageError, match="two different tasks"):
        find_tasks([str(tmp_path)])


def test_the_command_says_it_in_one_line_and_ends_with_2(shared, tmp_path):
    shared.world()
    path = tmp_path / "bad.py"
    path.write_text(BAD["raises_at_import"][1])
    done = agent(tmp_path, "--task", str(path))
    assert done.returncode == 2, done.stderr
    assert "task bad" in one_line(done.stderr) and "broken here" in one_line(done.stderr)


def test_the_other_tasks_of_a_folder_go_on(shared, tmp_path):
    shared.world()
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "good.py").write_text(GOOD)
    for name in ("raises_in_forward", "exits", "random"):
        (folder / f"{name}.py").write_text(BAD[name][1])
    (folder / "hangs.py").write_text(changed((RETURN, "while True: pass")))
    (folder / "broken.py").write_text(GOOD + "def (:\n")
    (folder / "latin.py").write_bytes(GOOD.encode() + "# é\n".encode("latin-1"))
    (folder / "notes.py").write_text("x = 1\n")
    done = agent(tmp_path, "--task", str(folder), "--set", "job_seconds=8", "--set", "cases=2", "--workers", "2")
    rows = {row["task"]: row for row in json.loads(done.stdout)["result"]["tasks"]}
    assert set(rows) == {"good", "raises_in_forward", "exits", "random", "hangs", "broken", "latin"}
    for name in ("raises_in_forward", "exits", "random"):
        assert rows[name]["status"] == "rejected" and BAD[name][0] in rows[name]["failure"]["message"]
    assert "killed after 8 s" in rows["hangs"]["failure"]["message"]
    assert "is no Python" in rows["broken"]["failure"]["message"]
    assert "UTF-8" in rows["latin"]["failure"]["message"]
    # Without the compiler nothing is proven, and nothing is said to be.
    assert rows["good"]["status"] == "unproven" and rows["good"]["evidence"] == "E0", rows["good"]
    gates = {gate["gate"]: gate for gate in rows["good"]["gates"]}
    assert gates["compile"]["status"] == "skipped" and "agent setup npu" in gates["compile"]["detail"]
    assert "Traceback" not in done.stderr
