"""What the decks of sentences flag on tiny layouts: at the limit, just under it, at corners, outside."""
# ruff: noqa: E501 (a case stands on one line)

import re
import shutil
from pathlib import Path

import pytest
from rules_by_hand import LAYERS, READ, box, task

from orienteer.agents.drc.reading import readings
from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.py_runner import PyRunner

pytest.importorskip("klayout.db")


@pytest.fixture(scope="module")
def runner():
    with PyRunner() as running:
        yield running


def flagged(runner, folder, deck, shapes):
    """Whether the deck flags R.1 on polygons given by layer name."""
    path = Path(folder) / f"{len(list(Path(folder).iterdir()))}.gds"
    write_layout(path, {LAYERS[name]: polygons for name, polygons in shapes.items()})
    [result] = runner.run(deck, [path])
    assert result.ok, result.message
    return result.flagged("R.1")


L_SHAPE = [(0, 0), (0, 900), (100, 900), (100, 100), (900, 100), (900, 0)]
U_SHAPE = [(0, 0), (0, 500), (200, 500), (200, 200), (250, 200), (250, 500), (450, 500), (450, 0)]
RING = [(0, 0), (0, 900), (900, 900), (900, 0)]

CASES = [
    # A rule, the same rule's layouts: name, shapes, whether the first reading flags it.
    ("Minimum width of poly is 0.1 um", [
        ("at the limit", {"poly": [box(0, 0, 100, 900)]}, False),
        ("one dbu under", {"poly": [box(0, 0, 99, 900)]}, True),
        ("an L", {"poly": [L_SHAPE]}, False),
        ("other layer", {"met1": [box(0, 0, 50, 900)]}, False),
        ("neck at a corner", {"poly": [[(0, 0), (0, 500), (500, 500), (500, 440), (560, 440), (560, 940), (1060, 940), (1060, 440), (560, 440), (560, 500), (500, 500), (500, 0)]]}, True),
    ]),
    ("Maximum width of poly is 0.1 um", [
        ("at the limit", {"poly": [box(0, 0, 100, 900)]}, False),
        ("two over", {"poly": [box(0, 0, 102, 900)]}, True),
        ("an L of the limit", {"poly": [L_SHAPE]}, False),
    ]),
    ("Minimum space of met1 is 100 nm", [
        ("at the limit", {"met1": [box(0, 0, 200, 200), box(300, 0, 500, 200)]}, False),
        ("one dbu under", {"met1": [box(0, 0, 200, 200), box(299, 0, 500, 200)]}, True),
        ("corners 84.9 apart", {"met1": [box(0, 0, 200, 200), box(260, 260, 500, 500)]}, True),
        ("corners 113 apart", {"met1": [box(0, 0, 200, 200), box(280, 280, 500, 500)]}, False),
        ("notch", {"met1": [U_SHAPE]}, True),
        ("touching is one polygon", {"met1": [box(0, 0, 200, 200), box(200, 0, 400, 200)]}, False),
    ]),
    ("Minimum space between resistors is 100 nm", [
        ("notch", {"resistor": [U_SHAPE]}, False),
        ("one dbu under", {"resistor": [box(0, 0, 200, 200), box(299, 0, 500, 200)]}, True),
    ]),
    ("Minimum notch of met1 is 100 nm", [
        ("notch", {"met1": [U_SHAPE]}, True),
        ("two polygons", {"met1": [box(0, 0, 200, 200), box(250, 0, 500, 200)]}, False),
    ]),
    ("Space of poly to diff must be at least 0.1 um", [
        ("at the limit", {"poly": [box(0, 0, 200, 200)], "diff": [box(300, 0, 500, 200)]}, False),
        ("one dbu under", {"poly": [box(0, 0, 200, 200)], "diff": [box(299, 0, 500, 200)]}, True),
        ("a gate is no violation", {"poly": [box(100, -300, 200, 500)], "diff": [box(0, 0, 300, 200)]}, False),
    ]),
    ("Space between sab and licon is 0.1 um, no overlap allowed", [
        ("inside", {"sab": [box(0, 0, 900, 900)], "licon": [box(400, 400, 500, 500)]}, True),
        ("far", {"sab": [box(0, 0, 900, 900)], "licon": [box(1400, 400, 1500, 500)]}, False),
    ]),
    ("Minimum spacing between dnwell and unrelated nwell 0.1 um", [
        ("its own", {"dnwell": [box(0, 0, 500, 500)], "nwell": [box(-50, -50, 550, 550)]}, False),
        ("a neighbour", {"dnwell": [box(0, 0, 500, 500)], "nwell": [box(550, 0, 900, 550)]}, True),
    ]),
    ("Met1 must enclose via1 by 0.1 um", [
        ("at the limit", {"met1": [box(0, 0, 400, 400)], "via1": [box(100, 100, 300, 300)]}, False),
        ("one dbu under", {"met1": [box(0, 0, 400, 400)], "via1": [box(99, 100, 299, 300)]}, True),
        ("half outside", {"met1": [box(0, 0, 400, 400)], "via1": [box(300, 100, 800, 300)]}, True),
        ("wholly outside", {"met1": [box(0, 0, 400, 400)], "via1": [box(900, 100, 1100, 300)]}, True),
        ("no via", {"met1": [box(0, 0, 400, 400)]}, False),
    ]),
    ("Minimum met1 enclosure of via1 is 0.1 um", [
        ("wholly outside is left to other rules", {"met1": [box(0, 0, 400, 400)], "via1": [box(900, 100, 1100, 300)]}, False),
        ("half outside", {"met1": [box(0, 0, 400, 400)], "via1": [box(300, 100, 800, 300)]}, True),
    ]),
    ("Met1 enclosure of via1 on two opposite sides 0.1 um", [
        ("tight left and right", {"met1": [box(0, 0, 400, 400)], "via1": [box(10, 100, 390, 300)]}, False),
        ("tight left and below", {"met1": [box(0, 0, 400, 400)], "via1": [box(10, 10, 290, 290)]}, True),
    ]),
    ("Minimum extension of poly past diff is 0.1 um", [
        ("at the limit", {"poly": [box(100, -100, 200, 400)], "diff": [box(0, 0, 300, 300)]}, False),
        ("one dbu under", {"poly": [box(100, -99, 200, 400)], "diff": [box(0, 0, 300, 300)]}, True),
    ]),
    ("Minimum overlap of sab and poly is 0.1um", [
        ("at the limit", {"sab": [box(0, 0, 300, 300)], "poly": [box(200, 0, 600, 300)]}, False),
        ("one dbu under", {"sab": [box(0, 0, 300, 300)], "poly": [box(201, 0, 600, 300)]}, True),
    ]),
    ("Minimum and maximum overlap of sab and poly is 0.1um", [
        ("exact", {"sab": [box(0, 0, 300, 300)], "poly": [box(200, 0, 600, 300)]}, False),
        ("too much", {"sab": [box(0, 0, 300, 300)], "poly": [box(180, 0, 600, 300)]}, True),
        ("too little", {"sab": [box(0, 0, 300, 300)], "poly": [box(220, 0, 600, 300)]}, True),
        ("none", {"sab": [box(0, 0, 300, 300)], "poly": [box(500, 0, 900, 300)]}, True),
    ]),
    ("Minimum area of met1 is 0.04 um^2", [
        ("at the limit", {"met1": [box(0, 0, 200, 200)]}, False),
        ("under", {"met1": [box(0, 0, 200, 199)]}, True),
    ]),
    ("Maximum area of met1 is 0.04 um^2", [
        ("at the limit", {"met1": [box(0, 0, 200, 200)]}, False),
        ("over", {"met1": [box(0, 0, 200, 201)]}, True),
    ]),
    ("Minimum hole area of met1 is 0.04 um²", [
        ("small hole", {"met1": [box(0, 0, 900, 100), box(0, 0, 100, 900), box(800, 0, 900, 900), box(0, 130, 900, 900)]}, True),
        ("no hole", {"met1": [box(0, 0, 100, 100)]}, False),
    ]),
    ("Contact size must be exactly 0.1 um", [
        ("exact", {"licon": [box(0, 0, 100, 100)]}, False),
        ("long", {"licon": [box(0, 0, 100, 200)]}, True),
        ("small", {"licon": [box(0, 0, 99, 100)]}, True),
    ]),
    ("licon must be inside diff or poly", [
        ("inside one", {"licon": [box(0, 0, 100, 100)], "poly": [box(0, 0, 200, 200)]}, False),
        ("sticking out", {"licon": [box(150, 0, 250, 100)], "poly": [box(0, 0, 200, 200)]}, True),
    ]),
    ("licon is not allowed over gate", [
        ("on the gate", {"licon": [box(50, 50, 150, 150)], "poly": [box(0, 0, 200, 200)], "diff": [box(0, 0, 200, 200)]}, True),
        ("on poly only", {"licon": [box(50, 50, 150, 150)], "poly": [box(0, 0, 200, 200)]}, False),
    ]),
    ("nwell and dnwell must not touch", [
        ("touching", {"nwell": [box(0, 0, 100, 100)], "dnwell": [box(100, 0, 200, 100)]}, True),
        ("apart", {"nwell": [box(0, 0, 100, 100)], "dnwell": [box(101, 0, 200, 100)]}, False),
    ]),
    ("Every tap must contain at least one licon", [
        ("none", {"tap": [box(0, 0, 400, 400)]}, True),
        ("one", {"tap": [box(0, 0, 400, 400)], "licon": [box(100, 100, 200, 200)]}, False),
    ]),
    ("Only 90 degree angles are allowed for poly", [
        ("square", {"poly": [box(0, 0, 100, 100)]}, False),
        ("diagonal", {"poly": [[(0, 0), (0, 100), (100, 0)]]}, True),
    ]),
    ("Poly edges must be at 45 or 90 degrees", [
        ("both diagonals", {"poly": [[(0, 0), (100, 100), (200, 0), (100, -100)]]}, False),
        ("skew", {"poly": [[(0, 0), (0, 100), (50, 0)]]}, True),
    ]),
    ("No acute angles in met1", [
        ("acute", {"met1": [[(0, 0), (0, 100), (100, 0)]]}, True),
        ("right", {"met1": [box(0, 0, 100, 100)]}, False),
    ]),
    ("met1 must be on a grid of 0.005um", [
        ("on", {"met1": [box(0, 0, 105, 100)]}, False),
        ("off", {"met1": [box(0, 0, 103, 100)]}, True),
    ]),
    ("diff must be rectangular", [
        ("box", {"diff": [box(0, 0, 100, 100)]}, False),
        ("an L", {"diff": [L_SHAPE]}, True),
    ]),
    ("Minimum metal2 spacing is 0.2 um if width > 1 um", [
        ("wide to narrow", {"met2": [box(0, 0, 1100, 1100), box(1250, 0, 1350, 1100)]}, True),
        ("narrow to narrow", {"met2": [box(0, 0, 1000, 1100), box(1150, 0, 1250, 1100)]}, False),
        ("a wide one with an arm", {"met2": [box(0, 0, 1100, 1100), box(1100, 0, 1900, 100)]}, False),
    ]),
    ("Minimum space of met1 when parallel run length is greater than 1um is 0.2um", [
        ("short run", {"met1": [box(0, 0, 100, 1000), box(250, 0, 350, 1000)]}, False),
        ("long run", {"met1": [box(0, 0, 100, 1100), box(250, 0, 350, 1100)]}, True),
    ]),
    ("Poly minimum width is 0.1 um and minimum space 0.2 um", [
        ("both kept", {"poly": [box(0, 0, 100, 500), box(300, 0, 400, 500)]}, False),
        ("thin", {"poly": [box(0, 0, 99, 500)]}, True),
        ("near", {"poly": [box(0, 0, 100, 500), box(299, 0, 400, 500)]}, True),
    ]),
    ("Minimum length of resistor is 1 um", [
        ("long", {"resistor": [box(0, 0, 1000, 200)]}, False),
        ("short", {"resistor": [box(0, 0, 999, 200)]}, True),
    ]),
    ("Minimum width of poly is between 0.1um and 0.2um", [
        ("in between", {"poly": [box(0, 0, 150, 900)]}, False),
        ("wide", {"poly": [box(0, 0, 210, 900)]}, True),
        ("thin", {"poly": [box(0, 0, 90, 900)]}, True),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "layouts"), CASES, ids=[rule for rule, _ in CASES])
def test_the_first_deck_flags_what_the_rule_forbids(runner, tmp_path, rule, layouts):
    deck = readings(task(rule))[0].deck
    got = {name: flagged(runner, tmp_path, deck, shapes) for name, shapes, _ in layouts}
    assert got == {name: wanted for name, _, wanted in layouts}


def test_readings_differ_where_the_sentence_is_open(runner, tmp_path):
    found = readings(task("Minimum space of met1 is 100 nm"))
    layouts = [
        {"met1": [U_SHAPE]},
        {"met1": [box(0, 0, 200, 200), box(260, 260, 500, 500)]},
        {"met1": [box(0, 0, 200, 200), box(280, 280, 500, 500)]},
        {"met1": [box(0, 0, 200, 200), box(250, 0, 500, 200)]},
    ]
    seen = {tuple(flagged(runner, tmp_path, r.deck, shapes) for shapes in layouts) for r in found}
    assert len(seen) >= 6


def test_more_than_is_read_with_the_limit_in_and_out(runner, tmp_path):
    found = readings(task("Poly width must be greater than 0.1um"))
    at_limit = {r.choices["limit"]: flagged(runner, tmp_path, r.deck, {"poly": [box(0, 0, 100, 900)]}) for r in found}
    assert at_limit == {"inclusive": False, "exclusive": True}
    assert found[0].choices["limit"] == "inclusive"


@pytest.mark.skipif(not shutil.which("klayout"), reason="no KLayout is installed")
def test_every_deck_of_every_form_runs_in_klayout(tmp_path):
    from orienteer.environments.layout.runner import open_runner

    path = tmp_path / "all.gds"
    write_layout(path, {number: [box(0, 0, 900 + 10 * number[0], 300)] for number in LAYERS.values()})
    decks = {r.deck: sentence for sentence, _, _ in READ for r in readings(task(sentence))}
    with open_runner("strmrun", cache=False) as running:
        results = running.run_many(list(decks), [path])
    broken = [(sentence, r[0].message) for sentence, r in zip(decks.values(), results, strict=True) if not r[0].ok]
    assert broken == []
    assert all(set(r[0].counts) == {"R.1"} for r in results)


def test_lengths_carry_their_unit_in_every_deck():
    for sentence, form, _ in READ:
        for reading in readings(task(sentence)):
            body = reading.deck.split("\n\n", 2)[-1].replace(reading.deck.splitlines()[-1], "")
            calls = re.findall(
                r"\.(?:width|space|notch|isolated|separation|enclosing|enclosed|overlap|sized)\(([^()]*)\)", body
            )
            for arguments in calls:
                for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?!\d)(\.um2?)?", arguments):
                    assert number, (form, arguments)
