"""One run: builds the world from a seed, draws faults, heals them and demands that everything comes to rest.

First safety under faults, then liveness after healing (TigerBeetle's VOPR). Owns the phases; the parts own the rest.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.node import Node, NodeConfig
from folkmoot.sim.audit import Auditor
from folkmoot.sim.causes import Causes
from folkmoot.sim.check_bound import BoundChecker, leftovers
from folkmoot.sim.check_cluster import ClusterChecker
from folkmoot.sim.check_copy import CopyChecker
from folkmoot.sim.check_late import LateChecker
from folkmoot.sim.client import Client
from folkmoot.sim.committer import committers
from folkmoot.sim.core import Core
from folkmoot.sim.disk import Disk
from folkmoot.sim.fault import CLOCK_STEP_US, Faults
from folkmoot.sim.fleet import Fleet
from folkmoot.sim.history import HEAL_US, History
from folkmoot.sim.host import Host
from folkmoot.sim.inside import difference, member_at, not_whole, ready_at
from folkmoot.sim.ledger import Ledger
from folkmoot.sim.machine import Machine
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.network import Link, Network
from folkmoot.sim.oracle import Oracle
from folkmoot.sim.peering import Peering
from folkmoot.sim.probe import Prober
from folkmoot.sim.profile import Profile
from folkmoot.sim.site import Site, peer_address
from folkmoot.sim.swarm import QUOTA_MESSAGES, Shape, Swarm
from folkmoot.sim.trace import Trace
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.workload import Workload
from folkmoot.sim.world import Violation, World
from folkmoot.store.reader import Reader

__all__ = ["MakeCore", "Result", "Simulation"]

_REST_US = 60 * SECOND
"""How long a healed world may take to come to rest."""

_SLOW = 4
"""How many times as long it may take with bursts, where a turn has so few steps that a replay gets a record in each."""

_DELAYS_US = 1 * SECOND
"""What is late by itself: more than this after the longest delay of a will or a session, nothing comes any more."""

_QUIET_US = 300 * MILLISECOND
"""A cluster talks for ever: it is at rest when for this time no client and no disk had anything to do."""

_STAND_STEPS = 45
"""Seconds for which clients go on behind links that stay as they are: a side forks, gets ready, and has to serve."""

_CALM_STEPS = 12
"""Actions of clients when everything is whole again."""

_WHOLE_US = 3 * SECOND
_HEALED_US = 1 * SECOND
"""A cluster that has been whole for this time has noticed all that has happened to it, or all that has ended."""

_KILLED_OUT_US = 500 * MILLISECOND
_SILENT_OUT_US = 1700 * MILLISECOND
"""A node that was killed, or is silent, has left the view after this time and what the network and the disks take.

