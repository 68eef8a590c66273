"""A session moves to another leader, and the node with the connection learns of it late."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.mqtt.packet import PUBREC, Ack, Publish
from tests.harness.simulated_cluster import SimulatedCluster

VIEWS = 4
"""Installed at the former leader since the session left it, while the node with the connection has installed none."""


def test_what_is_sent_to_the_former_leader_is_sent_again_to_the_next_one() -> None:
    cluster = SimulatedCluster(3, partitions=24)
    cluster.hand_log_to("n1")
    here, leader = cluster["n2"], cluster["n3"]
    led = [number for number, name in enumerate(leader.cluster_node.fabric.leaders) if name == "n3"]
    (client_id,) = leader.names_led("c")[:1]
    partition = here.node._state.partition_of(client_id.encode())
    client = here.client(client_id)
    client.connect(clean_start=False, session_expiry=600)
    cluster.held.add(("n1", "n2"))
    known = here.cluster_node.fabric.epoch
    others = [number for number in led if number != partition][: VIEWS - 1]
    for number in [partition, *others]:
        cluster.hand_partition_to(number, "n1")
    assert len(others) == VIEWS - 1
    assert leader.cluster_node.fabric.leaders[partition] == "n1"
    assert here.cluster_node.fabric.epoch == known
    client.send(Publish(b"t", b"x", 2, False, False, 7))
    cluster.advance(5 * MILLISECOND)
    cluster.held.clear()
    cluster.settle()
    assert client.take(Ack, 7).kind == PUBREC
