"""A stream of frames between the caller and the supervisor, with open files handed along where it is a Unix socket.

Both ends are ours. All waiting is in slices so that the caller's ``check`` (deadline, cancellation, death of the
process) is asked at least ten times a second; nothing blocks for ever on a peer that stopped. Standard library only.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orienteer.environments.execution import frames

#: No frame on a control channel is larger than this.
MAX_FRAME = 4 << 30
SLICE_S = 0.05


class Channel:
    """Frames over one socket, or over a pair of pipes (then no open files can travel)."""

    def __init__(self, read_fd: int, write_fd: int, *, sock: bool) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._socket = socket.socket(fileno=os.dup(read_fd)) if sock else None
        for fd in {read_fd, write_fd}:
            os.set_blocking(fd, False)

    @classmethod
    def over(cls, sock: socket.socket) -> Channel:
        """Return a channel that takes the socket over."""
        fd = sock.detach()
        return cls(fd, fd, sock=True)

    def close(self) -> None:
        """Close both directions: the peer reads end of file."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
        for fd in {self.read_fd, self.write_fd}:
            with contextlib.suppress(OSError):
                os.close(fd)

    def send(
        self,
        header: Mapping[str, Any],
        blobs: Iterable[bytes] = (),
        fds: Iterable[int] = (),
        check: Callable[[], None] | None = None,
    ) -> None:
        """Send one frame.

        Raises:
            OSError: the peer is gone.
        """
        data = memoryview(frames.pack(header, blobs))
        handed = array.array("i", fds)
        place = 0
        while place < len(data):
            if check is not None:
                check()
            if not _ready(self.write_fd, select.POLLOUT):
                continue
            try:
                piece = data[place : place + (1 << 20)]
                if self._socket is not None and handed:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handed)]
                    place += self._socket.sendmsg([piece[:1]], rights)
                    handed = array.array("i")
                elif self._socket is not None:
                    place += self._socket.send(piece, socket.MSG_NOSIGNAL)
                else:
                    place += os.write(self.write_fd, piece)
            except (BlockingIOError, InterruptedError):
                continue

    def receive(
        self, check: Callable[[], None] | None = None, limit: int = MAX_FRAME
    ) -> tuple[dict[str, Any], tuple[bytes, ...], list[int]]:
        """Return header, blobs and open files of the next frame.

        Raises:
            EOFError: the peer closed or died.
            frames.BadFrame: what came is no frame.
        """
        data = bytearray()
        fds: list[int] = []
        try:
            self._fill(data, frames.HEAD.size, fds, check)
            _, _, count = frames.HEAD.unpack(data)
            frames.size_needed(data, limit)
            self._fill(data, frames.HEAD.size + 8 * count, fds, check)
            total = frames.size_needed(data, limit)
            assert total is not None
            self._fill(data, total, fds, check)
            header, blobs = frames.unpack(data, limit)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return header, blobs, fds

    def _fill(self, data: bytearray, size: int, fds: list[int], check: Callable[[], None] | None) -> None:
        while len(data) < size:
            if check is not None:
                check()
            if not _ready(self.read_fd, select.POLLIN):
                continue
            try:
                if self._socket is not None:
                    room = socket.CMSG_SPACE(8 * struct.calcsize("i"))
                    piece, extra, _, _ = self._socket.recvmsg(min(size - len(data), 1 << 20), room)
                    for level, kind, content in extra:
                        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                            whole = array.array("i")
                            whole.frombytes(content[: len(content) - len(content) % whole.itemsize])
                            fds.extend(whole)
                else:
                    piece = os.read(self.read_fd, min(size - len(data), 1 << 20))
            except (BlockingIOError, InterruptedError):
                continue
            except ConnectionError:
                raise EOFError("the other end is gone") from None
            if not piece:
                raise EOFError("the other end is gone")
            data += piece


def _ready(fd: int, events: int) -> bool:
    poll = select.poll()
    poll.register(fd, events)
    return bool(poll.poll(int(SLICE_S * 1000)))
