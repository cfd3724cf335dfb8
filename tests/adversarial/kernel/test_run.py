"""Hostile candidates that pass the static check and are found out when they run (or are lowered)."""

from __future__ import annotations

import pytest
from honest_sources import HONEST_SOURCES
from hostile_runs import RUN, TASK_COPY, changed
from hostile_sources import KERNEL, TASK, file, plain

from orienteer.environments.kernel import targets
from orienteer.evaluators.kernel.cheats import check

CHIP = targets.chip("Ascend910B3")


def judge(shared, source, task=TASK):
    verifier, info, hidden = shared.prepared(task, cases=2, chip=CHIP)
    return verifier.judge(info, hidden, source)


@pytest.mark.parametrize("name", RUN)
def test_refused_with_its_kind(shared, name):
    kinds, source = RUN[name]
    assert check(source) == []
    verdict = judge(shared, source)
    assert verdict.failed is not None, verdict
    assert verdict.failed.kind in kinds, verdict.failed
    assert verdict.failed.detail and "\n" not in verdict.failed.detail
    assert verdict.evidence == ""


def test_copies_by_torch_are_no_kernel(shared):
    source = (
        file(
            "        out = x.t().contiguous()\n        scratch = torch.empty(16)\n"
            "        nothing[(1,)](scratch, BLOCK=16)\n        return out\n",
            kernel="@triton.jit\ndef nothing(p, BLOCK: tl.constexpr):\n    tl.store(p + tl.arange(0, BLOCK), 0.0)\n",
        )
        .replace("self, x, z", "self, x")
        .replace("self, cols", "self")
        .replace("        self.scale = nn.Parameter(torch.randn(cols))\n", "")
    )
    verdict = judge(shared, source, TASK_COPY)
    assert verdict.failed is not None and verdict.failed.kind == "cheat:unused-kernel", verdict


def test_endless_kernel_is_killed(shared, monkeypatch):
    monkeypatch.setattr(shared.world(), "job_seconds", 8)
    source = changed("    for block", "    turn = 1\n    while turn < 2:\n        turn = turn * 1\n    for block")
    verdict = judge(shared, source)
    assert verdict.failed is not None and verdict.failed.kind == "timeout", verdict


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "helper-jit",
        "autotune",
        "heuristics",
        "method-launches",
        "kernel-as-parameter",
        "own-field",
        "two-calls",
        "try-in-dead-code",
        "validation",
        "while-split",
        "windows-line-ends",
        "kernel-debugging",
    ],
)
def test_honest_candidates_run(shared, name):
    extra = {
        "own-field": file(members="    BLOCK = 64\n").replace("BLOCK=1024", "BLOCK=self.BLOCK"),
        "two-calls": file(
            plain(
                "mid, out = torch.empty_like(x), torch.zeros(x.shape)\n"
                "for row in range(x.shape[0]):\n"
                "    axpy[(1,)](x[row].contiguous(), self.scale, z[row].contiguous(), mid[row], x.shape[1], x.shape[1], BLOCK=128)\n"
                "second[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](mid, out, x.numel(), BLOCK=128)\nreturn out"
            ),
            kernel=KERNEL + "\n@triton.jit\ndef second(a, b, n, BLOCK: tl.constexpr):\n"
            "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    tl.store(b + i, tl.load(a + i, mask=i < n), mask=i < n)\n",
        ).replace("empty_like(x), torch", "empty(x.shape), torch"),
    }
    source = extra.get(name) or HONEST_SOURCES[name]
    if name == "helper-jit":
        source = source.replace("return tl.where(v > 0, v, tl.exp(v) - 1)", "return v + 0.0")
    if name in ("autotune", "heuristics"):
        source = source.replace(", BLOCK=1024)", ")")
    assert check(source) == []
    verdict = judge(shared, source)
    assert verdict.failed is None, verdict
    assert [gate.status for gate in verdict.gates] == ["passed", "skipped", "passed", "passed"]
    assert verdict.evidence == "E0"
