"""What a client publishes in a new session stays behind what it has published in the one that it discards (A3).

A message of QoS 2 of a persistent session leaves when the change that it is part of is committed, a later one of a
session that is not kept leaves at once: so that one is let in only when the end of the other is committed.
"""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import V5, V311, Connack, Connect, Publish
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8


@pytest.mark.parametrize("tries", [1, 2])  # the first one may have ended the old session, and got no answer
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("home", ["n1", "n2"])
@pytest.mark.parametrize("at", ["n1", "n2"])
def test_the_new_session_waits_for_the_end_of_the_old_one(version: int, home: str, at: str, tries: int) -> None:
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    reader = cluster["n1"].client(cluster["n1"].names_led("r")[0])
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=2)
    peer = cluster["n1"].client(cluster[home].names_led("c")[0], version=version)
    peer.resume()
    cluster.held = {("n3", "n1"), ("n3", "n2")}  # it has what it gets, but nobody knows
    peer.send(Publish(b"t", b"1", 2, False, packet_id=1))
    peer.lose()
    again = cluster[at].client(peer.client_id, version=version)
    connect = Connect(version, peer.client_id, clean_start=True)
    for _ in range(tries - 1):
        again.open().send(connect)
        again.lose()
    again.open().send(connect, Publish(b"t", b"2", 2, False, packet_id=1))
    assert reader.payloads() == []
    assert not [packet for packet in again.inbox if isinstance(packet, Connack)]
    cluster.held = set()
    cluster.run()
    assert reader.payloads() == [b"1", b"2"]
    assert not again.take(Connack).session_present
