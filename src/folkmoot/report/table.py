"""The state of the partitions that this node leads, as tables for operators: pages of rows from one snapshot.

The rows of a partition are those of one moment: the first page takes a snapshot of the store, which lives until the
last page was read, but not longer than _IDLE_US between two pages, nor than _AGE_US in all; a node keeps at most
_SNAPSHOTS_MAX. RocksDB keeps the files and memtables of that moment while a snapshot lives, so a slow reader has to
begin anew rather than fill memory and disk. A table of one page needs no snapshot after its answer.

A page is bounded in rows and bytes, because it shares a turn with MQTT. It shows this node's disk: the newest turn may
be missing, and changes that are not acknowledged yet may be there. Connections and messages in flight come from memory,
as of the time of the page. The columns are in `folkmoot.client.column`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore, SnapshotGone
from folkmoot.kernel.event import ERROR
from folkmoot.query.question import BUSY, FAULT, FOUND, GONE, Answer
from folkmoot.query.table_cursor import TableCursor, decode_cursor, encode_cursor
from folkmoot.report.table_row import (
    Row,
    live_queue,
    live_session,
    live_subscription,
    owner_of,
    retained_row,
    session_row,
    stream_row,
    subscription_row,
)
from folkmoot.session.session import Session
from folkmoot.store.key import (
    CHUNK,
    LEFTOVER,
    QUEUE,
    RETAINED,
    SESSION,
    SUBSCRIPTION,
    body_key,
    end_of,
    kind_of,
    kind_prefix,
    name_of,
    partition_start,
    plain_key,
    plain_name_of,
    sequence_of,
)
from folkmoot.store.message import decode_message
from folkmoot.store.reader import Snapshot
from folkmoot.store.row import decode_queue, decode_session, decode_subscription
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.table import Streams
from folkmoot.turn.state import TIMER_TABLES, State

__all__ = ["HERE", "NAMES", "PAYLOAD", "Tables"]

HERE: Final = -1  # in place of a partition: the transient sessions that live at the asked node
PAYLOAD: Final = 1  # a flag: with payloads

NAMES: Final[list[bytes]] = [b"sessions", b"subscriptions", b"queues", b"retained", b"streams", b"partitions"]

_ROWS_MAX: Final = 500  # in a page; also the rows of the store that are read for it
_BYTES_MAX: Final = 262_144  # read from the store for a page, approximately
_SNAPSHOTS_MAX: Final = 16
_IDLE_US: Final = 20 * SECOND
_AGE_US: Final = 180 * SECOND

# The carried figures of an unfinished row of `queues`
_MESSAGES: Final = 0
_BYTES: Final = 1
_OLDEST_US: Final = 2
_QUEUE_CARRY: Final = 3
# and of one of `partitions`: rows and bytes, then rows by kind
_ROWS: Final = 0
_ROW_BYTES: Final = 1
_KINDS: Final[list[int]] = [SESSION, SUBSCRIPTION, QUEUE, RETAINED]
_COUNT_CARRY: Final = 6


class _Held:
    """The source of one reader's pages: a snapshot, or the transient sessions of its first page."""

    def __init__(self, number: int, partition: int, now: int) -> None:
        self.number = number
        self.partition = partition
        self.born_us = now
        self.used_us = now
        self.snapshot: Snapshot | None = None
        self.sessions: list[Session] = []


