"""A shared subscription whose chosen member can take no more: another member gets the message."""

from __future__ import annotations

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
