"""Text for terminals: one line, printable, of a bearable length, in columns. Imports nothing heavy."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

#: How people are shown a gate's answer.
GATE_MARKS = {"passed": "pass", "failed": "FAIL", "skipped": "SKIPPED"}


def clock(moment: float | None) -> str:
    """Return a time (seconds since 1970) as local date and clock; empty for none."""
    return "" if moment is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def clean(text: str) -> str:
    """Return ``text`` as one line without control characters; what cannot be shown is written as an escape.

    Names come from file systems and messages from candidates and models: none of them may drive a terminal.
    """
    line = " ".join(text.split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


def shortened(text: str, most: int) -> str:
    """Return ``text`` with its middle left out when it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"


def cut(text: str, most: int) -> str:
    """Return ``text`` with its end left out when it is longer than ``most`` characters."""
    return text if len(text) <= most else text[: max(0, most - 1)] + "…"


def table(rows: Sequence[Mapping[str, str]], widest: int = 60, width: int | None = None) -> str:
    """Return rows as aligned text columns.

    Args:
        rows: column title -> cell; every row with the columns of the first.
        widest: longer cells are cut.
        width: of the terminal; the widest columns shrink until the table fits. None: no limit.
    """
    if not rows:
        return ""
    columns = list(rows[0])
    cells = [[cut(clean(str(row.get(column, ""))), widest) for column in columns] for row in rows]
    widths = [max(len(column), *(len(row[i]) for row in cells)) for i, column in enumerate(columns)]
    if width is not None:
        least = [min(wide, max(4, len(column))) for wide, column in zip(widths, columns, strict=True)]
        while sum(widths) + 2 * (len(widths) - 1) > width:
            widest_now = max(range(len(widths)), key=lambda i: widths[i] - least[i])
            if widths[widest_now] <= least[widest_now]:
                break
            widths[widest_now] -= 1
    lines = [columns, *cells]
    return "\n".join(
        "  ".join(cut(cell, wide).ljust(wide) for cell, wide in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
