"""What goes wrong: crashes, cuts, half-open connections, clogs, slow and full disks, steps of the clock, vandals.

Owns the choice of faults within the budget of one node: never anything that the promises exclude (a disk that forgets
what it has synced, bytes that change on their way).
"""

from __future__ import annotations

from collections.abc import Callable

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.host import Host
from folkmoot.sim.network import Link, Network, Pipe
from folkmoot.sim.swarm import Swarm
from folkmoot.sim.vandal import Vandals
from folkmoot.sim.world import World

__all__ = ["CLOCK_STEP_US", "Faults"]

CLOCK_STEP_US = 2 * SECOND
"""How far a host's clock may be from the world's."""


class Faults:
    """Draws a fault every now and then; `heal` ends all of them."""

    def __init__(self, world: World, rng: Rng, swarm: Swarm, network: Network, host: Host) -> None:
        self.world = world
        self.rng = rng
        self.swarm = swarm
        self.network = network
        self.host = host
        self.healed = False
        self._actions: list[Callable[[], None]] = []
        self._add(3, "crashes", self._crash)
        self._add(1, "restarts", self._restart)
        self._add(4, "cuts", self._cut)
        self._add(3, "half-open", self._half_open)
        self._add(3, "clogs", self._clog)
        self._add(2, "disk stalls", self._stall)
        self._add(1, "disk full", self._fill)
        self._add(1, "clock steps", self._step_clock)
        self._add(3, "vandals", Vandals(world, rng.fork(), network, host).strike)

    def _add(self, weight: int, name: str, action: Callable[[], None]) -> None:
        if self.swarm.has(name):
            self._actions += [action] * weight

    def step(self) -> None:
        """Perhaps let something go wrong."""
        if self._actions and self.rng.chance(1, self.swarm.fault_every):
            self.healed = False
            self._actions[self.rng.below(len(self._actions))]()

    def heal(self) -> None:
        """End all faults."""
        self.healed = True
        self.world.note("world", "heal")
        self.network.heal()
        self.host.free()
        if self.host.node is None:
            self.host.start()

    def _duration(self) -> int:
        longest = [MILLISECOND, 50 * MILLISECOND, 500 * MILLISECOND, 3 * SECOND][self.rng.below(4)]
        return self.rng.below(longest)

    def _crash(self) -> None:
        if self.host.node is not None:
            self.host.crash()
            self.world.later(self._duration(), self._start)

    def _restart(self) -> None:
        if self.host.node is not None:
            self.host.stop(self._stopped)

    def _stopped(self) -> None:
        self.world.after(self._duration(), self._start)

    def _start(self) -> None:
        if self.host.node is None:
            self.host.start()

    def _link(self) -> Link | None:
        links = list(self.host.links.values())
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
        self.world.mark("disk stall")
        self.host.disk.stall(self._duration())

    def _fill(self) -> None:
        self.host.fill()
        if self.rng.chance(1, 2):
            self.host.disk.fill()
        self.world.later(self._duration(), self._free)

    def _free(self) -> None:
        self.host.free()

    def _step_clock(self) -> None:
        self.world.mark("clock step")
        self.host.clock_offset_us = self.rng.between(-CLOCK_STEP_US, CLOCK_STEP_US)
        self.world.note("world", f"clock offset {self.host.clock_offset_us}")
