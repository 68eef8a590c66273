"""Feeds: what fills a session's queue page by page: retained messages for a new subscription, and replays of streams.

A feed continues only while the session takes what it got (flow control), and reads a bounded page at a time, so that
other clients do not notice. For persistent sessions its position is a row (CURSOR) that moves in the same batch as the
messages that it queued: after a crash it continues exactly there.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from typing import Final

from folkmoot.kernel.errors import CorruptStore
from folkmoot.partition.queue import Queue
from folkmoot.query.inquiry import Inquiries, Waiter
from folkmoot.query.tail import Tails
from folkmoot.session.connection import OPEN
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.key import CURSOR, name_prefix
from folkmoot.store.message import Message
from folkmoot.turn.commit import Commits
from folkmoot.turn.landing import Landings
from folkmoot.turn.state import State
from folkmoot.turn.work import DELIVERY_STEPS

__all__ = ["BLOCKED", "DONE", "LANDING", "MORE", "WAITING", "Feed", "Feeds", "cursor_key"]

MORE: Final = 0
BLOCKED: Final = 1
DONE: Final = 2
WAITING: Final = 3
LANDING: Final = 4

_PAGE_STEPS: Final = 64  # of a page, beside its rows and deliveries
_SAVED_MAX: Final = 16  # feeds of a session that store which live messages they must not repeat


def cursor_key(session: Session, name: bytes) -> bytes:
    """Return the key of the CURSOR row of a feed: one per session and filter."""
    return name_prefix(session.partition, CURSOR, session.key) + name


class Feed(Waiter):
    """A source of messages for one subscription.

    token: the batch after which the store shows all rows that it must read; landing: what must have landed before, see
    `folkmoot.turn.landing`; source: the packet that began it, see `folkmoot.turn.source`.
    """

    def __init__(self, subscription: Subscription, token: int) -> None:
        self.subscription = subscription
        self.token = token
        self.landing = 0
        self.source = b""

    @abstractmethod
    def begin(self, feeds: Feeds) -> None:
        """Start: the feed has been added to `feeds`."""

    @abstractmethod
    def end(self) -> None:
        """Stop: the feed has been removed."""

    @abstractmethod
    def page(self, feeds: Feeds) -> int:
        """Deliver one page.

        Return MORE, BLOCKED (nothing to read until something grows), WAITING (for another node), LANDING (until
        `landing` has landed) or DONE.
        """

    @abstractmethod
    def rest(self) -> None:
        """The session takes nothing for now: free the messages held for it."""

    def pass_over(self, feeds: Feeds, live: list[tuple[int, bytes]]) -> None:
        """Note topics delivered live to sessions of partitions; a new leader must know them too."""

    @abstractmethod
    def save(self, feeds: Feeds) -> None:
        """Store the position, if the session is persistent."""


class Rota:
    """Feeds that can run: the sessions take turns, and so do the feeds of each."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[str, OrderedDict[Feed, None]] = OrderedDict()  # by client id

    def add(self, feed: Feed) -> None:
        """Add a feed behind those of its session, and its session behind the others."""
        client_id = feed.subscription.session.client_id
        feeds = self._feeds.get(client_id)
        if feeds is None:
            feeds = OrderedDict()
            self._feeds[client_id] = feeds
        feeds[feed] = None

    def remove(self, feed: Feed) -> bool:
        """Remove a feed; return whether it was there."""
        client_id = feed.subscription.session.client_id
        feeds = self._feeds.get(client_id)
        if feeds is None or feed not in feeds:
            return False
        del feeds[feed]
        if not feeds:
            del self._feeds[client_id]
        return True

    def has(self, feed: Feed) -> bool:
        """Whether a feed is there."""
        feeds = self._feeds.get(feed.subscription.session.client_id)
        return feeds is not None and feed in feeds

    def take(self) -> Feed:
        """Take out the next feed; there must be one."""
        client_id, feeds = self._feeds.popitem(last=False)
        feed, _ = feeds.popitem(last=False)
        if feeds:
            self._feeds[client_id] = feeds
        return feed

    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._feeds

    def __len__(self) -> int:
        return sum([len(feeds) for feeds in self._feeds.values()])


