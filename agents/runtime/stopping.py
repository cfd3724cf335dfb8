"""SIGINT and SIGTERM: the first asks the run to stop, a second one ends the process at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Signals so soon after the first are its echo: a terminal and a wrapper like ``make`` both pass Ctrl-C on (seconds).
_ECHO = 0.3
#: How long the last mark in the database may take when a person presses Ctrl-C twice (seconds).
_PATIENCE = 1.0
#: What tells the watcher that the block is over; no signal has this number.
_OVER = 0
#: The handlers that were there before ours, while ours are installed.
_REPLACED: dict[signal.Signals, Any] = {}


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

    # The bytes of a wake-up descriptor come at once, even while the main thread waits in foreign code where no
    # Python handler can run; a thread of ours reads them.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    caught = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    caught = {number: old for number, old in caught.items() if old is not signal.SIG_IGN and old is not None}
    watcher = threading.Thread(target=_watch, args=(reader, set(caught), cancel, mark), daemon=True)
    watcher.start()
    _REPLACED.update(caught)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in caught:
        signal.signal(number, _noted)
    try:
        yield
    finally:
        for number, old in caught.items():
            signal.signal(number, old)
        try:
            signal.set_wakeup_fd(before)
        except (OSError, ValueError):
            # Whoever owned it closed it meanwhile, or made something else of it.
            signal.set_wakeup_fd(-1)
        _REPLACED.clear()
        # Not by closing: a child that was forked meanwhile may hold the other end open.
        os.write(writer, bytes([_OVER]))
        watcher.join()
        os.close(writer)
        os.close(reader)


def _in_child() -> None:
    """A forked child dies of its own signals, and does not report them to our watcher."""
    if _REPLACED:
        signal.set_wakeup_fd(-1)
        for number, old in _REPLACED.items():
            signal.signal(number, old)
        _REPLACED.clear()


os.register_at_fork(after_in_child=_in_child)


def _noted(number: int, frame: FrameType | None) -> None:
    """Do nothing: the watcher has heard it already."""


def _watch(reader: int, numbers: set[signal.Signals], cancel: threading.Event, mark: Callable[[], None]) -> None:
    first: float | None = None
    while data := os.read(reader, 64):
        if _OVER in data:
            return
        if not any(number in numbers for number in data):
            continue
        cancel.set()
        now = time.monotonic()
        first = now if first is None else first
        if now - first > _ECHO:
            marker = threading.Thread(target=mark, daemon=True)
            marker.start()
            marker.join(_PATIENCE)
            os._exit(130)
