"""Section 4.7: topic names, filters, wildcards, names that begin with $."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, Suback
from tests.harness import wire
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import ALL, BOTH

MATCHES = [
    ("sport/tennis/player1/#", "sport/tennis/player1", True),
    ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
    ("sport/tennis/player1/#", "sport/tennis/player10", False),
    ("sport/#", "sport", True),
    ("#", "sport/tennis", True),
    ("#", "/", True),
    ("sport/tennis/+", "sport/tennis/player1", True),
    ("sport/tennis/+", "sport/tennis/player1/ranking", False),
    ("sport/+", "sport", False),
    ("sport/+", "sport/", True),
    ("+/+", "/finance", True),
    ("/+", "/finance", True),
    ("+", "/finance", False),
    ("+/tennis/#", "sport/tennis", True),
    ("+/monitor/Clients", "$SYS/monitor/Clients", False),
    ("$other/#", "$other/x", True),
    ("$other/+", "$other/x", True),
    ("a/+/c", "a//c", True),
    ("a//c", "a/c", False),
    ("a/b", "a/b/", False),
]


def rejected(peer: Peer, topic_filter: str | bytes) -> bool:
    """Subscribing fails with 0x8F (0x80 in MQTT 3.x), or the connection is closed as for a malformed packet."""
    peer.connect()
    peer.raw(wire.subscribe(peer.version, (topic_filter, 0)))
    if peer.closed:
        peer.expect_close(0x81, 0x82, 0x8F)
        return True
    codes = peer.take(Suback).codes
    peer.disconnect()
    return codes == [0x8F if peer.version == V5 else 0x80]


@pytest.mark.spec("MQTT-4.7.1-1", "MQTT-4.7.1-2", version="5.0")
@pytest.mark.spec("MQTT-4.7.1-2", "MQTT-4.7.1-3", version="3.1.1")
@pytest.mark.parametrize(("topic_filter", "topic", "match"), MATCHES)
def test_filters_match_by_levels(box: Box, topic_filter: str, topic: str, match: bool) -> None:
    for version in (4, 5):
        peer = box.client(f"v{version}", version)
        peer.connect()
        assert peer.subscribe(topic_filter) == [0]
        peer.publish(topic, b"m")
        assert peer.messages() == ([(topic, b"m")] if match else [])
        peer.disconnect()


@pytest.mark.spec("MQTT-4.7.1-1", version="5.0")
@pytest.mark.spec("MQTT-4.7.1-2", version="3.1.1")
@ALL
@pytest.mark.parametrize("topic_filter", ["#/a", "a/#/b", "a#", "a/b#", "##", "#a"])
def test_a_misplaced_multi_level_wildcard_is_rejected(box: Box, version: int, topic_filter: str) -> None:
    assert rejected(box.client("a", version), topic_filter)


@pytest.mark.spec("MQTT-4.7.1-2", version="5.0")
@pytest.mark.spec("MQTT-4.7.1-3", version="3.1.1")
@ALL
@pytest.mark.parametrize("topic_filter", ["a+", "+a", "a/+b/c", "++", "a/b+"])
def test_a_misplaced_single_level_wildcard_is_rejected(box: Box, version: int, topic_filter: str) -> None:
    assert rejected(box.client("a", version), topic_filter)


@pytest.mark.spec("MQTT-4.7.3-1", version="5.0")
@pytest.mark.spec("MQTT-4.7.3-1", version="3.1.1")
@ALL
def test_an_empty_filter_is_rejected(box: Box, version: int) -> None:
    assert rejected(box.client("a", version), "")


@pytest.mark.spec("MQTT-4.7.2-1", version="5.0")
@pytest.mark.spec("MQTT-4.7.2-1", version="3.1.1")
@BOTH
@pytest.mark.parametrize("topic_filter", ["#", "+/x", "+/#", "+/+"])
def test_wildcards_do_not_match_a_dollar(box: Box, version: int, topic_filter: str) -> None:
    peer, named = box.client("a", version), box.client("b", version)
    peer.connect()
    named.connect()
    peer.subscribe(topic_filter)
    named.subscribe("$other/#")
    named.publish("$other/x", b"m")
    named.publish("x$/x", b"plain")
    assert peer.messages() == [("x$/x", b"plain")]
    assert named.messages() == [("$other/x", b"m")]


@pytest.mark.spec("MQTT-4.7.2-1", version="5.0")
@pytest.mark.spec("MQTT-4.7.2-1", version="3.1.1")
def test_system_topics_are_found_by_name_only(make: MakeBox) -> None:
    box = make(limits={"sys_interval_us": 10_000_000})
    peer, named = box.client("a"), box.client("b")
    peer.connect()
    named.connect()
    peer.subscribe("#", "+/broker/#")
    named.subscribe("$SYS/#")
    box.advance(25_000_000)
    assert peer.messages() == []
    assert "$SYS/broker/version" in [topic for topic, _ in named.messages()]


@pytest.mark.spec("MQTT-4.7.3-2", version="5.0")
@pytest.mark.spec("MQTT-4.7.3-2", version="3.1.1")
@BOTH
@pytest.mark.parametrize("topic_filter", [b"a\0b", b"\0", b"a/\0/#"])
def test_null_in_a_filter_closes(box: Box, version: int, topic_filter: bytes) -> None:
    peer = box.client("a", version)
    peer.connect()
    peer.raw(wire.subscribe(version, (topic_filter, 0)))
    peer.expect_close(0x81)


@pytest.mark.spec("MQTT-4.7.3-3", version="5.0")
@pytest.mark.spec("MQTT-4.7.3-3", version="3.1.1")
@BOTH
def test_names_and_filters_of_65535_bytes_work(box: Box, version: int) -> None:
    """Longer ones cannot be written: their length has two bytes."""
    peer = box.client("a", version)
    peer.connect()
    name = "x" * 65_535
    assert peer.subscribe(name) == [0]
    peer.publish(name, b"m")
    assert peer.messages() == [(name, b"m")]
    assert peer.subscribe(f"{'y' * 65_533}/#") == [0]


@pytest.mark.spec("MQTT-4.7.3-4", version="5.0")
@pytest.mark.spec("MQTT-4.7.3-4", version="3.1.1")
@BOTH
def test_nothing_is_normalised(box: Box, version: int) -> None:
    """Composed and decomposed letters, case, spaces, slashes, dots, percent signs, characters not assigned."""
    names = ["\u00e4", "a\u0308", "A", "a", " a", "a ", "/a", "a/", "a//", "./a", "../a", "%61", "\U000e0fff", "\u200b"]
    peer = box.client("a", version)
    peer.connect()
    for name in names:
        peer.subscribe(name)
        for topic in names:
            peer.publish(topic, b"m")
        assert peer.messages() == [(name, b"m")]
        peer.unsubscribe(name)


def test_topic_level_limit_is_enforced(make: MakeBox) -> None:
    """A limit of this server: 0x8F for filters, 0x90 for names."""
    box = make(limits={"topic_levels_max": 4})
    peer = box.client("a")
    peer.connect()
    assert peer.subscribe("a/b/c/d") == [0]
    assert peer.subscribe("a/b/c/d/e") == [0x8F]
    assert peer.publish("a/b/c/d", b"m", qos=1) == 0
    assert peer.messages() == [("a/b/c/d", b"m")]
    peer.raw(wire.publish(V5, "a/b/c/d/e", b"m", first=0x32, packet_id=99))
    assert 0x90 in (peer.close_code, getattr(peer.inbox[0], "code", None) if peer.inbox else None)


@BOTH
@pytest.mark.parametrize("topic", ["$SYS/broker/version", "$SYS/x", "$SYS"])
def test_clients_cannot_publish_to_system_topics(make: MakeBox, version: int, topic: str) -> None:
    box = make(limits={"sys_interval_us": 10_000_000})
    watcher, peer = box.client("w", version), box.client("a", version)
    watcher.connect()
    watcher.subscribe("$SYS", "$SYS/#")
    watcher.messages()
    peer.connect()
    peer.raw(wire.publish(version, topic, b"forged", first=0x33, packet_id=9))
    if version == V5 and not peer.closed:
        assert getattr(peer.inbox[0], "code", None) in (0x87, 0x90)
    box.advance(30_000_000)
    assert b"forged" not in watcher.payloads()
    late = box.client("late", version)
    late.connect()
    late.subscribe(topic)
    assert b"forged" not in late.payloads()
