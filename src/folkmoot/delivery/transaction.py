"""Transactions: many messages that are first staged, committed at once, and then published once.

Owns the apps of the partitions that this node leads, and the rows with their staged chunks and commits; `publication`
publishes what is committed. Every request can be repeated: a chunk replaces the one with the same name, and a number
not above the last committed one is a repetition, which changes nothing. In a split this goes on at one side only, where
streams can be read: so nothing is committed twice. docs/adr/0010.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import WARNING
from folkmoot.partition.app import App, Chunk, Committed, Stage
from folkmoot.partition.partition import Led
from folkmoot.query.question import BUSY, CONFLICT, FOUND, NO_ROOM, TOO_LARGE, UNKNOWN, Answer
from folkmoot.store.key import PACKETS, STAGED, TRANSACTION, end_of, name_prefix, plain_key
from folkmoot.store.transaction import (
    ChunkKey,
    StagedRow,
    TransactionRow,
    committed_key,
    encode_parts,
    encode_staged,
    encode_transaction,
    number_prefix,
    part_prefix,
    staged_key,
)
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import TIMER_STAGED, State

__all__ = ["APPS_MAX", "WAITING_MAX", "Holdings", "Transactions"]

APPS_MAX: Final = 10_000  # per home partition
WAITING_MAX: Final = 1_000  # committed and unpublished transactions of one app
_EXPIRY_INTERVAL_US: Final = 10 * SECOND


class Holdings:
    """The transactions of one partition, as read from its rows."""

    def __init__(self) -> None:
        self.rows: dict[bytes, TransactionRow] = {}
        self.committed: list[tuple[bytes, int, int, list[tuple[bytes, int]]]] = []  # app, number, when, parts
        self.staged: list[tuple[ChunkKey, StagedRow]] = []


class Transactions:
    """The apps of led partitions; `waiting`: those with something to publish; held: partitions that may not publish."""

    def __init__(self, state: State, led: Led, fabric: Fabric, commits: Commits) -> None:
        self.state = state
        self.led = led
        self.fabric = fabric
        self.commits = commits
        self.waiting: dict[tuple[int, bytes], App] = {}
        self.held: list[bool] = [False] * state.partitions
        self._armed = False

    # -- leaders come and go ------------------------------------------------------------------------------------------

    def hold(self, partition: int, held: bool) -> None:
        """Say whether another side of a split may continue the transactions of a partition: then this one waits."""
        self.held[partition] = held

    def take(self, partition: int, holdings: Holdings) -> None:
        """Begin to lead the partition."""
        for name, row in holdings.rows.items():
            self._app(partition, name).row = row
        for name, number, committed_us, parts in holdings.committed:
            app = self._app(partition, name)
            if number < app.row.at or app.row.at < 0:  # published, by a version that left its row behind
                self.state.writer.delete(partition, committed_key(partition, name, number))
                continue
            app.waiting.append(Committed(Stage(number), committed_us, parts))
            self.waiting[(partition, name)] = app
        for place, staged in holdings.staged:
            self._restore(partition, place, staged)
        for app in self.led[partition].apps.values():
            self.state.counters.transactions_waiting += len(app.waiting)

    def _restore(self, partition: int, place: ChunkKey, staged: StagedRow) -> None:
        app = self._app(partition, place.app)
        stage: Stage | None = None
        if place.number > app.row.last:
            stage = self._stage(app, place.number)
        else:
            for committed in app.waiting:
                if committed.number == place.number:
                    stage = committed.stage
        if stage is None:  # of a finished transaction
            self._delete(partition, place)
            return
        self._count(app, stage.put(place.part, place.chunk, Chunk(staged, 0)))

    def _delete(self, partition: int, place: ChunkKey) -> None:
        for kind in (STAGED, PACKETS):
            key = staged_key(partition, kind, place.app, place.number, place.part, place.chunk)
            self.state.writer.delete(partition, key)

    def forget(self, partition: int) -> None:
        """End the leadership of the partition."""
        apps = self.led[partition].apps
        for app in apps.values():
            self.waiting.pop((partition, app.name), None)
            self._count(app, -app.bytes)
            self.state.counters.transactions_waiting -= len(app.waiting)
        apps.clear()

    # -- requests -----------------------------------------------------------------------------------------------------

    def stage(
        self, partition: int, name: bytes, number: int, part: bytes, chunk: int, count: int, packets: bytes
    ) -> Answer:
        """Stage a chunk of a transaction; FOUND with 1 when the transaction was committed before."""
        refusal = self._refusal(partition)
        if refusal is not None:
            return refusal
        apps = self.led[partition].apps
        app = apps.get(name)
        if app is None:
            if len(apps) >= APPS_MAX:
                return _answer(NO_ROOM, f"the home of the app has {APPS_MAX} apps already: forget some")
            app = self._app(partition, name)
        if number <= app.row.last:
            return Answer(FOUND, [1])
        bytes_max = self.state.limits.transaction_bytes_max
        known = app.stages.get(number)
        old = None if known is None else known.chunk(part, chunk)
        row = StagedRow(self.state.clock.time, count, len(packets))
        fresh = Chunk(row, self.state.writer.token)
        more = fresh.bytes - (0 if old is None else old.bytes)
        if (0 if known is None else known.bytes) + more > bytes_max:
            why = f"transaction {number} has more than {bytes_max} bytes, the limit transaction_bytes_max"
            return self._refuse(app, TOO_LARGE, why)
        if app.bytes + more > bytes_max:
            why = f"{app.bytes} bytes of the app are staged or not published yet, at most {bytes_max} may be"
            return _answer(NO_ROOM, why)
        writer = self.state.writer
        stage = self._stage(app, number)
        self._count(app, stage.put(part, chunk, fresh))
        writer.put(partition, staged_key(partition, STAGED, name, number, part, chunk), encode_staged(row))
        writer.put(partition, staged_key(partition, PACKETS, name, number, part, chunk), packets)
        return Answer(FOUND, [0])

    def commit(self, partition: int, name: bytes, number: int, parts: list[tuple[bytes, int]]) -> Answer:
        """Commit a transaction: FOUND with 1 when it was committed before, CONFLICT with the missing chunks."""
        refusal = self._refusal(partition)
        if refusal is not None:
            return refusal
        app = self._app(partition, name)
        row = app.row
        if number <= row.last:
            self.state.counters.transactions_repeated += 1
            return Answer(FOUND, [1])
        stage = app.stages.get(number)
        if stage is None:
            stage = Stage(number)
        missing = stage.missing(parts)
        if missing:
            why = f"transaction {number} lacks {', '.join(missing)}: never staged, or expired; nothing is committed"
            return self._refuse(app, CONFLICT, why)
        if len(app.waiting) >= WAITING_MAX:
            return _answer(BUSY, f"{WAITING_MAX} transactions of the app wait to be published")
        parts = [part for part in parts if part[1]]
        for old in [old for old in app.stages if old <= number]:
            self._drop_losers(app, app.stages.pop(old), parts if old == number else [])
        if row.last < 0:
            row.base = self.state.clock.time  # beyond the numbers of an app of this name that was forgotten
        row.last = number
        row.committed_us = self.state.clock.time
        if parts:
            app.waiting.append(Committed(stage, self.state.clock.time, parts))
            if row.at < 0:
                row.at = number
                row.part = 0
                row.chunk = 0
            self.waiting[(partition, name)] = app
            self.state.counters.transactions_waiting += 1
            body = encode_parts(self.state.clock.time, parts)
            self.state.writer.put(partition, committed_key(partition, name, number), body)
        self.put_row(app)
        self.state.counters.transactions_committed += 1
        return Answer(FOUND, [0])

    def abort(self, partition: int, name: bytes, number: int, part: bytes) -> Answer:
        """Drop a part, unless its transaction is committed."""
        refusal = self._refusal(partition)
        if refusal is not None:
            return refusal
        app = self.led[partition].apps.get(name)
        stage = None if app is None else app.stages.get(number)
        if app is not None and stage is not None and part in stage.parts:
            self._drop_part(app, stage, part)
            if not stage.parts:
                del app.stages[number]
            self._tidy(app)
        return Answer(FOUND, [1 if app is not None and number <= app.row.last else 0])

    def forget_app(self, partition: int, name: bytes) -> Answer:
        """Forget an app and its staged chunks, unless committed ones wait to be published."""
        refusal = self._refusal(partition)
        if refusal is not None:
            return refusal
        app = self._app(partition, name)
        if not app.known:
            return self._refuse(app, UNKNOWN, "there is no such app")
        if app.waiting:
            return self._refuse(app, CONFLICT, f"{app.figures()[4]} committed messages of the app wait to be published")
        writer = self.state.writer
        for kind in (STAGED, PACKETS):
            prefix = name_prefix(partition, kind, name)
            writer.delete_range(partition, prefix, end_of(prefix))
        writer.delete(partition, plain_key(partition, TRANSACTION, name))
        self._count(app, -app.bytes)
        del self.led[partition].apps[name]
        return Answer(FOUND, [])

    def _refusal(self, partition: int) -> Answer | None:
        """Return why the partition must not be changed now, or nothing."""
        if self.held[partition]:
            return _answer(BUSY, "this side of a split has forked, and the other one may go on with transactions")
        if self.state.storage_full or self.fabric.full:
            return _answer(NO_ROOM, "a disk is full")
        if self.commits.throttle.is_full():
            return _answer(BUSY, "too much waits for disks and other nodes")
        return None

    def _refuse(self, app: App, status: int, why: str) -> Answer:
        """Refuse for good: the app's row is written unchanged, because the answer waits for what is written.

        A node that others have given up, and that does not know it yet, may lack chunks: all replicas have to agree.
        """
        if app.row.last >= 0:
            self.put_row(app)
        else:
            self.state.writer.delete(app.partition, plain_key(app.partition, TRANSACTION, app.name))
        self._tidy(app)
        return _answer(status, why)

    # -- rows and figures ---------------------------------------------------------------------------------------------

    def put_row(self, app: App) -> None:
        """Store the progress of an app."""
        key = plain_key(app.partition, TRANSACTION, app.name)
        self.state.writer.put(app.partition, key, encode_transaction(app.row))

    def published(self, app: App, size: int) -> None:
        """Count a published chunk of so many bytes."""
        self._count(app, -size)

    def _app(self, partition: int, name: bytes) -> App:
        apps = self.led[partition].apps
        app = apps.get(name)
        if app is None:
            app = App(partition, name)
            apps[name] = app
        return app

    def _stage(self, app: App, number: int) -> Stage:
        stage = app.stages.get(number)
        if stage is None:
            stage = Stage(number)
            app.stages[number] = stage
            if not self._armed:
                self._armed = True
                self.state.timers.set(self.state.now + _EXPIRY_INTERVAL_US, TIMER_STAGED, 0)
        return stage

    def _tidy(self, app: App) -> None:
        if not app.known:
            self.led[app.partition].apps.pop(app.name, None)

    def _count(self, app: App, more: int) -> None:
        app.bytes += more
        self.state.counters.transaction_bytes += more

    def _drop_losers(self, app: App, stage: Stage, parts: list[tuple[bytes, int]]) -> None:
        """Forget staged chunks that are not in `parts`: of attempts that lost, and of older transactions."""
        if not parts:
            self._drop_stage(app, stage)
            return
        winners = dict(parts)
        for part in [part for part in stage.parts if part not in winners]:
            self._drop_part(app, stage, part)
        for part, count in parts:
            for chunk in [chunk for chunk in stage.parts[part] if chunk >= count]:
                self._count(app, -stage.drop(part, chunk))
                self._delete(app.partition, ChunkKey(app.name, stage.number, part, chunk))

    def _drop_part(self, app: App, stage: Stage, part: bytes) -> None:
        size = sum([chunk.bytes for chunk in stage.parts.pop(part).values()])
        stage.bytes -= size
        self._count(app, -size)
        for kind in (STAGED, PACKETS):
            prefix = part_prefix(app.partition, kind, app.name, stage.number, part)
            self.state.writer.delete_range(app.partition, prefix, end_of(prefix))

    def _drop_stage(self, app: App, stage: Stage) -> None:
        self._count(app, -stage.bytes)
        for kind in (STAGED, PACKETS):
            prefix = number_prefix(app.partition, kind, app.name, stage.number)
            self.state.writer.delete_range(app.partition, prefix, end_of(prefix))

    # -- time ---------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Forget chunks that were staged long ago and never committed."""
        self._armed = False
        oldest_us = self.state.clock.expiry_time - self.state.limits.transaction_expiry_us
        left = False
        for memory in self.led:
            for app in list(memory.apps.values()):
                for stage in list(app.stages.values()):
                    if stage.touched_us <= oldest_us and not self.held[app.partition]:
                        self._expire(app, stage)
                left = left or bool(app.stages)
                self._tidy(app)
        if left:
            self._armed = True
            self.state.timers.set(self.state.now + _EXPIRY_INTERVAL_US, TIMER_STAGED, 0)

    def _expire(self, app: App, stage: Stage) -> None:
        del app.stages[stage.number]
        fields: dict[str, object] = {"app": app.name.decode(), "number": stage.number, "bytes": stage.bytes}
        self.state.event(WARNING, "transaction_expired", fields)
        self.state.counters.transactions_expired += 1
        self._drop_stage(app, stage)


def _answer(status: int, why: str) -> Answer:
    answer = Answer(status, [])
    answer.text = why
    return answer
