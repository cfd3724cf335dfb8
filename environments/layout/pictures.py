"""Pictures of layouts with violations marked, drawn by KLayout without a display.

Several panels of one picture show the same layout side by side, each with the markers of another deck. Distances of
marked edge pairs are measured in the picture, so that a person sees at once what a deck objects to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orienteer.environments.layout.results import Violation
from orienteer.environments.layout.tasks import LayerNumber
from orienteer.errors import UsageError

#: Fill colours of layers in order; marks are red and none of these is near it.
_COLOURS = (0x4C72B0, 0x55A868, 0xCCB974, 0x8172B2, 0x64B5CD, 0x8C8C8C, 0xB07AA1, 0x2F6B4F, 0x9C755F, 0x1F4E79)
#: Stipples that let the layers below be seen.
_STIPPLES = (5, 9, 4, 8, 2, 17, 14, 6, 12, 20)
_MARK = 0xD62728
#: Markers and measures drawn at most in one panel.
_MOST_MARKS, _MOST_MEASURES = 400, 6
#: Layers of the drawing's own texts, away from any layout's.
_TITLES = (60001, 0)


@dataclass(frozen=True)
class Panel:
    """One look at the layout.

    Attributes:
        title: what stands above it.
        violations: what is marked.
    """

    title: str
    violations: Sequence[Violation] = ()


def draw(
    layout: Path,
    panels: Sequence[Panel],
    names: Mapping[LayerNumber, str] | None = None,
    *,
    width: int = 640,
    height: int = 520,
) -> bytes:
    """Return a picture (PNG) of a layout, one panel beside the other.

    Args:
        layout: a GDS or OASIS file.
        panels: at least one.
        names: names of layers for the legend; without one a layer is called by its numbers.
        width, height: pixels of one panel.

    Raises:
        UsageError: the file cannot be read, or has nothing to show.
    """
    import klayout.db as db
    import klayout.lay as lay

    drawing, box, layers = _beside(Path(layout), len(panels))
    view: Any = lay.LayoutView()
    for name, value in _LOOK.items():
        view.set_config(name, value)
    view.show_layout(drawing, False)
    view.max_hier()
    room = max(box.width(), box.height(), drawing.dbu)
    step = box.width() + 0.25 * room
    titles = drawing.layer(*_TITLES)
    top = drawing.top_cell()
    for number, panel in enumerate(panels):
        shift = db.DTrans(db.DVector(number * step, 0))
        place = db.DPoint(box.left + number * step, box.top + 0.1 * room)
        top.shapes(titles).insert(db.DText(panel.title, db.DTrans(db.DVector(place.x, place.y))))
        _mark(view, panel.violations, shift)
    place_x, line = box.left, box.bottom - 0.16 * room
    for layer in layers:
        # A swatch on the layer itself, in its colour, and its name beside it.
        swatch = db.DBox(place_x, line, place_x + 0.05 * room, line + 0.035 * room)
        top.shapes(drawing.layer(*layer)).insert(swatch)
        name = _name(layer, names)
        top.shapes(titles).insert(db.DText(name, db.DTrans(db.DVector(place_x + 0.07 * room, line))))
        place_x += 0.07 * room + 0.032 * room * (len(name) + 2)
    view.add_missing_layers()
    _colour(view, layers)
    view.set_config("default-text-size", f"{0.05 * room:g}")
    whole = db.DBox(box.left, box.bottom - 0.18 * room, box.right + (len(panels) - 1) * step, box.top + 0.18 * room)
    view.zoom_box(whole.enlarged(0.05 * room, 0.02 * room))
    pixels: bytes = view.get_pixels_with_options(width * len(panels), height).to_png_data()
    return pixels


#: The viewer's settings: a white page, no grid, texts as texts.
_LOOK = {
    "background-color": "#ffffff",
    "grid-visible": "false",
    "text-visible": "true",
    "text-lazy-rendering": "false",
    "text-color": "#303030",
    "apply-text-trans": "true",
    "default-text-size": "0.1",
    "cell-box-visible": "false",
    "rdb-marker-color": "#d62728",
    "ruler-color": "#d62728",
}


def _beside(path: Path, times: int) -> tuple[Any, Any, list[LayerNumber]]:
    """Return a flat layout with the file's shapes ``times`` times side by side, the extent of one, its layers."""
    import klayout.db as db

    source = db.Layout()
    try:
        source.read(str(path))
    except RuntimeError as exc:
        raise UsageError(f"{path} cannot be read as a layout: {exc}", "give a GDS or OASIS file") from None
    tops = source.top_cells()
    if not tops or all(top.bbox().empty() for top in tops):
        raise UsageError(f"{path} has nothing to show", "give a layout with shapes")
    cell = tops[0]
    drawing = db.Layout()
    drawing.dbu = source.dbu
    top = drawing.create_cell("PICTURE")
    box = cell.dbbox()
    step = box.width() + 0.25 * max(box.width(), box.height(), source.dbu)
    layers: list[LayerNumber] = []
    for index in source.layer_indexes():
        info = source.get_info(index)
        shapes = db.Region(cell.begin_shapes_rec(index))
        shapes.merged_semantics = False
        if shapes.is_empty():
            continue
        layers.append((info.layer, info.datatype))
        target = top.shapes(drawing.layer(info.layer, info.datatype))
        for number in range(times):
            target.insert(shapes.moved(round(number * step / source.dbu), 0))
    return drawing, box, sorted(layers)


