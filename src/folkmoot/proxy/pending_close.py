"""Connections that have ended while messages published over them are on their way to other nodes (A3).

The client may return through another node, and its messages there must not overtake those on their way from here. So
the leader of its session learns of the end of the connection only when they have arrived, and admits the client
elsewhere no earlier. Nobody confirms messages that are only for transient subscribers: an empty message, a flush
marker, follows them, whose answer says that all before it has arrived. Most connections have nothing under way, and end
at once.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.kernel.clock import SECOND
from folkmoot.proxy.relay import Relays, is_goodbye
from folkmoot.session.connection import Connection
from folkmoot.session.relay import ENDED, Relay
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State

__all__ = ["PendingClose", "PendingCloses"]

# Longer than a node that hangs stays up (its lease, and a change of leaders); after that there is nothing to wait for.
# If it stays longer, its clients go on all the same: better out of order than not at all.
_PATIENCE_US: Final = 5 * SECOND


class PendingClose:
    """A connection that has ended, or whose client has sent DISCONNECT.

    relay: set if another node leads the session, and must learn of the end; goodbye: the client has sent DISCONNECT;
    packet: that DISCONNECT, if it must be passed on.
    """

    def __init__(self, connection: Connection, until_us: int, goodbye: bool) -> None:
        self.connection = connection
        self.until_us = until_us
        self.goodbye = goodbye
        self.relay = connection.relay
        self.packet: tuple[int, bytes] | None = None

    def __repr__(self) -> str:
        return f"PendingClose({self.connection!r} asked={self.connection.forwarded_seq} relay={self.relay!r})"


class PendingCloses:
    """Connections that have ended, and whose messages are on their way to other nodes."""

    def __init__(self, state: State, fabric: Fabric, forward_sender: ForwardSender, relays: Relays) -> None:
        self.state = state
        self.fabric = fabric
        self.forward_sender = forward_sender
        self.relays = relays
        self._closes: list[PendingClose] = []
        self._left: dict[int, list[PendingClose]] = {}  # those with relays, by number
        self._clients: dict[str, int] = {}  # how many pending closes clients have whose sessions this node leads

    @property
    def busy(self) -> bool:
        """Whether the leader of a session still has to learn of the end of a connection."""
        return bool(self._closes)

    def is_open(self, client_id: str) -> bool:
        """Whether a client, whose session this node leads, must not publish elsewhere yet."""
        return client_id in self._clients

    def is_left_by(self, connection: Connection) -> bool:
        """Whether a message published over a connection is on its way; what others have published does not matter."""
        if connection.outbox_open:
            return True
        return self.forward_sender.is_under_way(connection, connection.forwarded_seq)

    def begin(self, connection: Connection, goodbye: bool) -> None:
        """Handle the end of a connection: tell the leader of its session, at once or when all has arrived."""
        relay = connection.relay
        if self.is_left_by(connection):
            self._follow(connection, goodbye)
            if relay is None:
                self._open(connection.client_id)
        elif relay is not None:
            self.relays.closed(relay, goodbye)

    def disconnect(self, connection: Connection, relay: Relay, first: int, rest: bytes) -> None:
        """Pass on a DISCONNECT, which ends the connection at its leader, at once or when all has arrived."""
        if self.is_left_by(connection):
            self._follow(connection, True).packet = (first, rest)
        else:
            self.relays.forward(relay, first, rest)

    def _follow(self, connection: Connection, goodbye: bool) -> PendingClose:
        close = PendingClose(connection, self.state.now + _PATIENCE_US, goodbye)
        self._closes.append(close)
        if close.relay is not None:
            self._left.setdefault(close.relay.number, []).append(close)
        return close

    def speak(self) -> None:
        """Send flush markers; called when all messages of the turn are sent."""
        for close in self._closes:
            self.forward_sender.mark(close.connection.forwarded_seq)

    def settle(self) -> list[str]:
        """End the pending closes whose messages have arrived; return the clients that may be admitted elsewhere."""
        if not self._closes:
            return []
        pending_closes = self._closes
        self._closes = []
        clients: list[str] = []
        for close in pending_closes:
            if self.state.now < close.until_us and self.is_left_by(close.connection):
                self._closes.append(close)
            elif close.relay is None:
                self._close(close.connection.client_id)
                clients.append(close.connection.client_id)
            else:
                self._pass_on(close, close.relay)
        return clients

    def _pass_on(self, close: PendingClose, relay: Relay) -> None:
        """Tell the leader of the session; the pending closes of a connection end in order."""
        self._left[relay.number].remove(close)
        if not self._left[relay.number]:
            del self._left[relay.number]
        if close.packet is not None:
            self.relays.forward(relay, close.packet[0], close.packet[1])
        else:
            self.relays.closed(relay, close.goodbye)

    def _open(self, client_id: str) -> None:
        self._clients[client_id] = self._clients.get(client_id, 0) + 1

    def _close(self, client_id: str) -> None:
        left = self._clients.pop(client_id) - 1
        if left:
            self._clients[client_id] = left

    def end_of(self, relay: Relay) -> tuple[bool, bool]:
        """Begin to lead the session: return whether the connection has ended, and whether with DISCONNECT."""
        for close in self._left.pop(relay.number, []):
            close.relay = None
            self._open(close.connection.client_id)
            if close.packet is None:
                return True, close.goodbye
            self.relays.forward(relay, close.packet[0], close.packet[1])
        return relay.state == ENDED, is_goodbye(relay)

    def clear(self) -> None:
        """Forget all: this node serves nobody, and all its connections are gone for other nodes."""
        self._closes.clear()
        self._left.clear()
        self._clients.clear()
