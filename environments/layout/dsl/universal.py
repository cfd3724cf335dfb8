"""The universal check: ``layer.drc(width < 0.3.um)`` and its expressions.

An expression is a tree of ``Rule`` nodes. ``build`` makes klayout.db's compound operation of it when the plan runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

from orienteer.environments.layout.dsl.plan import EDGE_PAIRS, EDGES, POLYGONS, Op
from orienteer.environments.layout.dsl.values import Arguments, Enum, Layer, Word, describe, is_number

_MOST_DEPTH = 40
_MOST_SIZE = 300

#: Checks, and whether they need another layer.
CHECKS = {
    "width": False,
    "space": False,
    "notch": False,
    "isolated": False,
    "separation": True,
    "enclosing": True,
    "enclosed": True,
    "overlap": True,
}
_PARAMETERS = {
    "bbox_min": "BoxMinDim",
    "bbox_max": "BoxMaxDim",
    "bbox_width": "BoxWidth",
    "bbox_height": "BoxHeight",
}
_RATIOS = {"bbox_aspect_ratio": "AspectRatio", "relative_height": "RelativeHeight", "area_ratio": "AreaRatio"}
#: Kinds of nodes that can be turned round by ``!`` and ``!=``.
_INVERTIBLE = frozenset(
    {"area", "area_sum", "perimeter", "perimeter_sum", "length", "length_sum", "angle", "count", "with_holes"}
    | {"covering", "overlapping", "interacting", "inside", "outside"}
    | set(_PARAMETERS)
    | set(_RATIOS)
)
_COMPARABLE = (_INVERTIBLE - {"inside", "outside"}) | set(CHECKS) | {"corners"}


@dataclass(frozen=True)
class Rule:
    """A node of a universal check.

    Attributes:
        name: the method that made it.
        children: its inputs.
        constants: further arguments of klayout.db's call, database units applied.
        lower, upper: bounds as ``(value, included)``.
        outside: ``!=`` of a check: below the lower or above the upper bound.
        inverse: the condition is turned round.
        op: the other layer of a ``secondary`` node.
        depth: how deep the tree below it is.
        size: how many nodes it has, shared ones counted each time.
    """

    name: str
    children: tuple[Rule, ...] = ()
    constants: tuple[Hashable, ...] = ()
    lower: tuple[float, bool] | None = None
    upper: tuple[float, bool] | None = None
    outside: bool = False
    inverse: bool = False
    layer: Layer | None = None
    depth: int = 1
    size: int = 1


class Limits:
    """``projecting`` and ``projection_limits``: bounds of a projection's length."""

    def __init__(self, lower: tuple[float, bool] | None = None, upper: tuple[float, bool] | None = None) -> None:
        self.lower, self.upper = lower, upper


def node(args: Arguments, name: str, children: tuple[Rule, ...] = (), **more: Any) -> Rule:
    """Return a node; the depth of the tree is limited."""
    depth = 1 + max((child.depth for child in children), default=0)
    size = 1 + sum(child.size for child in children)
    if depth > _MOST_DEPTH or size > _MOST_SIZE:
        raise args.refuse("the expression is too large")
    return Rule(name, children, depth=depth, size=size, **more)


PRIMARY = Rule("primary")


def as_rule(args: Arguments, value: Any) -> Rule:
    """Return an expression; a layer stands for its shapes as the other input."""
    if isinstance(value, Rule):
        return value
    if isinstance(value, Layer):
        if value.kind != POLYGONS:
            raise args.error("the other input of a universal check must be a polygon layer")
        return Rule("secondary", layer=value)
    raise args.error(f"{describe(value)} is no universal check expression")


