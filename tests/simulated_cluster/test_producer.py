"""What an idempotent producer sends again counts once, also when the node that it comes to is alone by then."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Publish
from folkmoot.streams.config import StreamConfig
from folkmoot.streams.table import store_partition
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
