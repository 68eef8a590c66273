"""A node whose disk may lack what was acknowledged: its machine went down with durability "os", or it was salvaged."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, partition_end, partition_start
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

READERS = [f"r{number}" for number in range(20)]


def subscribe_readers(site: Site) -> None:
    """Have sessions that wait for messages."""
    for name in READERS:
        reader = site.client(name)
        reader.connect(session_expiry=EVER)
        reader.subscribe("t", qos=1)
        reader.disconnect()


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
    subscribe_readers(cluster["n1"])
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


class Lost:
    """Three nodes with the same messages; all end, n1 without the newest of them on its disk, and n3 is lost for good.

    voters: how many there are when they end. With one, that is n1, and n3 was forgotten before.
    """

    def __init__(self, voters: int, split_policy: str = "available") -> None:
        self.cluster = SimulatedCluster(3, split_policy=split_policy)
        n1, n3 = self.cluster["n1"], self.cluster["n3"]
        subscribe_readers(n1)
        self.publish(n1, b"old")
        if voters == 1:
            n3.kill()
            self.cluster.advance(5 * SECOND)
            n1.cluster_node.membership.forget("n3", self.cluster.now)
            self.cluster.settle()
        log = n1.control.log
        assert log is not None
        assert len(log.voters) == voters
        old = n1.store.copy()
        self.publish(n1, b"new")
        for site in self.cluster.live():
            site.kill()
        n1.store = old
        n1.settings.incomplete = True

    def publish(self, site: Site, payload: bytes) -> None:
        writer = site.client("w")
        writer.connect()
        writer.publish("t", payload, qos=1)
        writer.disconnect()
        self.cluster.advance(SECOND)

    def start(self, name: str, wait_s: int) -> None:
        self.cluster[name].revive()
        self.cluster.advance(wait_s * SECOND)

    def read(self, name: str) -> list[list[bytes]]:
        found = []
        for client_id in READERS:
            reader = self.cluster[name].client(client_id)
            assert reader.resume().session_present
            self.cluster.advance(SECOND // 10)
            found.append(reader.payloads())
            reader.disconnect()
        return found


@pytest.mark.parametrize("voters", [1, 3])
@pytest.mark.parametrize("wait_s", [0, 1, 4, 15])
@pytest.mark.parametrize("order", ["n1 n2", "n2 n1"])
def test_what_a_complete_disk_has_is_not_lost_to_an_incomplete_one(voters: int, order: str, wait_s: int) -> None:
    lost = Lost(voters)
    for name in order.split():
        lost.start(name, wait_s)
    lost.cluster.settle(60 * SECOND)
    assert lost.read("n1") == [[b"old", b"new"]] * len(READERS)


@pytest.mark.parametrize("best", ["n1", "n2", "n3"])
def test_of_copies_in_doubt_the_longest_leads(best: str) -> None:
    cluster = SimulatedCluster(3)
    subscribe_readers(cluster["n1"])
    writer = cluster["n1"].client("w")
    writer.connect()
    old = {name: site.store.copy() for name, site in cluster.sites.items()}
    for number in range(3):
        writer.publish("t", b"%d" % number, qos=1)
        cluster.advance(SECOND)
        if number == 1:
            old[best] = cluster[best].store.copy()
    for name, site in cluster.sites.items():
        site.kill()
        site.store = old[name]
        site.settings.incomplete = True
    for site in cluster.sites.values():
        site.revive()
    cluster.settle(60 * SECOND)
    assert "cluster_forked" not in [kind for site in cluster.sites.values() for kind in site.kinds()]
    for number in range(20):
        reader = cluster["n1"].client(f"r{number}")
        assert reader.resume().session_present
        cluster.advance(SECOND // 10)
        assert reader.payloads() == [b"0", b"1"]
