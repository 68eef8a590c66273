"""Requests that are well-formed and strange: the worst that happens is a reason code."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, Publish, Subscribe, Will
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties
from tests.harness.version import BOTH


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_may_match_hundreds_of_identified_subscriptions(box: Box, lasting: bool, qos: int) -> None:
    """Their identifiers, up to four bytes each, all go with it, also through the stored queue."""
    count = 300
    peer, source = box.client("a"), box.client("s")
    if lasting:
        peer.resume()
    else:
        peer.connect()
    topic = "/".join(["x"] * 9)
    numbers = []
    for number in range(count):
        levels = ["+" if number >> bit & 1 else "x" for bit in range(9)]
        packet_id, identifier = peer.packet_id(), 268_435_455 - number
        made = properties(subscription_ids=[identifier])
        peer.send(Subscribe(packet_id, [("/".join(levels).encode(), 2)], made))
        numbers.append(identifier)
    peer.receive()
    source.connect()
    source.publish(topic, b"m", qos=qos)
    (packet,) = peer.publishes()
    assert packet.properties is not None
    assert sorted(packet.properties.subscription_ids) == sorted(numbers)


# Digits to `str.isdigit`, and to nobody else; times at the ends of the calendar.
PLACES = ["²", "١٢", "1²", "+1", "-1", " 1", "1_0", "", "0" * 20, "9" * 19, "0001-01-01T00:00:00+23:59", "24:00Z", "🕐"]


@pytest.mark.parametrize("place", PLACES)
def test_a_replay_from_nowhere_is_refused_or_waits(make: MakeBox, place: str) -> None:
    box = make(streams=[StreamConfig("log", b"t/#", 2)])
    peer = box.client("a")
    peer.connect()
    assert peer.subscribe(f"$stream/log/{place}/#")[0] in (0, 0x8F)
    peer.ping()


@BOTH
@pytest.mark.parametrize("topic", ["$SYS/broker/uptime", "$stream/log/0/t", "$share/g/t"])
def test_a_will_cannot_be_for_a_topic_of_the_server(box: Box, version: int, topic: str) -> None:
    watcher, peer = box.client("w"), box.client("a", version)
    watcher.connect()
    watcher.subscribe("$SYS/#", "$stream/#", "#")
    watcher.receive()
    peer.connect(will=Will(topic.encode(), b"forged", 0, True), code=0x87 if version == V5 else 5)
    assert peer.closed
    assert watcher.messages() == []
    watcher.subscribe("$SYS/broker/uptime")
    assert b"forged" not in watcher.payloads()


def test_a_payload_may_be_empty_and_a_topic_as_long_as_they_come(make: MakeBox) -> None:
    box = make(limits={"topic_levels_max": 65_536})
    peer, source = box.client("a", acks=False), box.client("s")
    peer.resume()
    peer.subscribe("#", qos=2)
    source.connect()
    for topic in ("/" * 65_535, "x" * 65_535, "é" * 32_767):
        source.send(Publish(topic.encode(), b"", 2, packet_id=source.packet_id()))
        assert [packet.topic.decode() for packet in peer.publishes()] == [topic]
    box.crash()
    peer.resume()
    assert peer.payloads() == [b"", b"", b""]


@pytest.mark.parametrize("method", ["x" * 65_510, "\x01" * 20_000, "\u202e" * 21_000])
def test_a_reason_quotes_only_the_beginning_of_what_came(box: Box, method: str) -> None:
    """An authentication method may have 65,535 bytes, and so has a reason string: there is no room for a word more."""
    peer = box.client("a")
    peer.connect(auth_method=method, code=0x8C)
    assert peer.closed
    box.client("b").connect()


def test_response_information_that_no_string_can_hold_is_left_out(make: MakeBox) -> None:
    box = make(limits={"client_id_bytes_max": 65_535}, response_information="%c/and/%c")
    told = box.client("c" * 40_000).connect(request_response=1).properties
    assert told is not None
    assert told.response_info is None
