"""Derived layers that a task's description defines in words: "pcomp is comp intersected with pplus; ..."."""

# ruff: noqa: E501 (a pattern stands on one line)
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orienteer.agents.drc.reading.layers import Lexicon
from orienteer.agents.drc.reading.phrases import Phrases, Unreadable
from orienteer.agents.drc.reading.terms import Term, variable
from orienteer.agents.drc.reading.words import read_words
from orienteer.errors import UsageError

_MARK = re.compile(
    r"(?i)\b(?:layer terms(?: used by the rules?)?|terms|definitions?|derived layers|layer definitions|where)\b[^:;.]{0,30}?:"
)
_IS = re.compile(r"^(?:(?:and|where|let|here|with)\s+)?[\"'`]?([A-Za-z_][\w.+-]*(?: [A-Za-z_][\w.+-]*){0,2}?)[\"'`]?\s*(?:\bis\b|\bare\b|\bmeans?\b|:=|=|\bdenotes\b|\bbe\b)\s*(?:defined as\s+)?(.+)$")  # fmt: skip
_NO_NAME = re.compile(
    r"(?i)\b(?:min\w*|max\w*|width|spac\w+|area|enclos\w+|overlap\w*|extension|length|rule|density|the|it|this|there|that|must|not)\b"
)


@dataclass(frozen=True)
class Layers:
    """All layers of a task.

    Attributes:
        variables: Ruby variable by name, drawn layers first, derived ones in the order in which they are defined.
        derived: what each derived layer is.
        leaves: derived layers that no other derived layer uses: those that the rule itself speaks of.
    """

    variables: Mapping[str, str]
    derived: Mapping[str, Term]
    leaves: tuple[str, ...]

    def drawn_under(self, name: str) -> frozenset[str]:
        """Variables of all layers that a variable rests on, itself included."""
        found = {name}
        by_variable = {self.variables[n]: t for n, t in self.derived.items()}
        stack = [name]
        while stack:
            term = by_variable.get(stack.pop())
            for below in (term.names if term else frozenset()) - found:
                found.add(below)
                stack.append(below)
        return frozenset(found)


def layers_of(drawn: Mapping[str, object], description: str) -> Layers:
    """Read the derived layers of a description.

    Args:
        drawn: the task's layers by name.
        description: prose; definitions stand in it as "NAME is PHRASE", apart by ";" or full stops.

    Raises:
        UsageError: a definition under "Layer terms ...:" holds words that name no layer.
    """
    taken: set[str] = set()
    variables: dict[str, str] = {}
    for name in drawn:
        variables[name] = variable(name, taken)
        taken.add(variables[name])
    derived: dict[str, Term] = {}
    text = " ".join(description.split())
    mark = _MARK.search(text)
    strict, loose = (text[mark.end() :], text[: mark.start()]) if mark else ("", text)
    for part, told in [(p, False) for p in _parts(loose)] + [(p, True) for p in _parts(strict)]:
        found = _IS.match(part.strip())
        if not found or found[1] in variables or _NO_NAME.search(found[1]):
            continue
        words = read_words(found[2])
        try:
            terms = Phrases(Lexicon(variables), variables, words.quantities).read(words.text)
        except Unreadable as error:
            if not told:
                continue
            raise UsageError(
                f'the definition of {found[1]} is not understood at "{error.words}"',
                f"the layers are {', '.join(variables)}",
            ) from None
        if not told and (terms[0].unread or terms[0].term.code in variables.values()):
            continue
        name = found[1]
        variables[name] = variable(name, taken)
        taken.add(variables[name])
        derived[name] = terms[0].term
    used = frozenset().union(*(t.names for t in derived.values())) if derived else frozenset()
    return Layers(variables, derived, tuple(n for n in derived if variables[n] not in used))


def _parts(text: str) -> list[str]:
    return [p for p in re.split(r";|\.(?=\s|$)", text) if p.strip()]
