"""What the log says of a turn that waits for long: whose disk or answer it is that everything waits for."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Publish
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 4


def test_an_overloaded_node_names_the_copies_that_everything_waits_for() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    here, slow = cluster["n1"], cluster["n2"]
    client_id = here.names_led("c")[0]
    partition = hash64(client_id.encode()) % PARTITIONS
    peer = here.client(client_id)
    peer.connect(session_expiry=EVER)
    peer.subscribe("t", qos=1)
    slow.hold_writes()
    peer.send(Publish(b"t", b"m", 1, packet_id=7))
    told: list[object] = []
    for _ in range(20):
        cluster.advance(SECOND // 10)
        told += [event.fields["waits_for"] for event in here.events if event.kind == "overloaded"]
        if told:
            break
    assert told == [f"n2 for partitions {partition}"]
    slow.release_writes()
