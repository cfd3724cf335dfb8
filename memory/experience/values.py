"""Q-values of memory items, their history, and the normalisation of rewards.

Update (EvoKernel, arXiv 2603.10846): ``Q(s, m) <- Q(s, m) + alpha * (r - Q(s, m))`` for every item m of the context
that was used. Alpha, the first Q and how the state enters the key are not printed there. Here Q begins at 0, alpha is
0.3 by default, and a value is kept twice: under the compact state signature, and under the empty signature, which is
the fallback where nothing was learnt in that state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, insert, or_, select, update

from orienteer.memory.experience.items import MOST_KEY, Change, check_stage
from orienteer.memory.rundb import RunDB, parts
from orienteer.memory.schema import (
    memory_items,
    memory_rewards,
    memory_statistics,
    memory_updates,
    memory_values,
)

FIRST_Q = 0.0
ALPHA = 0.3
#: A spread below this is not believed; a normalised reward beyond this is cut.
SIGMA_FLOOR = 1e-2
CLIP = 3.0

_V, _U, _W, _S = memory_values.c, memory_updates.c, memory_rewards.c, memory_statistics.c
_VALUES = select(memory_values).where(
    _V.item_id.in_(bindparam("ids", expanding=True)),
    _V.stage == bindparam("stage"),
    _V.signature.in_(bindparam("signatures", expanding=True)),
)
_DONE = select(memory_updates).where(
    _U.item_id.in_(bindparam("ids", expanding=True)), _U.event == bindparam("event"), _U.stage == bindparam("stage")
)
# By id alone: with the store beside it SQLite walks through the whole store.
_KNOWN = select(memory_items.c.id, memory_items.c.store).where(memory_items.c.id.in_(bindparam("ids", expanding=True)))
_REWARD = select(memory_rewards).where(
    _W.store == bindparam("store"), _W.event == bindparam("event"), _W.stage == bindparam("stage")
)
_STATISTIC = select(memory_statistics).where(
    _S.store == bindparam("store"), _S.stage == bindparam("stage"), _S.evidence == bindparam("evidence")
)
_CHANGE = (
    update(memory_values)
    .where(_V.item_id == bindparam("i"), _V.stage == bindparam("s"), _V.signature == bindparam("g"))
    .values(q=bindparam("q"), visits=bindparam("visits"), updated=bindparam("updated"))
)


def step(q: float, reward: float, alpha: float) -> float:
    """Return Q after one update; it stays between ``q`` and ``reward``."""
    moved = q + alpha * (reward - q)
    # Rounding must not carry it over the edge.
    return min(max(moved, min(q, reward)), max(q, reward))


def normalised(raw: float, count: int, mean: float, variance: float) -> float:
    """Return a reward measured against the statistics of the rewards before it.

    ``(raw - mean) / max(sigma, 0.01)``, cut to [-3, 3]; the first reward, which has no past, stays as it is (cut too).
    """
    if count == 0:
        return max(-CLIP, min(CLIP, raw))
    return max(-CLIP, min(CLIP, (raw - mean) / max(math.sqrt(max(variance, 0.0)), SIGMA_FLOOR)))


def gathered(raw: float, count: int, mean: float, variance: float) -> tuple[int, float, float]:
    """Return count, mean and (population) variance with one more reward (Welford's recurrence)."""
    count += 1
    delta = raw - mean
    mean += delta / count
    return count, mean, variance + (delta * (raw - mean) - variance) / count


class Values:
    """Q-values and reward statistics of one store; every write is one transaction and keyed by an event.

    Args:
        db: the open run database.
        store: the name of the memory store.
    """

    def __init__(self, db: RunDB, store: str) -> None:
        self.db = db
        self.store = store

    def look_up(self, conn: Connection, ids: Sequence[str], stage: str, signature: str) -> dict[str, tuple[float, int]]:
        """Return Q and its number of updates by item: under the signature where it is known there, else under none.

        Items about which nothing is known are left out.
        """
        found: dict[str, tuple[float, int]] = {}
        exact: set[str] = set()
        for chunk in parts(ids):
            for row in conn.execute(_VALUES, {"ids": chunk, "stage": stage, "signatures": sorted({"", signature})}):
                if row.signature == signature:
                    exact.add(row.item_id)
                elif row.item_id in exact:
                    continue
                found[row.item_id] = (row.q, row.visits)
        return found

    def update(
        self, event: str, stage: str, items: Sequence[str], signature: str, reward: float, alpha: float = ALPHA
    ) -> list[Change]:
        """Move the values of all items of a used context towards a reward.

        The same event changes an item once, however often it is told. Items that are not (or no longer) in the store
        are left out.

        Returns:
            the changes under the signature that was given, in the order of ``items``; for a repeated event those that
            it made the first time.

        Raises:
            ValueError: the reward is not finite, alpha not in (0, 1], or a key too long.
        """
        check_stage(stage)
        _check_key(event, "event")
        _check_key(signature, "signature", empty=True)
        if not math.isfinite(reward):
            raise ValueError(f"reward is {reward}, which is not a finite number")
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}; it lies in (0, 1]")
        wanted = list(dict.fromkeys(items))
        if not wanted:
            return []
        changes: dict[tuple[str, str], Change] = {}
        signatures = sorted({"", signature})
        with self.db.write() as conn:
            known: set[str] = set()
            values: dict[tuple[str, str], Any] = {}
            for chunk in parts(wanted):
                known.update(row.id for row in conn.execute(_KNOWN, {"ids": chunk}) if row.store == self.store)
                for row in conn.execute(_DONE, {"ids": chunk, "event": event, "stage": stage}):
                    changes[row.item_id, row.signature] = change_of(row)
                for row in conn.execute(_VALUES, {"ids": chunk, "stage": stage, "signatures": signatures}):
                    values[row.item_id, row.signature] = row
            # What the reward was before it was normalised, where it was.
            seen = conn.execute(_REWARD, {"store": self.store, "event": event, "stage": stage}).first()
            raw = None if seen is None else float(seen.raw)
            now = time.time()
            done: list[dict[str, Any]] = []
            added: list[dict[str, Any]] = []
            moved: list[dict[str, Any]] = []
            for item in wanted:
                for key in signatures:
                    if item not in known or (item, key) in changes:
                        continue
                    old = values.get((item, key))
                    before, visits = (FIRST_Q, 0) if old is None else (old.q, old.visits)
                    after = step(before, reward, alpha)
                    change = Change(item, event, stage, key, reward, raw, before, after, visits + 1, now)
                    changes[item, key] = change
                    done.append(_row(change))
                    if old is None:
                        added.append(
                            {"item_id": item, "stage": stage, "signature": key, "q": after, "visits": 1, "updated": now}
                        )
                    else:
                        moved.append(
                            {"i": item, "s": stage, "g": key, "q": after, "visits": visits + 1, "updated": now}
                        )
            if done:
                conn.execute(insert(memory_updates), done)
            if added:
                conn.execute(insert(memory_values), added)
            if moved:
                conn.execute(_CHANGE, moved)
        return [changes[item, signature] for item in wanted if (item, signature) in changes]

    def normalise(self, event: str, stage: str, evidence: str, raw: float) -> float:
        """Return a reward in units of the spread of its predecessors (after PopArt), and add it to the statistics.

        The statistics are those of the same stage and the same evidence level, which are never mixed, and they are the
        ones from before this reward: the paper does not say which, and a reward that shifts its own measure would be
        pulled towards zero. The same event is counted once and always gets the same answer.

        Raises:
            ValueError: the reward is not finite, or a key too long.
        """
        check_stage(stage)
        _check_key(event, "event")
        _check_key(evidence, "evidence", empty=True)
        if not math.isfinite(raw):
            raise ValueError(f"reward is {raw}, which is not a finite number")
        place = {"store": self.store, "stage": stage}
        with self.db.write() as conn:
            old = conn.execute(_REWARD, place | {"event": event}).first()
            if old is not None:
                return float(old.normalised)
            known = conn.execute(_STATISTIC, place | {"evidence": evidence}).first()
            past = (0, 0.0, 0.0) if known is None else (known.count, known.mean, known.variance)
            answer = normalised(raw, *past)
            now = time.time()
            conn.execute(
                insert(memory_rewards),
                place
                | {"event": event, "evidence": evidence, "raw": raw, "normalised": answer, "created": now}
                | dict(zip(("count", "mean", "variance"), past, strict=True)),
            )
            fresh = dict(zip(("count", "mean", "variance"), gathered(raw, *past), strict=True)) | {"updated": now}
            if known is None:
                conn.execute(insert(memory_statistics), place | {"evidence": evidence} | fresh)
            else:
                here = and_(_S.store == self.store, _S.stage == stage, _S.evidence == evidence)
                conn.execute(update(memory_statistics).where(here).values(**fresh))
        return answer

    def history(self, items: Sequence[str] = (), run_id: str = "") -> list[Change]:
        """Return all changes of the items, or all that a run made, in the order in which they happened."""
        if not items and not run_id:
            return []
        found: list[Change] = []
        with self.db.read() as conn:
            of_run = or_(_U.event == run_id, self._begins_with(f"{run_id}:"))
            for chunk in parts(items) if items else [None]:
                query = select(memory_updates)
                if chunk is not None:
                    query = query.where(_U.item_id.in_(chunk))
                if run_id:
                    query = query.where(of_run)
                found += map(change_of, conn.execute(query))
        return sorted(found, key=lambda c: (c.created, c.event, c.item, c.visits, c.signature))

    def _begins_with(self, prefix: str) -> ColumnElement[bool]:
        if not self.db.sqlite:
            return _U.event.startswith(prefix, autoescape=True)
        # SQLite's LIKE ignores case and therefore the index.
        return and_(_U.event >= prefix, _U.event < prefix[:-1] + chr(ord(prefix[-1]) + 1))


def change_of(row: Any) -> Change:
    """Return the change of a database row."""
    return Change(
        row.item_id, row.event, row.stage, row.signature, row.reward, row.raw, row.q_before, row.q_after, row.visits,
        row.created,
    )  # fmt: skip


def _row(change: Change) -> dict[str, Any]:
    return {
        "item_id": change.item, "event": change.event, "stage": change.stage, "signature": change.signature,
        "reward": change.reward, "raw": change.raw, "q_before": change.before, "q_after": change.after,
        "visits": change.visits, "created": change.created,
    }  # fmt: skip


def _check_key(text: str, what: str, *, empty: bool = False) -> None:
    if len(text) > MOST_KEY or (not text and not empty):
        raise ValueError(f"the {what} {text[:40]!r} is {'too long' if text else 'empty'} (1 to {MOST_KEY} characters)")
