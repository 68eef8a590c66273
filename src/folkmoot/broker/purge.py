"""Removing the rows of ended sessions. Most go by ranges at once.

Queue rows that name a body or a shared group go page by page.
"""

from __future__ import annotations

from folkmoot.broker.body import Bodies
from folkmoot.broker.shared import Shared
from folkmoot.broker.state import State
from folkmoot.session.entry import Entry
from folkmoot.session.session import Session
from folkmoot.store.key import (
    CURSOR,
    QUEUE,
    RECEIVED,
    RELEASED,
    SENT,
    SESSION,
    SUBSCRIPTION,
    end_of,
    name_prefix,
    numbered_key,
    plain_key,
    sequence_of,
)
from folkmoot.store.row import decode_queue
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["Purge", "Purges"]


class Purge:
    """The queue rows [next, end) of an ended session, to be looked at before they go.

    `token`: when all of them can be read.
    """

    def __init__(self, client_id: str, partition: int, start: int, end: int, sent_below: int, token: int) -> None:
        self.client_id = client_id
        self.partition = partition
        self.prefix = name_prefix(partition, QUEUE, client_id.encode())
        self.next = start
        self.end = end
        self.sent_below = sent_below
        self.token = token


class Purges:
    """Purges under way. A new session of the same client id starts its queue where the old one ended."""

    def __init__(self, state: State, bodies: Bodies, shared: Shared) -> None:
        self.state = state
        self.bodies = bodies
        self.shared = shared
        self.active: list[Purge] = []

    def floor_of(self, client_id: str) -> int:
        """Return the first free queue sequence of a client id whose old rows are still there, or 0."""
        floor = 0
        for purge in self.active:
            if purge.client_id == client_id:
                floor = max(floor, purge.end)
        return floor

    def start(self, session: Session) -> None:
        """Remove all rows of an ended persistent session."""
        writer = self.state.writer
        partition = session.partition
        key = session.key
        for kind in (SESSION, SENT):
            writer.delete(partition, plain_key(partition, kind, key))
        for kind in (SUBSCRIPTION, RECEIVED, RELEASED, CURSOR):
            prefix = name_prefix(partition, kind, key)
            writer.delete_range(partition, prefix, end_of(prefix))
        if session.special_rows:
            end = session.queue_next
            purge = Purge(session.client_id, partition, session.queue_floor, end, session.sent_below, writer.token)
            self.active.append(purge)
        elif session.queue_count:
            prefix = session.queue_prefix
            start = numbered_key(prefix, session.queue_floor)
            writer.delete_range(partition, start, numbered_key(prefix, session.queue_next))

    def runnable(self, durable_token: int) -> bool:
        """Whether a purge can go on now."""
        for purge in self.active:
            if purge.token <= durable_token:
                return True
        return False

    def step(self, durable_token: int) -> None:
        """Work on one page of the first purge that can go on."""
        for purge in self.active:
            if purge.token <= durable_token:
                self._page(purge)
                return

    def _page(self, purge: Purge) -> None:
        start = numbered_key(purge.prefix, purge.next)
        end = numbered_key(purge.prefix, purge.end)
        rows = self.state.reader.scan(start, end, self.state.limits.page_rows)
        for key, value in rows:
            self._row(purge, key, value)
        if len(rows) < self.state.limits.page_rows:
            self.active.remove(purge)
        else:
            purge.next = sequence_of(rows[-1][0]) + 1

    def _row(self, purge: Purge, key: bytes, value: bytes) -> None:
        row = decode_queue(value[VERSION_BYTES:])
        sequence = sequence_of(key)
        maybe_sent = row.sent or sequence < purge.sent_below
        # [MQTT-4.8.2-5] a QoS 2 message that the client may have goes to nobody else when its session ends
        if row.group and not (row.qos == 2 and maybe_sent):
            message = row.message if row.message is not None else self.bodies.load(purge.partition, row.body)
            self.shared.pass_on(Entry(0, message, row.qos, row.retain, b"", row.group))
        self.state.writer.delete(purge.partition, key)
        if row.body:
            self.bodies.release(purge.partition, row.body)
