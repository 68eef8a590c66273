"""SUBSCRIBE and UNSUBSCRIBE (MQTT 5 sections 3.8 to 3.11; MQTT 3.1.1 sections 3.8 to 3.11; promise A5)."""

from __future__ import annotations

from folkmoot.delivery.sys import SysTopics
from folkmoot.feed.feed import Feed, Feeds
from folkmoot.feed.newest import Newest
from folkmoot.feed.replay import UNKNOWN, ReplayFeed, Start, first_offsets, parse_replay
from folkmoot.feed.retained_feed import maybe_retained_feed
from folkmoot.kernel.event import WARNING
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import body_of, encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.packet import Properties, Suback, Subscribe, Unsuback, Unsubscribe
from folkmoot.partition.retained import Retained
from folkmoot.protocol.denial import SUBSCRIBE_DENIED, note_denied
from folkmoot.routing.route import Routes
from folkmoot.session.connection import Connection, Task
from folkmoot.session.session import FITS, SESSION_FULL, Session
from folkmoot.session.subscription import (
    NO_LOCAL,
    QOS_MASK,
    REPLAY_PREFIX,
    SUBSCRIPTION_BYTES,
    Subscription,
    excess_of,
)
from folkmoot.store.key import SUBSCRIPTION, name_prefix
from folkmoot.store.row import SubscriptionRow, encode_subscription
from folkmoot.streams.table import Stream, Streams
from folkmoot.topics.name import check_filter, has_wildcard, split_share
from folkmoot.turn.commit import Commits
from folkmoot.turn.source import is_later, source_of
from folkmoot.turn.state import State
from folkmoot.turn.work import FILTER_BYTES_PER_STEP, PACKET_STEPS, RULE_STEPS, SUBSCRIPTION_STEPS

__all__ = ["Subscribing", "subscription_key"]

_SHARE = b"$share/"
_REASONS_MAX = 16  # in a SUBACK, which has at most 1,024 characters for them
_WAITS = -1  # in place of a code: the filter waits for an answer of another node


def subscription_key(session: Session, name: bytes) -> bytes:
    """Return the key of the SUBSCRIPTION row of a filter, spelled as in the packet."""
    return name_prefix(session.partition, SUBSCRIPTION, session.key) + name


class SubscribeTask(Task):
    """A SUBSCRIBE whose filters are added over as many turns as that takes; SUBACK ends it.

    newest: what it waits for while it sleeps, to begin a replay.
    """

    def __init__(self, subscribing: Subscribing, connection: Connection, packet: Subscribe, identifier: int) -> None:
        super().__init__()
        self.subscribing = subscribing
        self.connection = connection
        self.source = packet
        self.identifier = identifier
        self.codes: list[int] = []
        self.started: list[Subscription] = []
        self.reasons: list[str] = []
        self.newest: Newest | None = None
        self.is_long = False  # more than one turn has added some

    def go_on(self) -> bool:
        """Add more of them."""
        self.is_long = True
        return self.subscribing.add_more(self)

    def packet(self) -> tuple[int, bytes]:
        """Return the SUBSCRIBE."""
        return 0x82, body_of(encode(self.source, self.connection.version))

    def drop(self) -> None:
        """Forget the questions."""
        if self.newest is not None:
            self.newest.end()
            self.newest = None


class UnsubscribeTask(Task):
    """An UNSUBSCRIBE whose filters are removed over as many turns as that takes; UNSUBACK ends it."""

    def __init__(self, subscribing: Subscribing, connection: Connection, packet: Unsubscribe) -> None:
        super().__init__()
        self.subscribing = subscribing
        self.connection = connection
        self.source = packet
        self.codes: list[int] = []

    def go_on(self) -> bool:
        """Remove more of them."""
        return self.subscribing.remove_more(self)

    def packet(self) -> tuple[int, bytes]:
        """Return the UNSUBSCRIBE."""
        return 0xA2, body_of(encode(self.source, self.connection.version))


