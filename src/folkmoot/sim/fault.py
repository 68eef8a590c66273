"""Faults: crashes, cuts, half-open connections, clogs, slow and full disks, steps of the clock, vandals.

Owns the choice of faults within the budget (see `folkmoot.sim.trouble`), and their end. Never draws what the promises
exclude (a disk that forgets synced writes, bytes that change under way). `folkmoot.sim.fault_cluster` has the faults
between machines.
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.causes import Causes
from folkmoot.sim.fault_cluster import ClusterFaults
from folkmoot.sim.fault_disk import DiskFaults
from folkmoot.sim.fault_topology import TopologyFaults
from folkmoot.sim.host import Host
from folkmoot.sim.mesh import Mesh
from folkmoot.sim.network import Link, Network
from folkmoot.sim.pipe import Pipe
from folkmoot.sim.site import Site
from folkmoot.sim.swarm import Swarm
from folkmoot.sim.trouble import Trouble
from folkmoot.sim.vandal import Vandals
from folkmoot.sim.world import World

__all__ = ["CLOCK_STEP_US", "Faults"]

CLOCK_STEP_US = 2 * SECOND
"""How far a host's clock may be from the world's."""


class Faults:
    """Draws a fault now and then; `heal` ends all of them."""

    def __init__(
        self,
        world: World,
        rng: Rng,
        swarm: Swarm,
        network: Network,
        site: Site,
        trouble: Trouble,
        judge: Causes,
        mesh: Mesh | None,
    ) -> None:
        self.world = world
        self.rng = rng
        self.swarm = swarm
        self.network = network
        self.site = site
        self.trouble = trouble
        self.cluster: ClusterFaults | None = None
        self.disks: DiskFaults | None = None
        self.topologies: TopologyFaults | None = None
        self._actions: list[Callable[[], None]] = []
        self._add(3, "crashes", self._crash)
        self._add(1, "restarts", self._restart)
        self._add(4, "cuts", self._cut)
        self._add(3, "half-open", self._half_open)
        self._add(3, "clogs", self._clog)
        self._add(2, "disk stalls", self._stall)
        self._add(1, "disk full", self._fill)
        self._add(1, "clock steps", self._step_clock)
        self._add(3, "vandals", Vandals(world, rng.fork(), network, site, judge).strike)
        if mesh is not None:
            self.cluster = ClusterFaults(world, rng.fork(), site, trouble, mesh)
            self.disks = DiskFaults(world, rng.fork(), site, trouble)
            for weight, name, action in self.cluster.actions() + self.disks.actions():
                self._add(weight, name, action)
        if mesh is not None and swarm.family is not None:
            self.topologies = TopologyFaults(
                world, swarm.family, site, trouble, mesh, judge.history, splits=swarm.splits
            )
            for weight, name, action in self.topologies.actions():
                self._add(weight, name, action)

    def _add(self, weight: int, name: str, action: Callable[[], None]) -> None:
        if self.swarm.has(name):
            self._actions += [action] * weight

    def step(self) -> None:
        """Perhaps begin a fault."""
        if self._actions and self.rng.chance(1, self.swarm.fault_every) and not self.trouble.exhausted:
            self._actions[self.rng.below(len(self._actions))]()

    @property
    def active(self) -> bool:
        """Whether a fault is active that keeps a cluster from being whole."""
        if self.cluster is not None and self.cluster.active:
            return True
        if self.topologies is not None and self.topologies.active:
            return True
        if self.disks is not None and not self.disks.whole:
            return True
        return any(host.full_since_us < NEVER or host.disk.slow for host in self.site.hosts)

    def heal(self) -> None:
        """End all faults."""
        self.world.note("world", "heal")
        if self.topologies is not None:
            self.topologies.heal()
        if self.cluster is not None:
            self.cluster.heal()
        self.network.heal()
        for host in self.site.hosts:
            host.free()
            if host.node is None and (host.member or host.leaving):
                host.start()

    def _duration(self) -> int:
        longest = [MILLISECOND, 50 * MILLISECOND, 500 * MILLISECOND, 3 * SECOND][self.rng.below(4)]
        return self.rng.below(longest)

    def _host(self) -> Host | None:
        hosts = self.site.running
        return hosts[self.rng.below(len(hosts))] if hosts else None

    def _crash(self) -> None:
        host = self._host()
        if host is not None and self.trouble.affords([host]):
            self.trouble.weaken([host])
            host.crash()
            self.world.later(self._duration(), self._start, host)

    def _restart(self) -> None:
        host = self._host()
        if host is not None and self.trouble.affords([host]):
            if not self.trouble.alone:
                self.trouble.weaken([host])
            host.stop(lambda: self._stopped(host))

    def _stopped(self, host: Host) -> None:
        self.world.after(self._duration(), self._start, host)

    def _start(self, host: Host) -> None:
        if host.node is None and (host.member or host.leaving):  # it may have left for good meanwhile
            host.start()

    def _link(self) -> Link | None:
        links = [link for host in self.site.hosts for link in host.links.values()]
        return links[self.rng.below(len(links))] if links else None

    def _cut(self) -> None:
        link = self._link()
        if link is not None:
            self.world.mark("cut")
            self.world.note("world", f"cut {link.name}")
            link.reset(self._duration(), self._duration())

    def _half_open(self) -> None:
        link = self._link()
        if link is None:
            return
        self.world.mark("half-open")
        kind = self.rng.below(3)
        self.world.note("world", f"half-open {link.name} {kind}")
        link.reset(NEVER if kind != 1 else self._duration(), NEVER if kind != 2 else self._duration())
        link.reset_on_send = kind != 0 and self.rng.chance(1, 2)

    def _clog(self) -> None:
        link = self._link()
        if link is None:
            return
        self.world.mark("clog")
        self.world.note("world", f"clog {link.name}")
        link.troubled = True
        pipe = link.to_client if self.rng.chance(1, 2) else link.to_node
        pipe.block(clogged=True)
        self.world.later(self._duration(), self._unclog, pipe)

    def _unclog(self, pipe: Pipe) -> None:
        pipe.block(clogged=False)

    def _stall(self) -> None:
        host = self._host()
        if host is None:
            return
        duration = self._duration()
        if not self.trouble.alone and duration > 100 * MILLISECOND:
            if not self.trouble.affords([host]):
                return
            self.trouble.weaken([host])  # a node whose disk stands still counts as failed
        self.world.mark("disk stall")
        host.stall(duration)

    def _fill(self) -> None:
        host = self._host()
        if host is None:
            return
        if not self.trouble.alone:
            if not self.trouble.affords([host]):
                return
            self.trouble.weaken([host])
        host.fill()
        if self.rng.chance(1, 2):
            host.disk.fill()
        # others take over in the meantime
        self.world.later(self._duration() * (1 if self.trouble.alone else 4), host.free)

    def _step_clock(self) -> None:
        host = self._host()
        if host is not None:
            self.world.mark("clock step")
            host.clock_offset_us = self.rng.between(-CLOCK_STEP_US, CLOCK_STEP_US)
            self.world.note("world", f"clock offset of {host.name} {host.clock_offset_us}")
            if not self.trouble.alone:
                self.trouble.disturb()
