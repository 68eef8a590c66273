"""Wrong variants of the cluster's protocol, planted in the nodes, are each found by the checkers within few seeds.

A checker that catches nothing is worth nothing. Each bug has the faults under which it shows, and the number of seeds,
from 1, within which it must; `docs/simulation.md` has the same table.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from folkmoot.config import Settings
from folkmoot.peer.config import ClusterConfig
from folkmoot.sim import Simulation, parse_scenario
from folkmoot.sim.check_copy import CopyChecker
from folkmoot.sim.host import Host
from folkmoot.sim.swarm import CLUSTER_FAULTS, FAULTS, FEATURES, LATER, Shape, Swarm
from folkmoot.streams.log import StreamLog

STEPS = 120
NODES = 5
KILLS = ("crashes", "mass crashes", "power loss", "peer resets")


class Planted:
    """A bug: its name, what is wrong, the faults and numbers under which it shows, and within how many seeds."""

    def __init__(self, name: str, what: str, seeds: int, faults: tuple[str, ...], **numbers: int) -> None:
        self.name = name
        self.what = what
        self.seeds = seeds
        self.faults = faults
        self.numbers = numbers


FAR = 60_000
"""Machines so far apart, in microseconds, that much is under way between them when something happens."""

BUGS = [
    Planted("leader_alone", "a leader acknowledges without its followers", 27, ("crashes",), mesh_latency_us=FAR),
    Planted("gaps", "followers apply changes over a gap", 25, KILLS),
    Planted(
        "untouched", "pages of a copy overwrite newer changes", 30, ("empty restarts",), sync_us=60_000, pace_us=5000
    ),
    Planted(
        "partial_counts",
        "a copy that is being filled counts as complete",
        70,
        ("empty restarts", "crashes"),
        recent_bytes_max=300,
        copy_bytes_per_s=8000,
        page_bytes=500,
        fault_every=4,
        payload_bytes=100,
    ),
    Planted("deaf_digests", "copies that differ are left as they are", 10, ("bit flips",)),
    Planted("clears_kept", "a retained message is cleared at its leader only", 10, KILLS),
    Planted("unmarked", "repeated requests are applied again", 10, KILLS),
    Planted(
        "unfenced", "a client is admitted before its older connection is fenced", 25, ("slow links",), fault_every=4
    ),
    Planted("outbox_forgotten", "a new leader does not continue with outbox entries", 30, KILLS),
    Planted("wills_twice", "a will stays stored when it is published", 15, KILLS),
    Planted("unasked", "a new leader does not ask which clients are connected", 10, KILLS),
    Planted(
        "no_barrier",
        "SUBACK does not wait for the other nodes",
        25,
        (),
        replicas=1,
        mesh_latency_us=FAR,
        latency_us=50,
        pace_us=5000,
    ),
    Planted(
        "endless_turns",
        "a turn handles all its input, however much that is",
        20,
        (),
        bursts=1,
        turn_steps=192,
        turn_us=2000,
        pace_us=5000,
    ),
]


SCENARIOS = [
    ("nameless_packets", "packet-of-two-leaders"),
    ("no_stamps", "unsubscribed-in-a-split"),
    ("same_ids", "packet-ids-of-two-forks"),
    ("tail_kept nameless_packets", "taken-back-at-a-fork"),
    ("unleased", "slow-clock-and-a-lease"),
    ("unleased", "stutter-and-a-lease"),
    ("stale_routes", "too-late-for-a-subscription"),
    ("serves_scarce", "on-two-disks-or-refused"),
    ("own_time", "one-clock-of-three"),
    ("unbounded_time", "one-clock-of-three"),
    ("wall_deadlines", "one-clock-of-three"),
]
"""What seeds do not get to soon, but a scenario does; without the bugs `test_scenario` runs it.

