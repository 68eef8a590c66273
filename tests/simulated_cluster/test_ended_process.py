"""The process with a client has ended, and the configuration does not say so yet: nothing is sent there."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.simulated_cluster.test_takeover import PARTITIONS, client_in, leader_of


def begun(cluster: SimulatedCluster) -> tuple[Site, Site, Site, Peer]:
    """Return the leader of the session of a subscriber, the node where it is connected, another one, and the client."""
    leader = cluster[leader_of(cluster, 0)]
    home, other = [site for site in cluster.live() if site is not leader]
    client = home.client(client_in(0))
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    return leader, home, other, client


def test_a_message_expires_whose_client_was_at_a_process_that_has_ended() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1)
    leader, home, other, client = begun(cluster)
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
    again = leader.client(client.client_id)
    again.resume(session_expiry=EVER)
    assert again.payloads() == [b"kept"]


def test_a_process_that_only_seemed_to_have_ended_gets_what_is_for_its_clients() -> None:
    """Its host has refused connections, as a firewall does that is set up wrongly."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1)
    leader, home, other, client = begun(cluster)
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


def test_room_in_a_link_sends_nothing_to_a_process_that_has_ended() -> None:
    """The link was full; the one to the next process of the node is empty, and its clients are not yet gone."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1, link_buffer_bytes_max=1 << 20)
    leader, home, other, client = begun(cluster)
    publishers = [leader.client(f"publisher{number}") for number in range(9)]
    for publisher in publishers:
        publisher.connect()
    cluster.held = {(leader.name, home.name), (home.name, leader.name)}
    while home.name not in leader.cluster_node.fabric.choked:
        publishers.pop().publish("t", bytes(200_000))
    cluster.cut(leader.name, other.name)
    cluster.cut(home.name, other.name)
    home.kill()
    cluster.advance(SECOND // 10)
    cluster.held = set()
    publishers.pop().publish("t", b"late", qos=1, message_expiry=2)
    home.revive()
    cluster.advance(SECOND // 10)
    assert not leader.cluster_node.fabric.choked
    assert [key for key in leader.node._broker.leadership.hosting.remotes if key[0] == home.name], "it counts as there"
    cluster.heal()
    cluster.advance(10 * SECOND)
    again = home.client(client.client_id)
    again.resume(session_expiry=EVER)
    assert again.payloads() == []
    publishers.pop().publish("t", b"new", qos=1)
    assert again.payloads() == [b"new"], "the next process is not the one that has ended"


def test_a_new_leader_sends_nothing_to_a_process_that_has_ended_since_it_told_of_its_clients() -> None:
    cluster = SimulatedCluster(4, partitions=8, replicas=2)
    view = cluster["n1"].cluster_node.view
    assert view is not None
    names = cluster["n1"].names_led("c")
    client_id, partition = next(
        (name, partition) for name in names if view.replicas[partition := hash64(name.encode()) % 8] == ["n1", "n4"]
    )
    client = cluster["n3"].client(client_id)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=1)
    heir = cluster["n4"]
    publisher = heir.client(heir.names_led("p")[0])
    publisher.connect()
    cluster["n1"].kill()
    cluster.hold_opening(partition, "n4", "n2")
    cluster["n3"].kill()
    cluster.advance(SECOND // 10)
    while not heir.cluster_node.fabric.open[partition]:
        assert cluster.deliver("n2", "n4")
        heir.turn()
    assert [key for key in heir.node._broker.leadership.hosting.remotes if key[0] == "n3"], "it counts as there"
    publisher.publish("t", b"late", qos=1, message_expiry=2)
    cluster.held = set()
    cluster.advance(10 * SECOND)
    again = heir.client(client_id)
    again.resume(session_expiry=EVER)
    assert again.payloads() == []
