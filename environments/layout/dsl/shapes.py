"""Shapes made of shapes: sized, rounded, their corners, extents, edges and segments."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from orienteer.environments.layout.dsl import universal
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, Planner
from orienteer.environments.layout.dsl.table import (
    apply,
    change,
    entry,
)
from orienteer.environments.layout.dsl.values import Arguments, Layer, Name, Span, Word, describe, is_number


@entry(
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
        return change(planner, args, layer, "size", constants)
    return apply(planner, args, layer, "sized", POLYGONS, constants)


@entry("smoothed", "P", ".{m}(0.02.um)")
def _smoothed(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    keep = args.values[1] if len(args.values) > 1 else False
    if not isinstance(keep, bool):
        raise args.error("true or false is expected")
    return apply(planner, args, layer, "smoothed", POLYGONS, (args.distance(args.values[0]), keep))


@entry("rounded_corners", "P", ".{m}(0.02.um, 0.03.um, 16)")
def _rounded(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(3, 3)
    points = args.values[2]
    if not isinstance(points, int) or isinstance(points, bool):
        raise args.error("a whole number of points is expected")
    if not 0 < points <= 1024:
        raise args.refuse("between 1 and 1024 points")
    constants = (args.distance(args.values[0]), args.distance(args.values[1]), points)
    return apply(planner, args, layer, "rounded_corners", POLYGONS, constants)


@entry("corners", "P", ".{m}", ".{m}(90)", ".{m}(-100.0 .. -20.0)", ".{m}(as_dots)", ".{m}(as_edge_pairs)")
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


@entry("middle", "P", ".{m}", ".{m}(as_dots)")
@entry("extent_refs", "P", ".{m}(:left)", ".{m}(:tr)", ".{m}(0.0, 0.0, 0.5, 1.0)", ".{m}(:top, as_edges)")
def _extent_refs(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    edges, fractions = places(args)
    if edges:
        return apply(planner, args, layer, "extent_refs_edges", EDGES, fractions)
    add = flat_size(fractions)
    return apply(planner, args, layer, "extent_refs", POLYGONS, (*fractions, add, add))


@entry("extents", "PEDT", ".{m}", ".{m}({d})", ".{m}(0.02.um, 0.05.um)")
def _extents(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 2)
    return apply(planner, args, layer, "extents", POLYGONS, tuple(args.length(value) for value in args.values))


@entry("merged merge", "PE", ".{m}")
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
        return change(planner, args, layer, "merge", tuple(values))
    return apply(planner, args, layer, "merged", layer.kind, tuple(values))


@entry("moved move", "PEDT", ".{m}(0.01.um, -0.02.um)")
def _moved(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(2, 2)
    constants = tuple(args.length(value) for value in args.values)
    if args.name == "move":
        return change(planner, args, layer, "move", constants)
    return apply(planner, args, layer, "moved", layer.kind, constants)


@entry("scaled", "PEDT", ".{m}(2)", ".{m}(0.5)")
@entry("rotated", "PEDT", ".{m}(90)", ".{m}(45.0)")
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


@entry("edges", "PD", ".{m}")
def _edges(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, "edges", EDGES)


@entry("first_edges second_edges", "D", ".{m}")
def _one_side(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, args.name, EDGES)


@entry("polygons", "D", ".{m}", ".{m}(0.001.um)", ".{m}(5)")
def _polygons(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 1)
    return apply(planner, args, layer, "polygons", POLYGONS, tuple(args.length(value) for value in args.values))


@entry("start_segments end_segments centers", "E", ".{m}({d})", ".{m}(0, 0.5)")
def _segments(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    fraction = float(args.number(args.values[1])) if len(args.values) > 1 else 0.0
    return apply(planner, args, layer, args.name, EDGES, (args.distance(args.values[0]), fraction))


@entry(
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


@entry("extended_in extended_out", "E", ".{m}({d})")
def _extended_one(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, POLYGONS, (args.length(args.values[0]),))
