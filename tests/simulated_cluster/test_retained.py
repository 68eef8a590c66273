"""Retained messages in a cluster: every subscriber gets all of them, at whatever node, whoever leads them (A8)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Subscribe
from folkmoot.store import key as keys
from folkmoot.store.key import kind_of
from folkmoot.store.message import decode_message
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

COUNT = 140


def fill(cluster: SimulatedCluster, count: int = COUNT) -> Peer:
    """Retain `count` messages on as many topics; return their publisher."""
    peer = cluster["n1"].client("filler")
    peer.connect()
    for number in range(count):
        peer.publish(f"r/{number % 7}/{number}", b"%d" % number, qos=1, retain=True)
    return peer


def subscriber(site: Site, client_id: str, *, lasting: bool) -> Peer:
    peer = site.client(client_id)
    peer.resume() if lasting else peer.connect()
    return peer


def values(peer: Peer) -> list[int]:
    return sorted(int(payload) for payload in peer.payloads())


@pytest.mark.parametrize(("nodes", "replicas"), [(3, 1), (3, 2), (5, 1), (5, 2), (3, 3)])
def test_all_arrive_once_at_every_node(nodes: int, replicas: int) -> None:
    cluster = SimulatedCluster(nodes, replicas=replicas)
    fill(cluster)
    for site in cluster.live():
        for lasting in (False, True):
            peer = subscriber(site, f"{site.name}-{lasting}", lasting=lasting)
            peer.subscribe("r/#", qos=1)
            assert values(peer) == list(range(COUNT))
            peer.subscribe("r/+/3", qos=0)
            peer.subscribe("r/4/4", qos=1)
            peer.subscribe("r/nothing", qos=1)
            assert values(peer) == [3, 4]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_small_window_gets_all_of_them(lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=1)
    fill(cluster)
    peer = cluster["n2"].client("slow")
    peer.connect(receive_max=3, session_expiry=100 if lasting else None)
    peer.subscribe("r/#", qos=1)
    assert values(peer) == list(range(COUNT))


def test_large_messages_come_in_many_pages() -> None:
    cluster = SimulatedCluster(3, replicas=1)
    source = cluster["n1"].client("filler")
    source.connect()
    for number in range(60):
        source.publish(f"r/{number}", b"%d" % number + b" " * 20_000, qos=1, retain=True)
    peer = subscriber(cluster["n3"], "reader", lasting=False)
    peer.subscribe("#", qos=1)
    assert values(peer) == list(range(60))


@pytest.mark.parametrize("replicas", [2, 3])
@pytest.mark.parametrize("victim", ["n1", "n2"])
@pytest.mark.parametrize("lasting", [False, True])
def test_a_leader_that_dies_in_the_middle_takes_none_with_it(replicas: int, victim: str, lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=replicas)
    fill(cluster)
    peer = cluster["n3"].client("reader", acks=False)
    peer.connect(receive_max=5, session_expiry=100 if lasting else None)
    peer.subscribe("r/#", qos=1)
    held = peer.publishes()
    assert len(held) == 5
    cluster[victim].kill()
    peer.acks = True
    for packet in held:
        peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
    cluster.advance(5 * SECOND)
    got = {int(packet.payload) for packet in held} | set(values(peer))
    assert got == set(range(COUNT))


def test_a_subscription_while_a_leader_is_away_gets_all_when_another_has_opened() -> None:
    cluster = SimulatedCluster(3, replicas=2)
    fill(cluster)
    peer = subscriber(cluster["n3"], "reader", lasting=False)
    cluster["n1"].kill()
    peer.send(Subscribe(1, [(b"r/#", 1)], None))
    cluster.advance(5 * SECOND)
    assert values(peer) == list(range(COUNT))


@pytest.mark.parametrize("lasting", [False, True])
def test_the_new_value_is_not_followed_by_the_old_one(lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=1)
    source = fill(cluster)
    peer = cluster["n2"].client("reader", acks=False)
    peer.connect(receive_max=2, session_expiry=100 if lasting else None)
    peer.subscribe("r/#", qos=1)
    held = peer.publishes()
    for number in range(0, COUNT, 10):
        source.publish(f"r/{number % 7}/{number}", b"%d" % (number + COUNT), qos=1, retain=True)
    peer.acks = True
    for packet in held:
        peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
    last: dict[bytes, int] = {}
    for packet in held + peer.publishes():
        value = int(packet.payload)
        assert value > last.get(packet.topic, -1), f"{packet.topic!r}: {value} after {last[packet.topic]}"
        last[packet.topic] = value
    assert sorted(last.values()) == sorted(number + COUNT * (number % 10 == 0) for number in range(COUNT))


@pytest.mark.parametrize("lasting", [False, True])
def test_the_others_come_although_a_partition_goes_away_in_the_middle_and_its_rest_comes_later(lasting: bool) -> None:
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority", limits={"page_rows": 4})
    near, far = cluster["n1"], cluster["n3"]
    leaders = near.cluster_node.fabric.leaders
    names = [f"r/{number}" for number in range(300)]
    by_partition = {gone: [name for name in names if hash64(name.encode()) % 8 == gone] for gone in range(8)}
    gone = next(partition for partition in range(8) if leaders[partition] == "n3")
    rest = {name for name in names if leaders[hash64(name.encode()) % 8] != "n3"}
    source = near.client("filler")
    source.connect()
    for name in names:
        source.publish(name, name.encode(), qos=1, retain=True)
    peer = near.client(near.names_led("reader")[0], acks=False)
    peer.connect(receive_max=2, session_expiry=EVER if lasting else None)
    peer.subscribe("r/#", qos=1)
    got: list[str] = []

    def take() -> int:
        """Acknowledge what has come."""
        packets = peer.publishes()
        got.extend(packet.payload.decode() for packet in packets)
        for packet in packets:
            peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
        return len(packets)

    while len(set(by_partition[gone]) & set(got)) < 6:
        assert take()
    far.kill()
    cluster.advance(5 * SECOND)
    while take():
        pass
    assert len(set(by_partition[gone]) - set(got)) > 6, "it went away in the middle"
    assert rest - set(got) == set()
    far.revive()
    cluster.settle()
    while take():
        pass
    assert sorted(got) == sorted(names), "each of them once"


def test_what_has_expired_is_not_sent_and_removed_by_its_leader() -> None:
    cluster = SimulatedCluster(3, replicas=2)
    source = cluster["n1"].client("filler")
    source.connect()
    for number in range(40):
        source.publish(f"r/{number}", b"%d" % number, qos=1, retain=True, message_expiry=10)
    cluster.advance(11 * SECOND)
    for site in cluster.live():
        peer = subscriber(site, site.name, lasting=False)
        peer.subscribe("r/#", qos=1)
        assert peer.payloads() == []
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == 0
    assert sum(site.node.counters.retained_expired for site in cluster.live()) == 40


@pytest.mark.parametrize("wait", [0, 1])
def test_what_was_delivered_live_does_not_come_again_as_retained_when_the_leader_dies(wait: int) -> None:
    cluster = SimulatedCluster(3, replicas=3)
    source = fill(cluster)
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    leaders = cluster_node.fabric.leaders
    name = next(f"r{n}" for n in range(99) if leaders[hash64(b"r%d" % n) % cluster.partitions] == "n3")
    peer = cluster["n2"].client(name, acks=False)
    peer.connect(receive_max=3, session_expiry=100)
    peer.subscribe("r/#", qos=1)
    held = peer.publishes()
    fresh = {number: number + COUNT for number in range(0, COUNT, 9)}
    for number, value in fresh.items():
        source.publish(f"r/{number % 7}/{number}", b"%d" % value, qos=1, retain=True)
    cluster.advance(wait * SECOND)
    cluster["n3"].kill()
    peer.acks = True
    for packet in held:
        peer.raw(b"\x40\x02" + packet.packet_id.to_bytes(2, "big"))
    cluster.advance(5 * SECOND)
    came = [int(packet.payload) for packet in held] + values(peer)
    assert len(came) == len(set(came)), "twice"
    assert set(fresh.values()) <= set(came)
    assert set(range(COUNT)) - set(fresh) <= set(came)


def retained_rows(site: Site) -> set[bytes]:
    """Return the topics of the retained rows in all copies that a node has."""
    rows = site.store.scan(b"", b"\xff" * 8, 100_000)
    rows = [row for row in rows if row[0][:2] != b"\xff\xff" and kind_of(row[0]) == keys.RETAINED]
    return {decode_message(value, VERSION_BYTES).topic for _, value in rows}


def fill_expiring(cluster: SimulatedCluster) -> None:
    source = cluster["n1"].client("filler")
    source.connect()
    for number in range(40):
        source.publish(f"r/{number}", b"%d" % number, qos=1, retain=True, message_expiry=10)
    source.publish("stays", b"x", qos=1, retain=True)


def test_what_has_expired_is_gone_from_all_copies_though_nobody_reads_it() -> None:
    cluster = SimulatedCluster(3, replicas=2)
    fill_expiring(cluster)
    cluster.advance(9 * SECOND)
    assert sum(len(retained_rows(site)) for site in cluster.live()) == 41 * 2
    cluster.advance(SECOND + 61 * SECOND)
    assert [retained_rows(site) - {b"stays"} for site in cluster.live()] == [set()] * 3
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == 1
    assert sum(site.node.counters.retained_expired for site in cluster.live()) == 40


@pytest.mark.parametrize("after", [5, 30])
def test_a_new_leader_removes_what_has_expired(after: int) -> None:
    """It knows of them from the rows that it reads, whether they expire before or after the change of leaders."""
    cluster = SimulatedCluster(3, replicas=3)
    fill_expiring(cluster)
    cluster.advance(after * SECOND)
    cluster["n2"].kill()
    cluster.settle()
    cluster.advance(75 * SECOND)
    assert [retained_rows(site) for site in cluster.live()] == [{b"stays"}] * 2
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == 1


def test_a_leader_that_comes_and_goes_leaves_nothing_behind() -> None:
    """Partitions move while they are swept, and back."""
    cluster = SimulatedCluster(3, replicas=2, limits={"page_rows": 2})
    fill_expiring(cluster)
    for victim in ("n1", "n2", "n3"):
        cluster.advance(7 * SECOND)
        cluster[victim].kill()
        cluster.settle()
        cluster[victim].revive()
        cluster.settle()
    cluster.advance(75 * SECOND)
    assert [retained_rows(site) - {b"stays"} for site in cluster.live()] == [set()] * 3
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == 1


@pytest.mark.parametrize("clears_lone", [True, False])
@pytest.mark.parametrize("clears_last", [True, False])
def test_of_a_message_and_a_clear_of_two_sides_the_later_counts_though_one_side_had_nothing(
    clears_lone: bool, clears_last: bool
) -> None:
    """The side that clears does not know of the message: that there was nothing to clear does not make it void."""
    cluster = SimulatedCluster(3)
    lone = cluster["n3"]
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    assert lone.node.silence(lone.steady_ns()) == "", "it has forked"
    clears, keeps = (lone, cluster["n1"]) if clears_lone else (cluster["n1"], lone)
    steps = [(keeps, b"x"), (clears, b"")]
    for number, (site, payload) in enumerate(steps if clears_last else steps[::-1]):
        peer = site.client(f"p{number}")
        peer.connect()
        assert peer.publish("t", payload, qos=1, retain=True) < 0x80
        cluster.advance(SECOND)
    cluster.heal()
    cluster.settle()
    cluster.advance(5 * SECOND)
    expected = set() if clears_last else {b"t"}
    assert [retained_rows(site) for site in cluster.live()] == [expected] * 3
    assert sum(site.node.counters.retained_messages for site in cluster.live()) == len(expected)
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe("t", qos=1)
    assert reader.payloads() == [b"x"] * len(expected)


@pytest.mark.parametrize("by_lone", [True, False])
def test_a_message_outlives_the_expiry_of_the_one_before_it_on_the_other_side(by_lone: bool) -> None:
    """That one expires later than the new one was published: nobody has cleared the topic."""
    cluster = SimulatedCluster(3)
    first = cluster["n1"].client("first")
    first.connect()
    first.publish("t", b"old", qos=1, retain=True, message_expiry=30)
    cluster.cut("n3", "n1", "n2")
    cluster.advance(10 * SECOND)
    peer = (cluster["n3"] if by_lone else cluster["n1"]).client("second")
    peer.connect()
    assert peer.publish("t", b"new", qos=1, retain=True) < 0x80
    cluster.advance(120 * SECOND)
    assert sum(site.node.counters.retained_expired for site in cluster.live()) == 1
    cluster.heal()
    cluster.settle()
    cluster.advance(5 * SECOND)
    assert [retained_rows(site) for site in cluster.live()] == [{b"t"}] * 3
    reader = cluster["n2"].client("reader")
    reader.connect()
    reader.subscribe("t", qos=1)
    assert reader.payloads() == [b"new"]
