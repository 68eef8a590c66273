"""Which cached topics a changed filter may match, found without a walk over all of them.

A subscription to `devices/17/#` concerns the topics below `devices/17` and no others: a storm of such subscriptions
must not make the node compute a hundred thousand routes anew. Owns no routes.
"""

from __future__ import annotations

from typing import Final

__all__ = ["TopicIndex"]

_FREED_PER_TOPIC: Final = 8


class TopicIndex:
    """Topics by their first two levels."""

    def __init__(self) -> None:
        self._topics: dict[bytes, dict[bytes, None]] = {}
        self._stale: list[dict[bytes, dict[bytes, None]]] = []  # cleared topics, freed a few at a time

    def add(self, topic: bytes) -> None:
        """Add a topic."""
        if self._stale:
            self._free()
        head = _head_of(topic)
        topics = self._topics.get(head)
        if topics is None:
            self._topics[head] = {topic: None}
        else:
            topics[topic] = None

    def remove(self, topic: bytes) -> None:
        """Remove a topic, if it is known."""
        head = _head_of(topic)
        topics = self._topics.get(head)
        if topics is not None and topic in topics:
            del topics[topic]
            if not topics:
                del self._topics[head]

    def take(self, topic_filter: bytes) -> list[bytes] | None:
        """Take out the topics that a filter with a wildcard may match; None: possibly all, call `clear`."""
        wildcard = _first_wildcard(topic_filter)
        second = topic_filter.find(b"/", topic_filter.find(b"/") + 1)
        if not 0 < second < wildcard:  # a wildcard among the first two levels, or `a/#`, which matches `a` as well
            return None
        topics = self._topics.pop(topic_filter[:second], None)
        return [] if topics is None else list(topics)

    def clear(self) -> None:
        """Remove all topics."""
        if self._topics:
            self._stale.append(self._topics)
            self._topics = {}

    def _free(self) -> None:
        """Free a few cleared topics: more than one per added topic, so that they do not pile up."""
        old = self._stale[-1]
        for _ in range(min(_FREED_PER_TOPIC, len(old))):
            old.popitem()
        if not old:
            self._stale.pop()

    def __len__(self) -> int:
        return sum([len(topics) for topics in self._topics.values()])


def _head_of(topic: bytes) -> bytes:
    first = topic.find(b"/")
    if first < 0:
        return topic
    second = topic.find(b"/", first + 1)
    return topic if second < 0 else topic[:second]


def _first_wildcard(topic_filter: bytes) -> int:
    plus = topic_filter.find(b"+")
    sharp = topic_filter.find(b"#")
    if plus < 0:
        return sharp
    return plus if sharp < 0 else min(plus, sharp)
