"""The words of a rule sentence: spelling made plain, quantities with their units taken out, bounds named.

Quantities leave the text and stand in it as ``@0``, ``@1`` ...; everything after this module reads words only.
"""

# ruff: noqa: E501 (a pattern stands on one line)
from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

from orienteer.errors import UsageError

#: Spellings of units: how much of the base unit (um, um2, 1, degree) one of them is.
_UNITS: tuple[tuple[str, str, str], ...] = (
    (r"(?:sq(?:uare|\.)?\s*(?:um|microns?|micromet(?:er|re)s?)|(?:um|microns?)\s*\^?\s*2)\b", "area", "1"),
    (r"(?:sq(?:uare|\.)?\s*(?:nm|nanomet(?:er|re)s?)|nm\s*\^?\s*2)\b", "area", "0.000001"),
    (r"(?:sq(?:uare|\.)?\s*(?:mm|millimet(?:er|re)s?)|mm\s*\^?\s*2)\b", "area", "1000000"),
    (r"(?:um|microns?|micromet(?:er|re)s?)\b", "length", "1"),
    (r"(?:nm|nanomet(?:er|re)s?)\b", "length", "0.001"),
    (r"(?:mm|millimet(?:er|re)s?)\b", "length", "1000"),
    (r"mils?\b", "length", "25.4"),
    (r"(?:angstroms?|å)", "length", "0.0001"),
    (r"(?:%|percent\b)", "share", "0.01"),
    (r"(?:degrees?\b|deg\b)", "angle", "1"),
)
_NUMBER = r"(?<![\w.@])(?:\d+[.,]\d+|\.\d+|\d+)(?![\w.]*\w*_)"
_UNIT = re.compile("|".join(f"({pattern})" for pattern, _, _ in _UNITS))
_BARE_UNIT = re.compile(r"[\[(]\s*(?:in\s+|unit[s:]*\s*)?(" + "|".join(p for p, _, _ in _UNITS) + r")\s*[\])]")
#: A number right after one of these names a layer, not a length.
_NAMED_BY_NUMBER = re.compile(
    r"\b(metal|met|m|via|v|poly|cut|contact|top ?metal|level|layer|rdl|li)[ -](\d)\b(?!\s*(?:[.,]\d|um|nm|micron|%))"
)

