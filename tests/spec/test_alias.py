"""Section 3.3.2.3.4, topic aliases in both directions."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, Publish
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties

ALIAS = 35


def aliased(topic: str, alias: int, payload: bytes = b"m") -> bytes:
    return wire.publish(V5, topic, payload, properties=wire.props(wire.prop(ALIAS, wire.u16(alias))))


@pytest.mark.spec("MQTT-3.3.2-12", version="5.0")
def test_all_aliases_up_to_the_maximum_are_accepted(make: MakeBox) -> None:
    box = make(limits={"topic_alias_max": 20})
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t/#")
    told = peer.connect().properties
    assert told is not None
    assert told.topic_alias_max == 20
    for alias in range(1, 21):
        peer.raw(aliased(f"t/{alias}", alias))
    watcher.messages()
    for alias in range(20, 0, -1):
        peer.raw(aliased("", alias, b"again"))
    assert watcher.messages() == [(f"t/{alias}", b"again") for alias in range(20, 0, -1)]


def test_an_alias_can_be_given_to_another_topic(box: Box) -> None:
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t/#")
    peer.connect()
    peer.raw(aliased("t/1", 1), aliased("", 1), aliased("t/2", 1), aliased("", 1))
    assert [topic for topic, _ in watcher.messages()] == ["t/1", "t/1", "t/2", "t/2"]


@pytest.mark.spec("MQTT-3.3.2-8", "MQTT-3.3.2-9", "MQTT-3.2.2-17", version="5.0")
@pytest.mark.parametrize("alias", [0, 4, 65_535])
def test_an_alias_that_is_0_or_above_the_maximum_closes(make: MakeBox, alias: int) -> None:
    box = make(limits={"topic_alias_max": 3})
    watcher, peer = box.client("w"), box.client("a")
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    peer.raw(aliased("t", alias))
    peer.expect_close(0x94)
    assert watcher.messages() == []


@pytest.mark.spec("MQTT-3.2.2-18", version="5.0")
def test_without_a_maximum_every_alias_closes(make: MakeBox) -> None:
    peer = make(limits={"topic_alias_max": 0}).client("a")
    told = peer.connect().properties
    assert told is None or told.topic_alias_max is None
    peer.raw(aliased("t", 1))
    peer.expect_close(0x94)


@pytest.mark.spec("MQTT-3.3.2-7", version="5.0")
def test_an_unknown_alias_closes(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    peer.raw(aliased("", 1))
    peer.expect_close(0x82, 0x94)


@pytest.mark.spec("MQTT-3.3.2-7", version="5.0")
def test_aliases_of_a_client_end_with_its_connection(box: Box) -> None:
    peer = box.client("a")
    peer.resume()
    peer.raw(aliased("t", 1))
    peer.lose()
    assert peer.resume().session_present
    peer.raw(aliased("", 1))
    peer.expect_close(0x82, 0x94)


@pytest.mark.spec("MQTT-3.1.2-26", "MQTT-3.3.2-11", version="5.0")
def test_the_server_stays_within_the_clients_maximum(box: Box) -> None:
    """The peer resolves the names; the rules of every connection check the numbers."""
    peer, source = box.client("a"), box.client("s")
    source.connect()
    peer.connect(topic_alias_max=2)
    peer.subscribe("t/#", qos=1)
    topics = [f"t/{number % 4}" for number in range(20)]
    for number, topic in enumerate(topics):
        source.publish(topic, b"%d" % number, qos=number % 2)
    assert peer.messages() == [(topic, b"%d" % number) for number, topic in enumerate(topics)]


@pytest.mark.spec("MQTT-3.1.2-26", version="5.0")
def test_the_server_uses_aliases_where_it_may(box: Box) -> None:
    peer, source = box.client("a"), box.client("s")
    source.connect()
    peer.connect(topic_alias_max=5)
    peer.subscribe("a/rather/long/topic")
    for _ in range(5):
        source.publish("a/rather/long/topic", b"m")
    assert len(peer.messages()) == 5
    assert peer.wire.count(b"a/rather/long/topic") < 5


def test_very_long_topics_get_no_alias(box: Box) -> None:
    """Each connection would keep them: 64 topics of 64 KiB."""
    peer, source = box.client("a"), box.client("s")
    source.connect()
    peer.connect(topic_alias_max=5)
    peer.subscribe("#")
    for size in (1024, 1025, 1024, 1025):
        source.publish("x" * size, b"m")
    assert peer.wire.count(b"x" * 1024 + b"\x03") == 1
    assert peer.wire.count(b"x" * 1025) == 2


@pytest.mark.spec("MQTT-3.1.2-27", version="5.0")
@pytest.mark.parametrize("maximum", [None, 0])
def test_without_a_maximum_the_server_sends_no_alias(box: Box, maximum: int | None) -> None:
    peer, source = box.client("a"), box.client("s")
    source.connect()
    peer.connect(topic_alias_max=maximum)
    peer.subscribe("topic")
    for _ in range(5):
        source.publish("topic", b"m")
    packets = peer.publishes()
    assert [packet.properties is None or packet.properties.topic_alias is None for packet in packets] == [True] * 5
    assert peer.wire.count(wire.text("topic")) == 5


@pytest.mark.spec("MQTT-3.3.2-7", version="5.0")
def test_aliases_of_the_server_end_with_the_connection(box: Box) -> None:
    peer, source = box.client("a", acks=False), box.client("s")
    source.connect()
    peer.resume(topic_alias_max=5)
    peer.subscribe("topic", qos=1)
    for _ in range(3):
        source.publish("topic", b"m", qos=1)
    peer.lose()
    peer.resume(topic_alias_max=5)
    assert peer.messages() == [("topic", b"m")] * 3  # a name left out would not be known to the new connection
    peer.lose()
    peer.resume()
    assert peer.messages() == [("topic", b"m")] * 3


def test_an_alias_is_not_passed_on(box: Box) -> None:
    peer, source = box.client("a"), box.client("s")
    source.connect()
    peer.connect()
    peer.subscribe("t")
    source.send(Publish(b"t", b"m", properties=properties(topic_alias=1)))
    (packet,) = peer.publishes()
    assert packet.properties is None or packet.properties.topic_alias is None
