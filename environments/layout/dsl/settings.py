"""Texts, the settings of a layer, and density."""

from __future__ import annotations

from typing import Any

from orienteer.environments.layout.dsl.plan import POLYGONS, TEXTS, Planner
from orienteer.environments.layout.dsl.table import (
    apply,
    entry,
)
from orienteer.environments.layout.dsl.values import Arguments, Layer, Span, Word, describe, is_number


@entry("texts texts_not", "T", '.{m}("A*")', '.{m}(text("A1"))')
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


@entry("raw clean", "PE", ".{m}", note="holds for the variable from here on")
def _raw(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return _set(planner, layer, args, "merged_semantics", args.name == "clean")


@entry("strict non_strict", "P", ".{m}")
def _strict(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return _set(planner, layer, args, "strict_handling", args.name == "strict")


@entry("dup", "PEDT", ".{m}")
def _dup(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)
    return Layer(layer.kind, layer.op)


@entry("flatten", "P", ".{m}")
def _flatten(planner: Planner, layer: Layer, args: Arguments) -> Layer:
    args.count(0, 0)

    def run(source: Any, first: Any) -> Any:
        made = first.dup()
        made.flatten()
        return made

    layer.op = planner.op("flatten", layer.kind, (layer.op,), (), run, args.line, drawn=layer.op.drawn)
    return layer


@entry(
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
MOST_TILES = 40_000


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
