"""``docs/command.md`` shows the real help. ``python tests/cli/test_docs.py`` writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "command.md"
COMMANDS = (
    "", "run", "setup", "doctor", "methods",
    "runs ls", "runs show", "runs report", "runs resume", "runs export", "runs stop", "runs rm",
    "tasks ls", "memory ls", "memory show", "memory export", "memory import", "memory forget", "memory stats",
    "bench runtime", "bench evokernel-memory", "bench evokernel-ladder", "bench evokernel-throughput",
    "bench evokernel-coverage", "bench evokernel-cpu", "bench memory", "verify kernel",
)  # fmt: skip
BLOCK = re.compile(r"^### `(agent[^`]*)`\n\n```text\n(.*?)```\n", re.M | re.S)


def block(command: str, text: str) -> str:
    """Return one command's section."""
    return f"### `{command}`\n\n```text\n{text}```\n\n"


def test_the_document_shows_the_real_help_of_every_command(shared):
    shown = dict(BLOCK.findall(DOCUMENT.read_text()))
    assert set(shown) == {f"agent {command}".strip() for command in COMMANDS}
    for command in COMMANDS:
        real = shared(*command.split(), "--help", env={"COLUMNS": "80"}).out
        assert shown[f"agent {command}".strip()] == real, f"python tests/cli/test_docs.py mends {command!r}"


def test_every_command_is_in_the_document(shared):
    from orienteer.agents.command.app import app, bench_app, memory_app, tasks_app, verify_app
    from orienteer.agents.command.runs import runs_app

    groups = {"": app, "runs ": runs_app, "memory ": memory_app, "tasks ": tasks_app, "bench ": bench_app,
              "verify ": verify_app}  # fmt: skip
    names = {
        prefix + (item.name or item.callback.__name__) for prefix, group in groups.items()
        for item in group.registered_commands
    }  # fmt: skip
    assert names == set(COMMANDS) - {""}


def write() -> None:
    """Put the real help into the document."""
    head = DOCUMENT.read_text().split("### `agent")[0].rstrip() + "\n\n"
    agent = str(Path(sys.executable).with_name("agent"))
    for command in COMMANDS:
        done = subprocess.run(
            [agent, *command.split(), "--help"],
            env=os.environ | {"COLUMNS": "80", "TERM": "dumb"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        head += block(f"agent {command}".strip(), done.stdout)
    DOCUMENT.write_text(head.rstrip() + "\n")


if __name__ == "__main__":
    write()
