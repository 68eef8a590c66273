"""A node that has just started and leads at once: it knows who subscribes before it publishes for clients (A1, A5)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.view import View
from folkmoot.mqtt.kind import PUBREC
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 32


def view_of(site: Site) -> View | None:
    cluster_node = site.node.cluster_node
    assert cluster_node is not None
    return cluster_node.replication.replica_states.view


def client_of(cluster: SimulatedCluster, *replicas: str) -> str:
    """Return a client id whose partition these nodes have, the first as its leader."""
    view = view_of(cluster["n1"])
    assert view is not None
    for number in range(9999):
        if view.replicas[hash64(b"c%d" % number) % PARTITIONS][: len(replicas)] == list(replicas):
            return f"c{number}"
    raise AssertionError(f"there is no partition of {replicas}")


def hold_in_next_view(cluster: SimulatedCluster, site: Site, target: str) -> None:
    """Hold what a node sends to another one from its first turn in the next view on, until all is let go."""
    turn = site.turn
    known = [view_of(site)]

    def and_hold() -> bool:
        moved = turn()
        if len(known) == 1 and view_of(site) is not known[0]:
            known.append(view_of(site))
            cluster.held.add((site.name, target))
        return moved

    site.turn = and_hold  # type: ignore[method-assign]


def test_what_a_client_has_sent_meanwhile_goes_to_subscribers_whose_leader_begins_later() -> None:
    cluster = SimulatedCluster(5, partitions=PARTITIONS)
    cluster.hand_log_to("n5")  # all others have their leases from it
    subscriber = cluster["n3"].client(client_of(cluster, "n4", "n2", "n3"))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    subscriber.disconnect()
    client = cluster["n2"].client(client_of(cluster, "n1"), acks=False)
    client.connect(session_expiry=EVER)
    hold_in_next_view(cluster, cluster["n3"], "n2")
    cluster["n4"].up = False  # it hangs: nobody leads its partitions until that is noticed
    cluster["n1"].kill()
    client.send(Publish(b"t", b"x", 2, False, False, 7))
    cluster["n1"].revive()
    partition = hash64(client.client_id.encode()) % PARTITIONS
    for _ in range(400):
        cluster.advance(SECOND // 100)
        if cluster["n1"].node._state.leads[partition]:
            break
    assert cluster["n1"].node._state.leads[partition]
    assert not cluster["n2"].node._state.leads[hash64(subscriber.client_id.encode()) % PARTITIONS], "it waits for n3"
    assert client.receive() == []
    cluster.held.clear()
    cluster.advance(SECOND)
    assert [(ack.kind, ack.packet_id) for ack in client.receive() if isinstance(ack, Ack)] == [(PUBREC, 7)]
    subscriber.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(SECOND)
    assert [publish.payload for publish in subscriber.publishes()] == [b"x"]
