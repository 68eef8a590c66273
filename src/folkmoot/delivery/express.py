"""The hot path of QoS 1 and 2: a run of PUBLISH packets of one topic to live subscribers, without anything to store.

It applies the rules of `inbound` in one loop without an object per message; `run` sends the packets.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from folkmoot.delivery.run import Run, Runs
from folkmoot.kernel.pack import U16
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.routing.route import Route
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.turn.state import State

__all__ = ["Express"]

_PUBACK_HEAD: Final = b"\x40\x02"
_PUBREC_HEAD: Final = b"\x50\x02"


class Express:
    """Handles runs of QoS 1 and QoS 2 messages."""

    def __init__(self, state: State, runs: Runs) -> None:
        self.state = state
        self.counters = state.counters
        self.runs = runs

    def takes(self, connection: Connection, route: Route, qos: int) -> bool:
        """Whether this path can handle a run to this route."""
        session = connection.session
        if not route.live or connection.held or session is None:
            return False
        if self.state.unheard >= 0:
            return False  # it might miss a subscriber: the general path refuses it
        if qos == 2 and (session.persistent or session.proxy):
            return False  # its packet ids must survive, here or at another node
        # A version 5 client learns that there are no subscribers: the general path gives that answer.
        return bool(route.recipients or route.nodes) or not connection.v5

    def run(self, connection: Connection, route: Route, run: Run) -> None:
        """Publish the messages of a run and acknowledge them.

        Layout: `head` bytes (fixed header and topic), packet id (2 bytes), in version 5 an empty property section,
        payload.
        """
        data = run.data
        qos = run.qos
        head = run.head
        total = run.total
        end = run.end
        prefix = data[run.pos : run.pos + head]
        ack_head = _PUBACK_HEAD if qos == 1 else _PUBREC_HEAD
        out = connection.out
        acks: i64 = 0
        session = connection.session
        assert session is not None, "an open connection has a session"
        at: i64 = run.pos
        fresh: i64 = at  # from here on all are new to this node, and not sent on yet
        try:
            while at < end:
                id_at: i64 = at + head
                packet_id = int(i64(data[id_at]) << 8 | i64(data[id_at + 1]))
                if packet_id == 0:  # [MQTT-2.2.1-3]
                    raise MalformedPacket(reason.PROTOCOL_ERROR, "PUBLISH has packet id 0")
                if qos == 1 or self._is_new(connection, session, packet_id):
                    rest = data[id_at + 2 : at + total]
                    for recipient in route.recipients:
                        self.runs.send(run, route, recipient, session, prefix, rest)
                else:
                    self._hand_over(route, run, fresh, at, connection)
                    fresh = at + total
                out.append(ack_head)
                out.append(U16[packet_id])
                acks += 1
                at += total
        finally:  # the messages before a fault are published and acknowledged
            self._hand_over(route, run, fresh, at, connection)
            self._count(connection, int(qos), int(acks), int(total - head - 2))
            if self.state.meter.on:
                self.state.meter.live(route.topic, int(acks), int(acks) * len(route.recipients), self.state.now)

    def _hand_over(self, route: Route, run: Run, pos: i64, end: i64, connection: Connection) -> None:
        if route.nodes and pos < end:
            self.runs.hand_over(run, pos, end, route.nodes, connection)

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

    def _count(self, connection: Connection, qos: int, count: int, payload_bytes: int) -> None:
        connection.out_bytes += 4 * count
        connection.messages_in += count
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
