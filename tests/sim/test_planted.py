"""The checkers catch planted bugs: a checker that catches nothing is worth nothing."""

from __future__ import annotations

import pytest

from folkmoot.sim import Simulation
from folkmoot.sim.disk import Disk
from folkmoot.sim.host import Host
from folkmoot.sim.swarm import Swarm
from tests.sim import plant

SEEDS = 25
"""Every planted bug is found within this many seeds of 600 steps; most by the first three."""

STEPS = 600

# The promise that is expected to be named by at least one of the seeds.
DISKS: list[tuple[type[Disk], tuple[str, ...]]] = [
    (plant.ForgetsBatches, ("A1", "A9")),
    (plant.ForgetsQueues, ("A1",)),
    (plant.ForgetsSessions, ("A1",)),
    (plant.ForgetsSubscriptions, ("A1",)),
    (plant.RemembersSubscriptions, ("A2",)),
    (plant.ForgetsReceived, ("A4", "A9", "A2")),
    (plant.ForgetsReleased, ("A4", "liveness")),
    (plant.ForgetsWills, ("A7",)),
    (plant.RemembersWills, ("A7", "A4", "A2", "A9")),
    (plant.RemembersRetained, ("A8",)),
    (plant.ForgetsChunks, ("A9",)),
]
HOSTS: list[tuple[type[Host], tuple[str, ...]]] = [
    (plant.CorruptsHost, ("A2",)),
    (plant.DropsHost, ("A1",)),
    (plant.LateHost, ("A6",)),
    (plant.RepeatsHost, ("A2",)),
    (plant.RestlessHost, ("liveness",)),
    (plant.SwapsHost, ("A3",)),
]


def shape(swarm: Swarm) -> None:
    """Switch on what the bugs need to show."""
    for name in (
        "crashes",
        "takeovers",
        "retained",
        "clears",
        "streams",
        "wills",
        "unsubscribes",
        "disconnects",
        "qos 0",
    ):
        swarm.on[name] = True
    for name in ("disk full", "clock steps"):
        swarm.on[name] = False
    swarm.fault_every = 20
    swarm.topics = min(swarm.topics, 4)
    swarm.short_queues = False
    swarm.retained_wills = swarm.restless_replays = False


SHOWN_BY: dict[type[Disk], int] = {plant.ForgetsReleased: 9, plant.ForgetsSubscriptions: 9, plant.RemembersWills: 9}
"""Seeds that have shown a bug soonest: the search begins there, and goes through all when they show it no more."""


def seeds_until(promises: tuple[str, ...], host_class: type[Host] = Host, disk_class: type[Disk] = Disk) -> int | None:
    """The number of seeds after which one of the promises was found broken, or None."""
    seeds: list[int] = [SHOWN_BY.get(disk_class, 1), *range(1, SEEDS + 1)]
    for seed in seeds:
        run = Simulation(seed, STEPS, host_class=host_class, disk_class=disk_class, shape=shape).run()
        if run.violations and run.violations[0].promise in promises:
            return seed
    return None


@pytest.mark.parametrize(("disk", "promises"), DISKS, ids=[disk.__name__ for disk, _ in DISKS])
def test_a_disk_that_breaks_its_word_is_found(disk: type[Disk], promises: tuple[str, ...]) -> None:
    assert seeds_until(promises, disk_class=disk) is not None


@pytest.mark.parametrize(("host", "promises"), HOSTS, ids=[host.__name__ for host, _ in HOSTS])
def test_a_host_that_mistreats_packets_is_found(host: type[Host], promises: tuple[str, ...]) -> None:
    assert seeds_until(promises, host_class=host) is not None


@pytest.mark.parametrize("seed", range(1, 7))
def test_without_a_planted_bug_nothing_is_found(seed: int) -> None:
    assert Simulation(seed, STEPS, shape=shape).run().violations == []
