"""Frames on a stream: four bytes of length, then as many bytes."""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct(">I")
LONGEST = 1 << 28


class ClosedError(ConnectionError):
    """The other end has closed the stream."""


def send(stream: socket.socket, *frames: bytes) -> None:
    """Send `frames`, all of them.

    Raises:
        ClosedError: the other end is gone.
    """
    try:
        stream.sendall(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))
    except OSError as error:
        raise ClosedError from error


def receive(stream: socket.socket) -> bytes:
    """Return the next frame.

    Raises:
        ClosedError: the stream ended, also in the middle of a frame.
    """
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > LONGEST:
        raise ClosedError(f"a frame of {length} bytes")
    return _exactly(stream, length)


def _exactly(stream: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        try:
            part = stream.recv(min(count, 1 << 20))
        except ConnectionError as error:
            raise ClosedError from error
        if not part:
            raise ClosedError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
