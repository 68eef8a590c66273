"""Two nodes and a witness: they lose any one of them without a fork, and the witness holds nothing."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from folkmoot.store.key import META, kind_of
from tests.harness.simulated_cluster import SimulatedCluster, Site


def with_witness(policy: str) -> SimulatedCluster:
    cluster = SimulatedCluster(2, replicas=2, split_policy=policy)
    cluster.add("w", witness=True)
    cluster.advance(5 * SECOND)
    cluster.settle()
    return cluster


def voters(site: Site) -> list[str]:
    log = site.cluster_node.membership.control.log
    assert log is not None
    return sorted([log.configuration.members[disk].node_id for disk in log.voters])


def serves(site: Site, word: str) -> bool:
    """Tell whether a node acknowledges what is published there, and shows it."""
    client = site.client(f"c-{word}")
    client.connect()
    client.publish("t", word.encode(), qos=1, retain=True)
    client.subscribe("t")
    return client.payloads() == [word.encode()]


@pytest.mark.parametrize("policy", ["available", "majority"])
@pytest.mark.parametrize("lost", ["n1", "n2", "w"])
@pytest.mark.parametrize("dies", [True, False])
def test_two_nodes_and_a_witness_lose_any_one_without_a_fork(policy: str, lost: str, dies: bool) -> None:
    cluster = with_witness(policy)
    assert voters(cluster["n1"]) == ["n1", "n2", "w"]
    if dies:
        cluster[lost].kill()
    else:
        cluster.cut(lost, *[name for name in cluster.sites if name != lost])
    cluster.advance(10 * SECOND)
    stays = [cluster[name] for name in ("n1", "n2") if name != lost]
    for number, site in enumerate(stays):
        assert serves(site, f"x{number}")
    lineages = {site.cluster_node.membership.control.lineage for site in [*stays, cluster["w"]] if site.up}
    if dies or lost != "w":
        assert len(lineages) == 1
    if dies:
        cluster[lost].revive()
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert [
        event for site in cluster.live() for event in site.events if event.kind == "branch_merged"
    ] == [] or not dies
    assert serves(cluster["n1"], "again")
    assert voters(cluster["n1"]) == ["n1", "n2", "w"]


def test_without_the_witness_a_node_that_is_cut_off_forks_and_with_it_it_waits_for_nothing() -> None:
    cluster = with_witness("available")
    cluster.cut("n1", "n2")
    cluster.advance(10 * SECOND)
    forks = [event for site in cluster.live() for event in site.events if event.kind == "cluster_forked"]
    assert forks == [], "one of the two nodes has the quorum, with the witness"
    members = [cluster["n1"], cluster["n2"]]
    serving = [site for site in members if site.node.silence(site.steady_ns()) == ""]
    assert len(serving) == 1
    assert serves(serving[0], "alone")


def test_a_witness_holds_nothing_and_is_in_the_status() -> None:
    cluster = with_witness("available")
    assert serves(cluster["n2"], "kept")
    witness = cluster["w"]
    cluster.advance(5 * SECOND)
    assert witness.cluster_node.membership.state == "witness"
    assert [key for key, _value in witness.store.items() if kind_of(key) != META] == []
    for site in cluster.live():
        found = NodeStatus(picture_of(site.node)).status()["nodes"]
        assert isinstance(found, list)
        assert [(node["id"], node["state"], node["leads"] > 0) for node in found] == [
            ("n1", "active", True),
            ("n2", "active", True),
            ("w", "witness", False),
        ]
    assert NodeStatus(picture_of(witness.node)).unready() == ""
    status = NodeStatus(picture_of(cluster["n1"].node))
    safe = status.safe_to_stop("w")
    assert safe is not None
    assert safe["safe"]
    cluster["n2"].kill()
    cluster.advance(5 * SECOND)
    safe = status.safe_to_stop("w")
    assert safe is not None
    assert not safe["safe"]


def test_a_witness_leaves_like_any_other() -> None:
    cluster = with_witness("available")
    assert NodeStatus(picture_of(cluster["n1"].node)).leave("w", cluster.now) == ""
    cluster.advance(10 * SECOND)
    assert cluster["w"].node.left
    cluster["w"].kill()
    cluster.advance(2 * SECOND)
    assert len(voters(cluster["n1"])) == 1


def test_a_folder_with_data_does_not_become_a_witness() -> None:
    cluster = SimulatedCluster(2, replicas=2)
    site = cluster["n2"]
    site.kill()
    site.settings.witness = True
    site.revive()
    cluster.advance(5 * SECOND)
    assert [event.kind for event in site.events if event.level == "error"] == ["membership_ended"]
    assert cluster["n1"].cluster_node.membership.expected() == ["n1", "n2"]


@pytest.mark.parametrize("force", [False, True])
def test_a_witness_takes_no_order_to_go_on_alone(force: bool) -> None:
    cluster = with_witness("majority")
    for name in ("n1", "n2"):
        cluster[name].kill()
    cluster.advance(5 * SECOND)
    status = NodeStatus(picture_of(cluster["w"].node))
    for name in ("n1", "n2"):
        why = status.forget(name, cluster.now, force)
        assert f"w is a witness: it has no data, and cannot go on without {name}" in why
        cluster["w"].cluster_node.membership.forget(name, cluster.now, force)
    cluster.advance(10 * SECOND)
    told = [event.kind for event in cluster["w"].events if event.kind in ("forget_ordered", "forget_refused")]
    assert told == ["forget_refused", "forget_refused"] * force
    cluster["n1"].revive()
    cluster.settle(60 * SECOND)
    assert serves(cluster["n1"], "again")


def test_a_witness_under_a_lease_hands_orders_on() -> None:
    cluster = with_witness("majority")
    cluster["n2"].kill()
    cluster.advance(5 * SECOND)
    status = NodeStatus(picture_of(cluster["w"].node))
    assert status.forget("n2", cluster.now) == ""
    cluster.advance(2 * SECOND)
    assert "n2" not in status.picture.known()
