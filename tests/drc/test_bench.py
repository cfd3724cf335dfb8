"""The benches on two small problems made here: one that the first reading wins, one that it does not."""

import csv

import pytest

from orienteer.agents.drc.bench import ENGINEER, compare
from orienteer.environments.layout.layouts import write_layout
from orienteer.environments.layout.patterns.figures import box
from orienteer.environments.layout.runner import open_runner
from orienteer.environments.layout.tasks import find_tasks
from orienteer.errors import UsageError
from orienteer.evaluators.drc.testers import kills

SPEC = """
id: {name}
title: {name}
nl_description: {rule}
layers: {{m1: [1, 0]}}
rules: [{{text: {rule}, category: C.1}}]
categories: [C.1]
deck: problems/{name}/gold/{name}.drc
data_dir: problems/{name}/data/gds
"""
GAP = [box(0, 0, 500, 500), box(630, 0, 1000, 500)]
WIDE_GAP = [box(0, 0, 500, 500), box(640, 0, 1000, 500)]
NOTCH = [box(0, 0, 1000, 400), box(0, 400, 400, 1000), box(500, 400, 1000, 1000)]


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    for name, check in (("space", "space(0.14.um, euclidian)"), ("between", "isolated(0.14.um, euclidian)")):
        folder = root / "problems" / name
        cases = [("fail", "gap", GAP, 1), ("pass", "wide", WIDE_GAP, 0)]
        cases.append(("fail", "notch", NOTCH, 1) if name == "space" else ("pass", "notch", NOTCH, 0))
        for kind in ("gold", "data/gds/fail", "data/gds/pass"):
            (folder / kind).mkdir(parents=True)
        (folder / "spec.yaml").write_text(SPEC.format(name=name, rule="Minimum space of m1 is 0.14 um."))
        deck = f'source($input)\nreport("{name}", $output)\ninput(1, 0).{check}.output("C.1", "space")\n'
        (folder / "gold" / f"{name}.drc").write_text(deck)
        with (folder / "data/gds/labels.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["filename", "C.1"])
            for kind, case, shapes, label in cases:
                write_layout(folder / f"data/gds/{kind}/{case}.gds", {(1, 0): shapes})
                rows.writerow([f"problems/{name}/data/gds/{kind}/{case}.gds", label])
    return root


def test_every_selector_is_scored_on_the_same_candidates(problems, tmp_path):
    found = compare(
        [str(problems)], ["first", "split"], candidates=8, pools=3, budget=8, model="offline", backend="py",
        sandbox="auto", allow_unsafe=False, seed=0, workers=1, home=tmp_path,
    )  # fmt: skip
    rows = {row["selector"]: row for row in found["rows"]}
    assert found["scored"] == 2 and found["pools"] == 1
    # The sentence is the same; the second problem means space between polygons only.
    assert rows["first proposal"]["won"] == rows["first"]["won"] == rows["split"]["won"] == [1]
    assert rows["best of 8 (oracle)"]["won"] == rows[ENGINEER]["won"] == [2]
    assert rows["first"]["case_accuracy"] == pytest.approx((1 + 2 / 3) / 2) and rows["first"]["ran"] == 1
    assert rows[ENGINEER]["labels"] >= 1


def test_an_unknown_selector_is_said_before_anything_runs(problems):
    with pytest.raises(UsageError, match=r"no selector 'best'.*split"):
        compare([str(problems)], ["best"], candidates=2, pools=1, budget=1, model="offline", backend="py",
                sandbox="auto", allow_unsafe=False, seed=0, workers=1)  # fmt: skip


def test_slips_are_counted_by_kind_and_by_who_sees_them(problems):
    with open_runner("py", cache=False) as runner:
        found = kills(find_tasks([str(problems)]), runner)
    for killed, of in (row[tester] for row in found["kinds"].values() for tester in row):
        assert 0 <= killed <= of
    assert found["kinds"]["limit -1 dbu"]["both decks"] == [2, 2]
    assert found["kinds"]["metric"]["both decks"][0] == found["kinds"]["metric"]["both decks"][1] > 0
    # The labelled layouts have no corner: no metric is seen.
    assert found["kinds"]["metric"]["labelled layouts"][0] == 0
