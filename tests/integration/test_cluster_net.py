"""Networks that fail under a cluster: a cable pulled, one direction lost, a split in the middle, all of it on and off.

Each node is in a network namespace of its own, and so are HAProxy and the bridge between them. With `majority` nobody
sees anything of it but a pause. With `available` both sides of a split serve clients, and one that goes from one
side to the other may get a message at both; nothing that either side acknowledged may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.mqtt.packet import Connack, Connect, Disconnect
from tests.integration.cluster_fleet import Fleet
from tests.integration.cluster_net import HUB, Net
from tests.integration.cluster_rig import Rig
from tests.integration.serving import RawClient, await_true

CUT_S = 2.5  # its lease, and an election if it was the controller
HEAL_S = 25.0
ELSEWHERE = (0x89, 0x9C)  # server busy, use another server
TOLD_S = 4.0  # a lease, and the pause after it; the machine of a test may be busy with other things


@pytest.fixture
def net() -> Iterator[Net]:
    with Net(["n1", "n2", "n3"]) as found:
        yield found


@pytest.fixture
def policy() -> str:
    """A test that says nothing else is about the policy that promises most."""
    return "majority"


@pytest.fixture
def rig(tmp_path: Path, net: Net, policy: str) -> Iterator[Rig]:
    with Rig(tmp_path, 3, net, policy=policy) as found:
        yield found


@pytest.fixture
def fleet(rig: Rig, tmp_path: Path) -> Iterator[Fleet]:
    # A side without a majority refuses.
    with Fleet(rig.door, tmp_path, may_refuse=True) as found:
        found.flow()
        yield found


def settle(rig: Rig, fleet: Fleet) -> None:
    """After the last fault: all flows, all is whole."""
    fleet.flow()
    rig.await_whole(HEAL_S)


def test_the_cable_of_a_leader_is_pulled(net: Net, rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    net.pull(leader)
    assert rig.await_out(leader) < CUT_S
    fleet.flow()
    net.plug(leader)
    settle(rig, fleet)
    fleet.expect_no_fault()


def test_a_leader_hears_and_is_not_heard(net: Net, rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    for other in rig.names:
        if other != leader:
            net.mute(leader, other)
    assert rig.await_out(leader) < CUT_S
    fleet.flow()
    net.mend()
    settle(rig, fleet)
    fleet.expect_no_fault()


def test_a_leader_is_heard_and_hears_nothing(net: Net, rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    for other in [*rig.names, HUB]:
        if other != leader:
            net.mute(other, leader)
    assert rig.await_out(leader) < CUT_S
    fleet.flow()
    net.mend()
    settle(rig, fleet)
    fleet.expect_no_fault()


def test_one_link_between_two_nodes_is_lost(net: Net, rig: Rig, fleet: Fleet) -> None:
    """Both reach the third and HAProxy: no two nodes may lead the same."""
    leader, second, _third = rig.where("s2")
    net.cut([leader], [second])
    fleet.run(4.0)
    fleet.flow()
    net.mend()
    settle(rig, fleet)
    fleet.expect_no_fault()


def test_a_cable_with_a_loose_contact(net: Net, rig: Rig, fleet: Fleet) -> None:
    leader = rig.leader("s2")
    for pause_s in (0.2, 0.6, 1.5, 2.5, 0.3):
        net.pull(leader)
        fleet.run(pause_s)
        net.plug(leader)
        fleet.run(pause_s / 2)
    settle(rig, fleet)
    fleet.expect_no_fault()


@pytest.mark.parametrize("policy", ["majority", "available"])
def test_a_split_with_clients_on_both_sides(net: Net, rig: Rig, fleet: Fleet, policy: str) -> None:
    leader = rig.leader("s2")
    net.cut([leader], [name for name in rig.names if name != leader])
    assert rig.await_out(leader) < CUT_S
    fleet.run(2.0)
    net.mend()
    settle(rig, fleet)
    if policy == "majority":
        fleet.expect_no_fault()
    else:
        fleet.expect_nothing_lost()


def test_a_node_without_a_lease_sends_its_clients_elsewhere(net: Net, rig: Rig) -> None:
    name = rig.leader("s2")
    others = [other for other in rig.names if other != name]
    node = rig.nodes[name]
    assert node.ready() == (200, "ready")
    with RawClient(rig.mqtt(name).dial()) as client:
        assert client.connect("guest", clean=True, session_s=0).code == 0
        began = time.monotonic()
        net.cut([name], others)
        packet = client.receive()
        assert isinstance(packet, Disconnect)
        assert packet.code in ELSEWHERE
        assert client.closed()
        assert time.monotonic() - began < TOLD_S
    why = f"it has no lease: no controller: 1 of 3 voters are connected; waits for {', '.join(others)}"
    await_true(lambda: node.ready() == (503, why))
    status = node.answer("/api/v1/status")
    assert (status["writable"], status["waits"]) == (False, why)
    with RawClient(rig.mqtt(name).dial()) as client:
        client.send(Connect(5, "late", True, 0))
        answer = client.receive()
        assert isinstance(answer, Connack)
        assert answer.code in ELSEWHERE
    net.mend()
    rig.await_whole(HEAL_S)
    await_true(lambda: node.ready() == (200, "ready"))
    with RawClient(rig.mqtt(name).dial()) as client:
        assert client.connect("late", clean=True, session_s=0).code == 0
