"""A disk that is slow but works: others lead, the copies stay, and the node leads again when the disk is quick."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.simulated_cluster import SimulatedCluster


def publish(cluster: SimulatedCluster, seconds: int, late_ms: int) -> None:
    """Let time pass with a message each 400 ms, and with a disk of n3 that takes so long for each batch."""
    publisher = cluster["n1"].client("publisher")
    publisher.connect()
    for number in range(seconds * 1000 // 400):
        if late_ms:
            cluster["n3"].hold_writes()
        publisher.publish(f"t/{number % 16}", b"x", qos=0, retain=True)
        cluster.advance(late_ms * MILLISECOND)
        if late_ms:
            cluster["n3"].release_writes()
        cluster.advance((400 - late_ms) * MILLISECOND)
    publisher.disconnect()


def test_others_lead_while_a_disk_is_slow_and_it_keeps_its_copies() -> None:
    cluster = SimulatedCluster(3)
    site = cluster["n3"]
    publish(cluster, 4, 0)
    assert site.names_led("t")
    publish(cluster, 12, 300)
    assert "disk_slow" in site.kinds()
    assert not site.names_led("t")
    status = NodeStatus(picture_of(cluster["n1"].node)).status()
    assert status["disks_slow"] == ["n3"]
    nodes = status["nodes"]
    assert isinstance(nodes, list)
    assert [(node["leads"] > 0, node["leads"] + node["follows"]) for node in nodes] == [
        (True, 8),
        (True, 8),
        (False, 8),
    ]
    publish(cluster, 20, 0)
    assert not site.names_led("t"), "one quiet moment is not enough"
    publish(cluster, 60, 0)
    assert "disk_recovered" in site.kinds()
    assert site.names_led("t")
    assert NodeStatus(picture_of(cluster["n1"].node)).status()["disks_slow"] == []


def test_a_late_batch_now_and_then_says_nothing() -> None:
    cluster = SimulatedCluster(3)
    for _ in range(6):
        publish(cluster, 4, 0)
        publish(cluster, 1, 300)
    assert "disk_slow" not in cluster["n3"].kinds()
    assert cluster["n3"].names_led("t")
