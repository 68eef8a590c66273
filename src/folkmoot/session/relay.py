"""A client with its connection at one node and its session at another: the state that each of the two keeps.

The node with the connection logs every packet that it has forwarded until the packet's effects are safe and its answer
has come back. When another node becomes the leader of the session, it gets these packets again. Data only.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREL
from folkmoot.session.connection import Connection

__all__ = ["ASKED", "ENDED", "ENTRY_BYTES", "GRANTED", "Lane", "Relay", "Remote", "is_ack"]

ASKED: Final = 0  # the leader has been asked, or will be as soon as there is one
GRANTED: Final = 1  # CONNACK has been sent
ENTRY_BYTES: Final = 128  # approximate overhead of a packet in the log
ENDED: Final = 2  # the connection is gone; the leader may not know it yet


def is_ack(first: int) -> bool:
    """Whether a packet with this first byte acknowledges a delivery: PUBACK, PUBREC or PUBCOMP."""
    return PUBACK <= first >> 4 <= PUBCOMP and first >> 4 != PUBREL


class Relay:
    """State at the node with the connection: what it has forwarded for it.

    token: random, tells a new leader what this connection has set at the old one; told: whether any leader knows of it;
    leader: the node that gets packets now, empty while the partition has none; log: packets whose effects are not known
    to be safe, as (number, first byte, rest, when it came); given: number of the newest packet sent to any leader;
    retained: number of the newest packet with a retained message; qos0, qos1: of the newest with a message with that
    QoS; promised: the packet that marks what this node had outstanding for it while it was the leader; answers: the
    newest turn for which an answer waits that this node gave as the leader; disowned: the leader was told that no
    session goes on with it; flights: queue sequences by packet id that the client has received, and whose
    acknowledgement is not known to be safe.
    """

    def __init__(self, connection: Connection, partition: int, body: bytes, assigned: bool, token: int) -> None:
        self.connection = connection
        self.token = token
        self.number = connection.id
        self.partition = partition
        self.body = body  # of the CONNECT packet
        self.assigned = assigned
        self.persistent = False
        self.state = ASKED
        self.announced = False
        self.leader = ""
        self.log: deque[tuple[int, int, bytes, int]] = deque()
        self.log_bytes = 0
        self.packet_seq = 0
        self.sent_seq = 0
        self.retained_seq = 0
        self.qos0_seq = 0
        self.qos1_seq = 0
        self.marker_seq = 0
        self.answers_token = 0
        self.disowned = False
        self.flights: dict[int, int] = {}

    @property
    def is_spent(self) -> bool:
        """Whether it belongs to a transient session whose connection has ended."""
        return self.state == ENDED and not self.persistent

    def is_ordered(self, passed_on: bool, complete_token: int) -> bool:
        """Whether a retained message, forwarded or published here, overtakes none that took the other path (A8)."""
        if passed_on:
            return self.connection.kept_token <= complete_token
        return not self.log or self.log[0][0] > self.retained_seq

    def is_free(self, qos: int) -> bool:
        """Whether a message with QoS 0 or 1 published here overtakes none that the session's leader publishes (A3)."""
        newest = max(self.marker_seq, self.qos1_seq if qos else self.qos0_seq)
        return not newest or not self.log or self.log[0][0] > newest

    def note_passed_on(self, qos: int, retained: bool) -> None:
        """The newest packet is a message that the session's leader publishes."""
        if retained:
            self.retained_seq = self.packet_seq
        if qos == 1:
            self.qos1_seq = self.packet_seq
        elif qos == 0:
            self.qos0_seq = self.packet_seq

    def let_overtake(self) -> None:
        """Give up the order: the client has gone, and delivery out of order is better than none."""
        self.retained_seq = self.qos0_seq = self.qos1_seq = self.marker_seq = self.answers_token = 0
        connection = self.connection
        connection.kept_token = connection.direct_token = 0
        connection.forwarded_qos0_seq = connection.forwarded_qos1_seq = 0

    def handled(self, number: int) -> None:
        """Drop the packets up to `number` from the log: their effects are safe."""
        log = self.log
        while log and log[0][0] <= number:
            _number, first, rest, _came_us = log.popleft()
            self.log_bytes -= len(rest) + ENTRY_BYTES
            if is_ack(first) and len(rest) >= 2:
                self.flights.pop(rest[0] << 8 | rest[1], None)

    def forget_acks(self) -> None:
        """Drop acknowledgements of an ended connection, as far as no other packet is before them.

        Its client gets those messages and PUBRELs again. The packets that are left keep their numbers, without a gap.
        """
        log = self.log
        while len(log) > 1 and is_ack(log[0][1]):
            self.log_bytes -= len(log.popleft()[2]) + ENTRY_BYTES

    def __repr__(self) -> str:
        return f"Relay({self.connection!r} leader={self.leader!r} state={self.state} log={len(self.log)})"


class Lane:
    """The bytes that may still be sent in this turn to all clients of one other node, which share its link.

    room: for messages that can wait; floor: QoS 0, which cannot, may take the room down to this.
    """

    def __init__(self, room: int) -> None:
        self.room = room
        self.floor = 0
        self._whole = room

    def refill(self, room: int, link_room: int) -> None:
        """End the turn: the next one has `room`; link_room: how much the link could take before this turn's output.

        The link holds no more than that after the next turn, but for `room` and one message.
        """
        left = link_room - (self._whole - self.room)
        self.room = self._whole = room
        self.floor = min(room - left, 0)

    def __repr__(self) -> str:
        return f"Lane({self.room} floor={self.floor})"


class Remote:
    """State at the node with the session: where the connection is, its packets so far, and what to tell its node."""

    def __init__(self, node_id: str, number: int, token: int) -> None:
        self.node_id = node_id
        self.number = number
        self.token = token
        self.gone = False  # nothing is sent to it any more: the node is no member, or the connection left the session
        self.received_seq = 0  # the newest packet received
        self.resent_seq = 0  # the newest packet that an earlier leader received
        self.handled_seq = 0  # the newest packet whose effects are safe
        self.marked_seq = 0  # the packet that is handled when all that the former leader had under way is done
        self.blocked = False  # the client takes no more bytes for now
        self.choked = False  # its node takes no more bytes for now
        self.opened = False  # its CONNACK is in the output
        self.expelled = False  # its node has been told to close it, and has not said yet that it has
        self.without_will = False  # if the leader has ended it: its client may not publish its will any more
        self.sequences: list[int] = []  # of the queued messages in the output
        self.code = 0  # the reason code of the DISCONNECT that closes it; 0 = no DISCONNECT
        self.why = ""

    @property
    def is_marked(self) -> bool:
        """Whether no answer may leave ahead, since with it all packets before it count as handled."""
        return self.marked_seq > self.handled_seq

    def __repr__(self) -> str:
        return f"Remote({self.node_id!r} {self.number} packets={self.received_seq} handled={self.handled_seq})"
