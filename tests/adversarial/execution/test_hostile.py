"""Hostile candidates as jobs of warm workers, on every backend that works here."""

import os
import secrets
import socket
import threading
from pathlib import Path

import pytest

from orienteer.environments.execution import ExitCause, Limits, Message
from orienteer.environments.execution.promises import PROMISES

SHORT = Limits(wall_s=1.0, memory_mb=128, pids=24, disk_mb=8, output_bytes=1 << 16, result_mb=1)
LONG = Limits(wall_s=20, memory_mb=256, pids=24, disk_mb=8, output_bytes=1 << 16, result_mb=1)


def promised(name, backend):
    promise = next(promise for promise in PROMISES if promise.name == name)
    if not promise.holds(backend):
        pytest.skip(f"the {backend} backend does not promise to hold: {promise.attack}")


def attack(pool, name, limits=LONG, blobs=(), **header):
    return pool.run(f"hostile:{name}", Message(header, tuple(blobs)), limits)


def still_serves(pool):
    result = attack(pool, "fine", x=1, blobs=[b"abc"])
    assert result.cause == ExitCause.OK and result.value is not None, result
    assert result.value.header == {"seen": {"x": 1}} and result.value.blobs == (b"abc",)
    assert result.stdout == b"fine\n"


@pytest.fixture
def tag():
    return "hx" + secrets.token_hex(6)


# -- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["endless_python", "endless_c", "endless_sleep"])
def test_endless_work_is_cut_off_and_gone(pool, backend, tools, tag, name):
    result = attack(pool, name, SHORT, tag=tag)
    assert result.cause == ExitCause.TIMEOUT and result.value is None
    assert result.wall_s >= SHORT.wall_s
    assert tools.gone(tag)
    still_serves(pool)


def test_processor_time_is_limited(pool, backend, tools, tag):
    result = attack(pool, "burn_cpu", Limits(wall_s=60, cpu_s=1), tag=tag)
    assert result.cause == ExitCause.TIMEOUT and result.wall_s < 60  # not by the wall clock
    assert tools.gone(tag)


# -- processes ----------------------------------------------------------------------------------------------------


def may_count_processes(backend, tools):
    from orienteer.environments.execution import cgroups

    return backend == "docker" or "pids" in cgroups.support().controllers or os.getuid() != 0


def test_fork_bomb(pool, backend, tools, tag):
    promised("forks", backend)
    if not may_count_processes(backend, tools):
        pytest.skip("root without a pids cgroup has no limit on processes")
    result = attack(pool, "fork_bomb", LONG, tag=tag)
    assert result.cause == ExitCause.PIDS and result.value is None, result
    assert tools.gone(tag)
    still_serves(pool)


def test_patient_fork_bomb(pool, backend, tools, tag):
    promised("forks", backend)
    if not may_count_processes(backend, tools):
        pytest.skip("root without a pids cgroup has no limit on processes")
    result = attack(pool, "patient_fork_bomb", SHORT, tag=tag)
    assert result.cause == ExitCause.TIMEOUT
    assert tools.gone(tag)
    still_serves(pool)


def test_daemon_does_not_outlive_the_job(pool, backend, tools, tag):
    promised("survivors", backend)
    result = attack(pool, "daemon", LONG, tag=tag)
    assert result.cause == ExitCause.OK and result.value.header == {"done": True}
    assert tools.gone(tag)
    still_serves(pool)


def test_threads_count_as_processes(pool, backend, tools):
    if not may_count_processes(backend, tools):
        pytest.skip("root without a pids cgroup has no limit on processes")
    result = attack(pool, "threads", LONG)
    assert result.value is not None and result.value.header["started"] < LONG.pids


# -- memory, disk, output ------------------------------------------------------------------------------------------


def test_memory_hog(pool, backend):
    promised("memory", backend)
    result = attack(pool, "memory_hog", LONG)
    assert result.cause == ExitCause.OOM and result.value is None
    still_serves(pool)


def test_memory_hog_by_many(pool, backend, tools, tag):
    promised("memory", backend)
    result = attack(pool, "memory_hog_by_many", Limits(wall_s=15, memory_mb=128), tag=tag, each_mb=60)
    assert result.cause == ExitCause.OOM and result.value is None
    assert tools.gone(tag)
    still_serves(pool)


