"""A CONNECT that is refused has done nothing, also when the leader of the session had been asked (A7)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Connack, Connect, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 4


def asked(cluster: SimulatedCluster) -> tuple[Peer, Peer]:
    """A subscriber for wills at n1, and a client of n3 whose CONNECT its leader n1 has taken and cannot answer yet."""
    watch = cluster["n1"].client("watch")
    watch.connect()
    watch.subscribe("w", qos=1)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    partition = cluster_node.fabric.leaders.index("n1")
    number = next(n for n in range(99) if hash64(b"c%d" % n) % PARTITIONS == partition)
    peer = cluster["n3"].client(f"c{number}")
    peer.open()
    cluster["n2"].hold_writes()
    will = Will(b"w", b"will", 1, False, None)
    peer.send(Connect(5, peer.client_id, False, 0, None, None, will, properties(session_expiry=EVER)))
    assert peer.receive() == []
    return watch, peer


@pytest.mark.parametrize("released", [True, False])
def test_who_waits_at_a_node_that_is_put_out_is_not_refused_if_its_will_is_published(released: bool) -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    watch, peer = asked(cluster)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    cluster_node.membership.evict("n3", cluster.now)
    if released:
        cluster["n2"].release_writes()
    cluster.advance(SECOND)
    cluster["n2"].release_writes()
    cluster.advance(SECOND)
    assert peer.closed
    refused = [packet for packet in peer.receive() if isinstance(packet, Connack) and packet.code]
    assert watch.payloads() == ([] if refused else [b"will"])


def test_who_is_refused_while_its_leader_thinks_has_no_will() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    watch, peer = asked(cluster)
    connection = peer.connection
    assert connection is not None
    site = cluster["n3"]
    site.node._broker.protocol.closing.refuse(connection, 0x88, "no node leads the client's partition now")
    site.run()
    cluster["n2"].release_writes()
    cluster.advance(SECOND)
    assert peer.take(Connack).code == 0x88
    assert watch.payloads() == []


def test_who_waits_at_its_leader_that_is_put_out_is_not_refused_if_its_will_is_published() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    site = cluster["n1"]
    watch = cluster["n3"].client("watch")
    watch.connect()
    watch.subscribe("w", qos=1)
    partition = site.cluster_node.fabric.leaders.index("n1")
    number = next(n for n in range(99) if hash64(b"c%d" % n) % PARTITIONS == partition)
    peer = site.client(f"c{number}")
    peer.open()
    cluster["n2"].hold_writes()
    will = Will(b"w", b"will", 1, False, None)
    peer.send(Connect(5, peer.client_id, False, 0, None, None, will, properties(session_expiry=EVER)))
    assert peer.receive() == []
    cluster["n3"].cluster_node.membership.evict("n1", cluster.now)
    cluster.advance(SECOND)
    cluster["n2"].release_writes()
    cluster.advance(5 * SECOND)
    assert peer.closed
    refused = [packet for packet in peer.receive() if isinstance(packet, Connack) and packet.code]
    assert watch.payloads() == ([] if refused else [b"will"])


def test_who_waits_for_a_leader_that_is_cut_off_with_the_only_copy_is_closed() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority", replicas=1)
    site = cluster["n1"]
    led = site.cluster_node.fabric.leaders
    holder = cluster[led[hash64(b"c") % PARTITIONS]]
    front, other = [one for one in cluster.live() if one is not holder]
    peer = front.client("c")
    peer.open()
    holder.hold_writes()
    will = Will(b"w", b"will", 1, False, None)
    peer.send(Connect(5, peer.client_id, False, 0, None, None, will, properties(session_expiry=EVER)))
    assert peer.receive() == []
    cluster.cut(holder.name, front.name, other.name)
    cluster.advance(5 * SECOND)
    assert peer.closed
    assert peer.receive() == [], "its will may be published"
    again = front.client("c")
    again.open()
    again.send(Connect(5, "c", False, 0, None, None, None, properties(session_expiry=EVER)))
    cluster.advance(SECOND)
    assert again.take(Connack).code == 0x88, "nobody was asked"


@pytest.mark.parametrize(("at", "code"), [("n1", 0x9C), ("n3", 0x89)])
def test_a_leader_without_room_names_its_other_server_to_its_own_clients_only(at: str, code: int) -> None:
    """The other server of n1 may be n3; and whichever node a client of n3 asks, n1 refuses it."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, limits={"sessions_max": 1}, server_reference="n3:1883")
    first, second = cluster["n1"].names_led("c")[:2]
    cluster["n2"].client(first).connect()
    refused = cluster[at].client(second).connect(code=code)
    assert refused.properties is not None
    assert refused.properties.server_reference == ("n3:1883" if at == "n1" else None)
