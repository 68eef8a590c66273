"""The member with the only vote restarts again and again, and runs for less than a lease each time."""

from __future__ import annotations

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.simulated_cluster import SimulatedCluster

LIFE_US = 300 * MILLISECOND


def acknowledged(lives: int, succeeds: bool) -> int:
    """Return how many lives of the voter it takes until the other node acknowledges a message; 0: so many do not."""
    cluster = SimulatedCluster(2, partitions=4, replicas=2)
    voter = cluster.controller()
    (other,) = [site for site in cluster.live() if site is not voter]
    voter.settings.succeeds = succeeds
    publisher = other.client("publisher")
    publisher.connect()
    publisher.publish("t", b"first", qos=1, retain=True)
    for life in range(1, lives + 1):
        voter._end()  # and nobody sees its host refuse a connection
        voter.revive()
        if life == 1:
            publisher.send(Publish(b"t", b"second", 1, True, False, 7))
        cluster.advance(LIFE_US)
        if any(isinstance(packet, Ack) and packet.packet_id == 7 for packet in publisher.receive()):
            return life
    return 0


def test_it_comes_up_at_once_if_its_former_process_has_certainly_ended() -> None:
    assert acknowledged(3, True)


def test_it_waits_for_a_lease_if_its_folder_may_be_a_copy() -> None:
    assert not acknowledged(10, False)
