"""Replaying a stream over MQTT: subscriptions to $stream/NAME/FROM/FILTER."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, Ack, Publish
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer
from tests.harness.version import BOTH


@pytest.fixture
def streaming(make: MakeBox) -> Box:
    """A box with a stream of one partition on t/#, and ten records in it, one per second."""
    box = make(streams=[StreamConfig("s", b"t/#", 1), StreamConfig("wide", b"w/#", 4)])
    peer = box.client("filler")
    peer.connect()
    for number in range(10):
        peer.publish(f"t/{number % 2}", b"%d" % number, qos=1)
        box.advance(SECOND)
    peer.disconnect()
    return box


def reader(box: Box, version: int = 5, client_id: str = "r") -> Peer:
    peer = box.client(client_id, version)
    peer.connect()
    return peer


def numbers(peer: Peer) -> list[int]:
    return [int(payload) for payload in peer.payloads()]


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_earliest_replays_all_and_goes_on_with_new_records(streaming: Box, version: int, qos: int) -> None:
    peer = reader(streaming, version)
    assert peer.subscribe("$stream/s/earliest/t/#", qos=qos) == [qos]
    assert numbers(peer) == list(range(10))
    source = reader(streaming, client_id="s")
    source.publish("t/0", b"10", qos=1)
    source.publish("other", b"99", qos=1)
    source.publish("t/1", b"11", qos=0)
    assert numbers(peer) == [10, 11]


