"""A message with QoS 2 that a client may have begun to get, and that expires: PUBREL ends its flow at any leader."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.kind import PUBCOMP, PUBREL
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.peer import EVER, Peer
from tests.simulated_cluster.test_handed_over import Stage


class Expired(Stage):
    """Two leaders have read a message for a client whose window was full, so that it may have been sent. It expires."""

    def __init__(self, at: str) -> None:
        super().__init__()
        cluster = self.cluster
        cluster.hand_log_to(self.heir)
        self.client = client = cluster[getattr(self, at)].client(self.name, acks=False)
        client.connect(session_expiry=EVER, receive_max=1)
        client.subscribe("t", qos=2)
        self.publisher = cluster[self.fourth].client("publisher")
        self.publisher.connect()
        self.publisher.publish("t", b"stays", qos=1)
        self.publisher.publish("t", b"expires", qos=2, message_expiry=1)
        for leader in (self.heir, self.leader):
            self.hand_to(leader)
        cluster.advance(2 * SECOND)

    def hand_to(self, leader: str) -> None:
        """Hand the partition to a node, which begins to lead it."""
        self.cluster.hand_partition_to(self.partition, leader)
        self.cluster.advance(SECOND // 5)
        assert self.cluster[leader].node._state.leads[self.partition]

    def acknowledge(self) -> None:
        """Acknowledge the message before it."""
        (first,) = self.client.publishes()
        assert first.payload == b"stays"
        self.client.send(Ack(4, first.packet_id))

    def takes_more(self) -> bool:
        """Whether the client still gets messages."""
        self.publisher.publish("t", b"later", qos=1)
        return self.client.payloads() == [b"later"]


def pubrels(client: Peer) -> list[int]:
    """Take what came, and return the packet ids of PUBREL."""
    return [packet.packet_id for packet in client.receive() if isinstance(packet, Ack) and packet.kind == PUBREL]


@pytest.mark.parametrize("at", ["third", "leader", "heir"])
def test_the_next_leader_sends_pubrel_that_has_not_left(at: str) -> None:
    stage = Expired(at)
    stage.cluster.held = {(stage.heir, stage.leader), (stage.leader, stage.third)}
    stage.acknowledge()
    stage.cluster.run()
    assert pubrels(stage.client) == []
    stage.cluster.hand_partition_to(stage.partition, stage.heir)
    stage.release()
    assert stage.cluster[stage.heir].node._state.leads[stage.partition]
    (packet_id,) = pubrels(stage.client)
    stage.client.send(Ack(PUBCOMP, packet_id, 0x92))
    assert stage.takes_more()


@pytest.mark.parametrize("at", ["third", "leader", "heir"])
@pytest.mark.parametrize("completed", [False, True])
def test_the_next_leader_does_not_repeat_it(at: str, completed: bool) -> None:
    stage = Expired(at)
    stage.acknowledge()
    stage.cluster.advance(SECOND // 10)
    (packet_id,) = pubrels(stage.client)
    if completed:
        stage.client.send(Ack(PUBCOMP, packet_id, 0x92))
    for leader in (stage.heir, stage.leader):
        stage.hand_to(leader)
        assert pubrels(stage.client) == []
    if not completed:
        stage.client.send(Ack(PUBCOMP, packet_id, 0x92))
    assert stage.takes_more()


def test_it_comes_again_when_the_client_does() -> None:
    """[MQTT-4.4.0-1]"""
    stage = Expired("third")
    stage.acknowledge()
    stage.cluster.advance(SECOND // 10)
    (packet_id,) = pubrels(stage.client)
    stage.client.lose()
    stage.hand_to(stage.heir)
    stage.client.resume(receive_max=1)
    assert pubrels(stage.client) == [packet_id]
    stage.client.send(Ack(PUBCOMP, packet_id, 0x92))
    assert stage.takes_more()
    assert not [packet for packet in stage.client.receive() if isinstance(packet, Publish)]
