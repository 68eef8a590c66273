"""Beginning to lead partitions: their rows become sessions, subscriptions, queues and wills again.

First all rows are loaded, then clients that are still connected take their sessions, then those of the others are
settled: only then is it known who gets the wills that this publishes.
"""

from __future__ import annotations

from typing import Final

from folkmoot.broker.body import Bodies
from folkmoot.broker.feed import Feed, Feeds
from folkmoot.broker.lifecycle import EXPIRY_NEVER, Lifecycle
from folkmoot.broker.mark import Marks
from folkmoot.broker.outbox import Outbox
from folkmoot.broker.producer import Producers
from folkmoot.broker.purge import Purge, Purges
from folkmoot.broker.replay import CURSOR_STREAM, ReplayFeed, parse_replay
from folkmoot.broker.retained import Retained
from folkmoot.broker.retained_feed import RetainedFeed
from folkmoot.broker.route import Routes
from folkmoot.broker.state import TIMER_SESSION, TIMER_WILL, State
from folkmoot.broker.will import Wills
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.pack import get_u16, get_u64, u64
from folkmoot.session.session import Session, Will
from folkmoot.session.subscription import REPLAY_PREFIX, Subscription
from folkmoot.store.key import (
    BODY,
    CHUNK,
    CURSOR,
    MARK,
    OUTBOX,
    PRODUCER,
    QUEUE,
    RECEIVED,
    RELEASED,
    RETAINED,
    SENT,
    SESSION,
    SUBSCRIPTION,
    WILL,
    kind_of,
    kind_prefix,
    name_of,
    plain_key,
    plain_name_of,
    sequence_of,
)
from folkmoot.store.message import decode_message
from folkmoot.store.row import decode_cursor, decode_queue, decode_session, decode_subscription, decode_will
from folkmoot.store.writer import VERSION_BYTES
from folkmoot.streams.table import Streams
from folkmoot.topics.name import split_share

__all__ = ["Restore"]

_PAGE_ROWS: Final = 1024
_PAGE_BYTES: Final = 1_048_576  # about: rows may have a megabyte each


