"""A client that wants in while the leader of its partition does not lead yet is let in when it does, if it waits."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import Connack, Connect
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster


def test_after_a_time_without_a_majority_nobody_waits_for_a_leader_that_was_thought_to_lead() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    cluster.cut("n1", "n2", "n3")
    cluster.cut("n2", "n3")
    cluster.advance(4 * SECOND)
    knocking: list[Peer] = []
    turn = cluster["n1"].turn

    def knock_as_soon_as_possible() -> bool:
        moved = turn()
        site = cluster["n1"]
        if not knocking and not site.cut and not site.node.silence(site.steady_ns()):
            for number in range(20):
                knocking.append(cluster["n1"].client(f"c{number}").open())
                knocking[-1].send(Connect(5, f"c{number}", False, 60, properties=properties(session_expiry=EVER)))
        return moved

    cluster["n1"].turn = knock_as_soon_as_possible  # type: ignore[method-assign]
    cluster.heal()
    cluster.advance(5 * SECOND)
    assert knocking
    assert [peer.expect(Connack).code for peer in knocking] == [0] * 20


def test_a_client_that_has_given_up_is_not_let_in_by_a_later_leadership() -> None:
    """Its node is behind: it asks the leader of an earlier leadership, which is to lead and does not yet."""
    cluster = SimulatedCluster(3, partitions=24)
    cluster.hand_log_to("n1")
    here, leader = cluster["n2"], cluster["n3"]
    (client_id,) = leader.names_led("c")[:1]
    partition = here.node._state.partition_of(client_id.encode())
    cluster.held = {("n1", "n2"), ("n3", "n2")}
    cluster.hand_partition_to(partition, "n1")
    cluster.hand_partition_to(partition, "n3")
    client = here.client(client_id).open()
    client.send(Connect(5, client_id, False, 60, properties=properties(session_expiry=EVER)))
    cluster.advance(5 * MILLISECOND)
    assert here.cluster_node.fabric.open[partition]
    assert not leader.cluster_node.broker.state.leads[partition]
    cluster.hand_partition_to(partition, "n1")
    cluster.held = {("n3", "n2")}
    cluster.advance(5 * MILLISECOND)
    client.lose()
    cluster.held.clear()
    cluster.settle()
    assert here.cluster_node.fabric.leaders[partition] == "n1"
    cluster.hand_partition_to(partition, "n3")
    cluster.settle()
    assert leader.cluster_node.broker.state.leads[partition]
    cluster["n1"].client(client_id).connect(clean_start=False, session_expiry=EVER)


def test_a_leader_that_knows_a_connection_which_is_gone_is_told_so() -> None:
    cluster = SimulatedCluster(3, partitions=24)
    here, leader = cluster["n2"], cluster["n3"]
    (client_id,) = leader.names_led("c")[:1]
    client = here.client(client_id)
    client.connect(clean_start=False, session_expiry=EVER)
    assert client.connection is not None
    relays = here.cluster_node.broker.leadership.relays
    relays.forget(relays.relays[client.connection.id])
    client.lose()
    assert len(leader.cluster_node.broker.leadership.hosting) == 1
    cluster["n1"].client(client_id).connect(clean_start=False, session_expiry=EVER)


def test_a_client_that_was_being_let_in_is_let_in_when_its_leader_opens_the_partition_again() -> None:
    """A leader forgets what it has in memory when it has to begin anew with one of the others."""
    cluster = SimulatedCluster(3, partitions=24)
    here, leader = cluster["n2"], cluster["n3"]
    (client_id,) = leader.names_led("c")[:1]
    partition = here.node._state.partition_of(client_id.encode())
    cluster.held = {("n3", "n2")}
    client = here.client(client_id).open()
    client.send(Connect(5, client_id, False, 60, properties=properties(session_expiry=EVER)))
    cluster.advance(5 * MILLISECOND)
    assert len(leader.cluster_node.broker.leadership.hosting) == 1
    leader.cluster_node.broker.leadership.leave(partition)
    leader.cluster_node.broker.leadership.prepare([partition])
    cluster.held.clear()
    cluster.settle()
    assert client.expect(Connack).code == 0
