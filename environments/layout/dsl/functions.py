"""The functions and option words of decks: input, report, output, projecting, euclidian and their like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orienteer.environments.layout.dsl import antenna, universal
from orienteer.environments.layout.dsl.checks import check_options
from orienteer.environments.layout.dsl.methods import METHODS
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, TEXTS, Output
from orienteer.environments.layout.dsl.shapes import flat_size, places
from orienteer.environments.layout.dsl.universal import PRIMARY, Limits, Rule, as_rule, node
from orienteer.environments.layout.dsl.values import (
    Arguments,
    Input,
    Layer,
    Nothing,
    SourceValue,
    Span,
    Word,
    describe,
    is_number,
)

if TYPE_CHECKING:
    from orienteer.environments.layout.dsl.compiler import Deck

#: Most ``output`` statements of a deck.
MOST_OUTPUTS = 10_000

#: Words that stand without arguments.
WORDS: dict[str, Any] = {
    "euclidian": Word("metrics", "Euclidian"),
    "projection": Word("metrics", "Projection"),
    "square": Word("metrics", "Square"),
    "whole_edges": Word("whole edges", True),
    "shielded": Word("shielding", True),
    "transparent": Word("shielding", False),
    "negative": Word("negative"),
    "not_opposite": Word("opposite filter", "NotOpposite"),
    "only_opposite": Word("opposite filter", "OnlyOpposite"),
    # The bits of klayout.db's RectFilter.
    "one_side_allowed": Word("rectangle filter", 1),
    "two_sides_allowed": Word("rectangle filter", 1328),
    "two_connected_sides_allowed": Word("rectangle filter", 48),
    "two_opposite_sides_allowed": Word("rectangle filter", 1280),
    "three_sides_allowed": Word("rectangle filter", 28672),
    "four_sides_allowed": Word("rectangle filter", 983040),
    "diamond_limit": Word("sizing mode", 0),
    "octagon_limit": Word("sizing mode", 1),
    "square_limit": Word("sizing mode", 2),
    "acute_limit": Word("sizing mode", 3),
    "no_limit": Word("sizing mode", 4),
    "as_dots": Word("output mode", "dots"),
    "as_edges": Word("output mode", "edges"),
    "as_boxes": Word("output mode", "boxes"),
    "as_edge_pairs": Word("output mode", "edge_pairs"),
    "ortho": Word("edge angle", "OrthoEdges"),
    "diagonal_only": Word("edge angle", "DiagonalEdges"),
    "diagonal": Word("edge angle", "OrthoDiagonalEdges"),
    "both": Word("both"),
    "joined": Word("joined"),
    "padding_zero": Word("padding", "zero"),
    "padding_ignore": Word("padding", "ignore"),
    "projecting": Limits(),
    "primary": PRIMARY,
    "foreign": Rule("foreign"),
}

#: Functions that take a layer first and are then the layer's method.
LAYER_FUNCTIONS = frozenset(
    [
        "and",
        "andnot",
        "centers",
        "corners",
        "end_segments",
        "extended",
        "extended_in",
        "extended_out",
        "extent_refs",
        "extents",
        "first_edges",
        "flatten",
        "holes",
        "hulls",
        "in",
        "inside_part",
        "intersections",
        "iso",
        "isolated",
        "join",
        "merge",
        "merged",
        "middle",
        "move",
        "moved",
        "non_rectangles",
        "non_rectilinear",
        "non_squares",
        "non_strict",
        "not",
        "notch",
        "not_covering",
        "not_in",
        "not_inside",
        "not_interacting",
        "not_outside",
        "not_overlapping",
        "odd_polygons",
        "ongrid",
        "or",
        "outside_part",
        "pull_inside",
        "pull_interacting",
        "pull_overlapping",
        "rectangles",
        "rectilinear",
        "rounded_corners",
        "scaled",
        "second_edges",
        "select_covering",
        "select_inside",
        "select_interacting",
        "select_not_covering",
        "select_not_inside",
        "select_not_interacting",
        "select_not_outside",
        "select_not_overlapping",
        "select_outside",
        "select_overlapping",
        "size",
        "sized",
        "smoothed",
        "snap",
        "snapped",
        "space",
        "squares",
        "start_segments",
        "strict",
        "texts",
        "texts_not",
        "width",
        "with_angle",
        "with_area",
        "with_area_ratio",
        "with_bbox_aspect_ratio",
        "with_bbox_height",
        "with_bbox_max",
        "with_bbox_min",
        "with_bbox_width",
        "with_length",
        "with_distance",
        "without_angle",
        "without_area",
        "without_area_ratio",
        "without_bbox_aspect_ratio",
        "without_bbox_height",
        "without_bbox_max",
        "without_bbox_min",
        "without_length",
        "without_perimeter",
        "without_relative_height",
        "with_perimeter",
        "with_relative_height",
        "xor",
        "enc",
        "enclosing",
        "enclosed",
        "overlap",
        "sep",
        "separation",
    ]
)
TWO_LAYER_FUNCTIONS = frozenset({"enc", "enclosing", "enclosed", "overlap", "sep", "separation"})

FUNCTIONS: dict[str, Callable[[Any, Arguments], Any]] = {
    "connect": antenna.connect,
    "clear_connections": antenna.clear,
    "antenna_check": antenna.check,
    "area_only": antenna.weighted,
    "perimeter_only": antenna.weighted,
    "area_and_perimeter": antenna.weighted,
}


def _function(names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(handler: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            FUNCTIONS[name] = handler
        return handler

    return enter


# --- layout and report ------------------------------------------------------------------------------------------------


@_function("source layout")
def _source(deck: Deck, args: Arguments) -> SourceValue:
    args.count(0, 2)
    if not args.values:
        return deck.need_source(args)
    if args.values[0] != Input("input"):
        raise args.refuse("only the layout given, $input, can be read")
    cell = args.values[1] if len(args.values) > 1 else None
    if cell is not None and not isinstance(cell, str):
        raise args.error("the cell must be a string")
    made = SourceValue(cell)
    if args.name == "source":
        deck.source = made
    return made


@_function("report")
def _report(deck: Deck, args: Arguments) -> Nothing:
    args.count(1, 3)
    if deck.title is not None:
        raise args.refuse("a second report")
    title = args.values[0]
    if not isinstance(title, str):
        raise args.error("the title must be a string")
    deck.need_source(args)
    target = args.values[1] if len(args.values) > 1 else None
    if isinstance(target, (Input, str)) or target is None:
        deck.title, deck.reported = title, target == Input("output")
        return Nothing("report")
    raise args.error(f"{describe(target)} is no file name")


def output(deck: Deck, layer: Layer, args: Arguments) -> Nothing:
    """Plan ``layer.output(category, description)``."""
    args.count(1, 2)
    if deck.title is None:
        raise args.refuse("there is no report before it, and no layout is written here")
    category, description = args.values[0], args.values[1] if len(args.values) > 1 else None
    if not isinstance(category, (str, int)) or isinstance(category, bool):
        raise args.refuse(f"{describe(category)} as a category")
    if description is not None and not isinstance(description, str):
        raise args.error("the description must be a string")
    if category == "":
        raise args.refuse("a category without a name")
    if len(deck.outputs) >= MOST_OUTPUTS:
        raise args.refuse("too many outputs")
    deck.outputs.append(Output(str(category), description, layer.op, args.line))
    return Nothing("output")


@_function("output")
def _output(deck: Deck, args: Arguments) -> Nothing:
    if not args.values or not isinstance(args.values[0], Layer):
        raise args.error("a layer is expected first")
    return output(deck, args.values[0], Arguments(args.name, args.values[1:], args.options, args.line, args.dbu))


@_function("info log warn error puts")
def _say(deck: Deck, args: Arguments) -> Nothing:
    args.count(1, 2)
    if not isinstance(args.values[0], str):
        raise args.refuse("only strings are known here")
    return Nothing(args.name)


@_function("verbose silent flat threads no_borders")
def _setting(deck: Deck, args: Arguments) -> Nothing:
    args.count(0, 1)
    for value in args.values:
        if not isinstance(value, (bool, int)) or (args.name == "threads") is isinstance(value, bool):
            raise args.refuse(f"{describe(value)} is not known here")
    return Nothing(args.name)


@_function("deep tiles tile_borders")
def _other_mode(deck: Deck, args: Arguments) -> Nothing:
    raise args.refuse("decks are run flat here; this mode may report other shapes")


@_function("dbu")
def _dbu(deck: Deck, args: Arguments) -> float:
    args.count(0, 1)
    if args.values:
        raise args.refuse("the database unit cannot be changed here")
    deck.need_source(args)
    return deck.dbu


@_function("input polygons edges edge_pairs labels")
def _input(deck: Deck, args: Arguments) -> Layer:
    return source_method(deck, deck.need_source(args), args)


@_function("extent")
def _extent(deck: Deck, args: Arguments) -> Layer:
    return source_method(deck, deck.need_source(args), args)


@_function("polygon_layer edge_layer")
def _empty(deck: Deck, args: Arguments) -> Layer:
    args.count(0, 0)
    kind = POLYGONS if args.name == "polygon_layer" else EDGES

    def run(source: Any) -> Any:
        from klayout import db

        return db.Region() if kind == POLYGONS else db.Edges()

    return Layer(kind, deck.planner.op("empty", kind, (), (), run, args.line))


@_function("cell clip")
def _restrict(deck: Deck, args: Arguments) -> Nothing:
    deck.source = source_method(deck, deck.need_source(args), args)
    return Nothing(args.name)


def source_method(deck: Deck, source: SourceValue, args: Arguments) -> Any:
    """Return what a method of the layout gives: a layer, or a part of the layout."""
    name = args.name
    if name in ("touching", "overlapping", "clip"):
        args.count(4, 4)
        box = tuple(float(args.number(value)) for value in args.values)
        if max(abs(value) for value in box) > 1e6:
            raise args.refuse("too large a box")
        return replace(source, box=(box[0], box[1], box[2], box[3]), mode=name)
    if name == "cell":
        args.count(1, 1)
        if not isinstance(args.values[0], str):
            raise args.error("the cell must be a string")
        return replace(source, cell=args.values[0])
    if name in _CLASSES:
        return _drawn(deck, source, args)
    if name == "extent":
        args.count(0, 0)
        if source.box is not None:
            raise args.refuse("of a part of the layout")
        cell_name, line = source.cell, args.line

        def run(opened: Any) -> Any:
            from klayout import db

            return db.Region(opened.cell(cell_name, line).bbox())

        return Layer(POLYGONS, deck.planner.op("extent", POLYGONS, (), (cell_name,), run, args.line))
    raise args.refuse("not known on a layout")


#: What each drawing function reads: the kind, and the shape types (None for all).
_CLASSES: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "input": (POLYGONS, None),
    "polygons": (POLYGONS, ("SBoxes", "SPaths", "SPolygons", "SEdgePairs")),
    "edges": (EDGES, ("SBoxes", "SPaths", "SPolygons", "SEdgePairs", "SEdges")),
    "edge_pairs": (EDGE_PAIRS, ("SEdgePairs",)),
    "labels": (TEXTS, ("STexts",)),
}


def _drawn(deck: Deck, source: SourceValue, args: Arguments) -> Layer:
    """Plan a layer of the layout."""
    if args.options:
        raise args.refuse("options are not known here")
    values = args.values
    wanted: tuple[Any, ...]
    if values and all(isinstance(value, str) for value in values):
        if any(not _plain_layer(value) for value in values):
            raise args.refuse('only layers like "1/0" are known')
        wanted = tuple(values)
    elif 1 <= len(values) <= 2 and all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        if any(not 0 <= value <= 2_000_000_000 for value in values):
            raise args.refuse("a layer number out of range")
        wanted = (values[0], values[1] if len(values) > 1 else 0)
    else:
        raise args.refuse('a layer is wanted as (layer, datatype) or "layer/datatype"')
    kind, types = _CLASSES[args.name]
    line, cell_name, box, mode = args.line, source.cell, source.box, source.mode

    def run(opened: Any) -> Any:
        from klayout import db

        made_of: Any = {POLYGONS: db.Region, EDGES: db.Edges, EDGE_PAIRS: db.EdgePairs, TEXTS: db.Texts}[kind]
        cell = opened.cell(cell_name, line)
        layers = opened.layers(wanted)
        if not layers:
            return made_of()
        if box is None:
            shapes = db.RecursiveShapeIterator(opened.layout, cell, layers)
        else:
            window = db.Box.from_dbox(db.DBox(*box) * (1.0 / opened.dbu))
            shapes = db.RecursiveShapeIterator(opened.layout, cell, layers, window, mode != "touching")
        if types is not None:
            flags = 0
            for name in types:
                flags |= getattr(db.Shapes, name)
            shapes.shape_flags = flags
        made = made_of(shapes)
        if kind == POLYGONS and mode == "clip":
            made &= db.Region(window)
        return made

    constants = (args.name, wanted, cell_name, box, mode)
    drawn = not (kind == POLYGONS and mode == "clip")
    return Layer(kind, deck.planner.op("input", kind, (), constants, run, line, drawn=drawn))


def _plain_layer(text: str) -> bool:
    parts = text.split("/")
    return 1 <= len(parts) <= 2 and all(part.isdecimal() and part.isascii() and len(part) < 10 for part in parts)


# --- option functions -------------------------------------------------------------------------------------------------


@_function("whole_edges")
def _whole_edges(deck: Deck, args: Arguments) -> Word:
    args.count(0, 1)
    value = args.values[0] if args.values else True
    if not isinstance(value, bool):
        raise args.refuse("true or false is expected")
    return Word("whole edges", value)


@_function("angle_limit")
def _angle_limit(deck: Deck, args: Arguments) -> Word:
    args.count(1, 1)
    return Word("angle limit", float(args.number(args.values[0])))


@_function("projection_limits")
def _projection_limits(deck: Deck, args: Arguments) -> Limits:
    args.count(1, 2)
    values = args.values
    if len(values) == 1:
        span = values[0]
        if not isinstance(span, Span) or span.exclusive or not is_number(span.low) or not is_number(span.high):
            raise args.error("a range of two lengths, or two lengths, are expected")
        values = [span.low, span.high]
    low, high = (None if value is None else args.number(value) for value in values)
    made: Any = Limits()
    if low is not None:
        made = universal.compare(args, ">=", made, low)
    if high is not None:
        made = universal.compare(args, "<", made, high)
    return made


@_function("tile_size tile_step tile_origin tile_count")
def _tile(deck: Deck, args: Arguments) -> Word:
    args.count(2 if args.name in ("tile_origin", "tile_count") else 1, 2)
    deck.need_source(args)
    x, y = args.values[0], args.values[-1]
    if args.name == "tile_count":
        if not all(isinstance(value, int) and 0 < value < 100_000 for value in (x, y)):
            raise args.refuse("whole numbers of tiles are expected")
        return Word("tile count", (x, y))
    made = (args.length(x) * deck.dbu, args.length(y) * deck.dbu)
    return Word(args.name.replace("_", " "), made)


@_function("text pattern")
def _pattern(deck: Deck, args: Arguments) -> Word:
    args.count(1, 1)
    if not isinstance(args.values[0], str):
        raise args.error("a string is expected")
    return Word("text pattern", ("with_text" if args.name == "text" else "with_match", args.values[0]))


# --- universal checks -------------------------------------------------------------------------------------------------


@_function("width space notch isolated iso separation sep enclosing enc enclosed overlap")
def _check(deck: Deck, args: Arguments) -> Rule:
    if args.options:
        raise args.refuse("options are not known here")
    name = {"iso": "isolated", "sep": "separation", "enc": "enclosing"}.get(args.name, args.name)
    if any(is_number(value) for value in args.values):
        raise args.error("a layer is expected first")
    options = check_options(args, POLYGONS, name, expression=True)
    two = universal.CHECKS[name]
    if two and options.other is None:
        raise args.error("the other layer is expected")
    if not two and options.other is not None:
        raise args.error("no other layer is expected")
    children = () if options.other is None else (as_rule(args, options.other),)
    return node(args, name, children, constants=options.constants(name, POLYGONS, negative=False))


@_function("area perimeter length angle bbox_min bbox_max bbox_width bbox_height bbox_aspect_ratio area_ratio")
@_function("relative_height rectangles squares rectilinear holes hulls with_holes covering inside interacting outside")
@_function("overlapping corners extent_refs middle extents rounded_corners sized smoothed")
def _of_primary(deck: Deck, args: Arguments) -> Rule:
    if args.name == "corners" and not args.values:
        args.values.append(WORDS["as_boxes"])
    return expression_method(args, PRIMARY)


@_function("secondary")
def _secondary(deck: Deck, args: Arguments) -> Rule:
    args.count(1, 1)
    if not isinstance(args.values[0], Layer):
        raise args.error("a layer is expected")
    return as_rule(args, args.values[0])


@_function("if_all if_any if_none")
def _logic(deck: Deck, args: Arguments) -> Rule:
    args.count(1, 50)
    return node(args, args.name, tuple(as_rule(args, value) for value in args.values))


@_function("switch")
def _switch(deck: Deck, args: Arguments) -> Rule:
    args.count(2, 50)
    return node(args, "switch", tuple(as_rule(args, value) for value in args.values))


_PLAIN = frozenset(
    [
        "area",
        "area_sum",
        "perimeter",
        "perimeter_sum",
        "length",
        "length_sum",
        "angle",
        "count",
        "with_holes",
        "bbox_min",
        "bbox_max",
        "bbox_width",
        "bbox_height",
        "bbox_aspect_ratio",
        "area_ratio",
        "relative_height",
        "rectilinear",
        "holes",
        "hulls",
        "edges",
        "first_edges",
        "second_edges",
    ]
)


def expression_method(args: Arguments, rule: Rule) -> Rule:
    """Return what a method of a universal check expression gives."""
    name = args.name
    if name in _PLAIN:
        args.count(0, 0)
        return node(args, name, (rule,))
    if name in ("rectangles", "squares"):
        args.count(0, 0)
        return node(args, name, (rule,), constants=(name == "squares",))
    if name in ("covering", "inside", "interacting", "outside", "overlapping"):
        args.count(1, 1)
        return node(args, name, (rule, as_rule(args, args.values[0])))
    if name == "corners":
        args.count(0, 1)
        mode = universal.output_mode(args, args.values[0]) if args.values else "dots"
        return node(args, name, (rule,), constants=(mode,))
    if name in ("middle", "extent_refs"):
        edges, fractions = places(args)
        add = flat_size(fractions)
        return node(args, "extent_refs", (rule,), constants=(edges, *fractions, add, add))
    if name == "sized":
        # The layer's method checks the arguments; its operation's constants are the node's.
        return node(args, name, (rule,), constants=_sizes(args))
    if name in ("extents", "polygons", "extended_in", "extended_out"):
        args.count(0 if name in ("extents", "polygons") else 1, 1)
        return node(args, name, (rule,), constants=(args.length(args.values[0]) if args.values else 0,))
    if name == "smoothed":
        args.count(1, 1)
        return node(args, name, (rule,), constants=(args.distance(args.values[0]), False))
    if name == "rounded_corners":
        args.count(3, 3)
        inner, outer, points = args.values
        if not isinstance(points, int) or not 0 < points <= 1024:
            raise args.refuse("between 1 and 1024 points")
        return node(args, name, (rule,), constants=(args.distance(inner), args.distance(outer), points))
    if name in ("start_segments", "end_segments", "centers"):
        args.count(1, 2)
        fraction = float(args.number(args.values[1])) if len(args.values) > 1 else 0.0
        return node(args, name, (rule,), constants=(args.distance(args.values[0]), fraction))
    if name == "merged":
        args.count(0, 1)
        least = max(0, int(args.number(args.values[0])) - 1) if args.values else 0
        return node(args, name, (rule,), constants=(True, least))
    raise args.refuse("not known in a universal check")


def _sizes(args: Arguments) -> tuple[int, int, int]:
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
    return values[0], values[-1], mode


__all__ = ["FUNCTIONS", "LAYER_FUNCTIONS", "METHODS", "WORDS", "expression_method", "output", "source_method"]
