"""The experience store: items are remembered, recalled by similarity and value, and rated by what came of them.

EvoKernel (arXiv 2603.10846): dense recall of K = lambda*N items, a value filter by Q of the stage to N with
epsilon-greedy exploration, ``Q <- Q + alpha (r - Q)`` for every item of the used context. ``docs/memory.md`` tells what
is kept where.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import bindparam, func, select

from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.experience import knowledge, records, transfer
from orienteer.memory.experience.embedding import Embedder, choose_embedder
from orienteer.memory.experience.items import (
    Change,
    Item,
    NewItem,
    Query,
    Recalled,
    Retrieval,
    check_stage,
    check_store,
    item_of,
    row_of,
)
from orienteer.memory.experience.search import Search
from orienteer.memory.experience.selection import Rated, choose, recall_size
from orienteer.memory.experience.values import ALPHA, FIRST_Q, Values
from orienteer.memory.rundb import RunDB, parts
from orienteer.memory.schema import memory_items

_I = memory_items.c
# By id alone: with the store beside it SQLite walks through the whole store. Whose an item is, is looked at afterwards.
_GET = select(memory_items).where(_I.id.in_(bindparam("ids", expanding=True)))


class ExperienceStore:
    """One store of the experience memory; safe to share between threads, and with other processes on the same home.

    Make one with :meth:`open`.
    """

    def __init__(
        self, home: Path, db: RunDB, store: str, embedder: Embedder, tell: Callable[[str], None], index: bool
    ) -> None:
        self.home = home
        self.db = db
        self.store = check_store(store)
        self.artifacts = ArtifactStore(home / "artifacts")
        self._lock = threading.RLock()
        self._values = Values(db, store)
        self._search = Search(home, db, store, records.ensure_store(db, store), embedder, tell, index)

    @classmethod
    def open(
        cls,
        home: Path,
        db: RunDB,
        store: str = "shared",
        embedder: str | Embedder = "auto",
        *,
        tell: Callable[[str], None] | None = None,
        index: bool = True,
    ) -> ExperienceStore:
        """Open a store, make it when it is not there, and repair what a crash left.

        Args:
            home: Orienteer's folder; vectors go to ``memory`` below it, contents to ``artifacts``.
            db: the open run database; it must stay open as long as the store.
            store: ``shared``, or ``run:ID`` for the private store of a run.
            embedder: ``auto`` (MiniLM if installed, else hashing), ``minilm``, ``hashing``, or an embedder.
            tell: is told in one line what a person should know (a rebuilt index, a missing package).
            index: keep vectors in chromadb too. Without it, and without chromadb, every search is exact.

        Raises:
            UsageError: the name is no name of a store, or there is no such embedder.
            MissingPrerequisite: MiniLM was asked for by name and is not installed.
            StoreError: the database or the folder cannot be written.
        """
        say = tell or (lambda _: None)
        chosen = choose_embedder(embedder, say) if isinstance(embedder, str) else embedder
        made = cls(home, db, store, chosen, say, index)
        try:
            made._search.sync()
        except BaseException:
            made.close()
            raise
        return made

    def close(self) -> None:
        """Close the store's files; the run database stays open."""
        with self._lock:
            self._search.close()

    def __enter__(self) -> ExperienceStore:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def embedder(self) -> str:
        """The embedder and its size, for example ``minilm-384``."""
        return self._search.mark

    # -- items ------------------------------------------------------------------------------------------------------

    def add(self, item: NewItem) -> str:
        """Remember an item and return its id. The same item again changes nothing.

        Raises:
            ValueError: a field is not what it must be.
            StoreError: it cannot be written.
        """
        return self.add_many([item])[0]

    def add_many(self, items: Iterable[NewItem]) -> list[str]:
        """Remember items, all or none, and return their ids in order."""
        now = time.time()
        rows, contents = [], []
        for item in items:
            content_sha = item.content_sha
            if item.content:
                contents.append(records.keep_content(self.artifacts, item.content))
                content_sha = contents[-1]["sha"]
            rows.append(row_of(item, self.store, content_sha, now))
        with self._lock:
            with self.db.write() as conn:
                records.insert_items(self.db, conn, self.store, rows, contents)
            self._search.sync()
        return [row["id"] for row in rows]

    def get(self, ids: Sequence[str]) -> list[Item]:
        """Return items by id, in the order asked for; those that are not there are left out."""
        found: dict[str, Item] = {}
        wanted = list(dict.fromkeys(ids))
        with self.db.read() as conn:
            for part in parts(wanted):
                rows = conn.execute(_GET, {"ids": part})
                found |= {row.id: item_of(row) for row in rows if row.store == self.store}
        return [found[item] for item in wanted if item in found]

    def content(self, item: Item) -> str:
        """Return the content of an item, or an empty text where it has none.

        Raises:
            StoreError: the artifact is lost or damaged.
        """
        return self.artifacts.text(item.content_sha) if item.content_sha else ""

    def count(self) -> int:
        """Return how many items the store has."""
        with self.db.read() as conn:
            return int(conn.execute(select(func.count()).where(_I.store == self.store)).scalar_one())

    # -- recall -----------------------------------------------------------------------------------------------------

    def retrieve(self, query: Query, rng: random.Random) -> Retrieval:
        """Return the items that a query brings. All chance comes from ``rng``: the same state of both, the same answer.

        Raises:
            ValueError: the query asks for a stage, an ``n`` or a lambda that cannot be.
        """
        check_stage(query.stage)
        by_value = query.policy == "value"
        wanted = recall_size(query.lam, query.n) if by_value else query.n
        if query.policy == "none" or query.n == 0:
            return Retrieval((), 0, False)
        with self._lock:
            with self.db.read() as conn:
                self._search.refresh(conn)
            near = self._search.near(query, wanted)
        with self.db.read() as conn:
            values = self._values.look_up(conn, [item for item, _ in near], query.stage, query.signature)
        rated = [
            Rated(item, similarity, *values.get(item, (FIRST_Q, 0)))
            for item, similarity in near
            if query.similarity_threshold is None or similarity >= query.similarity_threshold
        ]
        if by_value:
            chosen = choose(rated, query.n, query.epsilon, rng, query.similarity_weight)
        else:
            chosen = [(item, "similarity") for item in rated]
        items = {item.id: item for item in self.get([one.id for one, _ in chosen])}
        return Retrieval(
            tuple(
                Recalled(items[one.id], one.similarity, one.q, one.visits, how)
                for one, how in chosen
                if one.id in items  # forgotten by another process meanwhile
            ),
            len(rated),
            any(how == "explore" for _, how in chosen),
        )

    def bundle(self, target: str) -> list[Item]:
        """Return the API knowledge that always goes along (items of kind ``api`` with the fact ``bundle``)."""
        return knowledge.bundle(self.db, self.store, target)

    def exact(self, names: Iterable[str], target: str | None = None) -> list[Item]:
        """Return the API knowledge about exact names, in the order of the names."""
        return knowledge.exact(self.db, self.store, names, target)

    def exact_in(self, code: str, target: str | None = None) -> list[Item]:
        """Return the API knowledge about every name that appears in a piece of code, in order of appearance."""
        return self.exact(knowledge.names_in(code), target)

    def api(self, target: str, names: Iterable[str] = ()) -> list[Item]:
        """Return the API knowledge for a prompt: what always goes along, and what explains the given names."""
        both = [*self.bundle(target), *self.exact(names, target)]
        return list({item.id: item for item in both}.values())

    def knowledge(self, text: str, target: str | None = None, n: int = 5) -> list[Item]:
        """Return the API knowledge nearest to a text; values have no say in it."""
        query = Query(text, "draft", n=n, kinds=("api",), target=target, policy="similarity")
        return [found.item for found in self.retrieve(query, random.Random(0)).items]

    # -- learning ---------------------------------------------------------------------------------------------------

    def update(
        self, event: str, stage: str, items: Sequence[str], signature: str, reward: float, alpha: float = ALPHA
    ) -> list[Change]:
        """Move the values of all items of a used context towards a reward; see :meth:`.values.Values.update`."""
        return self._values.update(event, stage, items, signature, reward, alpha)

    def normalise(self, event: str, stage: str, evidence: str, raw: float) -> float:
        """Return a reward in units of the spread of its predecessors; see :meth:`.values.Values.normalise`."""
        return self._values.normalise(event, stage, evidence, raw)

    def values(self, stage: str, items: Sequence[str], signature: str = "") -> dict[str, float]:
        """Return the Q-values of items that have one: under the signature, else under none."""
        check_stage(stage)
        with self.db.read() as conn:
            return {item: q for item, (q, _) in self._values.look_up(conn, items, stage, signature).items()}

    def history(self, items: Sequence[str] = (), run_id: str = "") -> list[Change]:
        """Return all changes of the items, or all that a run made, in order: Q over time."""
        return self._values.history(items, run_id)

    # -- keeping ----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Return what the store holds, as a plain document, and how it is searched."""
        document = records.statistics(self.db, self.store)[0]
        return document | {
            "embedder": self.embedder,
            "vectors": self._search.cache.count(),
            "index": self._search.without or "chromadb",
        }

    def forget(
        self, *, task: str = "", run_id: str = "", item: str = "", kind: str = "", everything: bool = False
    ) -> int:
        """Forget the items that all given conditions name, with their values and history; return how many.

        Raises:
            UsageError: nothing was named.
        """
        with self._lock:
            gone = records.forget(
                self.db, self.store, task=task, run_id=run_id, item=item, kind=kind, everything=everything
            )
            self._search.forget(gone)
        return len(gone)

    def export(self, path: Path, run_id: str = "") -> int:
        """Write the store (or what a run added to it) into a file and return the number of items; see ``transfer``."""
        return transfer.export(self.db, self.artifacts, path, self.store, run_id, self.embedder)

    def import_(self, path: Path) -> transfer.Imported:
        """Add what a file holds; all of it or, where something is wrong with it, nothing; see ``transfer``.

        Raises:
            UsageError: the file is not a whole export.
        """
        return self.take(transfer.read(path))

    def take(self, content: transfer.Content) -> transfer.Imported:
        """Add what :func:`.transfer.read` has read and checked."""
        with self._lock:
            done = transfer.write(self.db, self.artifacts, content, self.store)
            self._search.sync()
        return done

    def seed_from(self, path: Path) -> transfer.Imported:
        """Begin with what a file holds; the file stays as it is.

        Telling it again changes nothing: items that are there already keep what they have learnt since.
        """
        return self.import_(path)
