"""What the memory holds and what it is asked: items, queries, what comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orienteer.errors import UsageError
from orienteer.memory.plain import clean, dumps, plain

#: The four kinds of memory (EvoKernel, section on memory): API knowledge; summarised success and failure experiences;
#: generation traces (drafts and refined variants); best practices for refinement.
KINDS = ("api", "experience", "trace", "practice")
OUTCOMES = ("", "success", "failure")
#: Q1 judges an item's help for drafting, Q2 its help for refining.
STAGES = ("draft", "refine")
#: The store that tasks and runs share.
SHARED = "shared"

#: Longest text that is embedded (characters), longest name of a store, an event or a signature.
MOST_TEXT = 20_000
MOST_STORE = 80
MOST_KEY = 200

Policy = Literal["value", "similarity", "none"]


@dataclass(frozen=True)
class NewItem:
    """An item to remember.

    Args:
        kind: one of ``KINDS``.
        text: the summary; it is what is embedded and searched.
        outcome: ``success``, ``failure`` or empty.
        content: text that is worth keeping whole (a kernel's source, an API's page); kept as an artifact.
        content_sha: the artifact, when the content is one already.
        name: the exact name that an item of API knowledge explains, for example ``tl.dot``.
        task, task_sha: the operator by name and by its source's SHA-256; empty when it is about none.
        target: what the item holds for (``npu``, ``triton``, ``cpu``); empty: for all.
        family: the operator's class; for API knowledge its category.
        bottleneck: what the profiler or the latency model named, for example ``vector`` or ``mte2``.
        stage: the stage in which it was born, or empty.
        evidence: the evidence level behind it (ARCHITECTURE, "Evidence, not claims").
        run_id, candidate_id: where it comes from.
        facts: plain data: schedule, latency in seconds, parent item, improvement.
    """

    kind: str
    text: str
    outcome: str = ""
    content: str = ""
    content_sha: str = ""
    name: str = ""
    task: str = ""
    task_sha: str = ""
    target: str = ""
    family: str = ""
    bottleneck: str = ""
    stage: str = ""
    evidence: str = ""
    run_id: str = ""
    candidate_id: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """An item that is remembered; fields as in :class:`NewItem`, ``created`` in seconds since 1970."""

    id: str
    store: str
    kind: str
    outcome: str
    name: str
    text: str
    content_sha: str
    task: str
    task_sha: str
    target: str
    family: str
    bottleneck: str
    stage: str
    evidence: str
    run_id: str
    candidate_id: str
    facts: Mapping[str, Any]
    created: float


@dataclass(frozen=True)
class Query:
    """A question to the memory.

    Args:
        text: what is looked for; compared with the items' texts by the cosine of their embeddings.
        stage: whose Q-values choose, ``draft`` or ``refine``.
        n: most items that come back.
        lam: ``ceil(lam * n)`` items are recalled by similarity before values choose ``n`` of them.
        epsilon: chance that a slot is filled by a random recalled item instead of the one of highest value.
        signature: compact state signature; values learnt under it count before those learnt under any state.
        kinds, outcomes: only these; empty: all. API knowledge is not chosen by value: it must be named to be recalled.
        target: only items for this target or for all; None: whatever the target.
        task: only items of this task, by name or source hash; None: of all.
        exclude_tasks: leak guard: nothing that belongs to these tasks (names or source hashes) is recalled.
        bottleneck: only items that name this bottleneck; None: whatever it is.
        exclude: ids that are not wanted, for example those that a context holds already.
        policy: ``value``; ``similarity`` (the ``n`` most similar); ``none`` (nothing).
        similarity_weight: 0 filters by Q after recall, as EvoKernel does; w > 0 ranks by ``w*similarity + (1-w)*Q``,
            as MemRL mixes them.
        similarity_threshold: less similar items are not recalled; None: no threshold.
    """

    text: str
    stage: str
    n: int = 5
    lam: float = 3.0
    epsilon: float = 0.1
    signature: str = ""
    kinds: Collection[str] = ("experience", "trace", "practice")
    outcomes: Collection[str] = ()
    target: str | None = None
    task: str | None = None
    exclude_tasks: Collection[str] = frozenset()
    bottleneck: str | None = None
    exclude: Collection[str] = frozenset()
    policy: Policy = "value"
    similarity_weight: float = 0.0
    similarity_threshold: float | None = None


@dataclass(frozen=True)
class Recalled:
    """An item that came back.

    ``how`` it was chosen: ``value`` (highest Q among the recalled), ``explore`` (at random, epsilon), ``similarity``
    (by that policy), ``fill`` (highest on the list, but nothing was learnt about it yet).
    """

    item: Item
    similarity: float
    q: float
    visits: int
    how: str


@dataclass(frozen=True)
class Retrieval:
    """What a query brought: at most ``n`` items, how many were recalled before values chose, whether epsilon struck."""

    items: tuple[Recalled, ...]
    recalled: int
    explored: bool


@dataclass(frozen=True)
class Change:
    """One update of one Q-value: ``before``, ``after`` and the number of updates that the value has had.

    ``raw`` is the reward before normalisation, None where none was normalised. ``created`` is in seconds since 1970.
    """

    item: str
    event: str
    stage: str
    signature: str
    reward: float
    raw: float | None
    before: float
    after: float
    visits: int
    created: float


def sha(text: str) -> str:
    """Return the SHA-256 (hex) of a text; lone surrogates survive."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def item_id(store: str, kind: str, task: str, target: str, text: str, content_sha: str) -> str:
    """Return the id of an item: 32 hex digits, a function of what it is about, what it says and where it is kept.

    The store decides the last digits only: ties that are broken by id fall alike in the private stores of two runs.
    """
    return sha(dumps([kind, task, target, text, content_sha]))[:24] + sha(store)[:8]


