"""The admin server against clients that do wrong: probes are answered, memory and log stay bounded, MQTT goes on."""

from __future__ import annotations

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from folkmoot.config.settings import AdminSettings
from folkmoot.mqtt.packet import PUBACK, Pingreq, Pingresp, Publish
from tests.integration.serving import RawClient, Serving, await_true

ANY = "127.0.0.1:0"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("node") / "data"
    with Serving(data, "--mqtt", ANY, "--admin", ANY, "--stream", "s=s/#") as node:
        yield node
        assert node.stop() == 0, node.log()


def open_one(serving: Serving) -> socket.socket:
    return socket.create_connection(serving.places["admin"], timeout=20)


def status(serving: Serving, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{serving.port('admin')}{path}", timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("said", [b"", b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\n"])
def test_who_holds_connections_and_asks_nothing_locks_nobody_out(serving: Serving, said: bytes) -> None:
    silent = [open_one(serving) for _ in range(AdminSettings().connections_max + 20)]
    for one in silent:
        with contextlib.suppress(ConnectionError):  # it may have been closed in favour of another one
            one.sendall(said)
    try:
        for _ in range(5):
            assert status(serving, "/health/ready") == 200
            assert status(serving, "/metrics") == 200
    finally:
        for one in silent:
            one.close()


def test_a_head_without_end_is_cut_off(serving: Serving) -> None:
    before = serving.memory_bytes()
    with open_one(serving) as one:
        one.sendall(b"GET / HTTP/1.1\r\nX: ")
        with pytest.raises(OSError):  # noqa: PT012 - any of the writes may fail
            for _ in range(400):
                one.sendall(bytes(65_536).replace(b"\0", b"a"))
    assert serving.memory_bytes() - before < 8 << 20


def test_a_body_that_comes_together_with_its_head_is_no_head_without_end(serving: Serving) -> None:
    """A node that has other things to do reads both at once, and as much as the socket holds."""
    with open_one(serving) as one:
        for _ in range(2):  # of a connection that is kept
            body = b"{" + bytes(200_000)
            head = (
                f"PUT /api/v1/transactions/a/0/p/0 HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            one.sendall(head.encode() + body)
            answer = HTTPResponse(one)
            answer.begin()
            assert 400 <= answer.status < 500
            assert b"error" in answer.read()


def test_nonsense_fills_no_log(serving: Serving) -> None:
    for _ in range(200):
        with open_one(serving) as one:
            one.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            one.recv(1000)
    lines = [line for line in serving.log().splitlines() if "nvalid HTTP" in line]
    assert 1 <= len(lines) < 100
    assert all(" WARNING http " in f" {' '.join(line.split())} " for line in lines)
    assert "Traceback" not in serving.log()


def test_readers_of_large_pages_leave_room_for_others(serving: Serving) -> None:
    """A page as lines takes a quarter of a second to write; who pings meanwhile does not wait for all of it."""
    with RawClient(serving) as client:
        client.connect("p", clean=True, session_s=0)
        for start in range(0, 12_000, 1000):
            client.send(*[Publish(b"s/1", bytes(100), 1, False, False, start + at + 1) for at in range(1000)])
            for _ in range(1000):
                client.expect_ack(PUBACK)
        place = f"/api/v1/streams/s/partitions/{busiest(serving)}/records?from=0&max_bytes=4194304"
        with open_one(serving) as one:
            one.sendall(f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n".encode())
            one.setblocking(False)
            pings = 0
            while True:
                client.send(Pingreq())
                assert isinstance(client.receive(), Pingresp)
                pings += 1
                try:
                    one.recv(1, socket.MSG_PEEK)
                    break
                except BlockingIOError:
                    continue
    assert pings > 12_000 // 64 // 4, "the loop was held while the page was written"


def busiest(serving: Serving) -> int:
    found: list[int] = []

    def look() -> bool:
        place = f"http://127.0.0.1:{serving.port('admin')}/api/v1/streams/s/offsets?time_us=9000000000000000"
        with urllib.request.urlopen(place, timeout=20) as answer:
            found[:] = json.load(answer)["offsets"].values()
        return max(found) >= 12_000

    await_true(look)
    return found.index(max(found))


@pytest.mark.parametrize("token", ["", "a-token-of-the-tests"])
def test_a_client_that_closes_when_it_has_its_answer_leaves_nothing(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text("a-token-of-the-tests")
    config = f'[admin]\nconnections_per_address_max = 4\ntoken_file = "{tmp_path / "token"}"\n'
    with Serving(tmp_path / "data", "--mqtt", ANY, "--admin", ANY, config=config) as node:
        for _ in range(40):
            connection = HTTPConnection("127.0.0.1", node.port("admin"), timeout=20)
            headers = {"authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", "/api/v1/status" if token else "/health/live", headers=headers)
            assert connection.getresponse().read()
            connection.close()
        assert "too many connections" not in node.log()
