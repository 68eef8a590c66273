"""Inbound messages, one at a time: checks, aliases, and the way that each one goes (MQTT 5 sections 3.3, 4.3).

Owns which message waits for an earlier one of the same client. `acknowledge` answers; `ingress` has the shortcut for
runs of equal packets.
"""

from __future__ import annotations

from typing import Final

from folkmoot.delivery.keeping import STORED
from folkmoot.delivery.outbox_publish import OutboxPublishing
from folkmoot.delivery.publish import Publishing
from folkmoot.kernel.feature import RECEIPTS
from folkmoot.kernel.pack import get_u16
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import body_of, encode, forward_properties
from folkmoot.mqtt.error import MalformedPacket, malformed
from folkmoot.mqtt.kind import PUBACK, PUBLISH, PUBREC
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.text import check_utf8
from folkmoot.protocol.acknowledge import Acknowledging
from folkmoot.protocol.scrutiny import Scrutiny, names_producer
from folkmoot.proxy.relay import Relays
from folkmoot.routing.route import Routes
from folkmoot.session.connection import CLOSING, Connection
from folkmoot.session.relay import Relay
from folkmoot.session.session import Session
from folkmoot.store.message import Message
from folkmoot.topics.name import check_topic
from folkmoot.turn.commit import Commits
from folkmoot.turn.lifetime import lifetime
from folkmoot.turn.receipt import Receipt
from folkmoot.turn.source import source_of
from folkmoot.turn.state import State
from folkmoot.turn.throttle import FOR_ORDER

__all__ = ["DEFERRED", "HANDLED", "UNFINISHED", "Inbound"]

# What `Inbound.publish` returns
HANDLED: Final = 0
DEFERRED: Final = 1  # a message of a client at this node must wait: the connection is paused until then
UNFINISHED: Final = 2  # the client's steps are spent before the recipients are known


