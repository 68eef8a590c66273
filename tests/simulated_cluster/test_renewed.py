"""A folder that was set back is another disk: its node comes back by itself, and what the cluster has stays.

So is one that the members have removed. A process on a copy of a folder that is in use is refused by all.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from tests.harness.simulated_cluster import SimulatedCluster, Site

TOPICS = [f"kept/{number}" for number in range(16)]


def publish(site: Site, word: str) -> None:
    publisher = site.client(f"p{word}")
    publisher.connect()
    for topic in TOPICS:
        publisher.publish(topic, word.encode(), qos=1, retain=True)
    publisher.disconnect()


def read(site: Site) -> list[bytes]:
    """Return what is retained, as a new client finds it."""
    reader = site.client(f"r{site.now}")
    reader.connect()
    reader.subscribe("kept/#", qos=1)
    found = reader.payloads()
    reader.disconnect()
    return found


def disk(site: Site) -> int:
    return site.node.birth.disk


def restart(cluster: SimulatedCluster, name: str) -> None:
    cluster[name].kill()
    cluster.settle()
    cluster[name].revive()
    cluster.settle()


@pytest.mark.parametrize("name", ["n1", "n2"])  # the first one leads the configuration log, and votes
def test_a_restored_folder_comes_back_as_another_member_with_what_the_others_have(name: str) -> None:
    cluster = SimulatedCluster(3)
    site = cluster[name]
    publish(cluster["n3"], "old")
    copy, before = site.store.copy(), disk(site)
    for _ in range(2):
        restart(cluster, name)
    publish(cluster["n3"], "new")
    site.kill()
    cluster.settle()
    site.store = copy
    site.revive()
    cluster.settle(60 * SECOND)
    assert disk(site) != before
    assert "disk_renewed" in site.kinds()
    for one in cluster.live():
        assert read(one) == [b"new"] * len(TOPICS)


def test_a_folder_that_is_restored_twice_is_not_taken_for_the_process_before() -> None:
    """Both starts have the same number, and a later controller knows nothing of what the first one has confirmed."""
    cluster = SimulatedCluster(3)
    site = cluster["n3"]
    copy, before = site.store.copy(), disk(site)
    site.kill()
    cluster.settle()
    site.revive()
    cluster.settle()
    number = site.node.birth.incarnation
    publish(cluster["n1"], "new")
    site.kill()
    cluster.settle()
    restart(cluster, "n1")
    restart(cluster, "n2")
    site.store = copy
    site.revive()
    assert site.node.birth.incarnation == number
    cluster.settle(60 * SECOND)
    assert disk(site) != before
    assert "disk_renewed" in site.kinds()
    assert read(site) == [b"new"] * len(TOPICS)


def test_a_node_that_was_forgotten_comes_back_as_another_member() -> None:
    cluster = SimulatedCluster(3)
    publish(cluster["n1"], "old")
    site, before = cluster["n3"], disk(cluster["n3"])
    site.kill()
    cluster.settle()
    logged = cluster["n1"].cluster_node.membership
    logged.forget("n3", cluster.now)
    cluster.advance(SECOND)
    assert logged.expected() == ["n1", "n2"]
    site.revive()
    cluster.settle(60 * SECOND)
    assert disk(site) != before
    assert logged.expected() == ["n1", "n2", "n3"]
    assert read(site) == [b"old"] * len(TOPICS)


def test_what_only_a_restored_folder_has_is_not_lost() -> None:
    """Without another copy in sync the partitions go back to the moment of the backup, and the log says so."""
    cluster = SimulatedCluster(3, replicas=1)
    publish(cluster["n1"], "old")
    site = cluster["n3"]
    led = [topic for topic in TOPICS if topic in site.names_led("kept/")]
    assert led, "it has partitions of its own"
    copy, before = site.store.copy(), disk(site)
    site.kill()
    cluster.advance(5 * SECOND)
    site.revive()
    cluster.settle()
    site.kill()
    cluster.advance(5 * SECOND)
    site.store = copy
    site.revive()
    cluster.settle(60 * SECOND)
    assert disk(site) != before
    assert read(cluster["n1"]) == [b"old"] * len(TOPICS)
    told = [event for one in cluster.live() for event in one.events if event.kind == "disk_replaced"]
    assert [event.level for event in told] == ["error"]


def test_a_process_on_a_copied_folder_is_refused_by_all_and_begins_nothing() -> None:
    cluster = SimulatedCluster(3)
    publish(cluster["n1"], "old")
    site = cluster["n3"]
    clone = cluster.add("clone")
    clone.kill()
    clone.store = site.store.copy()
    clone.config.node_id = "n3"
    clone.revive()
    cluster.advance(60 * SECOND)
    assert clone.cluster_node.membership.state == "waiting"
    told = [event for event in cluster["n1"].events if event.kind == "peer_refused"]
    assert [event.level for event in told] == ["error"]
    assert "runs on a copy of its data folder, at n3:1" in str(told[0].fields["reason"])
    clone.kill()
    cluster.settle()
    assert {member.node_id for member in cluster["n1"].cluster_node.view.members} == {"n1", "n2", "n3"}  # type: ignore[union-attr]
    assert read(site) == [b"old"] * len(TOPICS)
