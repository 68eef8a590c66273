"""What a stream takes is acknowledged when it is on disk, also when nothing else is written in the turn (A1, A10)."""

from __future__ import annotations

import pytest

from folkmoot.mqtt.packet import PUBACK, PUBREC, Ack, Publish
from folkmoot.streams.config import StreamConfig
from tests.harness.box import Box


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_the_first_message_of_a_turn_waits_for_its_own_batch(qos: int, kind: int) -> None:
    box = Box(streams=[StreamConfig("kept", b"kept/#")])
    client = box.client("p")
    client.connect()
    box.hold_writes()
    client.send(Publish(b"kept/x", b"1", qos, False, False, 1))
    box.run()
    assert client.receive() == []
    box.release_writes()
    box.run()
    assert [(packet.kind, packet.packet_id) for packet in client.receive() if isinstance(packet, Ack)] == [(kind, 1)]
    box.hold_writes()
    client.send(Publish(b"not/kept", b"1", 1, False, False, 2))
    box.run()
    assert [packet.packet_id for packet in client.receive() if isinstance(packet, Ack)] == [2], "nothing to wait for"
