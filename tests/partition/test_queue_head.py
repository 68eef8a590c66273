"""Where the reading of a stored queue begins: at the first message that is left, not at the first there ever was."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, Ack
from folkmoot.store.key import QUEUE, kind_of, sequence_of
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer


def first_row(box: Box) -> int:
    return min([sequence_of(key) for key, _ in box.store.items() if kind_of(key) == QUEUE], default=-1)


def head(box: Box) -> int:
    return box.node._state.sessions["a"].queue_head


def subscriber(box: Box, qos: int) -> Peer:
    source, peer = box.client("s"), box.client("a", acks=False)
    source.connect()
    peer.resume(receive_max=8)
    peer.subscribe("t", qos=qos)
    peer.lose()
    for number in range(40):
        source.publish("t", b"%d" % number, qos=qos)
    return peer


def again(peer: Peer) -> list[int]:
    peer.resume(receive_max=8)
    return [int(payload) for payload in peer.payloads()]


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_acknowledged_is_never_stepped_over_again(make: MakeBox, crash: bool) -> None:
    box = make(limits={"page_rows": 4})
    peer = subscriber(box, 1)
    peer.resume(receive_max=8)
    for _ in range(3):
        for packet in peer.publishes():
            peer.send(Ack(PUBACK, packet.packet_id))
    peer.lose()
    if crash:
        box.crash()
    assert head(box) == first_row(box)
    assert head(box) > 1
    assert again(peer)[0] == head(box) - 1


@pytest.mark.parametrize("qos", [1, 2])
def test_one_message_that_is_not_acknowledged_holds_it(make: MakeBox, qos: int) -> None:
    box = make(limits={"page_rows": 4})
    peer = subscriber(box, qos)
    peer.resume(receive_max=8)
    sent = peer.publishes()
    for packet in sent[:2] + sent[3:]:  # all but the third
        peer.send(Ack(PUBACK if qos == 1 else PUBREC, packet.packet_id))
    peer.lose()
    assert head(box) == first_row(box) == 3
    assert again(peer)[0] == 2


def test_a_queue_that_was_emptied_is_not_searched(box: Box) -> None:
    peer = subscriber(box, 2)
    peer.acks = True
    assert again(peer) == list(range(40))
    peer.lose()
    assert head(box) == 41
    box.crash()
    assert head(box) > 41, "no sequence is given out again"
    source = box.client("s2")
    source.connect()
    source.publish("t", b"40", qos=1)
    assert again(peer) == [40]


def test_a_packet_id_is_not_used_again_at_once_when_nothing_of_its_message_is_left(box: Box) -> None:
    """Else a repeated PUBACK, which the leader that died had not confirmed, would count for another message."""
    peer = box.client("c")
    peer.resume()
    peer.subscribe("t", qos=1)
    source = box.client("s2")
    source.connect()
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    used = [packet.packet_id for packet in peer.publishes()]
    assert len(used) == 5
    box.settle()
    box.crash()
    peer.resume()
    source.connect()
    source.publish("t", b"next", qos=1)
    (packet,) = peer.publishes()
    assert (packet.payload, packet.dup) == (b"next", False)
    assert packet.packet_id not in used


def test_a_released_message_does_not_hold_it(box: Box) -> None:
    peer = subscriber(box, 2)
    peer.resume(receive_max=8)
    first = peer.publishes()[0].packet_id
    peer.send(Ack(PUBREC, first))
    peer.lose()
    assert head(box) == first_row(box) == 2
    peer.resume(receive_max=8)
    assert peer.take(Ack).packet_id == first
    peer.send(Ack(PUBCOMP, first))
    peer.lose()
    assert head(box) == 2
