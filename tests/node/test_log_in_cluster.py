"""What the log says of ordinary things: a warning is for what an operator should look at."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import INFO, WARNING, Event
from tests.harness.simulated_cluster import SimulatedCluster, Site


def told(site: Site, kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(event.level, event.fields) for event in site.events if event.kind == kind]


def loud(cluster: SimulatedCluster) -> list[str]:
    """The kinds of all that is more than information."""
    return [event.kind for site in cluster.live() for event in site.events if event.level != INFO]


def quiet(cluster: SimulatedCluster) -> None:
    for site in cluster.sites.values():
        site.events.clear()


def end(cluster: SimulatedCluster, name: str) -> None:
    """Stop a node as SIGTERM does."""
    site = cluster[name]
    site.node.stop(cluster.now)
    cluster.run()
    site.node.depart(cluster.now)
    cluster.advance(SECOND)
    assert site.node.departed
    for wire in [wire for wire in cluster.wires if site in wire.sites]:
        cluster.drop(wire)
    site.run_alone()
    site.kill()
    cluster.settle()


def use(cluster: SimulatedCluster, name: str, count: int = 10) -> None:
    client = cluster[name].client(f"at-{name}")
    client.resume()
    client.subscribe("t/#", qos=1)
    for number in range(count):
        client.publish(f"t/{number}", b"m", qos=1, retain=True)
    client.disconnect()


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


def test_a_rolling_restart_has_no_warning(cluster: SimulatedCluster) -> None:
    use(cluster, "n1")
    quiet(cluster)
    for name in list(cluster.sites):
        cluster.advance(SECOND)  # in the first lease of its term the leader of the log takes none back
        end(cluster, name)
        use(cluster, next(other for other in cluster.sites if other != name), 3)
        cluster[name].revive()
        cluster.settle()
    assert loud(cluster) == []


def test_a_killed_node_is_one_warning_at_each_other(cluster: SimulatedCluster) -> None:
    use(cluster, "n1")
    quiet(cluster)
    cluster["n3"].kill()
    cluster.settle()
    for name in ("n1", "n2"):
        assert [level for level, _ in told(cluster[name], "peer_down")] == [WARNING]
        assert [(level, fields["node"]) for level, fields in told(cluster[name], "peer_dead")] == [(INFO, "n3")]
    cluster["n3"].revive()
    cluster.settle()
    assert loud(cluster) == ["peer_down", "peer_down"]


def test_what_a_node_has_is_told_when_it_is_known(cluster: SimulatedCluster) -> None:
    use(cluster, "n1")
    quiet(cluster)
    for site in cluster.live():
        site.kill()
    cluster["n1"].revive()
    cluster.advance(5 * SECOND)
    ((_, opened),) = told(cluster["n1"], "opened")
    assert opened["copies"] == cluster.partitions
    assert "retained" not in opened
    ((_, leads),) = told(cluster["n1"], "leads")
    assert (leads["partitions"], leads["retained"], leads["sessions"]) == (cluster.partitions, 10, 1)


def test_a_heal_without_anything_to_take_in_is_no_warning(cluster: SimulatedCluster) -> None:
    use(cluster, "n1")
    quiet(cluster)
    cluster.cut("n1", "n2", "n3")
    cluster.advance(10 * SECOND)
    cluster.heal()
    cluster.settle()
    merges = [event for site in cluster.live() for event in site.events if event.kind in ("healed", "branch_merged")]
    assert merges, "each side has opened its partitions anew"
    assert {event.level for event in merges} == {INFO}


def test_a_heal_that_takes_something_in_is_a_warning(cluster: SimulatedCluster) -> None:
    use(cluster, "n1")
    cluster.cut("n1", "n2", "n3")
    cluster.advance(10 * SECOND)
    use(cluster, "n1", 3)
    use(cluster, "n2", 3)
    quiet(cluster)
    cluster.heal()
    cluster.settle()
    healed: list[Event] = [event for site in cluster.live() for event in site.events if event.kind == "healed"]
    assert WARNING in [event.level for event in healed]


def test_who_is_left_out_is_told_who_went_on(cluster: SimulatedCluster) -> None:
    evict(cluster, "n3")
    cluster.advance(2 * SECOND)
    ((level, fields),) = told(cluster["n3"], "view_excluded")
    assert level == WARNING
    who, _, rest = fields["why"].partition(" ")
    assert who in ("n1", "n2")
    assert rest == "went on without this node: its process was put out"
    assert fields["view"] > 0


def evict(cluster: SimulatedCluster, name: str) -> None:
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    cluster_node.membership.evict(name, cluster.now)
    cluster.run()
