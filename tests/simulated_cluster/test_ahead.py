"""An answer of QoS 2 that leaves before older turns are complete, to a client of another node (MQTT 5 section 4.3)."""

from __future__ import annotations

import contextlib
import itertools

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import Ack, Publish, Suback, Subscribe
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 16


def led_at(cluster: SimulatedCluster, node_id: str, stem: str, copy_at: str) -> str:
    """Return a name whose partition one node leads and another one has a copy of."""
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    view = cluster_node.replication.context.view
    assert view is not None
    for number in range(999):
        replicas = view.replicas[hash64(f"{stem}{number}".encode()) % PARTITIONS]
        if replicas[0] == node_id and copy_at in replicas:
            return f"{stem}{number}"
    raise AssertionError(f"{node_id} leads nothing that {copy_at} has")


def cast(cluster: SimulatedCluster) -> tuple[Site, Site, Site]:
    """Return three nodes: the second and the third lead partitions of which the first has copies."""
    for here, leader, third in itertools.permutations(cluster.live(), 3):
        with contextlib.suppress(AssertionError):
            led_at(cluster, leader.name, "x", here.name)
            led_at(cluster, third.name, "x", here.name)
            return here, leader, third
    raise AssertionError("nobody has copies of what two others lead")


def answers(peer: Peer) -> list[tuple[int, int]]:
    return [(packet.kind, packet.packet_id) for packet in peer.receive() if isinstance(packet, Ack)]


def start(cluster: SimulatedCluster, here: Site, leader: Site, third: Site) -> Peer:
    """Return a client at `here` that has PUBREC from its leader, where an older turn waits for a node that hangs."""
    client = here.client(led_at(cluster, leader.name, "c", here.name), acks=False)
    client.connect(session_expiry=EVER)
    other = leader.client(led_at(cluster, leader.name, "o", here.name))
    other.connect()
    far, near = led_at(cluster, third.name, "far", here.name), led_at(cluster, leader.name, "near", here.name)
    third.up = False  # it hangs: nobody knows yet
    other.send(Publish(far.encode(), b"x", 1, True, False, 1))
    client.send(Publish(near.encode(), b"x", 2, False, False, 7))
    cluster.run()
    assert answers(other) == [], "the leader has a turn that is not complete"
    assert answers(client) == [(PUBREC, 7)]
    return client


def start_behind(cluster: SimulatedCluster) -> Peer:
    """Return a client at n1 that n2 leads, where a turn of another client waits for the disk."""
    client = cluster["n1"].client(led_at(cluster, "n2", "c", "n1"))
    client.connect(session_expiry=EVER)
    other = cluster["n2"].client(led_at(cluster, "n2", "o", "n1"))
    other.connect()
    cluster["n2"].hold_writes()
    other.send(Publish(led_at(cluster, "n2", "near", "n1").encode(), b"x", 1, True, False, 1))
    return client


def test_what_was_answered_is_not_answered_again_by_the_next_leader() -> None:
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    here, leader, third = cast(cluster)
    client = start(cluster, here, leader, third)
    leader.kill()
    third.up = True
    cluster.advance(5 * SECOND)
    assert answers(client) == []
    client.send(Ack(PUBREL, 7))
    cluster.run()
    assert answers(client) == [(PUBCOMP, 7)]


def test_what_was_not_answered_is_answered_by_the_next_leader() -> None:
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    here, leader, third = cast(cluster)
    client = start(cluster, here, leader, third)
    far = led_at(cluster, third.name, "far", here.name)
    client.send(Publish(far.encode(), b"x", 2, True, False, 8))
    client.send(Ack(PUBREL, 7))
    cluster.run()
    assert (PUBREC, 8) not in answers(client), "it waits for the node that hangs"
    leader.kill()
    third.up = True
    cluster.advance(5 * SECOND)
    assert sorted(answers(client)) == [(PUBREC, 8), (PUBCOMP, 7)]


def test_what_could_be_answered_at_once_is_not_answered_twice() -> None:
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    client = start_behind(cluster)
    producer = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])
    client.send(Publish(b"nobody/wants/it", b"x", 1, False, False, 3, producer))
    came = answers(client)
    cluster["n2"].kill()
    cluster.advance(5 * SECOND)
    assert came + answers(client) == [(PUBACK, 3)]


def test_a_refusal_that_the_next_leader_would_not_give_is_given_once_or_not_at_all() -> None:
    cluster = SimulatedCluster(3, replicas=2, partitions=PARTITIONS)
    client = start_behind(cluster)
    cluster["n2"].storage(True)
    client.send(Subscribe(2, [(b"t/#", 1)]))
    came = [packet for packet in client.receive() if isinstance(packet, Suback)]
    cluster["n2"].kill()
    cluster.advance(5 * SECOND)
    came += [packet for packet in client.receive() if isinstance(packet, Suback)]
    assert [(packet.packet_id, packet.codes) for packet in came] == [(2, [1])]
