"""Section 3.3, PUBLISH: DUP, QoS, topic name, what is passed on, subscription identifiers of clients."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBREC, V5, Ack, Connect, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.version import ALL, BOTH


def pair(box: Box, version: int = V5, topic_filter: str = "t/#", qos: int = 2) -> tuple[Peer, Peer]:
    """A subscriber and a publisher."""
    subscriber, publisher = box.client("sub", version), box.client("pub", version)
    subscriber.connect()
    publisher.connect()
    subscriber.subscribe(topic_filter, qos=qos)
    return subscriber, publisher


@pytest.mark.spec("MQTT-3.3.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_sent_again_has_dup(box: Box, version: int, qos: int) -> None:
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=qos)
    source.publish("t", b"m", qos=qos)
    assert [packet.dup for packet in peer.publishes()] == [False]
    peer.lose()
    peer.resume()
    assert [packet.dup for packet in peer.publishes()] == [True]
    peer.lose()
    box.crash()
    peer.resume()
    assert [packet.dup for packet in peer.publishes()] == [True]


@pytest.mark.spec("MQTT-3.3.1-1", "MQTT-4.3.2-2", "MQTT-4.3.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-1", "MQTT-4.3.2-1", "MQTT-4.3.3-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_queued_message_sent_for_the_first_time_has_no_dup(box: Box, version: int, qos: int) -> None:
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=qos)
    peer.lose()
    source.publish("t", b"m", qos=qos)
    peer.resume()
    (packet,) = peer.publishes()
    assert (packet.dup, packet.qos) == (False, qos)


@pytest.mark.spec("MQTT-3.3.1-3", "MQTT-4.3.2-2", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-3", "MQTT-4.3.2-1", version="3.1.1")
@BOTH
def test_a_message_that_could_not_be_sent_has_no_dup_the_first_time(box: Box, version: int) -> None:
    """The connection broke while the message was on its way to the disk."""
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    box.hold_writes()
    source.send(Publish(b"t", b"m", 1, packet_id=1))
    peer.lose()
    box.release_writes()
    peer.resume()
    assert [(packet.payload, packet.dup) for packet in peer.publishes()] == [(b"m", False)]


@pytest.mark.spec("MQTT-3.3.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-1", version="3.1.1")
@BOTH
def test_a_message_sent_just_before_a_crash_has_dup_the_second_time(box: Box, version: int) -> None:
    """It came from the queue, and what the server noted about sending it did not become durable."""
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    peer.lose()
    source.publish("t", b"m", qos=1)
    box.hold_writes()
    peer.open().send(
        Connect(version, "a", False, properties=properties(session_expiry=EVER) if version == V5 else None)
    )
    while not peer.publishes():
        box.release_writes(1)
    box.crash()
    peer.resume()
    assert [packet.dup for packet in peer.publishes()] == [True]


@pytest.mark.spec("MQTT-3.3.1-2", "MQTT-4.3.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-2", "MQTT-4.3.1-1", version="3.1.1")
@BOTH
def test_qos_0_is_sent_without_dup(box: Box, version: int) -> None:
    subscriber, publisher = pair(box, version, qos=0)
    publisher.send(Publish(b"t", b"m", 1, dup=True, packet_id=1))
    (packet,) = subscriber.publishes()
    assert (packet.qos, packet.dup) == (0, False)


@pytest.mark.spec("MQTT-3.3.1-2", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-2", version="3.1.1")
@BOTH
def test_qos_0_with_dup_from_a_client_closes(box: Box, version: int) -> None:
    subscriber, publisher = pair(box, version)
    publisher.raw(wire.publish(version, "t", b"m", first=0x38))
    publisher.expect_close(0x81, 0x82)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-3.3.1-3", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-3", version="3.1.1")
@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_passed_on(box: Box, version: int, qos: int) -> None:
    subscriber, publisher = pair(box, version)
    publisher.send(Publish(b"t", b"m", qos, dup=True, packet_id=1))
    assert [packet.dup for packet in subscriber.publishes()] == [False]


@pytest.mark.spec("MQTT-3.3.1-4", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-4", version="3.1.1")
@ALL
def test_qos_3_closes(box: Box, version: int) -> None:
    subscriber, publisher = pair(box, version)
    publisher.raw(wire.publish(version, "t", b"m", first=0x36, packet_id=1))
    publisher.expect_close(0x81)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-3.3.2-2", "MQTT-4.7.0-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.2-2", "MQTT-4.7.1-1", "MQTT-4.7.0-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("topic", ["t/+", "t/#", "#", "+", "t/a+b", "t#"])
def test_wildcards_in_a_topic_name_close(box: Box, version: int, topic: str) -> None:
    subscriber, publisher = pair(box, version, "#")
    publisher.raw(wire.publish(version, topic, b"m"))
    publisher.expect_close(0x81, 0x82, 0x90)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-4.7.3-1", "MQTT-3.3.2-1", version="5.0")
@pytest.mark.spec("MQTT-4.7.3-1", "MQTT-3.3.2-1", version="3.1.1")
@BOTH
def test_empty_topic_name_closes(box: Box, version: int) -> None:
    subscriber, publisher = pair(box, version, "#")
    publisher.raw(wire.publish(version, "", b"m"))
    publisher.expect_close(0x81, 0x82, 0x90)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-3.3.2-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.2-1", version="3.1.1")
@BOTH
def test_missing_topic_name_closes(box: Box, version: int) -> None:
    for body in (b"", b"\x00", b"\x00\x05t"):
        peer = box.client("a", version)
        peer.connect()
        peer.raw(wire.packet(0x30, body))
        peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.3.2-3", version="5.0")
@pytest.mark.spec("MQTT-3.3.2-3", version="3.1.1")
@BOTH
def test_only_what_matches_arrives_under_its_name(box: Box, version: int) -> None:
    subscriber, publisher = pair(box, version, "t/+/x")
    for topic in ("t/1/x", "t/1/y", "t/x", "t/1/x/2", "u/1/x", "t//x"):
        publisher.publish(topic, topic.encode())
    assert subscriber.messages() == [("t/1/x", b"t/1/x"), ("t//x", b"t//x")]


FORWARDED: dict[str, dict[str, Any]] = {
    "MQTT-3.3.2-4": {"payload_format": 1},
    "MQTT-3.3.2-15": {"response_topic": "antwort/\u00fc".encode()},
    "MQTT-3.3.2-16": {"correlation_data": b"\x00\x01\xff"},
    "MQTT-3.3.2-20": {"content_type": "text/plain; charset=utf-8"},
    "MQTT-3.3.2-17": {"user_properties": [("b", "2"), ("a", "1"), ("b", "2"), ("", "")]},
}


@pytest.mark.spec(
    "MQTT-3.3.2-4", "MQTT-3.3.2-15", "MQTT-3.3.2-16", "MQTT-3.3.2-17", "MQTT-3.3.2-18", "MQTT-3.3.2-20", version="5.0"
)
@pytest.mark.parametrize("named", FORWARDED.values(), ids=FORWARDED.keys())
@pytest.mark.parametrize("how", ["live", "queued", "retained"])
def test_properties_are_passed_on(box: Box, named: dict[str, Any], how: str) -> None:
    subscriber, publisher = box.client("sub"), box.client("pub")
    publisher.connect()
    subscriber.resume()
    if how != "retained":
        subscriber.subscribe("t", qos=1)
    if how == "queued":
        subscriber.lose()
    publisher.publish("t", b"m", qos=1, retain=how == "retained", **named)
    if how == "queued":
        box.crash()
        subscriber.resume()
    if how == "retained":
        subscriber.subscribe("t", qos=1)
    (packet,) = subscriber.publishes()
    assert packet.properties == properties(**named)


def test_all_properties_at_once_are_passed_on_and_dropped_for_331(box: Box) -> None:
    subscriber, publisher = pair(box)
    old = box.client("old", 4)
    old.connect()
    old.subscribe("t")
    named: dict[str, Any] = {}
    for each in FORWARDED.values():
        named.update(each)
    publisher.publish("t", b"m", qos=2, **named)
    (packet,) = subscriber.publishes()
    assert packet.properties == properties(**named)
    before = old.wire
    assert before.endswith(wire.packet(0x30, wire.text("t"), b"m"))


@pytest.mark.spec("MQTT-3.3.2-14", version="5.0")
@pytest.mark.parametrize("topic", [b"a/+", b"#"])
def test_wildcards_in_a_response_topic_close(box: Box, topic: bytes) -> None:
    subscriber, publisher = pair(box)
    publisher.raw(wire.publish(V5, "t", b"m", properties=wire.props(wire.prop(8, wire.binary(topic)))))
    publisher.expect_close(0x81, 0x82, 0x90)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-3.3.4-1", version="5.0")
@pytest.mark.spec("MQTT-3.3.4-1", version="3.1.1")
@ALL
def test_answer_depends_on_qos(box: Box, version: int) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"m", 0))
    assert peer.receive() == []
    peer.send(Publish(b"t", b"m", 1, packet_id=5))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id) == (PUBACK, 5)
    peer.send(Publish(b"t", b"m", 2, packet_id=6))
    ack = peer.expect(Ack)
    assert (ack.kind, ack.packet_id) == (PUBREC, 6)
    assert peer.receive() == []


@pytest.mark.spec("MQTT-3.3.4-6", version="5.0")
def test_subscription_identifier_from_a_client_closes(box: Box) -> None:
    subscriber, publisher = pair(box)
    publisher.raw(wire.publish(V5, "t", b"m", properties=wire.props(wire.prop(11, b"\x05"))))
    publisher.expect_close(0x81, 0x82)
    assert subscriber.messages() == []


@pytest.mark.spec("MQTT-3.4.2-1", version="5.0")
def test_a_message_without_subscribers_is_told_to_the_publisher(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    assert peer.publish("t", b"m", qos=1) == 0x10
    assert peer.publish("t", b"m", qos=2) == 0x00  # of PUBCOMP; PUBREC carried 0x10
    peer.subscribe("t")
    assert peer.publish("t", b"m", qos=1) == 0x00


def test_payload_format_is_checked_when_asked(make: MakeBox) -> None:
    """Reason code 0x99 where a payload that calls itself UTF-8 is none, section 3.3.2.3.2."""
    box = make(limits={"check_payload_format": True})
    subscriber, publisher = pair(box)
    assert publisher.publish("t", b"\xff", qos=1, payload_format=1) == 0x99
    assert publisher.publish("t", b"\xff", qos=2, payload_format=1) == 0x99
    assert subscriber.messages() == []
    assert publisher.publish("t", b"\xff", qos=1, payload_format=0) == 0
    assert publisher.publish("t", "gr\u00fcn".encode(), qos=1, payload_format=1) == 0
    assert len(subscriber.messages()) == 2


def test_payload_format_is_not_checked_by_default(box: Box) -> None:
    subscriber, publisher = pair(box)
    assert publisher.publish("t", b"\xff", qos=1, payload_format=1) == 0
    assert subscriber.payloads() == [b"\xff"]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 100_000, 1_000_000])
@BOTH
def test_payloads_of_all_sizes_pass(box: Box, version: int, size: int) -> None:
    subscriber, publisher = pair(box, version)
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    publisher.publish("t", payload, qos=1)
    assert subscriber.payloads() == [payload]
