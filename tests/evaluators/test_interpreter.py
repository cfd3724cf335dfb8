"""The interpreter with its repairs: bfloat16, other dtypes, special values, honest candidates that share memory."""

from __future__ import annotations

import pytest

from orienteer.environments.kernel import targets
from orienteer.environments.kernel.interpreting import narrow, widen

CHIP = targets.chip("Ascend910B3")

PRODUCT = """
import torch
import torch.nn as nn

m = 256
n = 128
k = 512


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(m, k, dtype=torch.DTYPE), torch.randn(k, n, dtype=torch.DTYPE)]
"""

PRODUCT_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, o, m, n, k, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, k, B):
        l = start + tl.arange(0, B)
        x = tl.load(a + i[:, None] * k + l[None, :], mask=(i < m)[:, None] & (l < k)[None, :], other=0.0)
        y = tl.load(b + l[:, None] * n + j[None, :], mask=(l < k)[:, None] & (j < n)[None, :], other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(o + i[:, None] * n + j[None, :], acc.to(o.dtype.element_ty), mask=(i < m)[:, None] & (j < n)[None, :])


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype)
        grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[1], 32))
        product[grid](a, b, out, a.shape[0], b.shape[1], a.shape[1], B=32)
        return out
"""

ROWS = """
import torch
import torch.nn as nn

rows = 128
cols = 512


class Model(nn.Module):
    def forward(self, x):
        return EXPRESSION


def get_inputs():
    return [torch.randn(rows, cols, dtype=torch.DTYPE)]
"""

ROW_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def work(x_ptr, o_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(o_ptr + i, RESULT, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        work[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), B=256)
        return out
"""


def judged(shared, task, source, **options):
    verifier, info, hidden = shared.prepared(task, cases=2, chip=CHIP, **options)
    verdict = verifier.judge(info, hidden, source)
    return verdict, {gate.name: gate for gate in verdict.gates}


def test_bfloat16_is_rounded_as_torch_rounds():
    import numpy as np
    import torch

    values = torch.cat([torch.randn(5000) * 10.0 ** torch.randint(-38, 38, (5000,)), torch.tensor([1.998, -0.0, 3e38])])
    wanted = values.to(torch.bfloat16)
    bits = narrow(values.numpy())
    assert (widen(bits) == wanted.float().numpy()).all()
    special = narrow(np.array([np.nan, np.inf, -np.inf], dtype=np.float32))
    assert np.isnan(widen(special)[0]) and list(widen(special)[1:]) == [np.inf, -np.inf]


def test_bfloat16_products_are_judged(shared):
    task = PRODUCT.replace("DTYPE", "bfloat16")
    verdict, gates = judged(shared, task, PRODUCT_KERNEL)
    assert verdict.failed is None and gates["run"].status == "passed", verdict
    assert any("bfloat16 tl.dot" in note for note in gates["run"].facts["notes"])
    wrong, _ = judged(shared, task, PRODUCT_KERNEL.replace("range(0, k, B)", "range(0, k - B, B)"))
    assert wrong.failed is not None and wrong.failed.name == "run"


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("x * x + 1.0", "x * x + 1.0"),
        ("torch.relu(x)", "tl.where(x > 0, x, x * 0.0)"),
        ("-x", "-x"),
        ("x.abs()", "tl.abs(x)"),
    ],
)
def test_bfloat16_arithmetic(shared, expression, result):
    task = ROWS.replace("DTYPE", "bfloat16").replace("EXPRESSION", expression)
    verdict, _ = judged(shared, task, ROW_KERNEL.replace("RESULT", result))
    # 0 * inf is NaN: the selection is honest for every value but that one.
    assert verdict.failed is None or verdict.failed.kind == "special-values", verdict


