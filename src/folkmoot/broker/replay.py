"""Replaying a stream to an MQTT client: a subscription to `$stream/NAME/FROM/FILTER`.

FROM is `earliest`, `latest`, an offset that counts for each stream partition, or an RFC 3339 time. The replay goes on
with new records when it has reached the end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from folkmoot.broker.feed import BLOCKED, DONE, MORE, Feed, Feeds, cursor_key
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.message import Message
from folkmoot.store.row import CursorRow, encode_cursor
from folkmoot.streams.chunk import decode_chunk
from folkmoot.streams.log import StreamLog
from folkmoot.streams.page import OffsetAhead, OffsetGone
from folkmoot.streams.record import Entry
from folkmoot.streams.table import Stream, Streams
from folkmoot.topics.name import check_filter, matches

__all__ = ["CURSOR_STREAM", "ReplayFeed", "ReplayWish", "parse_replay"]

CURSOR_STREAM: Final = 1
_PAGE_BYTES: Final = 32_768
_USER_PROPERTY: Final = b"\x26"


class ReplayWish:
    """What a `$stream/...` filter asks for: a stream, an offset per stream partition, a filter; or an error."""

    def __init__(self, error: str) -> None:
        self.error = error
        self.stream: Stream | None = None
        self.offsets: list[int] = []
        self.topic_filter = b""


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
    _find_offsets(wish, wish.stream, parts[2].decode())
    return wish


def _find_offsets(wish: ReplayWish, stream: Stream, start: str) -> None:
    if start == "earliest":
        wish.offsets = [log.oldest for log in stream.logs]
    elif start == "latest":
        wish.offsets = [log.readable_end for log in stream.logs]
    elif start.isascii() and start.isdigit() and len(start) < 20:
        oldest = max([log.oldest for log in stream.logs])
        if int(start) < oldest:
            wish.error = f"offset {start} is gone: retention has removed what was before {oldest}"
        wish.offsets = [min(int(start), log.readable_end) for log in stream.logs]
    else:
        try:
            time = datetime.fromisoformat(start)
        except ValueError:
            wish.error = f"{start!r} is neither earliest, latest, an offset nor an RFC 3339 time"
            return
        if time.tzinfo is None:
            wish.error = f"the time {start!r} has no offset from UTC, such as Z"
            return
        time_us = int(time.timestamp() * 1_000_000)
        wish.offsets = [log.offset_at(time_us) for log in stream.logs]


class ReplayFeed(Feed):
    """Walks the partitions of a stream in turn, a page each."""

    def __init__(self, subscription: Subscription, token: int, stream: Stream, offsets: list[int]) -> None:
        super().__init__(subscription, token)
        self.stream = stream
        self.offsets = offsets
        self.turn = 0

    def page(self, feeds: Feeds) -> int:
        """Deliver the matching ones among the next records of the first partition that has some."""
        logs = self.stream.logs
        for _ in range(len(logs)):
            log = logs[self.turn]
            if self.offsets[self.turn] < log.readable_end:
                self.turn = (self.turn + 1) % len(logs)
                return MORE if self._read(feeds, log) else DONE
            self.turn = (self.turn + 1) % len(logs)
        return BLOCKED

    def _read(self, feeds: Feeds, log: StreamLog) -> bool:
        start = self.offsets[log.index]
        page = log.read(start, start + feeds.state.limits.page_rows, _PAGE_BYTES)
        if isinstance(page, OffsetGone):
            where = f"partition {log.index} of stream {self.stream.config.name}"
            feeds.fail(self, f"retention has overtaken the replay: {where} starts at {page.oldest}, wanted {start}")
            return False
        assert not isinstance(page, OffsetAhead), "a replay never reads beyond the readable end"
        at = start
        for chunk in page.chunks:
            for entry in decode_chunk(chunk, 0, start, page.next_offset):
                if entry.offset > start and not feeds.has_room(self.subscription.session):
                    break
                at = entry.offset + 1
                if matches(self.subscription.topic_filter, entry.record.topic):
                    feeds.deliver(self, _message_of(entry, log.index), entry.record.qos, False)
                    feeds.state.counters.stream_replayed += 1
        self.offsets[log.index] = at
        self.save(feeds)
        return True

    def save(self, feeds: Feeds) -> None:
        """Store the position."""
        session: Session = self.subscription.session
        if session.durable:
            key = cursor_key(session, self.subscription.name)
            feeds.state.writer.put(session.partition, key, encode_cursor(CursorRow(CURSOR_STREAM, self.offsets, b"")))


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
