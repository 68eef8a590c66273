"""Shared subscriptions: one member of a group gets the message (MQTT 5 section 4.8.2)."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.hash import hash64
from folkmoot.partition.queue import Queue
from folkmoot.routing.interest import SharedLocation
from folkmoot.routing.route import Group, Route, Routes
from folkmoot.session.connection import OPEN
from folkmoot.session.subscription import Subscription
from folkmoot.store.message import Message

__all__ = ["ANYWHERE", "Lost", "Shared"]

# When the queue of the chosen member is full, this many others are tried: in a large group whose queues are all full
# a message must not cost a walk over the group.
_TRIES_MAX: Final = 16
ANYWHERE: Final = -2  # a member in any session; -1: in a transient one, else in a persistent one of the partition
# For one message this many members are examined; the next message continues behind them.
_LOOKS_MAX: Final = 512
_NAME_BYTES_MAX: Final = 256  # of a group whose turn is remembered by its name, and not by a hash of it
_NAMES_MAX: Final = 100_000  # groups with members at other nodes whose turns are remembered


class Lost:
    """A message of a group whose member is lost; home: its partition, where the message was stored, or -1."""

    def __init__(self, group: bytes, message: Message, home: int) -> None:
        self.group = group
        self.message = message
        message.origin = b""  # it is a new message from here on
        self.home = home


class Shared:
    """Chooses members, and passes on what a lost member did not acknowledge."""

    def __init__(self, queue: Queue, routes: Routes) -> None:
        self.queue = queue
        self.routes = routes
        self.homeless: list[Lost] = []  # they have lost their member and need another one, at any node
        self._turns: dict[bytes, int] = {}

    def choose_place(self, name: bytes, group: Group | None, places: list[SharedLocation]) -> SharedLocation | None:
        """Return the location whose turn it is; None: a member of the group here.

        A location gets as many turns as it has connected members, or, when none is connected anywhere, as it has
        members.
        """
        total = 0 if group is None else len(group.members) - group.absent
        for place in places:
            total += place.count - place.absent
        nobody = total == 0
        if nobody:
            total = 0 if group is None else len(group.members)
            for place in places:
                total += place.count
        known = name if len(name) <= _NAME_BYTES_MAX else b"%d" % hash64(name)
        turn = (self._turns.get(known, -1) + 1) % total
        self._turns[known] = turn
        if len(self._turns) > _NAMES_MAX:
            self._turns.clear()
        for place in places:
            count = place.count if nobody else place.count - place.absent
            if turn < count:
                return place
            turn -= count
        return None

    def choose_elsewhere(self, name: bytes, places: list[SharedLocation]) -> SharedLocation:
        """Return the place whose turn it is, of a group without members here."""
        chosen = self.choose_place(name, None, places)
        assert chosen is not None, "a shared subscription elsewhere has members"
        return chosen

    def only_elsewhere(self, route: Route) -> list[bytes]:
        """Return the groups of a route without members here."""
        return [name for name in route.shared if name not in self.routes.groups]

    def is_anybody_there(self, places: list[SharedLocation]) -> bool:
        """Whether a member at one of these locations is connected."""
        return any(place.count > place.absent for place in places)

    def choose(self, group: Group, place: int) -> Subscription | None:
        """Return the member at `place` whose turn it is.

        Of the examined members: one that is connected with an open window, else connected, else persistent.
        """
        members = group.members
        count = len(members)
        connected: Subscription | None = None
        stored: Subscription | None = None
        turn = group.turn if place == ANYWHERE else group.turns.get(place, 0)
        for step in range(min(count, _LOOKS_MAX)):
            at = (turn + step) % count
            member = members[at]
            session = member.session
            if place != ANYWHERE and place != (session.partition if session.persistent else -1):
                continue
            if session.ended:  # its subscriptions are being removed
                continue
            connection = session.connection
            if connection is not None and connection.state == OPEN:
                if len(session.inflight) < session.window and not session.waiting and connection.can_send():
                    self._set_turn(group, place, (at + 1) % count)
                    return member
                if connected is None:
                    connected = member
            elif session.persistent and stored is None:
                stored = member
        self._set_turn(group, place, (turn + (1 if count <= _LOOKS_MAX else _LOOKS_MAX)) % count)
        return connected if connected is not None else stored

    def _set_turn(self, group: Group, place: int, turn: int) -> None:
        """Set the turn of a place; each has its own, so that choices for all places do not disturb those of one."""
        if place == ANYWHERE:
            group.turn = turn
        else:
            group.turns[place] = turn

    def deliver(self, group: Group, message: Message, place: int = ANYWHERE) -> int:
        """Give the message to one member: 0 nobody took it, 1 it is sent or waits in memory, 2 it is being stored."""
        member = self.choose(group, place)
        return 0 if member is None else self.offer(member, group, message, place)

    def offer(self, member: Subscription, group: Group, message: Message, place: int) -> int:
        """Give the message to a chosen member, or if that one refuses it, to another at the same place."""
        outcome = self._give(member, group, message)
        tries = 0
        while not outcome and tries < min(_TRIES_MAX, len(group.members)):
            other = group.members[(group.turn + tries) % len(group.members)]
            session = other.session
            here = place == ANYWHERE or place == (session.partition if session.persistent else -1)
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

    def pass_on(self, name: bytes, message: Message, home: int) -> None:
        """Give a message that a lost member did not acknowledge to another member, if there is one.

        home: the partition that forgets the message in this turn's change, or -1.
        """
        group = self.routes.groups.get(name)
        others_decide = home >= 0 and self.routes.fabric.others  # other partitions have changes of their own
        if others_decide or group is None or not self.deliver(group, message):
            self.homeless.append(Lost(name, message, home))

    def pass_on_lost(self) -> None:
        """Pass on all messages that lost their member in this turn."""
        while self.queue.lost:
            lost = self.queue.lost
            self.queue.lost = []
            for entry in lost:
                assert entry.message is not None, "a lost entry has its message"
                self.pass_on(entry.group, entry.message, -1)
