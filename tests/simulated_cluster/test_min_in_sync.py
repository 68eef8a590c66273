"""`min_in_sync`: with fewer copies in sync a partition takes nothing, and what waits is not acknowledged."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.store.key import QUEUE, kind_prefix
from tests.harness.peer import EVER
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
