"""Nodes of a cluster compare their clocks: one that is wrong expires nothing, moves nobody, and says so."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import HOUR, SECOND
from folkmoot.kernel.node_clock import NodeClock
from folkmoot.mqtt.packet import Will
from folkmoot.node.clock_sharing import ASKED_MAX
from folkmoot.streams.config import StreamConfig
from tests.harness.peer import properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

DAY = 24 * HOUR
STEPS = pytest.mark.parametrize("step_us", [DAY, -DAY, 3650 * DAY])


def clock_of(site: Site) -> NodeClock:
    return site.cluster_node.state.clock


def set_wall(site: Site, ahead_us: int) -> None:
    """Set the wall clock of a node to so much before or after the right time."""
    site.node.set_wall(site.cluster.now + ahead_us, site.cluster.now)
    site.run()


@STEPS
@pytest.mark.parametrize("nodes", [2, 3])
def test_one_wrong_clock_ends_nothing_anywhere(nodes: int, step_us: int) -> None:
    cluster = SimulatedCluster(nodes, streams=[StreamConfig("s", b"#", 1, HOUR, 0)])
    peers = []
    for site in cluster.live():
        for name in site.names_led("c")[:2]:
            peer = site.client(name)
            will = Will(b"will", b"x", properties=properties(will_delay=120))
            peer.connect(clean_start=False, session_expiry=120, will=will)
            peer.subscribe("t", qos=1)
            peer.lose()
            peers.append(peer)
    cluster.advance(5 * SECOND)
    set_wall(cluster["n1"], step_us)
    for site in cluster.live():
        publisher = site.client(f"publisher-{site.name}")
        publisher.connect()
        publisher.publish("t", site.name.encode(), qos=1, message_expiry=120)
    cluster.advance(12 * SECOND)
    expected = sorted(site.name.encode() for site in cluster.live())
    for peer in peers:
        connack = peer.connect(clean_start=False, session_expiry=120)
        assert connack.session_present, peer
        assert sorted(packet.payload for packet in peer.publishes()) == expected
    for site in cluster.live():
        counters = site.node.counters
        assert (counters.sessions_expired, counters.wills_published, counters.overload) == (0, 0, 0)
        assert counters.stream_trimmed_records == 0
        assert counters.peer_losses == 0
        assert abs(clock_of(site).time - cluster.now) < SECOND


@STEPS
def test_the_node_with_the_wrong_clock_says_so_until_it_is_right(step_us: int) -> None:
    cluster = SimulatedCluster(3)
    cluster.advance(5 * SECOND)
    assert [site.kinds().count("clock_wrong") for site in cluster.live()] == [0, 0, 0]
    set_wall(cluster["n1"], step_us)
    cluster.advance(5 * SECOND)
    assert [site.kinds().count("clock_wrong") for site in cluster.live()] == [1, 0, 0]
    assert [site.kinds().count("clocks_disagree") for site in cluster.live()] == [0, 0, 0]
    counters = cluster["n1"].node.counters
    assert counters.clock_wrong == 1
    assert counters.clock_offset_us == pytest.approx(step_us, abs=SECOND)
    set_wall(cluster["n1"], 0)
    cluster.advance(5 * SECOND)
    assert cluster["n1"].kinds().count("clock_right") == 1
    assert counters.clock_wrong == 0


def test_of_two_nodes_that_disagree_both_say_so() -> None:
    cluster = SimulatedCluster(2)
    cluster.advance(5 * SECOND)
    set_wall(cluster["n2"], DAY)
    cluster.advance(5 * SECOND)
    assert [site.kinds().count("clocks_disagree") for site in cluster.live()] == [1, 1]
    assert [site.kinds().count("clock_wrong") for site in cluster.live()] == [0, 1]
    set_wall(cluster["n2"], 0)
    cluster.advance(5 * SECOND)
    assert [site.kinds().count("clocks_agree") for site in cluster.live()] == [1, 1]


def test_a_node_that_is_left_alone_with_a_wrong_clock_keeps_the_time_of_the_cluster() -> None:
    cluster = SimulatedCluster(3)
    cluster.advance(5 * SECOND)
    set_wall(cluster["n1"], DAY)
    cluster.advance(5 * SECOND)
    cluster["n2"].kill()
    cluster["n3"].kill()
    cluster.advance(60 * SECOND)
    assert abs(clock_of(cluster["n1"]).time - cluster.now) < SECOND
    cluster["n2"].revive()
    cluster["n3"].revive()
    cluster.settle()
    assert abs(clock_of(cluster["n2"]).time - cluster.now) < SECOND


def test_a_node_asks_a_few_others_and_is_asked_by_as_many() -> None:
    count = ASKED_MAX + 3
    cluster = SimulatedCluster(count, replicas=1, partitions=1)
    cluster.advance(5 * SECOND)
    asked = {site.name: 0 for site in cluster.live()}
    for site in cluster.live():
        opinions = clock_of(site).opinions()
        assert len(opinions) == ASKED_MAX
        for node_id in opinions:
            asked[node_id] += 1
    assert set(asked.values()) == {ASKED_MAX}
