"""Replaying a stream to an MQTT client: a subscription to `$stream/NAME/FROM/FILTER`.

FROM is `earliest`, `latest`, an offset that applies to each stream partition, or an RFC 3339 time. At the end of the
stream the replay continues with new records.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from folkmoot.feed.feed import BLOCKED, DONE, MORE, Feed, Feeds, cursor_key
from folkmoot.kernel.errors import CorruptStore
from folkmoot.query.inquiry import Inquiry
from folkmoot.query.question import BOUNDS, FOUND, READ, SEEK, Answer, page_of
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.chunk import decode_chunk
from folkmoot.store.message import Message
from folkmoot.store.record import Entry
from folkmoot.store.row import CursorRow, encode_cursor
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone, Page
from folkmoot.streams.table import Stream, Streams
from folkmoot.topics.name import check_filter, matches
from folkmoot.turn.work import DELIVERY_STEPS

__all__ = ["CURSOR_STREAM", "UNKNOWN", "ReplayFeed", "ReplayWish", "Start", "first_offsets", "parse_replay"]

CURSOR_STREAM: Final = 1
UNKNOWN: Final = 1 << 62
"""In place of an offset: the start is not known yet."""

_EARLIEST: Final = 0
_LATEST: Final = 1
_OFFSET: Final = 2
_TIME: Final = 3
_PAGE_BYTES: Final = 32_768
_USER_PROPERTY: Final = b"\x26"


class ReplayWish:
    """The content of a `$stream/...` filter: a stream, a start, a filter; or an error."""

    def __init__(self, error: str) -> None:
        self.error = error
        self.stream: Stream | None = None
        self.start = Start(_EARLIEST, 0)
        self.topic_filter = b""


class Start:
    """The start of a replay: `kind` is one of the words, or `number` is an offset or a time."""

    def __init__(self, kind: int, number: int) -> None:
        self.kind = kind
        self.number = number

    @property
    def is_latest(self) -> bool:
        """Whether it is what comes from now on: a SUBSCRIBE is not acknowledged before that is known (`newest`)."""
        return self.kind == _LATEST


def parse_replay(name: bytes, streams: Streams, levels_max: int) -> ReplayWish:
    """Read `$stream/NAME/FROM/FILTER`; `error` says what is wrong with it, or is empty."""
    parts = name.split(b"/", 3)
    if len(parts) < 4:
        return ReplayWish(
            "a replay is $stream/NAME/FROM/FILTER, FROM is earliest, latest, an offset or an RFC 3339 time"
        )
    wish = ReplayWish("")
    wish.topic_filter = parts[3]
    wish.stream = streams.get(parts[1].decode())
    if wish.stream is None:
        wish.error = f"there is no stream {parts[1].decode()!r}"
        return wish
    why = check_filter(parts[3], levels_max)
    if why is not None:
        wish.error = why
        return wish
    _parse_start(wish, parts[2].decode())
    return wish


def _parse_start(wish: ReplayWish, start: str) -> None:
    if start == "earliest":
        wish.start = Start(_EARLIEST, 0)
    elif start == "latest":
        wish.start = Start(_LATEST, 0)
    elif start.isascii() and start.isdigit() and len(start) < 20:
        wish.start = Start(_OFFSET, int(start))
    else:
        try:
            time = datetime.fromisoformat(start)
        except ValueError:
            wish.error = f"{start!r} is neither earliest, latest, an offset nor an RFC 3339 time"
            return
        if time.tzinfo is None:
            wish.error = f"the time {start!r} has no offset from UTC, such as Z"
            return
        wish.start = Start(_TIME, int(time.timestamp() * 1_000_000))


def first_offsets(wish: ReplayWish, leads: list[bool]) -> list[int]:
    """Return the start in each stream partition; UNKNOWN where only another node knows it. May set `error`."""
    assert wish.stream is not None, "a wish without a stream has an error"
    logs = wish.stream.logs
    start = wish.start
    if start.kind == _OFFSET:
        oldest = max([log.oldest for log in logs if leads[log.store_partition]], default=0)
        if start.number < oldest:
            wish.error = _gone(start.number, oldest)
    return [_first_offset(start, log) if leads[log.store_partition] else UNKNOWN for log in logs]


def _first_offset(start: Start, log: StreamLog) -> int:
    if start.kind == _EARLIEST:
        return log.oldest
    if start.kind == _LATEST:
        return log.readable_end
    if start.kind == _OFFSET:
        return min(start.number, log.readable_end)
    return log.offset_at(start.number)


def _gone(offset: int, oldest: int) -> str:
    return f"offset {offset} is gone: retention has removed what was before {oldest}"


class ReplayFeed(Feed):
    """Reads the partitions of a stream in turn, a page each; it asks other leaders for the pages of theirs."""

    def __init__(
        self, subscription: Subscription, token: int, stream: Stream, start: Start, offsets: list[int]
    ) -> None:
        super().__init__(subscription, token)
        self.stream = stream
        self.start = start
        self.offsets = offsets
        self.turn = 0
        self._asked: list[Inquiry | None] = [None] * len(offsets)
        self._pages: list[Answer | None] = [None] * len(offsets)
        self._feeds: Feeds | None = None
        self._why = ""  # why it cannot continue
        self._fault = ""  # why it cannot continue for now

    def is_late(self) -> bool:
        """Whether it is of new records, and was stored before their first offsets were known, by an older version."""
        return self.start.is_latest and UNKNOWN in self.offsets

    # -- calls of Feeds -----------------------------------------------------------------------------------------------

    def begin(self, feeds: Feeds) -> None:
        """Ask for the start, where this node does not know it."""
        self._feeds = feeds
        if UNKNOWN in self.offsets:
            self._resolve(feeds)

    def end(self) -> None:
        """Drop the open questions."""
        feeds = self._feeds
        assert feeds is not None, "a feed begins before it ends"
        for index in range(len(self._asked)):
            inquiry = self._asked[index]
            if inquiry is not None:
                feeds.inquiries.drop(inquiry)
                self._asked[index] = None

    def rest(self) -> None:
        """Free the pages: they are asked for again when the session takes messages."""
        for index in range(len(self._pages)):
            self._pages[index] = None

    def page(self, feeds: Feeds) -> int:
        """Deliver the matching ones of the next records, of a partition that has some. Raises CorruptStore."""
        if self._fault:
            fault = self._fault
            self._fault = ""
            raise CorruptStore(fault)
        leads = feeds.state.leads
        logs = self.stream.logs
        for _ in range(len(logs)):
            log = logs[self.turn]
            index = self.turn
            self.turn = (self.turn + 1) % len(logs)
            if self._why:
                break
            offset = self.offsets[index]
            if offset == UNKNOWN:
                self._resolve(feeds)
            elif not leads[log.store_partition]:
                if self._read_elsewhere(feeds, log, offset):
                    return MORE
            elif offset < log.readable_end:
                self._read(feeds, log, log.read(offset, offset + feeds.state.limits.page_rows, _PAGE_BYTES))
                if not self._why:
                    return MORE
        if self._why:
            feeds.fail(self, self._why)
            return DONE
        return BLOCKED

    # -- the start ----------------------------------------------------------------------------------------------------

    def _resolve(self, feeds: Feeds) -> None:
        """Find, or ask for, the start in the stream partitions where it is unknown."""
        for log in self.stream.logs:
            index = log.index
            if self.offsets[index] != UNKNOWN or self._asked[index] is not None:
                continue
            if feeds.state.leads[log.store_partition]:
                self._begin_at(feeds, index, _first_offset(self.start, log), log.oldest)
            elif not feeds.inquiries.may_ask(log.store_partition):
                feeds.inquiries.wait(self)
            elif self.start.kind == _TIME:
                self._ask(feeds, log, SEEK, [index, self.start.number])
            else:
                self._ask(feeds, log, BOUNDS, [index])

    def _ask(self, feeds: Feeds, log: StreamLog, what: int, numbers: list[int]) -> None:
        name = log.config.name.encode()
        self._asked[log.index] = feeds.inquiries.ask(self, log.store_partition, what, name, numbers)

    def _begin_at(self, feeds: Feeds, index: int, offset: int, oldest: int) -> None:
        """Set the start in a stream partition."""
        if self.start.kind == _OFFSET and self.start.number < oldest:
            self._why = _gone(self.start.number, oldest)
        self.offsets[index] = offset
        if self._why or UNKNOWN not in self.offsets:
            session = self.subscription.session
            if not session.ended:
                self.save(feeds)

    # -- answers of other nodes ---------------------------------------------------------------------------------------

    def heard(self, inquiry: Inquiry) -> None:
        """Take an answer: the start, or a page."""
        feeds = self._feeds
        assert feeds is not None, "a feed that asks has begun"
        index = self._asked.index(inquiry)
        self._asked[index] = None
        answer = inquiry.answer
        if answer is None:
            return
        numbers = answer.numbers
        if inquiry.what == READ:
            self._pages[index] = answer
        elif answer.status != FOUND or not numbers:
            self._fault = answer.text or f"the beginning of partition {index} is not known: {answer!r}"
        elif inquiry.what == SEEK:
            self._begin_at(feeds, index, numbers[0], 0)
        else:
            oldest, end = numbers[0], numbers[1]
            offset = oldest if self.start.kind == _EARLIEST else end
            self._begin_at(feeds, index, min(self.start.number, end) if self.start.kind == _OFFSET else offset, oldest)
        feeds.wake(self)

    def again(self) -> None:
        """Ask the present leaders; answers to questions that are not void still come."""
        feeds = self._feeds
        assert feeds is not None, "a feed that asks has begun"
        for index in range(len(self._asked)):
            inquiry = self._asked[index]
            if inquiry is not None and inquiry.void:
                self._asked[index] = None
        if UNKNOWN in self.offsets:
            self._resolve(feeds)
        feeds.wake(self)

    def _read_elsewhere(self, feeds: Feeds, log: StreamLog, offset: int) -> bool:
        """Deliver a page of another node, or ask for one; False when there is none yet. Raises CorruptStore."""
        index = log.index
        answer = self._pages[index]
        if answer is not None:
            self._pages[index] = None
            self._read(feeds, log, page_of(answer))
            return not self._why
        if self._asked[index] is not None or offset >= feeds.tails.end_of(log):
            return False
        if not feeds.inquiries.may_ask(log.store_partition):
            feeds.inquiries.wait(self)
            return False
        self._ask(feeds, log, READ, [index, offset, offset + feeds.state.limits.page_rows, _PAGE_BYTES])
        return False

    # -- records ------------------------------------------------------------------------------------------------------

    def _read(self, feeds: Feeds, log: StreamLog, page: Page | OffsetGone | OffsetAhead) -> None:
        start = self.offsets[log.index]
        if isinstance(page, OffsetGone):
            where = f"partition {log.index} of stream {self.stream.config.name}"
            self._why = f"retention has overtaken the replay: {where} starts at {page.oldest}, wanted {start}"
            return
        if isinstance(page, OffsetAhead):
            return
        at = start
        for chunk in page.chunks:
            for entry in decode_chunk(chunk, 0, start, page.next_offset):
                if entry.offset > start and not feeds.has_room(self.subscription.session):
                    break
                at = entry.offset + 1
                feeds.state.work.steps += DELIVERY_STEPS
                if matches(self.subscription.topic_filter, entry.record.topic):
                    feeds.deliver(self, _message_of(entry, log.index), entry.record.qos, False)
                    feeds.state.counters.stream_replayed += 1
        self.offsets[log.index] = at
        self.save(feeds)

    def save(self, feeds: Feeds) -> None:
        """Store the position."""
        session: Session = self.subscription.session
        if session.persistent:
            key = cursor_key(session, self.subscription.name)
            row = CursorRow(CURSOR_STREAM, self.offsets, self.source)
            feeds.state.writer.put(session.partition, key, encode_cursor(row))


def _message_of(entry: Entry, partition: int) -> Message:
    record = entry.record
    properties = (
        record.properties
        + _user_property(b"folkmoot-partition", str(partition))
        + _user_property(b"folkmoot-offset", str(entry.offset))
        + _user_property(b"folkmoot-time", str(entry.time_us))
    )
    publisher = record.publisher.decode()
    return Message(record.topic, record.payload, record.qos, False, properties, publisher, entry.time_us, 0)


def _user_property(name: bytes, value: str) -> bytes:
    raw = value.encode()
    return _USER_PROPERTY + len(name).to_bytes(2, "big") + name + len(raw).to_bytes(2, "big") + raw
