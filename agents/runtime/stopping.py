"""SIGINT and SIGTERM: the first asks the run to stop, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: How long the last mark in the database may take when a person presses Ctrl-C twice (seconds).
_PATIENCE = 1.0


@contextmanager
def stoppable(cancel: threading.Event, mark: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Set ``cancel`` at the first SIGINT, SIGTERM or SIGHUP inside the block; at the second, mark and exit with 130.

    Signals that are ignored (``nohup``, background jobs of a shell) stay ignored. Outside the main thread nothing is
    installed.

    Args:
        cancel: told to everything that works.
        mark: called before a hard exit, in another thread, and not waited for longer than a second.
        enabled: install handlers at all.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if not cancel.is_set():
            cancel.set()
            return
        marker = threading.Thread(target=mark, daemon=True)
        marker.start()
        marker.join(_PATIENCE)
        os._exit(130)

    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        old = signal.getsignal(number)
        if old is not signal.SIG_IGN and old is not None:
            before[number] = old
            signal.signal(number, handle)
    try:
        yield
    finally:
        for caught, previous in before.items():
            signal.signal(caught, previous)
