"""CONNECT: who may come in, with which session (MQTT 5 sections 3.1, 3.2, 4.12; MQTT 3.1.1 sections 3.1, 3.2)."""

from __future__ import annotations

from folkmoot.broker.closing import Closing
from folkmoot.broker.commit import FOR_HANDSHAKE, Commits
from folkmoot.broker.fabric import Fabric
from folkmoot.broker.lifecycle import EXPIRY_NEVER, Lifecycle
from folkmoot.broker.lifetime import lifetime
from folkmoot.broker.message import EXPEL, encode_expel
from folkmoot.broker.offer import connack_properties
from folkmoot.broker.queue import Queue
from folkmoot.broker.relay import Relays
from folkmoot.broker.route import is_reserved
from folkmoot.broker.state import TIMER_CONNECT, TIMER_KEEP_ALIVE, TIMER_SESSION, State
from folkmoot.broker.will import Wills
from folkmoot.kernel.clock import NEVER, SECOND
from folkmoot.kernel.event import INFO, WARNING
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode, forward_properties
from folkmoot.mqtt.packet import V31, Connack, Connect, Properties
from folkmoot.mqtt.packet import Will as WillPacket
from folkmoot.mqtt.text import check_utf8
from folkmoot.session.connection import CHECKING, OPEN, REGISTERING, Authenticate, Connection
from folkmoot.session.relay import GRANTED
from folkmoot.session.session import PACKET_IDS, Session, Will
from folkmoot.store.message import Message
from folkmoot.topics.name import check_topic

__all__ = ["Connecting"]


