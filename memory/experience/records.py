"""The rows of the memory as a person asks for them: list, find, count, forget. Needs no embedder and no index."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, select, update

from orienteer.errors import UsageError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.experience.items import Item, item_of
from orienteer.memory.rundb import RunDB, parts
from orienteer.memory.schema import (
    artifacts,
    memory_items,
    memory_rewards,
    memory_statistics,
    memory_stores,
    memory_updates,
    memory_values,
)

_I, _V, _S = memory_items.c, memory_values.c, memory_stores.c
_GROW = update(memory_stores).where(_S.name == bindparam("store")).values(revision=_S.revision + 1)


def ensure_store(db: RunDB, name: str) -> str:
    """Make a store where there is none; return its token, the name of its vectors."""
    query = select(_S.token).where(_S.name == name)
    with db.read() as conn:
        token = conn.execute(query).scalar()
    if token is None:
        row = {"name": name, "token": secrets.token_hex(8), "revision": 0, "deletions": 0, "created": time.time()}
        with db.write() as conn:
            db.insert_new(conn, memory_stores, [row], ("name",))
            token = conn.execute(query).scalar_one()
    return str(token)


def keep_content(store: ArtifactStore, text: str) -> dict[str, Any]:
    """Keep the content of an item as an artifact; return the artifact's row."""
    size = len(text.encode("utf-8", "surrogatepass"))
    return {"sha": store.put(text, "text/plain"), "size": size, "media": "text/plain", "created": time.time()}


def insert_items(
    db: RunDB, conn: Connection, store: str, rows: Sequence[dict[str, Any]], contents: list[dict[str, Any]]
) -> list[str]:
    """Insert the rows whose item is not there yet, and tell the store's readers; return the ids of those.

    Args:
        db, conn: the open run database, writing.
        store: the store of all rows.
        rows: of ``memory_items``.
        contents: of ``artifacts`` (:func:`keep_content`).
    """
    db.insert_new(conn, artifacts, contents, ("sha",))
    fresh: dict[str, dict[str, Any]] = {row["id"]: row for row in reversed(rows)}
    for part in parts(list(fresh)):
        known = conn.execute(select(_I.id).where(_I.id.in_(part))).scalars().all()
        for item in known:
            del fresh[item]
    new = [row for row in rows if fresh.get(row["id"]) is row]
    if new:
        db.insert_new(conn, memory_items, new, ("id",))
        conn.execute(_GROW, {"store": store})
    return [row["id"] for row in new]


def find(
    db: RunDB,
    *,
    store: str = "",
    kind: str = "",
    task: str = "",
    target: str = "",
    run_id: str = "",
    limit: int | None = None,
) -> list[tuple[Item, dict[str, tuple[float, int]]]]:
    """Return items, newest first, each with its Q and number of updates by stage (under any state)."""
    query = select(memory_items).order_by(_I.seq.desc())
    given = ((_I.store, store), (_I.kind, kind), (_I.task, task), (_I.target, target), (_I.run_id, run_id))
    for column, value in given:
        if value:
            query = query.where(column == value)
    if limit is not None:
        query = query.limit(limit)
    with db.read() as conn:
        items = [item_of(row) for row in conn.execute(query)]
        values: dict[str, dict[str, tuple[float, int]]] = {}
        for part in parts([item.id for item in items]):
            for row in conn.execute(select(memory_values).where(_V.item_id.in_(part), _V.signature == "")):
                values.setdefault(row.item_id, {})[row.stage] = (row.q, row.visits)
    return [(item, values.get(item.id, {})) for item in items]


def find_one(db: RunDB, prefix: str) -> tuple[Item, list[dict[str, Any]]]:
    """Return an item by its id or an unambiguous beginning of it, and all its values.

    Raises:
        UsageError: there is none, or more than one.
    """
    with db.read() as conn:
        query = select(memory_items).where(_I.id.startswith(prefix, autoescape=True)).order_by(_I.seq).limit(5)
        rows = conn.execute(query).all() if prefix else []
        if not rows:
            raise UsageError(f"there is no memory item {prefix!r}", "see `agent memory ls`")
        if len(rows) > 1:
            ids = ", ".join(row.id[:12] for row in rows)
            raise UsageError(f"{prefix!r} begins several item ids", f"one of: {ids}")
        values = conn.execute(
            select(memory_values).where(_V.item_id == rows[0].id).order_by(_V.stage, _V.signature)
        ).all()
    keys = ("stage", "signature", "q", "visits", "updated")
    return item_of(rows[0]), [{key: getattr(row, key) for key in keys} for row in values]