def compare(args: Arguments, operator: str, left: Any, right: Any) -> Any:
    """Return ``left operator right`` for an expression or projection limits on one side and a number on the other.

    Raises:
        DeckError, Refusal: the two cannot be compared.
    """
    turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
    if is_number(left):
        if operator not in turned:
            raise args.refuse("write the number on the right side here")
        left, right, operator = right, left, turned[operator]
    if not is_number(right):
        raise args.error(f"{operator} needs a number")
    bound = args.number(right)
    name = left.name if isinstance(left, Rule) else "projecting"
    if isinstance(left, Rule) and left.name not in _COMPARABLE:
        raise args.refuse(f"{left.name} cannot be compared")
    if operator == "!=":
        if isinstance(left, Rule) and left.name in _INVERTIBLE:
            made = compare(args, "==", left, right)
            return replace(made, inverse=not made.inverse)
        if not isinstance(left, Rule) or left.name not in CHECKS:
            raise args.error(f"!= is not allowed for {name}")
        if left.lower or left.upper:
            raise args.error(f"{name} has a bound already")
        return replace(left, lower=(bound, False), upper=(bound, False), outside=True)
    lower, upper = left.lower, left.upper
    if operator in (">", ">=", "=="):
        if lower:
            raise args.error(f"{name} has a lower bound already")
        lower = (bound, operator != ">")
    if operator in ("<", "<=", "=="):
        if upper:
            raise args.error(f"{name} has an upper bound already")
        upper = (bound, operator != "<")
    if lower and upper and not getattr(left, "outside", False):
        tiny = 1e-10
        low = lower[0] - tiny if lower[1] else lower[0] + tiny
        high = upper[0] + tiny if upper[1] else upper[0] - tiny
        if low > high - tiny:
            raise args.error(f"{name}: the lower bound is above the upper bound")
    if isinstance(left, Rule):
        return replace(left, lower=lower, upper=upper)
    return Limits(lower, upper)


def invert(args: Arguments, value: Rule) -> Rule:
    """Return ``!value``."""
    if value.name in _INVERTIBLE:
        return replace(value, inverse=not value.inverse)
    return node(args, "switch", (value, Rule("empty"), PRIMARY))


def combine(args: Arguments, operator: str, left: Rule, right: Any) -> Rule:
    """Return ``left & right``, ``|``, ``-`` or ``+``."""
    other = as_rule(args, right)
    if operator == "+":
        mine = left.children if left.name == "join" else (left,)
        return node(args, "join", mine + (other.children if other.name == "join" else (other,)))
    names = {"&": "And", "|": "Or", "-": "Not"}
    if operator not in names:
        raise args.refuse(f"{operator} of universal check expressions")
    return node(args, "boolean", (left, other), constants=(names[operator],))


# --- kinds ------------------------------------------------------------------------------------------------------------


def kind_of(rule: Rule, args: Arguments) -> str:
    """Return the kind of collection that an expression gives."""
    name = rule.name
    kinds = [kind_of(child, args) for child in rule.children]
    if name in CHECKS:
        if not rule.lower and not rule.upper:
            raise args.error(f"{name} needs a value to compare with")
        return EDGES if rule.lower and rule.upper else EDGE_PAIRS
    if name in ("primary", "secondary", "foreign", "empty"):
        return POLYGONS
    if name in ("length", "length_sum", "angle"):
        return EDGES
    if name in ("edges", "first_edges", "second_edges", "start_segments", "end_segments", "centers"):
        wanted = {"edges": None, "first_edges": EDGE_PAIRS, "second_edges": EDGE_PAIRS}.get(name, EDGES)
        if wanted and kinds[0] != wanted:
            raise args.refuse(f"{name} of {kinds[0]} in a universal check")
        return EDGES
    if name in ("extended_in", "extended_out"):
        if kinds[0] != EDGES:
            raise args.refuse(f"{name} of {kinds[0]} in a universal check")
        return POLYGONS
    if name == "polygons":
        if kinds[0] != EDGE_PAIRS:
            raise args.refuse(f"polygons of {kinds[0]} in a universal check")
        return POLYGONS
    if name == "corners":
        _polygons(args, name, kinds[0])
        return {"dots": EDGES, "edges": EDGES, "edge_pairs": EDGE_PAIRS}.get(str(rule.constants[0]), POLYGONS)
    if name == "extent_refs":
        _polygons(args, name, kinds[0])
        return EDGES if rule.constants[0] else POLYGONS
    if name in ("interacting", "overlapping", "covering", "inside", "outside"):
        _polygons(args, name, kinds[0])
        if kinds[1] != POLYGONS and name not in ("interacting",):
            raise args.refuse(f"{name} with {kinds[1]}")
        return kinds[0]
    if name == "join":
        if len(set(kinds)) > 1:
            raise args.error("all inputs of + must be of one kind")
        return kinds[0]
    if name == "boolean":
        first, second = (EDGES if kind == EDGE_PAIRS else kind for kind in kinds)
        if first == POLYGONS and second == EDGES:
            raise args.refuse("polygons and edges in one boolean operation, polygons first")
        if first == EDGES and second == POLYGONS and rule.constants[0] == "Or":
            raise args.refuse("edges or polygons")
        return first
    if name == "switch":
        results = {kind for index, kind in enumerate(kinds) if index % 2 == 1 or index == len(kinds) - 1}
        if len(results) > 1:
            raise args.error("all results of switch must be of one kind")
        return kinds[1]
    if name in ("if_all", "if_any", "if_none"):
        return POLYGONS
    if name == "count":
        return kinds[0]
    _polygons(args, name, kinds[0])
    return POLYGONS


