"""Sections 3.4 to 3.7: PUBACK, PUBREC, PUBREL, PUBCOMP and their reason codes."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, Ack, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.rule import CODES
from tests.harness.version import ALL, BOTH


@pytest.mark.spec("MQTT-3.6.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.6.1-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("first", [0x60, 0x61, 0x63, 0x66, 0x6A])
def test_pubrel_with_wrong_flags_closes(box: Box, version: int, first: int) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 2, packet_id=1))
    peer.raw(wire.packet(first, wire.u16(1)))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.4.2-1", version="5.0")
def test_puback_carries_one_of_its_codes(box: Box) -> None:
    peer = box.client("a", acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 1, packet_id=1))
    ack = peer.expect(Ack)
    assert ack.kind == PUBACK
    assert ack.code in CODES["PUBACK"]


@pytest.mark.spec("MQTT-3.5.2-1", version="5.0")
def test_pubrec_carries_one_of_its_codes(box: Box) -> None:
    peer, other = box.client("a", acks=False), box.client("b")
    peer.connect()
    peer.send(Publish(b"t", b"m", 2, packet_id=1))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.code) == (PUBREC, 0x10)
    other.connect()
    other.subscribe("t")
    peer.send(Publish(b"t", b"m", 2, packet_id=2))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.code) == (PUBREC, 0x00)


@pytest.mark.spec("MQTT-3.6.2-1", version="5.0")
@ALL
def test_pubrel_answers_an_unknown_pubrec(box: Box, version: int) -> None:
    """0x92, packet identifier not found; MQTT 3.x has no codes."""
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Ack(PUBREC, 99))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id, ack.code) == (PUBREL, 99, 0x92 if version == V5 else 0)
    peer.ping()


@pytest.mark.spec("MQTT-3.7.2-1", version="5.0")
@ALL
def test_pubcomp_answers_an_unknown_pubrel(box: Box, version: int) -> None:
    """Else a client that lost a PUBCOMP could never end its flow."""
    peer = box.client("a", version)
    peer.connect()
    peer.send(Ack(PUBREL, 99))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id, ack.code) == (PUBCOMP, 99, 0x92 if version == V5 else 0)


@pytest.mark.spec("MQTT-3.7.2-1", "MQTT-4.3.3-11", version="5.0")
@pytest.mark.spec("MQTT-4.3.3-2", version="3.1.1")
@BOTH
def test_pubcomp_of_a_known_flow(box: Box, version: int) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 2, packet_id=5))
    peer.expect(Ack)
    peer.send(Ack(PUBREL, 5))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id, ack.code) == (PUBCOMP, 5, 0)


@BOTH
@pytest.mark.parametrize("kind", [PUBACK, PUBCOMP])
def test_acknowledgements_of_nothing_are_ignored(box: Box, version: int, kind: int) -> None:
    """A resent acknowledgement is no offence."""
    peer = box.client("a", version)
    peer.connect()
    peer.send(Ack(kind, 77))
    peer.ping()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-3.4.2-1", "MQTT-3.5.2-1", "MQTT-3.6.2-1", "MQTT-3.7.2-1", version="5.0")
@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
def test_a_reason_code_of_another_packet_closes(box: Box, first: int) -> None:
    """0x8E, session taken over, belongs to DISCONNECT."""
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.packet(first, wire.u16(1), b"\x8e"))
    peer.expect_close(0x81, 0x82)


@pytest.mark.parametrize("tail", [b"", b"\x00", b"\x00\x00", b"\x00" + wire.props(wire.prop(31, wire.text("why")))])
def test_all_lengths_of_an_acknowledgement_are_understood(box: Box, tail: bytes) -> None:
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.connect(receive_max=1)
    peer.subscribe("t", qos=1)
    source.publish("t", b"1", qos=1)
    source.publish("t", b"2", qos=1)
    (first,) = peer.publishes()
    peer.raw(wire.packet(0x40, wire.u16(first.packet_id), tail))
    assert peer.payloads() == [b"2"]


@BOTH
def test_an_acknowledgement_of_the_wrong_kind_does_not_end_a_delivery(box: Box, version: int) -> None:
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    source.publish("t", b"m", qos=2)
    (packet,) = peer.publishes()
    peer.send(Ack(PUBACK, packet.packet_id))
    peer.lose()
    peer.resume()
    assert peer.payloads() == [b"m"]
