"""From a rule sentence to statements: a rule form, the phrases of its layers, its limit and conditions.

Known forms, with the words that tell them:

==================  ========================================================================================
``width``           width, wide, narrower, channel length; minimum, maximum, exact, a range
``space``           space, spacing, separation, distance, clearance of one layer; "notch", "space or notch"
``separation``      the same between two layers; "no overlap", "unrelated", "butting allowed"
``wide space``      space with a condition on the width, on the parallel run length, or both
``enclosure``       enclose, surround, overlap of, enclosed by, inside by, extension around; sides; width direction
``extension``       extension past/beyond, overhang, end cap
``overlap``         how deep two layers overlap; minimum, exact
``area``            area, hole area, enclosed area
``size``            exact size of a square or rectangle
``length``          length, edge length
``inside``          must be inside, covered by, within; no A outside B; A without B is forbidden
``apart``           must not overlap, not allowed over, straddle, touch, butt
``contains``        must contain, overlap, touch, interact with
``absent``          the layer is not allowed
``angle``           only 90, or 45 and 90 degrees; orthogonal, rectilinear, Manhattan; acute angles
``rectangle``       must be rectangles, squares
``grid``            on a grid of
``density``         density, coverage ratio; with a window or of the whole layout
``antenna``         ratio of a metal or of poly to the gate
==================  ========================================================================================

Known and refused, because a deck of plain geometry cannot say them: numbers of vias, end of line, centre to centre,
recommended rules, rules of voltages. Rules of nets are read as if for all nets, and the reading says so.
"""

# ruff: noqa: E501 (a pattern stands on one line)
from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from orienteer.agents.drc.reading.words import FORBIDDEN, Bound, Quantity, Words, bound_of, read_words
from orienteer.errors import UsageError

_K = r"(?:space or notch|notch or space|space and notch|space/notch|spacings?|spaces?|separations?|distances?|clearances?|gaps?|notch(?:es)?)"
_CAN_NOT = (
    (r"\b(?:number of|how many|at least (?:two|three|four|one|\d+) (?:vias?|contacts?|cuts?)|array of|arrays?)\b", "a number of shapes"),
    (r"\bend[ -]?of[ -]?lines?\b|\beol\b|\bline[ -]?ends?\b", "the end of a line"),
    (r"\bcent(?:er|re)[ -]to[ -]cent(?:er|re)\b|\bpitch\b", "a distance of centres"),
    (r"\bstacked?\b", "stacked vias"),
    (r"\bcell ?names?\b|\bcells? named\b", "the names of cells"),
)  # fmt: skip
_NETS = re.compile(r",? ?\b(?:(?:that are |which are )?(?:on|at|of|with|from|in|having) )?(?:the )?(same|different|separate|equal|other|unequal|another)[ -](?:nets?|potentials?|voltages?)\b")  # fmt: skip
_VERBS = r"\b(?:(?:shall|must|should|will|has to|have to|needs? to|is to|are to|is required to|are required to)(?: always)?(?: be| have)?|is|are|be|has|have|equals?|required|allowed|recommended)\b"


@dataclass(frozen=True)
class Statement:
    """One way to understand a rule sentence.

    Attributes:
        form: the rule form, as in the table above.
        roles: the phrases of its layers; the first is the one that the rule is about (the outer one of an enclosure).
        limit: the limit, None for forms without a number.
        bound: what it bounds.
        weight: how probable among the sentence's statements.
        extra: conditions (``wide``, ``run``: quantity and strictness), clauses and flags of the form.
        notes: what was assumed, one line each.
    """

    form: str
    roles: tuple[str, ...]
    limit: Quantity | None = None
    bound: Bound = field(default=Bound("min"))
    weight: float = 1.0
    extra: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def statements(sentence: str) -> tuple[list[Statement], Words]:
    """Read a sentence into statements, the most probable first; their weights are not normalised.

    Raises:
        UsageError: no rule form is recognised, the form is one that decks cannot say, or number and unit are missing or
            contradict each other.
    """
    words = read_words(_without_rule_id(sentence))
    text = re.sub(r"\b(?:note|remark|n\.b)s?\b ?\d*[:.].*$", "", words.text).strip()
    extra: dict[str, Any] = {}
    notes: list[str] = []
    text = _side_clauses(text, extra, notes)
    if not text:
        raise UsageError("the rule is empty", "write it as a sentence, such as: minimum width of poly is 0.18 um")
    for pattern, what in _CAN_NOT:
        if re.search(pattern, text):
            raise UsageError(
                f"the rule speaks of {what}, which a deck of plain geometry cannot check", "write that deck by hand"
            )
    for read in (_special, _logic):
        found = read(text, words, extra)
        if found:
            return [replace(s, notes=(*s.notes, *notes)) for s in found], words
    found = _measured(text, words, extra)
    return [replace(s, notes=(*s.notes, *notes)) for s in found], words


