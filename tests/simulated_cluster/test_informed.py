"""A node that has just started and leads at once: it knows who subscribes before it publishes for clients (A1, A5)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.kind import PUBREC
from folkmoot.mqtt.packet import Ack, Connack, Connect, Publish
from tests.harness.peer import EVER, properties
from tests.harness.simulated_cluster import SimulatedCluster


def test_after_a_power_cut_what_a_client_sends_goes_to_subscribers_whose_leader_begins_later() -> None:
    cluster = SimulatedCluster(3, partitions=32, replicas=1, split_policy="majority")
    subscriber = cluster["n3"].client(cluster["n3"].names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    client_id = cluster["n1"].names_led("c")[0]
    cluster.advance(SECOND)
    for site in cluster.live():
        site.kill()
    for name in ("n1", "n2"):
        cluster[name].revive()
    cluster.advance(5 * SECOND)
    assert any(cluster["n1"].node._state.leads)
    client = cluster["n2"].client(client_id, acks=False)
    client.open()
    client.send(Connect(5, client_id, False, 0, properties=properties(session_expiry=EVER)))
    client.send(Publish(b"t", b"x", 2, False, False, 7))
    cluster.advance(SECOND)
    assert client.expect(Connack).code == 0
    refused = client.expect(Ack)
    assert (refused.kind, refused.code) == (PUBREC, reason.IMPLEMENTATION_SPECIFIC_ERROR), "who subscribes is not known"
    cluster["n3"].revive()
    cluster.settle()
    client.send(Publish(b"t", b"x", 2, False, False, 7))
    cluster.advance(SECOND)
    taken = client.expect(Ack)
    assert (taken.kind, taken.packet_id, taken.code) == (PUBREC, 7, 0)
    subscriber.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(SECOND)
    assert [publish.payload for publish in subscriber.publishes()] == [b"x"]
