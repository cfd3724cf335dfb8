"""``docs/command.md`` shows the real help. ``python tests/cli/test_docs.py`` writes it anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "command.md"
BLOCK = re.compile(r"^### `(agent[^`]*)`\n\n```text\n(.*?)```\n", re.M | re.S)


def block(command: str, text: str) -> str:
    """Return one command's section."""
    return f"### `{command}`\n\n```text\n{text}```\n\n"


def commands() -> list[str]:
    """Return every command, the front itself as an empty name, then group by group."""
    from orienteer.agents.command.app import app

    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    return [
        "",
        *(
            prefix + (item.name or item.callback.__name__)
            for prefix, group in groups
            for item in group.registered_commands
        ),
    ]


def test_the_document_shows_the_real_help_of_every_command(shared):
    shown = dict(BLOCK.findall(DOCUMENT.read_text()))
    assert set(shown) == {f"agent {command}".strip() for command in commands()}
    for command in commands():
        real = shared(*command.split(), "--help", env={"COLUMNS": "80"}).out
        assert shown[f"agent {command}".strip()] == real, f"python tests/cli/test_docs.py mends {command!r}"


def write() -> None:
    """Put the real help into the document."""
    head = DOCUMENT.read_text().split("### `agent")[0].rstrip() + "\n\n"
    agent = str(Path(sys.executable).with_name("agent"))
    for command in commands():
        done = subprocess.run(
            [agent, *command.split(), "--help"],
            env=os.environ | {"COLUMNS": "80", "TERM": "dumb"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        head += block(f"agent {command}".strip(), done.stdout)
    DOCUMENT.write_text(head.rstrip() + "\n")


if __name__ == "__main__":
    write()