def test_disk_filler(pool, backend):
    promised("disk", backend)
    result = attack(pool, "disk_filler", LONG, enough_mb=200)
    if result.value is not None:
        # /tmp and /dev/shm; those of a container are as large as the first job of its worker may have needed
        assert result.value.header["written_mb"] <= 2 * (64 if backend in ("docker", "bwrap-shared") else LONG.disk_mb)
    else:
        assert result.cause in (ExitCause.OOM, ExitCause.OUTPUT_LIMIT)
    still_serves(pool)


def test_disk_filler_in_the_working_folder(pool, backend):
    result = attack(pool, "disk_filler", LONG, enough_mb=200, only_cwd=True)
    if result.value is not None:
        assert result.value.header["written_mb"] < 200
    else:
        assert result.cause in (ExitCause.OUTPUT_LIMIT, ExitCause.OOM)
    still_serves(pool)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_output_flood(pool, backend, stream):
    promised("output", backend)
    result = attack(pool, f"flood_{stream}", LONG)
    assert result.cause == ExitCause.OUTPUT_LIMIT and result.value is None
    assert len(getattr(result, stream)) == LONG.output_bytes
    still_serves(pool)


def test_result_flood(pool, backend):
    promised("output", backend)
    result = attack(pool, "flood_result", LONG, mb=3)
    assert result.cause in (ExitCause.OUTPUT_LIMIT, ExitCause.OK) and result.value is None
    assert result.cause == ExitCause.OUTPUT_LIMIT or result.error_type == "BadResult"
    assert attack(pool, "flood_result_raw", LONG).value is None
    still_serves(pool)


# -- reading --------------------------------------------------------------------------------------------------------


def test_environment_is_not_readable(pool, backend, monkeypatch):
    promised("environment", backend)
    secret = "sk-" + secrets.token_hex(12)
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    result = attack(pool, "read_environment", secret=secret)
    assert result.value.header == {"found": False}


def test_environment_of_a_new_worker(backend, tools, monkeypatch):
    secret = "sk-" + secrets.token_hex(12)
    monkeypatch.setenv("OPENAI_API_KEY", secret)  # now the worker starts with it in its parent's environment
    with tools.hostile_pool(backend, env={"GIVEN": "yes"}) as pool:
        result = attack(pool, "read_files", paths=["/proc/self/environ"])
        assert secret not in str(result)
        if backend != "process":
            assert attack(pool, "read_environment", secret=secret).value.header == {"found": False}
        assert attack(pool, "read_environment", secret="GIVEN").value.header == {"found": True}


def test_home_is_not_readable(pool, backend, tmp_path):
    promised("home", backend)
    planted = [Path.home() / f".orienteer-test-{secrets.token_hex(4)}", tmp_path / "id_rsa"]
    try:
        for path in planted:
            path.write_text("a secret")
        result = attack(pool, "read_files", paths=[*map(str, planted), "/etc/shadow"])
        assert result.value.header == {"found": []}
        seen = attack(pool, "list_folders", folders=["/home", str(Path.home()), "/etc/ssh", "/var", "/run"]).value
        assert all(
            not names or set(names) <= {".pyenv", ".local", ".cache", "work"} for names in seen.header["seen"].values()
        )
    finally:
        planted[0].unlink(missing_ok=True)


def test_other_candidates_are_not_readable(pool, backend):
    promised("others", backend)
    file, secret, key = f"left-{secrets.token_hex(4)}", secrets.token_hex(8), secrets.randbelow(1 << 30) + 1
    left = attack(pool, "leave_file", file=file, secret=secret, key=key)
    assert left.value.header["left"]
    assert attack(pool, "find_file", file=file, key=key).value.header == {"found": []}


def test_memory_holds_nothing_of_other_candidates(pool, backend):
    secret = secrets.token_hex(32)
    masked = bytes(byte ^ 0x55 for byte in secret.encode()).hex()  # or the search would find its own question
    assert attack(pool, "carry", secret=secret, blobs=[secret.encode() * 100]).value.header["secret"] == secret
    seen = attack(pool, "scan_own_memory", Limits(wall_s=60, memory_mb=512), masked=masked)
    assert seen.value is not None, seen
    assert seen.value.header["seen_mb"] > 4 and seen.value.header["found"] == 0


