"""Sections 3.10 and 3.11, UNSUBSCRIBE and UNSUBACK."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, Ack, Unsuback, Unsubscribe
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.version import ALL, BOTH


def unsubscribe(version: int, *filters: str | bytes, first: int = 0xA2) -> bytes:
    return wire.packet(
        first, wire.u16(1), b"\0" if version == V5 else b"", *[wire.text(topic_filter) for topic_filter in filters]
    )


@pytest.mark.spec("MQTT-3.10.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.10.1-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("first", [0xA0, 0xA1, 0xA3, 0xA6, 0xAA])
def test_wrong_flags_close(box: Box, version: int, first: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(unsubscribe(version, "t", first=first))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.10.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.10.3-2", version="3.1.1")
@ALL
def test_no_filter_closes(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(unsubscribe(version))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-3.10.4-1", version="5.0")
@pytest.mark.spec("MQTT-3.10.4-1", version="3.1.1")
@ALL
def test_filters_are_compared_character_by_character(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.subscribe("t/+")
    for almost in ("t/1", "t/#", "+/+", "T/+", "t/+/", "/t/+"):
        peer.unsubscribe(almost)
    peer.publish("t/1", b"m")
    assert peer.payloads() == [b"m"]
    peer.unsubscribe("t/+")
    peer.publish("t/1", b"m")
    assert peer.payloads() == []


@pytest.mark.spec("MQTT-3.10.4-2", version="5.0")
@pytest.mark.spec("MQTT-3.10.4-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("crash", [False, True])
def test_after_unsubscribe_nothing_is_added(box: Box, version: int, crash: bool) -> None:
    source, peer = box.client("s", version), box.client("a", version)
    peer.resume()
    peer.subscribe("t", "u", qos=1)
    peer.unsubscribe("t")
    if crash:
        box.crash()
        peer.resume()
    source.connect()
    source.publish("t", b"gone", qos=1)
    source.publish("u", b"kept", qos=1)
    assert peer.payloads() == [b"kept"]


@pytest.mark.spec("MQTT-3.10.4-3", version="5.0")
@pytest.mark.spec("MQTT-3.10.4-3", version="3.1.1")
@BOTH
def test_deliveries_that_were_begun_are_completed(box: Box, version: int) -> None:
    source, peer = box.client("s", version), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    source.publish("t", b"one", qos=1)
    source.publish("t", b"two", qos=2)
    one, two = peer.publishes()
    peer.unsubscribe("t")
    peer.send(Ack(PUBREC, two.packet_id))
    released = peer.expect(Ack)
    assert (released.kind, released.packet_id) == (PUBREL, two.packet_id)
    peer.lose()
    peer.resume()
    (again,) = peer.publishes()
    assert (again.payload, again.packet_id) == (b"one", one.packet_id)
    released = peer.expect(Ack)
    assert (released.kind, released.packet_id) == (PUBREL, two.packet_id)
    peer.send(Ack(PUBACK, one.packet_id), Ack(PUBCOMP, two.packet_id))
    peer.lose()
    peer.resume()
    assert peer.receive() == []


@pytest.mark.spec("MQTT-3.10.4-4", "MQTT-3.10.4-5", version="5.0")
@pytest.mark.spec("MQTT-3.10.4-4", "MQTT-3.10.4-5", version="3.1.1")
@ALL
def test_unsubscribe_is_acknowledged(box: Box, version: int) -> None:
    """Also where there was no subscription."""
    peer = box.client("a", version)
    peer.connect()
    peer.subscribe("t")
    for packet_id, known in ((0x0102, True), (0x0304, False)):
        before = len(peer.wire)
        peer.send(Unsubscribe(packet_id, [b"t"]))
        assert peer.expect(Unsuback).packet_id == packet_id
        tail = b"\x00" + (b"\x00" if known else b"\x11") if version == V5 else b""
        assert peer.wire[before:] == wire.packet(0xB0, wire.u16(packet_id), tail)


@pytest.mark.spec("MQTT-3.10.4-6", "MQTT-3.11.3-1", "MQTT-3.11.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.10.4-6", version="3.1.1")
@BOTH
def test_several_filters_have_one_answer_in_their_order(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.subscribe("a", "b", "c")
    peer.send(Unsubscribe(9, [b"x", b"a", b"a", b"c"]))
    assert peer.expect(Unsuback).codes == ([0x11, 0x00, 0x11, 0x00] if version == V5 else [])
    assert peer.receive() == []
    for topic in ("a", "b", "c"):
        peer.publish(topic, b"m")
    assert peer.messages() == [("b", b"m")]
