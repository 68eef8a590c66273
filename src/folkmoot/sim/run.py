"""One run: builds the world from a seed, lets it go wrong, heals it and demands that everything comes to rest.

First safety under faults, then liveness after healing (TigerBeetle's VOPR). Owns the phases; the parts own the rest.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.mqtt.packet import V5, Publish
from folkmoot.node import Node, NodeConfig
from folkmoot.sim.client import Client
from folkmoot.sim.disk import Disk
from folkmoot.sim.fault import CLOCK_STEP_US, Faults
from folkmoot.sim.fleet import Fleet
from folkmoot.sim.host import Host
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.network import Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.profile import Profile
from folkmoot.sim.swarm import Swarm
from folkmoot.sim.trace import Trace
from folkmoot.sim.workload import Workload
from folkmoot.sim.world import Violation, World
from folkmoot.store.reader import Reader

__all__ = ["Result", "Simulation"]

_REST_US = 60 * SECOND
"""How long a healed world may take to come to rest."""

_DELAYS_US = 6 * SECOND
"""Longer than every will delay."""

_EVENTS_PER_STEP_MAX = 2_000
"""Beyond this many events per step on average the run goes round in circles."""


class Result:
    """What a run came to."""

    def __init__(self, world: World, seed: int, steps: int) -> None:
        self.seed = seed
        self.steps = steps
        self.digest = world.trace.hexdigest()
        self.events = world.events
        self.violations: list[Violation] = world.violations
        self.marks = world.marks

    @property
    def line(self) -> str:
        """The last line of `folkmoot simulate`."""
        return f"digest {self.digest} events {self.events} violations {len(self.violations)}"


class Auditor(Client):
    """Collects what a fresh wildcard subscription brings."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.got: dict[bytes, bytes] = {}
        profile = Profile(name, V5)
        profile.expiry_s = 0
        profile.clean = True
        world = simulation.world
        super().__init__(world, world.fork(), simulation.network, simulation.host, simulation.oracle, profile)
        self.hasty = True
        self.wanted = True

    def received(self, packet: Publish) -> None:
        """Keep the newest per topic."""
        super().received(packet)
        if packet.retain:
            self.got[packet.topic] = packet.payload


