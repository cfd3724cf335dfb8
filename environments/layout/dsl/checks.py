"""Checks of distances, and the universal check."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.dsl import universal
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, POLYGONS, Op, Planner
from orienteer.environments.layout.dsl.table import (
    apply,
    entry,
)
from orienteer.environments.layout.dsl.universal import Limits, Rule
from orienteer.environments.layout.dsl.values import Arguments, Enum, Layer, Word, describe, is_number

_ONE = (
    ".{m}({d})",
    ".{m}({d}, projection)",
    ".{m}({d}, square)",
    ".{m}({d}, whole_edges)",
    ".{m}({d}, angle_limit(91.degree))",
    ".{m}({d}, projection, projecting >= {d})",
    ".{m}({d}, projection_limits({d}, nil))",
)
_TWO = tuple(sample.replace("({d},", "({S}, {d},").replace("({d})", "({S}, {d})", 1) for sample in _ONE)
_TWO = tuple(sample.replace("projection_limits({S}, {d}", "projection_limits({d}") for sample in _TWO)
#: Options that edges do not have.
POLYGON_OPTIONS = ("transparent", "projection, negative")
POLYGON_FILTERS = (
    *POLYGON_OPTIONS,
    "only_opposite",
    "not_opposite",
    "one_side_allowed",
    "two_sides_allowed",
    "two_opposite_sides_allowed, three_sides_allowed",
)


@entry("width", "PE", *_ONE, note="flags acute corners and, with euclidian, necks from corner to corner")
@entry("space", "PE", *_ONE, note="between polygons and within one (notches)")
@entry("notch", "P", *_ONE, note="within one polygon only")
@entry("isolated iso", "P", *_ONE, note="between polygons only: a notch of one polygon is not seen")
@entry("separation sep", "PE", *_TWO, note="overlap and full containment are not flagged")
@entry("overlap", "PE", *_TWO, note="only where both overlap")
@entry("enclosing enc", "PE", *_TWO, note="parts of the inner layer outside are not flagged")
@entry("enclosed", "PE", *_TWO, note="parts of the layer outside are not flagged")
def _check(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.options:
        raise args.refuse("options are not known here")
    name = {"iso": "isolated", "sep": "separation", "enc": "enclosing"}.get(args.name, args.name)
    options = check_options(args, layer.kind, name)
    value, other = options.value, options.other
    if value is None:
        raise args.error("a value is expected")
    two = universal.CHECKS[name]
    if two and other is None:
        raise args.error("the other layer is expected")
    if not two and other is not None:
        raise args.error("no other layer is expected")
    if other is not None and other.kind != layer.kind:
        raise args.error("the other layer must be of the same kind")
    constants: tuple[Hashable, ...] = (value, *options.constants(name, layer.kind))
    if layer.kind == POLYGONS:
        constants += (Enum("Region", "IgnoreProperties"),)
    constants += (Enum("ZeroDistanceMode", planner.touching),)
    if other is not None and layer.kind == POLYGONS:
        layer = _merged_first(planner, args, layer)
    return apply(planner, args, layer, f"{name}_check", EDGE_PAIRS, constants, () if other is None else (other,))


def _merged_first(planner: Planner, args: Arguments, layer: Layer) -> Layer:
    """Merge a layer for a check with another one, unless it is raw.

    The checks say that they merge. klayout.db 0.30 does not merge the first layer of two where its shapes overlap, and
    reports each of them; KLayout 0.28 does merge.
    """

    def run(source: Any, first: Any) -> Any:
        return first if not first.merged_semantics or first.is_merged() else first.merged()

    return Layer(
        POLYGONS, planner.op("merge for check", POLYGONS, (layer.op,), (), run, args.line, drawn=layer.op.drawn)
    )


@dataclass
class CheckOptions:
    """The options of a check, read from its arguments."""

    value: int | None = None
    other: Any = None
    metrics: str = "Euclidian"
    whole_edges: bool = False
    angle: Any = None
    shortest: int | None = None
    longest: int | None = None
    shielded: bool | None = None
    negative: bool = False
    opposite: str = "NoOppositeFilter"
    rectangle: int = 0

    def constants(self, name: str, kind: str, *, negative: bool = True) -> tuple[Hashable, ...]:
        """Return the arguments behind the value, in klayout.db's order."""
        made: list[Hashable] = [
            self.whole_edges,
            Enum("Metrics", self.metrics),
            self.angle,
            self.shortest,
            self.longest,
        ]
        if kind == POLYGONS:
            made.append(True if self.shielded is None else self.shielded)
            if name not in ("width", "notch"):
                made += [Enum("Region.OppositeFilter", self.opposite), _Sides(self.rectangle)]
            if negative:
                made.append(self.negative)
        return tuple(made)


@dataclass(frozen=True, slots=True)
class _Sides(Enum):
    """Rectangle filters, several together."""

    def __init__(self, bits: int) -> None:
        object.__setattr__(self, "owner", "Region.RectFilter")
        object.__setattr__(self, "name", str(bits))

    def value(self) -> Any:
        from klayout import db

        return db.Region.RectFilter(int(self.name))


