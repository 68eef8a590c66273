"""A shared subscription whose chosen member can take no more: another member gets the message."""

from __future__ import annotations

from folkmoot.mqtt.packet import Will
from folkmoot.store.key import META, kind_of
from tests.harness.fixture import MakeBox


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
