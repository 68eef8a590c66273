"""What a queue cannot send in one turn, it sends in the next ones."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish
from tests.harness.fixture import MakeBox
from tests.harness.simulated_cluster import SimulatedCluster


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_behind_a_burst_that_fills_the_output_comes_in_the_next_turn(
    make: MakeBox, lasting: bool, qos: int
) -> None:
    """The transport takes all of it, so that it never says that it has room again."""
    box = make(limits={"send_buffer_bytes_max": 65_536}, bystander=False)
    peer, source = box.client("a"), box.client("s")
    peer.connect(session_expiry=100 if lasting else None)
    peer.subscribe("#", qos=qos)
    source.connect()
    burst = [Publish(b"video", bytes(10_000), 0) for _ in range(8)]
    packets = [*burst, Publish(b"alarm", b"1", qos, packet_id=100)]
    source.raw(b"".join([encode(packet, V5) for packet in packets]))
    assert [topic for topic, _ in peer.messages()].count("alarm") == 1
    source.publish("alarm", b"2", qos=qos)
    assert peer.messages() == [("alarm", b"2")]


def test_a_message_behind_a_burst_to_another_node_comes() -> None:
    cluster = SimulatedCluster(2, limits={"send_buffer_bytes_max": 65_536})
    peer = cluster["n1"].client(cluster["n1"].names_led("c")[0])
    source = cluster["n2"].client("s")
    peer.connect()
    peer.subscribe("#", qos=1)
    source.connect()
    burst = [Publish(b"video", bytes(10_000), 0) for _ in range(8)]
    packets = [*burst, Publish(b"alarm", b"1", 1, packet_id=1)]
    source.raw(b"".join([encode(packet, V5) for packet in packets]))
    cluster.advance(SECOND)
    assert ("alarm", b"1") in peer.messages()
