"""How long to wait before the next attempt, the same in every run."""

from __future__ import annotations

import email.utils
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

#: Statuses after which the same request may succeed.
RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})


def retryable(status: int) -> bool:
    """Say whether a request that got this HTTP status may succeed when it is sent again unchanged."""
    return status in RETRYABLE or (status >= 500 and status not in (501, 505))


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with jitter that is a function of the request, so that a replay waits alike."""

    #: Attempts after the first one.
    retries: int = 5
    #: Seconds before the first retry; doubled each time.
    base: float = 0.5
    #: Longest wait of our own choosing, seconds.
    cap: float = 30.0

    def wait(self, attempt: int, key: str, headers: Mapping[str, str]) -> float:
        """Return seconds to wait after failed attempt number ``attempt`` (from 0).

        ``Retry-After`` is honoured (seconds, or an HTTP date); the caller bounds it by the time that is left.
        """
        asked = retry_after(headers)
        digest = hashlib.sha256(f"{key}:{attempt}".encode()).digest()
        fraction = int.from_bytes(digest[:4], "big") / 2**32
        own = min(self.cap, self.base * 2.0**attempt) * (0.5 + 0.5 * fraction)
        return own if asked is None else asked + 0.1 * own


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that ``Retry-After`` (or ``retry-after-ms``) asks for; None when absent or senseless."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = lower.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            if name != "retry-after":
                continue
            try:
                seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
            except (ValueError, TypeError, OverflowError):
                continue
            seconds = max(seconds, 0.0)
        if 0.0 <= seconds < float("inf"):
            return seconds
    return None
