"""How long a failover waits for timers: virtual time, in which messages, disks and turns take none."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from tests.harness.simulated_cluster import SimulatedCluster

WAIT_US = 10 * MILLISECOND  # two members begin their elections at different times


@pytest.mark.parametrize("leads_log", [False, True])
@pytest.mark.parametrize("moment_us", range(0, 300 * MILLISECOND, 37 * MILLISECOND))
def test_a_killed_node_is_replaced_without_waiting_for_a_timer(leads_log: bool, moment_us: int) -> None:
    cluster = SimulatedCluster(3)
    cluster.advance(SECOND + moment_us)
    controller = cluster.controller()
    victim = next(site for site in cluster.live() if (site is controller) == leads_log)
    victim.kill()
    cluster.advance(WAIT_US)
    for site in cluster.live():
        fabric = site.cluster_node.fabric
        assert victim.name not in fabric.leaders
        assert all(fabric.open)
