"""What comes in one turn, from other nodes and from clients: each sees what the one before it has changed."""

from __future__ import annotations

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V5, Publish, Unsubscribe
from tests.harness.simulated_cluster import SimulatedCluster


def test_a_message_does_not_go_to_a_group_whose_last_member_has_just_left() -> None:
    cluster = SimulatedCluster(3, replicas=1)
    member = cluster["n2"].client("member")
    member.connect()
    member.subscribe("$share/g/t")
    source = cluster["n1"].client("source")
    source.connect()
    source.publish("t", b"1")  # the route is known from now on
    assert member.payloads() == [b"1"]
    cluster.freeze()
    member.send(Unsubscribe(7, [b"$share/g/t"], None))
    while cluster["n2"].turn():
        pass
    cluster._carry()
    node = cluster["n1"].node
    assert source.connection is not None
    node.receive(source.connection, encode(Publish(b"t", b"2"), V5), cluster.now)
    cluster.thaw()
    cluster.run()
    assert member.payloads() == []
    assert not source.closed
