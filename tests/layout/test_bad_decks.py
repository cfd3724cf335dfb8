"""Hostile decks end in a status of their own and change nothing for the decks and layouts after them."""

import importlib.util
from pathlib import Path

import pytest

from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.runner import open_runner
from orienteer.errors import MissingPrerequisite

_PATH = Path(__file__).resolve().parents[1] / "adversarial" / "layout" / "hostile_decks.py"
_SPEC = importlib.util.spec_from_file_location("hostile_decks", _PATH)
hostile = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(hostile)

GOOD = hostile.HEAD + "a.width(0.2.um).output('M1.W', 'width')"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decks")
    layouts = [folder / "narrow.gds", folder / "wide.gds"]
    for path, width in zip(layouts, (100, 300), strict=True):
        write_layout(path, {(1, 0): [[(0, 0), (0, 1000), (width, 1000), (width, 0)]]})
    try:
        runner = open_runner("strmrun", home=folder / "home", timeout_s=4, cache=False)
    except MissingPrerequisite as error:
        pytest.skip(str(error))
    with runner:
        yield runner, layouts


@pytest.mark.parametrize("name", hostile.DECKS)
def test_a_hostile_deck_spoils_only_its_own_runs(world, name):
    runner, layouts = world
    deck, statuses, line = hostile.DECKS[name]
    result = runner.run(deck, layouts[:1])[0]
    assert result.status in statuses, result
    assert result.message and "\n" not in result.message
    if line is not None:
        assert result.line == line
    assert [dict(r.counts) for r in runner.run(GOOD, layouts)] == [{"M1.W": 1}, {"M1.W": 0}]


def test_nothing_of_a_deck_is_left_for_the_next(world):
    runner, layouts = world
    assert runner.run(hostile.LURKER, layouts[:1])[0].ok
    assert runner.run(hostile.LOOKS, layouts[:1])[0].ok
