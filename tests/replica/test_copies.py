"""Nodes that are set to different numbers of copies: the most counts, so that one slip loses nothing (A1)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.membership.view import View
from folkmoot.status.cluster_picture import picture_of
from tests.harness.simulated_cluster import Camp


def restart(camp: Camp, node_id: str, copies: int) -> None:
    """Start a node again with another number of copies, and let all settle."""
    camp[node_id].kill()
    camp[node_id].cluster.replicas = copies
    camp[node_id].revive()
    camp.settle()
    camp.advance(20 * SECOND)


def test_a_member_that_wants_fewer_copies_takes_none_away() -> None:
    camp = Camp(3)
    restart(camp, "n1", 1)
    view = camp.view_of(camp["n1"])
    assert isinstance(view, View)
    assert {len(replicas) for replicas in view.replicas} == {3}
    assert [picture_of(site.node).replicas() for site in camp.live()] == [3, 3, 3]
    kinds = [event for site in camp.live() for event in site.events if event.kind == "settings_differ"]
    assert kinds, "whoever proposes says so"


def test_one_that_wants_more_gets_them() -> None:
    camp = Camp(3, replicas=1)
    restart(camp, "n3", 2)
    view = camp.view_of(camp["n2"])
    assert isinstance(view, View)
    assert {len(replicas) for replicas in view.replicas} == {2}
    assert picture_of(camp["n2"].node).replicas() == 2
