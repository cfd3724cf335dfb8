"""Design-rule tasks in Rule2DRC's layout: a ``spec.yaml`` with rules, layers and categories, labelled layouts beside it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orienteer.errors import UsageError

#: GDS layer and datatype.
LayerNumber = tuple[int, int]


@dataclass(frozen=True)
class Rule:
    """One design rule: its sentence, and the report category that its violations go to."""

    text: str
    category: str


@dataclass(frozen=True)
class LabelledLayout:
    """A layout with its true answer per category (True: there is a violation)."""

    path: Path
    labels: Mapping[str, bool]


@dataclass(frozen=True)
class RuleTask:
    """What a deck is wanted for.

    Attributes:
        id: names the task.
        title: a line.
        description: the whole request in words, with what derived layers mean.
        layers: drawn layers by name.
        rules: the rules, each with its category.
        categories: the report categories wanted, in order.
        layouts: labelled layouts; empty where there are none (a session).
        gold: path of the reference deck, if any.
    """

    id: str
    title: str
    description: str
    layers: Mapping[str, LayerNumber]
    rules: tuple[Rule, ...]
    categories: tuple[str, ...]
    layouts: tuple[LabelledLayout, ...] = ()
    gold: Path | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
