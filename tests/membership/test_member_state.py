"""Where a node stands: who has stood down since it promised a view does not serve in it."""

from __future__ import annotations

from folkmoot.kernel.rng import Rng
from folkmoot.membership.holding import Holding
from folkmoot.membership.member_state import HoldingsSource, MemberState
from folkmoot.membership.view import View
from folkmoot.peer.config import ClusterConfig
from folkmoot.peer.member import ACTIVE, Member

MEMBERS = [Member(f"n{number}", number, "", "", ACTIVE) for number in (1, 2, 3)]
SERVED = 100


class Nothing(HoldingsSource):
    def holdings(self) -> list[Holding]:
        return []


def member_state() -> MemberState:
    """One that serves in a view."""
    found = MemberState(MEMBERS[0], ClusterConfig(), 1, Rng(1), Nothing(), None)
    assert found.install([View(SERVED, MEMBERS, [["n1", "n2"]])], 0)
    assert found.may_write()
    return found


def next_view(epoch: int, served_in: int) -> View:
    return View(epoch, MEMBERS, [["n1", "n2"]], bases={"n1": served_in, "n2": SERVED, "n3": SERVED})


def test_who_serves_on_does_so_in_the_next_view() -> None:
    found = member_state()
    found.install([next_view(200, SERVED)], 1)
    assert found.may_write()
    assert not found.news


def test_who_stood_down_after_its_promise_waits_for_another_view() -> None:
    found = member_state()
    found.exclude("others went on")
    found.install([next_view(200, SERVED)], 1)
    assert not found.may_write(), "the others think that it has forgotten nothing"
    assert found.news, "so it asks for another view"
    found.install([next_view(300, SERVED)], 2)
    assert not found.may_write(), "that was promised before it had stood down, too"
    found.install([next_view(400, 400)], 3)
    assert found.may_write()
    assert not found.news


def test_who_stood_down_before_its_promise_begins_anew_at_once() -> None:
    found = member_state()
    found.exclude("others went on")
    found.install([next_view(200, 200)], 1)
    assert found.may_write()


def test_seeds_are_known_by_their_address_or_by_who_answers_there() -> None:
    me, two, three = [Member(f"n{number}", 1, f"10.0.0.{number}:7883", "", ACTIVE) for number in (1, 2, 3)]
    config = ClusterConfig()
    config.peer_address = me.address
    found = MemberState(me, config, 1, Rng(1), Nothing(), None)
    assert not found.is_few([me]), "it knows of nobody"
    config.seeds = [me.address, two.address, three.address]
    assert found.is_few([me])
    assert not found.is_few([me, two])
    config.seeds = ["one:7883", "two:7883"]
    assert found.is_few([me, two])
    found.met = {"one:7883": "n1"}
    assert found.is_few([me, two]), "one of the names is its own, and nobody knows who the other is"
    found.met["two:7883"] = "n2"
    assert not found.is_few([me, two])
    assert found.is_few([me]), "it has answered, and is not here"


def test_who_is_no_seed_does_not_stand_for_one() -> None:
    me = Member("x", 1, "10.0.0.9:7883", "", ACTIVE)
    others = [Member(name, 1, f"10.0.0.{number}:7883", "", ACTIVE) for number, name in enumerate("vwyz", 10)]
    config = ClusterConfig()
    config.seeds = ["10.0.0.1:7883", "10.0.0.2:7883", "10.0.0.3:7883"]
    found = MemberState(me, config, 1, Rng(1), Nothing(), None)
    assert found.is_few([me, *others])
