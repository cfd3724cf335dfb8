"""From decks to layouts: every measurement of every deck, at its limit, on drawn shapes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orienteer.environments.layout.dsl.tree import Program
from orienteer.environments.layout.patterns.expressions import Drawn, Expression, Made, checks, drawn, outputs, within
from orienteer.environments.layout.patterns.figures import FIGURES, Figure, Scale, bounds, box, figures
from orienteer.environments.layout.patterns.realising import Drawing, realise
from orienteer.environments.layout.tasks import LayerNumber

#: Layouts made for one set of decks.
MOST = 400
#: Operations that restrict a layer by another: with and without the other one, decks part ways.
_RESTRICTIONS = frozenset(
    (
        "and", "not", "interacting", "not_interacting", "inside", "not_inside", "outside", "not_outside", "overlapping",
        "not_overlapping", "covering", "not_covering", "touching", "not_touching",
    )
)  # fmt: skip


#: Filters that let through what meets a partner.
_FILTERS = frozenset(("and", "interacting", "inside", "not_outside", "overlapping", "touching", "inside_part"))


@dataclass(frozen=True)
class Pattern:
    """A layout made on purpose.

    Attributes:
        about: what it shows.
        shapes: polygons by drawn layer, database units.
    """

    about: str
    shapes: Drawing

    @property
    def size(self) -> int:
        """Corners of all shapes: how much a person has to look at."""
        return sum(len(polygon) for polygons in self.shapes.values() for polygon in polygons)


@dataclass(frozen=True)
class _Measure:
    """One thing that decks measure: by what word, on what, with which limits among the decks, when."""

    name: str
    a: Expression
    b: Expression | None
    limits: tuple[float, ...]
    #: What must be there for a violation to be reported: layers that the result is filtered by.
    context: tuple[Expression, ...] = ()


def patterns(programs: Iterable[Program], *, unit: float = 0.001, most: int = MOST) -> list[Pattern]:
    """Return layouts on which decks like these may differ, without repetition.

    Args:
        programs: the decks.
        unit: micrometres of a database unit.
        most: layouts at most, taken evenly from all measurements.
    """
    expressions = [output for program in programs for output in outputs(program)]
    found: dict[tuple[object, ...], Pattern] = {}
    for group in _taken_in_turn([_of(measure, expressions, unit) for measure in _measures(expressions)]):
        key = tuple(sorted((layer, tuple(sorted(polygons))) for layer, polygons in group.shapes.items()))
        if key and key not in found:
            found[key] = group
            if len(found) >= most:
                break
    return list(found.values())


def _measures(expressions: Sequence[Expression]) -> list[_Measure]:
    """Return what is measured, decks that measure the same with other limits taken together."""
    gathered: dict[tuple[object, ...], _Measure] = {}
    for expression in expressions:
        for check in checks(expression):
            name, a, b = _operands(check)
            if a is None:
                continue
            key = (name, _shape_of(a), None if b is None else _shape_of(b))
            before = gathered.get(key)
            limits = (*(before.limits if before else ()), *check.lengths)
            context = before.context if before and before.context else _conditions(expression, check)
            gathered[key] = _Measure(name, a, b, tuple(dict.fromkeys(limits)), context)
        if not checks(expression):
            # A rule that forbids by booleans alone ("A must not be outside B"): the partners are its parts.
            for made in within(expression):
                if isinstance(made, Made) and made.name in _RESTRICTIONS and len(made.parts) > 1:
                    key = ("separation", _shape_of(made.parts[0]), _shape_of(made.parts[1]))
                    gathered.setdefault(key, _Measure("separation", made.parts[0], made.parts[1], (0.2,)))
                    key = ("enclosing", _shape_of(made.parts[1]), _shape_of(made.parts[0]))
                    gathered.setdefault(key, _Measure("enclosing", made.parts[1], made.parts[0], (0.2,)))
                    break
    return list(gathered.values())


def _conditions(expression: Expression, check: Made) -> tuple[Expression, ...]:
    """Return the layers that what a check finds has to meet to be reported, the outermost first."""
    found: list[Expression] = []
    here = expression
    while isinstance(here, Made) and here is not check:
        inner = next((part for part in here.parts if any(e is check for e in within(part))), None)
        if inner is None:
            break
        if here.name in _FILTERS and inner is here.parts[0]:
            found += here.parts[1:]
        here = inner
    return tuple(found)


def _operands(check: Made) -> tuple[str, Expression | None, Expression | None]:
    """Return word, subject and partner, the outer layer of an enclosure first."""
    name = check.name
    if name == "drc":
        word = next((w for w in check.words), "")
        name = next((n for n in FIGURES if word.startswith(n)), "width")
    a = check.parts[0] if check.parts else None
    b = check.parts[1] if len(check.parts) > 1 else None
    return ("enclosing", b, a) if name == "enclosed" and b is not None else (name, a, b)


def _of(measure: _Measure, expressions: Sequence[Expression], unit: float) -> list[Pattern]:
    """Return the layouts for one measurement: its figures, then the same ones with a restriction undone."""
    areas = measure.name in ("with_area", "without_area")
    to_units = unit * unit if areas else unit
    whole = sorted({round(limit / to_units) for limit in measure.limits if 0 < limit / to_units < 1e9})
    if not whole:
        whole = [round(0.2 / unit)]
    limit = whole[len(whole) // 2]
    scale = Scale(limit, tuple(other for other in whole if other != limit), unit)
    if areas:
        scale = Scale(limit, (), unit)
    pairs = [(figure, measure) for figure in figures(measure.name, scale)]
    found = []
    margin = 2 * scale.body

    def about(figure: Figure) -> str:
        names = {"A": _called(measure.a), "B": "" if measure.b is None else _called(measure.b)}
        return re.sub(r"\b[AB]\b", lambda match: names[match[0]] or match[0], figure.about)

    for figure, _ in pairs:
        found.append(Pattern(about(figure), _drawn(measure, figure, margin)))
    telling = [figure for figure, _ in pairs if figure.a][: 12 if measure.b is None else 16]
    for figure in telling[::2]:
        found.append(Pattern(f"{about(figure)}, nothing around", _drawn(measure, figure, margin, tight=True)))
    for layer, how in _restrictions(measure, expressions):
        for figure in telling[:: max(1, len(telling) // 4)]:
            drawing = _drawn(measure, figure, margin)
            changed = _changed(drawing, layer, how, figure, margin)
            if changed is not None:
                found.append(Pattern(f"{about(figure)}, {how} {layer[0]}/{layer[1]}", changed))
    return found


def _drawn(measure: _Measure, figure: Figure, margin: int, *, tight: bool = False) -> Drawing:
    wanted = [(measure.a, figure.a)]
    if measure.b is not None:
        wanted.append((measure.b, figure.b))
    if measure.context and (figure.a or figure.b):
        left, bottom, right, top = bounds([*figure.a, *figure.b])
        wanted += [(layer, (box(left - 1, bottom - 1, right + 1, top + 1),)) for layer in measure.context]
    return realise(wanted, margin, tight=tight)


def _restrictions(measure: _Measure, expressions: Sequence[Expression]) -> list[tuple[LayerNumber, str]]:
    """Return drawn layers that restrict what is measured, in any of the decks, to be taken away or added."""
    own = set(drawn(measure.a)) | (set(drawn(measure.b)) if measure.b is not None else set())
    others = [layer for expression in expressions for layer in drawn(expression)]
    return [
        (layer, how)
        for layer in dict.fromkeys([*own, *others])
        for how in ("without", "with a blanket of", "with a part under")
    ]


def _changed(drawing: Drawing, layer: LayerNumber, how: str, figure: Figure, margin: int) -> Drawing | None:
    """Return the drawing with a layer taken away, laid over everything, or over the left half only."""
    if how == "without":
        if layer not in drawing or len(drawing) < 2:
            return None
        return {other: shapes for other, shapes in drawing.items() if other != layer}
    left, bottom, right, top = bounds([p for shapes in drawing.values() for p in shapes] or figure.a)
    if how == "with a blanket of":
        return {
            **drawing,
            layer: (box(left - margin // 4, bottom - margin // 4, right + margin // 4, top + margin // 4),),
        }
    middle = (left + right) // 2
    return {**drawing, layer: (box(left - margin // 4, bottom - margin // 4, middle, top + margin // 4),)}


def _called(expression: Expression) -> str:
    """Return what a person calls a layer: its numbers; of a derived one those of what it is made from."""
    layers = drawn(expression)
    number = f"{layers[0][0]}/{layers[0][1]}" if layers else ""
    return number if isinstance(expression, Drawn) or not number else f"{number} (derived)"


def _shape_of(expression: Expression) -> object:
    """Return what tells expressions apart but for where in a deck they stand."""
    if isinstance(expression, Made):
        return expression.name, tuple(map(_shape_of, expression.parts)), expression.lengths, expression.words
    return expression.layer


def _taken_in_turn(groups: Sequence[Sequence[Pattern]]) -> Iterable[Pattern]:
    """Yield one pattern of every group, then the next of every group, until all are given."""
    for number in range(max(map(len, groups), default=0)):
        for group in groups:
            if number < len(group):
                yield group[number]


def layers_of(programs: Iterable[Program]) -> Mapping[LayerNumber, None]:
    """Return the drawn layers that decks read, in order."""
    return dict.fromkeys(layer for program in programs for output in outputs(program) for layer in drawn(output))