class Simulation:
    """A run of one node. The classes of the host and the disk can be replaced, to plant bugs in them."""

    def __init__(
        self,
        seed: int,
        steps: int = 2_000,
        sink: Callable[[str], None] | None = None,
        host_class: type[Host] = Host,
        disk_class: type[Disk] = Disk,
        shape: Callable[[Swarm], None] | None = None,
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.world = World(seed, Trace(sink))
        world = self.world
        self.swarm = Swarm(world.fork(), shape)
        self.network = Network(world, world.fork(), self.swarm.latency_us, self.swarm.split)
        disk = disk_class(world, world.fork(), "disk", self.swarm.sync_us)
        self.host = host_class(world, world.fork(), "node", disk, self._make_node)
        self.host.turn_us = self.swarm.turn_us
        fleet = Fleet(self.swarm, world.fork())
        self.ledger = Ledger(world, self.host)
        self.oracle = Oracle(self.ledger, [profile.client_id for profile in fleet.watchers])
        self.host.on_turn = self._after_turn
        self._pace = world.fork()
        self._audits = 0
        self.faults = Faults(world, world.fork(), self.swarm, self.network, self.host)
        self.workload = Workload(
            world,
            world.fork(),
            self.swarm,
            self.oracle,
            [self._client(profile) for profile in fleet.actors],
            [self._client(profile) for profile in fleet.watchers],
            [self._client(profile) for profile in fleet.replayers],
        )
        self._prepare_ledger()

    def _prepare_ledger(self) -> None:
        if self.swarm.short_queues:
            self.ledger.queue_limit = max(1, self.swarm.config.limits.queue_messages_max // 2)
        if self.swarm.has("clock steps"):
            self.ledger.slack_us += 2 * CLOCK_STEP_US

    def _make_node(self, reader: Reader, seed: int) -> Node:
        return Node(self.config, reader, seed)

    @property
    def config(self) -> NodeConfig:
        """The settings of the node."""
        return self.swarm.config

    def _client(self, profile: Profile) -> Client:
        return Client(self.world, self.world.fork(), self.network, self.host, self.oracle, profile)

    def _after_turn(self) -> None:
        node = self.host.node
        if node is not None and self.swarm.config.streams:
            self.oracle.streams.read(node.streams)

    # Phases

    def run(self) -> Result:
        """Run it to its end or to the first violation."""
        try:
            self._run()
        except Exception:  # noqa: BLE001 - whatever the node raises breaks a promise, and the trace explains it
            self.world.violate("never raises", traceback.format_exc())
        return Result(self.world, self.seed, self.steps)

    def _run(self) -> None:
        world = self.world
        self.host.start()
        self.workload.start()
        if not self._settle(self.workload.subscribe_watchers):
            return
        for _ in range(self.swarm.rounds):
            self._disturb(self.steps // self.swarm.rounds)
            if world.violations or not self._heal():
                return
            self._judge()
            if world.violations:
                return

    def _disturb(self, steps: int) -> None:
        world = self.world
        pace = self.swarm.pace_us
        for _ in range(steps):
            self.workload.step()
            self.faults.step()
            pause = self._pace.below(2 * pace)
            if self._pace.chance(1, 200):
                pause += self._pace.below(3 * SECOND)
            world.run(world.now + pause)
            if world.violations:
                return
            if world.events > self.steps * _EVENTS_PER_STEP_MAX + 100_000:
                world.violate("liveness", f"{world.events} events in {self.steps} steps: the run goes round in circles")

    def _heal(self) -> bool:
        self.faults.heal()
        clients = self.workload.clients
        for client in clients:
            client.hasty = True
            client.wanted = True
            client.inflow.flush()
            if client.link is None:
                client.connect()
        if not self._settle(self._all_idle):
            return False
        self.world.run(self.world.now + _DELAYS_US)
        if not self._settle(self._all_idle):
            return False
        if self.swarm.has("crashes"):
            # Nothing is in motion, so this crash must change nothing.
            self.host.crash()
            self.host.start()
            self.network.heal()
            if not self._settle(self._all_idle):
                return False
            self.world.run(self.world.now + _DELAYS_US)
        return self._settle(self._all_idle)

    def _all_idle(self) -> bool:
        return all(client.idle for client in self.workload.clients)

    def _settle(self, done: Callable[[], bool]) -> bool:
        """Let the world run until `done` and nothing moves; a world that never comes to rest is a violation."""
        world = self.world
        deadline = world.now + _REST_US
        while not world.violations:
            finished = done()
            if finished and world.busy == 0 and self.host.disk.idle:
                return True
            if world.now >= deadline:
                busy = [self._state_of(client) for client in self.workload.clients if not client.idle]
                world.violate("liveness", f"the world does not come to rest: {world.busy} events, {busy}")
                return False
            world.run(world.now + 10 * MILLISECOND)
        return False

    def _state_of(self, client: Client) -> str:
        flights = len(client.outflow.inflight), len(client.outflow.pending)
        flows = len(client.inflow.incoming)
        return f"{client.name}: online {client.online}, out {flights}, in {flows}, requests {len(client.requests)}"

    def _judge(self) -> None:
        """Everything has come to rest: demand what is owed."""
        for client in self.workload.clients:
            client.hasty = False
        oracle = self.oracle
        oracle.sessions.finish()
        oracle.deliveries.finish()
        oracle.wills.finish()
        node = self.host.node
        if node is not None:
            oracle.streams.finish(node.streams)
        if self.swarm.has("retained") and not self.world.violations:
            self._audit()

    def _audit(self) -> None:
        self._audits += 1
        auditor = Auditor(self, f"auditor{self._audits}")
        auditor.connect()
        if not self._settle(lambda: auditor.idle):
            return
        auditor.subscribe([(b"#", 1)], 0)
        if self._settle(lambda: auditor.idle):
            self.oracle.retained.finish(auditor.got)
        auditor.wanted = False
        auditor.disconnect(0, None)
