"""The embedded interpreter of DRC decks: a strict subset of KLayout's language on ``klayout.db``.

``parse`` makes a small immutable tree of a deck, or refuses it with the line; ``interpret`` runs the tree on a layout;
``explain`` says it in words. docs/deck-subset.md lists what is known.
"""

from __future__ import annotations

from orienteer.environments.layout.dsl.explain import explain
from orienteer.environments.layout.dsl.interpreter import interpret, supported
from orienteer.environments.layout.dsl.parser import parse
from orienteer.environments.layout.dsl.tree import DeckError, Program, Refusal

__all__ = ["DeckError", "Program", "Refusal", "explain", "interpret", "parse", "supported"]
