"""Answers that wait for their own turn alone: what others have asked of a slow partition holds up nobody (A11)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.kind import PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import Ack, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8


class Slow:
    """Four nodes; a turn at n2 waits for a partition that n3 is to lead and has not opened, because n4 is slow."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
        cluster = self.cluster
        view = cluster["n2"].cluster_node.view
        assert view is not None
        names = cluster["n1"].names_led("far")
        far = next(name for name in names if view.replicas[hash64(name.encode()) % PARTITIONS] == ["n1", "n3"])
        queue = cluster["n1"].client(far)
        queue.connect(session_expiry=EVER)
        queue.subscribe("far", qos=1)
        self.client = self.at_n2("c")
        self.other = self.at_n2("other")
        known = cluster["n2"].client("known")
        known.connect()
        known.subscribe("known", qos=1)
        cluster["n1"].kill()
        cluster.hold_opening(hash64(far.encode()) % PARTITIONS, "n3", "n4")
        self.other.send(Publish(b"far", b"x", 1, False, packet_id=1))
        assert self.other.receive() == [], "its turn waits"

    def at_n2(self, stem: str) -> Peer:
        n2 = self.cluster["n2"]
        peer = n2.client(n2.names_led(stem)[0], acks=False)
        peer.connect(session_expiry=EVER)
        return peer

    def let_go(self) -> None:
        self.cluster.held = set()
        self.cluster.run()
        self.other.take(Ack, 1)


@pytest.fixture
def slow() -> Slow:
    return Slow()


def test_suback_and_unsuback(slow: Slow) -> None:
    slow.client.send(Subscribe(1, [(b"a", 1)]))
    slow.client.take(Suback, 1)
    slow.client.send(Unsubscribe(2, [b"a"]))
    slow.client.take(Unsuback, 2)
    slow.let_go()


def test_suback_of_a_filter_that_somebody_else_has_too(slow: Slow) -> None:
    slow.other.send(Subscribe(2, [(b"a", 1)]))
    slow.client.send(Subscribe(1, [(b"a", 1)]))
    slow.client.take(Suback, 1)
    assert not [packet for packet in slow.other.receive() if isinstance(packet, Suback)], "it stays in its order"
    slow.let_go()
    slow.other.take(Suback, 2)


def test_what_changes_nothing_waits_for_nothing(slow: Slow) -> None:
    transient = slow.cluster["n2"].client(slow.cluster["n2"].names_led("t")[0])
    transient.connect()
    transient.send(Subscribe(1, [(b"known", 1)]))
    transient.take(Suback, 1)
    slow.client.send(Unsubscribe(2, [b"nothing"]))
    slow.client.take(Unsuback, 2)
    slow.client.send(Ack(PUBREL, 3))
    assert slow.client.take(Ack, 3).kind == PUBCOMP
    slow.let_go()


def test_a_filter_is_announced_again_to_a_node_that_has_not_confirmed_it(slow: Slow) -> None:
    slow.cluster.held.add(("n2", "n4"))
    slow.other.send(Subscribe(2, [(b"a", 1)]))
    slow.client.send(Subscribe(1, [(b"a", 1)]))
    assert slow.client.receive() == [], "n4 does not know the filter"
    slow.cluster.held.remove(("n2", "n4"))
    slow.cluster.run()
    slow.client.take(Suback, 1)
    slow.let_go()


def test_both_halves_of_a_flow_with_qos_2(slow: Slow) -> None:
    slow.client.send(Publish(b"b", b"x", 2, False, packet_id=5))
    assert slow.client.take(Ack, 5).kind == PUBREC
    slow.client.send(Ack(PUBREL, 5))
    assert slow.client.take(Ack, 5).kind == PUBCOMP
    slow.let_go()


def test_pubrel_to_a_subscriber(slow: Slow) -> None:
    slow.client.send(Subscribe(1, [(b"b", 2)]))
    slow.client.take(Suback, 1)
    third = slow.at_n2("third")
    third.send(Publish(b"b", b"x", 2, False, packet_id=1))
    assert third.take(Ack, 1).kind == PUBREC
    message = slow.client.take(Publish)
    slow.client.send(Ack(PUBREC, message.packet_id))
    assert slow.client.take(Ack, message.packet_id).kind == PUBREL
    slow.let_go()
