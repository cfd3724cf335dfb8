"""Rule forms with words of their own (density, antenna, grid, angles, shapes), and those without a number."""
# ruff: noqa: E501 (a pattern stands on one line)

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from orienteer.agents.drc.reading.statement import SPACE, VERBS, Statement
from orienteer.agents.drc.reading.words import Bound, Quantity, Words, bound_of
from orienteer.errors import UsageError


def special(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    """Density, antenna, grid, angles, rectangles."""
    if re.search(r"\bdensit(?:y|ies)\b|\bcoverage\b.*\b(?:ratio|percent|share)|\bcoverage ratio\b", text):
        return _density(text, words, extra)
    if "antenna" in text or re.search(r"\bratio of (?:the )?.*\b(?:area|perimeter)\b.* to (?:the )?.*\bgate", text):
        return _antenna(text, words, extra)
    if re.search(r"\b(?:aspect )?ratio\b", text):
        raise UsageError(
            "the rule is a ratio that is neither a density nor an antenna ratio", "write that deck by hand"
        )
    if re.search(r"\bgrid\b", text) and not re.search(rf"\b{SPACE}\b|\bwidth\b", text):
        limit = _only(words, text, "length", "a grid")
        subject = re.sub(
            rf"\b(?:on|off|to|at|aligned|snapped|multiples?|grid|manufacturing|of|a|an|the|in|layout|vert(?:ex|ices)|coordinates?|points?|corners?|geometr(?:y|ies)|edges?|placed|lie|drawn|layers?|all|and|not|allowed|for)\b|{VERBS}|@\d+|[,:=]",
            " ", text,
        )  # fmt: skip
        return [Statement("grid", (" ".join(subject.split()),), limit, Bound("exact"), extra=extra)]
    angles = [q.value for q in words.quantities if q.kind == "angle"]
    if angles or re.search(
        r"\b(?:orthogonal|rectilinear|manhattan|acute|non-?orthogonal|45|axis[ -]parallel|skew(?:ed)?|diagonal)\b", text
    ):
        if re.search(rf"\b{SPACE}\b|\bwidth\b|\benclos|\boverlap\b", text):
            return []
        kind = "acute" if re.search(r"\bacute\b|(?:less|smaller|sharper) than @", text) else "orthogonal"
        if 45 in angles or re.search(r"\boctagonal\b|(?<!no )\bdiagonal\b|\bskew", text):
            kind = "octagonal"
            if re.search(r"\bno\b|\bnot\b|forbidden|prohibited", text) and not re.search(
                r"multiple|other than|only|except", text
            ):
                kind = "orthogonal"
        elif any(a not in (0, 90, 180, 270) for a in angles) and kind != "acute":
            raise UsageError(
                "only angles of 45 and 90 degrees, and acute ones, can be checked", "write that deck by hand"
            )
        subject = re.sub(
            rf"\b(?:angles?|bends?|bent|corners?|edges?|only|multiples? of|in|of|to|at|with|and|or|orthogonal|rectilinear|manhattan|acute|octagonal|non|not|no|other than|diagonal|skew(?:ed)?|allowed|permitted|forbidden|prohibited|drawn|shapes?|less|smaller|sharper|than|axis[ -]parallel|degrees?|geometr(?:y|ies)|multiples|interior|for|the|a|an|any|all)\b|{VERBS}|@\d+|[,:=/-]",
            " ", text,
        )  # fmt: skip
        return [Statement("angle", (" ".join(subject.split()),), None, Bound("exact"), extra={**extra, "angles": kind})]
    shape = re.search(r"\b(?:only )?(rectangular|rectangles?|squares?)\b", text)
    if shape and not words.quantities and not re.search(rf"\b{SPACE}\b", text):
        subject = re.sub(
            rf"\b(?:only|rectangular|rectangles?|squares?|shapes?|shaped|a|an|the|all|of|in|no|non|not|other than|as|drawn|in shape|for)\b|{VERBS}|[,:=-]",
            " ",
            text,
        )
        kind = "square" if shape[1].startswith("square") else "rectangle"
        return [
            Statement("rectangle", (" ".join(subject.split()),), None, Bound("exact"), extra={**extra, "shape": kind})
        ]
    return []


def _density(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    window = re.search(
        r"\b(?:(?:in|over|within|for|with|of|per|on) )?(?:a |an |any |every |each |the )?(?:checking |check )?(?:windows?|tiles?|areas?|chip area|squares?|regions?)? ?(?:sizes?)? ?(?:of |is |= ?)?@(\d+) ?(?:x|by|\*) ?@(\d+)(?: (?:chip )?(?:area|windows?|tiles?|squares?|regions?))?|\b(?:in |over |with |per )?(?:a |an |any |every |each |the )?(?:windows?|tiles?)(?: sizes?)?(?: of| is)? @(\d+)|@(\d+) (?:windows?|tiles?)",
        text,
    )
    size = None
    if window:
        index = next(int(g) for g in (window[1], window[3], window[4]) if g)
        size = words.quantities[index]
        if size.kind not in ("length", "area"):
            raise UsageError(f"the window of the density has no unit ({size.text})", "write it in um")
        text = text[: window.start()] + text[window.end() :]
    step = re.search(r"(?:,|and|with|by|in)?(?: a)? steps?(?: size)?(?: of)? @(\d+)", text)
    if step:
        extra = {**extra, "step": words.quantities[int(step[1])]}
        text = text[: step.start()] + text[step.end() :]
    indices = [int(i) for i in re.findall(r"@(\d+)", text)]
    if not indices:
        raise UsageError("the density has no limit", 'write it in percent, such as "at least 30 %"')
    low, high = None, None
    for index in indices:
        limit = words.quantities[index]
        if limit.kind == "number":
            # "0.3" is a share, "30" cannot be one.
            limit = replace(limit, value=limit.value / (100 if limit.value > 1 else 1), kind="share")
        if limit.kind != "share":
            raise UsageError(f"a density of {limit.text} makes no sense", "write it in percent")
        bound = bound_of(text, index)
        if len(indices) == 2 and (not bound.told or bound.kind == "exact" or "between" in text):
            low, high = (limit, high) if index == indices[0] else (low, limit)
        elif bound.kind == "max":
            high = limit
        else:
            low = limit
    if low and high and low.value > high.value:
        raise UsageError(f"the density must be at least {low.text} and at most {high.text}", "exchange the two")
    subject = re.sub(
        rf"\b(?:min(?:imum)?|max(?:imum)?|global|local|pattern|layer|density|coverage|ratio|of|the|a|for|any|chip|area|over whole|whole|in|at least|at most|between|and|more|less|greater|lower|than|not|no|layout|to|percent)\b|{VERBS}|@\d+|[,:=<>%()]",
        " ",
        text,
    )
    return [
        Statement(
            "density",
            (" ".join(subject.split()),),
            low or high,
            Bound("min"),
            extra={**extra, "low": low, "high": high, "window": size},
        )
    ]


def _antenna(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    if not words.quantities:
        raise UsageError("the antenna rule has no ratio", 'write it as a number, such as "at most 400"')
    limit = words.quantities[0]
    subject = re.sub(
        rf"\b(?:min(?:imum)?|max(?:imum)?|antenna|ratios?|of|the|a|area|perimeter|sidewall|to|cumulative|its|connected|gates?|oxide|for|each|any|not|exceed|more|less|greater|than|at most|by|and|poly gate)\b|{VERBS}|@\d+|[,:=<>%()/]",
        " ", text,
    )  # fmt: skip
    if re.search(r"\bdiodes?\b|\bcumulative\b|\bperimeter\b|\bsidewall\b", text):
        raise UsageError("the antenna rule counts diodes, perimeters or several layers", "write that deck by hand")
    return [Statement("antenna", (" ".join(subject.split()),), limit, Bound("max"), extra=extra)]


def logic(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    """Forms without a number: inside, apart, contains, absent."""
    if any(f"@{i}" in text for i in range(len(words.quantities))):
        return []
    clean = " ".join(
        re.sub(
            r"\b(?:any|all|every|each|the|a|an|completely|fully|entirely|wholly|always|be allowed|it is|both)\b",
            " ",
            text,
        ).split()
    )
    must = r"(?:must|shall|should|has to|have to|needs? to|is to|are to|is required to|are required to|can|may|are|is|will)"
    inside = (
        r"(?:inside|within|covered by|enclosed by|surrounded by|contained in|in|on|over|overlapped by|under)(?: of)?"
    )
    overlap = r"(?:overlap(?:ped|s|ping)?|cross(?:es|ing)?|be (?:inside|over|on|in|under|within)|intersect(?:s|ing)?|be (?:placed|drawn) (?:over|on|inside|in|within)|coincide)(?: with| by)?"
    touch = r"(?:touch(?:es|ing)?|interact(?:s|ing)?|touch or overlap|overlap or touch)(?: with)?"
    butt = r"(?:a?butt(?:ing|ed|s)?|share edges)(?: to| with| against)?"
    no = r"(?:not|never)"
    banned = r"(?:is|are|be)? ?(?:not (?:allowed|permitted)|forbidden|prohibited|disallowed|illegal|an error|a violation|error|violation)"
    table: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (rf"(?P<a>.+?) {must} {no} (?:be )?straddl(?:e|ing)(?: edges? of)? (?P<b>.+)", "apart", {"how": "straddle"}),
        (rf"(?P<a>.+?) straddling (?P<b>.+?) {banned}", "apart", {"how": "straddle"}),
        (rf"(?P<a>.+?) {must} {no} {touch} (?P<b>.+)", "apart", {"how": "touch"}),
        (rf"(?P<a>.+?) {must} {no} {butt} (?P<b>.+)", "apart", {"how": "butt"}),
        (rf"(?P<a>.+?) {butt} (?P<b>.+?) {banned}", "apart", {"how": "butt"}),
        (rf"(?:no )?(?:a?butting|touching)(?: of| between)? (?P<a>.+?) (?:and|to|with) (?P<b>.+?)(?: {banned})?", "apart", {"how": "butt"}),
        (rf"(?P<a>.+?) {must} {no} be (?:outside(?: of)?|uncovered by) (?P<b>.+)", "inside", {}),
        (rf"(?P<a>.+?) {must} {no} {overlap} (?P<b>.+)", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) (?:and|or) (?P<b>.+?) {must} {no} (?:overlap|intersect|cross)(?: each other)?", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) (?:and|or) (?P<b>.+?) {must} {no} (?:touch|interact|touch or overlap)(?: each other)?", "apart", {"how": "touch"}),
        (rf"(?:no )?overlap(?:ping)?(?: of| between) (?P<a>.+?) (?:and|with|by|over) (?P<b>.+?)(?: {banned}| (?:is |are )?(?:allowed|permitted))?", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) {banned} (?:outside(?: of)?|without) (?P<b>.+)", "inside", {}),
        (rf"(?P<a>.+?) (?:outside(?: of)?|not {inside}|without|not overlapping) (?P<b>.+?) {banned}", "inside", {}),
        (r"no (?P<a>.+?) (?:(?:is )?(?:allowed|permitted) )?(?:outside(?: of)?|without) (?P<b>.+?)(?: (?:is )?(?:allowed|permitted))?", "inside", {}),
        (rf"(?P<a>.+?) {banned} (?:to )?(?:overlap|cross|touch) (?P<b>.+)", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) {banned} (?:over|on|inside|in|within|under|above|on top of) (?P<b>.+)", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) (?:over|on|inside|in|within|under|above|crossing|overlapping|on top of) (?P<b>.+?) {banned}", "apart", {"how": "overlap"}),
        (r"no (?P<a>.+?) (?:(?:is )?(?:allowed|permitted) )?(?:over|on|inside|in|within|under|above|on top of|overlapping|crossing) (?P<b>.+?)(?: (?:is )?(?:allowed|permitted))?", "apart", {"how": "overlap"}),
        (rf"(?P<a>.+?) (?:is|are)? ?(?:only (?:allowed|permitted)|(?:allowed|permitted) only) (?:{inside}) (?P<b>.+)", "inside", {}),
        (rf"(?P<a>.+?) {must} (?:only )?(?:be )?(?:placed |located |drawn |lie )?(?:only )?{inside} (?P<b>.+)", "inside", {}),
        (rf"(?P<a>.+?) {must} {no} extend (?:beyond|past|outside) (?P<b>.+)", "inside", {}),
        (rf"(?P<b>.+?) {must} (?:enclose|cover|surround) (?P<a>.+)", "inside", {}),
        (rf"(?P<a>.+?) {must} (?:contain|include|have|enclose) (?:at least )?(?:one |1 )?(?P<b>.+)", "contains", {"how": "contain"}),
        (rf"(?P<a>.+?) {must} (?:overlap|interact|touch|cross)(?: with)? (?:at least )?(?:one |1 )?(?P<b>.+)", "contains", {"how": "touch"}),
        (rf"(?P<a>.+?) without (?P<b>.+?) {banned}", "contains", {"how": "touch"}),
        (rf"(?:no )?(?P<a>.+?) {banned}|no (?P<c>.+?) (?:is |are )?(?:allowed|permitted)", "absent", {}),
    )  # fmt: skip
    for pattern, form, more in table:
        match = re.fullmatch(pattern, clean)
        if match and not re.search(r"\b(?:width|space|spacing|length)\b", clean):
            groups = match.groupdict()
            a = groups["a"] or groups.get("c") or ""
            roles: tuple[str, ...] = (a, groups["b"]) if groups.get("b") else (a,)
            roles = tuple(re.sub(r"^no ", "", r).strip() for r in roles)
            return [Statement(form, roles, extra={**extra, **more})]
    return []


def _only(words: Words, text: str, kind: str, what: str) -> Quantity:
    indices = [int(i) for i in re.findall(r"@(\d+)", text)]
    if len(indices) != 1:
        raise UsageError(f"{what} needs one number, the rule has {len(indices)}", "write one rule for each")
    limit = words.quantities[indices[0]]
    if limit.kind != kind:
        raise UsageError(f"the limit {limit.text} has no unit of {kind}", "write it in um or nm")
    return limit
