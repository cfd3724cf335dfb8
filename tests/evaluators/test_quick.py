"""The short ways through the interpreter: the same bits, types and refusals as Triton's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

EXPRESSIONS = [
    *("x + 1", "1 - x", "x * 2.5", "x + 0", "x + 0.0", "x * -0.0", "0.0 - x", "x * 1e-40", "x + 1e39", "x - 16777217"),
    *(
        "x / 3",
        "x / x",
        "3 / x",
        "x // 2",
        "x % 3",
        "x < 1",
        "x >= 0.5",
        "x == x",
        "(x > 0) & (x < 9)",
        "(x > 0) + (x < 9)",
    ),
    *("x + y", "y * x", "y - 1", "y + 4294967296", "y * y", "y // 2", "y % 2", "y / 2", "y << 1", "y & 3", "y + True"),
    *("y.to(tl.int64) + 1", "y.to(tl.int64) * 2147483648", "y.to(tl.uint8) + y.to(tl.int8)", "y.to(tl.uint32) - 1"),
    *(
        "y.to(tl.int8) + 100",
        "y.to(tl.int16) * y.to(tl.int16)",
        "x.to(tl.float64) * 0.1",
        "x.to(tl.float16) / x.to(tl.float16)",
    ),
    *("x + n", "n * 2 + y", "n + 1.5 + x", "y + (n - 1) * 2", "x * n * 1.0 + x * n * 1", "y[:, None] + y[None, :]"),
    *(
        "tl.maximum(x, 0)",
        "tl.where(x > 0, x, -1.0)",
        "tl.where(y > 2, 0, y)",
        "tl.sum(x, 0) + x",
        "x + None",
        "x.to(tl.uint8) - 300",
    ),
    *("tl.zeros([8], tl.float32) - 0.0 + x * 0", "y + x_ptr", "x_ptr + 1.5", "x_ptr - x_ptr", "-x + -1", "x * C + C"),
]

SCRIPT = """
import json
import re
import sys

import torch
import triton
import triton.language as tl

from orienteer.environments.kernel import interpreting, quick

if sys.argv[1] == "long":
    for name in [name for name in dir(quick) if name.startswith("shorten_")]:
        setattr(quick, name, lambda module, core: None)
import kernels

interpreter = interpreting.Interpreter(lambda note: None)
found = {}
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
    for number, expression in enumerate(kernels.EXPRESSIONS):
        x = torch.tensor([0.0, -0.0, 1.5, -2.0, 3.0, 7.25, 100.0, 9.0]).to(dtype)
        y = torch.arange(8, dtype=torch.int32) - 2
        out = torch.zeros(64, dtype=torch.float64)
        kernel = getattr(kernels, f"kernel_{number}")
        try:
            for _ in range(2):
                interpreter.launch(lambda: kernel[(2,)](x, y, out, 5, C=3), expression, watched=True)
            said = kernels.seen[-1]
        except Exception as error:
            # Addresses differ from process to process.
            said = re.sub(r"[0-9]{9,}", "address", f"{type(error).__name__}: {error}")
        found[f"{dtype} {expression}"] = [said, bytes(out.view(torch.uint8).numpy()).hex()]
print(json.dumps(found))
"""

KERNEL = """
@triton.jit
def kernel_{number}(x_ptr, y_ptr, out, n, C: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    y = tl.load(y_ptr + tl.arange(0, 8))
    value = {expression}
    note(value)
    value = (value + tl.zeros([8, 8], tl.int8)).to(tl.float64)
    tl.store(out + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], value)
"""


def results(folder, way):
    place = {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, "-W", "ignore", str(folder / "script.py"), way]
    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_short_ways_give_the_same_bits_types_and_refusals(tmp_path):
    head = "import triton\nimport triton.language as tl\n\nseen = []\n\n"
    head += "def note(value):\n    seen.append(str(value.type))\n"
    bodies = [KERNEL.format(number=number, expression=text) for number, text in enumerate(EXPRESSIONS)]
    (tmp_path / "kernels.py").write_text(f"{head}\nEXPRESSIONS = {EXPRESSIONS!r}\n" + "".join(bodies))
    (tmp_path / "script.py").write_text(SCRIPT)
    short, long = results(tmp_path, "short"), results(tmp_path, "long")
    assert len(short) == 4 * len(EXPRESSIONS)
    assert {name: said for name, said in short.items() if said != long[name]} == {}
    worked = [name for name, (_, bits) in short.items() if bits.strip("0")]
    assert len(worked) > 2 * len(EXPRESSIONS)
