"""What is kept on this machine, for ``agent memory ls``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from orienteer.memory import schema
from orienteer.memory.home import home
from orienteer.memory.rundb import RunDB

_TABLES = ("runs", "candidates", "evaluations", "proposals", "model_calls", "events")


def inventory(home_path: str | Path | None = None, database: str | Path | None = None) -> list[dict[str, Any]]:
    """Return the stores with how much is in them: ``store``, ``items``, ``bytes``, ``where``.

    Raises:
        StoreError: the database cannot be read.
    """
    place = home(home_path)
    out: list[dict[str, Any]] = []
    path = Path(database) if database is not None and "://" not in str(database) else place.database
    if (database is not None and "://" in str(database)) or path.exists():
        with RunDB(database or path, create=False) as db:
            where = str(db.file) if db.file else db.url.render_as_string(hide_password=True)
            with db.read() as connection:
                for table in _TABLES:
                    query = select(func.count()).select_from(schema.metadata.tables[table])
                    items = int(connection.execute(query).scalar_one())
                    out.append({"store": table, "items": items, "bytes": 0, "where": where})
        files = path.parent.glob(f"{path.name}*") if path.exists() else ()
        out[0]["bytes"] = sum(item.stat().st_size for item in files if item.is_file())
    for name, folder in (
        ("artifacts", place.artifacts),
        ("run folders", place.path / "runs"),
        ("toolchains", place.path / "toolchains"),
    ):
        count, size = _measure(folder)
        out.append({"store": name, "items": count, "bytes": size, "where": str(folder)})
    return out


def _measure(folder: Path) -> tuple[int, int]:
    count = size = 0
    if folder.is_dir():
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                count += 1
                size += path.stat().st_size
    return count, size
