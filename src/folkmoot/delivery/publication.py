"""Publishing committed transactions: a chunk per turn, in the order of an app's numbers, parts and chunks.

One change of the home partition removes a chunk, records the app's progress, and puts the chunk's messages into the
outbox (`OutboxPublishing.entrust`). So the next leader, after any crash, goes on behind the last committed chunk, and a
committed entry is delivered once (`outbox`). It never runs ahead: few entries are under way, nothing goes on while a
disk is full, and an app waits whose next chunk is for a partition without a leader, if much waits for such partitions
already. docs/adr/0010.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.delivery.keeping import REFUSED
from folkmoot.delivery.outbox_publish import OutboxPublishing
from folkmoot.delivery.transaction import Transactions
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, WARNING
from folkmoot.partition.app import App, Chunk
from folkmoot.partition.staged import message_at
from folkmoot.store.key import PACKETS, STAGED
from folkmoot.store.message import Message
from folkmoot.store.origin import transaction_name
from folkmoot.store.transaction import committed_key, staged_key
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import State

__all__ = ["ERRANDS_MAX", "Publications"]

ERRANDS_MAX: Final = 1_024
"""Messages that other partitions have not confirmed: above this a home partition publishes nothing.

Messages that wait for partitions without a leader do not count, but above this no app adds to them.
"""

_LOOK_US: Final = SECOND  # between two looks at an app that waits: ten thousand of them cost little


class _Step:
    """The removal of a published chunk; keys: of its rows; over: the transaction that it completes."""

    def __init__(self, token: int, app: App, keys: list[bytes]) -> None:
        self.token = token
        self.app = app
        self.partition = app.partition
        self.keys = keys
        self.over = -1


class Publications:
    """The work of publishing. spoiled: partitions with a row that cannot be read, and why: to be taken."""

    def __init__(self, state: State, commits: Commits, entries: OutboxPublishing, transactions: Transactions) -> None:
        self.state = state
        self.fabric = transactions.fabric
        self.commits = commits
        self.entries = entries
        self.outbox = entries.outbox
        self.routes = entries.publishing.routes
        self.transactions = transactions
        self.spoiled: list[tuple[int, str]] = []
        self._kept = self.fabric.planted.chunk_kept
        self._later: deque[_Step] = deque()  # with the bug planted: rows that are deleted too late

    def runnable(self) -> bool:
        """Whether `step` would publish something."""
        return bool(self.transactions.waiting) and self._next() is not None

    def _next(self) -> App | None:
        """Return the next app in turn, None when none may publish now."""
        state = self.state
        if state.storage_full or not state.routes_whole or state.stopping or self.fabric.full:
            return None
        throttle = self.commits.throttle
        if throttle.congested or throttle.backlog_bytes > throttle.backlog_bytes_max // 4:
            return None
        for app in self.transactions.waiting.values():
            if self._may(app):
                return app
        return None

    def _may(self, app: App) -> bool:
        if app.stuck or self.transactions.held[app.partition] or self.outbox.moving(app.partition) >= ERRANDS_MAX:
            return False
        if app.absent_topic and self._is_waiting(app):
            return False
        chunk = app.next_chunk()
        return chunk is None or chunk.token <= self.commits.durable_token  # the store shows it

    def _may_strand(self, partition: int) -> bool:
        """Whether an app may publish what will wait for a partition without a leader (A13)."""
        return self.commits.throttle.may_strand() and self.outbox.count(partition) < ERRANDS_MAX

    def _is_waiting(self, app: App) -> bool:
        """Whether an app still has to wait for a partition without a leader."""
        if not self._may_strand(app.partition):
            if self.state.now < app.look_us:
                return True
            if self.routes.out_of_reach(app.absent_topic, app.absent_retain, False) >= 0:
                app.look_us = self.state.now + _LOOK_US
                return True
        app.absent_topic = b""
        return False

    def _must_wait(self, app: App, messages: list[Message]) -> bool:
        """Whether the next chunk of an app, with these messages, has to wait for a partition without a leader."""
        if not self.fabric.leaderless or self._may_strand(app.partition):
            return False
        for message in messages:
            if self.routes.out_of_reach(message.topic, message.retain, False) >= 0:
                app.absent_topic = message.topic
                app.absent_retain = message.retain
                app.look_us = self.state.now + _LOOK_US
                return True
        return False

    def step(self) -> None:
        """Publish a chunk of one app; the next call serves the next app."""
        app = self._next()
        if app is None:
            return
        place = (app.partition, app.name)
        del self.transactions.waiting[place]
        self.transactions.waiting[place] = app
        chunk = app.next_chunk()
        if chunk is None:
            row = app.row
            committed = app.waiting[0]
            part = committed.parts[row.part][0].decode()
            fields: dict[str, object] = {"app": app.name.decode(), "number": row.at, "part": part, "chunk": row.chunk}
            self.state.event(ERROR, "transaction_incomplete", fields)
            step = _Step(self.state.writer.token, app, [])
            if self._advance(app):
                step.over = committed.number
            self._remove(step)
            return
        try:
            self._publish(app, chunk)
        except CorruptStore as fault:
            app.stuck = True
            self.state.event(ERROR, "unreadable", {"what": f"a transaction of app {app.name.decode()}: {fault}"})
            self.spoiled.append((app.partition, str(fault)))

    def _publish(self, app: App, chunk: Chunk) -> None:
        """Publish a chunk, if it need not wait; raises CorruptStore, and then nothing has happened."""
        state = self.state
        row = app.row
        committed = app.waiting[0]
        part = committed.parts[row.part][0]
        key = staged_key(app.partition, PACKETS, app.name, row.at, part, row.chunk)
        value = state.reader.get(key)
        if value is None:
            raise CorruptStore(f"chunk {row.chunk} of part {part.decode()} of transaction {row.at} is missing")
        messages = []
        pos = VERSION_BYTES
        while pos < len(value):
            message, pos = message_at(value, pos, app.publisher, state.clock.time, state.limits)
            messages.append(message)
        if self._must_wait(app, messages):
            return
        keys = [staged_key(app.partition, kind, app.name, row.at, part, row.chunk) for kind in (PACKETS, STAGED)]
        step = _Step(state.writer.token, app, keys)
        for index, message in enumerate(messages):
            self._entrust(app, message, row.base + row.published + index + 1)
        row.published += len(messages)
        state.counters.transaction_messages += len(messages)
        committed.stage.drop(part, row.chunk)
        self.transactions.published(app, chunk.bytes)
        if self._advance(app):
            step.over = committed.number
        if self._kept:
            self._later.append(step)
        else:
            self._remove(step)

    def _entrust(self, app: App, message: Message, number: int) -> None:
        name = transaction_name(app.name) if app.row.base else b""  # without a base, numbers could be lower than before
        try:
            refused = self.entries.entrust(app.partition, message, name, number) & REFUSED != 0
        except CorruptStore as fault:
            self.state.event(ERROR, "unreadable", {"what": str(fault)})
            refused = True
        if refused:  # it cannot be retained; all current subscribers get it
            self.state.event(WARNING, "transaction_not_retained", {"topic": message.topic.decode()})
            message.retain = False
            self.entries.entrust(app.partition, message, name, number)

    def _remove(self, step: _Step) -> None:
        """Record in this turn's change that the chunk is removed, and the app's progress."""
        writer = self.state.writer
        for key in step.keys:
            writer.delete(step.partition, key)
        if step.over >= 0:
            writer.delete(step.partition, committed_key(step.partition, step.app.name, step.over))
        self.transactions.put_row(step.app)

    def _advance(self, app: App) -> bool:
        """Go on to the next chunk, part or transaction; True when a transaction is completely published."""
        row = app.row
        committed = app.waiting[0]
        row.chunk += 1
        if row.chunk < committed.parts[row.part][1]:
            return False
        row.chunk = 0
        row.part += 1
        if row.part < len(committed.parts):
            return False
        row.part = 0
        app.waiting.popleft()
        row.at = app.waiting[0].number if app.waiting else -1
        self.state.counters.transactions_waiting -= 1
        if not app.waiting:
            del self.transactions.waiting[(app.partition, app.name)]
        return True

    def leave(self, partition: int) -> None:
        """End the leadership of the partition: its next leader goes on."""
        self._later = deque([step for step in self._later if step.partition != partition])
        self.transactions.forget(partition)

    # -- commits ------------------------------------------------------------------------------------------------------

    def committed(self) -> None:
        """More turns are committed."""
        while self._later and self._later[0].token <= self.commits.committed_token:
            step = self._later.popleft()
            if self.state.leads[step.partition]:
                self._remove(step)