class Subscribing:
    """Adds and removes subscriptions."""

    def __init__(
        self,
        state: State,
        commits: Commits,
        routes: Routes,
        feeds: Feeds,
        retained: Retained,
        streams: Streams,
        sys: SysTopics,
    ) -> None:
        self.state = state
        self.commits = commits
        self.routes = routes
        self.feeds = feeds
        self.retained = retained
        self.streams = streams
        self.sys = sys
        self._why = ""  # the reason of the current entry, for SUBACK

    def subscribe(self, connection: Connection, packet: Subscribe) -> None:
        """Answer each filter with the granted QoS or a reason [MQTT-3.8.4-6]; SUBACK leaves when all is complete.

        With many filters this takes several turns, and is the task of the connection. So it is while a replay of new
        records waits to know where they begin: only this client waits.
        """
        properties = packet.properties
        identifier = 0
        if properties is not None and properties.subscription_ids:
            if not self.state.limits.subscription_ids_available:
                code = reason.SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED
                raise MalformedPacket(code, "subscription identifiers are switched off")
            identifier = properties.subscription_ids[0]
        task = SubscribeTask(self, connection, packet, identifier)
        if not self.add_more(task):
            connection.task = task

    def add_more(self, task: SubscribeTask) -> bool:
        """Add the filters of a SUBSCRIBE until the client's steps are spent; return whether it is answered."""
        connection = task.connection
        session = connection.session
        assert session is not None, "an open connection has a session"
        entries = task.source.entries
        codes = task.codes
        work = self.state.work
        while len(codes) < len(entries):
            if codes and work.is_spent():
                return False
            name, options = entries[len(codes)]
            work.steps += PACKET_STEPS + len(name) // FILTER_BYTES_PER_STEP
            code = self._entry(task, session, name, options)
            if code == _WAITS:
                task.asleep = True
                return False
            if code >= 0x80:
                if len(task.reasons) < _REASONS_MAX:
                    task.reasons.append(f"{name.decode()}: {self._why}")
            else:
                work.steps += SUBSCRIPTION_STEPS
            if code == reason.TOPIC_FILTER_INVALID:
                self.state.counters.error_filter += 1
            codes.append(code)
        # [A5] in a cluster all other members must know the subscription first
        wait = (session.persistent or not self.routes.fabric.alone) and bool(task.started)
        data = self._suback(connection, task.source.packet_id, codes, task.reasons)
        self.commits.acknowledge(connection, data, wait, own=not task.is_long)
        self.state.counters.sent_suback += 1
        for subscription in task.started:
            self.sys.welcome(subscription)
        return True

    def _suback(self, connection: Connection, packet_id: int, codes: list[int], reasons: list[str]) -> bytes:
        if not connection.v5:
            # MQTT 3.1 has no code for a failure; its clients know the one of 3.1.1 [MQTT-3.9.3-2 v3.1.1]
            return encode(Suback(packet_id, [reason.v3_suback(code) for code in codes]), connection.version)
        properties: Properties | None = None
        if reasons and connection.problem_information:
            properties = Properties()
            properties.reason = "; ".join(reasons)[:1024]
        data = encode(Suback(packet_id, codes, properties), 5)
        return data if len(data) <= connection.packet_bytes_max else encode(Suback(packet_id, codes, None), 5)

    def _entry(self, task: SubscribeTask, session: Session, name: bytes, options: int) -> int:
        """Add one subscription; return its code for SUBACK and append it to `started` if it is granted.

        _WAITS: the same is to be tried again, when the task is woken.
        """
        connection = task.connection
        topic_filter = name
        share = b""
        replay: ReplayFeed | None = None
        code = self._fault(session, name)
        if code:
            return code
        split = split_share(name)
        if split is not None:
            share, topic_filter = split
            if options & NO_LOCAL:  # [MQTT-3.8.3-4]
                raise MalformedPacket(reason.PROTOCOL_ERROR, "no local on a shared subscription")
            if topic_filter.startswith((REPLAY_PREFIX, _SHARE)):
                self._why = "only topics can be shared"
                return reason.TOPIC_FILTER_INVALID
        if name.startswith(REPLAY_PREFIX):
            going = self._find_going(connection, session, name)
            if going is not None:
                task.started.append(going)
                return going.options & QOS_MASK
        offsets: list[int] = []
        stream = None
        start: Start | None = None
        if name.startswith(REPLAY_PREFIX):
            wish = parse_replay(name, self.streams, self.state.limits.topic_levels_max)
            if not wish.error:
                offsets = first_offsets(wish, self.state.leads)
            if wish.error or wish.stream is None:
                self._why = wish.error
                return reason.TOPIC_FILTER_INVALID
            topic_filter = wish.topic_filter
            stream = wish.stream
            start = wish.start
        known = session.subscriptions.get(name)
        code = (
            self._denial(connection, session, name, topic_filter, share)
            or self._find_newest(task, stream, start, offsets)
            or self._count_pattern(session, name, known is None)
        )
        if code:
            return code
        granted = min(options & QOS_MASK, self.state.limits.qos_max)
        subscription = Subscription(session, name, topic_filter, share, options & ~QOS_MASK | granted, task.identifier)
        self._store(session, subscription, known)
        if stream is not None and start is not None:
            token = self.commits.newest_token()
            replay = ReplayFeed(subscription, token, stream, start, offsets)
            replay.source = source_of(connection)
            self._start(session, replay)
        elif not share:
            self.feeds.hand_over(subscription)
            if subscription.retain_handling == 0 or (subscription.retain_handling == 1 and known is None):
                # [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
                feed = maybe_retained_feed(subscription, self.feeds, self.retained)
                if feed is not None:
                    self._start(session, feed)
        task.started.append(subscription)
        return granted

    def _find_newest(self, task: SubscribeTask, stream: Stream | None, start: Start | None, offsets: list[int]) -> int:
        """Find where a replay of new records begins, for `offsets`; return 0, a reason code, or _WAITS.

        A partition without a leader may stay so: the client is told instead of waiting.
        """
        if stream is None or start is None or not start.is_latest or UNKNOWN not in offsets:
            return 0
        newest = task.newest
        if newest is None:
            if task.connection.again:  # what the client has sent since is handled in this same turn
                raise MalformedPacket(reason.SERVER_BUSY, "lost in a change of leaders: connect, send again")
            newest = Newest(self.feeds.inquiries, self.state.work, task.connection, stream)
            task.newest = newest
        newest.look(self.state.leads)
        self._why = newest.why
        if not self._why and UNKNOWN in newest.offsets:
            if not task.given_up:
                return _WAITS
            self._why = "the client has gone"
        offsets[:] = newest.offsets
        task.drop()
        return reason.IMPLEMENTATION_SPECIFIC_ERROR if self._why else 0

    def _denial(self, connection: Connection, session: Session, name: bytes, topic_filter: bytes, share: bytes) -> int:
        """Return a reason code if the rules do not allow a filter, else 0."""
        self.state.work.steps += RULE_STEPS * len(self.state.policy.rules)
        if not self.state.policy.may_subscribe(session.client_id, connection.username, topic_filter, share):
            self.state.counters.acl_denied_subscribe += 1
            note_denied(self.state, connection, SUBSCRIBE_DENIED, name)
            self._why = "not allowed to subscribe"
            return reason.NOT_AUTHORIZED
        return 0

    def _count_pattern(self, session: Session, name: bytes, new: bool) -> int:
        """Count the pattern of a new filter; return a reason code if there are too many, else 0."""
        most = self.state.limits.filter_patterns_max
        found = session.count_pattern(name, 1, most) if new else FITS
        if found == FITS:
            return 0
        if found == SESSION_FULL:
            self._why = f"the filters of a session have + at no more than {most} different sets of levels in all groups"
        else:
            self._why = "the filters of the user have + at too many different sets of levels in all groups"
            if session.account is not None:
                self.state.counters.quota_refused_subscriptions += 1
                self.state.refuse(session.account, "filter patterns")
        return reason.QUOTA_EXCEEDED

    def _find_going(self, connection: Connection, session: Session, name: bytes) -> Subscription | None:
        """Return the subscription to a replay that this same packet, or a later one, began with an earlier leader.

        Its records may have reached the client: the replay continues and must not begin again (A9).
        """
        feed = self.feeds.find(session, name)
        if not isinstance(feed, ReplayFeed) or is_later(source_of(connection), feed.source) or feed.is_late():
            return None
        return feed.subscription

    def _start(self, session: Session, feed: Feed) -> None:
        if session.persistent:
            feed.save(self.feeds)
            feed.token = self.commits.newest_token()
        self.feeds.start(feed)

    def _fault(self, session: Session, name: bytes) -> int:
        limits = self.state.limits
        why = check_filter(name, limits.topic_levels_max)
        if len(name) > limits.topic_bytes_max:
            why = f"topic filter is longer than {limits.topic_bytes_max} bytes"
        if why is not None:  # [MQTT-4.7.1-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2]
            self._why = why
            return reason.TOPIC_FILTER_INVALID
        if has_wildcard(name) and not limits.wildcard_available:
            self._why = "wildcards are switched off"
            return reason.WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED
        if name.startswith(_SHARE) and not limits.shared_available:
            self._why = "shared subscriptions are switched off"
            return reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        if len(session.subscriptions) >= limits.subscriptions_max and name not in session.subscriptions:
            self._why = f"a session has at most {limits.subscriptions_max} subscriptions"
            return reason.QUOTA_EXCEEDED
        if name not in session.subscriptions:
            code = self._quota_fault(session, name)
            if code:
                return code
        if self.state.storage_full and session.persistent and name not in session.subscriptions:
            self.state.counters.storage_refused += 1
            self._why = "no room on the disk"
            return reason.QUOTA_EXCEEDED
        return 0

    def _quota_fault(self, session: Session, name: bytes) -> int:
        """Return why the quota of the user or the memory of the node forbids a new subscription, or 0."""
        state = self.state
        if state.memory.refuses:
            state.counters.memory_refused_subscriptions += 1
            self._why = "the server is short of memory"
            return reason.QUOTA_EXCEEDED
        account = session.account
        if account is None:
            return 0
        if account.subscriptions >= account.quota.subscriptions_max:
            what = "subscriptions"
            self._why = "the user has too many subscriptions"
        elif not account.fits_memory(SUBSCRIPTION_BYTES + excess_of(name)):
            what = "memory"
            self._why = "what the user has takes too much memory"
        elif not account.fits_announced(SUBSCRIPTION_BYTES + excess_of(name), len(self.routes.fabric.others) + 1):
            what = "memory"
            self._why = "the subscriptions of the user take too much memory at all nodes"
        else:
            return 0
        state.counters.quota_refused_subscriptions += 1
        state.refuse(account, what)
        return reason.QUOTA_EXCEEDED

    def _store(self, session: Session, subscription: Subscription, known: Subscription | None) -> None:
        """Store and activate a subscription; it replaces one with the same filter [MQTT-3.8.4-3]."""
        if known is not None:
            self.routes.remove(known)
        else:
            self.state.counters.subscribed += 1
            if session.account is not None:
                session.account.subscriptions += 1
            self._weigh(session, excess_of(subscription.name))
        session.subscriptions[subscription.name] = subscription
        self.routes.add(subscription)
        if session.persistent:
            row = SubscriptionRow(subscription.options, subscription.identifier)
            self.state.writer.put(
                session.partition, subscription_key(session, subscription.name), encode_subscription(row)
            )

    def _weigh(self, session: Session, excess: int) -> None:
        """Count the memory of an unusual filter, or no more."""
        if excess:
            self.state.accounts.add_filter(session, excess)

    def unsubscribe(self, connection: Connection, packet: Unsubscribe) -> None:
        """Remove subscriptions [MQTT-3.10.4-1]; messages on their way to the client still arrive [MQTT-3.10.4-2].

        With many filters this takes several turns, and is the task of the connection.
        """
        task = UnsubscribeTask(self, connection, packet)
        if not self.remove_more(task):
            connection.task = task

    def remove_more(self, task: UnsubscribeTask) -> bool:
        """Remove the filters of an UNSUBSCRIBE until the client's steps are spent; return whether it is answered."""
        connection = task.connection
        session = connection.session
        assert session is not None, "an open connection has a session"
        filters = task.source.filters
        codes = task.codes
        work = self.state.work
        while len(codes) < len(filters):
            if codes and work.is_spent():
                return False
            work.steps += PACKET_STEPS
            codes.append(self._remove(connection, session, filters[len(codes)]))
        data = encode(Unsuback(task.source.packet_id, codes if connection.v5 else []), connection.version)
        self.commits.acknowledge(connection, data, session.persistent, own=True)
        self.state.counters.sent_unsuback += 1
        return True

    def _remove(self, connection: Connection, session: Session, name: bytes) -> int:
        if name.startswith(REPLAY_PREFIX) and self._find_going(connection, session, name) is not None:
            return reason.SUCCESS  # the packet was received again, behind the SUBSCRIBE that followed it
        if self.remove(session, name):
            return reason.SUCCESS
        if session.persistent and self.routes.fabric.away:
            # Those who are away may have it: the removal gets its time, by which a merge ends it.
            self.state.writer.delete(session.partition, subscription_key(session, name))
        return reason.NO_SUBSCRIPTION_EXISTED

    def end_denied(self, session: Session) -> list[bytes]:
        """End the subscriptions that the owner of the session may not have (any more); return their filters."""
        policy = self.state.policy
        ended: list[bytes] = []
        if policy.open:
            return ended
        for subscription in list(session.subscriptions.values()):
            topic_filter, share = subscription.topic_filter, subscription.share
            if policy.may_subscribe(session.client_id, session.owner, topic_filter, share):
                continue
            name = subscription.name
            ended.append(name)
            self.state.counters.acl_denied_subscribe += 1
            self.remove(session, name)
            fields: dict[str, object] = {"client": session.client_id, "user": session.username, "filter": name.decode()}
            self.state.event(WARNING, "subscription_revoked", fields)
        return ended

    def remove(self, session: Session, name: bytes) -> bool:
        """Remove one subscription; False when it does not exist."""
        known = session.subscriptions.pop(name, None)
        if known is None:
            return False
        session.count_pattern(name, -1)
        self._weigh(session, -excess_of(name))
        self.state.work.steps += SUBSCRIPTION_STEPS
        self.routes.remove(known)
        if session.account is not None:
            session.account.subscriptions -= 1
        self.feeds.cancel(session, name)
        self.state.counters.unsubscribed += 1
        if session.persistent:
            self.state.writer.delete(session.partition, subscription_key(session, name))
        return True
