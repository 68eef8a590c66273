"""A client goes on through another node while what it has published is on its way from the one before (A3)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Connack, Connect, Disconnect, Publish
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8


def name_led_by(cluster: SimulatedCluster, node_id: str, prefix: str) -> str:
    """A client id whose session a node leads."""
    cluster_node = cluster.live()[0].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    names = (f"{prefix}{number}" for number in range(999))
    return next(name for name in names if leaders[hash64(name.encode()) % PARTITIONS] == node_id)


class Move:
    """Three nodes; somebody at n3 subscribes, and a client publishes at n1."""

    def __init__(self, leader: str, expiry: int, kept: bool, silence_us: int = 2 * SECOND) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, silence_us=silence_us)
        self.reader = self.cluster["n3"].client(name_led_by(self.cluster, "n3", "reader"))
        self.reader.connect(session_expiry=EVER if kept else 0)
        self.reader.subscribe("t", qos=2)
        self.expiry = expiry
        self.client_id = name_led_by(self.cluster, leader, "writer")
        self.writer = self.at("n1")
        self.writer.connect(session_expiry=expiry)

    def at(self, name: str) -> Peer:
        return self.cluster[name].client(self.client_id)

    def ask(self, site: Site) -> Peer:
        """Let the client come again at a node; tell nothing of the answer."""
        peer = site.client(self.client_id)
        peer.open()
        peer.send(Connect(5, self.client_id, True, 0, None, None, None, properties(session_expiry=self.expiry)))
        return peer

    def got(self) -> list[bytes]:
        return [packet.payload for packet in self.reader.publishes()]


def is_in(peer: Peer) -> bool:
    """Whether a CONNACK has come."""
    return any(isinstance(packet, Connack) for packet in peer.inbox)


@pytest.mark.parametrize("leader", ["n1", "n2", "n3"])
@pytest.mark.parametrize("expiry", [0, EVER])
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("end", ["goodbye", "loss", "takeover"])
def test_what_it_publishes_there_does_not_overtake(leader: str, expiry: int, kept: bool, qos: int, end: str) -> None:
    move = Move(leader, expiry, kept)
    move.cluster.held = {("n1", "n3")}
    move.writer.send(Publish(b"t", b"1", qos, False, False, 7 if qos else 0))
    if end == "goodbye":
        move.writer.send(Disconnect(0))
        assert move.writer.closed, "at once, whatever the leader of its session knows"
    elif end == "loss":
        move.writer.lose()
    writer = move.ask(move.cluster["n2"])
    early = is_in(writer)
    if early:
        writer.send(Publish(b"t", b"2", qos, False, False, 8 if qos else 0))
    move.cluster.held = set()
    move.cluster.advance(SECOND)
    assert is_in(writer)
    if not early:
        writer.publish("t", b"2", qos)
    assert move.got() == [b"1", b"2"]


@pytest.mark.parametrize("leader", ["n1", "n2"])
@pytest.mark.parametrize("qos", [0, 1])
def test_who_has_published_nothing_of_late_comes_in_at_once(leader: str, qos: int) -> None:
    move = Move(leader, 0, False)
    move.writer.publish("t", b"1", qos)
    move.writer.lose()
    move.at("n1").connect()
    move.cluster.held = {("n1", "n3")}
    assert is_in(move.ask(move.cluster["n2"]))
    assert move.got() == [b"1"]


def test_a_node_that_hangs_lets_nobody_wait_longer_than_it_is_a_member() -> None:
    move = Move("n1", 0, True)
    move.cluster["n3"].up = False
    move.writer.send(Publish(b"t", b"1", 1, False, False, 7))
    move.writer.lose()
    writer = move.ask(move.cluster["n2"])
    assert not is_in(writer)
    move.cluster.advance(3 * SECOND)
    assert is_in(writer)


def test_a_way_that_stays_closed_is_awaited_five_seconds() -> None:
    move = Move("n1", 0, False, silence_us=60 * SECOND)
    move.cluster.hand_log_to("n2")  # from which n3 has its lease
    move.cluster.held = {("n1", "n3")}
    move.writer.send(Publish(b"t", b"1", 1, False, False, 7))
    move.writer.lose()
    writer = move.ask(move.cluster["n2"])
    move.cluster.advance(4 * SECOND)
    assert not is_in(writer)
    move.cluster.advance(2 * SECOND)
    assert is_in(writer)


@pytest.mark.parametrize("expiry", [0, EVER])
def test_a_try_that_came_to_nothing_hides_no_older_connection_from_the_next_leader(expiry: int) -> None:
    move = Move("n3", expiry, False)
    move.cluster["n3"].up = False
    move.ask(move.cluster["n1"]).lose()  # the leader has been asked, and hangs
    last = move.ask(move.cluster["n2"])
    move.cluster.advance(5 * SECOND)
    assert is_in(last)
    assert move.writer.closed, "it is fenced, for its node has told of it"
