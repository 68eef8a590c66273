"""Packet identifiers 65,535 messages later: the same ones again, and none that is still in use."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, Ack, Publish
from folkmoot.session.session import PACKET_IDS
from folkmoot.store.batch import Batch
from folkmoot.store.key import SESSION, kind_of
from folkmoot.store.row import decode_session, encode_session
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer


def aged(box: Box, sequence: int) -> tuple[Peer, Peer]:
    """A source, and a lasting session whose next message has this sequence: as if all before it had come and gone."""
    source, peer = box.client("s"), box.client("a", acks=False)
    peer.resume()
    peer.subscribe("t", qos=2)
    peer.lose()
    batch = Batch(1)
    for key, value in box.store.items():
        if kind_of(key) == SESSION:
            row = decode_session(value[VERSION_BYTES:])
            row.queue_floor = sequence
            batch.put(key, value[:VERSION_BYTES] + encode_session(row))
    box.store.apply(batch)
    box.crash()
    source.connect()
    peer.resume()
    return source, peer


def identifiers(peer: Peer) -> list[int]:
    return [packet.packet_id for packet in peer.publishes()]


@pytest.mark.parametrize("rounds", [1, 3, 70_000])
@pytest.mark.parametrize("qos", [1, 2])
def test_stored_messages_go_round(make: MakeBox, rounds: int, qos: int) -> None:
    box = make(bystander=False)
    source, peer = aged(box, rounds * PACKET_IDS - 3)
    peer.acks = True
    for _ in range(6):
        source.publish("t", b"m", qos=qos)
    assert identifiers(peer) == [65_533, 65_534, 65_535, 1, 2, 3]
    for _ in range(3):
        source.publish("t", b"m", qos=qos)
    assert identifiers(peer) == [4, 5, 6]


@pytest.mark.parametrize("crash", [False, True])
def test_an_identifier_in_use_holds_up_what_would_take_it(make: MakeBox, crash: bool) -> None:
    """One message of QoS 2 stays released for a whole round; the others come and go."""
    box = make(bystander=False)
    source, peer = aged(box, 100)
    source.publish("t", b"first", qos=2)
    (first,) = identifiers(peer)
    peer.send(Ack(PUBREC, first))
    peer.receive()
    # A round later: nothing but the released one is left of it.
    session = box.node._state.sessions["a"]
    session.queue_next = session.committed_next = session.ready_end = session.sent_below = 100 + PACKET_IDS - 2
    for number in range(4):
        source.publish("t", b"%d" % number, qos=1)
    if crash:
        box.crash()
        peer.resume()
    sent = peer.publishes()
    assert [packet.packet_id for packet in sent] == [first - 2, first - 1]
    for packet in sent:
        peer.send(Ack(PUBACK, packet.packet_id))
    assert identifiers(peer) == []
    peer.acks = True
    peer.send(Ack(PUBCOMP, first))
    assert identifiers(peer) == [first, first + 1]
    assert box.node.counters.queue_messages == 0


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_transient_sessions_go_round_and_pass_over_what_is_in_use(make: MakeBox, version: int, qos: int) -> None:
    box = make(bystander=False)
    source, peer = box.client("s", version), box.client("a", version, acks=False)
    source.connect()
    peer.connect()
    peer.subscribe("t", qos=qos)
    for number in range(1, 3):
        source.send(Publish(b"t", b"m", qos, packet_id=number))
    assert identifiers(peer) == [1, 2]
    box.node._state.sessions["a"].next_packet_id = 65_534
    source.send(*[Publish(b"t", b"m", qos, packet_id=number) for number in range(3, 8)])
    assert identifiers(peer) == [65_534, 65_535, 3, 4, 5]
