"""The offline proposer's building blocks: index arithmetic, rewriting of shapes, and kernels that are really run."""

import ast
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.environments.kernel import shapes
from orienteer.environments.kernel.targets import chip
from orienteer.environments.kernel.tasks import KernelTask, find_tasks, shipped_names
from orienteer.kernels.blocks.emit import Unsupported
from orienteer.kernels.blocks.graph import Graph, Node, Ref, evaluate_size
from orienteer.kernels.blocks.index import Index, linear, product, reshape, split
from orienteer.kernels.blocks.lower import lower
from orienteer.kernels.blocks.module import assemble
from orienteer.kernels.blocks.schedule import Schedule
from orienteer.kernels.blocks.search import TritonSearch

SIZES = st.lists(st.integers(1, 6), min_size=0, max_size=4)


def evaluate(text, **names):
    return eval(compile(ast.parse(text, mode="eval"), "index", "eval"), {}, names)


# -- index arithmetic: laws ------------------------------------------------------------------------------------------


@given(SIZES)
def test_split_undoes_linear(sizes):
    shape = [str(n) for n in sizes]
    count = math.prod(sizes)
    parts = split(Index("at"), shape)
    offset = linear([Index(f"p{i}") if size != "1" else Index("0") for i, size in enumerate(shape)], shape)
    for at in range(count):
        position = [evaluate(item.text, at=at) for item in parts]
        assert tuple(position) == tuple(int(n) for n in np.unravel_index(at, sizes)) if sizes else position == []
        assert evaluate(offset.text, **{f"p{i}": p for i, p in enumerate(position)}) == at


