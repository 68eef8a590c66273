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
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER, SECOND
from folkmoot.kernel.pack import get_u64, u64, varint
from folkmoot.peer.frame import RESUME, WAITED, data_frame, frame, message_head
from folkmoot.peer.kind import DELAYED, KIND_END
from folkmoot.peer.member import Member
from folkmoot.peer.peer import PeerConnection

__all__ = ["ACK_BYTES", "Link", "Resume", "read_resume"]

FRAME_BYTES: Final = 1 << 20  # a turn with more is sent as several frames, so that none delays the next for long
HANDOVER_BYTES: Final = 4 << 20  # given to a transport at once; more would be copied into its buffer and wait there
ACK_BYTES: Final = 256 << 10  # received bytes that are acknowledged in the same turn; fewer wait for the next frame
_HEAD_BYTES: Final = 17  # kind, first, ack


class Frame:
    """A data frame that is not acknowledged: its bytes, the number of its last message, and when it was made."""

    def __init__(self, last: int, data: bytes, now: int) -> None:
        self.last_seq = last
        self.data = data
        self.made_us = now


class Resume:
    """The body of a RESUME frame; `serial` counts those that a process sends, on all its connections."""

    def __init__(self, tag: int, known: int, received: int, serial: int) -> None:
        self.tag = tag
        self.known = known
        self.received_seq = received
        self.serial = serial