class Inbound:
    """Handles the PUBLISH packets of all connections."""

    def __init__(
        self,
        state: State,
        commits: Commits,
        relays: Relays,
        routes: Routes,
        publishing: Publishing,
        entries: OutboxPublishing,
        acknowledging: Acknowledging,
    ) -> None:
        self.state = state
        self.relays = relays
        self.counters = state.counters
        self._queueing: dict[int, Connection] = {}  # those whose message waits for those before it, by number
        self._held: dict[int, Connection] = {}  # those whose message waits for deferred ones, by number
        self.forwarded = 0  # messages passed on to the leaders of their publishers' sessions
        self.commits = commits
        self.throttle = commits.throttle
        self.receipts = commits.receipts
        self.routes = routes
        self.publishing = publishing
        self.forward_sender = publishing.forward_sender
        self.entries = entries
        self.acknowledging = acknowledging
        self.deferral = publishing.deferral
        self.scrutiny = Scrutiny(state, self.throttle, routes, publishing.producers, self.deferral)

    def publish(self, connection: Connection, data: bytes, pos: int, body: int, topic_end: int, end: int) -> int:
        """Handle one PUBLISH; `data[pos:end]` is the packet, `data[body + 2:topic_end]` its topic.

        Return HANDLED; or DEFERRED or UNFINISHED when nothing was done, and the packet comes again.
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
                properties, at = decode_properties(data, at, PUBLISH, end)
        if properties is not None and properties.topic_alias is not None:
            topic = self._alias(connection, topic, properties.topic_alias)
        elif not topic:
            code = reason.PROTOCOL_ERROR if connection.v5 else reason.MALFORMED_PACKET
            raise MalformedPacket(code, "PUBLISH has an empty topic")
        if topic not in self.routes.cache:
            self._check_topic(topic)
        relay = connection.relay
        if relay is None or not relay.persistent:
            if self._must_wait(connection, first, properties):
                return self._defer(connection)
            if topic not in self.routes.cache and not self._prepare(connection, topic):
                return UNFINISHED
            if self.deferral.draining and self._is_behind_deferred(connection, first, topic):
                return self._hold(connection)
            self._count(qos, end - at)
            self._accept(connection, first, qos, packet_id, topic, data[at:end], properties)
            return HANDLED
        return self._publish_by_proxy(connection, relay, first, packet_id, topic, data[at:end], properties)

    def _publish_by_proxy(
        self,
        connection: Connection,
        relay: Relay,
        first: int,
        packet_id: int,
        topic: bytes,
        payload: bytes,
        properties: Properties | None,
    ) -> int:
        """Publish for a client whose session is led elsewhere, or pass it on."""
        qos = first >> 1 & 3
        passed_on = qos == 2 or names_producer(properties)
        late = bool(first & 1) and not relay.is_ordered(passed_on, self.commits.complete_token)
        if late or (self._has_direct(connection, relay, qos) if passed_on else not relay.is_free(qos)):
            return self._defer(connection)
        if passed_on:
            self._forward(connection, relay, first, packet_id, topic, payload, properties)
            self.scrutiny.pace(connection)
            relay.note_passed_on(qos, bool(first & 1))
            if qos < 2:
                connection.fast = False  # one that goes directly may have to wait for it
            return HANDLED
        if topic not in self.routes.cache and not self._prepare(connection, topic):
            return UNFINISHED
        if self.deferral.draining and self._is_behind_deferred(connection, first, topic):
            return self._hold(connection)
        self._count(qos, len(payload))
        self._accept(connection, first, qos, packet_id, topic, payload, properties)
        return HANDLED

    def _has_direct(self, connection: Connection, relay: Relay, qos: int) -> bool:
        """Whether messages are under way that this node has published, and not the session's leader.

        One with the same QoS that the leader publishes would overtake them (A3). Those with QoS 2, and those of
        producers, all go there, but for those that came while this node was the leader: their answers are to be sent
        first [MQTT-4.6.0-2] [MQTT-4.6.0-3].
        """
        if qos and relay.answers_token > self.commits.complete_token:
            return True
        if qos == 1:
            token = connection.direct_token
            seq = connection.forwarded_qos1_seq
            return token > self.commits.complete_token or self.forward_sender.is_under_way(connection, seq)
        return qos == 0 and self.forward_sender.is_under_way(connection, connection.forwarded_qos0_seq)

    def _must_wait(self, connection: Connection, first: int, properties: Properties | None) -> bool:
        """Whether a message that this node publishes waits: for those before it, or for a lease."""
        qos = first >> 1 & 3
        if qos == 1 and self._would_overtake(connection, properties):
            return True
        if first & 1 and self._would_be_replaced(connection, qos, properties):
            return True
        return qos > 0 and not self._may_decide() and self._is_remembered(connection, qos, properties)

    def _would_overtake(self, connection: Connection, properties: Properties | None) -> bool:
        """Whether a message with QoS 1 would be certain before an earlier one of its client.

        It is for the outbox of the session's partition (`_publish`), and the earlier one went another way, and is not
        committed yet. If this node lost its lease now, it might drop the earlier one, and the next leader would send
        the later one before the client repeats both (A3). What another node has passed on, or would have if this one
        did not lead, does not wait: it cannot be given back.
        """
        session = connection.session
        if session is None or not session.persistent or self.relays.fabric.alone:
            return False
        if _is_passed_on(connection):
            return False
        if connection.direct_token <= self.commits.complete_token:
            return False
        return self._is_behind(session, 1) or names_producer(properties)

    def _would_be_replaced(self, connection: Connection, qos: int, properties: Properties | None) -> bool:
        """Whether an earlier retained message of its client may be kept after this one (A8).

        This one is for the outbox of the session's partition, from which the next leader of that sends it; the earlier
        one went another way, and may still be at this node then. One that went by way of the outbox does not count.
        """
        session = connection.session
        kept_token = connection.kept_token
        if kept_token <= self.commits.complete_token or session is None or kept_token <= session.ordered_token:
            return False
        if not session.persistent or self.relays.fabric.alone or _is_passed_on(connection):
            return False
        return qos == 2 or names_producer(properties)

    def _may_decide(self) -> bool:
        """Whether this node knows who is to get a message: without a lease it may not, see `Broker.doubt_routes`."""
        return self.relays.fabric.decides(self.state.speaks)

    def _is_remembered(self, connection: Connection, qos: int, properties: Properties | None) -> bool:
        """Whether a client of this node that sends a message again, here or elsewhere, would not publish it again."""
        if _is_passed_on(connection):
            return False  # its node knew a leader when the message came
        session = connection.session
        return (qos == 2 and session is not None and session.persistent) or names_producer(properties)

    def _is_behind(self, session: Session, qos: int) -> bool:
        """Whether messages of a session must not overtake one in the outbox of its partition."""
        return session.is_ordered_after(self.commits.complete_token, qos)

    def _defer(self, connection: Connection) -> int:
        """Let a message wait for those before it."""
        self.throttle.pause(connection, FOR_ORDER)
        self._queueing[connection.id] = connection
        return DEFERRED

    def _is_behind_deferred(self, connection: Connection, first: int, topic: bytes) -> bool:
        """Whether a message must not overtake deferred ones, which are on their way to a partition that gets it (A3).

        What another node has passed on goes the same way as those, and cannot be given back.
        """
        kept = bool(first & 1) or first >> 1 & 3 > 0
        if not kept or _is_passed_on(connection) or not self.scrutiny.may_publish(connection, topic):
            return False
        draining = [one for one in self.deferral.draining if self.deferral.is_behind(connection.client_id, one)]
        return bool(draining) and self.routes.concerns(topic, bool(first & 1), draining)

    def _hold(self, connection: Connection) -> int:
        """Let a message wait for deferred ones."""
        self.throttle.pause(connection, FOR_ORDER)
        self._held[connection.id] = connection
        return DEFERRED

    def drained(self) -> None:
        """Less is deferred for partitions than before: go on with messages that waited for that."""
        held = self._held
        self._held = {}
        for connection in held.values():
            self.throttle.unpause(connection, FOR_ORDER)

    def _prepare(self, connection: Connection, topic: bytes) -> bool:
        """Look up who gets the messages of a topic; False: the client's steps are spent, and it is not known yet."""
        return not self.scrutiny.may_publish(connection, topic) or self.routes.prepare(topic)

    def speak(self) -> None:
        """Send flush markers behind what messages wait for; called when all messages of the turn are sent."""
        for connection in self._queueing.values():
            self.forward_sender.mark(max(connection.forwarded_qos0_seq, connection.forwarded_qos1_seq))

    def go_on(self) -> None:
        """Go on with messages whose predecessors may have arrived."""
        if self._queueing:
            for number, connection in list(self._queueing.items()):
                if connection.state >= CLOSING or self._may_go_on(connection):
                    del self._queueing[number]
                    self.throttle.unpause(connection, FOR_ORDER)

    def _may_go_on(self, connection: Connection) -> bool:
        if not self._may_decide():
            return False
        relay = connection.relay
        token = self.commits.complete_token
        if relay is None or not relay.persistent:
            return max(connection.direct_token, connection.kept_token) <= token
        if any(self._has_direct(connection, relay, qos) for qos in (0, 1, 2)):
            return False
        return relay.is_free(0) and relay.is_free(1) and all(relay.is_ordered(way, token) for way in (True, False))

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
        """Pass a message on to the leader of the session.

        Only two kinds go there: QoS 2, because the packet id must survive there, and messages of idempotent producers,
        because one that a later number overtakes counts as a repetition. Other messages must not: a new leader, which
        receives all unconfirmed packets again, could not recognise them.
        """
        if properties is not None:
            properties.topic_alias = None  # the alias belongs to the connection
        publish = Publish(topic, payload, first >> 1 & 3, bool(first & 1), bool(first & 8), packet_id, properties)
        self.relays.forward(relay, first, body_of(encode(publish, connection.version)))
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
        """Return the topic of a PUBLISH with a topic alias (MQTT 5 section 3.3.2.3.4)."""
        if alias > self.state.limits.topic_alias_max:  # [MQTT-3.3.2-9]
            raise MalformedPacket(reason.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum")
        known = connection.alias_in
        if known is None:
            known = {}
            connection.alias_in = known
        if topic:
            size = len(topic) - len(known.get(alias, b""))
            connection.alias_bytes += size
            self.state.memory.alias_bytes += size
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
        if qos and connection.v5 and self.acknowledging.in_flight(connection, session, packet_id) >= limits.receive_max:
            # [MQTT-3.3.4-7] [MQTT-3.3.4-8]
            raise MalformedPacket(reason.RECEIVE_MAXIMUM_EXCEEDED, f"more than {limits.receive_max} messages in flight")
        if qos == 2 and session.received is not None and packet_id in session.received:
            # [MQTT-4.3.3-10] a repetition: the message has been published
            self.counters.publish_repeated += 1
            code = session.received[packet_id]
            self.acknowledging.answer(connection, PUBREC, packet_id, code, "", True)
            return
        code, why = self.scrutiny.fault(connection, session, qos, retain, topic, payload, properties)
        if code:
            self.acknowledging.answer(connection, PUBACK if qos == 1 else PUBREC, packet_id, code, why, False)
            return
        message = self._message(connection, topic, payload, qos, retain, properties)
        receipt: Receipt | None = None
        if self.scrutiny.receipt and qos and self.receipts.may_begin(connection):
            receipt = self.receipts.begin()
        elif message.owner and self._asks_leader(connection, message):
            receipt = self.receipts.begin_silent()
        try:
            result = self._publish(connection, session, message)
        finally:  # also when a row cannot be read: the next message does not belong to this receipt
            if receipt is not None:
                self.receipts.end()
        if retain:
            connection.kept_token = self.commits.newest_token()
        if qos:
            own = not self.scrutiny.producer  # a producer's message may be a repetition of one that is still under way
            self.acknowledging.finish(connection, session, qos, packet_id, result, receipt, own)
            self.state.meter.taken(topic, connection, self.state.now)
        elif result & STORED:
            self.throttle.slow_down(connection)

    def _asks_leader(self, connection: Connection, message: Message) -> bool:
        """Whether another node decides if a message is retained, and its publisher can be told.

        Only with QoS 1: a PUBREC with an error would free a packet id that is stored as used.
        """
        if message.qos != 1 or not connection.v5 or not self.relays.fabric.can(RECEIPTS):
            return False
        return not self.state.leads[self.state.partition_of(message.topic)]

    def _publish(self, connection: Connection, session: Session, message: Message) -> int:
        """Publish in this node's name, or as part of a change of the session's partition.

        The partition publishes QoS 2, because the packet id becomes known in the same change, and whatever must not
        overtake such messages: all of a producer, all behind one of its retained messages until that is complete (A8),
        and all behind one of a producer with the same QoS (A3).
        """
        producer = self.scrutiny.producer
        number = self.scrutiny.number
        alone = self.relays.fabric.alone
        qos = message.qos
        behind = self._is_behind(session, qos)
        if not session.persistent or alone or (qos < 2 and not producer and not behind):
            result = self.publishing.publish(message, session, producer, number)
            if message.qos == 1:
                connection.direct_token = self.commits.newest_token()
            return result
        result = self.entries.publish(session.partition, message, session, producer, number)
        if message.retain or session.ordered_token > self.commits.complete_token:
            connection.fast = False
            session.ordered_token = self.commits.newest_token()
        elif qos < 2:
            connection.fast = False
            session.order_after(self.commits.newest_token(), qos)
        return result

    def _message(
        self,
        connection: Connection,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        properties: Properties | None,
    ) -> Message:
        now = self.state.clock.time
        forwarded = b"" if properties is None else forward_properties(properties)
        life_us = lifetime(properties, self.state.limits)
        expires_us = max(now + life_us - connection.waited_us, 1) if life_us else 0  # 0: never, whatever a node says
        message = Message(topic, payload, qos, retain, forwarded, connection.client_id, now, expires_us)
        message.asked_again = message.resent = connection.repeated
        if qos == 2:
            message.source = source_of(connection)
        if retain and connection.username and self.state.accounts.named:
            message.owner = connection.username
        return message


def _is_passed_on(connection: Connection) -> bool:
    """Whether the current packet came from another node, or would have if this one did not lead the session."""
    return connection.remote is not None or connection.again > 0
