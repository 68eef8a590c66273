"""The interface that a host needs of a node: the calls of `folkmoot.node.Node`. Tests may replace the node."""

from __future__ import annotations

from typing import Protocol

from folkmoot.node.effect import Effects
from folkmoot.session.connection import Connection, PeerInfo
from folkmoot.streams.table import Streams

__all__ = ["Core", "PeerConnection", "PeerCore"]


class Core(Protocol):
    """A single node; see `folkmoot.node.Node` for the meaning of each call."""

    streams: Streams

    def open(self, now: int) -> None:
        """Restore the state in the store."""

    def connect(self, handle: object, info: PeerInfo, now: int) -> Connection:
        """A client's connection came in."""

    def receive(self, connection: Connection, data: bytes, now: int) -> None:
        """Bytes came from a client."""

    def lost(self, connection: Connection, why: str, now: int) -> None:
        """A client's connection is gone."""

    def writable(self, connection: Connection, flag: bool, now: int) -> None:
        """A client takes bytes, or none."""

    def authenticated(self, connection: Connection, ok: bool, now: int) -> None:
        """A password was checked."""

    def storage(self, full: bool, why: str, now: int) -> None:
        """The disk is full, or has room."""

    def written(self, token: int, now: int) -> None:
        """A batch is durable."""

    def applied(self, now: int) -> None:
        """The store has the rows that were handed to it."""

    def wake(self, now: int) -> None:
        """A deadline has come."""

    def set_wall(self, wall_us: int, now: int) -> None:
        """The wall clock was set."""

    def next_wake(self) -> int:
        """Return the next deadline."""

    def stop(self, now: int) -> None:
        """Begin to stop."""

    def seal(self, now: int) -> None:
        """Take the last decisions of the turn."""

    def drain(self, now: int, steady_ns: int = 0) -> Effects:
        """End the turn."""

    def withhold(self, effects: Effects) -> None:
        """The lease has ended before the effects left."""


class PeerCore(Core, Protocol):
    """A node of a cluster."""

    def peer_connected(self, handle: object, address: str, outgoing: bool, now: int) -> PeerConnection:
        """A connection to another node stands, dialled to `address` or accepted from there."""

    def peer_received(self, peer: PeerConnection, data: bytes, now: int) -> None:
        """Bytes came from another node."""

    def peer_writable(self, peer: PeerConnection, flag: bool, now: int) -> None:
        """Another node takes bytes, or none."""

    def peer_lost(self, peer: PeerConnection, why: str, now: int) -> None:
        """A connection to another node is gone."""

    def dial_failed(self, address: str, why: str, refused: bool, now: int) -> None:
        """A dial has failed; `refused`: the machine at the address has no listener."""

    def stalled(self, what: str, since_us: int, now: int) -> None:
        """The disk or the loop has been standing still since then; 0: it works again."""


class PeerConnection(Protocol):
    """A node's state of a connection to another one."""

    handle: object

    def take_output(self) -> bytes:
        """Return the bytes to send and forget them."""
