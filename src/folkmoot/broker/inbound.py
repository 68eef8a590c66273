"""Inbound messages, one at a time: checks, QoS 1 and 2 flows, acknowledgements (MQTT 5 sections 3.3 to 3.7, 4.3)."""

from __future__ import annotations

from typing import Final

from folkmoot.broker.brake import FOR_ORDER
from folkmoot.broker.closing import Closing
from folkmoot.broker.commit import Commits
from folkmoot.broker.errand import Errands
from folkmoot.broker.lifetime import lifetime
from folkmoot.broker.publish import MATCHED, REFUSED, STORED, Publishing
from folkmoot.broker.receipt import Receipt
from folkmoot.broker.relay import Relays
from folkmoot.broker.route import Routes
from folkmoot.broker.scrutiny import Scrutiny, names_producer
from folkmoot.broker.state import State
from folkmoot.kernel.pack import U16, get_u16, u16
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode, forward_properties
from folkmoot.mqtt.error import MalformedPacket, malformed
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBLISH, PUBREC
from folkmoot.mqtt.packet import Ack, Properties, Publish
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.text import check_utf8
from folkmoot.session.connection import Connection
from folkmoot.session.relay import Relay
from folkmoot.session.session import Session
from folkmoot.store.key import RECEIVED, name_prefix
from folkmoot.store.message import Message
from folkmoot.topics.name import check_topic

__all__ = ["Inbound"]

_PUBACK_HEAD: Final = b"\x40\x02"
_PUBREC_HEAD: Final = b"\x50\x02"
_PUBCOMP_HEAD: Final = b"\x70\x02"


