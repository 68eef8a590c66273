"""All packets but PUBLISH: decoding, checks against the state of the connection, dispatch."""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.pack import U16
from folkmoot.mqtt import reason
from folkmoot.mqtt.connect import without_password
from folkmoot.mqtt.decode import connect_level, decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import AUTH, CONNECT, DISCONNECT, PUBACK, PUBCOMP, PUBREC, PUBREL, UNSUBSCRIBE
from folkmoot.mqtt.packet import Ack, Auth, Connect, Pingreq, Subscribe, Unsubscribe
from folkmoot.partition.queue import Queue
from folkmoot.protocol.acknowledge import Acknowledging
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.connect import Connecting
from folkmoot.protocol.subscribe import Subscribing
from folkmoot.proxy.relay import Relays
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.turn.commit import Commits
from folkmoot.turn.state import State

__all__ = ["Control"]

_PINGRESP: Final = b"\xd0\x00"
_PUBREL_HEAD: Final = b"\x62\x02"


class Control:
    """Dispatches control packets to the parts that handle them."""

    def __init__(
        self,
        state: State,
        commits: Commits,
        relays: Relays,
        queue: Queue,
        acknowledging: Acknowledging,
        closing: Closing,
        connecting: Connecting,
        subscribing: Subscribing,
    ) -> None:
        self.state = state
        self.counters = state.counters
        self.commits = commits
        self.relays = relays
        self.queue = queue
        self.acknowledging = acknowledging
        self.closing = closing
        self.connecting = connecting
        self.subscribing = subscribing

    def connect(self, connection: Connection, first: int, body: bytes) -> None:
        """Handle the first packet."""
        connection.version = connect_level(body)
        packet = decode(first, body, 0)
        assert isinstance(packet, Connect), "the caller has looked at the packet type"
        connection.connect_bytes = len(body)
        if not self.relays.fabric.alone:
            connection.connect_body = without_password(body, packet)  # the password has been checked here
        self.connecting.connect(connection, packet)

    def packet(self, connection: Connection, first: int, body: bytes) -> None:
        """Handle a packet of an open connection."""
        kind = first >> 4
        if kind == DISCONNECT:
            self.closing.leave(connection, first, body)
            return
        relay = connection.relay
        if relay is not None and relay.persistent and PUBACK <= kind <= UNSUBSCRIBE:
            self.relays.forward(relay, first, body)
            return
        if PUBACK <= kind <= PUBCOMP:
            ack = decode(first, body, connection.version)
            assert isinstance(ack, Ack), "the packet type says so"
            self._ack(connection, kind, ack.packet_id, ack.code)
            return
        if kind == CONNECT:  # [MQTT-3.1.0-2]
            raise MalformedPacket(reason.PROTOCOL_ERROR, "a second CONNECT")
        if kind == AUTH and not connection.v5:
            raise MalformedPacket(reason.PROTOCOL_ERROR, "AUTH before version 5")
        self._other(connection, first, body)

    def _other(self, connection: Connection, first: int, body: bytes) -> None:
        packet = decode(first, body, connection.version)
        if isinstance(packet, Subscribe):
            self.counters.received_subscribe += 1
            self.subscribing.subscribe(connection, packet)
        elif isinstance(packet, Unsubscribe):
            self.counters.received_unsubscribe += 1
            self.subscribing.unsubscribe(connection, packet)
        elif isinstance(packet, Pingreq):
            self.counters.received_pingreq += 1
            self.counters.sent_pingresp += 1
            connection.put(_PINGRESP)  # [MQTT-3.12.4-1]
        elif isinstance(packet, Auth):
            self.counters.received_auth += 1
            # CONNECT agreed on no method [MQTT-4.12.0-6] [MQTT-4.12.1-1]
            raise MalformedPacket(reason.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT")
        else:
            raise MalformedPacket(reason.PROTOCOL_ERROR, f"packet type {first >> 4} is not for a client to send")

    def short_ack(self, connection: Connection, first: int, packet_id: int) -> None:
        """Handle a PUBACK, PUBREC, PUBREL or PUBCOMP of two bytes: no reason code, the most frequent form."""
        if packet_id == 0:
            raise MalformedPacket(reason.PROTOCOL_ERROR, "an acknowledgement has packet id 0")
        relay = connection.relay
        if relay is not None and relay.persistent:
            self.relays.forward(relay, first, U16[packet_id])
            return
        self._ack(connection, first >> 4, packet_id, 0)

    def _ack(self, connection: Connection, kind: int, packet_id: int, code: int) -> None:
        session = connection.session
        assert session is not None, "an open connection has a session"
        counters = self.counters
        if kind == PUBACK:
            counters.received_puback += 1
            if not self.queue.puback(session, packet_id):
                raise MalformedPacket(reason.PROTOCOL_ERROR, f"PUBACK for packet id {packet_id}, whose flow is QoS 2")
        elif kind == PUBREC:
            counters.received_pubrec += 1
            self._pubrec(connection, session, packet_id, code)
        elif kind == PUBREL:
            counters.received_pubrel += 1
            self.acknowledging.pubrel(connection, packet_id)
        else:
            counters.received_pubcomp += 1
            if not self.queue.pubcomp(session, packet_id):
                raise MalformedPacket(
                    reason.PROTOCOL_ERROR, f"PUBCOMP for packet id {packet_id}, which is not released"
                )

    def _pubrec(self, connection: Connection, session: Session, packet_id: int, code: int) -> None:
        outcome = self.queue.pubrec(session, packet_id, code)
        if outcome == 0x82:
            raise MalformedPacket(reason.PROTOCOL_ERROR, f"PUBREC for packet id {packet_id}, whose flow is QoS 1")
        if outcome == 2 or (outcome == 0x92 and code >= 0x80):
            return
        self.counters.sent_pubrel += 1
        data = _PUBREL_HEAD + U16[packet_id]
        if outcome == 0x92 and connection.v5:
            data = encode(Ack(PUBREL, packet_id, reason.PACKET_IDENTIFIER_NOT_FOUND), 5)
        if session.persistent:
            self.commits.acknowledge(connection, data, outcome == 1, own=True)
        else:  # none of its PUBREL waits, so they stay in order [MQTT-4.6.0-4]
            connection.put(data)
