"""Shared subscriptions across nodes: absent members get nothing while others are there (DESIGN section 9)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster

FILTER = "$share/g/t/#"


def members(cluster: SimulatedCluster, count: int) -> list[Peer]:
    found: list[Peer] = []
    for number in range(count):
        peer = cluster[f"n{number % 3 + 1}"].client(f"member{number}")
        peer.connect(session_expiry=EVER)
        peer.subscribe(FILTER, qos=1)
        found.append(peer)
    return found


def publish(cluster: SimulatedCluster, count: int) -> None:
    for node_id in ("n1", "n2", "n3"):
        writer = cluster[node_id].client(f"writer-{node_id}")
        writer.connect()
        for number in range(count):
            writer.publish(f"t/{number}", b"%s-%d" % (node_id.encode(), number), qos=number % 2 + 1)


def test_who_is_away_gets_nothing_while_others_are_there() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 8)
    here, away = everybody[::2], everybody[1::2]
    for peer in away:
        peer.disconnect()
    publish(cluster, 40)
    assert sum(len(peer.payloads()) for peer in here) == 120
    for peer in away:
        peer.resume()
    cluster.advance(SECOND)
    assert [peer.payloads() for peer in away] == [[], [], [], []]
    publish(cluster, 40)
    assert all(peer.payloads() for peer in everybody), "they take turns again"


def test_when_nobody_is_there_the_members_keep_what_comes() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 6)
    for peer in everybody:
        peer.disconnect()
    publish(cluster, 20)
    for peer in everybody:
        peer.resume()
    cluster.advance(SECOND)
    assert sum(len(peer.payloads()) for peer in everybody) == 60
    assert all(peer.payloads() == [] for peer in everybody)


def test_a_new_leader_knows_who_is_away() -> None:
    cluster = SimulatedCluster(3)
    everybody = members(cluster, 8)
    here: list[Peer] = []
    away: list[Peer] = []
    for peer in everybody:
        if peer.box is cluster["n3"]:
            continue
        (away if len(away) < 3 else here).append(peer)
    for peer in [*away, *[peer for peer in everybody if peer.box is cluster["n3"]]]:
        peer.disconnect()
    cluster["n3"].kill()
    cluster.advance(5 * SECOND)
    for number in range(60):
        writer = cluster["n1"].client(f"writer{number}")
        writer.connect()
        writer.publish("t/1", b"%d" % number, qos=1)
        writer.disconnect()
    assert sum(len(peer.payloads()) for peer in here) == 60
