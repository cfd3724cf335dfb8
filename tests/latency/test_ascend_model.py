"""The model of Ascend's cores on small hand-written HIVM."""

from __future__ import annotations

import hivm_sources as hivm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.environments.kernel import targets
from orienteer.evaluators.kernel.latency import npu, steady
from orienteer.evaluators.kernel.latency.chips import ASCEND, ASSUMED
from orienteer.evaluators.kernel.latency.core import Core, Ref, Unmodelled
from orienteer.evaluators.kernel.latency.costs import cost_of
from orienteer.evaluators.kernel.latency.roofline import Floor

CHIP = targets.chip("Ascend910B3")
RATES = ASCEND["Ascend910B3"]


def time(text, kernel, chip=CHIP):
    return npu.kernel_time(kernel, text, chip)


def core(**cold):
    return Core(RATES, 1, cold, 0)


def ub(*sizes, strides=None):
    steps, out = 1, []
    for size in reversed(sizes):
        out.append(steps)
        steps *= size
    return Ref("ub", 32, sizes, tuple(strides or out[::-1]))


class TestCore:
    def test_pipes_work_beside_each_other_until_a_flag_orders_them(self):
        free, ordered = core(), core()
        for one in (free, ordered):
            one.issue("MTE2", 1000, 0)
        free.issue("V", 1000, 0)
        ordered.set_flag("MTE2", "V", 0)
        ordered.wait_flag("MTE2", "V", 0)
        ordered.issue("V", 1000, 0)
        assert free.end() < 1100 and ordered.end() >= 2000

    def test_a_flag_that_nobody_set(self):
        with pytest.raises(Unmodelled, match="nobody set"):
            core().wait_flag("V", "MTE3", 1)

    def test_a_barrier_waits_for_results(self):
        one = core()
        one.vector([ub(64)], 1)
        before = one.clock["V"]
        one.barrier("V")
        assert one.clock["V"] == one.clock["V!"] > before

    def test_latency_of_transfers_is_hidden_behind_each_other(self):
        one = core()
        for _ in range(10):
            one.load(Ref("gm", 32, (1024,), (1,), "x"), ub(1024))
        alone = core()
        alone.load(Ref("gm", 32, (1024,), (1,), "x"), ub(1024))
        assert one.end() < 10 * alone.end() - 8 * ASSUMED.memory_latency

    def test_bytes_are_counted_by_argument(self):
        one = core()
        one.load(Ref("gm", 16, (100,), (1,), "x"), None)
        one.store(None, Ref("gm", 32, (10,), (1,), "o"))
        assert one.traffic() == {"x": (200, 0), "o": (0, 40)}

    def test_short_bursts_cost_as_much_as_a_granule(self):
        def cycles(memory, local):
            one = core()
            one.load(memory, local)
            return one.clock["MTE2="]

        whole = cycles(Ref("gm", 32, (64, 128), (128, 1), "x"), ub(64, 128))
        rows = cycles(Ref("gm", 32, (64, 128), (4096, 1), "x"), ub(64, 128))
        short = cycles(Ref("gm", 32, (256, 32), (4096, 1), "x"), ub(256, 32))
        single = cycles(Ref("gm", 32, (64, 128), (1, 64), "x"), ub(64, 128))
        assert whole < rows < short < single
        assert single > 20 * whole

    def test_loads_from_the_cache_are_faster(self):
        cold, warm = core(x=1.0), core(x=0.0)
        for one in (cold, warm):
            one.load(Ref("gm", 32, (8192,), (1,), "x"), ub(8192))
        assert warm.end() < cold.end()

    def test_elements_that_stand_alone_take_a_block_each(self):
        dense, sparse = core(), core()
        dense.vector([ub(1024)], 1)
        sparse.vector([ub(1024, strides=(8,))], 1)
        assert sparse.clock["V="] > 7 * dense.clock["V="]

    @pytest.mark.parametrize(("bits", "share", "cycles"), [(16, 1.0, 64), (32, 0.25, 256), (8, 2.0, 32)])
    def test_cycles_of_the_cube(self, bits, share, cycles):
        one = core()
        one.products((64, 64, 64), bits, share, (), ())
        # A tile of 64x64x64 is 4*4*4 products of 16x16x16.
        assert one.clock["M="] == pytest.approx(ASSUMED.cube_start + cycles)

    def test_a_size_that_depends_on_data(self):
        with pytest.raises(Unmodelled):
            core().load(Ref("gm", 32, (None,), (1,), "x"), None)
        with pytest.raises(Unmodelled):
            core().load(Ref("gm", 32, (4, 4), (None, 1), "x"), None)


