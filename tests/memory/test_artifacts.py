"""Artifacts come back as they went in, or not at all."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orienteer.errors import StoreError
from orienteer.memory.artifacts import ArtifactStore
from orienteer.memory.plain import canonical, clean, digest, plain


@settings(max_examples=60, deadline=None)
@given(data=st.one_of(st.binary(max_size=5000), st.text(max_size=2000)))
def test_round_trip(tmp_path_factory, data):
    root = tmp_path_factory.mktemp("store")
    store = ArtifactStore(root)
    sha = store.put(data)
    fresh = ArtifactStore(root)
    assert fresh.get(sha) == (data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    if isinstance(data, str):
        assert fresh.text(sha) == data
    assert store.put(data) == sha
    assert sha in fresh


def test_lone_surrogates_survive(tmp_path):
    store = ArtifactStore(tmp_path)
    assert ArtifactStore(tmp_path).text(store.put("a\ud800b\x00")) == "a\ud800b\x00"


@pytest.mark.parametrize("harm", [lambda d: d[:-3], lambda d: b"", lambda d: os.urandom(len(d))])
def test_damage_is_seen_and_mended_by_writing_again(tmp_path, harm):
    data = b"precious " * 50
    sha = ArtifactStore(tmp_path).put(data)
    path = ArtifactStore(tmp_path).path(sha)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(StoreError) as caught:
        ArtifactStore(tmp_path).get(sha)
    assert sha[:12] in caught.value.problem and caught.value.cure
    assert ArtifactStore(tmp_path).put(data) == sha
    assert ArtifactStore(tmp_path).get(sha) == data


def test_swapped_contents_are_seen(tmp_path):
    store = ArtifactStore(tmp_path)
    one, two = store.put("one"), store.put("two")
    store.path(one).write_bytes(store.path(two).read_bytes())
    with pytest.raises(StoreError, match="damaged"):
        ArtifactStore(tmp_path).get(one)


def test_missing_and_misnamed(tmp_path):
    with pytest.raises(StoreError, match="missing"):
        ArtifactStore(tmp_path).get("0" * 64)
    for name in ("", "../../etc/passwd", "A" * 64, "0" * 63):
        with pytest.raises(StoreError):
            ArtifactStore(tmp_path).get(name)


def test_disk_full_leaves_nothing(tmp_path):
    code = """
    import os, resource, sys
    from orienteer.memory.artifacts import ArtifactStore
    from orienteer.errors import StoreError
    store = ArtifactStore(sys.argv[1])
    kept = store.put("kept")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    try:
        store.put(os.urandom(100_000))
    except StoreError as exc:
        print(exc)
    print(store.put("also kept"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert "full" in done.stdout
    names = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(names) == 2
    assert all(hashlib.sha256(ArtifactStore(tmp_path).get(p.stem)).hexdigest() == p.stem for p in names)


def test_processes_write_the_same_artifact_at_once(tmp_path):
    code = """
    import sys
    from orienteer.memory.artifacts import ArtifactStore
    store = ArtifactStore(sys.argv[1])
    for i in range(200):
        assert ArtifactStore(sys.argv[1]).get(store.put(f"{i} " * 300)).startswith(str(i).encode())
    """
    started = [subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]) for _ in range(3)]
    assert [process.wait(60) for process in started] == [0] * 3
    assert len(list(tmp_path.rglob("*.zst"))) == 200
    assert not list((tmp_path / "tmp").iterdir())


def test_leavings_of_killed_writers_are_swept(tmp_path):
    (tmp_path / "tmp").mkdir()
    old, young = tmp_path / "tmp" / "old", tmp_path / "tmp" / "young"
    old.write_text("x")
    young.write_text("x")
    os.utime(old, (time.time() - 1e6,) * 2)
    ArtifactStore(tmp_path).put("y")
    assert not old.exists() and young.exists()


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_plain_data_is_left_as_it_is_and_its_digest_does_not_depend_on_order(value):
    assert plain(value) == value

    def reverse(item):
        if isinstance(item, dict):
            return {k: reverse(v) for k, v in reversed(item.items())}
        return [reverse(i) for i in item] if isinstance(item, list) else item

    assert digest(reverse(value)) == digest(value)
    canonical(value).encode("ascii")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), {1: 2}, {1, 2}, object(), [b"x"]])
def test_what_is_not_plain_is_refused_by_place(bad):
    with pytest.raises(ValueError, match=r"state\.deep\[1\]"):
        plain({"deep": [0, bad]}, "state")
    plain({"deep": [0, bad]}, lenient=True)


def test_lenient_keeps_the_meaning_of_odd_numbers():
    assert plain([float("nan"), float("inf"), -float("inf")], lenient=True) == ["NaN", "Infinity", "-Infinity"]


@given(st.text(alphabet=st.characters(), max_size=200) | st.just("\x00\ud800"))
def test_clean_text_fits_every_database(text):
    cleaned = clean(text)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
