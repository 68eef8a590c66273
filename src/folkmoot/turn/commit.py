"""What waits for durability: acknowledgements, deliveries, CONNACKs. One entry per turn that is not complete yet.

An acknowledgement leaves only after the change that it acknowledges is on disk (A1). Those of one connection leave in
the order of their packets [MQTT-4.6.0-2]: one that need not wait itself waits behind one that must.

A turn, named by its token, reaches three levels, in this order, and never before an earlier turn. Durable: its rows are
on this node's disk, and the store shows them. Committed: they are on the disks of all replicas of the partitions that
it changed. Complete: its requests to other nodes are committed there too. On a node alone the three are one. A turn
with all its answers is *ahead* while an earlier one lacks some (one of its partitions may have no leader): a publisher
that waits for nothing older gets its acknowledgement.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.session.connection import OPEN, Connection
from folkmoot.session.session import Session
from folkmoot.streams.table import Streams
from folkmoot.turn.brake import Brake
from folkmoot.turn.receipt import Receipt, Receipts
from folkmoot.turn.state import State

__all__ = ["Commits", "Record"]

_PUBACK: Final = 0x40  # the first byte of the packet
_HELD_BYTES: Final = 64  # of memory that a waiting acknowledgement takes beside its own bytes, about


class Record:
    """What becomes possible when the turn `token` is committed (queues go on) and complete (all the rest)."""

    def __init__(self, token: int, since_us: int) -> None:
        self.token = token
        self.since_us = since_us
        self.bytes = 0
        self.ahead = False  # it would be complete if an earlier turn were
        self.failed = False  # rows of it were lost with a change of leaders: nothing of it is acknowledged
        self.connects: list[Connection] = []
        self.ack_connections: list[Connection] = []
        self.acks: list[bytes] = []
        self.receipts: dict[int, Receipt] | None = None  # of some of the acknowledgements, by their index
        self.packets: dict[int, int] | None = None  # of other nodes: what acknowledgements are for, by their index
        self.handled: list[
            Connection
        ] = []  # at other nodes: their packets are reported as handled when the turn is complete
        self.handled_packets: list[int] = []
        self.sessions: list[Session] = []
        self.durable_next: list[int] = []


class Commits:
    """Keeps the records of the turns that are not complete yet, oldest first."""

    def __init__(self, state: State, streams: Streams, receipts: Receipts, brake: Brake) -> None:
        self.state = state
        self.brake = brake
        self.streams = streams
        self.receipts = receipts
        self.durable_token = 0
        self.committed_token = 0
        self.complete_token = 0
        self.asked = False  # this turn has asked something of another node, and its answer counts
        self._records: dict[int, Record] = {}
        self._open: deque[int] = deque()  # batches that are not committed
        self._owed: dict[int, int] = {}  # by token: the number of missing answers of other nodes
        self._answered: list[int] = []  # turns that have all their answers, to be looked at
        self._looked_token = 0  # `ahead` has seen the turns up to this one

    def current(self) -> Record:
        """Return the record of the batch that this turn fills; for what has written to it: else it is never sealed."""
        return self.record_of(self.state.writer.token)

    def newest_token(self) -> int:
        """Return the token of the batch that makes all changes until now durable: this turn's or the last.

        Records of streams are in this turn's batch too, although they become rows only at its end.
        """
        writer = self.state.writer
        return writer.token if writer.dirty or self.streams.dirty or self.asked else writer.token - 1

    def record_of(self, token: int) -> Record:
        """Return the record of a turn that is not complete yet."""
        assert token > self.complete_token, "a complete turn has no record"
        record = self._records.get(token)
        if record is None:
            record = Record(token, self.state.now)
            self._records[token] = record
        return record

    def acknowledge(
        self, connection: Connection, ack: bytes, wait: bool, receipt: Receipt | None = None, own: bool = False
    ) -> None:
        """Send an acknowledgement: at once, or when all changes until now are complete.

        With a receipt it is made anew when it leaves. own: it is only for changes of this turn. An acknowledgement to a
        client at another node always waits, so that the packet is reported to that node as handled: otherwise the next
        leader gets the packet once more, and answers it again.
        """
        wait = wait or connection.remote is not None
        token = self.newest_token() if wait else 0
        if connection.held and connection.held_token > token:
            token = connection.held_token
        if token <= self.complete_token:
            connection.put(ack if receipt is None else self.receipts.packet(receipt, connection))
            return
        record = self.record_of(token)
        if receipt is not None:
            if record.receipts is None:
                record.receipts = {}
            record.receipts[len(record.acks)] = receipt
        if own and connection.remote is not None:
            if record.packets is None:
                record.packets = {}
            record.packets[len(record.acks)] = connection.remote.packets
        record.ack_connections.append(connection)
        record.acks.append(ack)
        if connection.held_turns is None:
            connection.held_turns = deque()
        connection.held_turns.append(token if own or not wait else -token)
        connection.held += 1
        connection.held_token = token
        if ack[0] == _PUBACK:
            connection.held_pubacks += 1
        size = len(ack) + _HELD_BYTES
        record.bytes += size
        self.brake.backlog_bytes += size
        self.brake.slow_down(connection)

    def touch(self, session: Session) -> None:
        """Have the session's queue looked at when this turn's batch is durable."""
        token = self.state.writer.token
        if session.touched_token != token:
            session.touched_token = token
            self.current().sessions.append(session)

    def ask(self, count: int, size: int) -> None:
        """This turn waits for `count` answers of other nodes to `size` bytes."""
        self.asked = True
        token = self.state.writer.token
        self._owed[token] = self._owed.get(token, 0) + count
        self.brake.backlog_bytes += size

    def answered(self, token: int, count: int, size: int) -> None:
        """Other nodes have answered, or are gone; call `complete` afterwards."""
        left = self._owed[token] - count
        if left:
            self._owed[token] = left
        else:
            del self._owed[token]
            self._answered.append(token)
        self.brake.backlog_bytes -= size

    def seal(self, token: int, size: int) -> None:
        """The batch is handed to the store: note the end of each queue in it."""
        self._open.append(token)
        record = self.record_of(token)
        record.bytes += size
        self.brake.backlog_bytes += size
        for session in record.sessions:
            record.durable_next.append(session.queue_next)

    def fail(self, token: int) -> Record | None:
        """Rows of a turn that was not complete are in no copy that counts; return its record, if there is one."""
        if token <= self.complete_token:
            return None
        record = self.record_of(token)
        record.failed = True
        return record

    def commit_through(self, token: int) -> list[Record]:
        """The batches up to `token` are committed: return the records of the turns that are so now, in order."""
        opened = self._open
        while opened and opened[0] <= token:
            opened.popleft()
        end = opened[0] - 1 if opened else self.state.writer.token - 1
        records: list[Record] = []
        while self.committed_token < end:
            self.committed_token += 1
            record = self._records.get(self.committed_token)
            if record is not None:
                self.brake.backlog_bytes -= record.bytes
                record.bytes = 0
                records.append(record)
        return records

    def complete(self) -> list[Record]:
        """Return the records of the turns that are complete now, in order."""
        records: list[Record] = []
        while self.complete_token < self.committed_token and self.complete_token + 1 not in self._owed:
            self.complete_token += 1
            record = self._records.pop(self.complete_token, None)
            if record is not None:
                self.brake.backlog_bytes -= record.bytes
                records.append(record)
        return records

    def ahead(self) -> list[Record]:
        """Return the records of turns that would be complete if earlier ones were, each once; they keep their place."""
        records: list[Record] = []
        if self.complete_token < self.committed_token:
            for token in self._answered:
                if self.complete_token < token <= self._looked_token:
                    self._find_ahead(token, records)
            for token in range(max(self._looked_token, self.complete_token) + 1, self.committed_token + 1):
                if token not in self._owed:
                    self._find_ahead(token, records)
        self._looked_token = self.committed_token
        self._answered.clear()
        return records

    def _find_ahead(self, token: int, records: list[Record]) -> None:
        record = self._records.get(token)
        if record is not None and not record.failed:
            record.ahead = True
            records.append(record)

    def release(self, record: Record) -> None:
        """Send the acknowledgements that waited for this record, which is complete."""
        for i in range(len(record.acks)):
            if record.acks[i]:
                self._send(record, i)

    def release_ahead(self, record: Record) -> None:
        """Send those acknowledgements of a record ahead that wait for nothing older [MQTT-4.6.0-2]."""
        later: list[Connection] = []
        for i in range(len(record.acks)):
            connection = record.ack_connections[i]
            if record.acks[i] and self._send_ahead(record, i) and connection.held:
                later.append(connection)
        for connection in later:
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Send what a connection waits for now, turn by turn, as far as the turns are ahead."""
        while connection.held_turns and connection.held_turns[0] > 0:
            record = self._records[connection.held_turns[0]]
            if not record.ahead:
                return
            for i in range(len(record.acks)):
                if record.ack_connections[i] is connection and record.acks[i]:
                    self._send_ahead(record, i)

    def _send_ahead(self, record: Record, i: int) -> bool:
        """Send an acknowledgement if its connection waits for it before all others; tell whether so."""
        connection = record.ack_connections[i]
        turns = connection.held_turns
        if not turns or turns[0] != record.token:
            return False
        size = len(record.acks[i]) + _HELD_BYTES
        record.bytes -= size
        self.brake.backlog_bytes -= size
        self._send(record, i)
        remote = connection.remote
        if remote is not None and record.packets is not None and i in record.packets and connection.state == OPEN:
            # Its node must not pass it on to the next leader, who would answer it once more. What it has passed on
            # before is safe as well: it has been answered, or did nothing but to rows that are committed.
            remote.handled = max(remote.handled, record.packets[i])
        return True

    def _send(self, record: Record, i: int) -> None:
        connection = record.ack_connections[i]
        ack = record.acks[i]
        record.acks[i] = b""
        assert connection.held_turns, "an acknowledgement that waits has a turn"
        connection.held_turns.popleft()
        connection.held -= 1
        if ack[0] == _PUBACK:
            connection.held_pubacks -= 1
        if connection.state == OPEN:  # [MQTT-3.14.4-1] nothing follows a DISCONNECT
            if record.receipts is not None and i in record.receipts:
                connection.put(self.receipts.packet(record.receipts[i], connection))
            else:
                connection.put(ack)

    def oldest_us(self) -> int:
        """Return since when the oldest turn waits to be complete; now, when none does."""
        for record in self._records.values():
            return record.since_us
        return self.state.now
