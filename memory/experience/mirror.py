"""The facts of a store that queries filter by, as columns in memory: a mask over 100,000 items costs microseconds.

The run database stays the truth; :meth:`Mirror.refresh` reads what came since the last look (also from other
processes) and starts again where something was forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from sqlalchemy import Connection, bindparam, select

from orienteer.memory.experience.items import Query
from orienteer.memory.schema import memory_items, memory_stores

_I = memory_items.c
_COLUMNS = ("kind", "outcome", "target", "task", "task_sha", "bottleneck")
_STATE = select(memory_stores).where(memory_stores.c.name == bindparam("store"))
_NEW = (
    select(_I.seq, _I.id, _I.text_sha, _I.indexed, *(_I[name] for name in _COLUMNS))
    .where(_I.store == bindparam("store"), _I.seq > bindparam("seq"))
    .order_by(_I.seq)
)


class Mirror:
    """Columns of one store; a row is an item, rows are in the order in which items came.

    Args:
        store: the store's name.
        indexed: what ``indexed`` says of items whose vector is in the index that is in use.
        size: dimensions of a vector.
    """

    def __init__(self, store: str, indexed: str, size: int) -> None:
        self.store = store
        self.size = size
        self._indexed = indexed
        self._deletions = -1
        self._clear()

    def _clear(self) -> None:
        self._revision = -1
        self._seq = 0
        self.ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.text_shas: list[str] = []
        #: Rows whose vector stands in the index.
        self.indexed = np.zeros(0, dtype=bool)
        #: Rows whose vector stands in ``vectors``; the others are fetched when they are needed.
        self.loaded = np.zeros(0, dtype=bool)
        self.vectors = np.zeros((0, self.size), dtype=np.float32)
        self._codes: dict[str, np.ndarray] = {name: np.zeros(0, dtype=np.int32) for name in _COLUMNS}
        self._words: dict[str, dict[str, int]] = {name: {} for name in _COLUMNS}

    def __len__(self) -> int:
        return len(self.ids)

    def refresh(self, conn: Connection) -> None:
        """Take over what changed in the database."""
        state = conn.execute(_STATE, {"store": self.store}).first()
        if state is None:
            self._clear()
            return
        if state.deletions != self._deletions:
            self._clear()
            self._deletions = state.deletions
        if state.revision != self._revision:
            rows = list(conn.execute(_NEW, {"store": self.store, "seq": self._seq}))
            self._extend(rows)
            self._revision = state.revision

    def _extend(self, rows: list[Any]) -> None:
        if not rows:
            return
        first = len(self.ids)
        for row in rows:
            self.row_of[row.id] = len(self.ids)
            self.ids.append(row.id)
            self.text_shas.append(row.text_sha)
        self._seq = rows[-1].seq
        self._grow(len(self.ids))
        self.indexed[first : len(self.ids)] = [row.indexed == self._indexed for row in rows]
        for place, name in enumerate(_COLUMNS, start=4):
            words = self._words[name]
            self._codes[name][first : len(self.ids)] = [words.setdefault(row[place], len(words)) for row in rows]

    def _grow(self, least: int) -> None:
        have = len(self.indexed)
        if least <= have:
            return
        more = max(least, 2 * have, 64) - have
        self.indexed = np.concatenate([self.indexed, np.zeros(more, dtype=bool)])
        self.loaded = np.concatenate([self.loaded, np.zeros(more, dtype=bool)])
        self._codes = {k: np.concatenate([v, np.zeros(more, dtype=np.int32)]) for k, v in self._codes.items()}

    def room(self) -> np.ndarray:
        """Return the matrix of vectors with a row for every item; memory for it is taken when it is first needed."""
        if len(self.vectors) < len(self.indexed):
            wider = np.zeros((len(self.indexed), self.size), dtype=np.float32)
            wider[: len(self.vectors)] = self.vectors
            self.vectors = wider
        return self.vectors

    def matching(self, query: Query) -> np.ndarray:
        """Return which rows a query allows: bool, one per item."""
        mask = np.ones(len(self.ids), dtype=bool)
        if query.kinds:
            mask &= self._one_of("kind", query.kinds)
        if query.outcomes:
            mask &= self._one_of("outcome", query.outcomes)
        if query.target is not None:
            mask &= self._one_of("target", (query.target, ""))
        if query.task is not None:
            mask &= self._about([query.task])
        if query.exclude_tasks:
            mask &= ~self._about(query.exclude_tasks)
        if query.bottleneck is not None:
            mask &= self._one_of("bottleneck", (query.bottleneck,))
        for item in query.exclude:
            row = self.row_of.get(item)
            if row is not None:
                mask[row] = False
        return mask

    def _about(self, tasks: Collection[str]) -> np.ndarray:
        """Return the rows of tasks: by name, by a pattern of names, or by the hash of the source."""
        named = [
            name
            for name in self._words["task"]
            if name and any(name == task or fnmatchcase(name, task) for task in tasks)
        ]
        return self._one_of("task", named) | self._one_of("task_sha", [task for task in tasks if task])

    def _one_of(self, column: str, wanted: Iterable[str]) -> np.ndarray:
        words: Mapping[str, int] = self._words[column]
        codes = self._codes[column][: len(self.ids)]
        mask = np.zeros(len(codes), dtype=bool)
        for word in set(wanted):
            if word in words:
                mask |= codes == words[word]
        return mask
