"""Layer phrases: "contact on poly resistor", "(nwell outside dnwell)", "comp intersected with pplus, keeping only ...".

A phrase is read into terms (KLayout expressions), each with a weight: the share of authors that would write it so, as
estimated by us. Words of sets are exact where a manual defines a layer ("intersected with", "keeping only polygons that");
the prepositions of a rule sentence ("on", "inside") are not, and give several terms.

Grammar, loosest first::

    phrase   = phrase "," ("keeping only" | "dropping") "polygons" relation atom
             | phrase relation phrase        relation: on, inside, outside, overlapping, not touching, covering ...
             | phrase set-word phrase        set-word: and, or, minus, not, without, joined with ...
             | "holes of" phrase | phrase "grown by @0" | "unrelated" phrase | "field" phrase
             | "(" phrase ")" | words of a layer | words of two layers (both) | gate, tap, source/drain
"""

# ruff: noqa: E501 (a pattern stands on one line)
from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orienteer.agents.drc.reading.layers import FILLERS, Lexicon, features, join_words, known
from orienteer.agents.drc.reading.terms import Term, named
from orienteer.agents.drc.reading.words import Quantity

#: Words that join phrases: a layer's name does not hold them.
_NOT_IN_NAMES = frozenset(("for", "to", "from", "with", "by", "at", "between", "than", "when", "if", "which", "that"))
#: Most operators and brackets within one another; no manual has so many.
_DEEPEST = 40
#: Most terms kept for one phrase.
_MOST = 6
#: Polygon relations: what the words say, the calls they may mean and how probable each is.
_RELATIONS: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = (
    (r"neither (?:touch(?:es|ing)?|overlap(?:s|ping)?) (?:n?or) (?:touch|overlap)(?:s|es|ing)?", (("not_interacting", 1.0),)),
    (r"(?:not|without|do(?:es)? not|never) (?:touch(?:es|ing)? or overlap(?:s|ping)?|overlap(?:s|ping)? or touch(?:es|ing)?|interact(?:s|ing)?(?: with)?)", (("not_interacting", 1.0),)),
    (r"touch(?:es|ing)? or overlap(?:s|ping)?|overlap(?:s|ping)? or touch(?:es|ing)?|interact(?:s|ing)?(?: with)?", (("interacting", 1.0),)),
    (r"(?:are |is |lies? )?not (?:entirely|completely|fully|wholly|all) (?:inside|within)(?: of)?", (("not_inside", 1.0),)),
    (r"(?:are |is |lies? )?not (?:entirely|completely|fully|wholly) outside(?: of)?", (("not_outside", 1.0),)),
    (r"(?:are |is |lies? )?(?:entirely|completely|fully|wholly) (?:inside|within|covered by|enclosed by)(?: of)?", (("inside", 1.0),)),
    (r"(?:are |is |lies? )?(?:entirely|completely|fully|wholly) outside(?: of)?", (("outside", 1.0),)),
    (r"(?:do(?:es)? )?not (?:cover|contain|enclos)(?:s|es|e|ing)?", (("not_covering", 1.0),)),
    (r"(?:covering|containing|enclosing|surrounding|that (?:cover|contain|enclose)s?|which (?:cover|contain|enclose)s?)", (("covering", 0.6), ("interacting", 0.4))),
    (r"(?:not|non)[ -]?(?:butt(?:ing|ed)|abutt(?:ing|ed))(?: (?:to|with|against))?", (("not_interacting", 0.8), ("not", 0.2))),
    (r"(?:is |are |do(?:es)? )?not (?:overlap(?:s|ping|ped)?|touch(?:es|ing)?|cross(?:ing)?|connected|straddl(?:e|ing))(?: (?:with|by|to))?", (("not_interacting", 0.65), ("not_overlapping", 0.2), ("not", 0.15))),
    (r"overlapping(?: with)?|crossing|straddling|overlapped (?:by|with)|(?:that|which) (?:overlap|cross)(?:s|es)?|overlaps?", (("interacting", 0.5), ("overlapping", 0.3), ("and", 0.2))),
    (r"touching|butt(?:ing|ed)(?: (?:to|with|against))?|abutt(?:ing|ed)(?: (?:to|with|against))?|connected (?:to|with|by)|(?:that|which) touch(?:es)?|touch", (("interacting", 1.0),)),
    (r"(?:(?:that |which )?(?:is |are |lies? )?)?(?:outside(?: of)?|not (?:in|inside|within|on|over|under|covered by|enclosed by)(?: of)?)", (("not", 0.55), ("outside", 0.45))),
    (r"(?:(?:that |which )?(?:is |are |lies? )?)?(?:on top of|on|over|under|underneath|below|above|covered by|crossing over)", (("and", 0.65), ("interacting", 0.2), ("inside", 0.15))),
    (r"(?:(?:that |which )?(?:is |are |lies? )?)?(?:inside(?: of)?|within|in|enclosed by)", (("and", 0.5), ("inside", 0.35), ("interacting", 0.15))),
)  # fmt: skip
_SETS: tuple[tuple[str, tuple[tuple[str, float], ...]], ...] = (
    (r"(?:intersected|intersection|overlapped|anded) with|and|&", (("and", 1.0),)),
    (r"minus|subtracting|and ?not|but not", (("not", 1.0),)),
    (r"not|excluding|except(?:ing)?(?: for)?|excepting|without|other than|excl(?:uded)?|exempt(?:ing)?", (("not", 0.75), ("not_interacting", 0.25))),
    (r"(?:joined|united|union|merged|combined|ored) with|plus|or|\||/", (("or", 1.0),)),
    (r"xor(?:ed with)?|exclusive or", (("xor", 1.0),)),
)  # fmt: skip


