"""Idempotent producers: a publisher that names itself and counts is applied once, whatever it repeats."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.pack import u64
from folkmoot.mqtt.packet import Publish
from folkmoot.partition.producer import FIRST_MAX, JUMP_MAX
from folkmoot.store.batch import Batch
from folkmoot.store.key import PRODUCER, plain_key
from folkmoot.store.writer import VERSION_BYTES
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


def test_a_repetition_waits_for_the_first(make: MakeBox) -> None:
    """Else it would acknowledge what a crash could still take away."""
    producing = make(streams=[StreamConfig("s", b"t/#", 2)], check=everybody)
    peer, again = producing.client("a", acks=False), producing.client("b", acks=False)
    peer.connect(username="ann", password=b"")
    again.connect(username="ann", password=b"")
    pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    packet = Publish(b"t/1", b"p1", 1, packet_id=1, properties=properties(user_properties=pairs))
    producing.hold_writes()
    peer.send(packet)
    again.send(packet)
    assert again.receive() == []
    producing.release_writes()
    assert len(again.receive()) == 1


def everybody(username: str | None, password: bytes | None, client_id: str) -> bool:
    return True


@pytest.mark.parametrize("names", [("ann", "bob"), (None, None)])
def test_a_name_belongs_to_its_user_or_client_id(make: MakeBox, names: tuple[str | None, str | None]) -> None:
    """The large number of another one makes nothing of the first one's messages vanish."""
    box = make(streams=[StreamConfig("s", b"t/#", 2)], check=None if names[0] is None else everybody)
    mine, other, reader = box.client("mine"), box.client("other"), box.client("reader")
    for peer, name in ((mine, names[0]), (other, names[1]), (reader, names[0])):
        peer.connect(username=name, password=None if name is None else b"")
    assert produce(mine, 1) == 0
    assert produce(other, FIRST_MAX, "t/2") == 0
    for sequence in (2, 3, 2):
        assert produce(mine, sequence) == 0
    assert produce(other, 7, "t/2") == 0, "a repetition of the other one's own"
    box.crash()
    for peer, name in ((mine, names[0]), (other, names[1]), (reader, names[0])):
        peer.connect(username=name, password=None if name is None else b"")
    assert produce(mine, 3) == 0
    assert produce(mine, 4) == 0
    reader.subscribe("$stream/s/earliest/#", qos=1)
    assert sorted(reader.payloads()) == [b"p1", b"p2", b"p3", b"p4", b"p%d" % FIRST_MAX]


def test_the_connections_of_a_user_share_its_producers(make: MakeBox) -> None:
    box = make(streams=[StreamConfig("s", b"t/#", 1)], check=everybody)
    for client_id in ("a", "b"):
        peer = box.client(client_id)
        peer.connect(username="ann", password=b"")
        assert produce(peer, 1) == 0
    peer.subscribe("$stream/s/earliest/#", qos=1)
    assert peer.payloads() == [b"p1"]


@pytest.mark.parametrize("own", [0, 3])
def test_rows_of_version_0_1_still_tell_repetitions(make: MakeBox, own: int) -> None:
    """own: what a node of this version has written already, while others were still of the former one."""
    box = make(streams=[StreamConfig("s", b"t/#", 1)])
    reader = box.client("reader")
    reader.connect()
    peer = box.client("a")
    peer.connect()
    if own:
        assert produce(peer, own) == 0
    batch = Batch(0)
    for partition in range(box.config.partitions):
        batch.put(plain_key(partition, PRODUCER, b"p"), bytes(VERSION_BYTES) + u64(5))
    box.store.apply(batch)
    box.crash()
    peer.connect()
    reader.connect()
    for sequence in (4, 5, 6):
        assert produce(peer, sequence) == 0
    reader.subscribe("$stream/s/earliest/#", qos=1)
    assert reader.payloads()[bool(own) :] == [b"p6"]


@pytest.mark.parametrize("crash", [False, True])
def test_an_absurd_jump_is_refused_and_changes_nothing(producing: Box, crash: bool) -> None:
    peer = producing.client("a")
    peer.connect()
    for sequence in (1, 2, 3):
        assert produce(peer, sequence) == 0
    if crash:
        producing.crash()
        peer.connect()
    assert produce(peer, 999_999_999_999_999_999) == 0x83
    assert produce(peer, 4 + JUMP_MAX) == 0x83
    assert produce(peer, 4) in (0, 0x10)
    sleeper, _, streamed = everywhere(producing)
    assert sleeper == streamed == [b"p1", b"p2", b"p3", b"p4"]


def test_an_absurd_first_number_is_refused(producing: Box) -> None:
    peer = producing.client("a")
    peer.connect()
    assert produce(peer, FIRST_MAX + 1) == 0x83
    assert produce(peer, 1) == 0
    assert everywhere(producing)[0] == [b"p1"]


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (1_800_000_000_000_000, 1_800_000_000_000_000 + 30 * 31_557_600_000_000),  # microseconds since 1970
        (1_800_000_000_000 << 16, (1_800_000_000_000 + 30 * 31_557_600_000) << 16),  # milliseconds and a counter
        (20261231235959999, 20560101000000000),  # dates
    ],
)
def test_a_producer_that_was_silent_for_thirty_years_goes_on(producing: Box, first: int, later: int) -> None:
    peer = producing.client("a")
    peer.connect()
    for sequence in (first, later, later + 1):
        assert produce(peer, sequence) == 0
    assert len(everywhere(producing)[0]) == 3


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
