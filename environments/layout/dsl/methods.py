"""The methods of layers: what each takes, what it gives, and how a test calls it.

``METHODS`` is the one table of what the interpreter supports. Each entry carries sample calls; the property tests build
their decks from them, so a method that is added here is tested against KLayout without another line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from orienteer.environments.layout.dsl import universal
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, TEXTS, Op, Planner
from orienteer.environments.layout.dsl.universal import Limits, Rule
from orienteer.environments.layout.dsl.values import Arguments, Enum, Layer, Name, Span, Word, describe, is_number

Handler = Callable[[Planner, Layer, Arguments], Any]

_LETTER = {"P": POLYGONS, "E": EDGES, "D": EDGE_PAIRS, "T": TEXTS}
#: How klayout.db's Python names a method that is a Python keyword.
_PYTHON = {"and": "and_", "or": "or_", "not": "not_", "in": "in_"}


@dataclass(frozen=True)
class Method:
    """One method of layers.

    Attributes:
        name: in a deck.
        kinds: of layers that have it.
        handler: plans a call.
        samples: calls for tests: ``{P}``, ``{E}``, ``{D}`` and ``{T}`` stand for layers, ``{d}`` for a length,
            ``{a}`` for an area.
        note: what an engineer should know of it, or nothing.
    """

    name: str
    kinds: tuple[str, ...]
    handler: Handler
    samples: tuple[str, ...]
    note: str = ""


METHODS: dict[str, Method] = {}


def _method(
    names: str, kinds: str, *samples: str, note: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a handler for each of the names; the handler gets the name in ``args.name``."""

    def enter(handler: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            METHODS[name] = Method(name, tuple(_LETTER[letter] for letter in kinds), handler, samples, note)
        return handler

    return enter


def apply(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    kind: str,
    constants: tuple[Hashable, ...] = (),
    others: Sequence[Layer] = (),
) -> Layer:
    """Return a new layer: klayout.db's ``method`` on ``layer``, other layers first and constants behind them."""
    return Layer(kind, _call(planner, args, layer, method, kind, constants, others, in_place=False))


def _change(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    constants: tuple[Hashable, ...] = (),
    others: Sequence[Layer] = (),
) -> Layer:
    """Change a layer in place: every variable that holds it sees the change."""
    layer.op = _call(planner, args, layer, method, layer.kind, constants, others, in_place=True)
    return layer


def _call(
    planner: Planner,
    args: Arguments,
    layer: Layer,
    method: str,
    kind: str,
    constants: tuple[Hashable, ...],
    others: Sequence[Layer],
    *,
    in_place: bool,
) -> Op:
    values = tuple(item.value() if isinstance(item, Enum) else item for item in constants)

    def run(source: Any, first: Any, *rest: Any) -> Any:
        if in_place:
            # A changed layer keeps its other settings (raw, strict): klayout.db's own change in place does so too.
            first = first.dup()
            getattr(first, method)(*rest, *values)
            return first
        return getattr(first, method)(*rest, *values)

    inputs = (layer.op, *(other.op for other in others))
    # With an empty layer on the other side many operations hand the drawn layer through as it is.
    drawn = any(op.drawn and op.kind == kind for op in inputs)
    return planner.op(f"{method}{'!' if in_place else ''}", kind, inputs, constants, run, args.line, drawn=drawn)


def _layer(args: Arguments, index: int, kinds: str) -> Layer:
    """Return the argument at ``index`` as a layer of one of the kinds."""
    if index >= len(args.values):
        raise args.error("another layer is expected")
    value = args.values[index]
    if not isinstance(value, Layer):
        raise args.error(f"{describe(value)} is no layer")
    if value.kind not in [_LETTER[letter] for letter in kinds]:
        raise args.error(f"a layer of {value.kind} cannot be used here")
    return value


def _same(args: Arguments, layer: Layer, index: int = 0) -> Layer:
    other = _layer(args, index, "PEDT")
    if other.kind != layer.kind:
        raise args.error("the other layer must be of the same kind")
    return other


# --- booleans ---------------------------------------------------------------------------------------------------------


@_method("and not", "PET", ".{m}({P})")
def _boolean(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = _layer(args, 0, "P" if layer.kind == TEXTS else "PE" if layer.kind == EDGES else "P")
    method = {"and": "&", "not": "-"}[args.name]
    if layer.kind == TEXTS:
        return apply(planner, args, layer, {"&": "__and__", "-": "__sub__"}[method], layer.kind, (), (other,))
    return apply(planner, args, layer, _PYTHON[args.name], layer.kind, (), (other,))


@_method("or xor", "PE", ".{m}({S})")
def _union(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, _PYTHON.get(args.name, args.name), layer.kind, (), (_same(args, layer),))


@_method("join", "PEDT", ".{m}({S})")
def _join(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, "join", layer.kind, (), (_same(args, layer),))


@_method("andnot split_inside split_outside split_interacting", "PE", ".{m}({P})[0]", ".{m}({P})[1]")
@_method("split_overlapping split_covering", "P", ".{m}({P})[0]", ".{m}({P})[1]")
@_method("inside_outside_part", "E", ".{m}({P})[0]", ".{m}({P})[1]")
@_method("in_and_out", "PE", ".{m}({S})[0]", ".{m}({S})[1]")
def _split(planner: Planner, layer: Layer, args: Arguments) -> tuple[Layer, Layer]:
    counted = args.name in ("split_interacting", "split_overlapping", "split_covering")
    args.count(1, 3 if counted else 1)
    kinds = "P"
    if layer.kind == EDGES and args.name != "inside_outside_part":
        kinds = "PE"
    elif args.name == "split_interacting":
        kinds = "PET"
    other = _same(args, layer) if args.name == "in_and_out" else _layer(args, 0, kinds)
    both = apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))
    made = []
    for index in (0, 1):

        def run(source: Any, pair: Any, index: int = index) -> Any:
            return pair[index]

        made.append(
            Layer(layer.kind, planner.op("part", layer.kind, (both.op,), (index,), run, args.line, drawn=both.op.drawn))
        )
    return made[0], made[1]