class Connecting:
    """Takes a connection from CONNECT to CONNACK."""

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        commits: Commits,
        relays: Relays,
        queue: Queue,
        wills: Wills,
        lifecycle: Lifecycle,
        closing: Closing,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.commits = commits
        self.relays = relays
        self.queue = queue
        self.wills = wills
        self.lifecycle = lifecycle
        self.closing = closing
        self._early: list[tuple[Connection, bool]] = []  # came before it was known who subscribes to what
        self._parked: dict[str, tuple[Connection, bool]] = {}  # clients that wait for the end of an older connection

    def connect(self, connection: Connection, packet: Connect) -> None:
        """A CONNECT came as the first packet."""
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
        if state.identity.user_from_certificate and certificate is not None:
            connection.username = certificate
            self.register(connection)
            return
        connection.username = packet.username if packet.username is not None else ""
        if packet.username is None and state.identity.allow_anonymous:
            self.register(connection)
        elif state.identity.check_passwords:
            if packet.username is None:
                state.counters.auth_failed += 1
                self.closing.refuse(connection, reason.NOT_AUTHORIZED, "this server wants a user name and a password")
                return
            connection.state = CHECKING
            state.checks.append(Authenticate(connection, packet.username, packet.password, packet.client_id))
        elif state.identity.allow_anonymous:
            self.register(connection)
        else:
            state.counters.auth_failed += 1
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, "anonymous clients are not allowed")

    def authenticated(self, connection: Connection, ok: bool) -> None:
        """The driver has checked the password."""
        if connection.state != CHECKING:
            return
        if ok:
            self.state.counters.auth_succeeded += 1
            self.register(connection)
        else:
            self.state.counters.auth_failed += 1
            self.closing.refuse(connection, reason.BAD_USER_NAME_OR_PASSWORD, "bad user name or password")

    # -- checks ---------------------------------------------------------------------------------------------------

    def _fault(self, packet: Connect) -> tuple[int, str]:
        limits = self.state.limits
        if self.state.stopping:
            return reason.SERVER_UNAVAILABLE, "the server is shutting down"  # CONNACK has no 0x8B, table 3-1
        if len(packet.client_id.encode()) > limits.client_id_bytes_max:
            self.state.counters.error_client_id += 1
            return reason.CLIENT_IDENTIFIER_NOT_VALID, f"client id longer than {limits.client_id_bytes_max} bytes"
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
        if why is not None:
            return reason.TOPIC_NAME_INVALID, "will: " + why
        if is_reserved(will.topic):
            self.state.counters.acl_denied_publish += 1
            return reason.NOT_AUTHORIZED, "will: topics that begin with $SYS, $share and $stream belong to the server"
        if will.qos > limits.qos_max:  # [MQTT-3.2.2-12]
            return reason.QOS_NOT_SUPPORTED, "will: QoS is above the maximum"
        if will.retain and not limits.retain_available:  # [MQTT-3.2.2-13]
            return reason.RETAIN_NOT_SUPPORTED, "will: retained messages are switched off"
        if will.properties is not None and will.properties.payload_format == 1 and limits.check_payload_format:
            if not check_utf8(will.payload):
                return reason.PAYLOAD_FORMAT_INVALID, "will: the payload is not the UTF-8 that it claims to be"
        return 0, ""

    # -- the session ------------------------------------------------------------------------------------------------

    def register(self, connection: Connection) -> None:
        """The client may come in: the leader of its partition finds or makes its session."""
        if not self.state.routes_known:
            connection.state = REGISTERING
            self._early.append((connection, False))
            return
        packet = connection.connect
        assert packet is not None, "a connection is registered once"
        assigned = not packet.client_id
        if assigned:  # [MQTT-3.1.3-6] [MQTT-3.1.3-7]
            connection.client_id = "auto-" + self.state.rng.token(22)
        limits = self.state.limits
        if self.state.counters.clients_connected >= limits.connections_max:
            self._refuse_crowd(connection, "too many connections")
            return
        partition = self.state.partition_of(connection.client_id.encode())
        if self.state.leads[partition]:
            self.admit(connection, assigned)
        else:
            connection.state = REGISTERING
            self.relays.ask(connection, partition, connection.connect_body, assigned)

    def _refuse_crowd(self, connection: Connection, why: str) -> None:
        code = reason.USE_ANOTHER_SERVER if self.state.identity.server_reference else reason.SERVER_BUSY
        self.closing.refuse(connection, code, why)

    def admit(self, connection: Connection, assigned: bool) -> None:
        """Find or make the client's session, end its older connection, answer when that is durable (leader)."""
        if not self.state.routes_known:  # the will of its older connection may be due, and waits for that too
            connection.state = REGISTERING
            self._early.append((connection, assigned))
            return
        packet = connection.connect
        assert packet is not None, "a connection is registered once"
        known = self.state.sessions
        if connection.client_id not in known and len(known) >= self.state.limits.sessions_max:
            self._refuse_crowd(connection, "too many sessions")
            return
        will = packet.will
        policy = self.state.policy
        if will is not None and not policy.may_publish(connection.client_id, connection.username, will.topic):
            self.state.counters.acl_denied_publish += 1
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, "not allowed to publish to the will's topic")
            return
        expiry_s = self._expiry_of(packet)
        old = known.get(connection.client_id)
        anew = packet.clean_start or self._is_foreign(old, connection)
        resumes_stored = old is not None and old.durable and not anew  # that makes room, when its messages go
        if self.state.storage_full and (expiry_s or will is not None) and not resumes_stored:
            self.state.counters.storage_refused += 1
            self.closing.refuse(connection, reason.QUOTA_EXCEEDED, "no room on the disk to keep a session or a will")
            return
        assigned_id = connection.client_id if assigned else ""  # [MQTT-3.2.2-16]
        properties = connack_properties(self.state, packet, expiry_s, assigned_id) if connection.v5 else None
        if not self._fits(packet, properties):
            code = reason.IMPLEMENTATION_SPECIFIC_ERROR
            self.closing.refuse(connection, code, "the Maximum Packet Size is too small for a CONNACK")
            return
        if self._waits(old, connection, assigned):
            return
        old = self._take_over(old, anew)
        present = old is not None
        session = old if old is not None else self._begin(connection, expiry_s > 0)
        self._agree(connection, packet)
        self._attach(connection, session, packet, expiry_s)
        # The end of a stored session is acknowledged too: it must not come back after a crash.
        wrote = session.durable or self.lifecycle.is_ending(connection.client_id)
        if will is not None:
            self.wills.set(session, self._will_of(connection, will))
            wrote = True
        connection.connack = encode(Connack(present, reason.SUCCESS, properties), packet.version)
        connection.connect = None
        self._answer(connection, wrote or present)

    def _begin(self, connection: Connection, durable: bool) -> Session:
        session = self.lifecycle.begin(connection.client_id, durable)
        session.shadow = connection.remote is not None and not durable
        return session

    def _waits(self, old: Session | None, connection: Connection, assigned: bool) -> bool:
        """Whether an older connection, at another node, must be fenced before this one comes in (A6)."""
        other = None if old is None else old.connection
        remote = None if other is None else other.remote
        if remote is None:
            return False
        waiting = self._parked.get(connection.client_id)
        if waiting is not None and waiting[0] is not connection:
            self.closing.disconnect(waiting[0], reason.SESSION_TAKEN_OVER, "another connection uses this client id")
        self._parked[connection.client_id] = (connection, assigned)
        connection.state = REGISTERING
        if not remote.fenced:
            remote.fenced = True
            self.state.counters.takeovers += 1
            body = encode_expel(remote.number, reason.SESSION_TAKEN_OVER, "another connection uses this client id")
            self.fabric.send(remote.node_id, EXPEL, body)
        return True

    def let_in(self) -> None:
        """It is known who subscribes: those who came early come in."""
        early = self._early
        self._early = []
        for connection, assigned in early:
            if connection.state != REGISTERING:
                continue
            partition = self.state.partition_of(connection.client_id.encode())
            if connection.remote is None and (not connection.client_id or not self.state.leads[partition]):
                self.register(connection)
            elif self.state.leads[partition]:
                self.admit(connection, assigned)

    def go_on(self, client_id: str) -> None:
        """The older connection of a client is gone: the one that waits for that comes in, if it is still there."""
        waiting = self._parked.pop(client_id, None)
        if waiting is not None and waiting[0].state == REGISTERING:
            self.admit(waiting[0], waiting[1])

    def give_up(self, partition: int) -> None:
        """This node leads the partition no more: who waits here asks its new leader."""
        for client_id in list(self._parked):
            connection, assigned = self._parked[client_id]
            if self.state.partition_of(client_id.encode()) == partition:
                del self._parked[client_id]
                if connection.remote is None and connection.state == REGISTERING:
                    self.relays.ask(connection, partition, connection.connect_body, assigned)

    def _is_foreign(self, old: Session | None, connection: Connection) -> bool:
        """Whether a session is another user's, MQTT 5 section 5.4.2: what waits there is for those eyes only.

        Who nobody has asked for a proof is nobody's other: without passwords and certificates a user name says nothing.
        """
        identity = self.state.identity
        if old is None or not old.username or not (identity.check_passwords or identity.user_from_certificate):
            return False
        if old.username == connection.username:
            return False
        fields: dict[str, object] = {"client": old.client_id, "user": connection.username, "of": old.username}
        self.state.event(WARNING, "session_of_another", fields)
        return True

    def _take_over(self, old: Session | None, clean_start: bool) -> Session | None:
        """Return the session to resume, after the end of its older connection [MQTT-3.1.4-3] (A6)."""
        if old is None:
            return None
        if old.connection is not None:
            self.state.counters.takeovers += 1
            other = old.connection
            # A will without delay is due now; one with a delay only if the session ends here [MQTT-3.1.3-9].
            self.closing.disconnect(other, reason.SESSION_TAKEN_OVER, "another connection uses this client id")
            old_now = self.state.sessions.get(old.client_id)
            if old_now is None:
                return None
            old = old_now
        if clean_start:  # [MQTT-3.1.2-4]
            self.lifecycle.end(old)
            self.lifecycle.shared.pass_on_lost()
            return None
        self.wills.cancel(old)
        self.state.counters.sessions_resumed += 1
        return old

    def _expiry_of(self, packet: Connect) -> int:
        limits = self.state.limits
        if packet.version < 5:
            return 0 if packet.clean_start else limits.session_expiry_v3_s
        properties = packet.properties
        if properties is None or properties.session_expiry is None:
            return 0
        return min(properties.session_expiry, limits.session_expiry_max_s)

    def _agree(self, connection: Connection, packet: Connect) -> None:
        """Set what CONNECT and the limits say of the connection itself."""
        limits = self.state.limits
        properties = packet.properties
        if properties is not None:
            if properties.packet_max is not None:
                connection.packet_bytes_max = properties.packet_max
            alias_max = properties.topic_alias_max
            elsewhere = connection.remote is not None or connection.relay is not None
            if alias_max and limits.topic_alias_out_max and not elsewhere:  # aliases would not outlive a leader
                connection.alias_out_max = min(alias_max, limits.topic_alias_out_max)
                connection.alias_out = {}
            connection.problem_information = properties.request_problem != 0
        connection.send_bytes_max = limits.send_buffer_bytes_max
        connection.fast = (
            self.state.policy.open
            and not limits.publish_rate_max
            and limits.qos_max == 2
            and not limits.message_expiry_max_s
        )
        if not self.state.policy.open:
            connection.allowed = {}
        if connection.remote is None:
            self.state.timers.cancel(TIMER_CONNECT, connection.id)
            self._set_keep_alive(connection, packet)

    def _attach(self, connection: Connection, session: Session, packet: Connect, expiry_s: int) -> None:
        self._join(connection, session, packet)
        session.username = connection.username
        session.expiry_s = expiry_s
        session.ends_us = 0
        self.state.timers.cancel(TIMER_SESSION, session.client_id)
        self.queue.attach(session)
        if session.durable:
            self.lifecycle.save(session)
        if connection.remote is None:
            self.state.counters.clients_connected += 1

    def _join(self, connection: Connection, session: Session, packet: Connect) -> None:
        session.connection = connection
        session.version = packet.version
        connection.session = session
        session.window = self.state.limits.inflight_max
        properties = packet.properties
        if properties is not None and properties.receive_max is not None:  # [MQTT-3.3.4-9]
            session.window = min(session.window, properties.receive_max)
        session.window = min(session.window, PACKET_IDS - 1)
        if session.received:
            connection.received_before = set(session.received)

    def resume(self, connection: Connection, session: Session, packet: Connect, sequences: list[int]) -> None:
        """A client that has stayed connected goes on with its session at its new leader, this node.

        sequences: of the queued messages that it may have got and has not acknowledged for certain.
        """
        self._agree(connection, packet)
        self._join(connection, session, packet)
        connection.connect = None
        connection.state = OPEN
        self.queue.attach(session)
        if session.durable:
            self.queue.reclaim(session, sequences)
            self.queue.pump(session)

    # -- the node with the connection, when another one leads ---------------------------------------------------------

    def own(self, connection: Connection) -> None:
        """The leader has registered the client: its session is transient and lives here."""
        packet = connection.connect
        relay = connection.relay
        if packet is None or relay is None or connection.state != REGISTERING:
            return
        old = self.state.sessions.get(connection.client_id)
        if old is not None and old.connection is not None:
            self.closing.disconnect(old.connection, reason.SESSION_TAKEN_OVER, "another connection uses this client id")
        assigned_id = connection.client_id if relay.assigned else ""
        properties = connack_properties(self.state, packet, 0, assigned_id) if connection.v5 else None
        session = self.lifecycle.begin(connection.client_id, False)
        self._agree(connection, packet)
        self._attach(connection, session, packet, 0)
        relay.state = GRANTED
        connection.connack = encode(Connack(False, reason.SUCCESS, properties), packet.version)
        connection.connect = None
        self.opened(connection)

    def relayed(self, connection: Connection) -> None:
        """The leader has let the client in: its session is there; here a guest stands in for it."""
        packet = connection.connect
        relay = connection.relay
        if packet is None or relay is None or connection.state != REGISTERING:
            return
        relay.durable = True
        relay.state = GRANTED
        self._agree(connection, packet)
        self.be_guest(connection)
        connection.connect = None
        connection.state = OPEN
        self.commits.unpause(connection, FOR_HANDSHAKE)
        self.state.counters.clients_connected += 1
        self.state.counters.sent_connack += 1
        self._welcome(connection, self._expiry_of(packet))

    def be_guest(self, connection: Connection) -> None:
        """Let something stand in for a session that is elsewhere."""
        session = Session(connection.client_id, self.state.partition_of(connection.client_id.encode()), False)
        session.guest = True
        session.username = connection.username
        session.connection = connection
        connection.session = session

    def _set_keep_alive(self, connection: Connection, packet: Connect) -> None:
        keep_alive_s = packet.keep_alive_s
        limits = self.state.limits
        if connection.v5:  # only version 5 can tell the client of another value [MQTT-3.2.2-21]
            if keep_alive_s == 0:
                keep_alive_s = limits.keep_alive_default_s
            keep_alive_s = min(keep_alive_s, limits.keep_alive_max_s)
        if keep_alive_s:
            connection.patience_us = keep_alive_s * SECOND * 3 // 2  # [MQTT-3.1.2-22]
            self.state.timers.set(self.state.now + connection.patience_us, TIMER_KEEP_ALIVE, connection.id)
        else:
            connection.patience_us = NEVER

    def _will_of(self, connection: Connection, will: WillPacket) -> Will:
        properties = will.properties
        forwarded = b""
        delay_s = 0
        if properties is not None:
            forwarded = forward_properties(properties)
            if properties.will_delay is not None:
                delay_s = min(properties.will_delay, self.state.limits.will_delay_max_s)
        life_us = lifetime(properties, self.state.limits)
        message = Message(
            will.topic, will.payload, will.qos, will.retain, forwarded, connection.client_id, self.state.now, life_us
        )
        return Will(message, delay_s)

    # -- the answer ---------------------------------------------------------------------------------------------

    def _fits(self, packet: Connect, properties: Properties | None) -> bool:
        """Whether the client can take the CONNACK that accepts it [MQTT-3.1.2-24]."""
        wish = packet.properties
        if wish is None or wish.packet_max is None:
            return True
        return len(encode(Connack(False, reason.SUCCESS, properties), 5)) <= wish.packet_max

    def _answer(self, connection: Connection, wait: bool) -> None:
        """Send CONNACK, or wait until the session is on disk; rows of the session that are on their way count too."""
        connection.state = REGISTERING
        token = self.commits.newest_token()
        if wait and token > self.commits.complete_token:
            self.commits.record_of(token).connects.append(connection)
        else:
            self.opened(connection)

    def opened(self, connection: Connection) -> None:
        """The session is durable: CONNACK, then what waits for the client [MQTT-3.2.0-1]."""
        if connection.state != REGISTERING:
            return
        session = connection.session
        assert session is not None, "a registered connection has its session until it closes"
        connection.state = OPEN
        remote = connection.remote
        if remote is not None:
            remote.opened = True
            connection.put(connection.connack)
            connection.connack = b""
        else:
            self.commits.unpause(connection, FOR_HANDSHAKE)
            connection.put(connection.connack)
            connection.connack = b""
            self.state.counters.sent_connack += 1
            self._welcome(connection, session.expiry_s)
        if session.durable:
            self.queue.resend(session)
        self.queue.pump(session)

    def _welcome(self, connection: Connection, expiry_s: int) -> None:
        self.state.counters.connects_accepted += 1
        fields: dict[str, object] = {
            "client": connection.client_id,
            "address": connection.info.address,
            "transport": connection.info.transport,
            "version": connection.version,
            "expiry_s": "never" if expiry_s == EXPIRY_NEVER else expiry_s,
        }
        self.state.event(INFO, "connected", fields)
