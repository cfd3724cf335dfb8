"""Warm workers: reuse, replacement, cancellation, death of the caller."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest

from orienteer.environments.execution import ExitCause, Limits, Message
from orienteer.errors import Interrupted, OrienteerError


def run(pool, name, limits=None, blobs=(), **header):
    return pool.run(f"hostile:{name}", Message(header, tuple(blobs)), limits or Limits(wall_s=20))


def test_message_there_and_back(pool):
    blobs = (b"", os.urandom(2 << 20), b"\0" * 17)
    header = {"text": "ä\ud800"[:1], "number": 1.5, "nested": {"list": [1, None, True]}}
    result = run(pool, "fine", blobs=blobs, **header)
    assert result.value == Message({"seen": header}, blobs)
    assert result.error == "" and result.error_type == "" and result.peak_mb > 0


def test_unknown_function_is_our_fault(pool):
    result = run(pool, "no_such_function")
    assert result.cause == ExitCause.SANDBOX_ERROR and "no_such_function" in result.error
    assert run(pool, "fine").value is not None


def test_bad_message_costs_no_worker(pool):
    with pytest.raises(TypeError):
        pool.run("hostile:fine", Message({"x": object()}), Limits())
    deep = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        pool.run("hostile:fine", Message({"x": deep}), Limits())
    assert run(pool, "fine").value is not None


def test_state_of_one_job_is_not_seen_by_the_next(pool):
    assert run(pool, "fine", x=1).value.header != run(pool, "fine", x=2).value.header


def test_isolation_is_stamped(pool, backend):
    stamp = run(pool, "fine").isolation
    if backend == "process":
        assert stamp == "none"
    else:
        assert stamp.startswith({"bwrap": "namespaces+own-namespaces", "docker": "container"}[backend])


def test_preload_that_fails_is_named(tools, backend):
    from orienteer.environments.execution import WorkerPool

    with WorkerPool(tools.open_or_skip(backend), preload=["no_such_module_anywhere"]) as pool:
        result = run(pool, "fine")
        assert result.cause == ExitCause.SANDBOX_ERROR and "no_such_module_anywhere" in result.error
        with pytest.raises(OrienteerError, match="no_such_module_anywhere"):
            pool.warm()


def test_threads_before_the_fork_are_refused(tools, backend, tmp_path, monkeypatch):
    from orienteer.environments.execution import WorkerPool

    for folder in [tmp_path, *list(tmp_path.parents)[:2]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    name = f"starts_thread_{secrets.token_hex(4)}"
    (tmp_path / f"{name}.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "def fine(message): return message\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    pool = WorkerPool(tools.open_or_skip(backend), preload=[name], binds=[tmp_path])
    with pool, pytest.raises(OrienteerError, match="started 1 threads"):
        pool.warm()
    with WorkerPool(tools.open_or_skip(backend), preload=["json"], binds=[tmp_path, tools.HOSTILE]) as pool:
        result = pool.run(f"{name}:fine", Message({}), Limits())
        assert result.cause == ExitCause.SANDBOX_ERROR and "thread" in result.error
        assert run(pool, "fine").value is not None  # in a fresh worker


def test_worker_that_is_killed_is_replaced(tools, backend):
    with tools.hostile_pool(backend) as pool:
        tag = "wk" + secrets.token_hex(5)
        results = []
        thread = threading.Thread(target=lambda: results.append(run(pool, "endless_sleep", Limits(wall_s=60), tag=tag)))
        thread.start()
        while not tools.alive(tag):
            time.sleep(0.02)
        (session,) = pool._busy
        session._kill() if backend != "process" else os.kill(int(session.facts["pid"]), signal.SIGKILL)
        thread.join(30)
        assert results[0].cause == ExitCause.SANDBOX_ERROR and results[0].value is None and results[0].error
        assert tools.gone(tag)
        assert run(pool, "fine").value is not None


def test_cancel_kills_running_jobs(tools, backend):
    cancel = threading.Event()
    tag = "cn" + secrets.token_hex(5)
    with tools.hostile_pool(backend, cancel=cancel) as pool:
        raised = []

        def job():
            try:
                run(pool, "endless_sleep", Limits(wall_s=60), tag=tag)
            except Interrupted as error:
                raised.append(error)

        threads = [threading.Thread(target=job) for _ in range(2)]  # one runs, one waits for the worker
        for thread in threads:
            thread.start()
        while not tools.alive(tag):
            time.sleep(0.02)
        cancel.set()
        for thread in threads:
            thread.join(20)
        assert len(raised) == 2 and tools.gone(tag)
        with pytest.raises(Interrupted):
            run(pool, "fine")


def test_close_ends_running_jobs(tools, backend):
    tag = "cl" + secrets.token_hex(5)
    pool = tools.hostile_pool(backend)
    results = []
    thread = threading.Thread(target=lambda: results.append(run(pool, "endless_sleep", Limits(wall_s=60), tag=tag)))
    thread.start()
    while not tools.alive(tag):
        time.sleep(0.02)
    pool.close()
    thread.join(20)
    assert results[0].cause == ExitCause.SANDBOX_ERROR and tools.gone(tag)
    with pytest.raises(RuntimeError):
        run(pool, "fine")


def test_jobs_run_side_by_side(tools, backend):
    from concurrent.futures import ThreadPoolExecutor

    with tools.hostile_pool(backend, size=2) as pool, ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda number: run(pool, "fine", x=number), range(12)))
    assert [result.value.header["seen"]["x"] for result in results] == list(range(12))


def test_worker_outlives_the_thread_that_started_it(tools, backend):
    with tools.hostile_pool(backend) as pool:
        thread = threading.Thread(target=run, args=(pool, "fine"))
        thread.start()
        thread.join()
        time.sleep(0.3)
        (session,) = pool._idle
        assert run(pool, "fine").value is not None
        assert pool._idle == [session]


def test_bind_below_tmp_is_seen_by_jobs(tools, backend, tmp_path):
    from orienteer.environments.execution import WorkerPool

    for folder in [tmp_path, *list(tmp_path.parents)[:2]]:
        folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "shown").write_text("content")
    with WorkerPool(tools.open_or_skip(backend), preload=[], binds=[tools.HOSTILE, tmp_path / "shown"]) as pool:
        found = run(pool, "read_files", paths=[str(tmp_path / "shown")]).value.header["found"]
    assert found == ["content"]


CALLER = """
import sys, threading
sys.path.append({folder!r})
from orienteer.environments.execution import Limits, Message, WorkerPool, open_sandbox
pool = WorkerPool(open_sandbox({backend!r}, allow_unsafe=True), preload=[], binds=[{hostile!r}])
pool.run("hostile:endless_sleep", Message({{"tag": {tag!r}}}), Limits(wall_s=600))
"""


def test_death_of_the_caller_ends_everything(tools, backend):
    tag = "pd" + secrets.token_hex(5)
    code = CALLER.format(folder=str(tools.HOSTILE.parent), hostile=str(tools.HOSTILE), backend=backend, tag=tag)
    caller = subprocess.Popen([sys.executable, "-c", code], cwd="/", stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not tools.alive(tag) and caller.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert tools.alive(tag)
    finally:
        caller.send_signal(signal.SIGKILL)
        caller.wait()
    assert tools.gone(tag, within=10)


def test_warm_says_what_the_worker_is(pool):
    facts = pool.warm()
    assert facts["ready"] is True and 5 < facts["rss_mb"] < 1500
