"""The two classes of messages of a link, each with numbers, acknowledgements and frames of its own.

Owns, for one class of one link, what was sent until it is acknowledged, and the number of the last message received.
Knows no connection and decides nothing: `folkmoot.peer.link` says when frames leave, and which class goes first.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, NEVER
from folkmoot.kernel.pack import get_u64
from folkmoot.peer.frame import data_frame, message_head
from folkmoot.peer.kind import KIND_END

__all__ = ["FRAME_BYTES", "HEAD_BYTES", "Frame", "TrafficClass"]

FRAME_BYTES: Final = 128 << 10  # a turn with more is sent as several frames, which others can overtake
HEAD_BYTES: Final = 17  # kind, first, ack: all of a frame that only acknowledges
_AGE_STEP_US: Final = 100 * MILLISECOND  # messages whose ages differ by less go in one frame


class Frame:
    """A frame of messages that is not acknowledged: its bytes, the number of the last one, and when it was made.

    since_us: since when its oldest message has waited.
    """

    def __init__(self, last: int, data: bytes, now: int, since_us: int) -> None:
        self.last_seq = last
        self.data = data
        self.made_us = now
        self.since_us = since_us


class TrafficClass:
    """Both directions of one class; `kind` is that of its frames."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.unknown = 0  # messages of kinds that this version does not know
        # Output
        self.queue: list[bytes] = [b""]  # of this turn; the first is a placeholder for the head of the frame
        self.queue_bytes = 0
        self._queue_us = NEVER  # since when the oldest of them has waited
        self.frames: list[Frame] = []
        self.frames_bytes = 0
        self.unsent_index = 0  # index of the first frame that the current connection has not been given
        self.unsent_pos = 0  # how much of that frame it has been given
        self.put_seq = 0  # of the last message put
        self.framed_seq = 0
        self.acked_seq = 0
        # Input
        self.received_seq = 0
        self.unacked_bytes = 0  # received, and not acknowledged in anything that was given to a connection

    def __repr__(self) -> str:
        return f"TrafficClass(sent={self.put_seq} acked={self.acked_seq} received={self.received_seq})"

    # Output

    def backlog_bytes(self) -> int:
        """Return the size of the messages that are not acknowledged."""
        return self.queue_bytes + self.frames_bytes

    def has_unsent(self) -> bool:
        """Whether there is a frame that the current connection has not been given as a whole."""
        return self.unsent_index < len(self.frames)

    def waits_since_us(self, now: int) -> int:
        """Return since when the oldest frame waits that the connection has not been given; now: there is none."""
        return self.frames[self.unsent_index].made_us if self.has_unsent() else now

    def is_older(self, since_us: int) -> bool:
        """Whether the frame of this turn has waited for longer than a message that has waited since then."""
        return since_us - _AGE_STEP_US > self._queue_us

    def put(self, kind: int, body: bytes, since_us: int) -> bool:
        """Append a message, which has waited since then; return whether the frame is long enough to be sealed."""
        self._queue_us = min(self._queue_us, since_us)
        head = message_head(kind, len(body))
        self.queue.append(head)
        self.queue.append(body)
        self.queue_bytes += len(head) + len(body)
        self.put_seq += 1
        return self.queue_bytes >= FRAME_BYTES

    def seal(self, now: int, prompt: bool) -> None:
        """Make a frame of the messages of this turn.

        prompt: the connection takes frames. What a frame acknowledges counts as acknowledged only if the frame leaves
        in this turn: in a queue it would be old when it arrives.
        """
        if self.framed_seq == self.put_seq:
            return
        if prompt and not self.has_unsent():
            self.unacked_bytes = 0
        data = data_frame(self.kind, self.framed_seq + 1, self.received_seq, self.queue, self.queue_bytes)
        self.queue = [b""]
        self.queue_bytes = 0
        self.frames.append(Frame(self.put_seq, data, now, min(self._queue_us, now)))
        self._queue_us = NEVER
        self.frames_bytes += len(data)
        self.framed_seq = self.put_seq

    def acknowledgement(self) -> bytes:
        """Return a frame without messages; it may overtake others of its class, so it takes no number."""
        self.unacked_bytes = 0
        return data_frame(self.kind, 0, self.received_seq, [b""], 0)

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
        if count > self.unsent_index:
            self.unsent_pos = 0  # it came over an earlier connection, and was being sent again
        self.unsent_index = max(self.unsent_index - count, 0)

    def rewind(self) -> None:
        """Another connection: it is given all that is not acknowledged."""
        self.unsent_index = 0
        self.unsent_pos = 0

    # Input

    def take(self, node_id: str, data: bytes, pos: int, stop: int, inbox: list[tuple[str, int, bytes]]) -> str:
        """Read a frame of this class whose kind is at `pos`; return what is wrong with it, or "".

        Messages that were received before are dropped. A frame with a fault leaves nothing in the inbox.
        """
        if stop - pos < HEAD_BYTES:
            return "a data frame that is too short"
        first = get_u64(data, pos + 1)
        ack = get_u64(data, pos + 9)
        number = self.received_seq
        if first > number + 1 or (first == 0 and stop > pos + HEAD_BYTES):
            return f"message {first} after message {number}"
        if ack > self.framed_seq:
            return f"message {ack} acknowledged, {self.framed_seq} sent"
        if ack > self.acked_seq:
            self.acknowledged(ack)
        before = len(inbox)
        skip = number + 1 - first
        at = pos + HEAD_BYTES
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
        self.received_seq = number
        if first:  # a mere acknowledgement is not acknowledged: two idle nodes would never stop
            self.unacked_bytes += stop - pos
        return ""

    def begin_anew(self) -> None:
        """Start both directions over: the other side is new."""
        self.queue = [b""]
        self.queue_bytes = 0
        self.frames = []
        self.frames_bytes = 0
        self.rewind()
        self.put_seq = 0
        self.framed_seq = 0
        self.acked_seq = 0
        self.received_seq = 0
        self.unacked_bytes = 0
