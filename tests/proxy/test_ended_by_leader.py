"""The leader of a session ends a connection that is at another node: nothing of it stays, here or there (A11)."""

from __future__ import annotations

from collections import deque

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Connack, Connect, Subscribe, Will
from folkmoot.proxy.relay import CLOSED
from folkmoot.session.connection import Connection
from folkmoot.streams.config import StreamConfig
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

EVERYWHERE = StreamConfig("wide", b"w/#", 64)  # every node leads some of its partitions


def hosted_at(site: Site) -> Connection:
    (connection,) = site.node._broker.leadership.hosting.remotes.values()
    return connection


def test_one_whose_subscribe_sleeps_keeps_no_later_connection_out() -> None:
    """Whoever ends its task has to wake it: who is set aside with no task would be served no more, nor its end."""
    cluster = SimulatedCluster(3, partitions=16, streams=[EVERYWHERE])
    leader = cluster["n2"]
    peer = cluster["n3"].client(leader.names_led("c")[0])
    peer.connect(session_expiry=EVER)
    cluster.run()
    hosted = hosted_at(leader)
    cluster.held = {("n1", "n2"), ("n2", "n1")}  # n1 does not tell where its partitions of the stream end
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]))
    cluster.advance(SECOND // 100)
    assert hosted.task is not None
    assert hosted.aside
    leader.node._broker.protocol.closing.disconnect(hosted, reason.QUOTA_EXCEEDED, "short of memory")
    cluster.advance(SECOND // 100)
    cluster.held = set()
    cluster.advance(SECOND)
    peer.expect_close(reason.QUOTA_EXCEEDED)
    assert not leader.node._broker.leadership.hosting.remotes
    for name in ("n1", "n2", "n3"):
        again = cluster[name].client(peer.client_id)
        assert again.connect(clean_start=False, session_expiry=EVER).session_present, name


def knock(site: Site, client_id: str) -> Peer:
    """Send CONNECT, and wait for nothing."""
    peer = site.client(client_id)
    return peer.open().send(Connect(5, client_id, False, 0, None, None, None, properties(session_expiry=EVER)))


def test_one_that_waited_for_admission_and_has_gone_leaves_no_relay_behind() -> None:
    """Its node sends the end of the connection until it hears that it is handled; of a refused one, too."""
    cluster = SimulatedCluster(3, partitions=16)
    leader = cluster["n2"]
    first = cluster["n1"].client(leader.names_led("c")[0])
    first.connect(session_expiry=EVER)
    cluster.run()
    hosting = leader.node._broker.leadership.hosting
    cluster.held = {("n2", "n1")}  # n1 does not hear that it has to end its connection
    second = knock(cluster["n3"], first.client_id)
    cluster.advance(SECOND // 100)
    parked = hosting.remotes["n3", 1]
    assert parked.session is None
    parked.queued = True  # the steps of its turn are spent: what comes waits
    second.lose()
    cluster.advance(SECOND // 100)
    assert parked.backlog
    third = knock(cluster["n3"], first.client_id)
    cluster.advance(SECOND // 100)
    cluster.held = set()
    cluster.advance(SECOND)
    assert isinstance(third.receive()[0], Connack)
    assert list(hosting.remotes) == [("n3", 2)]
    assert list(cluster["n3"].node._broker.proxy.relays.relays) == [2]


@pytest.mark.parametrize("numbered", [True, False])
def test_its_end_leaves_nothing_for_drivers_at_any_moment_of_a_turn(numbered: bool) -> None:
    """Drivers know only the connections of their node. A report without a number confirms no packet."""
    cluster = SimulatedCluster(3, partitions=16)
    leader = cluster["n2"]
    peer = cluster["n3"].client(leader.names_led("c")[0])
    peer.connect(session_expiry=EVER)
    peer.subscribe("t", qos=1)
    cluster.run()
    broker = leader.node._broker
    hosted = hosted_at(leader)
    assert hosted.remote is not None
    handled = hosted.remote.handled_seq
    assert handled > 0
    cluster.freeze()
    hosted.backlog = deque([(handled + 1 if numbered else 0, CLOSED, b"")])  # its end waits for its turn
    broker.protocol.closing.disconnect(hosted, reason.QUOTA_EXCEEDED, "short of memory")
    hosted.session = None  # as of one that waits for admission: its end changes no row
    broker.leadership.hosting.flush()
    left = broker.state.outputs + broker.state.closes
    assert [connection for connection in left if connection.remote is not None] == []
    assert hosted.remote.handled_seq == handled + numbered


def test_its_will_is_in_a_stream_as_soon_as_it_is_no_will_any_more() -> None:
    """One batch removes the row of the will and writes the record: a crash cannot come between them."""
    cluster = SimulatedCluster(3, partitions=1, streams=[StreamConfig("wide", b"w/#", 1)])
    leader = cluster[cluster["n1"].cluster_node.fabric.leaders[0]]
    site = next(site for site in cluster.live() if site is not leader)
    peer = site.client("c")
    peer.connect(session_expiry=EVER, will=Will(b"w/t", b"gone", 1))
    cluster.run()
    hosted = hosted_at(leader)
    hosted.queued = True  # what comes waits for its turn
    peer.lose()
    cluster.advance(SECOND // 100)
    assert hosted.backlog
    broker = leader.node._broker
    cluster.freeze()
    broker.protocol.closing.disconnect(hosted, reason.QUOTA_EXCEEDED, "short of memory")
    counters = leader.node.counters
    records, stored = counters.stream_records, counters.stream_bytes
    leader.turn()
    assert counters.stream_records == records + 1
    assert counters.stream_bytes > stored
    cluster.thaw()
