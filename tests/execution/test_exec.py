"""``Sandbox.exec`` on every backend that works here."""

import os
import secrets
import sys
import threading
import time

import pytest

from orienteer.environments.execution import ExitCause, Limits
from orienteer.errors import Interrupted, UsageError

PYTHON = sys.executable


def python(sandbox, code, **options):
    return sandbox.exec([PYTHON, "-I", "-S", "-c", code], **options)


def test_input_output_files_and_status(sandbox):
    code = (
        "import sys; data = sys.stdin.buffer.read(); print(open('a/in.txt').read(), data.decode());"
        "print('to stderr', file=sys.stderr); open('out.bin', 'wb').write(b'\\0\\1'); sys.exit(7)"
    )
    result = python(
        sandbox, code, stdin=b"typed", files={"a/in.txt": b"given"}, collect=["out.bin", "a/in.txt", "missing", "a"]
    )
    assert (result.cause, result.returncode) == (ExitCause.OK, 7)
    assert result.stdout == b"given typed\n" and result.stderr == b"to stderr\n"
    assert result.files == {"out.bin": b"\0\1", "a/in.txt": b"given"}
    assert result.limits == Limits().as_dict() and result.backend == sandbox.name
    assert result.cpu_s > 0 and result.wall_s > 0 and result.peak_mb > 0


def test_large_input_and_output_pass_whole(sandbox):
    data = os.urandom(3 << 20)
    code = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"
    result = python(sandbox, code, stdin=data, limits=Limits(output_bytes=4 << 20))
    assert result.cause == ExitCause.OK and result.stdout == data


def test_only_the_given_environment(sandbox, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    result = python(sandbox, "import os; print(sorted(os.environ))", env={"GIVEN": "1"})
    names = set(eval(result.stdout))
    assert "GIVEN" in names and "OPENAI_API_KEY" not in names and "PATH" in names


def test_accounts_and_read_only_root(sandbox, backend):
    if backend == "process":
        pytest.skip("sees the host's")
    code = (
        "import pwd, grp, os; print(pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name)\n"
        "for folder in ('/', '/etc', '/usr', '/dev', '/tmp', '/dev/shm'):\n"
        " try: open(folder + '/x', 'w'); print(folder)\n except OSError: pass"
    )
    assert python(sandbox, code).stdout.split() == [b"nobody", b"nogroup", b"/tmp", b"/dev/shm"]


def test_shown_folder_is_readable_and_not_writable(sandbox, backend, tmp_path):
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:2]:
        parent.chmod(parent.stat().st_mode | 0o055)
    (tmp_path / "data").write_text("shown")
    code = f"print(open({str(tmp_path / 'data')!r}).read()); open({str(tmp_path / 'data')!r}, 'w')"
    result = python(sandbox, code, binds=[tmp_path])
    assert result.stdout == b"shown\n"
    if backend != "process":
        assert result.returncode == 1 and (tmp_path / "data").read_text() == "shown"


