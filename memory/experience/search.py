"""Which items are nearest to a vector: exactly, by comparing with each, or by the index where there are too many.

Order of writes: the facts (run database), then the vector (cache, index), then the mark that it is indexed. A process
that dies in between leaves items without the mark, or a vector without the mark; whoever takes the index next compares
it with the facts and repairs it. The index is an aid to speed and never decides what is known: items that are not in it
are searched exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, bindparam, select, update

from orienteer.memory.experience.embedding import Embedder
from orienteer.memory.experience.index import BUSY, Collection, Folder, IndexBroken
from orienteer.memory.experience.items import Query
from orienteer.memory.experience.mirror import Mirror
from orienteer.memory.experience.vectors import VectorCache
from orienteer.memory.plain import clean
from orienteer.memory.rundb import RunDB
from orienteer.memory.schema import memory_items

#: Up to so many items a query compares its vector with each of them; that is exact, the same on every machine and
#: whatever the index holds. Beyond it the index answers, if this process has it.
EXACT = 20_000
#: More than this is not asked of the index: a filter that leaves so little is cheaper to search exactly.
_MOST_ASKED = 2_000
_PART = 500
#: Vectors that are fetched at one time.
_LOADED = 10_000

_I = memory_items.c
_TEXTS = select(_I.text_sha, _I.text).where(_I.id.in_(bindparam("ids", expanding=True)))


class Search:
    """The vectors of one store: in memory, in the cache, in the index. Not safe to share between threads.

    Args:
        home: Orienteer's folder.
        db: the open run database.
        store, token: the store's name and its token.
        embedder: makes the vectors.
        tell: is told in one line what a person should know.
        index: use chromadb, if it is there.
    """

    def __init__(
        self,
        home: Path,
        db: RunDB,
        store: str,
        token: str,
        embedder: Embedder,
        tell: Callable[[str], None],
        index: bool,
    ) -> None:
        self._db = db
        self._tell = tell
        self._token = token
        self._embedder = embedder
        self.mark = f"{embedder.name}-{embedder.size}"
        self._place = home / "memory" / "chroma"
        self.cache = VectorCache(home / "memory" / "vectors.sqlite", embedder, tell)
        self._mirror = Mirror(store, self.mark, embedder.size)
        self._folder: Folder | None = None
        self._collection: Collection | None = None
        #: Why the index is not in use; empty where it is, or was not needed yet.
        self.without = "" if index else "switched off"

    def close(self) -> None:
        """Give everything back."""
        self._collection = None
        if self._folder is not None:
            self._folder.leave()
            self._folder = None
        self.cache.close()

    def refresh(self, conn: Connection) -> None:
        """Take over what changed in the database."""
        self._mirror.refresh(conn)

    def forget(self, ids: list[str]) -> None:
        """Remove vectors of items that are gone from the facts."""
        if self._collection is not None:
            try:
                self._collection.delete(ids)
            except IndexBroken as exc:
                self._rebuild(exc)

    def near(self, query: Query, count: int) -> list[tuple[str, float]]:
        """Return the ``count`` most similar items that the query allows, best first, ties by id: id and similarity."""
        vector = self.cache.vector(clean(query.text))
        mask = self._mirror.matching(query)
        allowed = int(np.count_nonzero(mask))
        rows = None
        if allowed > EXACT and self._attach():
            rows = self._ask_index(mask, allowed, vector, count)
        if rows is None:
            rows = np.flatnonzero(mask)
        return self._closest(rows, vector, count)

    def _closest(self, rows: np.ndarray, vector: np.ndarray, count: int) -> list[tuple[str, float]]:
        if len(rows) == 0:
            return []
        self._load(rows)
        matrix = self._mirror.room()
        if 3 * len(rows) > len(self._mirror):
            near = (matrix[: len(self._mirror)] @ vector)[rows]
        else:
            near = matrix[rows] @ vector
        # Sums differ in their last bits from one matrix to another, and the order of items must not.
        near = np.round(near.astype(np.float64), 6)
        if len(rows) > count:
            least = np.partition(near, len(near) - count)[len(near) - count]
            rows, near = rows[near >= least], near[near >= least]
        pairs = [(self._mirror.ids[row], float(similarity)) for row, similarity in zip(rows, near, strict=True)]
        return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]

    def _ask_index(self, mask: np.ndarray, allowed: int, vector: np.ndarray, count: int) -> np.ndarray | None:
        """Return the rows to choose from, or None where the index is no help."""
        mirror = self._mirror
        inside = int(np.count_nonzero(mirror.indexed[: len(mirror)]))
        ask = min(inside, round(1.5 * count * len(mirror) / allowed) + 10)
        outside = np.flatnonzero(mask & ~mirror.indexed[: len(mirror)])
        while 0 < ask <= _MOST_ASKED:
            assert self._collection is not None
            try:
                ids = self._collection.query(vector, ask)
                if len(ids) < min(ask, inside) // 2:
                    raise IndexBroken(f"it finds {len(ids)} of {inside} items")
            except IndexBroken as exc:
                self._rebuild(exc)
                return None
            rows = [row for row in map(mirror.row_of.get, ids) if row is not None and mask[row]]
            if len(rows) >= count or ask >= inside:
                return np.unique(np.concatenate([np.asarray(rows, dtype=np.int64), outside]))
            ask = min(inside, 3 * ask)
        return None

    def sync(self) -> None:
        """Give every item its vector: first in the cache, then in the index."""
        with self._db.read() as conn:
            self._mirror.refresh(conn)
        new = np.flatnonzero(~self._mirror.indexed[: len(self._mirror)])
        if len(new) == 0:
            return
        self._load(new)
        if self._attach():
            try:
                self._put(np.flatnonzero(~self._mirror.indexed[: len(self._mirror)]))
            except IndexBroken as exc:
                self._rebuild(exc)

    def _load(self, rows: np.ndarray) -> None:
        """See that rows have their vectors in memory; texts that were never embedded are embedded."""
        mirror = self._mirror
        missing = rows[~mirror.loaded[rows]]
        matrix = mirror.room()
        for start in range(0, len(missing), _LOADED):
            part = missing[start : start + _LOADED]
            shas = [mirror.text_shas[row] for row in part]
            vectors = self.cache.known(list(dict.fromkeys(shas)))
            absent = [mirror.ids[row] for row, key in zip(part, shas, strict=True) if key not in vectors]
            if absent:
                with self._db.read() as conn:
                    texts = conn.execute(_TEXTS, {"ids": absent}).all()
                vectors |= self.cache.vectors({row.text_sha: row.text for row in texts})
            for row, key in zip(part, shas, strict=True):
                if key in vectors:  # else forgotten by another process meanwhile
                    matrix[row] = vectors[key]
                    mirror.loaded[row] = True

    def _attach(self) -> bool:
        """Take the index if it can be had; return whether this process has it."""
        if self._collection is not None:
            return True
        if self.without and self.without != BUSY:
            return False
        taken = Folder.take(self._place)
        if isinstance(taken, str):
            self.without = taken
            return False
        self._folder, self.without = taken, ""
        try:
            self._compare()
        except IndexBroken as exc:
            self._rebuild(exc)
        return self._collection is not None

    def _compare(self) -> None:
        """Open the collection and make it hold the items that the facts name, no more and no fewer."""
        assert self._folder is not None
        mirror = self._mirror
        collection = Collection(self._folder, self._token, self._embedder.name, self._embedder.size)
        have = collection.ids()
        strange = have - mirror.row_of.keys()
        if strange:
            collection.delete(sorted(strange))
        there = np.fromiter((item in have for item in mirror.ids), dtype=bool, count=len(mirror))
        unmarked = np.flatnonzero(there & ~mirror.indexed[: len(mirror)])
        mirror.indexed[: len(mirror)] = there
        self._collection = collection
        self._mark(unmarked)
        if len(have) > len(strange):
            self._probe(np.flatnonzero(there))
        self._put(np.flatnonzero(~mirror.indexed[: len(mirror)]))

    def _probe(self, rows: np.ndarray) -> None:
        """Look for a few items by their own vectors: files can be gone without a word from chromadb."""
        assert self._collection is not None
        some = rows[np.unique(np.linspace(0, len(rows) - 1, 5, dtype=np.int64))]
        self._load(some)
        matrix = self._mirror.room()
        for row in some:
            found = [self._mirror.row_of.get(item) for item in self._collection.query(matrix[row], 1)]
            hit = np.asarray([other for other in found if other is not None], dtype=np.int64)
            self._load(hit)
            if not len(hit) or float(matrix[hit[0]] @ matrix[row]) < 0.999:
                raise IndexBroken("it does not find what it holds")

    def _put(self, rows: np.ndarray) -> None:
        assert self._collection is not None
        for start in range(0, len(rows), _PART):
            part = rows[start : start + _PART]
            self._load(part)
            self._collection.upsert([self._mirror.ids[row] for row in part], self._mirror.room()[part])
            self._mark(part)
            self._mirror.indexed[part] = True

    def _mark(self, rows: np.ndarray) -> None:
        for start in range(0, len(rows), _PART):
            ids = [self._mirror.ids[row] for row in rows[start : start + _PART]]
            with self._db.write() as conn:
                conn.execute(update(memory_items).where(_I.id.in_(ids)).values(indexed=self.mark))

    def _rebuild(self, why: IndexBroken) -> None:
        """Set the broken index aside and build it anew from the facts; where that fails, go on without."""
        assert self._folder is not None
        client = self._collection.client if self._collection is not None else self._folder.peek()
        self._collection = None
        aside = self._folder.set_aside(client)
        kept = f" (the old one is kept as {aside.name})" if aside is not None else ""
        self._tell(f"memory: the vector index cannot be used ({why}); it is built anew from the facts{kept}")
        try:
            self._compare()
        except IndexBroken as again:
            self._collection = None
            self._folder.leave()
            self._folder = None
            self.without = f"not usable: {again}"
            self._tell(f"memory: no vector index can be made ({again}); every search is exact")
