"""Idempotent producers: a publisher that names itself and counts is applied once, whatever it repeats."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.mqtt.packet import Publish
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer, properties


@pytest.fixture
def producing(make: MakeBox) -> Box:
    """A box with a stream, an absent lasting session and a live one, all on t/#."""
    box = make(streams=[StreamConfig("s", b"t/#", 2)])
    sleeper, live = box.client("sleeper"), box.client("live")
    sleeper.resume()
    sleeper.subscribe("t/#", qos=1)
    sleeper.lose()
    live.connect()
    live.subscribe("t/#", qos=1)
    return box


def produce(peer: Peer, sequence: int, topic: str = "t/1", producer: str = "p", **named: Any) -> int:
    pairs = [("folkmoot-producer", producer), ("folkmoot-seq", str(sequence))]
    return peer.publish(topic, b"%s%d" % (producer.encode(), sequence), qos=1, user_properties=pairs, **named)


def everywhere(box: Box) -> list[list[bytes]]:
    """What the absent session, the live one and the stream have got."""
    sleeper = next(peer for peer in box.peers if peer.client_id == "sleeper")
    live = next(peer for peer in box.peers if peer.client_id == "live")
    sleeper.resume()
    streamed = box.client("streamed")
    streamed.connect()
    streamed.subscribe("$stream/s/earliest/#", qos=1)
    return [sleeper.payloads(), live.payloads(), sorted(streamed.payloads())]


def test_a_repetition_is_acknowledged_and_applied_once(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    for sequence in (1, 2, 2, 1, 3, 3, 2):
        assert produce(peer, sequence) == 0
    assert everywhere(producing) == [[b"p1", b"p2", b"p3"]] * 3


def test_a_repetition_after_a_crash_is_applied_once(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    produce(peer, 1)
    producing.crash()
    peer.connect()
    for sequence in (1, 2):
        assert produce(peer, sequence) in (0, 0x10)
    sleeper, _, streamed = everywhere(producing)
    assert sleeper == streamed == [b"p1", b"p2"]


@pytest.mark.parametrize("durable", [0, 1])
def test_a_repetition_of_what_was_not_acknowledged_is_not_lost(producing: Box, durable: int) -> None:
    """The crash may or may not have kept the first one: the second makes it exactly one."""
    peer = producing.client("a", acks=False)
    peer.connect()
    producing.hold_writes()
    pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    peer.send(Publish(b"t/1", b"p1", 1, packet_id=1, properties=properties(user_properties=pairs)))
    producing.crash(durable)
    peer.connect()
    produce(peer, 1)
    sleeper, _, streamed = everywhere(producing)
    assert sleeper == streamed == [b"p1"]


def test_a_repetition_waits_for_the_first(producing: Box) -> None:
    """Else it would acknowledge what a crash could still take away."""
    peer, again = producing.client("a", acks=False), producing.client("b", acks=False)
    peer.connect()
    again.connect()
    pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    packet = Publish(b"t/1", b"p1", 1, packet_id=1, properties=properties(user_properties=pairs))
    producing.hold_writes()
    peer.send(packet)
    again.send(packet)
    assert again.receive() == []
    producing.release_writes()
    assert len(again.receive()) == 1


def test_producers_are_independent(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    for producer in ("p", "q"):
        for sequence in (5, 6):
            produce(peer, sequence, producer=producer)
    assert everywhere(producing)[0] == [b"p5", b"p6", b"q5", b"q6"]


def test_a_producer_counts_over_all_its_topics(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    for sequence in range(20):
        produce(peer, sequence, f"t/{sequence % 5}")
    for sequence in range(20):
        produce(peer, sequence, f"t/{sequence % 5}")
    assert [len(got) for got in everywhere(producing)] == [20, 20, 20]


def test_without_a_name_everything_counts(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    for _ in range(3):
        peer.publish("t/1", b"m", qos=1)
    assert [len(got) for got in everywhere(producing)] == [3, 3, 3]


@pytest.mark.parametrize(
    "pairs",
    [
        [("folkmoot-producer", "p")],
        [("folkmoot-seq", "1")],
        [("folkmoot-producer", "p"), ("folkmoot-seq", "one")],
        [("folkmoot-producer", "p"), ("folkmoot-seq", "-1")],
        [("folkmoot-producer", "p"), ("folkmoot-seq", "9" * 30)],
    ],
)
def test_half_a_producer_is_refused(producing: Box, pairs: list[tuple[str, str]]) -> None:
    peer = producing.client("a")
    peer.connect()
    assert peer.publish("t/1", b"m", qos=1, user_properties=pairs) == 0x83
    assert everywhere(producing) == [[], [], []]


def test_retained_messages_of_a_producer(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    produce(peer, 2, "t/r", retain=True)
    produce(peer, 1, "t/r", retain=True)
    late = producing.client("late")
    late.connect()
    late.subscribe("t/r")
    assert late.payloads() == [b"p2"]
