"""What the sentences of rule manuals are read as: form, layers and limit of the first deck."""
# ruff: noqa: E501 (a case stands on one line)

import pytest
from rules_by_hand import READ, task

from orienteer.agents.drc.reading import readings
from orienteer.environments.layout.tasks import Rule, RuleTask
from orienteer.errors import UsageError


@pytest.mark.parametrize(("sentence", "form", "code"), READ)
def test_a_sentence_is_read_as_its_form_with_its_layers_and_limit(sentence, form, code):
    first = readings(task(sentence))[0]
    assert first.form == form
    assert code in first.deck


UNREAD = [
    ("Minimum width of poly is 0.18", "no unit"),
    ("Min met1 spacing 3", "no unit"),
    ("Minimum width of poly", "no number"),
    ("Minimum width of foo is 0.2um", '"foo"'),
    ("Min width of met3 0.2um", '"met3"'),
    ("Minimum spacing of met1 to unobtainium is 0.2um", '"unobtainium"'),
    ("Width of poly: min 0.5um, max 0.3um", "above the maximum"),
    ("Met1 density must be between 70% and 30%", "at least 70"),
    ("Minimum area of met1 is 0.3um", "no area"),
    ("Width of poly is 0um", "never be broken"),
    ("Space of poly is 3 lambda", "lambda"),
    ("Poly must be nice", "no rule form"),
    ("Min space 0.2um", "names no layer"),
    ("End of line spacing of met1 0.2um", "end of a line"),
    ("Each pad needs at least two vias of 0.2um", "number of shapes"),
    ("Maximum space of met1 is 3um", "maximum space"),
    ("", "empty"),
    ("17", ""),
]


@pytest.mark.parametrize(("sentence", "why"), UNREAD)
def test_a_sentence_that_cannot_be_read_says_why_and_how_to_mend_it(sentence, why):
    with pytest.raises(UsageError) as raised:
        readings(task(sentence))
    assert why in raised.value.problem
    assert "R.1" in raised.value.problem
    assert raised.value.cure


def test_an_unknown_layer_is_answered_with_the_layers_there_are():
    with pytest.raises(UsageError) as raised:
        readings(task("Minimum width of foo is 0.2um", layers={"met1": (1, 0), "gate": (2, 5)}))
    assert "met1, gate" in raised.value.cure


def test_several_rules_are_one_deck_with_all_categories():
    found = readings(
        task("Minimum width of poly is 0.18 um", "met1 spacing 0.14 um", "Enclosure of licon by diff 0.04um")
    )
    assert all(f'"R.{i}"' in r.deck for r in found for i in (1, 2, 3))
    assert found[0].form == "width, space, enclosure"
    assert {k.split(".", 2)[1] for k in found[0].choices} == {"1", "2", "3"}
    # The next readings leave the first in one rule each.
    changed = [sum(found[0].choices.get(k) != v for k, v in r.choices.items()) for r in found[1:4]]
    assert changed == [1, 1, 1]


DEFINED = {
    "gated is poly intersected with diff": "gated = poly.and(diff)",
    "gated is diff minus (tap, keeping only polygons entirely outside nwell)": "gated = diff.not(tap.outside(nwell))",
    "gated is poly, keeping only polygons that touch or overlap sab, keeping only polygons that neither touch nor overlap capm": "gated = poly.interacting(sab).not_interacting(capm)",
    "gated is poly, dropping polygons that touch or overlap sab": "gated = poly.not_interacting(sab)",
    "gated is diff joined with tap": "gated = diff.or(tap)",
    "gated = (diff or tap) and not nwell": "gated = diff.or(tap).not(nwell)",
    "gated is holes of nwell": "gated = nwell.holes",
    "gated is poly grown by 0.1 um": "gated = poly.sized(0.1.um)",
    "gated is poly shrunk by 50 nm": "gated = poly.sized(-0.05.um)",
    "gated is diff, keeping only polygons that overlap poly": "gated = diff.overlapping(poly)",
    "tapped is nwell, keeping only polygons that touch or overlap tap; gated is diff inside tapped": "gated = diff.and(tapped)",
}


