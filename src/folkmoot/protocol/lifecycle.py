"""The life of sessions: begin, resume, detach, end (MQTT 5 sections 3.1.2.4, 3.1.2.11.2, 4.1)."""

from __future__ import annotations

from collections import deque
from typing import Final

from folkmoot.delivery.purge import Purges
from folkmoot.delivery.shared import Shared
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import WARNING
from folkmoot.kernel.lease import UNTOLD_US
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.packet import Disconnect
from folkmoot.partition.queue import Queue
from folkmoot.protocol.denial import report_denied
from folkmoot.protocol.presence import disconnected_fields
from folkmoot.protocol.will import Wills
from folkmoot.proxy.pending_close import PendingCloses
from folkmoot.routing.route import Routes
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.session.subscription import Subscription
from folkmoot.store.key import SESSION, plain_key
from folkmoot.store.row import SessionRow, encode_session
from folkmoot.turn.state import TIMER_REMOVED, TIMER_SESSION, TIMER_WILL, State
from folkmoot.turn.work import SUBSCRIPTION_STEPS

__all__ = ["EXPIRY_NEVER", "NEVER_US", "Lifecycle"]

EXPIRY_NEVER: Final = 0xFFFF_FFFF
NEVER_US: Final = 1 << 61  # added to the time of the disconnect, where a session never expires
_AT_ONCE_MAX: Final = 64  # subscriptions
_ENDINGS_MAX: Final = 1024  # beyond this number the committed endings are forgotten


