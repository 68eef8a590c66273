"""Deadlines of connections: no CONNECT in time, silence beyond the keep alive, the end of a pause (MQTT 5 3.1.2.10).

Owns what happens when one has come. Setting them is the work of those who know how long they are.
"""

from __future__ import annotations

from folkmoot.broker.brake import FOR_OVERLOAD, FOR_RATE
from folkmoot.broker.closing import Closing
from folkmoot.broker.commit import Commits
from folkmoot.broker.state import TIMER_KEEP_ALIVE, TIMER_OVERLOAD, TIMER_RATE, State
from folkmoot.kernel.clock import NEVER
from folkmoot.mqtt import reason
from folkmoot.session.connection import CHECKING, CLOSED, CLOSING, NEW, REGISTERING, Connection

__all__ = ["Deadlines"]


class Deadlines:
    """What connections have to do in time."""

    def __init__(self, state: State, commits: Commits, closing: Closing) -> None:
        self.state = state
        self.commits = commits
        self.closing = closing

    def due(self, kind: int, number: int) -> None:
        """A deadline of a connection has come: of its keep alive, a pause, or its CONNECT."""
        connection = self.state.connections.get(number)
        if connection is None:
            return
        if kind == TIMER_KEEP_ALIVE:
            self._keep_alive(connection)
        elif kind == TIMER_RATE:
            self.commits.unpause(connection, FOR_RATE)
        elif kind == TIMER_OVERLOAD:
            self.commits.unpause(connection, FOR_OVERLOAD)
        elif connection.state == REGISTERING and not connection.session:
            self.state.counters.connect_timeouts += 1
            self.closing.refuse(connection, reason.SERVER_UNAVAILABLE, "no node leads the client's partition now")
        elif connection.state == NEW or connection.state == CHECKING:
            self.state.counters.connect_timeouts += 1
            self.closing.disconnect(connection, reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")

    def _keep_alive(self, connection: Connection) -> None:
        if connection.state in (CLOSING, CLOSED) or connection.patience_us >= NEVER:
            return
        if connection.paused:
            connection.last_seen_us = self.state.now  # it is this server that does not read
        deadline_us = connection.last_seen_us + connection.patience_us
        if deadline_us <= self.state.now:  # [MQTT-3.1.2-22]
            self.state.counters.keep_alive_timeouts += 1
            self.closing.disconnect(
                connection, reason.KEEP_ALIVE_TIMEOUT, "nothing came for one and a half keep alives"
            )
        else:
            self.state.timers.set(deadline_us, TIMER_KEEP_ALIVE, connection.id)
