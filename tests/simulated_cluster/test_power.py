"""All nodes lose power under load: copies that differ by what was on its way stay in sync."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import Publish
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

TOPICS = 12


@pytest.mark.parametrize(("least", "behind"), [(1, ("n2", "n3")), (2, ("n2", "n3")), (1, ("n1",))])
def test_no_copy_is_filled_after_a_loss_of_power_at_all_nodes(least: int, behind: tuple[str, ...]) -> None:
    cluster = SimulatedCluster(3, partitions=8, split_policy="majority", min_in_sync=least)
    for number in range(TOPICS):
        reader = cluster["n1"].client(f"r{number}")
        reader.connect(session_expiry=EVER)
        reader.subscribe(f"t/{number}", qos=1)
        reader.lose()
    publisher = cluster["n1"].client("p")
    publisher.connect()
    for number in range(TOPICS):
        publisher.publish(f"t/{number}", b"first", qos=1)
    cluster.advance(2 * SECOND)
    for name in behind:
        cluster[name].hold_writes()
    for number in range(TOPICS):
        publisher.send(Publish(b"t/%d" % number, b"last", 1, False, False, 100 + number))
    cluster.advance(50 * MILLISECOND)
    for site in cluster.sites.values():
        site.kill()
    cluster.advance(5 * SECOND)
    for site in cluster.sites.values():
        site.revive()
    fewest = 3
    for _ in range(2000):
        cluster.advance(5 * MILLISECOND)
        known = [site.control.configuration for site in cluster.live() if site.control.configuration]
        newest = max(known, key=lambda configuration: configuration.index)
        fewest = min([fewest, *[len(state.isr) for state in newest.partitions]])
    assert cluster.settled()
    assert fewest == 3
    kinds = [event.kind for site in cluster.sites.values() for event in site.events]
    assert "replica_filled" not in kinds
