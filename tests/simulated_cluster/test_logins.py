"""What one node has found right, the others know: as marks, and only where a secret authenticates the links."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.node.node import Node
from folkmoot.peer.kind import LOGINS
from tests.harness.simulated_cluster import SimulatedCluster

SECRET = b"the secret of this cluster"


def mark(number: int) -> bytes:
    return number.to_bytes(8, "big") * 2


def node(cluster: SimulatedCluster, name: str) -> Node:
    return cluster[name].node


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, secret=SECRET)


def find_right(cluster: SimulatedCluster, name: str, numbers: range) -> None:
    for number in numbers:
        node(cluster, name).remember(mark(number), cluster.now)
    cluster.run()


def known(cluster: SimulatedCluster, name: str) -> int:
    return len(node(cluster, name).remembered)


def test_a_mark_is_known_everywhere(cluster: SimulatedCluster) -> None:
    find_right(cluster, "n1", range(5))
    find_right(cluster, "n2", range(3, 8))
    assert [node(cluster, name).remembered.has(mark(7)) for name in cluster.sites] == [True] * 3
    assert [known(cluster, name) for name in cluster.sites] == [8] * 3


def test_without_a_secret_nothing_is_told() -> None:
    cluster = SimulatedCluster(3)
    find_right(cluster, "n1", range(5))
    cluster["n3"].kill()
    cluster["n3"].revive()
    cluster.settle()
    assert [known(cluster, name) for name in cluster.sites] == [5, 0, 0]


@pytest.mark.parametrize("count", [10, 10_000])
def test_a_node_that_was_restarted_asks(cluster: SimulatedCluster, count: int) -> None:
    """It gets all of them, in several pages, with the most recent ones last."""
    find_right(cluster, "n1", range(count))
    cluster["n3"].kill()
    cluster.settle()
    find_right(cluster, "n2", range(count, count + 1))
    cluster["n3"].revive()
    cluster.settle()
    cluster.advance(3 * SECOND)
    assert known(cluster, "n3") == count + 1
    assert node(cluster, "n3").remembered.marks() == node(cluster, "n2").remembered.marks()


def test_sides_of_a_split_tell_each_other_when_they_meet(cluster: SimulatedCluster) -> None:
    cluster.cut("n3", "n1", "n2")
    cluster.advance(5 * SECOND)
    find_right(cluster, "n1", range(5))
    find_right(cluster, "n3", range(5, 9))
    cluster.heal()
    cluster.settle()
    cluster.advance(70 * SECOND)
    assert [known(cluster, name) for name in cluster.sites] == [9] * 3


def test_the_table_is_bounded_whatever_comes(cluster: SimulatedCluster) -> None:
    node(cluster, "n1").remembered.marks_max = 100
    find_right(cluster, "n2", range(1000))
    assert known(cluster, "n1") == 100


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x01", b"\x01short", b"\x02", b"\x02short", b"\x03", b"\xff" * 40])
def test_nonsense_is_ignored(cluster: SimulatedCluster, body: bytes) -> None:
    find_right(cluster, "n1", range(2))
    cluster_node = node(cluster, "n1").cluster_node
    assert cluster_node is not None
    cluster_node.peers.send("n2", LOGINS, body)
    cluster.advance(SECOND)
    find_right(cluster, "n1", range(2, 4))
    assert known(cluster, "n2") == 4


def test_the_secret_is_replaced_in_three_steps_without_a_lost_link(cluster: SimulatedCluster) -> None:
    """Old and new on all nodes; new and old; new. No node leaves the view at any moment."""
    newer = b"another secret of the cluster"
    views = [cluster.view_of(site) for site in cluster.live()]
    for words in ([SECRET, newer], [newer, SECRET], [newer]):
        for name in cluster.sites:
            node(cluster, name).replace_secrets(words, cluster.now)
            cluster.advance(SECOND)
            assert all(len(node(cluster, other).cluster_node.peers.up_ids()) == 2 for other in cluster.sites)  # type: ignore[union-attr]
    assert [str(cluster.view_of(site)) for site in cluster.live()] == [str(view) for view in views]


def test_who_knows_the_former_secret_only_is_refused(cluster: SimulatedCluster) -> None:
    newer = b"another secret of the cluster"
    for name in ("n1", "n2"):
        node(cluster, name).replace_secrets([newer], cluster.now)
    cluster.advance(5 * SECOND)
    assert [node(cluster, name).cluster_node.peers.up_ids() for name in ("n1", "n2")] == [["n2"], ["n1"]]  # type: ignore[union-attr]
    assert "peer_refused" in cluster["n1"].kinds() + cluster["n2"].kinds()
    node(cluster, "n3").replace_secrets([newer], cluster.now)
    cluster.settle()
