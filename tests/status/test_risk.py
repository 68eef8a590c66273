"""What an operator may not do by a slip of the hand: with real cores in a camp, and for pictures that a test draws."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.picture import Drawn, Roles
from tests.harness.simulated_cluster import Camp, Site

ALL: Roles = [["a", "b"], ["b", "a"]]


def of(site: Site) -> NodeStatus:
    return NodeStatus(picture_of(site.node))


def status(site: Site) -> dict[str, Any]:
    return of(site).status()


def rest(camp: Camp) -> None:
    camp.run()
    camp.advance(5 * SECOND)


def empty(site: Site) -> None:
    """Put another disk into a node that is down; its starts are numbered from anywhere, as on a new one."""
    site.store = type(site.store)()
    site.seed += 1 << 30


def told(site: Site) -> list[str]:
    return [event.kind for event in site.events if event.kind.startswith("copies_")]


def test_the_only_copy_is_not_put_out_by_a_slip() -> None:
    picture = Drawn([["a", "b"], ["b"], ["b"]])
    why = NodeStatus(picture).evict("b", 1)
    assert "only copy of 2 partitions (1, 2)" in why
    assert "folkmoot evict b --force" in why
    assert "force=true" in why
    assert NodeStatus(picture).evict("a", 1) == "", "the others have all that it has"
    assert NodeStatus(picture).evict("b", 1, True) == ""
    assert picture.orders == [("evict", "a"), ("evict", "b")]


def test_a_majority_is_not_given_up_by_a_slip() -> None:
    picture = Drawn(ALL, members="ab", known="ab")
    assert NodeStatus(picture).evict("b", 1) == ""
    picture.split_policy = "majority"
    assert "no majority of 2: writes would be refused" in NodeStatus(picture).evict("b", 1)
    assert NodeStatus(picture).evict("b", 1, True) == ""


def test_who_is_heard_is_not_forgotten_by_a_slip() -> None:
    picture = Drawn(ALL, members="ab", known="abc")
    picture.heard = ["c"]
    assert "c runs and is heard" in NodeStatus(picture).forget("c", 1)
    assert picture.orders == []
    assert NodeStatus(picture).forget("c", 1, True) == ""
    picture.heard = ["a", "b"]
    assert NodeStatus(picture).forget("c", 1) == ""


def test_who_has_the_only_copies_is_not_forgotten_by_a_slip() -> None:
    picture = Drawn(ALL, members="ab", known="abcd")
    picture.losses.missing = {1: ["c"], 0: ["c", "d"]}
    why = NodeStatus(picture).forget("c", 1)
    assert "only copies of what 1 partitions (1) had" in why
    assert "folkmoot forget c --force" in why
    assert NodeStatus(picture).forget("d", 1) == "", "c has the same"
    picture.known_ids = list("abc")
    assert "2 partitions (0, 1)" in NodeStatus(picture).forget("c", 1)


@pytest.fixture
def camp() -> Camp:
    return Camp(2, replicas=1)


def test_what_is_missing_is_told_until_it_is_back(camp: Camp) -> None:
    lost = [p for p, entry in enumerate(of(camp["n1"]).partitions()) if entry["leader"] == "n2"]
    assert lost
    assert "the only copy" in of(camp["n1"]).evict("n2", camp.now)
    rest(camp)
    assert status(camp["n1"])["copies_missing"] == []
    assert of(camp["n1"]).evict("n2", camp.now, True) == ""
    rest(camp)
    assert status(camp["n1"])["copies_missing"] == [{"nodes": ["n2"], "partitions": lost}]
    assert told(camp["n1"]) == ["copies_missing"]
    assert "n2 runs and is heard" in of(camp["n1"]).forget("n2", camp.now)
    camp["n2"].kill()
    rest(camp)
    assert "only copies" in of(camp["n1"]).forget("n2", camp.now)
    camp["n1"].kill()
    camp["n1"].revive()
    rest(camp)
    assert status(camp["n1"])["copies_missing"] == [{"nodes": ["n2"], "partitions": lost}], "also after a restart"
    camp["n2"].revive()
    camp.settle()
    for site in camp.live():
        assert status(site)["copies_missing"] == []
        assert status(site)["last_loss"] is None
    assert told(camp["n1"])[-1] == "copies_back"


def test_a_loss_by_force_stays_in_the_status(camp: Camp) -> None:
    lost = len([entry for entry in of(camp["n1"]).partitions() if entry["leader"] == "n2"])
    camp["n2"].kill()
    rest(camp)
    assert of(camp["n1"]).forget("n2", camp.now, True) == ""
    rest(camp)
    found = status(camp["n1"])
    assert (found["copies_missing"], found["last_loss"]["partitions"]) == ([], lost)
    assert found["last_loss"]["nodes"] == ["n2"]
    assert camp.now - 10 * SECOND < found["last_loss"]["time_us"] <= camp.now
    assert told(camp["n1"]) == ["copies_missing", "copies_lost"]
    late = camp.add("n3")
    camp.settle()
    assert status(late)["last_loss"] == found["last_loss"], "all members tell it"
    assert "copies_lost" not in told(late)


def test_a_dead_node_whose_copies_others_have_is_forgotten_without_force() -> None:
    camp = Camp(3, replicas=2)
    camp["n3"].kill()
    camp.settle()
    assert status(camp["n1"])["copies_missing"] == []
    assert of(camp["n1"]).forget("n3", camp.now) == ""
    rest(camp)
    assert status(camp["n1"])["last_loss"] is None
    assert told(camp["n1"]) == []


def test_an_emptied_disk_is_told_as_a_loss() -> None:
    camp = Camp(2, replicas=1)
    camp["n2"].kill()
    empty(camp["n2"])
    camp["n2"].revive()
    camp.settle()
    assert status(camp["n1"])["last_loss"]["nodes"] == ["n2"]
    assert status(camp["n1"])["copies_missing"] == []


def lose_power(camp: Camp) -> None:
    """Three of five nodes go; the others make a view and go before they begin anything, or the second has stored it."""
    camp["n5"].hold_writes()
    camp.freeze()
    for name in ("n1", "n2", "n3"):
        camp[name].kill()
    for _ in range(1_000):
        if "copies_missing" in told(camp["n4"]):
            break
        if not camp.step():
            camp.now += SECOND // 100
    assert "copies_missing" in told(camp["n4"])
    assert camp["n4"].turn()  # its new view goes to the disk, and it has heard nothing of the other one's
    camp["n4"].kill()
    camp["n5"].kill()
    camp.thaw()


def test_a_power_cut_in_two_blows_loses_nothing() -> None:
    camp = Camp(5, partitions=32)
    lose_power(camp)
    for site in camp.sites.values():
        site.revive()
    camp.settle()
    for site in camp.live():
        assert (status(site)["last_loss"], status(site)["copies_missing"]) == (None, [])


def test_planned_restarts_with_enough_copies_are_no_news() -> None:
    camp = Camp(3)
    for name in ("n1", "n2", "n3"):
        camp[name].kill()
        rest(camp)
        camp[name].revive()
        camp.settle()
    assert [told(site) for site in camp.live()] == [[], [], []]
