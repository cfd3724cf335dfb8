"""The memory items that a run recalled, used and rated, read back from the database.

A method names them by id: ``context`` and ``point_item`` in its asks, ``used`` in the notes of its candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from orienteer.memory.experience.items import item_of
from orienteer.memory.experience.values import Values
from orienteer.memory.rundb import RunDB, parts
from orienteer.memory.schema import memory_items


def remembered(
    db: RunDB, run_id: str, proposals: Sequence[Mapping[str, Any]], candidates: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what a run had to do with the memory.

    Args:
        db: the run database.
        run_id: the run.
        proposals, candidates: its proposals and candidates, as in a run's document.

    Returns:
        ``items``: the items that are still there, with ``recalled`` and ``used`` (numbers of attempts) and ``history``,
        the changes of their values in this run, in order; ``forgotten``: the ids of those that are gone.
    """
    notes = {item["id"]: item["notes"] for item in candidates}
    recalled: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for row in proposals:
        directive = row["directive"]
        recalled.update(_ids(directive.get("context")))
        point = directive.get("point_item")
        used.update({*_ids(notes.get(row["candidate_id"], {}).get("used")), *_ids([point] if point else None)})
    history: dict[str, list[dict[str, Any]]] = {}
    for change in Values(db, "").history((), run_id):
        _, step, slot = change.event.rsplit(":", 2) if change.event.count(":") >= 2 else ("", "", "")
        history.setdefault(change.item, []).append(
            {
                "step": int(step) if step.isdigit() else None,
                "slot": int(slot) if slot.isdigit() else None,
                "stage": change.stage,
                "signature": change.signature,
                "reward": change.reward,
                "raw": change.raw,
                "before": change.before,
                "after": change.after,
                "visits": change.visits,
                "created": change.created,
            }
        )
    ids = list(dict.fromkeys([*used, *recalled, *history]))
    items = []
    with db.read() as conn:
        for part in parts(ids):
            query = select(memory_items).where(memory_items.c.id.in_(part))
            for item in map(item_of, conn.execute(query.order_by(memory_items.c.seq))):
                facts = {key: getattr(item, key) for key in _SHOWN}
                counts = {"recalled": recalled[item.id], "used": used[item.id]}
                items.append({**facts, **counts, "history": history.get(item.id, [])})
    known = {item["id"] for item in items}
    return {"items": items, "forgotten": [name for name in ids if name not in known]}


_SHOWN = (
    "id", "store", "kind", "outcome", "name", "text", "task", "target", "family", "bottleneck", "stage", "evidence",
    "run_id", "candidate_id", "created",
)  # fmt: skip


def _ids(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
