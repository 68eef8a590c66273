"""What a client has published through this node and other nodes have not got yet when its connection ends (A3).

The client may come again through another node, and what it publishes there must not overtake what is on its way from
here. So the leader of its session hears of the end of the connection when that has arrived, and lets the client in
elsewhere no sooner. What nobody confirms, because it is only for transient subscribers, is followed by a message with
nothing in it, a fence, whose answer says that all before it is there. Owns which connections have ended so; most have
nothing under way, and end at once.
"""

from __future__ import annotations

from typing import Final

from folkmoot.channel.forward_sender import ForwardSender
from folkmoot.channel.outbox import Outbox
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.feature import FLUSH_MARKERS
from folkmoot.kernel.pack import varint
from folkmoot.proxy.relay import Relays, is_goodbye
from folkmoot.session.connection import Connection
from folkmoot.session.relay import ENDED, Relay
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import FORWARD
from folkmoot.turn.state import State

__all__ = ["PendingClose", "PendingCloses"]

# Longer than a node that hangs stays in the view by default (`cluster.silence`): then there is nothing to wait for. If
# it does stay longer, its clients go on meanwhile: better out of order than not at all.
_PATIENCE_US: Final = 5 * SECOND


class PendingClose:
    """A connection that has ended, or whose client has said DISCONNECT.

    relay: if the leader of the session is another node, and is to hear of the end; goodbye: the client has sent
    DISCONNECT; packet: that, if it is to be passed on.
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

    def __init__(
        self, state: State, fabric: Fabric, forward_sender: ForwardSender, outbox: Outbox, relays: Relays
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.forward_sender = forward_sender
        self.outbox = outbox
        self.relays = relays
        self._closes: list[PendingClose] = []
        self._left: dict[int, list[PendingClose]] = {}  # those with relays, by number
        self._clients: dict[str, int] = {}  # how many trails of clients whose sessions this node leads

    @property
    def busy(self) -> bool:
        """Whether the leader of some session does not know yet that a connection has ended."""
        return bool(self._closes)

    def is_open(self, client_id: str) -> bool:
        """Whether a client, whose session this node leads, must not publish elsewhere yet."""
        return client_id in self._clients

    def is_left_by(self, connection: Connection) -> bool:
        """Whether something that was published over a connection is on its way."""
        if connection.outbox_seq and self.outbox.is_open(self._home(connection), connection.outbox_seq):
            return True
        return connection.forwarded_seq > 0 and (
            self.forward_sender.is_asking(connection) or len(self._unconfirmed(connection)) > 0
        )

    def begin(self, connection: Connection, goodbye: bool) -> None:
        """A connection has ended: tell the leader of its session, at once or when all has arrived."""
        relay = connection.relay
        if self.is_left_by(connection):
            self._follow(connection, goodbye)
            if relay is None:
                self._open(connection.client_id)
        elif relay is not None:
            self.relays.closed(relay, goodbye)

    def disconnect(self, connection: Connection, relay: Relay, first: int, rest: bytes) -> None:
        """A client has sent DISCONNECT, which ends the connection at its leader: pass it on, as above."""
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

    def _home(self, connection: Connection) -> int:
        return self.state.partition_of(connection.client_id.encode())

    def _unconfirmed(self, connection: Connection) -> list[str]:
        """Return the nodes that may not have got all that needs no answer."""
        if not self.fabric.can(FLUSH_MARKERS):
            return []
        return self.forward_sender.acks.unconfirmed(connection.forwarded_seq)

    def speak(self) -> None:
        """Let fences follow what was sent; to be called when all requests of the turn are sent."""
        acks = self.forward_sender.acks
        for close in self._closes:
            for node_id in self._unconfirmed(close.connection):
                if acks.needs_flush(node_id, close.connection.forwarded_seq):
                    self.fabric.send(node_id, FORWARD, varint(acks.sent_seq) + varint(0))

    def settle(self) -> list[str]:
        """End the trails whose messages have arrived; return the clients that may come in elsewhere."""
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
        """Tell the leader of the session; the trails of a connection end in their order."""
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
        """This node leads the session now: return whether the connection has ended, and whether with a goodbye."""
        for close in self._left.pop(relay.number, []):
            close.relay = None
            self._open(close.connection.client_id)
            if close.packet is None:
                return True, close.goodbye
            self.relays.forward(relay, close.packet[0], close.packet[1])
        return relay.state == ENDED, is_goodbye(relay)

    def clear(self) -> None:
        """This node serves nobody: whoever was connected is gone for all others."""
        self._closes.clear()
        self._left.clear()
        self._clients.clear()
