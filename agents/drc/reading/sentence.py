"""From a rule sentence to statements: what stands beside the rule is taken out, then its form is read."""
# ruff: noqa: E501 (a pattern stands on one line)

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from orienteer.agents.drc.reading.measured import measured
from orienteer.agents.drc.reading.special import logic, special
from orienteer.agents.drc.reading.statement import Statement
from orienteer.agents.drc.reading.words import Words, read_words
from orienteer.errors import UsageError

_CAN_NOT = (
    (r"\b(?:number of|how many|at least (?:two|three|four|\d+) (?:vias?|contacts?|cuts?)|array of|arrays?)\b", "a number of shapes"),
    (r"\bend[ -]?of[ -]?lines?\b|\beol\b|\bline[ -]?ends?\b", "the end of a line"),
    (r"\bcent(?:er|re)[ -]to[ -]cent(?:er|re)\b|\bpitch\b", "a distance of centres"),
    (r"\bstacked?\b", "stacked vias"),
    (r"\bcell ?names?\b|\bcells? named\b", "the names of cells"),
)  # fmt: skip
_NETS = re.compile(r",? ?\b(?:(?:that are |which are )?(?:on|at|of|with|from|in|having) )?(?:the )?(same|different|separate|equal|other|unequal|another)[ -](?:nets?|potentials?|voltages?)\b")  # fmt: skip


#: Longest sentence, in characters.
_LONGEST = 3000


def statements(sentence: str) -> tuple[list[Statement], Words]:
    """Read a sentence into statements, the most probable first; their weights are not normalised.

    Raises:
        UsageError: no rule form is recognised, the form is one that decks cannot say, or number and unit are missing or
            contradict each other.
    """
    if len(sentence) > _LONGEST:
        raise UsageError(f"the rule has more than {_LONGEST} characters", "write one rule, not a chapter")
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
    for read in (special, logic):
        found = read(text, words, extra)
        if found:
            return [replace(s, notes=(*s.notes, *notes)) for s in found], words
    found = measured(text, words, extra)
    return [replace(s, notes=(*s.notes, *notes)) for s in found], words


#: Where a sentence may hold a second rule: before a word that begins one.
_NEXT = re.compile(
    r"\s*(?:;|,? and|,)\s+(?=(?:the |their |its |a |with (?:a )?)?(?:min(?:imum|\.)?|max(?:imum|\.)?|spac\w+|separation|distance|width|enclosure|area|extension|notch)\b)",
    re.IGNORECASE,
)


def clauses(sentence: str) -> list[str]:
    """Cut a sentence where a second rule seems to begin; a sentence with one rule comes back whole."""
    for cut in _NEXT.finditer(sentence):
        left, right = sentence[: cut.start()].strip(), sentence[cut.end() :].strip()
        whole = re.search(r"\d|\b(?:must|shall|should|can ?not|allowed|forbidden)\b", left)
        if whole and not re.match(r"(?:when|if|for|where|in case)\b", left, re.IGNORECASE):
            return [left, *clauses(right)]
    return [sentence]


def _without_rule_id(sentence: str) -> str:
    name = r"[A-Za-z][\w+]*(?:[._][\w+]+)+"
    text = re.sub(rf"^\s*(?:[Rr]ule\s+\(?{name}\)?\s*[:.\-]*|\(?{name}\)?\s*:)\s+(?=[A-Za-z])", "", sentence.strip())
    # "M1.b Min. space": a capital, a short last part and the word that rules begin with.
    return re.sub(r"^[A-Z]\w*\.(?![A-Z])\w{1,3}\s+(?=(?:Min|Max|min|max)\b)", "", text)


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
    # "By one of two adjacent metal sides" names the layer between.
    text = re.sub(r"\bby one of two adjacent (\w+) (sides|edges)\b", r"by \1 on one of two adjacent \2", text)
    nets = _NETS.search(text)
    if nets:
        notes.append(f"nets are not told apart: the rule is of {nets[1]} nets, the deck checks all")
        extra["nets"] = nets[1]
        text = (text[: nets.start()] + " " + text[nets.end() :]).strip()
    tail = re.search(
        r"[,(]? ?\b(?:exempt(?:ed)?|waived|not applicable|not checked|(?:rule )?exempt(?:ed)?|except(?:ion)?(?: for)?)(?: (?:if|when|is|for|\w+s)){0,3} (inside|within|under|over|in|outside) ([^,():=@]+?)\)?(?= ?(?:[:=@]|$))",
        text,
    )
    if tail:
        extra["kept" if tail[1] == "outside" else "exempt"] = tail[2]
        text = (text[: tail.start()] + " " + text[tail.end() :]).strip()
    for pattern, key, value in (
        (r"[,(]? ?\b(?:with )?(?:no|without(?: any)?) overlap(?:ping)?(?: allowed)?\b[,)]?|[,(]? ?(?:and |which |that |they |these )?(?:must|shall|should|do) not overlap\b(?= ?(?:$|[,)]|@|by))", "no overlap", True),
        (r"[,(]? ?\b(?:butting|abutting|touching|coincident edges?|abutment)(?: is| are| edges?)? ?(?:allowed|permitted|excluded|exempt(?:ed)?|ok)\b\)?|\((?:exclude|except) (?:coincident|butting|abutting|touching) edges?\)|\bnon[ -]?(?:abutting|butting|touching)\b", "butting", "allowed"),
        (r",? ?(?:on|at|from|along|for) (?:at least )?(?:one of )?two adjacent (?:sides|edges)(?: of)?\b", "sides", "one of two adjacent"),
        (r",? ?(?:on|at|along|for) (?:at least )?(?:two |any two )?opposite (?:sides|edges)|,? ?(?:on|at) (?:at least )?two opposing sides", "sides", "two opposite"),
        (r",? ?(?:\b(?:on|at|from) (?:at least )?|at least )?(?<!of )\b(?:one|single) (?:sides?|edges?)(?! of)\b", "sides", "one"),
        (r",? ?(?:on|at) (?:at least )?(?:three|3) sides", "sides", "three"),
        (r",? ?\b(?:on|at|from|in|along) (?:all|every|each) (?:four |4 )?(?:sides?|directions?|edges?)", "sides", "all"),
        (r",? ?\b(?:in|along)(?: the)? (?:width|channel width|gate width) direction\b|,? ?\bwidthwise\b", "direction", "width"),
        (r",? ?\b(?:in|along)(?: the)? (?:length|channel length|s/d|source/drain) direction\b|,? ?\blengthwise\b", "direction", "length"),
        (r"\(?\b(?:merge|merged) if .*$|,? ?\bor merge.*$", "merge", True),
        (r"\b(?:rule |this )?(?:check(?:ed)? )?(?:applies|apply) (?:to|for) (?=all)", "", None),
    ):  # fmt: skip
        match = re.search(pattern, text)
        # "A and B must not overlap" is a rule of its own where no limit stands beside it.
        if match and (key != "no overlap" or "@" in text):
            if key:
                extra[key] = value
            text = " ".join((text[: match.start()] + " " + text[match.end() :]).split())
    return text.strip(" ,.;:")
