"""Sending the retained messages that match a new subscription: completely, however many there are (A8).

MQTT 5 sections 3.3.1.3, 3.8.3.1. The feed reads the retained rows of all partitions page by page: in the store, where
this node has a complete copy, else from their leaders. It leaves out topics that were delivered live in the meantime.
"""

from __future__ import annotations

from folkmoot.feed.feed import DONE, LANDING, MORE, WAITING, Feed, Feeds, cursor_key
from folkmoot.kernel.errors import CorruptStore
from folkmoot.partition.retained import TO_TRANSIENT, Retained
from folkmoot.query.inquiry import Inquiries, Inquiry
from folkmoot.query.question import FOUND, SCAN, Scanned
from folkmoot.session.subscription import Subscription
from folkmoot.store.key import RETAINED, plain_key
from folkmoot.store.message import Message, decode_message
from folkmoot.store.row import CursorRow, encode_cursor
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.topics.name import has_wildcard, matches
from folkmoot.turn.work import DELIVERY_STEPS, ROW_STEPS

__all__ = ["CURSOR_RETAINED", "RetainedFeed", "maybe_retained_feed"]

CURSOR_RETAINED = 0
_LIVE_MAX = 256  # topics; beyond it, after a crash, the oldest may come once more as retained
_SCANS_PER_PAGE = 16  # partitions read in one turn: most have few rows that a filter can match
_PAGES_PER_TURN = 4  # of `page_rows` rows, from several partitions: about two milliseconds


class _Found:
    """Messages of one partition, from another node."""

    def __init__(self, scanned: Scanned) -> None:
        self.scanned = scanned
        self.messages = [decode_message(value, 0) for value in scanned.messages]


class _Left:
    """Partitions that are not read yet, one of them the first: bits, because a feed may be parked for long."""

    def __init__(self, partitions: list[int]) -> None:
        self._first = partitions[0] if partitions else -1
        self._bits = 0
        for partition in partitions:
            self._bits |= 1 << partition

    def is_empty(self) -> bool:
        return self._bits == 0

    def has(self, partition: int) -> bool:
        return self._bits >> partition & 1 != 0

    def first(self) -> int:
        """Return the partition that is read next; there is one."""
        if self._first < 0 or not self.has(self._first):
            self._first = (self._bits & -self._bits).bit_length() - 1
        return self._first

    def all(self) -> list[int]:
        """Return the partitions, the first one first."""
        if not self._bits:
            return []
        first = self.first()
        others = self._bits & ~(1 << first)
        return [first, *[one for one in range(others.bit_length()) if others >> one & 1]]

    def begin_with(self, partition: int) -> None:
        self._bits |= 1 << partition
        self._first = partition

    def take_out(self, partition: int) -> None:
        self._bits &= ~(1 << partition)