@pytest.mark.parametrize("words", DEFINED)
def test_derived_layers_are_read_from_words(words):
    first = readings(task("Minimum width of gated is 0.3 um", description=f"Layer terms used by the rule: {words}."))[0]
    assert DEFINED[words] in first.deck.splitlines()
    assert "gated.width(0.3.um, euclidian)" in first.deck


def test_a_definition_with_unknown_words_is_refused():
    with pytest.raises(UsageError, match="wibble"):
        readings(
            task("Minimum width of gated is 0.3 um", description="Layer terms: gated is poly intersected with wibble.")
        )


def test_a_defined_layer_that_no_phrase_names_says_where_the_rule_holds():
    found = readings(
        task("met1 spacing 0.2 um", description="Layer terms used by the rule: under_pad is met1, keeping only polygons that touch or overlap pad.")
    )  # fmt: skip
    assert found[0].choices["scope"] == "interacting"
    assert "met1.space(0.2.um, euclidian).polygons(0.001.um).interacting(under_pad)" in found[0].deck


def test_awkward_names_of_layers_and_categories_stay_exact():
    layers = {"Metal1.drawing": (8, 0), "input": (9, 0), "Via 1": (10, 0), "end": (11, 2)}
    rule = Rule("Metal1 enclosure of Via 1 must be at least 0.1 um", 'M1.a "x" #{1}')
    found = readings(RuleTask("t", 'Rules "of" #{2}', "", layers, (rule,), (rule.category,)))
    assert "metal1_drawing = input(8, 0)" in found[0].deck
    assert '"M1.a \\"x\\" \\#{1}"' in found[0].deck
    width = readings(RuleTask("t", "t", "", layers, (Rule("Width of end is 1um", "E"),), ("E",)))
    assert "l_end = input(11, 2)" in width[0].deck


def test_the_metal_of_another_number_is_no_match():
    with pytest.raises(UsageError):
        readings(task("Minimum width of metal2 is 0.2um", layers={"metal1": (1, 0), "poly": (2, 0)}))


def test_a_misspelt_layer_is_taken_for_the_one_it_is_near_to_and_nwell_is_no_misspelt_pwell():
    assert (
        "rail.width"
        not in readings(task("Width of guardrin 1um", layers={"guardring": (1, 0), "rail": (2, 0)}))[0].deck
    )
    with pytest.raises(UsageError):
        readings(task("Width of nwell 1um", layers={"pwell": (1, 0), "rail": (2, 0)}))


def test_aliases_of_other_processes():
    names = {"comp": (22, 0), "poly2": (30, 0), "contact": (33, 0), "metal1": (34, 0), "nplus": (32, 0), "sab": (49, 0)}
    for phrase, name in (("active", "comp"), ("polysilicon", "poly2"), ("cut", "contact"), ("met1", "metal1"), ("M1", "metal1"),
                         ("N+ implant", "nplus"), ("salicide block", "sab"), ("diffusion", "comp")):  # fmt: skip
        assert (
            f"{name}.width(0.3.um, euclidian)"
            in readings(task(f"Minimum width of {phrase} is 0.3um", layers=names))[0].deck
        )


def test_nets_are_not_told_apart_and_the_reading_says_so():
    assert "nets are not told apart" in readings(task("Min space of nwell at different potential 2um"))[0].why


@pytest.mark.parametrize(
    "sentence",
    [
        "Minimum width of " + "(" * 900 + "poly" + ")" * 900 + " is 0.2um",
        "Minimum width of " + "poly not " * 300 + "diff is 0.2um",
        "Minimum width of poly is 0.2um " * 500,
    ],
)
def test_an_endless_sentence_is_refused(sentence):
    with pytest.raises(UsageError):
        readings(task(sentence))


def test_no_task_without_rules_or_layers():
    with pytest.raises(UsageError):
        readings(task())
    with pytest.raises(UsageError):
        readings(task("Minimum width of poly is 0.18 um", layers={}))
