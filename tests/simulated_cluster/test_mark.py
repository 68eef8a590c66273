"""Marks of nodes that are gone for good go too; of those that may come back none does."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import u64
from folkmoot.partition.mark import LINEAGES_MAX, PACKETS_MAX
from folkmoot.store.key import MARK, kind_prefix, plain_name_of
from folkmoot.store.origin import packet_name, partition_name
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4


def origins(site: Site) -> set[bytes]:
    """Return the names in all marks of a node's store."""
    found: set[bytes] = set()
    for partition in range(PARTITIONS):
        rows = site.store.scan(kind_prefix(partition, MARK), kind_prefix(partition, MARK + 1), 1000)
        found.update(plain_name_of(key) for key, _ in rows)
    return found


def publish(cluster: SimulatedCluster, name: str) -> None:
    peer = cluster[name].client(f"p-{name}")
    peer.connect()
    for number in range(20):
        peer.publish(f"t/{number}", b"x", qos=1, retain=True)


def test_a_node_that_was_forgotten_leaves_no_marks() -> None:
    cluster = SimulatedCluster(4, partitions=PARTITIONS)
    for name in ("n1", "n2", "n3", "n4"):
        publish(cluster, name)
    assert {b"n4", b"n1"} <= set().union(*[origins(site) for site in cluster.live()])
    cluster["n4"].kill()
    cluster.settle()
    assert b"n4" in set().union(*[origins(site) for site in cluster.live()]), "it may come back"
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    cluster_node.membership.forget("n4", cluster.now)
    cluster.advance(2 * SECOND)
    left = set().union(*[origins(site) for site in cluster.live()])
    assert b"n4" not in left
    assert left & {b"n1", b"n2", b"n3"}


def test_a_leader_that_takes_over_finds_none_of_nodes_that_were_forgotten_before() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    marks = cluster["n1"].node._broker.partition.marks
    memory = next(iter(cluster["n1"].node._broker.partition.led))
    partition = memory.number
    memory.marks = {b"gone": 7, b"n2": 8, partition_name(3, 1): 9}
    marks.take(memory)
    assert not marks.advance(partition, b"n2", 8)
    assert not marks.advance(partition, partition_name(3, 1), 9)
    assert marks.advance(partition, b"gone", 7)


def test_of_a_partition_the_marks_of_its_newest_lineages_are_kept() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    site = cluster["n1"]
    marks = site.node._broker.partition.marks
    partition = site.node._broker.state.leads.index(True)
    for lineage in range(LINEAGES_MAX + 2):
        assert marks.advance(partition, partition_name(3, lineage), 100 + lineage)
        assert marks.advance(partition, partition_name(2, lineage), 100)
    assert marks.newest(partition, partition_name(3, 1)) == 0
    assert marks.newest(partition, partition_name(3, 2)) == 102
    assert marks.newest(partition, partition_name(3, LINEAGES_MAX + 1)) == 101 + LINEAGES_MAX
    cluster.advance(SECOND)
    found = {name for name in origins(site) if name.startswith(partition_name(3, 0)[:4])}
    assert found == {partition_name(3, lineage) for lineage in range(2, LINEAGES_MAX + 2)}


def test_of_a_partition_the_marks_of_the_newest_packets_of_two_leaders_are_kept() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    site = cluster["n1"]
    marks = site.node._broker.partition.marks
    partition = site.node._broker.state.leads.index(True)
    sources = [u64(7) + u64(number) for number in range(PACKETS_MAX + 2)]
    for source in sources:
        cluster.advance(1)
        marks.note_packet(partition, source)
    assert [source for source in sources if not marks.has_packet(partition, source)] == sources[:2]
    cluster.advance(SECOND)
    found = {name for name in origins(site) if name.startswith(packet_name(b""))}
    assert found == {packet_name(source) for source in sources[2:]}
