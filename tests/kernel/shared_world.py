"""One kernel world for all tests of a session, references of small tasks, the Ascend compiler where there is one."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

import pytest

#: Tests set ORIENTEER_HOME to folders of their own; the toolchain is looked for where it really is.
_REAL_HOME = os.environ.get("ORIENTEER_HOME")
_REAL_TOOLCHAINS = os.environ.get("ORIENTEER_TOOLCHAINS")
#: Longest job, seconds: what hangs is killed soon.
JOB_SECONDS = 40
_opened: dict[str, object] = {}


def world():
    """Return the session's world or skip where no sandbox works."""
    if "world" not in _opened:
        from orienteer.environments.kernel.world import KernelWorld
        from orienteer.errors import MissingPrerequisite

        try:
            _opened["world"] = KernelWorld.open("auto", job_seconds=JOB_SECONDS)
        except MissingPrerequisite as error:
            _opened["world"] = str(error)
        else:
            atexit.register(_opened["world"].close)
    if isinstance(_opened["world"], str):
        pytest.skip(f"no sandbox works here: {_opened['world']}")
    return _opened["world"]


def prepared(source: str, name: str = "task", cases: int = 3, **verifier):
    """Return (verifier, info, hidden cases) of a task; computed once for the same arguments."""
    from orienteer.environments.kernel.tasks import KernelTask
    from orienteer.evaluators.kernel.gates import KernelVerifier

    key = repr((source, name, cases, sorted(verifier.items(), key=str)))
    if key not in _opened:
        info = world().inspect(KernelTask(name, source))
        judge = KernelVerifier(world(), cases=cases, **verifier)
        _opened[key] = (judge, info, judge.hidden_cases(info))
    return _opened[key]


def toolchain_home() -> Path | None:
    """Return the folder for ``ORIENTEER_TOOLCHAINS`` in which an Ascend compiler is installed, or None."""
    from orienteer.environments.kernel import toolchain

    places = [_REAL_TOOLCHAINS, _REAL_HOME and f"{_REAL_HOME}/toolchains"]
    if _REAL_HOME is None:
        from platformdirs import user_data_dir

        places.append(str(Path(user_data_dir("orienteer")) / "toolchains"))
    for place in filter(None, places):
        saved = os.environ.get("ORIENTEER_TOOLCHAINS")
        os.environ["ORIENTEER_TOOLCHAINS"] = place
        try:
            if toolchain.find(Path(place).parent) is not None:
                return Path(place)
        finally:
            if saved is None:
                del os.environ["ORIENTEER_TOOLCHAINS"]
            else:
                os.environ["ORIENTEER_TOOLCHAINS"] = saved
    return None


def toolchain():
    """Return the installed Ascend compiler or skip."""
    from orienteer.environments.kernel.toolchain import AscendToolchain, folder

    place = toolchain_home()
    if place is None:
        pytest.skip("the Ascend compiler is not installed (`agent setup npu`, or set ORIENTEER_TOOLCHAINS)")
    return AscendToolchain(place / folder(Path("x")).name)
