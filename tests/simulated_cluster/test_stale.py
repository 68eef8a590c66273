"""A node was away for long, or two sides have a long past in common: only what is new is merged."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from tests.harness.simulated_cluster import SimulatedCluster

MERGES = ("branch_merged", "healed", "branch_overwritten", "branch_dropped", "replica_damaged")
ROUNDS = 3  # two views each, more than are remembered of a cluster with `EPOCHS`
EPOCHS = 2


def cluster_of(epochs: int, nodes: int = 3) -> SimulatedCluster:
    """Nodes with a copy of everything each, that remember so few epochs of each partition."""
    cluster = SimulatedCluster(nodes, partitions=4, replicas=nodes)
    for site in cluster.sites.values():
        site.settings.history_epochs = epochs
    churn(cluster, "first")
    restart(cluster, "n2", 1)  # what follows is not of the epoch in which a partition was begun
    reader = cluster["n1"].client("reader")
    reader.resume()
    reader.subscribe("t/#", qos=2)
    reader.disconnect()
    publish(cluster, *[f"old{number}" for number in range(5)])
    cluster.advance(SECOND)
    return cluster


def publish(cluster: SimulatedCluster, *payloads: str) -> None:
    publisher = cluster["n1"].client("pub")
    publisher.connect()
    for number, payload in enumerate(payloads):
        publisher.publish(f"t/{number}", payload.encode(), qos=2)
    publisher.disconnect()


def restart(cluster: SimulatedCluster, name: str, rounds: int) -> None:
    """Kill a node and start it again, with changes in all partitions each time."""
    for turn in range(rounds):
        cluster[name].kill()
        cluster.settle()
        churn(cluster, f"down{turn}", "n2" if name == "n1" else "n1")
        cluster[name].revive()
        cluster.settle()
        churn(cluster, f"up{turn}")


def churn(cluster: SimulatedCluster, word: str, at: str = "n1") -> None:
    publisher = cluster[at].client("churner")
    publisher.connect()
    for number in range(16):
        publisher.publish(f"kept/{number}", word.encode(), qos=1, retain=True)
    publisher.disconnect()


def read(cluster: SimulatedCluster) -> list[bytes]:
    reader = cluster["n1"].client("reader")
    reader.resume()
    payloads = reader.payloads()
    reader.disconnect()
    cluster.advance(SECOND)
    return payloads


def merges(cluster: SimulatedCluster) -> list[str]:
    return [kind for site in cluster.sites.values() for kind in site.kinds() if kind in MERGES]


def is_member(cluster: SimulatedCluster, name: str) -> bool:
    view = cluster["n1"].cluster_node.view
    return view is not None and view.member(name) is not None


@pytest.mark.parametrize("epochs", [EPOCHS, 16])
def test_a_node_that_was_away_for_many_epochs_only_catches_up(epochs: int) -> None:
    cluster = cluster_of(epochs)
    restart(cluster, "n2", 1)  # n3's view is newer than the last change that it has of some partitions
    ended = cluster["n1"].client("ended")
    ended.resume()
    ended.disconnect()
    cluster.advance(SECOND)
    cluster["n3"].kill()
    cluster.settle()
    assert read(cluster) == [b"old%d" % number for number in range(5)]
    ended = cluster["n1"].client("ended")
    ended.resume()
    ended.disconnect(session_expiry=0)
    restart(cluster, "n2", ROUNDS)
    cluster["n3"].revive()
    cluster.settle(60 * SECOND)
    assert merges(cluster) == []
    assert read(cluster) == []
    assert cluster["n1"].client("ended").resume().session_present is False


def test_what_both_sides_had_long_before_the_split_is_not_taken_for_new() -> None:
    cluster = cluster_of(EPOCHS)
    restart(cluster, "n2", ROUNDS)
    cluster.cut("n3", "n1", "n2")
    cluster.advance(8 * SECOND)
    there = cluster["n3"].client("there")
    there.connect()
    there.publish("t/there", b"there", qos=2)
    assert read(cluster) == [b"old%d" % number for number in range(5)]
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert "branch_merged" in merges(cluster)
    assert read(cluster) == [b"there"]


def test_a_node_that_was_back_for_a_moment_only_catches_up() -> None:
    """It was away for many epochs, and went away again before its copy had any of them."""
    cluster = cluster_of(EPOCHS, 5)
    cluster["n3"].kill()
    cluster.settle()
    assert read(cluster) == [b"old%d" % number for number in range(5)]
    restart(cluster, "n2", ROUNDS)
    cluster["n3"].revive()
    while not is_member(cluster, "n3"):
        cluster.advance(MILLISECOND)
    cluster["n3"].kill()
    for name in ("n1", "n2", "n4", "n5"):  # those who lead now have not heard of its copy
        restart(cluster, name, 1)
    restart(cluster, "n2", ROUNDS)
    cluster["n3"].revive()
    cluster.settle(60 * SECOND)
    assert merges(cluster) == []
    assert read(cluster) == []
