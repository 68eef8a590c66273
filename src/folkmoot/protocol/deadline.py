"""Deadlines of clients and sessions that have passed: keep alive, CONNECT, expiry, wills, and rarer ones.

Decides what a deadline means, and sets none. Most deadlines are stale, because what they were set for has happened or
is gone.
"""

from __future__ import annotations

from folkmoot.delivery.sys import SysTopics
from folkmoot.delivery.transaction import Transactions
from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt import reason
from folkmoot.partition.retained_sweep import RetainedSweep
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.protocol.will import Wills
from folkmoot.session.connection import CHECKING, CLOSED, CLOSING, NEW, REGISTERING, Connection
from folkmoot.turn.state import (
    TIMER_KEEP_ALIVE,
    TIMER_LAZY,
    TIMER_OVERLOAD,
    TIMER_QUOTA,
    TIMER_RATE,
    TIMER_REMOVED,
    TIMER_STAGED,
    TIMER_SWEEP,
    TIMER_SYS,
    TIMER_WILL,
    State,
)
from folkmoot.turn.throttle import FOR_OVERLOAD, FOR_QUOTA, FOR_RATE, Throttle

__all__ = ["Deadlines"]


class Deadlines:
    """Handles deadlines that have passed."""

    def __init__(
        self,
        state: State,
        throttle: Throttle,
        closing: Closing,
        lifecycle: Lifecycle,
        wills: Wills,
        sys: SysTopics,
        transactions: Transactions,
        retained_sweep: RetainedSweep,
    ) -> None:
        self.state = state
        self.throttle = throttle
        self.closing = closing
        self.lifecycle = lifecycle
        self.wills = wills
        self.sys = sys
        self.transactions = transactions
        self.retained_sweep = retained_sweep

    def due(self, kind: int, subject: int | str) -> None:
        """Handle a deadline of this kind; the key is a client id, the number of a connection, or 0."""
        if isinstance(subject, str):
            self._session(kind, subject)
        elif kind == TIMER_SYS:
            self.sys.tick()
        elif kind == TIMER_STAGED:
            self.transactions.expire()
        elif kind == TIMER_SWEEP:
            self.retained_sweep.on_timer(subject)
        elif kind != TIMER_LAZY:  # these removals go at the end of the turn
            self._connection(kind, subject)

    def _session(self, kind: int, client_id: str) -> None:
        session = self.state.sessions.get(client_id)
        if session is None:
            return
        if kind == TIMER_WILL:
            self.wills.due(session)
        elif kind == TIMER_REMOVED:
            self.lifecycle.owner_due(session)
        else:
            self.lifecycle.due(session)

    def _connection(self, kind: int, number: int) -> None:
        connection = self.state.connections.get(number)
        if connection is None:
            return
        if kind == TIMER_KEEP_ALIVE:
            self._keep_alive(connection)
        elif kind == TIMER_RATE:
            self.throttle.unpause(connection, FOR_RATE)
        elif kind == TIMER_QUOTA:
            self.throttle.unpause(connection, FOR_QUOTA)
        elif kind == TIMER_OVERLOAD:
            self.throttle.unpause(connection, FOR_OVERLOAD)
        elif connection.state == REGISTERING and not connection.session:
            self.state.counters.connect_timeouts += 1
            self.closing.refuse(connection, reason.SERVER_UNAVAILABLE, "no node leads the client's partition now")
        elif connection.state == NEW or connection.state == CHECKING:
            self.state.counters.connect_timeouts += 1
            self.closing.disconnect(connection, reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")

    def _keep_alive(self, connection: Connection) -> None:
        if connection.state in (CLOSING, CLOSED) or connection.patience_us >= NEVER:
            return
        if connection.paused or connection.queued or connection.reading_paused:
            connection.last_seen_us = self.state.now  # the server itself does not read, so the client is not silent
        deadline_us = max(connection.last_seen_us, self.state.excused_us) + connection.patience_us
        if deadline_us <= self.state.now:  # [MQTT-3.1.2-22]
            self.state.counters.keep_alive_timeouts += 1
            self.closing.disconnect(
                connection, reason.KEEP_ALIVE_TIMEOUT, "nothing came for one and a half keep alives"
            )
        else:
            self.state.timers.set(deadline_us, TIMER_KEEP_ALIVE, connection.id)
