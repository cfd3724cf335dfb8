"""Where Orienteer keeps its things: ``$ORIENTEER_HOME``, else the user's data folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orienteer.errors import StoreError
from orienteer.memory.faults import readable


@dataclass(frozen=True)
class Home:
    """The layout of one home folder."""

    path: Path

    @property
    def database(self) -> Path:
        """The run database (unless the person names another by URL)."""
        return self.path / "runs.sqlite"

    @property
    def artifacts(self) -> Path:
        """The artifact store."""
        return self.path / "artifacts"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the graph; they can be rebuilt from the run database."""
        return self.path / "checkpoints.sqlite"

    def run_folder(self, run_id: str) -> Path:
        """The folder that a run may fill with files for people."""
        return self.path / "runs" / run_id

    def ensure(self) -> Home:
        """Make the folder.

        Raises:
            StoreError: it cannot be made or used.
        """
        with readable(f"the home folder {self.path}"):
            self.path.mkdir(parents=True, exist_ok=True)
        return self


def expanded(path: str | Path) -> Path:
    """Return the path with ``~`` replaced.

    Raises:
        StoreError: it names the home of nobody.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as exc:
        raise StoreError(f"{path} begins with the home of an unknown user", "write the path in full") from exc


def home(path: str | Path | None = None) -> Home:
    """Return the home: the given path, else ``$ORIENTEER_HOME``, else the platform's data folder of this user."""
    chosen = path or os.environ.get("ORIENTEER_HOME")
    if chosen:
        return Home(expanded(chosen).absolute())
    from platformdirs import user_data_path

    return Home(user_data_path("orienteer"))