def test_candidates_at_the_same_time_do_not_see_each_other(backend, tools, tag):
    promised("others", backend)
    with tools.hostile_pool(backend, size=2) as pool:
        attack(pool, "fine")
        other = threading.Thread(target=attack, args=(pool, "endless_sleep", Limits(wall_s=60)), kwargs={"tag": tag})
        other.start()
        try:
            for _ in range(100):
                if tools.alive(tag):
                    break
                other.join(0.05)
            assert tools.alive(tag)
            seen = attack(pool, "list_folders", folders=["/proc"]).value.header["seen"]["/proc"] or []
            assert len([entry for entry in seen if entry.isdigit()]) <= 3
            attack(pool, "kill_everything", SHORT)
            assert tools.alive(tag)
        finally:
            pool.close()
            other.join()


def test_memory_of_others_cannot_be_opened(pool, backend):
    promised("proc-memory", backend)
    assert attack(pool, "read_memory").value.header["opened"] == []


def test_tracing_is_refused(pool, backend):
    promised("tracing", backend)
    for result, error in attack(pool, "trace_parent").value.header["tried"].values():
        assert result == -1 and error in (1, 3)


def test_no_descriptor_is_inherited(pool, backend):
    assert attack(pool, "open_fds").value.header == {"found": []}


# -- reaching out ----------------------------------------------------------------------------------------------------


def test_no_network(pool, backend):
    promised("network", backend)
    abstract = f"orienteer-{secrets.token_hex(4)}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind("\0" + abstract)
        local.listen()
        server.settimeout(0.05)
        port = server.getsockname()[1]
        reached = attack(pool, "connect", port=port, abstract=abstract).value.header["reached"]
        with pytest.raises(TimeoutError):
            server.accept()
    if backend == "process":  # an abstract Unix socket is no network, and there is no namespace to hide it
        reached = [where for where in reached if abstract not in where]
    assert reached == []


def test_the_caller_and_the_worker_cannot_be_killed(pool, backend):
    promised("signals", backend)
    assert attack(pool, "kill_parent").value.header == {"survived": True}
    assert attack(pool, "kill_everything").value.header == {"survived": True}
    still_serves(pool)


def test_a_killed_worker_is_replaced(backend, tools):
    if backend != "process":
        pytest.skip("only in the process backend can a candidate reach its worker")
    with tools.hostile_pool(backend) as pool:
        result = attack(pool, "kill_parent", SHORT)
        assert result.cause == ExitCause.SANDBOX_ERROR and result.value is None and result.error
        still_serves(pool)


def test_no_privilege_to_gain(pool, backend):
    promised("privilege", backend)
    seen = attack(pool, "escape").value.header
    worked = set(seen["worked"])
    if backend == "process":  # your rights are its rights
        worked -= {"write /usr", "setuid"}
        Path("/usr/orienteer-was-here").unlink(missing_ok=True)
    assert worked == set()
    assert all(line.split()[1].strip("0") == "" for line in seen["caps"])
    if backend != "process":
        assert seen["uid"] == 65534
        become = attack(pool, "setuid_program").value
        assert become.header["code"] != 0 and "uid=0" not in become.header["out"]


# -- forging ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error_type"),
    [
        ("exit_silently", "NoResult"),
        ("forge_without_secret", "BadResult"),
        ("forge_then_return", "BadResult"),
        ("forge_prefix", "BadResult"),
        ("forge_sizes", "BadResult"),
        ("two_results", "BadResult"),
        ("deep_json", "BadResult"),
        ("not_json", "TypeError"),
        ("not_a_message", "TypeError"),
        ("exit_loudly", "SystemExit"),
        ("evil_exception", "Evil"),
        ("long_exception", "ValueError"),
    ],
)
def test_what_is_no_result_is_an_error(pool, backend, name, error_type):
    promised("results", backend)
    result = attack(pool, name, LONG)
    assert (result.cause, result.value, result.error_type) == (ExitCause.OK, None, error_type), result
    assert result.error and len(result.error) < 100_000
    still_serves(pool)


@pytest.mark.parametrize("name", ["crash", "abort", "kill_self"])
def test_death_by_signal_is_named(pool, backend, name):
    result = attack(pool, name, LONG)
    assert result.cause == ExitCause.SIGNAL and result.value is None
    still_serves(pool)


def test_grandchild_cannot_spoil_the_pool(pool, backend):
    for _ in range(3):
        result = attack(pool, "forge_by_grandchild", LONG)
        assert result.value is None or result.value.header == {"honest": True}
        assert result.value is not None or result.error_type == "BadResult"
    still_serves(pool)


def test_a_lingering_thread_is_not_waited_for(pool, backend):
    result = attack(pool, "linger_after_result", LONG)
    assert result.cause == ExitCause.OK and result.value.header == {"done": True}
