"""The comparison of outputs: laws by hypothesis, and the cases that people were bitten by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from orienteer.evaluators.kernel.compare import RELATIVE, compare

MODERATE = st.floats(-1e3, 1e3, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=6), elements=MODERATE)


def rounded(values, dtype):
    """Round float64 values to a dtype; bfloat16 comes back as float32, as it does from a worker."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        return (
            ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).reshape(values.shape)
        )
    return values.astype(dtype)


def judge(output, expected, exact=None, dtype="float32", output_dtype=None):
    return compare(output, output_dtype or dtype, expected, dtype, expected if exact is None else exact)


@given(exact=ARRAYS, dtype=st.sampled_from(sorted(RELATIVE)))
def test_the_reference_itself_is_right(exact, dtype):
    native = rounded(exact, dtype)
    result = judge(native, native, exact, dtype)
    assert result.ok and result.share <= 1.0


@given(exact=ARRAYS, dtype=st.sampled_from(sorted(RELATIVE)))
def test_rounding_to_the_dtype_is_right_even_where_pytorch_is_exact(exact, dtype):
    native = rounded(exact, dtype)
    assert judge(native, exact, exact, dtype).ok


@given(exact=ARRAYS, dtype=st.sampled_from(sorted(RELATIVE)), data=st.data())
def test_one_wrong_element_is_found_and_named(exact, dtype, data):
    native = rounded(exact, dtype).astype(np.float64)
    position = data.draw(st.integers(0, exact.size - 1))
    assume(native.any())
    output = native.copy()
    own = np.abs(native - exact).max()
    rms = np.sqrt(np.mean(exact**2))
    output.flat[position] += 3 * (RELATIVE[dtype] * (abs(exact.flat[position]) + rms) + 8 * own)
    result = judge(output, native, exact, dtype)
    assert not result.ok and result.kind == "mismatch" and result.share > 1
    where = ", ".join(str(int(i)) for i in np.unravel_index(position, exact.shape))
    assert f"[{where}]" in result.message and f"1 of {exact.size}" in result.message


@given(exact=ARRAYS, power=st.integers(-120, 100))
def test_zeros_are_never_the_answer_to_small_numbers(exact, power):
    assume(np.abs(exact).max() > 0)
    small = exact * 2.0**power
    native = small.astype(np.float32)
    assume(native.any())
    assert not judge(np.zeros_like(native), native, small).ok


@given(exact=ARRAYS, noise=st.floats(0, 1e-3), power=st.integers(-60, 60))
def test_the_scale_does_not_matter(exact, noise, power):
    def at(scale):
        return judge(exact * scale * (1 + noise), exact * scale, exact * scale, "float64").ok

    assert at(1.0) == at(2.0**power)


@given(values=hnp.arrays(np.int64, st.integers(1, 20)), data=st.data())
def test_integers_are_equal_or_wrong(values, data):
    assert judge(values, values, dtype="int64").ok
    position = data.draw(st.integers(0, values.size - 1))
    other = values.copy()
    other[position] ^= 1
    result = judge(other, values, dtype="int64")
    assert not result.ok and result.kind == "mismatch" and f"[{position}]" in result.message


@given(exact=ARRAYS, data=st.data(), special=st.sampled_from([np.nan, np.inf, -np.inf]))
def test_special_values_stand_where_the_reference_has_them(exact, data, special):
    position = data.draw(st.integers(0, exact.size - 1))
    native = exact.astype(np.float32)
    marked = native.copy()
    marked.flat[position] = special
    assert judge(marked, marked).ok
    for output, expected in ((marked, native), (native, marked)):
        result = judge(output, expected)
        assert not result.ok and result.kind == "nonfinite"
    for other in {np.nan, np.inf, -np.inf} - {special}:
        if other is special or (np.isnan(other) and np.isnan(special)):
            continue
        wrong = native.copy()
        wrong.flat[position] = other
        assert judge(wrong, marked).kind == "nonfinite"


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), count=st.integers(10, 3000))
def test_cancellation_in_another_order_is_tolerated(seed, count):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((8, count)).astype(np.float32)
    exact = rows.astype(np.float64).sum(axis=1)
    forward = np.array([np.cumsum(row, dtype=np.float32)[-1] for row in rows])
    assert judge(forward, rows.sum(axis=1), exact).ok


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16", "bool"])
def test_shape_before_dtype_before_values(dtype):
    expected = np.ones((2, 3))
    assert judge(np.zeros((3, 2)), expected, dtype=dtype, output_dtype="float16").kind == "shape"
    assert judge(np.zeros((2, 3)), expected, dtype=dtype, output_dtype="float16").kind == "dtype"
    assert judge(np.zeros((2, 3)), expected, dtype=dtype).kind == "mismatch"


@pytest.mark.parametrize(("given", "wanted"), [((1, 3), (3,)), ((), (1,)), ((0, 3), (3, 0))])
def test_shapes_that_would_broadcast_are_different(given, wanted):
    result = judge(np.zeros(given), np.zeros(wanted))
    assert not result.ok and result.kind == "shape"


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 2)])
def test_empty_tensors_are_right_when_shape_and_dtype_are(shape):
    assert judge(np.zeros(shape), np.zeros(shape)).ok


@pytest.mark.parametrize(
    ("output", "expected", "dtype", "right"),
    [
        (1.0 + 2e-3, 1.0, "float32", False),  # a product of bfloat16 or half numbers
        (1.0 + 5e-4, 1.0, "float32", False),
        (1.0 + 2e-6, 1.0, "float32", True),
        (1.0 + 2e-3, 1.0, "bfloat16", True),
        (1.0 + 2e-1, 1.0, "bfloat16", False),
        (0.0, 1e-30, "float32", False),
        (0.0, 0.0, "float32", True),
        (-0.0, 0.0, "float32", True),
        (1e-30, 0.0, "float32", True),
        (1e-5, 0.0, "float32", False),
        (65504.0, np.inf, "float16", False),
    ],
)
def test_scalars(output, expected, dtype, right):
    assert judge(np.array(output), np.array(expected), dtype=dtype).ok is right


def test_all_nan_is_right_only_where_the_reference_is_all_nan():
    everywhere = np.full(4, np.nan)
    assert judge(everywhere, everywhere).ok
    assert not judge(np.zeros(4), everywhere).ok


def test_booleans():
    truth = np.array([True, False])
    assert judge(truth, truth, dtype="bool").ok
    assert not judge(~truth, truth, dtype="bool").ok


def test_what_pytorch_itself_loses_is_allowed_eight_times():
    exact = np.array([1.0, 100.0])
    native = np.array([1.01, 100.0])
    assert judge(np.array([1.05, 100.0]), native, exact).ok
    assert not judge(np.array([1.2, 100.0]), native, exact).ok


def test_where_the_exact_result_is_zero_everywhere_rounding_of_unit_size_passes_and_more_does_not():
    zero = np.zeros(5)
    for value, good in ((-4e-9, True), (1e-6, True), (1e-5, False), (1.0, False)):
        found = compare(np.full(5, value, np.float32), "float32", zero.astype(np.float32), "float32", zero)
        assert found.ok is good, value
