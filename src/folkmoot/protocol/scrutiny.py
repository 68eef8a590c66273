"""Whether a received message may be published: rights, properties, room on the disks, the rate limit.

Malformed packets end the connection; everything else gets a reason code (MQTT 5 sections 3.3.2.3, 3.4.2.1, 3.5.2.1).
"""

from __future__ import annotations

from folkmoot.auth.policy import Policy
from folkmoot.channel.deferral import AWAY, Deferral
from folkmoot.kernel.clock import SECOND
from folkmoot.mqtt import reason
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.text import check_utf8
from folkmoot.partition.producer import (
    JUMP_MAX,
    PRODUCER_BYTES_MAX,
    PRODUCER_PROPERTY,
    SEQUENCE_PROPERTY,
    Producers,
    owner_of,
)
from folkmoot.protocol.denial import PUBLISH_DENIED, note_denied
from folkmoot.routing.route import Routes, is_reserved
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.turn.receipt import RECEIPT_PROPERTY
from folkmoot.turn.state import TIMER_RATE, State
from folkmoot.turn.throttle import FOR_RATE, Throttle
from folkmoot.turn.work import RULE_STEPS

__all__ = ["Scrutiny", "names_producer", "renew_rights"]


def renew_rights(connection: Connection, policy: Policy) -> None:
    """Forget what was decided about the topics of a connection: its packets are checked by these rules from now on."""
    connection.rights = policy
    if policy.open:
        connection.allowed = None
    else:
        connection.fast = False
        connection.allowed = {}