class Inbound:
    """Takes PUBLISH and PUBREL of all connections."""

    def __init__(
        self,
        state: State,
        commits: Commits,
        relays: Relays,
        routes: Routes,
        publishing: Publishing,
        errands: Errands,
        closing: Closing,
    ) -> None:
        self.state = state
        self.relays = relays
        self.counters = state.counters
        self._queueing: dict[int, Connection] = {}  # whose retained message waits for another one, by number
        self.forwarded = 0  # messages passed on to the leaders of their publishers
        self.commits = commits
        self.receipts = commits.receipts
        self.routes = routes
        self.publishing = publishing
        self.errands = errands
        self.closing = closing
        self.scrutiny = Scrutiny(state, commits, relays.fabric, routes)

    def publish(self, connection: Connection, data: bytes, pos: int, body: int, topic_end: int, end: int) -> bool:
        """Handle one PUBLISH; `data[pos:end]` is the packet, `data[body + 2:topic_end]` its topic.

        False when it is not its turn yet: the connection is paused until then.
        """
        first = data[pos]
        qos = first >> 1 & 3
        if qos == 3:  # [MQTT-3.3.1-4]
            raise malformed("PUBLISH has QoS 3")
        topic = data[body + 2 : topic_end]
        at = topic_end
        packet_id = 0
        if qos:
            if at + 2 > end:
                raise malformed("PUBLISH ends before its packet id")
            packet_id = get_u16(data, at)
            at += 2
            if packet_id == 0:  # [MQTT-2.2.1-3]
                raise MalformedPacket(reason.PROTOCOL_ERROR, "PUBLISH has packet id 0")
        elif first & 8:  # [MQTT-3.3.1-2]
            raise malformed("PUBLISH with QoS 0 has DUP set")
        properties: Properties | None = None
        if connection.v5:
            if at < end and data[at] == 0:
                at += 1
            else:
                properties, at = decode_properties(data[:end], at, PUBLISH)
        if properties is not None and properties.topic_alias is not None:
            topic = self._alias(connection, topic, properties.topic_alias)
        elif not topic:
            code = reason.PROTOCOL_ERROR if connection.v5 else reason.MALFORMED_PACKET
            raise MalformedPacket(code, "PUBLISH has an empty topic")
        if topic not in self.routes.cache:
            self._check_topic(topic)
        relay = connection.relay
        if relay is None or not relay.durable:
            self._count(qos, end - at)
            self._accept(connection, first, qos, packet_id, topic, data[at:end], properties)
            return True
        return self._guest(connection, relay, first, packet_id, topic, data[at:end], properties)

    def _guest(
        self,
        connection: Connection,
        relay: Relay,
        first: int,
        packet_id: int,
        topic: bytes,
        payload: bytes,
        properties: Properties | None,
    ) -> bool:
        """Publish for a client whose session is elsewhere, or pass it on; False when it is not its turn yet."""
        qos = first >> 1 & 3
        passed_on = qos == 2 or names_producer(properties)
        late = bool(first & 1) and not relay.is_ordered(passed_on, self.commits.complete_token)
        if late or not (passed_on or relay.is_free()):
            self.commits.pause(connection, FOR_ORDER)
            self._queueing[connection.id] = connection
            return False
        if passed_on:
            self._forward(connection, relay, first, packet_id, topic, payload, properties)
            if first & 1:
                relay.retained = relay.packets
            return True
        self._count(qos, len(payload))
        self._accept(connection, first, qos, packet_id, topic, payload, properties)
        if first & 1:
            relay.kept_token = self.commits.newest_token()
        return True

    def go_on(self) -> None:
        """What was under way has perhaps arrived: retained messages that waited for it may follow."""
        if self._queueing:
            token = self.commits.complete_token
            for number, connection in list(self._queueing.items()):
                relay = connection.relay
                if relay is None or (relay.is_free() and all(relay.is_ordered(way, token) for way in (True, False))):
                    del self._queueing[number]
                    self.commits.unpause(connection, FOR_ORDER)

    def _forward(
        self,
        connection: Connection,
        relay: Relay,
        first: int,
        packet_id: int,
        topic: bytes,
        payload: bytes,
        properties: Properties | None,
    ) -> None:
        """Pass a message on to the session's leader.

        The packet id of QoS 2 must survive there; those of an idempotent producer must all go the same way, for one
        that is overtaken by a later one counts as repeated. Nothing else goes: a new leader, who gets what was on its
        way once more, could not tell.
        """
        if properties is not None:
            properties.topic_alias = None  # the alias belongs to the connection
        publish = Publish(topic, payload, first >> 1 & 3, bool(first & 1), bool(first & 8), packet_id, properties)
        data = encode(publish, connection.version)
        pos = 1
        while data[pos] >= 128:
            pos += 1
        self.relays.forward(relay, first, data[pos + 1 :])
        self.forwarded += 1

    def _count(self, qos: int, payload_bytes: int) -> None:
        counters = self.counters
        counters.publish_payload_bytes_received += payload_bytes
        if qos == 1:
            counters.publish_received_qos1 += 1
        elif qos == 0:
            counters.publish_received_qos0 += 1
        else:
            counters.publish_received_qos2 += 1

    def _check_topic(self, topic: bytes) -> None:
        if len(topic) > self.state.limits.topic_bytes_max:
            raise MalformedPacket(reason.TOPIC_NAME_INVALID, "the topic name is too long")
        if not check_utf8(topic):  # [MQTT-3.3.2-1]
            self.counters.error_utf8 += 1
            raise malformed("the topic name is not valid UTF-8")
        why = check_topic(topic, self.state.limits.topic_levels_max)
        if why is not None:  # [MQTT-3.3.2-2]
            raise MalformedPacket(reason.TOPIC_NAME_INVALID, why)

    def _alias(self, connection: Connection, topic: bytes, alias: int) -> bytes:
        """Return the topic of a PUBLISH with a topic alias, MQTT 5 section 3.3.2.3.4."""
        if alias > self.state.limits.topic_alias_max:  # [MQTT-3.3.2-9]
            raise MalformedPacket(reason.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum")
        known = connection.alias_in
        if known is None:
            known = {}
            connection.alias_in = known
        if topic:
            known[alias] = topic
            return topic
        found = known.get(alias)
        if found is None:  # [MQTT-3.3.2-7]
            raise MalformedPacket(reason.PROTOCOL_ERROR, f"topic alias {alias} has no topic on this connection")
        return found

    def _accept(
        self,
        connection: Connection,
        first: int,
        qos: int,
        packet_id: int,
        topic: bytes,
        payload: bytes,
        properties: Properties | None,
    ) -> None:
        session = connection.session
        assert session is not None, "an open connection has a session"
        limits = self.state.limits
        if qos > limits.qos_max:  # [MQTT-3.2.2-11]
            raise MalformedPacket(reason.QOS_NOT_SUPPORTED, f"QoS {qos} is above the maximum {limits.qos_max}")
        retain = bool(first & 1)
        if retain and not limits.retain_available:  # [MQTT-3.2.2-14]
            raise MalformedPacket(reason.RETAIN_NOT_SUPPORTED, "retained messages are switched off")
        if qos and connection.v5 and self._in_flight(connection, session, packet_id) >= limits.receive_max:
            # [MQTT-3.3.4-7] [MQTT-3.3.4-8]
            raise MalformedPacket(reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {limits.receive_max} messages in flight")
        if qos == 2 and session.received is not None and packet_id in session.received:
            # [MQTT-4.3.3-10] the same message again: it has been published
            self.counters.publish_repeated += 1
            code = session.received[packet_id]
            self._answer(connection, PUBREC, packet_id, code, "", True)
            return
        code, why = self.scrutiny.fault(connection, session, qos, retain, topic, payload, properties)
        if code:
            self._answer(connection, PUBACK if qos == 1 else PUBREC, packet_id, code, why, False)
            return
        message = self._message(connection, topic, payload, qos, retain, properties)
        receipt: Receipt | None = None
        if self.scrutiny.receipt and qos and self.receipts.may_begin(connection):
            receipt = self.receipts.begin()
        result = self._publish(connection, session, message)
        if receipt is not None:
            self.receipts.end()
        if qos:
            self._finish(connection, session, qos, packet_id, result, receipt)
        elif result & STORED:
            self.commits.slow_down(connection)

    def _publish(self, connection: Connection, session: Session, message: Message) -> int:
        """Publish in this node's name, or together with a change of the session's partition.

        So for QoS 2, whose packet id becomes known with it, and for what must not overtake such messages: all that a
        producer sends, and all that follows a retained message of QoS 2 until that is complete (A8).
        """
        producer = self.scrutiny.producer
        number = self.scrutiny.number
        if not session.durable or self.relays.fabric.alone:
            return self.publishing.publish(message, session, producer, number)
        ordered = session.ordered_token > self.commits.complete_token or (message.qos == 2 and message.retain)
        if message.qos < 2 and not producer and not ordered:
            return self.publishing.publish(message, session, b"", 0)
        result = self.errands.publish(session.partition, message, session, producer, number)
        if ordered:
            connection.fast = False
            session.ordered_token = self.commits.newest_token()
        return result

    def _in_flight(self, connection: Connection, session: Session, packet_id: int) -> int:
        """Return how many messages of this connection are not acknowledged; a repeated QoS 2 id does not count twice.

        The client's quota began anew with the connection, and its PUBREL of older flows take nothing from it (4.9).
        """
        received = session.received
        if received is None:
            return connection.held_pubacks
        if packet_id in received:
            return 0
        before = connection.received_before
        return connection.held_pubacks + len(received) - (len(before) if before is not None else 0)

    def _message(
        self,
        connection: Connection,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: Properties | None,
    ) -> Message:
        now = self.state.now
        forwarded = b"" if properties is None else forward_properties(properties)
        life_us = lifetime(properties, self.state.limits)
        expires_us = now + life_us if life_us else 0
        return Message(topic, payload, qos, retain, forwarded, connection.client_id, now, expires_us)

    def _finish(
        self,
        connection: Connection,
        session: Session,
        qos: int,
        packet_id: int,
        result: int,
        receipt: Receipt | None,
    ) -> None:
        code = 0
        if result & REFUSED:
            self._answer(connection, PUBACK if qos == 1 else PUBREC, packet_id, reason.QUOTA_EXCEEDED, "", False)
            return
        if connection.v5 and not result & MATCHED:
            code = reason.NO_MATCHING_SUBSCRIBERS
        own = not self.scrutiny.producer  # else the message may have been there, and be on its way still
        if qos == 1:
            self._answer(connection, PUBACK, packet_id, code, "", bool(result & STORED), receipt, own)
            return
        if session.received is None:
            session.received = {}
        session.received[packet_id] = code
        wait = bool(result & STORED)
        if session.durable:
            key = self._received_key(session, packet_id)
            self.state.writer.put(session.partition, key, bytes([code]))
            if self.relays.fabric.others:
                self.state.revocable.append((self.state.writer.token, session.partition, key))
            wait = True
        self._answer(connection, PUBREC, packet_id, code, "", wait, receipt, own)

    def _received_key(self, session: Session, packet_id: int) -> bytes:
        return name_prefix(session.partition, RECEIVED, session.key) + u16(packet_id)

    def _answer(
        self,
        connection: Connection,
        kind: int,
        packet_id: int,
        code: int,
        why: str,
        wait: bool,
        receipt: Receipt | None = None,
        own: bool = False,
    ) -> None:
        """Acknowledge [MQTT-3.3.4-1]; a message of QoS 0 has no answer. own: as of `Commits.acknowledge`."""
        if packet_id == 0:
            return
        if connection.remote is not None:
            wait = True  # and leave with the word that the packet is taken care of, or the next leader answers it again
        if kind == PUBACK:
            self.counters.sent_puback += 1
        elif kind == PUBREC:
            self.counters.sent_pubrec += 1
        else:
            self.counters.sent_pubcomp += 1
        if receipt is not None:
            receipt.kind = kind
            receipt.packet_id = packet_id
            receipt.code = code
            self.commits.acknowledge(connection, encode(Ack(kind, packet_id, code), 5), wait, receipt, own)
            return
        if code == 0 or not connection.v5:
            # 3.1.1 has no way to refuse: a message is acknowledged and dropped [MQTT-3.3.5-2 v3.1.1]; where room may
            # come, or a leader, the connection ends, so that the client sends it again [MQTT-4.8.0-2 v3.1.1].
            if code == reason.QUOTA_EXCEEDED or code == reason.IMPLEMENTATION_SPECIFIC_ERROR:
                raise MalformedPacket(code, why if why else "a quota is exceeded")
            head = _PUBACK_HEAD if kind == PUBACK else _PUBREC_HEAD if kind == PUBREC else _PUBCOMP_HEAD
            if not wait and not connection.held:
                out = connection.out
                out.append(head)
                out.append(U16[packet_id])
                connection.out_bytes += 4
                if not connection.dirty:
                    connection.touch()
                return
            self.commits.acknowledge(connection, head + U16[packet_id], wait, None, own)
            return
        properties: Properties | None = None
        if why and connection.problem_information:
            properties = Properties()
            properties.reason = why
        data = encode(Ack(kind, packet_id, code, properties), 5)
        if len(data) > connection.packet_bytes_max:
            data = encode(Ack(kind, packet_id, code, None), 5)
        self.commits.acknowledge(connection, data, wait, None, own)

    def pubrel(self, connection: Connection, packet_id: int) -> None:
        """PUBREL came: forget the id, then PUBCOMP [MQTT-4.3.3-11]."""
        session = connection.session
        assert session is not None, "an open connection has a session"
        received = session.received
        if received is None or packet_id not in received:
            code = reason.PACKET_IDENTIFIER_NOT_FOUND if connection.v5 else 0
            self._answer(connection, PUBCOMP, packet_id, code, "", session.durable)
            return
        del received[packet_id]
        if connection.received_before is not None:
            connection.received_before.discard(packet_id)
        if session.durable:
            self.state.writer.delete(session.partition, self._received_key(session, packet_id))
        self._answer(connection, PUBCOMP, packet_id, 0, "", session.durable)
