"""PUBREL goes out in the order of PUBREC, also when the session gets another leader in between [MQTT-4.6.0-4].

Many clients hand a message of QoS 2 on when it is released: for them this is the order of messages.
"""

from __future__ import annotations

from collections import deque

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import PUBCOMP, PUBREC, PUBREL, Ack, Connack, Connect, Publish
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.test_move import Move

COUNT = 12
RUNS = 8


class Receiver:
    """A client that hands messages on at PUBREL; `act` answers to one of those that came."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.held: dict[int, bytes] = {}
        self.delivered: list[bytes] = []
        self.resent: list[bool] = []
        self._owed: deque[int] = deque()

    def act(self) -> None:
        for packet in self.peer.receive():
            if isinstance(packet, Publish):
                self.resent.append(packet.dup)
                self.held[packet.packet_id] = packet.payload
                self._owed.append(packet.packet_id)
            elif isinstance(packet, Ack) and packet.kind == PUBREL:
                if packet.packet_id in self.held:
                    self.delivered.append(self.held.pop(packet.packet_id))
                self.peer.send(Ack(PUBCOMP, packet.packet_id))
            else:
                assert isinstance(packet, Connack)
                assert packet.session_present
        if self._owed and self.peer.connection is not None:
            self.peer.send(Ack(PUBREC, self._owed.popleft()))

    def hop(self, peer: Peer) -> None:
        """Go on over another connection, without a goodbye."""
        self.peer.lose()
        self.peer = peer
        self._owed.clear()
        peer.open()
        peer.send(Connect(5, peer.client_id, False, 0, None, None, None, properties(session_expiry=EVER)))


@pytest.mark.parametrize("hops", [False, True])
@pytest.mark.parametrize("near", [True, False], ids=["at the leader", "elsewhere"])
def test_messages_are_released_in_their_order_while_another_begins_to_lead(near: bool, hops: bool) -> None:
    for run in range(RUNS):
        move = Move(run)
        sites = [move.old, move.watch.box]
        peer = sites[0 if near else 1].client(move.client_id, acks=False)
        peer.connect(session_expiry=EVER)
        peer.subscribe("t", qos=2)
        payloads = [b"%d" % number for number in range(COUNT)]
        for payload in payloads:
            move.watch.publish("t", payload, 2)
        receiver = Receiver(peer)
        move.come_back()
        at = move.order.randrange(COUNT)
        for number in range(COUNT):
            move.step(move.order.randrange(16))
            receiver.act()
            if hops and number == at:
                receiver.hop(sites[1 if near else 0].client(move.client_id, acks=False))
        move.finish()
        while receiver.peer.inbox:
            receiver.act()
        assert receiver.delivered == payloads, run
        assert hops or receiver.resent == [False] * COUNT, run


def test_a_release_that_waits_for_another_node_comes_before_those_of_the_next_leader() -> None:
    """PUBREC is committed, but its turn has asked another node as well: nothing is answered yet."""
    cluster = SimulatedCluster(3, replicas=2)
    view = cluster["n1"].cluster_node.view
    assert view is not None
    led, (old, new) = next((number, names) for number, names in enumerate(view.replicas) if len(names) == 2)
    (other,) = {"n1", "n2", "n3"} - {old, new}
    cluster.hand_log_to(new)
    peer = cluster[old].client(
        next(f"c{n}" for n in range(99) if hash64(b"c%d" % n) % cluster.partitions == led), acks=False
    )
    peer.connect(session_expiry=EVER)
    peer.subscribe("t", qos=2)
    elsewhere = cluster[other].client(cluster[other].names_led("e")[0])
    elsewhere.connect(session_expiry=EVER)
    elsewhere.subscribe("u", qos=1)
    publisher = cluster[old].client("p", acks=False)
    publisher.connect()
    publisher.publish("t", b"1", qos=2)
    receiver = Receiver(peer)
    cluster.held.add((other, old))
    cluster.freeze()
    receiver.act()
    publisher.send(Publish(b"u", b"", 1, False, False, 9))
    cluster.thaw()
    cluster.run()
    assert receiver.delivered == []
    cluster.hand_partition_to(led, new)
    assert cluster[new].cluster_node.replication.leads(led)
    second = cluster[new].client("q", acks=False)
    second.connect()
    second.publish("t", b"2", qos=2)
    while peer.inbox:
        receiver.act()
    cluster.held.clear()
    cluster.run()
    while peer.inbox:
        receiver.act()
    assert receiver.delivered == [b"1", b"2"]
