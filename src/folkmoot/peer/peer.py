"""One network connection to another node, and the report that a node can be reached or not.

Owns a connection's buffers and the state of its handshake. Never touches a socket: `handle` belongs to the driver.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from folkmoot.peer.frame import FrameReader
from folkmoot.peer.member import Member

if TYPE_CHECKING:
    from folkmoot.peer.handshake import Hello
    from folkmoot.peer.link import Link

__all__ = ["CHALLENGED", "CLOSED", "INTRODUCING", "OPEN", "PROVING", "RESUMING", "PeerChange", "PeerConnection"]

CHALLENGED: Final = 0  # it was sent a CHALLENGE, and its own is awaited
PROVING: Final = 1  # it has dialled, and its PROOF is awaited
INTRODUCING: Final = 2  # its HELLO is awaited
RESUMING: Final = 3  # its RESUME is awaited
OPEN: Final = 4
CLOSED: Final = 5

_STATES: Final = ("challenged", "proving", "introducing", "resuming", "open", "closed")

_UNPROVED_BYTES_MAX: Final = 4096
"""The longest frame of a peer that has not proved itself, and so the memory that it can take."""


class PeerConnection:
    """One TCP connection. Drivers use `handle`, `writable`, `take_output` and `repr`; the rest is for the cluster."""

    def __init__(
        self, number: int, handle: object, address: str, outgoing: bool, now: int, outputs: list[PeerConnection]
    ) -> None:
        self.id = number
        self.handle = handle
        self.address = address  # HOST:PORT that was dialled, or of the dialler
        self.outgoing = outgoing
        self.opened_us = now
        self.deadline_us = 0  # of the handshake
        self.state = CHALLENGED
        self.writable = True
        self.reader = FrameReader(_UNPROVED_BYTES_MAX)
        self.hello: Hello | None = None  # of the peer
        self.nonce = b""  # that was sent, and below the one received: all proofs cover both
        self.peer_nonce = b""
        self.secret = b""  # by which both have proved themselves
        self.proved: bool = False  # the peer has proved that it knows the secret
        self.wire = 0
        self.link: Link | None = None
        self.serial = 0  # of the peer's RESUME
        self.held: deque[bytes] = deque()  # frames, without their lengths, that wait while too much waits at this node
        self.pieces = bytearray()  # of a frame that has not come as a whole
        self.given_bytes = 0  # of the output, since it was taken
        self._out: list[bytes] = []
        self._dirty = False
        self._outputs = outputs

    def put(self, data: bytes) -> None:
        """Append bytes to the output, which is taken at the end of the turn."""
        self._out.append(data)
        self.given_bytes += len(data)
        if not self._dirty:
            self._dirty = True
            self._outputs.append(self)

    def output_bytes(self) -> int:
        """Return how many bytes `take_output` would return."""
        return self.given_bytes

    def take_output(self) -> bytes:
        """Return the bytes to send and forget them; for drivers, once per turn."""
        self._dirty = False
        self.given_bytes = 0
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
    """A node can be reached (`up`), or can no longer be.

    `resumed`: nothing that was sent before, in either direction, is lost; otherwise everything unacknowledged is.
    `refused`: its host answers that nothing listens at its address, so the process has ended.
    """

    def __init__(self, up: bool, member: Member, why: str) -> None:
        self.up = up
        self.member = member  # as it introduced itself; its state is not used
        self.node_id = member.node_id
        self.incarnation = member.incarnation
        self.why = why
        self.wire = 0  # the version that both support
        self.features: list[str] = []
        self.resumed = False
        self.refused = False

    def __repr__(self) -> str:
        who = f"{self.node_id!r} incarnation={self.incarnation}"
        if self.up:
            return f"PeerChange(up {who} wire={self.wire} resumed={self.resumed})"
        return f"PeerChange(down {who} why={self.why!r} refused={self.refused})"