def _without_rule_id(sentence: str) -> str:
    return re.sub(r"^\s*(?:[Rr]ule\s+)?[A-Za-z][\w+]*(?:[._][\w+]+)+\s*[:.\-]*\s+(?=[A-Za-z])", "", sentence.strip())


def _side_clauses(text: str, extra: dict[str, Any], notes: list[str]) -> str:
    """Take out what stands beside the rule: further sentences, exemptions, nets, butting, sides."""
    first, *rest = [p.strip() for p in re.split(r"\.(?=\s|$)|;", text) if p.strip()] or [""]
    # A "sentence" that is only the head of the rule goes on: "Min. dualgate width. is 0.7 um."
    while rest and (
        re.match(r"(?:is|are|shall|must|should|=|>|<|:|@|by|of)", rest[0]) or ("@" not in first and "@" in rest[0])
    ):
        first = f"{first} {rest.pop(0)}"
    for other in rest:
        exempt = re.search(
            r"\b(?:exempt(?:ed|ion)?|waived|not (?:apply|applicable|checked)|does not apply|ignored?|excluded)\b.*?\b(?:inside|within|in|for|over|on|under)\b (.+)$",
            other,
        )
        if exempt and "name" not in other:
            extra["exempt"] = exempt[1]
        elif re.search(r"\b(?:no|without|not) overlap", other):
            extra["no overlap"] = True
        else:
            notes.append(f'not read: "{other}"')
    text = first
    nets = _NETS.search(text)
    if nets:
        notes.append(f"nets are not told apart: the rule is of {nets[1]} nets, the deck checks all")
        extra["nets"] = nets[1]
        text = (text[: nets.start()] + " " + text[nets.end() :]).strip()
    tail = re.search(
        r"[,(]? ?\b(?:exempt(?:ed)?|waived|not applicable|not checked|(?:rule )?exempt(?:ed)?|except(?:ion)?(?: for)?) ?(?:if |when |is |for )?(?:inside|within|under|over|in) ([^,()]+)\)?$",
        text,
    )
    if tail:
        extra["exempt"] = tail[1]
        text = text[: tail.start()].strip()
    for pattern, key, value in (
        (r"[,(]? ?\b(?:with )?(?:no|without(?: any)?) overlap(?:ping)?(?: allowed)?\b[,)]?|[,(]? ?(?:and )?(?:must|shall) not overlap\b(?= ?(?:$|[,)]|@|by))", "no overlap", True),
        (r"[,(]? ?\b(?:butting|abutting|touching|coincident edges?|abutment)(?: is| are| edges?)? ?(?:allowed|permitted|excluded|exempt(?:ed)?|ok)\b\)?|\((?:exclude|except) (?:coincident|butting|abutting|touching) edges?\)|\bnon[ -]?(?:abutting|butting|touching)\b", "butting", "allowed"),
        (r",? ?(?:on|at|from|along|for) (?:at least )?(?:one of )?two adjacent (?:sides|edges)(?: of)?\b", "sides", "one of two adjacent"),
        (r",? ?(?:on|at|along|for) (?:at least )?(?:two |any two )?opposite (?:sides|edges)|,? ?(?:on|at) (?:at least )?two opposing sides", "sides", "two opposite"),
        (r",? ?(?:on|at) (?:at least )?(?:three|3) sides", "sides", "three"),
        (r",? ?\b(?:on|at|from|in|along) (?:all|every|each) (?:four |4 )?(?:sides?|directions?|edges?)", "sides", "all"),
        (r",? ?\b(?:in|along)(?: the)? (?:width|channel width|gate width) direction\b|,? ?\bwidthwise\b", "direction", "width"),
        (r",? ?\b(?:in|along)(?: the)? (?:length|channel length|s/d|source/drain) direction\b|,? ?\blengthwise\b", "direction", "length"),
        (r"\(?\b(?:merge|merged) if .*$|,? ?\bor merge.*$", "merge", True),
        (r"\b(?:rule |this )?(?:check(?:ed)? )?(?:applies|apply) (?:to|for) (?=all)", "", None),
    ):  # fmt: skip
        match = re.search(pattern, text)
        if match:
            if key:
                extra[key] = value
            text = " ".join((text[: match.start()] + " " + text[match.end() :]).split())
    return text.strip(" ,.;:")


