"""Section 3.14, DISCONNECT, from both sides."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, Ack, Disconnect, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.version import ALL, BOTH


@pytest.mark.spec("MQTT-3.14.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.14.1-1", version="3.1.1")
@ALL
@pytest.mark.parametrize("first", [0xE1, 0xE2, 0xE8])
def test_reserved_bits_close_as_malformed(box: Box, version: int, first: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(bytes([first, 0]))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.14.2-1", version="5.0")
@pytest.mark.parametrize("code", [0x01, 0x05, 0x18, 0x8D ^ 0xFF, 0x92, 0xFF])
def test_a_code_that_disconnect_has_not_closes(box: Box, code: int) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(0xE0, bytes([code])))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-3.14.2-1", "MQTT-3.14.2-2", "MQTT-3.14.4-1", "MQTT-3.14.4-2", version="5.0")
def test_the_server_says_goodbye_and_closes(box: Box) -> None:
    """One DISCONNECT with a code, without session expiry, then the close; so say the rules of every connection."""
    peer = box.client("a")
    peer.resume()
    peer.subscribe("t", qos=2)
    before = len(peer.wire)
    peer.raw(wire.publish(V5, "t", b"m", first=0x36, packet_id=1) + wire.publish(V5, "t", b"after"))
    packets, rest = wire.split(peer.wire[before:])
    assert rest == b""
    assert [first for first, _ in packets] == [0xE0]
    assert packets[0][1][0] == 0x81
    assert b"\x11" not in packets[0][1][1:2]
    assert peer.closed


@pytest.mark.spec("MQTT-3.14.4-1", version="5.0")
@ALL
def test_nothing_is_sent_after_the_end(box: Box, version: int) -> None:
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.raw(b"\x00\x00")
    assert peer.closed
    size = len(peer.wire)
    source.publish("t", b"m", qos=1)
    box.advance(60_000_000)
    assert len(peer.wire) == size


@pytest.mark.spec("MQTT-3.14.4-1", version="5.0")
@ALL
def test_acknowledgements_that_waited_are_not_sent_after_the_end(box: Box, version: int) -> None:
    sleeper, peer = box.client("z"), box.client("a", version, acks=False)
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    peer.connect()
    box.hold_writes()
    peer.send(Publish(b"t", b"m", 1, packet_id=1))
    assert peer.connection is not None
    box.node.receive(peer.connection, b"\x00\x00", box.now)
    box.release_writes(1)
    assert peer.closed
    assert not any(isinstance(packet, Ack) for packet in peer.receive())


@pytest.mark.spec("MQTT-3.14.4-2", version="5.0")
@ALL
def test_disconnect_of_a_client_is_answered_with_a_close_alone(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    size = len(peer.wire)
    peer.send(Disconnect())
    assert peer.closed
    assert len(peer.wire) == size


@pytest.mark.parametrize(
    "body", [b"", b"\x00", b"\x00\x00", b"\x04", b"\x00" + wire.props(wire.prop(31, wire.text("bye")))]
)
def test_all_lengths_of_disconnect_are_understood(box: Box, body: bytes) -> None:
    peer = box.client("a")
    peer.connect()
    size = len(peer.wire)
    peer.raw(wire.packet(0xE0, body))
    assert peer.closed
    assert len(peer.wire) == size


@pytest.mark.spec("MQTT-3.14.1-1", version="3.1.1")
@BOTH
def test_disconnect_of_311_has_no_body(box: Box, version: int) -> None:
    watcher, peer = box.client("w"), box.client("a", version)
    watcher.connect()
    peer.connect()
    peer.raw(b"\xe0\x01\x00")
    assert peer.closed
    watcher.ping()


@pytest.mark.spec("MQTT-3.14.2-1", version="5.0")
def test_a_server_that_stops_says_so(box: Box) -> None:
    peer, old, unborn = box.client("a"), box.client("b", 4), box.client("c").open()
    peer.connect()
    old.connect()
    box.stop()
    peer.expect_close(0x8B)
    assert old.closed
    assert unborn.closed
    assert unborn.wire == b""
