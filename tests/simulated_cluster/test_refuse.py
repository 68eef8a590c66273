"""A CONNECT that is refused has done nothing, also when the leader of the session had been asked (A7)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Connack, Connect, Will
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import Camp

PARTITIONS = 4


def asked(camp: Camp) -> tuple[Peer, Peer]:
    """A subscriber for wills at n1, and a client of n3 whose CONNECT its leader n1 has taken and cannot answer yet."""
    watch = camp["n1"].client("watch")
    watch.connect()
    watch.subscribe("w", qos=1)
    liaison = camp["n1"].node.liaison
    assert liaison is not None
    partition = liaison.fabric.leaders.index("n1")
    number = next(n for n in range(99) if hash64(b"c%d" % n) % PARTITIONS == partition)
    peer = camp["n3"].client(f"c{number}")
    peer.open()
    camp["n2"].hold_writes()
    will = Will(b"w", b"will", 1, False, None)
    peer.send(Connect(5, peer.client_id, False, 0, None, None, will, properties(session_expiry=EVER)))
    assert peer.receive() == []
    return watch, peer


@pytest.mark.parametrize("released", [True, False])
def test_who_waits_at_a_node_that_is_put_out_is_not_refused_if_its_will_is_published(released: bool) -> None:
    camp = Camp(3, partitions=PARTITIONS)
    watch, peer = asked(camp)
    liaison = camp["n1"].node.liaison
    assert liaison is not None
    liaison.membership.evict("n3", camp.now)
    if released:
        camp["n2"].release_writes()
    camp.advance(SECOND)
    camp["n2"].release_writes()
    camp.advance(SECOND)
    assert peer.closed
    refused = [packet for packet in peer.receive() if isinstance(packet, Connack) and packet.code]
    assert watch.payloads() == ([] if refused else [b"will"])


def test_who_is_refused_while_its_leader_thinks_has_no_will() -> None:
    camp = Camp(3, partitions=PARTITIONS)
    watch, peer = asked(camp)
    connection = peer.connection
    assert connection is not None
    site = camp["n3"]
    site.node._broker.closing.refuse(connection, 0x88, "no node leads the client's partition now")
    site.run()
    camp["n2"].release_writes()
    camp.advance(SECOND)
    assert peer.take(Connack).code == 0x88
    assert watch.payloads() == []


def test_who_was_let_in_by_a_leader_that_handed_over_and_is_put_out_is_not_refused() -> None:
    camp = Camp(3, partitions=PARTITIONS)
    site = camp["n1"]
    watch = camp["n3"].client("watch")
    watch.connect()
    watch.subscribe("w", qos=1)
    liaison = site.node.liaison
    assert liaison is not None
    partition = liaison.fabric.leaders.index("n1")
    number = next(n for n in range(99) if hash64(b"c%d" % n) % PARTITIONS == partition)
    peer = site.client(f"c{number}")
    peer.open()
    camp["n2"].hold_writes()
    will = Will(b"w", b"will", 1, False, None)
    peer.send(Connect(5, peer.client_id, False, 0, None, None, will, properties(session_expiry=EVER)))
    assert peer.receive() == []
    site.storage(True)
    camp.advance(4 * SECOND)
    assert liaison.fabric.leaders[partition] != "n1", "who has no room on its disk leads nothing"
    assert not peer.closed
    other = camp["n3"].node.liaison
    assert other is not None
    other.membership.evict("n1", camp.now)
    camp.advance(SECOND)
    camp["n2"].release_writes()
    camp.advance(5 * SECOND)
    assert peer.closed
    refused = [packet for packet in peer.receive() if isinstance(packet, Connack) and packet.code]
    assert watch.payloads() == ([] if refused else [b"will"])
