"""Wills of one client at both sides of a split: each is published once, when its own connection has ended (A7)."""

from __future__ import annotations

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.hash import hash64
from folkmoot.mqtt.packet import Will
from folkmoot.node.liaison import Liaison
from tests.harness.camp import Camp, Site
from tests.harness.peer import EVER

PARTITIONS = 16


def liaison_of(site: Site) -> Liaison:
    assert site.node.liaison is not None
    return site.node.liaison


def client_led_by(name: str, site: Site, stem: str) -> str:
    leaders = liaison_of(site).fabric.leaders
    return next(
        f"{stem}{number}" for number in range(99) if leaders[hash64(f"{stem}{number}".encode()) % PARTITIONS] == name
    )


def will(payload: bytes) -> Will:
    return Will(b"will", payload, 1, False)


@pytest.mark.parametrize("expiry_s", [0, EVER])
def test_a_client_that_goes_to_the_other_side_has_two_wills_and_each_is_published_once(expiry_s: int) -> None:
    camp = Camp(5, partitions=PARTITIONS, replicas=1, split_policy="majority")
    here = camp["n1"]
    client_id = client_led_by("n4", here, "c")  # the other side has no copy of its partition
    watcher = here.client(client_led_by("n1", here, "w"))
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    camp["n5"].client(client_id).connect(will=will(b"first"), session_expiry=expiry_s)
    camp.cut("n4", "n1", "n2", "n3")
    camp.cut("n5", "n1", "n2", "n3")
    camp.advance(5 * SECOND)
    second = camp["n2"].client(client_id)
    second.connect(will=will(b"second"), session_expiry=expiry_s)
    camp.advance(SECOND)
    camp.heal()
    camp.settle()
    camp.advance(5 * SECOND)
    assert watcher.payloads() == [b"first"]
    second.lose()
    camp.advance(5 * SECOND)
    assert watcher.payloads() == [b"second"]


@pytest.mark.parametrize("at", ["n4", "n5"])
def test_of_two_connections_of_one_transient_client_one_stays_and_the_will_of_the_other_is_published(at: str) -> None:
    camp = Camp(5, partitions=PARTITIONS, replicas=1, split_policy="available")
    here = camp["n1"]
    client_id = client_led_by("n4", here, "c")
    watcher = here.client(client_led_by("n1", here, "w"))
    watcher.connect(session_expiry=EVER)
    watcher.subscribe("will", qos=1)
    camp.cut("n4", "n1", "n2", "n3")
    camp.cut("n5", "n1", "n2", "n3")
    camp.advance(5 * SECOND)
    peers = {b"smaller": camp[at].client(client_id), b"larger": camp["n2"].client(client_id)}
    for name, peer in peers.items():
        peer.connect(will=will(name))
        camp.advance(SECOND)
    camp.heal()
    camp.settle()
    camp.advance(5 * SECOND)
    gone = [name for name, peer in peers.items() if peer.closed]
    assert watcher.payloads() == gone
    (stays,) = [name for name in peers if name not in gone]
    peers[stays].lose()
    camp.advance(5 * SECOND)
    assert watcher.payloads() == [stays]
