"""Routes: for a topic, who gets it. Computed from the subscription tree once per topic and remembered.

MQTT 5 sections 3.3.4, 4.7, 4.8.
"""

from __future__ import annotations

from typing import Final

from folkmoot.routing.interest import Interest, Location, SharedLocation
from folkmoot.routing.topic_index import TopicIndex
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient, Subscription, merge
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams
from folkmoot.topics.name import has_wildcard
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["Group", "Route", "Routes", "is_reserved"]

_TOPIC_BYTES_MAX: Final = 1024  # of the topics that are remembered: a hundred thousand of the longest take gigabytes

_STALE_PER_MISS: Final = 8  # routes freed when one is made: those that were forgotten are gone before it is full again

# Topics that belong to the server: clients cannot publish to them.
_RESERVED: Final = (b"$SYS/", b"$events/", b"$share/", b"$stream/")
_EVENTS: Final = b"$events"


def is_reserved(topic: bytes) -> bool:
    """Whether a topic belongs to the server, the bare names included."""
    return topic[0] == 36 and (topic + b"/").startswith(_RESERVED)


class Group:
    """A shared subscription: its members take turns (MQTT 5 section 4.8.2)."""

    def __init__(self, name: bytes, topic_filter: bytes) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.members: list[Subscription] = []
        self.absent = 0  # members whose sessions have no client now
        self.turn = 0
        self.turns: dict[int, int] = {}  # by place, for what was given to a place
        self._places: dict[Subscription, int] = {}

    def join(self, member: Subscription) -> None:
        """Add a member."""
        self._places[member] = len(self.members)
        self.members.append(member)
        self.absent += member.absent

    def leave(self, member: Subscription) -> None:
        """Remove a member; the last one takes its place, for a group may have a great many."""
        place = self._places.pop(member)
        self.absent -= member.absent
        last = self.members.pop()
        if last is not member:
            self.members[place] = last
            self._places[last] = place

    def __repr__(self) -> str:
        return f"Group({self.name!r} members={len(self.members)})"


class Route:
    """Who gets a topic: live (transient) and stored (persistent) sessions, shared groups, stream partitions.

    simple: a QoS 0 message only has to be copied to `recipients` and `nodes`, nothing is kept, counted or chosen.
    live: that holds for QoS 1 and 2 as well, because all recipients are transient.
    """

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.recipients: list[Recipient] = []
        self.transient: list[Recipient] = []
        self.durable: list[Recipient] = []
        self.groups: list[Group] = []
        self.logs: list[StreamLog] = []
        # At other nodes, and in partitions that others lead
        self.nodes: list[str] = []
        self.away: list[int] = []
        self.away_logs: list[int] = []  # partitions of the store that have the stream partitions of the topic
        self.shared: dict[bytes, list[SharedLocation]] = {}
        self.elsewhere = False
        self.simple = False
        self.live = False


