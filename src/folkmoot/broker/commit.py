"""What waits for durability: acknowledgements, deliveries, CONNACKs, retained scans.

One record per turn that wrote something.

An acknowledgement leaves only after what it acknowledges is on disk (A1). Those of one connection leave in the order of
their packets [MQTT-4.6.0-2]: one that need not wait itself waits behind one that must.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.state import State
from folkmoot.session.connection import OPEN, Connection
from folkmoot.session.session import Session
from folkmoot.streams.table import Streams

__all__ = ["Commits", "Record"]

_PUBACK: Final = 0x40  # the first byte of the packet


class Record:
    """What becomes possible when the batch `token` is durable."""

    def __init__(self, token: int) -> None:
        self.token = token
        self.bytes = 0
        self.connects: list[Connection] = []
        self.ack_connections: list[Connection] = []
        self.acks: list[bytes] = []
        self.sessions: list[Session] = []
        self.durable_next: list[int] = []


class Commits:
    """Keeps the records of the batches that are not durable yet, oldest first."""

    def __init__(self, state: State, streams: Streams) -> None:
        self.state = state
        self.streams = streams
        self.durable_token = 0
        self.backlog_bytes = 0
        self.paused: list[Connection] = []
        self._records: dict[int, Record] = {}

    def current(self) -> Record:
        """Return the record of the batch that this turn fills.

        Only to be used by what writes in this turn, or holds.
        """
        token = self.state.writer.token
        record = self._records.get(token)
        if record is None:
            record = Record(token)
            self._records[token] = record
        return record

    def newest_token(self) -> int:
        """Return the token that stands for all that was changed until now.

        That of this turn's batch, or of the last one. Records of streams are in this turn's batch too, although they
        become rows only at its end.
        """
        writer = self.state.writer
        return writer.token if writer.dirty or self.streams.dirty else writer.token - 1

    def settled(self) -> bool:
        """Whether all that was changed until now is durable."""
        return self.newest_token() <= self.durable_token

    def record_of(self, token: int) -> Record:
        """Return the record of a batch that is not durable yet."""
        assert token > self.durable_token, "a durable batch has no record"
        record = self._records.get(token)
        if record is None:
            record = Record(token)
            self._records[token] = record
        return record

    def acknowledge(self, connection: Connection, ack: bytes, wait: bool) -> None:
        """Send an acknowledgement: at once, or when all that was changed until now is durable."""
        token = self.newest_token() if wait else 0
        if connection.held and connection.held_token > token:
            token = connection.held_token
        if token <= self.durable_token:
            connection.put(ack)
            return
        record = self.record_of(token)
        record.ack_connections.append(connection)
        record.acks.append(ack)
        connection.held += 1
        connection.held_token = token
        if ack[0] == _PUBACK:
            connection.held_pubacks += 1

    def touch(self, session: Session) -> None:
        """Have the session's queue looked at when this turn's batch is durable."""
        token = self.state.writer.token
        if session.touched_token != token:
            session.touched_token = token
            self.current().sessions.append(session)

    def seal(self, token: int, size: int) -> None:
        """The batch is handed to the store: remember how far each queue came with it."""
        record = self.record_of(token)
        record.bytes = size
        self.backlog_bytes += size
        for session in record.sessions:
            record.durable_next.append(session.queue_next)

    def take_through(self, token: int) -> list[Record]:
        """Return the records up to `token`, in order: these batches are durable now."""
        records: list[Record] = []
        while self.durable_token < token:
            self.durable_token += 1
            record = self._records.pop(self.durable_token, None)
            if record is not None:
                self.backlog_bytes -= record.bytes
                records.append(record)
        return records

    def release(self, record: Record) -> None:
        """Send the acknowledgements that waited for this record."""
        for i in range(len(record.acks)):
            connection = record.ack_connections[i]
            connection.held -= 1
            if record.acks[i][0] == _PUBACK:
                connection.held_pubacks -= 1
            if connection.state == OPEN:  # [MQTT-3.14.4-1] nothing follows a DISCONNECT
                connection.put(record.acks[i])

    def slow_down(self, connection: Connection) -> None:
        """Stop reading a publisher while too much waits for the disk (A13)."""
        if self.backlog_bytes + self.state.writer.batch.bytes > self.state.limits.write_backlog_bytes_max:
            self.pause(connection)

    def pause(self, connection: Connection) -> None:
        """Stop reading a connection until the backlog has shrunk."""
        if not connection.paused:
            connection.paused = True
            self.paused.append(connection)
            self.state.pauses.append(connection)
            self.state.counters.publisher_pauses += 1
            self.state.counters.publishers_paused += 1

    def resume(self) -> list[Connection]:
        """Return the paused connections if the backlog has halved; they are read again."""
        if not self.paused or self.state.storage_full:
            return []
        if self.backlog_bytes > self.state.limits.write_backlog_bytes_max // 2:
            return []
        paused = self.paused
        self.paused = []
        for connection in paused:
            connection.paused = False
            self.state.resumes.append(connection)
        self.state.counters.publishers_paused -= len(paused)
        return paused
