"""A node that has just started and leads at once: it knows who subscribes before it publishes for clients (A1, A5)."""

from __future__ import annotations

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.membership.view import View
from folkmoot.mqtt.kind import PUBREC
from folkmoot.mqtt.packet import Ack, Publish
from tests.harness.peer import EVER
from tests.harness.simulated_cluster import Camp, Site

PARTITIONS = 32


def view_of(site: Site) -> View | None:
    liaison = site.node.liaison
    assert liaison is not None
    return liaison.replication.standing.view


def client_of(camp: Camp, *replicas: str) -> str:
    """Return a client id whose partition these nodes have, the first as its leader."""
    view = view_of(camp["n1"])
    assert view is not None
    for number in range(9999):
        if view.replicas[hash64(b"c%d" % number) % PARTITIONS][: len(replicas)] == list(replicas):
            return f"c{number}"
    raise AssertionError(f"there is no partition of {replicas}")


def hold_in_next_view(camp: Camp, site: Site, target: str) -> None:
    """Hold what a node sends to another one from its first turn in the next view on, until all is let go."""
    turn = site.turn
    known = [view_of(site)]

    def and_hold() -> bool:
        moved = turn()
        if len(known) == 1 and view_of(site) is not known[0]:
            known.append(view_of(site))
            camp.held.add((site.name, target))
        return moved

    site.turn = and_hold  # type: ignore[method-assign]


def test_what_a_client_has_sent_meanwhile_goes_to_subscribers_whose_leader_begins_later() -> None:
    camp = Camp(4, partitions=PARTITIONS)
    subscriber = camp["n3"].client(client_of(camp, "n4", "n2", "n3"))
    subscriber.connect(session_expiry=EVER)
    subscriber.subscribe("t", qos=1)
    subscriber.disconnect()
    client = camp["n2"].client(client_of(camp, "n1"), acks=False)
    client.connect(session_expiry=EVER)
    hold_in_next_view(camp, camp["n3"], "n2")
    camp["n4"].up = False  # it hangs: nobody leads its partitions until that is noticed
    camp["n1"].kill()
    client.send(Publish(b"t", b"x", 2, False, False, 7))
    camp["n1"].revive()
    partition = hash64(client.client_id.encode()) % PARTITIONS
    for _ in range(400):
        camp.advance(SECOND // 100)
        if camp["n1"].node._state.leads[partition]:
            break
    assert camp["n1"].node._state.leads[partition]
    assert not camp["n2"].node._state.leads[hash64(subscriber.client_id.encode()) % PARTITIONS], "it waits for n3"
    assert client.receive() == []
    camp.held.clear()
    camp.advance(SECOND)
    assert [(ack.kind, ack.packet_id) for ack in client.receive() if isinstance(ack, Ack)] == [(PUBREC, 7)]
    subscriber.connect(clean_start=False, session_expiry=EVER)
    camp.advance(SECOND)
    assert [publish.payload for publish in subscriber.publishes()] == [b"x"]
