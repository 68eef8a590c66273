"""Which locations in the cluster have subscribers for which filters; each node announces its own to all others.

So messages go only to nodes that need them, and a SUBACK can wait until no node misses a message for it (A5).

The leader of a partition announces the persistent subscriptions of the partition, which stay with the partition when
its leader changes. The node with the connection announces transient ones. Only the first and the last subscriber of a
filter are announced; for shared subscriptions the number of members is, so that the choice is fair.
"""

from __future__ import annotations

from typing import Final

import msgspec

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import get_varint, varint
from folkmoot.session.subscription import SUBSCRIPTION_BYTES, excess_of
from folkmoot.topics.name import split_share
from folkmoot.topics.tree import Tree
from folkmoot.turn.barrier import Barrier
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.landing import Landings
from folkmoot.turn.message import ANNOUNCE, ASKS_CONFIRM, ASKS_LANDED
from folkmoot.turn.work import SUBSCRIPTION_STEPS

__all__ = ["Interest", "Location", "SharedLocation", "announced_bytes", "location_name"]

# in an announced number: the lower bits count the subscribers, the upper ones those that are absent
_ABSENT_BIT: Final = 32
_SCARCE_WAIT_US: Final = 5 * SECOND  # clients wait for copies to be filled
_ANNOUNCED_MIN: Final = 256  # filters: with fewer, nobody looks for those that are known to all
_Table = tuple[str, int, bool, list[tuple[bytes, int]]]


class Location:
    """Where subscribers are: a node (transient ones) or a partition (persistent ones; then the node's id is empty)."""

    def __init__(self, node_id: str, partition: int) -> None:
        self.node_id = node_id
        self.partition = partition
        # Filters with the number of subscribers; from elsewhere 1 for any; of a shared one also the absent members
        self.names: dict[bytes, int] = {}

    @property
    def name(self) -> bytes:
        """Its name, the same at all nodes."""
        return location_name(self.node_id, self.partition)

    def __repr__(self) -> str:
        return f"Location({self.node_id or self.partition!r} filters={len(self.names)})"


def location_name(node_id: str, partition: int) -> bytes:
    """Return the name of a location, the same at all nodes: that of a node, or without one of a partition."""
    return node_id.encode() if node_id else b"\0%d" % partition  # no id of a node begins like this


def announced_bytes(name: bytes) -> int:
    """Return the memory that a filter of another node takes: about as much as a subscription to it."""
    return SUBSCRIPTION_BYTES + excess_of(name)


class SharedLocation:
    """The members of a shared subscription at one location; absent: those whose client is not connected."""

    def __init__(self, name: bytes, location: Location) -> None:
        self.name = name
        self.location = location
        self.count = 0
        self.absent = 0

    def __repr__(self) -> str:
        return f"SharedLocation({self.name!r} {self.location!r} members={self.count} absent={self.absent})"


