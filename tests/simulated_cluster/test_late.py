"""What one node says takes long to come to another one, while the leadership of a partition changes."""

from __future__ import annotations

from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.pack import varint
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, V5, Ack, Publish, Suback, Subscribe
from folkmoot.turn.message import FORWARD, encode_envelope
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16


def view(cluster: SimulatedCluster, name: str) -> Any:
    return cluster.view_of(cluster[name])


def leader(cluster: SimulatedCluster, name: str, partition: int) -> str:
    found: str = view(cluster, name).replicas[partition][0]
    return found


def named(cluster: SimulatedCluster, partition: int) -> str:
    """Return a client id of a partition."""
    return next(f"c{n}" for n in range(10_000) if cluster["n1"].node._state.partition_of(b"c%d" % n) == partition)


def until(cluster: SimulatedCluster, step_us: int, done: Any) -> None:
    """Go on in small steps until a condition holds, which is looked at after each of them."""
    for _ in range(10_000):
        cluster.freeze()
        cluster.now += step_us
        for _turn in range(50):
            if done():
                return
            if not cluster.step():
                break
    raise AssertionError("it does not come to that")


def test_what_was_refused_is_not_overtaken_by_what_was_sent_after_it() -> None:
    """n2 leads a partition, loses it to n1 in a view that n3 never sees, and has it again when n1 is dead."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    mine = [p for p in range(PARTITIONS) if leader(cluster, "n1", p) == "n1"]
    cluster["n1"].kill()
    cluster.settle()
    partition = next(p for p in mine if leader(cluster, "n2", p) == "n2")
    publisher = cluster["n3"].client("pub")
    publisher.connect()
    reader = cluster["n3"].client(named(cluster, partition))
    reader.resume()
    reader.subscribe("q", qos=1)
    reader.disconnect()
    cluster["n1"].revive()

    def taken() -> bool:
        if view(cluster, "n1") is None or leader(cluster, "n1", partition) != "n1":
            return False
        cluster.held.add(("n1", "n3"))
        return bool(view(cluster, "n2").epoch == view(cluster, "n1").epoch)

    until(cluster, MILLISECOND, taken)
    assert leader(cluster, "n3", partition) == "n2"
    cluster.held.clear()
    cluster["n1"].kill()  # what it has sent to n3 is lost with it
    ballot = cluster["n2"].node.cluster_node.membership._ballot  # type: ignore[union-attr]
    cluster.held = {("n3", "n2"), ("n2", "n3")}
    until(cluster, MILLISECOND, lambda: ballot.proposal is not None)

    def publish(number: int) -> None:
        packet = Publish(b"q", b"%d" % number, 1, False, False, number)
        assert publisher.connection is not None
        cluster["n3"].node.receive(publisher.connection, encode(packet, V5), cluster.now)
        cluster["n3"].turn()

    publish(1)
    while cluster.deliver("n2", "n3"):
        cluster["n3"].turn()  # the proposal comes to n3, and its promise leaves
    publish(2)
    while cluster.deliver("n3", "n2"):
        cluster["n2"].turn()
        cluster["n2"].turn()
    cluster.held.clear()
    cluster.thaw()
    cluster.settle()
    cluster.advance(2 * SECOND)
    assert [packet for packet in publisher.inbox if isinstance(packet, Ack)] == [Ack(PUBACK, 1, 0), Ack(PUBACK, 2, 0)]
    reader = cluster["n2"].client(reader.client_id)
    reader.resume()
    assert reader.payloads() == [b"1", b"2"]


def test_after_a_suback_nothing_is_missed_though_the_leader_has_changed_meanwhile() -> None:
    """The announcement of a leader comes late to a node, behind the view in which another one leads."""
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    mine = [p for p in range(PARTITIONS) if leader(cluster, "n1", p) == "n4"]
    cluster["n4"].kill()
    cluster.settle()
    cluster["n4"].revive()
    views = [site.cluster_node.by_views for site in cluster.live()]
    until(cluster, MILLISECOND, lambda: any(one is not None and one._member_state.filled for one in views))
    placed = view(cluster, "n1")
    epoch = placed.epoch
    partition, old, third = next(
        (p, placed.replicas[p][0], name)
        for p in mine
        for name in ("n2", "n3")
        if placed.replicas[p][0] != "n1" and "n4" in placed.learners[p] and name not in placed.replicas[p]
    )
    cluster.thaw()
    reader = cluster[old].client(named(cluster, partition))
    reader.resume()
    publisher = cluster[third].client("pub")
    publisher.connect()
    cluster.held.add((old, third))
    reader.send(Subscribe(1, [(b"q", 1)]))
    assert reader.inbox == [], "not everybody knows of it"
    assert view(cluster, "n1").epoch == epoch

    def moved() -> bool:
        if view(cluster, third).epoch == epoch:
            return False
        cluster.held.add(("n4", third))
        return True

    until(cluster, MILLISECOND, moved)
    assert leader(cluster, third, partition) == "n4"
    cluster.held.discard((old, third))
    while cluster.step():
        pass
    assert [packet.codes for packet in reader.inbox if isinstance(packet, Suback)] == [[1]]
    cluster.thaw()
    publisher.send(Publish(b"q", b"first", 1, False, False, 1))
    cluster.held.clear()
    cluster.advance(SECOND)
    assert reader.payloads() == [b"first"]


def test_a_message_of_another_node_that_cannot_be_read_is_not_half_done_and_its_publisher_asks_again() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    partition = next(p for p in range(PARTITIONS) if leader(cluster, "n1", p) == "n2")
    reader = cluster["n2"].client(named(cluster, partition))
    reader.resume()
    reader.subscribe("q", qos=1)
    publisher = cluster["n3"].client("pub")
    publisher.connect()
    cluster.advance(SECOND)
    cluster.held.add(("n3", "n2"))
    publisher.send(Publish(b"q", b"first", 1, False, False, 1))
    requests = cluster["n3"].node._broker.channel.forward_sender
    ((number, parts),) = requests._sent["n2"].items()
    out = [varint(number), varint(2)]
    parts[0].envelope.tasks.append(parts[0].task)
    encode_envelope(parts[0].envelope, out)
    switch = cluster["n2"].node._broker.cluster.dispatch
    switch.receive("n3", FORWARD, b"".join(out))  # a second one is said to follow, and does not
    cluster.freeze()
    cluster["n2"].turn()
    cluster.thaw()
    assert cluster["n2"].kinds().count("peer_nonsense") == 1
    cluster.advance(SECOND)
    assert reader.payloads() == []
    assert publisher.closed, "it was not stored, and may be sent again"
