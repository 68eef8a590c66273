"""Replays in a cluster: of stream partitions that other nodes lead, at whatever node the reader is (A9)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import PUBACK, Ack, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from folkmoot.streams.config import StreamConfig
from folkmoot.turn.fabric import Fabric
from tests.harness import simulated_cluster
from tests.harness.peer import Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

WIDE = StreamConfig("wide", b"w/#", 6)
EVERYWHERE = StreamConfig("wide", b"w/#", 64)  # every node leads some of its partitions
BRIEF = StreamConfig("brief", b"b/#", 4, retention_us=5 * SECOND)
TOPICS = 12


def fill(cluster: SimulatedCluster, count: int, topic: str = "w", first: int = 0) -> Peer:
    """Publish `count` numbers on a dozen topics; return their publisher."""
    peer = cluster["n1"].client("filler")
    peer.connect()
    for number in range(first, first + count):
        peer.publish(f"{topic}/{number % TOPICS}", b"%d" % number, qos=1)
    return peer


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, replicas=2, streams=[WIDE, BRIEF])


def reader(site: Site, client_id: str = "r", *, lasting: bool = False, window: int | None = None) -> Peer:
    peer = site.client(client_id)
    peer.connect(receive_max=window, session_expiry=1000 if lasting else None)
    return peer


def values(peer: Peer) -> list[int]:
    """Take what came; records of one stream partition must come in order and once."""
    ends: dict[str, int] = {}
    found = []
    for packet in peer.publishes():
        assert packet.properties is not None
        names = dict(packet.properties.user_properties)
        partition, offset = names["folkmoot-partition"], int(names["folkmoot-offset"])
        assert offset >= ends.get(partition, 0), f"{partition}: {offset} after {ends[partition]}"
        ends[partition] = offset + 1
        found.append(int(packet.payload))
    return sorted(found)


@pytest.mark.parametrize("lasting", [False, True])
def test_every_node_replays_the_whole_stream_and_goes_on(cluster: SimulatedCluster, lasting: bool) -> None:
    source = fill(cluster, 100)
    peers = [reader(site, site.name, lasting=lasting) for site in cluster.live()]
    for peer in peers:
        assert peer.subscribe("$stream/wide/earliest/#", qos=1) == [1]
        assert values(peer) == list(range(100))
    for number in range(100, 140):
        source.publish(f"w/{number % TOPICS}", b"%d" % number, qos=1)
    for peer in peers:
        assert values(peer) == list(range(100, 140))


def test_what_comes_is_there_within_a_tenth_of_a_second(cluster: SimulatedCluster) -> None:
    source = fill(cluster, 1)
    peer = reader(cluster["n2"])
    peer.subscribe("$stream/wide/latest/#", qos=1)
    cluster.advance(30 * SECOND)
    for number in range(TOPICS):
        source.send(Publish(b"w/%d" % number, b"%d" % number, 1, packet_id=number + 100))
    cluster.advance(SECOND // 10)
    assert values(peer) == list(range(TOPICS))


def test_latest_begins_with_what_comes_after_suback(cluster: SimulatedCluster) -> None:
    source = fill(cluster, 50)
    for site in cluster.live():
        peer = reader(site, site.name)
        assert peer.subscribe("$stream/wide/latest/#", qos=1) == [1]
        assert values(peer) == []
        for number in range(TOPICS):
            source.publish(f"w/{number}", b"%d" % number, qos=1)
        assert values(peer) == list(range(TOPICS))


def test_an_offset_and_a_time_begin_there_in_every_partition(cluster: SimulatedCluster) -> None:
    fill(cluster, 60)
    cluster.advance(20 * SECOND)
    fill(cluster, 60, first=60)
    whole = reader(cluster["n3"], "whole")
    whole.subscribe("$stream/wide/earliest/#", qos=1)
    ends: dict[str, int] = {}
    for packet in whole.publishes():
        assert packet.properties is not None
        names = dict(packet.properties.user_properties)
        ends[names["folkmoot-partition"]] = int(names["folkmoot-offset"]) + 1
    for site in cluster.live():
        peer = reader(site, site.name)
        peer.subscribe("$stream/wide/5/#", qos=1)
        assert len(values(peer)) == sum(max(0, end - 5) for end in ends.values())
        peer.subscribe("$stream/wide/2020-09-13T12:26:55Z/#", qos=1)  # the cluster begins at 12:26:40
        assert values(peer) == list(range(60, 120))


def test_an_offset_that_is_gone_ends_the_subscription_and_says_why(cluster: SimulatedCluster) -> None:
    fill(cluster, 60, "b")
    cluster.advance(25 * SECOND)
    fill(cluster, 5, "b")
    refused = ended = 0
    for site in cluster.live():
        peer = reader(site, site.name)
        if peer.subscribe("$stream/brief/0/#", qos=1) == [0x8F]:
            refused += 1
        else:
            cluster.advance(SECOND)
            peer.expect_close(0x83)
            ended += 1
    assert refused + ended == 3


def test_retention_that_overtakes_a_reader_is_said(cluster: SimulatedCluster) -> None:
    source = fill(cluster, 200, "b")
    peer = cluster["n2"].client("r", acks=False)
    peer.connect(receive_max=2)
    peer.subscribe("$stream/brief/earliest/#", qos=1)
    first = peer.publishes()
    cluster.advance(25 * SECOND)
    source.publish("b/1", b"0", qos=1)
    peer.acks = True
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in first])
    cluster.advance(SECOND)
    peer.expect_close(0x83)


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("victim", ["n1", "n2"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_leader_that_dies_in_the_middle_takes_no_record_with_it(replicas: int, victim: str, lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=replicas, streams=[WIDE])
    fill(cluster, 100)
    peer = cluster["n3"].client("r", acks=False)
    peer.connect(receive_max=4, session_expiry=1000 if lasting else None)
    peer.subscribe("$stream/wide/earliest/#", qos=1)
    held = peer.publishes()
    assert len(held) == 4
    cluster[victim].kill()
    peer.acks = True
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in held])
    cluster.settle()
    source = cluster["n3"].client("another")
    source.connect()
    for number in range(100, 112):
        source.publish(f"w/{number}", b"%d" % number, qos=1)
    cluster.advance(SECOND)
    assert {int(packet.payload) for packet in held} | {*values(peer)} == set(range(112))


def test_a_lasting_reader_goes_on_at_another_node(cluster: SimulatedCluster) -> None:
    fill(cluster, 100)
    peer = cluster["n1"].client("r", acks=False)
    peer.connect(receive_max=3, session_expiry=1000)
    peer.subscribe("$stream/wide/earliest/#", qos=1)
    held = peer.publishes()
    peer.send(*[Ack(PUBACK, packet.packet_id) for packet in held])
    more = peer.publishes()
    peer.lose()
    again = cluster["n2"].client("r")
    again.connect(clean_start=False, session_expiry=1000)
    got = [int(packet.payload) for packet in held] + values(again)
    assert sorted({*got, *[int(packet.payload) for packet in more]}) == list(range(100))
    assert len(got) == len({*got}), "what was acknowledged does not come again"


def test_latest_waits_for_a_leader_that_is_away(cluster: SimulatedCluster) -> None:
    fill(cluster, 24)
    peer = reader(cluster["n3"], lasting=False)
    cluster.cut("n2", "n1", "n3")
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)], None))
    cluster.advance(SECOND // 2)
    assert peer.inbox == [], "it is not known yet where that begins"
    cluster["n2"].kill()
    cluster.settle()
    assert peer.take(Suback, 9).codes == [1]
    source = cluster["n3"].client("another")
    source.connect()
    for number in range(12):
        source.publish(f"w/{number}", b"%d" % number, qos=1)
    cluster.advance(SECOND)
    assert values(peer) == list(range(12))


def serves(cluster: SimulatedCluster, peer: Peer) -> bool:
    """Whether a client gets the answers to a few packets within seconds."""
    topic = b"t/" + peer.client_id.encode()
    peer.send(Subscribe(71, [(topic, 1)]), Publish(topic, b"m", 1, packet_id=72), Unsubscribe(73, [topic]))
    cluster.advance(3 * SECOND)
    return {type(packet) for packet in peer.receive()} == {Suback, Publish, Ack, Unsuback}


@pytest.mark.parametrize("policy", ["majority", "available"])
def test_latest_is_refused_while_a_partition_has_no_leader_and_others_are_served(policy: str) -> None:
    cluster = SimulatedCluster(3, replicas=1, streams=[EVERYWHERE], split_policy=policy)
    site = cluster["n1"]
    other = reader(site, site.names_led("v")[0], lasting=True)
    cluster["n3"].kill()
    cluster.advance(10 * SECOND)
    for lasting in (False, True):
        peer = reader(site, site.names_led("r")[0], lasting=lasting)
        peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1), (b"plain", 1), (b"$stream/wide/earliest/#", 1)]))
        cluster.advance(SECOND)
        answer = peer.take(Suback, 9)
        assert answer.codes == [0x83, 1, 1]
        assert answer.properties is not None
        assert "of the stream has no copies in sync here, or too few" in (answer.properties.reason or "")
        assert serves(cluster, other)
        peer.disconnect()


@pytest.mark.parametrize("lasting", [False, True])
def test_latest_is_refused_when_the_leader_that_was_asked_does_not_come_back(lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=1, streams=[EVERYWHERE])
    site = cluster["n1"]
    other = reader(site, site.names_led("v")[0], lasting=True)
    peer = reader(site, site.names_led("r")[0], lasting=lasting)
    cluster["n3"].up = False
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]))
    cluster.advance(SECOND // 2)
    assert peer.inbox == []
    cluster.advance(10 * SECOND)
    assert peer.take(Suback, 9).codes == [0x83]
    assert serves(cluster, other)


def test_latest_is_refused_while_too_few_copies_are_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_cluster, "SECOND", 30 * SECOND)  # copies are not replaced soon, as by default
    cluster = SimulatedCluster(3, replicas=2, min_in_sync=2, streams=[EVERYWHERE])
    site = cluster["n1"]
    other = reader(site, site.names_led("v")[0])
    peer = reader(site, site.names_led("r")[0])
    cluster["n3"].kill()
    cluster.advance(2 * SECOND)
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]))
    cluster.advance(SECOND)
    assert peer.take(Suback, 9).codes == [0x83]
    other.send(Subscribe(1, [(b"plain", 1)]))
    cluster.advance(SECOND)
    assert other.take(Suback, 1).codes == [1]


def delay(site: Site, host: str) -> list[int]:
    """Have a node take stream partitions that another one leads for not opened yet; return these partitions."""
    fabric = fabric_of(site)
    partitions = sorted({log.store_partition for log in site.node.streams.streams[0].logs})
    delayed = [partition for partition in partitions if fabric.leaders[partition] == host]
    assert delayed
    for partition in delayed:
        fabric.open[partition] = False
    return delayed


def fabric_of(site: Site) -> Fabric:
    assert site.node.cluster_node is not None
    return site.node.cluster_node.fabric


@pytest.mark.parametrize("where", ["here", "led here", "led elsewhere"])
def test_latest_that_waits_for_a_leader_holds_up_its_own_client_only(where: str) -> None:
    cluster = SimulatedCluster(3, replicas=2, streams=[EVERYWHERE])
    site, leader = cluster["n1"], cluster["n2" if where == "led elsewhere" else "n1"]
    other = reader(site, site.names_led("v")[0], lasting=True)
    peer = reader(site, leader.names_led("r")[0], lasting=where != "here")
    delayed = delay(leader, "n3")
    peer.send(Subscribe(9, [(b"before", 1), (b"$stream/wide/latest/#", 1)]), Unsubscribe(10, [b"before"]))
    for _ in range(3):
        assert serves(cluster, other)
        assert peer.receive() == []
    turns = leader.node._broker.state.work.turn
    cluster.advance(SECOND // 100)
    assert leader.node._broker.state.work.turn - turns < 10, "who waits takes no turns"
    for partition in delayed:
        fabric_of(leader).open[partition] = True
    leader.node._broker.feed.inquiries.opened()
    cluster.advance(SECOND)
    answer, later = peer.receive()
    assert isinstance(answer, Suback)
    assert isinstance(later, Unsuback)
    assert (answer.codes, later.codes) == ([1, 1], [0])
    for number in range(TOPICS):
        other.publish(f"w/{number}", b"%d" % number, qos=1)
    cluster.advance(SECOND)
    assert values(peer) == list(range(TOPICS))


@pytest.mark.parametrize("where", ["here", "led here", "led elsewhere"])
def test_a_client_that_goes_while_latest_waits_leaves_nothing_behind(where: str) -> None:
    cluster = SimulatedCluster(3, replicas=2, streams=[EVERYWHERE])
    site, leader = cluster["n1"], cluster["n2" if where == "led elsewhere" else "n1"]
    witness = reader(cluster["n3"], "witness")
    witness.subscribe("said", qos=1)
    peer = reader(site, leader.names_led("r")[0], lasting=where != "here")
    delay(leader, "n3")
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]), Publish(b"said", b"last", 1, packet_id=5))
    cluster.advance(SECOND // 10)
    broker = leader.node._broker
    peer.lose()
    cluster.advance(SECOND)
    assert witness.payloads() == [b"last"], "what it sent before it went counts"
    assert len(broker.feed.feeds) == len(broker.feed.inquiries) == len(broker.state.work) == 0
    assert not broker.feed.inquiries._waiting
    session = broker.state.sessions.get(peer.client_id)
    assert session is None if where == "here" else session is not None and session.connection is None


@pytest.mark.parametrize("there", [("n2", "n3"), ("n1", "n2"), ("n2", "n1")])
def test_latest_that_waits_goes_to_the_next_leader_of_the_session(there: tuple[str, str]) -> None:
    """A client at the next leader itself connects and asks again, if a partition is not open there either."""
    before, after = there
    cluster = SimulatedCluster(3, replicas=3, streams=[EVERYWHERE])
    site, leader = cluster["n1"], cluster[before]
    peer = reader(site, leader.names_led("r")[0], lasting=True)
    delayed = delay(leader, "n3")
    peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]))
    cluster.advance(SECOND // 10)
    assert peer.receive() == []
    cluster.hand_partition_to(site.node._state.partition_of(peer.client_id.encode()), after)
    cluster.advance(5 * SECOND)
    for partition in delayed:
        fabric_of(leader).open[partition] = True
    cluster.settle()
    if after == "n1":
        peer.expect_close(0x89)
        peer.connect(clean_start=False, session_expiry=1000)
        peer.send(Subscribe(9, [(b"$stream/wide/latest/#", 1)]))
        cluster.advance(SECOND)
    assert peer.take(Suback, 9).codes == [1]
    source = reader(site, "source")
    for number in range(TOPICS):
        source.publish(f"w/{number}", b"%d" % number, qos=1)
    cluster.advance(SECOND)
    assert values(peer) == list(range(TOPICS))
    assert len(leader.node._broker.state.work) == 0


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_an_answer_is_awaited_while_another_leader_opens(start: str) -> None:
    cluster = SimulatedCluster(3, replicas=2, streams=[EVERYWHERE])
    fill(cluster, 24)
    site = cluster["n3"]
    delayed = delay(site, "n1")
    peer = reader(site)
    cluster.cut("n2", "n1", "n3")
    peer.send(Subscribe(9, [(b"$stream/wide/%s/#" % start.encode(), 1)]))
    cluster.advance(SECOND // 10)
    for partition in delayed:
        fabric_of(site).open[partition] = True
    site.node._broker.feed.inquiries.opened()
    cluster.advance(SECOND // 10)
    cluster.heal()
    cluster.advance(SECOND)
    assert "peer_nonsense" not in site.kinds()
    assert peer.take(Suback, 9).codes == [1]
    assert values(peer) == (list(range(24)) if start == "earliest" else [])


def test_a_subscription_that_ends_leaves_no_question_behind(cluster: SimulatedCluster) -> None:
    fill(cluster, 24)
    for site in cluster.live():
        peer = reader(site, site.name, lasting=True)
        peer.subscribe("$stream/wide/earliest/#", "#", qos=1)
        values_before = len(peer.publishes())
        assert values_before == 24
        peer.unsubscribe("$stream/wide/earliest/#", "#")
        peer.disconnect()
    cluster.advance(SECOND)
    for site in cluster.live():
        assert len(site.node._broker.feed.feeds) == 0
        assert len(site.node._broker.feed.inquiries) <= WIDE.partitions  # only the ends of partitions, once per node


def one_led_by(cluster: SimulatedCluster, name: str) -> int:
    """Return the number of a stream with one partition, which that node leads."""
    streams = cluster["n1"].node.streams.streams
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    return next(n for n in range(len(streams)) if leaders[streams[n].logs[0].store_partition] == name)


@pytest.mark.parametrize("lasting", [False, True])
def test_a_replay_at_the_end_goes_on_when_its_only_partition_moves_to_a_node_that_has_come_back(lasting: bool) -> None:
    cluster = SimulatedCluster(3, streams=[StreamConfig(f"s{number}", b"t/%d" % number, 1) for number in range(9)])
    streams = cluster["n1"].node.streams.streams
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    number = one_led_by(cluster, "n3")
    cluster["n3"].kill()
    cluster.settle()
    site = cluster[cluster_node.fabric.leaders[streams[number].logs[0].store_partition]]
    peer = reader(site, lasting=lasting)
    assert peer.subscribe(f"$stream/s{number}/earliest/#", qos=1) == [1]
    source = cluster["n1"].client("source")
    source.connect()
    source.publish(f"t/{number}", b"1", qos=1)
    assert values(peer) == [1]
    cluster["n3"].revive()
    cluster.settle()
    assert cluster_node.fabric.leaders[streams[number].logs[0].store_partition] == "n3"
    source.publish(f"t/{number}", b"2", qos=1)
    cluster.advance(SECOND)
    assert values(peer) == [2]


@pytest.mark.parametrize("lasting", [False, True])
def test_what_was_held_without_a_majority_is_replayed_when_the_others_are_back(lasting: bool) -> None:
    cluster = SimulatedCluster(3, partitions=1, streams=[StreamConfig("one", b"t", 1)])
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    site = cluster[cluster_node.fabric.leaders[0]]
    others = [other for other in cluster.live() if other is not site]

    def read() -> list[int]:
        """Return what a reader gets that comes again: what is new to a lasting one, everything for another."""
        peer = site.client("r")
        if not peer.connect(clean_start=False, session_expiry=1000 if lasting else None).session_present:
            assert peer.subscribe("$stream/one/earliest/#", qos=1) == [1]
        cluster.advance(SECOND)
        found = values(peer)
        peer.disconnect()
        cluster.advance(SECOND)
        return found

    def publish(payload: bytes) -> None:
        source = site.client("source")
        source.connect()
        source.publish("t", payload, qos=1)
        source.disconnect()

    publish(b"1")
    assert read() == [1]
    for other in others:
        other.kill()
    cluster.settle()
    publish(b"2")
    assert read() == ([] if lasting else [1])
    for other in others:
        other.revive()
    cluster.settle(60 * SECOND)
    assert read() == ([2] if lasting else [1, 2])
