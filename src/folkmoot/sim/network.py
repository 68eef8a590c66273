"""The network between clients and nodes: connections that delay, split, clog, break and lie half-open.

Owns the bytes in flight. Like TCP it keeps the order of a connection and loses bytes only together with the
connection; unlike TCP it does so on purpose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER
from folkmoot.kernel.rng import Rng
from folkmoot.sim.pipe import CUT, STOPPED, Pipe
from folkmoot.sim.world import World

__all__ = ["HIGH_WATER_BYTES", "Caller", "Link", "Network", "Server", "cuts"]

HIGH_WATER_BYTES: Final = 16_384
"""Beyond this many bytes in flight to a client the node is told to wait, as a transport does."""


_RETRY_US: Final = 50 * MILLISECOND


class Caller(ABC):
    """The client's end of a link."""

    @abstractmethod
    def link_data(self, link: Link, data: bytes) -> None:
        """Bytes came from the node."""

    @abstractmethod
    def link_closed(self, link: Link) -> None:
        """The connection is gone, or was never established."""


class Server(ABC):
    """The node's end of all its links.

    `away`: why no bytes reach it for now, bits of `folkmoot.sim.pipe`: STOPPED (the process hangs, its machine still
    accepts connections and bytes), CUT (the machine is off or cut off).
    """

    away = 0
    name = ""

    @abstractmethod
    def link_opened(self, link: Link) -> bool:
        """A connection came in; False refuses it."""

    @abstractmethod
    def link_data(self, link: Link, data: bytes) -> None:
        """Bytes came from a client."""

    @abstractmethod
    def link_lost(self, link: Link, reason: str) -> None:
        """The connection is gone."""

    @abstractmethod
    def link_writable(self, link: Link, writable: bool) -> None:
        """The bytes in flight crossed the high or the low water mark."""


class Link:
    """One connection between a client and a node, with facts that neither end knows."""

    def __init__(self, network: Network, number: int, caller: Caller, server: Server, latency_us: int) -> None:
        self.network = network
        self.number = number
        self.name = f"link{number}"
        self.caller = caller
        self.server = server
        self.latency_us = latency_us
        self.to_node = Pipe(network.world, self._arrived)
        self.to_client = Pipe(network.world, self._delivered)
        self.caller_open = True
        self.server_open = False
        self.congested = False
        self.troubled = False  # ever clogged or congested: messages may have been dropped by a limit
        self.reset_on_send = False  # the peer has forgotten this connection, and answers its bytes with a reset
        self.sent_bytes = 0  # by the client
        self.read_bytes = 0  # by the node
        self.first_read_us = NEVER  # when the node read the first of them,
        self.last_read_us = NEVER  # and the newest
        self.first_turn = 0  # the turn (of all hosts') that gave the first output for this link: the CONNACK
        self.turn = 0  # the newest such turn
        self.fenced_turn = NEVER  # after this turn the node must be silent here (A6)
        self.client_id = ""  # the client whose CONNACK came through it
        self.opened_us = network.world.now
        self.cut_us = NEVER  # the first moment at which either side stopped
        self.ended_us = NEVER  # when the node knew it
        self.closed_at_bytes = NEVER  # what the node had read when it closed the connection
        self.crashed = False  # the node's process died under it
        self.left_full = False  # its client has left it while as many messages as it takes were not acknowledged
        self.connection: object = None  # the node's object for it
        self.session: object = None  # the record of the session on it, see the oracle

    def from_caller(self, data: bytes) -> None:
        """Send bytes from the client to the node."""
        if self.caller_open:
            self.sent_bytes += len(data)
            self.network.transmit(self, self.to_node, data)
            if self.reset_on_send:
                self.network.world.after(self.latency_us, self.notify_caller)

    def from_server(self, data: bytes) -> None:
        """Send bytes from the node to the client."""
        self.network.transmit(self, self.to_client, data)
        if self.reset_on_send:
            self.network.world.after(self.latency_us, self.notify_server, "reset")
        if not self.congested and self.to_client.bytes > HIGH_WATER_BYTES:
            self.congested = True
            self.troubled = True
            self.network.world.mark("transport full")
            self.server.link_writable(self, writable=False)

    def close_by_caller(self) -> None:
        """The client closes: what it sent arrives, then the end."""
        if self.caller_open:
            self.caller_open = False
            self.cut()
            self.to_client.kill()
            self.network.transmit_end(self, self.to_node)

    def close_by_server(self) -> None:
        """The node closes: what it sent arrives, then the end; what comes from the client is not read any more."""
        self.closed_at_bytes = min(self.closed_at_bytes, self.read_bytes)
        self.cut()
        self.to_node.kill()
        self.network.transmit_end(self, self.to_client)

    def reset(self, caller_us: int, server_us: int) -> None:
        """Break the connection: bytes in flight are lost, each side learns of it after its delay (NEVER: half-open)."""
        self.cut()
        self.to_node.kill()
        self.to_client.kill()
        world = self.network.world
        if caller_us < NEVER:
            world.after(caller_us, self.notify_caller)
        if server_us < NEVER:
            world.after(server_us, self.notify_server, "reset")

    def cut(self) -> None:
        """Remember the first moment at which the connection did not work."""
        self.cut_us = min(self.cut_us, self.network.world.now)

    def notify_caller(self) -> None:
        """Tell the client that the connection is gone, once."""
        if self.caller_open:
            self.caller_open = False
            self.cut()
            self.to_node.kill()
            self.caller.link_closed(self)

    def notify_server(self, reason: str) -> None:
        """Tell the node that the connection is gone, once."""
        if self.server_open:
            self.cut()
            self.to_client.kill()
            self.server.link_lost(self, reason)

    def stop(self, why: int, on: bool) -> None:
        """The node's process stops (STOPPED: it reads nothing) or its machine is cut off (CUT: nothing passes)."""
        self.to_node.hold(why, on)
        if why == CUT:
            self.to_client.hold(why, on)
            self.troubled = self.troubled or on

    def _arrived(self, _pipe: Pipe, chunk: bytes | None) -> None:
        if not self.server_open:
            return
        if chunk is None:
            self.server.link_lost(self, "closed by the client")
        else:
            self.read_bytes += len(chunk)
            self.last_read_us = self.network.world.now
            self.first_read_us = min(self.first_read_us, self.last_read_us)
            self.server.link_data(self, chunk)

    def _delivered(self, _pipe: Pipe, chunk: bytes | None) -> None:
        if chunk is None:
            self.notify_caller()
        elif self.caller_open:
            self.caller.link_data(self, chunk)
            self._drained()

    def _drained(self) -> None:
        if self.congested and self.to_client.bytes < HIGH_WATER_BYTES // 4:
            self.congested = False
            self.server.link_writable(self, writable=True)


