"""The same attacks when the caller is an ordinary user without control groups of its own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CHOSEN = (
    "(bwrap or process) and not docker and not shared and "
    "(fork_bomb or hog or home or others or other or network or killed or privilege or daemon or tracing or"
    " environment or opened or threads or endless_c or flood or silently or causes)"
)


def test_as_an_ordinary_user(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("the tests already run as an ordinary user")
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1)")
    trial = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        pytest.skip(f"no mount namespace here: {trial.stderr.strip()}")
    for parent in [tmp_path, *list(tmp_path.parents)[:2]]:
        parent.chmod(parent.stat().st_mode | 0o055)
    helper = ROOT / "tests" / "execution" / "as_nobody.py"
    command = ["unshare", "-m", sys.executable, str(helper), str(ROOT), str(tmp_path)]
    command += ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")]
    command += ["--basetemp", str(tmp_path / "base"), "-k", CHOSEN, "--deselect", "test_ordinary_user.py"]
    command += [
        str(ROOT / "tests" / "adversarial" / "execution" / "test_hostile.py"),
        str(ROOT / "tests" / "execution" / "test_exec.py"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "bwrap" not in done.stdout.split("short test summary")[-1], done.stdout[-3000:]