class Unreadable(Exception):
    """Words that name no layer of the task."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = " ".join(words.split())


@dataclass(frozen=True)
class Chosen:
    """One term for a phrase.

    Attributes:
        term: the expression.
        weight: how probable among the phrase's terms, which sum to about 1.
        note: what was chosen, in words; empty where the phrase says it.
        unrelated: the phrase says "unrelated": polygons that meet the rule's other layer are not meant.
        unread: words that the term does not account for.
    """

    term: Term
    weight: float
    note: str = ""
    unrelated: bool = False
    unread: tuple[str, ...] = ()


class Phrases:
    """Reads layer phrases of one task.

    Args:
        lexicon: its layers.
        variables: the Ruby variable of each layer's name.
        quantities: what ``@i`` in the phrases stand for.
    """

    def __init__(self, lexicon: Lexicon, variables: Mapping[str, str], quantities: Sequence[Quantity] = ()) -> None:
        self.lexicon = lexicon
        self.variables = variables
        self.quantities = quantities
        self._cache: dict[str, list[Chosen]] = {}
        self._depth = 0

    def read(self, phrase: str) -> list[Chosen]:
        """Read a phrase into its terms, the most probable first.

        Raises:
            Unreadable: with the words that name no layer.
        """
        phrase = join_words(" ".join(phrase.split()))
        if phrase not in self._cache:
            if self._depth > _DEEPEST:
                raise Unreadable(phrase[:60])
            self._depth += 1
            try:
                self._cache[phrase] = self._read(phrase)
            finally:
                self._depth -= 1
        return self._cache[phrase]

    def _read(self, phrase: str) -> list[Chosen]:
        text, groups = _mask(phrase.strip(" ,.;:"))
        if re.fullmatch(r"\{\d+\}", text):
            return self.read(groups[0])
        if not text:
            raise Unreadable(phrase)
        try:
            terms = self._masked(text, groups)
        except Unreadable as error:
            terms = []
            failed: Unreadable | None = error
        else:
            failed = None
        # A layer that the task defines for this rule often is the whole phrase: "comp (except substrate tap)" is comp_dv.
        head = set(features(re.split(r"[({,]|\b(?:except|excluding|not|outside|inside|in|on|over|of)\b", phrase)[0]))
        whole = [
            m
            for m in self.lexicon.match(re.sub(r"[(){}]", " ", phrase))
            if m.name in self.lexicon.preferred and head & set(features(m.name))
        ]
        if whole and _has_operator(text):
            name = whole[0].name
            terms = [replace(t, weight=0.3 * t.weight) for t in terms]
            terms.insert(0, Chosen(named(self.variables[name]), 0.7, f'"{phrase}" read as the defined layer {name}'))
        elif failed:
            raise failed
        return _distinct(terms)

    def _masked(self, text: str, groups: list[str]) -> list[Chosen]:
        post = list(re.finditer(r",? *\b(keeping only|keep only|restricted to|dropping|removing|discarding)(?: the| all| those)?(?: polygons?| shapes?| ones)?(?: that| which)?\b", text))  # fmt: skip
        if post:
            last = post[-1]
            keep = last[1] in ("keeping only", "keep only", "restricted to")
            return self._filtered(text[: last.start()], text[last.end() :].strip(), keep, groups)
        sized = re.search(
            r"\b(grown|sized|expanded|oversized|bloated|shrunk|undersized|reduced)(?: up| down)? by @(\d+)$", text
        )
        if sized:
            sign = "-" if sized[1] in ("shrunk", "undersized", "reduced") else ""
            size = self.quantities[int(sized[2])]
            inner = self._sub(text[: sized.start()], groups)
            return [replace(c, term=c.term.call("sized", f"{sign}{size.ruby}.um")) for c in inner]
        if "," in text:
            items = [i for i in re.split(r" *, *(?:and |or )?| (?:and|or) ", text) if i.strip()]
            if len(items) > 1:
                return self._union(items, groups)
        for table in (_RELATIONS, _SETS):
            found = _last_operator(text, table)
            if found:
                left, calls, right = found
                return self._combined(self._sub(left, groups), calls, self._sub(right, groups))
        holes = re.fullmatch(r"(?:the )?(?:holes?|enclosed areas?) (?:of|in|inside) (.+)|(.+?) holes?", text)
        if holes:
            return [replace(c, term=c.term.call("holes")) for c in self._sub(holes[1] or holes[2], groups)]
        inline = re.search(r"\{(\d+)\}", text)
        if inline:
            return self._annotated(text, inline, groups)
        return self._atom(text)

    def _filtered(self, left: str, right: str, keep: bool, groups: list[str]) -> list[Chosen]:
        for pattern, calls in _RELATIONS:
            match = re.match(rf"(?:{pattern})\s+(?!or\b)", right)
            if match:
                # A definition means what it says: only the first call of a relation, and "overlap" is no "touch".
                method = calls[0][0]
                if re.fullmatch(r"overlap(?:s|ping)?\s*|(?:that|which) overlap\s*", match[0]):
                    method = "overlapping"
                elif re.fullmatch(r"(?:do(?:es)? )?not overlap(?:s|ping)?\s*", match[0]):
                    method = "not_overlapping"
                if not keep:
                    method = method.removeprefix("not_") if method.startswith("not_") else f"not_{method}"
                return self._combined(
                    self._sub(left, groups), ((method, 1.0),), self._sub(right[match.end() :], groups)
                )
        raise Unreadable(right)

    def _annotated(self, text: str, inline: re.Match[str], groups: list[str]) -> list[Chosen]:
        inner = groups[int(inline[1])].strip()
        outer = " ".join((text[: inline.start()] + " " + text[inline.end() :]).split())
        for table in (_RELATIONS, _SETS):
            for pattern, calls in table:
                match = re.match(rf"(?:{pattern})(?: |$)", inner)
                if match:
                    return self._combined(self._sub(outer, groups), calls, self.read(inner[match.end() :]))
        if not outer:
            return self.read(inner)
        # "(top plate)": another name of what stands before it.
        try:
            return self._sub(outer, groups)
        except Unreadable:
            return self.read(inner)

    def _sub(self, text: str, groups: list[str]) -> list[Chosen]:
        return self.read(re.sub(r"\{(\d+)\}", lambda m: f"({groups[int(m[1])]})", text))

    def _union(self, items: list[str], groups: list[str]) -> list[Chosen]:
        terms = self._sub(items[0], groups)[:1]
        for item in items[1:]:
            terms = self._combined(terms, (("or", 1.0),), self._sub(item, groups)[:1])
        return terms

    def _combined(self, left: list[Chosen], calls: Sequence[tuple[str, float]], right: list[Chosen]) -> list[Chosen]:
        terms = []
        for a in left[:3]:
            for b in right[:3]:
                for method, weight in calls:
                    if a.term == b.term:
                        continue
                    notes = [n for n in (a.note, b.note) if n]
                    if len(calls) > 1:
                        notes.append(f"{method} for the relation of {a.term.code} to {b.term.code}")
                    terms.append(
                        Chosen(
                            a.term.call(method, b.term),
                            a.weight * b.weight * weight,
                            "; ".join(notes),
                            a.unrelated or b.unrelated,
                            a.unread + b.unread,
                        )
                    )
        if not terms:
            return left
        return _distinct(terms)

    def _atom(self, text: str) -> list[Chosen]:
        words = [
            w for w in re.findall(r"[^\s,;()]+", text) if w not in ("the", "a", "an", "any", "all", "every", "each")
        ]
        if not words:
            raise Unreadable(text)
        if words[0] == "unrelated" or words[0] == "non-related":
            return [replace(c, unrelated=True) for c in self.read(" ".join(words[1:]))]
        if set(words) & _NOT_IN_NAMES:
            raise Unreadable(" ".join(words))
        phrase = " ".join(words)
        device = self._device(phrase)
        matches = [m for m in self.lexicon.match(phrase) if m.score >= 0.45]
        content = [f for f in features(phrase) if f[0] not in "#~"]
        good = [m for m in matches if len(m.unread) * 2 <= len(content) and not any(known(u) for u in m.unread)]
        complete = [m for m in good if not m.unread]
        if device and not complete:
            return device
        both = [] if complete else self._both(words)
        if both:
            return both
        if not good:
            close = self._misspelt(words)
            if close:
                return close
            lost = matches[0].unread if matches else tuple(w for w in words if w not in FILLERS)
            raise Unreadable(" ".join(lost) or phrase)
        best = good[0].score
        terms = []
        for match in good[:4]:
            weight = math.exp((match.score - best) / 0.12)
            if weight >= 0.03:
                note = (
                    ""
                    if match.score >= 0.98 and match.name not in self.lexicon.preferred
                    else f'"{phrase}" read as {match.name}'
                )
                terms.append(Chosen(named(self.variables[match.name]), weight, note, unread=match.unread))
        total = sum(t.weight for t in terms)
        return [replace(t, weight=t.weight / total) for t in terms]

    def _misspelt(self, words: list[str]) -> list[Chosen]:
        """A word one letter away from the name of one layer only is taken for it, and the reading says so."""
        found = []
        for i, word in enumerate(words):
            near = [n for n in self.lexicon.names if len(word) >= 4 and _one_letter_off(word, n.lower())]
            near = [] if known(word) else near
            if len(near) == 1:
                rest = [*words[:i], near[0], *words[i + 1 :]]
                read = [m for m in self.lexicon.match(" ".join(rest)) if m.name == near[0] and not m.unread]
                found += [Chosen(named(self.variables[m.name]), 1.0, f'"{word}" taken for {m.name}') for m in read]
        return found[:1]

    def _both(self, words: list[str]) -> list[Chosen]:
        """Words of two layers side by side name their intersection ("n+ active")."""
        for cut in range(1, len(words)):
            halves = []
            for part in (" ".join(words[:cut]), " ".join(words[cut:])):
                found = [m for m in self.lexicon.match(part) if not m.unread]
                halves.append(found[0] if found else None)
            one, two = halves
            if one and two and one.name != two.name:
                term = named(self.variables[two.name]).call("and", named(self.variables[one.name]))
                return [Chosen(term, 1.0, f'"{" ".join(words)}" read as {two.name} and {one.name}')]
        return []

    def _device(self, phrase: str) -> list[Chosen]:
        """Parts of devices that no layer is named after: gate, channel, field poly, source/drain, taps."""

        def first(word: str) -> Term | None:
            found = [m for m in self.lexicon.match(word) if not m.unread]
            return named(self.variables[found[0].name]) if found else None

        poly, active, nwell = first("poly"), first("active"), first("nwell")
        term: Term | None = None
        if re.search(r"\b(?:gates?|channels?)\b", phrase) and poly and active:
            term = poly.call("and", active)
            kind = re.match(r"(n|p)", phrase)
            implant = first("nplus" if kind and kind[1] == "n" else "pplus")
            if kind and re.match(r"[np](?:plus|mos|fet|channel|ch)\b", phrase) and implant:
                term = term.call("and", implant)
        elif re.match(r"field[ -]?(?:poly\w*|oxide poly\w*)", phrase) and poly and active:
            term = poly.call("not", active)
        elif re.match(r"(?:source[ /]?(?:and |or )?drains?|s/d|sd)\b", phrase) and poly and active:
            term = active.call("not", poly)
        elif re.search(r"\b(?:substrate|p|p-|pwell|psub)[ -]?(?:tap|tie)s?\b", phrase) and active:
            implant = first("pplus")
            term = active.call("and", implant) if implant else None
            term = term.call("not", nwell) if term and nwell else term
        elif re.search(r"\b(?:well|n|n-|nwell)[ -]?(?:tap|tie)s?\b", phrase) and active and nwell:
            implant = first("nplus")
            term = active.call("and", implant).call("and", nwell) if implant else None
        if term is None:
            return []
        return [Chosen(term, 1.0, f'"{phrase}" read as {term.code}')]


def _one_letter_off(one: str, two: str) -> bool:
    """Whether one insertion, deletion or (in long words) exchange of a letter makes a word the other; figures count."""
    if abs(len(one) - len(two)) > 1 or one == two or re.sub(r"\D", "", one) != re.sub(r"\D", "", two):
        return False
    if len(one) == len(two) < 6:
        return False
    short, long = sorted((one, two), key=len)
    for i in range(len(long)):
        if long[:i] + long[i + 1 :] == (short if len(short) < len(long) else short[:i] + short[i + 1 :]):
            return True
    return False


def _mask(text: str) -> tuple[str, list[str]]:
    """Put ``{i}`` for each outermost pair of brackets; return the text and what the brackets hold."""
    out: list[str] = []
    groups: list[str] = []
    depth, start = 0, 0
    for i, character in enumerate(text):
        if character in "([":
            if depth == 0:
                start = i + 1
            depth += 1
        elif character in ")]" and depth:
            depth -= 1
            if depth == 0:
                out.append(f" {{{len(groups)}}} ")
                groups.append(text[start:i])
        elif depth == 0:
            out.append(character)
    if depth:
        groups.append(text[start:])
        out.append(f" {{{len(groups) - 1}}} ")
    return " ".join("".join(out).split()), groups


def _has_operator(masked: str) -> bool:
    return "{" in masked or "," in masked or any(_last_operator(masked, table) for table in (_RELATIONS, _SETS))


def _last_operator(
    text: str, table: Sequence[tuple[str, tuple[tuple[str, float], ...]]]
) -> tuple[str, tuple[tuple[str, float], ...], str] | None:
    """Split at the last operator of a table: chains group to the left."""
    best: tuple[int, int, tuple[tuple[str, float], ...]] | None = None
    for pattern, calls in table:
        for match in re.finditer(rf"(?<=[\w}}+] )(?:(?:that|which) (?:is |are )?)?(?:{pattern})(?= [\w{{@])", text):
            # Of two operators that overlap, the earlier start is the longer one ("not overlapping").
            if best is None or match.start() >= best[1] or (match.start() < best[0] and match.end() >= best[1]):
                best = (match.start(), match.end(), calls)
    if best is None:
        return None
    return text[: best[0]], best[2], text[best[1] :]


def _distinct(terms: list[Chosen]) -> list[Chosen]:
    """Merge equal terms, sort by weight, keep the first few and let their weights sum to 1."""
    merged: dict[str, Chosen] = {}
    for term in terms:
        old = merged.get(term.term.code)
        merged[term.term.code] = replace(old, weight=old.weight + term.weight) if old else term
    best = sorted(merged.values(), key=lambda c: -c.weight)[:_MOST]
    total = sum(c.weight for c in best)
    return [replace(c, weight=c.weight / total) for c in best]
