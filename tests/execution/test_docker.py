"""What only the docker backend can get wrong: engines that are not there, die or hang, and what they leave behind."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest

from orienteer.environments.execution import ExitCause, Limits, Message, WorkerPool, docker_engine, open_sandbox
from orienteer.environments.execution.probe import probe
from orienteer.errors import MissingPrerequisite

pytestmark = pytest.mark.docker


@pytest.fixture
def sandbox(tools):
    return tools.open_or_skip("docker")


def test_an_engine_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(MissingPrerequisite, match="no Docker engine answers") as caught:
        open_sandbox("docker")
    assert caught.value.cure and "\n" not in str(caught.value)
    assert not next(check for check in probe() if check.name == "docker engine").works


def test_an_engine_that_talks_garbage(monkeypatch, tmp_path):
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def talk():
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=talk, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        with pytest.raises(MissingPrerequisite, match="no Docker engine answers"):
            open_sandbox("docker")


def containers(sandbox):
    return {found["Id"] for found in sandbox._client.api.containers(all=True, filters={"label": docker_engine.LABEL})}


def test_nothing_is_left_after_a_run(sandbox):
    before = containers(sandbox)
    assert sandbox.exec(["/usr/bin/env", "true"]).returncode == 0
    assert sandbox.exec(["sleep", "60"], limits=Limits(wall_s=0.3)).cause == ExitCause.TIMEOUT
    assert containers(sandbox) <= before


def test_orphans_are_reaped_at_the_next_start(sandbox):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    boot = docker_engine._owner().split(":")[0]
    api = sandbox._client.api
    orphans = []
    for owner in (f"{boot}:{dead.pid}:123", "another-boot:1:1", "junk"):
        made = api.create_container(sandbox._image, command=["/usr/bin/true"], labels={docker_engine.LABEL: owner})
        orphans.append(made["Id"])
    mine = api.create_container(
        sandbox._image, command=["/usr/bin/true"], labels={docker_engine.LABEL: docker_engine._owner()}
    )["Id"]
    try:
        open_sandbox("docker").close()
        left = containers(sandbox)
        assert not left & set(orphans) and mine in left
    finally:
        api.remove_container(mine, force=True)


@pytest.fixture
def own_engine(tools, tmp_path, monkeypatch):
    """An engine of this test alone, to be mistreated."""
    if os.geteuid() != 0:
        pytest.skip("only root can start an engine")
    script = str(tools.ROOT / "scripts" / "docker-engine")
    folder = str(tmp_path / "e")
    started = subprocess.run([script, "start", folder], capture_output=True, text=True, check=False)
    if started.returncode != 0:
        subprocess.run([script, "stop", folder], check=False)
        pytest.skip(started.stderr.strip())
    monkeypatch.setenv("DOCKER_HOST", started.stdout.strip())
    monkeypatch.setattr(docker_engine, "REQUEST_S", 3)
    pid = int((tmp_path / "e" / "dockerd.pid").read_text())
    yield pid
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGCONT)
    subprocess.run([script, "stop", folder], check=False)


def start_endless(pool, tools, wall_s):
    tag = "de" + secrets.token_hex(5)
    results = []
    job = Message({"tag": tag})
    thread = threading.Thread(
        target=lambda: results.append(pool.run("hostile:endless_sleep", job, Limits(wall_s=wall_s)))
    )
    thread.start()
    deadline = time.monotonic() + 60
    while not tools.alive(tag) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tools.alive(tag)
    return thread, results, tag


def test_an_engine_that_dies_or_hangs_is_our_fault_not_the_candidates(own_engine, tools, monkeypatch):
    from orienteer.environments.execution import session as shared

    monkeypatch.setattr(shared, "PATIENCE_S", 2.0)
    sandbox = open_sandbox("docker")
    with WorkerPool(sandbox, preload=[], binds=[tools.HOSTILE]) as pool:
        thread, results, tag = start_endless(pool, tools, 1)
        os.kill(own_engine, signal.SIGSTOP)  # the job ends in time, but nobody hears of it
        thread.join(30)
        os.kill(own_engine, signal.SIGCONT)
        assert results[0].cause == ExitCause.SANDBOX_ERROR and "answering" in results[0].error
        assert pool.run("hostile:fine", Message({}), Limits()).value is not None
        thread, results, tag = start_endless(pool, tools, 4)
        os.kill(own_engine, signal.SIGKILL)
        thread.join(30)
        assert results[0].cause == ExitCause.SANDBOX_ERROR and results[0].error
        assert tools.gone(tag, within=15)  # nobody is left to kill it but its own supervisor, at its deadline
        result = pool.run("hostile:fine", Message({}), Limits())
        assert result.cause == ExitCause.SANDBOX_ERROR and "engine" in result.error
        program = sandbox.exec(["/usr/bin/env", "true"])
        assert program.cause == ExitCause.SANDBOX_ERROR and program.returncode is None and program.error
