"""Sending the retained messages that match a new subscription: completely, however many there are (A8).

MQTT 5 sections 3.3.1.3, 3.8.3.1. The feed reads the retained rows of all partitions page by page: in the store, where
this node has a complete copy, else from their leaders. It leaves out topics that were delivered live in the meantime.
"""

from __future__ import annotations

from folkmoot.feed.feed import DONE, MORE, WAITING, Feed, Feeds, cursor_key
from folkmoot.kernel.errors import CorruptStore
from folkmoot.partition.retained import TO_TRANSIENT, Retained
from folkmoot.query.inquiry import Inquiry
from folkmoot.query.question import FOUND, SCAN, Scanned
from folkmoot.session.subscription import Subscription
from folkmoot.store.key import RETAINED, plain_key
from folkmoot.store.message import Message, decode_message
from folkmoot.store.row import CursorRow, encode_cursor
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.topics.name import has_wildcard, matches

__all__ = ["CURSOR_RETAINED", "RetainedFeed", "maybe_retained_feed"]

CURSOR_RETAINED = 0
_LIVE_MAX = 256  # topics; beyond it, after a crash, the oldest may come once more as retained
_SCANS_PER_PAGE = 16  # partitions read in one turn: most have few rows that a filter can match


class _Found:
    """Messages of one partition, from another node."""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.messages = [decode_message(value, 0) for value in scanned.messages]


