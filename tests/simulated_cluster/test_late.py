"""What one node says takes long to come to another one, while the leadership of a partition changes."""

from __future__ import annotations

from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.pack import varint
from folkmoot.membership.command import LEAD
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, V5, Ack, Publish, Suback, Subscribe
from folkmoot.turn.message import FORWARD, encode_envelope
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16


def view(cluster: SimulatedCluster, name: str) -> Any:
    return cluster.view_of(cluster[name])


def leader(cluster: SimulatedCluster, name: str, partition: int) -> str:
    """Return the leader of a partition as a node has it, "" if it has none."""
    known = view(cluster, name)
    replicas: list[str] = [] if known is None else known.replicas[partition]
    return replicas[0] if replicas else ""


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


def practised(cluster: SimulatedCluster, name: str) -> list[int]:
    """Return the partitions that a node leads whenever it has come back; it is down then."""
    for _ in range(2):
        cluster[name].kill()
        cluster.settle()
        cluster[name].revive()
        cluster.settle()
    found = [p for p in range(cluster.partitions) if leader(cluster, name, p) == name]
    cluster[name].kill()
    cluster.settle()
    return found


def test_what_was_refused_is_not_overtaken_by_what_was_sent_after_it() -> None:
    """n2 leads a partition, loses it to n1 in a configuration that n3 never sees, and has it again when n1 is dead."""
    cluster = SimulatedCluster(5, partitions=PARTITIONS)
    cluster.hand_log_to("n4")
    partition = next(p for p in practised(cluster, "n1") if leader(cluster, "n2", p) == "n2")
    publisher = cluster["n3"].client("pub")
    publisher.connect()
    reader = cluster["n3"].client(named(cluster, partition))
    reader.resume()
    reader.subscribe("q", qos=1)
    reader.disconnect()
    cluster["n1"].revive()
    others = [name for name in cluster.sites if name != "n3"]
    turn = cluster["n4"].turn

    def and_hold() -> bool:
        moved = turn()
        if not cluster.held and cluster.proposes(LEAD):
            cluster.held = {pair for name in others for pair in ((name, "n3"), ("n3", name))}
        return moved

    cluster["n4"].turn = and_hold  # type: ignore[method-assign]
    until(cluster, MILLISECOND, lambda: {leader(cluster, name, partition) for name in ("n1", "n2")} == {"n1"})
    cluster["n4"].turn = turn  # type: ignore[method-assign]
    assert leader(cluster, "n3", partition) == "n2"

    def publish(number: int) -> None:
        packet = Publish(b"q", b"%d" % number, 1, False, False, number)
        assert publisher.connection is not None
        cluster["n3"].node.receive(publisher.connection, encode(packet, V5), cluster.now)
        cluster["n3"].turn()

    publish(1)
    cluster["n1"].kill()
    until(cluster, MILLISECOND, lambda: leader(cluster, "n2", partition) == "n2")
    assert "n3" in [member.node_id for member in view(cluster, "n2").members]
    while cluster.deliver("n3", "n2"):
        cluster["n2"].turn()
    publish(2)
    while cluster.deliver("n4", "n3"):
        cluster["n3"].turn()  # it learns both at once
    cluster.held.clear()
    cluster.thaw()
    cluster.settle()
    cluster.advance(2 * SECOND)
    assert [packet for packet in publisher.inbox if isinstance(packet, Ack)] == [Ack(PUBACK, 1, 0), Ack(PUBACK, 2, 0)]
    reader = cluster["n2"].client(reader.client_id)
    reader.resume()
    assert reader.payloads() == [b"1", b"2"]


def test_after_a_suback_nothing_is_missed_though_the_leader_has_changed_meanwhile() -> None:
    """The announcement of a leader comes late to a node, behind the configuration in which another one leads."""
    cluster = SimulatedCluster(4, replicas=2, partitions=4 * PARTITIONS)
    cluster.hand_log_to("n1")
    partition, old, third = next(
        (p, leader(cluster, "n1", p), name)
        for p in practised(cluster, "n4")
        for name in ("n2", "n3")
        if leader(cluster, "n1", p) != "n1" and name not in view(cluster, "n1").replicas[p]
    )
    reader = cluster[old].client(named(cluster, partition))
    reader.resume()
    publisher = cluster[third].client("pub")
    publisher.connect()
    cluster["n4"].revive()
    until(cluster, MILLISECOND, lambda: "n4" in view(cluster, third).replicas[partition])
    assert leader(cluster, third, partition) == old
    cluster.held.add((old, third))
    cluster.thaw()
    reader.send(Subscribe(1, [(b"q", 1)]))
    assert reader.inbox == [], "not everybody knows of it"
    assert leader(cluster, third, partition) == old

    def moved() -> bool:
        if leader(cluster, third, partition) == old:
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
    switch = cluster["n2"].node._broker.dispatch
    switch.receive("n3", FORWARD, b"".join(out))  # a second one is said to follow, and does not
    cluster.freeze()
    cluster["n2"].turn()
    cluster.thaw()
    assert cluster["n2"].kinds().count("peer_nonsense") == 1
    cluster.advance(SECOND)
    assert reader.payloads() == []
    assert publisher.closed, "it was not stored, and may be sent again"


def test_a_node_that_was_left_behind_takes_nothing_more_of_its_last_view() -> None:
    """What was sent to it before comes when it knows that the others have gone on: its copies stay as they are."""
    cluster = SimulatedCluster(4, replicas=4, partitions=PARTITIONS)
    cluster.hand_log_to("n2")
    partition = next(p for p in range(PARTITIONS) if leader(cluster, "n1", p) == "n1")
    subscriber = cluster["n1"].client(named(cluster, partition))
    subscriber.connect(session_expiry=EVER)
    cluster.held = {("n1", "n3"), ("n3", "n1"), ("n3", "n2")}
    subscriber.send(Subscribe(1, [(b"t", 1)]))
    until(cluster, 10 * MILLISECOND, lambda: cluster["n3"].cluster_node.membership.is_excluded)
    cluster.held = {("n1", "n2"), ("n2", "n3"), ("n4", "n3")}
    before = cluster["n3"].cluster_node.replication.holdings()[partition].seq
    assert before < cluster["n1"].cluster_node.replication.holdings()[partition].seq
    cluster.thaw()
    cluster.run()
    assert cluster["n3"].cluster_node.membership.is_excluded
    assert cluster["n3"].cluster_node.replication.holdings()[partition].seq == before
