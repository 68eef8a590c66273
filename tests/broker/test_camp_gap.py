"""Messages between two nodes that live were lost: nothing that comes behind the gap counts before they came again.

A link is given up when too much waits in it, and a new member is told of things before its link is there.
"""

from __future__ import annotations

import pytest

from folkmoot.broker.message import OUTPUT
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.kernel.pack import varint
from folkmoot.mqtt.packet import PUBACK, Ack, Publish
from folkmoot.node.liaison import Liaison
from tests.harness.camp import Camp, Site
from tests.harness.peer import EVER, Peer

PARTITIONS = 16
WRITERS = 8


def liaison_of(site: Site) -> Liaison:
    assert site.node.liaison is not None
    return site.node.liaison


def clients_led_by(site: Site, stem: str) -> list[str]:
    leaders = liaison_of(site).fabric.leaders
    names = [f"{stem}{number}" for number in range(99)]
    return [name for name in names if leaders[hash64(name.encode()) % PARTITIONS] == site.name]


def publish(writer: Peer, packet_id: int) -> None:
    writer.send(Publish(b"t", writer.client_id.encode() + b" %d" % packet_id, 1, False, False, packet_id))


def acknowledged(writer: Peer) -> list[int]:
    return [packet.packet_id for packet in writer.inbox if isinstance(packet, Ack) and packet.kind == PUBACK]


@pytest.mark.parametrize("late", range(8))
def test_what_comes_behind_messages_that_were_lost_with_a_link_does_not_stand_for_them(late: int) -> None:
    camp = Camp(3, partitions=PARTITIONS, replicas=1, link_buffer_bytes_max=20_000, silence_us=60 * SECOND)
    here, there = camp["n1"], camp["n2"]
    reader = there.client(clients_led_by(there, "r")[0])
    reader.connect(session_expiry=EVER)
    reader.subscribe("t", qos=1)
    writers = [here.client(name) for name in clients_led_by(here, "w")[:WRITERS]]
    for writer in writers:
        writer.connect()
    camp.held = {("n1", "n2")}
    for writer in writers:
        publish(writer, 1)
    for _ in range(2):
        liaison_of(here).peers.send("n2", OUTPUT, varint(99) + bytes(20_000))  # for a client that has gone
    camp.run()
    assert "peer_too_slow" in here.kinds(), "the link was given up"
    camp.held = set()
    for _ in range(late):
        camp.step()
    for writer in writers:
        publish(writer, 2)
    camp.advance(20 * SECOND)
    assert [acknowledged(writer) for writer in writers] == [[1, 2]] * WRITERS
    expected = sorted(f"{writer.client_id} {number}" for writer in writers for number in (1, 2))
    assert sorted(payload.decode() for payload in reader.payloads()) == expected