def _special(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    """Density, antenna, grid, angles, rectangles."""
    if re.search(r"\bdensit(?:y|ies)\b|\bcoverage\b.*\b(?:ratio|percent|share)|\bcoverage ratio\b", text):
        return _density(text, words, extra)
    if "antenna" in text or re.search(r"\bratio of (?:the )?.*\b(?:area|perimeter)\b.* to (?:the )?.*\bgate", text):
        return _antenna(text, words, extra)
    if re.search(r"\b(?:aspect )?ratio\b", text):
        raise UsageError(
            "the rule is a ratio that is neither a density nor an antenna ratio", "write that deck by hand"
        )
    if re.search(r"\bgrid\b", text) and not re.search(rf"\b{_K}\b|\bwidth\b", text):
        limit = _only(words, text, "length", "a grid")
        subject = re.sub(
            rf"\b(?:on|off|to|at|aligned|snapped|multiples?|grid|manufacturing|of|a|an|the|in|layout|vert(?:ex|ices)|coordinates?|points?|corners?|geometr(?:y|ies)|edges?|placed|lie|drawn|layers?|all|and|not|allowed)\b|{_VERBS}|@\d+|[,:=]",
            " ", text,
        )  # fmt: skip
        return [Statement("grid", (" ".join(subject.split()),), limit, Bound("exact"), extra=extra)]
    angles = [q.value for q in words.quantities if q.kind == "angle"]
    if angles or re.search(
        r"\b(?:orthogonal|rectilinear|manhattan|acute|non-?orthogonal|45|axis[ -]parallel|skew(?:ed)?|diagonal)\b", text
    ):
        if re.search(rf"\b{_K}\b|\bwidth\b|\benclos|\boverlap\b", text):
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
            rf"\b(?:angles?|bends?|bent|corners?|edges?|only|multiples? of|in|of|to|at|with|and|or|orthogonal|rectilinear|manhattan|acute|octagonal|non|not|no|other than|diagonal|skew(?:ed)?|allowed|permitted|forbidden|prohibited|drawn|shapes?|less|smaller|sharper|than|axis[ -]parallel|degrees?|geometr(?:y|ies)|multiples|interior|the|a|an|any|all)\b|{_VERBS}|@\d+|[,:=/-]",
            " ", text,
        )  # fmt: skip
        return [Statement("angle", (" ".join(subject.split()),), None, Bound("exact"), extra={**extra, "angles": kind})]
    shape = re.search(r"\b(?:only )?(rectangular|rectangles?|squares?)\b", text)
    if shape and not words.quantities and not re.search(rf"\b{_K}\b", text):
        subject = re.sub(
            rf"\b(?:only|rectangular|rectangles?|squares?|shapes?|shaped|a|an|the|all|of|in|no|non|not|other than|as|drawn|in shape)\b|{_VERBS}|[,:=-]",
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
        rf"\b(?:min(?:imum)?|max(?:imum)?|global|local|pattern|layer|density|coverage|ratio|of|the|a|for|any|chip|area|over whole|whole|in|at least|at most|between|and|more|less|greater|lower|than|not|no|layout|to|percent)\b|{_VERBS}|@\d+|[,:=<>%()]",
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
        rf"\b(?:min(?:imum)?|max(?:imum)?|antenna|ratios?|of|the|a|area|perimeter|sidewall|to|cumulative|its|connected|gates?|oxide|for|each|any|not|exceed|more|less|greater|than|at most|by|and|poly gate)\b|{_VERBS}|@\d+|[,:=<>%()/]",
        " ", text,
    )  # fmt: skip
    if re.search(r"\bdiodes?\b|\bcumulative\b|\bperimeter\b|\bsidewall\b", text):
        raise UsageError("the antenna rule counts diodes, perimeters or several layers", "write that deck by hand")
    return [Statement("antenna", (" ".join(subject.split()),), limit, Bound("max"), extra=extra)]