@st.composite
def views(draw):
    """A shape and another shape of the same number of elements."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def grouped(order):
        out, group = [], 1
        for factor in order:
            group *= factor
            if draw(st.booleans()):
                out.append(group)
                group = 1
        return [*out, group]

    return grouped(factors), grouped(factors)


@given(views())
def test_reshape_names_the_same_element(pair):
    old, new = pair
    names = [Index(f"p{i}") if n != 1 else Index("0") for i, n in enumerate(new)]
    mapped = reshape(names, [str(n) for n in old], [str(n) for n in new])
    for at in range(math.prod(new)):
        position = np.unravel_index(at, new)
        found = [evaluate(item.text, **{f"p{i}": int(p) for i, p in enumerate(position)}) for item in mapped]
        assert np.ravel_multi_index(tuple(found), old) == at


def test_shared_dimensions_cost_no_division():
    index = [Index("b"), Index("h"), Index("r")]
    assert [i.text for i in reshape(index, ["d0", "d1", "d2"], ["d0", "d1", "d2"])] == ["b", "h", "r"]
    assert [i.text for i in reshape([Index("b"), Index("r")], ["d0", "1", "d2"], ["d0", "d2"])] == ["b", "0", "r"]


@given(st.lists(st.integers(1, 50), max_size=4))
def test_product_is_the_product(sizes):
    assert evaluate_size(product([str(n) for n in sizes]), {}) == math.prod(sizes)


@pytest.mark.parametrize("text", ["__import__('os')", "s0.real", "[1][0]", "'a'", "s0 if 1 else 2", "lambda: 1"])
def test_a_size_is_arithmetic_only(text):
    with pytest.raises((ValueError, KeyError)):
        evaluate_size(text, {"s0": 3})


# -- shapes of a task ------------------------------------------------------------------------------------------------

TASK = '''"""Text with 4096 and get_inputs in it."""
import torch
import torch.nn as nn

batch_size: int = 8
width, height = 640, 480
shape = (128, 3)
groups = 4


class Model(nn.Module):
    def forward(self, x):
        return x * 4096


def get_inputs():
    return [torch.randn(batch_size, width, height), torch.randn(2048, 7)]


def get_init_inputs():
    return [groups, 96]
'''


def test_dimensions_are_the_sizes_and_not_the_hyperparameters():
    found = {dim.name.split("@")[0]: dim.value for dim in shapes.dimensions(TASK)}
    assert found == {
        "batch_size": 8,
        "width": 640,
        "height": 480,
        "shape[0]": 128,
        "literal:2048": 2048,
        "literal:96": 96,
    }


@given(st.integers(1, 10**7), st.integers(1, 10**7))
def test_rewriting_changes_the_named_numbers_only(first, second):
    literal = next(dim.name for dim in shapes.dimensions(TASK) if dim.value == 2048)
    changed = shapes.rewrite(TASK, {"width": first, literal: second})
    assert changed == TASK.replace("640", str(first), 1).replace("2048", str(second), 1)
    assert len(changed.splitlines()) == len(TASK.splitlines())


def test_hidden_assignments_cover_the_kinds_and_repeat_by_seed():
    dims = shapes.dimensions(TASK)
    proposed = shapes.assignments(dims, random.Random(7))
    assert proposed == shapes.assignments(dims, random.Random(7))
    assert proposed != shapes.assignments(dims, random.Random(8))
    values = {value for _, assignment in proposed for value in assignment.values()}
    assert 1 in values and any(value > 256 for value in values)
    assert any(value > 2 and all(value % d for d in range(2, value)) for value in values)
    assert all(set(assignment) == {dim.name for dim in dims} for _, assignment in proposed)


def test_tracing_sizes_are_distinct():
    for assignment in shapes.trace_assignments(shapes.dimensions(TASK)):
        assert all(value > shapes.SMALL for value in assignment.values())


# -- lowering without torch ------------------------------------------------------------------------------------------


def graph_of(*nodes, outputs=("out",)):
    leaves = {"x": Node("x", "input", shape=("s0", "s1"))}
    return Graph(
        nodes=leaves | {node.name: node for node in nodes},
        outputs=outputs,
        inputs=("x",),
        state={},
        sizes={"s0": ("x", 0), "s1": ("x", 1)},
        hints={"s0": 64, "s1": 4096},
        labels={"x": "x"},
    )


def test_an_operator_without_a_block_is_named():
    graph = graph_of(Node("out", "aten.sort", (Ref("x"), -1), shape=("s0", "s1")))
    with pytest.raises(Unsupported, match=r"aten\.sort"):
        lower(graph, Schedule(), "sort")


def test_a_row_program_reads_its_row_once():
    shape, row = ("s0", "s1"), ("s0", "1")
    graph = graph_of(
        Node("top", "aten.amax", (Ref("x"), (1,), True), shape=row),
        Node("less", "aten.sub", (Ref("x"), Ref("top")), shape=shape),
        Node("power", "aten.exp", (Ref("less"),), shape=shape),
        Node("total", "aten.sum", (Ref("power"), (1,), True), shape=row),
        Node("out", "aten.div", (Ref("power"), Ref("total")), shape=shape),
    )
    whole = lower(graph, Schedule(whole_row=8192), "softmax")
    assert [kernel.block for kernel in whole.kernels] == ["row-whole"]
    assert whole.kernels[0].source().count("tl.load") == 1
    blocked = lower(graph, Schedule(whole_row=1), "softmax")
    assert [kernel.block for kernel in blocked.kernels] == ["row-blocked"]
    # One pass for the maximum, one for the sum, one for the result.
    assert blocked.kernels[0].source().count("for start in range") == 3


def test_a_reduction_of_another_shape_is_stored_first():
    graph = graph_of(
        Node("rows", "aten.sum", (Ref("x"), (1,), True), shape=("s0", "1")),
        Node("columns", "aten.sum", (Ref("x"), (0,), True), shape=("1", "s1")),
        Node("out", "aten.add", (Ref("rows"), Ref("columns")), shape=("s0", "s1")),
    )
    plan = lower(graph, Schedule(), "both")
    assert len(plan.kernels) == 2 and plan.stored[-1] == "out"


# -- kernels that run ------------------------------------------------------------------------------------------------

OPERATOR = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

batch = 24
width = 320
height = 40


class Model(nn.Module):
    def __init__(self{init_arguments}):
        super().__init__()
        {init}

    def forward(self, {arguments}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{init_values}]
"""
MATRIX = "torch.randn(batch, width)"
IMAGE = "torch.randn(batch, width, height)"
PICTURE = "torch.randn(2, 6, height, height)"
#: name -> (forward, inputs, further facts, blocks that must have been used)
OPERATORS = {
    "broadcast": ("x * torch.tanh(y) + 2", f"{MATRIX}, torch.randn(width)", {"arguments": "x, y"}, "element"),
    "permuted": ("x.permute(2, 0, 1).contiguous()", IMAGE, {}, "tile"),
    "columns": ("torch.softmax(x, dim=1)", IMAGE, {}, "row-columns"),
    "variance": ("torch.var(x, dim=-1)", IMAGE, {}, "row-whole"),
    "first largest": ("torch.argmax(x, dim=1)", IMAGE, {}, "row-columns"),
    "any": ("(x > 2).any(dim=1)", MATRIX, {}, "row-whole"),
    "loss": (
        "F.cross_entropy(x, y)",
        f"{MATRIX}, torch.randint(0, width, (batch,))",
        {"arguments": "x, y"},
        "row-whole",
    ),
    "running product": ("torch.cumprod(x, dim=1)", f"{MATRIX} * 0.1 + 1", {}, "scan-whole"),
    "reversed sum": ("torch.cumsum(x.flip(1), dim=1).flip(1)", MATRIX, {}, "scan-whole"),
    "transposed product": (
        "a.T @ b.T",
        "torch.randn(width, batch), torch.randn(height, width)",
        {"arguments": "a, b"},
        "matmul",
    ),
    "thin product": ("a @ b", f"{MATRIX}, torch.randn(width, 1)", {"arguments": "a, b"}, "row-whole"),
    "half product": ("a @ b", f"{MATRIX}.half(), torch.randn(width, height).half()", {"arguments": "a, b"}, "matmul"),
    "attention": (
        "torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ k",
        "torch.randn(3, batch, height), torch.randn(3, batch, height)",
        {"arguments": "q, k"},
        "matmul",
    ),
    "norm in groups": (
        "self.norm(x)",
        "torch.randn(3, width, height)",
        {"init": "self.norm = nn.GroupNorm(4, width)", "init_arguments": ", width", "init_values": "width"},
        "row",
    ),
    "convolution": (
        "self.conv(x)",
        PICTURE,
        {
            "init": "self.conv = nn.Conv2d(6, width, 3, stride=2, padding=1)",
            "init_arguments": ", width",
            "init_values": "width",
        },
        "matmul",
    ),
    "padded average": ("F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", PICTURE, {}, "element"),
    "large window": ("F.max_pool2d(x, 4, 1, 1)", PICTURE, {}, "row-taps"),
    "joined": ("torch.cat([x, y * 2], dim=1)", f"{MATRIX}, torch.randn(batch, height)", {"arguments": "x, y"}, "join"),
    "gathered": ("x[:, y]", f"{MATRIX}, torch.randint(-5, 5, (height,))", {"arguments": "x, y"}, "element"),
    "nan": ("torch.relu(torch.log(x))", MATRIX, {}, "element"),
    "place of nan": ("torch.argmax(torch.log(x), dim=0)", MATRIX, {}, "row-columns"),
    "smallest five": ("torch.topk(torch.log(x), 5, dim=1, largest=False)[0]", MATRIX, {}, "top-k"),
    "largest places": ("torch.topk(x.flip(1), 3)[1]", MATRIX, {}, "top-k"),
    "two steps": ("torch.mean((x - 1) ** 2)", IMAGE, {}, "row"),
    "signal pooled": ("F.max_pool1d(x, 3, 2, 1)", IMAGE, {}, "element"),
    "over batch and picture": ("x - x.mean(dim=(0, 2, 3), keepdim=True)", PICTURE, {}, "row-blocked"),
    "scaled picture": ("x * y[:, None, None] + 1", f"{PICTURE}, torch.randn(6)", {"arguments": "x, y"}, "element"),
}


