"""The wire format between the caller, the supervisor in the sandbox and the job. Standard library only.

A frame is ``ORNT`` | uint32 header size | uint32 number of blobs | uint64 size per blob | header (UTF-8 JSON object) |
blobs | HMAC-SHA256 over all before, keyed with a secret of the job (empty on the control channel, both ends of which
are ours). A reader may be fed by hostile code: every size is checked against the limit before anything is allocated,
JSON is parsed with bounded nesting, and nothing is ever unpickled. The seal makes an accidental or partial frame
detectable; it does not keep code in the job's own process from sealing a lie (see :class:`JobResult`).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any

MAGIC = b"ORNT"
HEAD = struct.Struct("<4sII")
SEAL = 32
MAX_BLOBS = 4096
MAX_DEPTH = 64
#: Everything that cannot nest: strings, and runs of other characters.
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[^"\[\]{}]++', re.DOTALL)


class BadFrame(ValueError):
    """The bytes are not a frame: wrong magic, sizes over the limit, bad JSON, wrong seal."""


def pack(header: Mapping[str, Any], blobs: Iterable[bytes] = (), key: bytes = b"") -> bytes:
    """Return one frame.

    Raises:
        TypeError, ValueError: the header is not JSON or a blob is not bytes.
    """
    text = json.dumps(dict(header), ensure_ascii=True, separators=(",", ":")).encode()
    parts = [bytes(memoryview(blob).cast("B")) for blob in blobs]
    if len(parts) > MAX_BLOBS:
        raise ValueError(f"more than {MAX_BLOBS} blobs in one message")
    sizes = struct.pack(f"<{len(parts)}Q", *(len(part) for part in parts))
    body = b"".join([HEAD.pack(MAGIC, len(text), len(parts)), sizes, text, *parts])
    return body + hmac.digest(key, body, "sha256")


def size_needed(data: bytes | bytearray | memoryview, limit: int) -> int | None:
    """Return the whole frame's size as announced by its beginning, or ``None`` when more bytes are needed to tell.

    Raises:
        BadFrame: the beginning is not that of a frame of at most ``limit`` bytes.
    """
    if len(data) < HEAD.size:
        if not MAGIC.startswith(bytes(data[:4])):
            raise BadFrame("not a frame")
        return None
    magic, text, count = HEAD.unpack(bytes(data[: HEAD.size]))
    if magic != MAGIC:
        raise BadFrame("not a frame")
    start = HEAD.size + 8 * count
    if count > MAX_BLOBS or start + text + SEAL > limit:
        raise BadFrame("frame larger than the limit")
    if len(data) < start:
        return None
    total = start + text + SEAL + sum(struct.unpack(f"<{count}Q", bytes(data[HEAD.size : start])))
    if total > limit:
        raise BadFrame("frame larger than the limit")
    return int(total)


def unpack(data: bytes | bytearray, limit: int, key: bytes = b"") -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Return header and blobs of exactly one complete frame.

    Raises:
        BadFrame: incomplete, followed by more bytes, over ``limit``, wrong seal, or a header that is no JSON object.
    """
    total = size_needed(data, limit)
    if total is None or len(data) < total:
        raise BadFrame("incomplete frame")
    if len(data) > total:
        raise BadFrame("bytes after the frame")
    view = memoryview(data)
    digest = hmac.new(key, view[: total - SEAL], hashlib.sha256).digest()
    if not hmac.compare_digest(digest, bytes(view[total - SEAL :])):
        raise BadFrame("wrong seal")
    _, text, count = HEAD.unpack(view[: HEAD.size])
    place = HEAD.size + 8 * count
    sizes = struct.unpack(f"<{count}Q", view[HEAD.size : place])
    header = parse_json(bytes(view[place : place + text]))
    place += text
    blobs = []
    for size in sizes:
        blobs.append(bytes(view[place : place + size]))
        place += size
    return header, tuple(blobs)


def parse_json(text: bytes) -> dict[str, Any]:
    """Return the JSON object in ``text``; nesting deeper than ``MAX_DEPTH`` is refused before it is parsed.

    Raises:
        BadFrame: it is none.
    """
    depth = 0
    for byte in _STRINGS.sub(b"", text):
        if byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise BadFrame(f"JSON nested deeper than {MAX_DEPTH}")
        elif byte in b"]}":
            depth -= 1
    try:
        value = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"header is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadFrame("header is not a JSON object")
    return value
