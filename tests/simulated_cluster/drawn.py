"""Clients that a drawn run makes act, and what each of them, and the ledger of all, must see.

A client keeps to MQTT: it repeats what was not acknowledged when it has its session again, and answers what it gets,
sometimes late. It knows what it waits for on its connection, so that an answer that is missing, comes twice or comes
out of order shows. The ledger knows what was published, acknowledged, subscribed to and received.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC, PUBREL
from folkmoot.mqtt.packet import (
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.harness.peer import EVER, Peer, properties
from tests.harness.simulated_cluster import SimulatedCluster, Site

__all__ = [
    "AWAY",
    "ASKED",
    "OPEN",
    "REFUSED",
    "DrawnClient",
    "Ledger",
    "Message",
    "Publisher",
    "TimedPeer",
    "Wish",
    "matches",
]

AWAY, ASKED, OPEN = "away", "asked", "open"
REFUSED = 0x80  # reason codes from here on


class TimedPeer(Peer):
    """A client that knows when packets came, and when its connection ended."""

    def __init__(self, site: Site, client_id: str, version: int) -> None:
        super().__init__(site, client_id, version, acks=False)
        self.cluster = site.cluster
        self.times: list[int] = []
        self.over_us = 0
        site.peers.append(self)

    def note_end(self) -> None:
        """Note when the connection has ended."""
        if self.connection is None and not self.over_us:
            self.over_us = self.cluster.now

    def lose(self) -> None:
        """Let the connection break."""
        super().lose()
        self.note_end()

    def shut(self) -> None:
        """The server has closed the connection."""
        super().shut()
        self.note_end()

    def _note(self, packet: Packet) -> None:
        super()._note(packet)
        self.times.append(self.cluster.now)

    def receive_timed(self) -> list[tuple[int, Packet]]:
        """Take all packets that came, with their times."""
        times, self.times = self.times, []
        return list(zip(times, self.receive(), strict=True))


class Publisher(Protocol):
    """Whoever publishes: `connections` counts those that are said to keep an order."""

    name: str
    connections: int


class Message:
    """What a client has published: `sent` and `acked` are moments of the ledger; 0: it was not acknowledged."""

    def __init__(self, number: int, client: Publisher, topic: str, qos: int, retain: bool, sent: int) -> None:
        self.number = number
        self.client = client
        self.connection = client.connections
        self.site = ""
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.sent = sent
        self.acked = 0
        self.sent_us = 0  # the last time
        self.sends = 1
        self.code = 0
        self.expiry_s = 0
        self.refused = False
        self.repeated = False
        self.anew = False  # its producer has published it again: who has no session may get it again

    def replaces(self, other: Message) -> bool:
        """Whether this one was certainly published after another one of its client that is acknowledged."""
        in_order = self.qos == other.qos or other.acked < self.sent
        return bool(self.acked) and self.number > other.number and in_order

    def __repr__(self) -> str:
        return f"Message({self.number} {self.client.name} {self.topic} qos={self.qos} {self.sent}..{self.acked})"


class Ledger:
    """All that the clients of a run know, in one order of moments."""

    def __init__(self) -> None:
        self.moment = 0
        self.messages: dict[int, Message] = {}
        self.troubles: list[tuple[str, int]] = []  # which node was killed or lost its lease, and when

    def tick(self) -> int:
        """Return the next moment."""
        self.moment += 1
        return self.moment

    def publish(self, client: Publisher, topic: str, qos: int, retain: bool) -> Message:
        """Note a new message."""
        message = Message(len(self.messages) + 1, client, topic, qos, retain, self.tick())
        self.messages[message.number] = message
        return message

    def values(self, topic: str) -> set[int]:
        """Which message may be the retained one of a topic in the end; 0: none.

        One that was never acknowledged may, and one with QoS 1 that was sent again: it may have been published again,
        behind others. Any other one is replaced by a later one that is acknowledged, unless both were under way at once
        with different QoS.
        """
        found = [message for message in self.messages.values() if message.topic == topic and message.retain]
        allowed = {0} if not any(message.acked for message in found) else set()
        for message in found:
            unsure = not message.acked or (message.repeated and message.qos == 1)
            if unsure or not any(later.replaces(message) for later in found):
                allowed.add(message.number)
        return allowed


class Wish:
    """A subscription from its SUBACK to its UNSUBSCRIBE, in one session or one connection."""

    def __init__(self, name: str, since: int, session: int, connection: int) -> None:
        self.name = name
        self.since = since
        self.until = 0
        self.session = session
        self.connection = connection

    def covers(self, message: Message) -> bool:
        """Whether the message is for it: published after the SUBACK, and without an UNSUBSCRIBE since."""
        return matches(self.name, message.topic) and self.since < message.sent and not self.until


class DrawnClient:
    """One client id, and its connections one after the other."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        ledger: Ledger,
        name: str,
        *,
        version: int = V5,
        persistent: bool = True,
        filters: Sequence[tuple[str, int]] = (),
        window: int = 0,
    ) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.name = name
        self.version = version
        self.persistent = persistent
        self.filters = dict(filters)  # QoS by filter: no two of them match one topic
        self.window = window
        self.state = AWAY
        self.site = ""
        self.peer: TimedPeer | None = None
        self.came_us = 0  # when the packet came that it takes
        self.left: list[tuple[TimedPeer, str]] = []  # connections that the server has to end, and their nodes
        self.connections = 0
        self.sessions = 0
        self.has_session = False
        self.is_hasty = False  # it has given up a connection before CONNACK: the leader may see that one last
        self.anew = False  # it wants a clean start
        self.ends: list[str] = []  # how connections were ended by the server
        # As a publisher: flows by packet id, in the order of their beginning
        self.flows: dict[int, Message] = {}
        self.released: dict[int, None] = {}  # flows that have their PUBREC
        # What it waits for on this connection
        self.pubacks: deque[int] = deque()
        self.pubrecs: deque[int] = deque()
        self.pubcomps: deque[int] = deque()
        self.subacks: dict[int, str] = {}
        self.unsubacks: dict[int, str] = {}
        self.newest: dict[str, int] = {}  # by filter: the last request for it
        self.pings = 0
        # As a subscriber
        self.wishes: list[Wish] = []
        self.sure: dict[str, bool] = {}  # by filter: whether the session has it, if the client can know
        self.got: dict[int, list[bool]] = {}  # by message: whether each arrival was marked DUP
        self.first: list[int] = []  # messages in the order in which they arrived first
        self.held: dict[int, int] = {}  # QoS 2: messages by packet id, until PUBREL
        self.owed: deque[Ack] = deque()
        self.lazy = False  # it answers later
        self.releases: deque[int] = deque()  # PUBRECs of this connection without PUBREL
        self.early: dict[int, None] = {}  # flows of earlier connections that the server has to go on with
        self.ended: dict[int, None] = {}  # flows whose PUBREL came over this connection
        self.retained: dict[str, int] = {}  # what came as retained, by topic

    def __repr__(self) -> str:
        return f"{self.name}@{self.site}"

    # -- what it does -------------------------------------------------------------------------------------------------

    def connect(self, site: str, clean: bool = False) -> None:
        """Open a connection at a node and send CONNECT; an older connection is left to the server."""
        self._give_up()
        self.anew = self.anew or clean or not self.persistent
        if self.anew:
            self._end_session()
        self._open(site)

    def _give_up(self) -> None:
        """Leave an older connection to the server; one that was not accepted breaks."""
        if self.peer is None:
            return
        if self.state == ASKED:
            self.peer.lose()
            self.is_hasty = True
        if self.peer.connection is not None:
            self.left.append((self.peer, self.site))
        self._forget()

    def _open(self, site: str) -> None:
        self.connections += 1
        self.site = site
        self.state = ASKED
        self.peer = peer = TimedPeer(self.cluster[site], self.name, self.version)
        packet = self._connect_packet(peer)
        peer.open()
        peer.send(packet)

    def _connect_packet(self, peer: TimedPeer) -> Connect:
        """Return the CONNECT for a new connection."""
        made = None
        if self.version == V5:
            expiry = EVER if self.persistent else None
            made = properties(session_expiry=expiry, receive_max=self.window or None)
        return Connect(self.version, self.name, self.anew, 0, None, None, self._will(), made)

    def _will(self) -> Will | None:
        """Return the will of the connection that is about to begin; None: it has none."""
        return None

    def disconnect(self, code: int = 0) -> None:
        """Send DISCONNECT."""
        assert self.peer is not None
        self.peer.send(Disconnect(code))
        self.left.append((self.peer, self.site))
        self._forget()

    def lose(self) -> None:
        """Let the connection break."""
        assert self.peer is not None
        self.peer.lose()
        self._forget()

    def hang_up(self) -> None:
        """Let its older connections break."""
        for peer, _ in self.left:
            peer.lose()
        self.left = []

    def subscribe(self, name: str) -> None:
        """Send SUBSCRIBE."""
        packet_id = self._packet_id()
        self.subacks[packet_id] = self._ask(name, packet_id)
        self._send(self._subscribe_packet(packet_id, name))

    def _subscribe_packet(self, packet_id: int, name: str) -> Subscribe:
        return Subscribe(packet_id, [(name.encode(), self.filters[name])])

    def unsubscribe(self, name: str) -> None:
        """Send UNSUBSCRIBE."""
        packet_id = self._packet_id()
        self.unsubacks[packet_id] = self._ask(name, packet_id)
        self._stop(name)
        self._send(Unsubscribe(packet_id, [name.encode()]))

    def _ask(self, name: str, packet_id: int) -> str:
        self.sure.pop(name, None)
        self.newest[name] = packet_id
        return name

    def publish(self, topic: str, qos: int, retain: bool, expiry_s: int = 0) -> None:
        """Publish the next message of the ledger."""
        message = self.ledger.publish(self, topic, qos, retain)
        message.expiry_s = expiry_s
        message.site = self.site
        message.sent_us = self.cluster.now
        packet_id = self._packet_id() if qos else 0
        if qos:
            self.flows[packet_id] = message
            (self.pubacks if qos == 1 else self.pubrecs).append(packet_id)
        self._send(self._packet(message, packet_id, False))

    def ping(self) -> None:
        """Send PINGREQ."""
        self.pings += 1
        self._send(Pingreq())

    def answer(self) -> None:
        """Send the acknowledgements that it owes."""
        while self.owed and self.state == OPEN:
            ack = self.owed.popleft()
            if ack.kind == PUBREC and ack.code < REFUSED:
                self.releases.append(ack.packet_id)
            elif ack.kind == PUBREL:
                self.pubcomps.append(ack.packet_id)
            self._send(ack)
            self._answered(ack)

    def _answered(self, ack: Ack) -> None:
        """It has sent an acknowledgement."""

    def _send(self, packet: Packet) -> None:
        assert self.peer is not None
        self.peer.send(packet)

    def _packet(self, message: Message, packet_id: int, dup: bool) -> Publish:
        payload = b"%d" % message.number
        made = properties(message_expiry=message.expiry_s) if message.expiry_s else None
        return Publish(message.topic.encode(), payload, message.qos, message.retain, dup, packet_id, made)

    def _packet_id(self) -> int:
        """Return the lowest packet id that is free, so that they are used again soon."""
        used = {*self.flows, *self.released, *self.subacks, *self.unsubacks}
        return next(number for number in range(1, 0x10000) if number not in used)

    def waits(self) -> str:
        """Return what it waits for on its connection; empty: nothing."""
        parts = [("PUBACK", self.pubacks), ("PUBREC", self.pubrecs), ("PUBCOMP", self.pubcomps)]
        more: list[tuple[str, Any]] = [("SUBACK", self.subacks), ("UNSUBACK", self.unsubacks), ("PINGRESP", self.pings)]
        more.append(("PUBREL", [*self.releases, *self.early]))
        return ", ".join(
            f"{kind} {list(ids) if ids and kind != 'PINGRESP' else ids}" for kind, ids in parts + more if ids
        )

    # -- what comes ---------------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Take what has come, and answer it unless it is lazy; tell whether anything has come."""
        self.left = [(peer, site) for peer, site in self.left if peer.connection is not None]
        peer = self.peer
        if peer is None:
            return False
        packets = peer.receive_timed()
        for self.came_us, packet in packets:
            self._take(packet)
            if self.peer is None:
                return True
        if peer.connection is None:
            if peer.closed:
                self.ends.append(f"{self} closed {peer.close_code} in {self.state}")
            self._forget()
        elif not self.lazy:
            self.answer()
        return bool(packets)

    def _take(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if packet.code:
                self._refused(packet.code)
            else:
                self._accepted(packet.session_present)
        elif isinstance(packet, Publish):
            self._arrives(packet)
        elif isinstance(packet, Suback):
            self._subscribed(packet)
        elif isinstance(packet, Unsuback):
            assert packet.packet_id in self.unsubacks, f"{self} has not asked for {packet}"
            self._learn(packet.packet_id, self.unsubacks.pop(packet.packet_id), False)
        elif isinstance(packet, Pingresp):
            assert self.pings > 0, f"{self} has not sent a ping"
            self.pings -= 1
        elif isinstance(packet, Ack):
            self._acknowledged(packet)
        else:
            assert isinstance(packet, Disconnect), f"{self} gets {packet}"

    def _accepted(self, present: bool) -> None:
        self._look_at_session(present)
        self.anew = False
        if not present:
            self._end_session()
            self.sessions += 1
        self.has_session = self.persistent
        self.state = OPEN
        self.early = dict.fromkeys(self.held)
        for packet_id, message in self.flows.items():
            if packet_id in self.released:
                self.pubcomps.append(packet_id)
                self._send(Ack(PUBREL, packet_id))
            else:
                (self.pubacks if message.qos == 1 else self.pubrecs).append(packet_id)
                message.repeated = True
                message.sends += 1
                message.sent_us = self.cluster.now
                self._send(self._packet(message, packet_id, True))

    def _refused(self, code: int) -> None:
        self.ends.append(f"{self} refused {code}")
        self._forget()

    def _look_at_session(self, present: bool) -> None:
        if self.persistent and self.has_session and not present:
            self._lost_session()

    def _lost_session(self) -> None:
        """The node does not know the session of this client."""
        raise AssertionError(f"A1: {self} has lost its session")

    def _subscribed(self, packet: Suback) -> None:
        assert packet.packet_id in self.subacks, f"{self} has not asked for {packet}"
        name = self.subacks.pop(packet.packet_id)
        assert packet.codes == [self.filters[name]], f"{self}: {packet}"
        active = [wish for wish in self.wishes if wish.name == name and not wish.until]
        if self._learn(packet.packet_id, name, True) and not active:
            self.wishes.append(Wish(name, self.ledger.tick(), self.sessions, self.connections))

    def _learn(self, packet_id: int, name: str, has: bool) -> bool:
        """The answer to the last request for a filter says whether the session has it."""
        if self.newest.get(name) != packet_id:
            return False
        self.sure[name] = has
        return True

    def _acknowledged(self, packet: Ack) -> None:
        packet_id = packet.packet_id
        if packet.kind == PUBREL:
            if self.releases and packet_id in self.releases:
                assert self.releases.popleft() == packet_id, f"[MQTT-4.6.0-4] {self}: {packet}, {self.releases}"
            else:
                if packet_id in self.ended:
                    self._ends_again(packet_id)
                self.early.pop(packet_id, None)
            self.ended[packet_id] = None
            self.held.pop(packet_id, None)
            self.owed.append(Ack(PUBCOMP, packet_id))
            return
        line = {PUBACK: self.pubacks, PUBREC: self.pubrecs, PUBCOMP: self.pubcomps}[packet.kind]
        assert packet_id in line, f"{self} has not asked for {packet}, {line} wait"
        assert packet.kind == PUBCOMP or line[0] == packet_id, f"[MQTT-4.6.0-2] {self}: {packet}, {line} wait"
        line.remove(packet_id)
        if packet.kind == PUBCOMP:
            del self.flows[packet_id], self.released[packet_id]
            return
        message = self.flows[packet_id]
        message.code = packet.code
        message.refused = packet.code >= REFUSED
        message.acked = 0 if message.refused else self.ledger.tick()
        if packet.kind == PUBREC and not message.refused:
            self.released[packet_id] = None
            self.owed.append(Ack(PUBREL, packet_id))
        else:
            del self.flows[packet_id]

    def _arrives(self, packet: Publish) -> None:
        message = self.ledger.messages.get(int(packet.payload))
        assert message is not None, f"A2: {self} gets {packet}"
        assert message.topic == packet.topic.decode(), f"A2: {self} gets {packet}"
        qos = next(qos for name, qos in self.filters.items() if matches(name, message.topic))
        assert packet.qos == min(message.qos, qos), f"{self} gets {packet} of {message}"
        if self._is_new(packet, message.number):
            self._note_arrival(message, packet)

    def _note_arrival(self, message: Message, packet: Publish) -> None:
        if packet.retain:
            self.retained[packet.topic.decode()] = message.number
            return
        arrivals = self.got.setdefault(message.number, [])
        if not arrivals:
            self.first.append(message.number)
        arrivals.append(packet.dup)
        if packet.qos == 2 and (self.persistent or not message.anew) and len(arrivals) > 1:
            self._arrives_again(message)

    def _is_new(self, packet: Publish, what: int) -> bool:
        """Owe the answer to a PUBLISH; tell whether it begins a flow. what: its message, that of no other one."""
        if packet.qos == 1:
            self.owed.append(Ack(PUBACK, packet.packet_id))
        elif packet.qos == 2:
            self.owed.append(Ack(PUBREC, packet.packet_id))
            self.early.pop(packet.packet_id, None)
            self.ended.pop(packet.packet_id, None)
            if packet.packet_id in self.held:
                known = self.held[packet.packet_id]
                if known == what:
                    return False
                self._mistaken(packet, what)
            self.held[packet.packet_id] = what
        return True

    def _mistaken(self, packet: Publish, what: int) -> None:
        """A message comes with the packet id of another one that has not ended."""
        known = self.held[packet.packet_id]
        raise AssertionError(f"A4: {self} has {known} as {packet.packet_id}, not {what}: {packet}")

    def _ends_again(self, packet_id: int) -> None:
        """PUBREL has come once more over this connection."""
        raise AssertionError(f"{self}: PUBREL {packet_id} once more")

    def _arrives_again(self, message: Message) -> None:
        """A message with QoS 2 has come once more."""
        raise AssertionError(f"A4: {self} gets {message} again")

    # -- what ends ----------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """The connection is over."""
        self.peer = None
        self.state = AWAY
        for line in (self.pubacks, self.pubrecs, self.pubcomps, self.releases):
            line.clear()
        self.subacks.clear()
        self.unsubacks.clear()
        self.newest.clear()
        self.early.clear()
        self.ended.clear()
        self.owed.clear()
        self.pings = 0
        if not self.persistent:
            self._end_session()

    def _end_session(self) -> None:
        self.has_session = False
        self.flows.clear()
        self.released.clear()
        self.held.clear()
        for name in self.filters:
            self._stop(name)
            self.sure[name] = False

    def _stop(self, name: str) -> None:
        for wish in self.wishes:
            if wish.name == name and not wish.until:
                wish.until = self.ledger.tick()

    def wants(self, topic: str) -> bool | None:
        """Whether its session has a subscription to a topic; None: it cannot know."""
        for name in self.filters:
            if matches(name, topic):
                return self.sure.get(name)
        return False

    def lacks(self, message: Message, strict: bool) -> bool:
        """Whether it must have got an acknowledged message and has not; strict: as a transient client, too."""
        if not message.acked or message.number in self.got or not message.qos or message.expiry_s:
            return False
        for wish in self.wishes:
            if wish.covers(message) and self.filters[wish.name] > 0:
                stays = wish.session == self.sessions and self.has_session
                if not self.persistent:
                    stays = strict and wish.connection == self.connections and self.state == OPEN
                if stays:
                    return True
        return False


def matches(name: str, topic: str) -> bool:
    return name in ("#", topic, topic[:2] + "#")
