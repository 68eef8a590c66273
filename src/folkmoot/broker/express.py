"""The hot path of QoS 1 and 2: a run of PUBLISH packets of one topic to live subscribers, nothing to store.

Here the same rules as in `inbound`, `publish` and `queue` are applied in one loop without an object per message. A
target or a message that needs more (another version, an identifier, a full window) goes the general way, one by one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from folkmoot.broker.publish import Publishing
from folkmoot.broker.route import Route
from folkmoot.broker.state import State
from folkmoot.kernel.pack import U16
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.session.connection import Connection
from folkmoot.session.entry import SENT_QOS1, SENT_QOS2
from folkmoot.session.session import PACKET_IDS, Session
from folkmoot.session.subscription import Target
from folkmoot.store.message import Message

__all__ = ["Express"]

_PUBACK_HEAD: Final = b"\x40\x02"
_PUBREC_HEAD: Final = b"\x50\x02"


class Express:
    """Takes runs of QoS 1 and QoS 2 messages."""

    def __init__(self, state: State, publishing: Publishing) -> None:
        self.state = state
        self.counters = state.counters
        self.publishing = publishing

    def takes(self, connection: Connection, route: Route, qos: int) -> bool:
        """Whether a run to this route needs no more than this path can do."""
        session = connection.session
        if not route.live or connection.held or session is None or (qos == 2 and session.durable):
            return False
        # A version 5 client is told when nobody listens: that answer is made elsewhere.
        return bool(route.targets) or not connection.v5

    def run(
        self, connection: Connection, route: Route, data: bytes, pos: i64, run_end: i64, total: i64, head: i64
    ) -> None:
        """Publish the messages of `total` bytes each in `data[pos:run_end]`; their first `head` bytes are the same.

        Layout: `head` bytes (fixed header and topic), packet id (2 bytes), in version 5 an empty property section,
        payload.
        """
        qos = data[pos] >> 1 & 3
        prefix = data[pos : pos + head]
        ack_head = _PUBACK_HEAD if qos == 1 else _PUBREC_HEAD
        out = connection.out
        acks: i64 = 0
        session = connection.session
        assert session is not None, "an open connection has a session"
        at: i64 = pos
        try:
            while at < run_end:
                id_at: i64 = at + head
                packet_id = int(i64(data[id_at]) << 8 | i64(data[id_at + 1]))
                if packet_id == 0:  # [MQTT-2.2.1-3]
                    raise MalformedPacket(reason.PROTOCOL_ERROR, "PUBLISH has packet id 0")
                if qos == 1 or self._is_new(connection, session, packet_id):
                    rest = data[id_at + 2 : at + total]
                    for target in route.targets:
                        self._send(connection, session, route, target, qos, prefix, rest, total)
                out.append(ack_head)
                out.append(U16[packet_id])
                acks += 1
                at += total
        finally:  # what stood before a fault is acknowledged
            self._count(connection, qos, int(acks), int(total - head - 2))

    def _is_new(self, connection: Connection, session: Session, packet_id: int) -> bool:
        received = session.received
        if received is None:
            received = {}
            session.received = received
        if packet_id in received:  # [MQTT-4.3.3-10]
            self.counters.publish_repeated += 1
            return False
        if connection.v5 and len(received) >= self.state.limits.receive_max:  # [MQTT-3.3.4-7] [MQTT-3.3.4-8]
            raise MalformedPacket(reason.RECEIVE_MAXIMUM_EXCEEDED, "more messages in flight than Receive Maximum")
        received[packet_id] = 0
        return True

    def _send(
        self,
        connection: Connection,
        publisher: Session,
        route: Route,
        target: Target,
        qos: int,
        prefix: bytes,
        rest: bytes,
        total: i64,
    ) -> None:
        session = target.session
        other = session.connection
        if (
            other is not None
            and target.qos >= qos
            and target.plain
            and other.v5 == connection.v5
            and other.alias_out is None
            and not session.ready
            and len(session.inflight) < session.window
            and total <= other.packet_bytes_max
            and session is not publisher
            and other.can_send()
        ):
            packet_id = session.next_packet_id
            if packet_id in session.inflight:
                packet_id = session.take_packet_id()
            else:
                session.next_packet_id = packet_id + 1 if packet_id < PACKET_IDS else 1
            session.inflight[packet_id] = SENT_QOS1 if qos == 1 else SENT_QOS2
            out = other.out
            out.append(prefix)
            out.append(U16[packet_id])
            out.append(rest)
            other.out_bytes += int(total)
            if not other.dirty:
                other.touch()
            if qos == 1:
                self.counters.publish_sent_qos1 += 1
            else:
                self.counters.publish_sent_qos2 += 1
            return
        payload = rest[1:] if connection.v5 else rest
        message = Message(route.topic, payload, qos, False, b"", connection.client_id, self.state.now, 0)
        self.publishing.send(target, message, publisher)

    def _count(self, connection: Connection, qos: int, count: int, payload_bytes: int) -> None:
        connection.out_bytes += 4 * count
        if not connection.dirty:
            connection.touch()
        counters = self.counters
        counters.publish_payload_bytes_received += count * payload_bytes
        if qos == 1:
            counters.publish_received_qos1 += count
            counters.sent_puback += count
        else:
            counters.publish_received_qos2 += count
            counters.sent_pubrec += count
