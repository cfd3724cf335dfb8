"""Starts a run, or goes on with one: everything around the loop."""

from __future__ import annotations

import json
import platform
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from importlib import metadata
from typing import Any

from orienteer import __version__
from orienteer.agents.runtime import registry
from orienteer.agents.runtime.config import RunConfig, RunReport, build_settings
from orienteer.agents.runtime.events import Listener
from orienteer.agents.runtime.method import Method, Settings
from orienteer.agents.runtime.owner import alive, identity, release
from orienteer.agents.runtime.records import find_run, report
from orienteer.agents.runtime.session import AskSomebody, Session
from orienteer.errors import MissingPrerequisite, OrienteerError, UsageError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.catalogue import Catalogue
from orienteer.memory.home import Home, home
from orienteer.memory.plain import dumps
from orienteer.memory.rundb import RunDB

_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
#: Packages whose versions every run records.
_RECORDED = ("langgraph", "openai", "SQLAlchemy", "numpy")


def start_run(config: RunConfig, on_event: Listener | None = None, on_question: AskSomebody | None = None) -> RunReport:
    """Run a method from the beginning.

    Args:
        config: the request.
        on_event: told everything that happens, from whatever thread it happens in, one event at a time.
        on_question: asks a person; without it a run that has a question stops there and can be resumed.

    Returns:
        the report of a run that ended by its own rules: ``done``, ``budget`` or ``failed``.

    Raises:
        UsageError, MissingPrerequisite: the request cannot be served; no trace of a run is left.
        EndpointError, StoreError: the run was ended by them; it can be resumed.
        Interrupted: the run was stopped; it can be resumed.
    """
    kind = registry.find(config.method)
    settings = build_settings(kind.Settings, config.settings)
    config = _resolved(config)
    place, db = _open(config)
    with db:
        catalogue = Catalogue(db)
        run_id = new_id()
        claim = identity()
        try:
            from orienteer.agents.runtime.loop import RUN_VERSION

            document = config.document()
            catalogue.create(
                id=run_id, method=config.method, target=config.target, seed=config.seed, status="running",
                run_version=RUN_VERSION, config_json=dumps(document), owner_json=claim,
            )  # fmt: skip
            session = _session(run_id, claim, config, kind, settings, place, db, on_event, on_question)
            try:
                return session.start()
            except (UsageError, MissingPrerequisite):
                if not session.worked:
                    catalogue.remove(run_id)
                    shutil.rmtree(place.run_folder(run_id), ignore_errors=True)
                raise
        finally:
            release(claim)


def resume_run(
    run_id: str,
    overrides: Mapping[str, Any] | None = None,
    on_event: Listener | None = None,
    on_question: AskSomebody | None = None,
    *,
    home_path: str | None = None,
    database: str | None = None,
    handle_signals: bool = True,
) -> RunReport:
    """Go on with a run that was stopped, crashed, or reached a budget. A finished one is reported again.

    Args:
        run_id: the run, or the beginning of its id.
        overrides: changes, see :meth:`RunConfig.overridden`.
        on_event, on_question: as in :func:`start_run`.
        home_path, database: where it is kept; None as for a new run.
        handle_signals: as in :class:`RunConfig`.

    Raises:
        UsageError: there is no such run, another process drives it, or it was made by an incompatible version.
        otherwise as :func:`start_run`.
    """
    from orienteer.agents.runtime.loop import RUN_VERSION

    place, db = _open(RunConfig("", home=home_path, database=database), create=False)
    with db:
        catalogue = Catalogue(db)
        row = find_run(catalogue, run_id)
        if row.run_version != RUN_VERSION:
            raise UsageError(
                f"run {row.id} was made by run version {row.run_version}, this program has {RUN_VERSION}",
                "resume it with the version of Orienteer that made it",
            )
        if row.status == "running" and alive(row.owner_json, row.heartbeat):
            raise _busy(row)
        kept = json.loads(row.config_json)
        config = RunConfig.from_document(kept, home=home_path, database=database, handle_signals=handle_signals)
        config = _resolved(config.overridden(overrides or {}))
        kind = registry.find(config.method)
        settings = build_settings(kind.Settings, config.settings)
        claim = identity()
        try:
            if (
                row.status == "done"
                and not _session(row.id, claim, config, kind, settings, place, db, None, None).unfinished()
            ):
                return report(db, place, row.id)
            if not catalogue.claim(row.id, row.owner_json, claim):
                raise _busy(catalogue.get(row.id))
            session = _session(row.id, claim, config, kind, settings, place, db, on_event, on_question)
            return session.resume(row, _changes(kept, config.document()))
        finally:
            release(claim)


def new_id() -> str:
    """Return a fresh run id: sortable by time, short, with a random part."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return f"r-{stamp}-" + "".join(secrets.choice(_ALPHABET) for _ in range(4))


def _session(
    run_id: str,
    claim: str,
    config: RunConfig,
    kind: type[Method],
    settings: Settings,
    place: Home,
    db: RunDB,
    on_event: Listener | None,
    on_question: AskSomebody | None,
) -> Session:
    return Session(
        run_id=run_id,
        claim=claim,
        config=config,
        method=kind(),
        settings=settings,
        home=place,
        db=db,
        store=ArtifactStore(place.artifacts),
        listener=on_event,
        ask=on_question,
        versions=_versions(),
    )


def _open(config: RunConfig, *, create: bool = True) -> tuple[Home, RunDB]:
    place = home(config.home)
    if create:
        place.ensure()
    return place, RunDB(config.database or place.database, create=create)


def _resolved(config: RunConfig) -> RunConfig:
    """Settle which model is meant, so that a resume means the same."""
    from dataclasses import replace

    from orienteer.agents.runtime.models import choose_model

    return replace(config, model=choose_model(config.model)[0])


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: after[name] for name in sorted(after) if before.get(name) != after[name]}


def _busy(row: Any) -> OrienteerError:
    owner = json.loads(row.owner_json) if row is not None and row.owner_json else {}
    who = f"process {owner['pid']} on {owner['host']}" if owner else "another process"
    return UsageError(f"run {row.id if row is not None else ''} is being driven by {who}", "wait for it or stop it")


def _versions() -> dict[str, Any]:
    found: dict[str, Any] = {
        "orienteer": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    for name in _RECORDED:
        with suppress(metadata.PackageNotFoundError):
            found[name.lower()] = metadata.version(name)
    return found