def _polygons(args: Arguments, name: str, kind: str) -> None:
    if kind != POLYGONS:
        raise args.refuse(f"{name} of {kind} in a universal check")


# --- building ---------------------------------------------------------------------------------------------------------

#: A rule with everything a run needs and no layer: other layers are numbers.
Spec = tuple[Any, ...]


def spec(rule: Rule, args: Arguments, others: list[Op]) -> Spec:
    """Return a rule as plain tuples; the layers it needs are added to ``others``."""
    children = tuple(spec(child, args, others) for child in rule.children)
    if rule.layer is not None:
        if rule.layer.op not in others:
            others.append(rule.layer.op)
        return ("secondary", others.index(rule.layer.op))
    lower, upper = rule.lower, rule.upper
    name = rule.name
    kinds = tuple(kind_of(child, args) for child in rule.children)
    if name in CHECKS:
        below = None if upper is None else args.distance(upper[0]) + (1 if upper[1] else 0)
        above = None if lower is None else args.distance(lower[0]) + (0 if lower[1] else 1)
        return (name, children, kinds, rule.constants, below, above, rule.outside)
    if name in ("area", "area_sum"):
        return (name, children, kinds, rule.inverse, *_whole(lower, upper, args.area))
    if name in ("perimeter", "perimeter_sum", "length", "length_sum", *_PARAMETERS):
        return (name, children, kinds, rule.inverse, *_whole(lower, upper, args.length))
    if name in ("count", "with_holes"):
        return (name, children, kinds, rule.inverse, *_whole(lower, upper, lambda v: _integer(args, v)))
    if name in ("interacting", "overlapping", "covering"):
        low, high = _whole(lower, upper, lambda v: _integer(args, v))
        return (name, children, kinds, rule.inverse, low, None if high is None else high - 1)
    return (name, children, kinds, rule.constants, lower, upper, rule.inverse)


def _integer(args: Arguments, value: Any) -> int:
    if not isinstance(value, int):
        raise args.error("a whole number is expected")
    return value


def _whole(
    lower: tuple[float, bool] | None, upper: tuple[float, bool] | None, units: Callable[[Any], int]
) -> tuple[int, int | None]:
    """Return bounds as klayout.db takes them: the lower is included, the upper is not."""
    low = 0 if lower is None else units(lower[0]) + (0 if lower[1] else 1)
    return low, None if upper is None else units(upper[0]) + (1 if upper[1] else 0)


