"""Sending the retained messages that match a new subscription: complete, however many they are (A8).

MQTT 5 sections 3.3.1.3, 3.8.3.1. The feed walks the retained rows of all partitions. A row that was written after the
subscription was made is left out: that message has been delivered as a live one.
"""

from __future__ import annotations

from folkmoot.broker.backlog import rows_per_page
from folkmoot.broker.feed import DONE, MORE, Feed, Feeds, cursor_key
from folkmoot.broker.retained import Retained
from folkmoot.broker.state import State
from folkmoot.session.subscription import NO_LOCAL, Subscription
from folkmoot.store.key import RETAINED, end_of, plain_key, plain_name_of
from folkmoot.store.message import decode_message
from folkmoot.store.row import CursorRow, encode_cursor
from folkmoot.store.writer import VERSION_BYTES, version_of
from folkmoot.topics.name import filter_prefix, has_wildcard, matches

__all__ = ["CURSOR_RETAINED", "RetainedFeed", "maybe_retained_feed"]

CURSOR_RETAINED = 0
_ALL = (1 << 62) - 1  # bound of a partition that another node leads: what came live is not known here
_SCANS_PER_PAGE = 16  # partitions looked at in one turn: most have few rows that a filter can match


class RetainedFeed(Feed):
    """Walks the retained rows: partition by partition, from `key` on; `epoch` and `bounds` say what is live already."""

    def __init__(
        self,
        subscription: Subscription,
        token: int,
        retained: Retained,
        epoch: int,
        bounds: list[int],
        partition: int,
        key: bytes,
    ) -> None:
        super().__init__(subscription, token)
        self.retained = retained
        self.epoch = epoch
        self.bounds = bounds
        self.partition = partition
        self.key = key
        self.prefix = filter_prefix(subscription.topic_filter)
        self.exact = not has_wildcard(subscription.topic_filter)

    def page(self, feeds: Feeds) -> int:
        """Deliver the matching ones among the next rows; partitions may have few or none of them."""
        state = feeds.state
        if self.exact:
            self.partition = state.partition_of(self.subscription.topic_filter)
        counters = state.counters
        left = rows_per_page(state.limits.page_rows, counters.retained_messages, counters.retained_bytes)
        for _ in range(_SCANS_PER_PAGE):
            self._skip_empty(state.partitions)
            if self.partition >= state.partitions:
                return DONE
            start = plain_key(self.partition, RETAINED, self.prefix)
            end = start + b"\0" if self.exact else end_of(start)
            rows = state.reader.scan(max(start, self.key), end, left)
            if not self._rows(feeds, rows):
                break
            if len(rows) == left:
                self.key = rows[-1][0] + b"\0"
                break
            if self.exact:
                return DONE
            left -= len(rows)
            self.partition += 1
            self.key = b""
        self.save(feeds)
        return MORE

    def _rows(self, feeds: Feeds, rows: list[tuple[bytes, bytes]]) -> bool:
        """Deliver rows while the session takes them; False when it does not take all."""
        session = self.subscription.session
        for key, value in rows:
            if not feeds.has_room(session):
                self.key = key
                return False
            self._row(feeds, key, value)
        return True

    def _skip_empty(self, partitions: int) -> None:
        while self.partition < partitions and not self.retained.may_have(self.partition):
            self.partition += 1
            self.key = b""

    def _row(self, feeds: Feeds, key: bytes, value: bytes) -> None:
        epoch, sequence = version_of(value)
        bound = self.bounds[self.partition]
        if bound != _ALL and (epoch > self.epoch or (epoch == self.epoch and sequence > bound)):
            return
        topic = plain_name_of(key)
        if not matches(self.subscription.topic_filter, topic):
            return
        if bound != _ALL and self.retained.has_changed(topic, self.epoch, bound):
            return  # what is newer has been delivered as a live one, and must not be followed by what it replaced
        message = decode_message(value, VERSION_BYTES)
        if message.expires_us and message.expires_us <= feeds.state.now:
            self.retained.expire(message)
            return
        subscription = self.subscription
        if subscription.options & NO_LOCAL and message.publisher == subscription.session.client_id:
            return  # [MQTT-3.8.3-3] makes no exception for retained messages
        feeds.deliver(self, message, message.qos, True)  # [MQTT-3.3.1-8]
        feeds.state.counters.retained_sent += 1

    def save(self, feeds: Feeds) -> None:
        """Store the position."""
        session = self.subscription.session
        if session.durable:
            row = CursorRow(CURSOR_RETAINED, [self.epoch, self.partition, *self.bounds], self.key)
            key = cursor_key(session, self.subscription.name)
            feeds.state.writer.put(session.partition, key, encode_cursor(row))


def _may_match(state: State, retained: Retained, topic_filter: bytes) -> bool:
    if not has_wildcard(topic_filter):
        return retained.may_have(state.partition_of(topic_filter))
    if state.alone:
        return state.counters.retained_messages > 0
    for partition in range(state.partitions):
        if retained.may_have(partition):
            return True
    return False


def maybe_retained_feed(subscription: Subscription, feeds: Feeds, retained: Retained) -> RetainedFeed | None:
    """Return a feed for a new subscription, or None when there cannot be a retained message for it."""
    state = feeds.state
    topic_filter = subscription.topic_filter
    if not _may_match(state, retained, topic_filter):
        return None
    writer = state.writer
    writer.split()  # what is published later in this very turn must have a later version
    bounds = [writer.sequence(partition) if state.leads[partition] else _ALL for partition in range(state.partitions)]
    token = feeds.commits.newest_token()
    return RetainedFeed(subscription, token, retained, writer.epoch, bounds, 0, b"")
