"""Content-addressed store for everything that is too big for a database row: sources, prompts, replies, logs.

An artifact is named by the SHA-256 of its bytes and kept zstd-compressed at ``ab/<sha>.zst``. It appears whole or
not at all (temporary file, fsync, rename), and is checked against its name whenever it is read.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from orienteer.errors import StoreError
from orienteer.memory.faults import from_os

_SHA = re.compile(r"[0-9a-f]{64}")
_LEVEL = 3
#: Temporary files older than this belong to nobody any more (seconds).
_STALE = 24 * 3600.0
_COUNTER = itertools.count()


class ArtifactStore:
    """A folder of artifacts; safe to share between threads and processes.

    Args:
        path: the folder; made at the first write.
        cache_bytes: how many bytes of recently used content stay in memory.
        durable: fsync every artifact and its folder before the name is given out.
    """

    def __init__(self, path: str | Path, *, cache_bytes: int = 16 << 20, durable: bool = True) -> None:
        self.root = Path(path)
        self._durable = durable
        self._local = threading.local()
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._cache_bytes = cache_bytes
        self._cached = 0
        self._made: set[Path] = set()
        self._swept = False

    def put(self, data: bytes | str, media: str = "application/octet-stream") -> str:
        """Keep the data and return its SHA-256 in hex. Text is kept as UTF-8; lone surrogates survive.

        ``media`` is for the caller's records; the same bytes are one artifact whatever they are called.

        Raises:
            StoreError: the disk is full, read-only or otherwise refuses; nothing half-written is left.
        """
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        sha = hashlib.sha256(raw).hexdigest()
        if self._recall(sha) is not None:
            return sha
        path = self.path(sha)
        try:
            # An existing file is believed only after a look: writing again mends one that a dying disk spoiled.
            if not (path.exists() and self._read(sha, path) == raw):
                self._write(path, raw)
        except StoreError:
            self._write(path, raw)
        except OSError as exc:
            raise from_os(exc, f"the artifact store {self.root}") from exc
        self._remember(sha, raw)
        return sha

    def get(self, sha: str) -> bytes:
        """Return the bytes of an artifact, verified.

        Raises:
            StoreError: there is none, or it is damaged.
        """
        known = self._recall(sha)
        if known is not None:
            return known
        raw = self._read(sha, self.path(sha))
        self._remember(sha, raw)
        return raw

    def text(self, sha: str) -> str:
        """Return an artifact as text (UTF-8, lone surrogates kept, undecodable bytes replaced)."""
        raw = self.get(sha)
        try:
            return raw.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return raw.decode("utf-8", "replace")

    def path(self, sha: str) -> Path:
        """Return where an artifact is (or would be) kept; the file there is zstd-compressed."""
        if not _SHA.fullmatch(sha):
            raise StoreError(f"{sha!r} is not the name of an artifact", "give the 64 hex digits of a SHA-256")
        return self.root / sha[:2] / f"{sha}.zst"

    def __contains__(self, sha: str) -> bool:
        return self.path(sha).exists()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _read(self, sha: str, path: Path) -> bytes:
        import zstandard

        try:
            packed = path.read_bytes()
        except FileNotFoundError as exc:
            raise StoreError(
                f"artifact {sha[:12]} is missing from {self.root}", "restore the store or run again"
            ) from exc
        except OSError as exc:
            raise from_os(exc, f"artifact {sha[:12]} in {self.root}") from exc
        try:
            decompressor = self._tool("unpack", zstandard.ZstdDecompressor)
            raw: bytes = decompressor.decompress(packed)
        except (zstandard.ZstdError, MemoryError) as exc:
            raise self._damaged(sha, path) from exc
        if hashlib.sha256(raw).hexdigest() != sha:
            raise self._damaged(sha, path)
        return raw

    def _damaged(self, sha: str, path: Path) -> StoreError:
        return StoreError(
            f"artifact {sha[:12]} is damaged", f"restore {path} from a backup, or delete it and run again"
        )

    def _write(self, path: Path, raw: bytes) -> None:
        import zstandard

        packed = self._tool("pack", lambda: zstandard.ZstdCompressor(level=_LEVEL)).compress(raw)
        temporary = self.root / "tmp" / f"{os.getpid()}-{next(_COUNTER)}-{secrets.token_hex(4)}"
        try:
            self._folder(temporary.parent)
            self._sweep(temporary.parent)
            fresh = self._folder(path.parent)
            try:
                with temporary.open("xb", buffering=0) as file:
                    rest = memoryview(packed)
                    while rest:
                        rest = rest[file.write(rest) :]
                    if self._durable:
                        os.fsync(file.fileno())
                # Two writers of one artifact write the same bytes: whoever renames last changes nothing.
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
            if self._durable:
                _sync_folder(path.parent)
                if fresh:
                    _sync_folder(path.parent.parent)
        except OSError as exc:
            raise from_os(exc, f"the artifact store {self.root}") from exc

    def _folder(self, path: Path) -> bool:
        if path in self._made:
            return False
        fresh = not path.is_dir()
        path.mkdir(parents=True, exist_ok=True)
        self._made.add(path)
        return fresh

    def _sweep(self, folder: Path) -> None:
        """Remove what killed processes left behind, once per store."""
        if self._swept:
            return
        self._swept = True
        oldest = time.time() - _STALE
        for entry in os.scandir(folder):
            try:
                if entry.stat().st_mtime < oldest:
                    Path(entry.path).unlink()
            except FileNotFoundError:
                continue

    def _tool(self, name: str, make: Callable[[], Any]) -> Any:
        # zstandard's objects are fast to reuse and not safe to share between threads.
        tool = getattr(self._local, name, None)
        if tool is None:
            tool = make()
            setattr(self._local, name, tool)
        return tool

    def _recall(self, sha: str) -> bytes | None:
        with self._lock:
            raw = self._cache.get(sha)
            if raw is not None:
                self._cache.move_to_end(sha)
            return raw

    def _remember(self, sha: str, raw: bytes) -> None:
        if len(raw) > self._cache_bytes // 4:
            return
        with self._lock:
            if sha in self._cache:
                return
            self._cache[sha] = raw
            self._cached += len(raw)
            while self._cached > self._cache_bytes:
                self._cached -= len(self._cache.popitem(last=False)[1])


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
