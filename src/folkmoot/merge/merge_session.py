"""Merging one client's rows: which side's session goes on, and what of the other side's queue comes behind it.

Of the two sides one is the *base*: where the client was last (`_Life.goes_before`).
Sequences of the queue, and with them packet ids, flows in flight and the will are the base's (that of the other side
may be due, see `merge_will`); the other side's messages that it lacks and has not removed are appended behind its
queue. Pure rules; docs/adr/0008 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, u64
from folkmoot.merge.merge_will import left_will, will_of_nobody
from folkmoot.merge.side import Side, replaces
from folkmoot.store.key import (
    CURSOR,
    QUEUE,
    RECEIVED,
    RELEASED,
    SENT,
    SESSION,
    SUBSCRIPTION,
    WILL,
    body_key,
    name_prefix,
    numbered_key,
    plain_key,
    sequence_of,
)
from folkmoot.store.message import Message, decode_message
from folkmoot.store.row import (
    SessionRow,
    decode_cursor,
    decode_queue,
    decode_sent,
    decode_session,
    encode_cursor,
    encode_queue,
    encode_sent,
    origin_in,
    with_origin,
)
from folkmoot.store.writer import VERSION_BYTES, body_of, version_of

__all__ = ["MINE", "NOBODY", "STEP_ROWS", "THEIRS", "SessionMerge"]

STEP_ROWS: Final = 2048
"""Rows that one step of a plan handles: some 10 ms in compiled code."""

NOBODY: Final = 0
MINE: Final = 1
THEIRS: Final = 2

_SERVED: Final = (RECEIVED, RELEASED, SENT, SUBSCRIPTION)
_CURSOR_STREAM: Final = 1
_UNKNOWN: Final = 1 << 62  # the position of a replay that has not begun
# What a replay of a stream adds to a record, in this order, each with its value: see `feed.replay`.
_PARTITION_PROPERTY: Final = b"\x26\0\x12folkmoot-partition"
_OFFSET_PROPERTY: Final = b"\x26\0\x0ffolkmoot-offset"
_ID_BYTES: Final = VERSION_BYTES + 8
_TIME_PROPERTY: Final = b"\x26\0\x0dfolkmoot-time"


class _Life:
    """What one side knows of a client's session. ended_us: when a session of this client ended here, 0 = none did.

    lives: whether the process that has the copy is the one that made it: else no client of the copy is connected.
    leads: whether the side has changed the partition since the sides parted. If not, it need not have led it, and still
    says of clients that they are connected as they were then.
    """

    def __init__(self, side: Side, other: Side, key: bytes, rows: dict[bytes, bytes], lives: bool) -> None:
        self.side = side
        self.rows = rows
        self.value = side.rows.get(key)
        self.row: SessionRow | None = None if self.value is None else decode_session(body_of(self.value))
        self.owner = self.row.username if self.row is not None and self.row.proved else ""
        self.leads = not other.knows(side.position())
        self.connected = lives and self.leads and self.row is not None and self.row.ends_us == 0
        self.put_us = side.put_us(key)
        self.touched = self.value is not None and not other.knows(self.value)
        self.ended_us = side.gone_us(key)
        other_value = other.rows.get(key)
        if self.value is None and other_value is not None and side.knows(other_value):
            self.ended_us = max(self.ended_us, 1)

    def is_over(self, ended_us: int) -> bool:
        """Whether the end of the session at the other side is news here: its client wanted it, or nobody used it here.

        ended_us: when its client wanted that; 1: it did not, or nobody knows when. A connection that is older than that
        has been lost, and its node has not noticed.
        """
        if self.row is None or not ended_us or (self.connected and ended_us == 1):
            return False
        return not self.touched or ended_us > max(1, self.put_us)

    def is_replaced_by(self, other: _Life) -> bool:
        """Whether the client has ended the session at the other side, and begun another one there (clean start).

        Not where one CONNECT has begun both.
        """
        if self.row is None or other.row is None or self.row.token == other.row.token != 0:
            return False
        return self.is_over(other.ended_us)

    def goes_before(self, mine: _Life) -> bool:
        """Whether the session of this side goes on, and not that of the side whose copy leads, which is the larger one.

        Of two connections the later one counts: the other one has been lost, and its node need not have noticed. Clocks
        that make the one later that both sides knew when they parted do not say so. Where both have seen the same
        connection end, one of them took it for dead, and has begun anew when it did so.
        """
        if self.row is not None and mine.row is not None:
            if self.row.token == mine.row.token:
                if mine.row.token and self.touched and mine.touched and not (self.connected or mine.connected):
                    return self._alone_has_served(mine)
            elif self.put_us != mine.put_us:
                later, earlier = (self, mine) if self.put_us > mine.put_us else (mine, self)
                if later.touched or not earlier.touched:
                    return later is self
        one = (self.connected, self.touched, self.put_us, self.leads)
        two = (mine.connected, mine.touched, mine.put_us, mine.leads)
        return one > two or (one == two and self._alone_has_served(mine))

    def _alone_has_served(self, other: _Life) -> bool:
        return self._has_served(other) and not other._has_served(self)

    def _has_served(self, other: _Life) -> bool:
        """Whether the client was connected here since the sides parted, by rows that change only then.

        A leader that does not find the client writes SENT, too: together with the end of the session. And what the last
        common leader wrote and could not commit, the next one has handled again, and need have nothing left of it.
        """
        for key, value in self.rows.items():
            if key[2] in _SERVED and not other.side.knows(value) and self.side.is_of_own(value):
                if key[2] != SENT or self.value is None or version_of(value) < version_of(self.value):
                    return True
        return any(
            key[2] in _SERVED and key not in self.rows and self.side.knows(value) for key, value in other.rows.items()
        )


class SessionMerge:
    """The merge of one client's rows; `final` has the bodies of its rows after all `steps`.

    positions: of my copy and of theirs, each in the form of a version (`store.writer`).

    mine, theirs: rows of the client by key; `base` says whose session goes on; they_live: see `_Life`. changed:
    whether sequences that a connection at the other side knows have lost their meaning.
    """

    def __init__(
        self,
        partition: int,
        client: bytes,
        mine: Side,
        theirs: Side,
        my_rows: dict[bytes, bytes],
        their_rows: dict[bytes, bytes],
        positions: tuple[bytes, bytes] = (bytes(16), bytes(16)),
        they_live: bool = True,
    ) -> None:
        self.base = MINE
        self.changed = False
        self.added = 0
        self.removed = 0
        self.subscribed = 0
        self.unsubscribed = 0
        self.unreadable = 0
        self.replayed = 0
        self.repeated = 0
        self.final: dict[bytes, bytes] = {}
        self._partition = partition
        self._client = client
        self._mine = mine
        self._theirs = theirs
        self._my_rows = my_rows
        self._their_rows = their_rows
        self._positions = positions
        self._names: dict[bytes, bool] | None = None  # origins and sources of queue rows of the side that is no base
        self._packets: dict[bytes, bool] | None = None  # those in the base's queue
        self._they_live = they_live
        self._session_key = plain_key(partition, SESSION, client)
        self._will_key = plain_key(partition, WILL, client)

    def steps(self) -> Iterator[None]:
        """Merge, a bounded number of rows per step: a queue may have a hundred thousand."""
        my = _Life(self._mine, self._theirs, self._session_key, self._my_rows, True)
        their = _Life(self._theirs, self._mine, self._session_key, self._their_rows, self._they_live)
        if my.row is None and their.row is None:
            self.final = {key: body_of(value) for key, value in self._my_rows.items() if key[2] != WILL}
            self._will_of_nobody()
        elif my.row is None:
            if their.is_over(my.ended_us):
                self._nobody()
            else:
                yield from self._whole(THEIRS)
        elif their.row is None:
            if my.is_over(their.ended_us):
                self._nobody()
            else:
                yield from self._whole(MINE)
        elif my.is_replaced_by(their):
            yield from self._whole(THEIRS)
        elif their.is_replaced_by(my):
            yield from self._whole(MINE)
        elif my.owner and their.owner and my.owner != their.owner:
            # One user's messages are not for another, who has begun a session with this client id at the other side.
            yield from self._whole(THEIRS if their.goes_before(my) else MINE)
        elif their.goes_before(my):
            yield from self._union(THEIRS)
        else:
            yield from self._union(MINE)

    # -- one side only ------------------------------------------------------------------------------------------------

    def _nobody(self) -> None:
        """The session has ended at the other side, and nobody wants it here."""
        self.base = NOBODY
        self.removed += len([key for key in self._my_rows if key[2] == QUEUE])
        self._will_of_nobody()

    def _whole(self, base: int) -> Iterator[None]:
        """All rows are those of one side; the other side's session is over, or never was."""
        self.base = base
        if base == MINE:
            self.final = {key: body_of(value) for key, value in self._my_rows.items()}
            self.final.update(left_will(self._will_key, self._mine, self._theirs, ended=True))
            self.changed = bool(self._their_rows)
            return
        self.changed = True
        self.final.update(left_will(self._will_key, self._theirs, self._mine, ended=True))
        for count, (key, value) in enumerate(self._their_rows.items()):
            if count % STEP_ROWS == STEP_ROWS - 1:
                yield
            body = self._theirs_as(key, value)
            if body:
                self.final[key] = body
                self.added += 1 if key[2] == QUEUE else 0
                self.subscribed += 1 if key[2] == SUBSCRIPTION else 0
            elif key[2] == RELEASED:
                self.final[key] = b""
        for key in self._my_rows:
            if key[2] == QUEUE and key not in self.final:
                self.removed += 1
            elif key[2] == SUBSCRIPTION and key not in self.final:
                self.unsubscribed += 1

    def _will_of_nobody(self) -> None:
        """The will of a transient session: each side takes the clients of the other for dead."""
        self.final.update(will_of_nobody(self._will_key, self._mine, self._theirs))

    # -- both sides ---------------------------------------------------------------------------------------------------

    def _sides(self, base: int) -> tuple[Side, dict[bytes, bytes], Side, dict[bytes, bytes]]:
        """Return the base with its rows of the client, and the other side with its own."""
        mine = (self._mine, self._my_rows)
        theirs = (self._theirs, self._their_rows)
        return (*mine, *theirs) if base == MINE else (*theirs, *mine)

    def _union(self, base: int) -> Iterator[None]:
        self.base = base
        own, rows, other, other_rows = self._sides(base)
        for key, value in rows.items():
            kind = key[2]
            if kind == RECEIVED and key not in other_rows and other.knows(value):
                continue  # its client has ended that flow at the other side, and may use the packet id again
            if kind != SUBSCRIPTION and kind != CURSOR and kind != QUEUE:
                self.final[key] = body_of(value)
        self.final.update(left_will(self._will_key, own, other, ended=False))
        self._subscriptions(base)
        yield from self._queue(base)
        self._released(base)
        if base == THEIRS:
            self.changed = True
        else:
            for count, (key, value) in enumerate(self._their_rows.items()):
                if count % STEP_ROWS == STEP_ROWS - 1:
                    yield
                if key[2] != SUBSCRIPTION and key[2] != CURSOR and not self._mine.knows(value):
                    self.changed = True
                    break

    def _released(self, base: int) -> None:
        """Let flows end that the client has begun at the other side: it has those messages, and may wait for PUBREL.

        Not where the packet id is that of a message that still waits at the base.
        """
        own, _own_rows, _other, other_rows = self._sides(base)
        prefix = name_prefix(self._partition, QUEUE, self._client)
        for key, value in other_rows.items():
            if key[2] == RELEASED and key not in self.final and not own.knows(value):
                if numbered_key(prefix, sequence_of(key)) not in self.final:
                    self.final[key] = body_of(value)

    def _subscriptions(self, base: int) -> None:
        """Each by itself; the place of a feed goes with its subscription, the base's where both have it."""
        keys: dict[bytes, bool] = {}
        for key in [*self._my_rows, *self._their_rows]:
            if key[2] == SUBSCRIPTION:
                keys[key] = True
        for key in keys:
            mine_us = self._mine.put_us(key)
            theirs_us = self._theirs.put_us(key)
            my_row = self._my_rows.get(key)
            taken = replaces(key, self._mine, self._theirs, mine_us, theirs_us)
            row = self._their_rows.get(key) if taken else my_row
            if row is None:
                self.unsubscribed += 1 if my_row is not None else 0
                continue
            self.subscribed += 1 if my_row is None else 0
            self.final[key] = body_of(row)
            cursor_key = key[:2] + bytes([CURSOR]) + key[3:]
            same = my_row is not None and key in self._their_rows and not taken
            feeder = self._their_rows if taken or (same and base == THEIRS) else self._my_rows
            cursor = feeder.get(cursor_key)
            if cursor is not None:
                self.final[cursor_key] = body_of(cursor)

    def _queue(self, base: int) -> Iterator[None]:
        own, own_rows, other, other_rows = self._sides(base)
        own_ids = _ids_of(own_rows)
        yield
        yield from self._keep(base, own, own_rows, other, other_rows)
        positions = self._replay(own_rows, other_rows)
        yield
        following = self._end(own_rows)
        yield
        following = max(following, self._end(other_rows))
        yield
        floor = self._floor(other_rows)
        prefix = name_prefix(self._partition, QUEUE, self._client)
        sent_below = self._sent(other_rows)[0]
        for count, key in enumerate(sorted(other_rows)):
            if count % STEP_ROWS == STEP_ROWS - 1:
                yield
            value = other_rows[key]
            if key[2] != QUEUE or sequence_of(key) < floor or own.knows(value):
                continue
            if _id_of(key, value) in own_ids or _has_origin(own, value):
                continue  # it has been here under another sequence
            body = self._mine_as(key, value) if base == THEIRS else self._theirs_as(key, value)
            sent = sequence_of(key) < sent_below
            if body and sent and key not in own_rows and decode_queue(body).qos == 2:
                self._end_flow(sequence_of(key))
            message = self._message(self._mine, body) if body else None
            if message is not None and message.source and self._packets is None:
                self._packets = {}
                yield from self._learn(self._packets, own, own_rows)
            if message is not None and self._has_applied(own, message):
                self.repeated += 1
            elif body and positions and _is_replayed(body, positions):
                self.replayed += 1
            elif body:
                self.final[numbered_key(prefix, following)] = _marked(body, sent)
                following += 1
                self.added += 1

    def _keep(
        self, base: int, own: Side, own_rows: dict[bytes, bytes], other: Side, other_rows: dict[bytes, bytes]
    ) -> Iterator[None]:
        """Keep the messages of the base, but for those that the client has acknowledged at the other side."""
        other_ids = _ids_of(other_rows)
        floor = self._floor(other_rows)
        has_taken = self._has_taken(own, own_rows, other, other_rows)
        sent_below = self._sent(own_rows)[0]
        lost = False
        for count, (key, value) in enumerate(own_rows.items()):
            if count % STEP_ROWS == STEP_ROWS - 1:
                yield
            if key[2] != QUEUE:
                continue
            if _id_of(key, value) not in other_ids:
                delivered = has_taken and not other.knows(value)
                if self._names is None and (delivered or _has_origin(other, value)):
                    self._names = {}
                    yield from self._learn(self._names, other, other_rows)
                gone = key not in other_rows and other.knows(value) and sequence_of(key) >= floor
                gone = gone or self._is_acknowledged(own, value, other)
                if gone or (delivered and self._has_delivered(own, value, other)):
                    self.removed += 1
                    lost = True
                    row = decode_queue(body_of(value))
                    if row.qos == 2 and (row.sent or sequence_of(key) < sent_below):
                        self._end_flow(sequence_of(key))
                    continue
            body = body_of(value) if base == MINE else self._theirs_as(key, value)
            if body:
                self.final[key] = body
            else:
                lost = True
        if lost:
            self._give_on(own_rows)

    def _give_on(self, own_rows: dict[bytes, bytes]) -> None:
        """Let the queue go on behind all that the base has given out, of which the last rows may be gone.

        Else another message would get the packet id of one that the client may hold, or acknowledge late.
        """
        sent_below, given_below = self._sent(own_rows)
        key = plain_key(self._partition, SENT, self._client)
        self.final[key] = encode_sent(sent_below, max(given_below, self._end(own_rows)))

    def _has_taken(self, own: Side, own_rows: dict[bytes, bytes], other: Side, other_rows: dict[bytes, bytes]) -> bool:
        """Whether what the other side has applied for the client, and what does not wait there, was delivered there.

        Its marks have to be its own, not those of a third side; the client has had the same subscriptions, and has been
        connected there since the sides parted: else the message may not have matched, or not have found room.
        """
        sent = other_rows.get(plain_key(self._partition, SENT, self._client))
        if len(other.seen) > 1 or sent is None or own.knows(sent):
            return False
        return self._has_come(other_rows, sent) and _have_same_subscriptions(own_rows, other_rows)

    def _has_come(self, other_rows: dict[bytes, bytes], sent: bytes) -> bool:
        """Whether the client has been connected at the other side since that has written its SENT row.

        A leader that finds the session without a connection writes that row together with the end of the session, and
        the queue writes it later for what it drops.
        """
        there = other_rows.get(self._session_key)
        if there is None:
            return False
        return not decode_session(body_of(there)).ends_us or version_of(sent) < version_of(there)

    def _is_acknowledged(self, own: Side, value: bytes, other: Side) -> bool:
        """Whether a row that a merge has written has been at the other side, where it is no more, and was acknowledged.

        It may not have been taken there: as a request that was applied, which came by another way, or as a record that
        the replay there queues by itself.
        """
        if not _has_origin(other, value):
            return False
        body = body_of(value)
        if _place_of(body) is not None:
            return False
        message = self._message(own, body)
        if message is None:
            return False  # nobody knows what it is
        return not any(self._waits(name) for name in (message.origin, message.source) if name)

    def _has_delivered(self, own: Side, value: bytes, other: Side) -> bool:
        """Whether the other side (see `_has_taken`) has delivered a message with QoS 2 that both have got by a request.

        Of a group, it may have chosen another member.
        """
        row = decode_queue(body_of(value))
        if row.qos != 2 or row.group:
            return False
        message = self._message(own, body_of(value))
        if message is None or not other.has_applied(self._partition, message.origin):
            return False
        return not self._waits(message.origin)

    def _learn(self, names: dict[bytes, bool], side: Side, rows: dict[bytes, bytes]) -> Iterator[None]:
        """Note the origins and sources of the messages in the queue of one side; b"" for what cannot be read."""
        for count, (key, value) in enumerate(rows.items()):
            if count % STEP_ROWS == STEP_ROWS - 1:
                yield
            if key[2] != QUEUE:
                continue
            message = self._message(side, body_of(value))
            if message is None:
                names[b""] = True
                continue
            for name in (message.origin, message.source):
                if name:
                    names[name] = True

    def _waits(self, name: bytes) -> bool:
        """Whether the queue of the side that is no base may have a message with this origin or source."""
        assert self._names is not None, "the other side's queue has been read"
        return name in self._names or b"" in self._names

    def _mine_as(self, key: bytes, value: bytes) -> bytes:
        """Return what a row of mine holds that gets another sequence."""
        return with_origin(body_of(value), _id_of(key, value) + self._positions[0])

    def _theirs_as(self, key: bytes, value: bytes) -> bytes:
        """Return what a row of theirs holds, to be written here; nothing when its message is missing."""
        body = self._inline(key, value)
        mine = self._my_rows.get(key)
        is_here = mine is not None and version_of(mine) == version_of(value)
        if not body or key[2] != QUEUE or is_here:
            return body
        return with_origin(body, _id_of(key, value) + self._positions[1])

    def _end_flow(self, sequence: int) -> None:
        """Have PUBREL sent under the old id of a message: the client may know it, and take the next for the same."""
        self.final.setdefault(numbered_key(name_prefix(self._partition, RELEASED, self._client), sequence), b"")

    def _has_applied(self, own: Side, message: Message) -> bool:
        """Whether the base has got a message of the other side by a request, or from a packet, that came to both."""
        if own.has_applied(self._partition, message.origin):
            return True
        source = message.source
        if not source:
            return False
        assert self._packets is not None, "the base's queue has been read"
        return source in self._packets or own.has_packet(self._partition, source)

    def _message(self, side: Side, body: bytes) -> Message | None:
        """Return the message of a queue row; None: it is missing, or cannot be read.

        side: where a shared body of the row is; that of a row to be written here is mine, or in the row.
        """
        row = decode_queue(body)
        if row.message is not None:
            return row.message
        value = side.rows.get(body_key(self._partition, row.body))
        try:
            return None if value is None else decode_message(value, VERSION_BYTES)
        except CorruptStore:  # one message is lost, and not what the side has of the whole partition
            return None

    def _replay(self, own_rows: dict[bytes, bytes], other_rows: dict[bytes, bytes]) -> list[int]:
        """Let the replay of a stream go on from the later of both positions; return those of the base.

        Records before them are in the base's queue, or acknowledged there; the other side's later ones are appended.
        Nothing is returned where the other side's replay goes on, nor for several: who queued a record is not known.
        """
        cursors = [key for key in self.final if key[2] == CURSOR]
        found = [key for key in cursors if decode_cursor(self.final[key]).kind == _CURSOR_STREAM]
        own = own_rows.get(found[0]) if len(found) == 1 and found[0] in other_rows else None
        if own is None or body_of(own) != self.final[found[0]]:
            return []
        row = decode_cursor(self.final[found[0]])
        positions = list(row.positions)
        other = decode_cursor(body_of(other_rows[found[0]])).positions
        for index, position in enumerate(positions):
            if position == _UNKNOWN:
                positions[index] = 0
            if index < len(other) and other[index] != _UNKNOWN:
                row.positions[index] = max(positions[index], other[index])
        self.final[found[0]] = encode_cursor(row)
        return positions

    def _floor(self, rows: dict[bytes, bytes]) -> int:
        value = rows.get(self._session_key)
        return 0 if value is None else decode_session(body_of(value)).queue_floor

    def _sent(self, rows: dict[bytes, bytes]) -> tuple[int, int]:
        """Return the sequences below which a side may have sent messages, and below which it has given them out."""
        value = rows.get(plain_key(self._partition, SENT, self._client))
        return (0, 0) if value is None else decode_sent(body_of(value))

    def _end(self, rows: dict[bytes, bytes]) -> int:
        """Return a sequence behind all that a side has given out, as far as its rows tell."""
        end = max(self._floor(rows), 1, *self._sent(rows))
        for key in rows:
            if key[2] == QUEUE or key[2] == RELEASED:
                end = max(end, sequence_of(key) + 1)
        return end

    def _inline(self, key: bytes, value: bytes) -> bytes:
        """Return what a row of theirs holds, with its message in it; nothing when that is missing."""
        if key[2] != QUEUE:
            return body_of(value)
        mine = self._my_rows.get(key)
        if mine is not None and version_of(mine) == version_of(value):
            return body_of(mine)
        row = decode_queue(body_of(value))
        if not row.body:
            return body_of(value)
        body = self._theirs.rows.get(body_key(self._partition, row.body))
        if body is None:
            self.unreadable += 1
            return b""
        try:
            message = decode_message(body, VERSION_BYTES)
        except CorruptStore:
            self.unreadable += 1
            return b""
        row.body = 0
        row.message = message
        inline = encode_queue(row)
        origin = origin_in(body_of(value))
        return with_origin(inline, origin) if origin else inline


