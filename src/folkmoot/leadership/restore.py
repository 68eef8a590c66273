"""The beginning of leadership: rows become sessions, subscriptions, queues and wills again.

First the rows of a partition are read (`loader`), page by page. When it opens, what was read is put into memory, then
connected clients take their sessions, then the other sessions are settled: only then are the subscribers known that get
the wills published by this.
"""

from __future__ import annotations

from folkmoot.channel.parts import ChannelParts
from folkmoot.delivery.parts import DeliveryParts
from folkmoot.feed.feed import Feed
from folkmoot.feed.parts import FeedParts
from folkmoot.feed.replay import CURSOR_STREAM, ReplayFeed, parse_replay
from folkmoot.feed.retained_feed import RetainedFeed
from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.lease import UNTOLD_US
from folkmoot.leadership.loader import Filter, PartitionLoader
from folkmoot.partition.backlog import put_sent
from folkmoot.partition.parts import PartitionParts
from folkmoot.protocol.lifecycle import EXPIRY_NEVER
from folkmoot.protocol.parts import ProtocolParts
from folkmoot.session.session import Session
from folkmoot.session.subscription import REPLAY_PREFIX, Subscription, excess_of
from folkmoot.store.key import WILL, left_name, plain_key
from folkmoot.store.row import CursorRow
from folkmoot.streams.leftover import Leftovers
from folkmoot.topics.name import split_share
from folkmoot.turn.parts import TurnParts
from folkmoot.turn.state import TIMER_SESSION, TIMER_WILL

__all__ = ["Restore"]


