"""Retained messages: the newest per topic, as rows of the topic's partition (MQTT 5 section 3.3.1.3).

Writing them is here; sending them to new subscriptions, page by page, is `feed`.
"""

from __future__ import annotations

from folkmoot.broker.state import State
from folkmoot.store.key import RETAINED, plain_key
from folkmoot.store.message import Message, decode_message, encode_message
from folkmoot.store.writer import VERSION_BYTES

__all__ = ["Retained"]


class Retained:
    """The retained messages of the partitions that this node leads."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.counts: list[int] = [0] * state.partitions  # rows per partition: scans skip the empty ones
        self._fresh: dict[
            bytes, int
        ] = {}  # topics written by batches on their way: bytes of the message, or -1 for none

    def set(self, message: Message) -> bool:
        """Keep or clear the message of its topic; False when the limit on retained messages refuses a new topic."""
        topic = message.topic
        partition = self.state.partition_of(topic)
        before = self._size_of(partition, topic)
        counters = self.state.counters
        if not message.payload:  # [MQTT-3.3.1-6] [MQTT-3.3.1-7] an empty payload clears
            if before >= 0:
                self.state.writer.delete(partition, plain_key(partition, RETAINED, topic))
                self._fresh[topic] = -1
                self.counts[partition] -= 1
                counters.retained_messages -= 1
                counters.retained_bytes -= before
            return True
        if before < 0:
            if counters.retained_messages >= self.state.limits.retained_messages_max:
                return False
            self.counts[partition] += 1
            counters.retained_messages += 1
            before = 0
        self.state.writer.put(partition, plain_key(partition, RETAINED, topic), encode_message(message))
        self._fresh[topic] = message.size
        counters.retained_bytes += message.size - before
        return True

    def _size_of(self, partition: int, topic: bytes) -> int:
        fresh = self._fresh.get(topic)
        if fresh is not None:
            return fresh
        if not self.counts[partition]:
            return -1
        value = self.state.reader.get(plain_key(partition, RETAINED, topic))
        return -1 if value is None else decode_message(value, VERSION_BYTES).size

    def settle(self) -> None:
        """Everything written is durable: the store knows it all."""
        if self._fresh:
            self._fresh.clear()

    def expire(self, message: Message) -> None:
        """Remove a retained message whose expiry has passed, if it is still the one that was read."""
        if message.topic in self._fresh:
            return
        partition = self.state.partition_of(message.topic)
        self.state.writer.delete(partition, plain_key(partition, RETAINED, message.topic))
        self._fresh[message.topic] = -1
        self.counts[partition] -= 1
        self.state.counters.retained_messages -= 1
        self.state.counters.retained_bytes -= message.size
        self.state.counters.dropped_expired += 1

    def is_empty(self) -> bool:
        """Whether no topic has a retained message."""
        return self.state.counters.retained_messages == 0
