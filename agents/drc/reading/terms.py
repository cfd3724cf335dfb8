"""Layers as KLayout expressions: a term is a chain of DRC calls on named layers."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: Names that a variable must not take: words of Ruby and calls of the DRC language that decks use without a receiver.
_WORDS = """
    alias and begin break case class def defined do else elsif end ensure false for if in module next nil not
    or redo rescue retry return self super then true undef unless until when while yield source report input
    output layout target extent width space notch separation isolated overlap enclosing enclosed area holes
    edges rectangles polygons projection euclidian square projecting cell box p deep flat tiled raw clean
    merged secondary primary connect antenna_check corners polygon_layer cheat info log error puts print dbu
    global if_any sized length angle bbox count texts netter evaluate write with without select
"""
_TAKEN = frozenset(_WORDS.split())


@dataclass(frozen=True)
class Term:
    """An expression that is a layer.

    Attributes:
        code: Ruby, a variable or a chain of calls on one, so that a further ``.call`` can follow it.
        names: the variables in it.
    """

    code: str
    names: frozenset[str]

    def call(self, method: str, *arguments: Term | str) -> Term:
        """Append a call; arguments are terms or Ruby text."""
        texts = [a.code if isinstance(a, Term) else a for a in arguments]
        names = self.names.union(*(a.names for a in arguments if isinstance(a, Term)))
        return Term(f"{self.code}.{method}" + (f"({', '.join(texts)})" if texts else ""), names)


def named(name: str) -> Term:
    """A layer by its variable."""
    return Term(name, frozenset({name}))


def variable(name: str, taken: set[str]) -> str:
    """A Ruby variable for a layer's name: as it is where it can be, and not one in ``taken``."""
    text = re.sub(r"\W+", "_", name.strip().lower(), flags=re.ASCII).strip("_")
    if not text or not text[0].isalpha() or text in _TAKEN:
        text = "l_" + text
    while text in taken:
        text += "_"
    return text


def ruby_string(text: str) -> str:
    """A Ruby string literal in double quotes on one line."""
    escaped = " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"').replace("#", "\\#")
    return f'"{escaped}"'
