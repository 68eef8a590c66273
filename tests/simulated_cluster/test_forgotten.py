"""A node that an operator had forgotten comes back all the same, as another disk whose changes are merged."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from tests.harness.simulated_cluster import SimulatedCluster


class Forgotten:
    """Three nodes; n3 was cut off, has taken a message since, and the others were told to forget it."""

    def __init__(self) -> None:
        self.cluster = SimulatedCluster(3)
        self.client("n1", "reader").subscribe("t/#", qos=1)
        self.client("n1", "reader").disconnect()
        self.cluster.advance(SECOND)
        self.cluster.cut("n3", "n1", "n2")
        self.cluster.advance(8 * SECOND)
        self.publish("n3", "t/there", b"only n3 has it")
        self.publish("n1", "t/here", b"the others have it")
        self.own = self.client("n3", "own")
        self.forget("n1", "n3")
        assert self.view("n1").known == ["n1", "n2"]

    def client(self, name: str, client_id: str) -> Any:
        peer = self.cluster[name].client(client_id)
        peer.resume()
        return peer

    def publish(self, name: str, topic: str, payload: bytes) -> None:
        peer = self.cluster[name].client("publisher")
        peer.connect()
        peer.publish(topic, payload, qos=1)
        peer.disconnect()

    def forget(self, name: str, node_id: str) -> None:
        self.cluster[name].node.cluster_node.membership.forget(node_id, self.cluster.now)  # type: ignore[union-attr]
        self.cluster.advance(3 * SECOND)

    def view(self, name: str) -> Any:
        return self.cluster.view_of(self.cluster[name])

    def kinds(self) -> list[str]:
        return [kind for site in self.cluster.sites.values() for kind in site.kinds()]

    def read(self, name: str) -> list[bytes]:
        reader = self.client(name, "reader")
        payloads = reader.payloads()
        reader.disconnect()
        self.cluster.advance(SECOND)
        return sorted(payloads)


@pytest.mark.parametrize("again", [False, True])
def test_what_only_it_had_comes_back_with_it_and_what_the_others_have_is_its_own(again: bool) -> None:
    case = Forgotten()
    if again:
        case.cluster["n3"].kill()
    case.cluster.heal()
    if again:
        case.cluster["n3"].revive()
    case.cluster.settle(60 * SECOND)
    assert case.cluster["n3"].kinds().count("disk_renewed") == 1
    assert case.view("n1").known == ["n1", "n2", "n3"]
    assert again or case.own.closed
    assert case.cluster["n3"].client("own").resume().session_present
    for name in ("n1", "n2"):
        case.cluster[name].kill()
        case.cluster.advance(8 * SECOND)
    assert case.read("n3") == [b"only n3 has it", b"the others have it"]


def test_it_is_forgotten_once() -> None:
    case = Forgotten()
    case.cluster.heal()
    case.cluster.settle(60 * SECOND)
    case.publish("n1", "t/later", b"later")
    case.cluster["n3"].kill()
    case.cluster.settle()
    case.publish("n1", "t/last", b"last")
    case.cluster["n3"].revive()
    case.cluster.settle()
    assert case.cluster["n3"].kinds().count("disk_renewed") == 1
    assert case.read("n3") == [b"last", b"later", b"only n3 has it", b"the others have it"]


def test_a_node_that_was_cut_off_cannot_have_the_others_forgotten() -> None:
    case = Forgotten()
    case.forget("n3", "n1")
    case.forget("n3", "n2")
    assert case.view("n3").known == ["n3"]
    case.cluster.heal()
    case.cluster.settle(60 * SECOND)
    assert [name for name in case.cluster.sites if "disk_renewed" in case.cluster[name].kinds()] == ["n3"]
    assert case.read("n2") == [b"only n3 has it", b"the others have it"]
