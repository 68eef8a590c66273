"""The messages between this node and one other process: numbered, acknowledged, sent again on the next connection.

Owns both directions of one link, and keeps what was sent until it is acknowledged. Opens, chooses and closes no
connection: `folkmoot.peer.switch` does. A link is between two processes, not two node ids: a restarted peer gets a new
link.

Why nothing is lost or duplicated: each side of a link has a tag that its process uses for no other link, and messages
are numbered from 1 under each tag. RESUME, the first frame of both sides on each connection, carries the tag, the
peer's tag if it is known, and the number of the last message received. A side that sees the peer's tag change starts
over: the peer's side is new, so it received nothing of what was sent to the old one. A tag that is lower than the known
one comes from a connection that was overtaken. A message is acknowledged when it was handed on. One that arrives twice,
because the RESUME was sent before it was received, is dropped by its number.

Two classes: the messages of the *control* (CONTROL and CONFIGURATION_LOG: heartbeats, leases, Raft) overtake all
others, the *data*. Else they would be as late as the data is old that waits for a link with too little bandwidth, and a
cluster whose publishers offer more than that would lose its leases and its controller. CockroachDB has connections of
their own for such messages (its system class), Kafka another listener (that of its controllers). Here both classes
share one connection, so that a node is reached by both or by none, with two queues in front of it. Each class has its
own numbers and its own order; all that is said above holds for each. Control goes first wherever frames leave: data
frames are short, longer ones leave in pieces, and the connection is given so much at a time as leaves it soon
(`HANDOVER_US`).

Nothing relies on the order between the classes. What is the data of an epoch is void in a later one, or waits for it
(`replica/replication`, `broker/dispatch`), because roles come from the controller over one link and data from a leader
over another. A node whose version has no classes is sent both in the order of one.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.pack import get_u32, get_u64, u64, varint
from folkmoot.peer.frame import CONTROL_DATA, DATA, FRAME_BYTES_MAX, RESUME, WAITED, frame, piece_frame
from folkmoot.peer.kind import CONTROL_KINDS, DELAYED
from folkmoot.peer.member import Member
from folkmoot.peer.peer import PeerConnection
from folkmoot.peer.traffic import FRAME_BYTES, HEAD_BYTES, TrafficClass

__all__ = ["ACK_BYTES", "HANDOVER_BYTES", "Link", "Resume", "read_resume"]

# Given to a transport at once. What it cannot pass on waits there, where nothing overtakes it: on a slow link it is
# little. On a fast one it is much, because each handover costs a turn.
HANDOVER_BYTES: Final = 256 << 10
HANDOVER_BYTES_MAX: Final = 4 << 20
HANDOVER_US: Final = 40 * MILLISECOND  # a transport that is full for longer gets less at once
URGENT_BYTES: Final = 64 << 10  # of the control, beyond what fills a connection
UNHEARD_US: Final = 250 * MILLISECOND  # a node that takes data acknowledges it more often
ACK_BYTES: Final = 256 << 10  # received bytes that are acknowledged in the same turn; fewer wait for the next frame


class Resume:
    """The body of a RESUME frame; `serial` counts those that a process sends, on all its connections.

    The last field, the number of the last message of the control class, is missing if the peer has no classes.
    """

    def __init__(self, tag: int, known: int, received: int, serial: int, received_control: int) -> None:
        self.tag = tag
        self.known = known
        self.received_seq = received
        self.serial = serial
        self.received_control_seq = received_control


def read_resume(data: bytes, pos: int, stop: int) -> Resume | None:
    """Read the body of a RESUME frame; None when it is too short. What follows the known fields is ignored."""
    if stop - pos < 32:
        return None
    control = get_u64(data, pos + 32) if stop - pos >= 40 else 0
    tag, known, received, serial = [get_u64(data, pos + at) for at in (0, 8, 16, 24)]
    resume = Resume(tag, known, received, serial, control)
    return None if resume.tag == 0 else resume


class Link:
    """The link to one process of a node. `run` is the random number by which the process is known."""

    def __init__(self, member: Member, run: int, tag: int, now: int) -> None:
        self.member = member
        self.node_id = member.node_id
        self.run = run
        self.tag = tag
        self.peer_tag = 0  # 0: unknown
        self.wire = 0
        self.features: list[str] = []
        self.settings: dict[str, str] = {}
        # Connections
        self.current: PeerConnection | None = None
        self.pending: PeerConnection | None = None  # RESUME was sent on it, and the answer is awaited
        self.up = False  # as it was last reported
        self.was_up = False
        self.refused = False
        self.idle_from_us = now  # when the last connection ended
        # Messages
        self.has_classes = False  # both sides know the two classes; else all messages are data
        self.control = TrafficClass(CONTROL_DATA)
        self.data = TrafficClass(DATA)
        # Output
        self.overflow = False
        self.dirty = False
        self.handover_bytes = HANDOVER_BYTES
        self.full_us: int = NEVER  # since when the connection takes nothing; NEVER: it does
        self._stopped = False  # the last handover ended because of its size
        self._urgent_bytes = 0  # of the control, given to the connection since it is full
        # Input
        self.ack_due_us: int = NEVER
        self.is_full = False  # so many of its messages wait here that no more data frames are read
        self.waited_ms = 0  # how long the messages of the next data frame have waited at the other side
        # Time
        self.heard_us = now
        self.patience_from_us = now  # silence counts from here
        self.ping_due_us: int = NEVER
        self.ping_sent_us = 0
        self.round_trip_us = 0

    def __repr__(self) -> str:
        return f"Link({self.node_id!r} incarnation={self.member.incarnation} up={self.up} {self.control} {self.data})"

    @property
    def unknown(self) -> int:
        """How many messages of kinds came that this version does not know."""
        return self.control.unknown + self.data.unknown

    # Output

    def backlog_bytes(self) -> int:
        """Return the size of the messages that are not acknowledged."""
        return self.control.backlog_bytes() + self.data.backlog_bytes()

    def queue_us(self, now: int) -> int:
        """Return how long the oldest data has waited for room in the connection, which carries less than is sent.

        0 if it waits for something else: there is no connection, or there was none; or nothing is heard any more, so
        that the node does not run, or is cut off.
        """
        if self.current is None or now - self.heard_us > UNHEARD_US:
            return 0
        return now - max(self.data.waits_since_us(now), min(self.patience_from_us, now))

    def put(self, kind: int, body: bytes, now: int, since_us: int = NEVER) -> None:
        """Append a message to the frame of this turn and its class; since_us: since when it has waited, if it has."""
        traffic = self.control if self.has_classes and kind in CONTROL_KINDS else self.data
        if traffic.is_older(since_us):
            traffic.seal(now, self._is_writable())
        if traffic.put(kind, body, since_us):
            traffic.seal(now, self._is_writable())

    def _is_writable(self) -> bool:
        return self.current is not None and self.current.writable

    def seal(self, now: int) -> None:
        """Make frames of the messages of this turn; they are kept until they are acknowledged."""
        prompt = self._is_writable()
        self.control.seal(now, prompt)
        self.data.seal(now, prompt)
        if not self.owes():
            self.ack_due_us = NEVER

    def pump(self, now: int) -> bool:
        """Give the current connection the frames that it has not had; return whether some remain for the next turn.

        It gets a little of the control when it is full, too: until it says that it has room, a turn or two go by.
        Before one that has waited for a connection, for room in it, or before it was made, goes how long: what is in it
        may expire.
        """
        connection = self.current
        if connection is None:
            return False
        control = self.control
        while control.has_unsent() and (connection.writable or self._urgent_bytes < URGENT_BYTES):
            one = control.frames[control.unsent_index].data
            connection.put(one)
            control.unsent_index += 1
            self._urgent_bytes += len(one)
        if not connection.writable:
            return False
        self._urgent_bytes = 0
        data = self.data
        if self._stopped and not connection.given_bytes:
            self._stopped = False
            self.handover_bytes = min(2 * self.handover_bytes, HANDOVER_BYTES_MAX)  # it was taken without a stop
        while data.has_unsent():
            if connection.given_bytes >= self.handover_bytes:
                self._stopped = True
                return True
            self._give(connection, data, now)
        return False

    def _give(self, connection: PeerConnection, data: TrafficClass, now: int) -> None:
        """Give a connection the next data frame, or a piece of it."""
        one = data.frames[data.unsent_index]
        start = data.unsent_pos
        waited_us = now - one.since_us
        if start == 0 and waited_us >= SECOND:
            connection.put(frame(WAITED, u64(waited_us // MILLISECOND)))
        if self.has_classes and len(one.data) > 2 * FRAME_BYTES:
            data.unsent_pos = min(start + FRAME_BYTES, len(one.data))
            connection.put(piece_frame(one.data, start, data.unsent_pos))
            if data.unsent_pos < len(one.data):
                return
        else:
            connection.put(one.data)
        data.unsent_pos = 0
        data.unsent_index += 1

    def writable(self, flag: bool, now: int) -> None:
        """The current connection is full, or has room again: the longer that took, the less it is given at once."""
        if not flag:
            self.full_us = now
            self._stopped = False
        elif self.full_us != NEVER:
            full_us = now - self.full_us
            self.full_us = NEVER
            if full_us > HANDOVER_US:
                self.handover_bytes = max(self.handover_bytes // 2, HANDOVER_BYTES)
            elif full_us < HANDOVER_US // 4:
                self.handover_bytes = min(2 * self.handover_bytes, HANDOVER_BYTES_MAX)

    def owes(self) -> bool:
        """Whether something was received that is not acknowledged."""
        return self.data.unacked_bytes > 0 or self.control.unacked_bytes > 0

    def acknowledge(self) -> None:
        """Send acknowledgements without messages."""
        connection = self.current
        self.ack_due_us = NEVER
        if connection is not None and connection.writable:
            for traffic in (self.control, self.data):
                if traffic.unacked_bytes > 0:
                    connection.put(traffic.acknowledgement())

    # Input

    def take(self, kind: int, data: bytes, pos: int, stop: int, inbox: list[tuple[str, int, bytes]]) -> str:
        """Read a DATA or CONTROL_DATA frame whose kind is at `pos`; return what is wrong with it, or "".

        Data that has waited is between two messages that say how long (DELAYED). Acknowledgements may come between that
        and the last piece of its frame.
        """
        if kind == CONTROL_DATA:
            return self.control.take(self.node_id, data, pos, stop, inbox)
        if not self.waited_ms or stop - pos <= HEAD_BYTES:
            return self.data.take(self.node_id, data, pos, stop, inbox)
        waited_ms, self.waited_ms = self.waited_ms, 0
        before = len(inbox)
        inbox.append((self.node_id, DELAYED, varint(waited_ms)))
        fault = self.data.take(self.node_id, data, pos, stop, inbox)
        if fault:
            del inbox[before:]
        else:
            inbox.append((self.node_id, DELAYED, varint(0)))
        return fault

    def take_piece(self, peer: PeerConnection, body: bytes, inbox: list[tuple[str, int, bytes]]) -> str:
        """Take the body of a PIECE, and the frame that it completes; return what is wrong with it, or ""."""
        if len(body) < 2:
            return "a piece without anything"
        if body[0]:
            peer.pieces = bytearray()
        elif not peer.pieces:
            return "a piece without the one before it"
        peer.pieces += body[1:]
        if len(peer.pieces) < 5:
            return "a piece that is too short"
        size = get_u32(bytes(peer.pieces[:4]), 0) + 4
        if len(peer.pieces) > size or size - 4 > FRAME_BYTES_MAX or peer.pieces[4] != DATA:
            return "pieces of something else than a data frame"
        if len(peer.pieces) < size:
            return ""
        data = bytes(peer.pieces)
        peer.pieces = bytearray()
        return self.take(DATA, data, 4, size, inbox)

    # Connections

    def resume_frame(self, serial: int) -> bytes:
        """Return the RESUME frame of this side."""
        numbers = [self.tag, self.peer_tag, self.data.received_seq, serial, self.control.received_seq]
        return frame(RESUME, b"".join([u64(number) for number in numbers]))

    def resume(self, received: int, received_control: int) -> str:
        """Go on over another connection, whose peer has received so much; return what is wrong with that, or ""."""
        for traffic, number in ((self.data, received), (self.control, received_control)):
            if number > traffic.framed_seq:
                return f"it has received {number} of {traffic.framed_seq} messages"
        self.data.acknowledged(received)
        self.control.acknowledged(received_control)
        self.data.rewind()
        self.control.rewind()
        self.handover_bytes = HANDOVER_BYTES
        self.full_us = NEVER
        self._stopped = False
        self._urgent_bytes = 0
        self.waited_ms = 0
        return ""

    def begin_anew(self) -> None:
        """Start both directions over: the other side is new."""
        self.control.begin_anew()
        self.data.begin_anew()
        self.overflow = False
        self.ack_due_us = NEVER
        self.waited_ms = 0
        self.was_up = False
