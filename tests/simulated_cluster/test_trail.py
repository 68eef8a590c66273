"""A client goes on through another node while what it has published is on its way from the one before (A3)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Connack, Connect, Disconnect, Publish, Will
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

    def __init__(self, leader: str, expiry: int, kept: bool, silence_us: int = 2 * SECOND, replicas: int = 3) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, silence_us=silence_us, replicas=replicas)
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


@pytest.mark.parametrize("end", ["loss", "takeover"])
def test_what_it_publishes_there_does_not_overtake_what_its_partition_has_promised(end: str) -> None:
    """Behind a retained message of QoS 2, those of QoS 1 are in the outbox too."""
    move = Move("n1", EVER, True, replicas=1)
    move.cluster.held = {("n1", "n3")}
    move.writer.send(Publish(b"t", b"1", 2, True, False, 7), Publish(b"t", b"2", 1, False, False, 8))
    if end == "loss":
        move.writer.lose()
    writer = move.ask(move.cluster["n2"])
    assert not is_in(writer)
    move.cluster.held = set()
    move.cluster.advance(SECOND)
    assert is_in(writer)
    writer.publish("t", b"3", 1)
    assert move.got() == [b"1", b"2", b"3"]


def names_in_one_partition(site: Site) -> list[str]:
    """Client ids whose sessions are in one partition, which a node leads."""
    names = site.names_led("c")
    home = hash64(names[0].encode()) % PARTITIONS
    return [name for name in names if hash64(name.encode()) % PARTITIONS == home]


@pytest.mark.parametrize("away", [False, True], ids=["its node hangs", "its partition is away"])
def test_nobody_waits_for_what_others_have_published(away: bool) -> None:
    """A will that waits for a leader is in the outbox of their partition, in front of what they have published."""
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1, split_policy="majority")
    near, far = cluster["n1"], cluster["n3"]
    writer_id, mortal_id = names_in_one_partition(near)[:2]
    reader = cluster["n2"].client(cluster["n2"].names_led("reader")[0])
    reader.resume()
    reader.subscribe("t", qos=2)
    mortal = near.client(mortal_id)
    mortal.connect(will=Will(far.names_led("will")[0].encode(), b"gone", 1, True))
    if away:
        far.kill()
        cluster.advance(5 * SECOND)
    else:
        far.up = False
    mortal.lose()
    writer = near.client(writer_id)
    writer.resume()
    writer.send(Publish(b"t", b"m", 2, False, False, 7))
    cluster.run()
    assert reader.payloads() == [b"m"]
    writer.lose()
    again = cluster["n2"].client(writer_id)
    again.open().send(Connect(5, writer_id, False, 0, properties=properties(session_expiry=EVER)))
    assert is_in(again)


def test_nobody_waits_for_a_message_of_their_own_that_no_node_can_take() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=1, split_policy="majority")
    near, far = cluster["n1"], cluster["n3"]
    writer = near.client(near.names_led("c")[0])
    writer.resume()
    far.up = False
    writer.send(Publish(far.names_led("t")[0].encode(), b"m", 2, True, False, 7))
    cluster.advance(5 * SECOND)
    assert len(writer.receive()) == 1, "PUBREC: its partition keeps the message"
    writer.lose()
    again = cluster["n2"].client(writer.client_id)
    again.open().send(Connect(5, writer.client_id, False, 0, properties=properties(session_expiry=EVER)))
    assert is_in(again)


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