For a silent one that leads the configuration log, there is an election besides: at most eight heartbeats.
"""

_FORK_US = 4 * SECOND
"""For so long those that lack a quorum of voters wait before they go on without the others, who may live."""

_PROBES = 0x70726F626573
_LATER = 0x6C61746572
_TOPOLOGIES = 0x746F706F6C6F6779
"""Gives the family of topologies its own randomness: runs of the other one stay the same."""

_LOOK_US = 50 * MILLISECOND

_EVENTS_PER_STEP_MAX = 2_000
"""Beyond this many events per step and node on average the run goes round in circles."""

MakeCore = Callable[[NodeConfig, Reader, int], Core]
"""Builds a node from its settings, its store and a seed."""


class Result:
    """The result of a run."""

    def __init__(self, world: World, seed: int, steps: int) -> None:
        self.seed = seed
        self.steps = steps
        self.digest = world.trace.hexdigest()
        self.events = world.events
        self.violations: list[Violation] = world.violations
        self.marks = world.marks
        self.judged: dict[str, int] = {}
        self.excused: dict[tuple[str, str], int] = {}
        self.demands: dict[tuple[str, str], int] = {}
        self.majority = False

    @property
    def line(self) -> str:
        """The last line of `folkmoot simulate`."""
        return f"digest {self.digest} events {self.events} violations {len(self.violations)}"


class Simulation:
    """A run of one node or several. The classes of hosts and disks and the node itself can be replaced, to plant bugs.

    `script`, if given, takes the place of what the seed would do: it is called once, between start and healing.
    `topologies`: a run of the family with arbitrary topologies, judged by causes. `draws_later`: with what was added to
    the draws later.
    """

    def __init__(
        self,
        seed: int,
        steps: int = 2_000,
        sink: Callable[[str], None] | None = None,
        host_class: type[Host] = Host,
        disk_class: type[Disk] = Disk,
        shape: Shape | None = None,
        nodes: int = 1,
        make_core: MakeCore = Node,
        *,
        topologies: bool = False,
        draws_later: bool = True,
    ) -> None:
        self.seed = seed
        self.steps = steps
        self.world = World(seed, Trace(sink))
        world = self.world
        family = Rng(seed ^ _TOPOLOGIES) if topologies else None
        self.swarm = Swarm(world.fork(), shape, nodes, family, Rng(seed ^ _LATER) if draws_later else None)
        self.script: Callable[[], None] | None = None
        self._make_core = make_core
        self.network = Network(world, world.fork(), self.swarm.latency_us, self.swarm.split)
        self.site = Site([self._host(host_class, disk_class, number + 1) for number in range(nodes)])
        self.mesh = self._connect_hosts(host_class, disk_class) if nodes > 1 else None
        hosts = self.site.hosts
        fleet = Fleet(self.swarm, world.fork())
        self.trouble = Trouble(world, hosts, self.swarm.replicas, self.swarm.min_in_sync)
        self.trouble.majority = self.swarm.majority
        self.history = History(world, hosts, self.swarm.replicas, self.swarm.min_in_sync)
        self.judging = Causes(self.history, majority=self.swarm.majority)
        self.ledger = Ledger(world, hosts, self.trouble, self.judging)
        self.oracle = Oracle(self.ledger, [profile.client_id for profile in fleet.watchers])
        self.checker = ClusterChecker(world, self.trouble, self.swarm.partitions)
        self.copies = CopyChecker(self.oracle.streams, self.site.hosts)
        self.bounds = BoundChecker(world, self.swarm.config.limits)
        self._pace = world.fork()
        self._entered: dict[str, bool] = {}  # the first machines whose nodes have been in the cluster
        self._audits = 0
        self._faults_seen = 0
        self._calm_before_us = 0  # nothing was wrong when faults were drawn at this moment
        self._next_look_us = 0
        self._whole_since_us: int | None = None
        self._whole_us = _WHOLE_US
        self._delays_us = _DELAYS_US + SECOND * max([profile.delay_s for profile in fleet.actors])
        self.faults = Faults(
            world, world.fork(), self.swarm, self.network, self.site, self.trouble, self.judging, self.mesh
        )
        self.workload = Workload(
            world,
            world.fork(),
            self.swarm,
            self.oracle,
            [self._client(profile) for profile in fleet.actors],
            [self._client(profile) for profile in fleet.watchers],
            [self._client(profile) for profile in fleet.replayers],
        )
        if self.swarm.has("transactions") and make_core is Node:
            self.workload.committers = committers(self.network, self.site, self.oracle, fleet.topics, self.swarm)
        self.prober: Prober | None = None
        if self.swarm.topologies and nodes > 1 and make_core is Node:
            self.prober = Prober(
                Rng(seed ^ _PROBES),
                self.network,
                self.site,
                self.oracle,
                self.history,
                self.judging,
                self.swarm.replicas - self.swarm.min_in_sync,
                lambda: self.workload.clients,
                majority=self.swarm.majority,
            )
        slow = any(self.swarm.has(name) for name in ("bursts", "quotas", "small memory"))
        self.late = LateChecker(
            self.history, lambda: self.faults.active, asks=self.prober is None and not slow, admits=not slow
        )
        self.late.judge = self.judging.judge
        self.oracle.deliveries.late = self.late
        self._prepare()

    # Building

    def _host(self, host_class: type[Host], disk_class: type[Disk], number: int) -> Host:
        world = self.world
        alone = self.swarm.nodes == 1
        name = "node" if alone else f"n{number}"
        disk = disk_class(world, world.fork(), "disk" if alone else f"disk{number}", self.swarm.sync_us)
        host = host_class(world, world.fork(), name, disk, self._make_node)
        host.turn_us = self.swarm.turn_us
        host.witness = self.swarm.is_witness(number)
        return host

    def _connect_hosts(self, host_class: type[Host], disk_class: type[Disk]) -> Mesh:
        world = self.world
        for _ in range(self.swarm.spares):
            spare = self._host(host_class, disk_class, len(self.site.hosts) + 1)
            spare.member = False
            self.site.hosts.append(spare)
        latency_us = self.swarm.mesh_latency_us or self.swarm.latency_us
        mesh = Mesh(world, world.fork(), latency_us, self.swarm.split)
        clocks = world.fork()
        for number, host in enumerate(self.site.hosts, 1):
            host.peering = Peering(host, peer_address(number))
            mesh.listen(host.peering.address, host.peering)
            if self.swarm.has("clock drift"):
                host.clock_drift_ppm = clocks.between(-500, 500)
                host.clock_offset_us = clocks.between(-CLOCK_STEP_US, CLOCK_STEP_US)
        return mesh

    def _prepare(self) -> None:
        if self.swarm.short_queues:
            self.ledger.queue_limit = max(1, self.swarm.config.limits.queue_messages_max // 2)
        if self.swarm.has("quotas"):
            self.ledger.shared_limit = max(1, QUOTA_MESSAGES // (4 * self.swarm.clients))
        if self.swarm.has("clock steps") or self.swarm.has("clock drift"):
            self.ledger.slack_us += 2 * CLOCK_STEP_US
        self.ledger.ages = not self.swarm.has("upgrades")
        for host in self.site.hosts:
            host.on_turn = self._after_turn
            host.on_output = self._output
            host.on_change = self.history.look
            if self.mesh is not None:
                host.on_write = self.checker.write
                host.on_fail = self._failed
        if self.mesh is not None:
            self.history.mesh = self.mesh
            self.mesh.on_change = self.history.look

    def _make_node(self, host: Host, reader: Reader, seed: int) -> Core:
        host.deadlines_by_wall = "wall_deadlines" in self.swarm.planted
        if self.mesh is None:
            return self._make_core(self.swarm.config, reader, seed)
        host.node_id = host.id_of_clone or (host.name if host.births == 0 else f"{host.name}.{host.births}")
        number = self.site.hosts.index(host) + 1
        founded = len(self._entered) == self.swarm.nodes
        config = self.swarm.node_config(host.node_id, number, host.build, founded=founded)
        if config.cluster is not None:
            config.cluster.incomplete = host.incomplete
            config.cluster.succeeds = host.used is host.disk.store
        host.incomplete = False
        host.used = host.disk.store
        return self._make_core(config, reader, seed)

    def _client(self, profile: Profile) -> Client:
        return Client(self.world, self.world.fork(), self.network, self.site, self.oracle, profile)

    def _look_whether_entered(self, host: Host) -> None:
        """Note one of the first nodes that is in the cluster: when all of them have been, the cluster stays."""
        cluster = host.node.cluster_node if isinstance(host.node, Node) else None
        first = host in self.site.hosts[: self.swarm.nodes]
        if first and cluster is not None and cluster.membership.control.configuration is not None:
            self._entered[host.name] = True

    def _after_turn(self, host: Host) -> None:
        node = host.node
        if node is None:
            return
        if self.swarm.config.streams:
            self.oracle.streams.read(node.streams, f"{host.name}/{host.births}")
        if self.mesh is not None:
            if len(self._entered) < self.swarm.nodes:
                self._look_whether_entered(host)
            self.checker.turn(host)
            self.copies.turn(host)
        self.bounds.turn(host)

    def _failed(self, machine: Machine) -> None:
        """A machine has failed: without other faults, the other nodes must notice it in time."""
        if self._calm_before_us == self.world.now and machine.member:
            swarm = self.swarm
            takes = 20 * max(swarm.latency_us, swarm.mesh_latency_us) + 50 * swarm.turn_us + 4 * swarm.sync_us
            silent = machine.hung or machine.dark or machine.off
            silence = _SILENT_OUT_US + 8 * swarm.heartbeat_us
            limit = silence if silent else _KILLED_OUT_US
            fork = 0 if swarm.majority else _FORK_US
            self.checker.expect_out(machine, limit + takes, silence + takes, fork)

    def _output(self, _host: Host, link: Link, data: bytes) -> None:
        self.oracle.sessions.output(link, data)

    # Phases

    def run(self) -> Result:
        """Run it to its end or to the first violation."""
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - whatever the node raises breaks a promise, and the trace explains it
            self.world.violate("never raises", f"{error!r}\n{traceback.format_exc()}")
        result = Result(self.world, self.seed, self.steps)
        result.judged = self.judging.judged
        result.excused = self.judging.excused
        result.demands = self.judging.demands
        result.majority = self.swarm.majority
        return result

    def _run(self) -> None:
        world = self.world
        for host in self.members:
            host.start()
        if self.script is not None:
            self.script()
            return
        self.workload.start()
        if not self.settle(self.workload.subscribe_watchers):
            return
        if self.swarm.topologies and not self.settle(self.workload.subscribe_actors):
            return
        for _ in range(self.swarm.rounds):
            self._disturb(self.steps // self.swarm.rounds)
            if self.swarm.stands and not world.violations:
                self._stand()
            if world.violations or not self.heal():
                return
            self.judge()
            if world.violations:
                return

    @property
    def members(self) -> list[Host]:
        """The machines that belong to the cluster."""
        return [host for host in self.site.hosts if host.member]

    def _disturb(self, steps: int) -> None:
        world = self.world
        pace = self.swarm.pace_us
        self._whole_us = _WHOLE_US
        if self.prober is not None:
            self.workload.visitors = []
            self.prober.start()
        for _ in range(steps):
            self.workload.step()
            self._calm_before_us = world.now if self.trouble.calm else 0
            self.faults.step()
            self._look_for_lateness()
            pause = self._pace.below(2 * pace)
            if self._pace.chance(1, 200):
                pause += self._pace.below(3 * SECOND)
            world.run(world.now + pause)
            if world.violations:
                return
            self.look()
            if world.events > self.steps * len(self.site.hosts) * _EVENTS_PER_STEP_MAX + 100_000:
                world.violate("liveness", f"{world.events} events in {self.steps} steps: the run goes round in circles")

    def _stand(self) -> None:
        """Let the links stay as they are, for longer than it takes to fork.

        With "majority" all clients go on. Otherwise only the probes do: two sides excuse much of what the others get.
        """
        assert self.faults.topologies is not None, "only that family has splits"
        self.faults.topologies.links.stand()
        for _ in range(_STAND_STEPS):
            if self.swarm.majority:
                self.workload.step()
            self._look_for_lateness()
            self.world.run(self.world.now + SECOND)
            if self.world.violations:
                return
            self.look()

    def _go_on(self) -> bool:
        """With everything whole, nothing is refused, and nobody waits: clients act, without faults, and come to rest.

        Some of what nodes do becomes visible only to new sessions and subscriptions.
        """
        if self.prober is None or self.script is not None:
            return True
        self.world.run(self.world.now + HEAL_US)
        for client in self.workload.clients:
            client.hasty = False
        self.oracle.strict = True
        self.workload.visitors = []
        self.prober.start()
        for _ in range(_CALM_STEPS):
            self.workload.step()
            self._look_for_lateness()
            self.world.run(self.world.now + 2 * self._pace.below(self.swarm.pace_us))
        self.prober.stop()
        self.workload.visitors = list(self.prober.clients)
        self.workload.hurry()
        rests = not self.world.violations and self._rest()
        self.oracle.strict = False
        return rests

    def _look_for_lateness(self) -> None:
        self.late.look(self.workload.clients)

    def look(self) -> None:
        """Check whether the cluster is whole, and tell the ledger of faults when it has been so for long enough."""
        now = self.world.now
        if self.mesh is None or now < self._next_look_us:
            return
        self._next_look_us = now + _LOOK_US
        if self.faults.active or not_whole(self.members, self.swarm.replicas):
            self._whole_since_us = None
        elif self._whole_since_us is None or self._faults_seen != self.trouble.faults:
            self._faults_seen = self.trouble.faults
            self._whole_since_us = now
        elif now - self._whole_since_us >= self._whole_us:
            self.trouble.rest()
            self.history.look()

    def heal(self) -> bool:
        """End all faults and wait for rest; with everything at rest, a crash must change nothing."""
        self.faults.heal()
        if self.prober is not None:
            self.prober.stop()
            self.workload.visitors = list(self.prober.clients)
        self._whole_us = _HEALED_US
        self.workload.hurry()
        if not self._rest():
            return False
        self.world.run(self.world.now + self._delays_us)
        if self.mesh is not None and self.swarm.lean and not self.swarm.majority and not self._thin_out():
            return False
        if not self._rest():
            return False
        if self.swarm.has("crashes"):
            # Nothing is in motion, so this crash must change nothing.
            self.trouble.disturb()
            for host in self.members:
                host.crash()
            for host in self.members:
                host.start()
            self.network.heal()
            if not self._rest():
                return False
            self.world.run(self.world.now + self._delays_us)
        return self._rest() and self._go_on()

    def _thin_out(self) -> bool:
        """Kill as many nodes as a cluster must survive (A11): the others must serve all clients; then restart them."""
        gone: list[Host] = []
        for host in self.members:
            if len(gone) < self.swarm.replicas - self.swarm.min_in_sync and self.trouble.affords([*gone, host]):
                gone.append(host)
        if not gone:
            return True
        self.world.mark("thinned out")
        self.trouble.weaken(gone)
        for host in gone:
            host.crash()
        served = self.settle(self._all_idle)
        for host in gone:
            host.start()
        self.network.heal()
        return served

    def _rest(self) -> bool:
        """Demand that all clients come to rest, and that the cluster becomes whole and its copies equal (A12)."""
        if not self.settle(self._all_idle):
            return False
        if self.mesh is None:
            return True
        if not self.settle(self._healed):
            return False
        self.network.heal()  # an upgrade goes on after the other faults, and may have left clients half-open
        if not self.settle(self._healed):
            return False
        self.checker.finish(self.members)
        return not self.world.violations

    def _healed(self) -> bool:
        self.look()
        return (
            self.trouble.calm
            and self._all_idle()
            and not any(leftovers(host) for host in self.members)
            and all(host.witness or member_at(host) is None or ready_at(host) for host in self.members)
        )

    def _all_idle(self) -> bool:
        return self.workload.idle

    def settle(self, done: Callable[[], bool]) -> bool:
        """Let the world run until `done` and nothing moves; a world that never comes to rest is a violation."""
        world = self.world
        deadline = world.now + _REST_US * (_SLOW if self.swarm.has("bursts") else 1)
        quiet_since = world.now
        quiet_us = 0 if self.mesh is None else _QUIET_US
        while not world.violations:
            finished = done()
            if not finished or not all(host.disk.idle for host in self.site.hosts):
                quiet_since = world.now
            elif world.busy == 0 and world.now - quiet_since >= quiet_us:
                return True
            if world.now >= deadline:
                world.violate("liveness", f"the world does not come to rest: {world.busy} events, {self._states()}")
                return False
            world.run(world.now + 10 * MILLISECOND)
            self._look_for_lateness()
        return False

    def _states(self) -> str:
        states = [self._state_of(client) for client in self.workload.clients if not client.idle]
        if self.mesh is not None:
            why = not_whole(self.members, self.swarm.replicas)
            disks = self.faults.disks
            states += [text for text in [leftovers(host) for host in self.members] if text]
            states.append(why or difference(self.members) or ("" if disks is None else disks.damage))
        return str(states)

    def _state_of(self, client: Client) -> str:
        flights = len(client.outflow.inflight), len(client.outflow.pending)
        flows = len(client.inflow.incoming)
        where = "" if client.host is None else f" at {client.host.name}"
        online = f"online {client.online}{where}"
        return f"{client.name}: {online}, out {flights}, in {flows}, requests {len(client.requests)}"

    def judge(self) -> None:
        """At rest: demand everything that the promises require."""
        for client in self.workload.clients:
            client.hasty = False
        oracle = self.oracle
        oracle.sessions.finish()
        oracle.deliveries.finish()
        oracle.wills.finish()
        oracle.streams.finish([host.node.streams for host in self.members if host.node is not None])
        if self.swarm.has("retained") and not self.world.violations:
            self._audit()

    def _audit(self) -> None:
        self._audits += 1
        auditor = Auditor(self.network, self.site, self.oracle, f"auditor{self._audits}")
        auditor.connect()
        if not self.settle(lambda: auditor.idle):
            return
        auditor.subscribe([(b"#", 1)], 0)
        if self.settle(lambda: auditor.idle):
            if self.mesh is not None:
                self.world.run(self.world.now + SECOND)  # other nodes send their part when they are asked for it
            self.oracle.retained.finish(auditor.got)
        auditor.wanted = False
        auditor.disconnect(0, None)
