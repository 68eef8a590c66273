"""Limits of connections, sessions, rates and the backlog of writes: reached, told, and left again."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V311, Ack, Publish, Will
from tests.harness.fixture import MakeBox
from tests.harness.peer import properties
from tests.harness.version import BOTH


def test_connections_are_limited(make: MakeBox) -> None:
    box = make(bystander=False, limits={"connections_max": 2})
    peers = [box.client(f"p{number}") for number in range(3)]
    peers[0].connect()
    peers[1].connect()
    peers[2].connect(code=0x89)
    assert peers[2].closed
    old = box.client("old", V311)
    old.connect(code=3)
    peers[0].lose()
    peers[2].connect()


def test_a_server_reference_is_told_to_those_who_find_no_place(make: MakeBox) -> None:
    box = make(bystander=False, limits={"connections_max": 1}, server_reference="other.example:1883")
    box.client("a").connect()
    connack = box.client("b").connect(code=0x9C)
    assert connack.properties is not None
    assert connack.properties.server_reference == "other.example:1883"


def test_sessions_are_limited(make: MakeBox) -> None:
    box = make(bystander=False, limits={"sessions_max": 2})
    first, second, third = (box.client(name) for name in "abc")
    for peer in (first, second):
        peer.resume()
        peer.lose()
    third.connect(code=0x89)
    assert first.resume().session_present
    first.disconnect(session_expiry=0)
    third.connect()


@BOTH
def test_a_publisher_that_is_too_fast_is_read_later(make: MakeBox, version: int) -> None:
    """Nothing is dropped: its socket is not read until the next second."""
    box = make(limits={"publish_rate_max": 10})
    watcher, peer = box.client("w"), box.client("a", version)
    watcher.connect()
    watcher.subscribe("t")
    peer.connect()
    for number in range(25):
        peer.send(Publish(b"t", b"%d" % number))
    assert peer.paused
    first = watcher.payloads()
    assert len(first) == 10
    box.advance(3 * SECOND)
    assert first + watcher.payloads() == [b"%d" % number for number in range(25)]
    assert not peer.paused


@BOTH
def test_a_backlog_of_writes_slows_its_publishers_down(make: MakeBox, version: int) -> None:
    box = make(limits={"write_backlog_bytes_max": 20_000})
    sleeper, peer, other = box.client("z"), box.client("a", version, acks=False), box.client("b")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    sleeper.lose()
    peer.connect()
    other.connect()
    box.hold_writes()
    for number in range(1, 51):
        peer.send(Publish(b"t", bytes(1_000), 1, packet_id=number))
    assert peer.paused
    assert box.node.counters.publishers_paused == 1
    other.ping()  # who writes nothing is not held up
    box.release_writes()
    box.advance(2 * SECOND)
    assert not peer.paused
    assert [ack.packet_id for ack in peer.receive() if isinstance(ack, Ack)] == list(range(1, 51))
    sleeper.resume()
    assert len(sleeper.payloads()) == 50


def test_user_properties_are_limited(make: MakeBox) -> None:
    box = make(limits={"user_properties_max": 3})
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t")
    assert peer.publish("t", b"m", qos=1, user_properties=[("n", "v")] * 3) == 0
    assert peer.publish("t", b"m", qos=1, user_properties=[("n", "v")] * 4) == 0x97
    assert len(peer.payloads()) == 1


def test_user_properties_of_a_will_are_limited(make: MakeBox) -> None:
    """They come to its subscribers as those of any message."""
    box = make(limits={"user_properties_max": 3})
    for count, code in ((3, 0), (4, 0x97)):
        will = Will(b"w", b"gone", 0, False, properties(user_properties=[("n", "v")] * count))
        box.client(f"c{count}").connect(will=will, code=code)


@pytest.mark.parametrize("slow", [0, 1])
def test_a_route_cache_of_any_size_gives_the_same_deliveries(make: MakeBox, slow: int) -> None:
    box = make(limits={"route_cache_max": 1 if slow else 100_000})
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t/+", qos=1)
    for number in range(20):
        peer.publish(f"t/{number % 3}", b"%d" % number, qos=1)
        peer.publish(f"u/{number % 3}", b"no", qos=1)
    assert peer.payloads() == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(("limit_s", "expiry_s"), [(10, None), (10, 1000), (0, 5), (0, 0)])
def test_a_will_lives_no_longer_than_a_message(make: MakeBox, limit_s: int, expiry_s: int | None) -> None:
    box = make(limits={"message_expiry_max_s": limit_s})
    peer, source = box.client("a"), box.client("s")
    peer.resume()
    peer.subscribe("w", qos=1)
    peer.lose()
    source.connect(will=Will(b"w", b"will", 1, False, properties(message_expiry=expiry_s)))
    box.advance(20 * SECOND)  # its life begins when it is published
    source.lose()
    box.advance(4 * SECOND)
    peer.resume()
    assert peer.payloads() == ([] if expiry_s == 0 else [b"will"])
    peer.lose()
    source.connect(will=Will(b"w", b"will", 1, False, properties(message_expiry=expiry_s)))
    source.lose()
    box.advance(11 * SECOND)
    peer.resume()
    assert peer.payloads() == []


def test_a_client_that_is_closed_is_not_kept_from_reading(make: MakeBox) -> None:
    """Paused and closed in one turn: its side of the close must be seen."""
    box = make(limits={"publish_rate_max": 2})
    peer = box.client("a")
    peer.connect()
    peer.send(*[Publish(b"t", b"m", 0, False) for _ in range(5)], Publish(b"bad/#", b"m", 0, False))
    peer.expect_close(0x90)
    assert not peer.paused