def test_missing_bind_is_refused(sandbox, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        python(sandbox, "", binds=[tmp_path / "missing"])
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", ""])
def test_paths_stay_in_the_working_folder(sandbox, name):
    with pytest.raises(UsageError):
        python(sandbox, "", files={name: b""})
    with pytest.raises(UsageError):
        python(sandbox, "", collect=[name])


def test_collected_links_do_not_lead_out(sandbox):
    code = "import os; os.symlink('/etc/passwd', 'a'); os.symlink('/etc', 'b'); os.mkfifo('c'); os.mkdir('d')"
    result = python(sandbox, code, collect=["a", "b/passwd", "c", "d"])
    assert result.cause == ExitCause.OK and result.files == {}


def test_collected_files_are_limited(sandbox):
    code = "open('big', 'wb').write(b'x' * (3 << 20))"
    result = python(sandbox, code, collect=["big"], limits=Limits(result_mb=2))
    assert result.cause == ExitCause.OUTPUT_LIMIT and result.files == {}


def test_causes_are_exact(sandbox, tools):
    tag = "ex" + secrets.token_hex(5)
    endless = f"import ctypes; ctypes.CDLL(None).prctl(15, b'{tag}', 0, 0, 0)\nwhile True: pass"
    result = python(sandbox, endless, limits=Limits(wall_s=0.5))
    assert result.cause == ExitCause.TIMEOUT and tools.gone(tag)
    result = python(sandbox, endless, limits=Limits(cpu_s=1))
    assert result.cause == ExitCause.TIMEOUT and tools.gone(tag)
    result = python(sandbox, "import os; os.abort()")
    assert (result.cause, result.returncode) == (ExitCause.SIGNAL, -6)
    result = python(sandbox, "while True: print('x' * 10000)", limits=Limits(output_bytes=5000))
    assert result.cause == ExitCause.OUTPUT_LIMIT and len(result.stdout) == 5000
    result = sandbox.exec(["/does/not/exist"])
    assert result.cause == ExitCause.SANDBOX_ERROR and "/does/not/exist" in result.error


def test_memory(sandbox):
    code = "import sys\ntry: x = b'1' * (300 << 20)\nexcept MemoryError: sys.exit(9)"
    result = python(sandbox, code, limits=Limits(memory_mb=100))
    # A control group kills; an rlimit refuses, which the program may notice.
    assert result.cause == ExitCause.OOM or result.returncode == 9


def test_grandchild_does_not_hold_the_end(sandbox, tools):
    tag = "ex" + secrets.token_hex(5)
    code = (
        "import os, time, ctypes\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
        f"  ctypes.CDLL(None).prctl(15, b'{tag}', 0, 0, 0); time.sleep(1000)\n os._exit(0)\nos.wait()\nprint('done')"
    )
    result = python(sandbox, code, limits=Limits(wall_s=30))
    assert result.cause == ExitCause.OK and result.stdout == b"done\n"  # not TIMEOUT: nobody waited for it
    assert tools.gone(tag)


def test_compiled_program_runs(sandbox, tmp_path):
    import shutil
    import subprocess

    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "p.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hi"); return 3; }')
    subprocess.run(["cc", "-o", str(tmp_path / "p"), str(source)], check=True)
    result = sandbox.exec(["./p"], files={"p": (tmp_path / "p").read_bytes()})
    assert (result.cause, result.returncode, result.stdout) == (ExitCause.OK, 3, b"hi\n"), result


def test_programs_run_side_by_side(sandbox):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        codes = [f"import time; time.sleep(0.2); print({number})" for number in range(8)]
        outputs = [result.stdout for result in threads.map(lambda code: python(sandbox, code), codes)]
    assert outputs == [b"%d\n" % number for number in range(8)]


def test_cancel_kills_the_program(sandbox, tools):
    tag = "ex" + secrets.token_hex(5)
    code = f"import ctypes, time; ctypes.CDLL(None).prctl(15, b'{tag}', 0, 0, 0); time.sleep(1000)"
    cancel = threading.Event()
    raised = []

    def run():
        try:
            python(sandbox, code, cancel=cancel)
        except Interrupted as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not tools.alive(tag):
        time.sleep(0.02)
    cancel.set()
    thread.join(20)
    assert len(raised) == 1 and tools.gone(tag)


def test_nothing_is_left_behind(sandbox, backend):
    from pathlib import Path

    from orienteer.environments.execution import cgroups

    python(sandbox, "open('x', 'w').write('y')")
    time.sleep(0.1)
    able = cgroups.support()
    for place in (able.memory, able.pids):
        if place is not None:
            assert not list(place.glob(f"{cgroups.PREFIX}{os.getpid()}-*"))
    if backend == "process":
        assert not list(Path("/tmp").glob("orienteer-*/job-*/x"))