@pytest.mark.parametrize(
    "name",
    [
        "vadd_1d_float",
        "vadds_vs_1d_int32_t",
        "vcast_int8_t_to_half_1d_with_mode",
        "vcast_bool_to_int32_t_1d_with_temp",
        "enablevc_reduce_sum_r_float",
        "reduce_max_with_index_left_r_float",
        "broadcast_last_axis_unknown_align_2d_half",
        "transpose_with_last_axis_2d_float",
        "mma_tile_half_to_float",
        "fixpipe_nz2nd_float_to_half_4d_to_2d",
        "nd2nz_half",
        "load_gm_to_ubuf_3d_bfloat16_t",
        "store_ubuf_to_gm_2d_int8_t",
        "deinterleave_channel_0_from_2_channels_1d_float",
    ],
)
def test_library_functions_that_have_a_cost(name):
    assert callable(cost_of(name))


@pytest.mark.parametrize("name", ["vpow_1d_float", "sort_1d_float", "print_1d_float_gm", "vaddition_1d_float"])
def test_library_functions_that_have_none(name):
    with pytest.raises(Unmodelled, match=name):
        cost_of(name)


class TestLoops:
    def test_two_buffers_are_faster_than_one(self):
        kernel = hivm.launch(64)
        assert time(hivm.module(hivm.DOUBLE), kernel).seconds < 0.8 * time(hivm.module(hivm.SINGLE), kernel).seconds

    def test_one_buffer_takes_the_sum_of_its_pipes(self):
        one = time(hivm.module(hivm.SINGLE), hivm.launch(1000))
        assert one.seconds > 0.95 * sum(one.units[name] for name in ("mte2", "vector", "mte3"))

    def test_two_buffers_take_the_longest_pipe_when_latency_is_small(self):
        one = time(hivm.module(hivm.DOUBLE, block=16384, function="vadd_1d_float"), hivm.launch(1000))
        assert one.bottleneck == "mte2"
        assert one.units[one.bottleneck] < one.seconds < 1.2 * one.units[one.bottleneck]

    @settings(max_examples=25)
    @given(st.integers(0, 400), st.integers(1, 48), st.sampled_from([hivm.SINGLE, hivm.DOUBLE]))
    def test_skipped_turns_give_what_walked_turns_give(self, blocks, grid, loop):
        text, kernel = hivm.module(loop), hivm.launch(blocks, grid)
        skipped = time(text, kernel)
        kept, steady.steady = steady.steady, lambda history: 0
        try:
            walked = time(text, kernel)
        finally:
            steady.steady = kept
        assert skipped.seconds == pytest.approx(walked.seconds, rel=1e-9)
        assert skipped.memory_bytes == pytest.approx(walked.memory_bytes)

    @settings(max_examples=25)
    @given(st.integers(0, 2000), st.integers(1, 300))
    def test_more_work_is_never_faster(self, blocks, more):
        text = hivm.module()
        assert time(text, hivm.launch(blocks)).seconds < time(text, hivm.launch(blocks + more)).seconds

    def test_bytes_are_those_of_the_launch(self):
        one = time(hivm.module(), hivm.launch(1000, 40))
        assert one.memory_bytes == 1000 * 1024 * 4 * 2 and one.l2_bytes == 0

    def test_what_is_loaded_again_comes_from_the_cache(self):
        # Every turn of the module loads the same block.
        one = time(hivm.module(), hivm.launch(1000, 40, x=4096, o=4096))
        assert one.l2_bytes == pytest.approx(999 * 4096)
        assert one.memory_bytes == pytest.approx(4096 + 1000 * 4096)

    def test_a_tensor_larger_than_the_cache_is_read_again_from_memory(self):
        big = 8 * RATES.l2_bytes
        one = time(hivm.module(), hivm.launch(1000, 40, x=4096, o=big))
        assert one.l2_bytes < 0.2 * 999 * 4096

    def test_more_instances_than_cores_run_in_waves(self):
        text = hivm.module()
        one, many = time(text, hivm.launch(4000, 40)), time(text, hivm.launch(4000, 4000))
        assert (one.waves, many.waves) == (1, 100)
        assert many.seconds > one.seconds + 90 * ASSUMED.instance_s

    def test_memory_bounds_the_whole(self):
        one = time(hivm.module(block=16384, function="vadd_1d_float"), hivm.launch(20000, 40))
        assert one.bottleneck == "memory"
        assert one.seconds == pytest.approx(one.memory_bytes / RATES.hbm + ASSUMED.launch_s)

    def test_slow_memory_is_slower(self):
        text, kernel = hivm.module(), hivm.launch(4000, 40)
        assert time(text, kernel, targets.chip("Ascend910B4")).seconds > time(text, kernel).seconds


