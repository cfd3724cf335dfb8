"""The commands ``agent memory ...``: what is remembered, where it goes, how it is forgotten."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orienteer.agents import plainly
from orienteer.agents.command import options as o
from orienteer.agents.command.output import note, print_json, print_table, say
from orienteer.errors import UsageError

if TYPE_CHECKING:
    from orienteer.memory.experience.items import Item
    from orienteer.memory.rundb import RunDB

memory_app = o.group("What is remembered on this machine: list, show, export, import, forget, count.")

Kind = Annotated[str, typer.Option("--kind", metavar="K", help="Only api, experience, trace or practice.")]
Task = Annotated[str, typer.Option("--task", metavar="T", help="Only items of this task.")]
Store = Annotated[str, typer.Option("--store", metavar="S", help="Only this store: shared, or run:ID.")]
FromRun = Annotated[str, typer.Option("--run", metavar="ID", help="Only items that came from this run.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="A file of JSON lines.")]

#: Characters of an id that tables show; any unambiguous beginning names an item.
_SHORT = 12


@contextmanager
def _reading(home: str | None, db: str | None) -> Iterator[RunDB | None]:
    """Give the run database, or None where there is none yet."""
    from orienteer.agents.runtime.records import open_for_reading
    from orienteer.memory.home import home as find_home

    place = find_home(home)
    if db is None and not place.database.exists():
        yield None
        return
    with open_for_reading(place, db) as found:
        yield found


def _known_kind(kind: str) -> str:
    from orienteer.memory.experience.items import KINDS

    if kind and kind not in KINDS:
        raise UsageError(f"there is no kind {kind!r}", f"one of: {', '.join(KINDS)}")
    return kind


@memory_app.command("ls")
def memory_ls(
    kind: Kind = "",
    task: Task = "",
    target: Annotated[str, typer.Option("--target", metavar="NAME", help="Only items that hold for this target.")] = "",
    store: Store = "",
    run_id: FromRun = "",
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Most items.")] = 50,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """List items, newest first, with their values for drafting (Q1) and refining (Q2)."""
    from orienteer.memory.experience import records

    chosen = {"kind": _known_kind(kind), "task": task, "target": target, "store": store, "run_id": run_id}
    with _reading(home, db) as found:
        rows = [] if found is None else records.find(found, **chosen, limit=limit + 1)
    more, rows = len(rows) > limit, rows[:limit]
    if json_:
        print_json({"items": [_document(item) | {"values": _values(values)} for item, values in rows], "more": more})
        return
    if not rows:
        say("nothing is remembered that fits" if any(chosen.values()) else "nothing is remembered yet")
        return
    print_table(
        [
            {
                "id": item.id[:_SHORT],
                "store": item.store,
                "kind": f"{item.kind} {item.outcome}".strip(),
                "task": item.task,
                "target": item.target,
                "evidence": item.evidence,
                "Q1": _rated(values.get("draft")),
                "Q2": _rated(values.get("refine")),
                "text": item.text,
            }
            for item, values in rows
        ],
        widest=80,
    )
    if more:
        note(f"there are more than {limit}; see them with --limit N")


def _document(item: Item) -> dict[str, Any]:
    return asdict(item)


def _values(values: dict[str, tuple[float, int]]) -> dict[str, dict[str, float]]:
    return {stage: {"q": q, "visits": visits} for stage, (q, visits) in sorted(values.items())}


def _rated(value: tuple[float, int] | None) -> str:
    return "" if value is None else f"{value[0]:+.3f} ({value[1]})"


@memory_app.command("show")
def memory_show(
    item_id: Annotated[str, typer.Argument(metavar="ID", help="An item's id, or its beginning.")],
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Show one item: facts, values by state, their course, content."""
    from orienteer.memory.artifacts import ArtifactStore
    from orienteer.memory.experience import records
    from orienteer.memory.experience.values import Values
    from orienteer.memory.home import home as find_home

    with _reading(home, db) as found:
        if found is None:
            raise UsageError(f"there is no memory item {item_id!r}", "nothing is remembered yet; start a run")
        item, values = records.find_one(found, item_id)
        history = Values(found, item.store).history([item.id])
        content = ArtifactStore(find_home(home).artifacts).text(item.content_sha) if item.content_sha else ""
    if json_:
        print_json(
            _document(item) | {"values": values, "history": [asdict(change) for change in history], "content": content}
        )
        return
    for key, value in _document(item).items():
        if value not in ("", {}, None) and key != "created":
            say(f"{key + ':':<14}{plainly.clean(str(value))}")
    if values:
        say("\nvalues")
        print_table(
            [
                {
                    "stage": value["stage"],
                    "state": value["signature"] or "any",
                    "Q": f"{value['q']:+.4f}",
                    "updates": str(value["visits"]),
                }
                for value in values
            ]
        )
        say("\ncourse (in any state)")
        print_table(
            [
                {
                    "event": change.event,
                    "stage": change.stage,
                    "reward": f"{change.reward:+.4f}",
                    "Q": f"{change.before:+.4f} -> {change.after:+.4f}",
                }
                for change in history
                if not change.signature
            ]
        )
    if content:
        say("\ncontent")
        for line in content.splitlines():
            say("".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in line))


