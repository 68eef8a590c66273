"""A shared subscription whose chosen member can take no more: another member gets the message."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import Publish, Will
from folkmoot.store.key import META, kind_of
from tests.harness.fixture import MakeBox
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster


def test_a_full_queue_lets_another_member_have_the_message(make: MakeBox) -> None:
    box = make(limits={"queue_messages_max": 5})
    source = box.client("s")
    source.connect()
    members = [box.client(name) for name in ("a", "b")]
    for member in members:
        member.resume(receive_max=1)
        member.subscribe("$share/g/t", qos=1)
        member.lose()
    members[0].resume(receive_max=1)
    members[0].subscribe("own", qos=1)
    members[0].lose()
    for number in range(5):
        source.publish("own", b"own %d" % number, qos=1)
    for number in range(5):
        source.publish("t", b"%d" % number, qos=1)
    members[1].resume()
    assert members[1].payloads() == [b"%d" % number for number in range(5)]


def test_a_member_that_is_just_ending_stores_nothing(make: MakeBox) -> None:
    """The will of a transient member goes to its own group, in which nobody else has room."""
    box = make(limits={"queue_messages_max": 1, "queue_qos0_offline": True})
    stored, source, leaving = box.client("stored"), box.client("s"), box.client("leaving")
    stored.resume()
    stored.subscribe("$share/g/w", qos=1)
    stored.lose()
    source.connect()
    source.publish("w", b"fills the queue", qos=1)
    leaving.connect(will=Will(b"w", b"will", 0, False))
    leaving.subscribe("$share/g/w")
    leaving.lose()
    assert box.node.counters.queue_messages == 1
    assert len([key for key, _ in box.store.items() if kind_of(key) == META]) == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_full_member_refused_is_acknowledged_when_another_can_have_it(qos: int) -> None:
    """The leader of the full member dies before its disk has that another member is to have the message."""
    cluster = SimulatedCluster(3, replicas=1, limits={"queue_messages_max": 5})
    first, second, third = (cluster[name] for name in ("n1", "n2", "n3"))
    source = first.client(first.names_led("s")[0])
    source.resume()
    names = second.names_led("a")[0], third.names_led("b")[0]
    members = second.client(names[0]), third.client(names[1])
    for member in members:
        member.resume(receive_max=1)
        member.subscribe("$share/g/t", qos=1)
    members[0].subscribe("own", qos=1)
    for member in members:
        member.lose()
    for number in range(5):
        source.publish("own", b"own %d" % number, qos=1)
    cluster.advance(2 * SECOND)
    second.hold_writes()
    source.send(Publish(b"t", b"shared", qos=qos, packet_id=77))
    cluster.advance(SECOND // 20)
    assert source.inbox == []
    second.kill()
    cluster.advance(3 * SECOND)
    second.revive()
    cluster.settle()
    source.lose()
    cluster.advance(SECOND)
    source.connect(clean_start=False, session_expiry=EVER)
    source.send(Publish(b"t", b"shared", qos=qos, packet_id=77, dup=True))
    cluster.advance(3 * SECOND)
    member = third.client(names[1])
    member.resume()
    cluster.advance(3 * SECOND)
    assert set(member.payloads()) == {b"shared"}
