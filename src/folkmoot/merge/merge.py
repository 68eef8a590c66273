"""What becomes of the rows of two branches of a partition: the rules, one unit of rows at a time.

A unit is a client or an app with all its rows, a retained topic, or one row of another kind: it is merged as a whole,
without looking at other units, so that a merge that was interrupted goes on with the next. Pure: rows in, operations
out. What was changed since the fork is seen from the versions of rows and the histories of both sides; rows that one
side lacks although it has seen the change that wrote them, it has removed. The rules and reasons: docs/adr/0008.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64, u16, u64
from folkmoot.membership.divergence import YES, has_change
from folkmoot.membership.holding import COMPLETE, Holding
from folkmoot.merge.merge_session import NOBODY, STEP_ROWS, THEIRS, SessionMerge
from folkmoot.merge.merge_transaction import app_of, merge_app
from folkmoot.merge.merged import TakenBranch, known_ends
from folkmoot.merge.side import Side, replaces
from folkmoot.merge.stamp import STAMPS_MAX, Stamp, decode_stamp, encode_stamp
from folkmoot.merge.summary import HealSummary
from folkmoot.store.absorbed import (
    LEFTOVER_CHUNK_AT,
    Origin,
    Span,
    decode_origin,
    decode_span,
    encode_origin,
    span_at,
)
from folkmoot.store.batch import DELETE, PUT
from folkmoot.store.chunk import Head, cut_chunk, decode_head
from folkmoot.store.epoch import tag_of
from folkmoot.store.key import (
    ABSORBED,
    BODY,
    CHUNK,
    CURSOR,
    LEFTOVER,
    MARK,
    OUTBOX,
    PRODUCER,
    QUEUE,
    RECEIVED,
    RELEASED,
    RETAINED,
    SENT,
    SESSION,
    STAMP,
    STREAM,
    SUBSCRIPTION,
    TRANSACTION,
    WILL,
    bounds_key,
    is_bounds,
    is_of_trunk,
    leftover_key,
    log_of_chunk,
    log_of_leftover,
    log_of_stream,
    of_no_trunk,
    sequence_of,
)
from folkmoot.store.mark_row import merge_marks
from folkmoot.store.message import decode_message
from folkmoot.store.producer_row import merge_numbers
from folkmoot.store.reader import Reader
from folkmoot.store.row import decode_queue
from folkmoot.store.stream_row import decode_stream
from folkmoot.store.writer import VERSION_BYTES, body_of, version_of

__all__ = ["Merge", "Unit"]

_NAMED: Final = (SUBSCRIPTION, QUEUE, RELEASED, RECEIVED, CURSOR)  # the client id stands behind its length
_PLAIN: Final = (SESSION, WILL, SENT)
_LAST: Final = b"\xff"
_RECORDS: Final = b"\xff\1"  # records come last: there may be more of them than fit into the memory
_UNVERSIONED: Final = bytes(VERSION_BYTES)
_SWEEP_ROWS: Final = 16_384  # in one step, where next to nothing is done with each


class Unit:
    """Operations that belong together: (PUT or DELETE, key, body without version). `name` gives the order of units."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.ops: list[tuple[int, bytes, bytes]] = []


def client_of(key: bytes) -> bytes | None:
    """Return the client that a row belongs to, None for rows of other kinds."""
    kind = key[2]
    if kind in _NAMED:
        return key[5 : 5 + get_u16(key, 3)]
    if kind in _PLAIN:
        return key[3:]
    return None


