"""$events topics in a cluster: everybody's events reach streams and subscribers anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.lease import PAUSE_US
from folkmoot.store.chunk import decode_chunk
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.page import Page
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

STREAM = StreamConfig("events", b"$events/#", 4)


@pytest.fixture
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, replicas=2, streams=[STREAM])


def records(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    """All events in the stream, from its leaders."""
    cluster.advance(SECOND)
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for site in cluster.live():
        for log in site.node.streams.streams[0].logs:
            if not site.node.leads_stream(log):
                continue
            page = log.read(0, 1 << 40, 1 << 30)
            assert isinstance(page, Page)
            at = 0
            for chunk in page.chunks:
                for entry in decode_chunk(chunk):
                    if entry.offset < at:
                        continue  # a chunk may begin with what the one before ends with
                    at = entry.offset + 1
                    event = json.loads(entry.record.payload)
                    key = (event["node"], event["incarnation"], event["number"])
                    assert key not in found, "twice"
                    found[key] = event
    return sorted(found.values(), key=lambda event: (event["time_us"], event["node"], event["number"]))


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == kind]


def test_every_node_tells_of_its_clients(cluster: SimulatedCluster) -> None:
    for number in range(9):
        peer = cluster[f"n{number % 3 + 1}"].client(f"c{number}")
        peer.connect(session_expiry=EVER if number % 2 else 0)
        if number < 3:
            peer.disconnect()
    events = records(cluster)
    came = {event["client"]: event["node"] for event in of(events, "connected")}
    assert came == {f"c{number}": f"n{number % 3 + 1}" for number in range(9)}
    gone = {event["client"]: (event["node"], event["by"], event["clean"]) for event in of(events, "disconnected")}
    assert gone == {f"c{number}": (f"n{number + 1}", "client", True) for number in range(3)}
    opened = [event["node"] for event in of(events, "node") if event["what"] == "opened"]
    assert sorted(opened) == ["n1", "n2", "n3"]


def test_each_node_tells_each_number_once(cluster: SimulatedCluster) -> None:
    for number in range(20):
        cluster["n1"].client(f"c{number}").connect()
    numbers = [event["number"] for event in records(cluster) if event["node"] == "n1"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_killed_node_is_told_of_by_the_others(cluster: SimulatedCluster) -> None:
    for name in ("n1", "n2", "n3"):
        cluster[name].client(f"at-{name}").connect(session_expiry=EVER)
    before = len(records(cluster))
    assert before
    at = cluster.now
    cluster["n2"].kill()
    cluster.settle()
    events = [event for event in records(cluster) if event["time_us"] >= at]
    lost = [event for event in of(events, "peer") if event["what"] in ("peer_down", "peer_dead")]
    assert {(event["node"], event["peer"]) for event in lost} == {("n1", "n2"), ("n3", "n2")}
    views = of(events, "view")
    assert {(event["node"], tuple(event["members"])) for event in views} >= {("n1", ("n1", "n3")), ("n3", ("n1", "n3"))}
    assert of(events, "disconnected") == [], "nobody is there to tell that; readers see it by the view"


def test_a_subscriber_at_one_node_hears_all(cluster: SimulatedCluster) -> None:
    ear = cluster["n3"].client("ear")
    ear.connect()
    ear.subscribe("$events/+/connected", qos=1)
    ear.publishes()
    cluster["n1"].client("a").connect()
    cluster["n2"].client("b").connect()
    assert {json.loads(payload)["client"] for payload in ear.payloads()} == {"a", "b"}


def test_latencies_are_told_by_the_node_of_the_publisher(cluster: SimulatedCluster) -> None:
    store = cluster["n1"].client("store")
    store.connect(session_expiry=EVER)
    store.subscribe("plant/#", qos=1)
    for name in ("n1", "n2", "n3"):
        peer = cluster[name].client(f"p-{name}")
        peer.connect()
        for number in range(5):
            peer.publish(f"plant/{number}", b"x", qos=1)
    cluster.advance(11 * SECOND)
    found = [event for event in of(records(cluster), "latency") if event["prefix"] == "plant"]
    counts: dict[str, int] = {}
    for event in found:
        counts[event["node"]] = counts.get(event["node"], 0) + event["ack"]["count"]
    assert counts == {"n1": 5, "n2": 5, "n3": 5}
    assert all(event["ack"]["waiting"] == 0 for event in found)
    assert sum(event["deliver"]["count"] for event in found) == 8, "15 deliveries at one leader: the eighth is timed"


def test_events_that_wait_for_a_lease_are_dropped_with_the_last_subscriber() -> None:
    cluster = SimulatedCluster(3)
    site = cluster["n1"]
    listener, other = (site.client(site.names_led(stem)[0]) for stem in ("listener", "other"))
    listener.connect()
    listener.subscribe("$events/n1/#", qos=0)
    other.connect()
    site.end_lease()
    cluster.advance(2_000)
    other.lose()
    listener.lose()
    cluster.advance(PAUSE_US // 4)
    site.grant_lease()
    cluster.advance(SECOND)
    assert not site.node._broker.more(), "the loop sleeps"
    assert not site.node._state.news
