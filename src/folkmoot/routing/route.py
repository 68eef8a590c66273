"""Routes: all recipients of a topic. Computed from the subscription tree once per topic, and cached.

MQTT 5 sections 3.3.4, 4.7, 4.8. A look-up may take longer than a turn: each wildcard level of the filters can double
the branches that a topic leads to. `prepare` looks up in steps, and the publisher waits for it; subscriptions that
change meanwhile are considered at its end.
"""

from __future__ import annotations

from typing import Final

from folkmoot.routing.interest import Interest, Location, SharedLocation
from folkmoot.routing.topic_index import TopicIndex
from folkmoot.session.session import Session
from folkmoot.session.subscription import Recipient, Subscription, merge
from folkmoot.streams.log import StreamLog
from folkmoot.streams.table import Streams
from folkmoot.topics.name import has_wildcard, matches
from folkmoot.topics.tree import Walk
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State
from folkmoot.turn.work import LOOKUP_STEPS

__all__ = ["Group", "Route", "Routes", "is_reserved"]

_TOPIC_BYTES_MAX: Final = 1024  # of cached topics: a hundred thousand of the longest would take gigabytes

_NO_END: Final = 1 << 60
_IDLE_TURNS_MAX: Final = 4096  # an unfinished look-up that nobody continues for so long is forgotten
_CHANGES_MAX: Final = 65_536  # of filters, kept for unfinished look-ups
_STALE_PER_MISS: Final = 8  # routes freed per computed one: forgotten routes are gone before the cache is full again

# Topics of the server: clients cannot publish to them.
_RESERVED: Final = (b"$SYS/", b"$events/", b"$share/", b"$stream/")
_EVENTS: Final = b"$events"


def is_reserved(topic: bytes) -> bool:
    """Whether a topic belongs to the server; the bare names do too."""
    return topic[0] == 36 and (topic + b"/").startswith(_RESERVED)


class Group:
    """The members of a shared subscription at this node, which take turns (MQTT 5 section 4.8.2).

    next: the index of the member that is asked first for the next message to any of them; next_in: the same by place
    (see `folkmoot.delivery.shared`), for messages to the members of one place.
    """

    def __init__(self, name: bytes, topic_filter: bytes) -> None:
        self.name = name
        self.topic_filter = topic_filter
        self.members: list[Subscription] = []
        self.absent = 0  # members whose client is not connected
        self.next = 0
        self.next_in: dict[int, int] = {}
        self._index: dict[Subscription, int] = {}  # of each member

    def join(self, member: Subscription) -> None:
        """Add a member."""
        self._index[member] = len(self.members)
        self.members.append(member)
        self.absent += member.absent

    def leave(self, member: Subscription) -> None:
        """Remove a member; the last one gets its index, because a group may be very large."""
        index = self._index.pop(member)
        self.absent -= member.absent
        last = self.members.pop()
        if last is not member:
            self.members[index] = last
            self._index[last] = index

    def __repr__(self) -> str:
        return f"Group({self.name!r} members={len(self.members)})"


class Route:
    """The recipients of a topic: live (transient) and stored (persistent) sessions, shared groups, stream partitions.

    simple: a QoS 0 message only has to be copied to `recipients` and `nodes`; nothing is stored, counted or chosen.
    live: the same for QoS 1 and 2, because all recipients are transient.
    """

    def __init__(self, topic: bytes) -> None:
        self.topic = topic
        self.recipients: list[Recipient] = []
        self.transient: list[Recipient] = []
        self.persistent: list[Recipient] = []
        self.groups: list[Group] = []
        self.logs: list[StreamLog] = []
        # At other nodes, and in partitions that other nodes lead
        self.nodes: list[str] = []
        self.away: list[int] = []
        self.away_logs: list[int] = []  # partitions of the store with the stream partitions of the topic
        self.shared: dict[bytes, list[SharedLocation]] = {}
        self.elsewhere = False
        self.simple = False
        self.live = False
        self._by_partition: dict[int, list[Recipient]] | None = None

    def persistent_in(self, partition: int) -> list[Recipient]:
        """Return the persistent recipients of one partition."""
        known = self._by_partition
        if known is None:
            known = self._by_partition = {}
            for recipient in self.persistent:
                known.setdefault(recipient.session.partition, []).append(recipient)
        return known.get(partition, [])