class TestNoGuess:
    def model(self, text, kernel, floor=None):
        return npu.model([kernel], [text], CHIP, floor)

    def test_a_latency_says_what_it_is(self):
        found, reason = self.model(hivm.module(), hivm.launch(100, 40))
        assert reason == "" and found.level == "E2:Ascend910B3" and found.device == "Ascend910B3"
        assert found.how == "modelled, uncalibrated" and found.bottleneck
        assert found.facts["kernels"][0]["units"]["mte2"] > 0

    def test_calls_are_counted_with_their_own_sizes(self):
        once, _ = self.model(hivm.module(), hivm.launch(100))
        kernel = hivm.launch(100)
        kernel["calls"] = [{**kernel["calls"][0], "count": 2}, {**hivm.launch(300)["calls"][0]}]
        both, _ = self.model(hivm.module(), kernel)
        third, _ = self.model(hivm.module(), hivm.launch(300))
        assert both.seconds == pytest.approx(2 * once.seconds + third.seconds)

    def test_a_trip_count_that_depends_on_data(self):
        kernel = hivm.launch(100)
        kernel["calls"][0]["scalars"] = {}
        found, reason = self.model(hivm.module(), kernel)
        assert found is None and "trip count depends on data" in reason and reason.startswith("k: ")

    def test_an_unknown_function(self):
        found, reason = self.model(hivm.module(function="vpow_1d_float"), hivm.launch(100))
        assert found is None and "vpow_1d_float" in reason

    def test_an_unknown_operation(self):
        text = hivm.module().replace("hivm.hir.pipe_barrier[<PIPE_ALL>]", "hivm.hir.new_thing %0")
        found, reason = self.model(text, hivm.launch(100))
        assert found is None and "hivm.hir.new_thing" in reason

    def test_a_branch_that_depends_on_data(self):
        turn = "      %v = memref.load %0[%c0] : memref<1024xi32, #hivm.address_space<ub>>\n"
        turn += "      %q = arith.cmpi eq, %v, %c0_i32 : i32\n      scf.if %q {{\n" + hivm.TURN + "\n      }}{mark}"
        kernel = hivm.launch(10)
        found, reason = self.model(hivm.module(turn=turn.replace("{mark}", "")), kernel)
        assert found is None and "branch depends on data" in reason
        unlikely = hivm.module(turn=turn.replace("{mark}", " {{hivm.unlikely_condition}}"))
        assert self.model(unlikely, kernel)[0] is not None

    def test_arguments_that_are_not_those_of_the_launch(self):
        kernel = hivm.launch(10)
        kernel["signature"] = {"x": "*fp32"}
        assert self.model(hivm.module(), kernel)[0] is None

    def test_a_text_that_is_no_module(self):
        assert self.model("module {", hivm.launch(10)) == (
            None,
            "k: the latency model does not know this: the module's braces do not match",
        )

    def test_below_the_floor_is_an_error_of_the_model(self):
        found, reason = self.model(hivm.module(), hivm.launch(10), Floor(10**12, {}))
        assert found is None and "below the floor" in reason

    def test_loops_that_never_become_steady_end(self, monkeypatch):
        monkeypatch.setattr(steady, "steady", lambda history: 0)
        found, reason = self.model(hivm.module(), hivm.launch(10**6))
        assert found is None and "before its loops became steady" in reason
