"""A partition gets another leader, which is planned and hurts nobody, while its clients come and go.

The leader moves back to a node that has come back; at each step of that, in an order that each run draws anew, a client
does something. A step is the turn of one node, or what is on a wire in one direction.
"""

from __future__ import annotations

import random

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.command import LEAD, Lead
from folkmoot.mqtt import reason
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import Ack, Connack, Connect, Disconnect, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 4
STEPS = 90
RUNS = 10


class Move:
    """Three nodes, of which n3 has just come back: a partition is about to move to it from the node `old`."""

    def __init__(self, run: int) -> None:
        self.order = random.Random(run)
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS)
        for _ in range(2):  # for practice: which one moves when the node comes back?
            self.cluster["n3"].kill()
            self.cluster.settle()
            self.cluster["n3"].revive()
            self.cluster.settle()
        self.partition = self.leaders(self.cluster["n1"]).index("n3")
        self.cluster["n3"].kill()
        self.cluster.settle()
        self.old = self.cluster[self.leaders(self.cluster["n1"])[self.partition]]
        number = next(n for n in range(99) if hash64(b"c%d" % n) % PARTITIONS == self.partition)
        self.client_id = f"c{number}"
        self.watch = self.cluster["n1" if self.old.name == "n2" else "n2"].client("watch")
        self.watch.connect(session_expiry=EVER)
        self.watch.subscribe("#", qos=2)

    def leaders(self, site: Site) -> list[str]:
        assert site.node.cluster_node is not None
        return site.node.cluster_node.fabric.leaders

    def come_back(self) -> None:
        """The node comes back and gets what it lacks; that it leads is proposed, and all stands still."""
        self.cluster["n3"].revive()
        for _ in range(1000):
            self.cluster.freeze()
            self.cluster.now += SECOND // 100
            for site in self.cluster.live():
                site.turn()
            if self.cluster.proposes(LEAD):
                return
            self.cluster.thaw()
            self.cluster.run()
        raise AssertionError("nothing is proposed")

    def step(self, count: int) -> None:
        idle = 0
        while count and idle < 100:
            idle += 1
            if self.cluster.unit(self.order.randrange(9)):
                count -= 1
                idle = 0

    def finish(self) -> None:
        self.cluster.thaw()
        self.cluster.settle()
        self.cluster.advance(SECOND)
        assert self.leaders(self.cluster["n1"])[self.partition] == "n3"


@pytest.mark.parametrize("expiry", [0, EVER])
@pytest.mark.parametrize("near", [True, False], ids=["at the leader", "elsewhere"])
def test_the_will_of_a_client_that_comes_meanwhile_is_not_due(near: bool, expiry: int) -> None:
    for run in range(RUNS):
        move = Move(run)
        peer = (move.old if near else move.watch.box).client(move.client_id)
        peer.open()
        move.come_back()
        move.step(int(STEPS * move.order.random()))
        will = Will(b"w", b"will", 1, False, None)
        peer.send(Connect(5, move.client_id, False, 0, None, None, will, properties(session_expiry=expiry)))
        move.finish()
        assert peer.expect(Connack).code == 0, run
        assert move.watch.payloads() == [], run
        peer.disconnect()
        move.cluster.advance(SECOND)
        assert move.watch.payloads() == [], run


@pytest.mark.parametrize("goodbye", [True, False])
def test_a_transient_client_that_goes_and_comes_again_elsewhere_meanwhile_stays(goodbye: bool) -> None:
    for run in range(RUNS):
        move = Move(run)
        first = move.watch.box.client(move.client_id)
        first.connect(session_expiry=0, will=Will(b"w", b"will", 1, False, None))
        move.come_back()
        move.old.hold_writes()
        move.step(int(STEPS * move.order.random() / 3))
        if goodbye:
            first.send(Disconnect(0, None))
        first.lose()
        move.step(int(STEPS * move.order.random() / 3))
        second = move.old.client(move.client_id)
        second.open()
        second.send(Connect(5, move.client_id, True, 0, None, None, None, properties(session_expiry=0)))
        move.step(int(STEPS * move.order.random() / 3))
        move.old.release_writes()
        move.finish()
        assert second.expect(Connack).code == 0, run
        assert not second.closed, run
        assert move.watch.payloads() == ([] if goodbye else [b"will"]), run


