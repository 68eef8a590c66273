"""A cluster without clients: how often its nodes wake up by themselves, since that is most of what they cost then."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from tests.harness.simulated_cluster import SimulatedCluster

SPAN_S = 20
HEARTBEATS_PER_S = 10


def test_an_idle_leader_wakes_up_for_its_heartbeats_and_followers_hardly_ever() -> None:
    cluster = SimulatedCluster(3)
    cluster.advance(5 * SECOND)
    sites = list(cluster.live())
    own_turns = dict.fromkeys([site.name for site in sites], 0)
    end = cluster.now + SPAN_S * SECOND
    while cluster.now < end:
        due = max(min(site.node.next_wake() for site in sites), cluster.now)
        for site in sites:
            own_turns[site.name] += site.node.next_wake() <= due
        cluster.advance(due - cluster.now)
    leaders = [name for name, turns in own_turns.items() if turns > HEARTBEATS_PER_S * SPAN_S // 2]
    assert len(leaders) == 1, own_turns
    for name, turns in own_turns.items():
        assert turns <= (HEARTBEATS_PER_S + 2 if name in leaders else 2) * SPAN_S, own_turns
