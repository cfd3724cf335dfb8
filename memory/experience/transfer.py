"""A memory as a file: JSON lines, the header first, contents inlined, nothing learnt left out.

Line 1: ``{"format": "orienteer-memory", "version": 1, "store", "embedder", "items", "lines", "created"}``. Then one
object per line with one key: ``item`` (its columns, and ``content`` where it has one), ``value``, ``update``,
``statistic``. Vectors are not in it: they are made again, or taken from the cache.

A file may come from anybody. It is read whole and checked before anything is written.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import insert, select

from orienteer.errors import UsageError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.experience.items import (
    KINDS,
    MOST_KEY,
    MOST_STORE,
    MOST_TEXT,
    OUTCOMES,
    STAGES,
    check_store,
    item_id,
    sha,
)
from orienteer.memory.experience.records import ensure_store, insert_items, keep_content
from orienteer.memory.faults import readable
from orienteer.memory.plain import dumps
from orienteer.memory.rundb import RunDB
from orienteer.memory.schema import (
    memory_items,
    memory_statistics,
    memory_updates,
    memory_values,
)

FORMAT = "orienteer-memory"
VERSION = 1
#: Longest line (bytes) and most lines of a file that is taken.
MOST_LINE = 16 << 20
MOST_LINES = 5_000_000

_CURE = "nothing was changed; give a file that `agent memory export` wrote"
_LIMITS = {"text": MOST_TEXT + 100, "facts_json": 1 << 20}
_TEXTS = (
    "kind", "outcome", "name", "text", "content_sha", "task", "task_sha", "target", "family", "bottleneck", "stage",
    "evidence", "run_id", "candidate_id", "facts_json",
)  # fmt: skip
_VALUE = {"item_id": str, "stage": str, "signature": str, "q": float, "visits": int, "updated": float}
_UPDATE = {
    "item_id": str, "event": str, "stage": str, "signature": str, "reward": float, "raw": (float, None),
    "q_before": float, "q_after": float, "visits": int, "created": float,
}  # fmt: skip
_STATISTIC = {"stage": str, "evidence": str, "count": int, "mean": float, "variance": float, "updated": float}


@dataclass
class Content:
    """What a file holds, checked."""

    header: Mapping[str, Any]
    #: Rows of ``memory_items`` by their id in the file, and the contents of those that have one.
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    values: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    statistics: list[dict[str, Any]] = field(default_factory=list)
    #: Keys of values, updates and statistics so far.
    seen: set[tuple[str, ...]] = field(default_factory=set)


@dataclass(frozen=True)
class Imported:
    """How many items a file held and how many of them were new; the others keep what is known of them here."""

    items: int
    new: int


# -- out ---------------------------------------------------------------------------------------------------------------


def export(db: RunDB, store: ArtifactStore, path: Path, name: str = "", run_id: str = "", embedder: str = "") -> int:
    """Write a store, or what a run added to any, into a file that appears whole or not at all.

    Args:
        db, store: where facts and contents are.
        path: the file; an older one is replaced.
        name: the memory store; empty only with ``run_id``: all.
        run_id: only items that came from this run.
        embedder: for the header.

    Returns:
        the number of items.

    Raises:
        StoreError: something cannot be read or written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    with readable(f"the export {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("x", encoding="ascii") as file:
                count = 0
                for line, is_item in _lines(db, store, name, run_id, embedder):
                    file.write(line + "\n")
                    count += is_item
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return count


def _lines(db: RunDB, store: ArtifactStore, name: str, run_id: str, embedder: str) -> Iterator[tuple[str, bool]]:
    chosen = memory_items.c.id == memory_items.c.id
    if name:
        chosen &= memory_items.c.store == name
    if run_id:
        chosen &= memory_items.c.run_id == run_id
    with db.read() as conn:
        rows = conn.execute(select(memory_items).where(chosen).order_by(memory_items.c.seq)).all()
        ids = select(memory_items.c.id).where(chosen)
        values = conn.execute(
            select(memory_values).where(memory_values.c.item_id.in_(ids)).order_by(*memory_values.primary_key)
        ).all()
        updates = conn.execute(
            select(memory_updates)
            .where(memory_updates.c.item_id.in_(ids))
            .order_by(memory_updates.c.created, memory_updates.c.visits, *memory_updates.primary_key)
        ).all()
        # The spread of rewards belongs to a whole store, not to what one run added.
        spread = select(memory_statistics).where(memory_statistics.c.store == name)
        statistics = [] if run_id else conn.execute(spread.order_by(*memory_statistics.primary_key)).all()
    lines = 1 + len(rows) + len(values) + len(updates) + len(statistics)
    header = {"format": FORMAT, "version": VERSION, "store": name, "run": run_id, "embedder": embedder}
    yield dumps(header | {"items": len(rows), "lines": lines, "created": time.time()}), False
    for row in rows:
        item = {"id": row.id, "store": row.store} | {key: getattr(row, key) for key in _TEXTS}
        item["created"] = row.created
        if row.content_sha:
            item["content"] = store.text(row.content_sha)
        yield dumps({"item": item}), True
    for kind, found, form in (
        ("value", values, _VALUE), ("update", updates, _UPDATE), ("statistic", statistics, _STATISTIC)
    ):  # fmt: skip
        for row in found:
            yield dumps({kind: {key: getattr(row, key) for key in form}}), False


# -- in ----------------------------------------------------------------------------------------------------------------


def read(path: Path) -> Content:
    """Read a file and check every line.

    Raises:
        UsageError: it is not a whole export; one line that names the place.
        StoreError: it cannot be read.
    """
    content: Content | None = None
    count = 0
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe or a device may never end
        raise UsageError(f"{path} is no plain file", "give a file that `agent memory export` wrote")
    with readable(f"the memory file {path}"), path.open("rb") as file:
        while raw := file.readline(MOST_LINE + 1):
            count += 1
            try:
                record = _parse(raw)
                if content is None:
                    content = Content(_header(record))
                else:
                    _take(content, record)
            except _Wrong as wrong:
                raise UsageError(f"{path}, line {count}: {wrong}", _CURE) from None
            if count > MOST_LINES:
                raise UsageError(f"{path} has more than {MOST_LINES} lines", _CURE)
    if content is None:
        raise UsageError(f"{path} is empty", _CURE)
    if content.header["lines"] != count or content.header["items"] != len(content.items):
        raise UsageError(f"{path} has {count} of {content.header['lines']} lines, it was cut", _CURE)
    return content


def write(db: RunDB, store: ArtifactStore, content: Content, name: str) -> Imported:
    """Add what was read to a store, in one transaction.

    An item that is there already stays as it is with all that is known of it; values, history and statistics come
    along for what is new only.

    Raises:
        StoreError: it cannot be written; nothing was changed.
    """
    check_store(name)
    ensure_store(db, name)
    ids, rows = {}, []
    for old, row in content.items.items():
        key = item_id(name, row["kind"], row["task"], row["target"], row["text"], row["content_sha"])
        ids[old] = key
        rows.append(row | {"id": key, "store": name, "text_sha": sha(row["text"]), "indexed": ""})
    contents = [keep_content(store, text) for text in content.contents.values()]
    with db.write(durable=True) as conn:
        new = set(insert_items(db, conn, name, rows, contents))
        for table, found in ((memory_values, content.values), (memory_updates, content.updates)):
            fresh = [row | {"item_id": ids[row["item_id"]]} for row in found if ids[row["item_id"]] in new]
            if fresh:
                conn.execute(insert(table), fresh)
        known = select(memory_statistics.c.stage, memory_statistics.c.evidence).where(memory_statistics.c.store == name)
        there = {tuple(row) for row in conn.execute(known)}
        spread = [row | {"store": name} for row in content.statistics if (row["stage"], row["evidence"]) not in there]
        if spread:
            conn.execute(insert(memory_statistics), spread)
    return Imported(len(rows), len(new))


class _Wrong(Exception):
    """What is wrong with a line, in a few words."""


def _parse(raw: bytes) -> Mapping[str, Any]:
    if len(raw) > MOST_LINE:
        raise _Wrong(f"longer than {MOST_LINE >> 20} MiB")
    try:
        record = json.loads(raw.decode("utf-8"), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise _Wrong("not UTF-8") from None
    except RecursionError:
        raise _Wrong("nested too deep") from None
    except ValueError:
        raise _Wrong("not JSON") from None
    if not isinstance(record, dict):
        raise _Wrong("not a JSON object")
    return record


def _no_number(word: str) -> float:
    raise _Wrong(f"{word} is no number")


def _header(record: Mapping[str, Any]) -> Mapping[str, Any]:
    if record.get("format") != FORMAT:
        raise _Wrong("not a memory export")
    if record.get("version") != VERSION:
        raise _Wrong(f"version {str(record.get('version'))[:20]}, this program reads {VERSION}")
    for key in ("items", "lines"):
        if not isinstance(record.get(key), int) or isinstance(record.get(key), bool):
            raise _Wrong(f"{key} is missing")
    return record


def _take(content: Content, record: Mapping[str, Any]) -> None:
    if len(record) != 1:
        raise _Wrong("not one of item, value, update, statistic")
    ((kind, body),) = record.items()
    if not isinstance(body, dict):
        raise _Wrong(f"{str(kind)[:20]} is no object")
    if kind == "item":
        _take_item(content, body)
    elif kind == "value":
        content.values.append(_row(body, _VALUE, content, "value", ("item_id", "stage", "signature")))
    elif kind == "update":
        content.updates.append(_row(body, _UPDATE, content, "update", ("item_id", "event", "stage", "signature")))
    elif kind == "statistic":
        row = _row(body, _STATISTIC, content, "statistic", ("stage", "evidence"))
        if row["variance"] < 0:
            raise _Wrong("variance is below zero")
        content.statistics.append(row)
    else:
        raise _Wrong("not one of item, value, update, statistic")


def _take_item(content: Content, body: Mapping[str, Any]) -> None:
    row: dict[str, Any] = {key: _text(body.get(key), key, _LIMITS.get(key, 1000)) for key in _TEXTS}
    old = _text(body.get("id"), "id", 64)
    home = _text(body.get("store"), "store", MOST_STORE)
    if row["kind"] not in KINDS or row["outcome"] not in OUTCOMES or row["stage"] not in ("", *STAGES):
        raise _Wrong("unknown kind, outcome or stage")
    if not row["text"].strip():
        raise _Wrong("an item without text")
    try:
        facts = json.loads(row["facts_json"], parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _Wrong("its facts are not JSON") from None
    if not isinstance(facts, dict):
        raise _Wrong("its facts are no object")
    text = body.get("content")
    if (text is None) != (row["content_sha"] == "") or not isinstance(text, str | None):
        raise _Wrong("content and its hash do not go together")
    if text is not None and sha(text) != row["content_sha"]:
        raise _Wrong("the content is not what its hash says")
    if old != item_id(home, row["kind"], row["task"], row["target"], row["text"], row["content_sha"]):
        raise _Wrong("the id does not belong to its item")
    if old in content.items:
        raise _Wrong(f"the id {old[:12]} is there twice")
    row["created"] = _number(body.get("created"), "created")
    content.items[old] = row
    if text is not None:
        content.contents[row["content_sha"]] = text


def _row(
    body: Mapping[str, Any], form: Mapping[str, Any], content: Content, what: str, key: tuple[str, ...]
) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, kind in form.items():
        value = body.get(name)
        if kind is str:
            row[name] = _text(value, name, MOST_KEY)
        elif kind is int:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
                raise _Wrong(f"{name} is no count")
            row[name] = value
        elif value is None and kind is not float:
            row[name] = None
        else:
            row[name] = _number(value, name)
    if row["stage"] not in STAGES:
        raise _Wrong("unknown stage")
    if "item_id" in row and row["item_id"] not in content.items:
        raise _Wrong(f"the {what} belongs to no item of the file")
    mark = (what, *(row[name] for name in key))
    if mark in content.seen:
        raise _Wrong(f"the {what} is there twice")
    content.seen.add(mark)
    return row


def _text(value: Any, name: str, most: int) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{name} is no text")
    if len(value) > most:
        raise _Wrong(f"{name} is longer than {most} characters")
    if "\x00" in value:
        raise _Wrong(f"{name} holds a NUL character")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _Wrong(f"{name} holds half a surrogate pair") from None
    return value


def _number(value: Any, name: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise _Wrong(f"{name} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Wrong(f"{name} is no finite number")
    return number
