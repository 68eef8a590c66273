"""A node that the others refuse does not begin to serve beside them; a second one of the same id puts nobody out."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.node.cluster_picture import picture_of
from tests.harness.camp import Camp, Site


def state(site: Site) -> str:
    return picture_of(site.node).state()


def test_a_node_with_another_cluster_name_waits_until_that_is_mended() -> None:
    camp = Camp(3)
    camp["n3"].kill()
    camp["n3"].cluster.name = "another"
    camp["n3"].revive()
    camp.advance(30 * SECOND)
    assert state(camp["n3"]) == "waiting"
    assert [state(camp[name]) for name in ("n1", "n2")] == ["member", "member"]
    camp["n3"].kill()
    camp["n3"].cluster.name = camp["n1"].cluster.name
    camp["n3"].revive()
    camp.settle()
    assert state(camp["n3"]) == "member"


def test_a_node_alone_begins_when_nobody_refuses_it_any_more() -> None:
    camp = Camp(2)
    camp["n2"].kill()
    camp["n2"].cluster.name = "another"
    camp["n2"].revive()
    camp.advance(5 * SECOND)
    assert state(camp["n2"]) == "waiting"
    camp["n1"].kill()
    camp.advance(30 * SECOND)
    assert state(camp["n2"]) == "member"