class Feeds:
    """All feeds of the node, at most one per subscription.

    Each is in one place: `fresh` until its batch is committed, `landing` until what it must read has landed, `active`
    while it runs, `parked` until its session takes more, `tailing` at the end of its stream, `waiting` for an answer of
    another node. Any feed can be removed from the first three queues at once: so a client that subscribes and
    unsubscribes at will leaves nothing behind.
    """

    def __init__(
        self,
        state: State,
        commits: Commits,
        landings: Landings,
        queue: Queue,
        inquiries: Inquiries,
        tails: Tails,
    ) -> None:
        self.state = state
        self.commits = commits
        self.landings = landings
        self.queue = queue
        self.inquiries = inquiries
        self.tails = tails
        self.fresh: OrderedDict[Feed, None] = OrderedDict()
        self.landing: OrderedDict[Feed, None] = OrderedDict()
        self.active = Rota()
        self.parked: dict[str, dict[Feed, None]] = {}  # by client id
        self.tailing: dict[Feed, None] = {}
        self.waiting: dict[Feed, None] = {}
        self.failures: list[tuple[Subscription, str]] = []  # feeds that cannot continue, and why
        self._known: dict[str, dict[bytes, Feed]] = {}  # by client id and filter
        self._clients: dict[int, dict[str, None]] = {}  # those with feeds, by the partition of the session
        self._delivered = 0  # messages in this turn
        self._growth = 0  # of the ends of streams elsewhere, when they were last checked

    def __len__(self) -> int:
        waiting = len(self.landing) + len(self.tailing) + len(self.waiting)
        return len(self.fresh) + len(self.active) + waiting + sum([len(of) for of in self.parked.values()])

    def start(self, feed: Feed) -> None:
        """Run a feed as soon as its batch is committed; it replaces an older one of its subscription."""
        subscription = feed.subscription
        client_id = subscription.session.client_id
        known = self._known.get(client_id)
        if known is None:
            known = {}
            self._known[client_id] = known
            self._clients.setdefault(subscription.session.partition, {})[client_id] = None
        old = known.get(subscription.name)
        if old is not None:
            self._take_out(old)
        known[subscription.name] = feed
        subscription.session.feeds += 1
        feed.begin(self)
        if feed.token > self.commits.committed_token:
            self.fresh[feed] = None
        else:
            self._let_land(feed)

    def _let_land(self, feed: Feed) -> None:
        """Its batch is committed: have a feed run when what it must read has landed."""
        if feed.landing:
            self.landing[feed] = None
        else:
            self.active.add(feed)

    def hand_over(self, subscription: Subscription) -> None:
        """Continue the feed of a replaced subscription for its successor with the same filter.

        MQTT 5 section 3.8.4: replacing a subscription loses no message.
        """
        feed = self.find(subscription.session, subscription.name)
        if feed is not None:
            feed.subscription = subscription

    def cancel(self, session: Session, name: bytes) -> None:
        """End the feed of a subscription that ends."""
        feed = self.find(session, name)
        if feed is not None:
            self._finish(feed)

    def forget(self, session: Session) -> None:
        """Remove the feeds of a session that has ended; its rows are removed elsewhere."""
        known = self._known.get(session.client_id)
        if known is not None:
            for feed in list(known.values()):
                if feed.subscription.session is session:  # a new session may have the client id already
                    self._drop(feed)

    def find(self, session: Session, name: bytes) -> Feed | None:
        """Return the feed of a subscription, if it has one."""
        known = self._known.get(session.client_id)
        feed = None if known is None else known.get(name)
        return feed if feed is not None and feed.subscription.session is session else None

    def _drop(self, feed: Feed) -> None:
        self._take_out(feed)
        client_id = feed.subscription.session.client_id
        known = self._known[client_id]
        del known[feed.subscription.name]
        if not known:
            del self._known[client_id]
            clients = self._clients[feed.subscription.session.partition]
            del clients[client_id]
            if not clients:
                del self._clients[feed.subscription.session.partition]

    def _take_out(self, feed: Feed) -> None:
        """Remove a feed from its place."""
        feed.end()
        self.inquiries.leave(feed)
        session = feed.subscription.session
        session.feeds -= 1
        parked = self.parked.get(session.client_id)
        if feed in self.fresh:
            del self.fresh[feed]
        elif feed in self.landing:
            del self.landing[feed]
        elif self.active.remove(feed):
            pass
        elif feed in self.tailing:
            del self.tailing[feed]
        elif feed in self.waiting:
            del self.waiting[feed]
        elif parked is not None and feed in parked:
            del parked[feed]
            if not parked:
                del self.parked[session.client_id]

    def run(self) -> None:
        """Run feeds that can run, each for one page, until that is as much work as a client may cause in a turn.

        `page_rows` messages end it, too, since each may be large: a page may exceed both.
        """
        work = self.state.work
        end = work.done() + work.quantum
        self._delivered = 0
        while self.runnable() and work.done() < end and self._delivered < self.state.limits.page_rows:
            work.steps += _PAGE_STEPS  # of every page: one that finds no room now is runnable again at once
            self._step()

    def _step(self) -> None:
        """Run the next feed that can run, for one page."""
        while self.fresh:
            feed = next(iter(self.fresh))
            if feed.token > self.commits.committed_token:
                break
            del self.fresh[feed]
            self._let_land(feed)
        while self.landing:
            feed = next(iter(self.landing))
            if not self.landings.has_landed(feed.landing):
                break
            del self.landing[feed]
            self.active.add(feed)
        if self._growth != self.tails.growth:
            self.grown()
        if not self.active.is_empty():
            self._run(self.active.take())

    def runnable(self) -> bool:
        """Whether a feed can continue now; those that wait for a batch are in the order of their batches."""
        if not self.active.is_empty() or (self.tailing and self._growth != self.tails.growth):
            return True
        if self.fresh and next(iter(self.fresh)).token <= self.commits.committed_token:
            return True
        return bool(self.landing) and self.landings.has_landed(next(iter(self.landing)).landing)

    def _run(self, feed: Feed) -> None:
        session = feed.subscription.session
        if session.ended:
            self._drop(feed)
        elif not self.has_room(session):
            self._park(feed)
        else:
            try:
                result = feed.page(self)
            except CorruptStore as fault:  # as for a queue: it continues, or tries again, when its client returns
                feed.save(self)
                self._put_aside(feed)
                self.queue.unreadable.append((session, fault))
                return
            if result == MORE:
                self.active.add(feed)
            elif result == BLOCKED:
                self.tailing[feed] = None
            elif result == WAITING:
                self.waiting[feed] = None
            elif result == LANDING:
                self._let_land(feed)
            else:
                self._finish(feed)

    def _finish(self, feed: Feed) -> None:
        session = feed.subscription.session
        self._drop(feed)
        if session.persistent and not session.ended:
            self.state.writer.delete(session.partition, cursor_key(session, feed.subscription.name))

    def _park(self, feed: Feed) -> None:
        session = feed.subscription.session
        connection = session.connection
        if connection is not None and connection.state == OPEN and connection.writable and not connection.can_send():
            self.active.add(feed)  # its output of this turn is full: it continues in the next turn
            return
        self._put_aside(feed)

    def _put_aside(self, feed: Feed) -> None:
        session = feed.subscription.session
        parked = self.parked.get(session.client_id)
        if parked is None:
            parked = {}
            self.parked[session.client_id] = parked
        parked[feed] = None
        feed.rest()

    def fail(self, feed: Feed, why: str) -> None:
        """End a feed that cannot continue: the client is told, and the subscription ends."""
        self.failures.append((feed.subscription, why))

    def has_room(self, session: Session) -> bool:
        """Whether the session is connected and keeps up, and its queue has room for the feed."""
        limits = self.state.limits
        connection = session.connection
        if connection is None or connection.state != OPEN or not connection.can_send():
            return False
        waiting = session.queue_count - len(session.inflight) if session.persistent else session.waiting
        if session.queue_bytes + session.ready_bytes > limits.queue_bytes_max // 2:
            return False
        return waiting < min(limits.page_rows, limits.queue_messages_max)

    def unpark(self, session: Session) -> None:
        """Continue the parked feeds of a session that takes messages again."""
        parked = self.parked.pop(session.client_id, None)
        if parked is not None:
            for feed in parked:
                self.active.add(feed)

    def wake(self, feed: Feed) -> None:
        """Continue a feed whose answer has come, or can be asked for, if its session takes messages."""
        if feed in self.waiting:
            del self.waiting[feed]
            self.active.add(feed)
        elif feed in self.tailing:
            del self.tailing[feed]
            self.active.add(feed)
        elif not self.active.has(feed) and feed not in self.fresh and feed not in self.landing:
            feed.rest()

    def remember(self, live: list[tuple[int, bytes]]) -> None:
        """End of a turn: pass its live retained messages to the feeds, as (partition of sessions, topic).

        Not to those of a session with very many: after a crash, a message may then come to it once more as retained.
        """
        by_partition: dict[int, list[tuple[int, bytes]]] = {}
        for entry in live:
            by_partition.setdefault(entry[0], []).append(entry)
        for partition, mine in by_partition.items():
            for client_id in self._clients.get(partition, {}):
                known = self._known[client_id]
                self.state.work.steps += 1
                if len(known) <= _SAVED_MAX:
                    self.state.work.steps += len(known) * len(mine)
                    for feed in known.values():
                        feed.pass_over(self, mine)

    def grown(self) -> None:
        """Streams have new records: continue the replays that wait for them."""
        self._growth = self.tails.growth
        if self.tailing:
            for feed in self.tailing:
                self.active.add(feed)
            self.tailing = {}

    def deliver(self, feed: Feed, message: Message, qos: int, retain: bool) -> None:
        """Send or queue one message of a feed, whoever else has got it before it was retained."""
        self.state.work.steps += DELIVERY_STEPS
        self._delivered += 1
        message = message.anew()  # rows of earlier builds say where it came from
        terms = feed.subscription.as_recipient()
        session = terms.session
        granted = terms.qos_of(qos)
        if granted == 0:
            self.queue.send_qos0(session, message, retain, terms.identifiers)
        elif session.persistent:
            self.queue.append(session, message, granted, retain, terms.identifiers, b"", 0)
        else:
            self.queue.offer(session, message, granted, retain, terms.identifiers, b"")
