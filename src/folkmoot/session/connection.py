"""A network connection as the core sees it: incomplete input, output, and what CONNECT and CONNACK agreed on.

Owns buffers and connection-scoped state (MQTT 5 section 3.1.2: keep alive, topic aliases, maximum packet size).
Never touches a socket: `handle` belongs to the driver.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final

from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt.packet import Connect

if TYPE_CHECKING:
    from folkmoot.auth.policy import Policy
    from folkmoot.session.account import Account
    from folkmoot.session.relay import Lane, Relay, Remote
    from folkmoot.session.session import Session

__all__ = [
    "CHECKING",
    "CLOSED",
    "CLOSING",
    "NEW",
    "OPEN",
    "REGISTERING",
    "Authenticate",
    "Connection",
    "Denied",
    "PeerInfo",
    "Task",
]

NEW: Final = 0  # only CONNECT is accepted
CHECKING: Final = 1  # the driver checks the password
REGISTERING: Final = 2  # the session's rows are being written, or its leader has been asked
OPEN: Final = 3  # CONNACK has been sent
CLOSING: Final = 4  # the last bytes are being sent; input is ignored
CLOSED: Final = 5


class PeerInfo:
    """Where a connection comes from.

    transport: "tcp", "tls", "ws" or "wss"; address: "HOST:PORT"; certificate_name: the common name in the client's
    certificate, or None if it has none.
    """

    def __init__(self, transport: str, address: str, certificate_name: str | None = None) -> None:
        self.transport = transport
        self.address = address
        self.certificate_name = certificate_name
        self.waited_us = 0  # from its accept until the node learned of it: a TLS handshake


class Task:
    """A packet whose handling is continued in the client's next turn; nothing that follows it is handled before.

    asleep: it waits for something else than its turn, until `Work.wake`; given_up: its client has gone, so it must not.
    """

    def __init__(self) -> None:
        self.asleep = False
        self.given_up = False

    def drop(self) -> None:
        """Forget what it waits for: this node does not continue it."""

    @abstractmethod
    def go_on(self) -> bool:
        """Continue until the client's steps are spent; return whether the packet has been handled."""

    @abstractmethod
    def packet(self) -> tuple[int, bytes]:
        """Return the packet, as its first byte and its body: another node is to handle it from the beginning."""


class Denied:
    """What was denied to a connection in the minute from `since_us` on: events, and denials without one."""

    def __init__(self, since_us: int) -> None:
        self.since_us = since_us
        self.told = 0
        self.untold = 0


