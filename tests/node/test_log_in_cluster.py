"""What the log says of ordinary things: a warning is for what an operator should look at."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import INFO, WARNING, Event
from tests.harness.simulated_cluster import Camp, Site


def told(site: Site, kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [(event.level, event.fields) for event in site.events if event.kind == kind]


def loud(camp: Camp) -> list[str]:
    """The kinds of all that is more than information."""
    return [event.kind for site in camp.live() for event in site.events if event.level != INFO]


def quiet(camp: Camp) -> None:
    for site in camp.sites.values():
        site.events.clear()


def end(camp: Camp, name: str) -> None:
    """Stop a node as SIGTERM does."""
    site = camp[name]
    site.node.stop(camp.now)
    camp.run()
    site.node.depart(camp.now)
    camp.advance(SECOND)
    assert site.node.departed
    for wire in [wire for wire in camp.wires if site in wire.sites]:
        camp.drop(wire)
    site.run_alone()
    site.kill()
    camp.settle()


def use(camp: Camp, name: str, count: int = 10) -> None:
    client = camp[name].client(f"at-{name}")
    client.resume()
    client.subscribe("t/#", qos=1)
    for number in range(count):
        client.publish(f"t/{number}", b"m", qos=1, retain=True)
    client.disconnect()


@pytest.fixture
def camp() -> Camp:
    return Camp(3)


def test_a_rolling_restart_has_no_warning(camp: Camp) -> None:
    use(camp, "n1")
    quiet(camp)
    for name in list(camp.sites):
        end(camp, name)
        use(camp, next(other for other in camp.sites if other != name), 3)
        camp[name].revive()
        camp.settle()
    assert loud(camp) == []


def test_a_killed_node_is_one_warning_at_each_other(camp: Camp) -> None:
    use(camp, "n1")
    quiet(camp)
    camp["n3"].kill()
    camp.settle()
    for name in ("n1", "n2"):
        assert [level for level, _ in told(camp[name], "peer_down")] == [WARNING]
        assert [(level, fields["node"]) for level, fields in told(camp[name], "peer_dead")] == [(INFO, "n3")]
    camp["n3"].revive()
    camp.settle()
    assert loud(camp) == ["peer_down", "peer_down"]


def test_what_a_node_has_is_told_when_it_is_known(camp: Camp) -> None:
    use(camp, "n1")
    quiet(camp)
    for site in camp.live():
        site.kill()
    camp["n1"].revive()
    camp.advance(5 * SECOND)
    ((_, opened),) = told(camp["n1"], "opened")
    assert opened["copies"] == camp.partitions
    assert "retained" not in opened
    ((_, leads),) = told(camp["n1"], "leads")
    assert (leads["partitions"], leads["retained"], leads["sessions"]) == (camp.partitions, 10, 1)


def test_a_heal_without_anything_to_take_in_is_no_warning(camp: Camp) -> None:
    use(camp, "n1")
    quiet(camp)
    camp.cut("n1", "n2", "n3")
    camp.advance(10 * SECOND)
    camp.heal()
    camp.settle()
    merges = [event for site in camp.live() for event in site.events if event.kind in ("healed", "branch_merged")]
    assert merges, "each side has opened its partitions anew"
    assert {event.level for event in merges} == {INFO}


def test_a_heal_that_takes_something_in_is_a_warning(camp: Camp) -> None:
    use(camp, "n1")
    camp.cut("n1", "n2", "n3")
    camp.advance(10 * SECOND)
    use(camp, "n1", 3)
    use(camp, "n2", 3)
    quiet(camp)
    camp.heal()
    camp.settle()
    healed: list[Event] = [event for site in camp.live() for event in site.events if event.kind == "healed"]
    assert WARNING in [event.level for event in healed]


def test_who_is_left_out_is_told_who_went_on(camp: Camp) -> None:
    evict(camp, "n3")
    camp.advance(2 * SECOND)
    ((level, fields),) = told(camp["n3"], "view_excluded")
    assert level == WARNING
    assert fields["why"].endswith(" went on without this node")
    assert fields["why"].split()[0] in ("n1", "n2")
    assert fields["view"] > 0


def evict(camp: Camp, name: str) -> None:
    liaison = camp["n1"].node.liaison
    assert liaison is not None
    liaison.membership.evict(name, camp.now)
    camp.run()
