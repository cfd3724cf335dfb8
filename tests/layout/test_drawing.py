"""Pictures, and layouts drawn by scripts behind walls."""

import struct

import pytest

from orienteer.environments.execution.sandbox import open_sandbox
from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.patterns.figures import box
from orienteer.environments.layout.pictures import Panel, draw
from orienteer.environments.layout.results import Violation
from orienteer.environments.layout.scripts import expected_bit, run_script
from orienteer.errors import UsageError

PAIR = Violation("edge-pair", (((0.4, 0.0), (0.4, 1.0)), ((0.5, 1.0), (0.5, 0.0))))
SCRIPT = """
import os, pya
layout = pya.Layout()
layout.create_cell("TOP").shapes(layout.layer(1, 0)).insert(pya.Box(0, 0, 10, 10))
layout.write(os.path.join(os.environ["OUT_DIR"], "odd name.gds"))
"""


@pytest.fixture
def layout(tmp_path):
    path = tmp_path / "a.gds"
    write_layout(path, {(68, 20): [box(0, 0, 400, 1000), box(500, 0, 900, 1000)]})
    return path


def reds(png: bytes) -> int:
    """Return how many pixels have the colour of marks."""
    import klayout.lay as lay

    buffer = lay.PixelBuffer.from_png_data(png)
    image = [buffer.pixel(x, y) & 0xFFFFFF for x in range(buffer.width()) for y in range(buffer.height())]
    return image.count(0xD62728)


def test_a_picture_has_the_size_asked_for_and_marks_what_is_violated(layout):
    marked = draw(layout, [Panel("a", [PAIR]), Panel("b")], {(68, 20): "met1"}, width=300, height=200)
    plain = draw(layout, [Panel("a"), Panel("b")], {(68, 20): "met1"}, width=300, height=200)
    assert struct.unpack(">II", marked[16:24]) == (600, 200)
    assert reds(marked) > 50 and reds(plain) == 0


def test_all_kinds_of_violations_can_be_drawn(layout):
    kinds = [
        PAIR,
        Violation("edge", (((0.0, 0.0), (0.4, 0.0)),)),
        Violation("polygon", (((0, 0), (0, 1), (1, 1), (1, 0)), ((0.2, 0.2), (0.2, 0.4), (0.4, 0.4)))),
        Violation("text", (), "a text"),
        Violation("edge-pair", (((0.4, 0.0), (0.4, 1.0)), ((0.4, 1.0), (0.4, 0.0)))),
    ]
    assert draw(layout, [Panel("all", kinds)]).startswith(b"\x89PNG")


def test_a_layout_with_nothing_in_it_is_said_to_have_nothing_to_show(tmp_path):
    path = tmp_path / "empty.gds"
    write_layout(path, {})
    with pytest.raises(UsageError, match="nothing to show"):
        draw(path, [Panel("a")])


def test_a_script_draws_whatever_it_calls_its_files():
    run = run_script(SCRIPT, open_sandbox("auto"), cases=3)
    assert (
        list(run.files) == ["odd name.gds"] and run.files["odd name.gds"][:4] == b"\x00\x06\x00\x02" and not run.failure
    )


FAILING = [
    ("1 / 0", "ZeroDivisionError"),
    ("", "no .gds"),
    ("while True: pass", "timeout"),
    ("import os; os._exit(3)", "status 3"),
]


@pytest.mark.parametrize("script, said", FAILING)
def test_a_script_that_draws_nothing_says_why(script, said):
    run = run_script(script, open_sandbox("auto"), cases=1, seconds=2)
    assert not run.files and said in run.failure


@pytest.mark.parametrize(
    "text, bit", [("# EXPECTED: PASS", 0), ("#expected :violation", 1), ("# EXPECTED: FAIL", None)]
)
def test_the_comment_of_a_script_says_what_is_expected(text, bit):
    assert expected_bit(text) == bit
