"""A leader ends a connection at another node, which hears of it late: it ends there first, and once (A6, A7)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt import reason
from folkmoot.mqtt.kind import PUBREL
from folkmoot.mqtt.packet import Ack, Connack, Connect, Disconnect, Publish, Subscribe, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16
NO_LOCAL = 4


def named(cluster: SimulatedCluster, prefix: str, replicas: list[str]) -> str:
    """Return a name whose partition has these copies, the leader first."""
    view = cluster["n1"].cluster_node.view
    assert view is not None
    names = (f"{prefix}{number}" for number in range(999))
    return next(name for name in names if view.replicas[hash64(name.encode()) % PARTITIONS] == replicas)


class Stage:
    """A client at n3 whose session is at n2, with a copy at n1, where somebody watches its will."""

    def __init__(self, expiry_s: int, turn_steps_max: int = 0) -> None:
        limits = {"turn_steps_max": turn_steps_max} if turn_steps_max else {}
        self.cluster = cluster = SimulatedCluster(3, partitions=PARTITIONS, replicas=2, limits=limits)
        cluster.hand_log_to("n1")
        self.expiry_s = expiry_s
        self.client_id = named(cluster, "c", ["n2", "n1"])
        self.watcher = cluster["n1"].client(named(cluster, "w", ["n1", "n2"]))
        self.watcher.connect(session_expiry=EVER)
        self.watcher.subscribe("will", qos=1)
        self.first = cluster["n3"].client(self.client_id)
        self.first.connect(will=Will(b"will", b"first", 1, False), session_expiry=expiry_s)

    def end(self, fault: bool = False) -> None:
        """Have the leader end the connection: for a protocol error, or because its node is short of memory."""
        if fault:
            self.first.send(Subscribe(9, [(b"$share/g/t", NO_LOCAL)]))  # [MQTT-3.8.3-4]
            return
        broker = self.cluster["n2"].node._broker
        (hosted,) = broker.leadership.hosting.remotes.values()
        broker.protocol.closing.disconnect(hosted, reason.QUOTA_EXCEEDED, "the server is short of memory")
        self.cluster.advance(SECOND // 100)

    def come_again(self, at: str) -> Peer:
        """Let the client connect at a node; tell nothing of the answer."""
        peer = self.cluster[at].client(self.client_id)
        asks = properties(session_expiry=self.expiry_s)
        will = Will(b"will", b"second", 1, False)
        peer.open().send(Connect(5, self.client_id, False, 0, None, None, will, asks))
        return peer


def is_in(peer: Peer) -> bool:
    """Whether a CONNACK has come."""
    return any(isinstance(packet, Connack) for packet in peer.inbox)


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("there", ["n1", "n2", "n3"])
def test_nobody_comes_in_before_a_connection_has_ended_that_the_leader_ends(there: str, expiry_s: int) -> None:
    stage = Stage(expiry_s)
    cluster = stage.cluster
    cluster.held = {("n2", "n3")}
    stage.end()
    second = stage.come_again(there)
    cluster.advance(SECOND // 10)
    assert not stage.first.closed
    assert not is_in(second)
    assert stage.watcher.payloads() == []
    stage.first.send(Publish(b"other", b"", 0, False))
    cluster.held = set()
    cluster.advance(SECOND)
    assert stage.first.closed
    assert is_in(second)
    assert stage.watcher.payloads() == [b"first"]
    second.lose()
    cluster.advance(SECOND)
    assert stage.watcher.payloads() == [b"second"]


@pytest.mark.parametrize(("expiry_s", "fault"), [(0, False), (EVER, False), (EVER, True)])
def test_a_connection_that_has_not_ended_keeps_its_will_at_the_next_leader(expiry_s: int, fault: bool) -> None:
    """The leader ends it and dies before its node hears of it; a protocol error is found again by the next one."""
    stage = Stage(expiry_s)
    cluster = stage.cluster
    cluster.held = {("n2", "n3")}
    stage.end(fault)
    cluster.advance(SECOND // 10)
    cluster["n2"].kill()
    cluster.held = set()
    cluster.advance(5 * SECOND)
    assert stage.first.closed == fault
    assert stage.watcher.payloads() == ([b"first"] if fault else [])
    stage.first.lose()
    cluster.advance(SECOND)
    assert stage.watcher.payloads() == ([] if fault else [b"first"])


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_connection_that_the_leader_ends_ends_with_its_node(expiry_s: int) -> None:
    stage = Stage(expiry_s)
    cluster = stage.cluster
    cluster.held = {("n2", "n3")}
    stage.end()
    second = stage.come_again("n1")
    cluster["n3"].up = False
    cluster.advance(5 * SECOND)
    assert is_in(second)
    assert stage.watcher.payloads() == [b"first"]


def test_a_goodbye_that_crosses_the_end_by_the_leader_does_not_take_the_will_back() -> None:
    """[MQTT-3.1.2-8] The server has closed the connection because of a protocol error before it came."""
    stage = Stage(EVER)
    cluster = stage.cluster
    cluster.held = {("n2", "n3")}
    stage.end(fault=True)
    stage.first.send(Disconnect(0))
    cluster.held = set()
    cluster.advance(SECOND)
    assert stage.watcher.payloads() == [b"first"]


def test_a_connection_whose_end_is_stored_does_not_go_on_at_the_next_leader() -> None:
    """The leader, of an earlier version, has not waited for its node; the will is published."""
    stage = Stage(EVER)
    cluster = stage.cluster
    cluster["n2"].cluster_node.fabric.planted.unfenced = True
    cluster.held = {("n2", "n3")}
    stage.end()
    cluster.advance(SECOND // 10)
    cluster["n2"].kill()
    cluster.held = set()
    cluster.advance(5 * SECOND)
    stage.first.expect_close(reason.SERVER_BUSY)
    assert stage.watcher.payloads() == [b"first"]


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("there", ["n1", "n2"])
def test_a_connect_that_comes_late_and_whose_client_has_gone_ends_no_newer_connection(
    there: str, expiry_s: int
) -> None:
    stage = Stage(expiry_s)
    cluster = stage.cluster
    stage.first.disconnect()
    cluster.held = {("n3", "n2")}
    late = cluster["n3"].client(stage.client_id).open()
    asks = properties(session_expiry=expiry_s)
    late.send(Connect(5, stage.client_id, False, 0, None, None, Will(b"will", b"late", 1, False), asks))
    late.lose()
    second = stage.come_again(there)
    assert is_in(second)
    cluster.held = set()
    cluster.advance(SECOND)
    assert not second.closed
    assert stage.watcher.payloads() == []
    second.lose()
    cluster.advance(SECOND)
    assert stage.watcher.payloads() == [b"second"]


@pytest.mark.parametrize("there", ["n1", "n2", "n3"])
def test_an_end_that_was_reported_before_the_leader_ends_the_connection_is_not_waited_for(there: str) -> None:
    """The leader finds a fault in a turn that does not reach the report, and drops what is behind the fault."""
    stage = Stage(EVER, 1024)
    cluster = stage.cluster
    cluster.held = {("n3", "n2")}
    stage.first.send(*[Ack(PUBREL, 1 + number % 100) for number in range(600)])
    stage.end(fault=True)
    stage.first.send(*[Ack(PUBREL, 1 + number % 100) for number in range(150)])
    stage.first.lose()
    cluster.advance(SECOND // 10)
    cluster.held = set()
    cluster.advance(2 * SECOND)
    assert stage.watcher.payloads() == [b"first"]
    assert not cluster["n2"].node._broker.leadership.hosting.remotes
    assert not cluster["n3"].node._broker.proxy.relays.relays
    second = stage.come_again(there)
    cluster.advance(SECOND)
    assert is_in(second)
