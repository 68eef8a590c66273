"""Addresses: who is dialled, when again, and what is not."""

from __future__ import annotations

from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.dial import Dials


def dials() -> Dials:
    return Dials(ClusterConfig(), Rng(1))


def test_who_lives_where_is_remembered() -> None:
    made = dials()
    for address in ("a:1", "b:1", "me:1"):
        made.want(address)
    made.met("b:1", "b")
    made.entries["me:1"].itself = True
    assert made.residents("me") == {"b:1": "b", "me:1": "me"}


def test_a_wanted_address_is_dialled_once_until_that_has_ended() -> None:
    made = dials()
    made.want("a:1")
    made.want("b:1")
    made.want("a:1")
    assert made.next_due({}) <= 0
    assert made.take({}, 100) == ["a:1", "b:1"]
    assert made.take({}, SECOND) == []
    assert made.next_due({}) == NEVER
    entry = made.ended("a:1", 0, SECOND)
    assert entry is not None
    assert made.take({}, entry.due_us - 1) == []
    assert made.take({}, entry.due_us) == ["a:1"]
    assert made.ended("nobody:1", 0, SECOND) is None


def test_nobody_dials_who_is_connected_or_is_itself() -> None:
    made = dials()
    for address in ("a:1", "b:1", "c:1"):
        made.want(address)
    made.met("a:1", "a")
    made.met("unwanted:1", "x")
    made.entries["b:1"].itself = True
    assert made.take({"a": True}, 100) == ["c:1"]
    assert made.take({}, 100) == ["a:1"], "not connected any more"
    made.unwant("b:1")
    made.unwant("b:1")
    assert list(made.entries) == ["a:1", "c:1"]


def test_what_lived_for_long_is_dialled_at_once_and_what_did_not_waits_longer() -> None:
    made = dials()
    made.want("a:1")
    made.take({}, 0)
    waits = []
    for _ in range(12):
        entry = made.ended("a:1", 10_000, 0)
        assert entry is not None
        waits.append(entry.due_us)
    assert waits == sorted(waits[:7]) + waits[7:]
    assert max(waits) <= SECOND
    entry = made.ended("a:1", SECOND, 5)
    assert entry is not None
    assert entry.due_us == 5


def test_a_node_that_was_lost_is_dialled_at_once_whoever_had_dialled() -> None:
    made = dials()
    made.want("a:1")
    made.met("a:1", "a")
    made.ended("a:1", 0, 0)
    made.ended("a:1", 0, 0)
    assert made.take({}, 10) == []
    made.hurry("a", 10)
    assert made.take({}, 10) == ["a:1"]
    made.hurry("a", 20)
    assert made.take({}, 20) == [], "it is being dialled"
