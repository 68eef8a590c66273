"""The stored queue of a session as rows: reading its pages, removing messages, making room when it is full.

MQTT 5 section 4.9 leaves limits to the server; promise A13 demands them. Owns how much of a queue is in memory. It
never sends: `queue` does.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import HOUR
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import WARNING
from folkmoot.partition.body import Bodies
from folkmoot.session.account import Account
from folkmoot.session.connection import OPEN
from folkmoot.session.entry import Entry
from folkmoot.session.session import UNKNOWN_US, Session
from folkmoot.store.key import SENT, numbered_key, plain_key, sequence_of
from folkmoot.store.row import decode_queue, encode_sent, origin_in
from folkmoot.store.writer import VERSION_BYTES, Writer
from folkmoot.turn.memory import ENTRY_BYTES
from folkmoot.turn.state import State
from folkmoot.turn.work import READ_STEPS

__all__ = ["Backlog", "put_sent", "rows_per_page"]

_PAGE_BYTES_MAX: Final = 1_048_576  # approximately: a page has fewer rows where messages are large
_GIVEN_AHEAD: Final = 256  # sequences for which one row is written
_DROPS_MAX: Final = 1024  # old messages that one new message may push out: bounds its time


def rows_per_page(page_rows: int, count: int, size: int) -> int:
    """Return how many rows to read at once where `count` messages have `size` bytes in all: 1 to `page_rows`."""
    if size <= _PAGE_BYTES_MAX:
        return page_rows
    return max(1, min(page_rows, _PAGE_BYTES_MAX * count // size))


class Backlog:
    """The stored queues of all sessions."""

    def __init__(self, state: State, bodies: Bodies) -> None:
        self.state = state
        self.bodies = bodies

    # -- room ---------------------------------------------------------------------------------------------------------

    def keeps_in_memory(self, session: Session, sequence: int) -> bool:
        """Whether a new message stays in memory because it can soon be sent; otherwise its row is read later."""
        connection = session.connection
        if connection is None or connection.state != OPEN or sequence != session.ready_end:
            return False
        if connection.remote is not None and connection.remote.choked:
            return False  # nothing is sent to its node now, and perhaps never
        return (
            session.waiting + len(session.inflight) < session.window
            and session.ready_bytes < self.state.limits.send_buffer_bytes_max
        )

    def make_room(self, session: Session, size: int) -> bool:
        """Whether the limits allow a message of `size` bytes, perhaps after dropping the oldest ones (counted)."""
        if self._fits(session, size) or self._drop_expired(session, size):
            return True
        self._tell_full(session, size)
        limits = self.state.limits
        if limits.queue_full_drops_oldest and size <= limits.queue_bytes_max:
            for _ in range(_DROPS_MAX):
                entry = self._oldest(session)
                if entry is None:
                    break
                self._drop(session, entry)
                self.state.counters.dropped_queue_full += 1
                if self._fits(session, size):
                    return True
        self._count_drop(session, size)
        return False

    def has_room(self, session: Session, size: int) -> bool:
        """Whether `make_room` would probably find room; nothing is dropped or counted."""
        limits = self.state.limits
        if self._fits(session, size) or (limits.queue_full_drops_oldest and size <= limits.queue_bytes_max):
            return True
        return size <= limits.queue_bytes_max and self._oldest_expired(session) is not None

    def _is_users(self, session: Session, size: int) -> bool:
        """Whether the quota of the user, or its share of a disk that is low, refuses a message of `size` bytes."""
        account = session.account
        if account is None or (account.fits_queue(size) and (not session.persistent or self._fits_disk(account, size))):
            return False
        return not self._is_passing(session, size)

    def _fits_disk(self, account: Account, size: int) -> bool:
        counters = self.state.counters
        return self.state.accounts.fits_disk(account, size, counters.queue_bytes + counters.retained_bytes)

    def _is_passing(self, session: Session, size: int) -> bool:
        """Whether a message is on its way to a connected client that reads: it does not wait for long."""
        if session.connection is None:
            return False
        waiting = session.queue_bytes if session.persistent else session.ready_bytes
        return waiting + size <= self.state.limits.send_buffer_bytes_max

    def _count_drop(self, session: Session, size: int) -> None:
        if self._is_users(session, size):
            self.state.counters.dropped_user_quota += 1
        else:
            self.state.counters.dropped_queue_full += 1

    def _tell_full(self, session: Session, size: int) -> None:
        """Log that a session loses messages, at most once in an hour; so for all sessions of a user together."""
        now = self.state.now
        account = session.account
        if account is not None and self._is_users(session, size):
            self.state.refuse(account, "queue_bytes" if self._fits_disk(account, size) else "disk")
            return
        if session.full_told_us and now - session.full_told_us < HOUR:
            return
        session.full_told_us = now
        persistent = session.persistent
        fields: dict[str, object] = {"client": session.client_id}
        fields["messages"] = session.queue_count if persistent else session.waiting
        fields["bytes"] = session.queue_bytes if persistent else session.ready_bytes
        fields["drops"] = "the oldest" if self.state.limits.queue_full_drops_oldest else "the newest"
        self.state.event(WARNING, "queue_full", fields)

    def _fits(self, session: Session, size: int) -> bool:
        if self._is_users(session, size):
            return False
        limits = self.state.limits
        # What is in flight to a connected client is not in the queue.
        in_flight_max = session.window if session.connection is not None else 0
        return (
            session.queue_count < limits.queue_messages_max + in_flight_max
            and session.queue_bytes + size <= limits.queue_bytes_max
        )

    def _drop_expired(self, session: Session, size: int) -> bool:
        """Whether `size` bytes fit without the expired messages at the head, which are dropped [MQTT-3.3.2-5]."""
        for _ in range(_DROPS_MAX):
            entry = self._oldest_expired(session)
            if entry is None:
                return False
            self._drop(session, entry)
            self.state.counters.dropped_expired += 1
            if self._fits(session, size):
                return True
        return False

    def _oldest_expired(self, session: Session) -> Entry | None:
        """Return the first message that may be dropped if it has expired."""
        if not self.state.has_expired(session.oldest_expires_us):
            return None
        entry = self._oldest(session)
        if entry is None:
            return None
        session.oldest_expires_us = _expires_us(entry)
        return entry if self.state.has_expired(session.oldest_expires_us) else None

    def _oldest(self, session: Session) -> Entry | None:
        """Return the first message that may be dropped, if there is one and it can be read."""
        if session.waiting:
            entry = session.ready[session.ready_head]
            return None if entry.sequence >= session.committed_next or _has_begun(entry) else entry
        end = numbered_key(session.queue_prefix, session.committed_next)
        for _ in range(_DROPS_MAX):
            try:
                start = numbered_key(session.queue_prefix, _droppable_from(session))
                rows = self.state.reader.scan(start, end, 1)
                if not rows:
                    return None
                entry = self._entry_of(session, rows[0][0], rows[0][1])
            except CorruptStore:
                return None  # the queue is full: this session loses the new message, and no other session does
            if not _has_begun(entry):
                return entry
            if session.connection is not None:
                return None  # what is dropped of the rows that are still to be read is one range
            session.kept_below = entry.sequence + 1
        return None

    def _drop(self, session: Session, entry: Entry) -> None:
        """Remove what `_oldest` has returned."""
        if _droppable_from(session) > session.drop_below:
            session.drop_from = entry.sequence
        session.drop_below = entry.sequence + 1
        if session.waiting:
            self.pop(session)
        self.remove(session, entry)

    def offer_room(self, session: Session, size: int) -> bool:
        """As `make_room`, for the messages of a transient session, which wait in memory."""
        limits = self.state.limits
        drops = limits.queue_full_drops_oldest and size <= min(limits.queue_bytes_max, limits.queue_memory_bytes_max)
        while not self._fits_memory(session, size):
            if session.waiting and self.state.has_expired(_expires_us(session.ready[session.ready_head])):
                self.pop(session)
                self.state.counters.dropped_expired += 1
                continue
            self._tell_full(session, size)
            self._count_drop(session, size)
            if not drops or not session.waiting:
                return False
            self.pop(session)
        return True

    def _fits_memory(self, session: Session, size: int) -> bool:
        limits = self.state.limits
        after = session.ready_bytes + size
        return (
            session.waiting < limits.queue_messages_max
            and after <= limits.queue_bytes_max
            and after + session.waiting * ENTRY_BYTES <= limits.queue_memory_bytes_max
            and not self._is_users(session, size)
        )

    # -- messages in memory -------------------------------------------------------------------------------------------

    def push(self, session: Session, entry: Entry) -> None:
        """Append an entry to the queue in memory."""
        session.push_ready(entry)
        self._note(session, entry.size, 1)

    def pop(self, session: Session) -> Entry:
        """Take the first entry of the queue in memory."""
        entry = session.pop_ready()
        session.oldest_expires_us = UNKNOWN_US
        self._note(session, -entry.size, -1)
        return entry

    def clear(self, session: Session) -> None:
        """Drop the entries in memory."""
        if session.waiting:
            self._note(session, -session.ready_bytes, -session.waiting)
        session.clear_ready()

    def _note(self, session: Session, size: int, count: int) -> None:
        memory = self.state.memory
        memory.ready_bytes += size
        memory.ready_count += count
        if not session.persistent and session.account is not None:
            session.account.queue_bytes += size  # that of a persistent session is on disk

    # -- rows ---------------------------------------------------------------------------------------------------------

    def load(self, session: Session) -> bool:
        """Read the next page of a stored queue; False when there is none. Raises CorruptStore."""
        if not session.persistent:
            return False
        start = session.ready_end
        if session.drop_from <= start < session.drop_below:
            start = session.drop_below
        if start >= session.committed_next:
            return False
        prefix = session.queue_prefix
        page_rows = rows_per_page(self.state.limits.page_rows, session.queue_count, session.queue_bytes)
        end = session.committed_next
        rows = self.state.reader.scan(numbered_key(prefix, start), numbered_key(prefix, end), page_rows)
        self.state.work.steps += READ_STEPS * len(rows)
        for key, value in rows:
            sequence = sequence_of(key)
            if session.drop_from <= sequence < session.drop_below:
                continue
            if session.flights is not None and sequence in session.flights:
                continue
            entry = self._entry_of(session, key, value)
            session.ready_end = sequence + 1  # one that cannot be read stays the next one
            self.push(session, entry)
        session.ready_end = sequence_of(rows[-1][0]) + 1 if len(rows) == page_rows else end
        if rows and session.ready_end > max(session.sent_below, session.sent_stored):
            # From now on these messages may have been sent; a later leader must know it.
            put_sent(self.state.writer, session, session.ready_end)
        return bool(rows)

    def _entry_of(self, session: Session, key: bytes, value: bytes) -> Entry:
        body = value[VERSION_BYTES:]
        row = decode_queue(body)
        message = row.message
        if message is None:
            message = self.bodies.load(session.partition, row.body)
        entry = Entry(sequence_of(key), message, row.qos, row.retain, row.identifiers, row.group)
        entry.body = row.body
        # [MQTT-3.3.1-3] The flag of the row says what held when it was written; it counts after a restart only.
        entry.dup = row.qos > 0 and entry.sequence < session.sent_below
        # The flag is set with a message that is sent at once. A merge, and a page that is read, say it of more.
        known = entry.sequence < session.started_below or (row.sent and not origin_in(body))
        entry.started = entry.dup and known
        return entry

    def find(self, session: Session, sequence: int) -> Entry | None:
        """Return the stored message with this sequence, or None."""
        key = numbered_key(session.queue_prefix, sequence)
        self.state.work.steps += READ_STEPS
        value = self.state.reader.get(key)
        return None if value is None else self._entry_of(session, key, value)

    def remove(self, session: Session, entry: Entry, lazy: bool = False) -> None:
        """Delete the row of a finished message; of the newest one, what it says of the sequences is kept.

        lazy: with the next batch, because its client has acknowledged it.
        """
        if entry.sequence >= session.given_below:
            session.given_below = entry.sequence + _GIVEN_AHEAD
            put_sent(self.state.writer, session, session.sent_below)
        key = numbered_key(session.queue_prefix, entry.sequence)
        if lazy:
            self.state.remove_later(session.partition, key, session)
        else:
            self.state.writer.delete(session.partition, key)
        session.oldest_expires_us = UNKNOWN_US
        session.queue_count -= 1
        session.queue_bytes -= entry.size
        if session.account is not None:
            session.account.queue_bytes -= entry.size
        counters = self.state.counters
        counters.queue_messages -= 1
        counters.queue_bytes -= entry.size
        if entry.body:
            self.bodies.release(session.partition, entry.body, session if lazy else None)
        if entry.body or entry.group:
            session.special_rows -= 1


def _has_begun(entry: Entry) -> bool:
    """Whether a message stays in a full queue: it was sent, or its client may hold its packet id [MQTT-4.3.3-7]."""
    return entry.started or (entry.dup and entry.qos == 2)


def _droppable_from(session: Session) -> int:
    """Return where the rows that may be dropped begin: those before are gone, have begun, or were read already."""
    start = max(session.started_below, session.kept_below, session.drop_below)
    return start if session.connection is None else max(start, session.ready_end)


def _expires_us(entry: Entry) -> int:
    message = entry.message
    assert message is not None, "an entry that waits has its message"
    return message.expires_us


def put_sent(writer: Writer, session: Session, sent_below: int) -> None:
    """Store which sequences of the queue may have been sent, or given out; what was stored before stays true."""
    session.sent_stored = max(session.sent_stored, sent_below)
    key = plain_key(session.partition, SENT, session.key)
    writer.put(session.partition, key, encode_sent(session.sent_stored, session.given_below))
