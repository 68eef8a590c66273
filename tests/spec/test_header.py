"""Chapter 2: fixed header flags, packet identifiers, property length."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBREC, PUBREL, V5, Ack, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.version import BOTH

WRONG_FLAGS = {
    "PUBACK": b"\x41\x02\x00\x01",
    "PUBREC": b"\x52\x02\x00\x01",
    "PUBREL": b"\x60\x02\x00\x01",
    "PUBCOMP": b"\x78\x02\x00\x01",
    "PINGREQ": b"\xc1\x00",
    "DISCONNECT": b"\xe1\x00",
}


@pytest.mark.spec("MQTT-2.1.3-1", version="5.0")
@pytest.mark.spec("MQTT-2.2.2-1", "MQTT-2.2.2-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("packet", WRONG_FLAGS.values(), ids=WRONG_FLAGS.keys())
def test_wrong_reserved_flags_close(box: Box, version: int, packet: bytes) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(packet)
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-2.1.3-1", version="5.0")
@pytest.mark.spec("MQTT-2.2.2-1", "MQTT-2.2.2-2", version="3.1.1")
@BOTH
def test_wrong_flags_of_connect_close(box: Box, version: int) -> None:
    peer = box.client("a", version).open()
    peer.raw(wire.connect(version, wire.text("a"), first=0x11))
    peer.expect_close(None, 0x81)


@pytest.mark.spec("MQTT-2.1.3-1", version="5.0")
@pytest.mark.spec("MQTT-2.2.2-1", version="3.1.1")
@BOTH
def test_sent_packets_have_their_flags(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.subscribe("t", qos=2)
    peer.publish("t", b"m", qos=2)
    peer.publish("t", b"m", qos=1)
    peer.unsubscribe("t")
    peer.ping()
    firsts = [first for first, _ in wire.split(peer.wire)[0]]
    assert sorted(firsts) == [0x20, 0x32, 0x34, 0x40, 0x50, 0x62, 0x70, 0x90, 0xB0, 0xD0]


@pytest.mark.spec("MQTT-2.1.3-1", version="5.0")
@pytest.mark.spec("MQTT-2.2.2-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("first", [0x00, 0x20, 0x90, 0xB0, 0xD0])
def test_packets_that_only_servers_send_close(box: Box, version: int, first: int) -> None:
    """Reserved type 0, CONNACK, SUBACK, UNSUBACK, PINGRESP."""
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.packet(first, b"\0\1" if first not in (0, 0xD0) else b""))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-2.2.1-2", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-5", version="3.1.1")
@BOTH
def test_qos_0_has_no_identifier(box: Box, version: int) -> None:
    """What stands where an identifier would stand belongs to the payload, in both directions."""
    peer = box.client("a", version)
    peer.connect()
    peer.subscribe("t", qos=2)
    before = len(peer.wire)
    properties = b"\0" if version == V5 else b""
    peer.raw(wire.packet(0x30, wire.text("t"), properties, b"\x00\x07rest"))
    assert peer.messages() == [("t", b"\x00\x07rest")]
    assert peer.wire[before:] == wire.packet(0x30, wire.text("t"), properties, b"\x00\x07rest")


@pytest.mark.spec("MQTT-2.2.1-3", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-1", version="3.1.1")
@BOTH
def test_identifier_zero_closes(box: Box, version: int) -> None:
    packets = [
        wire.publish(version, "t", first=0x32, packet_id=0),
        wire.publish(version, "t", first=0x34, packet_id=0),
        wire.subscribe(version, ("t", 0), packet_id=0),
        wire.packet(0xA2, wire.u16(0), b"\0" if version == V5 else b"", wire.text("t")),
    ]
    for packet in packets:
        peer = box.client("a", version)
        peer.connect()
        peer.raw(packet)
        peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-2.2.1-3", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-2", version="3.1.1")
@BOTH
def test_identifier_in_use_is_not_a_new_qos_2_message(box: Box, version: int) -> None:
    watcher, peer = box.client("w", version), box.client("a", version, acks=False)
    watcher.connect()
    watcher.subscribe("t", qos=2)
    peer.connect()
    peer.send(Publish(b"t", b"first", 2, packet_id=9))
    peer.send(Publish(b"t", b"second", 2, packet_id=9))
    assert [ack.kind for ack in (peer.expect(Ack), peer.expect(Ack))] == [PUBREC, PUBREC]
    assert watcher.payloads() == [b"first"]


@pytest.mark.spec("MQTT-2.2.1-3", version="5.0")
def test_subscribe_with_an_identifier_in_use_is_told_so(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 2, packet_id=9))
    peer.expect(Ack)
    peer.send(Subscribe(9, [(b"x", 0)]))
    codes = peer.take(Suback).codes
    assert codes in ([0x91], [0x00])  # section 3.9.3 lets a server tell, it need not
    peer.send(Unsubscribe(9, [b"x"]))
    assert peer.take(Unsuback).codes in ([0x91], [0x00])


@pytest.mark.spec("MQTT-2.3.1-3", version="3.1.1")
@BOTH
def test_resent_packet_of_a_client_is_known_by_its_identifier(box: Box, version: int) -> None:
    watcher, peer = box.client("w", version), box.client("a", version, acks=False)
    watcher.connect()
    watcher.subscribe("t", qos=2)
    peer.resume()
    peer.send(Publish(b"t", b"m", 2, packet_id=9))
    peer.lose()
    peer.resume()
    peer.send(Publish(b"t", b"m", 2, dup=True, packet_id=9))
    assert peer.expect(Ack).kind == PUBREC
    assert watcher.payloads() == [b"m"]


@pytest.mark.spec("MQTT-2.2.1-4", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-4", version="3.1.1")
@BOTH
def test_sent_identifiers_are_unused_and_not_zero(box: Box, version: int) -> None:
    """The rules of every connection watch it; here with messages in flight while others are acknowledged."""
    peer, source = box.client("a", version, acks=False), box.client("s", version)
    peer.connect()
    source.connect()
    peer.subscribe("t", qos=2)
    for number in range(40):
        source.publish("t", b"%d" % number, qos=1)
        if number % 3 == 0:
            peer.send(Ack(PUBACK, peer.publishes()[0].packet_id))
    held = [packet.packet_id for packet in peer.publishes()]
    assert 0 not in held
    assert len(set(held)) == len(held)


@pytest.mark.spec("MQTT-2.2.1-5", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-6", version="3.1.1")
@BOTH
def test_acknowledgements_repeat_the_identifier(box: Box, version: int) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.subscribe("t", qos=2)
    peer.raw(wire.publish(version, "x", first=0x32, packet_id=0xABCD))
    first, body = wire.split(peer.wire)[0][-1]
    assert (first, body[:2]) == (0x40, b"\xab\xcd")
    assert peer.expect(Ack).packet_id == 0xABCD
    peer.send(Publish(b"x", b"", 2, packet_id=0xFFFF))
    assert peer.expect(Ack).packet_id == 0xFFFF
    peer.send(Ack(PUBREL, 0xFFFF))
    assert peer.expect(Ack).packet_id == 0xFFFF
    peer.publish("t", b"m", qos=2)
    publish = peer.take(Publish)
    peer.send(Ack(PUBREC, publish.packet_id))
    released = peer.expect(Ack)
    assert (released.kind, released.packet_id) == (PUBREL, publish.packet_id)


@pytest.mark.spec("MQTT-2.2.1-6", version="5.0")
@pytest.mark.spec("MQTT-2.3.1-7", version="3.1.1")
@BOTH
def test_suback_and_unsuback_repeat_the_identifier(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    for packet_id in (1, 0x1234, 0xFFFF):
        peer.send(Subscribe(packet_id, [(b"t", 0)]))
        assert peer.expect(Suback).packet_id == packet_id
        peer.send(Unsubscribe(packet_id, [b"t"]))
        assert peer.expect(Unsuback).packet_id == packet_id


@pytest.mark.spec("MQTT-2.2.2-1", version="5.0")
def test_no_properties_are_length_zero(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.subscribe(V5, ("t", 0), packet_id=5))
    assert peer.wire.endswith(b"\x90\x04\x00\x05\x00\x00")
    peer.raw(wire.publish(V5, "t", b"m"))
    assert peer.wire.endswith(b"\x30\x05\x00\x01t\x00m")


@pytest.mark.spec("MQTT-2.2.2-1", version="5.0")
def test_missing_property_length_is_malformed(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(0x30, wire.text("t")))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-2.2.2-1", version="5.0")
@pytest.mark.parametrize("properties", [wire.props(b"\x02\x00"), b"\x06\x02\x00\x00\x00\x01", b"\x01\x7f"])
def test_malformed_properties_close(box: Box, properties: bytes) -> None:
    """A value cut off, a length beyond its property, an unknown identifier."""
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(0x30, wire.text("t"), properties))
    peer.expect_close(0x81, 0x82)
