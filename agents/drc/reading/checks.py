"""From a statement and its layers to deck expressions, with the choices that the sentence leaves open.

Each form has *dimensions* (metric, coverage clause, ...), each a list of options with the share of deck authors that we
estimate to take it. The estimates are ours, from reading open decks, and were not fitted; they order the readings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal

from orienteer.agents.drc.reading.layers import features
from orienteer.agents.drc.reading.phrases import Chosen
from orienteer.agents.drc.reading.statement import Statement
from orienteer.agents.drc.reading.terms import Term
from orienteer.agents.drc.reading.words import Bound, Quantity, decimal_text
from orienteer.errors import UsageError

#: One database unit that decks assume, in um: the step between "at the limit" and "past it".
_STEP = Decimal("0.001")
#: A step of areas in um2.
_AREA_STEP = Decimal("0.000001")


@dataclass(frozen=True)
class Option:
    """One answer to an open choice: its label, prior weight and, where it needs one, the reason in words."""

    label: str
    weight: float
    why: str = ""


@dataclass(frozen=True)
class Part:
    """An expression that yields violations: ``polygons``, ``edges`` or ``pairs`` (edge pairs)."""

    kind: str
    term: Term

    def polygons(self) -> Term:
        """The violations as polygons, thin ones where they are edges, so that parts can be joined."""
        if self.kind == "pairs":
            return self.term.call("polygons", "0.001.um")
        if self.kind == "edges":
            return self.term.call("extended", "0.0", "0.0", "0.001.um", "0.001.um")
        return self.term


Picks = Mapping[str, str]
Dimensions = dict[str, list[Option]]


@dataclass(frozen=True)
class Check:
    """A statement with its layers chosen: the dimensions that are open, and what each set of picks makes of it."""

    dimensions: Dimensions
    build: Callable[[Picks], list[Part]]


_METRIC = [
    Option("euclidian", 0.76, "distances in every direction"),
    Option("projection", 0.15, "only between facing edges, corners left out"),
    Option("square", 0.09, "corners by the larger of dx and dy"),
]
_METRIC_EXTENSION = [
    Option("euclidian", 0.55, "distances in every direction"),
    Option("projection", 0.38, "only between facing edges"),
    Option("square", 0.07, "corners by the larger of dx and dy"),
]
_SIDES = {
    "two opposite": ["two_opposite_sides_allowed"],
    "one of two adjacent": ["one_side_allowed", "two_opposite_sides_allowed"],
    "three": ["one_side_allowed"],
    "one": ["one_side_allowed", "two_sides_allowed", "three_sides_allowed"],
}


def um(value: Decimal) -> str:
    """A length in Ruby."""
    return f"{decimal_text(value)}.um"


def check(statement: Statement, roles: Sequence[Chosen], inner_of: Callable[[Term], Sequence[Term]]) -> Check:
    """Set out the choices of a statement whose layers are chosen.

    Args:
        statement: the statement.
        roles: a term for each of its phrases.
        inner_of: gives the drawn layers that mark a derived layer, for "unrelated".

    Raises:
        UsageError: the form is known but not with this bound or condition.
    """
    a = roles[0].term
    b = roles[1].term if len(roles) > 1 else a
    makers = {
        "width": _width, "space": _space, "separation": _separation, "wide space": _wide_space,
        "enclosure": _enclosure, "extension": _extension, "overlap": _overlap, "area": _area, "hole area": _area,
        "size": _size, "length": _length, "inside": _inside, "apart": _apart, "contains": _contains, "absent": _absent,
        "angle": _angle, "rectangle": _rectangle, "grid": _grid, "density": _density,
    }  # fmt: skip
    dims: Dimensions = {}
    if statement.extra.get("butting") == "allowed" and statement.form == "separation":
        b = b.call("not_interacting", a)
    unrelated = len(roles) > 1 and any(r.unrelated for r in roles)
    if unrelated:
        other, subject = (a, b) if roles[1].unrelated else (b, a)
        options = [Option("not_interacting", 0.5, "unrelated: polygons that do not meet the other layer")]
        markers = [m for m in inner_of(other) if m.names != subject.names]
        options += [
            Option(f"without {m.code}", 0.45 / len(markers), f"unrelated: polygons without {m.code}") for m in markers
        ]
        options.append(Option("any", 0.05, "unrelated: what overlaps is not measured anyway"))
        dims["unrelated"] = options
        known = {f"without {m.code}": m for m in markers} | {"not_interacting": other}

        def related(picks: Picks) -> tuple[Term, Term]:
            marker = known.get(picks["unrelated"])
            chosen = subject.call("not_interacting", marker) if marker else subject
            return (a, chosen) if roles[1].unrelated else (chosen, b)

        first = makers[statement.form](statement, a, b)
        return Check(
            dims | first.dimensions, lambda picks: makers[statement.form](statement, *related(picks)).build(picks)
        )
    made = makers[statement.form](statement, a, b)
    return Check(dims | made.dimensions, made.build)


def _value(statement: Statement) -> Quantity:
    assert statement.limit is not None
    return statement.limit


def _strictness(bound: Bound) -> Dimensions:
    """ "Greater than 0.4" leaves 0.4 itself out; many authors mean it to be in."""
    if not bound.strict:
        return {}
    return {
        "limit": [
            Option("inclusive", 0.75, "the limit itself is allowed"),
            Option("exclusive", 0.25, "the limit itself is a violation, as the words say"),
        ]
    }


def _lowest(statement: Statement, picks: Picks, step: Decimal = _STEP) -> Decimal:
    """The smallest value allowed."""
    value = _value(statement).value
    return value + step if picks.get("limit") == "exclusive" else value


def _highest(statement: Statement, picks: Picks, step: Decimal = _STEP) -> Decimal:
    """The largest value allowed."""
    high = statement.extra.get("high")
    value = high.value if high else _value(statement).value
    return value - step if picks.get("limit") == "exclusive" and not high else value


def _half(value: Decimal) -> Decimal:
    return (value / 2 / _STEP).to_integral_value(ROUND_CEILING) * _STEP


def _too_wide(a: Term, value: Decimal) -> Part:
    half = um(_half(value))
    return Part("polygons", a.call("sized", f"-{half}").call("sized", half))


def _width(s: Statement, a: Term, b: Term) -> Check:
    if s.bound.kind == "max":
        return Check(_strictness(s.bound), lambda p: [_too_wide(a, _highest(s, p))])
    high = s.extra.get("high") or (s.limit if s.bound.kind == "exact" else None)

    def build(picks: Picks) -> list[Part]:
        parts = [Part("pairs", a.call("width", um(_lowest(s, picks)), picks["metric"]))]
        if high:
            parts.append(_too_wide(a, high.value))
        return parts

    return Check({"metric": _METRIC} | _strictness(s.bound), build)


def _space(s: Statement, a: Term, b: Term) -> Check:
    if s.bound.kind != "min":
        raise UsageError(
            f"a {_told(s.bound)} space is known but cannot be checked by pairs of edges", "write that deck by hand"
        )
    if s.extra.get("notch"):
        kinds = [Option("notch", 0.85, "inside one polygon"), Option("space", 0.15, "notches and between polygons")]
    elif s.extra.get("and notch"):
        kinds = [
            Option("space", 0.9, "between polygons and in notches"),
            Option("isolated", 0.1, "between polygons only"),
        ]
    else:
        # "Between resistors" speaks of two devices, so of two polygons.
        isolated = 0.52 if s.extra.get("devices") else 0.38 if s.extra.get("between") else 0.28
        kinds = [
            Option("space", 0.96 - isolated, "between polygons and in notches"),
            Option("isolated", isolated, "between polygons only, notches left out"),
            Option("notch", 0.04, "in notches only"),
        ]
    return Check(
        {"call": kinds, "metric": _METRIC} | _strictness(s.bound),
        lambda p: [Part("pairs", a.call(p["call"], um(_lowest(s, p)), p["metric"]))],
    )


#: Pairs of layers that overlap in good layouts; implants, wells and markers overlap anything.
_CROSSING = """
poly active, gate active, gate poly, contact active, contact poly, contact metal, contact li, contact tap, via metal,
via contact, mcon metal, mcon li, li poly, li active, metal poly, metal active, metal li, metal metal
"""
_CROSSING_PAIRS = [frozenset(pair.split()) for pair in _CROSSING.split(",")]
_OVER_ALL = frozenset(
    ("nplus", "pplus", "nwell", "pwell", "dnwell", "dpwell", "marker", "dualgate", "lvtn", "hvtp", "nbulay")
)


def crosses_by_design(a: str, b: str) -> bool:
    """Say whether good layouts hold overlaps of what two phrases name, so that a rule of their space leaves them out.

    A device ("poly resistor") is not the layer that it is made of: it crosses nothing.
    """
    one, two = (({f for f in features(p) if f[0] not in "#~"}) for p in (a, b))
    if {"resistor", "sab", "capacitor", "inductor", "diode", "fuse"} & (one | two):
        return False
    first, second = one & _OVER_ALL, two & _OVER_ALL
    if first or second:
        # Active in a well and active outside: "n+ active to p+ active" names layers, not implants.
        return bool((first and first == one) or (second and second == two))
    return one == two or any({x, y} == pair for x in one for y in two for pair in _CROSSING_PAIRS)


def _separation(s: Statement, a: Term, b: Term) -> Check:
    if s.bound.kind != "min":
        raise UsageError(
            f"a {_told(s.bound)} separation is known but cannot be checked by pairs of edges", "write that deck by hand"
        )
    if s.extra.get("no overlap"):
        overlap = [
            Option("and", 0.75, "an overlap is a violation too"),
            Option("not_outside", 0.2, "polygons that overlap are violations, whole"),
            Option("none", 0.05, "overlaps are left to other rules"),
        ]
    elif crosses_by_design(*s.roles) or s.extra.get("butting") or "unrelated" in " ".join(s.roles):
        overlap = [
            Option("none", 0.72, "layers that overlap are not measured"),
            Option("and", 0.2, "an overlap is a violation too"),
            Option("not_outside", 0.08, "polygons that overlap are violations, whole"),
        ]
    else:
        overlap = [
            Option("and", 0.5, "an overlap is a violation too: these layers never cross by design"),
            Option("none", 0.42, "layers that overlap are not measured"),
            Option("not_outside", 0.08, "polygons that overlap are violations, whole"),
        ]

    def build(picks: Picks) -> list[Part]:
        parts = [Part("pairs", a.call("separation", b, um(_lowest(s, picks)), picks["metric"]))]
        if picks["overlap"] == "and":
            parts.append(Part("polygons", a.call("and", b)))
        elif picks["overlap"] == "not_outside":
            parts.append(Part("polygons", a.call("not_outside", b)))
        return parts

    return Check({"metric": _METRIC, "overlap": overlap} | _strictness(s.bound), build)


def _wide_space(s: Statement, a: Term, b: Term) -> Check:
    if s.bound.kind != "min":
        raise UsageError(
            f"a {_told(s.bound)} space is known but cannot be checked by pairs of edges", "write that deck by hand"
        )
    run, wide = s.extra.get("run"), s.extra.get("wide")
    same = a == b
    arguments: list[str] = []
    if run:
        arguments = ["projection", f"projecting {'>' if run[1] else '>='} {um(run[0].value)}"]
    metric = [] if run else _METRIC
    dims: Dimensions = {"metric": metric} if metric else {}
    dims |= _strictness(s.bound)

    def tail(picks: Picks) -> list[str]:
        return [um(_lowest(s, picks)), *(arguments or [picks["metric"]])]

    if not wide:
        if same:
            dims["call"] = [
                Option("space", 0.7, "between polygons and in notches"),
                Option("isolated", 0.3, "between polygons only"),
            ]
            return Check(dims, lambda p: [Part("pairs", a.call(p["call"], *tail(p)))])
        return Check(dims, lambda p: [Part("pairs", a.call("separation", b, *tail(p)))])
    width, strict = wide
    half = um(_half(width.value if strict else width.value - _STEP))
    broad = a.call("sized", f"-{half}").call("sized", half)
    both = s.extra.get("both")
    dims["wide"] = [
        Option("part", 0.5, "from the wide part of a polygon to other polygons"),
        Option("polygon", 0.35, "from every polygon that is wide somewhere"),
        Option("both", 0.15, "between wide parts only"),
    ]
    if both is True:
        dims["wide"] = [
            Option("both", 0.8, "between wide parts only"),
            Option("part", 0.2, "from a wide part to any polygon"),
        ]

    def build(picks: Picks) -> list[Part]:
        if not same:
            source = broad if picks["wide"] != "polygon" else a.call("interacting", broad)
            return [Part("pairs", source.call("separation", b, *tail(picks)))]
        if picks["wide"] == "both":
            return [Part("pairs", broad.call("space", *tail(picks)))]
        # Measured against other polygons only: a wide part touches the rest of its own polygon.
        source = broad if picks["wide"] == "part" else a.call("interacting", broad)
        others = a.call("not_interacting", broad)
        return [
            Part("pairs", source.call("separation", others, *tail(picks))),
            Part("pairs", source.call("isolated", *tail(picks))),
        ]

    return Check(dims, build)


def _both_sides(a: Term, b: Term) -> Part:
    """Where ``a`` crosses ``b`` without sticking out of it on two sides."""
    return Part("polygons", a.call("and", b).call("not_interacting", a.call("not", b), "2"))


def _enclosure(s: Statement, a: Term, b: Term) -> Check:
    value = _value(s).value
    dims: Dimensions = {}
    sides = _SIDES.get(s.extra.get("sides", ""), [])
    if s.bound.kind == "max":
        raise UsageError(
            "a maximum enclosure is known but cannot be checked by pairs of edges", "write that deck by hand"
        )
    dims["metric"] = [Option("projection", 0.8), Option("euclidian", 0.2)] if sides else _METRIC
    if s.extra.get("direction"):
        cover = [
            Option("both sides", 0.45, "the outer layer must come out on both sides"),
            Option("none", 0.35, "the other direction is open"),
            Option("not_outside", 0.1, "parts that stick out of the outer layer"),
            Option("not", 0.1, "all that is not covered"),
        ]
    elif s.extra.get("stated") or value == 0:
        cover = [
            Option("not", 0.55, "all that is not covered"),
            Option("not_outside", 0.35, "parts that stick out; what lies wholly outside is left to other rules"),
            Option("none", 0.1, "coverage is left to other rules"),
        ]
    else:
        cover = [
            Option("not_outside", 0.5, "parts that stick out; what lies wholly outside is left to other rules"),
            Option("not", 0.32, "all that is not covered"),
            Option("none", 0.18, "coverage is left to other rules"),
        ]
    dims["coverage"] = cover
    dims |= _strictness(s.bound)
    if value == 0:
        dims.pop("metric")
        dims["coverage"] = [o for o in cover if o.label != "none"]

    def build(picks: Picks) -> list[Part]:
        parts = []
        if value:
            inner, outer = b, a
            if s.extra.get("butting"):
                # Edges in common are allowed, so they are not measured.
                inner, outer = b.call("edges").call("not", a.call("edges")), a.call("edges")
            parts.append(Part("pairs", inner.call("enclosed", outer, um(_lowest(s, picks)), picks["metric"], *sides)))
        if s.bound.kind == "exact":
            # What lies deeper inside than the limit allows.
            grown = b.call("sized", um(value))
            parts.append(Part("polygons", a.call("interacting", b).call("not", grown)))
        if picks["coverage"] == "not_outside":
            parts.append(Part("polygons", b.call("not_outside", a).call("not", a)))
        elif picks["coverage"] == "not":
            parts.append(Part("polygons", b.call("not", a)))
        elif picks["coverage"] == "both sides":
            parts.append(_both_sides(a, b))
        return parts

    return Check(dims, build)


def _extension(s: Statement, a: Term, b: Term) -> Check:
    if s.bound.kind == "max":
        raise UsageError(
            "a maximum extension is known but cannot be checked by pairs of edges", "write that deck by hand"
        )
    dims: Dimensions = {
        "metric": _METRIC_EXTENSION,
        "ends": [
            Option("none", 0.66, "only where the edges cross"),
            Option("both sides", 0.2, "an end that stops inside is a violation too"),
            Option("inside", 0.14, "a polygon that does not come out at all is a violation too"),
        ],
    } | _strictness(s.bound)

    def build(picks: Picks) -> list[Part]:
        parts = [Part("pairs", a.call("enclosing", b, um(_lowest(s, picks)), picks["metric"]))]
        if picks["ends"] == "both sides":
            parts.append(_both_sides(a, b))
        elif picks["ends"] == "inside":
            parts.append(Part("polygons", a.call("inside", b)))
        return parts

    return Check(dims, build)


def _overlap(s: Statement, a: Term, b: Term) -> Check:
    exact = s.bound.kind == "exact"
    dims: Dimensions = {
        "metric": _METRIC,
        "missing": [
            Option("none", 0.5, "layers apart are left to other rules"),
            Option("touching", 0.3, "polygons that only touch the other layer"),
            Option("apart", 0.2, "polygons without any overlap are violations"),
        ],
    } | _strictness(s.bound)
    if exact:
        dims["missing"] = [
            Option("apart", 0.6, "polygons without any overlap are violations"),
            Option("none", 0.25, "layers apart are left to other rules"),
            Option("touching", 0.15, "polygons that only touch the other layer"),
        ]

    def build(picks: Picks) -> list[Part]:
        common = a.call("and", b)
        if s.bound.kind == "max":
            parts = [_too_wide(common, _highest(s, picks))]
        elif exact:
            parts = [
                Part("pairs", common.call("width", um(_value(s).value), picks["metric"])),
                _too_wide(common, _value(s).value),
            ]
        else:
            parts = [Part("pairs", a.call("overlap", b, um(_lowest(s, picks)), picks["metric"]))]
        if picks["missing"] == "apart":
            parts.append(Part("polygons", a.call("not_overlapping", b)))
        elif picks["missing"] == "touching":
            parts.append(Part("polygons", a.call("interacting", b).call("not_overlapping", b)))
        return parts

    return Check(dims, build)


def _area(s: Statement, a: Term, b: Term) -> Check:
    what = a.call("holes") if s.form == "hole area" else a
    high = s.extra.get("high") or (s.limit if s.bound.kind in ("max", "exact") else None)

    def build(picks: Picks) -> list[Part]:
        parts = []
        if s.bound.kind != "max":
            parts.append(
                Part("polygons", what.call("with_area", "nil", f"{decimal_text(_lowest(s, picks, _AREA_STEP))}.um2"))
            )
        if high:
            above = _highest(s, picks, _AREA_STEP) + _AREA_STEP
            parts.append(Part("polygons", what.call("with_area", f"{decimal_text(above)}.um2", "nil")))
        return parts

    return Check(_strictness(s.bound), build)


def _size(s: Statement, a: Term, b: Term) -> Check:
    value = _value(s)
    second = s.extra.get("second") or value
    small, large = sorted((value.value, second.value))
    if s.bound.kind != "exact":
        label = "min" if s.bound.kind == "min" else "max"
        both = replace(s, form="width", bound=s.bound)
        dims: Dimensions = {
            "how": [Option("width", 0.7, "in every direction"), Option("bounding box", 0.3, "of the bounding box")]
        }

        def bounded(picks: Picks) -> list[Part]:
            if picks["how"] == "width":
                return _width(both, a, b).build({"metric": "euclidian", **picks})
            if label == "min":
                return [Part("polygons", a.call("with_bbox_min", "nil", um(_lowest(s, picks))))]
            return [Part("polygons", a.call("with_bbox_max", um(_highest(s, picks) + _STEP), "nil"))]

        return Check(dims | _strictness(s.bound), bounded)
    options = [
        Option("edges", 0.5, "every edge has the length"),
        Option("box", 0.3, "rectangles with sides of the length"),
        Option("bounding box", 0.2, "of the bounding box"),
    ]
    if small != large:
        options = [replace(o, weight=0.1 if o.label == "edges" else o.weight) for o in options]

    def build(picks: Picks) -> list[Part]:
        box = [
            Part("polygons", a.call("without_bbox_min", um(small))),
            Part("polygons", a.call("without_bbox_max", um(large))),
        ]
        if picks["how"] == "edges":
            edges = a.call("edges").call("without_length", um(small))
            return [Part("edges", edges if small == large else edges.call("without_length", um(large)))]
        if picks["how"] == "box":
            return [*box, Part("polygons", a.call("non_rectangles"))]
        return box

    return Check({"how": options}, build)


def _length(s: Statement, a: Term, b: Term) -> Check:
    edge = bool(s.extra.get("edge"))
    box, by_edge = (
        Option("bounding box", 0.55, "the longer side of the bounding box"),
        Option("edges", 0.45, "every edge"),
    )
    dims: Dimensions = {"how": [replace(by_edge, weight=0.9), replace(box, weight=0.1)] if edge else [box, by_edge]}

    def build(picks: Picks) -> list[Part]:
        edges = picks["how"] == "edges"
        source, call = (a.call("edges"), "with_length") if edges else (a, "with_bbox_max")
        kind = "edges" if edges else "polygons"
        parts = []
        if s.bound.kind in ("min", "exact"):
            parts.append(Part(kind, source.call(call, "nil", um(_lowest(s, picks)))))
        if s.bound.kind in ("max", "exact") or "high" in s.extra:
            parts.append(Part(kind, source.call(call, um(_highest(s, picks) + _STEP), "nil")))
        return parts

    return Check(dims | _strictness(s.bound), build)


def _inside(s: Statement, a: Term, b: Term) -> Check:
    options = [
        Option("not", 0.66, "every part outside"),
        Option("outside", 0.18, "polygons wholly outside"),
        Option("not_outside", 0.16, "parts outside of polygons that begin inside"),
    ]

    def build(picks: Picks) -> list[Part]:
        if picks["coverage"] == "not_outside":
            return [Part("polygons", a.call("not_outside", b).call("not", b))]
        return [Part("polygons", a.call(picks["coverage"], b))]

    return Check({"coverage": options}, build)


def _apart(s: Statement, a: Term, b: Term) -> Check:
    how = s.extra.get("how", "overlap")
    weights = {
        "overlap": {"and": 0.72, "interacting": 0.16, "inside": 0.12},
        "straddle": {"partly": 0.66, "and": 0.2, "interacting": 0.14},
        "touch": {"interacting": 0.75, "and": 0.25},
        "butt": {"edges": 0.6, "interacting": 0.4},
    }[how]
    why = {
        "and": "every overlap",
        "interacting": "touching is a violation too",
        "inside": "polygons wholly inside",
        "partly": "polygons partly inside and partly outside",
        "edges": "edges in common",
    }

    def build(picks: Picks) -> list[Part]:
        pick = picks["overlap"]
        if pick == "partly":
            return [Part("polygons", a.call("not_outside", b).call("not_inside", b))]
        if pick == "edges":
            return [Part("edges", a.call("edges").call("and", b.call("edges")))]
        return [Part("polygons", a.call(pick, b))]

    return Check({"overlap": [Option(label, weight, why[label]) for label, weight in weights.items()]}, build)


def _contains(s: Statement, a: Term, b: Term) -> Check:
    weights = {"not_interacting": 0.45, "not_overlapping": 0.3, "not_covering": 0.25}
    if s.extra.get("how") == "contain":
        weights = {"not_covering": 0.42, "not_interacting": 0.36, "not_overlapping": 0.22}
    why = {
        "not_interacting": "touching is enough",
        "not_overlapping": "an overlap is enough",
        "not_covering": "one must lie wholly inside",
    }
    return Check(
        {"relation": [Option(label, weight, why[label]) for label, weight in weights.items()]},
        lambda p: [Part("polygons", a.call(p["relation"], b))],
    )


def _absent(s: Statement, a: Term, b: Term) -> Check:
    return Check({}, lambda p: [Part("polygons", a)])


def _angle(s: Statement, a: Term, b: Term) -> Check:
    kind = s.extra["angles"]
    if kind == "acute":
        # A corner's angle is the turn of the contour: an inner angle below 90 degrees is a turn of more than 90.
        return Check({}, lambda p: [Part("polygons", a.call("corners", "-180.0 .. -91.0"))])
    edges = a.call("edges")
    angles = ("0", "90") if kind == "orthogonal" else ("0", "90", "45", "-45")
    for angle in angles:
        edges = edges.call("without_angle", angle)
    return Check({}, lambda p: [Part("edges", edges)])


def _rectangle(s: Statement, a: Term, b: Term) -> Check:
    return Check(
        {}, lambda p: [Part("polygons", a.call("non_squares" if s.extra["shape"] == "square" else "non_rectangles"))]
    )


def _grid(s: Statement, a: Term, b: Term) -> Check:
    return Check({}, lambda p: [Part("pairs", a.call("ongrid", um(_value(s).value)))])


def _density(s: Statement, a: Term, b: Term) -> Check:
    low = s.extra["low"].value if s.extra["low"] else Decimal(0)
    high = s.extra["high"].value if s.extra["high"] else Decimal(1)
    span = f"{decimal_text(low)} .. {decimal_text(high)}"
    window = s.extra.get("window")
    if window:
        value = window.value if window.kind == "length" else window.value.sqrt()
        tile = [f"tile_size({um(value)})"]
        if s.extra.get("step"):
            tile.append(f"tile_step({um(s.extra['step'].value)})")
        options = [
            Option("as it comes", 0.6, "windows from the lower left corner, those at the border count in full"),
            Option("clipped", 0.4, "windows at the border count by the part inside the layout"),
        ]

        def build(picks: Picks) -> list[Part]:
            more = ["padding_ignore"] if picks["border"] == "clipped" else []
            return [Part("polygons", a.call("without_density", span, *tile, *more))]

        return Check({"border": options}, build)
    # The whole layout is one window: its extent.
    return Check(
        {}, lambda p: [Part("global density", replace(a, code=f"{a.code}|{decimal_text(low)}|{decimal_text(high)}"))]
    )


def _told(bound: Bound) -> str:
    return {"min": "minimum", "max": "maximum", "exact": "exact"}[bound.kind]
