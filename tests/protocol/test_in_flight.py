"""What the store does not show yet: retained messages, producers, bodies whose batch is on its way to the disk."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Packet, Publish, Subscribe
from folkmoot.node import Effects
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer, properties


def say(box: Box, peer: Peer, *packets: Packet) -> None:
    """Send packets in the turn that is going on."""
    assert peer.connection is not None
    box.node.receive(peer.connection, b"".join(encode(packet, V5) for packet in packets), box.now)


def produce(peer: Peer, producer: str, sequence: int, topic: str = "t", retain: bool = False) -> int:
    pairs = [("folkmoot-producer", producer), ("folkmoot-seq", str(sequence))]
    return peer.publish(topic, b"%s %d" % (producer.encode(), sequence), 1, retain, user_properties=pairs)


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("news", [b"new", b""])
def test_an_old_retained_message_does_not_follow_the_new_one(box: Box, lasting: bool, qos: int, news: bytes) -> None:
    """The subscription is made, then the message changes, then the store is read, which shows the old one (A8)."""
    source, peer = box.client("s"), box.client("a")
    source.connect()
    source.publish("t/1", b"old", retain=True)
    source.publish("t/2", b"other", retain=True)
    if lasting:
        peer.resume()
    else:
        peer.connect()
    say(box, peer, Subscribe(1, [(b"t/#", qos)]))
    box.turn()
    box.hold_writes()
    say(box, source, Publish(b"t/1", news, 0, True))
    box.run()
    box.release_writes()
    got = peer.messages()
    assert got[-1] in (("t/1", news), ("t/2", b"other"))
    assert sorted(got) == sorted([("t/1", news), ("t/2", b"other")])
    late = box.client("late")
    late.connect()
    late.subscribe("t/#")
    assert sorted(late.messages()) == sorted([("t/2", b"other")] + ([("t/1", news)] if news else []))


def test_a_retained_message_changed_before_the_subscription_is_sent(box: Box) -> None:
    source, peer = box.client("s"), box.client("a")
    source.connect()
    source.publish("t/1", b"old", retain=True)
    peer.connect()
    box.hold_writes()
    say(
        box,
        source,
        Publish(b"t/1", b"new", 0, True),
        Publish(b"t/2", b"cleared", 0, True),
        Publish(b"t/2", b"", 0, True),
    )
    say(box, peer, Subscribe(1, [(b"t/#", 0)]))
    box.run()
    assert peer.messages() == []
    box.release_writes()
    assert peer.messages() == [("t/1", b"new")]


def test_what_is_durable_is_forgotten_also_when_something_is_always_on_its_way(box: Box) -> None:
    source = box.client("s")
    source.connect()
    pending: list[Effects] = []
    for number in range(200):
        say(box, source, Publish(b"t/%d" % number, b"m", 0, True))
        pending.append(box.node.drain(box.now))
        if len(pending) > 3:
            write = pending.pop(0).write
            assert write is not None
            box.store.apply(write)
            box.node.written(write.token, box.now)
    retained = box.node._broker.partition.retained
    assert len(retained._fresh) <= 4
    assert len(retained._changes) <= 4
    assert len(box.node._broker.turn.commits._turns) <= 4
    assert box.node.counters.retained_messages == 200


def test_a_message_that_changes_again_and_again_is_counted_once(make: MakeBox) -> None:
    box = make(limits={"retained_messages_max": 1})
    source = box.client("s")
    source.connect()
    box.hold_writes()
    for payload in (b"1", b"", b"22", b"333", b"", b"4444"):
        say(box, source, Publish(b"t/1", payload, 0, True))
        say(box, source, Publish(b"t/2", b"no room", 0, True) if payload else Publish(b"t/3", b"", 0, True))
        assert box.node.counters.retained_messages == (1 if payload else 0)
        assert box.node.counters.retained_bytes == (len(b"t/1" + payload) if payload else 0)
    box.release_writes()
    assert [value.rsplit(b"s", 1)[-1][-4:] for key, value in box.store.items() if key.endswith(b"t/1")] == [b"4444"]


@pytest.fixture
def crowded(make: MakeBox) -> tuple[Box, Peer, Peer]:
    """A node that remembers four producers, one of them, and a lasting subscriber."""
    box = make(limits={"producers_max": 4, "user_share_max": 100})
    sleeper, peer = box.client("z"), box.client("a")
    sleeper.resume()
    sleeper.subscribe("t", qos=1)
    peer.connect()
    return box, sleeper, peer


def test_a_producer_on_its_way_to_the_disk_is_not_forgotten(crowded: tuple[Box, Peer, Peer]) -> None:
    box, sleeper, peer = crowded
    produce(peer, "first", 1)
    box.hold_writes()
    pairs = properties(user_properties=[("folkmoot-producer", "first"), ("folkmoot-seq", "2")])
    peer.send(Publish(b"t", b"first 2", 1, packet_id=101, properties=pairs))
    for number in range(20):
        other = properties(user_properties=[("folkmoot-producer", f"other {number}"), ("folkmoot-seq", "1")])
        peer.send(Publish(b"t", b"other", 1, packet_id=200 + number, properties=other))
    peer.send(Publish(b"t", b"first 2", 1, packet_id=102, properties=pairs))
    box.release_writes()
    assert sleeper.payloads().count(b"first 2") == 1


def test_a_busy_producer_is_not_forgotten_for_its_age(crowded: tuple[Box, Peer, Peer]) -> None:
    box, sleeper, peer = crowded
    for number in range(20):
        produce(peer, "busy", number)
        produce(peer, f"other {number}", 1)
        produce(peer, "busy", number)
    assert len([payload for payload in sleeper.payloads() if payload.startswith(b"busy")]) == 20
    assert len(box.node._broker.partition.producers._newest) <= 4
    assert any(key.endswith(b"busy") for key in box.node._broker.partition.producers._newest)


def test_a_forgotten_producer_is_read_from_the_store(crowded: tuple[Box, Peer, Peer]) -> None:
    """Four producers, each with a row in each of several partitions: memory has four of the rows."""
    box, sleeper, peer = crowded
    for number in range(8):
        other = box.client(f"sleeper {number}")
        other.resume()
        other.subscribe("t", qos=1)
    for _ in range(3):
        for number in range(4):
            produce(peer, f"p{number}", 7)
    assert len(box.node._broker.partition.producers._newest) <= 4
    for one in [sleeper, *box.peers[-8:]]:
        assert len(one.payloads()) == 4


def test_producers_for_transient_sessions_are_limited_too(make: MakeBox) -> None:
    box = make(limits={"producers_max": 4, "user_share_max": 100})
    peer = box.client("a")
    peer.connect()
    peer.subscribe("t", qos=1)
    for number in range(50):
        produce(peer, f"p{number}", 1)
        produce(peer, f"p{number}", 1)
        produce(peer, "busy", number)
        produce(peer, "busy", number)
    assert len(peer.payloads()) == 100
    assert len(box.node._broker.partition.producers._live) <= 4


def test_a_producer_refused_for_want_of_room_may_repeat(make: MakeBox) -> None:
    box = make(limits={"retained_messages_max": 1})
    peer = box.client("a")
    peer.connect()
    peer.publish("full", b"m", retain=True)
    assert produce(peer, "p", 1, "t", retain=True) == 0x97
    peer.publish("full", b"", retain=True)
    assert produce(peer, "p", 1, "t", retain=True) in (0, 0x10)
    peer.subscribe("t")
    assert peer.payloads() == [b"p 1"]


def test_the_name_of_a_producer_is_limited(box: Box) -> None:
    peer = box.client("a")
    peer.connect()
    assert produce(peer, "é" * 128, 1) in (0, 0x10)
    assert produce(peer, "é" * 128 + "x", 1) == 0x83
