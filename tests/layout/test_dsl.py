"""The embedded deck interpreter by itself: what it reads, refuses, and says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("klayout.db")

from orienteer.environments.layout import dsl
from orienteer.environments.layout.dsl.tree import Assign, Binary, Call, Number
from orienteer.environments.layout.py_runner import PyRunner, supported
from orienteer.environments.layout.results import DeckResult, RunStatus

HEAD = 'source($input)\nreport("checks", $output)\na = input(1, 0)\nb = input(2, 0)\n'
Box = tuple[int, int, int, int]


def layout_of(boxes: Mapping[int, list[Box]], dbu: float = 0.001) -> object:
    from klayout import db

    layout = db.Layout()
    layout.dbu = dbu
    top = layout.create_cell("TOP")
    for number, shapes in boxes.items():
        for shape in shapes:
            top.shapes(layout.layer(number, 0)).insert(db.Box(*shape))
    return layout


def run(lines: str, boxes: Mapping[int, list[Box]], dbu: float = 0.001, geometry: bool = False) -> DeckResult:
    return dsl.interpret(dsl.parse(HEAD + lines), layout_of(boxes, dbu), geometry=geometry)


def test_a_program_is_a_tree_with_lines() -> None:
    program = dsl.parse("# a comment\nx = input(1, 0)\n  .width(0.3.um,\n         projection)\ny = x & z\n")
    first, second = program.statements
    assert isinstance(first, Assign) and first.names == ("x",) and first.line == 2
    assert isinstance(first.value, Call) and (first.value.name, first.value.line) == ("width", 3)
    assert first.value.receiver == Call(None, "input", (Number(1, 2), Number(0, 2)), (), True, 2)
    assert isinstance(second, Assign) and isinstance(second.value, Binary)


@pytest.mark.parametrize(
    ("limit", "dbu", "found"),
    [
        ("0.1.um", 0.001, 0),
        ("0.101.um", 0.001, 2),
        ("101", 0.001, 2),
        ("100", 0.001, 0),
        ("101.nm", 0.001, 2),
        ("0.1001.mm / 1000", 0.001, 0),
        ("0.101", 0.001, 2),
        ("101.dbu", 0.001, 2),
        ("2 * 0.0505.um", 0.001, 2),
        ("0.0505.um", 0.0005, 2),
        ("0.505.um", 0.005, 2),
    ],
)
def test_lengths_are_read_as_klayout_reads_them(limit: str, dbu: float, found: int) -> None:
    result = run(f"a.width({limit}).output('W')", {1: [(0, 0, 100, 500), (300, 0, 400, 500)]}, dbu)
    assert result.status is RunStatus.OK
    assert result.counts == {"W": found}


def test_a_category_may_have_dots_and_is_counted_over_its_outputs() -> None:
    lines = 'a.width(200).output("M1.W.1", "width")\na.space(300).output("M1.W.1")\nb.output("none")\n'
    result = run(lines, {1: [(0, 0, 100, 500), (300, 0, 700, 500)]}, geometry=True)
    assert result.counts == {"M1.W.1": 2, "none": 0}
    assert result.descriptions == {"M1.W.1": "width"}
    assert result.violations is not None and result.violations["M1.W.1"][0].kind == "edge-pair"


def test_a_method_in_place_changes_every_name_of_a_layer() -> None:
    result = run(
        "c = a\nc.size(10)\na.with_bbox_width(120).output('X')\nb.raw.width(9).output('Y')", {1: [(0, 0, 100, 99)]}
    )
    assert result.counts == {"X": 1, "Y": 0}


def test_decks_of_common_rules() -> None:
    boxes = {1: [(0, 0, 1000, 1000), (1100, 0, 1200, 900)], 2: [(50, 50, 250, 250), (900, 900, 1200, 1200)]}
    lines = """
    LIMIT = 0.1.um
    near = b.enclosed(a, LIMIT, euclidian).polygons(0.001)
    out  = b.not_outside(a).not(a)
    (near | out).output("IN", "inside by #{LIMIT} um")
    a.isolated(0.12.um).output("ISO")
    a.with_area(nil, 0.1.um2).output("AREA")
    a.edges.without_length(1.um, nil).output("LEN")
    a.drc(width != 0.1.um).output("EXACT")
    wide, narrow = a.split_covering(b)
    wide.output("WIDE"); narrow.output("NARROW")
    """
    result = run(lines, boxes)
    assert result.status is RunStatus.OK, result.message
    assert result.counts == {"IN": 2, "ISO": 1, "AREA": 1, "LEN": 4, "EXACT": 4, "WIDE": 0, "NARROW": 2}
    assert result.descriptions["IN"] == "inside by 0.1 um"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("`ls`", "ls"),
        ("system('ls')", "system"),
        ("x = File.read('/etc/passwd')", "File"),
        ("$input.size", "size"),
        ("a.data", "data"),
        ("a.each { |p| puts p }", "each"),
        ("def f; end", "def f"),
        ("while true; end", "while"),
        ("if a.count > 3\na.output('x')\nend", "if"),
        ("a.output('x') if a", "if"),
        ("instance_eval('1')", "instance_eval"),
        ("a.send(:width, 1)", "send"),
        ("a.instance_variable_get(:@data)", "instance_variable_get"),
        ("x = 'a' * 1000000000", "*"),
        ("x = [1, 2]", "[1, 2]"),
        ("deep", "deep"),
        ("tiles(100)", "tiles"),
        ("x = 1e309", "1e309"),
        ("x = 017", "017"),
        ("a.width(1e18)", "width"),
        ("a.sized(1e9)", "sized"),
        ("a.space(99999999999999999999)", "space"),
        ("a.input = 3", "a.input"),
        ("source('/etc/passwd')", "source"),
        ("a.no_such_method(3)", "no_such_method"),
        ("unknown", "unknown"),
        ("a -b", "a"),
        ("x = <<E\nE\n", "<<E"),
        ("a.width(0.1.um", "a.width"),
    ],
)
def test_what_is_not_known_is_refused_with_the_line(line: str, word: str) -> None:
    deck = HEAD + line + "\na.width(0.3.um).output('W')\n"
    refusal = supported(deck)
    assert refusal is not None
    assert word in refusal.problem
    assert refusal.line == 5


@pytest.mark.parametrize(
    "line",
    [
        "a.width",
        "a.width(0.1.um, 0.2.um)",
        "a.enclosing(0.1.um)",
        "a.enclosing(b.edges, 0.1.um)",
        "a.polygons",
        "a.edges.notch(0.1.um)",
        "a.width(-5)",
        "a.interacting(b, 0)",
        "a.drc(width)",
        "a.and(3)",
        "x = 1 / 0",
    ],
)
def test_a_wrong_deck_is_an_error_at_its_line(line: str) -> None:
    result = run(line, {1: [(0, 0, 100, 100)]})
    assert result.status is RunStatus.ERROR
    assert result.line == 5
    assert not result.counts


@pytest.mark.parametrize(
    "deck",
    [
        "a = " + "(" * 100_000 + "1" + ")" * 100_000,
        "a = " + "b(" * 100_000 + ")" * 100_000,
        "a = 1" + " + 1" * 100_000,
        "a = x" + ".y(1)" * 50_000,
        "a = " + "!" * 100_000 + "b",
        'a = "' + "#{" * 50_000,
        "#" * (100 << 20),
        "\0",
        "a = " + "9" * 100_000,
        "x = 'y'\n" + "x = x + x\n" * 60,
        HEAD + "r = width < 1\n" + "r = r & r\n" * 60 + "a.drc(r).output('x')",
    ],
    ids=range(11),
)
def test_hostile_text_is_refused_quickly(deck: str) -> None:
    start = time.process_time()
    assert supported(deck) is not None
    assert time.process_time() - start < 20


def test_a_deck_without_a_report_says_so() -> None:
    made = dsl.interpret(dsl.parse("source($input)\nx = input(1, 0)\n"), layout_of({1: [(0, 0, 9, 9)]}))
    assert made.status is RunStatus.NO_REPORT


def test_layouts_with_two_top_cells_and_other_cells(tmp_path: Path) -> None:
    from klayout import db

    layout = db.Layout()
    for name in ("ONE", "TWO"):
        layout.create_cell(name).shapes(layout.layer(1, 0)).insert(db.Box(0, 0, 100, 300))
    path = tmp_path / "two.gds"
    layout.write(str(path))
    with PyRunner() as runner:
        both = runner.run(HEAD + "a.width(200).output('W')", [path])[0]
        one = runner.run(HEAD.replace("$input", '$input, "TWO"', 1) + "a.width(200).output('W')", [path])[0]
    assert both.status is RunStatus.ERROR and "multiple top cells" in both.message
    assert one.counts == {"W": 1}


def test_the_runner_reads_bad_files_and_goes_on(tmp_path: Path) -> None:
    good, bad, empty = tmp_path / "good.gds", tmp_path / "bad.gds", tmp_path / "empty.gds"
    layout_of({1: [(0, 0, 100, 500)]}).write(str(good))  # type: ignore[attr-defined]
    bad.write_bytes(good.read_bytes()[:60])
    empty.write_bytes(b"")
    with PyRunner() as runner:
        deck = HEAD + "a.width(200).output('W')"
        results = runner.run(deck, [bad, good, empty, tmp_path / "none.gds"])
        refused = runner.run(HEAD + "deep", [good, bad])
    assert [result.status for result in results] == [
        RunStatus.BAD_LAYOUT, RunStatus.OK, RunStatus.BAD_LAYOUT, RunStatus.BAD_LAYOUT,
    ]  # fmt: skip
    assert [result.status for result in refused] == [RunStatus.REFUSED, RunStatus.BAD_LAYOUT]
    assert results[1].backend == "py" and results[1].version


def test_a_large_layout_runs_in_its_own_process_with_a_time_out(tmp_path: Path) -> None:
    from klayout import db

    layout = db.Layout()
    top, small = layout.create_cell("TOP"), layout.create_cell("SMALL")
    small.shapes(layout.layer(1, 0)).insert(db.Box(0, 0, 100, 100))
    top.insert(db.CellInstArray(small.cell_index(), db.Trans(), db.Vector(150, 0), db.Vector(0, 150), 120, 120))
    path = tmp_path / "array.gds"
    layout.write(str(path))
    deck = HEAD + "a.width(0.101.um).output('W')"
    slow = HEAD + "a.space(1.mm, transparent).output('S')"
    with PyRunner(timeout_s=3) as runner:
        results = runner.run_many([deck, slow, deck], [path])
    assert [row[0].status for row in results] == [RunStatus.OK, RunStatus.TIMEOUT, RunStatus.OK]
    assert results[0][0].counts == {"W": 120 * 120 * 2}


def test_oasis_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.oas"
    layout_of({1: [(0, 0, 100, 500)]}).write(str(path))  # type: ignore[attr-defined]
    with PyRunner() as runner:
        result = runner.run(HEAD + "a.width(0.2.um).output('W')", [path], geometry=True)[0]
    assert result.counts == {"W": 1}
    assert result.violations is not None and len(result.violations["W"]) == 1


def test_a_report_opens_in_klayout(tmp_path: Path) -> None:
    from klayout import rdb

    layout, report = tmp_path / "a.gds", tmp_path / "a.lyrdb"
    layout_of({1: [(0, 0, 100, 500)]}).write(str(layout))  # type: ignore[attr-defined]
    with PyRunner() as runner:
        result = runner.run(HEAD + "a.width(0.2.um).output('M1.W', 'narrow')", [layout], reports=[report])[0]
    assert result.violations is None
    database = rdb.ReportDatabase("x")
    database.load(str(report))
    assert database.num_items() == 1
    assert [category.description for category in database.each_category()] == ["narrow"]


def test_decks_are_explained() -> None:
    deck = (
        HEAD
        + """limit = 0.3.um
inner = b.and(a)
inner.enclosed(a, limit, projection).output("IN.1", "inner part")
a.isolated(200).output("S.1")
a.with_area(nil, 0.5.um2).output("A.1")
"""
    )
    lines = dsl.explain(dsl.parse(deck))
    text = "\n".join(lines)
    assert "IN.1 (line 7): where (layer 2/0 and layer 1/0) lies less than 0.3 um inside layer 1/0" in text
    assert "takes a coverage clause" in text
    assert "where two shapes of layer 1/0 are closer than 200 database units" in text
    assert "isolated does not see notches" in text
    assert "layer 1/0 with area below 0.5 um2" in text
    assert "exclusive" in text
