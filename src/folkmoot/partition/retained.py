"""Retained messages: the newest per topic, as rows of the topic's partition (MQTT 5 section 3.3.1.3).

Writes them; `retained_feed` sends them to new subscriptions, page by page.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR
from folkmoot.partition.backlog import rows_per_page
from folkmoot.store.key import RETAINED, end_of, plain_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.topics.name import filter_prefix, has_wildcard
from folkmoot.turn.state import State

__all__ = ["TO_TRANSIENT", "Retained"]

TO_TRANSIENT: Final = -1  # in place of a partition: to the transient sessions of this node

_LIVE_MAX: Final = 16_384  # topics; beyond it, the oldest may come once more as retained
_ROWS_ELSEWHERE: Final = 32  # at once, where their size is unknown


class _Change:
    """A retained row after a batch that is not durable yet: the token, bytes of the message or -1."""

    def __init__(self, topic: bytes, token: int, size: int) -> None:
        self.topic = topic
        self.token = token
        self.size = size


class Retained:
    """The retained messages of the partitions that this node leads."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.counts: list[int] = [0] * state.partitions  # rows per partition: scans skip the empty ones
        self.sizes: list[int] = [0] * state.partitions  # bytes of their messages
        # Changes of batches that the store does not show yet: newest per topic, and all in order
        self._fresh: dict[bytes, _Change] = {}
        self._changes: deque[_Change] = deque()
        self._feeds = 0  # that run
        self._live: dict[tuple[int, bytes], int] = {}  # by sessions and topic: messages that came live while feeds run
        self._live_count = 0
        self.news: list[tuple[int, bytes]] = []  # live messages of this turn, for the feeds

    def set(self, message: Message) -> bool:
        """Set or clear the message of its topic; False when the limit on retained messages refuses a new topic."""
        topic = message.topic
        partition = self.state.partition_of(topic)
        before = self._size_of(partition, topic)
        counters = self.state.counters
        if not message.payload:  # [MQTT-3.3.1-6] [MQTT-3.3.1-7] an empty payload clears
            if before >= 0:
                self.state.writer.delete(partition, plain_key(partition, RETAINED, topic))
                self._note(topic, -1)
                self.counts[partition] -= 1
                counters.retained_messages -= 1
                counters.retained_bytes -= before
                self.sizes[partition] -= before
            return True
        if before < 0:
            if counters.retained_messages >= self.state.limits.retained_messages_max:
                return False
            self.counts[partition] += 1
            counters.retained_messages += 1
            before = 0
        self.state.writer.put(partition, plain_key(partition, RETAINED, topic), encode_message(message))
        self._note(topic, message.size)
        counters.retained_bytes += message.size - before
        self.sizes[partition] += message.size - before
        return True

    def _size_of(self, partition: int, topic: bytes) -> int:
        fresh = self._fresh.get(topic)
        if fresh is not None:
            return fresh.size
        if not self.counts[partition]:
            return -1
        try:
            value = self.state.reader.get(plain_key(partition, RETAINED, topic))
            return -1 if value is None else decode_message(value, VERSION_BYTES).size
        except CorruptStore as fault:  # it is replaced, so nobody has to repair it first
            self.state.event(ERROR, "corrupt_store", {"what": str(fault)})
            return 0

    def _note(self, topic: bytes, size: int) -> None:
        change = _Change(topic, self.state.writer.token, size)
        self._fresh[topic] = change
        self._changes.append(change)

    def written(self, durable_token: int) -> None:
        """The batches up to this one are durable: the store shows their changes."""
        changes = self._changes
        while changes and changes[0].token <= durable_token:
            change = changes.popleft()
            if self._fresh.get(change.topic) is change:
                del self._fresh[change.topic]

    def has_room(self, message: Message) -> bool:
        """Whether the limit on retained messages allows this one."""
        if not message.payload or self.state.counters.retained_messages < self.state.limits.retained_messages_max:
            return True
        return self._size_of(self.state.partition_of(message.topic), message.topic) >= 0

    def expire(self, message: Message) -> None:
        """Remove an expired retained message, if it is still the one that was read."""
        if message.topic in self._fresh:
            return
        partition = self.state.partition_of(message.topic)
        if not self.state.leads[partition]:
            return  # its leader removes it
        self.state.writer.delete(partition, plain_key(partition, RETAINED, message.topic))
        self._note(message.topic, -1)
        self.counts[partition] -= 1
        self.state.counters.retained_messages -= 1
        self.state.counters.retained_bytes -= message.size
        self.sizes[partition] -= message.size
        self.state.counters.dropped_expired += 1

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, partition: int, topic_filter: bytes, key: bytes, rows_max: int) -> list[tuple[bytes, bytes]]:
        """Return the next rows of a partition that may match, from `key` on: at most `rows_max` and about a page."""
        start = plain_key(partition, RETAINED, filter_prefix(topic_filter))
        end = end_of(start) if has_wildcard(topic_filter) else start + b"\0"
        return self.state.reader.scan(max(start, key), end, rows_max)

    def rows_at_once(self, partition: int) -> int:
        """Return how many rows of a partition make about a page."""
        page_rows = self.state.limits.page_rows
        if not self.state.leads[partition]:
            return min(page_rows, _ROWS_ELSEWHERE)
        return rows_per_page(page_rows, self.counts[partition], self.sizes[partition])

    # After a live message, a new subscriber must get neither the message that it replaced nor itself once more. Row and
    # live message come from different nodes, so no number orders them: live messages are remembered.

    def begin(self) -> int:
        """Begin a feed: return the number of live messages until now."""
        self._feeds += 1
        return self._live_count

    def end(self) -> None:
        """End a feed."""
        self._feeds -= 1
        if not self._feeds:
            self._live.clear()

    def came(self, sessions: int, topic: bytes) -> None:
        """Note that a retained message was delivered: to the sessions of a partition led here, or TO_TRANSIENT."""
        if self._feeds:
            self._live_count += 1
            key = (sessions, topic)
            self._live.pop(key, None)
            if len(self._live) >= _LIVE_MAX:
                del self._live[next(iter(self._live))]
            self._live[key] = self._live_count
            if sessions >= 0:
                self.news.append(key)

    def has_come(self, sessions: int, topic: bytes, since: int) -> bool:
        """Whether a message on this topic was delivered to these sessions since the number `since`."""
        return self._live.get((sessions, topic), 0) > since

    # -- partitions move ----------------------------------------------------------------------------------------------

    def take(self, partition: int, count: int, size: int) -> None:
        """Begin to lead the partition, with so many messages and their bytes."""
        self.counts[partition] = count
        self.sizes[partition] = size
        self.state.counters.retained_messages += count
        self.state.counters.retained_bytes += size

    def forget(self, partition: int) -> None:
        """End the leadership of the partition."""
        self.state.counters.retained_messages -= self.counts[partition]
        self.state.counters.retained_bytes -= self.sizes[partition]
        self.counts[partition] = 0
        self.sizes[partition] = 0
        for topic in [topic for topic in self._fresh if self.state.partition_of(topic) == partition]:
            del self._fresh[topic]

    def may_have(self, partition: int) -> bool:
        """Whether a partition may have retained messages; nothing is known of those that other nodes lead."""
        return self.counts[partition] > 0 or not self.state.leads[partition]
