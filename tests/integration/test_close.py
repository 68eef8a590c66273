"""Closing in order: a client that is still sending reads why it is disconnected, and then the end of the stream.

A socket that is closed while bytes of the peer are unread makes the system send a reset, which discards the last bytes
of the server. Each client here sends what the node does not take, and reads the answer only after that.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import Connack, Connect, Disconnect, Packet, Publish
from folkmoot.runtime.drain import LINGER_BYTES_MAX, LINGER_S
from tests.harness import wire
from tests.integration.serving import WAIT_S, RawClient, Serving, await_true, client_context, tls_arguments

ANY = "127.0.0.1:0"
PIECE = bytes(1 << 16)
PIECES = 64  # 4 MiB
WRONG = wire.packet(0x20, b"\0\0\0")  # CONNACK from a client
TRANSPORTS = pytest.mark.parametrize("name", ["mqtt", "mqtts"])
WEB = pytest.mark.parametrize("name", ["ws", "wss"])


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    config = '[limits]\npacket_bytes_max = "64KiB"\npublish_rate_max = 10\n'
    listeners = ["--mqtt", ANY, "--mqtts", ANY, "--ws", ANY, "--wss", ANY, "--admin", ANY]
    data = tmp_path_factory.mktemp("node") / "data"
    with Serving(data, *listeners, *tls_arguments(), config=config) as node:
        yield node
        assert node.stop() == 0, node.log()


def dial(serving: Serving, name: str) -> socket.socket:
    """Connect, with TLS where the listener has it."""
    return secured(socket.create_connection(serving.places[name], WAIT_S), name)


def secured(sock: socket.socket, name: str) -> socket.socket:
    """Begin TLS where the listener has it; then an end of the stream without close_notify is an error."""
    if name not in ("mqtts", "wss"):
        return sock
    return client_context().wrap_socket(sock, server_hostname="localhost", suppress_ragged_eofs=False)


class Client(RawClient):
    """An MQTT client that tells a reset from the end of the stream."""

    def __init__(self, serving: Serving, name: str = "mqtt", version: int = 5) -> None:
        super().__init__(serving, name, version)
        self.socket = secured(self.socket, name)

    def push(self, pieces: int = PIECES) -> None:
        """Send more than the node takes; wait now and then, so that it could close."""
        for number in range(pieces):
            self.socket.sendall(PIECE)
            if number % 16 == 0:
                time.sleep(0.05)

    def rest(self) -> list[Packet]:
        """Return all packets up to the end of the stream."""
        return [decode(first, body, self.version) for first, body in self.framer.feed(read_to_end(self.socket))]


class WebClient:
    """A WebSocket without a thread of its own: it reads only when it is told to."""

    def __init__(self, serving: Serving, name: str, path: str = "/mqtt") -> None:
        self.socket = dial(serving, name)
        self.protocol = ClientProtocol(parse_uri(f"ws://localhost{path}"), subprotocols=[Subprotocol("mqtt")])
        self.protocol.send_request(self.protocol.connect())
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(b"".join(self.protocol.data_to_send()))

    def receive(self) -> list[object]:
        self.protocol.receive_data(self.socket.recv(1 << 16))
        return list(self.protocol.events_received())

    def connect(self, client_id: str) -> None:
        assert isinstance(self.receive()[0], Response)
        self.protocol.send_binary(encode(Connect(5, client_id, True), 5))
        self.flush()
        assert isinstance(self.receive()[0], Frame)

    def push(self) -> None:
        for number in range(PIECES):
            self.protocol.send_binary(PIECE)
            self.flush()
            if number % 16 == 0:
                time.sleep(0.05)

    def rest(self) -> list[object]:
        """Return all events up to the end of the stream, having answered the close."""
        found: list[object] = []
        self.socket.settimeout(WAIT_S)
        while data := self.socket.recv(1 << 16):
            self.protocol.receive_data(data)
            found += self.protocol.events_received()
            answer = b"".join(self.protocol.data_to_send())
            if answer:
                self.socket.sendall(answer)
        self.protocol.receive_eof()
        return found


def read_to_end(sock: socket.socket) -> bytes:
    """Return all bytes up to the end of the stream; a reset is an error."""
    sock.settimeout(WAIT_S)
    found = b""
    while data := sock.recv(1 << 16):
        found += data
    return found


@TRANSPORTS
@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_breaks_a_rule_and_goes_on_sending(serving: Serving, name: str, version: int) -> None:
    with Client(serving, name, version) as client:
        client.connect(f"wrong-{name}-{version}", clean=True, session_s=0)
        client.send(WRONG)
        client.push()
        codes = [packet.code for packet in client.rest() if isinstance(packet, Disconnect)]
    assert codes == ([0x82] if version == 5 else [])


@TRANSPORTS
def test_a_client_that_is_refused_and_goes_on_sending(serving: Serving, name: str) -> None:
    with Client(serving, name) as client:
        client.send(Connect(5, "x" * 2000, True))
        client.push()
        (answer,) = client.rest()
    assert isinstance(answer, Connack)
    assert answer.code == 0x85


@TRANSPORTS
def test_a_client_whose_packet_is_too_large_and_that_sends_it_all(serving: Serving, name: str) -> None:
    with Client(serving, name) as client:
        client.connect(f"large-{name}", clean=True, session_s=0)
        client.send(b"\x30\x80\x80\x80\x02")  # 4 MiB are announced
        client.push()
        (answer,) = client.rest()
    assert isinstance(answer, Disconnect)
    assert answer.code == 0x95


@TRANSPORTS
def test_a_publisher_that_is_not_read_and_is_taken_over(serving: Serving, name: str) -> None:
    """It is above its rate: the node has stopped reading it when another client takes its session."""
    with Client(serving, name) as client, Client(serving) as other:
        client.connect(f"busy-{name}", clean=True, session_s=0)
        packet = encode(Publish(b"busy", bytes(60_000)), 5)
        client.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(1000):
                client.socket.sendall(packet)
        other.connect(f"busy-{name}", clean=True, session_s=0)
        if name == "mqtt":  # TLS cannot go on in the middle of a record
            client.push(16)
        codes = [answer.code for answer in client.rest() if isinstance(answer, Disconnect)]
    assert codes == [0x8E]


@WEB
def test_a_client_of_websocket_that_breaks_a_rule_and_goes_on_sending(serving: Serving, name: str) -> None:
    client = WebClient(serving, name)
    with client.socket:
        client.connect(f"wrong-{name}")
        client.protocol.send_binary(WRONG)
        client.push()
        frames = [event for event in client.rest() if isinstance(event, Frame)]
        assert [frame.opcode for frame in frames] == [Opcode.BINARY, Opcode.CLOSE]
        assert frames[0].data[0] == 0xE0
        assert client.protocol.close_code == CloseCode.NORMAL_CLOSURE


@WEB
def test_a_client_of_websocket_that_sends_text_and_goes_on_sending(serving: Serving, name: str) -> None:
    client = WebClient(serving, name)
    with client.socket:
        client.connect(f"text-{name}")
        client.protocol.send_text(b"hello")
        client.push()
        client.rest()
        assert client.protocol.close_code == CloseCode.UNSUPPORTED_DATA


@WEB
def test_an_upgrade_that_is_refused_while_more_comes(serving: Serving, name: str) -> None:
    client = WebClient(serving, name, "/other")
    with client.socket:
        time.sleep(0.1)  # what comes with the request itself is an error of its own
        for _ in range(PIECES):
            client.socket.sendall(PIECE)
            time.sleep(0.002)
        (answer,) = [event for event in client.rest() if isinstance(event, Response)]
        assert answer.status_code == 404


def test_a_request_of_the_admin_server_that_is_refused_before_its_body_has_come(serving: Serving) -> None:
    with dial(serving, "admin") as sock:
        head = "POST /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Length: {PIECES * len(PIECE)}\r\n\r\n"
        sock.sendall(head.encode())
        for _ in range(PIECES):
            sock.sendall(PIECE)
            time.sleep(0.002)
        assert read_to_end(sock).startswith(b"HTTP/1.1 404")


def test_a_client_that_never_stops_sending_is_cut_off(serving: Serving) -> None:
    with Client(serving) as client:
        client.connect("endless", clean=True, session_s=0)
        client.send(WRONG)
        sent = 0
        with pytest.raises(ConnectionError):  # noqa: PT012 - any of the writes may fail
            while sent < 4 * LINGER_BYTES_MAX:
                client.socket.sendall(PIECE)
                sent += len(PIECE)
        assert sent > LINGER_BYTES_MAX // 2


def test_a_client_that_does_not_close_is_cut_off(serving: Serving) -> None:
    begun = time.monotonic()
    with Client(serving) as client:
        client.connect("stays", clean=True, session_s=0)
        client.send(WRONG)
        assert len(client.rest()) == 1
        client.socket.settimeout(WAIT_S)

        def cut() -> bool:
            try:
                client.socket.sendall(b"x")
            except ConnectionError:
                return True
            return False

        await_true(cut)
    assert 0.9 * LINGER_S < time.monotonic() - begun < LINGER_S + 5


def test_a_stop_is_told_to_clients_that_send_and_waits_for_none_that_does_not_close(tmp_path: Path) -> None:
    config = "[limits]\npublish_rate_max = 10\n"
    with (
        Serving(tmp_path / "data", "--mqtt", ANY, config=config) as node,
        Client(node) as sender,
        Client(node) as idle,
    ):
        sender.connect("sender", clean=True, session_s=0)
        idle.connect("idle", clean=True, session_s=0)
        packet = encode(Publish(b"busy", bytes(60_000)), 5)
        sender.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            for _ in range(1000):
                sender.socket.sendall(packet)
        begun = time.monotonic()
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        assert [answer.code for answer in sender.rest() if isinstance(answer, Disconnect)] == [0x8B]
        sender.socket.close()
        assert node.process.wait(WAIT_S) == 0
        assert time.monotonic() - begun < LINGER_S, "a client that does not close holds the end up"
        assert [answer.code for answer in idle.rest() if isinstance(answer, Disconnect)] == [0x8B]
