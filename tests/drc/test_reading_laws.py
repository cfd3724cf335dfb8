"""Laws of readings: spelling of units, names of layers, ranking, and decks that are Ruby."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules_by_hand import LAYERS, READ, task

from orienteer.agents.drc.reading import readings
from orienteer.agents.drc.reading.words import read_words
from orienteer.errors import UsageError

FORMS = [
    "Minimum width of poly is {}",
    "met1 to met1 spacing must be >= {}",
    "Space of poly to tap shall not be less than {}",
    "Met1 enclosure of via1: {}",
    "Min. extension of poly past diff is {}",
    "Minimum overlap of sab and poly is {}",
    "Poly must not be narrower than {}",
]
NANOMETRES = st.integers(min_value=1, max_value=100_000)


def body(deck):
    """The deck without what quotes the sentence."""
    return re.sub(r"\.output\(.*", "", deck)


def spellings(nanometres):
    um = format(Decimal(nanometres) / 1000, "f")
    return [
        f"{um}um",
        f"{um} µm",
        f"{um} μm",
        f"{um} microns",
        f"{nanometres} nm",
        f"{nanometres}nm",
        f"{um} micrometers",
        f"{um}-um",
    ]


@given(NANOMETRES, st.sampled_from(FORMS))
def test_the_spelling_of_a_unit_changes_no_deck(nanometres, form):
    decks = [[body(r.deck) for r in readings(task(form.format(text)))] for text in spellings(nanometres)]
    assert all(d == decks[0] for d in decks)
    assert format(Decimal(nanometres) / 1000, "f").rstrip("0").rstrip(".") in decks[0][0]


@given(st.sampled_from(FORMS), NANOMETRES, st.permutations(["alpha", "bravo", "charlie", "delta", "echo", "foxtrot"]))
def test_renaming_layers_renames_the_decks(form, nanometres, fresh):
    names = dict(zip(("poly", "met1", "tap", "via1", "diff", "sab"), fresh, strict=True))
    old = re.compile(rf"\b(?:{'|'.join(names)})\b")
    sentence = form.format(f"{nanometres} nm").lower()

    def renamed(text):
        return old.sub(lambda m: names[m[0]], text)

    def lines(deck):
        return tuple(sorted(deck.splitlines()))

    one = readings(task(sentence, layers={n: LAYERS[n] for n in names}), most=50)
    two = readings(task(renamed(sentence), layers={m: LAYERS[n] for n, m in names.items()}), most=50)
    # Which layers overlap in good layouts is known by name, so the order may differ; the set of decks may not.
    assert {lines(renamed(body(r.deck))) for r in one} == {lines(body(r.deck)) for r in two}


@given(st.sampled_from([s for s, _, _ in READ]), st.integers(min_value=1, max_value=12))
def test_readings_are_ranked_distinct_and_no_more_than_asked(sentence, most):
    found = readings(task(sentence), most=most)
    assert 1 <= len(found) <= most
    assert [r.prior for r in found] == sorted((r.prior for r in found), reverse=True)
    assert all(0 < r.prior <= 1 for r in found) and sum(r.prior for r in found) <= 1 + 1e-9
    assert len({r.deck for r in found}) == len(found)
    assert [r.deck for r in found] == [r.deck for r in readings(task(sentence), most=12)][: len(found)]
    assert all(r.why and r.form for r in found)


@given(st.lists(st.sampled_from([s for s, _, _ in READ]), min_size=2, max_size=4))
def test_several_rules_keep_ranking_and_categories(sentences):
    found = readings(task(*sentences))
    assert [r.prior for r in found] == sorted((r.prior for r in found), reverse=True)
    for reading in found:
        outputs = re.findall(r'\.output\("(R\.\d)"', reading.deck)
        assert outputs == [f"R.{i}" for i in range(1, len(sentences) + 1)]


@pytest.mark.parametrize("sentence", [s for s, _, _ in READ])
def test_every_deck_is_ruby_that_reads_input_and_reports(sentence):
    tree_sitter = pytest.importorskip("tree_sitter")
    ruby = pytest.importorskip("tree_sitter_ruby")
    parser = tree_sitter.Parser(tree_sitter.Language(ruby.language()))
    for reading in readings(task(sentence)):
        assert not parser.parse(reading.deck.encode()).root_node.has_error
        lines = reading.deck.splitlines()
        assert lines[0] == "source($input)"
        assert re.fullmatch(r'report\(".*", \$output\)', lines[1])


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_for_people(text):
    try:
        found = readings(task(text))
    except UsageError as error:
        assert error.problem and error.cure
    else:
        assert found


WORDS = st.sampled_from(
    [
        "minimum",
        "maximum",
        "width",
        "space",
        "of",
        "to",
        "between",
        "poly",
        "met1",
        "diff",
        "not",
        "must",
        "be",
        "by",
        "0.2",
        "um",
        "nm",
        "3",
        "(",
        ")",
        ",",
        ".",
        "and",
        "or",
        "inside",
        "outside",
        "overlap",
        "enclosure",
        "extension",
        "past",
        "area",
        "no",
        "allowed",
        "than",
        "less",
        "more",
        "with",
        "density",
        "%",
        "@0",
        "{0}",
        "0.2um",
    ]
)


@given(st.lists(WORDS, max_size=14))
def test_any_row_of_rule_words_is_read_or_refused_for_people(words):
    try:
        found = readings(task(" ".join(words)))
    except UsageError as error:
        assert error.problem and error.cure
    else:
        assert all("@" not in r.deck.replace(" ".join(words), "") for r in found)


@given(NANOMETRES)
def test_quantities_keep_their_value(nanometres):
    for text in spellings(nanometres):
        [quantity] = read_words(f"space {text} of met1").quantities
        assert (quantity.kind, quantity.value) == ("length", Decimal(nanometres) / 1000)
