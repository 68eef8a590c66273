"""Chapter 6 and section 4.2 of the standards: MQTT over WebSocket, TCP and TLS, byte by byte on real sockets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus, NegotiationError
from websockets.sync.client import ClientConnection, connect

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import Connect, Packet, Publish, Subscribe
from tests.harness import wire
from tests.integration.serving import WAIT_S, RawClient, Serving, client_context

CONNACK = 0x20
VERSIONS = pytest.mark.parametrize("version", [4, 5], ids=["3.1.1", "5.0"])


@contextlib.contextmanager
def web(serving: Serving, name: str = "ws", *, subprotocols: list[str] | None = None) -> Iterator[ClientConnection]:
    """A WebSocket to the node."""
    host, port = serving.places[name]
    scheme = "wss" if name == "wss" else "ws"
    offered = subprotocols if subprotocols is not None else ["mqtt"]
    context = client_context(verify=False) if name == "wss" else None
    with connect(
        f"{scheme}://{host}:{port}/mqtt",
        subprotocols=offered,  # type: ignore[arg-type]
        ssl=context,
        proxy=None,
        open_timeout=WAIT_S,
        close_timeout=WAIT_S,
    ) as socket:
        yield socket


def packets(socket: ClientConnection, count: int) -> list[tuple[int, bytes]]:
    """Receive at least `count` packets, whatever the frames; every frame is a binary one."""
    data = b""
    while True:
        found, rest = wire.split(data)
        if len(found) >= count:
            assert rest == b""
            return found
        frame = socket.recv(timeout=WAIT_S)
        assert isinstance(frame, bytes), "a text frame"
        data += frame


def session(version: int, client_id: str) -> bytes:
    """CONNECT, SUBSCRIBE and a PUBLISH that comes back."""
    topic = client_id.encode()
    parts: list[Packet] = [Connect(version, client_id, True), Subscribe(1, [(topic, 0)]), Publish(topic, b"m")]
    return b"".join(encode(packet, version) for packet in parts)


@pytest.mark.spec("MQTT-6.0.0-1", version="5.0")
@pytest.mark.spec("MQTT-6.0.0-1", version="3.1.1")
@VERSIONS
@pytest.mark.parametrize("name", ["ws", "wss"])
def test_packets_travel_in_binary_frames(serving: Serving, version: int, name: str) -> None:
    with web(serving, name) as socket:
        socket.send(session(version, f"binary{version}{name}"))
        assert [first for first, _ in packets(socket, 3)] == [CONNACK, 0x90, 0x30]


@pytest.mark.spec("MQTT-6.0.0-1", version="5.0")
@pytest.mark.spec("MQTT-6.0.0-1", version="3.1.1")
@VERSIONS
def test_a_text_frame_closes(serving: Serving, version: int) -> None:
    with web(serving) as socket, web(serving) as other:
        for each, client_id in ((socket, "text"), (other, "bystander")):
            each.send(encode(Connect(version, client_id, True), version))
            packets(each, 1)
        socket.send("\xc0\x00")
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=WAIT_S)
        other.send(b"\xc0\x00")
        assert packets(other, 1) == [(0xD0, b"")]


@pytest.mark.spec("MQTT-6.0.0-2", version="5.0")
@pytest.mark.spec("MQTT-6.0.0-2", version="3.1.1")
@VERSIONS
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_packets_need_not_align_with_frames(serving: Serving, version: int, size: int) -> None:
    data = session(version, f"frames{version}of{size}")
    with web(serving) as socket:
        for start in range(0, len(data), size):
            socket.send(data[start : start + size])
        assert [first for first, _ in packets(socket, 3)] == [CONNACK, 0x90, 0x30]


@pytest.mark.spec("MQTT-6.0.0-2", version="5.0")
@pytest.mark.spec("MQTT-6.0.0-2", version="3.1.1")
def test_a_packet_in_a_fragmented_message(serving: Serving) -> None:
    data = session(5, "fragments")
    with web(serving) as socket:
        socket.send([data[:3], data[3:20], data[20:]])
        assert [first for first, _ in packets(socket, 3)] == [CONNACK, 0x90, 0x30]


@pytest.mark.spec("MQTT-6.0.0-4", version="5.0")
@pytest.mark.spec("MQTT-6.0.0-4", version="3.1.1")
def test_the_subprotocol_is_mqtt(serving: Serving) -> None:
    with web(serving, subprotocols=["chat", "mqtt", "mqttv3.1"]) as socket:
        assert socket.subprotocol == "mqtt"
    for offered in (["chat"], ["MQTTX"], []):
        with pytest.raises((InvalidStatus, NegotiationError)), web(serving, subprotocols=offered):
            pass


@pytest.mark.spec("MQTT-4.2-1", version="5.0")
@pytest.mark.spec("MQTT-7.1.1-1", version="3.1.1")
@VERSIONS
@pytest.mark.parametrize("name", ["mqtt", "mqtts"])
def test_tcp_and_tls_carry_bytes_both_ways_in_order(serving: Serving, version: int, name: str) -> None:
    context = client_context(verify=False) if name == "mqtts" else None
    with RawClient(serving, name, version, context) as client:
        client.connect(f"bytes{version}{name}", clean=True, session_s=0)
        client.subscribe(b"bytes/" + name.encode(), 0)
        payloads = [bytes([number]) * 5_000 for number in range(100)]
        for payload in payloads:
            client.send(Publish(b"bytes/" + name.encode(), payload))
        assert [client.expect_publish().payload for _ in payloads] == payloads
