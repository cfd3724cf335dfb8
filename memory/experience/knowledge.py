"""API knowledge: found by what it is about, not by learnt value (EvoKernel, arXiv 2603.10846, section on retrieval).

Three ways lead to it: a bundle that always goes along, the exact names that appear in code, and similarity (that way is
:meth:`.store.ExperienceStore.knowledge`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from sqlalchemy import or_, select

from orienteer.memory.experience.items import Item, item_of
from orienteer.memory.rundb import RunDB, parts
from orienteer.memory.schema import memory_items

_I = memory_items.c
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
#: So many names of one piece of code are looked up; the rest of a longer one is generated code.
_MOST_NAMES = 400


def names_in(code: str) -> list[str]:
    """Return the dotted names of a piece of code and their last parts, in order of appearance, each once."""
    names: dict[str, None] = {}
    for match in _NAME.finditer(code):
        names[match.group()] = None
        names[match.group().rsplit(".", 1)[-1]] = None
        if len(names) >= _MOST_NAMES:
            break
    return list(names)


def bundle(db: RunDB, store: str, target: str) -> list[Item]:
    """Return the items of API knowledge that carry the fact ``bundle`` and hold for a target, oldest first."""
    query = _api(store, target).where(_I.facts_json.contains('"bundle"')).order_by(_I.seq)
    with db.read() as conn:
        return [item_of(row) for row in conn.execute(query) if json.loads(row.facts_json).get("bundle")]


def exact(db: RunDB, store: str, names: Iterable[str], target: str | None) -> list[Item]:
    """Return the items of API knowledge whose ``name`` is one of the names, in the order of the names."""
    wanted = list(dict.fromkeys(name for name in names if name))
    found: dict[str, list[Item]] = {}
    with db.read() as conn:
        for part in parts(wanted):
            query = _api(store, target).where(_I.name.in_(part)).order_by(_I.seq)
            for row in conn.execute(query):
                found.setdefault(row.name, []).append(item_of(row))
    return [item for name in wanted for item in found.get(name, ())]


def _api(store: str, target: str | None) -> Any:
    query = select(memory_items).where(_I.store == store, _I.kind == "api")
    return query if target is None else query.where(or_(_I.target == target, _I.target == ""))
