"""The graph's checkpoints: langgraph's sqlite saver on a connection of ours, pruned as the run goes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from orienteer.memory.faults import from_database

#: How many checkpoints of a run are kept. A step of the loop makes four.
KEEP = 3
#: langgraph's channels of ``interrupt``.
_ASKED = ("__interrupt__", "__resume__")
#: How many new checkpoints are let pile up before old ones are removed.
_EVERY = 16


class Checkpoints(SqliteSaver):
    """Checkpoints of all runs of a home, in one file.

    They can be rebuilt from the run database, so that a commit need not wait for the disk.

    Args:
        path: the file, made when it is not there.
        timeout: seconds to wait for another process's lock.

    Raises:
        sqlite3.Error: the file cannot be used.
    """

    def __init__(self, path: Path, *, timeout: float = 60.0) -> None:
        self.path = path
        conn = sqlite3.connect(path, timeout=timeout, check_same_thread=False)
        try:
            conn.execute("PRAGMA auto_vacuum=INCREMENTAL")
            conn.execute("PRAGMA synchronous=NORMAL")
            super().__init__(conn)
            self.setup()
        except BaseException:
            conn.close()
            raise
        self._ids: list[str] = []

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        """Save a checkpoint; now and then drop those that no resume will ask for."""
        try:
            saved = super().put(config, checkpoint, metadata, new_versions)
            self._ids.append(checkpoint["id"])
            if len(self._ids) >= KEEP + _EVERY:
                self._ids = self._ids[-KEEP:]
                self._prune(str(config["configurable"]["thread_id"]), self._ids[0])
        except sqlite3.Error as exc:
            raise from_database(exc, f"the checkpoint file {self.path}") from exc
        return saved

    def put_writes(self, config: Any, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = "") -> None:
        """Keep questions to a person and their answers only: what else a task of a fan-out did is in the run database.

        A task that runs again looks there first and has nothing to do. langgraph itself cannot promise more (a kill
        between these writes and the next checkpoint repeats the task as well), and a step is cheaper by half a
        millisecond. Without its record of what was asked langgraph would not hand an answer on.
        """
        asked = [write for write in writes if write[0] in _ASKED]
        if asked:
            super().put_writes(config, asked, task_id, task_path)

    def trim(self, thread_id: str) -> None:
        """Keep only the newest checkpoint of a run that has ended, and give the space back."""
        with self.cursor() as cur:
            newest = cur.execute("SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ?", (thread_id,))
            found = newest.fetchone()[0]
        if found is not None:
            self._prune(thread_id, found)
        with self.lock:
            self.conn.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Close the connection."""
        with self.lock:
            self.conn.close()

    def _prune(self, thread_id: str, oldest: str) -> None:
        with self.cursor() as cur:
            cur.execute("DELETE FROM checkpoints WHERE thread_id = ? AND checkpoint_id < ?", (thread_id, oldest))
            cur.execute("DELETE FROM writes WHERE thread_id = ? AND checkpoint_id < ?", (thread_id, oldest))
