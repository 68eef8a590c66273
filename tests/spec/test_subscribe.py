"""Sections 3.8 and 3.9, SUBSCRIBE and SUBACK."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, V5, Ack, Publish, Suback, Subscribe
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.version import ALL, BOTH


@pytest.mark.spec("MQTT-3.8.1-1", version="5.0")
@pytest.mark.spec("MQTT-3.8.1-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("first", [0x80, 0x81, 0x83, 0x86, 0x8A])
def test_wrong_flags_close(box: Box, version: int, first: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.subscribe(version, ("t", 0), first=first))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-3.8.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.8.3-3", version="3.1.1")
@ALL
def test_no_filter_closes(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.subscribe(version))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-3.8.3-5", version="5.0")
@pytest.mark.spec("MQTT-3.8.3-4", version="3.1.1")
@BOTH
@pytest.mark.parametrize("options", [0x40, 0x80, 0xC1, 0x03])
def test_reserved_option_bits_or_qos_3_close(box: Box, version: int, options: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.subscribe(version, ("t", options)))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-3.8.3-4", version="3.1.1")
@pytest.mark.parametrize("options", [0x04, 0x08, 0x10, 0x20])
def test_options_of_mqtt_5_close_in_311(box: Box, options: int) -> None:
    peer = box.client("a", 4)
    peer.connect()
    peer.raw(wire.subscribe(4, ("t", options)))
    assert peer.closed


@pytest.mark.spec("MQTT-3.8.3-5", version="5.0")
def test_retain_handling_3_closes(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.subscribe(V5, ("t", 0x30)))
    peer.expect_close(0x81, 0x82)


@pytest.mark.spec("MQTT-3.8.3-3", version="5.0")
def test_no_local_keeps_own_messages_away(box: Box) -> None:
    peer, other = box.client("a"), box.client("b")
    peer.connect()
    other.connect()
    peer.subscribe("t", qos=2, no_local=True)
    for qos in (0, 1, 2):
        peer.publish("t", b"own", qos=qos)
    other.publish("t", b"foreign", qos=1)
    assert peer.payloads() == [b"foreign"]


@pytest.mark.spec("MQTT-3.8.3-3", version="5.0")
def test_no_local_knows_the_client_id_not_the_connection(box: Box) -> None:
    peer = box.client("a")
    peer.resume()
    peer.subscribe("t", qos=1, no_local=True)
    peer.lose()
    box.crash()
    peer.resume()
    peer.publish("t", b"own", qos=1)
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.8.3-4", version="5.0")
def test_no_local_on_a_shared_subscription_closes(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.send(Subscribe(1, [(b"$share/g/t", 0x04)]))
    peer.expect_close(0x82)


@pytest.mark.spec("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-6", "MQTT-3.8.4-7", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-1", "MQTT-3.8.4-2", "MQTT-3.8.4-5", version="3.1.1")
@ALL
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribe_is_acknowledged_with_the_granted_qos(box: Box, version: int, qos: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.send(Subscribe(777, [(b"t", qos)]))
    suback = peer.expect(Suback)
    assert (suback.packet_id, suback.codes) == (777, [qos])
    assert peer.receive() == []


@pytest.mark.spec("MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.8.4-6", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-4", "MQTT-3.9.3-1", "MQTT-3.8.4-5", version="3.1.1")
@ALL
def test_several_filters_have_one_answer_in_their_order(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.send(Subscribe(5, [(b"a", 2), (b"b", 0), (b"c", 1), (b"a", 0)]))
    assert peer.expect(Suback).codes == [2, 0, 1, 0]
    assert peer.receive() == []
    for topic in ("a", "b", "c"):
        peer.publish(topic, b"m", qos=2)
    assert [(packet.topic, packet.qos) for packet in peer.publishes()] == [(b"a", 0), (b"b", 0), (b"c", 1)]


@pytest.mark.spec("MQTT-3.8.4-7", "MQTT-3.9.3-1", "MQTT-3.9.3-2", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-5", "MQTT-3.9.3-1", "MQTT-3.9.3-2", version="3.1.1")
@BOTH
def test_a_failed_filter_is_told_and_the_others_work(make: MakeBox, version: int) -> None:
    box = make(limits={"subscriptions_max": 2})
    peer = box.client("a", version)
    peer.connect()
    peer.send(Subscribe(5, [(b"a", 1), (b"b", 2), (b"c", 1), (b"a", 2)]))
    assert peer.expect(Suback).codes == [1, 2, 0x97 if version == V5 else 0x80, 2]
    peer.publish("c", b"lost")
    peer.publish("a", b"m")
    assert peer.payloads() == [b"m"]


@pytest.mark.spec("MQTT-3.8.3-2", version="3.1.1")
@BOTH
def test_a_server_without_wildcards_rejects_them(make: MakeBox, version: int) -> None:
    box = make(limits={"wildcard_available": False})
    peer = box.client("a", version)
    peer.connect()
    for topic_filter in ("#", "a/#", "+", "a/+/b"):
        assert peer.subscribe(topic_filter) == [0xA2 if version == V5 else 0x80]
    assert peer.subscribe("a/b") == [0]
    peer.publish("a/c", b"m")
    assert peer.messages() == []


@pytest.mark.spec("MQTT-3.8.4-3", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-3", version="3.1.1")
@ALL
def test_the_same_filter_again_replaces_the_subscription(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    assert peer.subscribe("t", qos=2) == [2]
    assert peer.subscribe("t", qos=0) == [0]
    peer.publish("t", b"m", qos=2)
    assert [packet.qos for packet in peer.publishes()] == [0]
    assert peer.subscribe("t", qos=1) == [1]
    peer.publish("t", b"m", qos=2)
    assert [packet.qos for packet in peer.publishes()] == [1]


@pytest.mark.spec("MQTT-3.8.4-3", version="5.0")
def test_replacing_replaces_all_options(box: Box) -> None:
    peer, other = box.client("a"), box.client("b")
    peer.resume()
    other.connect()
    peer.subscribe("t", qos=2, no_local=True, as_published=True, subscription_id=5)
    peer.subscribe("t", qos=1)
    box.crash()
    peer.resume()
    peer.publish("t", b"m", qos=1, retain=True)
    (packet,) = peer.publishes()
    assert (packet.retain, packet.qos) == (False, 1)
    assert packet.properties is None or packet.properties.subscription_ids == []


@pytest.mark.spec("MQTT-3.8.4-4", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-3", version="3.1.1")
@BOTH
def test_replacing_sends_retained_messages_and_loses_none(box: Box, version: int) -> None:
    source, peer = box.client("s", version), box.client("a", version, acks=False)
    source.connect()
    peer.connect(receive_max=2)
    source.publish("r", b"kept", qos=1, retain=True)
    peer.subscribe("#", qos=1)
    held = peer.publishes()
    assert [packet.payload for packet in held] == [b"kept"]
    for number in range(10):
        source.publish("t", b"%d" % number, qos=1)
        if number == 5:
            peer.subscribe("#", qos=1)
    first = peer.publishes()
    peer.acks = True
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in held + first])
    got = [(packet.topic.decode(), packet.payload) for packet in first] + peer.messages()
    assert [payload for topic, payload in got if topic == "t"] == [b"%d" % number for number in range(10)]
    assert ("r", b"kept") in got


@pytest.mark.spec("MQTT-3.8.4-8", "MQTT-3.3.4-2", version="5.0")
@pytest.mark.spec("MQTT-3.8.4-6", version="3.1.1")
@ALL
def test_messages_come_with_the_lesser_qos(box: Box, version: int) -> None:
    peer, source = box.client("a", version), box.client("s", version)
    peer.connect()
    source.connect()
    for granted in (0, 1, 2):
        peer.subscribe("t", qos=granted)
        for published in (0, 1, 2):
            source.publish("t", b"m", qos=published)
            assert [packet.qos for packet in peer.publishes()] == [min(granted, published)]


@pytest.mark.parametrize("identifier", [1, 127, 128, 268_435_455])
def test_subscription_identifiers_come_back(box: Box, identifier: int) -> None:
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t", subscription_id=identifier)
    peer.publish("t", b"m")
    (packet,) = peer.publishes()
    assert packet.properties is not None
    assert packet.properties.subscription_ids == [identifier]


@pytest.mark.spec("MQTT-4.13.1-1", version="5.0")
@pytest.mark.parametrize(
    "properties",
    [wire.prop(11, b"\x00"), wire.prop(11, b"\x05") + wire.prop(11, b"\x06"), wire.prop(17, wire.u32(1))],
    ids=["identifier 0", "two identifiers", "property of another packet"],
)
def test_wrong_subscribe_properties_close(box: Box, properties: bytes) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(wire.subscribe(V5, ("t", 0), properties=wire.props(properties)))
    peer.expect_close(0x81, 0x82)


def test_a_subscription_of_another_client_is_not_touched(box: Box) -> None:
    first, second = box.client("a"), box.client("b")
    first.connect()
    second.connect()
    first.subscribe("t", qos=2)
    second.subscribe("t", qos=0)
    second.unsubscribe("t")
    first.send(Publish(b"t", b"m", 2, packet_id=9))
    assert [packet.qos for packet in first.publishes()] == [2]
    assert second.messages() == []
