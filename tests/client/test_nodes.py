"""Answers that no node sends: endless, cut short, one byte at a time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from folkmoot.client import nodes
from folkmoot.client.nodes import Nodes
from folkmoot.client.problem import BadAnswer, Unreachable


@contextlib.contextmanager
def stranger(*parts: bytes, endless: bool = False) -> Iterator[str]:
    """A server that answers each request with some bytes, the last of them again and again if `endless`."""

    def answer(one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            one.recv(65_536)
            for part in parts:
                one.sendall(part)
            while endless:
                one.sendall(parts[-1])

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_an_endless_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "ANSWER_BYTES_MAX", 4 << 20)
    with (
        stranger(b"HTTP/1.1 200 OK\r\n\r\n", bytes(65_536), endless=True) as url,
        pytest.raises(BadAnswer, match="more than 4194304 bytes"),
    ):
        Nodes([url], None, 0.0, 5.0).get("/api/v1/status", {})


def test_an_answer_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "BODY_S", 0.0)
    monkeypatch.setattr(nodes, "BODY_RATE_MIN", 1e9)
    with (
        stranger(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" ", endless=True) as url,
        pytest.raises(BadAnswer, match="too slowly"),
    ):
        Nodes([url], None, 0.0, 5.0).get("/api/v1/status", {})


def test_half_an_answer_is_none() -> None:
    with stranger(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"{}") as url, pytest.raises(Unreachable):
        Nodes([url], None, 0.0, 5.0).get("/api/v1/status", {})


def test_headers_without_end_are_refused() -> None:
    with stranger(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n", endless=True) as url, pytest.raises(Unreachable):
        Nodes([url], None, 0.0, 5.0).get("/api/v1/status", {})
