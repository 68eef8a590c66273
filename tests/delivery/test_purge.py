"""Removing what an ended session leaves: stored bodies, and messages of shared subscriptions that others must get."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBREC, Ack, Publish, Subscribe
from folkmoot.store.key import META, QUEUE, SENT, SESSION, SUBSCRIPTION, kind_of
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer
from tests.harness.wire import connect, prop, props, subscribe, text, u32

SHARED = "$share/g/t"
BODY_BYTES = 200  # large enough to be stored once for several sessions


def kinds(box: Box) -> dict[int, int]:
    """The numbers of rows by kind, without that of the node itself."""
    counts: dict[int, int] = {}
    for row in box.store.items():
        if (kind := kind_of(row[0])) != META:
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def member(box: Box, client_id: str, acks: bool = True, expiry_s: int = EVER) -> Peer:
    peer = box.client(client_id, acks=acks)
    peer.resume(session_expiry=expiry_s)
    peer.subscribe(SHARED, qos=2)
    return peer


def numbers(payloads: list[bytes]) -> list[int]:
    return [int(payload.split(b";")[0]) for payload in payloads]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_an_ended_member_never_got_goes_to_another(make: MakeBox, qos: int) -> None:
    """Also what it was about to get: its row is written, and the session ends before that is durable."""
    box = make(bystander=False)
    first, source, second = member(box, "first", acks=False), box.client("source"), box.client("second")
    source.connect()
    second.resume()
    box.hold_writes()
    for number in range(5):
        source.send(Publish(b"t", b"%d;" % number, qos, packet_id=number + 1))
    assert first.publishes() == []
    second.send(Subscribe(99, [(SHARED.encode(), 2)]))
    first.disconnect(session_expiry=0)
    box.release_writes()
    assert numbers(second.payloads()) == [0, 1, 2, 3, 4]
    box.settle()
    assert kinds(box) == {SESSION: 1, SUBSCRIPTION: 1, SENT: 1}  # of the second member


@pytest.mark.parametrize("crash", [False, True])
def test_qos_2_that_may_have_been_sent_goes_to_nobody_else(make: MakeBox, crash: bool) -> None:
    """Section 4.8.2. One page was read from the store and sent, one of its messages was released."""
    box = make(bystander=False, limits={"page_rows": 4, "inflight_max": 4})
    first, source = member(box, "first", acks=False), box.client("source")
    first.lose()
    source.connect()
    for number in range(12):
        source.publish("t", b"%d;" % number, qos=2)
    first.resume()
    sent = first.publishes()
    assert numbers([packet.payload for packet in sent]) == [0, 1, 2, 3]
    first.send(Ack(PUBREC, sent[0].packet_id))
    second = member(box, "second")
    if crash:
        box.hold_writes()
        first.disconnect(session_expiry=0)
        box.release_writes(1)  # the session is gone; its queue is not
        box.crash()
        second.resume()
    else:
        first.disconnect(session_expiry=0)
    got = numbers(second.payloads())
    # After a crash the page that had been read to be sent next counts as sent.
    assert got in ([4, 5, 6, 7, 8, 9, 10, 11], [8, 9, 10, 11] if crash else None)
    box.settle()
    assert kinds(box) == {SESSION: 1, SUBSCRIPTION: 1, SENT: 1}  # the last is of the second member


@pytest.mark.parametrize("new", ["none", "transient", "lasting"])
def test_a_crash_in_the_middle_of_a_purge_loses_and_leaves_nothing(make: MakeBox, new: str) -> None:
    """Whatever of it was durable, and whether or not the client has begun a new session by then."""
    for durable in range(24):
        box = make(bystander=False, limits={"page_rows": 4})
        first, other, source = member(box, "first", expiry_s=10), box.client("other"), box.client("source")
        other.resume()
        source.connect()
        for peer in (first, other):
            peer.subscribe("both", qos=1)
            peer.lose()
        for number in range(12):
            source.publish("t", b"%d;" % number, qos=1 + number % 2)
            source.publish("both", b"%d;" % number + bytes(BODY_BYTES), qos=1)
        second = member(box, "second")
        box.hold_writes()
        box.advance(11 * SECOND)
        if new != "none":
            expiry = props(prop(0x11, u32(100))) if new == "lasting" else props()
            first.open().raw(connect(5, text("first"), flags=0, properties=expiry))
            first.raw(subscribe(5, ("both", 1)))
        for _ in range(durable):
            box.release_writes(1)
        got = second.publishes()
        box.crash()
        finish(box, first, second, other, got)


def finish(box: Box, first: Peer, second: Peer, other: Peer, got: list[Publish]) -> None:
    """Everybody takes what is theirs and goes; nothing is missing and no row stays."""
    box.advance(11 * SECOND)  # if its end was lost in the crash, the session ends now
    second.resume()
    got += second.publishes()
    assert set(numbers([packet.payload for packet in got])) == set(range(12))
    fresh = numbers([packet.payload for packet in got if packet.qos == 2 and not packet.dup])
    assert len(fresh) == len(set(fresh)), "a message of QoS 2 has one flow"
    other.resume()
    assert numbers(other.payloads()) == list(range(12))
    source = box.client("late")
    source.connect()
    first.connect(clean_start=False, session_expiry=100)
    first.inbox.clear()
    first.subscribe("both", qos=1)
    source.publish("both", b"100;" + bytes(BODY_BYTES), qos=1)
    assert numbers(first.payloads()) == [100]
    for peer in (first, second, other):
        if peer.connection is None:
            peer.resume()
        peer.disconnect(session_expiry=0)
    assert kinds(box) == {}
    assert len(box.node._broker.partition.bodies) == 0
    assert (box.node.counters.queue_messages, box.node.counters.queue_bytes) == (0, 0)
    assert len(box.node._broker.delivery.purges._floors) == 0


def test_a_purge_does_not_touch_the_queue_of_the_new_session(make: MakeBox) -> None:
    """Many sessions of one client id, each ended before the rows of the one before are gone."""
    box = make(bystander=False, limits={"page_rows": 2})
    source, second = box.client("source"), member(box, "second")
    source.connect()
    second.lose()
    first = box.client("first")
    box.hold_writes()
    queue_ends: list[int] = []
    for life in range(5):
        first.open().raw(connect(5, text("first"), flags=0x02, properties=props(prop(0x11, b"\xff" * 4))))
        box.release_writes()
        box.hold_writes()
        first.inbox.clear()
        first.send(Subscribe(1, [(SHARED.encode(), 1), (b"own", 1)]))
        first.lose()
        for number in range(6):
            source.send(Publish(b"t", b"%d;" % number, 1, packet_id=100 * life + 2 * number + 1))
            source.send(Publish(b"own", b"%d;" % (10 * life + number), 1, packet_id=100 * life + 2 * number + 2))
        session = box.node._state.sessions["first"]
        assert session.queue_floor >= max(queue_ends, default=0)
        queue_ends.append(session.queue_next)
    box.release_writes()
    first.resume()
    assert [number for number in numbers(first.payloads()) if number >= 40] == [40, 41, 42, 43, 44, 45]
    first.disconnect(session_expiry=0)
    second.resume()
    second.payloads()
    box.settle()
    assert kinds(box).get(QUEUE, 0) == 0
