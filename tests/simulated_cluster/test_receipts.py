"""Receipts while leaders change: they say what is so, or nothing (docs/receipts.md)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBREC, Ack, Publish
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import store_partition
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16
ASK = properties(user_properties=[("folkmoot-receipt", "1")])
STREAMS = {store_partition(f"s{number}", 0, PARTITIONS): f"s{number}" for number in range(500)}
"""By partition: a stream with one partition, which is stored there."""


def in_partitions(*partitions: int) -> list[StreamConfig]:
    """Return a stream of the topic t for each of some partitions."""
    return [StreamConfig(STREAMS[partition], b"t", 1) for partition in partitions]


def client_in(partition: int) -> str:
    """Return a client id whose session is in a partition."""
    return next(f"c{number}" for number in range(999) if hash64(f"c{number}".encode()) % PARTITIONS == partition)


def pairs_of(ack: Ack) -> list[tuple[str, str]]:
    return [] if ack.properties is None else ack.properties.user_properties


def test_a_message_with_which_another_leader_goes_on_has_no_receipt() -> None:
    home, far = 8, 0
    cluster = SimulatedCluster(3, partitions=PARTITIONS, streams=in_partitions(far))
    cluster.hand_log_to("n3")
    leaders = cluster["n1"].cluster_node.fabric.leaders
    assert (leaders[home], leaders[far]) == ("n1", "n2")
    client = cluster["n1"].client(client_in(home))
    client.connect(session_expiry=EVER)
    cluster.held = {("n2", "n1")}
    client.send(Publish(b"t", b"m", 2, False, False, 1, ASK))
    assert not client.inbox, "n2 has not confirmed it"
    cluster.hand_partition_to(home, "n3")
    cluster.advance(SECOND // 10)
    ack = client.take(Ack, 1)
    assert ack.kind == PUBREC
    assert pairs_of(ack) == [], "it is with the next leader, and this one does not know where else"
    cluster.held = set()
    cluster.advance(SECOND)
    stream = cluster["n2"].node.streams.get(STREAMS[far])
    assert stream is not None
    assert stream.logs[0].readable_end == 1


def test_copies_that_have_not_joined_their_leader_anew_count() -> None:
    """In another view a leader does not know at first what its followers have: of what is committed, everything."""
    near, far, other = 12, 0, 4
    cluster = SimulatedCluster(4, partitions=PARTITIONS, replicas=2, streams=in_partitions(near, far))
    cluster.hand_log_to("n3")
    view = cluster["n1"].cluster_node.view
    assert view is not None
    assert view.replicas[near] == ["n1", "n4"]
    assert view.replicas[far][0] == "n2"
    assert view.replicas[other] == ["n3", "n2"]
    client = cluster["n1"].client("c")
    client.connect()
    cluster.held = {("n2", "n1")}
    client.send(Publish(b"t", b"m", 1, False, False, 1, ASK))
    assert not client.inbox, "n2 has not confirmed it"
    cluster.held = {("n2", "n1"), ("n4", "n1")}
    cluster.hand_partition_to(other, "n2")
    cluster.held = {("n4", "n1")}
    cluster.run()
    pairs = pairs_of(client.take(Ack, 1))
    assert [value for name, value in pairs if name == "folkmoot-replicas"] == ["2", "2"]