class Network:
    """All links.

    `split`: how often a chunk is cut into pieces, 0 (never) to 2 (nearly always). `latency_us`: the largest base
    latency of a link.
    """

    def __init__(self, world: World, rng: Rng, latency_us: int, split: int) -> None:
        self.world = world
        self.links: list[Link] = []  # in the order of their opening; those that both ends have left are removed
        self.latency_us = latency_us
        self._rng = rng
        self._split = split
        self._numbers = 0

    def dial(self, caller: Caller, server: Server) -> Link:
        """Open a connection; the node hears of it after the latency, the client of a refusal after two."""
        self._numbers += 1
        link = Link(self, self._numbers, caller, server, 20 + self._rng.below(self.latency_us))
        if len(self.links) > 64:
            self.links = [known for known in self.links if known.caller_open or known.server_open]
        self.links.append(link)
        link.to_node.block(paused=True)  # nothing is read before the connection was accepted
        self.world.after(link.latency_us, self._accept, link)
        return link

    def _accept(self, link: Link) -> None:
        if link.to_node.dead:
            return
        if link.server.away:
            # A hanging process accepts when it continues; a caller's system tries a machine that is cut off again.
            link.stop(link.server.away, on=True)
            self.world.later(_RETRY_US, self._accept, link)
            return
        link.stop(CUT, on=False)
        link.stop(STOPPED, on=False)
        if link.server.link_opened(link):
            link.to_node.block(paused=False)
        else:
            link.reset(link.latency_us, NEVER)

    def transmit(self, link: Link, pipe: Pipe, data: bytes) -> None:
        """Send `data` in one piece or several, each with its delay."""
        if pipe.dead or not data:
            return
        self.world.trace.mix(data)
        start = 0
        for end in cuts(self._rng, self._split, len(data)):
            if end > start:
                pipe.send(data[start:end], self._delay(link))
                start = end
        pipe.send(data[start:], self._delay(link))

    def transmit_end(self, link: Link, pipe: Pipe) -> None:
        """Send the end of the stream."""
        if not pipe.dead:
            pipe.send(None, self._delay(link))

    def _delay(self, link: Link) -> int:
        # One chunk in fifty is slow: most orders of events between connections come from these.
        if self._rng.below(50) == 0:
            return link.latency_us + self._rng.below(20 * MILLISECOND)
        return link.latency_us + self._rng.below(link.latency_us)

    def heal(self) -> None:
        """Unclog every way and end what is half-open: both ends of a broken connection learn of it."""
        for link in list(self.links):
            link.to_node.block(clogged=False)
            link.to_client.block(clogged=False)
            if link.to_node.dead and link.to_client.dead:
                link.notify_caller()
                link.notify_server("reset")


def cuts(rng: Rng, split: int, length: int) -> list[int]:
    """Return where a chunk of `length` bytes is cut: seldom (`split` 1), nearly always (2) or never (0)."""
    if split == 0 or length < 2 or not rng.chance(1, 20 if split == 1 else 2):
        return []
    count = rng.between(1, 3)
    return sorted(rng.between(1, length - 1) for _ in range(count))
