"""A process that stood still and goes on: it acknowledges nothing once its lease is over."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.kind import PUBACK
from folkmoot.mqtt.packet import Ack, Disconnect, Publish, Will
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster


def acks(peer: Peer) -> list[int]:
    return [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack) and packet.kind == PUBACK]


def payloads(peer: Peer) -> list[bytes]:
    return [packet.payload for packet in peer.publishes()]


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


@pytest.fixture
def reader(cluster: SimulatedCluster) -> Peer:
    found = cluster["n1"].client("reader")
    found.connect(session_expiry=EVER)
    return found


def test_what_comes_first_at_one_who_was_put_out_is_not_acknowledged(cluster: SimulatedCluster, reader: Peer) -> None:
    writer = cluster["n3"].client("writer")
    writer.connect()
    cluster["n3"].up = False
    cluster.advance(5 * SECOND)
    reader.subscribe("t/#", qos=1)
    cluster["n3"].up = True
    writer.send(Publish(b"t/1", b"m", 1, False, False, 7))
    cluster.advance(5 * SECOND)
    assert acks(writer) == []
    assert writer.closed, "it comes again, and sends it again"


def test_one_who_was_not_put_out_goes_on(cluster: SimulatedCluster, reader: Peer) -> None:
    reader.subscribe("t/#", qos=1)
    writer = cluster["n3"].client("writer")
    writer.connect()
    cluster["n3"].up = False
    cluster.advance(SECOND // 2)
    cluster["n3"].up = True
    writer.send(Publish(b"t/1", b"m", 1, False, False, 7))
    cluster.run()
    assert acks(writer) == [7], "its lease was not over"
    assert payloads(reader) == [b"m"]


def test_a_goodbye_that_waited_is_heard_before_the_end_of_its_connection(
    cluster: SimulatedCluster, reader: Peer
) -> None:
    reader.subscribe("will/#", qos=1)
    leaving = cluster["n3"].client("leaving")
    leaving.connect(will=Will(b"will/leaving", b"lost", 1))
    dying = cluster["n3"].client("dying")
    dying.connect(will=Will(b"will/dying", b"lost", 1))
    cluster["n3"].end_lease()
    leaving.send(Disconnect(0))
    leaving.lose()
    dying.send(Publish(b"t/1", b"m", 0, False, False, 0))
    dying.lose()
    cluster.advance(SECOND // 2)
    cluster["n3"].grant_lease()
    cluster.advance(5 * SECOND)
    assert [packet.topic for packet in reader.publishes()] == [b"will/dying"]
