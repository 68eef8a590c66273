"""What comes too early waits in bounded memory: messages of a process that is no member yet, and clients (A13)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from folkmoot.broker.dispatch import EARLY_BYTES_MAX
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Connack, Connect, Pingreq, Pingresp
from folkmoot.turn.message import FORWARD_ACK
from tests.harness.simulated_cluster import SimulatedCluster, Site


def test_of_too_many_messages_the_newest_wait_and_then_all_begin_anew() -> None:
    cluster = SimulatedCluster(2)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    dispatch = cluster_node.broker.dispatch
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


@pytest.mark.parametrize("leader", ["n1", "n2"])
def test_a_client_that_waits_for_the_subscriptions_is_admitted_by_the_rules_for_client_ids(leader: str) -> None:
    cluster = SimulatedCluster(2, check=_check, allow_anonymous=False, client_ids=["%u-*"])
    site = cluster["n1"]
    client_id = cluster[leader].names_led("ann-")[0]
    with _wait_in(cluster, site):
        bob = site.client(client_id)
        bob.open().send(Connect(5, client_id, True, 0, "bob", b"right"))
        cluster.run()
        assert bob.receive() == []
    assert bob.expect(Connack).code == reason.CLIENT_IDENTIFIER_NOT_VALID


@pytest.mark.parametrize("leader", ["n1", "n2"])
def test_of_the_clients_that_wait_for_the_subscriptions_no_more_are_admitted_than_may(leader: str) -> None:
    cluster = SimulatedCluster(2, limits={"connections_max": 3})
    site = cluster["n1"]
    with _wait_in(cluster, site):
        clients = [site.client(client_id) for client_id in cluster[leader].names_led("c")[:5]]
        for client in clients:
            client.open().send(Connect(5, client.client_id, True, 0))
        cluster.run()
    codes = [client.expect(Connack).code for client in clients]
    assert codes == [0, 0, 0, reason.SERVER_BUSY, reason.SERVER_BUSY]


def test_a_user_has_no_more_connections_than_it_may_when_they_have_waited_for_the_subscriptions() -> None:
    cluster = SimulatedCluster(2, check=_check, allow_anonymous=False, limits={"user_connections_max": 2})
    site = cluster["n1"]
    with _wait_in(cluster, site):
        clients = [site.client(client_id) for client_id in site.names_led("c")[:3]]
        for client in clients:
            client.open().send(Connect(5, client.client_id, True, 0, "bob", b"right"))
        cluster.run()
    assert [client.expect(Connack).code for client in clients] == [0, 0, reason.QUOTA_EXCEEDED]


def test_a_client_that_waits_twice_for_the_subscriptions_keeps_the_client_id_that_it_was_assigned() -> None:
    cluster = SimulatedCluster(2)
    site = cluster["n1"]
    admission = site.node._broker.protocol.admission
    client = site.client("")
    with _wait_in(cluster, site):
        client.open().send(Connect(5, "", True, 0))
        cluster.run()
        ((connection, _),) = admission.early
        connection.assigned = True  # as if its leader had been asked, and this node were that leader now
        connection.client_id = "auto-1"
    connack = client.expect(Connack)
    assert connack.properties is not None
    assert connack.properties.assigned_client_id == "auto-1"


@contextmanager
def _wait_in(cluster: SimulatedCluster, site: Site) -> Iterator[None]:
    """Have the clients of a node wait meanwhile, as if it did not know all subscriptions."""
    site.node._state.routes_known = False  # a node does not announce its own
    yield
    site.node._state.routes_known = True
    site.node._broker.protocol.connecting.let_in()
    cluster.run()


def _check(username: str | None, password: bytes | None, client_id: str) -> bool:
    return password == b"right"