class Routes:
    """The cache of routes. It never holds a stale one: every change of a subscription goes through here."""

    def __init__(self, state: State, fabric: Fabric, interest: Interest, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.interest = interest
        self.streams = streams
        self.cache: dict[bytes, Route] = {}
        self._index = TopicIndex()  # of the topics in the cache
        self._stale: list[Route] = []  # routes that nobody finds any more: freeing all of them at once takes long
        self.groups: dict[bytes, Group] = {}
        self.events_changed = True  # perhaps others take the events of this node now

    def lookup(self, topic: bytes) -> Route:
        """Return the route of a valid topic name."""
        route = self.cache.get(topic)
        if route is not None:
            return route
        self.state.counters.route_misses += 1
        del self._stale[-_STALE_PER_MISS:]
        if len(self.cache) >= self.state.limits.route_cache_max:
            self.forget_all()
        route = self._build(topic)
        if len(topic) <= _TOPIC_BYTES_MAX:
            self.cache[topic] = route
            self._index.add(topic)
            self.state.counters.route_cached = len(self.cache)
        return route

    def _build(self, topic: bytes) -> Route:
        route = Route(topic)
        by_session: dict[str, list[Subscription]] = {}
        for value in self.state.tree.match(topic):
            if isinstance(value, Subscription):
                known = by_session.get(value.session.client_id)
                if known is None:
                    by_session[value.session.client_id] = [value]
                else:
                    known.append(value)
            else:
                assert isinstance(value, Group)
                route.groups.append(value)
        for subscriptions in by_session.values():
            recipient = merge(subscriptions)
            route.recipients.append(recipient)
            if recipient.session.durable:
                route.durable.append(recipient)
            else:
                route.transient.append(recipient)
        # Sessions of one partition stand together: a message for several of them is stored once.
        route.durable.sort(key=_partition_of_recipient)
        if topic[0] != 36 or topic.startswith(_EVENTS):  # b"$"
            for log in self.streams.match(topic):
                if self.state.leads[log.store_partition]:
                    route.logs.append(log)
                else:
                    route.away_logs.append(log.store_partition)
        if not self.fabric.alone:
            self._build_elsewhere(route)
        keeps_qos0 = self.state.limits.queue_qos0_offline and bool(route.durable)
        route.elsewhere = bool(route.nodes or route.away or route.away_logs or route.shared)
        chosen = bool(route.away or route.away_logs or route.shared or route.groups)
        copied = not chosen and not route.logs
        route.simple = copied and not keeps_qos0 and not is_reserved(topic)
        route.live = route.simple and not route.durable
        return route

    def _build_elsewhere(self, route: Route) -> None:
        for value in self.interest.tree.match(route.topic):
            if isinstance(value, Location):
                if not value.node_id:
                    route.away.append(value.partition)
                elif value.node_id not in route.nodes:  # several of its filters may match
                    route.nodes.append(value.node_id)
            else:
                assert isinstance(value, SharedLocation)
                route.shared.setdefault(value.name, []).append(value)

    def refresh(self) -> None:
        """Forget what the news of other nodes concern."""
        changed = self.interest.changed
        if changed:
            if len(changed) > len(self.cache):
                self.forget_all()
            else:
                for topic_filter in changed:
                    self.forget(topic_filter)
            changed.clear()

    def forget(self, topic_filter: bytes) -> None:
        """Drop the remembered routes that a change of this filter may concern."""
        if topic_filter.startswith(_EVENTS):
            self.events_changed = True
        if not self.cache:
            return
        if not has_wildcard(topic_filter):
            if self.cache.pop(topic_filter, None) is not None:
                self._index.remove(topic_filter)
            return
        topics = self._index.take(topic_filter)
        if topics is None:
            self.forget_all()
        else:
            for topic in topics:
                del self.cache[topic]

    def forget_all(self) -> None:
        """Drop all remembered routes."""
        self.events_changed = True
        self._stale.extend(self.cache.values())
        self.cache.clear()
        self._index.clear()

    def add(self, subscription: Subscription) -> None:
        """Let a subscription take part in routing, unless it is a replay."""
        if subscription.is_replay:
            return
        if subscription.share:
            subscription.absent = subscription.session.durable and subscription.session.connection is None
        self._tell(subscription, True)
        if subscription.share:
            group = self.groups.get(subscription.name)
            if group is None:
                group = Group(subscription.name, subscription.topic_filter)
                self.groups[subscription.name] = group
                self.state.tree.add(subscription.topic_filter, group)
                self.forget(subscription.topic_filter)
            group.join(subscription)
            self.state.counters.subscriptions_shared += 1
        else:
            self.state.tree.add(subscription.topic_filter, subscription)
            self.forget(subscription.topic_filter)
        self._count(subscription.session, 1)

    def remove(self, subscription: Subscription) -> None:
        """Take a subscription out of routing, unless it is a replay."""
        if subscription.is_replay:
            return
        self._tell(subscription, False)
        if subscription.share:
            group = self.groups[subscription.name]
            group.leave(subscription)
            self.state.counters.subscriptions_shared -= 1
            if not group.members:
                del self.groups[subscription.name]
                self.state.tree.remove(subscription.topic_filter, group)
                self.forget(subscription.topic_filter)
        else:
            self.state.tree.remove(subscription.topic_filter, subscription)
            self.forget(subscription.topic_filter)
        self._count(subscription.session, -1)

    def _tell(self, subscription: Subscription, begins: bool) -> None:
        if self.fabric.alone:
            return
        session = subscription.session
        partition = session.partition if session.durable else -1
        if partition >= 0 and not self.state.leads[partition]:
            return  # the partition has moved: its subscriptions have not ended
        if begins:
            self.interest.add(partition, subscription.name)
            if subscription.absent:
                self.interest.went(partition, subscription.name)
        else:
            if subscription.absent:
                self.interest.came(partition, subscription.name)
            self.interest.remove(partition, subscription.name)

    def look(self, session: Session) -> None:
        """A persistent session has a client now, or has none any more: whose turn it is depends on that."""
        if not self.groups:
            return
        absent = session.connection is None
        for subscription in session.subscriptions.values():
            if subscription.share and subscription.absent != absent:
                subscription.absent = absent
                self.groups[subscription.name].absent += 1 if absent else -1
                if self.fabric.alone or not self.state.leads[session.partition]:
                    continue
                if absent:
                    self.interest.went(session.partition, subscription.name)
                else:
                    self.interest.came(session.partition, subscription.name)

    def _count(self, session: Session, change: int) -> None:
        if session.durable:
            self.state.counters.subscriptions_persistent += change
        else:
            self.state.counters.subscriptions_transient += change


def _partition_of_recipient(recipient: Recipient) -> int:
    return recipient.session.partition
