"""CONNECT: its checks, and which node decides (MQTT 5 sections 3.1, 3.2, 4.12; MQTT 3.1.1 sections 3.1, 3.2).

The leader of the client's partition decides (`admit`). That is this node, or another one that `relay` asks.
"""

from __future__ import annotations

from folkmoot.auth.access import BY_CERTIFICATE, BY_PASSWORD
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import V31, Connack, Connect
from folkmoot.mqtt.packet import Will as WillPacket
from folkmoot.mqtt.text import check_utf8
from folkmoot.protocol.admit import Admission
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import Closing
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.protocol.offer import connack_properties, expiry_of
from folkmoot.proxy.relay import Relays
from folkmoot.routing.route import is_reserved
from folkmoot.session.account import CONNECTION_BYTES
from folkmoot.session.connection import CHECKING, OPEN, REGISTERING, Authenticate, Connection
from folkmoot.session.relay import GRANTED
from folkmoot.store.transaction import PUBLISHER_PREFIX
from folkmoot.topics.name import check_topic
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import State
from folkmoot.turn.throttle import FOR_HANDSHAKE, Throttle

__all__ = ["Connecting"]


class Connecting:
    """Takes a connection from CONNECT to the leader of its partition."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        throttle: Throttle,
        relays: Relays,
        lifecycle: Lifecycle,
        closing: Closing,
        attaching: Attaching,
        admission: Admission,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.throttle = throttle
        self.relays = relays
        self.lifecycle = lifecycle
        self.closing = closing
        self.attaching = attaching
        self.admission = admission

    def connect(self, connection: Connection, packet: Connect) -> None:
        """Handle CONNECT as the first packet."""
        state = self.state
        state.counters.received_connect += 1
        connection.version = packet.version
        connection.v5 = packet.version == 5
        connection.connect = packet
        connection.client_id = packet.client_id
        code, why = self._fault(packet)
        if code:
            self.closing.refuse(connection, code, why)
            return
        certificate = connection.info.certificate_name
        access = state.access
        if access.user_from_certificate and certificate is not None:
            connection.username = certificate
            connection.proved = BY_CERTIFICATE
            access.returns(certificate)
            self.register(connection)
            return
        connection.username = packet.username if packet.username is not None else ""
        if packet.username is None and access.allow_anonymous:
            self.register(connection)
        elif access.check_passwords:
            if packet.username is None:
                state.counters.auth_failed += 1
                self.closing.refuse(connection, reason.NOT_AUTHORIZED, "this server wants a user name and a password")
                return
            if state.memory.refuses:  # it would be refused after the check, and until then it would be in memory
                state.counters.memory_refused_connections += 1
                self.admission.refuse_crowd(connection, "the server is short of memory")
                return
            connection.state = CHECKING
            state.checks.append(Authenticate(connection, packet.username, packet.password, packet.client_id))
        elif access.allow_anonymous:
            if access.user_from_certificate:
                connection.username = ""  # a name without a certificate proves nothing, and others have one
            self.register(connection)
        else:
            state.counters.auth_failed += 1
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, "anonymous clients are not allowed")

    def authenticated(self, connection: Connection, ok: bool) -> None:
        """Go on after the driver has checked the password."""
        if connection.state != CHECKING:
            return
        if ok:
            self.state.counters.auth_succeeded += 1
            connection.proved = BY_PASSWORD
            users = self.state.access.users
            connection.credential = users.get(connection.username, "") if users is not None else ""
            self.register(connection)
        else:
            self.state.counters.auth_failed += 1
            self.closing.refuse(connection, reason.BAD_USER_NAME_OR_PASSWORD, "bad user name or password")

    def limited(self, connection: Connection, why: str) -> None:
        """Refuse a client whose password the driver does not check now, after too many wrong ones."""
        if connection.state != CHECKING:
            return
        self.state.counters.auth_limited += 1
        self.closing.refuse(connection, reason.CONNECTION_RATE_EXCEEDED, why)

    def crowded(self, connection: Connection, why: str) -> None:
        """Refuse a client whose password the driver does not check, because it has no room for the check."""
        if connection.state == CHECKING:
            self.admission.refuse_crowd(connection, why)

    def _fault(self, packet: Connect) -> tuple[int, str]:
        limits = self.state.limits
        if self.state.stopping:
            return reason.SERVER_UNAVAILABLE, "the server is shutting down"  # CONNACK has no 0x8B, table 3-1
        if len(packet.client_id.encode()) > limits.client_id_bytes_max:
            self.state.counters.error_client_id += 1
            return reason.CLIENT_IDENTIFIER_NOT_VALID, f"client id longer than {limits.client_id_bytes_max} bytes"
        if packet.client_id.startswith(PUBLISHER_PREFIX):  # such an id would stand for an app
            self.state.counters.error_client_id += 1
            return reason.CLIENT_IDENTIFIER_NOT_VALID, f"client ids do not begin with {PUBLISHER_PREFIX}"
        if not packet.client_id and packet.version < 5 and (not packet.clean_start or packet.version == V31):
            self.state.counters.error_client_id += 1
            return reason.CLIENT_IDENTIFIER_NOT_VALID, "an empty client id needs a clean session"  # [MQTT-3.1.3-8]
        properties = packet.properties
        if properties is not None:
            if properties.auth_method is not None:  # [MQTT-4.12.0-1]
                self.state.counters.auth_method_unknown += 1
                return reason.BAD_AUTHENTICATION_METHOD, f"unknown authentication method {properties.auth_method!r}"
            if len(properties.user_properties) > limits.user_properties_max:
                return reason.QUOTA_EXCEEDED, f"more than {limits.user_properties_max} user properties"
        if packet.will is not None:
            return self._will_fault(packet.will)
        return 0, ""

    def _will_fault(self, will: WillPacket) -> tuple[int, str]:
        limits = self.state.limits
        why = check_topic(will.topic, limits.topic_levels_max)
        if len(will.topic) > limits.topic_bytes_max:
            why = "the topic name is too long"
        if why is not None:
            return reason.TOPIC_NAME_INVALID, "will: " + why
        if will.properties is not None and len(will.properties.user_properties) > limits.user_properties_max:
            return reason.QUOTA_EXCEEDED, f"will: more than {limits.user_properties_max} user properties"
        if is_reserved(will.topic):
            self.state.counters.acl_denied_publish += 1
            return (
                reason.NOT_AUTHORIZED,
                "will: topics that begin with $SYS, $events, $share and $stream belong to the server",
            )
        if will.qos > limits.qos_max:  # [MQTT-3.2.2-12]
            return reason.QOS_NOT_SUPPORTED, "will: QoS is above the maximum"
        if will.retain and not limits.retain_available:  # [MQTT-3.2.2-13]
            return reason.RETAIN_NOT_SUPPORTED, "will: retained messages are switched off"
        if will.properties is not None and will.properties.payload_format == 1 and limits.check_payload_format:
            if not check_utf8(will.payload):
                return reason.PAYLOAD_FORMAT_INVALID, "will: the payload is not the UTF-8 that it claims to be"
        return 0, ""

    def register(self, connection: Connection) -> None:
        """Have the leader of the client's partition find or create the session."""
        why = self.fabric.idle or self.state.silent
        if why:
            code = self.closing.elsewhere if self.state.leased else reason.SERVER_UNAVAILABLE
            self.closing.refuse(connection, code, why)
            return
        if not self.state.routes_known:
            self.admission.wait(connection, False)
            return
        packet = connection.connect
        assert packet is not None, "a connection is registered once"
        assigned = not packet.client_id
        wrong = "" if assigned else self.state.access.wrong_id(connection.client_id, connection.username)
        if wrong:
            self.state.counters.error_client_id += 1
            self.closing.refuse(connection, reason.CLIENT_IDENTIFIER_NOT_VALID, wrong)
            return
        if assigned and not connection.assigned:  # [MQTT-3.1.3-6] [MQTT-3.1.3-7]; one that has waited may have its id
            connection.assigned = True
            connection.client_id = "auto-" + self.state.rng.token(22)
        self.lifecycle.uncount(connection)  # one that has waited may be counted
        if self.state.accounts.connections >= self.state.limits.connections_max:
            self.admission.refuse_crowd(connection, "too many connections")
            return
        if self.state.memory.refuses:
            self.state.counters.memory_refused_connections += 1
            self.admission.refuse_crowd(connection, "the server is short of memory")
            return
        partition = self.state.partition_of(connection.client_id.encode())
        if not self._may_connect(connection, partition):
            return
        if not self.state.leads[partition] and not self.fabric.leaders[partition]:
            self.closing.absent(connection, partition)
            return
        self.lifecycle.count(connection)
        if self.state.leads[partition]:
            self.admission.admit(connection, assigned)
        else:
            connection.state = REGISTERING
            self.relays.ask(connection, partition, connection.connect_body, assigned)

    def _may_connect(self, connection: Connection, partition: int) -> bool:
        """Whether the quota of the user allows another connection to this node; if not, refuse the client.

        A client that takes its own session over replaces a connection.
        """
        account = self.state.accounts.of(connection.username)
        fits = account.fits_memory(CONNECTION_BYTES)
        if account.connections < account.quota.connections_max and fits:
            return True
        session = self.state.sessions.get(connection.client_id)
        if session is not None and session.connection is not None and session.account is account:
            return True
        if self.relays.is_here(partition, connection.client_id, connection.username):
            return True
        self.state.counters.quota_refused_connections += 1
        self.state.refuse(account, "connections" if fits else "memory")
        why = "the user has too many connections" if fits else "what the user has takes too much memory"
        self.closing.refuse(connection, reason.QUOTA_EXCEEDED, why)
        return False

    def let_in(self) -> None:
        """Admit the clients that came before all subscriptions were known."""
        early = self.admission.early
        self.admission.early = []
        for connection, assigned in early:
            if connection.state != REGISTERING:
                continue
            if connection.remote is None:
                self.register(connection)  # it has waited before the checks, or what they look at has changed since
            elif self.state.leads[self.state.partition_of(connection.client_id.encode())]:
                self.admission.admit(connection, assigned)

    def own(self, connection: Connection) -> None:
        """The leader has registered the client, whose session is transient and lives here."""
        packet = connection.connect
        relay = connection.relay
        if packet is None or relay is None or connection.state != REGISTERING:
            return
        old = self.state.sessions.get(connection.client_id)
        if old is not None and old.connection is not None:
            self.closing.taken_over(old.connection)
        assigned_id = connection.client_id if relay.assigned else ""
        properties = connack_properties(self.state, packet, 0, assigned_id) if connection.v5 else None
        session = self.lifecycle.begin(connection.client_id, False, connection.username, connection.is_proved)
        self.attaching.agree(connection, packet)
        self.attaching.attach(connection, session, packet, 0)
        relay.state = GRANTED
        connection.connack = encode(Connack(False, reason.SUCCESS, properties), packet.version)
        connection.connect = None
        self.attaching.opened(connection)

    def relayed(self, connection: Connection) -> None:
        """The leader has admitted the client and has its session; a proxy session represents it here."""
        packet = connection.connect
        relay = connection.relay
        if packet is None or relay is None or connection.state != REGISTERING:
            return
        relay.persistent = True
        relay.state = GRANTED
        self.attaching.agree(connection, packet)
        self.attaching.attach_proxy(connection)
        connection.connect = None
        connection.state = OPEN
        self.throttle.unpause(connection, FOR_HANDSHAKE)
        self.state.counters.clients_connected += 1
        self.state.counters.sent_connack += 1
        self.attaching.welcome(connection, expiry_of(packet, self.state.limits))
        self.attaching.hear(connection)
