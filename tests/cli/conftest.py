"""Fixtures of the command's tests: the real ``agent`` in a process of its own, with a home of its own."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AGENT = str(Path(sys.executable).with_name("agent"))
#: What no test may inherit from whoever runs the tests.
_STRANGERS = ("OPENAI_", "ORIENTEER_", "DOCKER_HOST", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_")
#: Generous: tests judge what is said, not how fast.
PATIENCE = 100


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def line(self):
        """The one line of the error; there is exactly one that begins with the command's name, and no traceback."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("agent: ")]
        assert len(lines) == 1, self.err
        return lines[0]

    @property
    def document(self):
        """The one JSON document on stdout."""
        assert "Traceback" not in self.err, self.err
        return json.loads(self.out)


class Forker:
    """A process that has the command's modules loaded; see ``forked.py``."""

    def __init__(self, folder: Path) -> None:
        env = os.environ | {"PYTHONPATH": str(HERE), "OPENBLAS_NUM_THREADS": "1"}
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "forked.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def __call__(self, args, env, cwd):
        """Run one command."""
        out, err = self.folder / "out", self.folder / "err"
        for path in (out, err):
            path.write_bytes(b"")
        request = {
            "args": [os.fsdecode(a) for a in args],
            "env": env,
            "cwd": str(cwd),
            "out": str(out),
            "err": str(err),
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        status = int(self.process.stdout.readline())
        return Ended(os.waitstatus_to_exitcode(status), *(p.read_text(errors="surrogateescape") for p in (out, err)))

    def close(self):
        """End it."""
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture(scope="session")
def forker(tmp_path_factory):
    """The one such process of all tests."""
    made = Forker(tmp_path_factory.mktemp("forker"))
    yield made
    made.close()


class Agent:
    """Calls the command: as a fork of a loaded process, or with :meth:`start` and :meth:`alone` from nothing."""

    agent = AGENT
    python = sys.executable

    def __init__(self, home: Path, folder: Path, forker: Forker | None = None) -> None:
        self.forker = forker
        self.home = home
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(_STRANGERS)}
        self.env |= {"ORIENTEER_HOME": str(home), "PYTHONPATH": str(HERE), "TERM": "dumb", "ORIENTEER_DB_TIMEOUT": "1"}

    def variables(self, env):
        """Return the environment; None removes one."""
        return {k: v for k, v in (self.env | (env or {})).items() if v is not None}

    def start(self, *args, env=None, prefix=(), **kwargs):
        """Start it; the caller waits."""
        given = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | kwargs
        return subprocess.Popen([*prefix, AGENT, *args], env=self.variables(env), cwd=self.folder, **given)

    def alone(self, *args, **kwargs):
        """Start it and wait for its end."""
        return self.finish(self.start(*args, **kwargs))

    def __call__(self, *args, env=None):
        """Run it to its end in a fork of a loaded process."""
        return self.forker(args, self.variables(env), self.folder)

    @staticmethod
    def finish(process):
        """Wait for its end."""
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        texts = ["" if text is None else text.decode(errors="surrogateescape") for text in (out, err)]
        return Ended(process.returncode, *texts)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, forker):
    """One home for the tests of a module that only look, or only add."""
    folder = tmp_path_factory.mktemp("shared")
    return Agent(folder / "home", folder, forker)


@pytest.fixture
def agent(tmp_path, forker):
    """A home for one test."""
    return Agent(tmp_path / "home", tmp_path, forker)


def children():
    """Return the processes that have us as their parent, as (pid, command line)."""
    found = []
    for listing in Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            try:
                found.append((int(pid), Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()))
            except OSError:
                continue
    return found


@pytest.fixture
def no_orphans():
    """Adopt what the commands leave behind, and fail when it lives on."""
    libc = ctypes.CDLL(None)
    before = {pid for pid, _ in children()}
    libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    yield
    until = time.monotonic() + 10
    while True:
        left = [item for item in children() if item[0] not in before]
        for pid, _ in left:
            os.waitpid(pid, os.WNOHANG)
        left = [item for item in children() if item[0] not in before]
        if not left or time.monotonic() > until:
            break
        time.sleep(0.05)
    libc.prctl(36, 0, 0, 0, 0)
    for pid, _ in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert not left, left
