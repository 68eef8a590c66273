"""A client whose connection is at one node and whose session is led at another: what each of the two remembers.

The node with the connection keeps every packet that it has passed on until its effects are safe and its answer has come
back: when another node takes the session over, the packets go there. Data only.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREL
from folkmoot.session.connection import Connection

__all__ = ["ASKED", "ENDED", "ENTRY_BYTES", "GRANTED", "Lane", "Relay", "Remote"]

ASKED: Final = 0  # the leader has been asked, or will be when there is one
GRANTED: Final = 1  # CONNACK has been sent
ENTRY_BYTES: Final = 128  # what a packet in the log takes beside its own bytes, about
ENDED: Final = 2  # the connection is gone; the leader may not know it yet


class Relay:
    """The node with the connection: what it has passed on for it.

    token: drawn, so that a new leader can tell what this connection has set with the old one; told: whether any leader
    has heard of it; leader: the node that takes packets now, empty while the partition has none; log: packets whose
    effects are not known to be safe, as (number, first byte, rest); given: the newest packet that any leader got;
    retained: the newest one of a retained message; kept_token: the newest turn in which this node published one itself;
    promised: the packet that marks what this node, as the leader before, had under way for it; flights: queue sequences
    by packet id that the client has got and whose acknowledgement is not known to be safe.
    """

    def __init__(self, connection: Connection, partition: int, body: bytes, assigned: bool, token: int) -> None:
        self.connection = connection
        self.token = token
        self.number = connection.id
        self.partition = partition
        self.body = body  # of the CONNECT packet
        self.assigned = assigned
        self.durable = False
        self.state = ASKED
        self.announced = False
        self.leader = ""
        self.log: deque[tuple[int, int, bytes]] = deque()
        self.log_bytes = 0
        self.packet_seq = 0
        self.sent_seq = 0
        self.retained_seq = 0
        self.kept_token = 0
        self.marker_seq = 0
        self.flights: dict[int, int] = {}

    @property
    def is_spent(self) -> bool:
        """Whether it was for a session that ends with its connection, and that has ended."""
        return self.state == ENDED and not self.durable

    def is_ordered(self, passed_on: bool, complete_token: int) -> bool:
        """Whether a retained message, passed on or published here, overtakes none that went the other way (A8)."""
        if passed_on:
            return self.kept_token <= complete_token
        return not self.log or self.log[0][0] > self.retained_seq

    def is_free(self) -> bool:
        """Whether what is published here overtakes nothing that the session's leader sends for it (A3)."""
        return not self.marker_seq or not self.log or self.log[0][0] > self.marker_seq

    def let_overtake(self) -> None:
        """The client has gone: better out of order than not at all."""
        self.retained_seq = 0
        self.kept_token = 0
        self.marker_seq = 0

    def handled(self, number: int) -> None:
        """The effects of all packets up to `number` are safe."""
        log = self.log
        while log and log[0][0] <= number:
            _, first, rest = log.popleft()
            self.log_bytes -= len(rest) + ENTRY_BYTES
            if PUBACK <= first >> 4 <= PUBCOMP and first >> 4 != PUBREL and len(rest) >= 2:
                self.flights.pop(rest[0] << 8 | rest[1], None)

    def __repr__(self) -> str:
        return f"Relay({self.connection!r} leader={self.leader!r} state={self.state} log={len(self.log)})"


class Lane:
    """What the clients of one other node may still get in this turn, in bytes: together, for they share its link."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __repr__(self) -> str:
        return f"Lane({self.room})"


class Remote:
    """The node with the session: where the connection is, how far its packets have come, and what is to be told."""

    def __init__(self, node_id: str, number: int, token: int) -> None:
        self.node_id = node_id
        self.number = number
        self.token = token
        self.gone = False  # nothing is told any more: the node is no member, or the session has been left
        self.received_seq = 0  # the newest that came
        self.resent_seq = 0  # the newest that an earlier leader was given
        self.handled_seq = 0  # the newest whose effects are safe
        self.blocked = False  # the client takes no more bytes for now
        self.choked = False  # so does its node
        self.opened = False  # its CONNACK is in the output
        self.fenced = False  # its node has been told to close it, because another connection wants the session
        self.sequences: list[int] = []  # of the queued messages in the output
        self.code = 0  # why it is closed: the reason code for DISCONNECT, 0 = no DISCONNECT
        self.why = ""

    def __repr__(self) -> str:
        return f"Remote({self.node_id!r} {self.number} packets={self.received_seq} handled={self.handled_seq})"