# --- selection --------------------------------------------------------------------------------------------------------


def _counts(args: Arguments) -> tuple[int, ...]:
    """Return the count arguments behind the other layer: none, least, or least and most."""
    values = args.values[1:]
    if not values:
        return ()
    if len(values) == 1 and isinstance(values[0], Span):
        span = values[0]
        low, high = span.low, span.high
        for bound in (low, high):
            if bound is not None and not is_number(bound):
                raise args.error("a count is a whole number")
        if low is not None and int(low) <= 0:
            raise args.error("a count must be at least 1")
        return (int(low or 1),) if high is None else (int(low or 1), int(high))
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise args.error("a count is a whole number")
        if value <= 0:
            raise args.error("a count must be at least 1")
        args.length(value)
    if len(values) == 2 and values[1] < values[0]:
        raise args.error("the largest count is below the least")
    return tuple(values)


_COUNTED = (".{m}({P})", ".{m}({P}, 1, 1)", ".{m}({P}, 2)", ".{m}({P}, 2..3)")


@_method("interacting not_interacting", "PEDT", ".{m}({P})")
@_method("select_interacting select_not_interacting", "PE", ".{m}({P})")
def _interacting(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1 if layer.kind == TEXTS else 3)
    other = _layer(args, 0, {POLYGONS: "PET", TEXTS: "P"}.get(layer.kind, "PE"))
    if args.name.startswith("select_"):
        return _change(planner, args, layer, args.name, _counts(args), (other,))
    return apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))


@_method("overlapping not_overlapping covering not_covering", "P", *_COUNTED)
@_method("select_overlapping select_not_overlapping select_covering select_not_covering", "P", ".{m}({P})")
def _overlapping(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 3)
    other = _layer(args, 0, "P")
    change = _change if args.name.startswith("select_") else None
    if change:
        return change(planner, args, layer, args.name, _counts(args), (other,))
    return apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))


