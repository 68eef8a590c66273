"""While all copies of a partition are away, the other nodes answer all clients that need nothing of it (A11)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Connack, Connect, Disconnect, Packet, Publish, Suback, Subscribe
from folkmoot.store.batch import Batch
from folkmoot.store.key import CHUNK, kind_prefix
from folkmoot.streams.config import StreamConfig
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site


class Away:
    """Three nodes without replicas; n3 dies, and what it led is away."""

    def __init__(self, policy: str = "available", stream: bytes = b"st/#") -> None:
        streams = [StreamConfig("s", stream, 16)]
        self.cluster = SimulatedCluster(
            3, partitions=16, replicas=1, split_policy=policy, silence_us=2 * SECOND, streams=streams
        )
        self.n1, self.n2, self.n3 = (self.cluster[name] for name in ("n1", "n2", "n3"))

    def subscribe_at_n3(self, topic_filter: str, qos: int) -> None:
        far = self.n3.client(self.n3.names_led("far")[0])
        far.connect(session_expiry=EVER)
        far.subscribe(topic_filter, qos=qos)

    def lose_n3(self) -> None:
        self.n3.kill()
        self.cluster.advance(20 * SECOND)

    def publisher(self) -> Peer:
        publisher = self.n1.client(self.n1.names_led("p")[0])
        publisher.connect()
        return publisher


def assert_answers(site: Site, prefix: str = "c") -> None:
    """A new client with a session here is let in, and its subscription is acknowledged."""
    peer = site.client(site.names_led(prefix)[-1])
    peer.open().send(Connect(5, peer.client_id, True, 0, properties=properties(session_expiry=EVER)))
    site.advance(SECOND)
    assert isinstance(peer.inbox[0], Connack)
    assert peer.inbox[0].code == 0
    peer.send(Subscribe(9, [(b"zzz/#", 1)]))
    site.advance(3 * SECOND)
    assert any(isinstance(packet, Suback) for packet in peer.inbox)


@pytest.mark.parametrize("policy", ["available", "majority"])
@pytest.mark.parametrize("topic_filter", ["t", "$share/g/t", ""])
def test_a_message_with_qos_0_for_it_is_dropped(policy: str, topic_filter: str) -> None:
    away = Away(policy)
    if topic_filter:
        away.subscribe_at_n3(topic_filter, 1)
    away.lose_n3()
    publisher = away.publisher()
    for number in range(40):  # some to each partition of the stream
        publisher.publish("t" if topic_filter else f"st/{number}", b"x", qos=0)
    away.cluster.advance(SECOND)
    assert away.n1.node.counters.dropped_absent > 0
    assert_answers(away.n1)


@pytest.mark.parametrize("qos", [0, 1])
def test_events_for_it_are_dropped(qos: int) -> None:
    away = Away()
    away.subscribe_at_n3("$events/#", qos)
    away.lose_n3()
    assert away.n1.node.counters.dropped_absent > 0
    assert_answers(away.n1)


def test_events_for_a_stream_with_a_partition_there_are_dropped() -> None:
    away = Away(stream=b"$events/#")
    away.lose_n3()
    for name in away.n1.names_led("d")[:20]:
        peer = away.n1.client(name)
        peer.connect()
        peer.lose()
    away.cluster.advance(SECOND)
    assert away.n1.node.counters.dropped_absent > 0
    assert_answers(away.n1)


def test_what_a_lost_member_of_a_group_had_waits_for_a_member_there_and_nobody_else_does() -> None:
    away = Away()
    away.subscribe_at_n3("$share/g/t", 1)
    near = away.n1.client(away.n1.names_led("m")[0], acks=False)
    near.connect()
    near.subscribe("$share/g/t", qos=1)
    away.lose_n3()
    assert away.publisher().publish("t", b"x", qos=1) == 0
    near.lose()
    away.cluster.advance(SECOND)
    assert_answers(away.n1)
    away.n3.revive()
    away.cluster.settle()
    far = away.n3.client(away.n3.names_led("far")[0])
    far.connect(clean_start=False, session_expiry=EVER)
    away.cluster.advance(5 * SECOND)
    assert far.payloads() == [b"x"]


@pytest.mark.parametrize(("seconds", "code"), [(3, 0), (20, reason.SERVER_BUSY)])
def test_who_is_connected_with_a_session_there_is_sent_away_after_a_while(seconds: int, code: int) -> None:
    away = Away()
    client = away.n1.client(away.n3.names_led("c")[0])
    client.connect(session_expiry=EVER)
    transient = away.n1.client(away.n3.names_led("d")[1])
    transient.connect()
    away.n3.kill()
    away.cluster.advance(seconds * SECOND)
    said: list[Packet] = [packet for packet in client.receive() if isinstance(packet, Disconnect)]
    assert [packet.code for packet in said if isinstance(packet, Disconnect)] == ([code] if code else [])
    assert client.closed == bool(code)
    assert not transient.closed, "its session is where it is connected"


def test_what_waits_when_the_last_copy_is_found_to_be_damaged_holds_up_nobody() -> None:
    away = Away()
    name = away.n1.names_led("c")[0]
    partition = away.n1.node._state.partition_of(name.encode())
    peer = away.n1.client(name)
    peer.connect(session_expiry=EVER)
    away.n1.hold_writes()
    peer.send(Subscribe(3, [(b"a", 1)]))
    away.n1.cluster_node.replication.replicas[partition].spoil("a row cannot be read")
    away.n1.release_writes()
    away.cluster.advance(10 * SECOND)
    assert away.n1.cluster_node.fabric.leaders[partition] == ""
    keeper = away.n1.client(away.n1.names_led("k")[3])
    keeper.connect()
    keeper.send(Publish(keeper.client_id.encode(), b"x", 0, True, False))
    for site in (away.n1, away.n2, away.n3):
        assert_answers(site, "z")


def test_a_partition_that_cannot_be_opened_when_its_node_starts_holds_up_nobody() -> None:
    away = Away()
    leaders = away.n1.cluster_node.fabric.leaders
    streams = away.n1.node.streams
    logs = {f"st/{number}": streams.match(b"st/%d" % number)[0] for number in range(99)}
    topic, partition = next(
        (topic, log.store_partition) for topic, log in logs.items() if leaders[log.store_partition] == "n1"
    )
    assert away.publisher().publish(topic, b"x", qos=1) == 0
    away.n1.kill()
    start, end = kind_prefix(partition, CHUNK), kind_prefix(partition, CHUNK + 1)
    damage = Batch(0)
    for key, value in away.n1.store.scan(start, end, 99):
        damage.put(key, value[:-1])
    away.n1.store.apply(damage)
    away.cluster.advance(5 * SECOND)
    away.n1.revive()
    away.cluster.advance(10 * SECOND)
    assert away.n1.cluster_node.fabric.leaders[partition] == ""
    for site in (away.n1, away.n2, away.n3):
        assert_answers(site, "z")


def test_what_a_node_had_alone_when_it_was_cut_off_holds_it_up_no_more() -> None:
    """n1 has a change of its own; n3 has led since, and is away when n1 comes back."""
    cluster = SimulatedCluster(3, partitions=16, replicas=2, split_policy="majority", silence_us=2 * SECOND)
    n1, n2, n3 = (cluster[name] for name in ("n1", "n2", "n3"))
    view = n1.cluster_node.view
    assert view is not None
    partition = next(number for number in range(16) if view.replicas[number] == ["n1", "n3"])
    cluster.hand_log_to("n2")
    for site in cluster.live():
        site.control.options.gone_ns = 10**15
    names = [f"c{number}" for number in range(500)]
    name = next(one for one in names if n1.node._state.partition_of(one.encode()) == partition)
    peer = n1.client(name)
    peer.connect(session_expiry=EVER)
    cluster.cut("n1", "n2", "n3")
    peer.send(Subscribe(3, [(b"a", 1)]))
    cluster.advance(6 * SECOND)
    n3.kill()
    cluster.heal()
    cluster.advance(20 * SECOND)
    assert n1.cluster_node.fabric.leaders[partition] == ""
    assert_answers(n1, "z")
    assert_answers(n2, "z")
