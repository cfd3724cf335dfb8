"""Reads runs back: the list, one run in full, an export for people without the database."""

from __future__ import annotations

import difflib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from orienteer.agents.runtime import registry
from orienteer.agents.runtime.config import RunReport
from orienteer.agents.runtime.method import Method
from orienteer.agents.runtime.owner import alive
from orienteer.agents.runtime.remembered import remembered
from orienteer.errors import StoreError, UsageError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.faults import from_os
from orienteer.memory.home import Home, home
from orienteer.memory.journal import Journal
from orienteer.memory.rundb import RunDB

#: A run's report in its folder.
REPORT = "report.html"
#: Endings of exported candidate files by media type.
_SUFFIXES = {"text/x-python": ".py", "application/json": ".json", "text/plain": ".txt", "text/markdown": ".md"}


def find_run(catalogue: Catalogue, run_id: str) -> Any:
    """Return the row of a run by its id or an unambiguous beginning of it; ``last`` is the newest.

    Raises:
        UsageError: there is none, or more than one.
    """
    if run_id == "last":
        rows = catalogue.all()
        if rows:
            return rows[0]
    row = catalogue.get(run_id)
    if row is not None:
        return row
    found = catalogue.starting_with(run_id) if run_id else []
    if len(found) == 1:
        return catalogue.get(found[0])
    if found:
        raise UsageError(f"{run_id!r} begins several run ids", f"one of: {', '.join(found)}")
    raise UsageError(f"there is no run {run_id!r}", "see `agent runs ls`")


def state_of(row: Any) -> str:
    """Return a run's status as it is now: one that says ``running`` without a living process is ``crashed``."""
    if row.status == "running" and not alive(row.owner_json, row.heartbeat):
        return "crashed"
    return str(row.status)


def list_runs(home_path: str | Path | None = None, database: str | Path | None = None) -> list[dict[str, Any]]:
    """Return all runs, newest first: id, method, target, tasks, proposer, status, seed, created, counts, active_s.

    No database yet means no runs.
    """
    place = home(home_path)
    if database is None and not place.database.exists():
        return []
    with open_for_reading(place, database) as db:
        catalogue = Catalogue(db)
        return [_summary(catalogue, row) for row in catalogue.all()]


def show_run(
    run_id: str, home_path: str | Path | None = None, database: str | Path | None = None, *, contents: bool = False
) -> dict[str, Any]:
    """Return one run as a plain document: request, provenance, budget, result, best, proposals, evaluations, calls.

    ``state`` is the method's newest state, ``memory`` what the run had to do with the memory (see ``remembered``); the
    method's own :meth:`~orienteer.agents.runtime.method.Method.summary` is added, where the method is known.

    Args:
        run_id: the run's id, an unambiguous beginning of it, or ``last``.
        home_path, database: where it is kept.
        contents: put the text of every candidate and log into the document.

    Raises:
        UsageError: there is no such run.
        StoreError: the database or an artifact cannot be read.
    """
    place = home(home_path)
    with open_for_reading(place, database) as db:
        document = _document(db, place, find_run(Catalogue(db), run_id).id, contents=contents)
    with suppress(UsageError):
        document |= registry.find(document["method"]).summary(document)
    return document


def only_task(document: dict[str, Any], task: str) -> dict[str, Any]:
    """Return a run's document with nothing but one task in it; what the memory says of the run stays whole.

    Raises:
        UsageError: the run has no such task.
    """
    result = document["result"]
    rows = result.get("tasks")
    names = {row["task"] for row in document["proposals"]} | set(document["best"])
    names |= (
        {row["task"] for row in rows if isinstance(row, dict) and "task" in row} if isinstance(rows, list) else set()
    )
    kept = document["state"].get("tasks")
    names |= set(kept) if isinstance(kept, dict) else set()
    if task not in names:
        near = difflib.get_close_matches(task, sorted(names), n=1)
        raise UsageError(
            f"run {document['id']} has no task {task!r}",
            f"did you mean {near[0]}?" if near else "see `agent runs show`",
        )
    candidates = [item for item in document["candidates"] if item["task"] == task]
    ids = {item["id"] for item in candidates}
    if isinstance(rows, list):
        result = result | {"tasks": [row for row in rows if row.get("task") == task]}
    return document | {
        "result": result,
        "best": {name: facts for name, facts in document["best"].items() if name == task},
        "proposals": [item for item in document["proposals"] if item["task"] == task],
        "candidates": candidates,
        "evaluations": [item for item in document["evaluations"] if item["candidate_id"] in ids],
    }


