"""Removing the rows of ended sessions: most of them at once, by ranges.

A queue with rows that name a body, or that came by a shared subscription, is read page by page: bodies are released,
and messages go to other members (MQTT 5 section 4.8.2).
"""

from __future__ import annotations

from collections import deque

from folkmoot.delivery.shared import Shared
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.partition.backlog import rows_per_page
from folkmoot.partition.body import Bodies
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
from folkmoot.turn.state import State
from folkmoot.turn.throttle import Throttle

__all__ = ["Purge", "Purges"]


class Purge:
    """The queue rows [next, end) of an ended session, to be read before they are deleted.

    sent_below: rows below may have been sent; token: when all of them can be read; restored: another process ended
    the session; count, size: messages and their bytes, from which the rows of a page are computed.
    """

    def __init__(self, client_id: str, partition: int, start: int, end: int, sent_below: int, token: int) -> None:
        self.client_id = client_id
        self.partition = partition
        self.prefix = name_prefix(partition, QUEUE, client_id.encode())
        self.next = start
        self.end = end
        self.sent_below = sent_below
        self.token = token
        self.restored = False
        self.count = 0
        self.size = 0


class Purges:
    """Purges under way, oldest first. A new session of the same client id starts its queue where the old one ended."""

    def __init__(self, state: State, throttle: Throttle, bodies: Bodies, shared: Shared) -> None:
        self.state = state
        self.throttle = throttle
        self.bodies = bodies
        self.shared = shared
        self.active: deque[Purge] = deque()
        self._floors: dict[str, int] = {}  # by client id: the end of its newest purge

    def floor_of(self, client_id: str) -> int:
        """Return the first free queue sequence of a client id whose old rows are still there, or 0."""
        return self._floors.get(client_id, 0)

    def add(self, purge: Purge) -> None:
        """Start a purge when those before it are done."""
        self.active.append(purge)
        self._floors[purge.client_id] = purge.end

    def forget(self, partition: int) -> None:
        """End the leadership of the partition: its next leader finds the remaining rows."""
        for purge in [purge for purge in self.active if purge.partition == partition]:
            self.active.remove(purge)
            if self._floors.get(purge.client_id) == purge.end:
                del self._floors[purge.client_id]

    def start(self, session: Session, expired: bool) -> None:
        """Remove all rows of an ended persistent session; expired: nobody has ended it, see `merge/stamp`."""
        writer = self.state.writer
        partition = session.partition
        key = session.key
        row = plain_key(partition, SESSION, key)
        if expired:
            writer.expire(partition, row)
        else:
            writer.delete(partition, row)
        for kind in (SUBSCRIPTION, RECEIVED, RELEASED, CURSOR):
            prefix = name_prefix(partition, kind, key)
            writer.delete_range(partition, prefix, end_of(prefix))
        if session.special_rows:
            end = session.queue_next
            purge = Purge(session.client_id, partition, session.queue_head, end, session.sent_below, writer.token)
            purge.count = session.queue_count
            purge.size = session.queue_bytes
            self.add(purge)
            return  # the SENT row is needed if the purge continues after a crash
        writer.delete(partition, plain_key(partition, SENT, key))
        if session.queue_count:
            prefix = session.queue_prefix
            start = numbered_key(prefix, session.queue_head)
            writer.delete_range(partition, start, numbered_key(prefix, session.queue_next))

    def runnable(self, durable_token: int) -> bool:
        """Whether a purge can go on now: they are in the order of their batches.

        What it gives to members elsewhere is in memory until they have it: rows stay on the disk while there is too
        much of that (A13).
        """
        if not self.active or self.throttle.is_full() or self.throttle.is_stranded_full():
            return False
        return self.active[0].token <= durable_token

    def step(self, durable_token: int) -> None:
        """Process one page of the oldest purge, if it can go on."""
        if not self.runnable(durable_token):
            return
        try:
            self._page(self.active[0])
        except CorruptStore as fault:
            # The next leader finds the remaining rows; until then the floor keeps new messages clear of them.
            self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
            self.active.popleft()

    def _page(self, purge: Purge) -> None:
        start = numbered_key(purge.prefix, purge.next)
        end = numbered_key(purge.prefix, purge.end)
        page_rows = rows_per_page(self.state.limits.page_rows, purge.count, purge.size)
        rows = self.state.reader.scan(start, end, page_rows)
        for key, value in rows:
            self._row(purge, key, value)
        if len(rows) == page_rows:
            purge.next = sequence_of(rows[-1][0]) + 1
            return
        self.active.popleft()
        if self._floors.get(purge.client_id) == purge.end:
            del self._floors[purge.client_id]
            self._remove_sent(purge)

    def _remove_sent(self, purge: Purge) -> None:
        session = self.state.sessions.get(purge.client_id)
        if session is None or not session.persistent:
            key = plain_key(purge.partition, SENT, purge.client_id.encode())
            self.state.writer.delete(purge.partition, key)

    def _row(self, purge: Purge, key: bytes, value: bytes) -> None:
        row = decode_queue(value[VERSION_BYTES:])
        sequence = sequence_of(key)
        # The flag in the row says what held when it was written: nothing else survives a crash.
        maybe_sent = sequence < purge.sent_below or (purge.restored and row.sent)
        # [MQTT-4.8.2-5] a QoS 2 message that the client may have goes to no other member when its session ends
        if row.group and not (row.qos == 2 and maybe_sent):
            message = row.message if row.message is not None else self.bodies.load(purge.partition, row.body)
            self.shared.pass_on(row.group, message, purge.partition)
        self.state.writer.delete(purge.partition, key)
        if row.body:
            self.bodies.release(purge.partition, row.body)