def build(made: Spec, others: tuple[Any, ...], touching: Any) -> Any:
    """Return klayout.db's node for a specification; ``touching`` says which edges of no distance count."""
    from klayout import db

    node_class: Any = db.CompoundRegionOperationNode
    name = made[0]
    if name == "secondary":
        return node_class.new_secondary(others[made[1]])
    if name in ("primary", "foreign"):
        return getattr(node_class, f"new_{name}")()
    if name == "empty":
        return node_class.new_empty(node_class.ResultType.Region)
    if name == "switch" and made[1][1][0] == "empty":
        kinds = made[2]
        inputs = [build(child, others, touching) for child in made[1]]
        assert kinds[2] == POLYGONS
        return node_class.new_case(inputs)
    inputs = [build(child, others, touching) for child in made[1]]
    kinds = made[2]
    if name in CHECKS:
        return _check(node_class, made, inputs, touching)
    if name in ("length", "length_sum", "angle") and kinds[0] != EDGES:
        inputs = [node_class.new_edges(inputs[0])]
    filters = {
        "area": "area_filter",
        "area_sum": "area_sum_filter",
        "perimeter": "perimeter_filter",
        "perimeter_sum": "perimeter_sum_filter",
        "length": "edge_length_filter",
        "length_sum": "edge_length_sum_filter",
        "count": "count_filter",
        "with_holes": "hole_count_filter",
    }
    if name in filters or name in _PARAMETERS:
        bounds = [made[4]] if made[5] is None else [made[4], made[5]]
        if name in filters:
            return getattr(node_class, f"new_{filters[name]}")(inputs[0], made[3], *bounds)
        parameter = getattr(node_class.ParameterType, _PARAMETERS[name])
        return node_class.new_bbox_filter(inputs[0], parameter, made[3], *bounds)
    if name in ("interacting", "overlapping", "covering"):
        bounds = [made[4]] if made[5] is None else [made[4], made[5]]
        factory = "new_enclosing" if name == "covering" else f"new_{name}"
        return getattr(node_class, factory)(inputs[0], inputs[1], made[3], *bounds)
    constants, lower, upper, inverse = made[3:]
    if name in ("inside", "outside"):
        return getattr(node_class, f"new_{name}")(inputs[0], inputs[1], inverse)
    if name in _RATIOS:
        bounds = [lower[0], lower[1]] if lower else [0.0, True]
        bounds += [upper[0], upper[1]] if upper else []
        return node_class.new_ratio_filter(
            inputs[0], getattr(node_class.RatioParameterType, _RATIOS[name]), inverse, *bounds
        )
    if name == "angle":
        tiny = 1e-6
        low = [lower[0] + (0 if lower[1] else tiny), lower[1]] if lower else [-180.0, True]
        high = [upper[0] + (tiny if upper[1] else 0), upper[1]] if upper else [180.0, True]
        return node_class.new_edge_orientation_filter(inputs[0], inverse, *low, *high)
    if name == "corners":
        low = [lower[0], lower[1]] if lower else [-180.0, True]
        high = [upper[0], upper[1]] if upper else [180.0, True]
        mode = constants[0]
        if mode in ("dots", "edges"):
            return node_class.new_corners_as_dots(inputs[0], *low, *high)
        if mode == "edge_pairs":
            return node_class.new_corners_as_edge_pairs(inputs[0], *low, *high)
        return node_class.new_corners_as_rectangles(inputs[0], *low, *high, 2)
    if name == "extent_refs":
        if constants[0]:
            return node_class.new_relative_extents_as_edges(inputs[0], *constants[1:5])
        return node_class.new_relative_extents(inputs[0], *constants[1:])
    if name == "join":
        return node_class.new_join(inputs)
    if name == "switch":
        return node_class.new_case(inputs)
    if name == "boolean":
        flat = [
            node_class.new_edge_pair_to_first_edges(one) if kind == EDGE_PAIRS else one
            for one, kind in zip(inputs, kinds, strict=True)
        ]
        return node_class.new_geometrical_boolean(getattr(node_class.GeometricalOp, constants[0]), *flat)
    if name in ("if_all", "if_any", "if_none"):
        logic = node_class.LogicalOp.LogAnd if name == "if_all" else node_class.LogicalOp.LogOr
        return node_class.new_logical_boolean(logic, name == "if_none", inputs)
    factories = {
        "rectangles": "rectangle_filter",
        "squares": "rectangle_filter",
        "rectilinear": "rectilinear_filter",
        "first_edges": "edge_pair_to_first_edges",
        "second_edges": "edge_pair_to_second_edges",
    }
    return getattr(node_class, f"new_{factories.get(name, name)}")(inputs[0], *constants)


def _check(node_class: Any, made: Spec, inputs: list[Any], touching: Any) -> Any:
    """Return the node of a check; with two bounds it gives edges."""
    name, _, _, constants, below, above, outside = made
    factory = getattr(node_class, f"new_{name}_check")
    values = [item.value() if isinstance(item, Enum) else item for item in constants]

    def check(limit: int, negative: bool) -> Any:
        return factory(*inputs, limit, *values, touching, negative)

    if above is None:
        return check(below, False)
    if below is None:
        return check(above, True)
    single = name in ("width", "notch")
    short = check(below, False)
    short = node_class.new_edges(short) if single else node_class.new_edge_pair_to_first_edges(short)
    if outside:
        return node_class.new_join([short, node_class.new_edge_pair_to_first_edges(check(above, True))])
    return node_class.new_geometrical_boolean(
        node_class.GeometricalOp.Not, short, node_class.new_edges(check(above, False))
    )


def output_mode(args: Arguments, value: Any) -> str:
    """Return the mode that a word like ``as_dots`` asks for."""
    if not isinstance(value, Word) or value.kind != "output mode":
        raise args.error(f"{describe(value)} is no output mode")
    return str(value.value)