def export_run(
    run_id: str, folder: str | Path, home_path: str | Path | None = None, database: str | Path | None = None
) -> Path:
    """Write a run into a folder: ``run.json`` (everything, as :func:`show_run`) and one file per candidate.

    Returns:
        the path of ``run.json``.

    Raises:
        UsageError: there is no such run, or the folder is not empty.
        StoreError: something cannot be read or written.
    """
    place = home(home_path)
    target = Path(folder)
    with open_for_reading(place, database) as db:
        document = _document(db, place, find_run(Catalogue(db), run_id).id, contents=True)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} is not an empty folder", "name a new one")
        (target / "candidates").mkdir(parents=True, exist_ok=True)
        for item in document["candidates"]:
            suffix = _SUFFIXES.get(item["media"], ".txt")
            item["file"] = f"candidates/{item['step']:04d}-{item['slot']:03d}-{item['id']}{suffix}"
            text = item.pop("content")
            (target / item["file"]).write_bytes(text.encode("utf-8", "surrogatepass"))
        path = target / "run.json"
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as exc:
        raise from_os(exc, f"the export folder {target}") from exc
    return path


def write_report(
    run_id: str,
    to: str | Path | None = None,
    home_path: str | Path | None = None,
    database: str | Path | None = None,
) -> Path:
    """Write a run's report, whatever state the run is in, and return its path.

    Args:
        run_id: the run's id, an unambiguous beginning of it, or ``last``.
        to: the file; None: ``report.html`` in the run's folder.
        home_path, database: where the run is kept.

    Raises:
        UsageError: there is no such run, or its method writes no report.
        StoreError: something cannot be read or written.
    """
    place = home(home_path)
    with open_for_reading(place, database) as db:
        row = find_run(Catalogue(db), run_id)
        path = Path(to) if to is not None else place.run_folder(row.id) / REPORT
        if not put_report(db, place, row.id, registry.find(row.method), path):
            raise UsageError(f"the method {row.method} writes no report", "see `agent runs show`")
    return path


def put_report(db: RunDB, place: Home, run_id: str, kind: type[Method], path: Path) -> bool:
    """Write the report of a run, unless its method writes none; say whether it was written."""
    store = ArtifactStore(place.artifacts)

    def read(sha: str) -> str:
        try:
            return store.text(sha)
        except StoreError as exc:
            return f"(lost: {exc.problem})"

    text = kind.report(lambda: _document(db, place, run_id), read)
    if text is None:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        unfinished.write_bytes(text.encode("utf-8", "backslashreplace"))
        unfinished.replace(path)
    except OSError as exc:
        raise from_os(exc, f"the report {path}") from exc
    return True


def stop_run(run_id: str, home_path: str | Path | None = None, database: str | Path | None = None) -> str:
    """Ask the process that drives a run to stop; return the run's id. It obeys within a few seconds.

    Raises:
        UsageError: there is no such run, or nothing drives it.
    """
    with RunDB(database or home(home_path).database, create=False) as db:
        catalogue = Catalogue(db)
        row = find_run(catalogue, run_id)
        if state_of(row) != "running":
            raise UsageError(f"run {row.id} is not running", "see `agent runs ls`")
        catalogue.update(row.id, stop_requested=True)
        return str(row.id)


def remove_run(run_id: str, home_path: str | Path | None = None, database: str | Path | None = None) -> str:
    """Remove a run and its folder and return its id; artifacts stay, other runs may share them.

    Raises:
        UsageError: there is no such run, or a process drives it.
    """
    with RunDB(database or home(home_path).database, create=False) as db:
        catalogue = Catalogue(db)
        row = find_run(catalogue, run_id)
        if state_of(row) == "running":
            raise UsageError(f"run {row.id} is running", "stop it first")
        catalogue.remove(row.id)
        shutil.rmtree(home(home_path).run_folder(row.id), ignore_errors=True)
        return str(row.id)


def report(db: RunDB, place: Home, run_id: str) -> RunReport:
    """Return the report of a run that has ended."""
    document = _document(db, place, run_id)
    return RunReport(
        id=run_id,
        status=document["status"],
        reason=document["reason"],
        method=document["method"],
        result=document["result"],
        best=document["best"],
        counts=document["counts"],
        provenance=document["provenance"],
        folder=place.run_folder(run_id),
        steps=document["steps"],
    )


# -- inside ---------------------------------------------------------------------------------------------------------


def open_for_reading(place: Home, database: str | Path | None) -> RunDB:
    """Open the run database of a home (or the one named) where it exists; where it cannot be written, read it.

    Raises:
        StoreError: it cannot be read.
    """
    where = database or place.database
    try:
        return RunDB(where, create=False)
    except StoreError as exc:
        # Reading must work where writing does not: another person's file, a read-only disk.
        if "read-only" not in exc.problem and "not accessible" not in exc.problem:
            raise
        return RunDB(where, readonly=True)


