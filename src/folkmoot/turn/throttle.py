"""Slowing publishers, and nothing else: whose PUBLISH packets are not taken now, and why (A13).

The socket of a client that only publishes is not read. One that also subscribes is read on: its acknowledgements and
pings are taken at once, and what else it sends is put aside in its stash, in order, until that is too much. So nobody's
deliveries wait because of what somebody publishes. Nothing is dropped; every reason ends without anything that the
client itself would have to do.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND
from folkmoot.session.connection import CLOSING, Connection
from folkmoot.turn.state import TIMER_OVERLOAD, State

__all__ = ["FOR_BACKLOG", "FOR_HANDSHAKE", "FOR_ORDER", "FOR_OVERLOAD", "FOR_RATE", "FOR_RELAY", "Throttle"]

# Why PUBLISH packets of a connection are not taken, in `Connection.paused`; each reason ends on its own.
FOR_BACKLOG: Final = 1  # too much waits for the disk
FOR_RATE: Final = 2  # it publishes faster than it may
FOR_HANDSHAKE: Final = 4  # it sends much before its CONNACK
FOR_OVERLOAD: Final = 8  # it has published, and the cluster can bear only so much
FOR_RELAY: Final = 16  # too much waits for the leader of its session
FOR_ORDER: Final = 32  # a retained message must not overtake one that went another way

_DELAY_US: Final = MILLISECOND  # between two reads of a publisher at level 0, doubled with each level
_STASH_BYTES_MAX: Final = 64 << 10


class Throttle:
    """The connections that are paused."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.congested = False  # a link to another node holds so much that it must not get more
        self.stash_bytes = 0
        self.paused: dict[int, Connection] = {}  # for the backlog, by number
        self._fresh: list[Connection] = []  # paused in this turn
        self._slowed: dict[int, tuple[Connection, int]] = {}  # for overload, since when

    def pause(self, connection: Connection, why: int) -> None:
        """Take no PUBLISH packets of a connection until `unpause` is called for the same reason.

        The socket of one that only publishes is not read. Who also subscribes is read on, for its acknowledgements and
        pings: the rest of what it sends is put aside, until that is too much.
        """
        if connection.paused & why or connection.remote is not None:
            return  # the node that has the connection sees to it
        if not connection.paused:
            if why == FOR_HANDSHAKE or not _converses(connection) or self._is_stash_full():
                self.pause_reading(connection)
            self.state.counters.publisher_pauses += 1
            self.state.counters.publishers_paused += 1
        connection.paused |= why
        self._fresh.append(connection)
        if why == FOR_BACKLOG:
            self.paused[connection.id] = connection

    def defer_publishes(self) -> None:
        """The turn ends: what comes from now on from those who were paused in it is sifted."""
        for connection in self._fresh:
            connection.defers_publishes = connection.paused != 0
            if connection.paused & FOR_OVERLOAD and connection.state < CLOSING and connection.id not in self._slowed:
                self._slowed[connection.id] = (connection, self.state.now)
                self._set_end(connection, self.state.now)
        self._fresh.clear()

    def _set_end(self, connection: Connection, since_us: int) -> None:
        self.state.timers.set(since_us + (_DELAY_US << self.state.overload), TIMER_OVERLOAD, connection.id)

    def relax(self) -> None:
        """The level has fallen: nobody waits for longer than it says now."""
        for connection, since_us in list(self._slowed.values()):
            self._set_end(connection, since_us)

    def unpause(self, connection: Connection, why: int) -> None:
        """One reason not to read the connection is gone; without another it is read again."""
        if not connection.paused & why:
            return
        connection.paused &= ~why
        if why == FOR_OVERLOAD:
            self._slowed.pop(connection.id, None)
        if connection.paused:
            return
        connection.defers_publishes = False
        self.state.counters.publishers_paused -= 1
        self.resume_reading(connection)
        if connection.stash is not None:
            self.state.unstash.append(connection)

    def pause_reading(self, connection: Connection) -> None:
        """Read its socket no more until `resume_reading`."""
        if not connection.reading_paused:
            connection.reading_paused = True
            self.state.pauses.append(connection)

    def _is_stash_full(self) -> bool:
        return self.stash_bytes > self.state.limits.write_backlog_bytes_max // 4

    def stash(self, connection: Connection, data: bytes) -> None:
        """Put packets of a connection aside that it may not send now; its socket is not read when that is too much."""
        if connection.stash is None:
            connection.stash = bytearray()
        connection.stash.extend(data)
        self.stash_bytes += len(data)
        most = min(_STASH_BYTES_MAX, self.state.limits.write_backlog_bytes_max // 16)
        if len(connection.stash) > most or self._is_stash_full():
            self.pause_reading(connection)

    def take_stash(self, connection: Connection) -> bytes:
        """Return what was put aside, and forget it."""
        stash = connection.stash
        if stash is None:
            return b""
        connection.stash = None
        self.stash_bytes -= len(stash)
        return bytes(stash)

    def resume_reading(self, connection: Connection) -> None:
        """Read the socket of a connection that is not paused, if its stash was too large for that."""
        if connection.reading_paused and not connection.paused:
            connection.reading_paused = False
            if connection.state < CLOSING:
                self.state.resumes.append(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        if connection.stash is not None:
            self.take_stash(connection)
        if connection.paused:
            connection.paused = 0
            self.state.counters.publishers_paused -= 1
            self.paused.pop(connection.id, None)
            self._slowed.pop(connection.id, None)


def _converses(connection: Connection) -> bool:
    """Whether a client has more to say than what it publishes."""
    session = connection.session
    if session is None:
        return False
    relay = connection.relay
    if relay is not None and relay.durable:
        return True  # what it has subscribed to is known to its leader
    return bool(session.subscriptions) or bool(session.inflight)
