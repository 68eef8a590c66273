"""Links that carry less than is sent: everybody keeps its lease, and publishers are slowed before data becomes old."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import Ack, Publish
from folkmoot.node.cluster_node import Inbox
from folkmoot.peer.kind import KIND_END
from folkmoot.turn.overload import LEVEL_MAX
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8
MBIT = 1_000_000 // 8


def assert_calm(cluster: SimulatedCluster, controller: str) -> None:
    assert cluster.controller().name == controller
    for site in cluster.live():
        assert not site.node.silence(site.steady_ns()), f"{site.name} has lost its lease"
        assert not {"lease_over", "peer_too_slow", "peer_down", "view_excluded"} & set(site.kinds())


def test_leases_hold_while_seconds_of_data_wait_for_the_links() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
    controller = cluster.controller().name
    cluster.advance(SECOND)
    cluster.rate = 20 * MBIT
    for site in cluster.live():
        peers = site.cluster_node.peers
        for other in cluster.live():
            if other is not site:
                peers.send(other.name, KIND_END - 1, bytes(5_000_000))  # nobody knows the kind
                for _ in range(100):
                    peers.send(other.name, KIND_END - 1, bytes(50_000))
    for _ in range(380):
        cluster.advance(10 * MILLISECOND)
        assert_calm(cluster, controller)
    assert all(link.backlog_bytes() > 100_000 for site in cluster.live() for link in site.cluster_node.peers.links())
    cluster.advance(SECOND)
    assert all(link.backlog_bytes() < 1000 for site in cluster.live() for link in site.cluster_node.peers.links())
    assert_calm(cluster, controller)


def test_leases_hold_while_no_data_is_read_because_too_much_waits() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
    controller = cluster.controller().name
    cluster.advance(SECOND)
    for site in cluster.live():
        for other in cluster.live():
            if other is not site:
                site.cluster_node.peers.set_full(other.name, True)
                site.cluster_node.peers.send(other.name, KIND_END - 1, b"unread")
    for _ in range(300):
        cluster.advance(10 * MILLISECOND)
        assert_calm(cluster, controller)
    assert all(link.is_full for site in cluster.live() for link in site.cluster_node.peers.links())


def test_a_change_of_the_view_handles_little_of_what_was_not_read() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
    here, there = cluster.controller(), next(site for site in cluster.live() if site is not cluster.controller())
    here.cluster_node.peers.set_full(there.name, True)
    for _ in range(200):
        there.cluster_node.peers.send(here.name, KIND_END - 1, bytes(50_000))
    cluster.advance(100 * MILLISECOND)
    node = here.cluster_node
    inbox = node._inboxes[there.name] = Inbox(there.name)
    inbox.turn, inbox.left = node.state.work.turn, 0  # the steps of this turn are spent
    inbox.put(KIND_END - 1, b"last")
    node.step()
    assert 0 < len(inbox.messages) < 30
    for _ in range(30):
        cluster.advance(10 * MILLISECOND)
    assert all(not link.is_full for link in node.peers.links())
    assert all(link.backlog_bytes() < 1000 for link in there.cluster_node.peers.links())
    assert inbox.is_empty()


def longest_us(cluster: SimulatedCluster) -> int:
    """Return how long the oldest data waits for a link."""
    links = [link for site in cluster.live() for link in site.cluster_node.peers.links()]
    return max([cluster.now - link.data.waits_since_us(cluster.now) for link in links])


def test_publishers_are_slowed_before_data_is_older_than_an_election_lasts() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, split_policy="majority")
    controller = cluster.controller().name
    for number in range(PARTITIONS):
        sleeper = cluster["n1"].client(f"sleeper{number}")
        sleeper.connect(clean_start=False, session_expiry=EVER)
        sleeper.subscribe(f"t/{number}", qos=1)
        sleeper.disconnect()
    publishers = [cluster[f"n{1 + number % 3}"].client(f"p{number}") for number in range(60)]
    for publisher in publishers:
        publisher.connect()
    cluster.rate = 50 * MBIT
    reached = longest = sent = 0
    for _ in range(150):
        for publisher in publishers:
            for _ in range(5):
                if publisher.paused or len(publisher._unread) > 20_000:
                    break
                body = b"%d " % sent + bytes(4000)
                publisher.send(Publish(b"t/%d" % (sent % PARTITIONS), body, 1, packet_id=publisher.packet_id()))
                sent += 1
        cluster.advance(10 * MILLISECOND)
        reached = max(reached, *[site.cluster_node.state.overload for site in cluster.live()])
        longest = max(longest, longest_us(cluster))
        assert_calm(cluster, controller)
    assert reached == LEVEL_MAX
    assert longest < 400 * MILLISECOND
    cluster.rate = 0
    cluster.advance(5 * SECOND)
    acks = [ack for publisher in publishers for ack in publisher.receive() if isinstance(ack, Ack)]
    assert len(acks) == sent
    assert [site.cluster_node.state.overload for site in cluster.live()] == [0, 0, 0]


def test_a_node_that_is_cut_off_does_not_count_as_a_slow_link() -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS, silence_us=60 * SECOND, split_policy="majority")
    cluster.rate = 50 * MBIT
    cluster.advance(SECOND)
    cluster.cut("n3", "n1", "n2")
    peers = cluster["n1"].cluster_node.peers
    levels = []
    for number in range(100):
        for _ in range(1 if number < 50 else 0):
            peers.send("n3", KIND_END - 1, bytes(20_000))
        cluster.advance(10 * MILLISECOND)
        levels.append(cluster["n1"].cluster_node.state.overload)
    assert longest_us(cluster) > 500 * MILLISECOND
    assert levels[80:] == [0] * 20, "it counts as such only until nothing is heard of it"