def _summary(catalogue: Catalogue, row: Any) -> dict[str, Any]:
    config = json.loads(row.config_json)
    return {
        "id": row.id,
        "method": row.method,
        "target": row.target,
        "tasks": config.get("tasks", []),
        "proposer": row.proposer,
        "status": state_of(row),
        "reason": row.reason,
        "seed": row.seed,
        "created": row.created,
        "ended": row.ended,
        "active_s": row.active_s,
        "counts": catalogue.counts(row.id),
    }


def _document(db: RunDB, place: Home, run_id: str, *, contents: bool = False) -> dict[str, Any]:
    from orienteer.memory.calls import all_calls

    catalogue = Catalogue(db)
    store = ArtifactStore(place.artifacts)
    journal = Journal(db, store, run_id)
    row = catalogue.get(run_id)
    if row is None:
        raise UsageError(f"there is no run {run_id!r}", "see `agent runs ls`")
    found = [_candidate(item, parents) for item, parents in journal.candidates()]
    verdicts = [_evaluation(item) for item in journal.evaluations()]
    if contents:
        for item in found:
            item["content"] = store.text(item["content_sha"])
        for item in verdicts:
            item["log"] = store.text(item["log_sha"]) if item["log_sha"] else ""
    newest = journal.last_state(complete=False)
    proposals = [_proposal(item) for item in journal.all_proposals()]
    return _summary(catalogue, row) | {
        "config": json.loads(row.config_json),
        "provenance": json.loads(row.provenance_json),
        "budget": json.loads(row.budget_json),
        "result": json.loads(row.result_json) if row.result_json else {},
        "steps": 0 if newest is None else newest.step + 1,
        "best": _best(found, verdicts, minimise=bool(json.loads(row.provenance_json).get("minimise"))),
        "folder": str(place.run_folder(run_id)),
        "state": {} if newest is None else json.loads(newest.state_json),
        "memory": remembered(db, run_id, proposals, found),
        "proposals": proposals,
        "candidates": found,
        "evaluations": verdicts,
        "model_calls": [_call(item) for item in all_calls(db, run_id)],
    }


def _columns(*names: str) -> Callable[[Any], dict[str, Any]]:
    return lambda row: {name: getattr(row, name) for name in names}


_call = _columns(
    "id", "step", "slot", "phase", "model", "reported_model", "status", "cached", "request_artifact", "reply_artifact",
    "tokens_in", "tokens_out", "estimated", "cost", "http_calls", "finish_reason", "latency", "failure_kind",
    "failure_message",
)  # fmt: skip


def _candidate(row: Any, parents: tuple[str, ...]) -> dict[str, Any]:
    facts = _columns("id", "task", "content_sha", "media", "step", "slot")(row)
    return facts | {"parents": list(parents), "notes": json.loads(row.notes_json)}


def _evaluation(row: Any) -> dict[str, Any]:
    facts = _columns(
        "candidate_id", "evaluator", "settings_sha", "step", "status", "score", "evidence", "failure_kind",
        "failure_message", "log_sha", "sandbox", "reused_from",
    )(row)  # fmt: skip
    return facts | {"metrics": json.loads(row.metrics_json), "seconds": round(row.ended - row.started, 4)}


def _proposal(row: Any) -> dict[str, Any]:
    ask = json.loads(row.ask_json)
    facts = _columns("step", "slot", "task", "status", "candidate_id", "failure_kind", "failure_message")(row)
    return facts | {"directive": ask["directive"], "parents": ask["parents"]}


def _best(found: list[dict[str, Any]], verdicts: list[dict[str, Any]], *, minimise: bool) -> dict[str, dict[str, Any]]:
    by_id = {item["id"]: item for item in found}
    best: dict[str, tuple[tuple[float, int, int], dict[str, Any]]] = {}
    for verdict in verdicts:
        if verdict["status"] != "ok" or verdict["score"] is None:
            continue
        item = by_id[verdict["candidate_id"]]
        rank = (verdict["score"] if minimise else -verdict["score"], item["step"], item["slot"])
        if item["task"] not in best or rank < best[item["task"]][0]:
            facts = {
                "candidate": item["id"], "score": verdict["score"], "step": item["step"], "slot": item["slot"],
                "evidence": verdict["evidence"], "content_sha": item["content_sha"],
            }  # fmt: skip
            best[item["task"]] = (rank, facts)
    return {task: facts for task, (_, facts) in sorted(best.items())}
