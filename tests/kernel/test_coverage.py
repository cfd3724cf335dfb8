"""Hidden cases reach what a kernel without a loop gets wrong: long rows, many rows, many elements, large values."""

import pytest

from orienteer.environments.kernel.targets import chip

TASK = """
import torch
import torch.nn as nn

rows = 4096
cols = 2048


class Model(nn.Module):
    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""
HEAD = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, rows, cols, BLOCK: tl.constexpr):
{body}


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, cols = x.shape
        kernel[({grid},)](x, out, rows, cols, BLOCK={block})
        return out
"""
SOFTMAX = """    for row in range(tl.program_id(0), {rows}, tl.num_programs(0)):
        r = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * cols + r, mask=r < cols, other=float("-inf"))
        power = tl.exp({shifted})
        total = tl.sum(tl.where(r < cols, power, 0.0), axis=0)
        tl.store(out_ptr + row * cols + r, power / total, mask=r < cols)
"""
STABLE = "x - tl.max(x, axis=0)"
DOUBLE = """    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < rows * cols, other=0.0)
    tl.store(out_ptr + i, x * 2.0, mask=i < rows * cols)
"""
WHOLE = "triton.next_power_of_2(cols)"


def softmax(block=WHOLE, grid="rows", rows="rows", shifted=STABLE):
    body = SOFTMAX.format(rows=rows, shifted=shifted)
    return "torch.softmax(x, dim=-1)", HEAD.format(body=body, grid=grid, block=block)


def double(grid):
    return "x * 2", HEAD.format(body=DOUBLE, grid=grid, block=1024)


WRONG = {
    "a block of 64 for every row": softmax(block=64),
    "a block of 1024 for every row": softmax(block=1024),
    "a block as long as the task's row": softmax(block=2048),
    "at most 256 rows": softmax(grid="min(rows, 256)", rows="tl.program_id(0) + 1"),
    "no maximum subtracted": softmax(shifted="x"),
    "at most 40 blocks": double("min(triton.cdiv(rows * cols, 1024), 40)"),
}
RIGHT = {"rows in turns": softmax(grid="min(rows, 40)"), "every block": double("triton.cdiv(rows * cols, 1024)")}


#: Kinds of a wrong value.
_VALUES = ("mismatch", "nonfinite", "special-values", "unwritten-output")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WRONG)
def test_what_only_large_cases_show_is_seen_whatever_the_seed(shared, name, seed):
    result, source = WRONG[name]
    verifier, info, hidden = shared.prepared(TASK.format(result=result), cases=6, seed=seed, chip=chip("Ascend910B3"))
    failed = verifier.judge(info, hidden, source).failed
    assert failed is not None and failed.name == "run" and failed.kind in _VALUES, failed


@pytest.mark.parametrize("name", RIGHT)
def test_the_right_ones_pass(shared, name):
    result, source = RIGHT[name]
    verifier, info, hidden = shared.prepared(TASK.format(result=result), cases=6, seed=0, chip=chip("Ascend910B3"))
    assert verifier.judge(info, hidden, source).failed is None


@pytest.mark.parametrize("cases", [1, 2, 3])
def test_few_cases_are_the_telling_ones(shared, cases):
    result, source = WRONG["a block of 1024 for every row"]
    verifier, info, hidden = shared.prepared(TASK.format(result=result), cases=cases, chip=chip("Ascend910B3"))
    assert verifier.judge(info, hidden, source).failed is not None
    assert len(hidden.cases) >= cases


def test_a_height_is_not_a_width(shared):
    source = TASK.format(result="x * 2").replace("(rows, cols)", "(8, 4, 32, 32)")
    _, _, hidden = shared.prepared(source, cases=6, chip=chip("Ascend910B3"))
    shapes = [call["inputs"][0]["shape"] for case in hidden.cases for call in case["calls"]]
    assert any(shape[-1] != shape[-2] for shape in shapes)


def test_sizes_may_be_arithmetic(shared):
    source = TASK.format(result="x * 2").replace("rows = 4096", "rows = 1024 * 4").replace("2048", "int(2 ** 11)")
    _, info, hidden = shared.prepared(source, cases=6, chip=chip("Ascend910B3"))
    assert {dim.value for dim in info.dims} == {4096, 2048}
    assert len(hidden.cases) >= 6


def test_a_model_with_random_tensors_of_its_own_is_no_task(shared):
    from orienteer.environments.kernel.world import BadTask

    source = TASK.format(result="x + self.table").replace(
        "    def forward",
        "    def __init__(self):\n        super().__init__()\n        self.table = torch.randn(1)\n\n    def forward",
    )
    with pytest.raises(BadTask, match="neither parameters nor buffers"):
        shared.prepared(source, cases=2, chip=chip("Ascend910B3"))