class Interest:
    """What the other nodes have announced, and what is to be announced to them."""

    def __init__(self, fabric: Fabric, commits: Commits, barrier: Barrier, landings: Landings, partitions: int) -> None:
        self.fabric = fabric
        self.commits = commits
        self.barrier = barrier
        self.landings = landings
        self.tree = Tree()  # of other nodes: Location, or SharedLocation for shared subscriptions
        self.changed: list[bytes] = []  # filters whose routes are out of date; the owner of the routes clears it
        self._told: dict[str, None] = {}  # the other members that have announced everything
        # Partitions whose subscriptions this node has not heard since it started, or started over with all others
        self._unknown: dict[int, None] = {} if fabric.alone else dict.fromkeys(range(partitions))
        self._unheard: dict[int, None] = {}  # those of them that were absent at a time at which clients were let in
        # partitions whose present leader has not announced everything yet
        self._untold: list[bool] = [False] * partitions
        # Partitions that continue from the other side of a split, until their leader announces them
        self.from_other_side: dict[int, None] = {}
        self._locations: list[Location] = [Location("", partition) for partition in range(partitions)]
        self._nodes: dict[str, Location] = {}
        self._shared: dict[bytes, dict[tuple[str, int], SharedLocation]] = {}  # by full filter, by location
        self._own: list[Location] = [Location("", partition) for partition in range(partitions)]
        self._here = Location(fabric.node_id, -1)
        self._absent: list[dict[bytes, int]] = [{} for _ in range(partitions)]  # by full filter of shared subscriptions
        self._news: dict[tuple[int, bytes], None] = {}
        self._urgent = False  # a SUBACK waits for these changes
        # By partition and filter: the turn that has announced subscribers; some are complete and not forgotten yet
        self._announced: dict[tuple[int, bytes], int] = {}
        self._announced_max = _ANNOUNCED_MIN
        self._sent: dict[str, dict[int, list[int]]] = {}  # per node: announcements without confirmation -> turns
        self._count = 0

    # -- subscriptions of this node ---------------------------------------------------------------------------------

    def add(self, partition: int, name: bytes) -> None:
        """Add a subscription: of a persistent session in `partition`, of a transient one with -1."""
        self._change(partition, name, 1)

    def remove(self, partition: int, name: bytes) -> None:
        """Remove a subscription."""
        self._change(partition, name, -1)

    def _change(self, partition: int, name: bytes, change: int) -> None:
        names = self._names(partition)
        count = names.get(name, 0) + change
        if count:
            names[name] = count
        else:
            del names[name]
        is_news = count == 0 or (count == 1 and change > 0) or name.startswith(b"$share/")
        key = (partition, name)
        if not is_news and change > 0 and key in self._announced:
            # Others may not know it yet: this turn asks anew, so that its SUBACK waits for no other turn.
            is_news = self._announced[key] > self.commits.complete_token
        if self.fabric.others and is_news:
            self._news[key] = None
            self._urgent = True
            if change > 0:
                self.commits.asked = True  # a SUBACK of this turn waits for the other nodes

    def went(self, partition: int, name: bytes) -> None:
        """A member of a shared subscription has no client any more: members elsewhere may take its turns."""
        self._be_absent(partition, name, 1)

    def came(self, partition: int, name: bytes) -> None:
        """An absent member of a shared subscription has a client again, or is removed."""
        self._be_absent(partition, name, -1)

    def _be_absent(self, partition: int, name: bytes, change: int) -> None:
        absent = self._absent[partition]
        absent[name] = absent.get(name, 0) + change
        if not absent[name]:
            del absent[name]
        if self.fabric.others:
            self._news[(partition, name)] = None

    def _names(self, partition: int) -> dict[bytes, int]:
        return self._here.names if partition < 0 else self._own[partition].names

    def _entries(self, partition: int) -> list[tuple[bytes, int]]:
        """Return the announcement of a partition, or (-1) of the transient sessions here."""
        return [(name, self._told_of(partition, name)) for name in self._names(partition)]

    def _told_of(self, partition: int, name: bytes) -> int:
        absent = self._absent[partition].get(name, 0) if partition >= 0 else 0
        return self._names(partition).get(name, 0) | absent << _ABSENT_BIT

    def leave(self, partition: int) -> None:
        """End the leadership of the partition: its subscriptions count as announced by the new leader."""
        entries = self._entries(partition)
        self._own[partition] = Location("", partition)
        self._absent[partition] = {}
        self._set_all(self._locations[partition], entries)

    def lead(self, partition: int) -> None:
        """Begin to lead the partition: its subscriptions are known from its rows."""
        self._set_all(self._locations[partition], [])
        self._untold[partition] = False
        self.landings.opened(partition, self.fabric.node_id)
        self.from_other_side.pop(partition, None)
        self._know(partition)

    def moved(self, partition: int) -> None:
        """The partition has another leader, or is opened anew, and will be announced as a whole."""
        self._untold[partition] = True
        self.landings.moved(partition)

    def has_announced(self, partition: int) -> bool:
        """Whether the present leader of a partition has announced its subscriptions, as it does when it opens it."""
        return not self._untold[partition]

    def begin_anew(self, was_out: bool) -> None:
        """This node starts over with all others: they have not waited for it when clients subscribed.

        was_out: they have gone on without it. So what it knew of partitions that nobody leads may be old, too; who has
        stayed tells it what is known of them.
        """
        for partition, leader in enumerate(self.fabric.leaders):
            if leader != self.fabric.node_id and (leader or was_out):
                self._unknown[partition] = None

    def _know(self, partition: int) -> None:
        self._unknown.pop(partition, None)
        self._unheard.pop(partition, None)

    def has_heard_all(self, now: int) -> bool:
        """Whether all others, and the leaders of all partitions that can have one, have announced (A5); now: in us.

        What an absent partition has subscribed may be known to nobody, see `unheard`. So may what one with too few
        copies has, whose leader takes nothing: usually it gets another copy soon, and is waited for.
        """
        fabric = self.fabric
        if len(self._told) != len(fabric.others):
            return False
        is_scarce_long = now - fabric.scarce_us >= _SCARCE_WAIT_US
        for partition in self._unknown:
            if partition not in fabric.absent and not (partition in fabric.scarce and is_scarce_long):
                return False
        return True

    def note_unheard(self) -> None:
        """Clients are let in: what is not known yet may be missed, until it is."""
        self._unheard.update(self._unknown)

    def unheard(self) -> int:
        """Return a partition that was absent since this node came, so that it does not know who has subscribed; or -1.

        A message that is published meanwhile might miss a subscriber (A5).
        """
        for partition in self._unheard:
            return partition
        return -1

    def flush(self) -> None:
        """Announce the changes of this turn, and ask what has to be known of retained messages under way."""
        landings = self.landings
        if not self._news and not landings.is_asking():
            return
        news = self._news
        urgent = self._urgent
        self._news = {}
        self._urgent = False
        tables: dict[int, list[tuple[bytes, int]]] = {}
        for key in news:
            partition, name = key
            tables.setdefault(partition, []).append((name, self._told_of(partition, name)))
            if urgent:
                self._announced[key] = self.commits.state.writer.token
        self._forget_announced()
        body = self._pack([self._table(partition, False, entries) for partition, entries in tables.items()])
        for node_id in self.fabric.others:
            if tables or landings.is_asked(node_id):
                self._send(node_id, body, urgent)
        if landings.is_asked(self.fabric.node_id):
            self._count += 1
            landings.asked(self.fabric.node_id, self._count)
            self.barrier.asked(self.fabric.node_id, self._count, self.commits.newest_token())
        landings.end_turn()

    def _forget_announced(self) -> None:
        """Forget what all others know; each is looked at about twice."""
        if len(self._announced) >= self._announced_max:
            for key in [key for key, token in self._announced.items() if token <= self.commits.complete_token]:
                del self._announced[key]
            self._announced_max = max(2 * len(self._announced), _ANNOUNCED_MIN)

    def tell(self, node_id: str, partitions: list[int], all_of_node: bool) -> None:
        """Announce everything of some partitions that this node leads to a node, and perhaps of this node itself.

        Then also what it has heard of partitions that nobody leads: the node may not have heard it.
        """
        tables = [self._table(partition, True, self._entries(partition)) for partition in partitions]
        void: list[int] = []
        if all_of_node:
            tables.append(self._table(-1, True, self._entries(-1)))
            for partition, leader in enumerate(self.fabric.leaders):
                if not leader and partition not in self._unknown:
                    tables.append(self._table(partition, True, list(self._locations[partition].names.items())))
            # The node starts anew and has forgotten earlier announcements: its confirmation of this one covers them.
            for tokens in self._sent.pop(node_id, {}).values():
                void += tokens
            self.landings.again(node_id)
        self._send(node_id, self._pack(tables), True)
        if void and node_id in self._sent:
            self._sent[node_id][self._count] += void

    def _table(self, partition: int, whole: bool, entries: list[tuple[bytes, int]]) -> _Table:
        return (self.fabric.node_id if partition < 0 else "", partition, whole, entries)

    def _pack(self, tables: list[_Table]) -> bytes:
        return msgspec.msgpack.encode(tables)

    def _send(self, node_id: str, body: bytes, urgent: bool) -> None:
        self._count += 1
        asks = 0
        if urgent and not self.fabric.planted.no_barrier:
            self.commits.ask(1, 0)
            self._sent.setdefault(node_id, {})[self._count] = [self.commits.state.writer.token]
            asks = ASKS_CONFIRM
        if self.landings.is_asked(node_id):
            self.landings.asked(node_id, self._count)
            asks |= ASKS_LANDED
        self.fabric.send(node_id, ANNOUNCE, varint(self._count) + varint(self.fabric.epoch) + varint(asks) + body)

    def unconfirmed(self) -> list[str]:
        """Return the nodes that have not confirmed announcements."""
        return [node_id for node_id, numbers in self._sent.items() if numbers]

    def confirmed(self, node_id: str, number: int) -> None:
        """A node has confirmed an announcement."""
        for token in self._sent.get(node_id, {}).pop(number, []):
            self.commits.answered(token, 1, 0)

    # -- announcements of other nodes ---------------------------------------------------------------------------------

    def receive(self, node_id: str, body: bytes) -> tuple[int, int]:
        """Apply an announcement; return its number, and what it asks for.

        Raises ValueError or IndexError if it is malformed.
        """
        number, pos = get_varint(body, 0)
        _, pos = get_varint(body, pos)
        asks, pos = get_varint(body, pos)
        tables = msgspec.msgpack.decode(body[pos:], type=list[_Table])
        for of_node, partition, whole, entries in tables:
            if of_node:
                location = self._nodes.get(of_node)
                if location is None:
                    location = Location(of_node, -1)
                    self._nodes[of_node] = location
                if whole:
                    self._told[of_node] = None
            else:
                location = self._locations[partition]
                if self.fabric.leaders[partition] != node_id:
                    if whole and partition in self._unknown and not self.fabric.leaders[partition]:
                        self._know(partition)  # nobody leads it, and this node has heard it before
                        self._set_all(location, entries)
                    else:
                        self._hear_late(location, entries)
                    continue
                if whole:
                    self._know(partition)
                    self._untold[partition] = False
                    self.landings.opened(partition, node_id)
                    self.from_other_side.pop(partition, None)
            if whole:
                self._set_all(location, entries)
            else:
                for name, count in entries:
                    self._set(location, name, count)
        return (number, asks)

    def _hear_late(self, location: Location, entries: list[tuple[bytes, int]]) -> None:
        """Apply additions that a former leader of the partition announces.

        The new leader announces them too, now or later. But the SUBACK may leave at once, and from then on no message
        may miss its subscriber (A5). A superfluous entry does no harm until then.
        """
        if self._untold[location.partition]:
            for name, count in entries:
                if count:
                    self._set(location, name, count)

    def _set_all(self, location: Location, entries: list[tuple[bytes, int]]) -> None:
        known = dict(entries)
        for name in list(location.names):
            if name not in known:
                self._set(location, name, 0)
        for name, count in entries:
            self._set(location, name, count)

    def _set(self, location: Location, name: bytes, count: int) -> None:
        share = split_share(name) if name.startswith(b"$share/") else None
        before = location.names.get(name, 0)
        if before == count or (share is None and before and count):
            return
        if count:
            location.names[name] = count
        else:
            location.names.pop(name, None)
        topic_filter = name
        value: object = location
        if share is not None:
            topic_filter = share[1]
            value = self._set_shared(location, name, count)
        self.commits.state.work.steps += SUBSCRIPTION_STEPS // 2
        if count and not before:
            self.tree.add(topic_filter, value)
        elif not count:
            self.tree.remove(topic_filter, value)
        if not before or not count:
            self.changed.append(topic_filter)
            taken = announced_bytes(name)
            self.commits.state.memory.interest_bytes += taken if count else -taken

    def _set_shared(self, location: Location, name: bytes, count: int) -> SharedLocation:
        locations = self._shared.setdefault(name, {})
        key = (location.node_id, location.partition)
        shared = locations.get(key)
        if shared is None:
            shared = SharedLocation(name, location)
            locations[key] = shared
        shared.count = count & (1 << _ABSENT_BIT) - 1
        shared.absent = count >> _ABSENT_BIT
        if not count:
            del locations[key]
            if not locations:
                del self._shared[name]
        return shared

    def locations_of(self, name: bytes) -> list[SharedLocation]:
        """Return the locations of members of a shared subscription, except this node."""
        return list(self._shared.get(name, {}).values())

    def within_reach(self, locations: list[SharedLocation]) -> list[SharedLocation]:
        """Return those of these locations that can take a message now: a partition without a leader cannot."""
        if not self.fabric.leaderless:
            return locations
        leaders = self.fabric.leaders
        return [one for one in locations if one.location.node_id or leaders[one.location.partition]]

    # -- nodes come and go --------------------------------------------------------------------------------------------

    def gone(self, node_id: str) -> None:
        """A node is no member any more: its transient subscribers are gone, and it confirms nothing."""
        self._told.pop(node_id, None)
        self.landings.gone(node_id)
        location = self._nodes.pop(node_id, None)
        if location is not None:
            self._set_all(location, [])
        for tokens in self._sent.pop(node_id, {}).values():
            for token in tokens:
                self.commits.answered(token, 1, 0)
