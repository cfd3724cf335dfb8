"""Every row of the table of rejections has a hostile candidate that is refused with the row's own code."""

from __future__ import annotations

import pytest
from hostile_runs import RUN
from hostile_sources import STATIC, TASK

from orienteer.environments.kernel import targets
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.environments.kernel.world import BadTask
from orienteer.evaluators.kernel.gates import KernelVerifier
from orienteer.evaluators.kernel.latency.measured import plausible
from orienteer.evaluators.kernel.rejections import OTHERS, ROWS, advice, find
from orienteer.evaluators.kernel.verdict import CLASSES, Latency, rejection_class

#: Row -> names of hostile candidates. Rows 19 and 20 are about a task and about a time; see below.
HOSTILE = {
    1: ("torch-function", "operators"),
    2: ("kernel-never-launched",),
    3: ("try-fallback",),
    4: ("inherits-model",),
    5: ("tail-left-out",),
    6: ("first-call-only", "counter-that-fires-late"),
    7: ("constant",),
    8: ("input-changed",),
    9: ("stream",),
    10: ("import-threading",),
    11: ("lazy-tensor",),
    12: ("patch-torch",),
    13: ("later-calls-do-nothing",),
    14: ("half-precision",),
    15: ("nan-becomes-zero",),
    16: ("writes-beside-the-output",),
    17: ("parameter-changed",),
    18: ("builtin-open",),
    21: ("kernel-in-its-own-text",),
}
DEGENERATE = {
    "ignores-inputs": "self.scale.expand(x.shape[0], -1) * 1.0",
    "constant": "x * 0.0 + z * 0.0 + self.scale * 0.0",
    "difference-of-equals": "torch.relu(x.abs() + 1.0) - (x.abs() + 1.0) + z * 0.0",
}


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.row not in (19, 20)], ids=lambda row: f"{row.row}-{row.name}"
)
def test_a_hostile_candidate_has_the_code_of_its_row(shared, row):
    verifier, info, hidden = shared.prepared(TASK, cases=2, chip=targets.chip("Ascend910B3"))
    for name in HOSTILE[row.row]:
        source = STATIC[name][1] if name in STATIC else RUN[name][1]
        failed = verifier.judge(info, hidden, source).failed
        assert failed is not None and failed.kind == row.codes[0], (name, failed)
        assert failed.detail.endswith(f"to do: {row.advice}") and "\n" not in failed.detail
        assert rejection_class(failed.kind) == row.rejection_class


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_task_is_turned_away(shared, name):
    task = KernelTask("degenerate", TASK.replace("x * self.scale + z", DEGENERATE[name]))
    info = shared.world().inspect(task)
    with pytest.raises(BadTask, match=r"^degenerate-task: "):
        KernelVerifier(shared.world(), cases=2).hidden_cases(info)


def test_weak_signs_are_named(shared):
    source = TASK.replace("x * self.scale + z", "(x * self.scale + z) * 1e-4")
    info = shared.world().inspect(KernelTask("weak", source))
    hidden = KernelVerifier(shared.world(), cases=2).hidden_cases(info)
    assert set(hidden.flags) == {"narrow-range", "low-deviation", "low-variation"}
    assert shared.prepared(TASK, cases=2, chip=targets.chip("Ascend910B3"))[2].flags == ()


def test_impossible_speed():
    gate = plausible(Latency(1e-9, "E4:cuda", "cuda", "one call", floor_s=1e-6))
    assert gate.status == "failed" and find(gate.kind).row == 20


def test_the_table_is_whole():
    assert [row.row for row in ROWS] == list(range(1, 22))
    own = [row.codes[0] for row in ROWS]
    everywhere = [code for row in [*ROWS, *OTHERS] for code in row.codes]
    assert len(set(own)) == 21 and len(everywhere) == len(set(everywhere))
    for row in [*ROWS, *OTHERS]:
        assert row.advice and "\n" not in row.advice and row.rejection_class in CLASSES
    assert set(HOSTILE) == {row.row for row in ROWS} - {19, 20}
    assert advice("compile:something-new") and advice("no such code") == ""
