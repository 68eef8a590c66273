"""Without a lease a node does not decide who gets a message that nobody would publish again (A1)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.lease import PAUSE_US
from folkmoot.mqtt.packet import Ack, Publish, Suback, Subscribe, Will
from folkmoot.query.question import FOUND
from tests.harness.desk import Desk, app_in
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PRODUCER = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
MESSAGES = {
    "QoS 2": (Publish(b"t", b"m", 2, packet_id=1), EVER),
    "an idempotent producer's": (
        Publish(b"t", b"m", 1, packet_id=1, properties=properties(user_properties=PRODUCER)),
        0,
    ),
}


@pytest.fixture
def cluster() -> SimulatedCluster:
    """Each partition has one copy: nobody can lead it while its node is away."""
    return SimulatedCluster(3, replicas=1, split_policy="majority")


def stop(cluster: SimulatedCluster, site: Site) -> None:
    """Stop a process; the others go on without it."""
    site.up = False
    cluster.advance(5 * SECOND)


def wake(cluster: SimulatedCluster, site: Site) -> None:
    """Let the process go on, and with it what had come to its sockets."""
    site.up = True
    cluster.settle()


def subscriber(cluster: SimulatedCluster) -> Peer:
    """A client that subscribes while n3 is away, and is told so."""
    site = cluster["n1"]
    peer = site.client(site.names_led("subscriber")[0])
    peer.connect(session_expiry=EVER)
    peer.send(Subscribe(1, [(b"t", 2)]))
    cluster.run()
    assert peer.take(Suback).codes == [2]
    return peer


@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_that_a_stopped_node_reads_too_late_reaches_new_subscribers(
    cluster: SimulatedCluster, what: str
) -> None:
    message, expiry = MESSAGES[what]
    away = cluster["n3"]
    name = away.names_led("publisher")[0]
    publisher = away.client(name, acks=False)
    publisher.connect(session_expiry=expiry)
    stop(cluster, away)
    reader = subscriber(cluster)
    publisher.send(message)  # after SUBACK
    wake(cluster, away)
    again = away.client(name, acks=False)
    again.connect(clean_start=False, session_expiry=expiry)
    again.send(message)
    cluster.advance(SECOND)
    again.take(Ack)
    assert reader.payloads() == [b"m"]


def test_a_transaction_that_a_node_without_a_lease_commits_reaches_new_subscribers(cluster: SimulatedCluster) -> None:
    away = cluster["n3"]
    desk = Desk(away, app_in(away.cluster_node.fabric.leaders.index("n3"), cluster.partitions), cluster.partitions)
    answer = desk.stage(0, "p", 0, "t", [b"m"])
    assert answer is not None
    assert answer.status == FOUND
    stop(cluster, away)
    reader = subscriber(cluster)
    away.up = True
    desk.commit(0, ("p", 1))
    cluster.settle()
    desk.commit(0, ("p", 1))
    cluster.advance(SECOND)
    assert reader.payloads() == [b"m"]


def test_the_will_of_a_client_that_a_stopped_node_has_lost_reaches_new_subscribers(cluster: SimulatedCluster) -> None:
    away = cluster["n3"]
    name = away.names_led("mortal")[0]
    mortal = away.client(name)
    mortal.connect(will=Will(b"t", b"will", 1))
    stop(cluster, away)
    reader = subscriber(cluster)
    connection, mortal.connection = mortal.connection, None
    away.up = True
    assert connection is not None
    away.node.lost(connection, "reset by peer", cluster.now)
    cluster.settle()
    cluster.advance(SECOND)
    assert reader.payloads() == [b"will"]


@pytest.mark.parametrize("what", MESSAGES)
def test_a_message_waits_for_the_lease_and_then_goes_its_way(what: str) -> None:
    message, expiry = MESSAGES[what]
    cluster = SimulatedCluster(3)
    site = cluster["n1"]
    publisher = site.client(site.names_led("publisher")[0], acks=False)
    publisher.connect(session_expiry=expiry)
    reader = subscriber(cluster)
    site.end_lease()
    publisher.send(message)
    cluster.advance(PAUSE_US // 2)
    assert publisher.receive() == []
    assert reader.publishes() == []
    site.grant_lease()
    cluster.run()
    publisher.take(Ack)
    assert reader.payloads() == [b"m"]