@_method("inside not_inside outside not_outside", "PE", ".{m}({P})", note="touching the border is inside")
@_method("select_inside select_not_inside select_outside select_not_outside", "PE", ".{m}({P})")
def _inside(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = _layer(args, 0, "PE" if layer.kind == EDGES else "P")
    if args.name.startswith("select_"):
        return _change(planner, args, layer, args.name, (), (other,))
    return apply(planner, args, layer, args.name, layer.kind, (), (other,))


@_method("in not_in", "PE", ".{m}({S})", note="whole shapes that are exactly alike")
def _in(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, _PYTHON.get(args.name, args.name), layer.kind, (), (_same(args, layer),))


@_method("inside_part outside_part", "E", ".{m}({P})")
def _part(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, EDGES, (), (_layer(args, 0, "P"),))


@_method("intersections", "E", ".{m}({E})")
def _intersections(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, EDGES, (), (_layer(args, 0, "E"),))


@_method("pull_interacting", "PE", ".{m}({P})", ".{m}({E})")
@_method("pull_overlapping pull_inside", "P", ".{m}({P})")
def _pull(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = _layer(args, 0, "PE" if args.name == "pull_interacting" else "P")
    return apply(planner, args, layer, args.name, other.kind, (), (other,))


# --- checks -----------------------------------------------------------------------------------------------------------

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
_POLYGON_OPTIONS = ("transparent", "projection, negative")
_POLYGON_FILTERS = (
    *_POLYGON_OPTIONS,
    "only_opposite",
    "not_opposite",
    "one_side_allowed",
    "two_sides_allowed",
    "two_opposite_sides_allowed, three_sides_allowed",
)


@_method("width", "PE", *_ONE, note="flags acute corners and, with euclidian, necks from corner to corner")
@_method("space", "PE", *_ONE, note="between polygons and within one (notches)")
@_method("notch", "P", *_ONE, note="within one polygon only")
@_method("isolated iso", "P", *_ONE, note="between polygons only: a notch of one polygon is not seen")
@_method("separation sep", "PE", *_TWO, note="overlap and full containment are not flagged")
@_method("overlap", "PE", *_TWO, note="only where both overlap")
@_method("enclosing enc", "PE", *_TWO, note="parts of the inner layer outside are not flagged")
@_method("enclosed", "PE", *_TWO, note="parts of the layer outside are not flagged")
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


@_method(
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


# --- filters ----------------------------------------------------------------------------------------------------------


def _bounds(args: Arguments, units: Callable[[Any], Any], values: list[Any]) -> tuple[Any, ...]:
    """Return one value, or two bounds of which either may be nil (a range gives two)."""
    if len(values) == 1 and isinstance(values[0], Span):
        return tuple(None if item is None else units(item) for item in (values[0].low, values[0].high))
    if not 1 <= len(values) <= 2 or any(isinstance(item, Span) for item in values):
        raise args.error("one value or two are expected")
    if len(values) == 1:
        return (units(values[0]),)
    return tuple(None if item is None else units(item) for item in values)


_RANGES = (".{m}({d})", ".{m}({d}, nil)", ".{m}(nil, {d})", ".{m}({d}..0.6.um)")


def _inverse(name: str) -> tuple[str, bool]:
    """Return ``with_...`` and whether the deck said ``without_...``."""
    return ("with_" + name.removeprefix("without_"), True) if name.startswith("without_") else (name, False)


@_method(
    "with_area without_area", "PD", ".{m}({a})", ".{m}(nil, {a})", ".{m}({a}..1.um2)", note="upper bound exclusive"
)
def _area(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, layer.kind, (*_bounds(args, args.area, args.values), inverse))


@_method("with_perimeter without_perimeter", "P", ".{m}(1.um, nil)", ".{m}(0.4.um .. 2.um)", ".{m}(1.2.um)")
@_method("with_bbox_min without_bbox_min with_bbox_max without_bbox_max", "P", *_RANGES, note="upper bound exclusive")
@_method("with_bbox_width without_bbox_width with_bbox_height without_bbox_height", "P", *_RANGES)
def _size_filter(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, POLYGONS, (*_bounds(args, args.length, args.values), inverse))


@_method("with_area_ratio without_area_ratio", "P", ".{m}(1.0)", ".{m}(1.2, 2.0)")
@_method("with_bbox_aspect_ratio without_bbox_aspect_ratio", "P", ".{m}(1.0)", ".{m}(1.2, 3.0)")
@_method("with_relative_height without_relative_height", "P", ".{m}(1.0)", ".{m}(0.2, 0.9)")
def _ratio(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    bounds = _bounds(args, lambda v: float(args.number(v)), args.values)
    return apply(planner, args, layer, method, POLYGONS, (*bounds, inverse))


@_method("with_holes without_holes", "P", ".{m}", ".{m}(1)", ".{m}(1, nil)", ".{m}(1..2)")
def _holes(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 2)
    method, inverse = _inverse(args.name)
    if not args.values:
        return apply(planner, args, layer, method, POLYGONS, (1, None, inverse))

    def whole(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise args.refuse("the number of holes must be a whole number")
        return args.length(value)

    bounds = _bounds(args, whole, args.values)
    if len(bounds) == 2 and bounds[1] is not None:
        bounds = (bounds[0], bounds[1] + 1)
    return apply(planner, args, layer, method, POLYGONS, (*bounds, inverse))


def _both(args: Arguments, layer: Layer) -> tuple[list[Any], str]:
    """Take the word ``both`` out of the arguments."""
    values = [item for item in args.values if not (isinstance(item, Word) and item.kind == "both")]
    if len(values) == len(args.values):
        return values, ""
    if layer.kind != EDGE_PAIRS:
        raise args.error("'both' is for edge pair layers only")
    return values, "_both"


@_method("with_length without_length", "ED", *_RANGES, note="upper bound exclusive")
def _length(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 3)
    method, inverse = _inverse(args.name)
    values, both = _both(args, layer)
    return apply(planner, args, layer, method + both, layer.kind, (*_bounds(args, args.length, values), inverse))


@_method("with_distance without_distance", "D", *_RANGES)
def _distance(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, EDGE_PAIRS, (*_bounds(args, args.length, args.values), inverse))


@_method("with_angle without_angle", "PED", ".{m}(90)", ".{m}(0.degree)", ".{m}(0, 60)", ".{m}(10..80)")
@_method("with_internal_angle without_internal_angle", "D", ".{m}(0)", ".{m}(0, 50)")
def _angle(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 3)
    method, inverse = _inverse(args.name)
    values, both = ([*args.values], "") if "internal" in args.name else _both(args, layer)
    kind = EDGES if layer.kind == EDGES else EDGE_PAIRS
    if (
        len(values) == 1
        and isinstance(values[0], Word)
        and values[0].kind == "edge angle"
        and "internal" not in args.name
    ):
        if layer.kind == POLYGONS:
            raise args.error("this word is for edges and edge pairs only")
        return apply(planner, args, layer, method + both, kind, (Enum("Edges.EdgeType", values[0].value), inverse))
    bounds = _bounds(args, lambda v: float(args.number(v)), values)
    if None in bounds:
        raise args.error("angles need two bounds")
    if layer.kind != POLYGONS and "internal" not in args.name and any(abs(angle) > 90 for angle in bounds):
        # Edges lie between -90 and 90 degrees; what lies beyond is read differently by KLayout's versions.
        raise args.refuse("an edge's angle is between -90 and 90 degrees")
    return apply(planner, args, layer, method + both, kind, (*bounds, inverse))


#: Calls that a method takes on layers of one kind only.
EXTRA_SAMPLES: dict[str, tuple[str, ...]] = {
    EDGES: (
        ".with_angle(ortho)",
        ".without_angle(diagonal_only)",
        ".with_angle(diagonal)",
        ".interacting({E})",
        ".not_interacting({E})",
        ".inside({E})",
        ".and({E})",
        ".not({E})",
    ),
    POLYGONS: (
        ".interacting({P}, 1, 1)",
        ".interacting({P}, 2)",
        ".interacting({E})",
        ".interacting(t)",
        ".not_interacting({P}, 2..3)",
        ".merged(2)",
        *(f".{name}({{d}}, {option})" for name in ("width", "notch") for option in _POLYGON_OPTIONS),
        *(f".{name}({{d}}, {option})" for name in ("space", "isolated") for option in _POLYGON_FILTERS),
        *(
            f".{name}({{P}}, {{d}}, {option})"
            for name in ("separation", "overlap", "enclosing", "enclosed")
            for option in _POLYGON_FILTERS
        ),
    ),
    EDGE_PAIRS: (".with_angle(ortho)", ".with_length({d}, nil, both)"),
    TEXTS: (),
}


@_method("rectangles squares rectilinear non_rectangles non_squares non_rectilinear holes hulls", "P", ".{m}")
def _plain(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, args.name, POLYGONS)


@_method("odd_polygons", "P", ".{m}")
def _odd(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, "strange_polygon_check", POLYGONS)


@_method("ongrid", "P", ".{m}(0.01.um)", ".{m}(7, 5)", note="flags corners off the grid")
def _ongrid(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    return apply(planner, args, layer, "grid_check", EDGE_PAIRS, _grid(args))


@_method("snapped snap", "P", ".{m}(0.01.um)", ".{m}(7, 5)")
def _snap(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.name == "snap":
        return _change(planner, args, layer, "snap", _grid(args))
    return apply(planner, args, layer, "snapped", POLYGONS, _grid(args))


def _grid(args: Arguments) -> tuple[int, int]:
    args.count(1, 2)
    return args.distance(args.values[0]), args.distance(args.values[-1])


# --- shapes -----------------------------------------------------------------------------------------------------------


@_method(
    "sized size",
    "P",
    ".{m}({d})",
    ".{m}(-0.03.um)",
    ".{m}({d}, 0.02.um)",
    ".{m}({d}, octagon_limit)",
    ".{m}({d}, acute_limit)",
)
def _sized(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.options:
        raise args.refuse("options are not known here")
    mode, values = 2, []
    for value in args.values:
        if isinstance(value, Word) and value.kind == "sizing mode":
            mode = value.value
        elif is_number(value):
            values.append(args.length(value))
        else:
            raise args.error(f"{describe(value)} is not expected here")
    if not 1 <= len(values) <= 2:
        raise args.error("one or two lengths are expected")
    constants = (values[0], values[-1], mode)
    if args.name == "size":
        return _change(planner, args, layer, "size", constants)
    return apply(planner, args, layer, "sized", POLYGONS, constants)


@_method("smoothed", "P", ".{m}(0.02.um)")
def _smoothed(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    keep = args.values[1] if len(args.values) > 1 else False
    if not isinstance(keep, bool):
        raise args.error("true or false is expected")
    return apply(planner, args, layer, "smoothed", POLYGONS, (args.distance(args.values[0]), keep))


@_method("rounded_corners", "P", ".{m}(0.02.um, 0.03.um, 16)")
def _rounded(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(3, 3)
    points = args.values[2]
    if not isinstance(points, int) or isinstance(points, bool):
        raise args.error("a whole number of points is expected")
    if not 0 < points <= 1024:
        raise args.refuse("between 1 and 1024 points")
    constants = (args.distance(args.values[0]), args.distance(args.values[1]), points)
    return apply(planner, args, layer, "rounded_corners", POLYGONS, constants)


@_method("corners", "P", ".{m}", ".{m}(90)", ".{m}(-100.0 .. -20.0)", ".{m}(as_dots)", ".{m}(as_edge_pairs)")
def _corners(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.options:
        raise args.refuse("options are not known here")
    mode, low, high = "boxes", -180.0, 180.0
    for value in args.values:
        if isinstance(value, Span):
            if value.exclusive or not is_number(value.low) or not is_number(value.high):
                raise args.refuse("only ranges of two angles are known")
            low, high = float(value.low), float(value.high)
        elif is_number(value):
            low = high = float(args.number(value))
        else:
            mode = universal.output_mode(args, value)
    method, kind = "corners", POLYGONS
    if mode in ("edges", "dots"):
        method, kind = "corners_dots", EDGES
    elif mode == "edge_pairs":
        method, kind = "corners_edge_pairs", EDGE_PAIRS
    return apply(planner, args, layer, method, kind, (low, high))


#: Fractions (left, bottom, right, top) of the bounding box that a name stands for.
_PLACES = {
    "center": (0.5, 0.5, 0.5, 0.5),
    "bottom_center": (0.5, 0.0, 0.5, 0.0),
    "bottom_left": (0.0, 0.0, 0.0, 0.0),
    "bottom_right": (1.0, 0.0, 1.0, 0.0),
    "top_center": (0.5, 1.0, 0.5, 1.0),
    "top_left": (0.0, 1.0, 0.0, 1.0),
    "top_right": (1.0, 1.0, 1.0, 1.0),
    "left_center": (0.0, 0.5, 0.0, 0.5),
    "right_center": (1.0, 0.5, 1.0, 0.5),
    "left": (0.0, 0.0, 0.0, 1.0),
    "bottom": (1.0, 0.0, 0.0, 0.0),
    "right": (1.0, 1.0, 1.0, 0.0),
    "top": (0.0, 1.0, 1.0, 1.0),
}
_PLACES |= {"".join(part[0] for part in name.split("_")): at for name, at in _PLACES.items()}


def places(args: Arguments) -> tuple[bool, tuple[float, float, float, float]]:
    """Read the arguments of ``middle`` and ``extent_refs``: as edges or not, and the fractions of the box."""
    if args.options:
        raise args.refuse("options are not known here")
    edges, fractions = False, [0.0] * 0
    for value in args.values:
        if isinstance(value, Word):
            edges = universal.output_mode(args, value) in ("edges", "dots")
        elif isinstance(value, float) and args.name != "middle":
            fractions.append(float(args.number(value)))
        elif isinstance(value, Name) and value.name in _PLACES and args.name != "middle":
            fractions = list(_PLACES[value.name])
        else:
            raise args.error(f"{describe(value)} is not expected here")
    if any(abs(item) > 1000 for item in fractions):
        raise args.refuse("too large a fraction")
    if len(fractions) == 2:
        fractions = fractions * 2
    fractions = (fractions + [0.5] * 4)[:4]
    return edges, (fractions[0], fractions[1], fractions[2], fractions[3])


def flat_size(fractions: tuple[float, float, float, float]) -> int:
    """Return what is added on each side where the marker would have no area."""
    x1, y1, x2, y2 = fractions
    return 1 if abs(x1 - x2) < 1e-7 or abs(y1 - y2) < 1e-7 else 0


@_method("middle", "P", ".{m}", ".{m}(as_dots)")
@_method("extent_refs", "P", ".{m}(:left)", ".{m}(:tr)", ".{m}(0.0, 0.0, 0.5, 1.0)", ".{m}(:top, as_edges)")
def _extent_refs(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    edges, fractions = places(args)
    if edges:
        return apply(planner, args, layer, "extent_refs_edges", EDGES, fractions)
    add = flat_size(fractions)
    return apply(planner, args, layer, "extent_refs", POLYGONS, (*fractions, add, add))


@_method("extents", "PEDT", ".{m}", ".{m}({d})", ".{m}(0.02.um, 0.05.um)")
def _extents(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 2)
    return apply(planner, args, layer, "extents", POLYGONS, tuple(args.length(value) for value in args.values))


@_method("merged merge", "PE", ".{m}")
def _merged(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 2 if layer.kind == POLYGONS else 0)
    values: list[Hashable] = []
    for index, value in enumerate(args.values):
        if isinstance(value, bool) and index == 0 and len(args.values) == 2:
            values.append(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            values.append(args.distance(value))
        else:
            raise args.error(f"{describe(value)} is not expected here")
    if args.name == "merge":
        return _change(planner, args, layer, "merge", tuple(values))
    return apply(planner, args, layer, "merged", layer.kind, tuple(values))


@_method("moved move", "PEDT", ".{m}(0.01.um, -0.02.um)")
def _moved(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(2, 2)
    constants = tuple(args.length(value) for value in args.values)
    if args.name == "move":
        return _change(planner, args, layer, "move", constants)
    return apply(planner, args, layer, "moved", layer.kind, constants)


@_method("scaled", "PEDT", ".{m}(2)", ".{m}(0.5)")
@_method("rotated", "PEDT", ".{m}(90)", ".{m}(45.0)")
def _turned(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    value = float(args.number(args.values[0]))
    scale, angle = (value, 0.0) if args.name == "scaled" else (1.0, value)
    if not 1e-3 <= scale <= 1e3 or abs(angle) > 1e6:
        raise args.refuse("between 0.001 and 1000 only")

    def run(source: Any, first: Any) -> Any:
        from klayout import db

        return first.transformed(db.ICplxTrans(scale, angle, False, 0, 0))

    op = planner.op(args.name, layer.kind, (layer.op,), (scale, angle), run, args.line, drawn=layer.op.drawn)
    return Layer(layer.kind, op)


# --- edges and edge pairs ---------------------------------------------------------------------------------------------


@_method("edges", "PD", ".{m}")
def _edges(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, "edges", EDGES)


@_method("first_edges second_edges", "D", ".{m}")
def _one_side(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, args.name, EDGES)


@_method("polygons", "D", ".{m}", ".{m}(0.001.um)", ".{m}(5)")
def _polygons(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 1)
    return apply(planner, args, layer, "polygons", POLYGONS, tuple(args.length(value) for value in args.values))


@_method("start_segments end_segments centers", "E", ".{m}({d})", ".{m}(0, 0.5)")
def _segments(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    fraction = float(args.number(args.values[1])) if len(args.values) > 1 else 0.0
    return apply(planner, args, layer, args.name, EDGES, (args.distance(args.values[0]), fraction))


@_method(
    "extended",
    "E",
    ".{m}(0, 0, 0.01.um, 0.01.um)",
    ".{m}({d}, 0, 0.01.um)",
    ".{m}(:out => 0.02.um, :begin => 0.01.um)",
    ".{m}(in: 0.02.um, joined: true)",
)
def _extended(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if len(args.values) > 5:
        raise args.error("too many arguments")
    made: list[Any] = [0, 0, 0, 0, False]
    for index, value in enumerate(args.values):
        if index < 4:
            made[index] = args.length(value)
        elif isinstance(value, Word) and value.kind == "joined":
            made[index] = True
        else:
            made[index] = value is not None and value is not False
    places_of = {"begin": 0, "end": 1, "out": 2, "in": 3}
    for name, value in args.options.items():
        if name == "joined":
            made[4] = made[4] or (value is not None and value is not False)
        elif name in places_of:
            if value is not None and value is not False:
                made[places_of[name]] = args.length(value)
        else:
            raise args.refuse(f"the option {name}")
    return apply(planner, args, layer, "extended", POLYGONS, tuple(made))


@_method("extended_in extended_out", "E", ".{m}({d})")
def _extended_one(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, POLYGONS, (args.length(args.values[0]),))


# --- texts and settings -----------------------------------------------------------------------------------------------


@_method("texts texts_not", "T", '.{m}("A*")', '.{m}(text("A1"))')
def _texts(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 1)
    method, pattern = "with_match", "*"
    for value in args.values:
        if isinstance(value, str):
            pattern = value
        elif isinstance(value, Word) and value.kind == "text pattern":
            method, pattern = value.value
        else:
            raise args.refuse(f"{describe(value)} is not known here")
    return apply(planner, args, layer, method, TEXTS, (pattern, args.name == "texts_not"))


def _set(planner: Planner, layer: Layer, args: Arguments, setting: str, value: bool) -> Layer:
    def run(source: Any, first: Any) -> Any:
        first = first.dup()
        setattr(first, setting, value)
        return first

    layer.op = planner.op(setting, layer.kind, (layer.op,), (value,), run, args.line, drawn=layer.op.drawn)
    return layer


@_method("raw clean", "PE", ".{m}", note="holds for the variable from here on")
def _raw(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return _set(planner, layer, args, "merged_semantics", args.name == "clean")


@_method("strict non_strict", "P", ".{m}")
def _strict(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return _set(planner, layer, args, "strict_handling", args.name == "strict")


@_method("dup", "PEDT", ".{m}")
def _dup(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return Layer(layer.kind, layer.op)


@_method("flatten", "P", ".{m}")
def _flatten(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)

    def run(source: Any, first: Any) -> Any:
        made = first.dup()
        made.flatten()
        return made

    layer.op = planner.op("flatten", layer.kind, (layer.op,), (), run, args.line, drawn=layer.op.drawn)
    return layer


@_method(
    "with_density without_density",
    "P",
    ".{m}(0.3, 1.0, tile_size(0.5.um))",
    ".{m}(0.1..0.5, tile_size(0.4.um, 0.6.um), tile_step(0.2.um), tile_origin(0, 0), tile_count(3, 3))",
    ".{m}(0.2, nil, tile_size(0.7.um), padding_ignore)",
    note="tiles that reach over the border count what is outside as empty (padding_ignore: not at all)",
)
def _density(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.options:
        raise args.refuse("options are not known here")
    limits: list[float | None] = []
    found: dict[str, Any] = {}
    padding = "zero"
    for value in args.values:
        if isinstance(value, Word) and value.kind in ("tile size", "tile step", "tile origin", "tile count"):
            found[value.kind] = value.value
        elif isinstance(value, Word) and value.kind == "padding":
            padding = value.value
        elif isinstance(value, Span) and not limits:
            limits = [None if item is None else args.number(item) for item in (value.low, value.high)]
        elif (value is None or is_number(value)) and len(limits) < 2:
            limits.append(None if value is None else args.number(value))
        else:
            raise args.error(f"{describe(value)} is not expected here")
    size = found.get("tile size")
    if size is None:
        raise args.error("tile_size is expected")
    step = found.get("tile step", size)
    origin, tiles = found.get("tile origin"), found.get("tile count")
    if min(size[0], size[1], step[0], step[1]) <= 0:
        raise args.refuse("tiles without a size")
    low = 0.0 if not limits or limits[0] is None else float(limits[0])
    high = 1.0 if len(limits) < 2 or limits[1] is None else float(limits[1])
    inverse = args.name == "without_density"
    constants = (low, high, size, step, origin, tiles, padding, inverse)

    def run(source: Any, first: Any) -> Any:
        return _tiled(source, first, *constants)

    return Layer(POLYGONS, planner.op("density", POLYGONS, (layer.op,), constants, run, args.line))


#: Most tiles of one density check.
MOST_TILES = 250_000


def _tiled(
    source: Any,
    region: Any,
    low: float,
    high: float,
    size: tuple[float, float],
    step: tuple[float, float],
    origin: tuple[float, float] | None,
    tiles: tuple[int, int] | None,
    padding: str,
    inverse: bool,
) -> Any:
    """Return the tiles whose density lies within (or, inverse, out of) the bounds."""
    from klayout import db

    box = region.bbox()
    count = tiles[0] * tiles[1] if tiles else 0
    if not tiles and not box.empty():
        count = (box.width() * source.dbu / step[0] + 2) * (box.height() * source.dbu / step[1] + 2)
    if count > MOST_TILES:
        raise ValueError(f"more than {MOST_TILES} tiles")
    work = db.TilingProcessor()
    work.dbu = source.dbu
    work.scale_to_dbu = False
    work.tile_size(*step)
    over = (0.0, 0.0)
    if size != step:
        over = (0.5 * (size[0] - step[0]), 0.5 * (size[1] - step[1]))
        work.tile_border(*over)
    work.var("dx", over[0] / source.dbu)
    work.var("dy", over[1] / source.dbu)
    if origin:
        work.tile_origin(*origin)
    if tiles:
        work.tiles(*tiles)
    made = db.Region()
    work.output("found", made)
    work.input("shapes", region)
    # The processor does not hold what it is given: these names do.
    extent = db.Region(box)
    work.input("extent", extent)
    work.var("low", low - 1e-10)
    work.var("high", high + 1e-10)
    work.var("inverse", inverse)
    whole = "to_f(window.area)" if padding == "zero" else "to_f(extent.area(window))"
    work.queue(
        "_tile && (var window = _tile.bbox.enlarged(dx, dy); var whole = "
        + whole
        + "; whole > 0 && (var share = to_f(shapes.area(window)) / whole;"
        + " ((share > low && share < high) != inverse) && _output(found, window, false)))"
    )
    work.execute("density")
    return made
