"""KLayout's report databases (``.lyrdb``): reads counts and geometry, writes a file that opens in KLayout.

Category names are plain here. In the file a name with characters that a path gives a meaning (``M1.W``) stands in
quotes where an item refers to it; a path of sub-categories joins such names by dots.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from orienteer.environments.layout.results import Points, Violation
from orienteer.errors import UsageError

_CURE = "give a report database as KLayout writes it (.lyrdb)"
_NUMBER = r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_POINT = re.compile(rf"({_NUMBER})\s*,\s*({_NUMBER})")
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PATH_END = re.compile(r"\)\s*(?:w=|bx=|ex=|r=)")
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
#: Prefix in the file: kind here.
_KINDS = {"polygon": "polygon", "box": "box", "edge": "edge", "edge-pair": "edge-pair", "path": "path"}
_WORDS = {"text": "value", "float": "value", "label": "text"}


@dataclass(frozen=True)
class Report:
    """What a report database holds.

    Attributes:
        counts: items by category, categories without any included.
        violations: their shapes, where asked for.
        descriptions: of the categories that have one.
    """

    counts: Mapping[str, int]
    violations: Mapping[str, tuple[Violation, ...]] | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict)


def read_value(text: str) -> Violation:
    """Return the shape that a value says: ``polygon: (0,0;0,1;1,1)`` and its like; micrometres."""
    prefix, colon, rest = text.partition(":")
    prefix, rest = prefix.strip(), rest.strip()
    kind = _KINDS.get(prefix) if colon else None
    if kind is None:
        if colon and prefix in _WORDS:
            return Violation(_WORDS[prefix], (), _unquoted(rest))
        return Violation("value", (), text)
    if kind == "edge-pair":
        parts = rest.replace("|", "/").split("/")
        return Violation(kind, tuple(_points(part) for part in parts))
    if kind == "polygon":
        return Violation(kind, tuple(_points(part) for part in rest.strip("()").split("/")))
    if kind == "path":
        end = _PATH_END.search(rest)
        return Violation(kind, (_points(rest[: end.start()] if end else rest),), rest)
    return Violation(kind, (_points(rest),))


def _points(text: str) -> Points:
    return tuple((float(x), float(y)) for x, y in _POINT.findall(text))


def value_text(shape: Violation) -> str:
    """Return the value as KLayout writes it; the reverse of :func:`read_value`."""
    if shape.kind == "polygon":
        return f"polygon: ({'/'.join(_joined(contour) for contour in shape.contours)})"
    if shape.kind == "edge-pair":
        return "edge-pair: " + "/".join(f"({_joined(edge)})" for edge in shape.contours)
    if shape.kind in ("box", "edge"):
        return f"{shape.kind}: ({_joined(shape.contours[0])})"
    if shape.kind == "path":
        return f"path: {shape.text}"
    return f"{'label' if shape.kind == 'text' else 'text'}: {_quoted(shape.text)}"


def _joined(points: Points) -> str:
    return ";".join(f"{x:.12g},{y:.12g}" for x, y in points)


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    named = {9: "\\t", 10: "\\n", 13: "\\r", 39: "\\'", 92: "\\\\"}
    return "'" + "".join(named.get(b, chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in name.encode()) + "'"


def _unquoted(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1] or text[0] not in "'\"":
        return text
    if "\\" not in text:
        return text[1:-1]
    # Bytes beyond ASCII stand as three octal digits.
    plain = _ESCAPE.sub(_escaped, text[1:-1].encode("utf-8", "surrogatepass"))
    return plain.decode("utf-8", "replace")


def _escaped(match: re.Match[bytes]) -> bytes:
    code = match.group(1)
    if code.isdigit():
        return bytes([int(code, 8) & 0xFF])
    return {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(code, code)


def split_path(path: str) -> tuple[str, ...]:
    """Return the plain names in a category path: ``'M1.W'.corner`` is M1.W and, below it, corner."""
    names: list[str] = []
    at = 0
    while at < len(path):
        if path[at] in "'\"":
            end = at + 1
            while end < len(path) and path[end] != path[at]:
                end += 2 if path[end] == "\\" else 1
            names.append(_unquoted(path[at : end + 1]))
            at = end + 1
            if at < len(path) and path[at] == ".":
                at += 1
        else:
            name, _, rest = path[at:].partition(".")
            names.append(name)
            at = len(path) - len(rest) if rest else len(path)
    return tuple(names)


def plain_name(path: str) -> str:
    """Return a category path without quotes."""
    return ".".join(split_path(path))


def read_report(source: Path | bytes, *, geometry: bool = False) -> Report:
    """Read a report database.

    Raises:
        UsageError: it cannot be read, or is no report database.
    """
    what = "the report" if isinstance(source, bytes) else str(source)
    try:
        data = source if isinstance(source, bytes) else source.read_bytes()
    except OSError as error:
        raise UsageError(f"{what} cannot be read: {error.strerror}", _CURE) from None
    # KLayout writes no document type; one could define entities that grow without bound.
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise UsageError(f"{what} has a document type, which no report has", _CURE)
    try:
        top = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError) as error:
        raise UsageError(f"{what} is damaged: {error}", _CURE) from None
    if top.tag != "report-database":
        raise UsageError(f"{what} is no report database but <{top.tag[:40]}>", _CURE)
    counts: dict[str, int] = {}
    descriptions: dict[str, str] = {}
    _categories(top.find("categories"), "", counts, descriptions)
    found: dict[str, list[Violation]] = {name: [] for name in counts}
    for item in top.iterfind("items/item"):
        name = plain_name((item.findtext("category") or "").strip())
        multiplicity = item.findtext("multiplicity") or "1"
        counts[name] = counts.get(name, 0) + (int(multiplicity) if multiplicity.isdigit() else 1)
        if geometry:
            shapes = found.setdefault(name, [])
            shapes += [read_value(value.text or "") for value in item.iterfind("values/value")]
    violations = {name: tuple(shapes) for name, shapes in found.items()} if geometry else None
    return Report(counts, violations, descriptions)


def _categories(
    node: ElementTree.Element | None, above: str, counts: dict[str, int], descriptions: dict[str, str]
) -> None:
    """Take categories in, sub-categories too; without recursion, since depth is the writer's choice."""
    waiting = [(node, above)]
    while waiting:
        node, above = waiting.pop()
        for category in node.iterfind("category") if node is not None else ():
            name = above + _unquoted((category.findtext("name") or "").strip())
            counts.setdefault(name, 0)
            if said := (category.findtext("description") or "").strip():
                descriptions[name] = said
            waiting.append((category.find("categories"), f"{name}."))


