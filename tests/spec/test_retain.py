"""Sections 3.3.1.3, 3.8.3.1: retained messages, retain handling, retain as published."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5
from tests.harness.box import Box
from tests.harness.peer import Peer
from tests.harness.version import ALL, BOTH


def publisher(box: Box, version: int = V5) -> Peer:
    peer = box.client("pub", version)
    peer.connect()
    return peer


def retained(box: Box, topic_filter: str = "t/#", version: int = V5) -> list[tuple[str, bytes]]:
    """What a fresh subscriber gets from the store, with RETAIN set."""
    reader = box.client("reader", version)
    reader.connect()
    reader.subscribe(topic_filter, qos=2)
    got = reader.publishes()
    assert all(packet.retain for packet in got)
    reader.disconnect()
    return [(packet.topic.decode(), packet.payload) for packet in got]


@pytest.mark.spec("MQTT-3.3.1-5", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-5", "MQTT-3.3.1-6", "MQTT-3.3.1-7", "MQTT-3.3.1-8", version="3.1.1")
@ALL
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retain_stores_the_last_message_of_a_topic(box: Box, version: int, qos: int) -> None:
    peer = publisher(box, version)
    peer.publish("t/1", b"old", qos=1, retain=True)
    peer.publish("t/1", b"new", qos=qos, retain=True)
    peer.publish("t/2", b"other", qos=qos, retain=True)
    assert sorted(retained(box, version=version)) == [("t/1", b"new"), ("t/2", b"other")]
    assert retained(box, "t/1", version) == [("t/1", b"new")]


@pytest.mark.spec("MQTT-3.3.1-5", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-5", version="3.1.1")
@BOTH
def test_retained_messages_survive_a_crash_with_their_qos(box: Box, version: int) -> None:
    peer = publisher(box, version)
    for qos in (1, 2):
        peer.publish(f"t/{qos}", b"m", qos=qos, retain=True)
    box.crash()
    reader = box.client("r", version)
    reader.connect()
    reader.subscribe("t/#", qos=2)
    assert sorted((packet.topic, packet.qos) for packet in reader.publishes()) == [(b"t/1", 1), (b"t/2", 2)]


@pytest.mark.spec("MQTT-3.3.1-6", "MQTT-3.3.1-7", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-10", "MQTT-3.3.1-11", version="3.1.1")
@BOTH
@pytest.mark.parametrize("crash", [False, True])
def test_an_empty_payload_clears_and_is_delivered(box: Box, version: int, crash: bool) -> None:
    peer, live = publisher(box, version), box.client("live", version)
    live.connect()
    peer.publish("t/1", b"old", qos=1, retain=True)
    live.subscribe("t/1")
    live.messages()
    peer.publish("t/1", b"", qos=1, retain=True)
    assert live.messages() == [("t/1", b"")]
    if crash:
        box.crash()
    assert retained(box, version=version) == []


@pytest.mark.spec("MQTT-3.3.1-7", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-11", version="3.1.1")
@BOTH
def test_an_empty_payload_is_not_stored(box: Box, version: int) -> None:
    publisher(box, version).publish("t/1", b"", qos=1, retain=True)
    assert retained(box, version=version) == []


@pytest.mark.spec("MQTT-3.3.1-8", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-12", version="3.1.1")
@BOTH
def test_without_retain_nothing_stored_changes(box: Box, version: int) -> None:
    peer = publisher(box, version)
    peer.publish("t/1", b"kept", qos=1, retain=True)
    peer.publish("t/1", b"passing", qos=1)
    peer.publish("t/1", b"", qos=1)
    peer.publish("t/2", b"passing", qos=1)
    assert retained(box, version=version) == [("t/1", b"kept")]


@pytest.mark.spec("MQTT-3.3.1-9", version="3.1.1")
@pytest.mark.spec("MQTT-3.3.1-12", version="5.0")
@BOTH
def test_an_established_subscription_gets_retain_0(box: Box, version: int) -> None:
    peer, live = publisher(box, version), box.client("live", version)
    live.connect()
    live.subscribe("t/#", qos=2)
    for qos in (0, 1, 2):
        peer.publish("t/1", b"m", qos=qos, retain=True)
    assert [packet.retain for packet in live.publishes()] == [False, False, False]


@pytest.mark.spec("MQTT-3.3.1-13", version="5.0")
def test_retain_as_published_keeps_the_flag(box: Box) -> None:
    peer, live, queued = publisher(box), box.client("live"), box.client("queued")
    live.connect()
    queued.resume()
    for each in (live, queued):
        each.subscribe("t/#", qos=2, as_published=True)
    queued.lose()
    for retain in (True, False, True):
        peer.publish("t/1", b"m", qos=1, retain=retain)
    assert [packet.retain for packet in live.publishes()] == [True, False, True]
    box.crash()
    queued.resume()
    assert [packet.retain for packet in queued.publishes()] == [True, False, True]


@pytest.mark.spec("MQTT-3.3.1-9", version="5.0")
@pytest.mark.spec("MQTT-3.3.1-6", version="3.1.1")
@BOTH
def test_retain_handling_0_sends_each_time(box: Box, version: int) -> None:
    publisher(box, version).publish("t/1", b"kept", qos=1, retain=True)
    reader = box.client("r", version)
    reader.connect()
    for _ in range(3):
        reader.subscribe("t/#")
        assert reader.messages() == [("t/1", b"kept")]


@pytest.mark.spec("MQTT-3.3.1-10", version="5.0")
def test_retain_handling_1_sends_for_a_new_subscription_only(box: Box) -> None:
    publisher(box).publish("t/1", b"kept", qos=1, retain=True)
    reader = box.client("r")
    reader.resume()
    reader.subscribe("t/#", retain_handling=1)
    assert reader.messages() == [("t/1", b"kept")]
    reader.subscribe("t/#", qos=2, retain_handling=1)
    assert reader.messages() == []
    reader.subscribe("t/+", retain_handling=1)
    assert reader.messages() == [("t/1", b"kept")]
    box.crash()
    reader.resume()
    reader.subscribe("t/#", retain_handling=1)
    assert reader.messages() == []
    reader.unsubscribe("t/#")
    reader.subscribe("t/#", retain_handling=1)
    assert reader.messages() == [("t/1", b"kept")]


@pytest.mark.spec("MQTT-3.3.1-11", version="5.0")
def test_retain_handling_2_sends_nothing(box: Box) -> None:
    peer = publisher(box)
    peer.publish("t/1", b"kept", qos=1, retain=True)
    reader = box.client("r")
    reader.connect()
    reader.subscribe("t/#", retain_handling=2)
    assert reader.messages() == []
    peer.publish("t/1", b"live", qos=1)
    assert reader.messages() == [("t/1", b"live")]


@BOTH
def test_retained_messages_come_with_the_lesser_qos(box: Box, version: int) -> None:
    publisher(box, version).publish("t/1", b"m", qos=2, retain=True)
    reader = box.client("r", version)
    reader.connect()
    for qos in (0, 1, 2):
        reader.subscribe("t/1", qos=qos)
        assert [packet.qos for packet in reader.publishes()] == [qos]


def test_retained_messages_carry_the_subscription_identifier(box: Box) -> None:
    publisher(box).publish("t/1", b"m", qos=1, retain=True)
    reader = box.client("r")
    reader.connect()
    reader.subscribe("t/#", subscription_id=77)
    (packet,) = reader.publishes()
    assert packet.properties is not None
    assert packet.properties.subscription_ids == [77]


def test_shared_subscriptions_get_no_retained_messages(box: Box) -> None:
    """Section 3.8.4."""
    publisher(box).publish("t/1", b"m", qos=1, retain=True)
    reader = box.client("r")
    reader.connect()
    reader.subscribe("$share/g/t/#")
    assert reader.messages() == []


def test_wildcards_do_not_find_retained_names_with_a_dollar(box: Box) -> None:
    publisher(box).publish("$x/1", b"m", qos=1, retain=True)
    assert retained(box, "#") == []
    assert retained(box, "+/1") == []
    assert retained(box, "$x/#") == [("$x/1", b"m")]
