"""An acknowledgement leaves only after what it acknowledges is on disk, and so does a stored message."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.mqtt.packet import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    V311,
    Ack,
    Connack,
    Connect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER, Peer, properties
from tests.harness.version import BOTH


def sleeper(box: Box, version: int = V5, topic_filter: str = "t") -> Peer:
    """An absent session that everything on `t` must be kept for."""
    peer = box.client("z", version)
    peer.resume()
    peer.subscribe(topic_filter, qos=2)
    peer.lose()
    return peer


def waits(box: Box, peer: Peer, act: Callable[[], object]) -> list[Packet]:
    """Nothing comes while nothing is durable; return what comes then."""
    box.hold_writes()
    act()
    assert peer.receive() == []
    box.advance(60_000_000)
    assert peer.receive() == []
    box.release_writes()
    return peer.receive()


@BOTH
@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_publish_for_an_absent_session(box: Box, version: int, qos: int, kind: int) -> None:
    sleeper(box, version)
    peer = box.client("a", version, acks=False)
    peer.connect()
    (ack,) = waits(box, peer, lambda: peer.send(Publish(b"t", b"m", qos, packet_id=1)))
    assert isinstance(ack, Ack)
    assert (ack.kind, ack.packet_id) == (kind, 1)


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("payload", [b"m", b""])
def test_a_retained_publish(box: Box, version: int, qos: int, payload: bytes) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Publish(b"r", b"before", 1, True, packet_id=1))
    peer.receive()
    assert len(waits(box, peer, lambda: peer.send(Publish(b"r", payload, qos, True, packet_id=2)))) == 1


@BOTH
def test_a_publish_to_a_stream(make: MakeBox, version: int) -> None:
    box = make(streams=[StreamConfig("s", b"t/#")])
    peer = box.client("a", version, acks=False)
    peer.connect()
    assert len(waits(box, peer, lambda: peer.send(Publish(b"t/1", b"m", 1, packet_id=1)))) == 1


@BOTH
def test_a_publish_for_nobody_does_not_wait(box: Box, version: int) -> None:
    peer = box.client("a", version, acks=False)
    peer.connect()
    box.hold_writes()
    peer.send(Publish(b"t", b"m", 1, packet_id=1))
    assert isinstance(peer.expect(Ack), Ack)


@BOTH
def test_qos_2_of_a_lasting_session_waits_at_both_steps(box: Box, version: int) -> None:
    """The identifier is state that must survive: else a repeated PUBLISH would be a second message."""
    peer = box.client("a", version, acks=False)
    peer.resume()
    (ack,) = waits(box, peer, lambda: peer.send(Publish(b"nobody", b"m", 2, packet_id=1)))
    assert isinstance(ack, Ack)
    assert ack.kind == PUBREC
    (ack,) = waits(box, peer, lambda: peer.send(Ack(PUBREL, 1)))
    assert isinstance(ack, Ack)
    assert ack.kind == PUBCOMP


@BOTH
def test_a_repeated_qos_2_publish_waits_for_the_first(box: Box, version: int) -> None:
    sleeper(box, version)
    peer = box.client("a", version, acks=False)
    peer.resume()
    packets = [Publish(b"t", b"m", 2, dup=dup, packet_id=1) for dup in (False, True)]
    assert len(waits(box, peer, lambda: peer.send(*packets))) == 2


@BOTH
def test_pubrel_waits_for_the_note_of_pubrec(box: Box, version: int) -> None:
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=2)
    source.publish("t", b"m", qos=2)
    (packet,) = peer.publishes()
    (ack,) = waits(box, peer, lambda: peer.send(Ack(PUBREC, packet.packet_id)))
    assert isinstance(ack, Ack)
    assert ack.kind == PUBREL


@BOTH
def test_suback_and_unsuback_of_a_lasting_session(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.resume()
    (suback,) = waits(box, peer, lambda: peer.send(Subscribe(1, [(b"t", 1)])))
    assert isinstance(suback, Suback)
    (unsuback,) = waits(box, peer, lambda: peer.send(Unsubscribe(2, [b"t"])))
    assert isinstance(unsuback, Unsuback)


@BOTH
def test_suback_of_a_transient_session_does_not_wait(box: Box, version: int) -> None:
    peer = box.client("a", version)
    peer.connect()
    box.hold_writes()
    peer.subscribe("t", qos=1)


@BOTH
@pytest.mark.parametrize("known", [False, True])
def test_connack_of_a_lasting_session(box: Box, version: int, known: bool) -> None:
    peer = box.client("a", version)
    if known:
        peer.resume()
        peer.lose()
    peer.open()
    made = properties(session_expiry=EVER) if version == V5 else None
    (connack,) = waits(box, peer, lambda: peer.send(Connect(version, "a", False, properties=made)))
    assert isinstance(connack, Connack)
    assert connack.session_present is known


@BOTH
def test_what_is_sent_behind_a_waiting_connect_is_kept(box: Box, version: int) -> None:
    peer = box.client("a", version).open()
    made = properties(session_expiry=EVER) if version == V5 else None
    box.hold_writes()
    peer.send(Connect(version, "a", False, properties=made), Subscribe(1, [(b"t", 0)]))
    peer.send(Publish(b"t", b"m"))
    assert peer.receive() == []
    box.release_writes()
    assert [type(packet).__name__ for packet in peer.receive()] == ["Connack", "Publish", "Suback"] or (
        peer.connection is not None
    )
    peer.publish("t", b"again")
    assert b"again" in peer.payloads()


@BOTH
def test_a_stored_message_is_delivered_when_it_is_durable(box: Box, version: int) -> None:
    """Else a crash could take back what a client has seen."""
    source, peer = box.client("s"), box.client("a", version)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    (packet,) = waits(box, peer, lambda: source.send(Publish(b"t", b"m", 1, packet_id=9)))
    assert isinstance(packet, Publish)
    assert packet.payload == b"m"


@BOTH
def test_an_acknowledgement_does_not_let_out_what_is_not_durable(box: Box, version: int) -> None:
    source, peer = box.client("s"), box.client("a", version, acks=False)
    source.connect()
    peer.resume()
    peer.subscribe("t", qos=1)
    source.publish("t", b"1", qos=1)
    (first,) = peer.publishes()
    box.hold_writes()
    source.send(Publish(b"t", b"2", 1, packet_id=9))
    peer.send(Ack(PUBACK, first.packet_id))
    assert peer.receive() == []
    box.release_writes()
    assert peer.payloads() == [b"2"]


@BOTH
def test_what_was_not_acknowledged_may_be_lost_and_what_was_may_not(box: Box, version: int) -> None:
    waiting = sleeper(box, version)
    peer = box.client("a", version, acks=False)
    peer.connect()
    peer.send(Publish(b"t", b"kept", 1, packet_id=1))
    assert peer.expect(Ack).kind == PUBACK
    box.hold_writes()
    peer.send(Publish(b"t", b"lost", 1, packet_id=2))
    assert peer.receive() == []
    box.crash()
    waiting.resume()
    assert waiting.payloads() == [b"kept"]


@pytest.mark.parametrize("durable", range(4))
def test_batches_become_durable_in_order(box: Box, durable: int) -> None:
    """A crash with some of the waiting batches on disk keeps a prefix of what was published."""
    waiting = sleeper(box)
    peer = box.client("a", acks=False)
    peer.connect()
    box.hold_writes()
    for number in range(3):
        peer.send(Publish(b"t", b"%d" % number, 1, packet_id=number + 1))
    box.crash(durable)
    waiting.resume()
    assert waiting.payloads() == [b"%d" % number for number in range(durable)]


def test_an_old_client_is_not_told_before_the_disk_is(box: Box) -> None:
    """One batch may hold what several clients wait for: all are answered, each with its own."""
    sleeper(box, V311)
    peers = [box.client(f"p{number}", V311, acks=False) for number in range(5)]
    for peer in peers:
        peer.connect()
    box.hold_writes()
    for number, peer in enumerate(peers):
        peer.send(Publish(b"t", b"m", 1, packet_id=100 + number))
    assert [peer.receive() for peer in peers] == [[]] * 5
    box.release_writes()
    assert [peer.expect(Ack).packet_id for peer in peers] == [100, 101, 102, 103, 104]
