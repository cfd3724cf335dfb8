"""The kernel world that the other kernel tests use, for C++ candidates."""

import importlib.util
import sys
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parent.parent / "kernel"
if str(KERNEL) not in sys.path:
    sys.path.insert(0, str(KERNEL))


def _shared():
    name = "kernel_shared_world"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, KERNEL / "shared_world.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


shared = _shared()


@pytest.fixture(scope="session", name="shared")
def _shared_fixture():
    return shared
