"""Booleans, and shapes chosen by what they touch."""

from __future__ import annotations

from typing import Any

from orienteer.environments.layout.dsl.plan import EDGES, POLYGONS, TEXTS, Planner
from orienteer.environments.layout.dsl.table import (
    PYTHON,
    apply,
    change,
    entry,
    layer_at,
    same_kind,
)
from orienteer.environments.layout.dsl.values import Arguments, Layer, Span, is_number


@entry("and not", "PET", ".{m}({P})")
def _boolean(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = layer_at(args, 0, "P" if layer.kind == TEXTS else "PE" if layer.kind == EDGES else "P")
    method = {"and": "&", "not": "-"}[args.name]
    if layer.kind == TEXTS:
        return apply(planner, args, layer, {"&": "__and__", "-": "__sub__"}[method], layer.kind, (), (other,))
    return apply(planner, args, layer, PYTHON[args.name], layer.kind, (), (other,))


@entry("or xor", "PE", ".{m}({S})")
def _union(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, PYTHON.get(args.name, args.name), layer.kind, (), (same_kind(args, layer),))


@entry("join", "PEDT", ".{m}({S})")
def _join(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, "join", layer.kind, (), (same_kind(args, layer),))


@entry("andnot split_inside split_outside split_interacting", "PE", ".{m}({P})[0]", ".{m}({P})[1]")
@entry("split_overlapping split_covering", "P", ".{m}({P})[0]", ".{m}({P})[1]")
@entry("inside_outside_part", "E", ".{m}({P})[0]", ".{m}({P})[1]")
@entry("in_and_out", "PE", ".{m}({S})[0]", ".{m}({S})[1]")
def _split(planner: Planner, layer: Layer, args: Arguments) -> tuple[Layer, Layer]:
    counted = args.name in ("split_interacting", "split_overlapping", "split_covering")
    args.count(1, 3 if counted else 1)
    kinds = "P"
    if layer.kind == EDGES and args.name != "inside_outside_part":
        kinds = "PE"
    elif args.name == "split_interacting":
        kinds = "PET"
    other = same_kind(args, layer) if args.name == "in_and_out" else layer_at(args, 0, kinds)
    both = apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))
    made = []
    for index in (0, 1):

        def run(source: Any, pair: Any, index: int = index) -> Any:
            return pair[index]

        made.append(
            Layer(layer.kind, planner.op("part", layer.kind, (both.op,), (index,), run, args.line, drawn=both.op.drawn))
        )
    return made[0], made[1]


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


@entry("interacting not_interacting", "PEDT", ".{m}({P})")
@entry("select_interacting select_not_interacting", "PE", ".{m}({P})")
def _interacting(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1 if layer.kind == TEXTS else 3)
    other = layer_at(args, 0, {POLYGONS: "PET", TEXTS: "P"}.get(layer.kind, "PE"))
    if args.name.startswith("select_"):
        return change(planner, args, layer, args.name, _counts(args), (other,))
    return apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))


@entry("overlapping not_overlapping covering not_covering", "P", *_COUNTED)
@entry("select_overlapping select_not_overlapping select_covering select_not_covering", "P", ".{m}({P})")
def _overlapping(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 3)
    other = layer_at(args, 0, "P")
    if args.name.startswith("select_"):
        return change(planner, args, layer, args.name, _counts(args), (other,))
    return apply(planner, args, layer, args.name, layer.kind, _counts(args), (other,))


@entry("inside not_inside outside not_outside", "PE", ".{m}({P})", note="touching the border is inside")
@entry("select_inside select_not_inside select_outside select_not_outside", "PE", ".{m}({P})")
def _inside(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = layer_at(args, 0, "PE" if layer.kind == EDGES else "P")
    if args.name.startswith("select_"):
        return change(planner, args, layer, args.name, (), (other,))
    return apply(planner, args, layer, args.name, layer.kind, (), (other,))


@entry("in not_in", "PE", ".{m}({S})", note="whole shapes that are exactly alike")
def _in(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, PYTHON.get(args.name, args.name), layer.kind, (), (same_kind(args, layer),))


@entry("inside_part outside_part", "E", ".{m}({P})")
def _part(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, EDGES, (), (layer_at(args, 0, "P"),))


@entry("intersections", "E", ".{m}({E})")
def _intersections(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    return apply(planner, args, layer, args.name, EDGES, (), (layer_at(args, 0, "E"),))


@entry("pull_interacting", "PE", ".{m}({P})", ".{m}({E})")
@entry("pull_overlapping pull_inside", "P", ".{m}({P})")
def _pull(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(1, 1)
    other = layer_at(args, 0, "PE" if args.name == "pull_interacting" else "P")
    return apply(planner, args, layer, args.name, other.kind, (), (other,))
