"""Sections 4.13 (4.8 in MQTT 3.1.1): errors close the connection, and only that one."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, Publish, Will
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.version import ALL, BOTH

MALFORMED = {
    "type 0": b"\x00\x00",
    "PUBACK without identifier": b"\x40\x00",
    "PUBACK with half an identifier": b"\x40\x01\x00",
    "SUBSCRIBE without anything": b"\x82\x00",
    "SUBSCRIBE cut off": b"\x82\x06\x00\x01\x00\x00\x05t",
    "PINGREQ with a body": b"\xc0\x01\x00",
    "five length bytes": b"\x30\xff\xff\xff\xff\x01",
}


@pytest.mark.spec("MQTT-4.13.1-1", "MQTT-4.13.2-1", version="5.0")
@pytest.mark.spec("MQTT-4.8.0-1", version="3.1.1")
@ALL
@pytest.mark.parametrize("packet", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_packets_close(box: Box, version: int, packet: bytes) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(packet)
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-4.13.1-1", version="5.0")
@pytest.mark.spec("MQTT-4.8.0-1", version="3.1.1")
@BOTH
def test_an_error_has_no_effect_on_others(box: Box, version: int) -> None:
    """Neither on clients that share topics with the offender, nor on the offender's own lasting state."""
    friend, offender = box.client("f", version), box.client("o", version)
    friend.connect()
    friend.subscribe("t", "will", qos=1)
    offender.resume(will=Will(b"will", b"gone", 1))
    offender.subscribe("t", qos=1)
    before = wire.publish(version, "t", b"before", first=0x32, packet_id=1)
    offender.raw(before + b"\x00\x00" + wire.publish(version, "t", b"after"))
    offender.expect_close(0x81, 0x82)
    assert sorted(friend.payloads()) == [b"before", b"gone"]
    friend.publish("t", b"still", qos=1)
    assert friend.payloads() == [b"still"]
    assert offender.resume().session_present
    assert b"still" in offender.payloads()


@pytest.mark.spec("MQTT-4.13.2-1", version="5.0")
def test_a_disconnect_with_an_error_from_the_client_is_an_end_too(box: Box) -> None:
    for code in (0x80, 0x81, 0x97):
        peer = box.client("a")
        peer.connect()
        peer.raw(wire.packet(0xE0, bytes([code])))
        assert peer.closed
        assert peer.close_code is None


@pytest.mark.spec("MQTT-4.13.1-1", version="5.0")
@pytest.mark.spec("MQTT-4.8.0-1", version="3.1.1")
@BOTH
def test_errors_are_events(box: Box, version: int) -> None:
    peer = box.client("offender", version)
    peer.connect()
    count = len(box.events)
    peer.raw(b"\x00\x00")
    told = " ".join(map(repr, box.events[count:]))
    assert "offender" in told


@pytest.mark.spec("MQTT-4.8.0-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_full_disk_cannot_keep_is_not_acknowledged(box: Box, version: int, qos: int) -> None:
    """A transient error closes in MQTT 3.1.1; in 5.0 the publisher is told 0x97."""
    sleeper, peer = box.client("z", version), box.client("a", version, acks=False)
    sleeper.resume()
    sleeper.subscribe("t", qos=2)
    sleeper.lose()
    peer.connect()
    box.storage(full=True)
    peer.send(Publish(b"t", b"lost", qos, packet_id=1))
    if version == V5:
        assert [getattr(packet, "code", None) for packet in peer.receive()] == [0x97]
    else:
        assert peer.receive() == []
        assert peer.closed
    box.storage(full=False)
    if peer.closed:
        peer.connect()
    peer.send(Publish(b"t", b"kept", qos, packet_id=2))
    assert len(peer.receive()) == 1
    sleeper.resume()
    assert sleeper.payloads() == [b"kept"]


@pytest.mark.spec("MQTT-4.13.1-1", version="5.0")
@pytest.mark.parametrize(
    "properties",
    [
        wire.prop(1, b"\x00") + wire.prop(1, b"\x00"),
        wire.prop(1, b"\x02"),
        wire.prop(2, wire.u32(1)) + wire.prop(2, wire.u32(1)),
        wire.prop(17, wire.u32(1)),
        wire.prop(33, wire.u16(1)),
        b"\x7f",
        b"\x03",
    ],
    ids=["twice", "out of range", "expiry twice", "of CONNECT", "of CONNACK", "unknown", "cut off"],
)
def test_wrong_properties_of_publish_close(box: Box, properties: bytes) -> None:
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    peer.raw(wire.publish(V5, "t", b"m", properties=wire.props(properties)))
    peer.expect_close(0x81, 0x82)
    assert watcher.messages() == []