def move_from(cluster: SimulatedCluster, client: Peer, site: Site) -> None:
    """Begin to hand the session of a client from n2 to n3, until the node of its connection knows; then time stops."""
    partition = hash64(client.client_id.encode()) % cluster.partitions
    configuration = cluster.controller().control.configuration
    log = cluster.controller().control.log
    assert configuration is not None
    assert log is not None
    disk = cluster["n3"].cluster_node.me.disk
    log.propose(Lead(partition, configuration.partitions[partition].version, disk), cluster.now * 1000)
    cluster.freeze()
    (relay,) = site.node._broker.proxy.relays.relays.values()
    while relay.leader == "n2":
        cluster.step()


@pytest.mark.parametrize("expiry", [0, 3600])
@pytest.mark.parametrize("near", [False, True])
def test_what_a_client_says_of_its_session_when_it_leaves_reaches_the_next_leader(near: bool, expiry: int) -> None:
    """near: the next leader is the node to which the client is connected."""
    cluster = SimulatedCluster(3)
    site = cluster["n3" if near else "n1"]
    client_id = cluster["n2"].names_led("c")[0]
    client = site.client(client_id)
    client.connect(session_expiry=5)
    move_from(cluster, client, site)
    client.send(Disconnect(0, properties(session_expiry=expiry)))
    cluster.thaw()
    cluster.advance(3 * SECOND)
    cluster.advance(60 * SECOND if expiry else 0)
    again = cluster["n1"].client(client_id)
    assert again.connect(clean_start=False, session_expiry=EVER).session_present == bool(expiry)


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(
    ("ack", "again"),
    [
        (Ack(PUBACK, 0), []),
        (Ack(PUBREC, 0), [PUBREL]),
        (Ack(PUBREC, 0, reason.QUOTA_EXCEEDED), []),
        (Ack(PUBCOMP, 0), []),
    ],
)
def test_what_a_client_acknowledges_before_its_connection_ends_reaches_the_next_leader(
    ack: Ack, again: list[int], near: bool, leaves: bool
) -> None:
    """near: the next leader is the node to which the client is connected; leaves: it sends DISCONNECT."""
    cluster = SimulatedCluster(3)
    site = cluster["n3" if near else "n1"]
    client = site.client(cluster["n2"].names_led("c")[0], acks=False)
    client.connect(session_expiry=EVER)
    client.subscribe("t", qos=2)
    source = cluster["n2"].client("source")
    source.connect()
    qos = 1 if ack.kind == PUBACK else 2
    source.publish("t", b"answered", qos=qos)
    source.publish("t", b"unanswered", qos=qos)
    cluster.run()
    first, second = client.publishes()
    if ack.kind == PUBCOMP:
        client.send(Ack(PUBREC, first.packet_id))
        cluster.settle()
        assert client.take(Ack, first.packet_id).kind == PUBREL
    move_from(cluster, client, site)
    client.send(Ack(ack.kind, first.packet_id, ack.code))
    if leaves:
        client.send(Disconnect(0))
    else:
        client.lose()
    cluster.thaw()
    cluster.advance(3 * SECOND)
    late = cluster["n1"].client(client.client_id, acks=False)
    assert late.connect(clean_start=False, session_expiry=EVER).session_present
    cluster.run()
    assert [(one.payload, one.packet_id, one.dup) for one in late.publishes()] == [
        (b"unanswered", second.packet_id, True)
    ]
    assert [(one.kind, one.packet_id) for one in late.receive() if isinstance(one, Ack)] == [
        (kind, first.packet_id) for kind in again
    ]
    if again:
        late.send(Ack(PUBCOMP, first.packet_id))
    late.send(Ack(PUBACK if qos == 1 else PUBREC, second.packet_id, 0 if qos == 1 else reason.QUOTA_EXCEEDED))
    cluster.settle()
    found = [one.node._state.sessions.get(client.client_id) for one in cluster.live()]
    (session,) = [one for one in found if one is not None and one.persistent]
    assert (session.queue_count, session.queue_bytes, session.released or {}) == (0, 0, {})