def read_resume(data: bytes, pos: int, stop: int) -> Resume | None:
    """Read the body of a RESUME frame; None when it is too short. What follows the known fields is ignored."""
    if stop - pos < 32:
        return None
    resume = Resume(get_u64(data, pos), get_u64(data, pos + 8), get_u64(data, pos + 16), get_u64(data, pos + 24))
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
        # Output
        self.queue: list[bytes] = [b""]  # of this turn; the first is a placeholder for the head of the frame
        self.queue_bytes = 0
        self.frames: list[Frame] = []
        self.frames_bytes = 0
        self.unsent_index = 0  # index of the first frame that the current connection has not been given
        self.put_seq = 0  # of the last message put
        self.framed_seq = 0
        self.acked_seq = 0
        self.overflow = False
        self.dirty = False
        # Input
        self.received_seq = 0
        self.unacked_bytes = 0
        self.ack_due_us: int = NEVER
        self.is_full = False  # so many of its messages wait here that no more frames are read
        self.unknown = 0  # messages of kinds that this version does not know
        self.waited_ms = 0  # how long the messages of the next data frame have waited at the other side
        # Time
        self.heard_us = now
        self.patience_from_us = now  # silence counts from here
        self.ping_due_us: int = NEVER
        self.ping_sent_us = 0
        self.round_trip_us = 0

    def __repr__(self) -> str:
        numbers = f"sent={self.put_seq} acked={self.acked_seq} received={self.received_seq}"
        return f"Link({self.node_id!r} incarnation={self.member.incarnation} up={self.up} {numbers})"

    # Output

    def backlog_bytes(self) -> int:
        """Return the size of the messages that are not acknowledged."""
        return self.queue_bytes + self.frames_bytes

    def put(self, kind: int, body: bytes, now: int) -> None:
        """Append a message to the frame of this turn."""
        head = message_head(kind, len(body))
        self.queue.append(head)
        self.queue.append(body)
        self.queue_bytes += len(head) + len(body)
        self.put_seq += 1
        if self.queue_bytes >= FRAME_BYTES:
            self.seal(now)

    def seal(self, now: int) -> None:
        """Make a frame of the messages of this turn; it is kept until it is acknowledged."""
        if self.framed_seq == self.put_seq:
            return
        data = data_frame(self.framed_seq + 1, self.received_seq, self.queue, self.queue_bytes)
        self.queue = [b""]
        self.queue_bytes = 0
        self.frames.append(Frame(self.put_seq, data, now))
        self.frames_bytes += len(data)
        self.framed_seq = self.put_seq
        self.unacked_bytes = 0
        self.ack_due_us = NEVER

    def pump(self, now: int) -> bool:
        """Give the current connection the frames that it has not had; return whether some remain for the next turn.

        Before one that has waited for a connection, or for room in it, goes how long: what is in it may expire.
        """
        connection = self.current
        if connection is None:
            return False
        frames = self.frames
        given = 0
        while self.unsent_index < len(frames) and connection.writable:
            if given >= HANDOVER_BYTES:
                return True
            data = frames[self.unsent_index].data
            waited_us = now - frames[self.unsent_index].made_us
            if waited_us >= SECOND:
                connection.put(frame(WAITED, u64(waited_us // MILLISECOND)))
            connection.put(data)
            given += len(data)
            self.unsent_index += 1
        return False

    def acknowledge(self) -> None:
        """Send an acknowledgement without messages."""
        connection = self.current
        self.ack_due_us = NEVER
        if connection is not None and connection.writable:
            self.unacked_bytes = 0
            connection.put(
                data_frame(0, self.received_seq, [b""], 0)
            )  # it may overtake data frames, so it takes no number

    def acknowledged(self, number: int) -> None:
        """Forget the messages up to `number`, which the peer has; the caller has checked that they were sent."""
        if number <= self.acked_seq:
            return
        self.acked_seq = number
        frames = self.frames
        count = 0
        while count < len(frames) and frames[count].last_seq <= number:
            self.frames_bytes -= len(frames[count].data)
            count += 1
        del frames[:count]
        self.unsent_index = max(self.unsent_index - count, 0)

    # Input

    def take(self, data: bytes, pos: int, stop: int, inbox: list[tuple[str, int, bytes]]) -> str:
        """Read a data frame whose kind is at `pos`; return what is wrong with it, or "".

        Messages that were received before are dropped. A frame with a fault leaves nothing in the inbox. Messages that
        have waited are between two that say how long (DELAYED).
        """
        waited_ms, self.waited_ms = self.waited_ms, 0
        if stop - pos < _HEAD_BYTES:
            return "a data frame that is too short"
        first = get_u64(data, pos + 1)
        ack = get_u64(data, pos + 9)
        number = self.received_seq
        if first > number + 1 or (first == 0 and stop > pos + _HEAD_BYTES):
            return f"message {first} after message {number}"
        if ack > self.framed_seq:
            return f"message {ack} acknowledged, {self.framed_seq} sent"
        if ack > self.acked_seq:
            self.acknowledged(ack)
        before = len(inbox)
        if waited_ms:
            inbox.append((self.node_id, DELAYED, varint(waited_ms)))
        skip = number + 1 - first
        at = pos + _HEAD_BYTES
        node_id = self.node_id
        while at < stop:
            kind = data[at]
            at += 1
            size = 0 if at >= stop else data[at]
            at += 1
            if size >= 128:
                size &= 127
                shift = 7
                more = 128
                while more >= 128 and at < stop and shift <= 28:
                    more = data[at]
                    at += 1
                    size |= (more & 127) << shift
                    shift += 7
                if more >= 128:
                    size = stop  # too long for any frame
            end = at + size
            if end > stop:
                del inbox[before:]
                return "a message that is longer than its frame"
            if skip > 0:
                skip -= 1
            elif kind < KIND_END:
                inbox.append((node_id, kind, data[at:end]))
                number += 1
            else:
                self.unknown += 1
                number += 1
            at = end
        if waited_ms:
            inbox.append((node_id, DELAYED, varint(0)))
        self.received_seq = number
        if first:  # a mere acknowledgement is not acknowledged: two idle nodes would never stop
            self.unacked_bytes += stop - pos
        return ""

    # Connections

    def resume_frame(self, serial: int) -> bytes:
        """Return the RESUME frame of this side."""
        return frame(RESUME, b"".join([u64(self.tag), u64(self.peer_tag), u64(self.received_seq), u64(serial)]))

    def begin_anew(self) -> None:
        """Start both directions over: the other side is new."""
        self.queue = [b""]
        self.queue_bytes = 0
        self.frames = []
        self.frames_bytes = 0
        self.unsent_index = 0
        self.put_seq = 0
        self.framed_seq = 0
        self.acked_seq = 0
        self.overflow = False
        self.received_seq = 0
        self.unacked_bytes = 0
        self.ack_due_us = NEVER
        self.waited_ms = 0
        self.was_up = False
