"""What the rules deny is told, a few times for each client, and counted otherwise."""

from __future__ import annotations

import pytest

from folkmoot.auth.acl import BOTH, Rule
from folkmoot.auth.policy import Policy
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt.packet import V5, V311
from folkmoot.protocol.denial import DENIED_MAX
from tests.harness.box import Box
from tests.harness.fixture import MakeBox
from tests.harness.peer import Peer


@pytest.fixture
def ruled(make: MakeBox) -> Box:
    rules = [Rule(True, BOTH, "*", "*", [b"own/%c/#"]), Rule(True, BOTH, "*", "bystander", [b"#"])]
    return make(policy=Policy(rules, False))


def enter(box: Box, client_id: str, version: int = V5) -> Peer:
    peer = box.client(client_id, version)
    peer.connect()
    return peer


def told(box: Box, kind: str) -> list[dict[str, object]]:
    return [event.fields for event in box.events if event.kind == kind]


def test_a_denied_publication_is_told_with_who_and_where(ruled: Box) -> None:
    peer = enter(ruled, "a")
    peer.publish("own/a/x", b"", qos=1)
    assert peer.publish("own/b/x", b"", qos=1) == 0x87
    assert peer.publish("$SYS/x", b"", qos=1) == 0x87
    first, second = told(ruled, "publish_denied")
    assert (first["client"], first["topic"], second["topic"]) == ("a", "own/b/x", "$SYS/x")
    assert first["address"]


@pytest.mark.parametrize("qos", [0, 1])
def test_one_that_gets_no_answer_is_told_too(ruled: Box, qos: int) -> None:
    peer = enter(ruled, "a", V311)
    peer.publish("own/b", b"", qos=qos)
    assert [one["topic"] for one in told(ruled, "publish_denied")] == ["own/b"]


def test_a_denied_subscription_is_told_as_it_was_asked_for(ruled: Box) -> None:
    peer = enter(ruled, "a")
    assert peer.subscribe("own/a/#", "$share/g/own/b") == [0, 0x87]
    assert [one["filter"] for one in told(ruled, "subscribe_denied")] == ["$share/g/own/b"]


def test_a_flood_is_counted_and_nothing_is_left_out(ruled: Box) -> None:
    peer = enter(ruled, "a")
    for number in range(1000):
        peer.publish(f"own/b/{number}", b"", qos=0)
    assert len(told(ruled, "publish_denied")) == DENIED_MAX
    assert peer.subscribe("own/b") == [0x87]
    assert len(told(ruled, "subscribe_denied")) == 1, "each kind for itself"
    other = enter(ruled, "b")
    other.publish("own/a", b"", qos=0)
    assert told(ruled, "publish_denied")[-1]["client"] == "b", "each client for itself"
    ruled.advance(60 * SECOND)
    peer.publish("own/b/x", b"", qos=0)
    peer.publish("own/b/y", b"", qos=0)
    lines = told(ruled, "publish_denied")[-2:]
    assert [line.get("untold", 0) for line in lines] == [1000 - DENIED_MAX, 0]
    for _ in range(100):
        peer.publish("own/b/z", b"", qos=0)
    peer.lose()
    last = told(ruled, "publish_denied")[-1]
    assert ("topic" in last, last["untold"]) == (False, 102 - DENIED_MAX)
    assert ruled.node.counters.acl_denied_publish == 1000 + 1 + 2 + 100


def test_a_long_topic_is_shortened(ruled: Box) -> None:
    enter(ruled, "a").publish("ü" * 10_000, b"", qos=0)
    (line,) = told(ruled, "publish_denied")
    assert str(line["topic"]).startswith("üü")
    assert len(str(line["topic"])) <= 400