class _Page:
    """A page in the making; `cursor` None: it is the last."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.cursor: TableCursor | None = None


class Tables:
    """The tables of this node's partitions."""

    def __init__(self, state: State, streams: Streams) -> None:
        self.state = state
        self.streams = streams
        self._held: dict[int, _Held] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._held)

    def look(self, name: bytes, partition: int, flags: int, after: bytes) -> Answer:
        """Return a page of a led partition: its rows as JSON, then the start of the next page (b"": no more).

        partition: HERE for transient sessions. GONE: the snapshot is closed, BUSY: there are too many readers. Raises
        ValueError if the question is malformed.
        """
        if name not in NAMES:
            raise ValueError(f"there is no table {name!r}")
        cursor = decode_cursor(after) if after else TableCursor(0, b"", [])
        self.expire()
        held = self._held.get(cursor.number)
        if held is None or held.partition != partition:
            if after:
                return Answer(GONE, [])
            if len(self._held) >= _SNAPSHOTS_MAX:
                return Answer(BUSY, [])
            held = self._hold(partition)
        held.used_us = self.state.now
        try:
            return self._page(name, held, flags, cursor)
        except SnapshotGone:
            self._drop(held)
            return Answer(GONE, [])
        except CorruptStore as corrupt:
            self._drop(held)
            self.state.event(ERROR, "unreadable", {"what": str(corrupt)})
            answer = Answer(FAULT, [])
            answer.text = str(corrupt)
            return answer

    def _page(self, name: bytes, held: _Held, flags: int, cursor: TableCursor) -> Answer:
        page = _Page()
        if held.snapshot is None and held.partition != HERE:
            held.snapshot = self.state.reader.snapshot()
        self._fill(page, name, held, flags, cursor)
        answer = Answer(FOUND, [])
        following = b""
        if page.cursor is None:
            self._drop(held)
        else:
            page.cursor.number = held.number
            following = encode_cursor(page.cursor)
        answer.chunks = [msgspec.json.encode(page.rows), following]
        return answer

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _hold(self, partition: int) -> _Held:
        # Counted from the start of the node, so that numbers of earlier processes and of other nodes do not match.
        self._number = max(self._number + 1, self.state.started_us)
        held = _Held(self._number, partition, self.state.now)
        if partition == HERE:
            held.sessions = [
                session
                for session in self.state.sessions.values()
                if not session.durable and not session.registration_only and not session.proxy
            ]
        if not self._held:
            self.state.timers.set(self.state.now + _IDLE_US, TIMER_TABLES, 0)
        self._held[held.number] = held
        return held

    def _drop(self, held: _Held) -> None:
        if held.snapshot is not None:
            held.snapshot.close()
        self._held.pop(held.number, None)

    def expire(self) -> None:
        """Close the snapshots whose readers are gone or too slow."""
        now = self.state.now
        for held in list(self._held.values()):
            if now - held.used_us >= _IDLE_US or now - held.born_us >= _AGE_US:
                self._drop(held)

    def due(self) -> None:
        """The timer: check again while any are open."""
        self.expire()
        if self._held:
            self.state.timers.set(self.state.now + _IDLE_US, TIMER_TABLES, 0)

    # -- pages --------------------------------------------------------------------------------------------------------

    def _fill(self, page: _Page, name: bytes, held: _Held, flags: int, cursor: TableCursor) -> None:
        if held.snapshot is None:
            self._live(page, name, held, cursor)
        elif name == b"streams":
            node = self.state.identity.node_id
            for stream in self.streams.streams:
                page.rows.extend(
                    [stream_row(log, node) for log in stream.logs if log.store_partition == held.partition]
                )
        elif name == b"queues":
            self._queues(page, held.snapshot, held.partition, cursor)
        elif name == b"partitions":
            self._count(page, held.snapshot, held.partition, cursor)
        else:
            kind = SESSION if name == b"sessions" else SUBSCRIPTION if name == b"subscriptions" else RETAINED
            prefix = kind_prefix(held.partition, kind)
            rows, done = _scan(held.snapshot, max(prefix, cursor.key), end_of(prefix))
            for key, value in rows:
                row = self._row(kind, held.partition, key, value, flags)
                if row is not None:
                    page.rows.append(row)
            if not done:
                page.cursor = TableCursor(0, rows[-1][0] + b"\0", [])

    def _row(self, kind: int, partition: int, key: bytes, value: bytes, flags: int) -> Row | None:
        body = value[VERSION_BYTES:]
        if kind == SESSION:
            client_id = plain_name_of(key).decode()
            node = owner_of(self.state.sessions.get(client_id), self.state.identity.node_id)
            return session_row(partition, client_id, decode_session(body), node)
        if kind == SUBSCRIPTION:
            client = name_of(key)
            return subscription_row(partition, client.decode(), key[5 + len(client) :], decode_subscription(body))
        message = decode_message(value, VERSION_BYTES)
        if message.expires_us and message.expires_us <= self.state.clock.expiry_time:
            return None
        return retained_row(partition, message, bool(flags & PAYLOAD))

    def _live(self, page: _Page, name: bytes, held: _Held, cursor: TableCursor) -> None:
        """Add transient sessions, from memory; a session with many subscriptions makes a page longer."""
        node = self.state.identity.node_id
        at = cursor.carry[0] if len(cursor.carry) == 1 else 0
        sessions = held.sessions
        end = min(at + _ROWS_MAX, len(sessions))
        while at < end and len(page.rows) < _ROWS_MAX:
            session = sessions[at]
            at += 1
            if session.ended:
                continue
            if name == b"sessions":
                page.rows.append(live_session(session, node))
            elif name == b"subscriptions":
                page.rows.extend([live_subscription(one) for one in session.subscriptions.values()])
            elif name == b"queues":
                row = live_queue(session)
                if row is not None:
                    page.rows.append(row)
        if at < len(sessions):
            page.cursor = TableCursor(0, b"", [at])

    # -- queues: rows of many messages become one ---------------------------------------------------------------------

    def _queues(self, page: _Page, snapshot: Snapshot, partition: int, cursor: TableCursor) -> None:
        prefix = kind_prefix(partition, QUEUE)
        rows, done = _scan(snapshot, max(prefix, cursor.key), end_of(prefix))
        carry = cursor.carry if len(cursor.carry) == _QUEUE_CARRY else [0] * _QUEUE_CARRY
        client = name_of(cursor.key) if cursor.key else b""
        floor = _floor(snapshot, partition, client) if cursor.key else 0
        for key, value in rows:
            name = name_of(key)
            if name != client:
                self._end_queue(page, partition, client, carry)
                client = name
                carry = [0] * _QUEUE_CARRY
                floor = _floor(snapshot, partition, client)
            if floor < 0 or sequence_of(key) < floor:
                continue  # of an ended session, which is being removed
            row = decode_queue(value[VERSION_BYTES:])
            if not carry[_MESSAGES]:
                message = row.message
                if message is None:
                    found = snapshot.scan(body_key(partition, row.body), body_key(partition, row.body) + b"\0", 1, 1)
                    message = decode_message(found[0][1], VERSION_BYTES) if found else None
                carry[_OLDEST_US] = 0 if message is None else message.created_us
            carry[_MESSAGES] += 1
            carry[_BYTES] += row.size
        if done:
            self._end_queue(page, partition, client, carry)
        else:
            page.cursor = TableCursor(0, rows[-1][0] + b"\0", carry)

    def _end_queue(self, page: _Page, partition: int, client: bytes, carry: list[int]) -> None:
        if not carry[_MESSAGES]:
            return
        session = self.state.sessions.get(client.decode())
        row: Row = {
            "partition": partition,
            "client_id": client.decode(),
            "persistent": True,
            "connected": session is not None and session.connection is not None,
            "messages": carry[_MESSAGES],
            "bytes": carry[_BYTES],
            "inflight": 0 if session is None else len(session.inflight),
            "oldest_at": carry[_OLDEST_US] or None,
        }
        page.rows.append(row)

    # -- partitions: all rows are counted -----------------------------------------------------------------------------

    def _count(self, page: _Page, snapshot: Snapshot, partition: int, cursor: TableCursor) -> None:
        """Count rows page by page; chunks of streams are skipped, their logs have the numbers."""
        chunks = kind_prefix(partition, CHUNK)
        start = max(partition_start(partition), cursor.key)
        before = start < chunks
        end = chunks if before else kind_prefix(partition, LEFTOVER)
        carry = cursor.carry if len(cursor.carry) == _COUNT_CARRY else [0] * _COUNT_CARRY
        rows, done = _scan(snapshot, start, end)
        for key, value in rows:
            carry[_ROWS] += 1
            carry[_ROW_BYTES] += len(key) + len(value)
            kind = kind_of(key)
            for number in range(len(_KINDS)):
                if _KINDS[number] == kind:
                    carry[2 + number] += 1
        if not done:
            page.cursor = TableCursor(0, rows[-1][0] + b"\0", carry)
        elif before:
            page.cursor = TableCursor(0, end_of(chunks), carry)
        else:
            page.rows.append(self._counted(partition, carry))

    def _counted(self, partition: int, carry: list[int]) -> Row:
        records = 0
        size = 0
        for stream in self.streams.streams:
            for log in stream.logs:
                if log.store_partition == partition:
                    records += log.readable_end - log.oldest
                    size += log.bytes
        epoch, sequence = self.state.writer.position(partition)
        return {
            "partition": partition,
            "leader": self.state.identity.node_id,
            "epoch": epoch,
            "sequence": sequence,
            "sessions": carry[2],
            "subscriptions": carry[3],
            "queued": carry[4],
            "retained": carry[5],
            "rows": carry[_ROWS],
            "row_bytes": carry[_ROW_BYTES],
            "stream_records": records,
            "stream_bytes": size,
        }


def _scan(snapshot: Snapshot, start: bytes, end: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Return the rows of a page, and whether there are no more."""
    rows = snapshot.scan(start, end, _ROWS_MAX, _BYTES_MAX)
    if len(rows) == _ROWS_MAX:
        return rows, False
    size = 0
    for key, value in rows:
        size += len(key) + len(value)
    return rows, size < _BYTES_MAX


def _floor(snapshot: Snapshot, partition: int, client: bytes) -> int:
    """Return the first queue row that belongs to the stored session of a client; -1 when there is none."""
    key = plain_key(partition, SESSION, client)
    rows = snapshot.scan(key, key + b"\0", 1, 1)
    return decode_session(rows[0][1][VERSION_BYTES:]).queue_floor if rows else -1
