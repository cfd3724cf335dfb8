"""The roofline estimate for GPUs: what is counted in Triton IR, occupancy, and real kernels from end to end."""

from __future__ import annotations

import pytest

from orienteer.environments.kernel import targets
from orienteer.environments.kernel.tasks import KernelTask
from orienteer.environments.kernel.world import TaskInfo
from orienteer.evaluators.kernel.latency import gpu, ttir
from orienteer.evaluators.kernel.latency.chips import GPUS
from orienteer.evaluators.kernel.latency.core import Unmodelled
from orienteer.evaluators.kernel.latency.roofline import Floor, floor
from orienteer.kernels.blocks.graph import Graph, Node, Ref

SM90 = targets.arch("sm_90")
HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"
KERNELS = {
    "copy": """@triton.jit
def copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0), mask=i < n)
""",
    "strided": """@triton.jit
def strided(x_ptr, o_ptr, n, s, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + i, tl.load(x_ptr + i * s, mask=i < n, other=0.0), mask=i < n)
""",
    "row": """@triton.jit
def row(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(o_ptr + r, tl.sum(tl.load(x_ptr + r * n + i, mask=i < n, other=0.0), axis=0))
""",
    "pointers": """@triton.jit
def pointers(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    p = x_ptr + tl.arange(0, BLOCK)
    left = n
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, tl.cdiv(n, BLOCK)):
        acc += tl.load(p, mask=tl.arange(0, BLOCK) < left, other=0.0)
        p += BLOCK
        left -= BLOCK
    tl.store(o_ptr, tl.sum(acc, axis=0))
""",
    "gather": """@triton.jit
def gather(x_ptr, j_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.load(j_ptr + i, mask=i < n, other=0)
    tl.store(o_ptr + i, tl.load(x_ptr + j, mask=i < n, other=0.0), mask=i < n)
""",
    "while_loop": """@triton.jit
def while_loop(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    i = 0
    while i < tl.load(x_ptr + i).to(tl.int32):
        i += 1
    tl.store(o_ptr, i.to(tl.float32))
""",
}


def model(launch, inputs="x"):
    body = f"    def forward(self, {inputs}):\n        o = torch.empty(x.shape, device=x.device)\n"
    return f"\n\nclass ModelNew(nn.Module):\n{body}        {launch}\n        return o\n"


def lowered(shared, name, launch, shapes, inputs="x"):
    specs = [
        {"shape": list(shape), "stride": [1] * len(shape), "dtype": dtype, "device": "cpu"} for shape, dtype in shapes
    ]
    info = TaskInfo(KernelTask("t", ""), specs, [], [], [[], {}], True)
    header, blobs = shared.world().lower(HEAD + KERNELS[name] + model(launch, inputs), info)
    assert "error" not in header, header
    kernel = header["kernels"][0]
    return {**kernel, **kernel["calls"][0]}, blobs[kernel["blob"]].decode()


class TestCounts:
    def test_masked_tails_are_not_counted(self, shared):
        kernel, text = lowered(shared, "copy", "copy[(4,)](x, o, 1000, BLOCK=256)", [((1000,), "float32")])
        found = ttir.count(text, kernel)
        assert found.read == {"x_ptr": 4000} and found.wanted == 8000

    def test_a_stride_moves_whole_sectors(self, shared):
        launch = "strided[(2,)](x, o, 256, {}, BLOCK=128)"
        shape = [((4096,), "float32")]
        twice = ttir.count(*reversed(lowered(shared, "strided", launch.format(2), shape)))
        far = ttir.count(*reversed(lowered(shared, "strided", launch.format(16), shape)))
        assert twice.read["x_ptr"] == pytest.approx(256 * 8, rel=0.02)
        assert far.read["x_ptr"] == 256 * 32 and far.wanted == 2 * 1024

    def test_a_row_that_is_shorter_than_its_block(self, shared):
        kernel, text = lowered(shared, "row", "row[(64,)](x, o, 700, BLOCK=1024)", [((64, 700), "float32")])
        found = ttir.count(text, kernel)
        assert found.wanted == 64 * 700 * 4 + 64 * 4 and found.written == {"o_ptr": 64 * 32}
        assert found.simple == 64 * 1024

    def test_pointers_that_move_in_a_loop(self, shared):
        launch = "pointers[(1,)](x, o, 10000, BLOCK=256)"
        kernel, text = lowered(shared, "pointers", launch, [((10000,), "float32")])
        assert ttir.count(text, kernel).wanted == 10000 * 4 + 4

    def test_addresses_that_depend_on_data(self, shared):
        launch = "gather[(4,)](x, j, o, 1024, BLOCK=256)"
        kernel, text = lowered(shared, "gather", launch, [((1024,), "float32"), ((1024,), "int64")], "x, j")
        found = ttir.count(text, kernel)
        assert found.irregular == 4096 and found.read["j_ptr"] == 8192

    def test_a_loop_over_data(self, shared):
        launch = "while_loop[(1,)](x, o, 10, BLOCK=16)"
        kernel, text = lowered(shared, "while_loop", launch, [((10,), "float32")])
        with pytest.raises(Unmodelled):
            ttir.count(text, kernel)


class TestOccupancy:
    @pytest.mark.parametrize(
        ("arch", "facts", "blocks", "limit"),
        [
            # The programming guide's table: 65,536 registers, 2,048 threads and 32 blocks a multiprocessor.
            ("sm_90", {"registers": 32, "shared": 0, "num_warps": 4}, 16, "threads"),
            ("sm_90", {"registers": 255, "shared": 0, "num_warps": 4}, 2, "registers"),
            ("sm_90", {"registers": 32, "shared": 65536, "num_warps": 4}, 3, "shared memory"),
            ("sm_80", {"registers": 16, "shared": 0, "num_warps": 1}, 32, "blocks"),
            ("gfx942", {"registers": 128, "shared": 32768, "num_warps": 4}, 2, "shared memory"),
        ],
    )
    def test_limits(self, arch, facts, blocks, limit):
        found = gpu.occupancy(targets.arch(arch), facts)
        assert found["blocks"] == blocks and found["limited_by"] == limit
        assert 0 < found["occupancy"] <= 1


