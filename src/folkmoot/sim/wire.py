"""A connection between two machines of the cluster: two pipes and two ends, each of which may know less than the other.

Owns the bytes in flight, and which end takes the connection for open. Like TCP: bytes come in order or the connection
is lost; bytes for a blocked direction wait; a write to an end that is gone is answered as soon as a way back is open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.sim.network import HIGH_WATER_BYTES
from folkmoot.sim.pipe import CUT, PAUSED, STOPPED, Pipe

if TYPE_CHECKING:
    from folkmoot.sim.mesh import Mesh
    from folkmoot.sim.peering import Peering

__all__ = ["End", "Wire"]


class End:
    """One machine's end; `peer` is its node's object for it."""

    def __init__(self, wire: Wire, side: int, owner: Peering) -> None:
        self.wire = wire
        self.side = side
        self.owner = owner
        self.open = False  # its process has it and has not closed it
        self.life = owner.host.life
        self.peer: object = None
        self.congested = False

    @property
    def name(self) -> str:
        """For readers of the trace."""
        return f"wire{self.wire.number}"

    @property
    def other(self) -> End:
        """The end at the other machine."""
        return self.wire.ends[1 - self.side]

    def send(self, data: bytes) -> None:
        """Send bytes to the other end."""
        self.wire.transmit(self.side, data)

    def close(self) -> None:
        """Close this end: what was sent arrives, then the end of the stream; nothing is read any more."""
        self.open = False
        self.wire.transmit(self.side, None)


class Wire:
    """The connection that side 0 has dialled to side 1."""

    def __init__(self, mesh: Mesh, number: int, dialler: Peering, acceptor: Peering) -> None:
        self.mesh = mesh
        self.number = number
        self.ends = (End(self, 0, dialler), End(self, 1, acceptor))
        # The pipe to a side, by side. Neither side reads before both know of the connection.
        self.ways = (Pipe(mesh.world, self._to_dialler, busy=False), Pipe(mesh.world, self._to_acceptor, busy=False))
        for way in self.ways:
            way.hold(PAUSED, on=True)
        self.update()

    def update(self) -> None:
        """Apply the present state between the two machines."""
        hosts = (self.ends[0].owner.host, self.ends[1].owner.host)
        for side in (0, 1):
            way = self.ways[side]
            if not way.dead:
                way.hold(CUT, not self.mesh.passes(hosts[1 - side], hosts[side]))
                way.hold(STOPPED, hosts[side].hung)

    def opened(self, side: int) -> None:
        """The process at this side knows the connection: it may read."""
        self.ends[side].open = True
        self.ways[side].hold(PAUSED, on=False)

    def transmit(self, side: int, data: bytes | None) -> None:
        """Send from `side` to the other, None is the end of the stream."""
        way = self.ways[1 - side]
        if way.dead:
            return
        if data is None:
            way.send(None, self.mesh.delay(self, side))
            return
        if not data:
            return
        self.mesh.send(self, side, data)
        end = self.ends[side]
        if not end.congested and way.bytes > HIGH_WATER_BYTES * 16:
            end.congested = True
            self.mesh.world.mark("peer transport full")
            end.owner.writable(end, flag=False)

    def lose(self, side: int, why: str) -> None:
        """Tell the end at `side` that the connection is gone; the bytes towards it are lost."""
        end = self.ends[side]
        self.ways[side].kill()
        if end.open:
            end.open = False
            end.owner.lost(end, why)

    def reset(self, first_us: int, second_us: int) -> None:
        """Break the connection: bytes in flight are lost, each side learns of it after its delay."""
        for side, delay in ((0, first_us), (1, second_us)):
            self.ways[side].kill()
            self.mesh.world.later(delay, self.lose, side, "reset")

    @property
    def over(self) -> bool:
        """Whether neither end has it any more."""
        return not self.ends[0].open and not self.ends[1].open

    def _to_dialler(self, _way: Pipe, chunk: bytes | None) -> None:
        self._deliver(0, chunk)

    def _to_acceptor(self, _way: Pipe, chunk: bytes | None) -> None:
        self._deliver(1, chunk)

    def _deliver(self, side: int, chunk: bytes | None) -> None:
        end = self.ends[side]
        if not end.open:
            self.refuse(side)
        elif chunk is None:
            self.lose(side, "closed by the peer")
        else:
            end.owner.received(end, chunk)
            other = end.other
            if other.congested and self.ways[side].bytes < HIGH_WATER_BYTES:
                other.congested = False
                other.owner.writable(other, flag=True)

    def refuse(self, side: int) -> None:
        """This end has no process: its system answers the sender (RST), unless that gets lost."""
        hosts = (self.ends[0].owner.host, self.ends[1].owner.host)
        if self.ends[1 - side].open and self.mesh.passes(hosts[side], hosts[1 - side]):
            self.mesh.world.later(self.mesh.delay(self, side), self._refused, 1 - side)

    def _refused(self, side: int) -> None:
        host = self.ends[side].owner.host
        if host.hung:
            self.mesh.world.later(50_000, self._refused, side)  # the system keeps it until the process looks
        else:
            self.lose(side, "reset")