class Lookup:
    """The look-up of one topic: how far it has come in the trees, and what it has found.

    since: how many changes of subscriptions there were when it began; touched: the turn in which it was last continued.
    """

    def __init__(self, topic: bytes, here: Walk, elsewhere: Walk | None, since: int) -> None:
        self.topic = topic
        self.here = here
        self.elsewhere = elsewhere
        self.since = since
        self.touched = 0
        self.groups: list[Group] = []
        self.by_session: dict[str, list[Subscription]] = {}
        self._taken = 0  # of what was found here

    def go(self, steps: int) -> int:
        """Continue for about this many steps; return how many it took: fewer only if it is done."""
        here = self.here
        used = 0
        if not here.is_done:
            before = here.visited
            here.go(steps)
            used = here.visited - before
        found = here.found
        at = self._taken
        end = min(len(found), at + max(steps - used, 0)) if here.is_done else at
        used += end - at
        while at < end:
            self.take(found[at])
            at += 1
        self._taken = at
        elsewhere = self.elsewhere
        if elsewhere is not None and used < steps and not elsewhere.is_done:
            before = elsewhere.visited
            elsewhere.go(steps - used)
            used += elsewhere.visited - before
        return used

    def is_done(self) -> bool:
        """Whether everything is found."""
        here = self.here
        return here.is_done and self._taken == len(here.found) and (self.elsewhere is None or self.elsewhere.is_done)

    def take(self, value: object) -> None:
        """Add a group or a subscription of this node."""
        if isinstance(value, Subscription):
            if value.session.ended:  # its subscriptions are being removed
                return
            known = self.by_session.get(value.session.client_id)
            if known is None:
                self.by_session[value.session.client_id] = [value]
            else:
                known.append(value)
        else:
            assert isinstance(value, Group)
            self.groups.append(value)

    def __repr__(self) -> str:
        return f"Lookup({self.topic!r} here={self.here.visited} sessions={len(self.by_session)})"


