"""The status of a member from the real parts of a cluster: before it knows one, alone in one; its orders."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.session.relay import Remote
from folkmoot.session.session import Session
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from folkmoot.store.epoch import counter_of
from tests.harness.simulated_cluster import SimulatedCluster, Site


@pytest.fixture
def site() -> Site:
    return SimulatedCluster(1)["n1"]


def status_of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def node_of(found: dict[str, Any]) -> dict[str, Any]:
    (node,) = found["nodes"]
    return dict(node)


def test_before_it_knows_a_cluster_it_waits() -> None:
    cluster = SimulatedCluster(1)
    cluster["n1"].kill()
    site = cluster.add("n2")
    cluster.advance(5 * SECOND)
    status = status_of(site)
    found = status.status()
    assert (found["node"], found["state"], found["epoch"], found["nodes"]) == ("n2", "waiting", 0, [])
    assert found["writable"] is False
    assert "waits" in status.unready()
    for why_not in (status.evict("n2", 1), status.forget("n2", 1), status.leave("n2", 1)):
        assert "no node 'n2'" in why_not
    assert "is not up in the cluster (waiting)" in status.picture.leave("n2", 1)


def test_alone_it_leads_everything_and_is_ready(site: Site) -> None:
    status = status_of(site)
    assert status.unready() == ""
    found: dict[str, Any] = status.status()
    assert (found["state"], found["replicas"]) == ("member", 3)
    assert (found["controller"], found["voters"]) == ("n1", ["n1"])
    assert found["counter"] == counter_of(found["epoch"])
    assert found["writable"] is True
    node = node_of(found)
    assert [node[name] for name in ("id", "incarnation", "zone", "leads", "follows")] == ["n1", 1001, "n1", 8, 0]
    figures = found["partitions"]
    assert (figures["open"], figures["under_replicated"], figures["damaged"]) == (8, 8, 0)
    assert found["copy"] == {"bytes_left": 0, "bytes_done": 0, "all_left": 0, "all_rate": 0}
    assert {entry["leader"] for entry in status.partitions()} == {"n1"}
    safe = status.safe_to_stop("n1")
    assert safe is not None
    assert safe["safe"] is False


def test_the_load_that_it_tells_others_is_shown(site: Site) -> None:
    site.cluster_node.membership.set_load({"clients": 4, "sessions": 5, "overload": 6})
    found = status_of(site).status()
    assert found["overload"] == 6
    node = node_of(found)
    assert (node["clients"], node["sessions"]) == (4, 5)


def test_the_leader_of_a_session_knows_where_its_client_is(site: Site) -> None:
    status = status_of(site)
    state = site.cluster_node.state
    assert status.where_client("c")["owner"] is None
    session = Session("c", 0, True)
    state.sessions.put(session)
    assert status.where_client("c")["owner"] is None
    session.connection = Connection(1, None, PeerInfo("tcp", "192.0.2.1:1", None), site.now, [])
    assert status.where_client("c")["owner"] == "n1"
    session.connection.remote = Remote("b", 7, 1)
    assert status.where_client("c")["owner"] == "b"


def test_orders_reach_the_membership(site: Site) -> None:
    status = status_of(site)
    assert "the only remaining node" in status.leave("n1", site.now)
    assert "evict it first" in status.forget("n1", site.now)
    assert "no node 'b'" in status.evict("b", site.now)