class Merge:
    """The merge of one branch into the rows of the side that goes on; `steps` fills `units`, `summary` and `homes`.

    mine: the side that goes on. theirs: the other one; a row of 16 bytes is one that has not changed since the fork.
    branch: the position of theirs.
    homes: clients whose connections may stay at one side only: at theirs (True), or anywhere else (False).
    """

    def __init__(self, partition: int, mine: Side, theirs: Side, branch: Holding) -> None:
        self.units: list[Unit] = []
        self.summary = HealSummary()
        self.homes: dict[bytes, bool] = {}
        self._partition = partition
        self._mine = mine
        self._theirs = theirs
        self._branch = u64(branch.epoch) + u64(branch.seq)
        self.they_live = True  # the other side's process has made its copy: clients may be connected there
        self.trunk = -1  # the tag of the lineage that gives out offsets of streams (`store.epoch`)
        self.taken: list[TakenBranch] = []  # by mine, and mine itself (`merged.as_taken`)
        self.reader: Reader | None = None  # of this side, for what is not in its rows: LEFTOVER
        self.lines: list[Holding] = [branch, *theirs.seen]  # of theirs, and those from which it has records
        self._trunk_epoch = 0  # the newest of the trunk that mine has seen
        self._bodies: dict[int, bool] = {}  # that queue rows name afterwards
        self._spans: dict[bytes, list[Span]] = {}  # by stream log: what the other side has absorbed, in order
        self._superfluous: dict[bytes, bool] = {}  # keys of stamps of both sides: there may be fewer of them
        # By stream log: offsets at the other side of records that both had and that were moved here, [first, end)
        self._moved_from: dict[bytes, list[tuple[int, int]]] = {}
        self._bounds_of: dict[bytes, bytes] = {}  # the other side's STREAM rows, by log
        self._bounded: dict[bytes, bool] = {}  # stream logs whose bounds at the other side are kept
        self._ends: dict[bytes, dict[bytes, int]] = {}  # by position: up to where mine knows the records that it had

    def steps(self) -> Iterator[None]:
        """Make the units, in order, a bounded number of rows per step.

        Raises CorruptStore, IndexError or ValueError when a row cannot be read.
        """
        self.summary.partitions = 1
        self._trunk_epoch = self._mine.newest_epoch(self.trunk)
        for key in sorted([key for key in self._theirs.rows if key[2] == ABSORBED]):
            self._spans.setdefault(log_of_chunk(key), []).append(decode_span(key, self._theirs.rows[key]))
        for key, value in self._theirs.rows.items():
            if key[2] == STREAM:
                self._bounds_of[log_of_stream(key)] = value
        for key in sorted([key for key in self._mine.rows if key[2] == ABSORBED]):
            span = decode_span(key, self._mine.rows[key])
            origin = span.origin
            if has_change(self._theirs.seen[0], *version_of(origin.version)) == YES:
                place = (origin.first, origin.first + span.end - span.first)
                self._moved_from.setdefault(log_of_chunk(key), []).append(place)
        for places in self._moved_from.values():
            places.sort()
        self._count_stamps()
        yield from self._sessions()
        keys: dict[bytes, bool] = {}
        for rows in (self._mine.rows, self._theirs.rows):
            for count, key in enumerate(rows):
                if count % _SWEEP_ROWS == _SWEEP_ROWS - 1:
                    yield
                if client_of(key) is None:
                    keys[key] = True
        apps: dict[bytes, list[bytes]] = {}
        for count, key in enumerate(sorted(keys)):
            if count % STEP_ROWS == 0:
                yield
            app = app_of(key)
            if app is None:
                self._row(key)
            else:
                apps.setdefault(app, []).append(key)
        for app, rows_of_app in apps.items():
            ops = merge_app(self._partition, app, rows_of_app, self._mine, self._theirs)
            self._add(b"1" + bytes([TRANSACTION]) + app, ops)
        self._unnamed_bodies()
        self.units.sort(key=_name_of)

    def forget(self) -> None:
        """Free the rows of both sides, after all steps; what is still to come is records."""
        self.units = []
        self._mine.rows = {}
        self._theirs.rows = {}
        self._bodies = {}
        self._superfluous = {}

    def records(self, rows: list[tuple[bytes, bytes]]) -> list[Unit]:
        """Return the units of rows CHUNK and LEFTOVER of the other side, after all steps and in order of the keys.

        Raises CorruptStore, IndexError or ValueError when a row cannot be read.
        """
        self.units = []
        for key, value in rows:
            self._record(key, value)
        return self.units

    def _record(self, key: bytes, value: bytes) -> None:
        name = _RECORDS + key[2:]
        if key[2] == LEFTOVER:
            self._leftover(name, key, value)
        elif not self._mine.knows(value):
            self._chunk(name, key, value)

    def _add(self, name: bytes, ops: list[tuple[int, bytes, bytes]]) -> None:
        if ops:
            unit = Unit(name)
            unit.ops = ops
            self.units.append(unit)

    # -- clients ------------------------------------------------------------------------------------------------------

    def _sessions(self) -> Iterator[None]:
        mine: dict[bytes, dict[bytes, bytes]] = {}
        theirs: dict[bytes, dict[bytes, bytes]] = {}
        yield from _group(self._mine.rows, mine)
        yield from _group(self._theirs.rows, theirs)
        handled = 0
        for client in sorted({**mine, **theirs}):
            my_rows = mine.get(client, {})
            their_rows = theirs.get(client, {})
            handled += len(my_rows) + len(their_rows)
            if handled >= STEP_ROWS:
                handled = 0
                yield
            positions = (self._mine.position(), self._branch)
            merge = SessionMerge(
                self._partition, client, self._mine, self._theirs, my_rows, their_rows, positions, self.they_live
            )
            yield from merge.steps()
            ops: list[tuple[int, bytes, bytes]] = []
            ops.extend([(DELETE, key, b"") for key in my_rows if key not in merge.final])
            for count, (key, body) in enumerate(merge.final.items()):
                if count % STEP_ROWS == STEP_ROWS - 1:
                    yield
                row = my_rows.get(key)
                if row is None or body_of(row) != body:
                    ops.append((PUT, key, body))
                if key[2] == QUEUE:
                    self._bodies[decode_queue(body).body] = True
            if merge.changed or (ops and merge.base == THEIRS):
                self.homes[client] = merge.base == THEIRS
            self.summary.drop("the other side has applied the same request", merge.repeated)
            self.summary.drop("the replay that queued a record goes on by itself", merge.replayed)
            self.summary.drop("the message of a queue row cannot be read", merge.unreadable)
            if ops:
                self._count(merge)
                self._add(b"0" + client, ops)

    def _count(self, merge: SessionMerge) -> None:
        summary = self.summary
        summary.sessions += 1
        summary.sessions_taken += 1 if merge.base == THEIRS else 0
        summary.sessions_ended += 1 if merge.base == NOBODY else 0
        summary.messages += merge.added
        summary.acknowledged += merge.removed
        summary.subscribed += merge.subscribed
        summary.unsubscribed += merge.unsubscribed

    # -- other rows ---------------------------------------------------------------------------------------------------

    def _row(self, key: bytes) -> None:
        kind = key[2]
        name = b"1" + key[2:]
        mine = self._mine.rows.get(key)
        theirs = self._theirs.rows.get(key)
        if key in self._superfluous:
            if mine is not None:
                self._add(name, [(DELETE, key, b"")])
        elif kind == RETAINED:
            self._retained(name, key, mine, theirs)
        elif theirs is None:
            return
        elif kind == PRODUCER:
            numbers = body_of(theirs) if mine is None else merge_numbers(body_of(mine), body_of(theirs))
            if mine is None or numbers != body_of(mine):
                self._add(name, [(PUT, key, numbers)])
        elif kind == MARK:
            mark = body_of(theirs) if mine is None else merge_marks(mine, theirs)
            if mine is None or mark != body_of(mine):
                self._add(name, [(PUT, key, mark)])
        elif kind == STAMP and len(key) > 3:  # that theirs was begun from nothing says nothing of mine
            self._stamp(name, key, mine, theirs)
        elif kind == LEFTOVER or kind == CHUNK:
            self._record(key, theirs)
        elif kind == OUTBOX and mine is None and not self._mine.knows(theirs):
            self.summary.outbox += 1  # it goes on under its number: who has got it there does not get it here
            self._add(name, [(PUT, key, body_of(theirs))])
        elif kind == STREAM and not self._mine.knows(theirs) and decode_stream(theirs).oldest:
            self._add(name, self._bounds(log_of_stream(key)))

    def _chunk(self, name: bytes, key: bytes, value: bytes) -> None:
        """Have the records of a chunk appended again, but for those that are known here."""
        log = log_of_chunk(key)
        chunk = body_of(value)
        head = decode_head(chunk, 0)
        if head is None:
            raise CorruptStore(f"the chunk of offset {sequence_of(key)} on the other side is cut short")
        ops: list[tuple[int, bytes, bytes]] = []
        for piece in self._pieces(log, head, value):
            known = self._known(log, piece.origin, piece.end - piece.first)
            first = piece.first + known
            if first < piece.end:
                of_trunk = self._is_given_out(self._branch) or self._is_given_out(piece.origin.given)
                place = leftover_key(key[: len(key) - 8] + u64(first), get_u64(self._branch, 0), of_trunk)
                rest = cut_chunk(chunk, first, piece.end) if piece.end - first < head.count else chunk
                ops.append((PUT, place, encode_origin(piece.origin.behind(known)) + rest))
        if ops:
            self.summary.chunks += 1
            ops.extend(self._bounds(log))
        self._add(name, ops)

    def _bounds(self, log: bytes) -> list[tuple[int, bytes, bytes]]:
        """Keep the bounds of a log at the other side: which of the records were given out there, and by whom."""
        row = self._bounds_of.get(log)
        if row is None or log in self._bounded:
            return []
        self._bounded[log] = True
        key = bounds_key(u16(self._partition) + bytes([STREAM]) + log, get_u64(self._branch, 0))
        return self._kept_bounds(key, body_of(row))

    def _kept_bounds(self, key: bytes, body: bytes) -> list[tuple[int, bytes, bytes]]:
        """Return the operation that keeps bounds, unless those of a longer copy of the branch are there."""
        mine = self._kept_here(key)
        is_longer = (
            mine is not None and decode_stream(mine).next_offset > decode_stream(_UNVERSIONED + body).next_offset
        )
        return [] if is_longer else [(PUT, key, body)]

    def _leftover(self, name: bytes, key: bytes, value: bytes) -> None:
        """Keep what the other side has kept of a third one, of which it may have known less than is known here."""
        if is_bounds(key):
            self._add(name, self._kept_bounds(key, body_of(value)))
            return
        origin = decode_origin(value, VERSION_BYTES)
        head = decode_head(value, LEFTOVER_CHUNK_AT)
        if head is None:
            raise CorruptStore(f"what the other side has left over at offset {sequence_of(key)} is cut short")
        known = self._known(log_of_leftover(key), origin, head.count)
        if known == head.count:
            return
        body = body_of(value)
        if known:
            first = head.first + known
            key = key[: len(key) - 8] + u64(first)
            body = encode_origin(origin.behind(known)) + cut_chunk(value[LEFTOVER_CHUNK_AT:], first, head.end)
        if is_of_trunk(key) and not self._is_given_out(origin.given):
            key = of_no_trunk(key)
        if head.end > self._end_of_leftover(key):
            self._add(name, [(PUT, key, body)])

    def _end_of_leftover(self, key: bytes) -> int:
        """Return up to where this side has kept these records of the same branch, perhaps of a shorter copy; else 0."""
        mine = self._kept_here(key)
        head = None if mine is None else decode_head(mine, LEFTOVER_CHUNK_AT)
        return 0 if head is None else head.end

    def _kept_here(self, key: bytes) -> bytes | None:
        """Return a row LEFTOVER of this side."""
        mine = self._mine.rows.get(key)
        return mine if mine is not None or self.reader is None else self.reader.get(key)

    def _known(self, log: bytes, origin: Origin, count: int) -> int:
        """Return how many of the first of some records this side has or had, by where they were written first.

        A copy that goes on may rewrite records in a chunk with later ones, and the change that did is not known here.
        """
        if self._mine.has_origin(origin.version + origin.branch):
            return count
        ends = self._ends.get(origin.branch)
        if ends is None:
            ends = self._ends[origin.branch] = self._ends_at(origin.branch)
        known = max(0, ends.get(log, 0) - origin.first)
        if origin.branch == self._branch:
            for first, end in self._moved_from.get(log, []):
                if first <= origin.first + known < end:
                    known = end - origin.first
        return min(count, known)

    def _ends_at(self, position: bytes) -> dict[bytes, int]:
        """Return by stream log up to where this side knows the records of the copy that had a position."""
        epoch, seq = version_of(position)
        for line in self.lines:
            if has_change(line, epoch, seq) == YES:
                ends = known_ends(self.taken, Holding(COMPLETE, epoch, seq, line.history))
                return {log: max([end for _seq, end in found]) for log, found in ends.items()}
        return {}

    def _is_given_out(self, version: bytes) -> bool:
        """Tell whether the trunk may have given out the offsets of records that a change has written, and mine lacks.

        A leader in the trunk begins with everything that was committed there. So what this side lacks although it has
        seen a change of a later leadership, or a later configuration of the same one, was never committed: it is the
        end of a copy that the trunk has gone on without, and the trunk has given the same offsets to others.
        """
        epoch, _seq = version_of(version)
        return tag_of(epoch) == self.trunk and epoch >= self._trunk_epoch

    def _pieces(self, log: bytes, head: Head, value: bytes) -> list[Span]:
        """Divide the records of a chunk by their origins; those that are in no row ABSORBED were written in it."""
        version = value[:VERSION_BYTES]
        spans = self._spans.get(log, [])
        index = span_at(spans, head.first)
        if index < 0 or spans[index].end <= head.first:
            index += 1
        found: list[Span] = []
        at = head.first
        while at < head.end:
            if index < len(spans) and spans[index].first <= at:
                end = min(head.end, spans[index].end)
                origin = spans[index].origin.behind(at - spans[index].first)
                found.append(Span(at, end, origin.given_by(origin.given or version)))
                index += 1
            else:
                end = min(head.end, spans[index].first) if index < len(spans) else head.end
                found.append(Span(at, end, Origin(version, self._branch, at, version)))
            at = end
        return found

    def _retained(self, name: bytes, key: bytes, mine: bytes | None, theirs: bytes | None) -> None:
        mine_us = self._mine.put_us(key) or _created_us(mine)
        theirs_us = self._theirs.put_us(key) or _created_us(theirs)
        if not replaces(key, self._mine, self._theirs, mine_us, theirs_us):
            if theirs is not None and not self._mine.knows(theirs):
                self.summary.drop("a retained message was set or cleared later on this side", 1)
        elif theirs is None:
            self.summary.retained_cleared += 1
            self._add(name, [(DELETE, key, b"")])
        else:
            self.summary.retained += 1
            self._add(name, [(PUT, key, body_of(theirs))])

    def _stamp(self, name: bytes, key: bytes, mine: bytes | None, theirs: bytes) -> None:
        """Keep the later times, for a third side that may come back."""
        old = Stamp(0, 0) if mine is None else decode_stamp(mine)
        new = decode_stamp(theirs)
        if new.put_us > old.put_us or new.gone_us > old.gone_us:
            stamp = Stamp(max(new.put_us, old.put_us), max(new.gone_us, old.gone_us))
            self._add(name, [(PUT, key, encode_stamp(stamp))])

    def _count_stamps(self) -> None:
        """Find the oldest stamps, of as many as both sides have too many: who has none counts as older than the others.

        The same ones are found again when a part of them has gone, by a leader that goes on with the merge.
        """
        found: dict[bytes, int] = {}
        for rows in (self._mine.rows, self._theirs.rows):
            for key, value in rows.items():
                if key[2] == STAMP and len(key) > 3:
                    stamp = decode_stamp(value)
                    found[key] = max(found.get(key, 0), stamp.put_us, stamp.gone_us)
        if len(found) > STAMPS_MAX:
            order = sorted([(changed_us, key) for key, changed_us in found.items()])
            self._superfluous = {key: True for _changed_us, key in order[: len(order) - STAMPS_MAX]}

    def _unnamed_bodies(self) -> None:
        rows = [key for key in self._mine.rows if key[2] == BODY and sequence_of(key) not in self._bodies]
        self._add(_LAST, [(DELETE, key, b"") for key in rows])


def _name_of(unit: Unit) -> bytes:
    return unit.name


def _group(rows: dict[bytes, bytes], found: dict[bytes, dict[bytes, bytes]]) -> Iterator[None]:
    """Put the rows of each client together."""
    for count, (key, value) in enumerate(rows.items()):
        if count % _SWEEP_ROWS == _SWEEP_ROWS - 1:
            yield
        client = client_of(key)
        if client is not None:
            group = found.get(client)
            if group is None:
                found[client] = {key: value}
            else:
                group[key] = value


def _created_us(value: bytes | None) -> int:
    """Return when a retained message was published; 0 where there is none, or it is the one from before the fork."""
    if value is None or len(value) == VERSION_BYTES:
        return 0
    try:
        return decode_message(value, VERSION_BYTES).created_us
    except CorruptStore:
        return 0
