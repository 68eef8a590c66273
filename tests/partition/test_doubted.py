"""Messages that an earlier leader may have sent: they come with DUP, but not after their expiry [MQTT-3.3.2-5].

Only what was certainly sent does not expire any more [MQTT-4.3.3-7]. What was not acknowledged when a leader ended
without warning is in doubt, most of all what waited because the window of its client was full.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Packet, Publish
from tests.harness.box import Box
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster

EXPIRY_S = 5


def publishes(packets: list[Packet]) -> list[tuple[bytes, bool]]:
    return [(packet.payload, packet.dup) for packet in packets if isinstance(packet, Publish)]


def released(packets: list[Packet]) -> list[int]:
    return [packet.packet_id for packet in packets if isinstance(packet, Ack) and packet.kind == PUBREL]


def fill(box: Box, qos: int, count: int) -> None:
    source = box.client("source")
    source.connect()
    for number in range(count):
        source.publish("t", b"%d" % number, qos=qos, message_expiry=EXPIRY_S)


def come_back(box: Box, peer: Peer, window: int) -> list[Packet]:
    peer.connect(clean_start=False, session_expiry=EVER, receive_max=window)
    box.run()
    return peer.receive()


def end_flow(box: Box, peer: Peer, qos: int, packet_id: int) -> list[Packet]:
    """Acknowledge a message; return what came then, but for a PUBREL of this message."""
    peer.send(Ack(PUBACK if qos == 1 else PUBREC, packet_id))
    if qos == 2:
        peer.send(Ack(PUBCOMP, packet_id))
    return [packet for packet in peer.receive() if not isinstance(packet, Ack) or packet.packet_id != packet_id]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("late", [False, True])
def test_what_waited_for_the_window_expires_after_a_crash_and_what_was_sent_does_not(
    box: Box, qos: int, late: bool
) -> None:
    peer = box.client("a", acks=False)
    peer.connect(session_expiry=EVER, receive_max=1)
    peer.subscribe("t", qos=qos)
    fill(box, qos, 4)
    (sent,) = peer.publishes()
    box.crash()
    if late:
        box.advance(60 * SECOND)
    (again,) = come_back(box, peer, 1)
    assert isinstance(again, Publish)
    assert (again.payload, again.dup, again.packet_id) == (b"0", True, sent.packet_id)
    found = end_flow(box, peer, qos, again.packet_id)
    if not late:
        assert publishes(found) == [(b"1", True)]
        return
    ended: list[int] = []
    while found:
        assert len(found) == 1
        (packet_id,) = released(found)  # the client may hold the packet id: its flow ends
        ended.append(packet_id)
        peer.send(Ack(PUBCOMP, packet_id))
        found = peer.receive()
    assert len(set(ended)) == (3 if qos == 2 else 0)
    fill(box, qos, 1)
    (fresh,) = peer.publishes()
    assert not fresh.dup
    assert fresh.packet_id not in [*ended, again.packet_id]


@pytest.mark.parametrize("crashes", [1, 2])
@pytest.mark.parametrize("has_it", [False, True])
def test_a_flow_that_may_have_begun_ends_though_its_message_has_expired(box: Box, crashes: int, has_it: bool) -> None:
    """Messages that are read from the store are sent before it is stored that they may have been."""
    peer = box.client("a", acks=False)
    peer.connect(session_expiry=EVER)
    peer.subscribe("t", qos=2)
    peer.disconnect()
    fill(box, 2, 1)
    begun = come_back(box, peer, 1)
    assert publishes(begun) == [(b"0", False)]
    (packet,) = [packet for packet in begun if isinstance(packet, Publish)]
    box.crash()
    box.advance(60 * SECOND)
    if crashes == 2:  # the second one after the end is stored, and before the client knows it
        peer.connect(clean_start=False, session_expiry=EVER)
        box.crash(10)
    found = come_back(box, peer, 1)
    assert publishes(found) == []
    assert released(found) == [packet.packet_id]
    peer.send(Ack(PUBREC if has_it else PUBCOMP, packet.packet_id))
    if has_it:  # its PUBREC was under way
        assert released(peer.receive()) == [packet.packet_id]
        peer.send(Ack(PUBCOMP, packet.packet_id))
    fill(box, 2, 1)
    (fresh,) = peer.publishes()
    assert fresh.packet_id != packet.packet_id


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("at", ["n2", "n1"])
def test_what_waited_expires_when_the_leader_dies(at: str, qos: int) -> None:
    """With its client at the leader itself, or at another node, which tells the next leader what the client has got."""
    cluster = SimulatedCluster(3)
    client_id = cluster["n2"].names_led("c")[0]
    peer = cluster[at].client(client_id, acks=False)
    peer.connect(session_expiry=EVER, receive_max=1)
    peer.subscribe("t", qos=qos)
    fill(cluster["n1"], qos, 3)
    cluster.advance(SECOND // 10)
    assert publishes(peer.receive()) == [(b"0", False)]
    cluster["n2"].kill()
    cluster.advance(2 * SECOND)
    peer.lose()
    cluster.advance(60 * SECOND)
    again = cluster["n1"].client(client_id)
    again.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(SECOND)
    assert again.payloads() == [b"0"]
