"""The process with a client has ended, and the configuration does not say so yet: nothing is sent there."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.test_takeover import PARTITIONS, client_in, leader_of


def test_a_message_expires_whose_client_was_at_a_process_that_has_ended() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1)
    leader = cluster[leader_of(cluster, 0)]
    home, other = [site for site in cluster.live() if site is not leader]
    client_id = client_in(0)
    client = home.client(client_id)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    publisher = leader.client("publisher")
    publisher.connect()
    cluster.cut(leader.name, other.name)  # no quorum: nobody can be marked as away
    home.kill()
    cluster.advance(SECOND // 10)
    assert [key for key in leader.node._broker.leadership.hosting.remotes if key[0] == home.name], "it counts as there"
    publisher.publish("t", b"late", qos=1, message_expiry=2)
    publisher.publish("t", b"kept", qos=1)
    cluster.heal()
    cluster.advance(10 * SECOND)
    again = leader.client(client_id)
    again.resume(session_expiry=EVER)
    assert again.payloads() == [b"kept"]


def test_a_process_that_only_seemed_to_have_ended_gets_what_is_for_its_clients() -> None:
    """Its host has refused connections, as a firewall does that is set up wrongly."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1)
    leader = cluster[leader_of(cluster, 0)]
    home, other = [site for site in cluster.live() if site is not leader]
    client = home.client(client_in(0))
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    publisher = leader.client("publisher")
    publisher.connect()
    cluster.cut(leader.name, home.name, other.name)
    for wire in [wire for wire in cluster.wires if leader in wire.sites and home in wire.sites]:
        cluster.drop(wire)
    cluster.run()
    leader.node.dial_failed(home.address, "connection refused", True, cluster.now)
    publisher.publish("t", b"x", qos=1)
    assert client.payloads() == []
    cluster.heal()
    cluster.advance(SECOND // 2)
    assert client.payloads() == [b"x"]
