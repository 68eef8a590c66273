"""Rows of a turn in which roles change are written before the change."""

from __future__ import annotations

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.kind import PUBACK, PUBREC
from folkmoot.mqtt.packet import V5, Ack, Publish
from folkmoot.store.key import BODY, QUEUE, kind_of
from tests.harness.fixture import MakeBox


def test_a_body_does_not_go_before_the_rows_that_name_it(make: MakeBox) -> None:
    """An acknowledged message is removed with the next write; its last reference takes the body along at once."""
    box = make(partitions=1)
    first, second = box.client("a", acks=False), box.client("b", acks=False)
    for client, qos in ((first, 1), (second, 2)):
        client.resume()
        client.subscribe("t", qos=qos)
    source = box.client("source")
    source.connect()
    source.publish("t", b"x" * 300, qos=2)
    ids = [next(one.packet_id for one in client.receive() if isinstance(one, Publish)) for client in (first, second)]
    kinds = {kind_of(key) for key, _ in box.store.items()}
    assert {QUEUE, BODY} <= kinds
    for client, kind, packet_id in ((first, PUBACK, ids[0]), (second, PUBREC, ids[1])):
        assert client.connection is not None
        box.node.receive(client.connection, encode(Ack(kind, packet_id, 0), V5), box.now)
    box.node._broker.flush()
    for partition in range(box.node._state.partitions):
        box.node._state.lazy.forget(partition)  # as when another node leads it from now on
    box.run()
    kinds = {kind_of(key) for key, _ in box.store.items()}
    assert not {QUEUE, BODY} & kinds
