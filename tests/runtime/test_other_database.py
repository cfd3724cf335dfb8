"""The same run on another database than SQLite: named by ORIENTEER_TEST_DATABASE, an empty one."""

from __future__ import annotations

import os

import pytest
from runtime_toys import fingerprint

from orienteer.agents.runtime.config import Budgets, RunConfig
from orienteer.agents.runtime.engine import resume_run, start_run
from orienteer.agents.runtime.records import remove_run, show_run

URL = os.environ.get("ORIENTEER_TEST_DATABASE", "")


@pytest.mark.skipif(not URL, reason="ORIENTEER_TEST_DATABASE names no database")
def test_a_run_and_its_resume_are_the_same_there(home):
    asked = {"method": "runtime_toys:Climb", "tasks": ["one", "two"], "model": "offline", "workers": 3, "seed": 2**40}
    base = start_run(RunConfig(**asked))
    capped = start_run(RunConfig(**asked, database=URL, budgets=Budgets(evals=5)))
    assert capped.status == "budget"
    final = resume_run(capped.id, {"evals": None}, database=URL)
    assert fingerprint(show_run(final.id, database=URL)) == fingerprint(show_run(base.id))
    remove_run(final.id, database=URL)