class RetainedFeed(Feed):
    """Reads the retained rows of the partitions in `left`, of the first of them from `key` on."""

    def __init__(self, subscription: Subscription, token: int, retained: Retained, left: list[int], key: bytes) -> None:
        super().__init__(subscription, token)
        self.retained = retained
        self.left: dict[int, None] = dict.fromkeys(left)
        self.key = key
        self.since = 0
        self.live: dict[bytes, None] = {}  # topics of which a newer message was delivered, as stored in the row
        self._feeds: Feeds | None = None
        self._inquiry: Inquiry | None = None
        self._found: list[_Found] = []  # from an answer, not delivered yet
        self._fault = ""

    def begin(self, feeds: Feeds) -> None:
        """Begin to note live messages."""
        self._feeds = feeds
        self.since = self.retained.begin()

    def end(self) -> None:
        """Drop the open questions."""
        self.retained.end()
        if self._inquiry is not None and self._feeds is not None:
            self._feeds.inquiries.drop(self._inquiry)
            self._inquiry = None

    def rest(self) -> None:
        """Free the page: it is asked for again when the session takes messages."""
        self._found = []

    def heard(self, inquiry: Inquiry) -> None:
        """Take a page of another node. Raises CorruptStore if it is malformed."""
        answer = inquiry.answer
        self._inquiry = None
        if answer is not None:
            if answer.status == FOUND:
                self._found = [_Found(part) for part in answer.scanned]
            else:
                self._fault = answer.text
            self._wake()

    def again(self) -> None:
        """Ask the present leaders."""
        self._inquiry = None
        self._wake()

    def _wake(self) -> None:
        assert self._feeds is not None, "a feed that asks has begun"
        self._feeds.wake(self)

    def page(self, feeds: Feeds) -> int:
        """Deliver the matching ones of the next rows; partitions may have few or none. Raises CorruptStore."""
        if self._fault:
            fault = self._fault
            self._fault = ""
            raise CorruptStore(f"retained messages cannot be read: {fault}")
        if self._found:
            found = self._found
            self._found = []
            self._deliver(feeds, found)
        elif self._inquiry is not None:
            return WAITING
        else:
            result = self._look(feeds)
            if result != MORE:
                return result
        if not self.left:
            return DONE
        self.save(feeds)
        return MORE

    def _look(self, feeds: Feeds) -> int:
        """Read the partitions of this node, then ask for the others."""
        fabric = feeds.inquiries.fabric
        leads = feeds.state.leads
        if not self.key:
            here = [partition for partition in self.left if leads[partition] or fabric.holds[partition]]
            if here:
                self._read(feeds, here)
                return MORE
        if not self.left:
            return DONE
        first = next(iter(self.left))
        if self.key:
            if leads[first] or fabric.holds[first]:
                self._read(feeds, [first])
                return MORE
            return self._ask(feeds, first)
        for partition in self.left:
            if feeds.inquiries.may_ask(partition):
                return self._ask(feeds, partition)
        return self._ask(feeds, first)

    def _ask(self, feeds: Feeds, first: int) -> int:
        inquiries = feeds.inquiries
        if not inquiries.may_ask(first):
            inquiries.wait(self)
            return WAITING
        leaders = inquiries.fabric.leaders
        leader = leaders[first]
        partitions = [first]
        partitions += [one for one in self.left if one != first and leaders[one] == leader and inquiries.may_ask(one)]
        self._inquiry = inquiries.ask(self, first, SCAN, self.subscription.topic_filter, partitions, self.key)
        return WAITING

    # -- rows of this node --------------------------------------------------------------------------------------------

    def _read(self, feeds: Feeds, partitions: list[int]) -> None:
        """Deliver a page from the store of this node."""
        scans = _SCANS_PER_PAGE
        for partition in partitions:
            if self.retained.may_have(partition):
                if not scans:
                    return
                scans -= 1
                rows_max = self.retained.rows_at_once(partition)
                rows = self.retained.read(partition, self.subscription.topic_filter, self.key, rows_max)
                for key, value in rows:
                    if not feeds.has_room(self.subscription.session):
                        self._go_on(partition, key)
                        return
                    self._row(feeds, decode_message(value, VERSION_BYTES))
                if len(rows) == rows_max:
                    self._go_on(partition, rows[-1][0] + b"\0")
                    return
            self._done(partition)

    def _go_on(self, partition: int, key: bytes) -> None:
        """Set the start of the next page: this partition, this key."""
        if next(iter(self.left)) != partition:
            self.left = dict.fromkeys([partition, *self.left])
        self.key = key

    def _done(self, partition: int) -> None:
        self.left.pop(partition, None)
        self.key = b""

    # -- rows of other nodes ------------------------------------------------------------------------------------------

    def _deliver(self, feeds: Feeds, found: list[_Found]) -> None:
        """Deliver messages from another node, as far as the session takes them."""
        for part in found:
            scanned = part.scanned
            if scanned.partition not in self.left:
                continue
            for message in part.messages:
                if not feeds.has_room(self.subscription.session):
                    self._go_on(scanned.partition, plain_key(scanned.partition, RETAINED, message.topic))
                    return
                self._row(feeds, message)
            if not scanned.done:
                self._go_on(scanned.partition, scanned.key)
                return
            self._done(scanned.partition)

    def _row(self, feeds: Feeds, message: Message) -> None:
        subscription = self.subscription
        session = subscription.session
        if not matches(subscription.topic_filter, message.topic):
            return
        sessions = session.partition if session.durable else TO_TRANSIENT
        if message.topic in self.live or self.retained.has_come(sessions, message.topic, self.since):
            return
        if message.expires_us and message.expires_us <= feeds.state.clock.expiry_time:
            self.retained.expire(message)
            return
        if subscription.as_recipient().terms_for(message.publisher == session.client_id) is None:
            return  # [MQTT-3.8.3-3] makes no exception for retained messages
        feeds.deliver(self, message, message.qos, True)  # [MQTT-3.3.1-8]
        feeds.state.counters.retained_sent += 1

    def pass_over(self, feeds: Feeds, live: list[tuple[int, bytes]]) -> None:
        """Remember live messages in the same change as their delivery."""
        session = self.subscription.session
        if not session.durable or session.ended:
            return
        topic_filter = self.subscription.topic_filter
        topics = [topic for partition, topic in live if partition == session.partition and matches(topic_filter, topic)]
        for topic in topics:
            self.live.pop(topic, None)
            if len(self.live) >= _LIVE_MAX:
                del self.live[next(iter(self.live))]
            self.live[topic] = None
        if topics:
            self.save(feeds)

    def save(self, feeds: Feeds) -> None:
        """Store the position."""
        session = self.subscription.session
        if session.durable:
            row = CursorRow(CURSOR_RETAINED, list(self.left), self.key)
            row.live = list(self.live)
            key = cursor_key(session, self.subscription.name)
            feeds.state.writer.put(session.partition, key, encode_cursor(row))


def maybe_retained_feed(subscription: Subscription, feeds: Feeds, retained: Retained) -> RetainedFeed | None:
    """Return a feed for a new subscription, or None when there cannot be a retained message for it."""
    state = feeds.state
    topic_filter = subscription.topic_filter
    if has_wildcard(topic_filter):
        if state.alone and not state.counters.retained_messages:
            return None
        left = [partition for partition in range(state.partitions) if retained.may_have(partition)]
    else:
        left = [state.partition_of(topic_filter)]
        if not retained.may_have(left[0]):
            return None
    return RetainedFeed(subscription, feeds.commits.newest_token(), retained, left, b"") if left else None