def task_of(name):
    result, inputs, facts, _ = OPERATORS[name]
    values = {"arguments": "x", "init": "pass", "init_arguments": "", "init_values": ""} | facts
    return KernelTask(name.replace(" ", "_"), OPERATOR.format(result=result, inputs=inputs, **values))


def judged(shared, task, schedule):
    # A chip without its compiler: the compile gate is skipped, what is left is the run.
    verifier, info, hidden = shared.prepared(task.source, task.name, cases=4, chip=chip("Ascend910B3"))
    graph = shared.world().trace(info)
    assert not isinstance(graph, str), graph
    plan = lower(graph, schedule, task.name)
    source = assemble(graph, plan, schedule, task.source, task.name)
    return plan, verifier.judge(info, hidden, source)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_right_on_hidden_shapes(shared, name):
    plan, verdict = judged(shared, task_of(name), Schedule(programs=64))
    assert verdict.failed is None, verdict.failed
    assert verdict.evidence == "E0"
    assert any(block.startswith(OPERATORS[name][3]) for block in plan.blocks), plan.blocks


#: Structure that a schedule may choose, and operators whose program it changes.
STRUCTURE = {
    "tiles of rows": ({"row_tile": 4096}, ["variance", "first of many"]),
    "tiles of walked rows": ({"row_tile": 4096, "whole_row": 1, "row_block": 64}, ["loss", "first of many"]),
    "rows of columns": ({"column_rows": 8}, ["columns", "first largest"]),
    "tiles of lines": ({"line_tile": 1024}, ["scaled picture"]),
    "two steps": ({"two_steps": 1}, ["two steps"]),
    "stored statistics": ({"store_statistics": 1}, ["columns"]),
    "tap by tap": ({"direct_conv": 1}, ["convolution"]),
    "cut inner dimension": ({"split_k": 4, "tile_k": 16}, ["transposed product"]),
    "grouped tiles": ({"group_m": 2, "tile_m": 16, "tile_n": 16}, ["transposed product"]),
    "unturned tiles": ({"turn_tiles": 0}, ["transposed product"]),
}
OPERATORS["first of many"] = ("torch.argmin(torch.round(x), dim=-1)", IMAGE, {}, "row-whole")


