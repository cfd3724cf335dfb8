import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def _load(name, path):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


backends = _load("execution_backends", HERE.parents[1] / "execution" / "backends.py")
sys.path.append(str(backends.HOSTILE.parent))  # workers find hostile.py by our search path


@pytest.fixture(
    scope="module",
    params=["bwrap", "bwrap-shared", "process", pytest.param("docker", marks=pytest.mark.docker)],
    name="backend",
)
def _backend(request):
    backends.open_or_skip(request.param)
    return request.param


@pytest.fixture(scope="module")
def sandbox(backend):
    return backends.open_or_skip(backend)


@pytest.fixture(scope="module")
def pool(backend):
    with backends.hostile_pool(backend) as pool:
        yield pool


@pytest.fixture(scope="session")
def tools():
    return backends
