"""Shapes chosen by what they are: area, sides, angles, holes, corners on a grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, Planner
from orienteer.environments.layout.dsl.table import (
    apply,
    change,
    entry,
)
from orienteer.environments.layout.dsl.values import Arguments, Enum, Layer, Span, Word


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


@entry("with_area without_area", "PD", ".{m}({a})", ".{m}(nil, {a})", ".{m}({a}..1.um2)", note="upper bound exclusive")
def _area(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, layer.kind, (*_bounds(args, args.area, args.values), inverse))


@entry("with_perimeter without_perimeter", "P", ".{m}(1.um, nil)", ".{m}(0.4.um .. 2.um)", ".{m}(1.2.um)")
@entry("with_bbox_min without_bbox_min with_bbox_max without_bbox_max", "P", *_RANGES, note="upper bound exclusive")
@entry("with_bbox_width without_bbox_width with_bbox_height without_bbox_height", "P", *_RANGES)
def _size_filter(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, POLYGONS, (*_bounds(args, args.length, args.values), inverse))


@entry("with_area_ratio without_area_ratio", "P", ".{m}(1.0)", ".{m}(1.2, 2.0)")
@entry("with_bbox_aspect_ratio without_bbox_aspect_ratio", "P", ".{m}(1.0)", ".{m}(1.2, 3.0)")
@entry("with_relative_height without_relative_height", "P", ".{m}(1.0)", ".{m}(0.2, 0.9)")
def _ratio(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    bounds = _bounds(args, lambda v: float(args.number(v)), args.values)
    return apply(planner, args, layer, method, POLYGONS, (*bounds, inverse))


@entry("with_holes without_holes", "P", ".{m}", ".{m}(1)", ".{m}(1, nil)", ".{m}(1..2)")
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


@entry("with_length without_length", "ED", *_RANGES, note="upper bound exclusive")
def _length(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 3)
    method, inverse = _inverse(args.name)
    values, both = _both(args, layer)
    return apply(planner, args, layer, method + both, layer.kind, (*_bounds(args, args.length, values), inverse))


@entry("with_distance without_distance", "D", *_RANGES)
def _distance(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 2)
    method, inverse = _inverse(args.name)
    return apply(planner, args, layer, method, EDGE_PAIRS, (*_bounds(args, args.length, args.values), inverse))


@entry("with_angle without_angle", "PED", ".{m}(90)", ".{m}(0.degree)", ".{m}(0, 60)", ".{m}(10..80)")
@entry("with_internal_angle without_internal_angle", "D", ".{m}(0)", ".{m}(0, 50)")
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


@entry("rectangles squares rectilinear non_rectangles non_squares non_rectilinear holes hulls", "P", ".{m}")
def _plain(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, args.name, POLYGONS)


@entry("odd_polygons", "P", ".{m}")
def _odd(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return apply(planner, args, layer, "strange_polygon_check", POLYGONS)


@entry("ongrid", "P", ".{m}(0.01.um)", ".{m}(7, 5)", note="flags corners off the grid")
def _ongrid(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    return apply(planner, args, layer, "grid_check", EDGE_PAIRS, _grid(args))


@entry("snapped snap", "P", ".{m}(0.01.um)", ".{m}(7, 5)")
def _snap(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    if args.name == "snap":
        return change(planner, args, layer, "snap", _grid(args))
    return apply(planner, args, layer, "snapped", POLYGONS, _grid(args))


def _grid(args: Arguments) -> tuple[int, int]:
    args.count(1, 2)
    return args.distance(args.values[0]), args.distance(args.values[-1])
