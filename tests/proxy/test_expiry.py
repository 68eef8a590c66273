"""Messages of clients whose sessions other nodes lead: they grow older while there is no leader [MQTT-3.3.2-6]."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.pack import varint
from folkmoot.mqtt.encode import body_of, encode
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.proxy.relay import AGED
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster


def clients_of(cluster: SimulatedCluster, at: str) -> tuple[Peer, Peer]:
    """Return a subscriber whose session its own node leads, and a publisher at n1 whose session n2 leads."""
    site, leader = cluster[at], cluster["n2"]
    subscriber = site.client(site.names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=2)
    publisher = cluster["n1"].client(leader.names_led("c")[0])
    publisher.connect(session_expiry=EVER)
    cluster.run()
    return subscriber, publisher


@pytest.mark.parametrize(("expiry_s", "comes"), [(5, False), (0, False), (60, True), (None, True)])
@pytest.mark.parametrize(("qos", "online"), [(0, True), (2, True), (2, False)])
def test_a_message_that_waits_for_a_leader_expires_when_its_time_is_over(
    expiry_s: int | None, comes: bool, qos: int, online: bool
) -> None:
    """The leader of the client's session publishes QoS 2, and what has the number of a producer."""
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority")
    leader = cluster["n2"]
    subscriber, publisher = clients_of(cluster, "n1")
    if not online:
        subscriber.lose()
    leader.kill()
    sent = properties(message_expiry=expiry_s)
    if qos == 0:
        sent.user_properties = [("folkmoot-producer", "p"), ("folkmoot-seq", "1")]
    publisher.send(Publish(b"t", b"m", qos, packet_id=7 if qos else 0, properties=sent))
    cluster.advance(10 * SECOND)
    leader.revive()
    cluster.advance(10 * SECOND)
    if not online:
        subscriber.connect(clean_start=False, session_expiry=EVER)
        cluster.run()
    found = [packet for packet in subscriber.receive() if isinstance(packet, Publish)]
    assert [packet.payload for packet in found] == ([b"m"] if comes else [])
    if comes and expiry_s is not None:
        assert found[0].properties is not None
        left_s = found[0].properties.message_expiry
        assert left_s is not None
        assert expiry_s - (12 if online else 23) <= left_s < expiry_s - 9
    assert cluster["n1"].node.counters.dropped_expired == (0 if comes else 1)


@pytest.mark.parametrize(("expiry_s", "comes"), [(5, False), (60, True)])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_waits_in_a_link_expires_when_its_time_is_over(expiry_s: int, comes: bool, qos: int) -> None:
    """Without a quorum nobody else leads meanwhile, and the link goes on where it was when its nodes meet again."""
    cluster = SimulatedCluster(3, replicas=1, split_policy="majority")
    subscriber, publisher = clients_of(cluster, "n2")
    for one, other in (("n1", "n2"), ("n1", "n3"), ("n2", "n3")):
        cluster.cut(one, other)
    publisher.send(Publish(b"t", b"m", qos, packet_id=7, properties=properties(message_expiry=expiry_s)))
    cluster.advance(10 * SECOND)
    cluster.heal()
    cluster.advance(2 * SECOND)
    subscriber.connect(clean_start=False, session_expiry=EVER)
    cluster.run()
    found = [packet for packet in subscriber.receive() if isinstance(packet, Publish)]
    assert [packet.payload for packet in found] == ([b"m"] if comes else [])


@pytest.mark.parametrize("beyond_us", [-SECOND, 0, SECOND, 1000 * SECOND])
def test_a_message_that_has_waited_for_longer_than_there_is_time_has_expired(beyond_us: int) -> None:
    """What another node says of it makes no time of expiry that means "never", and none that cannot be stored."""
    cluster = SimulatedCluster(3, replicas=1)
    site, leader = cluster["n1"], cluster["n2"]
    subscriber = leader.client(leader.names_led("s")[0])
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    subscriber.disconnect()
    publisher = site.client(leader.names_led("c")[0])
    publisher.connect(session_expiry=EVER)
    cluster.run()
    hosting = leader.node._broker.leadership.hosting
    (hosted,) = hosting.remotes.values()
    assert hosted.remote is not None
    now = leader.node._state.clock.time
    waited_ms = (now + SECOND + beyond_us) // MILLISECOND
    packet = encode(Publish(b"t", b"m", 1, packet_id=7, properties=properties(message_expiry=1)), V5)
    rest = varint(waited_ms) + packet[:1] + body_of(packet)
    head = varint(hosted.remote.number) + varint(hosted.remote.received_seq + 1)
    hosting.packets("n1", head + bytes([AGED]) + varint(len(rest)) + rest)
    cluster.advance(SECOND)
    subscriber.connect(clean_start=False, session_expiry=EVER)
    cluster.advance(SECOND)
    assert subscriber.publishes() == []
