"""A node that the others refuse does not begin to serve beside them; a second one of the same id puts nobody out."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from tests.harness.simulated_cluster import Camp, Site


def state(site: Site) -> str:
    return picture_of(site.node).state()


def rename(camp: Camp, node_id: str, cluster: str) -> None:
    """Start a node again that takes itself for one of this cluster."""
    camp[node_id].kill()
    camp[node_id].cluster.name = cluster
    camp[node_id].revive()


def test_a_node_with_another_cluster_name_waits_until_that_is_mended() -> None:
    camp = Camp(3)
    rename(camp, "n3", "another")
    camp.advance(30 * SECOND)
    assert state(camp["n3"]) == "waiting"
    assert [state(camp[name]) for name in ("n1", "n2")] == ["member", "member"]
    rename(camp, "n3", camp["n1"].cluster.name)
    camp.settle()
    assert state(camp["n3"]) == "member"


def test_a_node_alone_begins_when_nobody_refuses_it_any_more() -> None:
    camp = Camp(2)
    rename(camp, "n2", "another")
    camp.advance(5 * SECOND)
    assert state(camp["n2"]) == "waiting"
    camp["n1"].kill()
    camp.advance(30 * SECOND)
    assert state(camp["n2"]) == "member"
