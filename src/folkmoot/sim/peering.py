"""A host's part in the cluster: carries bytes and events between its node and the connections to other machines.

Does what the runtime's peer driver does. Owns the connections of the node's present life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from folkmoot.sim.core import PeerConnection, PeerCore
from folkmoot.sim.wire import End

if TYPE_CHECKING:
    from folkmoot.sim.host import Host
    from folkmoot.sim.mesh import Mesh

__all__ = ["Peering"]


class Peering:
    """The peer connections of one host. Events for a hanging process wait until it continues."""

    def __init__(self, host: Host, address: str) -> None:
        self.host = host
        self.address = address
        self.mesh: Mesh | None = None
        self.ends: list[End] = []
        self._waiting: list[End] = []  # accepted by the system, not by the process yet

    @property
    def node(self) -> PeerCore:
        """The node, which must run."""
        assert self.host.node is not None, "a node that is down has no peers"
        return cast("PeerCore", self.host.node)

    # Events of the mesh

    def accepted(self, end: End) -> None:
        """Another machine's connection came in: the system has taken it."""
        end.life = self.host.life
        self._waiting.append(end)
        self.host.tell(self._accepted, end)

    def _accepted(self, end: End) -> None:
        self._waiting.remove(end)
        other = end.other.owner.address
        self._open(end, other, outgoing=False)

    def dialled(self, end: End, address: str) -> None:
        """A connection that the node asked for stands."""
        if end.life == self.host.life:
            self.host.tell(self._dialled, end, address)
        else:
            end.wire.refuse(end.side)

    def _dialled(self, end: End, address: str) -> None:
        self._open(end, address, outgoing=True)

    def _open(self, end: End, address: str, *, outgoing: bool) -> None:
        self.ends.append(end)
        end.wire.opened(end.side)
        end.peer = self.node.peer_connected(end, address, outgoing, self.host.clock())
        self.host.set_turn()

    def refused(self, life: int, address: str, why: str) -> None:
        """The machine at an address has no listener."""
        if life == self.host.life:
            self.host.tell(self._failed, address, why, True)

    def timed_out(self, life: int, address: str) -> None:
        """An address did not answer."""
        if life == self.host.life:
            self.host.tell(self._failed, address, "timed out", False)

    def _failed(self, address: str, why: str, refused: bool) -> None:
        self.node.dial_failed(address, why, refused, self.host.clock())
        self.host.set_turn()

    # Events of a wire

    def received(self, end: End, data: bytes) -> None:
        """Bytes came; never while the process hangs, because the pipe to it is held."""
        self.host.bytes_in += len(data)
        self.node.peer_received(cast("PeerConnection", end.peer), data, self.host.clock())
        self.host.set_turn()

    def writable(self, end: End, *, flag: bool) -> None:
        """The other machine takes bytes, or none."""
        if end.open:
            self.host.tell(self._writable, end, flag)

    def _writable(self, end: End, flag: bool) -> None:
        if end.open:
            self.node.peer_writable(cast("PeerConnection", end.peer), flag, self.host.clock())
            self.host.set_turn()

    def lost(self, end: End, why: str) -> None:
        """A connection is gone; its end is closed already."""
        if end in self.ends:
            self.ends.remove(end)
            self.host.tell(self._lost, end, why)

    def _lost(self, end: End, why: str) -> None:
        self.node.peer_lost(cast("PeerConnection", end.peer), why, self.host.clock())
        self.host.set_turn()

    # Effects of the node

    def carry_out(self, dials: list[str], outputs: list[PeerConnection], closes: list[PeerConnection]) -> None:
        """Dial, send and close."""
        for address in dials:
            assert self.mesh is not None, "a node alone dials nobody"
            self.mesh.dial(self, address)
        for peer in outputs:
            data = peer.take_output()
            end = _end(peer)
            if end.open:
                self.send(end, data)
        for peer in closes:
            end = _end(peer)
            if end.open:
                self.ends.remove(end)
                end.close()
                self.host.tell(self._lost, end, "closed")

    def send(self, end: End, data: bytes) -> None:
        """Send bytes to another machine."""
        end.send(data)

    # Life and death

    def die(self, *, silent: bool) -> None:
        """The process is gone: its system tells all others (not `silent`), or the machine is gone too."""
        for end in self.ends + self._waiting:
            end.open = False
            end.wire.ways[end.side].block(paused=False)  # without a process the system answers
            way = end.wire.ways[1 - end.side]
            if silent:
                continue
            if self.host.rng.chance(1, 2):
                # Bytes that the process has not read turn its close into a reset, which overtakes what it has sent.
                way.kill()
                end.wire.refuse(end.side)
            else:
                end.wire.transmit(end.side, None)
        self.ends.clear()
        self._waiting.clear()


def _end(peer: PeerConnection) -> End:
    end = peer.handle
    assert isinstance(end, End), "every peer connection of a simulated node has an end of a wire"
    return end
