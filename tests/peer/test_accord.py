"""Settings that should be equal on all nodes: who differs is told on both sides, and nobody is refused for it."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.peer.accord import disagreements, settings_of
from folkmoot.peer.config import ClusterConfig
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.simulated_cluster import SimulatedCluster, Site
from tests.peer.lines import Net, config_of

Told = dict[str, tuple[str, str]]


def told(site: Site) -> dict[str, Told]:
    """What the log of a node says: by node and setting, what holds here and there."""
    found: dict[str, Told] = {}
    for event in site.events:
        if event.kind == "settings_differ":
            fields = event.fields
            found.setdefault(str(fields["node"]), {})[str(fields["setting"])] = (
                str(fields["here"]),
                str(fields["there"]),
            )
    return found


def status(site: Site) -> list[dict[str, object]]:
    found = NodeStatus(picture_of(site.node)).status()["settings_differ"]
    assert isinstance(found, list)
    return found


def again_with(cluster: SimulatedCluster, name: str, **settings: object) -> None:
    """Start a node again with other settings."""
    cluster[name].kill()
    for setting, value in settings.items():
        setattr(cluster[name].settings, setting, value)
    cluster[name].revive()
    cluster.settle()


def test_equal_nodes_have_nothing_to_say() -> None:
    cluster = SimulatedCluster(3)
    assert [told(site) for site in cluster.live()] == [{}, {}, {}]
    assert [status(site) for site in cluster.live()] == [[], [], []]


def test_both_sides_tell_how_they_differ_until_they_do_not() -> None:
    cluster = SimulatedCluster(3)
    again_with(cluster, "n2", split_policy="majority", replicas=2, silence_us=3 * SECOND, streams="1 declared")
    here = {
        "cluster.split_policy": ("available", "majority"),
        "cluster.replicas": ("3", "2"),
        "cluster.silence": ("2000ms", "3000ms"),
        "streams": ("", "1 declared"),
    }
    assert told(cluster["n1"]) == told(cluster["n3"]) == {"n2": here}
    there = {name: (theirs, mine) for name, (mine, theirs) in here.items()}
    assert told(cluster["n2"]) == {"n1": there, "n3": there}
    assert {(one["node"], one["setting"]) for one in status(cluster["n1"])} == {("n2", name) for name in here}
    assert len(status(cluster["n2"])) == 2 * len(here)
    again_with(cluster, "n2", split_policy="available", replicas=3, silence_us=2 * SECOND, streams="")
    assert [status(site) for site in cluster.live()] == [[], [], []]


def test_it_is_said_once_for_each_start_of_a_node() -> None:
    cluster = SimulatedCluster(2)
    again_with(cluster, "n2", split_policy="majority")
    for wire in list(cluster.wires):
        cluster.drop(wire)
    cluster.advance(2 * SECOND)
    kinds = [event.kind for event in cluster["n1"].events]
    assert kinds.count("settings_differ") == 1
    again_with(cluster, "n2")
    kinds = [event.kind for event in cluster["n1"].events]
    assert kinds.count("settings_differ") == 2


def test_who_is_away_differs_in_nothing() -> None:
    cluster = SimulatedCluster(3)
    again_with(cluster, "n3", split_policy="majority")
    cluster["n3"].kill()
    cluster.advance(5 * SECOND)
    assert status(cluster["n1"]) == []


def test_what_an_older_version_does_not_say_does_not_differ() -> None:
    mine = settings_of(ClusterConfig())
    assert disagreements(mine, {}) == []
    assert disagreements(mine, {"cluster.later": "x"}) == []
    net = Net()
    a, b = net.start("a", config=config_of(b"")), net.start("b", config=config_of(b""))
    net.connect(a, b.address)
    net.settle()
    assert set(a.peers.settings()["b"]) == set(mine)


def test_times_are_told_as_they_are_written() -> None:
    config = ClusterConfig()
    config.clock_offset_max_us, config.silence_us = 1_500, 2_500_000
    found = settings_of(config)
    assert (found["cluster.clock_offset_max"], found["cluster.silence"]) == ("1500us", "2500ms")
