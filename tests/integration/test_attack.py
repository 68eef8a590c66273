"""Clients that do wrong: they are closed in time and with the right reason, and nobody else notices."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import PUBACK, Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Subscribe
from tests.harness import wire
from tests.integration.serving import WAIT_S, RawClient, Serving, await_true, client_context, tls_arguments

ANY = "127.0.0.1:0"
CONNECT_TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    config = '[limits]\nconnect_timeout = "1s"\npacket_bytes_max = "64KiB"\nsend_buffer_bytes_max = "256KiB"\n'
    listeners = ["--mqtt", ANY, "--mqtts", ANY, "--ws", ANY, "--wss", ANY]
    data = tmp_path_factory.mktemp("node") / "data"
    with Serving(data, *listeners, *tls_arguments(), config=config) as node:
        yield node
        assert node.stop() == 0, node.log()


@pytest.fixture(autouse=True)
def bystander(serving: Serving) -> Iterator[RawClient]:
    """A client that minds its own business: after each attack it is still served."""
    with RawClient(serving) as client:
        client.connect("bystander", clean=True, session_s=0)
        yield client
        client.send(Pingreq(), Publish(b"own/business", b"x", 1, False, False, 1))
        assert isinstance(client.receive(), Pingresp)
        assert client.expect_ack(PUBACK).packet_id == 1


@pytest.mark.parametrize("transport", ["mqtt", "mqtts", "ws", "wss"])
def test_who_says_nothing_is_closed(serving: Serving, transport: str) -> None:
    begun = time.monotonic()
    with socket.create_connection(serving.places[transport], WAIT_S) as quiet:
        quiet.settimeout(10)
        try:
            assert quiet.recv(100) == b""
        except ConnectionError:
            pass
    assert 0.5 * CONNECT_TIMEOUT_S < time.monotonic() - begun < 5 * CONNECT_TIMEOUT_S


def test_who_connects_a_byte_at_a_time_is_closed_too(serving: Serving) -> None:
    connect = wire.connect(5, wire.text("slow" * 40))
    begun = time.monotonic()
    with RawClient(serving) as client:
        with pytest.raises(OSError):  # noqa: PT012 - any of the writes may fail
            for byte in connect:
                client.send(bytes([byte]))
                time.sleep(0.05)
        assert time.monotonic() - begun < 5 * CONNECT_TIMEOUT_S


def test_a_tls_client_that_never_sends_connect_is_closed(serving: Serving) -> None:
    with RawClient(serving, "mqtts", context=client_context()) as client:
        assert client.closed(5 * CONNECT_TIMEOUT_S)


def test_a_websocket_upgrade_that_never_ends_is_closed(serving: Serving) -> None:
    with socket.create_connection(serving.places["ws"], WAIT_S) as sock:
        sock.sendall(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n")
        sock.settimeout(5 * CONNECT_TIMEOUT_S)
        assert sock.recv(1000) == b""


@pytest.mark.parametrize("transport", ["mqtt", "mqtts", "ws", "wss"])
def test_noise_is_closed(serving: Serving, transport: str) -> None:
    for seed in range(5):
        with socket.create_connection(serving.places[transport], WAIT_S) as sock:
            sock.settimeout(5 * CONNECT_TIMEOUT_S)
            try:
                sock.sendall(bytes((seed * 31 + at * 7) % 256 for at in range(5000)))
                while sock.recv(1000):
                    pass
            except ConnectionError:
                pass


def test_plain_mqtt_on_a_tls_port_and_the_other_way_round(serving: Serving) -> None:
    with RawClient(serving) as client, pytest.raises((ssl.SSLError, OSError)):
        client_context().wrap_socket(client.socket, server_hostname="localhost")
    with socket.create_connection(serving.places["mqtts"], WAIT_S) as sock:
        sock.settimeout(5 * CONNECT_TIMEOUT_S)
        sock.sendall(wire.connect(5, wire.text("plain")))
        try:
            while sock.recv(1000):
                pass
        except ConnectionError:
            pass


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wire.publish(5, "a", b"x", first=0x36, packet_id=1), 0x81),  # QoS 3
        (wire.packet(0xA2, b"\0\1"), 0x81),  # UNSUBSCRIBE without a filter
        (b"\x30\xff\xff\xff\xff\x01", 0x81),  # a length of five bytes
        (wire.publish(5, b"\xff\xfe", b"x"), 0x81),  # no UTF-8
        (wire.publish(5, "a/#", b"x"), 0x90),
        (b"\x30\x80\x80\x10" + bytes(100), 0x95),  # 256 KiB are announced
        (wire.connect(5, wire.text("again")), 0x82),
        (wire.packet(0x20, b"\0\0\0"), 0x82),  # CONNACK from a client
    ],
)
def test_a_wrong_packet_is_answered_with_its_reason_and_closed(serving: Serving, data: bytes, code: int) -> None:
    with RawClient(serving) as client:
        client.connect("wrong", clean=True, session_s=0)
        client.send(data)
        answer = client.receive()
        assert isinstance(answer, Disconnect)
        assert answer.code == code
        assert client.closed()


def test_a_reader_that_does_not_read_costs_bounded_memory(serving: Serving, bystander: RawClient) -> None:
    with RawClient(serving) as lazy, RawClient(serving) as publisher:
        lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect("lazy", clean=True, session_s=0)
        lazy.subscribe(b"flood", 0)
        publisher.connect("publisher", clean=True, session_s=0)
        before = serving.memory_bytes()
        payload = bytes(16_384)
        for number in range(1, 2001):  # 32 MB
            publisher.send(Publish(b"flood", payload, 1 if number % 50 == 0 else 0, False, False, number // 50))
            if number % 50 == 0:
                publisher.expect_ack(PUBACK)
        assert serving.memory_bytes() - before < 12 << 20
        publisher.send(Publish(b"flood", b"end", 1, False, False, 1))
        publisher.expect_ack(PUBACK)


def test_a_client_that_vanishes_with_much_to_send_is_forgotten(serving: Serving) -> None:
    lazy = RawClient(serving)
    lazy.connect("vanishing", clean=True, session_s=0)
    lazy.subscribe(b"flood/2", 0)
    with RawClient(serving) as publisher:
        publisher.connect("publisher2", clean=True, session_s=0)
        for _ in range(100):
            publisher.send(Publish(b"flood/2", bytes(16_384)))
        publisher.send(Publish(b"flood/2", b"", 1, False, False, 1))
        publisher.expect_ack(PUBACK)
    lazy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    lazy.socket.close()  # a reset
    await_true(lambda: "vanishing" in serving.log().rpartition("disconnected")[2] or "vanishing" in serving.log())
    with RawClient(serving) as client:
        assert not client.connect("vanishing", clean=True, session_s=0).session_present


def test_many_connections_that_come_and_go(serving: Serving) -> None:
    for _ in range(20):
        clients = [RawClient(serving) for _ in range(25)]
        for number, client in enumerate(clients):
            client.send(Connect(5, f"crowd{number}", True, 0), Subscribe(1, [(b"crowd/#", 0)]))
        for client in clients:
            assert isinstance(client.receive(), Connack)
        for client in clients:
            client.socket.close()


def test_descriptors_that_run_out_are_no_end(tmp_path: Path) -> None:
    """With fewer descriptors than connections the rest is refused, and served when there is room again."""
    node = Serving(tmp_path / "data", "--mqtt", ANY)
    command = node.command()
    node.command = lambda: ["bash", "-c", 'ulimit -n 700; exec "$@"', "-", *command]  # type: ignore[method-assign]
    with node:
        clients = [RawClient(node) for _ in range(600)]
        served = 0
        for number, client in enumerate(clients):
            try:
                client.send(Connect(5, f"many{number}", True, 0))
            except OSError:
                continue
        for client in clients:
            served += isinstance(client.receive(0.5 if served > 150 else 10), Connack)
        assert 100 < served < 600
        before = node.cpu_s()
        time.sleep(0.5)
        assert node.cpu_s() - before < 0.25, "the node runs in circles"
        for client in clients:
            client.socket.close()

        def accepted() -> bool:
            try:
                with RawClient(node) as client:
                    client.send(Connect(5, "later", True, 0))
                    return isinstance(client.receive(2), Connack)
            except OSError:
                return False

        await_true(accepted)
        assert "sockets_refused" in node.log()
    assert (tmp_path / "data" / "format").exists()
