"""A wildcard subscription receives all retained messages, however many, page by page, while others are served."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish, Subscribe
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer

COUNT = 5_000


def fill(box: Box, count: int = COUNT) -> Peer:
    """Retain `count` messages; return their publisher."""
    peer = box.client("filler", acks=False)
    peer.connect()
    for start in range(0, count, 500):
        packets = [
            Publish(b"r/%05d/%d" % (number, number % 7), b"%d" % number, 1, True, packet_id=number - start + 1)
            for number in range(start, min(start + 500, count))
        ]
        peer.send(*packets)
        peer.receive()
    return peer


@pytest.mark.parametrize("version", [4, V5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("lasting", [False, True])
def test_all_of_5000_arrive_once(box: Box, version: int, qos: int, lasting: bool) -> None:
    fill(box)
    peer = box.client("a", version)
    peer.resume() if lasting else peer.connect()
    peer.subscribe("r/#", qos=qos)
    got = peer.payloads()
    assert len(got) == COUNT
    assert {int(payload) for payload in got} == set(range(COUNT))


def test_a_small_window_gets_all_of_them(box: Box) -> None:
    fill(box, 1_000)
    peer = box.client("a")
    peer.connect(receive_max=3)
    peer.subscribe("r/#", qos=1)
    assert {int(payload) for payload in peer.payloads()} == set(range(1_000))


@pytest.mark.parametrize("lasting", [False, True])
def test_a_small_queue_limit_drops_none_of_them(make: MakeBox, lasting: bool) -> None:
    """They wait in the store, not in the queue."""
    box = make(limits={"queue_messages_max": 10})
    fill(box, 1_000)
    peer = box.client("a")
    peer.connect(receive_max=2, session_expiry=100 if lasting else None)
    peer.subscribe("r/#", qos=1)
    assert {int(payload) for payload in peer.payloads()} == set(range(1_000))


def test_a_filter_in_the_middle_gets_its_part(box: Box) -> None:
    fill(box, 1_000)
    peer = box.client("a")
    peer.connect()
    peer.subscribe("r/+/3")
    assert sorted(int(payload) for payload in peer.payloads()) == list(range(3, 1_000, 7))


@pytest.mark.parametrize("crash", [False, True])
def test_a_lasting_session_gets_the_rest_after_its_reconnect(box: Box, crash: bool) -> None:
    fill(box, 2_000)
    peer = box.client("a", acks=False)
    peer.resume(receive_max=50)
    peer.subscribe("r/#", qos=1)
    first = {int(packet.payload) for packet in peer.publishes()}
    assert 0 < len(first) < 2_000
    if crash:
        box.crash()
    else:
        peer.lose()
        box.advance(60_000_000)
    peer.acks = True
    peer.resume(receive_max=50)
    got = [int(payload) for payload in peer.payloads()]
    assert set(got) == set(range(2_000))
    assert len(got) == len(set(got))


def test_what_changes_meanwhile_arrives_once(box: Box) -> None:
    """A topic that is published while the pages are sent comes with its new value, or its old one and then the new."""
    source = fill(box, 2_000)
    peer = box.client("a", acks=False)
    peer.connect(receive_max=10)
    peer.subscribe("r/#", qos=1)
    source.send(*[Publish(b"r/%05d/%d" % (n, n % 7), b"new", 1, True, packet_id=n + 1) for n in range(0, 2_000, 100)])
    source.send(Publish(b"r/00001/1", b"", 1, True, packet_id=5_000))
    held = peer.publishes()
    peer.acks = True
    for packet in held:
        peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
    last: dict[bytes, bytes] = {}
    for packet in held + peer.publishes():
        assert packet.payload != b"new" or last.get(packet.topic) != b"new", "the new value came twice"
        assert packet.retain is (packet.payload not in (b"new", b""))
        last[packet.topic] = packet.payload
    assert len(last) == 2_000
    for number in range(2_000):
        topic = b"r/%05d/%d" % (number, number % 7)
        expected = b"new" if number % 100 == 0 else b"" if number == 1 else b"%d" % number
        assert last[topic] == expected, topic


def test_others_are_served_between_the_pages(box: Box) -> None:
    """The scan takes many turns, each of them short."""
    fill(box, 3_000)
    peer, other = box.client("a"), box.client("b")
    peer.connect()
    other.connect()
    other.subscribe("quick")
    assert peer.connection is not None
    assert other.connection is not None
    box.node.receive(peer.connection, b"\x82\x09\x00\x01\x00\x00\x03r/#\x00", box.now)
    box.node.receive(other.connection, b"\x30\x09\x00\x05quick\x00!", box.now)
    turns_before = box.node.counters.turns
    while not other.messages():
        box.turn()
    assert box.node.counters.turns - turns_before <= 3
    assert len(peer.publishes()) < 3_000
    box.run()
    assert box.node.counters.retained_sent == 3_000


def test_a_turn_has_a_bounded_part_of_many_subscribers_messages(make: MakeBox) -> None:
    """However the rows are spread over partitions, and however many clients read at once."""
    box = make(limits={"page_rows": 32})
    fill(box, 4_000)
    readers = [box.client(f"reader{number}") for number in range(5)]
    for reader in readers:
        reader.connect()
    for reader in readers:
        assert reader.connection is not None
        box.node.receive(reader.connection, encode(Subscribe(1, [(b"r/#", 0)]), 5), box.now)
    counters = box.node.counters
    most = before = 0
    while box.turn():
        most = max(most, counters.retained_sent - before)
        before = counters.retained_sent
    assert counters.retained_sent == 5 * 4_000
    assert most <= 5 * 32


def test_small_pages_of_many_subscribers_share_turns(box: Box) -> None:
    """The whole fleet comes again, and each client has a wildcard."""
    fill(box, 60)
    readers = [box.client(f"reader{number}") for number in range(100)]
    for reader in readers:
        reader.connect()
    turns_before = box.node.counters.turns
    for reader in readers:
        assert reader.connection is not None
        box.node.receive(reader.connection, encode(Subscribe(1, [(b"r/#", 1)]), 5), box.now)
    while box.node.counters.retained_sent != 100 * 60:
        box.turn()
        assert box.node.counters.turns - turns_before < 100
    for reader in readers:
        assert len(reader.payloads()) == 60


def test_unsubscribing_stops_the_pages(box: Box) -> None:
    fill(box, 2_000)
    peer = box.client("a", acks=False)
    peer.connect(receive_max=10)
    peer.subscribe("r/#", qos=1)
    peer.unsubscribe("r/#")
    got = peer.publishes()
    peer.acks = True
    for packet in got:
        peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
    assert len(got) + len(peer.publishes()) < 1_000


def test_the_number_of_retained_messages_has_a_limit(make: MakeBox) -> None:
    box = make(limits={"retained_messages_max": 3})
    peer = box.client("a")
    peer.connect()
    codes = [peer.publish(f"r/{number}", b"m", qos=1, retain=True) for number in range(5)]
    assert codes[3:] == [0x97, 0x97]
    assert 0x97 not in codes[:3]
    assert peer.publish("r/0", b"", qos=1, retain=True) in (0, 0x10)
    assert peer.publish("r/4", b"m", qos=1, retain=True) in (0, 0x10)
    peer.subscribe("r/#")
    assert sorted(topic for topic, _ in peer.messages()) == ["r/1", "r/2", "r/4"]
