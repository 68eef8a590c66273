"""Removals of what a subscriber has acknowledged make no batch of their own; and those that must not wait do not."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish
from folkmoot.session.session import PACKET_IDS
from folkmoot.store.key import BODY, QUEUE, RECEIVED, RELEASED, kind_of
from folkmoot.turn.lazy import LAZY_US
from tests.harness.box import Box
from tests.harness.peer import Peer


def rows(box: Box, kind: int) -> int:
    return sum([kind_of(key) == kind for key, _ in box.store.items()])


def delivered(box: Box, qos: int) -> tuple[Peer, Peer, Publish]:
    """Return publisher, subscriber, and the message that it has got; the first removal of a queue writes more."""
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=qos)
    source.publish("t", b"first", qos=1)
    peer.send(Ack(PUBACK, peer.publishes()[0].packet_id))
    box.settle()
    source.publish("t", b"m", qos=qos)
    (packet,) = peer.publishes()
    return source, peer, packet


def test_what_was_acknowledged_goes_with_the_next_batch(box: Box) -> None:
    source, peer, packet = delivered(box, 1)
    batches = box.node.counters.commit_batches
    peer.send(Ack(PUBACK, packet.packet_id))
    assert (box.node.counters.commit_batches, rows(box, QUEUE)) == (batches, 1)
    source.publish("elsewhere", b"m", qos=1, retain=True)
    assert (box.node.counters.commit_batches, rows(box, QUEUE)) == (batches + 1, 0)
    box.advance(LAZY_US)
    assert box.node.counters.commit_batches == batches + 1


def test_it_goes_by_itself_when_nothing_comes(box: Box) -> None:
    _source, peer, packet = delivered(box, 1)
    batches = box.node.counters.commit_batches
    peer.send(Ack(PUBACK, packet.packet_id))
    box.advance(LAZY_US - 1)
    assert rows(box, QUEUE) == 1
    box.advance(1)
    assert (box.node.counters.commit_batches, rows(box, QUEUE)) == (batches + 1, 0)


@pytest.mark.parametrize("written", [False, True])
def test_a_lost_removal_costs_a_repetition_under_the_same_id(box: Box, written: bool) -> None:
    """MQTT 5, sections 4.3.2 and 4.4: PUBLISH with DUP."""
    _source, peer, packet = delivered(box, 1)
    peer.send(Ack(PUBACK, packet.packet_id))
    if written:
        box.settle()
    box.crash()
    peer.resume()
    again = [(one.packet_id, one.payload, one.dup) for one in peer.publishes()]
    assert again == ([] if written else [(packet.packet_id, b"m", True)])


@pytest.mark.parametrize("written", [False, True])
def test_a_lost_pubcomp_costs_a_pubrel(box: Box, written: bool) -> None:
    _source, peer, packet = delivered(box, 2)
    peer.send(Ack(PUBREC, packet.packet_id))
    peer.receive()
    peer.send(Ack(PUBCOMP, packet.packet_id))
    assert rows(box, RELEASED) == 1
    if written:
        box.settle()
        assert rows(box, RELEASED) == 0
    box.crash()
    peer.resume()
    assert [one.kind for one in peer.receive() if isinstance(one, Ack)] == ([] if written else [PUBREL])


def test_a_pubrec_is_written_before_pubrel_goes_out(box: Box) -> None:
    """The client may forget the id then, and would take the message for a new one."""
    _source, peer, packet = delivered(box, 2)
    box.hold_writes()
    peer.send(Ack(PUBREC, packet.packet_id))
    assert peer.receive() == []
    box.release_writes()
    assert [one.kind for one in peer.receive() if isinstance(one, Ack)] == [PUBREL]
    assert (rows(box, QUEUE), rows(box, RELEASED)) == (0, 1)


def test_the_end_of_a_publishers_flow_is_written_before_pubcomp(box: Box) -> None:
    """The client may use the id for another message then."""
    source = box.client("s", acks=False)
    source.resume()
    source.send(Publish(b"t", b"m", 2, packet_id=7))
    assert [one.kind for one in source.receive() if isinstance(one, Ack)] == [PUBREC]
    box.hold_writes()
    source.send(Ack(PUBREL, 7))
    assert source.receive() == []
    box.release_writes()
    assert [one.kind for one in source.receive() if isinstance(one, Ack)] == [PUBCOMP]
    assert rows(box, RECEIVED) == 0


def test_a_body_never_goes_before_a_row_that_names_it(box: Box) -> None:
    source = box.client("s")
    source.connect()
    peers = [box.client(f"p{number}", acks=False) for number in range(2)]
    for peer in peers:
        peer.resume()
        peer.subscribe("t", qos=1)
    source.publish("t", b"m" * 5000, qos=1)
    for peer in peers:
        (packet,) = peer.publishes()
        peer.send(Ack(PUBACK, packet.packet_id))
        assert rows(box, BODY) <= rows(box, QUEUE)
    box.settle()
    assert (rows(box, QUEUE), rows(box, BODY)) == (0, 0)


@pytest.mark.parametrize("how", ["lose", "stop"])
def test_nothing_waits_when_the_connection_or_the_node_ends(box: Box, how: str) -> None:
    _source, peer, packet = delivered(box, 1)
    peer.send(Ack(PUBACK, packet.packet_id))
    assert rows(box, QUEUE) == 1
    peer.lose() if how == "lose" else box.stop()
    assert rows(box, QUEUE) == 0


@pytest.mark.parametrize("refused", [False, True])
def test_a_packet_id_is_given_again_when_the_end_of_its_flow_is_committed(box: Box, refused: bool) -> None:
    """Else the next leader goes on with the old flow, and its PUBREL ends the one that the client has under the id."""
    source, peer, packet = delivered(box, 2)
    box.node._state.sessions["a"].queue_next += PACKET_IDS - 1  # as if so many had come meanwhile, and had gone
    source.publish("t", b"next", qos=2)
    if not refused:
        peer.send(Ack(PUBREC, packet.packet_id))
        assert peer.take(Ack).kind == PUBREL
    box.hold_writes()
    peer.send(Ack(PUBREC, packet.packet_id, 0x80) if refused else Ack(PUBCOMP, packet.packet_id))
    assert peer.receive() == []
    box.release_writes()
    (following,) = peer.publishes()
    assert (following.payload, following.packet_id, following.dup) == (b"next", packet.packet_id, False)
    peer.send(Ack(PUBREC, packet.packet_id))
    assert peer.take(Ack).kind == PUBREL
    peer.send(Ack(PUBCOMP, packet.packet_id))
    box.settle()
    assert rows(box, QUEUE) == rows(box, RELEASED) == 0