def check_store(name: str) -> str:
    """Return the name of a store.

    Raises:
        UsageError: it can be none.
    """
    if not name or len(name) > MOST_STORE or not name.isprintable():
        raise UsageError(f"{name[:MOST_STORE]!r} cannot be a memory store", f"name it shared or run:ID ({MOST_STORE})")
    return name


def check_stage(stage: str) -> str:
    """Return the stage.

    Raises:
        ValueError: it is not one of ``STAGES``.
    """
    if stage not in STAGES:
        raise ValueError(f"stage {stage!r} is none of {', '.join(STAGES)}")
    return stage


def row_of(new: NewItem, store: str, content_sha: str, created: float) -> dict[str, Any]:
    """Return the database row of an item.

    Raises:
        ValueError: a field is not what it must be.
    """
    if new.kind not in KINDS:
        raise ValueError(f"kind {new.kind!r} is none of {', '.join(KINDS)}")
    if new.outcome not in OUTCOMES:
        raise ValueError(f"outcome {new.outcome!r} is none of success, failure or empty")
    if new.stage:
        check_stage(new.stage)
    text = clean(new.text, MOST_TEXT)
    if not text.strip():
        raise ValueError("an item needs a text")
    task, target = clean(new.task, 1000), clean(new.target, MOST_KEY)
    return {
        "id": item_id(store, new.kind, task, target, text, content_sha),
        "store": store,
        "kind": new.kind,
        "outcome": new.outcome,
        "name": clean(new.name, MOST_KEY),
        "text": text,
        "text_sha": sha(text),
        "content_sha": content_sha,
        "task": task,
        "task_sha": clean(new.task_sha, 64),
        "target": target,
        "family": clean(new.family, MOST_KEY),
        "bottleneck": clean(new.bottleneck, MOST_KEY),
        "stage": new.stage,
        "evidence": clean(new.evidence, MOST_KEY),
        "run_id": clean(new.run_id, MOST_KEY),
        "candidate_id": clean(new.candidate_id, MOST_KEY),
        "facts_json": dumps(plain(new.facts, "facts", lenient=True)),
        "created": created,
        "indexed": "",
    }


def item_of(row: Any) -> Item:
    """Return the item of a database row."""
    return Item(
        id=row.id, store=row.store, kind=row.kind, outcome=row.outcome, name=row.name, text=row.text,
        content_sha=row.content_sha, task=row.task, task_sha=row.task_sha, target=row.target, family=row.family,
        bottleneck=row.bottleneck, stage=row.stage, evidence=row.evidence, run_id=row.run_id,
        candidate_id=row.candidate_id, facts=json.loads(row.facts_json), created=row.created,
    )  # fmt: skip