class Scrutiny:
    """Checks messages.

    Of the current message: producer, number: as its properties name them, empty without; receipt: whether its
    publisher asks for one.
    """

    def __init__(
        self, state: State, throttle: Throttle, routes: Routes, producers: Producers, deferral: Deferral
    ) -> None:
        self.state = state
        self.deferral = deferral
        self.producers = producers
        self.counters = state.counters
        self.throttle = throttle
        self.fabric = deferral.fabric
        self.routes = routes
        self.producer = b""
        self.number = 0
        self.receipt = False

    def fault(
        self,
        connection: Connection,
        session: Session,
        qos: int,
        retain: bool,
        topic: bytes,
        payload: bytes,
        properties: Properties | None,
    ) -> tuple[int, str]:
        """Return why a well-formed message is refused, as a reason code of PUBACK and PUBREC, or 0."""
        self.producer = b""
        self.receipt = False
        if is_reserved(topic):
            self._deny(connection, topic)
            return (
                reason.NOT_AUTHORIZED,
                "topics that begin with $SYS, $events, $share and $stream belong to the server",
            )
        if not self._is_allowed(connection, topic):
            self._deny(connection, topic)
            return reason.NOT_AUTHORIZED, "not allowed to publish to this topic"
        if properties is not None:
            code, why = self._property_fault(properties, payload)
            if code:
                return code, why
        wanted = qos > 0 or retain or bool(self.producer)
        keeps = retain and bool(payload)  # an empty payload clears the topic, which frees room
        if wanted:
            why = self._absence(connection.client_id, topic, retain)
            if why:
                self._spare_producer(reason.IMPLEMENTATION_SPECIFIC_ERROR, why)
                return reason.IMPLEMENTATION_SPECIFIC_ERROR, why
        absurd = self._absurd(connection, topic, keeps) if self.producer else ""
        if absurd:
            return reason.IMPLEMENTATION_SPECIFIC_ERROR, absurd
        full = self.state.storage_full or bool(self.fabric.full)
        short = self._short_of(topic, qos, keeps, session) if full and wanted else ""
        if short:
            self.counters.storage_refused += 1
            why = "no room on the disk" if self.fabric.alone else f"no room on the disk of {short}"
            self._spare_producer(reason.QUOTA_EXCEEDED, f"{why} for an idempotent producer")
            return reason.QUOTA_EXCEEDED, why
        self.pace(connection)
        return 0, ""

    def _spare_producer(self, code: int, why: str) -> None:
        """Disconnect an idempotent producer in place of a refusal that does not last; raises MalformedPacket.

        A later number that is accepted before this one is repeated would make the repetition count as known. So nothing
        more is read, and the client repeats from here when it returns.
        """
        if self.producer:
            raise MalformedPacket(code, why)

    def _deny(self, connection: Connection, topic: bytes) -> None:
        self.counters.acl_denied_publish += 1
        note_denied(self.state, connection, PUBLISH_DENIED, topic)

    def may_publish(self, connection: Connection, topic: bytes) -> bool:
        """Whether a client may publish to a topic: who gets its messages need not be known otherwise."""
        return not is_reserved(topic) and self._is_allowed(connection, topic)

    def _is_allowed(self, connection: Connection, topic: bytes) -> bool:
        allowed = connection.allowed
        if allowed is None:
            return True
        may = allowed.get(topic)
        if may is None:
            self.state.work.steps += RULE_STEPS * len(self.state.policy.rules)
            may = self.state.policy.may_publish(connection.client_id, connection.username, topic)
            if len(allowed) >= 256:
                allowed.clear()
            if len(topic) <= 256:
                allowed[topic] = may
        return may

    def _property_fault(self, properties: Properties, payload: bytes) -> tuple[int, str]:
        if properties.subscription_ids:  # [MQTT-3.3.4-6]
            raise MalformedPacket(reason.PROTOCOL_ERROR, "a client's PUBLISH has a subscription identifier")
        if properties.payload_format == 1 and self.state.limits.check_payload_format and not check_utf8(payload):
            self.counters.error_payload_format += 1
            return reason.PAYLOAD_FORMAT_INVALID, "the payload is not the UTF-8 that it claims to be"
        pairs = properties.user_properties
        if pairs:
            if len(pairs) > self.state.limits.user_properties_max:
                return reason.QUOTA_EXCEEDED, f"more than {self.state.limits.user_properties_max} user properties"
            return self._read_pairs(pairs)
        return 0, ""

    def _read_pairs(self, pairs: list[tuple[str, str]]) -> tuple[int, str]:
        producer = ""
        sequence = ""
        for name, value in pairs:
            if name == PRODUCER_PROPERTY:
                producer = value
            elif name == SEQUENCE_PROPERTY:
                sequence = value
            elif name == RECEIPT_PROPERTY:
                self.receipt = True
        if not producer and not sequence:
            return 0, ""
        if not producer or not sequence.isascii() or not sequence.isdigit() or len(sequence) > 18:
            why = (
                f"an idempotent producer sends {PRODUCER_PROPERTY} (a name) and {SEQUENCE_PROPERTY} (a growing number)"
            )
            return reason.IMPLEMENTATION_SPECIFIC_ERROR, why
        raw = producer.encode()
        if len(raw) > PRODUCER_BYTES_MAX:
            why = f"the name of an idempotent producer has at most {PRODUCER_BYTES_MAX} bytes"
            return reason.IMPLEMENTATION_SPECIFIC_ERROR, why
        self.producer = raw
        self.number = int(sequence)
        return 0, ""

    def _absurd(self, connection: Connection, topic: bytes, keeps: bool) -> str:
        """Give the producer its owner; return why its number is absurd, "" if it is not."""
        self.producer = self._owner(connection) + self.producer
        return self.producers.jumps(self._led(topic, keeps), self.producer, self.number)

    def _owner(self, connection: Connection) -> bytes:
        """Return whose producers those of a connection are."""
        if not connection.owner:
            username = connection.username if self.state.access.has_users else ""
            connection.owner = owner_of(username, connection.client_id)
        return connection.owner

    def _led(self, topic: bytes, retain: bool) -> list[int]:
        """Return the partitions of this node that a message goes to."""
        if self.number <= JUMP_MAX:
            return []  # not asked for
        route = self.routes.lookup(topic)
        partitions = [recipient.session.partition for recipient in route.persistent]
        partitions += [log.store_partition for log in route.logs]
        if retain:
            partitions.append(self.state.partition_of(topic))
        return [partition for partition in dict.fromkeys(partitions) if self.state.leads[partition]]

    def _short_of(self, topic: bytes, qos: int, retain: bool, session: Session) -> str:
        """Return this node or the leader of a partition that must store a message, if its disk is full; "" if none is.

        retain: it is to be retained; a message that clears its topic is not, because that frees room.
        """
        route = self.routes.lookup(topic)
        own = self.fabric.node_id
        if self.state.storage_full:
            if route.persistent or route.logs or (qos == 2 and session.persistent):
                return own
        if self.fabric.alone:
            return own if retain else ""
        return self._full_leader(self.routes.storing(route, topic, retain))

    def _absence(self, client_id: str, topic: bytes, retain: bool) -> str:
        """Return why a message is refused for a partition that must take it, or may have a subscriber; "" if it is not.

        It would otherwise wait until somebody repairs the partition. With "available" it may, within limits, but not
        that of a producer, whose later numbers would make it count as known.
        """
        unheard = self.state.unheard
        if unheard >= 0:
            return f"{self._why_absent(unheard, AWAY)}; what is subscribed there is not known"
        absent = self.routes.absent(topic, retain, bool(self.producer))
        if not absent:
            return ""
        scarce = [partition for partition in absent if partition in self.fabric.scarce]
        obstacle = AWAY if scarce or self.producer else self.deferral.obstacle(client_id)
        return self._why_absent((scarce or absent)[0], obstacle) if obstacle else ""

    def _why_absent(self, partition: int, obstacle: str) -> str:
        if partition in self.fabric.scarce:
            return f"partition {partition} has fewer copies in sync than cluster.min_in_sync: try again later"
        return f"partition {partition} has no leader: {obstacle}"

    def _full_leader(self, partitions: list[int]) -> str:
        """Return a node with a full disk that leads one of these partitions, "" if there is none."""
        fabric = self.fabric
        for partition in partitions:
            leader = fabric.leaders[partition]
            if leader in fabric.full or (leader == fabric.node_id and self.state.storage_full):
                return leader
        return ""

    def pace(self, connection: Connection) -> None:
        """Apply the rate limit, at the node of the client, when a message comes for the first time.

        A client that is a second ahead is not read until its average fits.
        """
        rate = self.state.limits.publish_rate_max
        if not rate or connection.remote is not None or connection.again:
            return
        now = self.state.now
        connection.rate_us = max(connection.rate_us, now) + SECOND // rate
        if connection.rate_us >= now + SECOND:
            self.throttle.pause(connection, FOR_RATE)
            self.state.timers.set(connection.rate_us, TIMER_RATE, connection.id)


def names_producer(properties: Properties | None) -> bool:
    """Whether a message names an idempotent producer."""
    if properties is not None:
        for name, value in properties.user_properties:
            if name == PRODUCER_PROPERTY and value:
                return True
    return False
