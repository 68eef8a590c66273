"""The window between a publisher and its subscribers.

Decides how many messages are sent now. Never touches bytes.
"""

from __future__ import annotations

from collections import deque

from folkmoot.client.loadloop import Deferred
from folkmoot.client.loadpublisher import Publisher
from folkmoot.client.loadsubscriber import Subscriber

__all__ = ["Route"]


class Route(Deferred):
    """A publisher, its subscribers and the window between them.

    A message is outstanding until the publisher has its acknowledgement and every subscriber has the message. On a
    `paced` route, messages are published when they are due, and wait in `backlog` with the time when they became due.
    """

    def __init__(self, publisher: Publisher, subscribers: list[Subscriber], window: int, *, paced: bool) -> None:
        self.publisher = publisher
        self.window = window
        self.paced = paced
        self.backlog: deque[tuple[int, int]] = deque()
        self.counts = [0] * len(subscribers)
        self.low = 0
        self.deferred = False
        publisher.on_acked = self.defer
        for slot, subscriber in enumerate(subscribers):
            subscriber.slot = slot
            subscriber.takers.append(self.take)

    def take(self, slot: int, count: int) -> None:
        """Count messages of this route that a subscriber has received."""
        counts = self.counts
        before = counts[slot]
        counts[slot] = before + count
        # Only the slowest subscriber can move the window.
        if before == self.low:
            self.low = min(counts) if len(counts) > 1 else before + count
            if self.low != before:
                self.defer()

    def defer(self) -> None:
        """Fill the window at the end of the turn, with one write for all chunks of the turn."""
        if not self.deferred:
            self.deferred = True
            self.publisher.loop.deferred.append(self)

    def settle(self) -> None:
        """Fill the window now."""
        self.deferred = False
        self.fill()

    def due(self, stamp_ns: int, count: int) -> None:
        """Add messages of a paced route that became due at `stamp_ns`."""
        self.backlog.append((stamp_ns, count))
        self.fill()

    def fill(self) -> None:
        """Publish as many messages as the window and the limit allow."""
        publisher = self.publisher
        sent = publisher.sent
        done = self.low
        if publisher.qos and publisher.acked < done:
            done = publisher.acked
        free = self.window - sent + done
        if free > publisher.limit - sent:
            free = publisher.limit - sent
        if free <= 0:
            return
        if not self.paced:
            publisher.publish(free)
            return
        while free > 0 and self.backlog:
            stamp_ns, count = self.backlog.popleft()
            if count > free:
                self.backlog.appendleft((stamp_ns, count - free))
                count = free
            publisher.publish(count, stamp_ns)
            free -= count

    @property
    def outstanding(self) -> int:
        """The number of messages that are not acknowledged, or not received by every subscriber."""
        publisher = self.publisher
        done = min(self.low, publisher.acked) if publisher.qos else self.low
        return publisher.sent - done
