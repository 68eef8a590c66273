"""A packet that a leader has answered is not passed on to the next leader, who would answer it again."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.kind import PUBACK, PUBREC
from folkmoot.mqtt.packet import Ack, Packet, Pingreq, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

REPEATED: dict[str, tuple[Packet, type[Packet]]] = {
    "QoS 2": (Publish(b"x", b"m", 2, dup=True, packet_id=7), Ack),
    "an unknown filter": (Unsubscribe(8, [b"unknown"]), Unsuback),
    "a refused filter": (Subscribe(9, [(b"$share/x", 1)]), Suback),
    "an unknown packet id": (Ack(PUBREC, 999), Ack),
}


@pytest.mark.parametrize("what", REPEATED)
def test_an_answer_that_changes_nothing_comes_once_behind_an_acknowledgement(what: str) -> None:
    """What the client acknowledged before is removed with the next batch of the leader, and reported then."""
    packet, answer = REPEATED[what]
    cluster = SimulatedCluster(3)
    site, leader = cluster["n1"], cluster["n2"]
    peer = site.client(leader.names_led("c")[0], acks=False)
    peer.connect(session_expiry=EVER)
    peer.send(Subscribe(1, [(b"t", 1)]), Publish(b"x", b"m", 2, packet_id=7))
    cluster.run()
    source = leader.client("source")
    source.connect()
    for payload in (b"first", b"second"):  # the first removal from a queue writes more
        source.send(Publish(b"t", payload, 1, packet_id=1))
        cluster.run()
        delivered = peer.take(Publish)
        if payload == b"first":
            peer.send(Ack(PUBACK, delivered.packet_id))
            cluster.advance(SECOND)
    peer.receive()
    peer.send(Ack(PUBACK, delivered.packet_id), packet)
    cluster.run()
    peer.take(answer)
    partition = site.node._state.partition_of(peer.client_id.encode())
    cluster.hand_partition_to(partition, "n3")
    cluster.settle()
    peer.send(Pingreq())
    cluster.run()
    assert not [one for one in peer.receive() if isinstance(one, answer)]
