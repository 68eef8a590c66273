"""The node with the connection, when another node leads the client's partition.

A persistent session lives at the leader of its partition, which speaks MQTT; this node passes on packets of the client
and bytes for it, and publishes its QoS 0 and 1 messages itself. A transient session lives here; its leader only
registers it (A6) and keeps its will (A7). Owns the packets that were passed on until their effects are safe, so that a
new leader can continue. The other end is `leadership.hosting`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from folkmoot.kernel.clock import MILLISECOND, SECOND
from folkmoot.kernel.feature import AGES
from folkmoot.kernel.pack import BYTE, get_varint, varint
from folkmoot.mqtt.kind import PUBCOMP, PUBLISH
from folkmoot.session.connection import Connection
from folkmoot.session.relay import ASKED, ENDED, ENTRY_BYTES, GRANTED, Relay
from folkmoot.session.session import Session
from folkmoot.store.row import marked_name
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.message import ATTACHED, HOST, RELAY
from folkmoot.turn.state import State
from folkmoot.turn.throttle import FOR_ACKS, FOR_RELAY, Throttle

__all__ = [
    "AGED",
    "BLOCKED",
    "CLOSED",
    "GOODBYE",
    "MARKED",
    "UNBLOCKED",
    "HostRequest",
    "HostedClient",
    "Relays",
    "aged",
    "decode_attached",
    "decode_host",
    "is_goodbye",
    "token_of",
]

# In place of a packet's first byte: what the leader must know of the connection
CLOSED: Final = 0
GOODBYE: Final = 1
BLOCKED: Final = 2
UNBLOCKED: Final = 3
MARKED: Final = 4  # nothing; confirmed when all that the former leader had under way is done

AGED: Final = 5  # a PUBLISH that has waited for a leader: how long (milliseconds), its first byte, what follows

_LOG_BYTES_MAX: Final = 1 << 20  # per client that waits for the leader of its session; above, it may not publish


class HostedClient(NamedTuple):
    """A client, as the leader of its partition learns of it from the node with the connection.

    user: marked if nobody has proved the name. assigned: the server has chosen the client id. flights: queue sequences
    of what the client has not acknowledged. void: no session goes on with it, because it was not admitted yet, or has
    sent DISCONNECT; so its will is not due. handled: up to which of its packets all are handled. sent: up to which they
    were sent to an earlier leader.
    """

    number: int
    partition: int
    client_id: str
    user: str
    certificate: str | None
    transport: str
    address: str
    assigned: bool
    connect: bytes
    persistent: bool
    flights: list[int]
    token: int
    void: bool
    handled: int
    sent: int


class HostRequest(NamedTuple):
    """A client that wants in: the leader epoch of the leadership that its node asks, and the client.

    Another leadership of the partition, also one of the same node, is asked anew: for it the request is void.
    """

    leader_epoch: int
    client: HostedClient


# The fields of a client in a message: a compiled class does not say of what types its fields are.
_CLIENT = tuple[int, int, str, str, str | None, str, str, bool, bytes, bool, list[int], int, bool, int, int]
_REQUEST = tuple[int, _CLIENT]
_ATTACHED = tuple[int, list[int], list[_CLIENT]]


def decode_host(body: bytes) -> HostRequest:
    """Read the body of HOST; raises ValueError."""
    leader_epoch, client = msgspec.msgpack.decode(body, type=_REQUEST)
    return HostRequest(leader_epoch, HostedClient(*client))


def decode_attached(body: bytes) -> tuple[int, list[int], list[HostedClient]]:
    """Read the body of ATTACHED: the epoch, the partitions that were asked for, their clients; raises ValueError."""
    epoch, partitions, clients = msgspec.msgpack.decode(body, type=_ATTACHED)
    return epoch, partitions, [HostedClient(*client) for client in clients]


class Relays:
    """All connections of this node whose partition another node leads, or is about to."""

    def __init__(self, state: State, fabric: Fabric, throttle: Throttle) -> None:
        self.state = state
        self.fabric = fabric
        self.throttle = throttle
        # Above this, a client is not read. Beyond the bound from which it may not publish there is room for two
        # acknowledgements of each message in flight: who keeps to MQTT does not get there while the leader is away.
        self._full_bytes = _LOG_BYTES_MAX + 2 * state.limits.inflight_max * (ENTRY_BYTES + 2)
        self.relays: dict[int, Relay] = {}
        self._by_partition: list[dict[int, Relay]] = [{} for _ in range(state.partitions)]
        self._outgoing: dict[str, list[bytes]] = {}

    def __len__(self) -> int:
        return len(self.relays)

    def ask(self, connection: Connection, partition: int, body: bytes, assigned: bool) -> None:
        """Ask the leader of its partition to admit a client, as soon as there is one."""
        met = connection.token != 0  # this node has led the partition, and stored a session and a will
        relay = Relay(connection, partition, body, assigned, token_of(connection, self.state))
        relay.announced = met
        self._add(relay)
        if self.fabric.open[partition] and self.fabric.leaders[partition] != self.fabric.node_id:
            self._ask(relay)

    def _add(self, relay: Relay) -> None:
        relay.packet_seq = relay.connection.relayed_seq
        relay.connection.relay = relay
        self.relays[relay.number] = relay
        self._by_partition[relay.partition][relay.number] = relay

    def _ask(self, relay: Relay) -> None:
        relay.leader = self.fabric.leaders[relay.partition]
        relay.announced = True
        self._flush_to(relay.leader)
        request = HostRequest(self.fabric.leader_epochs[relay.partition], self._client(relay, relay.state == ASKED))
        self.fabric.send(relay.leader, HOST, msgspec.msgpack.encode(request))

    def _client(self, relay: Relay, void: bool) -> HostedClient:
        connection = relay.connection
        info = connection.info
        return HostedClient(
            relay.number,
            relay.partition,
            connection.client_id,
            marked_name(connection.username, connection.is_proved),
            info.certificate_name,
            info.transport,
            info.address,
            relay.assigned,
            relay.body,
            relay.persistent,
            list(relay.flights.values()),
            relay.token,
            void,
            relay.log[0][0] - 1 if relay.log else relay.packet_seq,
            relay.sent_seq,
        )

    def adopt(self, connection: Connection, session: Session, taken: list[tuple[int, bytes, int]], busy: bool) -> Relay:
        """Begin to relay an open connection: another node leads the partition of its session from now on.

        taken: acknowledgements of the client that may be lost, from `Queue.hand_over`. The new leader gets them
        first, or its answers to later ones would come before [MQTT-4.6.0-4]. busy: entries of this node's outbox are
        under way; new messages of the client wait for them.
        """
        body = connection.connect_body
        relay = Relay(connection, session.partition, body, False, token_of(connection, self.state))
        relay.state = GRANTED
        relay.persistent = session.persistent
        relay.answers_token = connection.held_token if connection.held else 0
        self._add(relay)
        for first, rest, sequence in taken:
            if first >> 4 != PUBCOMP:
                relay.flights[session.packet_id_of(sequence)] = sequence
            self.forward(relay, first, rest)
        if session.persistent:
            for packet_id, entry in session.inflight.items():
                if entry.sequence:  # a released message is a row
                    relay.flights[packet_id] = entry.sequence
        if busy and session.persistent:
            self.forward(relay, MARKED, b"")
            relay.marker_seq = relay.packet_seq
            connection.fast = False
        return relay

    def find(self, node_id: str, number: int) -> Relay | None:
        """Return the relay that a message of its leader is for; None if that node does not lead it (any more)."""
        relay = self.relays.get(number)
        return relay if relay is not None and relay.leader == node_id else None

    # -- to the leader ------------------------------------------------------------------------------------------------

    def forward(self, relay: Relay, first: int, rest: bytes) -> None:
        """Pass on a packet of the client: its first byte, and all behind its length."""
        relay.packet_seq += 1
        relay.log.append((relay.packet_seq, first, rest, self.state.now))
        relay.log_bytes += len(rest) + ENTRY_BYTES
        self.state.memory.relay_bytes += len(rest) + ENTRY_BYTES
        if relay.log_bytes > _LOG_BYTES_MAX and relay.state == GRANTED:
            self.throttle.pause(relay.connection, FOR_RELAY)
            if relay.log_bytes > self._full_bytes:
                self.throttle.choke(relay.connection)
        if relay.leader:
            self._put(relay, relay.packet_seq, first, rest)

    def _put(self, relay: Relay, packet: int, first: int, rest: bytes) -> None:
        relay.sent_seq = max(relay.sent_seq, packet)
        out = self._outgoing.get(relay.leader)
        if out is None:
            out = []
            self._outgoing[relay.leader] = out
        out.append(varint(relay.number))
        out.append(varint(packet))
        out.append(BYTE[first])
        out.append(varint(len(rest)))
        out.append(rest)

    def block(self, relay: Relay, blocked: bool) -> None:
        """Report that the client takes no more bytes for now, or takes them again."""
        if relay.leader and relay.persistent and relay.state == GRANTED:
            self._put(relay, 0, BLOCKED if blocked else UNBLOCKED, b"")

    def closed(self, relay: Relay, goodbye: bool) -> None:
        """Report the end of the connection to the leader, whichever node that is by then."""
        if relay.state == ENDED:
            return
        if relay.state == ASKED and not relay.announced:
            self.forget(relay)  # no leader knows of it
            return
        relay.state = ENDED
        self.forward(relay, GOODBYE if goodbye else CLOSED, b"")

    def expelled(self, node_id: str, number: int) -> None:
        """Answer a leader that has a connection closed which is not there any more: it waits for the end (A6)."""
        if number not in self.relays and number not in self.state.connections:
            self.fabric.send(node_id, RELAY, b"".join((varint(number), varint(0), BYTE[CLOSED], varint(0))))

    def acknowledged(self, relay: Relay, number: int) -> None:
        """The leader has handled all packets up to `number`."""
        before = relay.log_bytes
        relay.handled(number)
        self.state.memory.relay_bytes += relay.log_bytes - before
        if relay.connection.paused and relay.log_bytes <= _LOG_BYTES_MAX // 2:
            self._go_on(relay.connection)
        if relay.state == ENDED and not relay.log:
            self.forget(relay)

    def forget(self, relay: Relay) -> None:
        """Forget a finished relay."""
        self._go_on(relay.connection)
        if self.relays.get(relay.number) is relay:
            self.state.memory.relay_bytes -= relay.log_bytes
        relay.connection.relayed_seq = relay.packet_seq
        self.relays.pop(relay.number, None)
        self._by_partition[relay.partition].pop(relay.number, None)
        if relay.connection.relay is relay:
            relay.connection.relay = None

    def _go_on(self, connection: Connection) -> None:
        self.throttle.unpause(connection, FOR_ACKS)
        self.throttle.unpause(connection, FOR_RELAY)

    def ended(self) -> list[Relay]:
        """Return the relays whose connections have ended, unknown to a leader or not confirmed by it."""
        return [relay for relay in self.relays.values() if relay.state == ENDED]

    def forget_acks(self, relay: Relay) -> None:
        """Memory is short: drop acknowledgements of a connection, if it has ended."""
        if relay.state == ENDED:
            before = relay.log_bytes
            relay.forget_acks()
            if self.relays.get(relay.number) is relay:
                self.state.memory.relay_bytes += relay.log_bytes - before

    def flush(self) -> None:
        """Send the packets of this turn, one message per node."""
        if self._outgoing:
            for node_id in list(self._outgoing):
                self._flush_to(node_id)

    def _flush_to(self, node_id: str) -> None:
        out = self._outgoing.pop(node_id, None)
        if out:
            self.fabric.send(node_id, RELAY, b"".join(out))

    # -- leaders come and go ------------------------------------------------------------------------------------------

    def moved(self, partition: int) -> None:
        """The partition has another leader: packets wait until it asks for them."""
        for relay in self._by_partition[partition].values():
            relay.leader = ""
            relay.disowned = False

    def opened(self, partition: int) -> None:
        """The leader of a partition is open: ask it to admit the waiting clients."""
        for relay in list(self._by_partition[partition].values()):
            if relay.state == ASKED:
                self._ask(relay)
            elif relay.state == ENDED and not relay.leader and relay.disowned:
                self.forget(relay)  # the leader knows that it was not admitted, and gets nothing of it
            elif relay.state == ENDED and relay.leader and relay.log:
                # An earlier answer that the leader does not know it was not reliable.
                packet, first, rest, _came_us = relay.log[-1]
                self._put(relay, packet, first, rest)

    def wanted(self, node_id: str, epoch: int, partitions: list[int]) -> None:
        """Answer a new leader that asks for the connected clients, then pass on packets whose effects may be lost.

        When a client has returned and was admitted, its older connection is over, whether the former leader has
        confirmed the end or not. Its next connection may be at another node: so an ended connection of a transient
        session is not named, except after DISCONNECT, when its will is not due.
        """
        clients: list[HostedClient] = []
        relays: list[Relay] = []
        asked: list[Relay] = []  # by a request that it has forgotten, if it opens the partition again in its leadership
        for partition in partitions:
            newest: dict[str, int] = {}
            for relay in self._by_partition[partition].values():
                if relay.state == GRANTED:
                    newest[relay.connection.client_id] = relay.number
            for relay in self._by_partition[partition].values():
                if is_goodbye(relay):
                    clients.append(self._client(relay, True))
                newest_one = relay.number >= newest.get(relay.connection.client_id, 0)
                if not relay.is_spent and (relay.state == ASKED or newest_one):
                    clients.append(self._client(relay, relay.state == ASKED))
                if relay.state != ASKED:
                    relay.leader = node_id
                    relays.append(relay)
                else:
                    relay.disowned = True
                    if relay.leader == node_id:
                        asked.append(relay)  # the others ask when it is open
        self._flush_to(node_id)
        self.fabric.send(node_id, ATTACHED, msgspec.msgpack.encode((epoch, partitions, clients)))
        for relay in relays:
            for packet, first, rest, came_us in relay.log:
                waited_us = self.state.now - came_us
                if waited_us >= SECOND and self.fabric.can(AGES):
                    first, rest = aged(first, rest, waited_us)
                self._put(relay, packet, first, rest)
            if not relay.connection.writable:
                self.block(relay, True)
        for relay in asked:
            self._ask(relay)

    def has_any(self, partition: int) -> bool:
        """Whether a partition has relays."""
        return bool(self._by_partition[partition])

    def is_here(self, partition: int, client_id: str, username: str) -> bool:
        """Whether a client of a user is connected to this node, and its session is in a partition that others lead."""
        for relay in self._by_partition[partition].values():
            connection = relay.connection
            if connection.client_id == client_id and connection.username == username and relay.state == GRANTED:
                return True
        return False

    def of_partition(self, partition: int) -> list[Relay]:
        """Return the relays of a partition, in the order in which they came."""
        return list(self._by_partition[partition].values())


def aged(first: int, rest: bytes, waited_us: int) -> tuple[int, bytes]:
    """Return the first byte, and what follows, of a packet that has waited for so long, and longer if it says so."""
    if first == AGED:
        before_ms, at = get_varint(rest, 0)
        return AGED, varint(before_ms + waited_us // MILLISECOND) + rest[at:]
    if first >> 4 == PUBLISH:
        return AGED, varint(waited_us // MILLISECOND) + BYTE[first] + rest
    return first, rest


def is_goodbye(relay: Relay) -> bool:
    """Whether a connection has ended with DISCONNECT, perhaps unknown to its leader."""
    return len(relay.log) > 0 and relay.log[-1][1] == GOODBYE


def token_of(connection: Connection, state: State) -> int:
    """Return the token of a connection, the same for all leaders that it meets."""
    if connection.remote is not None:
        return connection.remote.token
    if not connection.token:
        connection.token = state.rng.next64()
    return connection.token
