"""Shared subscriptions: one member of a group gets the message (MQTT 5 section 4.8.2).

There are two choices. `choose_location`, at the node that publishes the message: a location of the group (a node with
transient members, or a partition with persistent ones), or the members here. `choose`, at the node that has the
location: one of its members. Only that node knows their windows, so the first choice goes by numbers of members alone.

The members of a location may all refuse a message: their queues are full, or it has QoS 0 and they are not connected.
Then it goes to another location, and names those that have refused it: none is tried twice.

A *place* is what the second choice is restricted to: the members with transient sessions (TRANSIENT), those with
sessions of one partition (its number), or all members at this node (ANYWHERE).
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.partition.queue import Queue
from folkmoot.routing.interest import SharedLocation, location_name
from folkmoot.routing.route import Group, Route, Routes
from folkmoot.session.connection import OPEN
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.message import Message

__all__ = ["ANYWHERE", "REFUSALS_MAX", "TRANSIENT", "TRIES_MAX", "Lost", "Shared", "place_of"]

# When the queue of the chosen member is full, this many others are tried: in a large group whose queues are all full
# a message must not cost a walk over the group.
TRIES_MAX: Final = 16
REFUSALS_MAX: Final = 64  # by so many locations in all, for the same reason
# Places that are no partition
ANYWHERE: Final = -2
TRANSIENT: Final = -1
# For one message this many members are examined; the next message continues behind them.
_LOOKS_MAX: Final = 512
_NAME_BYTES_MAX: Final = 256  # of a group that is remembered by its name, and not by a hash of it
_NAMES_MAX: Final = 100_000  # groups with members at other nodes of which the next location is remembered


class Lost:
    """A message of a group whose member is lost, or cannot take it.

    home: the partition where the message was stored, or -1; refused: names of locations whose members cannot take it.
    """

    def __init__(self, group: bytes, message: Message, home: int, refused: list[bytes]) -> None:
        self.group = group
        self.message = message.anew()
        self.home = home
        self.refused = list(refused)


class Shared:
    """Chooses members, and passes on what a lost member did not acknowledge."""

    def __init__(self, queue: Queue, routes: Routes) -> None:
        self.queue = queue
        self.routes = routes
        self.homeless: list[Lost] = []  # they have lost their member and need another one, at any node
        self._next: dict[bytes, int] = {}  # by group: how many messages its locations have got, in the present round

    def choose_location(
        self, name: bytes, group: Group | None, locations: list[SharedLocation]
    ) -> SharedLocation | None:
        """Return the location that gets the next message; None: a member of the group here does, or nobody.

        In a round, a location gets as many messages as it has connected members, or, when none is connected anywhere,
        as it has members. Partitions that are away get none, unless all members are there.
        """
        reached = self.routes.interest.within_reach(locations)
        if reached or group is not None:
            locations = reached
        total = 0 if group is None else len(group.members) - group.absent
        for location in locations:
            total += location.count - location.absent
        nobody = total == 0
        if nobody:
            total = 0 if group is None else len(group.members)
            for location in locations:
                total += location.count
        if not total:
            return None  # they have just lost their last members
        known = name if len(name) <= _NAME_BYTES_MAX else b"%d" % hash64(name)
        number = (self._next.get(known, -1) + 1) % total
        self._next[known] = number
        if len(self._next) > _NAMES_MAX:
            self._next.clear()
        for location in locations:
            count = location.count if nobody else location.count - location.absent
            if number < count:
                return location
            number -= count
        return None

    def only_elsewhere(self, route: Route) -> list[bytes]:
        """Return the groups of a route without members here."""
        return [name for name in route.shared if name not in self.routes.groups]

    def is_anybody_there(self, locations: list[SharedLocation]) -> bool:
        """Whether a member at one of these locations is connected, and can take a message now."""
        reached = self.routes.interest.within_reach(locations)
        return any(location.count > location.absent for location in reached)

    def choose(self, group: Group, place: int, refused: list[bytes] | None = None) -> Subscription | None:
        """Return the member at `place`, but at none of the locations `refused`, that gets the next message, if any.

        Members are examined in turn, from the one behind the last that was chosen. Of them: the first that is connected
        and has an open window, else the first that is connected, else the first that is persistent.
        """
        members = group.members
        count = len(members)
        connected: Subscription | None = None
        stored: Subscription | None = None
        first = group.next if place == ANYWHERE else group.next_in.get(place, 0)
        for step in range(min(count, _LOOKS_MAX)):
            at = (first + step) % count
            member = members[at]
            session = member.session
            if place != ANYWHERE and place != place_of(session):
                continue
            if session.ended:  # its subscriptions are being removed
                continue
            if refused and self.location_of(place_of(session)) in refused:
                continue
            connection = session.connection
            if connection is not None and connection.state == OPEN:
                if len(session.inflight) < session.window and not session.waiting and connection.can_send():
                    _set_next(group, place, (at + 1) % count)
                    return member
                if connected is None:
                    connected = member
            elif session.persistent and stored is None:
                stored = member
        _set_next(group, place, (first + (1 if count <= _LOOKS_MAX else _LOOKS_MAX)) % count)
        return connected if connected is not None else stored

    def deliver(self, group: Group, message: Message) -> int:
        """Give the message to one member: 0 nobody took it, 1 it is sent or waits in memory, 2 it is being stored."""
        member = self.choose(group, ANYWHERE)
        return 0 if member is None else self.offer(member, group, message, ANYWHERE)

    def arrive(self, name: bytes, message: Message, place: int, refused: list[bytes]) -> bool:
        """Give a message that came for a group's members at `place` to one of them.

        False: they are gone by now, or none can take it. Then another one is found at the end of the turn, at any node.
        refused: the locations that were tried before.
        """
        group = self.routes.groups.get(name)
        member = None if group is None else self.choose(group, place)
        if group is not None and member is not None:
            if self.offer(member, group, message, place):
                return True
            refused = [*refused, self.location_of(place)]
        self.lose(Lost(name, message, -1 if place == TRANSIENT else place, refused))
        return False

    def location_of(self, place: int) -> bytes:
        """Return the name of the location of a place other than ANYWHERE."""
        return location_name(self.routes.fabric.node_id if place == TRANSIENT else "", place)

    def would_take(self, member: Subscription, message: Message) -> bool:
        """Whether a member with a persistent session would probably take a message."""
        terms = member.as_recipient()
        return self.queue.would_take(terms.session, message, terms.qos_of(message.qos))

    def keeps(self, message: Message) -> bool:
        """Whether members that are not connected may keep a message."""
        return message.qos > 0 or self.queue.state.limits.queue_qos0_offline

    def offer(self, member: Subscription, group: Group, message: Message, place: int) -> int:
        """Give the message to a chosen member, or if that one refuses it, to another at the same place."""
        outcome = self._give(member, group, message)
        tries = 0
        while not outcome and tries < min(TRIES_MAX, len(group.members)):
            other = group.members[(group.next + tries) % len(group.members)]
            session = other.session
            here = place == ANYWHERE or place == place_of(session)
            if other is not member and here:
                outcome = self._give(other, group, message)
            tries += 1
        return outcome

    def _give(self, member: Subscription, group: Group, message: Message) -> int:
        terms = member.as_recipient()
        session = terms.session
        if session.ended:
            return 0
        qos = terms.qos_of(message.qos)
        retain = terms.retain_of(message.retain)
        if qos == 0:
            return 1 if self.queue.give_qos0(session, message, retain, terms.identifiers) else 0
        if session.persistent:
            return 2 if self.queue.append(session, message, qos, retain, terms.identifiers, group.name, 0) else 0
        return 1 if self.queue.offer(session, message, qos, retain, terms.identifiers, group.name) else 0

    def lose(self, lost: Lost) -> None:
        """Have another member found at the end of the turn; acknowledgements wait for what is done then."""
        self.homeless.append(lost)
        self.queue.commits.asked = True

    def pass_on(self, name: bytes, message: Message, home: int) -> None:
        """Give a message that a lost member did not acknowledge to another member, if there is one.

        home: the partition that forgets the message in this turn's change, or -1.
        """
        group = self.routes.groups.get(name)
        others_decide = home >= 0 and self.routes.fabric.others  # other partitions have changes of their own
        if others_decide or group is None or not self.deliver(group, message):
            self.lose(Lost(name, message, home, []))

    def pass_on_lost(self) -> None:
        """Pass on all messages that lost their member in this turn."""
        while self.queue.lost:
            lost = self.queue.lost
            self.queue.lost = []
            for entry in lost:
                assert entry.message is not None, "a lost entry has its message"
                self.pass_on(entry.group, entry.message, -1)


def place_of(session: Session) -> int:
    """Return the place of a session's members, other than ANYWHERE."""
    return session.partition if session.persistent else TRANSIENT


def _set_next(group: Group, place: int, index: int) -> None:
    """Set the member that comes first; each place has its own, which choices for ANYWHERE do not disturb."""
    if place == ANYWHERE:
        group.next = index
    else:
        group.next_in[place] = index
