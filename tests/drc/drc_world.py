"""Runs of the DRC method with a model that follows a script: the rule, the decks and the scripts of the tests."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from orienteer.agents.runtime.config import RunConfig
from orienteer.agents.runtime.engine import start_run
from orienteer.memory.artifacts import ArtifactStore

SPEC = """
id: width
title: width
nl_description: Minimum width of met1 is 0.2 um.
layers: {met1: [68, 20]}
rules: [{text: Minimum width of met1 is 0.2 um., category: W}]
"""


def deck(check: str) -> str:
    return f'source($input)\nreport("width", $output)\ninput(68, 20).{check}.output("W", "too narrow")\n'


#: The pool: three takes of 0.2 um, two of 0.3 um, one that does not run.
DECKS = [
    deck("width(0.2.um, euclidian)"),
    deck("width(0.2.um, projection)"),
    deck("width(0.2.um, square)"),
    deck("width(0.3.um, euclidian)"),
    deck("width(0.3.um, projection)"),
    deck("widht(0.2.um)"),
]


def script(*cases: tuple[str, int | None]) -> str:
    """Return a script that draws cases (boxes in database units as Python text) and says what it expects of them."""
    lines = ["import json, os, pya", 'out = os.environ["OUT_DIR"]', "manifest = open(out + '/manifest.jsonl', 'w')"]
    for number, (boxes, expected) in enumerate(cases):
        lines += [
            "layout = pya.Layout()",
            "top = layout.create_cell('TOP')",
            f"for box in {boxes}: top.shapes(layout.layer(68, 20)).insert(pya.Box(*box))",
            f"layout.write(out + '/case_{number:04d}.gds')",
        ]
        if expected is not None:
            said = json.dumps({"filename": f"case_{number:04d}.gds", "expected": {"W": expected}})
            lines.append(f"manifest.write({said + chr(10)!r})")
    return "\n".join(lines) + "\n"


#: Bars of 0.15, 0.25, 0.19 and 0.35 um: the first three decks do the same, the next two fault 0.25 um as well.
SUITE = script(
    ("[(0, 0, 2000, 150)]", 1), ("[(0, 0, 2000, 250)]", 0), ("[(0, 0, 2000, 190)]", 1), ("[(0, 0, 2000, 350)]", 0)
)
#: Two squares that overlap by 0.17 um in x and y: a neck of 0.24 um, seen by ``square`` and by 0.3 um euclidian.
NECK = script(("[(0, 0, 1000, 1000), (830, 830, 2000, 2000)]", None))
#: A square that nobody faults.
PLAIN = script(("[(0, 0, 500, 500)]", None))


def run(tmp_path: Path, entries: list[dict], *, more: str = "", **settings: object):
    """Run the method on the rule with a scripted model."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC + more)
    replies = [
        *({"sample": f"width/deck/{n}", "reply": {"deck": text}} for n, text in enumerate(DECKS)),
        {"sample": "width/suite/0", "reply": {"script": SUITE}},
        *entries,
    ]
    talk = tmp_path / "talk.jsonl"
    talk.write_text("\n".join(map(json.dumps, replies)))
    config = RunConfig(
        "drc", (str(spec),), settings={"candidates": len(DECKS), "backend": "py", **settings},
        model=f"scripted/{talk}", home=tmp_path / "home", handle_signals=False,
    )  # fmt: skip
    return start_run(config)


def requests(home: Path) -> list[dict]:
    """Return what was asked of the model, in order."""
    store = ArtifactStore(home / "artifacts")
    with closing(sqlite3.connect(home / "runs.sqlite")) as conn:
        rows = conn.execute("SELECT request_artifact FROM model_calls ORDER BY created, id").fetchall()
    return [json.loads(store.text(sha)) for (sha,) in rows]