class Restore:
    """Reads partitions of the store: all of them at the start of a node that is alone, else when it comes to lead."""

    def __init__(
        self,
        state: State,
        marks: Marks,
        outbox: Outbox,
        bodies: Bodies,
        routes: Routes,
        retained: Retained,
        producers: Producers,
        wills: Wills,
        purges: Purges,
        lifecycle: Lifecycle,
        feeds: Feeds,
        streams: Streams,
    ) -> None:
        self.state = state
        self.marks = marks
        self.outbox = outbox
        self.bodies = bodies
        self.routes = routes
        self.retained = retained
        self.producers = producers
        self.wills = wills
        self.purges = purges
        self.lifecycle = lifecycle
        self.feeds = feeds
        self.streams = streams
        self._found = 0  # of the fresh ones, those whose queues have their ends
        self._orphans: dict[str, Purge] = {}
        self._fresh: list[Session] = []
        self.strays: dict[str, Session] = {}  # wills of transient sessions, which end unless their client shows up

    def load(self, partition: int) -> None:
        """Read a partition; raises CorruptStore when a row cannot be read."""
        self.state.leads[partition] = True
        self.streams.open_in(partition)
        self.outbox.begin(partition)
        self._scan(partition, kind_prefix(partition, SESSION), kind_prefix(partition, CHUNK))
        self._scan(partition, kind_prefix(partition, CURSOR), kind_prefix(partition, SENT + 1))
        self._scan(partition, kind_prefix(partition, MARK), kind_prefix(partition, OUTBOX + 1))
        for purge in self._orphans.values():
            self.purges.add(purge)
        self._orphans.clear()
        for session in self._fresh[self._found :]:
            self._find_ends(session)
        self._found = len(self._fresh)

    def settle(self) -> None:
        """Give what was loaded its deadlines; who is not connected by now has lost its client."""
        sessions = self._fresh
        strays = self.strays
        self._fresh = []
        self._found = 0
        self.strays = {}
        for session in sessions:
            if session.connection is None and not session.ended:
                self._settle(session)
        for session in strays.values():
            self.wills.publish(session)

    def disclaim(self, client_id: str, token: int) -> None:
        """A connection that has not been let in will ask again: the will that it has set meanwhile is not due."""
        session = self.state.sessions.get(client_id)
        if session is None or session.will is None:
            session = self.strays.get(client_id)
        if session is not None and session.will is not None and session.will.token == token:
            session.will = None
            self.strays.pop(client_id, None)
            self.state.counters.wills_pending -= 1
            self.state.writer.delete(session.partition, plain_key(session.partition, WILL, session.key))

    def shadow(self, client_id: str) -> Session:
        """Return what stands for a transient session at another node; its will, if it has one, was loaded."""
        session = self.strays.pop(client_id, None)
        if session is None:
            session = Session(client_id, self.state.partition_of(client_id.encode()), False)
        session.shadow = True
        self.state.sessions[client_id] = session
        return session

    def _scan(self, partition: int, start: bytes, end: bytes) -> None:
        page_rows = 16
        while True:
            rows = self.state.reader.scan(start, end, page_rows)
            for key, value in rows:
                try:
                    self._row(partition, kind_of(key), key, value)
                except (IndexError, ValueError) as fault:  # a key or a version that is cut short, a name not in UTF-8
                    raise CorruptStore(f"the row at {key.hex()} is damaged: {fault}") from None
            if len(rows) < page_rows:
                return
            start = rows[-1][0] + b"\0"
            size = sum([len(value) for _, value in rows])
            page_rows = min(max(_PAGE_BYTES * page_rows // (size + 1), 16), 2 * page_rows, _PAGE_ROWS)

    def _row(self, partition: int, kind: int, key: bytes, value: bytes) -> None:
        if kind == SESSION:
            self._session(key, value)
        elif kind == SUBSCRIPTION:
            self._subscription(key, value)
        elif kind == QUEUE:
            self._queue(partition, key, value)
        elif kind == RELEASED:
            self._released(key)
        elif kind == RECEIVED:
            self._received(key, value)
        elif kind == RETAINED:
            self.retained.counts[partition] += 1
            self.state.counters.retained_messages += 1
            size = decode_message(value, VERSION_BYTES).size
            self.retained.sizes[partition] += size
            self.state.counters.retained_bytes += size
        elif kind == PRODUCER:
            self.producers.counts[partition] += 1
        elif kind == WILL:
            self._will(key, value)
        elif kind == CURSOR:
            self._cursor(key, value)
        elif kind == SENT:
            self._sent(plain_name_of(key).decode(), get_u64(value, VERSION_BYTES))
        elif kind == MARK:
            self.marks.load(key, value, partition)
        elif kind == OUTBOX:
            self.outbox.load(partition, key, value)
        elif kind == BODY:
            self.bodies.seen(partition, sequence_of(key))

    def _sent(self, client_id: str, sent_below: int) -> None:
        session = self.state.sessions.get(client_id)
        if session is not None:
            session.sent_below = max(session.sent_below, sent_below)
        purge = self._orphans.get(client_id)
        if purge is not None:
            purge.sent_below = min(sent_below, purge.end)

    def _session(self, key: bytes, value: bytes) -> None:
        row = decode_session(value[VERSION_BYTES:])
        session = self.lifecycle.begin(plain_name_of(key).decode(), True)
        self.state.counters.sessions_created -= 1
        session.version = row.version
        session.expiry_s = row.expiry_s
        session.ends_us = row.ends_us
        session.username = row.username
        session.queue_floor = session.queue_next = row.queue_floor
        session.queue_head = session.sent_below = session.drop_below = row.queue_floor
        self._fresh.append(session)

    def _subscription(self, key: bytes, value: bytes) -> None:
        client_id = name_of(key)
        session = self.state.sessions.get(client_id.decode())
        if session is None:
            return  # its session ended in a batch that also removes it: cannot be, but costs nothing to leave
        name = key[5 + len(client_id) :]
        row = decode_subscription(value[VERSION_BYTES:])
        topic_filter = name
        share = b""
        split = split_share(name)
        if split is not None:
            share, topic_filter = split
        elif name.startswith(REPLAY_PREFIX):
            topic_filter = name.split(b"/", 3)[3]
        if not self.state.policy.may_subscribe(session.client_id, session.username, topic_filter):
            # The access list has changed since; the right is asked for again with the next SUBSCRIBE.
            self.state.counters.acl_denied_subscribe += 1
            self.state.writer.delete(session.partition, key)
            return
        subscription = Subscription(session, name, topic_filter, share, row.options, row.identifier)
        session.subscriptions[name] = subscription
        self.routes.add(subscription)

    def _queue(self, partition: int, key: bytes, value: bytes) -> None:
        row = decode_queue(value[VERSION_BYTES:])
        client_id = name_of(key).decode()
        sequence = sequence_of(key)
        if row.body:
            self.bodies.hold(partition, row.body)
        session = self.state.sessions.get(client_id)
        if session is None or sequence < session.queue_floor:
            purge = self._orphans.get(client_id)
            if purge is None:
                purge = Purge(client_id, partition, sequence, sequence + 1, 0, 0)
                purge.restored = True
                self._orphans[client_id] = purge
            purge.end = sequence + 1
            purge.count += 1
            purge.size += row.size
            return
        session.queue_next = sequence + 1
        if not session.queue_count:
            session.queue_head = sequence
        if row.sent:
            session.sent_below = sequence + 1  # and with it all that stood before
        session.queue_count += 1
        session.queue_bytes += row.size
        if row.body or row.group:
            session.special_rows += 1
        self.state.counters.queue_messages += 1
        self.state.counters.queue_bytes += row.size

    def _released(self, key: bytes) -> None:
        session = self.state.sessions.get(name_of(key).decode())
        if session is not None:
            sequence = sequence_of(key)
            if session.released is None:
                session.released = {}
            session.released[session.packet_id_of(sequence)] = sequence
            session.queue_next = max(session.queue_next, sequence + 1)

    def _received(self, key: bytes, value: bytes) -> None:
        session = self.state.sessions.get(name_of(key).decode())
        if session is not None:
            if session.received is None:
                session.received = {}
            session.received[get_u16(key, len(key) - 2)] = value[VERSION_BYTES]

    def _will(self, key: bytes, value: bytes) -> None:
        row = decode_will(value[VERSION_BYTES:])
        client_id = plain_name_of(key).decode()
        session = self.state.sessions.get(client_id)
        if session is None:
            session = Session(client_id, self.state.partition_of(client_id.encode()), False)
            self.strays[client_id] = session
        session.will = Will(row.message, row.delay_s)
        session.will.token = row.token
        session.will.due_us = row.due_us
        self.state.counters.wills_pending += 1

    def _cursor(self, key: bytes, value: bytes) -> None:
        client_id = name_of(key)
        session = self.state.sessions.get(client_id.decode())
        subscription = None if session is None else session.subscriptions.get(key[5 + len(client_id) :])
        if subscription is None:
            return
        row = decode_cursor(value[VERSION_BYTES:])
        feed: Feed
        if row.kind == CURSOR_STREAM:
            wish = parse_replay(subscription.name, self.streams, self.state.limits.topic_levels_max)
            if wish.stream is None:
                return
            offsets = row.positions + [0] * (wish.stream.config.partitions - len(row.positions))
            feed = ReplayFeed(subscription, 0, wish.stream, wish.start, offsets)
        else:
            if row.positions and max(row.positions) >= self.state.partitions:
                raise CorruptStore(f"the cursor at {key.hex()} is of a store with another number of partitions")
            feed = RetainedFeed(subscription, 0, self.retained, row.positions, row.key)
        self.feeds.start(feed)

    def _find_ends(self, session: Session) -> None:
        """Say where the restored queue of a session begins and where it goes on."""
        session.queue_next = max(session.queue_next, session.sent_below)  # else new messages would come as repeated
        session.durable_next = session.queue_next
        if not session.queue_count:
            session.queue_head = session.queue_next
        session.ready_end = session.queue_head

    def _settle(self, session: Session) -> None:
        """Give a restored session its deadlines; one that was connected when the process died has lost its client."""
        will = session.will
        if session.ends_us == 0:
            self._doubt(session)
            self.wills.arm(session)
            if session.expiry_s == 0:
                self.lifecycle.end(session)
            else:
                self.lifecycle.rest(session)
            return
        if session.expiry_s != EXPIRY_NEVER:
            self.state.timers.set(session.ends_us, TIMER_SESSION, session.client_id)
        if will is not None:
            self.state.timers.set(will.due_us, TIMER_WILL, session.client_id)

    def _doubt(self, session: Session) -> None:
        """Any message may have been sent before the process died: remember that, also for the next crash."""
        if session.sent_below < session.queue_next:
            session.sent_below = session.queue_next
            key = plain_key(session.partition, SENT, session.key)
            self.state.writer.put(session.partition, key, u64(session.sent_below))