def _logic(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
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
        (rf"(?:no )?overlap(?:ping)?(?: of| between) (?P<a>.+?) (?:and|with|by|over) (?P<b>.+?)(?: {banned})?", "apart", {"how": "overlap"}),
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


def _measured(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    """Forms with a number."""
    text, extra = _conditions(text, words, dict(extra))
    indices = [int(i) for i in dict.fromkeys(re.findall(r"@(\d+)", text))]
    rest = _reduced(text)
    forms = _forms(rest, text, extra)
    if not forms:
        raise UsageError(
            f'no rule form is recognised in "{rest or text}"',
            "say what is limited: width, space, enclosure, extension, overlap, area ...",
        )
    if not indices:
        raise UsageError(f"the rule of {forms[0][0]} has no number", "write the limit with its unit, such as 0.18 um")
    found = []
    for form, roles, weight, more in forms:
        wants = "area" if form in ("area", "hole area") else "length"
        limits = [words.quantities[i] for i in indices]
        loose = next((q for q in limits if q.kind == "number"), None)
        if loose:
            raise UsageError(
                f"the limit {loose.text} has no unit", f"write it in {'um^2' if wants == 'area' else 'um or nm'}"
            )
        wrong = next((q for q in limits if q.kind != wants), None)
        if wrong:
            if form == "size" or (len(forms) > 1 and wrong.kind == "area"):
                continue
            raise UsageError(
                f"the limit {wrong.text} is no {wants}",
                f"a rule of {form} has its limit in {'um^2' if wants == 'area' else 'um'}",
            )
        limit, bound, more = _limit(form, text, indices, words, {**extra, **more})
        if (
            form in ("width", "space", "separation", "area", "hole area", "size", "length", "overlap")
            and limit.value == 0
        ):
            raise UsageError(f"a limit of 0 for {form} can never be broken", "write the limit that is meant")
        if form == "width" and bound.kind == "exact" and more.get("cut"):
            form = "size"
        found.append(Statement(form, roles, limit, bound, weight, more))
    if not found:
        raise UsageError(f'form and unit do not fit in "{text}"', "areas are in um^2, all other limits in um")
    return found


def _limit(
    form: str, text: str, indices: list[int], words: Words, extra: dict[str, Any]
) -> tuple[Quantity, Bound, dict[str, Any]]:
    limits = [words.quantities[i] for i in indices]
    bounds = [bound_of(text, i) for i in indices]
    if len(limits) == 1:
        bound = bounds[0]
        if form == "size":
            bound = bound if bound.told else Bound("exact", told=False)
        return limits[0], bound, extra
    if len(limits) > 2:
        raise UsageError("the rule has more than two limits", "write one rule for each")
    if form in ("size",) or re.search(r"@\d+ ?(?:x|by) ?@\d+", text):
        return limits[0], Bound("exact"), {**extra, "second": limits[1]}
    one, two = bounds
    spread = re.search(r"@\d+ ?(?:to|-|\.\.) ?@\d+|between @\d+ and @\d+", text)
    if spread or {one.kind, two.kind} == {"min", "max"}:
        low, high = limits if spread or one.kind == "min" else limits[::-1]
        if low.value > high.value:
            raise UsageError(f"the minimum {low.text} is above the maximum {high.text}", "correct one of the two")
        if form not in ("width", "length", "area"):
            raise UsageError(f"a minimum and a maximum of {form} in one rule is not read", "write two rules")
        return low, Bound("min"), {**extra, "high": high}
    if limits[0] == limits[1]:
        return limits[0], one, extra
    raise UsageError(
        f"the rule has two limits ({limits[0].text} and {limits[1].text})",
        "write two rules, or say under which condition the second holds",
    )


def _conditions(text: str, words: Words, extra: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Take conditions on the width and on the parallel run length out of the text."""
    start = r"(?:[,(]? ?(?:and |but )?\b(?:when|if|where|for|with|having|whose|that (?:is|are|has|have)|which (?:is|are|has|have)|provided|in case|while)\b[^@]*?|\b)"
    op = r"(?P<op>greater than or equal to|larger than or equal to|more than or equal to|equal or greater than|at least|>=|greater than|larger than|more than|wider than|longer than|exceed(?:s|ing)?|over|above|>|of|=)"
    lengths = len(
        [1 for i in set(re.findall(r"@(\d+)", text)) if words.quantities[int(i)].kind in ("length", "number")]
    )
    for key, pattern in (
        ("run", rf"{start}(?:(?:parallel |common |projected |facing )+(?:run(?:ning)?[ -]?)?(?:lengths?|runs?|edges?)?|run(?:ning)?[ -]?lengths?|run|prl|projection length|projection)(?: lengths?)?(?: is| are| each)?(?: ?{op})?(?: for| by| to)?(?: ?(?:greater|longer|more) than)? ?@(?P<i>\d+)(?P<more> or (?:more|longer|larger))?\)?"),
        ("run", rf"{start}(?:run(?:ning)?|are|is)? ?(?:in )?parallel (?:for|by|over) ?(?:lengths? )?{op}? ?@(?P<i>\d+)(?P<more> or (?:more|longer))?\)?"),
        ("wide", rf"{start}\b(?:widths?|wide|lines?|either (?:one|line|metal)?|both|one)?(?: of [^@]*?)?(?: is| are| of| has)*(?: widths?)? ?{op} ?@(?P<i>\d+)(?P<more> or (?:more|wider|larger))?(?: wide| in width)?\)?"),
        ("wide", rf"{start}@(?P<i>\d+)(?P<more> or (?:more|wider))? wide\)?"),
    ):  # fmt: skip
        if lengths < 2:
            break
        for match in re.finditer(pattern, text):
            groups = match.groupdict()
            body = match[0]
            if key == "wide" and not re.search(r"\bwid|\bwide", body):
                continue
            if key == "wide" and not re.match(
                r"[,(]? ?(?:and |but )?(?:when|if|where|for|with|having|whose|that|which|provided|in case|while|wider)\b",
                body,
            ):
                continue
            if words.quantities[int(groups["i"])].kind == "number":
                raise UsageError(
                    f"the condition {words.quantities[int(groups['i'])].text} has no unit", "write it in um or nm"
                )
            strict = (
                bool(groups.get("op"))
                and groups["op"] not in (">=", "at least", "of", "=")
                and "equal" not in groups["op"]
            )
            subject = re.match(r"[,(]? ?(?:to|from) (.+?) wider than", body)
            extra[key] = (words.quantities[int(groups["i"])], strict and not groups.get("more"))
            if "either" in body or "one" in body:
                extra["both"] = False
            elif "both" in body:
                extra["both"] = True
            text = " ".join(
                (text[: match.start()] + " " + (subject[1] if subject else "") + " " + text[match.end() :]).split()
            )
            lengths -= 1
            break
    return text.strip(" ,"), extra


def _reduced(text: str) -> str:
    """Leave the words of form and layers only."""
    bound = (
        r"(?:greater|larger|more|wider|longer|equal)(?: than)? or (?:equal|greater|larger|more)(?: to| than)?|less than or equal to|"
        r"(?:not|no)(?: be)? (?:less|smaller|narrower|closer|shorter|greater|larger|more|wider|longer|nearer)(?: than)?|"
        r"not exceed|(?:greater|larger|less|more|smaller|bigger) than|at ?least|at ?most|no more than|up to|exactly|equal to|"
        r"or (?:more|less|larger|greater|wider|longer|smaller)|exceed(?:s|ing)?|"
        r"min(?:imum)?\s*(?:and|&|/|or|,)\s*max(?:imum)?|min(?:imum)?(?: allowed| required| drawn)?|max(?:imum)?(?: allowed| drawn)?|fixed|exact(?!ly)|smallest|largest|by at"
    )
    rest = FORBIDDEN.sub(" ", text)
    rest = re.sub(r"\b(?:between|from) @\d+ (?:and|to) @\d+", " ", rest)
    rest = re.sub(r"\b(?:in the )?range(?: of)?\b", " ", rest)
    rest = re.sub(r"\bclos\w+ (?:than|to)\b", " space to ", rest) if re.search(r"\bcloser to\b", rest) else rest
    rest = re.sub(rf"(?:{bound})(?=\s|$|@|\()|(?<=\s)(?:{bound})\b", " ", " " + rest)
    rest = re.sub(r"\bnarrower(?: than)?\b", " width ", rest)
    rest = re.sub(r"\bwider(?: than)?\b", " width ", rest)
    rest = re.sub(rf"{_VERBS}|(?:>=|<=|=>|=<|==?|<|>|:|;|\?)|\bapart\b(?= from)", " ", rest)
    rest = " ".join(rest.split())
    rest = re.sub(r"\b(?:by|of|than|to|with|a|an)? ?@\d+(?: ?(?:x|to|by|-|and) ?@\d+)*", " ", rest)
    rest = re.sub(
        r"\b(?:the|a|an|any|all|every|each|drawn|not|no)\b(?! (?:overlapping|inside|outside|touching|interacting|on|in|over|within|covered|enclosed|butting|abutting|connected))",
        " ",
        rest,
    )
    rest = " ".join(rest.split()).strip(" ,.-")
    rest = re.sub(r"(?:\s|^)(?:by|of|to|than|with|is|at|and)$", "", rest).strip(" ,.")
    rest = re.sub(r"^(?:by|of|than|is|at|no)\s+", "", rest).strip(" ,.")
    return rest


def _forms(rest: str, text: str, extra: dict[str, Any]) -> list[tuple[str, tuple[str, ...], float, dict[str, Any]]]:
    """All (form, role phrases, weight, extra) that a reduced sentence may have."""
    k = _K
    to = r"(?:to|from|and|with respect to|against|with)"
    wide = "wide" in extra or "run" in extra
    notch = {"notch": bool(re.search(r"\bnotch", text)) and not re.search(r"space|spacing|separation|distance", text)}
    if re.search(r"\bnotch", text) and not notch["notch"]:
        notch = {"notch": False, "and notch": True}
    out: list[tuple[str, tuple[str, ...], float, dict[str, Any]]] = []

    def add(form: str, *roles: str, weight: float = 1.0, **more: Any) -> None:
        item = (form, tuple(r.strip(" ,") for r in roles), weight, more)
        if not any(o[:2] == item[:2] for o in out):
            out.append(item)

    def pair(a: str, b: str) -> None:
        if _same(a, b):
            add("space", a, **notch)
        else:
            add("separation", a, b)

    def several(phrase: str) -> bool:
        return bool(re.match(r"(?:two|adjacent|different|neighbou?ring|parallel|isolated)\b", phrase))

    # hole and plain area
    m = re.fullmatch(
        r"(?:(?:enclosed|hole|inner|interior) area|area of (?:holes?|enclosed area)(?: (?:in|of))?)(?: (?:of|in|by|for|inside|within))? ?(.*)|(.+?) (?:enclosed|hole|holes|inner) area|area of (.+?) holes?|area (?:enclosed|surrounded) by (.+)|(.+?) holes? area",
        rest,
    )
    if m:
        add("hole area", next((g for g in m.groups() if g), ""))
        return out
    m = re.fullmatch(r"area(?: (?:of|for|in))? ?(.*)|(.*?) area", rest)
    if m:
        add("area", m[1] or m[2] or "")
        return out
    # extension
    past = r"(?:past|beyond|over|outside(?: of)?|from|out of|onto|into|off|on)"
    ext = r"(?:extensions?|overhang|end ?caps?|end-caps?|protrusion|overlap)"
    for pattern in (
        r"(?:extensions?|overhang|end ?caps?|end-caps?|protrusion|projection) of (?P<a>.+?) (?:past|beyond|over|outside(?: of)?|from|out of|onto|into|to|off) (?P<b>.+)",
        r"overlap of (?P<a>.+?) (?:past|beyond) (?P<b>.+)",
        rf"(?P<a>.+?) {ext} (?:past|beyond|outside(?: of)?|out of|off) (?P<b>.+)",
        rf"(?P<a>.+?) (?:extensions?|overhang|end ?caps?|end-caps?|protrusion) (?:{past}|to|of) (?P<b>.+)",
        rf"(?P<a>.+?) (?:extend(?:s|ed|ing)?|overhang(?:s|ing)?|protrud(?:e|es|ing)|stick(?:s|ing)? out|project(?:s|ing)?)(?: {past})? (?P<b>.+)",
        rf"(?P<a>.+?) {past} (?P<b>.+?) (?:extensions?|overhang)",
        r"(?P<a>.+?) (?:past|beyond) (?P<b>.+)",
    ):
        m = re.fullmatch(pattern, rest)
        if m and not re.search(rf"\b{k}\b", rest):
            around = re.search(r"\baround\b", rest)
            add("enclosure" if around else "extension", m["a"], m["b"])
            if re.search(r"\b(?:extension|extend)", rest):
                add("enclosure", m["a"], m["b"], weight=0.25)
            return out
    m = re.fullmatch(
        r"(.+?) (?:end ?caps?|end-caps?|overhang)|(?:end ?caps?|overhang) (?:of )?(.+)|gate (?:extension|overhang)|(?:extension|overhang) of gate",
        rest,
    )
    if m:
        add("extension", m[1] or m[2] or "poly", "active")
        return out
    # enclosure
    enc = r"(?:enclosures?|enclosing|surround(?:ing)?|margin|surrounds?|encl)"
    out_of = r"(?:of|around|over|for|to)"
    for pattern, weight in (
        (rf"(?:{enc}|overlap) of (?P<b>.+?) (?:by|within|inside(?: of)?|in|with) (?P<a>.+)", 1.0),
        (rf"(?P<a>.+?) {enc} {out_of} (?P<b>.+)", 1.0),
        (rf"{enc} of (?P<a>.+?) (?:around|over|on) (?P<b>.+)", 1.0),
        (rf"(?P<b>.+?) {enc} by (?P<a>.+)", 1.0),
        (r"(?P<b>.+?) (?:enclosed|surrounded|overlapped|covered) (?:by|with|in|inside) (?P<a>.+)", 1.0),
        (r"(?P<a>.+?) (?:encloses?|enclosing|surrounds?|surrounding|covers?|covering|contains?) (?P<b>.+)", 1.0),
        (r"(?P<a>.+?) (?:overlap|overlapping|overlaps|extension) (?:of|around) (?P<b>.+)", 1.0),
        (r"(?P<a>.+?) (?:overlaps|overlap|overlapping|extends around) (?P<b>.+)", 0.9),
        (r"(?P<b>.+?) (?:inside|within) (?P<a>.+?)(?: edges?)?", 1.0),
        (rf"{enc} (?P<a>.+?) (?:of|to|over|around) (?P<b>.+)", 1.0),
    ):  # fmt: skip
        if re.search(rf"\b{k}\b", rest) or re.search(r"\bwidth\b|\blength\b|\bsize\b", rest):
            break
        if "inside" in pattern and re.search(r" to ", rest):
            continue
        m = re.fullmatch(pattern, rest)
        if m:
            deep = "overlap" in rest
            add(
                "enclosure",
                m["a"],
                m["b"],
                weight=weight,
                stated=bool(re.search(r"\b(?:must|shall|should|inside|within|covered|enclosed)\b", text)),
            )
            if deep and re.search(r"\bmin\w*\s*(?:and|&|/|or|,)\s*max|\bexact", text):
                # An overlap that is exact is the size of what two layers share.
                out[:] = [(form, roles, 0.4, more) for form, roles, _, more in out]
                add("overlap", m["a"], m["b"])
            elif deep:
                add("overlap", m["a"], m["b"], weight=0.22)
            return out
    m = re.fullmatch(
        r"overlap (?:between|of) (.+?) (?:and|with|to|over|onto|on) (.+)|(.+?) (?:to|and|over|with) (.+?) overlap|overlap (.+?) (?:to|and|over|with) (.+)",
        rest,
    )
    if m:
        a, b = [g for g in m.groups() if g]
        add("overlap", a, b)
        add("enclosure", a, b, weight=0.3)
        return out
    # space
    if re.search(rf"\b{k}\b", rest):
        for pattern in (
            rf"(?P<a>.+?) {to} (?P<b>.+?) {k}",
            rf"{k} (?:between|of|from|for)? ?(?P<a>.+?) (?:to|from|with respect to|against) (?P<b>.+)",
            rf"(?P<a>.+?) {k} (?:to|from|with respect to|against|of|and) (?P<b>.+)",
        ):
            m = re.fullmatch(pattern, rest)
            if m and not several(m["a"]):
                pair(m["a"], m["b"])
                break
        if not out:
            m = re.fullmatch(rf"{k} (?:between|of|from|for) (?P<a>.+?) and (?P<b>.+)", rest)
            if m and not several(m["a"]):
                pair(m["a"], m["b"])
        m = re.fullmatch(
            rf"{k}(?: (?:between|of|for|on|in|within|from|to))? ?(?P<a>.*?)|(?P<b>.*?) {k}(?: (?:between|of) (?:them|each other|itself|themselves|lines))?|(?P<c>.+?) {k} (?:for|in|on|within|inside|between|of) (?P<d>.+)|(?P<e>.+?) {k} (?P<f>outside .+|inside .+|over .+|on .+|not .+)",
            rest,
        )
        if m and not (out and (out[0][0] == "space" or not re.search(r"\band\b", rest))):
            subject = m["a"] or m["b"] or ""
            if m["c"]:
                subject = (
                    m["c"]
                    if _same(m["c"], m["d"]) or re.fullmatch(r"(?:lines?|shapes?|polygons?|themselves|itself)", m["d"])
                    else f"{m['c']} in {m['d']}"
                )
            if m["e"]:
                subject = f"{m['e']} {m['f']}"
            add(
                "space",
                subject,
                weight=0.5 if out else 1.0,
                **notch,
                between=bool(re.search(r"\b(?:between|two|adjacent|different)\b", text)),
                devices=bool(
                    re.search(
                        r"\bbetween\b.*\b(?:resistors|capacitors|transistors|diodes|devices|inductors|cells)\b", rest
                    )
                ),
            )
        if wide:
            return [
                ("wide space", roles, w, more) if form in ("space", "separation") else (form, roles, w, more)
                for form, roles, w, more in out
            ]
        return out
    # size, width, length
    cut = bool(re.search(r"\b(?:via\d?|contacts?|cuts?|cont|mcon|licon|co|ct|pads?)\b", rest))
    m = re.fullmatch(
        r"(?:sizes?|dimensions?|side length|l and w|length and width|width and length|w and l)(?: (?:of|for))? ?(.*)|(.*?) (?:sizes?|dimensions?|size of side|side length|l and w|length and width|width and length)",
        rest,
    )
    if m:
        add("size", m[1] or m[2] or "")
        return out
    m = re.fullmatch(
        r"(?:line ?widths?|widths?|wide)(?: (?:of|for|in|on))? ?(.*)|(.*?) (?:line ?widths?|widths?|wide|in width)|(.+?) widths? (?:(?:for|in|on|inside|within|over) )(.+)|(.+?) widths? (outside .+|not .+)",
        rest,
    )
    if m:
        subject = m[1] or m[2] or (f"{m[3]} in {m[4]}" if m[3] else f"{m[5]} {m[6]}" if m[5] else "")
        add("width", subject, cut=cut)
        return out
    m = re.fullmatch(r"(?:edge )?lengths?(?: (?:of|for))? ?(.*)|(.*?) (?:edge )?lengths?|(.*?) long", rest)
    if m:
        subject = m[1] or m[2] or m[3] or ""
        if re.search(r"\b(?:gates?|channels?|transistors?|[np]mos|[np]fet)\b", subject):
            add("width", subject, cut=False)
        add("length", subject, weight=0.4 if out else 1.0, edge="edge" in rest)
        return out
    m = re.fullmatch(r"(?P<a>.+?) (?:overlap|overlaps|overlapping) (?P<b>.+)", rest)
    if m:
        add("overlap", m["a"], m["b"])
        return out
    m = re.fullmatch(r"(?P<a>.+?) to (?P<b>.+?)(?: edge)?", rest)
    if m:
        pair(m["a"], m["b"])
        return out
    if "@" in text and re.search(r"\bsquares?\b|\bx\b", text):
        add("size", re.sub(r"\b(?:squares?|x|only|in size)\b", " ", rest))
    elif wide and rest:
        add("wide space", rest)
    return out


def _same(a: str, b: str) -> bool:
    """Whether two phrases are one layer ("metal1 to metal1", "poly to another poly")."""

    def bare(phrase: str) -> str:
        words = re.sub(
            r"\b(?:other|another|adjacent|neighbou?ring|next|different|the|same|edge|two|itself|each)\b", " ", phrase
        )
        return " ".join(w.removesuffix("s") for w in words.split())

    return bare(a) == bare(b) or bare(b) == ""


def _only(words: Words, text: str, kind: str, what: str) -> Quantity:
    indices = [int(i) for i in re.findall(r"@(\d+)", text)]
    if len(indices) != 1:
        raise UsageError(f"{what} needs one number, the rule has {len(indices)}", "write one rule for each")
    limit = words.quantities[indices[0]]
    if limit.kind != kind:
        raise UsageError(f"the limit {limit.text} has no unit of {kind}", "write it in um or nm")
    return limit
