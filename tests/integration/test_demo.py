"""The parts of `make run` without Spark: three nodes, devices and a subscriber that go elsewhere, one return."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.client.streams import StreamClient
from folkmoot.demo.alert import Desk
from folkmoot.demo.cluster import Cluster
from folkmoot.demo.fleet import Fleet
from folkmoot.demo.flight import Event

COUNT = 600
ALERTS = 120


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def test_what_is_published_around_two_kills_is_in_the_stream_once(cluster: Cluster) -> None:
    begin_s = time.monotonic()
    fleet = Fleet(cluster.mqtt, 6)
    first, second, _ = cluster.nodes
    try:
        for number in range(COUNT):
            if number == COUNT // 3:
                first.kill()
            if number == 2 * COUNT // 3:
                first.begin()
                first.ready()
                assert cluster.await_whole(60.0)
                second.kill()
            fleet.publish(Event("", f"nyc/flights/JFK/AA/{number % 40}", b"%d" % number))
        fleet.settle()
    finally:
        fleet.close()
    assert fleet.published == fleet.acknowledged == COUNT
    assert fleet.refused == []
    assert fleet.reconnects >= 4  # two devices were on each node that died
    assert fleet.longest_pause_s(begin_s, time.monotonic()) < 60.0
    found = payloads(cluster)
    assert Counter(number for numbers in found.values() for number in numbers) == Counter(range(COUNT))
    assert all(numbers == sorted(numbers) for numbers in found.values())


def payloads(cluster: Cluster) -> dict[bytes, list[int]]:
    """What the nodes that live have in the stream, by topic."""
    client = StreamClient(cluster.urls)
    found: dict[bytes, list[int]] = defaultdict(list)
    for partition in range(client.describe("nyc").partitions):
        for entry in client.entries("nyc", partition, 0):
            found[entry.record.topic].append(int(entry.record.payload))
    client.close()
    return found


def test_a_subscriber_gets_what_is_published_around_two_kills_once(cluster: Cluster) -> None:
    fleet = Fleet(cluster.mqtt[2:], 2)
    desk = Desk(cluster.mqtt)
    try:
        desk.ready()
        for number in range(ALERTS):
            if number == ALERTS // 3:
                cluster.nodes[0].kill()
            if number == 2 * ALERTS // 3:
                cluster.nodes[0].begin()
                cluster.nodes[0].ready()
                assert cluster.await_whole(60.0)
                cluster.nodes[1].kill()
            # With QoS 1 the subscriber would get again what it had not acknowledged yet at the node that dies.
            fleet.publish(Event("", f"alerts/JFK/{number % 7}", b"%d" % number), qos=2)
        fleet.settle()
        assert desk.await_count(ALERTS, 60.0)
    finally:
        fleet.close()
        desk.close()
    assert Counter(int(alert.payload) for alert in desk.alerts) == Counter(range(ALERTS))
    assert desk.connects >= 3
