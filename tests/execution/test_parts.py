"""Limits, the filter, control groups, the choice of a backend, the doctor's table."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from orienteer.environments.execution import ExitCause, Limits, bench, cgroups, open_sandbox, paths, seccomp
from orienteer.environments.execution.probe import probe
from orienteer.environments.execution.promises import table
from orienteer.errors import MissingPrerequisite, UsageError


@pytest.mark.parametrize("field", ["wall_s", "memory_mb", "pids", "output_bytes", "disk_mb", "open_files", "result_mb"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1", None])
def test_limits_are_positive_numbers(field, value):
    with pytest.raises(ValueError, match=field):
        Limits(**{field: value})


def emulate(code, call, arguments=(), arch=0xC000003E):
    """Run a BPF program on a system call as the kernel would."""
    data = struct.pack("<iIQ6Q", call, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    program = [struct.unpack_from("<HBBI", code, place) for place in range(0, len(code), 8)]
    accumulator, place = 0, 0
    while True:
        operation, if_true, if_false, value = program[place]
        place += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        elif operation == 0x06:
            return value
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            place += if_true if test else if_false


ALLOW, KILL = 0x7FFF0000, 0x80000000


def denied(number):
    return 0x00050000 | number


@pytest.mark.parametrize(("machine", "column", "arch"), [("x86_64", 0, 0xC000003E), ("aarch64", 1, 0xC00000B7)])
def test_filter(machine, column, arch):
    job, setup = seccomp.build(machine), seccomp.build(machine, setup=True)
    closed = seccomp.build(machine, network=False)
    for name, numbers in seccomp.CALLS.items():
        if numbers[column]:
            assert emulate(job, numbers[column], arch=arch) == denied(1), name
            assert emulate(setup, numbers[column], arch=arch) == denied(1), name
    for name, numbers in seccomp.SETUP_CALLS.items():
        assert emulate(job, numbers[column], arch=arch) == denied(1), name
        assert emulate(setup, numbers[column], arch=arch) == ALLOW, name
    clone, clone3 = (56, 220)[column], 435
    assert emulate(job, clone, (0x10000000,), arch) == denied(1)
    assert emulate(job, clone, (0x11,), arch) == ALLOW
    assert emulate(job, clone3, arch=arch) == denied(38)
    assert emulate(setup, clone3, arch=arch) == ALLOW
    ioctl, sock = (16, 29)[column], (41, 198)[column]
    assert emulate(job, ioctl, (0, 0x5412), arch) == denied(1)
    assert emulate(job, ioctl, (0, 0x5401), arch) == ALLOW
    assert emulate(job, sock, (2,), arch) == ALLOW and emulate(closed, sock, (2,), arch) == denied(97)
    assert emulate(job, sock, (40,), arch) == denied(97)  # vsock reaches the host of a virtual machine
    assert emulate(closed, sock, (1,), arch) == ALLOW
    for harmless in (0, 1, 2, 3, 9, 59, 60) if column == 0 else (63, 64, 56, 57, 222, 221, 93):
        assert emulate(job, harmless, arch=arch) == ALLOW
    assert emulate(job, 0, arch=0x40000003) == KILL
    if column == 0:
        assert emulate(job, 0x40000000 | 101, arch=arch) == denied(1)


def test_numbers_of_calls_are_those_of_this_kernel():
    headers = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
    place = Path("/usr/include") / headers.get(os.uname().machine, "none")
    if not place.exists():
        pytest.skip("no kernel headers")
    known = {}
    for line in place.read_text().splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[0] == "#define" and parts[1].startswith("__NR_") and parts[2].isdigit():
            known[parts[1][5:]] = int(parts[2])
    column = 0 if os.uname().machine == "x86_64" else 1
    wrong = {
        name: (numbers[column], known[name])
        for name, numbers in {**seccomp.CALLS, **seccomp.SETUP_CALLS}.items()
        if name in known and known[name] != numbers[column]
    }
    assert wrong == {}


def test_unknown_processor_has_no_filter():
    assert seccomp.build("riscv64") == b""


def test_control_group_counts_and_is_removed():
    if not cgroups.support().controllers:
        pytest.skip(cgroups.support().reason)
    group = cgroups.make(Limits(memory_mb=64, pids=10))
    code = "import os\nfor fd in map(int, os.sys.argv[1:]): os.write(fd, b'0')\nx = b'1' * (200 << 20)"
    done = subprocess.run([sys.executable, "-c", code, *map(str, group.fds)], pass_fds=group.fds, check=False)
    usage = group.usage()
    group.close()
    assert not any(folder.exists() for folder in group.folders)
    if group.memory is not None:
        assert done.returncode == -9 and usage.oom_kills >= 1 and usage.peak_mb <= 64


def test_version_2_hierarchy():
    """On a hybrid machine version 2 has few controllers, but making, entering and ending groups is the same."""
    places = [Path(point) for _, point, kind, _ in cgroups._mounts() if kind == "cgroup2"]
    if not places or os.geteuid() != 0:
        pytest.skip("no version 2 hierarchy, or not root")
    top = places[0]
    names = (top / "cgroup.controllers").read_text().split()
    able = (top / "cgroup.subtree_control").read_text().split()
    assert cgroups.v2_base(top, top, ["no-such-controller"])[0] is None
    if not set(names) & set(able):
        pytest.skip("no controller is handed on, and the test does not change that")
    base, reason = cgroups.v2_base(top, top, able)
    assert base == top, reason


def test_version_2_group_is_entered_and_ended(tools):
    places = [Path(point) for _, point, kind, _ in cgroups._mounts() if kind == "cgroup2"]
    if not places or cgroups._try_group(places[0]):
        pytest.skip("no version 2 hierarchy that we may use")
    folder = places[0] / f"{cgroups.PREFIX}{os.getpid()}-{cgroups.start_time(os.getpid())}-test"
    folder.mkdir()
    group = cgroups.JobGroup(2, memory=folder)
    group.fds.append(os.open(folder / "cgroup.procs", os.O_WRONLY))
    code = (
        "import os, time\nfrom orienteer.environments.execution import linux\nlinux.fork_into(0x10000000)\n"
        f"os.write({group.fds[0]}, b'0')\nos.fork()\nprint(flush=True)\ntime.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], pass_fds=group.fds, cwd="/", stdout=subprocess.PIPE)
    for _ in range(4):  # two processes in, and a namespace below, each twice forked
        process.stdout.readline()
    inside = (folder / "cgroup.procs").read_text().split()
    assert len(inside) == 4
    group.close()
    assert not folder.exists()
    assert process.wait(10) == -9


def test_group_left_by_a_dead_process_is_swept():
    able = cgroups.support()
    if able.memory is None:
        pytest.skip(able.reason)
    stale = able.memory / f"{cgroups.PREFIX}{os.getpid()}-1-0"  # our pid, another start time: somebody dead
    stale.mkdir()
    cgroups._sweep(able)
    assert not stale.exists()


def test_choice_of_backend(monkeypatch):
    with pytest.raises(UsageError, match="unknown sandbox"):
        open_sandbox("chroot")
    with pytest.raises(MissingPrerequisite, match="allow-unsafe"):
        open_sandbox("process")
    assert open_sandbox("process", allow_unsafe=True).isolation == "none"


def run_elsewhere(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, **env},
        check=False,
        timeout=120,
    )


def test_auto_never_falls_to_process_silently(tmp_path):
    # No bubblewrap by making its search find one that fails, no engine by an address that nobody serves.
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"}
    code = (
        "from orienteer.environments.execution import open_sandbox\n"
        "from orienteer.errors import MissingPrerequisite\n"
        "try: print(open_sandbox('auto').name)\nexcept MissingPrerequisite as error: print('refused:', error)\n"
        "print(open_sandbox('auto', allow_unsafe=True).name)\nopen_sandbox('process', allow_unsafe=True)"
    )
    done = run_elsewhere(code, **env)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("refused:") and "--allow-unsafe" in lines[0] and "namespace" in lines[0], done
    assert lines[1] == "process"
    assert done.stderr.count("isolates nothing") == 1  # one warning, once


def test_the_table_of_the_doctor():
    found = {check.name: check for check in probe()}
    assert {
        "bubblewrap",
        "user namespaces",
        "cgroup memory",
        "cgroup pids",
        "seccomp",
        "docker engine",
        "landlock",
    } == set(found)
    for check in found.values():
        assert check.detail and (check.works or check.cure)


def test_the_documentation_prints_the_promises():
    text = (Path(__file__).resolve().parents[2] / "docs" / "sandboxes.md").read_text()
    assert table() in text


def test_only_our_software_is_shown():
    shown = paths.software()
    assert Path(sys.executable).exists()
    for path in shown:
        assert path != Path.home() and path not in Path.home().parents
        assert ".git" not in path.parts and not (path / ".git").exists()


def test_measuring_the_start():
    try:
        open_sandbox("bwrap")
        choice = "bwrap"
    except MissingPrerequisite:
        choice = "process"
    measured = bench.measure_worker_start(choice, preload=["json"], rounds=3, allow_unsafe=True)
    assert measured["backend"] == choice and measured["job_wall_ms"]["min"] > 0 and measured["worker_mb"] > 1


def test_causes_are_plain_words():
    assert [str(cause) for cause in ExitCause] == [
        "ok",
        "timeout",
        "oom",
        "pids",
        "signal",
        "output_limit",
        "sandbox_error",
    ]
