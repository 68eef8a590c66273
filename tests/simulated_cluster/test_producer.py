"""What an idempotent producer sends again counts once, also when the node that it comes to is alone by then."""

from __future__ import annotations

import pytest

from folkmoot.channel.outbox import encode_outbox_entry
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Publish
from folkmoot.partition.producer import owner_of
from folkmoot.store.batch import Batch
from folkmoot.store.key import outbox_key
from folkmoot.store.message import Message
from folkmoot.store.producer_row import RECENT_MAX
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import store_partition
from folkmoot.turn.message import RETAIN, STREAM, OutboxEntry, Task, encode_application
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster

PRODUCED = properties(user_properties=[("folkmoot-producer", "p"), ("folkmoot-seq", "1")])


@pytest.mark.parametrize("group", ["g", "h", "i", "j", "k"])
def test_a_member_of_a_group_gets_it_once(group: str) -> None:
    cluster = SimulatedCluster(2, partitions=16)
    member = cluster["n1"].client("member")
    member.connect(session_expiry=EVER)
    member.subscribe(f"$share/{group}/t", qos=1)
    publisher = cluster["n1"].client("publisher")
    publisher.connect(session_expiry=EVER)
    publisher.send(Publish(b"t", b"once", 1, False, False, 1, PRODUCED))
    cluster.run()
    cluster["n2"].kill()
    cluster.advance(5 * SECOND)
    publisher.send(Publish(b"t", b"once", 1, False, True, 1, PRODUCED))
    cluster.run()
    assert member.payloads() == [b"once"]


def test_a_new_leader_stores_what_its_own_client_has_sent_wherever_the_topic_is_kept() -> None:
    partitions = 16
    stream = next(name for name in map(str, range(999)) if store_partition(name, 0, partitions) == 0)
    client_id, topic = (
        next(f"{stem}{n}" for n in range(999) if hash64(f"{stem}{n}".encode()) % partitions == 0) for stem in "ct"
    )
    cluster = SimulatedCluster(3, partitions=partitions, streams=[StreamConfig(stream, b"#", 1)])
    cluster_node = cluster["n1"].node.cluster_node
    assert cluster_node is not None
    assert cluster_node.view is not None
    leader, successor = [cluster[node_id] for node_id in cluster_node.view.replicas[0][:2]]
    other = successor.client("other")
    other.connect()
    turn = successor.turn

    def publish_before_it_leads() -> bool:
        moved = turn()
        broker = successor.node._broker
        if broker.fabric.leaders[0] == successor.name and not broker.state.leads[0]:
            other.send(Publish(topic.encode(), b"before", 0, False, False, 0))
        return moved

    successor.turn = publish_before_it_leads  # type: ignore[method-assign]
    client = successor.client(client_id)
    client.connect(session_expiry=EVER)
    leader.up = False
    client.send(Publish(topic.encode(), b"kept", 1, True, False, 1, PRODUCED))
    leader.kill()
    cluster.advance(5 * SECOND)
    reader = successor.client("reader")
    reader.connect()
    reader.subscribe(f"$stream/{stream}/earliest/#", qos=1)
    cluster.advance(SECOND)
    assert reader.payloads().count(b"kept") == 1


OTHER_SIDE = 77  # the tag of a lineage that is none of this cluster


def entrust(cluster: SimulatedCluster, partition: int, bits: int, number: int, created_us: int) -> None:
    """Put an outbox entry into all copies, as the merge of a side does that had a message and could not pass it on."""
    home = (partition + 1) % cluster.partitions
    message = Message(b"t", b"%d" % number, 1, bits == RETAIN, b"", "c", created_us, 0)
    producer = owner_of("", "c") + b"p"
    entry = OutboxEntry(home, number, OTHER_SIDE, 0, encode_application(message, producer, number))
    entry.tasks = [Task(partition, bits)]
    for site in cluster.live():
        batch = Batch(0)
        value = bytes(VERSION_BYTES) + encode_outbox_entry(entry)
        batch.put(outbox_key(home, number, OTHER_SIDE), value)
        site.alter(batch)
    for site in cluster.live():
        site.restart()
        cluster.settle()


@pytest.mark.parametrize("newest", [1, 2, RECENT_MAX + 5])
def test_what_another_side_has_acknowledged_is_stored_although_the_producer_has_gone_on_here(newest: int) -> None:
    """Number 1 came to this side too if it went on with that one; else its producer went on with a later one."""
    cluster = SimulatedCluster(3, partitions=16, streams=[StreamConfig("s", b"t", 1)])
    partition = store_partition("s", 0, 16)
    cluster["n3"].kill()  # rows name the last numbers only while somebody is away
    cluster.advance(10 * SECOND)
    client = cluster["n1"].client("c")
    client.connect(session_expiry=EVER)
    for number in range(min(newest, 2), newest + 1):
        pairs = [("folkmoot-producer", "p"), ("folkmoot-seq", str(number))]
        assert client.publish("t", b"%d" % number, qos=1, user_properties=pairs) == 0
    client.disconnect()
    cluster["n3"].revive()
    cluster.settle()
    entrust(cluster, partition, STREAM, 1, cluster.now)
    reader = cluster["n1"].client("reader")
    reader.connect()
    reader.subscribe("$stream/s/earliest/#", qos=1)
    cluster.advance(SECOND)
    expected = [b"%d" % number for number in range(1, newest + 1)]
    assert sorted(reader.payloads(), key=int) == expected


@pytest.mark.parametrize("age_us", [SECOND, -SECOND])
def test_of_retained_messages_of_two_sides_the_later_one_stays(age_us: int) -> None:
    cluster = SimulatedCluster(3, partitions=16)
    client = cluster["n1"].client("other")
    client.connect()
    client.publish("t", b"here", qos=1, retain=True)
    entrust(cluster, hash64(b"t") % 16, RETAIN, 1, cluster.now - age_us)
    reader = cluster["n1"].client("reader")
    reader.connect()
    reader.subscribe("t", qos=1)
    cluster.advance(SECOND)
    assert reader.payloads() == [b"here" if age_us > 0 else b"1"]