def test_latest_begins_with_what_comes(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/latest/t/#")
    assert numbers(peer) == []
    peer.publish("t/0", b"10", qos=1)
    assert numbers(peer) == [10]


def test_an_offset_begins_there(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/7/t/#")
    assert numbers(peer) == [7, 8, 9]


def test_a_time_begins_with_the_first_record_since(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/2020-09-13T12:26:44Z/t/#")  # the box begins at 12:26:40
    assert numbers(peer) == [4, 5, 6, 7, 8, 9]
    peer.subscribe("$stream/s/2020-09-13T10:26:48-02:00/t/#")
    assert numbers(peer) == [8, 9]
    assert peer.subscribe("$stream/s/2020-09-13T14:26:48+02:00/t/#") == [0x8F]  # + is a wildcard in a filter


def test_the_filter_chooses(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/earliest/t/1")
    assert numbers(peer) == [1, 3, 5, 7, 9]
    peer.subscribe("$stream/s/earliest/nothing/here")
    assert numbers(peer) == []


def test_records_say_where_they_stand(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/8/#", subscription_id=5)
    got = peer.publishes()
    for offset, packet in zip((8, 9), got, strict=True):
        assert packet.properties is not None
        named = dict(packet.properties.user_properties)
        assert (named["folkmoot-partition"], named["folkmoot-offset"]) == ("0", str(offset))
        assert int(named["folkmoot-time"]) == (1_600_000_000 + offset) * SECOND
        assert packet.properties.subscription_ids == [5]


def test_all_partitions_of_a_stream_are_replayed_each_in_order(streaming: Box) -> None:
    peer = reader(streaming)
    for number in range(40):
        peer.publish(f"w/{number % 8}", b"%d" % number, qos=1)
    peer.subscribe("$stream/wide/earliest/#", qos=1)
    got = peer.publishes()
    assert sorted(int(packet.payload) for packet in got) == list(range(40))
    for topic in range(8):
        values = [int(packet.payload) for packet in got if packet.topic == b"w/%d" % topic]
        assert values == sorted(values)


WRONG = ["s", "s/earliest", "none/earliest/#", "s/soon/#", "s/2020-09-13T12:26:44/#", "s/-1/#", "s/earliest/a#", "/1/#"]


@BOTH
@pytest.mark.parametrize("wish", WRONG)
def test_a_wrong_wish_is_refused(streaming: Box, version: int, wish: str) -> None:
    peer = reader(streaming, version)
    assert peer.subscribe("$stream/" + wish) == [0x8F if version == 5 else 0x80]


@pytest.mark.parametrize("crash", [False, True])
def test_a_lasting_session_goes_on_where_it_was(streaming: Box, crash: bool) -> None:
    peer = streaming.client("r", acks=False)
    peer.resume(receive_max=2)
    peer.subscribe("$stream/s/earliest/t/#", qos=1)
    first = peer.publishes()
    assert [packet.payload for packet in first] == [b"0", b"1"]
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in first])
    if crash:
        streaming.settle()
        streaming.crash()
    else:
        peer.lose()
    source = reader(streaming, client_id="s")
    source.publish("t/0", b"10", qos=1)
    peer.acks = True
    peer.resume(receive_max=2)
    assert numbers(peer) == list(range(2, 11))
    source.publish("t/0", b"11", qos=1)
    assert numbers(peer) == [11]


def test_unsubscribing_ends_the_replay(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("$stream/s/earliest/t/#")
    assert len(numbers(peer)) == 10
    assert peer.unsubscribe("$stream/s/earliest/t/#") == [0]
    peer.publish("t/0", b"10", qos=1)
    assert numbers(peer) == []


def test_a_replay_and_a_plain_subscription_are_two(streaming: Box) -> None:
    peer = reader(streaming)
    peer.subscribe("t/#", qos=1)
    peer.subscribe("$stream/s/latest/t/#", qos=1)
    peer.publish("t/0", b"10", qos=1)
    assert numbers(peer) == [10, 10]


def test_nobody_reads_what_is_not_durable(streaming: Box) -> None:
    peer, source = reader(streaming), reader(streaming, client_id="s")
    peer.subscribe("$stream/s/latest/t/#")
    streaming.hold_writes()
    source.send(Publish(b"t/0", b"10", 1, packet_id=1))
    assert numbers(peer) == []
    streaming.release_writes()
    assert numbers(peer) == [10]


def test_clients_cannot_publish_into_a_replay(streaming: Box) -> None:
    peer = reader(streaming)
    assert peer.publish("$stream/s/latest/t/0", b"m", qos=1) in (0x87, 0x90)


def test_retention_that_overtakes_is_said(make: MakeBox) -> None:
    """A replay that has lost records ends with an error and is not silently shortened."""
    box = make(streams=[StreamConfig("s", b"t/#", 1, retention_us=60 * SECOND)])
    source, peer = reader(box, client_id="s"), box.client("r", acks=False)
    for number in range(5):
        source.publish("t/0", b"%d" % number, qos=1)
    peer.connect(receive_max=1)
    box.advance(600 * SECOND)
    source.publish("t/0", b"5", qos=1)
    box.advance(20 * SECOND)
    assert peer.subscribe("$stream/s/0/t/#", qos=1) == [0x8F]
    assert peer.subscribe("$stream/s/earliest/t/#", qos=1) == [1]
    assert peer.payloads() == [b"5"]


@BOTH
def test_messages_are_streamed_whatever_their_qos(make: MakeBox, version: int) -> None:
    box = make(streams=[StreamConfig("s", b"#", 1)])
    peer = reader(box, version)
    for qos in (0, 1, 2):
        peer.publish("a/b", b"%d" % qos, qos=qos)
    peer.publish("$x/y", b"99", qos=1)
    peer.subscribe("$stream/s/earliest/#", qos=2)
    got = peer.publishes()
    assert [(packet.payload, packet.qos) for packet in got] == [(b"0", 0), (b"1", 1), (b"2", 2)]


@pytest.mark.parametrize("expiry_s", [0, 10])
def test_the_end_of_a_session_takes_no_routed_subscription_for_a_replay(streaming: Box, expiry_s: int) -> None:
    counters = streaming.node.counters
    before = (counters.subscriptions_transient, counters.subscriptions_persistent)
    peer = streaming.client("r")
    peer.connect(session_expiry=expiry_s)
    assert peer.subscribe("$stream/s/earliest/#", "routed", qos=1) == [1, 1]
    assert counters.subscriptions_transient + counters.subscriptions_persistent == sum(before) + 1
    peer.lose()
    streaming.advance(11 * SECOND)
    assert (counters.subscriptions_transient, counters.subscriptions_persistent) == before


@pytest.mark.parametrize("topic_filter", ["$share/g/$stream/s/earliest/#", "$share/g/$share/h/t"])
def test_only_topics_can_be_shared(box: Box, topic_filter: str) -> None:
    """Granted, it would never receive anything."""
    peer = box.client("a")
    peer.connect()
    assert peer.subscribe(topic_filter, qos=1) == [0x8F]
    assert box.node.counters.error_filter == 1, "what is refused is counted"
    assert peer.subscribe("$share/g/t", qos=1) == [1]
