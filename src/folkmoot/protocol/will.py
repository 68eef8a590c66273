"""Wills: stored from CONNECT on, published exactly once when the session ends or its delay passes (A7).

MQTT 5 sections 3.1.2.5, 3.1.3.2. One change deletes the row and publishes the message, or writes it to the outbox, so
that a crash does both or neither. Wills of many clients that have gone at once take several turns. A will is published
like a message of an idempotent producer, so that no partition stores it twice, if two sides of a split have published
it.
"""

from __future__ import annotations

from typing import Final

from folkmoot.delivery.keeping import REFUSED
from folkmoot.delivery.outbox_publish import OutboxPublishing
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, WARNING
from folkmoot.proxy.relay import token_of
from folkmoot.session.session import Session, Will
from folkmoot.store.key import WILL, client_of_left, is_left, left_name, plain_key
from folkmoot.store.message import Message
from folkmoot.store.origin import WILL_NUMBER, origin_of, will_name
from folkmoot.store.row import WillRow, encode_will
from folkmoot.turn.state import TIMER_WILL, State
from folkmoot.turn.work import PACKET_STEPS

__all__ = ["Wills"]

_ASIDE_MAX: Final = 16  # of a client: one that comes and goes leaves one each time, while a partition is away


class Wills:
    """The wills of all sessions in the partitions that this node leads."""

    def __init__(self, state: State, entries: OutboxPublishing) -> None:
        self.state = state
        self.entries = entries
        self._planted = entries.publishing.fabric.planted
        self._due: dict[str, Session] = {}  # by client id: their wills are published in the next turns, in order
        self._held: list[Session] = []  # their wills are due and wait until all subscriptions are known
        self._aside: dict[bytes, int] = {}  # by client id: how many of these have a row of their own

    def go_on(self) -> None:
        """Have the wills published that waited until all subscriptions were known."""
        held = self._held
        self._held = []
        self._aside = {}
        for session in held:
            self.defer(session)

    def is_busy(self) -> bool:
        """Whether `step` must be called."""
        return bool(self._due)

    def step(self) -> None:
        """Publish wills of many clients that have gone at once, for as much work as a client may cause in a turn."""
        work = self.state.work
        end = work.done() + work.quantum
        while self._due and work.done() < end:
            work.steps += PACKET_STEPS
            self.hurry(next(iter(self._due)))

    def hurry(self, client_id: str) -> None:
        """Publish the will of a client now if it is due: before its next connection can publish anything (A3)."""
        session = self._due.pop(client_id, None)
        if session is not None:
            self.publish(session)

    def defer(self, session: Session) -> None:
        """Have a will that is due published by `step`. Its row stays until then: another leader would publish it."""
        self.hurry(session.client_id)
        self._due[session.client_id] = session

    def is_crowded(self, client: bytes) -> bool:
        """Whether so many wills of a client wait that it may not bring another one."""
        return self._aside.get(client, 0) >= _ASIDE_MAX

    def is_barred(self, topic: bytes, retain: bool) -> bool:
        """Whether no client may bring a will for a topic: it would wait for a partition that is away, like too many.

        A publication would be refused, but a will is published when its client is gone. One that is refused a message
        for that partition is disconnected (MQTT 3), leaves its will there, and comes again at once.
        """
        return self.entries.is_barred(topic, retain)

    def leave(self, partition: int) -> None:
        """End the leadership of the partition: its new leader finds the rows of due wills."""
        held = self._held
        for session in [*held, *self._due.values()]:
            if session.partition == partition and session.will is not None:  # of a session that has ended
                self.state.accounts.set_will(session, None)
                self.state.counters.wills_pending -= 1
        self._held = []
        self._aside = {}
        for session in held:
            if session.partition != partition:
                self._hold(session)
        self._due = {name: session for name, session in self._due.items() if session.partition != partition}

    def set(self, session: Session, will: Will) -> None:
        """Store the will of a CONNECT [MQTT-3.1.2-7]."""
        self.state.accounts.set_will(session, will)
        will.username = session.owner
        connection = session.connection
        if connection is not None and not self.entries.publishing.fabric.alone:
            will.token = token_of(connection, self.state)  # another leader may have to admit the client
        self._put(session, will)
        self.state.counters.wills_pending += 1

    def _fault(self, session: Session, will: Will) -> str:
        """Return why the client may not publish its will any more, "" if it may.

        The will of a transient session names its user only since nodes of this version write it; one that does not is
        not judged.
        """
        username = will.username
        if username is None:
            if not session.persistent:
                return ""
            username = session.owner
        gone = self.state.access.gone(username)
        if gone:
            return gone
        if self.state.policy.may_publish(will.message.publisher, username, will.message.topic):
            return ""
        return "not allowed to publish to the will's topic any more"

    def _put(self, session: Session, will: Will) -> None:
        row = WillRow(will.delay_s, will.due_us, will.message, will.token, will.username)
        self.state.writer.put(session.partition, plain_key(session.partition, WILL, session.key), encode_will(row))

    def cancel(self, session: Session) -> None:
        """Delete the will: DISCONNECT came [MQTT-3.1.2-10], or the client returned in time [MQTT-3.1.3-9]."""
        if session.will is not None:
            self._forget(session)
            self.state.counters.wills_cancelled += 1

    def _forget(self, session: Session) -> None:
        if session.will is not None and session.will.due_us:
            self.state.timers.cancel(TIMER_WILL, session.client_id)
        self.state.accounts.set_will(session, None)
        if not self._planted.wills_twice:
            self.state.writer.delete(session.partition, plain_key(session.partition, WILL, session.key))
        self.state.counters.wills_pending -= 1

    def arm(self, session: Session, late_us: int = 0) -> None:
        """The connection ended without DISCONNECT [MQTT-3.1.2-8]: publish the will now or after its delay.

        late_us: the client may learn so much later that it has ended, and comes back within the delay from then. Those
        of a whole node do: their wills take more than one turn.
        """
        will = session.will
        if will is None:
            return
        if will.delay_s == 0:
            if late_us:
                self.defer(session)
            else:
                self.publish(session)
            return
        delay_us = will.delay_s * SECOND + late_us
        will.due_us = self.state.clock.time + delay_us
        self._put(session, will)
        self.state.timers.set(self.state.now + delay_us, TIMER_WILL, session.client_id)

    def due(self, session: Session) -> None:
        """Handle the end of a delay; it is stale when the client has returned or the will is gone."""
        will = session.will
        if will is not None and will.due_us > 0:
            self.publish(session)

    def publish_stray(self, session: Session) -> None:
        """Publish the will of a client that has no session and is not connected any more.

        While the will waits for the subscriptions of the other side of a split, the client may connect again with
        another will. So this one gets a row of its own.
        """
        will = session.will
        if will is not None and not self.state.routes_whole and not is_left(session.key):
            session = self._set_aside(session, will)
        self.defer(session)

    def _hold(self, session: Session) -> None:
        self._held.append(session)
        if is_left(session.key):
            client = client_of_left(session.key)
            self._aside[client] = self._aside.get(client, 0) + 1

    def _set_aside(self, session: Session, will: Will) -> Session:
        """Give a will that has to wait a row of its own: its client may connect again meanwhile, with another will."""
        self._forget(session)
        aside = Session(left_name(session.key, will.token).decode(), session.partition, False)
        aside.will = will
        self._put(aside, will)
        self.state.counters.wills_pending += 1
        return aside

    def publish(self, session: Session) -> None:
        """Publish the will and forget it, unless `step` is about to.

        If it cannot be read whether it was published before, it gets a row of its own, which the next leader finds.
        """
        will = session.will
        if will is None or self._due.get(session.client_id) is session:
            return
        try:
            self._publish(session, will)
        except CorruptStore as fault:
            self.state.event(ERROR, "corrupt_store", {"client": will.message.publisher, "what": str(fault)})
            if not is_left(session.key):
                self._set_aside(session, will)

    def _publish(self, session: Session, will: Will) -> None:
        why = self._fault(session, will)
        if why:
            self._forget(session)
            self.state.counters.wills_revoked += 1
            user = session.username if will.username is None else will.username
            fields: dict[str, object] = {"client": will.message.publisher, "user": user, "why": why}
            self.state.event(WARNING, "will_revoked", fields)
            return
        state = self.state
        known = state.routes_whole if is_left(session.key) else state.routes_known and state.unheard < 0
        if not known:
            if state.routes_known and not is_left(session.key):
                session = self._set_aside(session, will)
            self._hold(session)
            return
        message = will.message
        fresh = Message(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            message.properties,
            message.publisher,
            self.state.clock.time,
            # a will expires after its publication; until then the row holds the interval
            self.state.clock.time + message.expires_us if message.expires_us else 0,
        )
        fresh.owner = message.owner
        name, number = b"", 0
        if will.token and not self._planted.wills_twice:  # another side of a split may publish it as well
            name, number = will_name(will.token), WILL_NUMBER
            fresh.origin = origin_of(name, number)
        if self.entries.publish(session.partition, fresh, None, name, number) & REFUSED:
            # It cannot be retained, and nobody is left to be told: all current subscribers get it.
            which: dict[str, object] = {"client": message.publisher, "topic": message.topic.decode()}
            self.state.event(WARNING, "will_not_retained", which)
            fresh.retain = False
            self.entries.publish(session.partition, fresh, None, name, number)
        self._forget(session)  # only now: a row that cannot be read may have kept it from being published
        self.state.counters.wills_published += 1
