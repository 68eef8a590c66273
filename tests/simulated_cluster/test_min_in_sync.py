"""`min_in_sync`: with fewer copies in sync a partition takes nothing, and what waits is not acknowledged."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.store.key import QUEUE, kind_prefix
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8


class Bank:
    """Two nodes and a witness; a client with a session that n1 leads."""

    def __init__(self, least: int) -> None:
        self.cluster = cluster = SimulatedCluster(2, partitions=PARTITIONS, min_in_sync=least)
        cluster.add("n3", witness=True)
        cluster.settle()
        self.here, self.other = cluster["n1"], cluster["n2"]
        self.client_id = self.here.names_led("c")[0]
        self.peer = self.here.client(self.client_id)
        self.peer.connect(session_expiry=EVER)
        self.peer.subscribe("t", qos=1)

    def events(self, site: Site) -> list[str]:
        return [event.kind for event in site.events if event.kind.startswith("copies_")]


@pytest.mark.parametrize(("least", "serves"), [(1, True), (2, False)])
def test_the_last_copy_serves_only_where_one_is_enough(least: int, serves: bool) -> None:
    bank = Bank(least)
    bank.other.kill()
    bank.cluster.advance(5 * SECOND)
    publisher = bank.here.client("p")
    if serves:
        publisher.connect()
        assert publisher.publish("t", b"m", qos=1) == reason.SUCCESS
        assert bank.peer.payloads() == [b"m"]
        return
    with pytest.raises(AssertionError, match=f"code={reason.SERVER_UNAVAILABLE}"):
        publisher.connect()
    assert bank.events(bank.here)[-1] == "copies_too_few"
    bank.other.revive()
    bank.cluster.settle()
    assert bank.events(bank.here)[-1] == "copies_enough"
    again = bank.here.client(bank.client_id)
    again.connect(clean_start=False, session_expiry=EVER)
    publisher.connect()
    assert publisher.publish("t", b"m", qos=1) == reason.SUCCESS
    assert again.payloads() == [b"m"]


def test_what_waits_for_the_copy_that_is_lost_is_not_acknowledged() -> None:
    bank = Bank(2)
    publisher = bank.here.client(bank.here.names_led("p")[0])
    publisher.connect(session_expiry=EVER)
    bank.other.hold_writes()
    publisher.send(Publish(b"t", b"m", 1, packet_id=7))
    bank.cluster.advance(SECOND // 10)
    bank.other.kill()
    bank.cluster.advance(5 * SECOND)
    assert publisher.closed
    assert not [packet for packet in publisher.receive() if isinstance(packet, Ack)]


def test_what_another_node_has_sent_before_the_copies_became_too_few_is_not_acknowledged() -> None:
    """It is written in the turn that installs the view: no copy waits for it any more."""
    bank = Bank(2)
    cluster_node = bank.here.cluster_node
    partition = next(p for p in range(PARTITIONS) if bank.here.node._state.leads[p])
    view = cluster_node.view
    assert view is not None
    bank.here.node._state.writer.put(partition, kind_prefix(partition, QUEUE) + b"k", b"body")
    token = bank.here.node._state.writer.token
    view.replicas[partition] = ["n1"]
    cluster_node.scarcity.find(view)
    assert partition in cluster_node.fabric.scarce
    assert (token, partition) in cluster_node.replication.abandoned


class Skipped:
    """Three nodes with two copies of each partition. n2 sends n1 what it is to store, and sees no view for a while.

    In that time a copy of the partition leaves the ISR and comes back: n1 has refused what came between.
    """

    def __init__(self) -> None:
        self.cluster = cluster = SimulatedCluster(3, partitions=16, replicas=2, split_policy="majority", min_in_sync=2)
        self.n1, self.n2, self.n3 = cluster["n1"], cluster["n2"], cluster["n3"]
        cluster.hand_log_to("n1")
        self.partition = next(number for number in range(16) if self.isr(number) == ["n1", "n3"])
        self.publisher = self.n2.client(self.name("p", self.where(["n2", "n1"])))
        self.publisher.connect()

    def isr(self, number: int) -> list[str]:
        view = self.n1.cluster_node.view
        assert view is not None
        return view.replicas[number]

    def where(self, isr: list[str]) -> int:
        return next(number for number in range(16) if self.isr(number) == isr)

    def name(self, prefix: str, partition: int) -> str:
        names = [f"{prefix}{number}" for number in range(900)]
        return next(name for name in names if self.n1.node._state.partition_of(name.encode()) == partition)

    def skip(self, first: Publish) -> None:
        """Send a message, and let the copy leave and return before it comes."""
        begun = [len(self.lacks(site)) for site in (self.n1, self.n2)]
        self.cluster.held.add(("n2", "n1"))
        self.publisher.send(first)
        self.n2.up = False
        self.n3.cluster_node.replication.replicas[self.partition].spoil("a test")
        self.cluster.advance(SECOND // 5)
        self.n2.up = True
        self.cluster.advance(SECOND // 100)
        assert [len(self.lacks(site)) for site in (self.n1, self.n2)] == [begun[0] + 1, begun[1]]

    def lacks(self, site: Site) -> list[str]:
        return [event.kind for event in site.events if event.kind == "copies_too_few"]


def acks(peer: Peer) -> list[int]:
    """Which messages were accepted."""
    return [packet.packet_id for packet in peer.receive() if isinstance(packet, Ack) and packet.code < 0x80]


def test_what_was_refused_meanwhile_comes_again_from_a_node_that_has_not_noticed() -> None:
    skipped = Skipped()
    topic = skipped.name("r", skipped.partition).encode()
    skipped.skip(Publish(topic, b"x", 1, True, packet_id=5))
    skipped.cluster.held.clear()
    skipped.cluster.advance(5 * SECOND)
    assert acks(skipped.publisher) == [5]
    for site in (skipped.n2, skipped.n3):
        other = site.client(site.names_led("q")[0])
        other.connect()
        other.subscribe("z", qos=1)


def test_nothing_later_takes_the_place_of_what_was_refused() -> None:
    skipped = Skipped()
    subscriber = skipped.n1.client(skipped.name("s", skipped.partition))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    subscriber.lose()
    skipped.skip(Publish(b"t", b"one", 1, packet_id=5))
    skipped.publisher.send(Publish(b"t", b"two", 1, packet_id=6))
    skipped.cluster.held.clear()
    skipped.cluster.advance(3 * SECOND)
    skipped.cluster.hand_partition_to(skipped.partition, "n3")
    skipped.cluster.advance(5 * SECOND)
    assert acks(skipped.publisher) == [5, 6]
    subscriber.resume()
    skipped.cluster.advance(2 * SECOND)
    assert subscriber.payloads() == [b"one", b"two"]
