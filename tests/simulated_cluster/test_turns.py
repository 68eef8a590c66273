"""A client of one node costs the others no more than their turns have steps (A13), and loses nothing by it."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    V5,
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Will,
)
from tests.harness.peer import Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

STEPS = 512
PACKET_STEPS = 1500


@pytest.fixture(scope="module")
def cluster() -> SimulatedCluster:
    return SimulatedCluster(3, limits={"turn_steps_max": STEPS, "receive_max": 65_535})


def send(site: Site, peer: Peer, packets: list[Packet]) -> None:
    """Input arrives at once."""
    assert peer.connection is not None
    site.node.receive(peer.connection, b"".join(encode(packet, V5) for packet in packets), site.now)


def watch(cluster: SimulatedCluster) -> dict[str, int]:
    """Run to rest; return the number of turns of each node, and the steps of all. No turn takes more than it may."""
    seen = {site.config.node_id: site.node.counters.turns for site in cluster.live()}
    counts = dict.fromkeys(seen, 0)
    counts["steps"] = 0
    for _ in range(200_000):
        moved = cluster.step()
        for site in cluster.live():
            name = site.config.node_id
            if site.node.counters.turns != seen[name]:
                seen[name] = site.node.counters.turns
                counts[name] += 1
                served = site.node._state.work.last_served
                counts["steps"] += served
                assert served <= 2 * STEPS + 2 + 4 * PACKET_STEPS
        if not moved:
            return counts
    raise AssertionError("the cluster does not come to rest")


def reader_at(cluster: SimulatedCluster, node: str, name: str, *filters: str, persistent: bool) -> Peer:
    peer = cluster[node].client(name)
    if persistent:
        peer.resume()
    else:
        peer.connect()
    cluster.run()
    peer.subscribe(*filters, qos=1)
    cluster.run()
    return peer


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_what_another_node_forwards_takes_its_turns(cluster: SimulatedCluster, persistent: bool, qos: int) -> None:
    name = cluster["n2"].names_led("r")[0] + f"-{persistent}-{qos}"
    readers = [reader_at(cluster, "n2", f"{name}-{number}", f"a{name}/#", persistent=persistent) for number in range(8)]
    source = cluster["n1"].client(f"s{name}")
    source.connect()
    cluster.run()
    packets: list[Packet] = [
        Publish(f"a{name}/{number % 5}".encode(), b"%d" % number, qos, False, False, number + 1 if qos else 0)
        for number in range(400)
    ]
    send(cluster["n1"], source, packets)
    assert watch(cluster)["n2"] > 10
    for reader in readers:
        assert [int(payload) for payload in reader.payloads()] == list(range(400))


@pytest.mark.parametrize("led", ["n1", "n2", "n3"])
def test_a_relayed_client_waits_for_its_own_work(cluster: SimulatedCluster, led: str) -> None:
    """SUBSCRIBE with many filters, and what follows it, at the leader of its session."""
    name = cluster[led].names_led(f"w{led}")[0]
    peer = cluster["n1"].client(name)
    peer.resume()
    cluster.run()
    other = reader_at(cluster, led, f"{name}-other", f"{name}/500", persistent=False)
    send(
        cluster["n1"],
        peer,
        [
            Subscribe(1, [(f"{name}/{number}".encode(), 1) for number in range(800)]),
            Publish(f"{name}/500".encode(), b"own", 1, packet_id=2),
            Pingreq(),
        ],
    )
    counts = watch(cluster)
    assert counts[led] > 20
    answers = [packet for packet in peer.receive() if not isinstance(packet, Publish)]
    assert {type(packet) for packet in answers} == {Suback, Ack, Pingresp}
    assert other.payloads() == [b"own"]
    other.publish(f"{name}/799", b"m", qos=1)
    cluster.run()
    assert peer.payloads()[-1:] == [b"m"]


@pytest.mark.parametrize("led", ["n1", "n2", "n3"])
def test_what_a_client_sent_before_it_ended_counts_in_a_cluster(cluster: SimulatedCluster, led: str) -> None:
    name = cluster[led].names_led(f"e{led}")[0]
    reader = reader_at(cluster, "n3", f"{name}-reader", f"{name}/#", f"will/{name}", persistent=True)
    peer = cluster["n1"].client(name)
    peer.resume(will=Will(f"will/{name}".encode(), b"gone", 0, False))
    cluster.run()
    packets: list[Packet] = [
        Publish(f"{name}/{number % 3}".encode(), b"%d" % number, 1, packet_id=number + 1) for number in range(300)
    ]
    send(cluster["n1"], peer, [*packets, Disconnect()])
    peer.lose()
    again = cluster["n2"].client(name)
    again.resume()
    watch(cluster)
    assert [int(payload) for payload in reader.payloads()] == list(range(300))


@pytest.mark.parametrize("led", ["n1", "n2", "n3"])
@pytest.mark.parametrize("expiry_s", [0, 60])
def test_what_a_client_sent_without_waiting_for_connack_counts_in_a_cluster(
    cluster: SimulatedCluster, led: str, expiry_s: int
) -> None:
    """It says all it has to say at once, and is gone before the leader of its session has answered: no will."""
    name = cluster[led].names_led(f"g{led}{expiry_s}")[0]
    reader = reader_at(cluster, "n3", f"{name}-reader", f"{name}/#", f"will/{name}", persistent=False)
    before = len(cluster["n1"].node.connections())
    peer = cluster["n1"].client(name).open()
    cluster.freeze()
    will = Will(f"will/{name}".encode(), b"gone", 0, False)
    made = properties(session_expiry=expiry_s)
    connect = Connect(V5, name, True, 0, None, None, will, made)
    send(cluster["n1"], peer, [connect, Publish(f"{name}/1".encode(), b"m"), Disconnect()])
    peer.lose()
    cluster.thaw()
    cluster.run()
    assert reader.payloads() == [b"m"]
    assert len(cluster["n1"].node.connections()) == before


@pytest.mark.parametrize("count", [200, 400])
def test_retained_messages_that_wait_for_each_other_cost_in_proportion(cluster: SimulatedCluster, count: int) -> None:
    """Each waits until the one before it is committed; what waits behind it is not looked through each time."""
    name = cluster["n2"].names_led(f"o{count}")[0]
    peer = cluster["n1"].client(name)
    peer.resume()
    cluster.run()
    peer.subscribe(f"own/{name}", qos=1)
    cluster.run()
    packets: list[Packet] = [
        Publish(f"ret/{name}/{number % 7}".encode(), b"%d" % number, 1 + number % 2, True, False, number + 1)
        for number in range(count)
    ]
    send(cluster["n1"], peer, packets)
    assert watch(cluster)["steps"] < 180 * count
    acks = [packet for packet in peer.receive() if isinstance(packet, Ack)]
    assert len([packet for packet in acks if packet.kind == PUBACK]) == count // 2