def _id_of(key: bytes, value: bytes) -> bytes:
    """Return version and sequence under which a queue row was first written, at whatever side."""
    origin = origin_in(body_of(value))
    return origin[:_ID_BYTES] if origin else value[:VERSION_BYTES] + u64(sequence_of(key))


def _ids_of(rows: dict[bytes, bytes]) -> dict[bytes, bool]:
    return {_id_of(key, value): True for key, value in rows.items() if key[2] == QUEUE}


def _have_same_subscriptions(own_rows: dict[bytes, bytes], other_rows: dict[bytes, bytes]) -> bool:
    """Tell whether neither side has changed a subscription of the client since they parted."""
    keys = {key for key in [*own_rows, *other_rows] if key[2] == SUBSCRIPTION}
    return all(key in own_rows and own_rows[key] == other_rows.get(key) for key in keys)


def _has_origin(side: Side, value: bytes) -> bool:
    """Tell whether a merge has written a queue row, and a side has seen what it was made of."""
    origin = origin_in(body_of(value))
    return bool(origin) and side.has_origin(origin)


def _is_replayed(body: bytes, positions: list[int]) -> bool:
    """Tell whether a queue row is a record of a stream before these positions."""
    place = _place_of(body)
    return place is not None and place[0] < len(positions) and place[1] < positions[place[0]]


def _place_of(body: bytes) -> tuple[int, int] | None:
    """Return (partition, offset) of a record of a stream in a queue row, by what a replay adds to it; or None."""
    message = decode_queue(body).message
    if message is None:
        return None
    properties = message.properties
    time = str(message.created_us).encode()
    start = properties.rfind(_PARTITION_PROPERTY)
    if start < 0 or not properties.endswith(_TIME_PROPERTY + len(time).to_bytes(2, "big") + time):
        return None
    start += len(_PARTITION_PROPERTY)
    end = start + 2 + get_u16(properties, start)
    partition = properties[start + 2 : end]
    start = end + len(_OFFSET_PROPERTY)
    offset = properties[start + 2 : start + 2 + get_u16(properties, start)]
    if not partition.isdigit() or not offset.isdigit():
        return None
    return int(partition), int(offset)


def _marked(body: bytes, sent: bool) -> bytes:
    """Return a queue row that says that it may have been sent, if it was."""
    return body[:1] + bytes([body[1] | 8]) + body[2:] if sent else body
