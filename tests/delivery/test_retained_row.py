"""What is stored of a retained message does not say how it came to queues: later receivers did not get it then."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.store.key import QUEUE, RETAINED, end_of, name_prefix, plain_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.row import decode_queue
from folkmoot.store.writer import VERSION_BYTES
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import SimulatedCluster, Site

PARTITIONS = 16


def partition_of(name: str) -> int:
    return hash64(name.encode()) % PARTITIONS


def retained_at(site: Site, topic: str) -> Message:
    value = site.node._broker.state.reader.get(plain_key(partition_of(topic), RETAINED, topic.encode()))
    assert value is not None
    return decode_message(value, VERSION_BYTES)


def queued_at(site: Site, client_id: str) -> list[Message | None]:
    prefix = name_prefix(partition_of(client_id), QUEUE, client_id.encode())
    rows = site.node._broker.state.reader.scan(prefix, end_of(prefix), 10)
    return [decode_queue(value[VERSION_BYTES:]).message for _, value in rows]


@pytest.mark.parametrize("earlier_build", [False, True])
def test_who_gets_a_retained_message_has_not_got_its_request(earlier_build: bool) -> None:
    """Else a merge would take the queued message for one that the other side has, because it knows the request.

    One request brings the message to queues first, and then to its topic; rows of earlier builds have its origin.
    """
    cluster = SimulatedCluster(3, partitions=PARTITIONS)
    leader = cluster["n2"]
    first, later = leader.names_led("s")[:2]
    topic = next(name for name in leader.names_led("t") if partition_of(name) != partition_of(first))
    subscriber = leader.client(first, acks=False)
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe(topic, qos=1)
    publisher = cluster["n1"].client(cluster["n1"].names_led("p")[0])
    publisher.connect()
    publisher.publish(topic, b"x", qos=1, retain=True)
    cluster.advance(SECOND)
    (queued,) = queued_at(leader, first)
    assert queued is not None
    assert queued.origin, "of a queue row a merge has to know the request"
    message = retained_at(leader, topic)
    assert not message.origin
    if earlier_build:
        message.origin = queued.origin
        writer = leader.node._broker.state.writer
        key = plain_key(partition_of(topic), RETAINED, topic.encode())
        writer.put(partition_of(topic), key, encode_message(message))
        cluster.run()
    asker = leader.client(later, acks=False)
    asker.connect(session_expiry=EVER)
    asker.subscribe(topic, qos=1)
    cluster.advance(SECOND)
    (found,) = queued_at(leader, later)
    assert found is not None
    assert (found.payload, found.origin, found.source) == (b"x", b"", b"")
