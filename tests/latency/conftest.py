"""The world that all kernel tests share."""

import importlib.util
import sys
from pathlib import Path

import hypothesis
import pytest

# How long an example takes says nothing about whether it is right.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))


def _shared():
    name = "kernel_shared_world"
    if name not in sys.modules:
        path = HERE.parent / "kernel" / "shared_world.py"
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


shared = _shared()


@pytest.fixture(scope="session", name="shared")
def _shared_fixture():
    return shared
