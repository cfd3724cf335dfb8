"""What the tests of both folders share: the backends that work here, a private Docker engine, a look for survivors."""

import atexit
import functools
import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from orienteer.environments.execution import WorkerPool, open_sandbox
from orienteer.errors import MissingPrerequisite

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = ROOT / "tests" / "adversarial" / "execution" / "hostile.py"


@functools.cache
def docker_engine():
    """Return why there is no engine ('' when there is one); start a private one if we may."""
    from orienteer.environments.execution import docker_engine as backend

    if backend.answers()[0]:
        return ""
    folder = tempfile.mkdtemp(prefix="orienteer-engine-")
    script = str(ROOT / "scripts" / "docker-engine")
    started = subprocess.run([script, "start", folder], capture_output=True, text=True, check=False)
    atexit.register(subprocess.run, [script, "stop", folder], capture_output=True, check=False)
    if started.returncode != 0:
        return f"no Docker engine answers and none can be started: {started.stderr.strip()}"
    os.environ["DOCKER_HOST"] = started.stdout.strip()
    works, detail, _ = backend.answers()
    return "" if works else detail


@functools.cache
def sandbox_or_reason(name):
    if name == "docker" and (reason := docker_engine()):
        return None, reason
    try:
        if name == "bwrap-shared":  # jobs without namespaces of their own, as where the kernel forbids nesting
            from orienteer.environments.execution.bwrap import BwrapSandbox

            return BwrapSandbox(nest=False), ""
        return open_sandbox(name, allow_unsafe=True), ""
    except MissingPrerequisite as error:
        return None, str(error)


def open_or_skip(name):
    sandbox, reason = sandbox_or_reason(name)
    if sandbox is None:
        pytest.skip(reason)
    return sandbox


def hostile_pool(name, **options):
    return WorkerPool(open_or_skip(name), preload=[], binds=[HOSTILE], **options)


def alive(tag):
    """Return the pids on this machine of processes that named themselves ``tag``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text().strip() == tag and "\nState:\tZ" not in (entry / "status").read_text():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def gone(tag, within=5.0):
    """Wait until no process named ``tag`` is left; return whether that came true."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if not alive(tag):
            return True
        time.sleep(0.05)
    return False
