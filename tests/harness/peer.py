"""A client by hand: one client id, one network connection at a time, every packet visible."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.harness.rule import Rules
from tests.harness.wire import split

if TYPE_CHECKING:
    from folkmoot.session.connection import Connection
    from tests.harness.box import Box

__all__ = ["EVER", "Peer", "properties"]

EVER = 0xFFFF_FFFF
"""Session Expiry Interval of a session that does not expire, section 3.1.2.11.2."""

P = TypeVar("P")


def properties(**values: object) -> Properties:
    """Properties by their names in `folkmoot.mqtt.packet.Properties`; None means absent."""
    made = Properties()
    for name, value in values.items():
        assert hasattr(made, name), name
        if value is not None:
            setattr(made, name, value)
    return made


class Peer:
    """A client. `connect` opens a network connection if none is open, so that calling it again is a reconnect.

    With `acks` it acknowledges what it receives as every client library does. What the server sends is kept in
    `inbox` until a method takes it, and as bytes in `wire` for the life of the network connection.
    """

    def __init__(self, box: Box, client_id: str, version: int, acks: bool) -> None:
        self.box = box
        self.client_id = client_id
        self.version = version
        self.acks = acks
        self.connection: Connection | None = None
        self.inbox: list[Packet] = []
        self.wire = b""
        self.closed = False
        self.close_code: int | None = None
        self.paused = False
        self.assigned_id = ""
        self._rules = Rules(version)
        self._partial = b""
        self._unread = b""
        self._names: dict[int, bytes] = {}
        self._next_id = 0

    def __repr__(self) -> str:
        return f"Peer({self.client_id!r})"

    # The network connection

    def open(self, transport: str = "tcp", certificate_name: str | None = None) -> Peer:
        """Open a network connection without saying anything."""
        assert self.connection is None, "the network connection is open"
        self.inbox, self.wire, self.closed, self.close_code = [], b"", False, None
        self._rules, self._partial, self._unread, self._names = Rules(self.version), b"", b"", {}
        self.paused = False
        self.box.accept(self, transport, certificate_name)
        return self

    def lose(self) -> None:
        """Let the network connection break."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            self.box.node.lost(connection, "reset by peer", self.box.now)
            self.box.run()

    def raw(self, *chunks: bytes) -> Peer:
        """Send bytes as they are, each chunk on its own."""
        for chunk in chunks:
            self._rules.sent(chunk)
            self._transmit(chunk)
            self.box.run()
        return self

    def send(self, *packets: Packet) -> Peer:
        """Send packets in one chunk."""
        for packet in packets:
            if isinstance(packet, Connect):
                self._rules.sent_connect(packet)
        return self.raw(b"".join(encode(packet, self.version) for packet in packets))

    # What came

    def receive(self) -> list[Packet]:
        """Take all packets that came."""
        taken, self.inbox = self.inbox, []
        return taken

    def expect(self, kind: type[P]) -> P:
        """Take the first packet that came; it is of class `kind`."""
        assert self.inbox, f"{self} waits for {kind.__name__}, nothing came"
        packet = self.inbox.pop(0)
        assert isinstance(packet, kind), f"{self} waits for {kind.__name__}, {packet} came"
        return packet

    def take(self, kind: type[P], packet_id: int | None = None) -> P:
        """Take the first packet of class `kind` (and with that identifier), wherever it stands among the others."""
        for packet in self.inbox:
            if isinstance(packet, kind) and packet_id in (None, getattr(packet, "packet_id", None)):
                self.inbox.remove(packet)
                return packet
        raise AssertionError(f"{self} waits for {kind.__name__} {packet_id or ''}, came: {self.inbox}")

    def publishes(self) -> list[Publish]:
        """Take all PUBLISH packets that came; a topic that an alias stood for is filled in."""
        taken = [packet for packet in self.inbox if isinstance(packet, Publish)]
        self.inbox = [packet for packet in self.inbox if not isinstance(packet, Publish)]
        return taken

    def messages(self) -> list[tuple[str, bytes]]:
        """Take all PUBLISH packets that came, as (topic, payload)."""
        return [(packet.topic.decode(), packet.payload) for packet in self.publishes()]

    def payloads(self) -> list[bytes]:
        """Take all PUBLISH packets that came, as payloads."""
        return [packet.payload for packet in self.publishes()]

    def expect_close(self, *codes: int | None) -> None:
        """The server has closed; in MQTT 5.0 after CONNACK or DISCONNECT with one of `codes`, before it silently."""
        assert self.closed, f"{self} is still connected, came: {self.inbox}"
        if self.version == V5:
            assert self.close_code in codes, f"{self} was closed with {self.close_code}"
        else:
            assert self.close_code is None, f"{self} was told {self.close_code}"

    # What a client does; each call returns when the broker is at rest

    def connect(
        self,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        code: int | None = 0,
        **named: object,
    ) -> Connack:
        """Send CONNECT; the answer must carry `code` (None: any). `named` are properties, left out before MQTT 5.0."""
        if self.connection is None:
            self.open()
        made = properties(**named) if self.version == V5 else None
        self.send(
            Connect(self.version, self.client_id, clean_start, keep_alive_s, username, password, will, made),
        )
        connack = self.expect(Connack)
        assert code in (None, connack.code), f"{self}: {connack}"
        return connack

    def resume(self, **named: object) -> Connack:
        """Connect to a session that outlives the network connection, in the words of any version."""
        return self.connect(**{"clean_start": False, "session_expiry": EVER, **named})  # type: ignore[arg-type]

    def disconnect(self, code: int = 0, **named: object) -> None:
        """Send DISCONNECT; the server closes."""
        self.send(Disconnect(code, properties(**named) if self.version == V5 and named else None))
        assert self.closed

    def subscribe(
        self,
        *filters: str,
        qos: int = 0,
        no_local: bool = False,
        as_published: bool = False,
        retain_handling: int = 0,
        subscription_id: int | None = None,
    ) -> list[int]:
        """Subscribe to filters with the same options; return the codes of SUBACK."""
        options = qos | no_local << 2 | as_published << 3 | retain_handling << 4
        made = properties(subscription_ids=[subscription_id]) if subscription_id is not None else None
        packet_id = self.packet_id()
        self.send(Subscribe(packet_id, [(name.encode(), options) for name in filters], made))
        return self.take(Suback, packet_id).codes

    def unsubscribe(self, *filters: str) -> list[int]:
        """Unsubscribe from filters; return the codes of UNSUBACK (none before MQTT 5.0)."""
        packet_id = self.packet_id()
        self.send(Unsubscribe(packet_id, [name.encode() for name in filters]))
        return self.take(Unsuback, packet_id).codes

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **named: object) -> int:
        """Publish and go through the acknowledgements; return the code of the last one (0 for QoS 0)."""
        packet_id = self.packet_id() if qos else 0
        made = properties(**named) if named else None
        self.send(Publish(topic.encode(), payload, qos, retain, False, packet_id, made))
        if qos == 0:
            return 0
        ack = self.take(Ack, packet_id)
        if qos == 1 or ack.code >= 0x80:
            return ack.code
        assert ack.kind == PUBREC
        self.send(Ack(PUBREL, packet_id))
        return self.take(Ack, packet_id).code

    def ping(self) -> None:
        """Send PINGREQ; the answer must come."""
        self.send(Pingreq())
        self.take(Pingresp)

    def packet_id(self) -> int:
        """Return a packet identifier that this client has not used yet."""
        self._next_id += 1
        return self._next_id

    # Called by the box

    def feed(self, data: bytes) -> None:
        """Take bytes from the server."""
        self.wire += data
        packets, self._partial = split(self._partial + data)
        for first, body in packets:
            packet = decode(first, body, self.version)
            self._rules.received(packet, first, body)
            self._note(packet)

    def shut(self) -> None:
        """The server closed the network connection."""
        assert not self._partial, f"{self}: half a packet before the close: {self._partial!r}"
        self.closed = True
        self.connection = None

    def unpause(self) -> None:
        """The server reads again."""
        self.paused = False
        data, self._unread = self._unread, b""
        if data and self.connection is not None:
            self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        if self.connection is None:
            return  # the network swallows what is sent after the close
        if self.paused:
            self._unread += data
            return
        step = self.box.chunk_bytes or len(data)
        for start in range(0, len(data), step):
            self.box.node.receive(self.connection, data[start : start + step], self.box.now)

    def _note(self, packet: Packet) -> None:
        if isinstance(packet, Connack):
            if packet.code:
                self.close_code = packet.code
            elif packet.properties is not None and packet.properties.assigned_client_id is not None:
                self.client_id = packet.properties.assigned_client_id
        elif isinstance(packet, Disconnect):
            self.close_code = packet.code
        elif isinstance(packet, Publish):
            self._name(packet)
        if self.acks and self._acknowledge(packet):
            return
        self.inbox.append(packet)

    def _name(self, packet: Publish) -> None:
        alias = packet.properties.topic_alias if packet.properties is not None else None
        if alias is None:
            return
        if packet.topic:
            self._names[alias] = packet.topic
        else:
            assert alias in self._names, f"[MQTT-3.3.2-7] {self} does not know alias {alias}"
            packet.topic = self._names[alias]

    def _acknowledge(self, packet: Packet) -> bool:
        """Answer a PUBLISH or PUBREL; True if a test need not see the packet."""
        if isinstance(packet, Publish) and packet.qos:
            self._answer(Ack(PUBACK if packet.qos == 1 else PUBREC, packet.packet_id))
        elif isinstance(packet, Ack) and packet.kind == PUBREL:
            self._answer(Ack(PUBCOMP, packet.packet_id))
            return True
        return False

    def _answer(self, ack: Ack) -> None:
        data = encode(ack, self.version)
        self._rules.sent(data)
        self._transmit(data)
