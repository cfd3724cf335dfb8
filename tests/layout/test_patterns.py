"""Layouts made from decks: they are at the limits, the derived layers come out as wanted, and slips are seen."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.environments.layout.dsl.parser import parse
from orienteer.environments.layout.patterns.expressions import Drawn, Made, checks, drawn, outputs
from orienteer.environments.layout.patterns.figures import FIGURES, Scale, bounds, box, figures
from orienteer.environments.layout.patterns.generating import patterns
from orienteer.environments.layout.patterns.realising import compute, realise
from orienteer.environments.layout.runner import open_runner
from orienteer.evaluators.drc.probing import probe, smallest_difference
from orienteer.evaluators.drc.variants import variants

HEAD = 'source($input)\nreport("t", $output)\n'
DERIVED = (
    HEAD
    + """poly = input(10, 0)
imp = input(11, 0)
block = input(12, 0)
mark = input(13, 0)
res = poly.and(imp).interacting(block).not_interacting(mark)
cut = input(14, 0)
a = res.enclosing(cut, 0.2.um, euclidian).polygons(0.001)
a.or(cut.not_outside(res).not(res)).output("R.1", "resistor around cut")
"""
)


@pytest.fixture(scope="module")
def py():
    with open_runner("py", cache=False) as runner:
        yield runner


def test_names_and_units_are_followed_to_the_drawn_layers():
    (output,) = outputs(parse(DERIVED))
    assert drawn(output) == [(10, 0), (11, 0), (12, 0), (13, 0), (14, 0)]
    (check,) = checks(output)
    assert check.name == "enclosing" and check.lengths == (0.2,) and check.words == ("euclidian",)


@pytest.mark.parametrize(
    "written, length", [("0.3.um", 0.3), ("300.nm", 0.3), ("300", 0.3), ("0.3", 0.3), ("2 * 0.15.um", 0.3)]
)
def test_lengths_are_micrometres_however_they_are_written(written, length):
    (output,) = outputs(parse(HEAD + f'input(1, 0).width({written}).output("W")\n'))
    assert checks(output)[0].lengths == (pytest.approx(length),)


@given(st.integers(2, 5000), st.lists(st.integers(2, 5000), max_size=2), st.sampled_from(sorted(FIGURES)))
@settings(max_examples=60, deadline=None)
def test_every_figure_is_of_sound_polygons(limit, others, name):
    for figure in figures(name, Scale(limit, tuple(others))):
        assert figure.about and figure.a + figure.b
        for polygon in figure.a + figure.b:
            left, bottom, right, top = bounds([polygon])
            assert len(set(polygon)) >= 3 and left < right and bottom < top


boxes = st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50), st.integers(1, 50)).map(
    lambda t: box(t[0], t[1], t[0] + t[2], t[1] + t[3])
)
A, B, C = (Drawn((n, 0)) for n in (1, 2, 3))


@given(
    boxes, st.sampled_from(["and", "not", "or", "interacting", "not_interacting", "inside", "outside", "not_outside"])
)
@settings(max_examples=80, deadline=None)
def test_a_derived_layer_comes_out_as_it_was_wanted(polygon, name):
    import klayout.db as db

    wanted = Made("and", (Made(name, (A, B)), C))
    drawing = realise([(wanted, [polygon])], margin=100)
    regions = {
        layer: db.Region([db.Polygon([db.Point(*p) for p in shape]) for shape in shapes]).merged()
        for layer, shapes in drawing.items()
    }
    got = compute(wanted, regions)
    assert (got ^ db.Region(db.Polygon([db.Point(*p) for p in polygon]))).is_empty()


def test_patterns_hold_the_limit_and_one_unit_beside_it(py, tmp_path):
    made = {pattern.about for pattern in patterns([parse(HEAD + 'input(1, 0).space(0.14.um).output("S")\n')])}
    assert {"gap of 0.139 um", "gap of 0.14 um", "gap of 0.141 um", "notch of 0.139 um in one shape"} <= made


@pytest.mark.parametrize("kind", ["metric", "limit +1 dbu", "limit -1 dbu", "limit +5 nm", "limit -5 nm", "coverage",
                                  "clause dropped", "overlap", "filter dropped", "filter negated"])  # fmt: skip
def test_a_slip_in_a_deck_with_derived_layers_is_seen(kind, py, tmp_path):
    wrong = [variant.deck for variant in variants(DERIVED) if variant.kind == kind]
    assert wrong
    for deck in wrong:
        assert probe([DERIVED, deck], ["R.1"], py, tmp_path), deck


def test_decks_that_do_the_same_are_not_told_apart(py, tmp_path):
    same = DERIVED.replace("poly.and(imp)", "imp.and(poly)").replace("0.2.um", "200.nm")
    assert probe([DERIVED, same], ["R.1"], py, tmp_path) == []
    found, tried = smallest_difference(DERIVED, same, py, tmp_path, most=300)
    assert found is None and tried >= 300


def test_the_layout_on_which_two_decks_differ_is_made_small(py, tmp_path):
    first = HEAD + 'input(1, 0).space(0.2.um).output("S")\n'
    second = HEAD + 'input(1, 0).isolated(0.2.um).output("S")\n'
    found, _ = smallest_difference(first, second, py, tmp_path)
    assert found.first.counts["S"] and not found.second.counts["S"]
    # A notch in one shape: two parts at the least.
    assert len(found.pattern.shapes[1, 0]) <= 4 and found.pattern.size <= 16
