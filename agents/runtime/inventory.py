"""What is kept on this machine, for ``agent memory stats``."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from orienteer.agents.runtime.records import open_for_reading
from orienteer.environments.kernel import toolchain
from orienteer.memory import schema
from orienteer.memory.home import home

_TABLES = ("runs", "candidates", "evaluations", "proposals", "model_calls", "events", "memory_items")


def inventory(home_path: str | Path | None = None, database: str | Path | None = None) -> list[dict[str, Any]]:
    """Return the stores with how much is in them: ``store``, ``items``, ``bytes``, ``where``.

    ``bytes`` is the whole database's at its first table and None at the others.

    Raises:
        StoreError: the database cannot be read.
    """
    place = home(home_path)
    out: list[dict[str, Any]] = []
    path = Path(database) if database is not None and "://" not in str(database) else place.database
    if (database is not None and "://" in str(database)) or path.exists():
        with open_for_reading(place, database) as db:
            where = str(db.file) if db.file else db.url.render_as_string(hide_password=True)
            with db.read() as connection:
                for table in _TABLES:
                    query = select(func.count()).select_from(schema.metadata.tables[table])
                    items = int(connection.execute(query).scalar_one())
                    out.append({"store": table, "items": items, "bytes": None, "where": where})
        files = path.parent.glob(f"{path.name}*") if path.exists() else ()
        out[0]["bytes"] = sum(item.stat().st_size for item in files if item.is_file())
    for name, folder in (
        ("artifacts", place.artifacts),
        ("memory", place.path / "memory"),
        ("run folders", place.path / "runs"),
        ("toolchains", toolchain.folder(place.path).parent),
    ):
        count, size = _measure(folder)
        out.append({"store": name, "items": count, "bytes": size, "where": str(folder)})
    return out


def _measure(folder: Path) -> tuple[int, int]:
    """Count files and bytes; what cannot be looked at is left out."""
    count = size = 0
    for where, _, names in os.walk(folder, followlinks=False):
        for name in names:
            try:
                found = Path(where, name).lstat()
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                count += 1
                size += found.st_size
    return count, size
