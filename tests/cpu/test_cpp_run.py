"""Compiling, running and measuring C++ candidates for real."""

import importlib.util
from pathlib import Path

import pytest

from orienteer.environments.kernel import cpu_compile
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.errors import MissingPrerequisite
from orienteer.evaluators.kernel import cpp_object

_spec = importlib.util.spec_from_file_location("cpp_sources", Path(__file__).with_name("cpp_sources.py"))
sources = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sources)


@pytest.fixture(scope="module")
def judged(shared):
    from orienteer.evaluators.kernel.cpu import CpuVerifier

    world = shared.world()
    try:
        verifier = CpuVerifier(world, cases=4, seconds=0)
    except MissingPrerequisite as error:
        pytest.skip(str(error))
    info = world.inspect(KernelTask("add", sources.TASK))
    hidden = verifier.hidden_cases(info)
    return lambda source: verifier.judge(info, hidden, source)


@pytest.fixture
def impatient(monkeypatch):
    """A candidate that hangs is killed after two seconds."""
    from dataclasses import replace

    from orienteer.environments.kernel import world

    monkeypatch.setattr(world, "CPU_RUN_LIMITS", replace(world.CPU_RUN_LIMITS, wall_s=2))


@pytest.mark.parametrize("name", sources.HONEST)
def test_honest_candidates_are_right(judged, name):
    verdict = judged(sources.HONEST[name])
    assert verdict.failed is None, verdict.failed
    assert verdict.evidence == "E1:cpu"
    assert [gate.status for gate in verdict.gates] == ["passed", "passed", "passed", "passed", "skipped"]


@pytest.mark.parametrize("name", sources.COMPILED)
def test_what_the_compiler_made_is_refused(judged, name):
    wanted, source = sources.COMPILED[name]
    failed = judged(source).failed
    assert failed is not None
    assert failed.kind == wanted, failed


@pytest.mark.parametrize("name", sources.RUN)
def test_wrong_candidates_are_refused(judged, name, impatient):
    wanted, source = sources.RUN[name]
    failed = judged(source).failed
    assert failed is not None
    assert failed.kind in wanted.split(), failed
    assert failed.detail


def test_a_compile_error_names_the_line_of_the_candidate(judged):
    source = sources.program("    out[0] = nothing;\n" + sources.LOOP)
    line = source.splitlines().index("    out[0] = nothing;") + 1
    detail = judged(source).failed.detail
    assert detail.startswith(f"line {line}: ")
    assert "nothing" in detail


def test_an_error_in_a_header_is_put_down_to_the_candidates_line():
    log = (
        "In file included from /usr/include/c++/12/vector:64,\n                 from candidate.cpp:3:\n"
        "/usr/include/c++/12/bits/stl_vector.h:99:5: error: no type named 'x'\n"
    )
    assert cpu_compile.first_error(log) == "line 3: no type named 'x'"


def test_only_the_candidates_own_lines_are_left_after_the_preprocessor():
    text = '# 1 "candidate.cpp"\n# 1 "/usr/include/x.h" 1\nint hidden;\n# 2 "candidate.cpp" 2\nint a;\n\nint b;\n'
    assert cpu_compile.own_lines(text).splitlines() == ["", "int a;", "", "int b;"]


def test_garbage_is_no_object():
    for data in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 100, b"MZ" * 64):
        assert cpp_object.check(data).code == "object"


def test_the_example_of_the_documentation_is_right(shared):
    import re

    from orienteer.environments.kernel.tasks import find_tasks
    from orienteer.evaluators.kernel.cpu import CpuVerifier

    text = (Path(__file__).parents[2] / "docs" / "cpu.md").read_text()
    example = next(
        part for part in re.findall(r"```c\+\+\n(.*?)```", text, re.S) if "sigmoid" not in part and "omp" in part
    )
    world = shared.world()
    verifier = CpuVerifier(world, cases=3, seconds=0)
    info = world.inspect(find_tasks(["sigmoid_gate"])[0])
    verdict = verifier.judge(info, verifier.hidden_cases(info), example)
    assert verdict.failed is None, verdict.failed


def test_the_documentation_lists_the_headers():
    from orienteer.evaluators.kernel.cpp_cheats import HEADERS

    text = (Path(__file__).parents[2] / "docs" / "cpu.md").read_text()
    for name in HEADERS:
        assert f"`{name}`" in text or (name.endswith(".h") and f"`c{name[:-2]}`" in text), name
