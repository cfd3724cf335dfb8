"""Rule forms with a limit: width, space, enclosure, extension, overlap, area, size, length, and their conditions."""
# ruff: noqa: E501 (a pattern stands on one line)

from __future__ import annotations

import re
from typing import Any

from orienteer.agents.drc.reading.statement import SPACE, VERBS, Statement
from orienteer.agents.drc.reading.words import FORBIDDEN, Bound, Quantity, Words, bound_of
from orienteer.errors import UsageError


def measured(text: str, words: Words, extra: dict[str, Any]) -> list[Statement]:
    """Forms with a number."""
    text, extra = _conditions(text, words, dict(extra))
    indices = [int(i) for i in dict.fromkeys(re.findall(r"@(\d+)", text))]
    rest = _reduced(text)
    if "wide" in extra:
        rest = re.sub(r"\bwide (?=\w)", "", rest)
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
    lead = r"(?:[,(] ?)?(?:and |but )?(?P<lead>when|if|where|for|with|having|whose|that|which|provided|in case|while|over)\b(?P<of>[^@]*?)"
    op = r"(?P<op>greater than or equal to|larger than or equal to|more than or equal to|equal or greater than|at least|>=|greater than|larger than|more than|wider than|longer than|exceed(?:s|ing)?|over|above|>|of|=)"
    more = r"(?P<more> or (?:more|wider|larger|longer|greater))?"
    patterns = (
        ("run", rf"(?:{lead})?(?:(?:[,(] ?)?and )?(?:the )?\b(?:parallel|common|projected|projection|facing|run|prl)\b[^@]*?(?: ?{op})? ?@(?P<i>\d+){more}(?: ?\))?"),
        ("wide", rf"(?:{lead})?(?P<op>wider than(?: or equal to)?) @(?P<i>\d+){more}(?: ?\))?"),
        ("wide", rf"{lead}\b(?:widths?|wide)\b[^@]*?(?: ?{op})? ?@(?P<i>\d+){more}(?: wide)?(?: ?\))?"),
        ("wide", rf"(?P<lead>\()(?P<of>)[^@()]*\b(?:widths?|wide)\b[^@()]*?(?: ?{op})? ?@(?P<i>\d+){more} ?\)"),
        ("wide", rf"{lead}(?: ?{op})? ?@(?P<i>\d+){more}(?: wide| in width)(?: ?\))?"),
    )  # fmt: skip
    for key, pattern in patterns:
        here = {int(i) for i in re.findall(r"@(\d+)", text)}
        if key in extra or len([i for i in here if words.quantities[i].kind in ("length", "number")]) < 2:
            continue
        match = re.search(pattern, text)
        if not match:
            continue
        limit = words.quantities[int(match["i"])]
        if limit.kind == "number":
            raise UsageError(f"the condition {limit.text} has no unit", "write it in um or nm")
        named = match["op"] or ""
        strict = (
            bool(named) and named not in (">=", "at least", "of", "=") and "equal" not in named and not match["more"]
        )
        extra[key] = (limit, strict)
        if re.search(r"\bboth\b", match[0]):
            extra["both"] = True
        # "for met1 wider than 3 um" names the layer too; "when either line is wider than" does not.
        kept = f" for{match['of']} " if match["lead"] == "for" and key == "wide" else " "
        if re.fullmatch(r" for(?: (?:a|an|the|any|lines?|of|with))* *|.*\b(?:width|either|both|one)\b.*", kept):
            kept = " "
        text = " ".join((text[: match.start()] + kept + text[match.end() :]).split())
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
    rest = re.sub(r"\bwith (?:an? )?(?:margin|clearance|distance|sides?)(?: lengths?)?(?: of)?\b", "by", rest)
    if not re.search(rf"\b(?:{SPACE}|widths?|lengths?|area|enclosure|overlap|extension)\b", rest):
        # "Poly must not be narrower than" is a rule of width.
        for word, form in (("narrower", "width"), ("wider", "width"), ("shorter", "length"), ("longer", "length")):
            if re.search(rf"\b{word}\b", rest):
                rest = f"{rest} {form}"
    rest = re.sub(r"\b(?:between|from) @\d+ (?:and|to) @\d+", " ", rest)
    rest = re.sub(r"\b(?:in the )?range(?: of)?\b", " ", rest)
    rest = re.sub(r"\bclos\w+ (?:than|to)\b", " space to ", rest) if re.search(r"\bcloser to\b", rest) else rest
    rest = re.sub(rf"(?:{bound})(?=\s|$|@|\()|(?<=\s)(?:{bound})\b", " ", " " + rest)
    rest = re.sub(rf"{VERBS}|(?:>=|<=|=>|=<|==?|<|>|:|;|\?)|\bapart\b(?= from)", " ", rest)
    rest = " ".join(rest.split())
    rest = re.sub(r"(?:\b(?:by|of|than|to|with|a|an) )?@\d+(?: ?(?:x|to|by|-|and) ?@\d+)*", " ", rest)
    rest = re.sub(
        r"\b(?:the|a|an|any|all|every|each|drawn)\b(?! (?:overlapping|inside|outside|touching|interacting|on|in|over|within|covered|enclosed|butting|abutting|connected))",
        " ",
        rest,
    )
    rest = " ".join(rest.split()).strip(" ,.-")
    rest = re.sub(r"(?:\s|^)(?:by|of|to|than|with|is|at|and|not)$", "", rest).strip(" ,.")
    rest = re.sub(r"^(?:by|of|than|is|at|no)\s+", "", rest).strip(" ,.")
    return rest


def _forms(rest: str, text: str, extra: dict[str, Any]) -> list[tuple[str, tuple[str, ...], float, dict[str, Any]]]:
    """All (form, role phrases, weight, extra) that a reduced sentence may have."""
    k = SPACE
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
            # The edge of a layer is seen from inside as well.
            for one, other in ((a, b), (b, a)):
                if re.search(r"\bedges?\b", other):
                    add("enclosure", other, one, weight=0.5)

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
        (r"overlap of (?P<a>.+?) around (?P<b>.+)", 1.0),
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
                stated=bool(
                    re.search(
                        r"\b(?:must|shall|should)(?: be)? (?:fully |completely )?(?:inside|within|covered|enclose|surround|overlap|cover)",
                        text,
                    )
                ),
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
            rf"{k} (?:to|from) (?P<b>.+?) (?:for|of) (?P<a>.+)",
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
        r"(?:line ?widths?|widths?|wide)(?: (?:of|for|in|on))? ?(.*)|(.*?) (?:line ?widths?|widths?|wide|in width)|(.+?) widths? (?:(?:for|in|on|inside|within|over) )(.+)|(.+?) widths? (outside .+|not .+|\(.+\))",
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