class Connection:
    """One network connection. The core may set attributes; drivers only read them and call methods."""

    def __init__(self, number: int, handle: object, info: PeerInfo, now: int, outputs: list[Connection]) -> None:
        self.id = number
        self.handle = handle
        self.info = info
        self.state = NEW
        # Flags stand together: compiled, they share two words
        self.v5 = False
        self.assigned = False  # the server has given it its client id
        self.problem_information = True
        self.fast = False  # no rule has to be checked for each PUBLISH
        self.repeated = False  # an earlier leader may have handled the current packet
        self.queued = False  # it is on the waiting list, or set aside
        self.aside = False  # not on the list: its task sleeps
        self.defers_publishes = False  # PUBLISH had to wait at the end of the last turn: the input is filtered
        self.reading_paused = False  # reading from its socket is paused
        self.broken = False  # it ended without DISCONNECT: no client waits for outstanding acknowledgements
        self.dirty = False
        self.writable = True
        self.cut = False  # the driver does not wait until the output is sent
        self.version = 0
        self.client_id = ""
        self.username = ""
        self.account: Account | None = None  # None: the client is not let in, or not by this node
        self.proved = 0  # how it has proved that name, see `folkmoot.auth.access`; if it is elsewhere: 0 if it has not
        self.credential = ""  # the stored hash by which its password was checked
        self.connect: Connect | None = None
        self.connect_bytes = 0  # the size of the CONNECT packet
        self.connect_body: bytes = b""  # of the CONNECT packet, without its password; for another node
        self.session: Session | None = None
        self.relay: Relay | None = None  # its session, or its registration, is at another node
        self.remote: Remote | None = None  # the connection itself is at another node
        self.token = 0  # random, drawn when needed: tells a new leader what this connection has set at an old one
        self.relayed_seq = 0  # packets forwarded to earlier leaders of its session: numbering continues from here
        self.waited_us = 0  # how long the current packet has waited for a leader of its client's session
        self.again = 0  # the number of the current packet if it was forwarded to an earlier leader; 0: it is new
        # Input
        self.parts: list[bytes] | None = None
        self.parts_bytes = 0
        self.weighed_bytes = 0  # of the input that waits, as counted in the memory of the node
        self.need_bytes = 0
        # Input that waits for the client's turn (`folkmoot.turn.work`): `rest[rest_pos:]`, before `parts`
        self.rest: bytes = b""
        self.rest_pos = 0
        self.credit = 0  # steps that it may spend; negative: a debt
        self.credit_turn = 0  # the turn in which it got the last quantum
        self.task: Task | None = None  # a packet that takes longer than a turn
        self.backlog: deque[tuple[int, int, bytes]] | None = None  # its packets that wait, if it is at another node
        self.backlog_bytes = 0  # of these
        self.noted = 0  # the number of the packet that is its task, if it is at another node
        self.ending = ""  # why its network connection has ended, while its input is still being handled
        self.last_seen_us = now
        self.patience_us = NEVER  # one and a half times the keep alive
        self.paused = 0  # why its PUBLISH packets have to wait: bits of turn.throttle
        self.stash: bytearray | None = None  # packets received meanwhile, which have to wait
        self.stashed: bytes = b""  # older ones, of which `stashed[stashed_pos:]` has to wait
        self.stashed_pos = 0
        # Of the messages published over it: the number of the newest request to other nodes; how many entries in the
        # outbox of its session's partition are under way, and the newest request before the last of them; the newest
        # turn with a message of QoS 1 that went past that outbox, if there is one; how many requests wait for a leader
        self.forwarded_seq = 0
        self.forwarded_qos0_seq = 0  # the same of messages with QoS 0, and with QoS 1
        self.forwarded_qos1_seq = 0
        self.outbox_open = 0
        self.outbox_order = 0
        self.direct_token = 0
        self.kept_token = 0  # the newest turn in which this node published a retained message of it
        self.parked_count = 0
        self.rights: Policy | None = None  # by which `fast` and `allowed` were decided
        self.allowed: dict[bytes, bool] | None = None
        self.denied: dict[str, Denied] | None = None  # by kind of event, see `protocol.denial`
        self.owner = b""  # of its producers, see `partition.producer`; empty: not needed yet
        self.alias_in: dict[int, bytes] | None = None
        self.alias_bytes = 0  # of the topics in it
        # For reports about the connection
        self.opened_us = 0  # when the client was accepted; 0: not yet, or not by this node
        self.came_us = 0  # the same as events have it, in microseconds since 1970
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.charged_messages = 0  # of these, counted by the rate of its user
        self.charged_bytes = 0  # of `bytes_in`
        self.said = -1  # the reason code of the client's DISCONNECT; -1: none was received
        self.end_by = ""  # what ended it, if not the client: "node" or "network"
        self.end_code = 0
        self.end_why = ""
        self.rate_us = 0  # when the received messages would have ended at the highest allowed rate
        # Acknowledgements that wait for the disk
        self.held = 0
        self.held_token = 0
        self.held_pubacks = 0
        self.held_turns: deque[int] | None = None  # the turn of each, in order; negative: and all turns before it
        self.received_before: set[int] | None = None  # QoS 2 ids that earlier connections of the session began
        # Output
        self.out: list[bytes] = []
        self.out_bytes = 0
        self.unsent_bytes = 0  # handed to the transport since it stopped being writable
        self.counted_unsent_bytes = 0  # of these, as counted in the memory of the node when the turn ended
        self.send_bytes_max = 0
        self.lane: Lane | None = None  # the send budget of the node that has the connection, if that is another one
        self.packet_bytes_max: int = NEVER
        self.alias_out: dict[bytes, int] | None = None
        self.alias_out_max = 0
        self.connack: bytes = b""
        self._outputs = outputs

    @property
    def is_proved(self) -> bool:
        """Whether the client has proved its user name."""
        return self.proved != 0

    def has_stash(self) -> bool:
        """Whether packets wait because it may not publish."""
        return self.stash is not None or self.stashed_pos < len(self.stashed)

    def waiting_bytes(self) -> int:
        """Return how much of its input waits for its turn, or for the rest of a packet; the stash excepted."""
        return len(self.rest) - self.rest_pos + (0 if self.parts is None else self.parts_bytes)

    def connect_held(self) -> int:
        """Return how much is kept of the CONNECT packet, until the client is admitted."""
        return self.connect_bytes + len(self.connect_body) if self.connect is not None else 0

    def can_send(self) -> bool:
        """Whether a message of QoS 1 or 2 can go out now; otherwise it waits."""
        if self.lane is not None and self.lane.room <= 0:
            return False
        return self._keeps_up()

    def can_send_qos0(self) -> bool:
        """Whether a message of QoS 0 can go out now; otherwise it is dropped: only if the client, or its link, is slow.

        What the clients of one node get in a turn does not make them slow, as long as the link has room for it.
        """
        if self.lane is not None and self.lane.room <= self.lane.floor:
            return False
        return self._keeps_up()

    def _keeps_up(self) -> bool:
        """Whether the client takes its output."""
        return self.writable and self.out_bytes < self.send_bytes_max

    def drop_task(self) -> None:
        """End a packet that takes longer than a turn, unhandled."""
        if self.task is not None:
            self.task.drop()
            self.task = None

    def put(self, data: bytes) -> None:
        """Append bytes to the output."""
        self.out.append(data)
        self.out_bytes += len(data)
        self.touch()

    def touch(self) -> None:
        """Schedule the output to be taken at the end of the turn."""
        if not self.dirty:
            self.dirty = True
            self._outputs.append(self)

    def take_output(self) -> bytes:
        """Return the bytes to send and clear the output; for drivers, once per turn."""
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
    """A request to check the user name and password of a CONNECT; the driver answers with `Node.authenticated`."""

    def __init__(self, connection: Connection, username: str | None, password: bytes | None, client_id: str) -> None:
        self.connection = connection
        self.username = username
        self.password = password
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"Authenticate(connection={self.connection.id}, username={self.username!r})"
