"""Messages of a client that name an idempotent producer, and others, take two ways: none overtakes (A3).

Those of a producer go through the leader of the session, others from the client's node to those who get them.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 16


class Stage:
    """A client at n3 whose session is led by `leader`, and a subscriber at n2, where its session is as well."""

    def __init__(self, leader: str, kept: bool) -> None:
        self.cluster = cluster = SimulatedCluster(3, replicas=1, partitions=PARTITIONS)
        self.reader = cluster["n2"].client(cluster["n2"].names_led("r")[0])
        self.reader.connect(session_expiry=EVER if kept else 0)
        self.reader.subscribe("t", qos=1)
        self.client = cluster["n3"].client(cluster[leader].names_led("c")[0])
        self.client.connect(session_expiry=EVER)
        self.numbers = 0

    def publish(self, ways: str, qos: int) -> None:
        """Send messages in one chunk: `p` names a producer, `d` does not."""
        packets: list[Publish] = []
        for way in ways:
            self.numbers += 1
            pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(self.numbers))]
            named = properties(user_properties=pairs) if way == "p" else None
            packet_id = self.numbers if qos else 0
            packets.append(Publish(b"t", b"%d" % self.numbers, qos, False, False, packet_id, named))
        self.client.send(*packets)

    def settle(self) -> None:
        self.cluster.held = set()
        for site in self.cluster.live():
            site.release_writes()
        self.cluster.advance(SECOND)


@pytest.mark.parametrize("kept", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("held", [("n3", "n2"), ("n1", "n2"), ("n3", "n1"), ("n1", "n3")])
@pytest.mark.parametrize("ways", ["dp", "pd", "ddppd", "ppddp"])
def test_none_overtakes_one_that_goes_another_way(ways: str, held: tuple[str, str], qos: int, kept: bool) -> None:
    stage = Stage("n1", kept)
    stage.cluster.held = {held}
    stage.publish(ways, qos)
    stage.cluster.advance(SECOND // 10)
    stage.settle()
    assert stage.reader.payloads() == [b"%d" % number for number in range(1, len(ways) + 1)]
    acks = [packet.packet_id for packet in stage.client.inbox if isinstance(packet, Ack)]
    assert acks == (list(range(1, len(ways) + 1)) if qos else [])


@pytest.mark.parametrize("kept", [False, True], ids=["transient", "persistent"])
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("ways", ["dp", "pd", "ddppd", "ppddp"])
def test_none_overtakes_one_that_waits_for_the_disk_of_the_client_s_node(ways: str, qos: int, kept: bool) -> None:
    stage = Stage("n3", kept)
    stage.cluster["n3"].hold_writes()
    stage.publish(ways, qos)
    stage.cluster.advance(SECOND // 10)
    stage.settle()
    assert stage.reader.payloads() == [b"%d" % number for number in range(1, len(ways) + 1)]


@pytest.mark.parametrize("ways", ["dddd", "pppp"])
@pytest.mark.parametrize("leader", ["n1", "n3"])
def test_who_does_not_mix_them_never_waits(leader: str, ways: str) -> None:
    stage = Stage(leader, True)
    stage.cluster.held = {("n3", "n2"), (leader, "n2")}
    for _ in range(3):
        stage.publish(ways, 1)
        stage.cluster.run()
        assert stage.cluster["n3"].node.counters.publishers_paused == 0
    stage.settle()
    assert stage.reader.payloads() == [b"%d" % number for number in range(1, 13)]


def test_messages_of_another_qos_do_not_wait() -> None:
    stage = Stage("n1", False)
    stage.cluster.held = {("n1", "n2")}
    stage.publish("p", 1)
    stage.publish("dd", 0)
    stage.cluster.run()
    assert stage.reader.payloads() == [b"2", b"3"]
    stage.settle()
    assert stage.reader.payloads() == [b"1"]


def test_what_waits_when_the_client_goes_is_published() -> None:
    stage = Stage("n1", True)
    stage.cluster.held = {("n1", "n2")}
    stage.publish("pd", 1)
    stage.cluster.run()
    assert stage.cluster["n3"].node.counters.publishers_paused == 1
    stage.client.lose()
    stage.settle()
    assert sorted(stage.reader.payloads()) == [b"1", b"2"]
    assert stage.cluster["n3"].node.counters.publishers_paused == 0


@pytest.mark.parametrize("ways", ["dp", "pd"])
def test_the_order_holds_when_the_leader_of_the_session_changes(ways: str) -> None:
    cluster = SimulatedCluster(4, replicas=2, partitions=PARTITIONS)
    view = cluster["n1"].cluster_node.view
    assert view is not None
    isr = view.replicas
    ours, theirs = next((p, q) for p in range(PARTITIONS) for q in range(PARTITIONS) if isr[q][0] not in isr[p])
    (first, second), there = isr[ours], isr[theirs][0]
    (here,) = [name for name in cluster.sites if name not in (first, second, there)]
    cluster.hand_log_to(second)
    homes = {hash64(b"c%d" % number) % PARTITIONS: f"c{number}" for number in range(999)}
    reader = cluster[there].client(homes[theirs])
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    client = cluster[here].client(homes[ours])
    client.connect(session_expiry=EVER)
    cluster.held = {(here if ways == "dp" else first, there)}
    for number, way in enumerate(ways, 1):
        pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(number))]
        named = properties(user_properties=pairs) if way == "p" else None
        client.send(Publish(b"t", b"%d" % number, 1, False, False, number, named))
        cluster.advance(SECOND // 100)
        if number == 1:
            cluster.hand_partition_to(ours, second)
            cluster.advance(SECOND // 10)
            assert cluster[second].node._state.leads[ours]
    cluster.held = set()
    cluster.advance(3 * SECOND)
    assert reader.payloads() == [b"1", b"2"]


def test_the_later_of_two_retained_messages_stays_when_the_first_one_names_a_producer() -> None:
    """[A8] Both are published by the node of the client, which leads its session, and have another QoS."""
    stage = Stage("n3", True)
    cluster = stage.cluster
    topic = cluster["n2"].names_led("t")[0].encode()
    cluster["n3"].hold_writes()
    named = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])
    stage.client.send(Publish(topic, b"1", 1, True, False, 1, named), Publish(topic, b"2", 0, True))
    cluster.advance(SECOND // 10)
    stage.settle()
    late = cluster["n1"].client("late")
    late.connect()
    late.subscribe(topic.decode(), qos=1)
    assert late.payloads() == [b"2"]
