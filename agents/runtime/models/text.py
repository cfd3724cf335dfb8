"""Text from the outside, made safe to store, print and count."""

from __future__ import annotations

import re
from typing import Any

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
#: Where requests go when OPENAI_BASE_URL is not set.
DEFAULT_URL = "https://api.openai.com/v1"
#: A shorter key is a placeholder of a local server (``EMPTY``, ``none``), not a secret; removing it would damage text.
SECRET_LENGTH = 8
HIDDEN = "[key]"


def storable(text: str) -> str:
    """Return ``text`` with NUL and lone surrogates replaced by U+FFFD, so that any store and UTF-8 take it."""
    return _UNSTORABLE.sub("\ufffd", text)


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of ``text``: one per four bytes of UTF-8, which is near to what common tokenizers do."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4


def shorten(text: str, limit: int = 300) -> str:
    """Return ``text`` on one line and at most ``limit`` characters long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


class Scrubber:
    """Removes one secret from text; it never shows the secret itself.

    Args:
        secret: the key; the empty string and placeholders shorter than :data:`SECRET_LENGTH` are left alone.
    """

    __slots__ = ("_secret",)

    def __init__(self, secret: str = "") -> None:
        self._secret = secret if len(secret) >= SECRET_LENGTH else ""

    def __repr__(self) -> str:
        return "Scrubber()"

    def clean(self, text: str) -> str:
        """Return ``text`` storable and without the secret."""
        text = storable(text)
        return text.replace(self._secret, HIDDEN) if self._secret else text

    def clean_value(self, value: Any) -> Any:
        """Clean every string in a JSON value, keys included."""
        if isinstance(value, str):
            return self.clean(value)
        if isinstance(value, list):
            return [self.clean_value(item) for item in value]
        if isinstance(value, dict):
            return {self.clean(str(key)): self.clean_value(item) for key, item in value.items()}
        return value