def write_report(
    path: Path,
    violations: Mapping[str, Sequence[Violation]],
    *,
    title: str = "DRC",
    top: str = "TOP",
    descriptions: Mapping[str, str] = {},
) -> None:
    """Write a report database that opens in KLayout; the same content gives the same bytes.

    Args:
        path: where to; an existing file is replaced whole.
        violations: shapes in micrometres by category; an empty sequence for a category without any.
        title: what the browser shows above it.
        top: the name of the top cell.
        descriptions: by category.

    Raises:
        UsageError: the file cannot be written.
    """
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<report-database>"]
    lines += [f" <description>{_text(title)}</description>", " <original-file/>", " <generator>orienteer</generator>"]
    lines += [f" <top-cell>{_text(top)}</top-cell>", " <tags>", " </tags>", " <categories>"]
    for name in violations:
        said = descriptions.get(name, "")
        lines += ["  <category>", f"   <name>{_text(name)}</name>", f"   <description>{_text(said)}</description>"]
        lines += ["   <categories>", "   </categories>", "  </category>"]
    lines += [" </categories>", " <cells>", "  <cell>", f"   <name>{_text(top)}</name>", "   <variant/>"]
    lines += ["   <references>", "   </references>", "  </cell>", " </cells>", " <items>"]
    for name, shapes in violations.items():
        for shape in shapes:
            lines += ["  <item>", "   <tags/>", f"   <category>{_text(_quoted(name))}</category>"]
            lines += [f"   <cell>{_text(_quoted(top))}</cell>", "   <visited>false</visited>"]
            lines += ["   <multiplicity>1</multiplicity>", "   <comment/>", "   <image/>", "   <values>"]
            lines += [f"    <value>{_text(value_text(shape))}</value>", "   </values>", "  </item>"]
    lines += [" </items>", "</report-database>", ""]
    write_whole(path, "\n".join(lines).encode())


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "give a file in a folder that you may write"
        ) from None


def _text(text: str) -> str:
    return escape("".join(c if c in "\t\n" or ord(c) >= 32 else "?" for c in text))


def merged(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Add up counts of categories that are named more than once."""
    counts: dict[str, int] = {}
    for name, count in parts:
        counts[name] = counts.get(name, 0) + count
    return counts