CALL = {"grid": [1024, 1, 1], "tensors": {"x": 1 << 30, "o": 1 << 30}, "count": 1}
BINARY = {"registers": 32, "shared": 0, "num_warps": 4, "stack": 0}


class TestLaunch:
    def seconds(self, counts, **binary):
        return gpu.launch(counts, CALL, {**BINARY, **binary}, SM90, GPUS["sm_90"])

    def test_bytes_over_bandwidth(self):
        found = self.seconds(ttir.Counts(read={"x": 2.0**30}, written={"o": 2.0**30}))
        assert found["bottleneck"] == "memory"
        assert found["seconds"] == pytest.approx(2**31 / 3.35e12 + 4e-6)

    def test_products_over_peak_and_tail(self):
        found = self.seconds(ttir.Counts(products={"16": 1e12}))
        # 1,024 instances are 8 rounds on 132 multiprocessors, the last one not full.
        assert found["bottleneck"] == "compute" and found["tail"] == pytest.approx(1024 / (8 * 132), abs=1e-3)
        assert found["seconds"] == pytest.approx(1e12 / 989e12 * 8 * 132 / 1024 + 4e-6)

    def test_what_is_loaded_again_comes_from_the_cache_when_it_fits(self):
        call = {**CALL, "tensors": {"x": 1 << 20}}
        memory, cache = gpu.traffic(ttir.Counts(read={"x": 1e9}), call["tensors"], GPUS["sm_90"])
        assert memory == 1 << 20 and cache == 1e9
        memory, _ = gpu.traffic(ttir.Counts(read={"x": 1e12}), {"x": 1 << 34}, GPUS["sm_90"])
        assert memory > 0.99e12

    def test_spills_cost(self):
        counts = ttir.Counts(read={"x": 1e6})
        assert self.seconds(counts, stack=4096)["seconds"] > self.seconds(counts)["seconds"]

    def test_few_instances_use_a_part_of_the_device(self):
        counts = ttir.Counts(read={"x": 2.0**30})
        one = gpu.launch(counts, {**CALL, "grid": [1, 1, 1]}, BINARY, SM90, GPUS["sm_90"])
        assert one["seconds"] > 50 * self.seconds(counts)["seconds"]


def graph(op, shapes, result, *arguments):
    nodes = {
        name: Node(name, "input", shape=tuple(str(n) for n in shape), dtype="float16") for name, shape in shapes.items()
    }
    shape = tuple(str(n) for n in result)
    nodes["r"] = Node("r", op, args=arguments, shape=shape, dtype="float16")
    return Graph(nodes, ("r",), tuple(shapes), {}, {}, {})


class TestFloor:
    def info(self, *shape):
        output = {"shape": list(shape), "dtype": "float16"}
        return TaskInfo(KernelTask("t", ""), [], [output], [], [[], {}], True)

    def test_a_product(self):
        found = floor(self.info(64, 32), graph("aten.mm", {"a": (64, 16), "b": (16, 32)}, (64, 32), Ref("a"), Ref("b")))
        assert found == Floor(2 * (64 * 16 + 16 * 32 + 64 * 32), {16: 2 * 64 * 32 * 16})

    def test_a_table_that_is_read_in_part(self):
        table = graph("aten.embedding", {"t": (1000, 8), "j": (4,)}, (4, 8), Ref("t"), Ref("j"))
        assert floor(self.info(4, 8), table).bytes == 2 * 4 * 8

    def test_without_a_graph_only_outputs_are_certain(self):
        assert floor(self.info(10, 10)) == Floor(200, {})

    def test_seconds_are_the_larger_of_memory_and_products(self):
        chip = targets.chip("Ascend910B1")
        assert Floor(16 * 10**11, {}).seconds(chip) == pytest.approx(1.0)
        # 24 cores of 16x16x16 products of float16 a cycle at 1.85 GHz.
        assert Floor(0, {16: 10**15}).seconds(chip) == pytest.approx(1e15 / (24 * 8192 * 1.85e9))
        assert Floor(0, {16: 989 * 10**12}).seconds(SM90) == pytest.approx(1.0)


class TestVerdict:
    def test_a_verdict_has_the_estimate_and_the_binarys_facts(self, shared):
        from task_sources_for_latency import DOUBLE, TASK

        archs = tuple(targets.arch(name) for name in ("sm_90", "gfx942"))
        verifier, info, hidden = shared.prepared(TASK, cases=2, archs=archs)
        verdict = verifier.judge(info, hidden, DOUBLE)
        assert verdict.failed is None and verdict.evidence == "E1:sm_90,gfx942"
        found = verdict.latency
        assert found.level == "E2:sm_90" and found.how == "roofline estimate, uncalibrated"
        # Each of 300,000 numbers is read and written once.
        assert found.floor_s == pytest.approx(2.4e6 / 3.35e12)
        # Some of the instances are counted for all of them.
        assert found.facts["kernels"][0]["memory_bytes"] == pytest.approx(2.4e6, rel=0.1)
        assert found.facts["others"]["gfx942"]["floor_s"] == pytest.approx(2.4e6 / 5.3e12)
        for facts in verdict.gates[1].facts["kernels"][0]["archs"].values():
            assert facts["instructions"]["global"] >= 2 and facts["instructions"]["all"] > 10
        described = found.describe()
        assert described["seconds"] > described["floor_s"]
