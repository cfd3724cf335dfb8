"""Which layer a phrase names: by the words of the layers' names, with the aliases of the common processes.

A name and a phrase are both cut into features: concepts ("active" for comp, diff, od ...), figures, words as they are.
A layer's score is how much of the phrase it accounts for, and how much of its name the phrase does.
"""

# ruff: noqa: E501 (a pattern stands on one line)
from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Words of one meaning in the manuals of open processes. The first is the concept.
_SYNONYMS = """
poly polysilicon gatpoly po gc polygate pl
active comp diff diffusion activ od aa act difftap oxide-definition
contact cont co ct cnt contacts cut licon
mcon
via vias
metal met m mt
nwell nw nwel
pwell pw pwel
dnwell dnw deepnwell
dpwell dpw
pplus pp psdm psd pimp pselect psel pdiffimplant
nplus np nsdm nsd nimp nselect nsel
sab salblk salblock rpo silblock sblk sblkimp sabdraw salicideblock silicideblock
resistor res resist
dualgate dg hvi thickgateox tgo thickox thickoxide hvox gox2 dgo
esd
li li1 localinterconnect
pad passivation pass pv opening
marker mk mark mrk id marking recognition recog
capacitor cap mim capm
diode
inductor ind
fuse
text label txt
filler fill dummy
block blk
nbulay nbl nburied buriedlayer
lvtn lvt
hvtp hvt
gate
tap
"""
_CONCEPT = {word: line.split()[0] for line in _SYNONYMS.strip().splitlines() for word in line.split()}
#: Spellings in more than one word, made one word before the phrase is cut. Order counts.
_JOINED = (
    (r"\b(\w+) (?:on|over) field(?: oxide)?\b", r"field \1"),
    (r"\b(?:salicide|silicide|resist(?:or)? protect(?:ion)?)[ -]?(?:oxide )?block(?:ing|age)?\b|\bresist protect oxide\b", "sab"),
    (r"\b(?:dual|thick)[ -]?(?:gate)?[ -]?(?:oxide|ox)\b|\bdual[ -]gate\b", "dualgate"),
    (r"\bdeep[ -]?n[ -]?well\b", "dnwell"),
    (r"\bdeep[ -]?p[ -]?well\b", "dpwell"),
    (r"\b(n|p)[ -]?(?:type )?(?:select|implant|imp|plus)\b", r"\1plus"),
    (r"\b(n|p)[ -]?(?:source/drain|sd) implant\b", r"\1plus"),
    (r"\b(n|p)[ -]well\b", r"\1well"),
    (r"\blocal[ -]?interconnect\b", "li"),
    (r"\b(?:oxide definition|thin oxide|active area|active region)\b", "active"),
    (r"\bpoly(?:silicon)? gate\b|\bgate poly(?:silicon)?\b", "poly"),
    (r"\bmetal[ -]?(one|two|three|four|five|six)\b", lambda m: "metal" + str(1 + ["one", "two", "three", "four", "five", "six"].index(m[1]))),
    (r"\b(first|second|third|fourth|fifth) metal\b", lambda m: "metal" + str(1 + ["first", "second", "third", "fourth", "fifth"].index(m[1]))),
    (r"\bburied (?:layer )?n\b|\bn[ -]?buried layer\b", "nbulay"),
)  # fmt: skip
#: Words that name no layer.
_FILLERS = """
    a an the any all each every two both adjacent neighbouring neighboring parallel layer layers region
    regions area areas shape shapes polygon polygons feature features line lines drawn drawing implant
    implants edge edges mask pattern patterns structure structures geometry geometries object objects its
    their own of itself themselves side sides device devices external exterior inner outer single minimum
    maximum min max other another being is are islands island interconnect wire wires piece pieces part parts
    portion terminal electrode define defined definition
"""
FILLERS = frozenset(_FILLERS.split())


@dataclass(frozen=True)
class Match:
    """A layer that a phrase may name, its score (0 to about 1.25) and the words of the phrase it does not explain."""

    name: str
    score: float
    unread: tuple[str, ...]


def join_words(text: str) -> str:
    """Make one word of the spellings in several ("salicide block", "deep n-well")."""
    for pattern, word in _JOINED:
        text = re.sub(pattern, word, text)
    return text