def check_options(args: Arguments, kind: str, name: str, *, expression: bool = False) -> CheckOptions:
    """Read the arguments of a check.

    Args:
        args: the call.
        kind: of the layer it is called on.
        name: the check.
        expression: in a universal check: no value, and the other input may be an expression.
    """
    made = CheckOptions()
    for value in args.values:
        if isinstance(value, Word):
            _option(args, made, value)
        elif isinstance(value, Limits):
            if value.lower is None and value.upper is None:
                raise args.error("projecting needs a value to compare with")
            low, high = value.lower, value.upper
            made.shortest = 0 if low is None else args.distance(low[0]) + (0 if low[1] else 1)
            made.longest = None if high is None else args.distance(high[0]) + (1 if high[1] else 0)
        elif isinstance(value, Layer) or (expression and isinstance(value, Rule)):
            made.other = value
        elif is_number(value) and not expression:
            if made.value is not None:
                raise args.error("two values")
            made.value = args.distance(value)
        else:
            raise args.error(f"{describe(value)} is not expected here")
    if kind != POLYGONS:
        if made.negative or made.shielded is not None or made.opposite != "NoOppositeFilter" or made.rectangle:
            raise args.error("this option is for polygon layers only")
    elif name in ("width", "notch") and (made.opposite != "NoOppositeFilter" or made.rectangle):
        raise args.error("an error filter cannot be used with this check")
    if expression and made.negative:
        raise args.error("negative is not expected here")
    return made


def _option(args: Arguments, made: CheckOptions, word: Word) -> None:
    if word.kind == "metrics":
        made.metrics = word.value
    elif word.kind == "whole edges":
        made.whole_edges = word.value
    elif word.kind == "shielding":
        made.shielded = word.value
    elif word.kind == "negative":
        made.negative = True
    elif word.kind == "opposite filter":
        made.opposite = word.value
    elif word.kind == "rectangle filter":
        made.rectangle |= word.value
    elif word.kind == "angle limit":
        made.angle = word.value
    else:
        raise args.error(f"{describe(word)} is not expected here")


@entry(
    "drc",
    "P",
    ".{m}(width < {d})",
    ".{m}(width != {d})",
    ".{m}({d} < width <= 0.5.um)",
    ".{m}(space(projection) < {d})",
    ".{m}(notch < {d})",
    ".{m}(isolated >= {d})",
    ".{m}(separation({P}) < {d})",
    ".{m}(enclosing({P}) < {d})",
    ".{m}(enclosed({P}, projection) < {d})",
    ".{m}(overlap({P}) < {d})",
    ".{m}(width(projection) == {d})",
    ".{m}(area < {a})",
    ".{m}(area != {a})",
    ".{m}(perimeter > 1.um)",
    ".{m}(bbox_width <= {d})",
    ".{m}(bbox_min < 0.5.um)",
    ".{m}(rectangles)",
    ".{m}(!rectangles)",
    ".{m}(rectilinear & primary)",
    ".{m}(holes)",
    ".{m}(hulls)",
    ".{m}(with_holes > 0)",
    ".{m}(primary.sized({d}) - {P})",
    ".{m}(primary & {P})",
    ".{m}(interacting({P}) == 1)",
    ".{m}(!interacting({P}))",
    ".{m}(inside({P}))",
    ".{m}(outside({P}))",
    ".{m}(covering({P}))",
    ".{m}(!overlapping({P}))",
    ".{m}(if_any(rectangles, inside({P})))",
    ".{m}(if_all(!rectangles, area > {a}))",
    ".{m}((width < {d}).edges)",
    ".{m}((width < {d}).first_edges)",
    ".{m}((width < {d}).polygons)",
    ".{m}(length > {d})",
    ".{m}(angle == 90)",
    ".{m}(primary.edges.length < {d})",
    ".{m}(corners == 90)",
    ".{m}(extents)",
    ".{m}(middle)",
    ".{m}(switch(rectangles, primary, primary.hulls))",
    ".{m}((width < {d}) & (space < {d}))",
    ".{m}((primary & {P}).count >= 1)",
    ".{m}(foreign.sized({d}) & primary)",
    ".{m}(bbox_aspect_ratio > 1.5)",
)
def _drc(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    value = args.values[0]
    if isinstance(value, Layer):
        raise args.error("a universal check expression is expected")
    rule = universal.as_rule(args, value)
    kind = universal.kind_of(rule, args)
    others: list[Op] = []
    made = universal.spec(rule, args, others)

    def run(source: Any, first: Any, *rest: Any) -> Any:
        return first.complex_op(universal.build(made, rest, touching))

    touching = Enum("ZeroDistanceMode", planner.touching).value()
    return Layer(kind, planner.op("complex_op", kind, (layer.op, *others), made, run, args.line, drawn=layer.op.drawn))
