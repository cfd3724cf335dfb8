"""Text as HTML: nothing that a task, a candidate or a model says can become markup, or drive what shows it."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_STYLE = Path(__file__).parent / "report.css"


def whole(title: str, parts: Iterable[str]) -> str:
    """Return a page of parts that are HTML already; its policy forbids scripts and everything from outside.

    Pictures may stand in it as data.
    """
    style = _STYLE.read_text(encoding="utf-8")
    policy = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="default-src &#x27;none&#x27;; style-src '
        f'&#x27;sha256-{policy}&#x27;; img-src data:; base-uri &#x27;none&#x27;; form-action &#x27;none&#x27;">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(title)}</title>\n<style>{style}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _visible(text: str, keep: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def esc(value: object, most: int = 0) -> str:
    """Return text for an element or a quoted attribute, as one line.

    Control and bidirectional characters and lone surrogates are written as escapes, so that a name cannot turn round
    what stands beside it.

    Args:
        value: what is written with ``str``.
        most: longer texts are cut to so many characters; 0: never.
    """
    text = " ".join(str(value).split())
    if most and len(text) > most:
        text = text[: most - 1] + "…"
    return html.escape(_visible(text, ""), quote=True)


def code(text: str, most: int = 200_000) -> str:
    """Return a program for ``<pre>``: lines and tabs stay."""
    cut = "" if len(text) <= most else f"\n(cut: {len(text) - most} characters more)"
    return html.escape(_visible(text[:most].replace("\r\n", "\n"), "\n\t"), quote=True) + cut


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table; the cells are HTML already, the head is text."""
    top = "".join(f'<th scope="col">{esc(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n'
    )


def facts(items: Mapping[str, object]) -> str:
    """Return names with their values; empty values are left out."""
    return (
        "<dl>"
        + "".join(
            f"<dt>{esc(key)}</dt><dd>{esc(value, 2000)}</dd>" for key, value in items.items() if value not in ("", None)
        )
        + "</dl>\n"
    )


def folded(summary: str, body: str, kind: str = "", opened: bool = False) -> str:
    """Return a part that unfolds; both texts are HTML already."""
    return f'<details class="{kind}"{" open" if opened else ""}><summary>{summary}</summary>\n{body}</details>\n'


def diff(lines: Iterable[str]) -> str:
    """Return a unified diff for ``<pre>``, its lines marked."""
    out = []
    for line in lines:
        kind = {"+": "add", "-": "del", "@": "at"}.get(line[:1], "")
        text = code(line.rstrip("\n"))
        out.append(f'<span class="{kind}">{text}</span>' if kind else text)
    return "\n".join(out)
