"""One network connection to another node, and what is told when a node comes or goes.

Owns a connection's buffers and the state of its handshake. Never touches a socket: `handle` is the driver's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from folkmoot.peer.frame import FrameReader
from folkmoot.peer.member import Member

if TYPE_CHECKING:
    from folkmoot.peer.handshake import Hello
    from folkmoot.peer.link import Link

__all__ = ["CLOSED", "GREETING", "OPEN", "PROVING", "RESUMING", "PeerChange", "PeerConnection"]

GREETING: Final = 0  # its HELLO is awaited
PROVING: Final = 1  # its PROOF is awaited
RESUMING: Final = 2  # its RESUME is awaited
OPEN: Final = 3
CLOSED: Final = 4

_STATES: Final = ("greeting", "proving", "resuming", "open", "closed")

_UNPROVED_BYTES_MAX: Final = 4096
"""The longest frame of a peer that has not proved itself, and so the memory that it can take."""


class PeerConnection:
    """One TCP connection. Drivers use `handle`, `writable`, `take_output` and `repr`; the rest is the cluster's."""

    def __init__(
        self, number: int, handle: object, address: str, outgoing: bool, now: int, outputs: list[PeerConnection]
    ) -> None:
        self.id = number
        self.handle = handle
        self.address = address  # HOST:PORT that was dialled, or that it came from
        self.outgoing = outgoing
        self.opened_us = now
        self.deadline_us = 0  # when the handshake must be over
        self.state = GREETING
        self.writable = True
        self.reader = FrameReader(_UNPROVED_BYTES_MAX)
        self.hello: Hello | None = None  # theirs
        self.said = b""  # the bytes of my HELLO and of theirs: what the proofs are about
        self.heard = b""
        self.wire = 0
        self.link: Link | None = None
        self.serial = 0  # of the peer's RESUME
        self._out: list[bytes] = []
        self._dirty = False
        self._outputs = outputs

    def put(self, data: bytes) -> None:
        """Append bytes to the output, which is taken at the end of the turn."""
        self._out.append(data)
        if not self._dirty:
            self._dirty = True
            self._outputs.append(self)

    def output_bytes(self) -> int:
        """Return how much waits to be taken."""
        size = 0
        for data in self._out:
            size += len(data)
        return size

    def take_output(self) -> bytes:
        """Return the bytes to send and forget them; for drivers, once per turn."""
        self._dirty = False
        out = self._out
        if len(out) == 1:
            data = out[0]
        else:
            data = b"".join(out)
        self._out = []
        return data

    def __repr__(self) -> str:
        peer = "" if self.hello is None else f" node={self.hello.node_id!r}"
        way = "to" if self.outgoing else "from"
        return f"PeerConnection({self.id} {way} {self.address}{peer} {_STATES[self.state]})"


class PeerChange:
    """A node can be reached (`up`), or can be no more.

    `resumed`: nothing that was sent before, in either direction, is lost; otherwise all that was not acknowledged is.
    `refused`: its host lives and nobody listens at its address: the process is gone.
    """

    def __init__(self, up: bool, member: Member, why: str) -> None:
        self.up = up
        self.member = member  # as it introduced itself; its state means nothing here
        self.node_id = member.node_id
        self.incarnation = member.incarnation
        self.why = why
        self.wire = 0  # the version that both speak
        self.features: list[str] = []
        self.resumed = False
        self.refused = False

    def __repr__(self) -> str:
        who = f"{self.node_id!r} incarnation={self.incarnation}"
        if self.up:
            return f"PeerChange(up {who} wire={self.wire} resumed={self.resumed})"
        return f"PeerChange(down {who} why={self.why!r} refused={self.refused})"