class RetainedFeed(Feed):
    """Reads the retained rows of the partitions in `left`, of the first of them from `key` on.

    A partition that is read in part stays the first, so that it is finished before others begin. While no node can lead
    it, the others come before it, and it goes on from its place in `keys` later. A stored position has the place of the
    first partition alone: in another one the next leader of the session begins anew.
    """

    def __init__(self, subscription: Subscription, token: int, retained: Retained, left: list[int], key: bytes) -> None:
        super().__init__(subscription, token)
        self.retained = retained
        self.left = _Left(left)
        self.keys: dict[int, bytes] = {left[0]: key} if key and left else {}  # where partitions go on
        self.returns = 0  # of partitions without a leader, see `turn.landing`
        self.since = 0
        self.live: dict[bytes, None] = {}  # topics of which a newer message was delivered, as stored in the row
        self._feeds: Feeds | None = None
        self._inquiry: Inquiry | None = None
        self._found: list[_Found] = []  # from an answer, not delivered yet
        self._fault = ""

    def begin(self, feeds: Feeds) -> None:
        """Begin to note live messages, and wait until what was published before is where it will be read (A8)."""
        self._feeds = feeds
        self._join(feeds)
        self.since = self.retained.begin()

    def _join(self, feeds: Feeds) -> None:
        self.returns = feeds.landings.returns
        self.landing = feeds.landings.join()

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
        if self.returns != feeds.landings.returns:
            self._join(feeds)
            return LANDING
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
        if self.left.is_empty():
            return DONE
        self.save(feeds)
        return MORE

    def _look(self, feeds: Feeds) -> int:
        """Finish the first partition, or read those of this node, then ask for the others."""
        if self.left.is_empty():
            return DONE
        inquiries = feeds.inquiries
        first = self.left.first()
        if first in self.keys:
            if self._is_here(feeds, first):
                self._read(feeds, [first])
                return MORE
            if inquiries.fabric.leaders[first]:
                return self._ask(inquiries, first)
        left = self.left.all()
        here = [partition for partition in left if self._is_here(feeds, partition)]
        if here:
            self._read(feeds, here)
            return MORE
        for partition in left:
            if inquiries.may_ask(partition):
                return self._ask(inquiries, partition)
        return self._ask(inquiries, first)

    def _is_here(self, feeds: Feeds, partition: int) -> bool:
        """Whether this node has all rows of a partition."""
        return feeds.state.leads[partition] or feeds.inquiries.fabric.holds[partition]

    def _ask(self, inquiries: Inquiries, first: int) -> int:
        """Ask the leader of a partition, and for what else it leads: the key in the question is that of the first."""
        if not inquiries.may_ask(first):
            inquiries.wait(self)
            return WAITING
        leaders = inquiries.fabric.leaders
        leader = leaders[first]
        whole = [one for one in self.left.all() if one != first and one not in self.keys]
        partitions = [first, *[one for one in whole if leaders[one] == leader and inquiries.may_ask(one)]]
        key = self.keys.get(first, b"")
        self._inquiry = inquiries.ask(self, first, SCAN, self.subscription.topic_filter, partitions, key)
        return WAITING

    # -- rows of this node --------------------------------------------------------------------------------------------

    def _read(self, feeds: Feeds, partitions: list[int]) -> None:
        """Deliver a page from the store of this node."""
        scans = _SCANS_PER_PAGE
        rows_left = _PAGES_PER_TURN * feeds.state.limits.page_rows
        for partition in partitions:
            if self.retained.may_have(partition):
                if not scans or rows_left <= 0:
                    return
                scans -= 1
                rows_max = self.retained.rows_at_once(partition)
                key = self.keys.get(partition, b"")
                rows = self.retained.read(partition, self.subscription.topic_filter, key, rows_max)
                feeds.state.work.steps += ROW_STEPS + DELIVERY_STEPS * len(rows)
                for row_key, value in rows:
                    if not feeds.has_room(self.subscription.session):
                        self._go_on(partition, row_key)
                        return
                    self._row(feeds, decode_message(value, VERSION_BYTES))
                rows_left -= len(rows)
                if len(rows) == rows_max:
                    self._go_on(partition, rows[-1][0] + b"\0")
                    return
            self._done(partition)

    def _go_on(self, partition: int, key: bytes) -> None:
        """Set the start of the next page: this partition, this key."""
        self.left.begin_with(partition)
        self.keys[partition] = key

    def _done(self, partition: int) -> None:
        self.left.take_out(partition)
        self.keys.pop(partition, None)

    # -- rows of other nodes ------------------------------------------------------------------------------------------

    def _deliver(self, feeds: Feeds, found: list[_Found]) -> None:
        """Deliver messages from another node, as far as the session takes them."""
        for part in found:
            scanned = part.scanned
            if not self.left.has(scanned.partition):
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
        sessions = session.partition if session.persistent else TO_TRANSIENT
        if message.topic in self.live or self.retained.has_come(sessions, message.topic, self.since):
            return
        if feeds.state.has_expired(message.expires_us):  # [MQTT-3.3.2-5]
            self.retained.expire(message)
            return
        if subscription.as_recipient().terms_for(message.publisher == session.client_id) is None:
            return  # [MQTT-3.8.3-3] makes no exception for retained messages
        feeds.deliver(self, message, message.qos, True)  # [MQTT-3.3.1-8]
        feeds.state.counters.retained_sent += 1

    def pass_over(self, feeds: Feeds, live: list[tuple[int, bytes]]) -> None:
        """Remember live messages in the same change as their delivery."""
        session = self.subscription.session
        if not session.persistent or session.ended:
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
        if session.persistent:
            left = self.left.all()
            row = CursorRow(CURSOR_RETAINED, left, self.keys.get(left[0], b"") if left else b"")
            row.live = list(self.live)
            key = cursor_key(session, self.subscription.name)
            feeds.state.writer.put(session.partition, key, encode_cursor(row))


def maybe_retained_feed(subscription: Subscription, feeds: Feeds, retained: Retained) -> RetainedFeed | None:
    """Return a feed for a new subscription, or None when there cannot be a retained message for it.

    In a cluster there may always be one: a message that another node has published may be under way.
    """
    state = feeds.state
    topic_filter = subscription.topic_filter
    if state.alone and not state.counters.retained_messages:
        return None
    left = list(range(state.partitions)) if has_wildcard(topic_filter) else [state.partition_of(topic_filter)]
    if state.alone:
        left = [partition for partition in left if retained.may_have(partition)]
    return RetainedFeed(subscription, feeds.commits.newest_token(), retained, left, b"") if left else None