def _mark(view: Any, violations: Sequence[Violation], shift: Any) -> None:
    import klayout.db as db
    import klayout.lay as lay

    measures = 0
    for violation in violations[:_MOST_MARKS]:
        contours = [[shift * db.DPoint(x, y) for x, y in contour] for contour in violation.contours]
        if not contours or not contours[0]:
            continue
        marker = lay.Marker(view)
        if violation.kind == "edge-pair" and len(contours) == 2:
            first, second = (db.DEdge(*contour[:2]) for contour in contours)
            marker.set(db.DEdgePair(first, second).polygon(0.0))
            if measures < _MOST_MEASURES:
                measures += _measure(view, first, second)
        elif len(contours[0]) == 2:
            marker.set(db.DEdge(*contours[0]))
        else:
            polygon = db.DPolygon(contours[0])
            for hole in contours[1:]:
                polygon.insert_hole(hole)
            marker.set(polygon)
        marker.color = _MARK
        marker.frame_color = _MARK
        marker.line_width = 2
        marker.vertex_size = 3
        marker.dither_pattern = 3
        marker.halo = 0
        # The view shows a marker as long as somebody holds it.
        _held(view).append(marker)


def _held(view: Any) -> list[Any]:
    if not hasattr(view, "orienteer_markers"):
        view.orienteer_markers = []
    found: list[Any] = view.orienteer_markers
    return found


def _measure(view: Any, first: Any, second: Any) -> int:
    """Draw the distance between two edges where it is not zero."""
    import klayout.lay as lay

    ends = _nearest(first, second)
    if ends is None:
        return 0
    ruler = lay.Annotation()
    ruler.p1, ruler.p2 = ends
    ruler.fmt = "$(sprintf('%.4g',D))"
    ruler.style = lay.Annotation.StyleArrowBoth
    view.insert_annotation(ruler)
    return 1


def _nearest(first: Any, second: Any) -> tuple[Any, Any] | None:
    """Return the two points of two edges that are nearest to each other; None where the edges meet."""
    best: tuple[float, Any, Any] | None = None
    for edge, other in ((first, second), (second, first)):
        for point in (edge.p1, edge.p2):
            foot = _foot(other, point)
            distance = point.distance(foot)
            if best is None or distance < best[0]:
                best = (distance, point, foot)
    middle = _middle(first, second)
    if best is not None and middle is not None and math.isclose(best[0], middle[0].distance(middle[1]), rel_tol=1e-6):
        return middle
    return None if best is None or best[0] <= 0 else (best[1], best[2])


def _middle(first: Any, second: Any) -> tuple[Any, Any] | None:
    """Return the middle of two facing parallel edges' common run and its foot: where a person would measure."""
    feet = [_foot(first, second.p1), _foot(first, second.p2)]
    point = feet[0] + (feet[1] - feet[0]) * 0.5
    foot = _foot(second, point)
    return (point, foot) if point.distance(foot) > 0 else None


def _foot(edge: Any, point: Any) -> Any:
    along = edge.d()
    length = along.sq_length()
    if length <= 0:
        return edge.p1
    share = ((point.x - edge.p1.x) * along.x + (point.y - edge.p1.y) * along.y) / length
    return edge.p1 + along * min(1.0, max(0.0, share))


def _colour(view: Any, layers: Sequence[LayerNumber]) -> None:
    for properties in view.each_layer():
        number = (properties.source_layer, properties.source_datatype)
        if number == _TITLES:
            properties.fill_color = properties.frame_color = 0x303030
            continue
        rank = layers.index(number) if number in layers else 0
        properties.fill_color = properties.frame_color = _COLOURS[rank % len(_COLOURS)]
        properties.dither_pattern = _STIPPLES[rank % len(_STIPPLES)]


def _name(layer: LayerNumber, names: Mapping[LayerNumber, str] | None) -> str:
    return (names or {}).get(layer, f"{layer[0]}/{layer[1]}")
