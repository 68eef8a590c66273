"""Reads the rows of one partition into memory, page by page; nothing of it is visible before the partition opens.

To read a large partition takes many turns, and the node does everything else meanwhile. A partition that is taken away
before it is read leaves nothing behind. Owns no shared state: `restore` hands over what was read.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.outbox import decode_outbox_entry
from folkmoot.delivery.purge import Purge
from folkmoot.delivery.transaction import Holdings
from folkmoot.feed.replay import CURSOR_STREAM
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16
from folkmoot.partition.partition import Partition, Share
from folkmoot.partition.producer import owner_part
from folkmoot.partition.retained import earlier
from folkmoot.session.session import Session, Will
from folkmoot.store.key import (
    BODY,
    CHUNK,
    COMMITTED,
    CURSOR,
    MARK,
    OUTBOX,
    PRODUCER,
    QUEUE,
    RECEIVED,
    RELEASED,
    RETAINED,
    SENT,
    SESSION,
    STAGED,
    SUBSCRIPTION,
    TRANSACTION,
    WILL,
    kind_of,
    kind_prefix,
    name_of,
    plain_name_of,
    sequence_of,
    split_outbox_key,
)
from folkmoot.store.mark_row import mark_number, mark_used_us
from folkmoot.store.message import Message, decode_message
from folkmoot.store.reader import Reader
from folkmoot.store.row import (
    CursorRow,
    SubscriptionRow,
    decode_cursor,
    decode_queue,
    decode_sent,
    decode_session,
    decode_subscription,
    decode_will,
)
from folkmoot.store.transaction import chunk_key_of, decode_parts, decode_staged, decode_transaction
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.message import OutboxEntry

__all__ = ["PartitionLoader", "Filter"]

_PAGE_ROWS: Final = 1024
_PAGE_ROWS_FIRST: Final = 16
_PAGE_BYTES: Final = 1_048_576  # approximate: rows may have a megabyte each
_BYTES_PER_ROW: Final = 512  # so many take about as long as one more row
_SCAN_ROWS: Final = 8  # what a scan that finds nothing costs, in rows

# A partition's rows except those of streams, of the packets of transactions, and of the cluster half.
_RANGES: Final = [(SESSION, CHUNK), (CURSOR, SENT + 1), (MARK, OUTBOX + 1), (TRANSACTION, STAGED + 1)]


class Filter:
    """A subscription as stored: `key` is that of its row; `cursor` the position of its feed, if it has one."""

    def __init__(self, session: Session, key: bytes, name: bytes, row: SubscriptionRow) -> None:
        self.session = session
        self.key = key
        self.name = name
        self.row = row
        self.cursor: CursorRow | None = None


class PartitionLoader:
    """One partition; `partitions`: how many the store has."""

    def __init__(self, partition: int, reader: Reader, partitions: int) -> None:
        self.partition = partition
        self.reader = reader
        self.partitions = partitions
        self.whole = False
        self.rows = 0
        self.sessions: dict[str, Session] = {}
        self.strays: dict[str, Session] = {}  # wills of transient sessions
        self.filters: list[Filter] = []
        self.purges: dict[str, Purge] = {}  # queues of which the session has ended
        self.memory = Partition(partition)
        self.retained: dict[str, Share] = {}  # by user
        self.retained_expires_us = 0  # when the first of them expires; 0: none does
        self.entries: list[OutboxEntry] = []
        self.holdings = Holdings()
        self.queue_messages = 0
        self.queue_bytes = 0
        self._filters: dict[tuple[bytes, bytes], Filter] = {}
        self._range = 0
        self._start = kind_prefix(partition, SESSION)
        self._page_rows = _PAGE_ROWS_FIRST

    @property
    def weight(self) -> int:
        """About how long it takes to open the partition, in rows: each of these is put into memory."""
        staged = len(self.holdings.staged)
        return len(self.sessions) + len(self.filters) + len(self.strays) + len(self.entries) + len(self.purges) + staged

    def read(self, budget: int) -> int:
        """Read for about as long as `budget` rows take; return what is left of it. Raises CorruptStore, StoreError.

        It is `whole` when everything was read.
        """
        while budget > 0 and not self.whole:
            budget -= self._page()
        return budget

    def _page(self) -> int:
        """Read a page; return what it took, in rows."""
        end = kind_prefix(self.partition, _RANGES[self._range][1])
        page_rows = self._page_rows
        rows = self.reader.scan(self._start, end, page_rows)
        size = 0
        for key, value in rows:
            size += len(value)
            try:
                self._row(kind_of(key), key, value)
            except (IndexError, ValueError) as fault:  # a key or a version that is cut short, a name not in UTF-8
                raise CorruptStore(f"the row at {key.hex()} is damaged: {fault}") from None
            except CorruptStore as damage:
                raise CorruptStore(f"the row at {key.hex()}: {damage}") from None
        self.rows += len(rows)
        if len(rows) < page_rows:
            self._go_on()
        else:
            self._start = rows[-1][0] + b"\0"
            self._page_rows = min(max(_PAGE_BYTES * page_rows // (size + 1), 16), 2 * page_rows, _PAGE_ROWS)
        return _SCAN_ROWS + len(rows) + size // _BYTES_PER_ROW

    def _go_on(self) -> None:
        self._range += 1
        if self._range < len(_RANGES):
            self._start = kind_prefix(self.partition, _RANGES[self._range][0])
            self._page_rows = _PAGE_ROWS_FIRST
            return
        self.whole = True
        self._filters.clear()

    def _row(self, kind: int, key: bytes, value: bytes) -> None:
        if kind == SESSION:
            self._session(key, value)
        elif kind == SUBSCRIPTION:
            self._subscription(key, value)
        elif kind == QUEUE:
            self._queue(key, value)
        elif kind == RELEASED:
            self._released(key, value)
        elif kind == RECEIVED:
            self._received(key, value)
        elif kind == RETAINED:
            self._retained(decode_message(value, VERSION_BYTES))
        elif kind == PRODUCER:
            owner = owner_part(plain_name_of(key))
            self.memory.producers += 1
            self.memory.producers_of[owner] = self.memory.producers_of.get(owner, 0) + 1
        elif kind == WILL:
            self._will(key, value)
        elif kind == CURSOR:
            self._cursor(key, value)
        elif kind == SENT:
            self._sent(plain_name_of(key).decode(), *decode_sent(value[VERSION_BYTES:]))
        elif kind == MARK:
            origin = plain_name_of(key)
            self.memory.marks[origin] = mark_number(value)
            used_us = mark_used_us(value)
            if used_us:
                self.memory.app_uses[origin] = used_us
        elif kind == OUTBOX:
            self.entries.append(decode_outbox_entry(self.partition, *split_outbox_key(key), value[VERSION_BYTES:]))
        elif kind == BODY:
            self.memory.body_next = max(self.memory.body_next, sequence_of(key) + 1)
        else:
            self._transaction(kind, key, value[VERSION_BYTES:])

    def _retained(self, message: Message) -> None:
        share = self.retained.get(message.owner)
        if share is None:
            share = Share(None)
            self.retained[message.owner] = share
        share.count += 1
        share.size += message.size
        self.retained_expires_us = earlier(self.retained_expires_us, message.expires_us)

    def _transaction(self, kind: int, key: bytes, body: bytes) -> None:
        if kind == TRANSACTION:
            self.holdings.rows[plain_name_of(key)] = decode_transaction(body)
        elif kind == COMMITTED:
            committed_us, parts = decode_parts(body)
            self.holdings.committed.append((name_of(key), sequence_of(key), committed_us, parts))
        elif kind == STAGED:
            self.holdings.staged.append((chunk_key_of(key), decode_staged(body)))

    def _sent(self, client_id: str, sent_below: int, given_below: int) -> None:
        session = self.sessions.get(client_id)
        if session is not None:
            session.sent_below = max(session.sent_below, sent_below)
            session.sent_stored = sent_below
            session.given_below = max(session.given_below, given_below)
        purge = self.purges.get(client_id)
        if purge is not None:
            purge.sent_below = min(sent_below, purge.end)

    def _session(self, key: bytes, value: bytes) -> None:
        row = decode_session(value[VERSION_BYTES:])
        session = Session(plain_name_of(key).decode(), self.partition, True)
        session.version = row.version
        session.expiry_s = row.expiry_s
        session.ends_us = row.ends_us
        session.username = row.username
        session.proved = row.proved
        session.token = row.token
        session.begun = row.begun
        session.queue_floor = session.queue_next = row.queue_floor
        session.queue_head = session.sent_below = session.given_below = session.drop_below = row.queue_floor
        self.sessions[session.client_id] = session

    def _subscription(self, key: bytes, value: bytes) -> None:
        client_id = name_of(key)
        session = self.sessions.get(client_id.decode())
        if session is None:
            return  # cannot happen, because the batch that ends a session removes it; harmless
        name = key[5 + len(client_id) :]
        found = Filter(session, key, name, decode_subscription(value[VERSION_BYTES:]))
        self.filters.append(found)
        self._filters[(client_id, name)] = found

    def _queue(self, key: bytes, value: bytes) -> None:
        row = decode_queue(value[VERSION_BYTES:])
        client_id = name_of(key).decode()
        sequence = sequence_of(key)
        if row.body:
            bodies = self.memory.bodies
            bodies[row.body] = bodies.get(row.body, 0) + 1
        session = self.sessions.get(client_id)
        if session is None or sequence < session.queue_floor:
            purge = self.purges.get(client_id)
            if purge is None:
                purge = Purge(client_id, self.partition, sequence, sequence + 1, 0, 0)
                purge.restored = True
                self.purges[client_id] = purge
            purge.end = sequence + 1
            purge.count += 1
            purge.size += row.size
            return
        session.queue_next = sequence + 1
        if not session.queue_count:
            session.queue_head = sequence
        if row.sent:
            session.sent_below = sequence + 1  # and with it all before it
        session.queue_count += 1
        session.queue_bytes += row.size
        if row.body or row.group:
            session.special_rows += 1
        self.queue_messages += 1
        self.queue_bytes += row.size

    def _released(self, key: bytes, value: bytes) -> None:
        session = self.sessions.get(name_of(key).decode())
        if session is not None:
            sequence = sequence_of(key)
            if session.released is None:
                session.released = {}
            packet_id = session.packet_id_of(sequence)
            session.released[packet_id] = sequence
            if len(value) > VERSION_BYTES:
                if session.expired_flows is None:
                    session.expired_flows = {}
                session.expired_flows[packet_id] = 0
            session.queue_next = max(session.queue_next, sequence + 1)

    def _received(self, key: bytes, value: bytes) -> None:
        session = self.sessions.get(name_of(key).decode())
        if session is not None:
            if session.received is None:
                session.received = {}
            session.received[get_u16(key, len(key) - 2)] = value[VERSION_BYTES]

    def _will(self, key: bytes, value: bytes) -> None:
        row = decode_will(value[VERSION_BYTES:])
        client_id = plain_name_of(key).decode()
        session = self.sessions.get(client_id)
        if session is None:
            session = Session(client_id, self.partition, False)
            self.strays[client_id] = session
        session.will = Will(row.message, row.delay_s)
        session.will.token = row.token
        session.will.username = row.username
        session.will.due_us = row.due_us

    def _cursor(self, key: bytes, value: bytes) -> None:
        client_id = name_of(key)
        found = self._filters.get((client_id, key[5 + len(client_id) :]))
        if found is None:
            return
        row = decode_cursor(value[VERSION_BYTES:])
        if row.kind != CURSOR_STREAM and row.positions and max(row.positions) >= self.partitions:
            raise CorruptStore("the cursor is of a store with another number of partitions")
        found.cursor = row