class Restore:
    """Restores partitions from the store: all when a node alone starts, otherwise those that it begins to lead."""

    def __init__(
        self,
        turn: TurnParts,
        channel: ChannelParts,
        partition: PartitionParts,
        delivery: DeliveryParts,
        feed: FeedParts,
        protocol: ProtocolParts,
    ) -> None:
        self.state = turn.state
        self.fabric = turn.fabric
        self.led = partition.led
        self.marks = partition.marks
        self.outbox = channel.outbox
        self.bodies = partition.bodies
        self.routes = delivery.routes
        self.retained = partition.retained
        self.wills = protocol.wills
        self.purges = delivery.purges
        self.lifecycle = protocol.lifecycle
        self.feeds = feed.feeds
        self.transactions = delivery.transactions
        self.streams = turn.streams
        self.leftovers = Leftovers(turn.streams, turn.state.reader)
        self._fresh: list[Session] = []
        # Wills of transient sessions, which end unless their client shows up, and those that are left (`left_name`)
        self.strays: dict[str, Session] = {}
        self._asking: set[str] = set()  # clients that an earlier leader has let in unknown to them, and that ask again

    def begin(self, partition: int) -> PartitionLoader:
        """Begin to read a partition, whose rows do not change meanwhile."""
        return PartitionLoader(partition, self.state.reader, self.state.partitions)

    def load(self, partition: int) -> None:
        """Read all of a partition and lead it; raises CorruptStore if a row cannot be read."""
        loader = self.begin(partition)
        while not loader.whole:
            loader.read(1)
        self.take(loader)

    def take(self, loader: PartitionLoader) -> None:
        """Begin to lead a partition with what was read of it.

        Raises CorruptStore if its streams cannot be read, or the place of a replay in them.
        """
        state = self.state
        partition = loader.partition
        self._open_streams(partition)  # first: if it fails, nothing has changed
        state.leads[partition] = True
        memory = loader.memory
        self.led.put(memory)
        self.bodies.take(memory)
        for session in loader.sessions.values():
            _find_ends(session, state.ids_ahead)
            state.sessions.put(session)
            state.accounts.enter(session)
            self.lifecycle.look_for_owner(session)
            self._fresh.append(session)
        for found in loader.filters:
            self._subscribe(found)
        self.retained.take(memory, loader.retained, loader.retained_expires_us)
        self.marks.take(memory)
        self.outbox.begin(memory, loader.entries)
        self.transactions.take(partition, loader.holdings)
        for purge in loader.purges.values():
            self.purges.add(purge)
        self._count(loader)
        self.strays.update(loader.strays)

    def _open_streams(self, partition: int) -> None:
        state = self.state
        try:
            self.streams.open_in(partition)
            self.leftovers.open(partition, state.writer, state.clock.time)
        except CorruptStore:
            self.streams.abandon_in(partition)
            raise

    def _count(self, loader: PartitionLoader) -> None:
        counters = self.state.counters
        counters.sessions_persistent += len(loader.sessions)
        counters.queue_messages += loader.queue_messages
        counters.queue_bytes += loader.queue_bytes
        counters.wills_pending += len(loader.strays)
        for session in loader.sessions.values():
            if session.will is not None:
                counters.wills_pending += 1

    def settle(self) -> None:
        """Set the deadlines of what was loaded; a session without a connection by now has lost its client."""
        sessions = self._fresh
        strays = self.strays
        self._fresh = []
        self.strays = {}
        for session in sessions:
            if session.connection is None and not session.ended:
                self._settle(session)
        self._asking = set()
        for session in strays.values():
            self.wills.publish_stray(session)

    def disclaim(self, client_id: str, token: int) -> None:
        """Drop the will that a connection has set: it was not let in and asks again, or has said DISCONNECT."""
        session = self.state.sessions.get(client_id)
        if session is None or session.will is None:
            session = self.strays.get(client_id)
        if session is None or session.will is None or session.will.token != token:
            session = self.strays.get(_left_by(client_id, token))
        if session is not None and session.will is not None and session.will.token == token:
            self.state.accounts.set_will(session, None)
            self.strays.pop(session.client_id, None)
            self.state.counters.wills_pending -= 1
            self.state.writer.delete(session.partition, plain_key(session.partition, WILL, session.key))

    def await_client(self, client_id: str, token: int) -> None:
        """Let the session of a connection that asks again last until then, if it is to end with the connection."""
        session = self.state.sessions.get(client_id)
        if session is not None and session.persistent and session.token == token:
            self._asking.add(client_id)

    def is_chosen(self, client_id: str, token: int) -> bool:
        """Whether, of a client's connections at two sides of a split, this one without a session continues."""
        return _left_by(client_id, token) not in self.strays

    def take_stray(self, client_id: str, token: int) -> Session | None:
        """Return the loaded session with the will that a connection has set; the will of another connection is due."""
        stray = self.strays.get(client_id)
        if stray is None or stray.will is None or stray.will.token != token:
            return None
        return self.strays.pop(client_id)

    def registration(self, client_id: str, username: str, proved: bool, token: int) -> Session:
        """Return an entry for a transient session of a user at another node, with its loaded will if there is one."""
        session = self.take_stray(client_id, token)
        if session is None:
            session = Session(client_id, self.state.partition_of(client_id.encode()), False)
        session.registration_only = True
        self.state.sessions.put(session)
        session.username = username
        session.proved = proved
        self.state.accounts.enter(session)
        return session

    def _subscribe(self, found: Filter) -> None:
        session = found.session
        name = found.name
        topic_filter = name
        share = b""
        split = split_share(name)
        if split is not None:
            share, topic_filter = split
        elif name.startswith(REPLAY_PREFIX):
            topic_filter = name.split(b"/", 3)[3]
        if not self.state.policy.may_subscribe(session.client_id, session.owner, topic_filter, share):
            # The access list has changed since; the next SUBSCRIBE is checked anew.
            self.state.counters.acl_denied_subscribe += 1
            self.state.writer.delete(session.partition, found.key)
            return
        subscription = Subscription(session, name, topic_filter, share, found.row.options, found.row.identifier)
        session.subscriptions[name] = subscription
        if session.account is not None:
            session.account.subscriptions += 1
        excess = excess_of(name)
        if excess:
            self.state.accounts.add_filter(session, excess)
        self.routes.add(subscription)
        if found.cursor is not None:
            self._feed(subscription, found.cursor)

    def _feed(self, subscription: Subscription, row: CursorRow) -> None:
        feed: Feed
        if row.kind == CURSOR_STREAM:
            wish = parse_replay(subscription.name, self.streams, self.state.limits.topic_levels_max)
            if wish.stream is None:
                return
            offsets = row.positions + [0] * (wish.stream.config.partitions - len(row.positions))
            feed = ReplayFeed(subscription, 0, wish.stream, wish.start, offsets)
            feed.source = row.key
        else:
            scan = RetainedFeed(subscription, 0, self.retained, row.positions, row.key)
            scan.live = dict.fromkeys(row.live)
            feed = scan
        self.feeds.start(feed)

    def _settle(self, session: Session) -> None:
        """Set the deadlines of a session; one that was connected when its leader died has lost its client."""
        will = session.will
        late_us = UNTOLD_US if self.state.speaks_until_ns < NEVER else 0  # without other nodes no client is left at one
        if session.ends_us == 0:  # no end was stored: it was connected
            self._doubt(session)
            self.wills.arm(session, late_us)
            if session.expiry_s == 0 and session.client_id not in self._asking:
                self.lifecycle.end(session)
            else:
                self.lifecycle.rest(session, late_us)
            return
        state = self.state
        if session.expiry_s != EXPIRY_NEVER:
            left_us = self._left_us(session.ends_us, session.expiry_s * SECOND, late_us)
            state.timers.set(state.now + left_us, TIMER_SESSION, session.client_id)
        if will is not None and not will.due_us:  # it was due at once, and its leader died before it could publish it
            self.wills.defer(session)
        elif will is not None:
            left_us = self._left_us(will.due_us, will.delay_s * SECOND, late_us)
            state.timers.set(state.now + left_us, TIMER_WILL, session.client_id)

    def _left_us(self, due_us: int, interval_us: int, late_us: int) -> int:
        """Return the time until a stored one, which another clock has written, or this one before it was set.

        No more is left than the interval, and no less than by what that clock may have been behind. What ends late does
        less harm than what ends early.
        """
        clock = self.state.clock
        slack_us = clock.bound_us if late_us else 0
        return min(max(due_us - clock.expiry_time, min(interval_us, slack_us)), interval_us + late_us)

    def _doubt(self, session: Session) -> None:
        """Mark all messages as possibly sent before the leader died, also for the next crash."""
        if session.sent_below < session.queue_next:
            session.sent_below = session.queue_next
            put_sent(self.state.writer, session, session.sent_below)


def _left_by(client_id: str, token: int) -> str:
    """Return the name under which a merge keeps the will of a connection that its client has left."""
    return left_name(client_id.encode(), token).decode()


def _find_ends(session: Session, ids_ahead: int) -> None:
    """Set where the restored queue of a session begins and where it continues.

    ids_ahead: other sides of a split give packet ids as well, see `session/fork_ids`; 0 in the trunk.
    """
    # Else new messages would come as repeated, or an acknowledgement of an earlier message would count for one of them:
    # the node of the client repeats what the former leader may not have handled.
    session.queue_next = max(session.queue_next, session.sent_below, session.given_below) + ids_ahead
    session.committed_next = session.queue_next
    if not session.queue_count:
        session.queue_head = session.queue_next
    session.ready_end = session.queue_head