def features(text: str) -> dict[str, float]:
    """Cut a name or phrase into features with their weights."""
    found: dict[str, float] = {}
    for word in re.findall(r"[^\W_]+", join_words(text.lower())):
        for feature, weight in _word_features(word).items():
            found[feature] = max(weight, found.get(feature, 0.0))
    return found


def known(word: str) -> bool:
    """Say whether a word is one of the aliases or a filler."""
    return word in FILLERS or any(w in _CONCEPT.values() for w in _word_features(word))


def _word_features(word: str) -> dict[str, float]:
    if word in FILLERS:
        return {}
    for spelling in (word, word.removesuffix("s")):
        if spelling in _CONCEPT:
            return {_CONCEPT[spelling]: 0.3 if _CONCEPT[spelling] == "marker" else 1.0}
    split = re.fullmatch(r"([a-z]+?)s?(\d+[a-z]?)", word)
    if split:
        stem = _word_features(split[1])
        # The number of a metal or via says which; elsewhere it matters little ("poly2").
        weight = 1.0 if {"metal", "via"} & set(stem) else 0.3
        return stem | {f"#{split[2]}" if weight == 1.0 else f"~{split[2]}": weight}
    if re.fullmatch(r"[nphl](?:plus)?(?:active|comp|diff|activ|poly)", word):
        # ncomp, pdiff: active of one implant.
        rest = re.sub(r"^[nphl](?:plus)?", "", word)
        return {_CONCEPT[rest]: 1.0, word[0] + "plus": 1.0}
    if re.fullmatch(r"[a-z]res", word):
        return {"resistor": 1.0, word[0]: 0.3}
    if word.isdigit():
        return {f"#{word}": 0.3}
    if len(word) > 4 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    return {word: 1.0}


class Lexicon:
    """The layers that a task has, drawn and derived, to be found by phrases.

    Args:
        names: names of layers, as they are to be returned.
        preferred: names that the task defines for this rule and uses for nothing else; a phrase that shares words with
            one of them probably means it.
        aliases: further names of layers, each with the layer it stands for.
    """

    def __init__(
        self, names: Iterable[str], preferred: Iterable[str] = (), aliases: Mapping[str, str] | None = None
    ) -> None:
        self.names = tuple(names)
        self.preferred = frozenset(preferred)
        self._spellings = [(name, name) for name in self.names] + [(a, n) for a, n in (aliases or {}).items()]
        self._features = [(name, spelling.lower(), features(spelling)) for spelling, name in self._spellings]

    def match(self, phrase: str) -> list[Match]:
        """Score the layers that share a word with the phrase, best first."""
        phrase = " ".join(phrase.lower().split())
        wanted = features(phrase)
        if not wanted:
            return []
        best: dict[str, Match] = {}
        for name, spelling, have in self._features:
            match = _score(name, phrase, wanted, spelling, have)
            if match is None:
                continue
            if name in self.preferred:
                match = Match(match.name, match.score + 0.3, match.unread)
            if name not in best or best[name].score < match.score:
                best[name] = match
        return sorted(best.values(), key=lambda m: (-m.score, self.names.index(m.name)))


def _score(name: str, phrase: str, wanted: dict[str, float], spelling: str, have: dict[str, float]) -> Match | None:
    if phrase in (spelling, re.sub(r"\W|_", " ", spelling)) or phrase.replace(" ", "") == re.sub(r"\W|_", "", spelling):
        return Match(name, 1.0, ())
    shared = {f for f in wanted if f in have}
    for feature in wanted.keys() - shared:
        # "resist" for "resistor", "mcell" for "mcells": a long common beginning is enough.
        if len(feature) >= 4 and any(h.startswith(feature) or (len(h) >= 4 and feature.startswith(h)) for h in have):
            shared.add(feature)
    if not any(f[0] not in "#~" and wanted[f] >= 0.3 for f in shared):
        return None
    figures = [{f for f in side if f[0] == "#"} for side in (wanted, have)]
    if all(figures) and not figures[0] & figures[1]:
        return None  # "metal2" is not metal1; a bare "metal" may be either
    covered = sum(w for f, w in wanted.items() if f in shared) / sum(wanted.values())
    named = sum(w for f, w in have.items() if f in shared) / sum(have.values())
    unread = tuple(f for f in wanted if f not in shared and f[0] not in "#~")
    return Match(name, 0.6 * covered + 0.38 * named, unread)
