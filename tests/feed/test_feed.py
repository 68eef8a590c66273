"""Retained scans and replays as feeds: nothing stays behind, nothing is lost when one is replaced or the node dies."""

from __future__ import annotations

from sys import getsizeof

import pytest

from folkmoot.feed.feed import Feeds
from folkmoot.feed.retained_feed import _Left
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, V311, Publish, Subscribe, Unsubscribe
from folkmoot.store.key import CURSOR, kind_of
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer


def feeds_of(box: Box) -> Feeds:
    return box.node._broker.feed.feeds


def cursors(box: Box) -> int:
    return sum([kind_of(key) == CURSOR for key, _ in box.store.items()])


def retain(box: Box, count: int, qos: int = 0) -> Peer:
    source = box.client("source", V311)
    source.connect()
    for number in range(count):
        source.send(Publish(b"t/%d" % number, b"%d" % number, qos, True, packet_id=number + 1 if qos else 0))
    return source


def stall(box: Box, peer: Peer, flag: bool = True) -> None:
    """The peer's network connection takes nothing more, or something again."""
    assert peer.connection is not None
    box.node.writable(peer.connection, not flag, box.now)
    box.run()


@pytest.fixture
def full(make: MakeBox) -> Box:
    """A node with 300 retained messages, a stream with as many records, and small pages."""
    box = make(limits={"page_rows": 8}, streams=[StreamConfig("log", b"t/#", 2)])
    retain(box, 300)
    return box


@pytest.mark.parametrize("name", ["#", "t/+", "$stream/log/earliest/#", "$stream/log/latest/#"])
@pytest.mark.parametrize("how", ["again", "unsubscribe", "lose", "clean start", "expire", "goodbye"])
def test_nothing_stays_of_feeds_that_ended_before_their_end(full: Box, name: str, how: str) -> None:
    lasting = how in ("clean start", "expire")
    for number in range(20):
        peer = full.client(f"p{number}" if how != "again" else "p")
        if lasting:
            peer.resume(session_expiry=10)
        else:
            peer.connect()
        stall(full, peer)
        for packet_id in range(1, 4):
            peer.send(Subscribe(packet_id, [(name.encode(), 1)]))
            assert len(feeds_of(full)) == 1
            if how == "unsubscribe":
                peer.send(Unsubscribe(packet_id + 10, [name.encode()]))
        if how == "clean start":
            peer.lose()
            peer.connect()
        elif how == "expire":
            peer.lose()
            full.advance(10_000_000)
        elif how == "goodbye":
            peer.disconnect()
        else:
            peer.lose()
        feeds = feeds_of(full)
        assert (len(feeds), len(feeds._known), len(feeds.parked)) == (0, 0, 0)
        assert cursors(full) == 0


def test_a_flood_of_subscriptions_while_the_disk_is_busy_is_one_feed(full: Box) -> None:
    source, peer = full.client("s"), full.client("a")
    source.connect()
    peer.connect()
    full.hold_writes()
    source.send(Publish(b"t/x", b"m", 0, True))
    chunk = b"".join([encode(Subscribe(packet_id, [(b"#", 0)]), V5) for packet_id in range(1, 1001)])
    peer.raw(chunk)
    assert len(feeds_of(full)) == 1
    full.release_writes()
    assert len([packet for packet in peer.publishes() if packet.retain]) == 301


def test_a_scan_goes_on_for_the_subscription_that_replaces_its_own(full: Box) -> None:
    """Section 3.8.4: the new one wants no retained messages, but what was on its way is not lost."""
    peer = full.client("a")
    peer.connect()
    stall(full, peer)
    peer.subscribe("t/#", qos=0, subscription_id=1)
    peer.subscribe("t/#", qos=1, retain_handling=2, subscription_id=2)
    stall(full, peer, False)
    got = peer.publishes()
    assert {packet.topic for packet in got} == {b"t/%d" % number for number in range(300)}
    assert len(got) == 300
    for packet in got:
        assert packet.properties is not None
        assert packet.properties.subscription_ids == [2]


