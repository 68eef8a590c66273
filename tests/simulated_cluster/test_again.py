"""A SUBSCRIBE to a replay that comes to the next leader again does not begin the replay again (A9).

A leader dies when the others have all that the SUBSCRIBE did, and the node with the connection has heard nothing of it.
"""

from __future__ import annotations

import pytest

from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Packet, Suback, Subscribe, Unsuback, Unsubscribe
from folkmoot.store.key import CURSOR, QUEUE, name_prefix
from folkmoot.streams.config import StreamConfig
from tests.harness.peer import EVER, Peer
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 8
COUNT = 20
FILTER = "$stream/wide/earliest/#"
BEGIN = Subscribe(901, [(FILTER.encode(), 1)])
END = Unsubscribe(902, [FILTER.encode()])
BEGIN_ANEW = Subscribe(903, [(FILTER.encode(), 1)])


def places(peer: Peer) -> list[tuple[str, int]]:
    """Take what came; return where it stands in the stream."""
    found = []
    for packet in peer.publishes():
        assert packet.properties is not None
        names = dict(packet.properties.user_properties)
        found.append((names["folkmoot-partition"], int(names["folkmoot-offset"])))
    return found


class Scene:
    """A stream with records, and a reader at the node that would lead its session next, or at the last one."""

    def __init__(self, at_successor: bool) -> None:
        self.cluster = SimulatedCluster(3, partitions=PARTITIONS, streams=[StreamConfig("wide", b"w/#", 8)])
        cluster_node = self.cluster["n1"].node.cluster_node
        assert cluster_node is not None
        assert cluster_node.view is not None
        self.leader, self.successor, self.last = [self.cluster[node_id] for node_id in cluster_node.view.replicas[0]]
        self.at = self.successor if at_successor else self.last
        self.filler = self.at.client("filler")
        self.filler.connect()
        self.fill()
        name = next(name for name in map(str, range(99)) if hash64(name.encode()) % PARTITIONS == 0)
        self.reader = self.at.client(name)
        self.reader.connect(session_expiry=EVER)

    def fill(self) -> None:
        for number in range(COUNT):
            self.filler.publish(f"w/{number}", qos=1)

    def has(self, site: Site, kind: int) -> bool:
        """Whether a node has a row of the reader."""
        prefix = name_prefix(0, kind, self.reader.client_id.encode())
        return bool(site.store.scan(prefix, prefix + b"\xff", 1))

    def die(self, *packets: Packet) -> None:
        """Let the leader die when it has handled packets, and has told the reader's node no more than what they did."""
        self.cluster.held = {(self.leader.name, self.at.name)}
        self.reader.send(*packets)
        while not self.has(self.at, CURSOR):
            assert self.cluster.deliver(self.leader.name, self.at.name)
            self.cluster.run()
        assert self.has(self.successor if self.at is self.last else self.last, QUEUE)
        assert not self.reader.inbox
        self.leader.kill()
        self.cluster.held = set()
        self.cluster.settle()


@pytest.mark.parametrize("at_heir", [False, True])
@pytest.mark.parametrize("packets", [[BEGIN], [BEGIN, END, BEGIN_ANEW]])
def test_a_replay_goes_on_at_the_next_leader(at_successor: bool, packets: list[Packet]) -> None:
    scene = Scene(at_successor)
    scene.die(*packets)
    found = places(scene.reader)
    assert len(found) == len(set(found)) == COUNT
    answers = [packet.packet_id for packet in scene.reader.receive() if isinstance(packet, Suback | Unsuback)]
    assert answers == [packet.packet_id for packet in packets if isinstance(packet, Subscribe | Unsubscribe)]


@pytest.mark.parametrize("at_heir", [False, True])
def test_who_subscribes_once_more_begins_anew(at_successor: bool) -> None:
    scene = Scene(at_successor)
    scene.die(BEGIN)
    assert len(places(scene.reader)) == COUNT
    scene.leader.revive()
    scene.cluster.settle()  # the session moves back
    assert len(repeat(scene)) == COUNT
    assert len(repeat(scene)) == COUNT


def repeat(scene: Scene) -> list[tuple[str, int]]:
    """Subscribe once more; return what comes."""
    assert scene.reader.subscribe(FILTER, qos=1) == [1]
    return places(scene.reader)
