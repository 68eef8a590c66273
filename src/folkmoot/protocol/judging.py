"""After a reload: everything that is open is judged by the rules that are in force now, a page per turn.

A connection ends when its client would not be let in any more; so does one whose will or a subscription would be
refused. MQTT has no packet by which a server ends a subscription, and a client that does not know would wait for ever:
so it is disconnected with 0x87 and the reason, and gets 0x87 again when it asks. Subscriptions of stored sessions end
without one. A stored will is judged when it is due (`will`), and publications one by one (`scrutiny`).
"""

from __future__ import annotations

from typing import Final

from folkmoot.auth.access import BY_CERTIFICATE, Access
from folkmoot.kernel.event import INFO
from folkmoot.mqtt import reason
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.scrutiny import renew_rights
from folkmoot.protocol.subscribe import Subscribing
from folkmoot.protocol.will import Wills
from folkmoot.session.connection import CLOSING, NEW, OPEN, REGISTERING, Connection
from folkmoot.session.session import Session
from folkmoot.turn.state import State

__all__ = ["Judging"]

_PAGE: Final = 1024  # connections, sessions and subscriptions in a turn; one takes about 2 us in compiled code


class Judging:
    """Compares connections and sessions with the rules for clients."""

    def __init__(
        self, state: State, closing: Closing, attaching: Attaching, subscribing: Subscribing, wills: Wills
    ) -> None:
        self.state = state
        self.closing = closing
        self.attaching = attaching
        self.subscribing = subscribing
        self.wills = wills
        self._running = False
        self._connections: list[int] = []
        self._sessions: list[str] = []
        self._judged = 0
        self._ended = 0

    def begin(self, access: Access) -> None:
        """Put other rules into force, and judge by them all that is open; what comes later is judged as it comes."""
        state = self.state
        access.succeeds(state.access)
        state.access = access
        state.policy = access.policy
        self._connections = list(state.connections)
        self._connections.reverse()
        self._sessions = [session.client_id for session in state.sessions.values()]
        self._sessions.reverse()
        self._running = True
        self._judged = 0
        self._ended = 0

    def busy(self) -> bool:
        """Whether something is still to be judged."""
        return self._running

    def step(self) -> None:
        """Judge a page."""
        budget = _PAGE
        while budget > 0 and self._connections:
            connection = self.state.connections.get(self._connections.pop())
            budget -= 1
            if connection is not None:
                self._judge(connection)
        while budget > 0 and self._sessions:
            session = self.state.sessions.get(self._sessions.pop())
            if session is not None:
                budget -= len(session.subscriptions)
                self._judge_session(session)
            budget -= 1
        if not self._connections and not self._sessions:
            self._running = False
            fields: dict[str, object] = {"judged": self._judged, "ended": self._ended}
            self.state.event(INFO, "judged", fields)

    def _judge(self, connection: Connection) -> None:
        """Judge a connection that has been let in, or is about to be; one whose password is being checked is not."""
        if connection.state != OPEN and connection.state != REGISTERING:
            return
        self._judged += 1
        renew_rights(connection, self.state.policy)
        access = self.state.access
        why = access.refuses(connection.proved, connection.username, connection.credential)
        if why:
            self.revoke(connection, why, bool(access.gone(connection.username)))
            return
        if connection.proved == BY_CERTIFICATE:
            access.returns(connection.username)
        wrong = "" if connection.assigned else access.wrong_id(connection.client_id, connection.username)
        if wrong:
            self.revoke(connection, wrong, False)

    def revoke(self, connection: Connection, why: str, without_will: bool) -> None:
        """End a connection whose client may not be connected any more; its session is kept."""
        if connection.state >= CLOSING:
            return
        self._ended += 1
        self.state.counters.connections_revoked += 1
        if connection.state == OPEN or connection.state == NEW:
            self.closing.disconnect(connection, reason.NOT_AUTHORIZED, why, without_will)
        else:
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, why)

    def _judge_session(self, session: Session) -> None:
        self._judged += 1
        connection = session.connection
        if connection is not None and session.owner and connection.info.certificate_name == session.owner:
            self.state.access.returns(session.owner)
        self.attaching.lifecycle.look_for_owner(session)
        if connection is not None:
            renew_rights(connection, self.state.policy)
            if session.username and not session.proved and self.state.access.has_users:
                # Its own node may not have been reloaded yet.
                self.revoke(connection, "this server wants to have user names proved now", False)
                connection = None
        policy = self.state.policy
        if policy.open:
            return
        ended = self.subscribing.end_denied(session)
        self._ended += len(ended)
        if connection is None:
            return
        will = session.will
        if will is not None and not policy.may_publish(session.client_id, session.owner, will.message.topic):
            self.revoke(connection, "not allowed to publish to the will's topic any more", True)
        elif ended:
            text = ", ".join([name.decode() for name in ended[:10]])
            self.revoke(connection, f"not allowed to subscribe any more: {text}", False)
