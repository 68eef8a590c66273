"""A DISCONNECT that waits to be handled is heard before its connection is taken over: no will is published (A7).

It was received before the CONNECT of the connection that takes over [MQTT-3.14.4-3].
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.packet import Connack, Connect, Disconnect, Publish, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster

PARTITIONS = 8
LEADER = "n2"
WAITS = [
    (first, second, waits)
    for first in ("n1", LEADER)
    for second in ("n1", LEADER, "n3")
    for waits in ("disk", "question", "answer")
    if waits == "disk" or (first != LEADER and (waits == "answer" or first == second))
]
"""The nodes of the two connections, and what the first CONNECT waits for."""


class Stage:
    """The session of a client is at n2; somebody watches its will, which it gives at its first connection."""

    def __init__(self, expiry_s: int) -> None:
        self.cluster = cluster = SimulatedCluster(3, partitions=PARTITIONS)
        self.client_id = cluster[LEADER].names_led("c")[0]
        self.asks = properties(session_expiry=expiry_s)
        self.watcher = cluster["n1"].client(cluster["n1"].names_led("w")[0])
        self.watcher.connect(session_expiry=EVER)
        self.watcher.subscribe("will", qos=1)

    def connect(self, at: str, will: Will | None = None) -> tuple[Peer, Connect]:
        """Open a connection; return it, and the CONNECT that it is to send."""
        packet = Connect(5, self.client_id, True, 0, None, None, will, self.asks)
        return self.cluster[at].client(self.client_id).open(), packet

    def go_on(self) -> None:
        """Nothing is held any more."""
        self.cluster.held = set()
        for site in self.cluster.live():
            site.release_writes()
        self.cluster.advance(5 * SECOND)


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize(("code", "wills"), [(0, []), (reason.DISCONNECT_WITH_WILL, [b"will"])])
@pytest.mark.parametrize(("here", "there", "waits"), WAITS)
def test_a_goodbye_behind_a_connect_that_waits_is_heard(
    here: str, there: str, waits: str, code: int, wills: list[bytes], lost: bool, expiry_s: int
) -> None:
    stage = Stage(expiry_s)
    cluster = stage.cluster
    if waits == "disk":
        for site in cluster.live():
            site.hold_writes()
    else:
        cluster.held = {(here, LEADER) if waits == "question" else (LEADER, here)}
    first, connect = stage.connect(here, Will(b"will", b"will", 1, False))
    first.send(connect, Disconnect(code))
    if lost:
        first.lose()
    second, connect = stage.connect(there)
    second.send(connect)
    stage.go_on()
    assert stage.watcher.payloads() == wills
    assert second.take(Connack).code == 0
    assert not second.closed


@pytest.mark.parametrize("expiry_s", [0, EVER])
@pytest.mark.parametrize("here", ["n1", LEADER])
@pytest.mark.parametrize("there", ["n1", LEADER, "n3"])
def test_a_goodbye_behind_a_publication_that_waits_is_heard(here: str, there: str, expiry_s: int) -> None:
    stage = Stage(expiry_s)
    cluster = stage.cluster
    topic = cluster["n3"].names_led("t")[0].encode()
    first, connect = stage.connect(here, Will(b"will", b"will", 1, False))
    first.send(connect)
    cluster.held = {(here, "n3")}
    first.send(
        Publish(topic, b"1", 1, True, packet_id=1),
        Publish(topic, b"2", 2, True, packet_id=2),
        Publish(topic, b"3", 1, True, packet_id=3),
        Disconnect(0),
    )
    second, connect = stage.connect(there)
    second.send(connect)
    stage.go_on()
    assert stage.watcher.payloads() == []
    assert second.take(Connack).code == 0
    assert not second.closed