def forget(
    db: RunDB,
    store: str = "",
    *,
    task: str = "",
    run_id: str = "",
    item: str = "",
    kind: str = "",
    everything: bool = False,
) -> list[str]:
    """Forget the items that all given conditions name, with their values and history; return their ids.

    With ``everything`` the reward statistics of the stores go too. Otherwise they stay: what a reward taught about the
    spread of rewards cannot be taken back.

    Args:
        store: only this one; empty: all.
        task, run_id, item, kind: conditions; at least one of them, or ``everything``.
        everything: all items of the store.

    Raises:
        UsageError: nothing was named.
    """
    given = [(_I.task, task), (_I.run_id, run_id), (_I.id, item), (_I.kind, kind)]
    if everything == any(value for _, value in given):
        raise UsageError("say what to forget", "give --all, or one or more of --task, --run, --id, --kind")
    query = select(_I.id, _I.store)
    for column, value in [(_I.store, store), *given]:
        if value:
            query = query.where(column == value)
    with db.write() as conn:
        rows = conn.execute(query.order_by(_I.seq)).all()
        ids = [row.id for row in rows]
        for part in parts(ids):
            conn.execute(delete(memory_items).where(_I.id.in_(part)))
        touched = {row.store for row in rows}
        if everything:
            names = conn.execute(select(_S.name).where(_S.name == store) if store else select(_S.name)).scalars().all()
            for table in (memory_statistics, memory_rewards):
                conn.execute(delete(table).where(table.c.store.in_(names)))
        if touched:
            conn.execute(update(memory_stores).where(_S.name.in_(touched)).values(deletions=_S.deletions + 1))
    return ids


def statistics(db: RunDB, store: str = "") -> list[dict[str, Any]]:
    """Return for every store (or one) what it holds: items by kind and outcome, values by stage, reward statistics."""
    with db.read() as conn:
        query = select(memory_stores).order_by(_S.name)
        stores = conn.execute(query.where(_S.name == store) if store else query).all()
        return [_of_store(conn, row) for row in stores]


def _of_store(conn: Connection, row: Any) -> dict[str, Any]:
    here = _I.store == row.name

    def by(column: Any) -> dict[str, int]:
        query = select(column, func.count()).where(here).group_by(column).order_by(column)
        return {str(value): int(count) for value, count in conn.execute(query)}

    rated = conn.execute(
        select(_V.stage, func.count(), func.sum(_V.visits), func.min(_V.q), func.max(_V.q))
        .join(memory_items, _I.id == _V.item_id)
        .where(here, _V.signature == "")
        .group_by(_V.stage)
        .order_by(_V.stage)
    ).all()
    updates = select(func.count()).select_from(memory_updates).join(memory_items, _I.id == memory_updates.c.item_id)
    spread = select(memory_statistics).where(memory_statistics.c.store == row.name)
    return {
        "store": row.name,
        "items": int(conn.execute(select(func.count()).where(here)).scalar_one()),
        "kinds": by(_I.kind),
        "outcomes": by(_I.outcome),
        "targets": by(_I.target),
        "indexed": int(conn.execute(select(func.count()).where(here, _I.indexed != "")).scalar_one()),
        "values": [
            {"stage": stage, "items": int(n), "updates": int(visits), "least_q": least, "most_q": most}
            for stage, n, visits, least, most in rated
        ],
        "history": int(conn.execute(updates.where(here)).scalar_one()),
        "rewards": [
            {
                "stage": s.stage,
                "evidence": s.evidence,
                "count": s.count,
                "mean": s.mean,
                "sigma": max(0.0, s.variance) ** 0.5,
            }
            for s in conn.execute(spread.order_by(memory_statistics.c.stage, memory_statistics.c.evidence))
        ],
        "created": row.created,
    }
