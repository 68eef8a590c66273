"""Feeds: what fills a session's queue page by page: retained messages for a new subscription, and replays of streams.

A feed goes on only while the session takes what it got (flow control), and reads a bounded page at a time, so that
other clients do not notice. For persistent sessions its position is a row (CURSOR) that moves in the batch of the
messages that it queued: after a crash it goes on exactly there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from folkmoot.broker.commit import Commits
from folkmoot.broker.queue import Queue
from folkmoot.broker.state import State
from folkmoot.session.connection import OPEN
from folkmoot.session.session import Session
from folkmoot.session.subscription import QOS_MASK, Subscription, encode_identifier
from folkmoot.store.key import CURSOR, name_prefix
from folkmoot.store.message import Message

__all__ = ["BLOCKED", "DONE", "MORE", "Feed", "Feeds", "cursor_key"]

MORE: Final = 0
BLOCKED: Final = 1
DONE: Final = 2


def cursor_key(session: Session, name: bytes) -> bytes:
    """Return the key of the CURSOR row of a feed: one per session and filter."""
    return name_prefix(session.partition, CURSOR, session.key) + name


class Feed(ABC):
    """A source of messages for one subscription; `token`: the batch after which the store has all that it must read."""

    def __init__(self, subscription: Subscription, token: int) -> None:
        self.subscription = subscription
        self.token = token

    @abstractmethod
    def page(self, feeds: Feeds) -> int:
        """Deliver one page; return MORE, BLOCKED (nothing to read until something grows) or DONE."""

    @abstractmethod
    def save(self, feeds: Feeds) -> None:
        """Store the position, if the session is persistent."""


class Feeds:
    """All feeds of the node: `active` ones run, the others wait for their batch, their session or new records."""

    def __init__(self, state: State, commits: Commits, queue: Queue) -> None:
        self.state = state
        self.commits = commits
        self.queue = queue
        self.active: list[Feed] = []
        self.parked: dict[str, list[Feed]] = {}  # by client id
        self.failures: list[tuple[Subscription, str]] = []  # feeds that cannot go on, and why
        self.tailing: list[Feed] = []  # replays that have reached the end of their stream

    def start(self, feed: Feed) -> None:
        """Let a feed run as soon as its batch is durable."""
        feed.subscription.session.feeds += 1
        self.active.append(feed)

    def step(self) -> None:
        """Run the next feed that can run, for one page."""
        count = len(self.active)
        for _ in range(count):
            feed = self.active.pop(0)
            if feed.token > self.commits.durable_token:
                self.active.append(feed)
                continue
            self._run(feed)
            return

    def runnable(self) -> bool:
        """Whether a feed can go on now."""
        for feed in self.active:
            if feed.token <= self.commits.durable_token:
                return True
        return False

    def _run(self, feed: Feed) -> None:
        session = feed.subscription.session
        if session.ended or session.subscriptions.get(feed.subscription.name) is not feed.subscription:
            self._finish(feed)
        elif not self.has_room(session):
            self._park(feed)
        else:
            result = feed.page(self)
            if result == MORE:
                self.active.append(feed)
            elif result == BLOCKED:
                self.tailing.append(feed)
            else:
                self._finish(feed)

    def _finish(self, feed: Feed) -> None:
        session = feed.subscription.session
        session.feeds -= 1
        current = session.subscriptions.get(feed.subscription.name)
        if session.durable and not session.ended and (current is None or current is feed.subscription):
            # a subscription that replaced this one may have a cursor of its own
            self.state.writer.delete(session.partition, cursor_key(session, feed.subscription.name))

    def _park(self, feed: Feed) -> None:
        session = feed.subscription.session
        connection = session.connection
        if connection is not None and connection.state == OPEN and connection.writable and not connection.can_send():
            self.active.append(feed)  # its output of this turn is full: the next turn has room
            return
        known = self.parked.get(session.client_id)
        if known is None:
            self.parked[session.client_id] = [feed]
        else:
            known.append(feed)

    def fail(self, feed: Feed, why: str) -> None:
        """The feed cannot go on: the client is told, and the subscription ends."""
        self.failures.append((feed.subscription, why))

    def has_room(self, session: Session) -> bool:
        """Whether the session is connected and keeps up, and the limits of its queue would not drop what it is fed."""
        limits = self.state.limits
        connection = session.connection
        if connection is None or connection.state != OPEN or not connection.can_send():
            return False
        waiting = session.queue_count - len(session.inflight) if session.durable else session.waiting
        if session.queue_bytes + session.ready_bytes > limits.queue_bytes_max // 2:
            return False
        return waiting < min(limits.page_rows, limits.queue_messages_max)

    def unpark(self, session: Session) -> None:
        """The session takes messages again."""
        feeds = self.parked.pop(session.client_id, None)
        if feeds is not None:
            self.active.extend(feeds)

    def grown(self) -> None:
        """Streams have new records: replays that wait for them go on."""
        if self.tailing:
            self.active.extend(self.tailing)
            self.tailing = []

    def deliver(self, feed: Feed, message: Message, qos: int, retain: bool) -> None:
        """Send or queue one message of a feed."""
        subscription = feed.subscription
        session = subscription.session
        identifiers = encode_identifier(subscription.identifier)
        granted = min(qos, subscription.options & QOS_MASK)
        if granted == 0:
            self.queue.send_qos0(session, message, retain, identifiers)
        elif session.durable:
            self.queue.append(session, message, granted, retain, identifiers, b"", 0)
        else:
            self.queue.offer(session, message, granted, retain, identifiers, b"")
