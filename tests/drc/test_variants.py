"""Wrong variants of decks: what is changed, that all else stays, and that they run."""

import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_by_hand import LAYERS, READ, box, task

from orienteer.agents.drc.reading import readings
from orienteer.errors import UsageError
from orienteer.evaluators.drc.variants import variants

pytest.importorskip("tree_sitter_ruby")

DECK = """source($input)
report("enclosure", $output)
a = input(1, 0) # the outer one
b = input(2, 0).interacting(input(3, 0))
e1 = a.enclosing(b, 0.4.um, euclidian).polygons(0.001)
e2 = b.not_outside(a).not(a)
e1.or(e2).output("E", "a encloses b by 0.4.um")
a.space(0.3.um).output("S", "space")
a.separation(b, 300, projection).output("P", "apart")
a.with_area(nil, 0.25.um2).output("A", "area")
b.width(0.2.um).output("W", "width")
"""


def made(kind, deck=DECK):
    return [v for v in variants(deck) if v.kind == kind]


def changed_line(variant):
    old, new = DECK.splitlines(), variant.deck.splitlines()
    assert len(old) == len(new)
    [(number, line)] = [(i, b) for i, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b]
    assert number == variant.line
    return line


def test_each_slip_changes_one_line_and_says_which():
    found = variants(DECK)
    assert len({v.deck for v in found}) == len(found)
    for variant in found:
        assert changed_line(variant)
        assert variant.what
        assert '"a encloses b by 0.4.um"' in variant.deck and "# the outer one" in variant.deck


EXPECTED = {
    "metric": ["a.enclosing(b, 0.4.um, projection)", "a.space(0.3.um, square)", "a.separation(b, 300, euclidian)"],
    "limit +1 dbu": ["0.401.um", "(b, 301, projection)", "0.251001.um2", "b.width(0.201.um)"],
    "limit -5 nm": ["0.395.um", "(b, 295, projection)", "0.295.um", "0.245025.um2"],
    "call": ["a.isolated(0.3.um)", "a.notch(0.3.um)", "b.notch(0.2.um)"],
    "order": [
        "b.enclosing(a, 0.4.um, euclidian)",
        "a.enclosed(b, 0.4.um",
        "b.separation(a, 300",
        "a.not(b.not_outside(a))",
    ],
    "overlap": ["a.overlap(b, 0.4.um, euclidian)"],
    "clause dropped": ['e1.output("E"', 'e2.output("E"'],
    "coverage": ["e2 = b.not(a)"],
    "filter dropped": ["b = input(2, 0)\n"],
    "filter negated": ["input(2, 0).not_interacting(input(3, 0))", "b.outside(a).not(a)"],
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_every_kind_of_slip_is_made(kind):
    decks = [v.deck for v in made(kind)]
    for text in EXPECTED[kind]:
        assert any(text in deck for deck in decks), text


def test_numbers_that_are_no_limits_stay():
    assert all("polygons(0.001)" in v.deck for v in variants(DECK))
    assert all("input(1, 0)" in v.deck for v in variants(DECK))


def test_isolated_and_notch_are_taken_for_others():
    assert "l.space(1.um)" in made("call", "l = input(1, 0)\nl.isolated(1.um)\n")[0].deck
    assert "l.width(1.um)" in made("call", "l = input(1, 0)\nl.notch(1.um)\n")[0].deck


def test_a_limit_does_not_go_below_zero():
    assert made("limit -5 nm", "l = input(1, 0)\nl.width(0.003.um)\n") == []


def test_what_is_no_ruby_is_refused_and_an_empty_deck_has_no_variants():
    with pytest.raises(UsageError):
        variants("source($input\n(((")
    assert variants("") == []


@given(st.sampled_from([s for s, _, _ in READ]))
def test_variants_of_any_reading_differ_from_it_and_from_one_another(sentence):
    for reading in readings(task(sentence), most=3):
        found = variants(reading.deck)
        assert reading.deck not in {v.deck for v in found}
        assert len({v.deck for v in found}) == len(found)
        assert all(v.deck.count(".output(") == reading.deck.count(".output(") for v in found)


@pytest.mark.skipif(not shutil.which("klayout"), reason="no KLayout is installed")
def test_variants_run_and_the_wrong_limit_shows_at_the_limit(tmp_path):
    from orienteer.environments.layout.layouts import write_layout
    from orienteer.environments.layout.runner import open_runner

    path = tmp_path / "limit.gds"
    write_layout(path, {LAYERS["met1"]: [box(0, 0, 100, 900), box(200, 0, 300, 900)]})
    deck = readings(task("Minimum space of met1 is 0.1um"))[0].deck
    found = variants(deck) + variants(DECK)
    with open_runner("strmrun", cache=False) as running:
        results = running.run_many([v.deck for v in found], [path])
        [right] = running.run(deck, [path])
    assert [r[0].message for r in results if not r[0].ok] == []
    seen = {v.kind: r[0].flagged("R.1") for v, r in zip(found, results, strict=True) if "R.1" in v.deck}
    assert right.flagged("R.1") is False
    assert seen["limit +1 dbu"] is True and seen["limit -1 dbu"] is False
