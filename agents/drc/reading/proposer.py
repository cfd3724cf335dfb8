"""Readings of a task's rules as decks, ranked."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from orienteer.agents.drc.reading.checks import Option, Part, check
from orienteer.agents.drc.reading.definitions import Layers, layers_of
from orienteer.agents.drc.reading.layers import Lexicon, features
from orienteer.agents.drc.reading.phrases import Chosen, Phrases, Unreadable
from orienteer.agents.drc.reading.sentence import clauses, statements
from orienteer.agents.drc.reading.statement import Statement
from orienteer.agents.drc.reading.terms import Term, named, ruby_string, variable
from orienteer.environments.layout.tasks import Rule, RuleTask
from orienteer.errors import UsageError

#: Readings of one rule that are kept while the rules of a task are put together.
_KEPT = 24


@dataclass(frozen=True)
class Reading:
    """One way to understand the rules of a task, as a deck.

    Attributes:
        deck: KLayout DRC script.
        form: the rule form; of several rules, joined by ", ".
        choices: what was chosen where the sentence leaves it open, such as ``{"metric": "euclidian"}``; keys of several
            rules begin with the category and a dot.
        why: the reading in words, one line.
        prior: how probable we hold it before any layout is looked at, among all the readings found (they sum to 1 or
            less). The weights behind it are estimates of ours, not fitted ones.
    """

    deck: str
    form: str
    choices: dict[str, str]
    why: str
    prior: float


@dataclass(frozen=True)
class _RuleReading:
    form: str
    choices: dict[str, str]
    why: tuple[str, ...]
    weight: float
    parts: tuple[Part, ...]


@dataclass
class _Context:
    task: RuleTask
    layers: Layers
    lexicon: Lexicon
    unreached: list[str] = field(default_factory=list)


def readings(task: RuleTask, most: int = 8) -> list[Reading]:
    """Read the rules of a task into decks.

    Args:
        task: rules, layers by name and a description that may define derived layers in words.
        most: how many readings at most.

    Returns:
        Distinct decks, the most probable first; the first is what we hold a PDK author would write.

    Raises:
        UsageError: a rule cannot be read, lacks a number or unit, contradicts itself, names a layer that the task does
            not have, or has a form that is known but cannot be checked; the message says which rule and words.
    """
    if not task.rules:
        raise UsageError("the task has no rule", "give a rule as a sentence")
    if not task.layers:
        raise UsageError("the task has no layers", "name them with their numbers, such as met1=68/20")
    layers = layers_of(task.layers, task.description)
    context = _Context(task, layers, Lexicon(layers.variables, layers.leaves))
    found = []
    for rule in task.rules:
        try:
            found.append(_rule_readings(rule, context))
        except UsageError as error:
            raise UsageError(f"rule {rule.category}: {error.problem}", error.cure) from None
    made: list[Reading] = []
    seen: set[str] = set()
    for weight, picked in _combined(found):
        deck = _deck(task, layers, picked)
        if deck in seen:
            continue
        seen.add(deck)
        choices: dict[str, str] = {}
        for rule, reading in zip(task.rules, picked, strict=True):
            prefix = f"{rule.category}." if len(picked) > 1 else ""
            choices |= {f"{prefix}{key}": value for key, value in reading.choices.items()}
        why = "; ".join(dict.fromkeys(w for reading in picked for w in reading.why))
        made.append(Reading(deck, ", ".join(dict.fromkeys(r.form for r in picked)), choices, why, weight))
        if len(made) == most:
            break
    return made


def _rule_readings(rule: Rule, context: _Context) -> list[_RuleReading]:
    """All readings of one rule, weights normalised, best first, texts distinct."""
    several = clauses(rule.text)
    if len(several) == 1:
        return _clause_readings(rule.text, context)[0]
    read: list[list[_RuleReading]] = []
    subject = ""
    try:
        for clause in several:
            found, subject = _clause_readings(clause, context, subject)
            read.append(found)
    except UsageError:
        # No second rule after all.
        return _clause_readings(rule.text, context)[0]
    if any(r.parts[0].kind in ("antenna", "global density") for found in read for r in found):
        raise UsageError("a density or antenna rule stands with another rule in one sentence", "write two rules")
    made = []
    for weight, picked in _combined(read):
        choices = {f"{key} ({i})": value for i, r in enumerate(picked, 1) for key, value in r.choices.items()}
        form = " and ".join(dict.fromkeys(r.form for r in picked))
        why = tuple(w for r in picked for w in r.why)
        made.append(_RuleReading(form, choices, why, weight, tuple(p for r in picked for p in r.parts)))
        if len(made) == _KEPT:
            break
    return made


def _clause_readings(text: str, context: _Context, subject: str = "") -> tuple[list[_RuleReading], str]:
    """Readings of a sentence that is one rule, and the phrase of its first layer.

    ``subject`` is the phrase of the clause before, for a clause that names no layer.
    """
    found: list[_RuleReading] = []
    failed: UsageError | None = None
    read, words = statements(text)
    if subject:
        read = [replace(s, roles=(subject, *s.roles[1:])) if not features(s.roles[0]) else s for s in read]
    phrases = Phrases(context.lexicon, context.layers.variables, words.quantities)
    for statement in read:
        try:
            found += _statement_readings(statement, phrases, context)
        except Unreadable as error:
            names = ", ".join(context.layers.variables)
            failed = failed or UsageError(f'no layer is found for "{error.words}"', f"the layers are {names}")
        except UsageError as error:
            failed = failed or error
    if not found:
        assert failed is not None
        raise failed
    total = sum(r.weight for r in found)
    best: dict[str, _RuleReading] = {}
    for reading in sorted(found, key=lambda r: -r.weight):
        key = _expression(list(reading.parts)).code
        if key not in best:
            best[key] = replace(reading, weight=reading.weight / total)
    return list(best.values())[:_KEPT], read[0].roles[0]


def _statement_readings(statement: Statement, phrases: Phrases, context: _Context) -> list[_RuleReading]:
    if statement.form == "antenna":
        return [_antenna(statement, phrases, context)]
    roles = [_role(phrase, phrases, context) for phrase in statement.roles]
    made: list[_RuleReading] = []
    for chosen in product(*(r[:4] for r in roles)):
        if len(chosen) > 1 and chosen[0].term == chosen[1].term:
            if statement.form != "wide space" and statement.form != "separation":
                continue
            if statement.form == "separation":
                statement = replace(statement, form="space")
        weight = statement.weight * math.prod(c.weight for c in chosen)
        if weight < 0.004:
            continue
        made += _with_scope(statement, chosen, weight, context)
    if not made:
        raise UsageError("both phrases name the same layer", "name two layers, or write the rule for one")
    return made


def _with_scope(statement: Statement, chosen: Sequence[Chosen], weight: float, context: _Context) -> list[_RuleReading]:
    layers = context.layers
    reached: set[str] = set()
    for c in chosen:
        for name in c.term.names:
            reached |= layers.drawn_under(name)
    by_variable = {layers.variables[n]: layers.derived[n] for n in layers.derived}

    def marks(term: Term) -> list[Term]:
        own = [t for n in term.names for t in (by_variable.get(n),) if t]
        under = frozenset().union(*(layers.drawn_under(n) for t in own for n in t.names)) if own else frozenset()
        return [named(v) for v in layers.variables.values() if v in under and v not in by_variable]

    checked = check(statement, chosen, marks)
    dimensions = dict(checked.dimensions)
    # A layer that the task defines, and that the phrases do not lead to, says where the rule holds.
    scope = [layers.variables[n] for n in layers.leaves if layers.variables[n] not in reached]
    if scope and statement.form not in ("density", "antenna"):
        dimensions["scope"] = [
            Option("interacting", 0.6, f"only where violations meet {', '.join(scope)}"),
            Option("everywhere", 0.22, "everywhere"),
            Option("polygons", 0.18, f"only polygons that meet {', '.join(scope)}"),
        ]
    exempt: list[Chosen] = []
    if statement.extra.get("kept"):
        exempt = Phrases(context.lexicon, layers.variables).read(statement.extra["kept"])[:1]
        dimensions["exempt"] = [
            Option("and", 0.6, f"only what lies in {exempt[0].term.code}"),
            Option("interacting", 0.4, f"only polygons that meet {exempt[0].term.code}"),
        ]
    if statement.extra.get("exempt"):
        exempt = Phrases(context.lexicon, layers.variables).read(statement.extra["exempt"])[:1]
        dimensions["exempt"] = [
            Option("not", 0.45, f"what lies in {exempt[0].term.code} is cut out"),
            Option("outside", 0.35, f"only polygons wholly outside {exempt[0].term.code}"),
            Option("not_interacting", 0.2, f"only polygons that do not meet {exempt[0].term.code}"),
        ]
    made = []
    for weight_of_picks, picks in _picks(dimensions):
        labels = {key: option.label for key, option in picks.items()}
        subject = chosen
        if labels.get("scope") == "polygons":
            first = chosen[0].term
            for name in scope:
                first = first.call("interacting", named(name))
            subject = [replace(chosen[0], term=first), *chosen[1:]]
        if exempt:
            at = 1 if statement.form == "enclosure" else 0
            subject = list(subject)
            subject[at] = replace(subject[at], term=subject[at].term.call(labels["exempt"], exempt[0].term))
        parts = (check(statement, subject, marks) if subject is not chosen else checked).build(labels)
        if labels.get("scope") == "interacting":
            term = _joined(parts)
            for name in scope:
                term = term.call("interacting", named(name))
            parts = [Part("polygons", term)]
        why = [f"{statement.form}: {_limit_words(statement)}".rstrip(": ")]
        why += [c.note for c in chosen if c.note]
        why += [f'not explained: "{" ".join(c.unread)}"' for c in chosen if c.unread]
        why += [
            f"{key} {option.label}: {option.why}" if option.why else f"{key} {option.label}"
            for key, option in picks.items()
        ]
        why += statement.notes
        if not statement.bound.told and statement.limit:
            why.append(
                f"no word says minimum or maximum: {'exact' if statement.bound.kind == 'exact' else 'minimum'} assumed"
            )
        choices = labels | {f"layer {i + 1}": c.term.code for i, c in enumerate(chosen) if c.note}
        made.append(_RuleReading(statement.form, choices, tuple(why), weight * weight_of_picks, tuple(parts)))
    return made


def _role(phrase: str, phrases: Phrases, context: _Context) -> list[Chosen]:
    if phrase.strip():
        try:
            return phrases.read(phrase)
        except Unreadable:
            # "Minimum spacing of lines": the words name no layer, and there is only one that can be meant.
            if context.lexicon.match(phrase) or not _only_fillers(phrase):
                raise
    layers = context.layers
    if len(layers.leaves) == 1:
        name = layers.leaves[0]
    elif len(layers.variables) == 1:
        name = next(iter(layers.variables))
    else:
        raise UsageError("the rule names no layer", f"name one of {', '.join(layers.variables)}")
    return [Chosen(named(layers.variables[name]), 1.0, f"the rule names no layer: {name} taken")]


def _only_fillers(phrase: str) -> bool:
    return not features(phrase)


def _picks(dimensions: dict[str, list[Option]]) -> Iterator[tuple[float, dict[str, Option]]]:
    keys = list(dimensions)
    for options in product(*dimensions.values()):
        yield math.prod(o.weight for o in options), dict(zip(keys, options, strict=True))


def _combined(found: Sequence[Sequence[_RuleReading]]) -> Iterator[tuple[float, tuple[_RuleReading, ...]]]:
    """Combinations of one reading a rule, the most probable first."""

    def weight(at: tuple[int, ...]) -> float:
        return math.prod(rule[i].weight for rule, i in zip(found, at, strict=True))

    start = (0,) * len(found)
    heap = [(-weight(start), start)]
    pushed = {start}
    while heap:
        negative, at = heapq.heappop(heap)
        yield -negative, tuple(rule[i] for rule, i in zip(found, at, strict=True))
        for k in range(len(at)):
            following = (*at[:k], at[k] + 1, *at[k + 1 :])
            if following[k] < len(found[k]) and following not in pushed:
                pushed.add(following)
                heapq.heappush(heap, (-weight(following), following))


def _joined(parts: Sequence[Part]) -> Term:
    term = parts[0].polygons()
    for part in parts[1:]:
        term = term.call("or", part.polygons())
    return term


def _expression(parts: Sequence[Part]) -> Term:
    return parts[0].term if len(parts) == 1 else _joined(parts)


def _limit_words(statement: Statement) -> str:
    if statement.limit is None:
        return ""
    return f"{ {'min': 'at least', 'max': 'at most', 'exact': 'exactly'}[statement.bound.kind] } {statement.limit.text}"


def _antenna(statement: Statement, phrases: Phrases, context: _Context) -> _RuleReading:
    """Antenna ratio of poly, or of metal1 through contacts, to the gates."""
    gate = phrases.read("gate")[0].term
    conductor = phrases.read(statement.roles[0] or "poly")[0].term
    assert statement.limit is not None
    ratio = statement.limit.ruby
    poly = phrases.read("poly")[0].term
    pairs = [("GATE", poly.code)]
    names = gate.names | poly.names | conductor.names
    if conductor.names != poly.names:
        try:
            contact = phrases.read("contact")[0].term
        except Unreadable:
            raise UsageError(
                "the antenna rule of a metal needs a contact layer between it and the poly", "give that layer too"
            ) from None
        pairs += [(poly.code, contact.code), (contact.code, conductor.code)]
        names |= contact.names
    steps = [f"connect({a}, {b})" for a, b in pairs]
    code = f"{gate.code}|" + "\n".join([*steps, f"antenna_check(GATE, {conductor.code}, {ratio})"])
    why = (f"antenna: at most {ratio} of {conductor.code} to {gate.code}", "no diodes, areas as drawn")
    return _RuleReading(
        "antenna", {"conductor": conductor.code}, why, statement.weight, (Part("antenna", Term(code, names)),)
    )


def _deck(task: RuleTask, layers: Layers, picked: Sequence[_RuleReading]) -> str:
    """Write the deck."""
    taken = set(layers.variables.values())
    lines: list[str] = []
    used: set[str] = set()
    for rule, reading in zip(task.rules, picked, strict=True):
        result = variable(f"rule_{rule.category}", taken)
        taken.add(result)
        output = f"{result}.output({ruby_string(rule.category)}, {ruby_string(rule.text)})"
        for part in reading.parts:
            used |= part.term.names
        only = reading.parts[0]
        if only.kind == "antenna":
            gate, steps = only.term.code.split("|")
            lines += [f"{result}_gate = {gate}", steps.replace("GATE", f"{result}_gate"), output]
            lines[-2] = lines[-2].replace("antenna_check", f"{result} = antenna_check")
        elif only.kind == "global density":
            code, low, high = only.term.code.split("|")
            lines += [
                f"{result}_share = {code}.area / extent.area",
                f"{result} = {result}_share < {low} || {result}_share > {high} ? extent : polygon_layer",
                output,
            ]
        elif len(reading.parts) == 1:
            lines += [f"{result} = {only.term.code}", output]
        else:
            names = []
            for i, part in enumerate(reading.parts, 1):
                names.append(f"{result}_{i}")
                lines.append(f"{names[-1]} = {part.polygons().code}")
            lines += [f"{result} = {names[0]}" + "".join(f".or({n})" for n in names[1:]), output]
    below = set().union(*(layers.drawn_under(v) for v in used)) if used else set()
    head = ["source($input)", f"report({ruby_string(task.title or task.id or 'Design rules')}, $output)"]
    # Connections can be followed in hierarchical layers only.
    head += ["deep", ""] if any(p.kind == "antenna" for r in picked for p in r.parts) else [""]
    for name, variable_name in layers.variables.items():
        if variable_name not in below:
            continue
        if name in layers.derived:
            head.append(f"{variable_name} = {layers.derived[name].code}")
        else:
            head.append(f"{variable_name} = input({', '.join(str(n) for n in task.layers[name])})")
    return "\n".join([*head, "", *lines]) + "\n"
