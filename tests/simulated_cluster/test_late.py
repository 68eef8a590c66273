"""What one node says takes long to come to another one, while the leadership of a partition changes."""

from __future__ import annotations

from typing import Any

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.pack import varint
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import PUBACK, V5, Ack, Publish, Suback, Subscribe
from folkmoot.turn.message import REQUESTS, encode_parcel
from tests.harness.simulated_cluster import Camp

PARTITIONS = 16


def view(camp: Camp, name: str) -> Any:
    return camp.view_of(camp[name])


def leader(camp: Camp, name: str, partition: int) -> str:
    found: str = view(camp, name).replicas[partition][0]
    return found


def named(camp: Camp, partition: int) -> str:
    """Return a client id of a partition."""
    return next(f"c{n}" for n in range(10_000) if camp["n1"].node._state.partition_of(b"c%d" % n) == partition)


def until(camp: Camp, step_us: int, done: Any) -> None:
    """Go on in small steps until a condition holds, which is looked at after each of them."""
    for _ in range(10_000):
        camp.freeze()
        camp.now += step_us
        for _turn in range(50):
            if done():
                return
            if not camp.step():
                break
    raise AssertionError("it does not come to that")


def test_what_was_refused_is_not_overtaken_by_what_was_sent_after_it() -> None:
    """n2 leads a partition, loses it to n1 in a view that n3 never sees, and has it again when n1 is dead."""
    camp = Camp(3, partitions=PARTITIONS)
    mine = [p for p in range(PARTITIONS) if leader(camp, "n1", p) == "n1"]
    camp["n1"].kill()
    camp.settle()
    partition = next(p for p in mine if leader(camp, "n2", p) == "n2")
    publisher = camp["n3"].client("pub")
    publisher.connect()
    reader = camp["n3"].client(named(camp, partition))
    reader.resume()
    reader.subscribe("q", qos=1)
    reader.disconnect()
    camp["n1"].revive()

    def taken() -> bool:
        if view(camp, "n1") is None or leader(camp, "n1", partition) != "n1":
            return False
        camp.held.add(("n1", "n3"))
        return bool(view(camp, "n2").epoch == view(camp, "n1").epoch)

    until(camp, MILLISECOND, taken)
    assert leader(camp, "n3", partition) == "n2"
    camp.held.clear()
    camp["n1"].kill()  # what it has sent to n3 is lost with it
    ballot = camp["n2"].node.liaison.membership._ballot  # type: ignore[union-attr]
    camp.held = {("n3", "n2"), ("n2", "n3")}
    until(camp, MILLISECOND, lambda: ballot.proposal is not None)

    def publish(number: int) -> None:
        packet = Publish(b"q", b"%d" % number, 1, False, False, number)
        assert publisher.connection is not None
        camp["n3"].node.receive(publisher.connection, encode(packet, V5), camp.now)
        camp["n3"].turn()

    publish(1)
    while camp.deliver("n2", "n3"):
        camp["n3"].turn()  # the proposal comes to n3, and its promise leaves
    publish(2)
    while camp.deliver("n3", "n2"):
        camp["n2"].turn()
        camp["n2"].turn()
    camp.held.clear()
    camp.thaw()
    camp.settle()
    camp.advance(2 * SECOND)
    assert [packet for packet in publisher.inbox if isinstance(packet, Ack)] == [Ack(PUBACK, 1, 0), Ack(PUBACK, 2, 0)]
    reader = camp["n2"].client(reader.client_id)
    reader.resume()
    assert reader.payloads() == [b"1", b"2"]


def test_after_a_suback_nothing_is_missed_though_the_leader_has_changed_meanwhile() -> None:
    """The announcement of a leader comes late to a node, behind the view in which another one leads."""
    camp = Camp(4, replicas=2, partitions=PARTITIONS)
    mine = [p for p in range(PARTITIONS) if leader(camp, "n1", p) == "n4"]
    camp["n4"].kill()
    camp.settle()
    camp["n4"].revive()
    until(camp, MILLISECOND, lambda: any(site.node.liaison.membership._seat.filled for site in camp.live()))  # type: ignore[union-attr]
    placed = view(camp, "n1")
    epoch = placed.epoch
    partition, old, third = next(
        (p, placed.replicas[p][0], name)
        for p in mine
        for name in ("n2", "n3")
        if placed.replicas[p][0] != "n1" and "n4" in placed.learners[p] and name not in placed.replicas[p]
    )
    camp.thaw()
    reader = camp[old].client(named(camp, partition))
    reader.resume()
    publisher = camp[third].client("pub")
    publisher.connect()
    camp.held.add((old, third))
    reader.send(Subscribe(1, [(b"q", 1)]))
    assert reader.inbox == [], "not everybody knows of it"
    assert view(camp, "n1").epoch == epoch

    def moved() -> bool:
        if view(camp, third).epoch == epoch:
            return False
        camp.held.add(("n4", third))
        return True

    until(camp, MILLISECOND, moved)
    assert leader(camp, third, partition) == "n4"
    camp.held.discard((old, third))
    while camp.step():
        pass
    assert [packet.codes for packet in reader.inbox if isinstance(packet, Suback)] == [[1]]
    camp.thaw()
    publisher.send(Publish(b"q", b"first", 1, False, False, 1))
    camp.held.clear()
    camp.advance(SECOND)
    assert reader.payloads() == [b"first"]


def test_a_message_of_another_node_that_cannot_be_read_is_not_half_done_and_its_publisher_asks_again() -> None:
    camp = Camp(3, partitions=PARTITIONS)
    partition = next(p for p in range(PARTITIONS) if leader(camp, "n1", p) == "n2")
    reader = camp["n2"].client(named(camp, partition))
    reader.resume()
    reader.subscribe("q", qos=1)
    publisher = camp["n3"].client("pub")
    publisher.connect()
    camp.advance(SECOND)
    camp.held.add(("n3", "n2"))
    publisher.send(Publish(b"q", b"first", 1, False, False, 1))
    requests = camp["n3"].node._broker.requests
    ((number, parts),) = requests._sent["n2"].items()
    out = [varint(number), varint(2)]
    parts[0].parcel.shares.append(parts[0].share)
    encode_parcel(parts[0].parcel, out)
    switch = camp["n2"].node._broker.switch
    switch.receive("n3", REQUESTS, b"".join(out))  # a second one is said to follow, and does not
    camp.freeze()
    camp["n2"].turn()
    camp.thaw()
    assert camp["n2"].kinds().count("peer_nonsense") == 1
    camp.advance(SECOND)
    assert reader.payloads() == []
    assert publisher.closed, "it was not stored, and may be sent again"
