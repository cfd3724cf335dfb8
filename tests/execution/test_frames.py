import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.environments.execution import frames

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
HEADERS = st.dictionaries(st.text(), PLAIN, max_size=4)
LIMIT = 1 << 20


@given(HEADERS, st.lists(st.binary(max_size=200), max_size=5), st.binary(max_size=40))
def test_what_is_packed_is_unpacked(header, blobs, key):
    data = frames.pack(header, blobs, key)
    assert frames.size_needed(data, LIMIT) == len(data)
    assert frames.unpack(data, LIMIT, key) == (header, tuple(blobs))


@given(HEADERS, st.lists(st.binary(max_size=50), max_size=3), st.data())
def test_any_change_cut_or_addition_is_refused(header, blobs, data):
    frame = bytearray(frames.pack(header, blobs, b"key"))
    change = data.draw(st.sampled_from(["flip", "cut", "add", "key"]))
    key = b"key"
    if change == "flip":
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    elif change == "cut":
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    elif change == "add":
        frame += data.draw(st.binary(min_size=1, max_size=20))
    else:
        key = b"other"
    with pytest.raises(frames.BadFrame):
        frames.unpack(frame, LIMIT, key)


@given(st.binary(max_size=300))
def test_junk_is_refused_without_another_error(junk):
    with pytest.raises(frames.BadFrame):
        frames.unpack(junk, LIMIT)


def test_announced_sizes_are_checked_before_anything_is_read():
    for head in (
        frames.HEAD.pack(b"ORNT", 0xFFFFFFFF, 0),
        frames.HEAD.pack(b"ORNT", 2, 0xFFFFFFFF),
        frames.HEAD.pack(b"ORNT", 2, 1) + struct.pack("<Q", 1 << 63),
    ):
        with pytest.raises(frames.BadFrame):
            frames.size_needed(head, LIMIT)


@pytest.mark.parametrize("text", [b"[" * 70 + b"]" * 70, b"[]", b"1", b"{", b"\xff", b'{"a":' * 70 + b"1" + b"}" * 70])
def test_headers_that_are_no_flat_object_are_refused(text):
    with pytest.raises(frames.BadFrame):
        frames.parse_json(text)


@given(PLAIN)
def test_parse_agrees_with_json(value):
    text = json.dumps({"v": value}).encode()
    assert frames.parse_json(text) == json.loads(text)