_LESS = r"(?:less|smaller|narrower|lower|closer|shorter|nearer|below|under)"
_MORE = r"(?:greater|larger|more|wider|longer|further|farther|bigger|higher|above|over)"
_EQUAL_TAIL = r"(?: than)? or equal(?:s)?(?: to)?"
#: What stands left of a quantity, the bound it makes, and whether the limit itself is outside. First match counts.
_LEFT: tuple[tuple[str, str, bool], ...] = (
    (rf"(?:\bnot?|\bcannot|never)(?: be| have)? (?:any )?{_LESS}(?: than)?", "min", False),
    (rf"(?:\bnot?|\bcannot|never)(?: be| have)? (?:any )?{_MORE}(?: than)?", "max", False),
    (r"(?:not|cannot|never) exceed(?:ing)?", "max", False),
    (
        rf"{_MORE}{_EQUAL_TAIL}|equal(?: to)? or {_MORE}(?: than)?|>=|=>|at least|atleast|minimum(?: of)?|min(?: of)?",
        "min",
        False,
    ),
    (
        rf"{_LESS}{_EQUAL_TAIL}|equal(?: to)? or {_LESS}(?: than)?|<=|=<|at most|atmost|up to|maximum(?: of)?|max(?: of)?",
        "max",
        False,
    ),
    (rf"{_MORE}(?: than)?|>|exceed(?:s|ing)?", "min", True),
    (rf"{_LESS}(?: than)?|<", "max", True),
    (r"exactly|fixed(?: at| to)?|equal to|precisely", "exact", False),
)
_RIGHT: tuple[tuple[str, str], ...] = (
    (rf"or {_MORE}|and {_MORE}|minimum|min\b", "min"),
    (rf"or {_LESS}|and {_LESS}|maximum|max\b", "max"),
    (r"exactly|exact\b|fixed", "exact"),
)
FORBIDDEN = re.compile(
    r"\b(?:(?:is|are|be|being)? ?(?:not|never) (?:be )?(?:allowed|permitted|acceptable|legal)|(?:is|are|be)? ?(?:forbidden|prohibited|disallowed|"
    r"illegal)|(?:is|are|counts? as|makes?) an? (?:drc )?(?:violation|error))\b"
)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit: ``value`` in um, um2, as a share of 1, in degrees, or bare (``number``)."""

    value: Decimal
    kind: str
    text: str

    @property
    def ruby(self) -> str:
        """The value as a decimal Ruby literal without its unit."""
        return decimal_text(self.value)


@dataclass(frozen=True)
class Words:
    """A sentence in plain spelling with its quantities taken out.

    Attributes:
        text: lower case, ``@i`` for quantity ``i``.
        quantities: what the ``@i`` stand for.
    """

    text: str
    quantities: tuple[Quantity, ...] = field(default=())


@dataclass(frozen=True)
class Bound:
    """What a quantity limits: ``min``, ``max`` or ``exact``.

    ``strict``: the limit itself is outside ("greater than"); ``told``: a word of the sentence says the bound (otherwise
    a minimum is assumed, as rule tables do).
    """

    kind: str
    strict: bool = False
    told: bool = True


def decimal_text(value: Decimal) -> str:
    """Write a decimal for Ruby: a point always, no exponent, no trailing zeros ("0.4", "10.0")."""
    text = format(value.normalize(), "f")
    return text if "." in text else text + ".0"


def plain(sentence: str) -> str:
    """Spell a sentence plainly: lower case, ASCII operators, single blanks."""
    text = sentence
    for old, new in (
        ("µ", "u"), ("μ", "u"), ("²", "^2"), ("≥", ">="), ("≤", "<="), ("⩾", ">="), ("⩽", "<="), ("×", " x "), ("–", "-"),
        ("—", "-"), ("−", "-"), ("°", " degrees "), ("’", "'"), ("“", '"'), ("”", '"'), ("…", " "), ("≠", "!="),
    ):  # fmt: skip
        text = text.replace(old, new)
    # These three mark quantities and brackets further on.
    text = text.lower().replace("@", " at ").replace("{", "(").replace("}", ")")
    text = re.sub(r"\b(min|max|approx|sq|incl|excl|encl|no)\.(?=\s|$|[a-z(&/])", r"\1 ", text)
    text = re.sub(r"\bcan ?not\b|\bcan't\b|\bmay not\b|\bmustn't\b|\bshan't\b", "must not", text)
    text = re.sub(r"\b(n|p) ?\+(?=[\s,.;:()/&-]|[a-z]|$)[ -]?", r"\1plus ", text)
    text = re.sub(r"\bdeep[ -]?(n|p)[ -]?wells?\b", r"d\1well", text)
    text = re.sub(r"\b(n|p)[ -]wells?\b", r"\1well", text)
    text = _NAMED_BY_NUMBER.sub(lambda m: m[1].replace(" ", "") + m[2], text)
    text = re.sub(r"(?<=\d) ?(um|nm)? ?x ?(?=\d|\.\d)", r" \1 x ", text)
    text = re.sub(r"(\d)-(?=(?:um|nm|degrees?|deg|micron))", r"\1 ", text)
    return " ".join(text.split())


def read_words(sentence: str) -> Words:
    """Take the quantities out of a sentence.

    Raises:
        UsageError: a length is given in lambda, whose size is not known.
    """
    text = plain(sentence)
    if re.search(r"\d\s*(?:lambda|λ)\b", text):
        raise UsageError("the rule is in lambda", "write its limits in um or nm")
    elsewhere = _BARE_UNIT.search(text)
    if elsewhere:
        text = (text[: elsewhere.start()] + " " + text[elsewhere.end() :]).strip()
    found: list[tuple[Decimal, str, str]] = []

    def take(match: re.Match[str]) -> str:
        number = match[0]
        rest = text[match.end() :]
        if re.match(r"\s*v(?:olts?)?\b|\.\d|[a-z]+\d*_|\s*(?:st|nd|rd|th)\b", rest):
            return number
        found.append((_decimal(number), "", number))
        return f"@{len(found) - 1}"

    out: list[str] = []
    at = 0
    for match in re.finditer(_NUMBER, text):
        if match.start() < at:
            continue
        out.append(text[at : match.start()])
        token = take(match)
        at = match.end()
        if token.startswith("@"):
            unit = re.match(r"\s*", text[at:])
            assert unit is not None
            hit = _UNIT.match(text, at + unit.end())
            if hit:
                kind, scale = next((k, s) for (_, k, s), g in zip(_UNITS, hit.groups(), strict=True) if g)
                value, _, written = found[-1]
                found[-1] = (value * Decimal(scale), kind, f"{written} {hit[0]}")
                at = hit.end()
        out.append(token)
    out.append(text[at:])
    plain_text = " ".join(re.sub(r"(@\d+)", r" \1 ", "".join(out)).split())
    plain_text = plain_text.replace(" .", ".").replace(" ,", ",")
    # In "0.22 x 0.3 um" and "0.2 to 0.4 um" the unit is written once, at the end.
    for first, second in reversed(re.findall(r"@(\d+) ?(?:x|by|to|-|/|and|or|\.\.) ?@(\d+)", plain_text)):
        one, two = found[int(first)], found[int(second)]
        if not one[1] and two[1]:
            same, factor = _kind_and_scale(two[2])
            found[int(first)] = (one[0] * factor, same, one[2])
    if elsewhere:
        same, factor = _kind_and_scale(elsewhere[1])
        found = [(v * factor, same, t) if not k else (v, k, t) for v, k, t in found]
    return Words(plain_text, tuple(Quantity(v, k or "number", t) for v, k, t in found))


def bound_of(text: str, index: int, default: str = "min") -> Bound:
    """Say what quantity ``@index`` limits, from the words round it and from "minimum" and "maximum" in the sentence."""
    mark = re.search(rf"@{index}(?!\d)", text)
    left, right = (text[: mark.start()], text[mark.end() :]) if mark else (text, "")
    left = left.rstrip(" :(")
    forbidden = bool(FORBIDDEN.search(text)) or bool(re.match(r"no\b", text))
    if re.search(
        r"\bmin(?:imum)?\s*(?:and|&|/|or|,)\s*max(?:imum)?\b|\bmax(?:imum)?\s*(?:and|&|/)\s*min(?:imum)?\b", text
    ):
        return Bound("exact")
    for pattern, kind, strict in _LEFT:
        if re.search(rf"(?:(?<=\s)|^)(?:{pattern})(?: by)?$", left):
            if forbidden and kind != "exact" and not re.search(r"\bnot? (?:be )?\w+ than$", left):
                # "Space below 0.4 um is forbidden" allows 0.4 um itself.
                return Bound({"min": "max", "max": "min"}[kind], strict=not strict)
            return Bound(kind, strict)
    for pattern, kind in _RIGHT:
        if re.match(rf"[\s(]*(?:{pattern})", right):
            return Bound(kind)
    for pattern, kind in (
        (r"\bmin(?:imum)?\b", "min"),
        (r"\bmax(?:imum)?\b", "max"),
        (r"\b(?:exact|exactly|fixed)\b", "exact"),
    ):
        if re.search(pattern, text):
            return Bound(kind)
    return Bound(default, told=False)


def _decimal(number: str) -> Decimal:
    # "0,28" is a decimal comma, "1,000" a thousand.
    if "," in number:
        whole, part = number.split(",")
        number = whole + part if len(part) == 3 and whole.strip("0") else f"{whole}.{part}"
    return Decimal(number)


def _kind_and_scale(text: str) -> tuple[str, Decimal]:
    hit = _UNIT.search(text)
    if not hit:
        return "number", Decimal(1)
    kind, scale = next((k, s) for (_, k, s), g in zip(_UNITS, hit.groups(), strict=True) if g)
    return kind, Decimal(scale)