The messages of a tail that is kept have the names of packets, by which a merge drops them: so it takes both bugs.
"""


def shape_of(bug: Planted, *, healthy: bool = False) -> Shape:
    """Return a run with the faults of a bug, and without the bug if `healthy`."""

    def shape(swarm: Swarm) -> None:
        for name in FAULTS + CLUSTER_FAULTS:
            swarm.on[name] = name in bug.faults
        for name in FEATURES:
            swarm.on[name] = name not in ("own limits", "expiring messages", "finite sessions")
        swarm.fault_every = 8
        swarm.pace_us = 20_000
        swarm.rounds = 1
        swarm.majority = False
        swarm.short_queues = False
        swarm.replicas = 3
        swarm.min_in_sync = 1
        swarm.retained_wills = swarm.restless_replays = False
        swarm.lean = True
        swarm.topics = min(swarm.topics, 4)
        swarm.partitions = 4
        for name in LATER:
            swarm.on[name] = False
        swarm.turn_steps = 65_536
        for name, value in bug.numbers.items():
            if name in LATER:
                swarm.on[name] = bool(value)
            else:
                setattr(swarm, name, value)
        swarm.planted = [] if healthy else [bug.name]

    return shape


def broken(bug: Planted, seed: int, *, healthy: bool = False) -> str:
    """The first promise that a run breaks, empty if none."""
    found = Simulation(seed, STEPS, shape=shape_of(bug, healthy=healthy), nodes=NODES).run().violations
    return found[0].promise if found else ""


def test_power_cuts_one_behind_the_other_bring_nothing_back() -> None:
    slow = Planted("own_tail", "", 0, KILLS, sync_us=100_000)
    assert not broken(slow, 74, healthy=True)
    slow.numbers["partitions"] = 2
    assert not broken(slow, 20, healthy=True)


SHOWN_BY = {
    "clears_kept": 6,
    "deaf_digests": 6,
    "endless_turns": 14,
    "gaps": 22,
    "leader_alone": 27,
    "no_barrier": 22,
    "outbox_forgotten": 14,
    "partial_counts": 66,
    "unasked": 6,
    "unfenced": 19,
    "untouched": 29,
}
"""Seeds that have shown a bug soonest: the search begins there, and goes through all when they show it no more."""


def seeds_until(bug: Planted) -> int:
    """A seed that breaks a promise because of the bug: without it the same run is clean; 0 if there is none."""
    order: list[int] = [SHOWN_BY.get(bug.name, 1), *range(1, bug.seeds + 1)]
    for seed in order:
        if broken(bug, seed) and not broken(bug, seed, healthy=True):
            return seed
    return 0


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_wrong_protocol_is_found(bug: Planted) -> None:
    assert 0 < seeds_until(bug) <= bug.seeds


@pytest.mark.parametrize(("bugs", "name"), SCENARIOS)
def test_a_scenario_finds_a_wrong_protocol(bugs: str, name: str) -> None:
    path = Path(__file__).parents[1] / "scenarios" / f"{name}.txt"
    simulation = parse_scenario(path.read_text(encoding="utf-8")).simulation()
    simulation.swarm.planted.extend(bugs.split())
    assert simulation.run().violations != []


class ToldTooFar(CopyChecker):
    """Tells bounds with what is stored and not yet committed."""

    def read_all(self, leader: Host, led: StreamLog, told: list[int]) -> None:
        told[1] = led.next_offset
        super().read_all(leader, led, told)


@pytest.mark.parametrize(("checker", "found"), [(CopyChecker, False), (ToldTooFar, True)])
def test_what_is_not_committed_is_not_read_from_copies(checker: type[CopyChecker], found: bool) -> None:
    def with_streams(swarm: Swarm) -> None:
        swarm.on["streams"] = True

    simulation = Simulation(2, STEPS, shape=with_streams, nodes=NODES)
    simulation.copies = checker(simulation.oracle.streams, simulation.site.hosts)
    assert any(violation.promise == "A9" for violation in simulation.run().violations) == found


def test_the_table_of_the_documentation_is_this_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| (\d+) \|$", text, re.MULTILINE)
    assert rows == [(bug.name, bug.what, str(bug.seeds)) for bug in BUGS]


def test_no_configuration_plants_a_bug() -> None:
    assert ClusterConfig().planted == []
    assert "planted" not in Settings().cluster.__class__.model_fields