class Lifecycle:
    """Begins and ends sessions; nothing else changes `state.sessions` while the node leads their partition."""

    def __init__(
        self,
        state: State,
        pending_closes: PendingCloses,
        queue: Queue,
        routes: Routes,
        shared: Shared,
        wills: Wills,
        purges: Purges,
    ) -> None:
        self.state = state
        self.pending_closes = pending_closes
        self.queue = queue
        self.routes = routes
        self.shared = shared
        self.wills = wills
        self.purges = purges
        self._endings: dict[str, int] = {}  # client ids whose stored session has ended: the batch with that change
        self._endings_max = _ENDINGS_MAX
        # Ended sessions with subscriptions that are not removed yet
        self._leaving: deque[tuple[Session, list[Subscription]]] = deque()
        self.ended: list[Session] = []  # in this turn; their feeds are to be forgotten

    def begin(self, client_id: str, persistent: bool, username: str, proved: bool) -> Session:
        """Create a session for a client id that has none; it belongs to the user if the name is proved."""
        session = Session(client_id, self.state.partition_of(client_id.encode()), persistent)
        session.username = username
        session.proved = proved
        floor = self.purges.floor_of(client_id)
        if persistent and floor:
            session.queue_floor = session.queue_next = session.ready_end = session.committed_next = floor
            session.queue_head = session.sent_below = session.given_below = session.drop_below = floor
        before = self.state.sessions.get(client_id)
        if before is not None:
            self.state.accounts.leave(before, self.state.now)
        self.state.sessions.put(session)
        self.state.accounts.enter(session)
        self.state.counters.sessions_created += 1
        if persistent:
            self.state.counters.sessions_persistent += 1
        return session

    def save(self, session: Session) -> None:
        """Store the state of a persistent session."""
        row = SessionRow(
            session.version,
            session.expiry_s,
            session.ends_us,
            session.queue_floor,
            session.username,
            session.token,
            session.begun,
            session.proved,
        )
        key = plain_key(session.partition, SESSION, session.key)
        self.state.writer.put(session.partition, key, encode_session(row))

    def detach(self, connection: Connection, goodbye: bool) -> None:
        """Detach a session from its connection; `goodbye`: the client sent DISCONNECT with reason 0."""
        connection.broken = not goodbye
        self.state.work.wake(connection)
        report_denied(self.state, connection)
        if connection.opened_us and connection.remote is None:
            if self.state.listening:
                self.state.tell("disconnected", disconnected_fields(connection, self.state.clock.time))
            connection.opened_us = 0
        self.pending_closes.begin(connection, goodbye)
        self.uncount(connection)
        session = connection.session
        if session is None:
            return
        connection.session = None
        session.connection = None
        if connection.remote is None:
            self.state.counters.clients_connected -= 1
        if session.proxy:
            return
        remote = connection.remote
        late_us = UNTOLD_US if remote is not None and remote.gone else 0
        if goodbye:
            self.wills.cancel(session)
        else:
            self.wills.arm(session, late_us)
        self.queue.detach(session)
        if session.persistent and session.expiry_s > 0:
            self.routes.look(session)
            self.rest(session, late_us)
        else:
            self.end(session)
        self.shared.pass_on_lost()

    def change_expiry(self, session: Session, packet: Disconnect) -> None:
        """Take over the Session Expiry Interval of a DISCONNECT; raises MalformedPacket."""
        properties = packet.properties
        if properties is not None and properties.session_expiry is not None:
            expiry_s = min(properties.session_expiry, self.state.limits.session_expiry_max_s)
            if session.expiry_s == 0 and expiry_s:  # [MQTT-3.14.2-2]
                raise MalformedPacket(reason.PROTOCOL_ERROR, "DISCONNECT wants to keep a session that CONNECT gave up")
            session.expiry_s = expiry_s

    def count(self, connection: Connection) -> None:
        """Count a connection of its user at this node, before its leader is asked: others may ask at once."""
        account = self.state.accounts.of(connection.username)
        connection.account = account
        account.connections += 1
        self.state.accounts.connections += 1

    def uncount(self, connection: Connection) -> None:
        """Count a connection of its user no more."""
        account = connection.account
        if account is not None:
            connection.account = None
            account.connections -= 1
            self.state.accounts.connections -= 1
            self.state.accounts.settle(account, self.state.now)

    def rest(self, session: Session, late_us: int = 0) -> None:
        """Keep a persistent session without a client until it expires.

        late_us: the client may learn so much later that its connection has ended.
        """
        never = session.expiry_s == EXPIRY_NEVER
        expiry_us = NEVER_US if never else session.expiry_s * SECOND + late_us
        session.ends_us = self.state.clock.time + expiry_us
        self.save(session)
        if never:
            self.state.timers.cancel(TIMER_SESSION, session.client_id)
        else:
            self.state.timers.set(self.state.now + expiry_us, TIMER_SESSION, session.client_id)

    def leave(self, session: Session) -> None:
        """Forget a session that this node leads no more; its rows belong to its new leader."""
        session.ended = True  # here
        state = self.state
        counters = state.counters
        state.timers.cancel(TIMER_SESSION, session.client_id)
        state.timers.cancel(TIMER_WILL, session.client_id)
        state.timers.cancel(TIMER_REMOVED, session.client_id)
        if session.will is not None:
            state.accounts.set_will(session, None)
            counters.wills_pending -= 1
        if session.feeds:
            self.ended.append(session)
        for subscription in session.subscriptions.values():
            self.routes.remove(subscription)
        self.queue.backlog.clear(session)
        state.accounts.leave(session, state.now)
        state.sessions.remove(session)
        if session.persistent:
            counters.sessions_persistent -= 1
            counters.queue_messages -= session.queue_count
            counters.queue_bytes -= session.queue_bytes

    def due(self, session: Session) -> None:
        """Handle an expiry; it is stale when the client has returned."""
        if not session.ended and session.connection is None and session.ends_us > 0:
            self.state.counters.sessions_expired += 1
            self.end(session, expired=True)

    def look_for_owner(self, session: Session) -> None:
        """Set when a stored session ends whose user was removed; nobody can read what it collects.

        One of an anonymous client has no owner: whoever comes with its id goes on with it.
        """
        if not session.persistent or not session.owner or not self.state.access.gone(session.owner):
            session.removed_us = 0
        elif not session.removed_us:
            session.removed_us = self.state.now
            self._await_owner(session)

    def _await_owner(self, session: Session) -> None:
        expiry_s = self.state.limits.session_expiry_removed_s
        if expiry_s != EXPIRY_NEVER:
            self.state.timers.set(self.state.now + expiry_s * SECOND, TIMER_REMOVED, session.client_id)

    def owner_due(self, session: Session) -> None:
        """End the stored session of a removed user; that is stale when the user is there again."""
        if session.ended or not session.removed_us:
            return
        if session.connection is not None:  # its node was not reloaded yet
            self._await_owner(session)
            return
        self.state.counters.sessions_revoked += 1
        fields: dict[str, object] = {"client": session.client_id, "user": session.username}
        self.state.event(WARNING, "session_revoked", fields)
        self.end(session)

    def is_ending(self, client_id: str) -> bool:
        """Whether the end of a stored session of this client id is not committed yet.

        A crash would restore the session, and what it published with its partition may still be under way.
        """
        return self._endings.get(client_id, 0) > self.queue.commits.committed_token

    def _note_ending(self, client_id: str) -> None:
        if len(self._endings) >= self._endings_max:
            committed = self.queue.commits.committed_token
            self._endings = {known: token for known, token in self._endings.items() if token > committed}
            # While nothing is committed all stay: not every further one may walk over them.
            self._endings_max = max(2 * len(self._endings), _ENDINGS_MAX)
        self._endings[client_id] = self.state.writer.token

    def _remove_subscriptions(self, session: Session) -> None:
        """Remove the subscriptions of an ended session: many of them in later turns, meanwhile nothing goes to them."""
        subscriptions = list(session.subscriptions.values())
        session.subscriptions = {}
        if len(subscriptions) <= _AT_ONCE_MAX:
            for subscription in subscriptions:
                self.routes.remove(subscription)
            self.state.work.steps += SUBSCRIPTION_STEPS * len(subscriptions)
        else:
            self.routes.forget_routes()
            self._leaving.append((session, subscriptions))

    def is_removing(self) -> bool:
        """Whether subscriptions of ended sessions remain."""
        return bool(self._leaving)

    def remove_more(self) -> None:
        """Remove more subscriptions of ended sessions, as far as the steps of the turn reach, and always some."""
        work = self.state.work
        left = _AT_ONCE_MAX
        while self._leaving and (left > 0 or not work.is_spent()):
            subscriptions = self._leaving[0][1]
            while subscriptions and (left > 0 or not work.is_spent()):
                self.routes.remove(subscriptions.pop())
                work.steps += SUBSCRIPTION_STEPS
                left -= 1
            if not subscriptions:
                self._leaving.popleft()

    def leave_partition(self, partition: int) -> None:
        """This node leads the partition no more: remove what is left of its ended sessions."""
        staying: deque[tuple[Session, list[Subscription]]] = deque()
        for session, subscriptions in self._leaving:
            if session.persistent and session.partition == partition:
                for subscription in subscriptions:
                    self.routes.remove(subscription)
            else:
                staying.append((session, subscriptions))
        self._leaving = staying

    def end(self, session: Session, expired: bool = False) -> None:
        """Remove a session and all that belongs to it; a pending will is published now [MQTT-3.1.3-9]."""
        session.ended = True
        self.queue.backlog.clear(session)
        self.state.accounts.leave(session, self.state.now)
        if session.persistent:
            self._note_ending(session.client_id)
        if session.feeds:
            self.ended.append(session)
        self.state.timers.cancel(TIMER_SESSION, session.client_id)
        if session.removed_us:
            self.state.timers.cancel(TIMER_REMOVED, session.client_id)
        self.wills.publish(session)
        self._remove_subscriptions(session)
        self.state.sessions.remove(session)
        if session.persistent:
            self.state.counters.sessions_persistent -= 1
            self.state.counters.queue_messages -= session.queue_count
            self.state.counters.queue_bytes -= session.queue_bytes
            self.purges.start(session, expired)
