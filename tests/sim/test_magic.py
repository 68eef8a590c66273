"""The simulator of a cluster on one that cannot go wrong: nothing is found, and every kind of fault is reached."""

from __future__ import annotations

from typing import Any

import pytest

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.membership.view import View
from folkmoot.node import NodeConfig
from folkmoot.sim import Simulation
from folkmoot.sim.swarm import CLUSTER_FAULTS, FAULTS, FEATURES, Swarm
from folkmoot.store.batch import Batch
from folkmoot.store.epoch import counter_of, make_epoch
from folkmoot.store.reader import Reader
from tests.sim.magic import SIMULATIONS, Face, Magic, MagicHost, Turn, magic_simulation

STEPS = 200


@pytest.mark.parametrize("nodes", [2, 3, 5])
@pytest.mark.parametrize("seed", range(1, 7))
def test_a_perfect_cluster_breaks_no_promise(nodes: int, seed: int) -> None:
    assert magic_simulation(seed, STEPS, nodes=nodes).run().violations == []


def test_the_same_seed_is_the_same_run() -> None:
    first = magic_simulation(4, STEPS).run()
    second = magic_simulation(4, STEPS).run()
    assert first.line == second.line
    assert first.marks == second.marks


def everything(swarm: Swarm) -> None:
    for name in FEATURES + FAULTS + CLUSTER_FAULTS:
        swarm.on[name] = True
    swarm.fault_every = 8
    swarm.pace_us = 60_000
    swarm.spares = 1
    swarm.replicas = 3
    swarm.lean = True


def test_runs_reach_the_faults_of_a_cluster() -> None:
    reached: dict[str, int] = {}
    for seed in (*range(1, 17), 38):  # few machines fail with nothing else for long enough: in the last run one does
        result = magic_simulation(seed, STEPS, everything, nodes=5).run()
        assert result.violations == []
        for name, count in result.marks.items():
            reached[name] = reached.get(name, 0) + count
    wanted = (
        "bad link",
        "blackout",
        "connection refused",
        "empty restart",
        "failed node left the view in time",
        "flapping",
        "half-open client",
        "hang",
        "join",
        "leave",
        "mass crash",
        "one-way split",
        "peer reset",
        "power loss",
        "slow link",
        "split in 2",
        "split in 3",
        "swizzle",
        "sync failure",
        "thinned out",
        "view",
    )
    assert [name for name in wanted if name not in reached] == []


# Lies about views and copies: each checker of what nodes agree on finds its own.


class TwoViews(Face):
    """Every machine has its own idea of who keeps what, under the same epoch."""

    @property
    def view(self) -> View:
        view = super().view
        view.learners = [[self.config.node_id] for _ in view.replicas]
        return view


class Forgetful(Face):
    """Goes back to a view that was replaced."""

    @property
    def view(self) -> View:
        view = super().view
        view.epoch += 1000 - SIMULATIONS[-1].world.turns // 100
        return view


class Evicting(Face):
    """Leaves out a member that is well."""

    @property
    def view(self) -> View:
        view = super().view
        if SIMULATIONS[-1].world.turns > 300:
            view.epoch = make_epoch(1_000_000 + counter_of(view.epoch), "evicting")
            view.members = [member for member in view.members if member.node_id != "n2"]
        return view


class Keeping(Face):
    """Never notices that a member is gone."""

    @property
    def view(self) -> View:
        return View(1, [*self.everybody()])


class Writing(Face):
    """Writes a row of its own under a version that others use for the same row."""

    def drain(self, now: int, steady_ns: int = 0) -> Turn:
        turn = super().drain(now, steady_ns)
        if not self.told:
            self.told = True
            batch = Batch(1)
            batch.put(b"\x00\x00\x01client", bytes(16) + self.own)
            turn.effects.write = batch
        return turn


class Different(Writing):
    """Has a copy of its own, in a version of its own."""

    def drain(self, now: int, steady_ns: int = 0) -> Turn:
        turn = super().drain(now, steady_ns)
        if turn.effects.write is not None:
            turn.effects.write.ops = [
                (kind, key, self.own.ljust(16) + value[16:]) for kind, key, value in turn.effects.write.ops
            ]
        return turn


def calm(swarm: Swarm) -> None:
    for name in FAULTS + CLUSTER_FAULTS:
        swarm.on[name] = False
    swarm.lean = False
    swarm.spares = 0


def killing(swarm: Swarm) -> None:
    calm(swarm)
    swarm.on["mass crashes"] = True
    swarm.fault_every = 10
    swarm.replicas = 2
    swarm.pace_us = 60_000


@pytest.mark.parametrize(
    ("face", "shape", "broken"),
    [
        (Face, calm, []),
        (Face, killing, []),
        (TwoViews, calm, ["views"]),
        (Forgetful, calm, ["views"]),
        (Evicting, calm, ["eviction"]),
        (Keeping, killing, ["eviction"]),
        (Writing, calm, ["rows"]),
        (Different, calm, ["copies"]),
    ],
)
def test_a_cluster_that_lies_is_found(face: type[Face], shape: Any, broken: list[str]) -> None:
    class Lying(Magic):
        def make(self, config: NodeConfig, _reader: Reader, seed: int) -> Any:
            return self.face(config, seed, face)

    found: set[str] = set()
    for seed in range(1, 6):
        simulation = Simulation(seed, 100, shape=shape, nodes=3, host_class=MagicHost, make_core=Lying().make)
        SIMULATIONS.append(simulation)
        found |= {violation.promise for violation in simulation.run().violations}
        if found:
            break
    assert sorted(found) == broken


@pytest.mark.parametrize(
    ("back_us", "until_us", "broken"),
    [
        (None, 700 * MILLISECOND, []),  # the other one that failed may be slow: it is waited for
        (500 * MILLISECOND, 700 * MILLISECOND, []),  # it was waited for until a moment ago
        (500 * MILLISECOND, 4 * SECOND, ["eviction"]),
        (None, 4 * SECOND, ["eviction"]),
    ],
)
def test_who_fails_with_another_one_has_longer_to_be_out(back_us: int | None, until_us: int, broken: list[str]) -> None:
    class Blind(Magic):
        def make(self, config: NodeConfig, _reader: Reader, seed: int) -> Any:
            return self.face(config, seed, Keeping)

    simulation = Simulation(1, 0, shape=calm, nodes=5, host_class=MagicHost, make_core=Blind().make)
    SIMULATIONS.append(simulation)
    world = simulation.world
    broken_then: list[str] = []

    def fail() -> None:
        world.run(world.now + SECOND)
        failed_us = world.now
        first, second = simulation.site.hosts[1], simulation.site.hosts[3]
        simulation.trouble.fail([first, second])
        first.crash()
        second.crash()
        simulation.checker.expect_out(second, 500 * MILLISECOND, 2500 * MILLISECOND, 0)
        if back_us is not None:
            world.run(failed_us + back_us - 1)
            first.start()
        world.run(failed_us + until_us)
        broken_then.extend({violation.promise for violation in world.violations})

    simulation.script = fail
    simulation.run()
    assert broken_then == broken