@pytest.mark.parametrize(
    ("structure", "name"), [(key, name) for key, (_, names) in STRUCTURE.items() for name in names]
)
def test_the_structure_of_a_schedule_does_not_change_the_result(shared, structure, name):
    change, _ = STRUCTURE[structure]
    task = task_of(name)
    base = {"programs": 8, "row_tile": 1, "line_tile": 1}
    _, verdict = judged(shared, task, Schedule(**{**base, **change}))
    assert verdict.failed is None, verdict.failed


@pytest.mark.parametrize("name", ["loss", "variance", "any", "reversed sum", "running product"])
def test_rows_walked_in_blocks_are_right(shared, name):
    plan, verdict = judged(shared, task_of(name), Schedule(programs=8, whole_row=1, row_block=64))
    assert verdict.failed is None, verdict.failed
    assert any("blocked" in block or "columns" in block for block in plan.blocks)


def test_every_shipped_task_has_kernels_under_the_first_and_a_random_schedule(shared):
    rng = random.Random(3)
    for name in shipped_names():
        (task,) = find_tasks([name])
        graph = shared.world().trace(shared.world().inspect(task))
        assert not isinstance(graph, str), (name, graph)
        for target in ("npu", "triton"):
            search = TritonSearch(target)
            first = search.first(graph)
            values = search._values(graph)
            for schedule in (first, {key: rng.choice(items) for key, items in values.items()}):
                draft = search.write(graph, name, task.source, schedule)
                ast.parse(draft.source)
                assert draft.blocks, name


@settings(deadline=None)
@given(st.sampled_from(shipped_names()))
def test_shipped_tasks_have_dimensions_and_text(name):
    (task,) = find_tasks([name])
    assert shapes.dimensions(task.source)
    assert ast.get_docstring(ast.parse(task.source))
