"""The static check against hostile candidates, without running any."""

from __future__ import annotations

import pytest
from honest_sources import HONEST_SOURCES
from hostile_sources import STATIC, file

from orienteer.environments.kernel.tasks import shipped_folder
from orienteer.evaluators.kernel.cheats import check


@pytest.mark.parametrize("name", STATIC)
def test_refused_with_its_code(name):
    code, source = STATIC[name]
    found = check(source)
    assert code in {finding.code for finding in found}, found
    assert all(finding.message and "\n" not in finding.message for finding in found)


def test_the_frame_of_the_table_is_honest():
    assert check(file()) == []


def test_findings_come_in_the_order_of_lines_with_their_lines():
    found = check(STATIC["torch-function"][1])
    lines = STATIC["torch-function"][1].splitlines()
    assert [f.line for f in found] == sorted(f.line for f in found)
    assert "torch.addcmul" in lines[found[0].line - 1]


@pytest.mark.parametrize("name", HONEST_SOURCES)
def test_honest_candidates_pass(name):
    assert check(HONEST_SOURCES[name]) == []


@pytest.mark.parametrize("path", sorted(shipped_folder().glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_constructors_of_the_shipped_tasks_pass(path):
    """The offline proposer keeps a task's constructor word for word."""
    codes = {finding.code for finding in check(path.read_text())}
    assert codes <= {"contract"}
