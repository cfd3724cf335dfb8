"""Fixtures of the runtime's tests: a home of their own, runs in this process, runs in forked processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(ROOT / "docs" / "examples"))


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A fresh home folder; nothing in the environment names a model."""
    place = tmp_path / "home"
    monkeypatch.setenv("ORIENTEER_HOME", str(place))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "ORIENTEER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def log(tmp_path):
    """A file of effects, and how to read it: entries ``[what, step, ...]``."""

    class Log:
        path = str(tmp_path / "effects")

        def entries(self, what=None):
            if not Path(self.path).exists():
                return []
            lines = [json.loads(line) for line in Path(self.path).read_text().splitlines()]
            return [entry for entry in lines if what is None or entry[0] == what]

    return Log()


@pytest.fixture
def script(tmp_path):
    """A scripted model that answers jumps."""
    path = tmp_path / "script.jsonl"
    jumps = [f"{(i * 37) % 89 - 30}" for i in range(23)]
    path.write_text(json.dumps({"match": "for", "replies": jumps}) + "\n")
    return f"scripted/{path}"


class Forks:
    """Runs in processes forked from a server that has imported everything."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.folder = folder
        self.server = subprocess.Popen(
            [sys.executable, str(HERE / "runtime_toys.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | env | {"PYTHONPATH": str(HERE)},
            cwd=folder,
        )
        self.count = 0

    def start(self, **request):
        """Fork a run; return its pid. It must be ended with :meth:`wait`."""
        self.count += 1
        self.answer = self.folder / f"answer-{self.count}"
        request |= {"answer": str(self.answer)}
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def wait(self):
        """Return the wait status of the fork and its answer, if it lived to give one."""
        self.server.stdin.write("\n")
        self.server.stdin.flush()
        status = int(self.server.stdout.readline())
        return status, json.loads(self.answer.read_text()) if self.answer.exists() else None

    def close(self):
        """End the server."""
        self.server.stdin.close()
        self.server.wait(10)


@pytest.fixture
def forks(tmp_path):
    """Make servers of forked runs."""
    made = []

    def make(**env):
        made.append(Forks(tmp_path, env))
        return made[-1]

    yield make
    for server in made:
        server.close()