def test_other_dtypes_are_reported_and_required_on_demand(shared):
    task = ROWS.replace("DTYPE", "float32").replace("EXPRESSION", "x * 2.0")
    narrow_minded = ROW_KERNEL.replace("RESULT", "x * 2.0").replace("empty_like(x)", "empty(x.shape)")
    verdict, gates = judged(shared, task, narrow_minded)
    assert verdict.failed is None
    found = gates["run"].facts["dtypes"]
    assert (
        found["float32"] == "passed"
        and found["float16"].startswith("failed: ")
        and set(found)
        == {
            "float32",
            "float16",
            "bfloat16",
        }
    )
    strict, _ = judged(shared, task, narrow_minded, dtypes="require")
    assert strict.failed is not None and strict.failed.kind == "dtype-support"
    good, gates = judged(shared, task, ROW_KERNEL.replace("RESULT", "x * 2.0"), dtypes="require")
    assert good.failed is None and set(gates["run"].facts["dtypes"].values()) == {"passed"}


def test_scaled_products_are_not_judged(shared):
    task = PRODUCT.replace("DTYPE", "float16")
    source = PRODUCT_KERNEL.replace("tl.dot(x, y, acc)", "tl.dot_scaled(x, None, 'fp16', y, None, 'fp16', acc)")
    _, gates = judged(shared, task, source)
    assert gates["run"].status == "skipped" and gates["run"].kind == "unsupported-by-simulator"


@pytest.mark.parametrize(
    ("name", "result", "expression"),
    [
        ("overlapping blocks that store the same", "x * 2.0", "x * 2.0"),
        ("an instance reads what it wrote", "tl.load(x_ptr + i, mask=i < n) * 2.0", "x * 2.0"),
        ("maximum that keeps NaN", "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)", "torch.relu(x)"),
        ("selection that keeps NaN", "tl.where(x < 0, 0.0, x)", "torch.relu(x)"),
    ],
)
def test_honest_near_misses(shared, name, result, expression):
    task = ROWS.replace("DTYPE", "float32").replace("EXPRESSION", expression)
    source = ROW_KERNEL.replace("RESULT", result)
    if "overlapping" in name:
        source = source.replace("tl.program_id(0) * B", "tl.minimum(tl.program_id(0) * B, tl.maximum(n - B, 0))")
    if "wrote" in name:
        source = source.replace(
            ", mask=i < n)\n\n\nclass",
            ", mask=i < n)\n    y = tl.load(o_ptr + i, mask=i < n)\n    tl.store(o_ptr + i, y, mask=i < n)\n\n\nclass",
        )
    verdict, _ = judged(shared, task, source)
    assert verdict.failed is None, verdict


def test_atomic_sums_have_no_order_to_keep(shared):
    task = ROWS.replace("DTYPE", "float32").replace("EXPRESSION", "x.sum(0)")
    source = (
        ROW_KERNEL.replace("o_ptr, n,", "o_ptr, n, cols,")
        .replace("tl.store(o_ptr + i, RESULT, mask=i < n)", "tl.atomic_add(o_ptr + i % cols, x, mask=i < n)")
        .replace("torch.empty_like(x)", "torch.zeros(x.shape[1], dtype=x.dtype)")
        .replace("x.numel(), B", "x.numel(), x.shape[1], B")
    )
    verdict, _ = judged(shared, task, source)
    assert verdict.failed is None, verdict


@pytest.mark.parametrize("seen", [False, True], ids=["no device file", "a device that does not answer"])
def test_without_a_device_nothing_is_measured(shared, monkeypatch, seen):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    from orienteer.evaluators.kernel.gates import KernelVerifier

    task = ROWS.replace("DTYPE", "float32").replace("EXPRESSION", "x * 2.0")
    _, info, _ = shared.prepared(task, cases=2, chip=CHIP)
    verifier = KernelVerifier(shared.world(), archs=[targets.arch("sm_90")])
    monkeypatch.setattr(shared.world(), "has_device", lambda: seen)
    assert verifier._measure(info, ROW_KERNEL.replace("RESULT", "x * 2.0"), None) == ([], None)
