"""A node with many clients ends: their wills take several turns; each comes once, before its client returns."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5, Connect, Publish, Will
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

COUNT = 60


class Fleet:
    """Clients at n2 whose sessions are with n1 or n3, each with a will, and a watcher; a turn has few steps."""

    def __init__(self, expiry_s: int) -> None:
        self.cluster = cluster = SimulatedCluster(3, limits={"turn_steps_max": 2_048})
        self.watcher = cluster["n1"].client(cluster["n1"].names_led("w")[0])
        self.watcher.connect(session_expiry=EVER)
        self.watcher.subscribe("#", qos=1)
        self.names = cluster["n1"].names_led("c")[:COUNT]
        for name in self.names:
            will = Will(name.encode(), b"gone", 1, False)
            cluster["n2"].client(name).connect(will=will, session_expiry=expiry_s)

    @property
    def leader(self) -> Site:
        return self.cluster["n1"]

    def pending(self) -> int:
        """How many wills the leader keeps."""
        return self.leader.node.counters.wills_pending

    def end_node(self) -> None:
        """End n2, until the first of its clients' wills is published."""
        self.cluster["n2"].kill()
        while self.pending() == COUNT:
            self.turn()

    def turn(self) -> None:
        """Let the cluster go on for as little as it can."""
        self.cluster.now += MILLISECOND
        for site in self.cluster.live():
            site.turn()
        self.cluster._carry()


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_the_wills_of_one_node_take_several_turns(expiry_s: int) -> None:
    fleet = Fleet(expiry_s)
    fleet.end_node()
    assert fleet.pending() > COUNT // 2
    while left := fleet.pending():
        fleet.turn()
        assert left - fleet.pending() < COUNT // 2
    fleet.cluster.advance(SECOND)
    assert sorted(fleet.watcher.messages()) == sorted((name, b"gone") for name in fleet.names)


@pytest.mark.parametrize("at", ["n1", "n3"])
@pytest.mark.parametrize("clean_start", [False, True])
@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_client_that_returns_meanwhile_comes_behind_its_will(expiry_s: int, clean_start: bool, at: str) -> None:
    fleet = Fleet(expiry_s)
    fleet.end_node()
    last = fleet.names[-1]
    peer = fleet.cluster[at].client(last)
    fleet.cluster.freeze()
    peer.open()
    assert last in fleet.leader.node._broker.protocol.wills._due
    second = Will(last.encode(), b"second", 1, False)
    wish = properties(session_expiry=expiry_s)
    peer.send(
        Connect(V5, last, clean_start, 0, None, None, second, wish), Publish(last.encode(), b"back", 1, packet_id=1)
    )
    fleet.cluster.thaw()
    fleet.cluster.advance(SECOND)
    got = fleet.watcher.messages()
    assert [payload for topic, payload in got if topic == last] == [b"gone", b"back"]
    assert len(got) == COUNT + 1
    peer.lose()
    fleet.cluster.advance(SECOND)
    assert fleet.watcher.messages() == [(last, b"second")]


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_wills_that_are_left_go_with_their_partitions(expiry_s: int) -> None:
    fleet = Fleet(expiry_s)
    fleet.end_node()
    broker = fleet.leader.node._broker
    left = fleet.pending()
    assert left > 1
    broker.leadership.leave_all()
    assert fleet.pending() == 0
    assert not broker.protocol.wills.is_busy()


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_another_leader_publishes_what_is_left(expiry_s: int) -> None:
    fleet = Fleet(expiry_s)
    watcher = fleet.cluster["n3"].client(fleet.cluster["n3"].names_led("v")[0])
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("#", qos=1)
    fleet.end_node()
    assert fleet.pending() > 1
    fleet.leader.kill()
    fleet.cluster["n2"].revive()
    fleet.cluster.advance(20 * SECOND)
    assert sorted(watcher.messages()) == sorted((name, b"gone") for name in fleet.names)