@memory_app.command("export")
def memory_export(
    file: File,
    store: Store = "",
    run_id: FromRun = "",
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Write a store (default: shared), or what a run added, into a file for `memory import` or `run --memory FILE`."""
    from orienteer.memory.artifacts import ArtifactStore
    from orienteer.memory.experience import records, transfer
    from orienteer.memory.experience.items import SHARED
    from orienteer.memory.home import home as find_home

    name = store or ("" if run_id else SHARED)
    with _reading(home, db) as found:
        if found is None or (name and not records.statistics(found, name)):
            raise UsageError(f"there is no memory store {name or SHARED!r} yet", "see `agent memory stats`")
        if run_id and not records.find(found, store=name, run_id=run_id, limit=1):
            raise UsageError(f"no memory item comes from run {run_id!r}", "see `agent runs ls` and `agent memory ls`")
        count = transfer.export(found, ArtifactStore(find_home(home).artifacts), Path(file), name, run_id)
    if json_:
        print_json({"file": file, "items": count})
    else:
        say(f"{count} items in {plainly.clean(file)}")


@memory_app.command("import")
def memory_import(
    file: File,
    store: Annotated[str, typer.Option("--store", metavar="S", help="Into this store.")] = "shared",
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Add what an export holds; where something is wrong with the file, nothing is changed."""
    from orienteer.memory.experience import transfer
    from orienteer.memory.experience.items import check_store
    from orienteer.memory.experience.store import ExperienceStore
    from orienteer.memory.home import home as find_home
    from orienteer.memory.rundb import RunDB

    # A file that is not one is refused before anything is made for it.
    content = transfer.read(Path(file))
    place = find_home(home).ensure()
    check_store(store)
    with (
        RunDB(db or place.database) as found,
        ExperienceStore.open(place.path, found, store, tell=note) as memory,
    ):
        done = memory.take(content)
    if json_:
        print_json({"file": file, "store": store, "items": done.items, "new": done.new})
    else:
        say(f"{done.new} of {done.items} items are new in {store}")


@memory_app.command("forget")
def memory_forget(
    task: Task = "",
    run_id: FromRun = "",
    item_id: Annotated[str, typer.Option("--id", metavar="ID", help="Only this item.")] = "",
    kind: Kind = "",
    store: Store = "",
    everything: Annotated[bool, typer.Option("--all", help="All items, and the statistics of rewards.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json_: o.Json = False,
    home: o.HomeOption = None,
    db: o.Database = None,
) -> None:
    """Forget the items that all given conditions name, with their values; runs and their files stay."""
    from orienteer.memory.experience import records
    from orienteer.memory.home import home as find_home
    from orienteer.memory.rundb import RunDB

    named = any((task, run_id, item_id, _known_kind(kind)))
    if everything == named:
        raise UsageError("say what to forget", "give --all, or one or more of --task, --run, --id, --kind")
    place = find_home(home)
    if db is None and not place.database.exists():
        gone: list[str] = []
    else:
        with RunDB(db or place.database, create=False) as found:
            if item_id:
                item_id = records.find_one(found, item_id)[0].id
            if not yes and not _agreed(json_):
                raise UsageError("nothing was forgotten", "say --yes")
            gone = records.forget(
                found, store, task=task, run_id=run_id, item=item_id, kind=kind, everything=everything
            )
    if json_:
        print_json({"forgotten": len(gone)})
    else:
        say(f"forgot {len(gone)} items")


def _agreed(json_: bool) -> bool:
    """Ask on the terminal, where somebody is there; Enter means no."""
    if json_ or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    print("Forget these items for good? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


@memory_app.command("stats")
def memory_stats(json_: o.Json = False, home: o.HomeOption = None, db: o.Database = None) -> None:
    """Count what is remembered, by store, and what else is kept on this machine, with sizes."""
    from orienteer.agents.runtime.inventory import inventory
    from orienteer.memory.experience import records

    with _reading(home, db) as found:
        stores = [] if found is None else records.statistics(found)
    kept = inventory(home, db)
    if json_:
        print_json({"stores": stores, "kept": kept})
        return
    if not stores:
        say("nothing is remembered yet")
    for store in stores:
        kinds = ", ".join(f"{count} {kind}" for kind, count in store["kinds"].items()) or "no items"
        say(f"{plainly.clean(store['store'])}: {store['items']} items ({kinds}), {store['indexed']} indexed")
        for value in store["values"]:
            spread = f"Q {value['least_q']:+.3f} to {value['most_q']:+.3f}"
            say(f"  {value['stage']}: {value['items']} items rated, {value['updates']} updates, {spread}")
        for reward in store["rewards"]:
            level = reward["evidence"] or "no evidence"
            what = f"mean {reward['mean']:+.4f}, sigma {reward['sigma']:.4f}"
            say(f"  rewards of {reward['stage']} at {plainly.clean(level)}: {reward['count']}, {what}")
    say("\nkept on this machine")
    print_table(
        [{"what": i["store"], "items": str(i["items"]), "size": _size(i["bytes"]), "where": i["where"]} for i in kept],
        widest=200,
    )


def _size(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 2**20:.1f} MiB" if count >= 1 << 20 else f"{count / 2**10:.0f} KiB"
