"""All methods of layers: importing this module enters them into ``METHODS``, the table of what is supported."""

from __future__ import annotations

from orienteer.environments.layout.dsl import checks, filters, selection, settings, shapes
from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, TEXTS
from orienteer.environments.layout.dsl.table import METHODS, Method

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
        *(f".{name}({{d}}, {option})" for name in ("width", "notch") for option in checks.POLYGON_OPTIONS),
        *(f".{name}({{d}}, {option})" for name in ("space", "isolated") for option in checks.POLYGON_FILTERS),
        *(
            f".{name}({{P}}, {{d}}, {option})"
            for name in ("separation", "overlap", "enclosing", "enclosed")
            for option in checks.POLYGON_FILTERS
        ),
    ),
    EDGE_PAIRS: (".with_angle(ortho)", ".with_length({d}, nil, both)"),
    TEXTS: (),
}

__all__ = ["EXTRA_SAMPLES", "METHODS", "Method", "checks", "filters", "selection", "settings", "shapes"]
