"""A node whose disk may lack what was acknowledged: its machine went down with durability "os", or it was salvaged."""

from __future__ import annotations

from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, partition_end, partition_start
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site


def leads(site: Site) -> list[int]:
    cluster_node = site.node.cluster_node
    assert cluster_node is not None
    return [partition for partition in range(8) if cluster_node.fabric.leaders[partition] == site.name]


def cut_queues(site: Site) -> int:
    """Lose the queue rows of a stopped node's store, and nothing that would tell of it; return how many there were."""
    lost = Batch(0)
    for partition in range(8):
        for key, _ in site.store.scan(partition_start(partition), partition_end(partition), 10_000):
            if key[2] == QUEUE:
                lost.delete(key)
    site.store.apply(lost)
    return len(lost.ops)


def test_it_is_filled_from_another_copy_before_it_leads() -> None:
    cluster = SimulatedCluster(3)
    for number in range(20):
        reader = cluster["n1"].client(f"r{number}")
        reader.connect(session_expiry=EVER)
        reader.subscribe("t", qos=1)
        reader.disconnect()
    writer = cluster["n1"].client("w")
    writer.connect()
    writer.publish("t", b"kept", qos=1)
    led = leads(cluster["n3"])
    cluster["n3"].kill()
    assert cut_queues(cluster["n3"]) == 20
    cluster["n3"].settings.incomplete = True
    cluster["n3"].revive()
    cluster.settle()
    assert len(leads(cluster["n3"])) == len(led)
    for number in range(20):
        reader = cluster["n3"].client(f"r{number}")
        assert reader.resume().session_present
        assert reader.payloads() == [b"kept"]


def test_what_nobody_has_better_is_served_all_the_same() -> None:
    cluster = SimulatedCluster(3)
    writer = cluster["n1"].client("w")
    writer.connect()
    writer.publish("t", b"kept", qos=1, retain=True)
    for site in cluster.sites.values():
        site.kill()
        site.settings.incomplete = True
    for site in cluster.sites.values():
        site.revive()
    cluster.settle()
    assert "partial_leads" in cluster["n1"].kinds() + cluster["n2"].kinds() + cluster["n3"].kinds()
    reader = cluster["n2"].client("r")
    reader.connect()
    reader.subscribe("t", qos=1)
    assert reader.payloads() == [b"kept"]
