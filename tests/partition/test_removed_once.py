"""What a connection has removed from a queue is not removed again while the store still shows it."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, Connack, Connect, Disconnect, Publish
from folkmoot.store.key import QUEUE, kind_of
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties


def visit(box: Box, peer: Peer) -> None:
    """Let a client come for a moment: what its visit removes is not durable yet."""
    box.hold_writes()
    peer.open()
    peer.send(Connect(V5, "a", False, 0, None, None, None, properties(session_expiry=EVER, receive_max=1)))
    while not peer.inbox:
        box.release_writes(1)
    peer.take(Connack)
    peer.send(Disconnect(0, None))
    assert peer.closed


def fill(source: Peer, messages: int) -> None:
    """Publish more than the queue takes, without waiting for an acknowledgement."""
    source.send(*[Publish(b"new", b"%d" % number, 1, packet_id=900 + number) for number in range(messages)])


def rows(box: Box) -> int:
    """How many messages are stored."""
    return len([key for key, _ in box.store.items() if kind_of(key) == QUEUE])


def test_the_body_of_a_message_that_expired_stays_for_another_session(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 2}, partitions=1)
    source, peer, other = box.client("s"), box.client("a"), box.client("b")
    source.connect()
    for one in (peer, other):
        one.resume()
        one.subscribe("old", qos=1)
    peer.subscribe("new", qos=1)
    peer.lose()
    other.lose()
    for _ in range(2):
        source.publish("old", bytes(2_000), qos=1, message_expiry=60)
    box.advance(61 * SECOND)
    visit(box, peer)
    fill(source, 4)
    box.release_writes()
    assert box.node.counters.queue_messages == rows(box) == 4
    peer.resume()
    assert peer.payloads() == [b"0", b"1"]
    other.resume()
    assert other.payloads() == []
    assert other.connection is not None, "its messages can be read"


@pytest.mark.parametrize("oldest", [False, True])
def test_a_message_of_qos_0_in_doubt_counts_once(make: MakeBox, oldest: bool) -> None:
    limits = {"queue_messages_max": 2, "queue_full_drops_oldest": oldest, "queue_qos0_offline": True}
    box = make(limits=limits, bystander=False)
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=1)
    peer.subscribe("old", qos=1)
    peer.subscribe("new", qos=1)
    for qos in (1, 1, 0):
        source.publish("old", b"old", qos=qos, message_expiry=60)
    box.crash()
    source.connect()
    visit(box, peer)
    box.advance(61 * SECOND)
    fill(source, 4)
    box.release_writes()
    assert box.node.counters.queue_messages == rows(box) == 2
