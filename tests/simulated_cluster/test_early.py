"""What comes too early waits in bounded memory: messages of a process that is no member yet, and clients (A13)."""

from __future__ import annotations

import pytest

from folkmoot.broker.dispatch import EARLY_BYTES_MAX
from folkmoot.mqtt.packet import Connack, Connect, Pingreq, Pingresp
from folkmoot.turn.message import FORWARD_ACK
from tests.harness.simulated_cluster import SimulatedCluster


def test_of_too_many_messages_the_newest_wait_and_then_all_begin_anew() -> None:
    cluster = SimulatedCluster(2)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    dispatch = cluster_node.broker.cluster.dispatch
    for _ in range(80):
        dispatch.receive("n9", FORWARD_ACK, bytes(1 << 20))
    waiting = dispatch._early["n9"].messages
    assert sum(len(body) for _, body in waiting) <= EARLY_BYTES_MAX
    dropped = cluster["n1"].node._state.counters.cluster_messages_dropped
    assert dropped == 80 - len(waiting) > 0
    dispatch.installed({**dispatch._members, "n9": 1})
    assert dispatch.renew, "what is left would hide what was dropped"
    assert "n9" in dispatch.fabric.out_of_sync
    assert "n9" not in dispatch._early


def test_clients_that_have_gone_do_not_wait_for_the_subscriptions_of_other_nodes() -> None:
    cluster = SimulatedCluster(2)
    site = cluster["n1"]
    site.node._state.routes_known = False  # a node does not announce its own
    stays = site.client("stays")
    stays.open().send(Connect(5, "stays", True, 0))
    for number in range(1000):
        client = site.client(f"c{number}")
        client.open().send(Connect(5, client.client_id, True, 0))
        client.lose()
    admission = site.node._broker.protocol.admission
    assert len(admission.early) < 200
    site.node._state.routes_known = True
    site.node._broker.protocol.connecting.let_in()
    cluster.run()
    assert stays.expect(Connack).code == 0


@pytest.mark.parametrize("client_id", ["a", "b", "c", "d"])  # some of them led by the other node
def test_packets_behind_an_early_connect_are_handled_when_the_client_is_admitted(client_id: str) -> None:
    cluster = SimulatedCluster(2)
    site = cluster["n1"]
    site.node._state.routes_known = False  # a node does not announce its own
    client = site.client(client_id)
    client.open().send(Connect(5, client_id, True, 0), Pingreq())
    assert client.receive() == []
    site.node._state.routes_known = True
    site.node._broker.protocol.connecting.let_in()
    cluster.run()
    assert client.expect(Connack).code == 0
    client.expect(Pingresp)