def test_a_scan_begins_anew_for_a_subscription_that_wants_it(full: Box) -> None:
    peer = full.client("a")
    peer.connect()
    stall(full, peer)
    for _ in range(3):
        peer.subscribe("t/#", qos=0, retain_handling=0)
    stall(full, peer, False)
    assert len(peer.payloads()) == 300
    peer.subscribe("t/#", qos=0, retain_handling=0)
    assert len(peer.payloads()) == 300


def test_a_cursor_does_not_outlive_its_subscription(full: Box) -> None:
    """Unsubscribed in the middle of the scan, crashed, subscribed anew without retained messages, crashed again."""
    peer = full.client("a")
    peer.resume()
    stall(full, peer)
    peer.subscribe("t/#", qos=1)
    assert cursors(full) == 1
    peer.unsubscribe("t/#")
    full.crash()
    peer.resume()
    peer.subscribe("t/#", qos=1, retain_handling=2)
    full.crash()
    peer.resume()
    assert peer.payloads() == []


def test_a_new_session_does_not_inherit_feeds(full: Box) -> None:
    """Taken over in one turn by a clean start with the same filter: the new feed is the new session's."""
    old, new = full.client("a"), full.client("a")
    old.resume()
    stall(full, old)
    old.subscribe("t/#", qos=1)
    new.connect(clean_start=True)
    new.subscribe("t/#", qos=1, retain_handling=2)
    assert new.payloads() == []
    new.subscribe("t/#", qos=1)
    assert len(new.payloads()) == 300
    assert len(feeds_of(full)) == 0


@pytest.mark.parametrize("name", ["t/#", "$stream/log/earliest/#"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_crash_at_any_moment_of_a_feed_loses_and_repeats_nothing(make: MakeBox, name: str, qos: int) -> None:
    """The position moves in the batch of the messages: whatever prefix of the batches is on disk, the rest comes."""
    for durable in range(0, 40, 1 if qos == 1 else 3):
        box = make(bystander=False, limits={"page_rows": 4}, streams=[StreamConfig("log", b"t/#", 2)])
        retain(box, 20, qos)
        peer = box.client("a")
        peer.resume(receive_max=5)
        box.hold_writes()
        peer.send(Subscribe(1, [(name.encode(), qos)]))
        box.release_writes(1)
        for _ in range(durable):
            box.release_writes(1)
        got = peer.publishes()
        box.crash()
        assert peer.resume().session_present
        got += peer.publishes()
        assert sorted({packet.payload for packet in got}) == sorted([b"%d" % number for number in range(20)])
        first = [packet.payload for packet in got if not packet.dup]
        assert len(first) == len(set(first)), "what was sent before is marked as a repetition"
        box.settle()
        box.crash()
        peer.resume()
        assert peer.publishes() == []
        assert len(feeds_of(box)) == name.startswith("$stream")


def test_a_live_retained_message_concerns_only_clients_whose_sessions_are_with_its_subscribers(full: Box) -> None:
    """After a death all clients have feeds that wait: to look at each of them for each message takes too long."""
    clients = [full.client(f"c{number}") for number in range(40)]
    for client in clients:
        client.resume()
        stall(full, client)
        client.subscribe("t/#", qos=1)
    state = full.node._broker.state
    sessions = list(state.sessions.values())
    partition = sessions[-1].partition
    beside = [session for session in sessions if session.partition == partition and session.feeds]
    assert 0 < len(beside) < 40
    before = state.work.steps
    feeds_of(full).remember([(partition, b"t/1")])
    assert state.work.steps - before == 2 * len(beside), "a step for each client, and one for each of its feeds"
    for client in clients:
        client.disconnect(session_expiry=0)
    assert feeds_of(full)._clients == {}


def test_a_feed_that_waits_keeps_its_partitions_in_few_bytes() -> None:
    """An offline session may have ten thousand of them."""
    left = _Left(list(range(256)))
    assert getsizeof(left._bits) < 100
    left.begin_with(7)
    assert left.all() == [7, *[one for one in range(256) if one != 7]]
    left.take_out(7)
    left.take_out(0)
    assert (left.first(), left.has(7), len(left.all())) == (1, False, 254)
    for partition in range(256):
        left.take_out(partition)
    assert left.is_empty()
    assert left.all() == []
    assert _Left([9, 3]).all() == [9, 3]