class Routes:
    """The cache of routes. No entry is ever stale: every change of a subscription goes through this class."""

    def __init__(self, state: State, fabric: Fabric, interest: Interest, streams: Streams) -> None:
        self.state = state
        self.fabric = fabric
        self.interest = interest
        self.streams = streams
        self.cache: dict[bytes, Route] = {}
        self._index = TopicIndex()  # of the topics in the cache
        self._stale: list[Route] = []  # removed routes: freeing all of them at once takes long
        self.groups: dict[bytes, Group] = {}
        self.events_changed = True  # the events of this node may have new subscribers
        self._unfinished: dict[bytes, Lookup] = {}  # by topic
        self._changes: list[bytes] = []  # filters that have changed while there were unfinished look-ups
        self._changes_before = 0  # changes before the first of these
        self._nobody = Route(b"")  # of all cached topics without recipients
        self._nobody.simple = self._nobody.live = True
        self._newest: Route | None = None  # the last one that was computed and not cached

    def lookup(self, topic: bytes) -> Route:
        """Return the route of a valid topic name."""
        route = self.cache.get(topic)
        if route is not None:
            return route
        newest = self._newest
        if newest is not None and newest.topic == topic:
            return newest
        lookup = self._begin(topic)
        self.state.work.steps += lookup.go(_NO_END)
        return self._finish(lookup)

    def storing(self, route: Route, topic: bytes, retain: bool) -> list[int]:
        """Return the partitions led elsewhere that store a message for sessions and streams.

        retain: it is to be retained. Then the partition of its topic is the last of them, whichever node leads it.
        """
        partitions = route.away + route.away_logs
        return [*partitions, self.state.partition_of(topic)] if retain else partitions

    def out_of_reach(self, topic: bytes, retain: bool, by_producer: bool) -> int:
        """Return a partition without a leader for which a message would wait, -1: there is none.

        Of a group, one member within reach is enough; for messages of idempotent producers the partition of its name
        chooses the member.
        """
        absent = self.absent(topic, retain, by_producer)
        return absent[0] if absent else -1

    def absent(self, topic: bytes, retain: bool, by_producer: bool) -> list[int]:
        """Return all partitions without a leader for which a message would wait, see `out_of_reach`."""
        if not self.fabric.leaderless:
            return []
        route = self.lookup(topic)
        leaders = self.fabric.leaders
        partitions = self.storing(route, topic, retain)
        for name, locations in route.shared.items():
            if by_producer:
                partitions.append(self.state.partition_of(name))
            if name not in self.groups and not self.interest.within_reach(locations):
                partitions.append(locations[0].location.partition)
        if by_producer:
            partitions += [self.state.partition_of(group.name) for group in route.groups]
        return [partition for partition in partitions if not leaders[partition]]

    def concerns(self, topic: bytes, retain: bool, partitions: list[int]) -> bool:
        """Whether one of these partitions, all with a leader, must get a message, or may have to."""
        route = self.lookup(topic)
        if route.groups:
            return True  # any partition may have a member
        storing = [*self.storing(route, topic, retain), *[log.store_partition for log in route.logs]]
        storing += [recipient.session.partition for recipient in route.persistent]
        for locations in route.shared.values():
            storing += [one.location.partition for one in locations]
        return any(partition in partitions for partition in storing)

    def prepare(self, topic: bytes) -> bool:
        """Look up a valid topic name that is not in the cache, so that `lookup` in this turn takes no time.

        False: the steps of the client that is being served are spent, and it must continue in its next turn.
        """
        work = self.state.work
        lookup = self._unfinished.get(topic)
        if lookup is None:
            lookup = self._begin(topic)
        work.steps += lookup.go(max(work.left(), 1))
        if not lookup.is_done():
            lookup.touched = work.turn
            if topic not in self._unfinished:
                self._unfinished[topic] = lookup
                self._drop_idle()
            return False
        if topic in self._unfinished:
            del self._unfinished[topic]
        self._finish(lookup)
        if not self._unfinished:
            self._changes_before += len(self._changes)
            self._changes = []
        return True

    def _begin(self, topic: bytes) -> Lookup:
        self.state.counters.route_misses += 1
        self.state.work.steps += LOOKUP_STEPS
        self._newest = None
        elsewhere = None if self.fabric.alone else self.interest.tree.walk(topic)
        return Lookup(topic, self.state.tree.walk(topic), elsewhere, self._changes_before + len(self._changes))

    def _finish(self, lookup: Lookup) -> Route:
        changed = self._review(lookup)
        route = self._build(lookup)
        self.state.counters.route_branches += lookup.here.visited
        del self._stale[-_STALE_PER_MISS:]
        topic = lookup.topic
        if len(topic) > _TOPIC_BYTES_MAX or changed:
            self._newest = route
            return route
        if route.simple and not route.recipients and not route.nodes:
            route = self._nobody  # a hundred thousand routes of topics without recipients would take much memory
        if len(self.cache) >= self.state.limits.route_cache_max:
            self._empty_cache()
        self.cache[topic] = route
        self._index.add(topic)
        self.state.counters.route_cached = len(self.cache)
        return route

    def _drop_idle(self) -> None:
        """Forget unfinished look-ups whose publishers have gone; they are in the order of their beginning."""
        while self._unfinished:
            oldest = next(iter(self._unfinished.values()))
            if oldest.touched + _IDLE_TURNS_MAX >= self.state.work.turn:
                return
            del self._unfinished[oldest.topic]

    def _review(self, lookup: Lookup) -> bool:
        """Consider the subscriptions that have changed since a look-up began; return whether there are any.

        The message was received before they changed, so it may go either way; but it must not go to what has ended.
        """
        changed = self._changes[lookup.since - self._changes_before :]
        self.state.work.steps += len(changed)
        found: dict[bytes, None] = {}
        for topic_filter in changed:
            if matches(topic_filter, lookup.topic):
                found[topic_filter] = None
        if not found:
            return False
        values: dict[object, None] = dict.fromkeys(lookup.here.found)
        elsewhere: dict[object, None] = {} if lookup.elsewhere is None else dict.fromkeys(lookup.elsewhere.found)
        for topic_filter in found:
            values.update(dict.fromkeys(self.state.tree.values(topic_filter)))
            elsewhere.update(dict.fromkeys(self.interest.tree.values(topic_filter)))
        lookup.by_session = {}
        lookup.groups = []
        for value in values:
            if isinstance(value, Subscription):
                if value.session.subscriptions.get(value.name) is value:
                    lookup.take(value)
            else:
                assert isinstance(value, Group)
                if self.groups.get(value.name) is value:
                    lookup.take(value)
        if lookup.elsewhere is not None:
            lookup.elsewhere.found = list(elsewhere)
        self.state.work.steps += len(values)
        return True

    def _build(self, lookup: Lookup) -> Route:
        topic = lookup.topic
        route = Route(topic)
        route.groups = lookup.groups
        for subscriptions in lookup.by_session.values():
            recipient = merge(subscriptions)
            route.recipients.append(recipient)
            if recipient.session.persistent:
                route.persistent.append(recipient)
            else:
                route.transient.append(recipient)
        # Sessions of one partition are neighbours: a message for several of them is stored once.
        route.persistent.sort(key=_partition_of_recipient)
        if topic[0] != 36 or topic.startswith(_EVENTS):  # b"$"
            for log in self.streams.match(topic):
                if self.state.leads[log.store_partition]:
                    route.logs.append(log)
                else:
                    route.away_logs.append(log.store_partition)
        if lookup.elsewhere is not None:
            self._build_elsewhere(route, lookup.elsewhere.found)
        keeps_qos0 = self.state.limits.queue_qos0_offline and bool(route.persistent)
        route.elsewhere = bool(route.nodes or route.away or route.away_logs or route.shared)
        chosen = bool(route.away or route.away_logs or route.shared or route.groups)
        copied = not chosen and not route.logs
        route.simple = copied and not keeps_qos0 and not is_reserved(topic)
        route.live = route.simple and not route.persistent
        return route

    def _build_elsewhere(self, route: Route, found: list[object]) -> None:
        away: dict[int, None] = {}  # several filters of one location may match
        nodes: dict[str, None] = {}
        for value in found:
            if isinstance(value, Location):
                if value.node_id:
                    nodes[value.node_id] = None
                else:
                    away[value.partition] = None
            else:
                assert isinstance(value, SharedLocation)
                if value.count:
                    route.shared.setdefault(value.name, []).append(value)
        route.away = list(away)
        route.nodes = list(nodes)
        self.state.work.steps += len(found)

    def refresh(self) -> None:
        """Remove the routes that announcements of other nodes concern."""
        changed = self.interest.changed
        if changed:
            if len(changed) > len(self.cache):
                if self._unfinished:
                    self._note_changes(changed)
                self.forget_routes()
            else:
                for topic_filter in changed:
                    self.forget(topic_filter)
            changed.clear()

    def forget(self, topic_filter: bytes) -> None:
        """Remove the cached routes that a change of this filter may concern."""
        self._newest = None
        if self._unfinished:
            self._note_changes([topic_filter])
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
            self._empty_cache()
        else:
            for topic in topics:
                del self.cache[topic]

    def _note_changes(self, changed: list[bytes]) -> None:
        self._changes.extend(changed)
        if len(self._changes) > _CHANGES_MAX:
            self._unfinished = {}  # they begin anew
            self._changes_before += len(self._changes)
            self._changes = []

    def forget_all(self) -> None:
        """Remove all cached routes, and begin unfinished look-ups anew: leaders or locations have changed."""
        self._unfinished = {}
        self.forget_routes()

    def forget_routes(self) -> None:
        """Remove all cached routes: so many subscriptions have changed that to find those of each takes longer."""
        self._newest = None
        self.events_changed = True
        self._empty_cache()

    def _empty_cache(self) -> None:
        self._stale.extend(self.cache.values())
        self.cache.clear()
        self._index.clear()

    def add(self, subscription: Subscription) -> None:
        """Add a subscription to routing, unless it is a replay."""
        if subscription.is_replay:
            return
        if subscription.share:
            subscription.absent = subscription.session.persistent and subscription.session.connection is None
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
        """Remove a subscription from routing, unless it is a replay."""
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
        partition = session.partition if session.persistent else -1
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
        """A persistent session has a client now, or has none any more: turns in its groups depend on that."""
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
        if session.persistent:
            self.state.counters.subscriptions_persistent += change
        else:
            self.state.counters.subscriptions_transient += change


def _partition_of_recipient(recipient: Recipient) -> int:
    return recipient.session.partition
