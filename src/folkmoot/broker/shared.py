"""Shared subscriptions: one member of a group gets the message (MQTT 5 section 4.8.2)."""

from __future__ import annotations

from typing import Final

from folkmoot.broker.interest import SharedPlace
from folkmoot.broker.queue import Queue
from folkmoot.broker.route import Group, Routes
from folkmoot.broker.state import State
from folkmoot.session.connection import OPEN
from folkmoot.session.entry import Entry
from folkmoot.session.session import Session
from folkmoot.session.subscription import QOS_MASK, RETAIN_AS_PUBLISHED, Subscription, encode_identifier
from folkmoot.store.message import Message

__all__ = ["Shared"]

# When the chosen member's queue is full, so many others are asked: a large group that is full everywhere must not make
# each message cost a walk over it.
_TRIES_MAX: Final = 16
_ANYWHERE: Final = -2  # a member of any session; -1: of a transient one, else of a persistent one of the partition
# And so many are looked at for a message: beyond, the next message finds others.
_LOOKS_MAX: Final = 512
_NAMES_MAX: Final = 100_000  # of groups with members at other nodes whose turns are remembered


class Shared:
    """Chooses members and passes on what a lost member did not acknowledge."""

    def __init__(self, state: State, queue: Queue, routes: Routes) -> None:
        self.state = state
        self.queue = queue
        self.routes = routes
        self.homeless: list[Entry] = []  # messages of members that are lost and were the last here
        self._turns: dict[bytes, int] = {}

    def choose_place(self, name: bytes, here: int, places: list[SharedPlace]) -> SharedPlace | None:
        """Return the place whose turn it is, each as often as it has members; None: one of the `here` members here."""
        total = here
        for place in places:
            total += place.count
        turn = (self._turns.get(name, -1) + 1) % total
        self._turns[name] = turn
        if len(self._turns) > _NAMES_MAX:
            self._turns.clear()
        for place in places:
            if turn < place.count:
                return place
            turn -= place.count
        return None

    def choose(self, group: Group, place: int) -> Subscription | None:
        """Return the member at `place` whose turn it is.

        Connected with an open window, else connected, else one that is stored, among those who are looked at.
        """
        members = group.members
        count = len(members)
        connected: Subscription | None = None
        stored: Subscription | None = None
        for step in range(min(count, _LOOKS_MAX)):
            at = (group.turn + step) % count
            member = members[at]
            session = member.session
            if place != _ANYWHERE and place != (session.partition if session.durable else -1):
                continue
            connection = session.connection
            if connection is not None and connection.state == OPEN:
                if len(session.inflight) < session.window and not session.waiting and connection.can_send():
                    group.turn = (at + 1) % count
                    return member
                if connected is None:
                    connected = member
            elif session.durable and stored is None:
                stored = member
        group.turn = (group.turn + (1 if count <= _LOOKS_MAX else _LOOKS_MAX)) % count
        return connected if connected is not None else stored

    def deliver(self, group: Group, message: Message, place: int = _ANYWHERE) -> int:
        """Give the message to one member: 0 nobody took it, 1 it is sent or waits in memory, 2 it is being stored."""
        member = self.choose(group, place)
        if member is None:
            return 0
        outcome = self._give(member, group, message)
        tries = 0
        while not outcome and tries < min(_TRIES_MAX, len(group.members)):
            other = group.members[(group.turn + tries) % len(group.members)]
            session = other.session
            here = place == _ANYWHERE or place == (session.partition if session.durable else -1)
            if other is not member and here:
                outcome = self._give(other, group, message)
            tries += 1
        return outcome

    def _give(self, member: Subscription, group: Group, message: Message) -> int:
        session = member.session
        qos = min(message.qos, member.options & QOS_MASK)
        retain = message.retain and bool(member.options & RETAIN_AS_PUBLISHED)
        identifiers = encode_identifier(member.identifier)
        if qos == 0:
            return 1 if self._send_qos0(session, message, retain, identifiers) else 0
        if session.durable:
            return 2 if self.queue.append(session, message, qos, retain, identifiers, group.name, 0) else 0
        return 1 if self.queue.offer(session, message, qos, retain, identifiers, group.name) else 0

    def _send_qos0(self, session: Session, message: Message, retain: bool, identifiers: bytes) -> bool:
        if self.queue.sends_qos0(session):
            return self.queue.send_qos0(session, message, retain, identifiers)
        if session.durable and self.state.limits.queue_qos0_offline:
            return self.queue.append(session, message, 0, retain, identifiers, b"", 0)
        return False

    def pass_on(self, entry: Entry) -> None:
        """A member is lost: another gets what it did not acknowledge; without another it is dropped (counted)."""
        group = self.routes.groups.get(entry.group)
        message = entry.message
        assert message is not None, "a lost entry has its message"
        if group is None or not self.deliver(group, message):
            self.homeless.append(entry)

    def pass_on_lost(self) -> None:
        """Pass on all messages that lost their member in this turn."""
        while self.queue.lost:
            lost = self.queue.lost
            self.queue.lost = []
            for entry in lost:
                self.pass_on(entry)
