"""A network connection as the core sees it: what came in and is incomplete, what goes out, and what CONNECT agreed on.

Owns buffers and connection-scoped state (MQTT 5 section 3.1.2: keep alive, topic aliases, maximum packet size).
Never touches a socket: `handle` is the driver's.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt.packet import Connect

if TYPE_CHECKING:
    from folkmoot.session.relay import Lane, Relay, Remote
    from folkmoot.session.session import Session

__all__ = ["CHECKING", "CLOSED", "CLOSING", "NEW", "OPEN", "REGISTERING", "Authenticate", "Connection", "PeerInfo"]

NEW: Final = 0  # nothing but CONNECT is welcome
CHECKING: Final = 1  # the driver checks the password
REGISTERING: Final = 2  # the session's rows are on their way to the disk
OPEN: Final = 3  # CONNACK has been sent
CLOSING: Final = 4  # the last bytes are on their way; input is ignored
CLOSED: Final = 5


class PeerInfo:
    """Where a connection comes from.

    transport: "tcp", "tls", "ws" or "wss"; address: "HOST:PORT"; certificate_name: the common name in the client's
    certificate, None without one.
    """

    def __init__(self, transport: str, address: str, certificate_name: str | None = None) -> None:
        self.transport = transport
        self.address = address
        self.certificate_name = certificate_name


class Connection:
    """One network connection. Attributes are public to the core and read-only to drivers, except through methods."""

    def __init__(self, number: int, handle: object, info: PeerInfo, now: int, outputs: list[Connection]) -> None:
        self.id = number
        self.handle = handle
        self.info = info
        self.state = NEW
        self.version = 0
        self.v5 = False
        self.client_id = ""
        self.username = ""
        self.connect: Connect | None = None
        self.connect_body: bytes = b""  # of the CONNECT packet, kept where another node may need it
        self.session: Session | None = None
        self.relay: Relay | None = None  # its session, or its registration, is at another node
        self.remote: Remote | None = None  # the connection itself is at another node
        self.token = 0  # drawn when needed: by it a new leader tells what this connection has set with an old one
        self.relayed_seq = 0  # how many packets earlier leaders of its session were passed: later ones go on counting
        self.repeated = False  # the packet in hand may have been handled by an earlier leader
        self.again = 0  # the number of the packet in hand, if it was passed to an earlier leader; 0: it is new
        # Input
        self.parts: list[bytes] | None = None
        self.parts_bytes = 0
        self.need_bytes = 0
        self.last_seen_us = now
        self.patience_us = NEVER  # one and a half times the keep alive
        self.paused = 0  # why its PUBLISH packets are not taken: bits of broker.commit
        self.defers_publishes = False  # so it was at the end of the last turn: what comes is sifted
        self.reading_paused = False  # its socket is not read
        self.stash: bytearray | None = None  # packets that came meanwhile and have to wait
        # Published over it: the newest number under which other nodes were asked, the newest outbox entry of its
        # session's partition, and the newest request before that; and how many requests wait for a leader
        self.forwarded_seq = 0
        self.outbox_seq = 0
        self.outbox_order = 0
        self.parked_count = 0
        self.broken = False  # it ended without a goodbye: what is not acknowledged to it is owed to nobody
        self.fast = False  # no rule has to look at each PUBLISH
        self.allowed: dict[bytes, bool] | None = None
        self.alias_in: dict[int, bytes] | None = None
        # For who asks how it was
        self.opened_us = 0  # when the client was let in; 0: not yet, or not here
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.said = -1  # the reason code of its own DISCONNECT
        self.end_by = ""  # who ended it, if not the client: "node" or "network"
        self.end_code = 0
        self.end_why = ""
        self.rate_us = 0  # when the messages that came would be over if they had come at the highest rate allowed
        # Acknowledgements that wait for the disk
        self.held = 0
        self.held_token = 0
        self.held_pubacks = 0
        self.held_turns: deque[int] | None = None  # of each in order; below 0: not before older turns
        self.received_before: set[int] | None = None  # QoS 2 ids of the session that this connection did not begin
        # Output
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.dirty = False
        self.writable = True
        self.unsent_bytes = 0  # handed to the transport since it is not writable
        self.send_bytes_max = 0
        self.lane: Lane | None = None  # the way to another node, which has the connection
        self.packet_bytes_max: int = NEVER
        self.alias_out: dict[bytes, int] | None = None
        self.alias_out_max = 0
        self.problem_information = True
        self.connack: bytes = b""
        self._outputs = outputs

    def can_send(self) -> bool:
        """Whether the peer takes bytes as fast as they come; otherwise QoS 0 is dropped and the rest waits."""
        if self.lane is not None and self.lane.room <= 0:
            return False
        return self.writable and self.out_bytes < self.send_bytes_max

    def put(self, data: bytes) -> None:
        """Append bytes to the output."""
        self.out.append(data)
        self.out_bytes += len(data)
        self.touch()

    def touch(self) -> None:
        """Have the output taken at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self._outputs.append(self)

    def take_output(self) -> bytes:
        """Return the bytes to send and forget them; for drivers, once per turn."""
        self.dirty = False
        if not self.writable:
            self.unsent_bytes += self.out_bytes
        self.out_bytes = 0
        out = self.out
        if len(out) == 1:
            data = out[0]
        else:
            data = b"".join(out)
        self.out = []
        return data

    def __repr__(self) -> str:
        peer = f"{self.info.transport} {self.info.address}"
        return f"Connection({self.id} {peer} client={self.client_id!r} state={self.state})"


class Authenticate:
    """Ask whether the user name and password of a CONNECT are right; the driver answers with `Node.authenticated`."""

    def __init__(self, connection: Connection, username: str | None, password: bytes | None, client_id: str) -> None:
        self.connection = connection
        self.username = username
        self.password = password
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"Authenticate(connection={self.connection.id}, username={self.username!r})"
