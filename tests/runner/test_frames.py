"""Frames on a stream: whole, or none."""

from __future__ import annotations

import socket
import threading

import pytest

from mha_lint.runner.frames import LONGEST, ClosedError, receive, send


def test_frames_arrive_one_by_one_as_they_were_sent() -> None:
    one, other = socket.socketpair()
    frames = [b"", b"a", bytes(range(256)) * 10_000]
    sender = threading.Thread(target=send, args=(one, *frames))
    with one, other:
        sender.start()
        assert [receive(other) for _ in frames] == frames
        sender.join()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\5ab"])
def test_an_end_in_the_middle_is_told(sent: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(sent)
        one.close()
        with pytest.raises(ClosedError):
            receive(other)


def test_a_length_beyond_all_measure_is_no_frame() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall((LONGEST + 1).to_bytes(4, "big"))
        with pytest.raises(ClosedError, match=f"a frame of {LONGEST + 1} bytes"):
            receive(other)


def test_to_send_to_nobody_is_told() -> None:
    one, other = socket.socketpair()
    other.close()
    with one, pytest.raises(ClosedError):
        send(one, b"x" * 1_000_000)
