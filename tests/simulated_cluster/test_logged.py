"""Nodes that take their membership from the configuration log: clients see what they see of any cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.membership.control import Control
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site


def control_of(site: Site) -> Control:
    return site.cluster_node.membership.control


def controller(cluster: SimulatedCluster) -> Site:
    found = [site for site in cluster.live() if control_of(site).controller is not None]
    assert len(found) == 1
    return found[0]


def others(cluster: SimulatedCluster, *but: Site) -> list[Site]:
    return [site for site in cluster.live() if site not in but]


def advance_until(cluster: SimulatedCluster, condition: Callable[[], bool]) -> None:
    """Let time pass until something is so, or too long."""
    end = cluster.now + 60 * SECOND
    while not condition():
        assert cluster.now < end, "it does not happen"
        cluster.advance(MILLISECOND)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3)


def test_all_are_members_of_one_configuration_under_leases(cluster: SimulatedCluster) -> None:
    assert len({control_of(site).lineage for site in cluster.live()}) == 1
    for site in cluster.live():
        assert site.node.silence(site.steady_ns()) == ""
        assert {member.node_id for member in site.cluster_node.view.members} == {"n1", "n2", "n3"}  # type: ignore[union-attr]
    assert all(site.names_led("x") for site in cluster.live()), "each leads something"


@pytest.mark.parametrize("leads_log", [True, False])
def test_the_partitions_of_a_killed_node_are_led_by_others_at_once(cluster: SimulatedCluster, leads_log: bool) -> None:
    first = controller(cluster)
    victim = first if leads_log else others(cluster, first)[0]
    near = others(cluster, victim)[0]
    topic = victim.names_led("t")[0]
    subscriber = near.client(victim.names_led("c")[0])
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe(topic, qos=1)
    publisher = near.client(near.names_led("p")[0])
    publisher.connect()
    publisher.publish(topic, b"before", qos=1)
    assert subscriber.payloads() == [b"before"]
    victim.kill()
    cluster.advance(200 * MILLISECOND)  # its port refuses: nobody waits for its lease
    publisher.publish(topic, b"after", qos=1)
    assert subscriber.payloads()[-1:] == [b"after"]
    victim.revive()
    cluster.settle()
    assert victim.names_led("t"), "it leads again"


def test_a_node_that_is_cut_off_answers_nobody_and_comes_back_with_what_the_others_have() -> None:
    cluster = SimulatedCluster(3, split_policy="majority")
    first = controller(cluster)
    alone = others(cluster, first)[0]
    here = alone.client(alone.names_led("p")[0])
    here.connect()
    there = first.client(first.names_led("q")[0])
    there.connect()
    cluster.cut(alone.name, *[site.name for site in others(cluster, alone)])
    cluster.advance(SECOND + 100 * MILLISECOND)
    here.send(Publish(b"t", b"nobody may see it acknowledged", 1, False, False, 7))
    cluster.advance(6 * SECOND)
    assert here.closed
    assert [packet for packet in here.receive() if isinstance(packet, Ack)] == []
    there.publish("t", b"kept", qos=1, retain=True)
    late = alone.client("late")
    late.connect(code=reason.SERVER_BUSY)
    cluster.heal()
    cluster.settle()
    again = alone.client("again")
    again.connect()
    again.subscribe("t")
    assert again.payloads() == [b"kept"]


def test_two_sides_that_go_on_are_one_cluster_again_with_what_both_have_acknowledged() -> None:
    cluster = SimulatedCluster(2, replicas=2)
    first = controller(cluster)
    other = others(cluster, first)[0]
    names = {site.name: f"keeps-{site.name}" for site in cluster.live()}
    for site in cluster.live():
        keeper = site.client(names[site.name])
        keeper.connect(session_expiry=EVER)
        keeper.subscribe(f"only/{site.name}", qos=1)
        keeper.disconnect()
    cluster.cut(first.name, other.name)
    cluster.advance(10 * SECOND)
    assert control_of(first).lineage != control_of(other).lineage, "a side without a quorum forks"
    for site in cluster.live():
        publisher = site.client(f"publishes-{site.name}")
        publisher.connect()
        publisher.publish(f"only/{site.name}", site.name.encode(), qos=1)
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert control_of(first).lineage == control_of(other).lineage
    for site in cluster.live():
        reader = other.client(names[site.name])
        assert reader.resume().session_present
        assert reader.payloads() == [site.name.encode()]


def test_a_member_that_leaves_hands_over_and_is_none_any_more(cluster: SimulatedCluster) -> None:
    leaver = others(cluster, controller(cluster))[0]
    near = others(cluster, leaver)[0]
    keeper = leaver.client(leaver.names_led("c")[0])
    keeper.connect(session_expiry=EVER)
    keeper.subscribe("t", qos=1)
    leaver.node.leave(cluster.now)
    cluster.advance(20 * SECOND)
    assert leaver.node.left
    assert keeper.closed
    leaver.kill()
    cluster.settle()
    assert leaver.name not in near.cluster_node.membership.expected()
    again = near.client(keeper.client_id)
    assert again.resume().session_present
    again.publish("t", b"x", qos=1)
    assert again.payloads() == [b"x"]


def test_the_last_one_cannot_leave() -> None:
    cluster = SimulatedCluster(1)
    site = cluster["n1"]
    site.node.leave(cluster.now)
    cluster.advance(SECOND)
    assert not control_of(site).leaving
    assert [event.fields["why"] for event in site.events if event.kind == "leave_refused"] == ["nobody would be left"]


def test_who_is_alone_in_a_fork_cannot_leave() -> None:
    """The others would expect it back for ever: nobody would be there to tell them."""
    cluster = SimulatedCluster(3)
    lone = others(cluster, controller(cluster))[0]
    for site in others(cluster, lone):
        cluster.cut(lone.name, site.name)
    cluster.advance(10 * SECOND)
    assert control_of(lone).lineage != control_of(others(cluster, lone)[0]).lineage, "it has forked"
    lone.node.leave(cluster.now)
    cluster.advance(5 * SECOND)
    assert [event.fields["why"] for event in lone.events if event.kind == "leave_refused"] == ["nobody would be left"]
    cluster.heal()
    cluster.settle(60 * SECOND)
    assert not lone.node.left
    lone.node.leave(cluster.now)
    cluster.advance(20 * SECOND)
    assert lone.node.left


def test_a_leave_that_was_ordered_in_a_fork_outlives_that_its_node_comes_back_to_it() -> None:
    """At first it knows less of the fork than it did, and nothing of the order, which was not taken back for that.

    Before it has read more, it goes over to the others, who have not heard of the order (191875).
    """
    cluster = SimulatedCluster(5)
    leaver, near = others(cluster, controller(cluster))[:2]
    far = others(cluster, leaver, near)
    for site in far:
        cluster.cut(leaver.name, site.name)
        cluster.cut(near.name, site.name)
    cluster.advance(10 * SECOND)
    fork = control_of(leaver).lineage
    assert fork == control_of(near).lineage != control_of(far[0]).lineage
    leaver.node.leave(cluster.now)
    cluster.advance(2 * SECOND)
    assert "leave_waits" in [event.kind for event in leaver.events]
    cluster.heal()
    for site in far:
        cluster.cut(near.name, site.name)
    advance_until(cluster, lambda: control_of(leaver).lineage not in (0, fork))
    for site in far:
        cluster.cut(leaver.name, site.name)
    leaver.hold_writes()
    advance_until(cluster, lambda: control_of(leaver).lineage == 0)
    cluster.heal()
    for site in far:
        cluster.cut(near.name, site.name)
    cluster.advance(SECOND)
    leaver.release_writes()
    advance_until(cluster, lambda: control_of(leaver).lineage not in (0, fork))
    assert control_of(leaver).leaving
    cluster.heal()
    advance_until(cluster, lambda: leaver.node.left)


def test_who_asks_for_a_session_of_an_absent_partition_is_refused() -> None:
    cluster = SimulatedCluster(2, replicas=1)
    first = controller(cluster)
    away = others(cluster, first)[0]
    name = away.names_led("c")[0]
    away.kill()
    cluster.advance(2 * SECOND)
    first.client(name).connect(code=reason.SERVER_UNAVAILABLE)
    first.client(first.names_led("c")[0]).connect()
    away.revive()
    cluster.settle()
    first.client(name).connect()


@pytest.mark.parametrize("ms", [300, 1000, 2000, 2500, 3000, 4000])
def test_a_leave_can_be_taken_back_while_it_lasts(ms: int) -> None:
    cluster = SimulatedCluster(3)
    status = NodeStatus(picture_of(cluster["n1"].node))
    assert status.stay("n3", cluster.now) == "n3 was not told to leave"
    cluster["n2"].kill()  # so that it has to keep its partitions
    cluster.settle()
    assert status.leave("n3", cluster.now) == ""
    cluster.advance(ms * MILLISECOND)
    if status.stay("n3", cluster.now):
        assert not status.known("n3"), "it has left"
        return
    cluster["n2"].revive()
    cluster.advance(2 * SECOND)
    if cluster["n3"].node.left:
        return  # that was decided at the same time
    cluster.settle()
    cluster.advance(20 * SECOND)
    assert not cluster["n3"].node.left
    assert cluster["n3"].names_led("t"), "it leads its share again"
    assert [node["state"] for node in status.status()["nodes"]] == ["active"] * 3  # type: ignore[attr-defined]


def test_a_leave_that_waits_for_a_quorum_is_taken_back() -> None:
    """It is in the memory of the node that was asked, and no entry yet: taken back, it never becomes one."""
    cluster = SimulatedCluster(3, split_policy="majority")
    first = controller(cluster)
    asked, other = others(cluster, first)
    for site in (first, other):
        site.kill()
    cluster.advance(5 * SECOND)
    status = NodeStatus(picture_of(asked.node))
    for leaver in (other, asked):
        assert status.leave(leaver.name, cluster.now) == ""
    cluster.advance(SECOND)
    for leaver in (other, asked):
        assert status.stay(leaver.name, cluster.now) == ""
        assert "was not told to leave" in status.stay(leaver.name, cluster.now)
    for site in (first, other):
        site.revive()
    cluster.settle(30 * SECOND)
    cluster.advance(10 * SECOND)
    for site in cluster.live():
        assert not site.node.left
        assert site.node.stays


def test_a_leave_that_its_node_hears_of_together_with_its_end_is_over(cluster: SimulatedCluster) -> None:
    first = controller(cluster)
    leaver, near = others(cluster, first)
    cluster.held = {(first.name, leaver.name)}
    leaver.node.leave(cluster.now)
    cluster.advance(50 * MILLISECOND)
    status = NodeStatus(picture_of(near.node))
    assert status.stay(leaver.name, cluster.now) == ""
    cluster.advance(50 * MILLISECOND)
    assert "was not told to leave" in status.stay(leaver.name, cluster.now)
    cluster.held = set()
    cluster.advance(20 * SECOND)
    assert not leaver.node.left
    assert leaver.node.stays


def test_a_leave_that_is_an_entry_before_its_node_knows_is_taken_back(cluster: SimulatedCluster) -> None:
    first = controller(cluster)
    leaver, asked = others(cluster, first)
    status = NodeStatus(picture_of(asked.node))
    cluster.held = {(first.name, asked.name)}
    assert status.leave(leaver.name, cluster.now) == ""
    cluster.advance(50 * MILLISECOND)
    assert control_of(leaver).leaving
    assert status.stay(leaver.name, cluster.now) == ""
    cluster.held = set()
    cluster.advance(20 * SECOND)
    assert not leaver.node.left
    assert leaver.node.stays
