"""A node whose disk may lack what was acknowledged: its machine went down with durability "os", or it was salvaged."""

from __future__ import annotations

from folkmoot.store.batch import Batch
from folkmoot.store.key import QUEUE, partition_end, partition_start
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import Camp, Site


def leads(site: Site) -> list[int]:
    liaison = site.node.liaison
    assert liaison is not None
    return [partition for partition in range(8) if liaison.fabric.leaders[partition] == site.name]


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
    camp = Camp(3)
    for number in range(20):
        reader = camp["n1"].client(f"r{number}")
        reader.connect(session_expiry=EVER)
        reader.subscribe("t", qos=1)
        reader.disconnect()
    writer = camp["n1"].client("w")
    writer.connect()
    writer.publish("t", b"kept", qos=1)
    led = leads(camp["n3"])
    camp["n3"].kill()
    assert cut_queues(camp["n3"]) == 20
    camp["n3"].cluster.incomplete = True
    camp["n3"].revive()
    camp.settle()
    assert leads(camp["n3"]) == led
    for number in range(20):
        reader = camp["n3"].client(f"r{number}")
        assert reader.resume().session_present
        assert reader.payloads() == [b"kept"]


def test_what_nobody_has_better_is_served_all_the_same() -> None:
    camp = Camp(3)
    writer = camp["n1"].client("w")
    writer.connect()
    writer.publish("t", b"kept", qos=1, retain=True)
    for site in camp.sites.values():
        site.kill()
        site.cluster.incomplete = True
    for site in camp.sites.values():
        site.revive()
    camp.settle()
    assert "partial_leads" in camp["n1"].kinds() + camp["n2"].kinds() + camp["n3"].kinds()
    reader = camp["n2"].client("r")
    reader.connect()
    reader.subscribe("t", qos=1)
    assert reader.payloads() == [b"kept"]
