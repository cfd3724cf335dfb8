"""From a rule sentence to statements: a rule form, the phrases of its layers, its limit and conditions.

Known forms, with the words that tell them:

==================  ========================================================================================
``width``           width, wide, narrower, channel length; minimum, maximum, exact, a range
``space``           space, spacing, separation, distance, clearance of one layer; "notch", "space or notch"
``separation``      the same between two layers; "no overlap", "unrelated", "butting allowed"
``wide space``      space with a condition on the width, on the parallel run length, or both
``enclosure``       enclose, surround, overlap of, enclosed by, inside by, extension around; sides; width direction
``extension``       extension past/beyond, overhang, end cap
``overlap``         how deep two layers overlap; minimum, exact
``area``            area, hole area, enclosed area
``size``            exact size of a square or rectangle
``length``          length, edge length
``inside``          must be inside, covered by, within; no A outside B; A without B is forbidden
``apart``           must not overlap, not allowed over, straddle, touch, butt
``contains``        must contain, overlap, touch, interact with
``absent``          the layer is not allowed
``angle``           only 90, or 45 and 90 degrees; orthogonal, rectilinear, Manhattan; acute angles
``rectangle``       must be rectangles, squares
``grid``            on a grid of
``density``         density, coverage ratio; with a window or of the whole layout
``antenna``         ratio of a metal or of poly to the gate
==================  ========================================================================================

Known and refused, because a deck of plain geometry cannot say them: numbers of vias, end of line, centre to centre,
recommended rules, rules of voltages. Rules of nets are read as if for all nets, and the reading says so.
"""
# ruff: noqa: E501 (a pattern stands on one line)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orienteer.agents.drc.reading.words import Bound, Quantity

#: Words for space.
SPACE = r"(?:space or notch|notch or space|space and notch|space/notch|spacings?|spaces?|separations?|distances?|clearances?|gaps?|notch(?:es)?)"
#: Verbs that say "this is required" and nothing else.
VERBS = r"\b(?:(?:shall|must|should|will|has to|have to|needs? to|is to|are to|is required to|are required to)(?: always)?(?: be| have)?|is|are|be|has|have|equals?|required|allowed|recommended)\b"


@dataclass(frozen=True)
class Statement:
    """One way to understand a rule sentence.

    Attributes:
        form: the rule form, as in the table above.
        roles: the phrases of its layers; the first is the one that the rule is about (the outer one of an enclosure).
        limit: the limit, None for forms without a number.
        bound: what it bounds.
        weight: how probable among the sentence's statements.
        extra: conditions (``wide``, ``run``: quantity and strictness), clauses and flags of the form.
        notes: what was assumed, one line each.
    """

    form: str
    roles: tuple[str, ...]
    limit: Quantity | None = None
    bound: Bound = field(default=Bound("min"))
    weight: float = 1.0
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
