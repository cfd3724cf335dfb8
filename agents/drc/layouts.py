"""Layouts as a candidate's content: drawn shapes as text, from which the file is made again at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orienteer.environments.layout.patterns.figures import Polygon
from orienteer.environments.layout.patterns.generating import Pattern
from orienteer.environments.layout.tasks import LayerNumber

#: Micrometres of a database unit in layouts that we draw.
UNIT = 0.001
#: Polygons and corners told to a model.
_MOST_POLYGONS, _MOST_CORNERS = 48, 400


@dataclass(frozen=True)
class Sketch:
    """A layout that was drawn for a question.

    Attributes:
        about: what it shows.
        shapes: polygons by layer, database units.
        expected: what its author holds to be right per category, where they said.
    """

    about: str
    shapes: Mapping[LayerNumber, Sequence[Polygon]]
    expected: Mapping[str, int] | None = None


def content(sketches: Sequence[Sketch | Pattern]) -> str:
    """Return sketches as text; equal sketches give equal text."""
    return json.dumps(
        {
            "unit": UNIT,
            "layouts": [
                {
                    "about": sketch.about,
                    "shapes": {
                        f"{layer}/{datatype}": shapes for (layer, datatype), shapes in sorted(sketch.shapes.items())
                    },
                }
                for sketch in sketches
            ],
        },
        separators=(",", ":"),
    )


def sketches(text: str) -> list[Sketch]:
    """Return the sketches of :func:`content`."""
    found = []
    for item in json.loads(text)["layouts"]:
        shapes = {
            _number(name): tuple(tuple((int(x), int(y)) for x, y in polygon) for polygon in polygons)
            for name, polygons in item["shapes"].items()
        }
        found.append(Sketch(item["about"], shapes))
    return found


def draw_file(sketch: Sketch | Pattern, path: Path) -> Path:
    """Write a sketch as a layout file and return its path."""
    from orienteer.environments.layout.layouts import write_layout

    write_layout(path, {layer: list(polygons) for layer, polygons in sketch.shapes.items()}, dbu=UNIT)
    return path


def in_words(path: Path, names: Mapping[LayerNumber, str]) -> str:
    """Return a layout's shapes in words, micrometres, for somebody who cannot see a picture.

    Args:
        path: the file.
        names: names of its layers.
    """
    import klayout.db as db

    layout = db.Layout()
    layout.read(str(path))
    lines: list[str] = []
    corners = polygons = left_out = 0
    top = layout.top_cells()[0]
    for index in layout.layer_indexes():
        info = layout.get_info(index)
        region = db.Region(top.begin_shapes_rec(index))
        region.merged_semantics = False
        for polygon in region.each():
            polygons += 1
            corners += polygon.num_points_hull()
            if polygons > _MOST_POLYGONS or corners > _MOST_CORNERS:
                left_out += 1
                continue
            name = names.get((info.layer, info.datatype), f"{info.layer}/{info.datatype}")
            lines.append(f"{name}: {_shape(polygon, layout.dbu)}")
    if left_out:
        lines.append(f"({left_out} more polygons)")
    return "\n".join(lines) or "(nothing drawn)"


def _shape(polygon: object, unit: float) -> str:
    import klayout.db as db

    assert isinstance(polygon, db.Polygon)
    box = polygon.bbox()
    if polygon.is_box():
        ends = f"{box.left * unit:.6g},{box.bottom * unit:.6g} to {box.right * unit:.6g},{box.top * unit:.6g}"
        return f"rectangle {ends} ({box.width() * unit:.6g} x {box.height() * unit:.6g})"
    hull = " ".join(f"{p.x * unit:.6g},{p.y * unit:.6g}" for p in polygon.each_point_hull())
    holes = "".join(
        " hole " + " ".join(f"{p.x * unit:.6g},{p.y * unit:.6g}" for p in polygon.each_point_hole(n))
        for n in range(polygon.holes())
    )
    return f"polygon {hull}{holes}"


def _number(name: str) -> LayerNumber:
    layer, _, datatype = name.partition("/")
    return int(layer), int(datatype)
