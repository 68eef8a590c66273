"""The network between the machines of the cluster: reachability per direction, latency, and listening addresses.

Owns every connection between nodes and the faults between each pair of machines; judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.rng import Rng
from folkmoot.sim.host import Host
from folkmoot.sim.network import cuts
from folkmoot.sim.peering import Peering
from folkmoot.sim.wire import Wire
from folkmoot.sim.world import World

__all__ = ["Mesh"]

_DIAL_AGAIN_US: Final = 250 * MILLISECOND
_DIAL_PATIENCE_US: Final = 3 * SECOND
"""The operating system of a caller tries again, and gives up after this time."""


class Mesh:
    """All peer connections. `latency_us` and `split` as in `Network`."""

    def __init__(self, world: World, rng: Rng, latency_us: int, split: int) -> None:
        self.world = world
        self.wires: list[Wire] = []
        self.latency_us = latency_us
        self.slow_us: dict[tuple[str, str], int] = {}  # extra latency from one machine to another
        self._rng = rng
        self._split = split
        self._listening: dict[str, Peering] = {}  # by address
        self.on_change: Callable[[], None] = lambda: None  # a link was cut or mended
        self._cut: dict[tuple[str, str], bool] = {}  # (from, to)
        self._numbers = 0

    def listen(self, address: str, peering: Peering) -> None:
        """Make a machine known under an address."""
        self._listening[address] = peering
        peering.mesh = self

    # Reachability

    def passes(self, source: Host, target: Host) -> bool:
        """Whether bytes get from one machine to another."""
        if source.off or target.off or source.dark or target.dark:
            return False
        return (source.name, target.name) not in self._cut

    def cut(self, source: Host, target: Host) -> None:
        """Block one direction."""
        self._cut[source.name, target.name] = True
        self.update()

    def mend(self, source: Host, target: Host) -> None:
        """Unblock one direction."""
        if self._cut.pop((source.name, target.name), False):
            self.update()

    @property
    def whole(self) -> bool:
        """Whether nothing is cut."""
        return not self._cut

    def update(self) -> None:
        """Apply the present state between the machines to all their connections."""
        self.wires = [wire for wire in self.wires if not wire.over or wire.ways[0].bytes or wire.ways[1].bytes]
        for wire in self.wires:
            wire.update()
        self.on_change()

    def heal(self) -> None:
        """Remove all blocks; the ends of a broken connection learn that it is broken."""
        self._cut.clear()
        self.slow_us.clear()
        self.update()
        for wire in self.wires:
            for side in (0, 1):
                if wire.ends[side].open and wire.ways[side].dead:
                    wire.lose(side, "reset")

    # Dialling

    def dial(self, caller: Peering, address: str) -> None:
        """Open a connection for a node; both ends learn of it, or the caller why it failed."""
        self.world.later(self._latency(), self._arrive, caller, caller.host.life, address, self.world.now)

    def _arrive(self, caller: Peering, life: int, address: str, since_us: int) -> None:
        if caller.host.life != life:
            return
        target = self._listening.get(address)
        if target is None:
            caller.refused(life, address, "no such host")
            return
        there = self.passes(caller.host, target.host) and self.passes(target.host, caller.host)
        if not there:
            if self.world.now - since_us >= _DIAL_PATIENCE_US:
                self.world.mark("dial timed out")
                caller.timed_out(life, address)
            else:
                self.world.later(_DIAL_AGAIN_US, self._arrive, caller, life, address, since_us)
            return
        if target.host.node is None:
            self.world.mark("dial refused")
            self.world.later(self._latency(), caller.refused, life, address, "connection refused")
            return
        self._numbers += 1
        wire = Wire(self, self._numbers, caller, target)
        self.wires.append(wire)
        target.accepted(wire.ends[1])
        self.world.later(self._latency(), caller.dialled, wire.ends[0], address)

    # Bytes

    def _latency(self) -> int:
        return 10 + self._rng.below(self.latency_us)

    def delay(self, wire: Wire, side: int) -> int:
        """Draw the latency from this side to the other."""
        # One draw for both: a quarter of what a quiet cluster costs was draws.
        drawn = self._rng.below(100 * self.latency_us)
        delay = 10 + drawn // 100
        if self.slow_us:
            names = wire.ends[side].owner.host.name, wire.ends[1 - side].owner.host.name
            delay += self.slow_us.get(names, 0)
        # One chunk in a hundred is slow: most orders of events between connections come from these.
        if drawn % 100 == 0:
            delay += self._rng.below(20 * MILLISECOND)
        return delay

    def send(self, wire: Wire, side: int, data: bytes) -> None:
        """Send bytes, in one piece or several."""
        self.world.trace.mix(data)
        way = wire.ways[1 - side]
        start = 0
        if self._split:
            for end in cuts(self._rng, self._split, len(data)):
                if end > start:
                    way.send(data[start:end], self.delay(wire, side))
                    start = end
        way.send(data[start:] if start else data, self.delay(wire, side))
