"""Disconnecting the clients for which most waits in memory, when the node has nearly no memory left (A13).

They are found by walks over all connections, a page per turn. The client with the most goes first, and only as many go
as are necessary. A client that reads what it is sent, and has filters and a will of the usual size, has next to nothing
in memory, so it stays. What a transient session loses is counted. A persistent one loses nothing of QoS 1 and 2: its
queue is on disk.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.event import ERROR, WARNING
from folkmoot.leadership.hosting import Hosting
from folkmoot.mqtt import reason
from folkmoot.protocol.closing import Closing
from folkmoot.proxy.relay import Relays
from folkmoot.session.connection import CHECKING, CLOSING, REGISTERING, Connection
from folkmoot.session.relay import Relay
from folkmoot.turn.memory import DROPPING, ENTRY_BYTES, FLIGHT_BYTES
from folkmoot.turn.state import State

__all__ = ["Shedding", "held_by"]

_PAGE: Final = 4096  # connections in a turn
_CHOSEN_MAX: Final = 256  # disconnected after one walk
_HELD_BYTES_MIN: Final = 32_768  # whoever has less is not worth it, unless the budget is tiny
_HELD_PART_MIN: Final = 64  # of the budget
_CLOSING_US: Final = 50 * MILLISECOND  # after which their memory should be free
_REST_US: Final = SECOND  # after a walk that has found nobody

_WHY: Final = "the server is short of memory, and you take much of it: read what you are sent, or subscribe to less"


def held_by(connection: Connection) -> int:
    """Return how much memory is free when a client is disconnected: what waits for it, or has come and waits for more.

    Of a transient session its unusual filters and its will count too. A stored one keeps them.
    """
    held = connection.unsent_bytes + connection.out_bytes + connection.alias_bytes
    held += connection.waiting_bytes() + len(connection.stashed) - connection.stashed_pos + connection.connect_held()
    if connection.stash is not None:
        held += len(connection.stash)
    held += connection.backlog_bytes
    if connection.relay is not None:
        held += connection.relay.log_bytes
    session = connection.session
    if session is not None:
        held += 0 if session.persistent else session.counted_bytes
        held += session.ready_bytes + session.waiting * ENTRY_BYTES + len(session.inflight) * FLIGHT_BYTES
    return held


class Shedding:
    """Walks over connections while memory is short, and disconnects those that hold most of it."""

    def __init__(self, state: State, closing: Closing, relays: Relays, hosting: Hosting) -> None:
        self.state = state
        self.closing = closing
        self.relays = relays
        self.hosting = hosting
        self._left: list[Connection] = []  # to be looked at, in this walk
        self._ended: list[Relay] = []  # of connections that have ended
        self._found: list[tuple[int, int, Connection]] = []  # bytes, number, connection
        self._walking = False
        self._not_before_us = 0

    def busy(self) -> bool:
        """Whether `step` must be called."""
        if self._walking:
            return True
        state = self.state
        return state.memory.stage == DROPPING and not state.memory.wanted and state.now >= self._not_before_us

    def step(self) -> None:
        """Look at a page of connections; at the end of a walk, disconnect."""
        if not self._walking:
            self._walking = True
            self._left = [*self.state.connections.values(), *self.hosting.remotes.values()]
            self._ended = self.relays.ended()
            self._found = []
        least = min(_HELD_BYTES_MIN, self.state.memory.budget // _HELD_PART_MIN)
        for _ in range(min(_PAGE, len(self._ended))):
            self.relays.forget_acks(self._ended.pop())
        for _ in range(min(_PAGE, len(self._left))):
            connection = self._left.pop()
            held = held_by(connection)
            if held >= least and connection.state < CLOSING:
                self._found.append((held, connection.id, connection))
        if len(self._found) > 2 * _CHOSEN_MAX:
            self._found = _largest(self._found)
        if not self._left and not self._ended:
            self._walking = False
            self._drop(_largest(self._found))
            self._found = []

    def _drop(self, found: list[tuple[int, int, Connection]]) -> None:
        """Disconnect as many of these as are necessary, the one with the most first."""
        state = self.state
        excess = state.memory.excess() if state.memory.stage == DROPPING else 0
        freed = 0
        count = 0
        for held, _, connection in found:
            if freed >= excess:
                break
            if connection.state < CLOSING:
                relay = connection.relay
                self._end(connection, held)
                if relay is not None:  # what is left must reach the leader
                    self.relays.forget_acks(relay)
                    held -= relay.log_bytes
                freed += held
                count += 1
        if count:
            state.counters.memory_dropped_clients += count
            state.counters.memory_dropped_bytes += freed
            state.event(ERROR, "memory_shed", {"clients": count, "bytes": freed})
            state.memory.ask()
            self._not_before_us = state.now + _CLOSING_US
        elif excess:
            self._not_before_us = state.now + _REST_US

    def _end(self, connection: Connection, held: int) -> None:
        fields: dict[str, object] = {"client": connection.client_id, "user": connection.username, "bytes": held}
        self.state.event(WARNING, "client_shed", fields)
        connection.cut = not connection.writable  # it would never read the reason, and the driver keeps what it has
        if connection.state == CHECKING or connection.state == REGISTERING:
            self.closing.refuse(connection, reason.QUOTA_EXCEEDED, _WHY)
        else:
            self.closing.disconnect(connection, reason.QUOTA_EXCEEDED, _WHY)


def _largest(found: list[tuple[int, int, Connection]]) -> list[tuple[int, int, Connection]]:
    """Return those that hold the most, in that order."""
    ranked = sorted([(held, number, at) for at, (held, number, _) in enumerate(found)], reverse=True)
    return [found[at] for _, _, at in ranked[:_CHOSEN_MAX]]
