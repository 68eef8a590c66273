"""Admission of a client at the leader of its partition: its session, its older connection, its will.

MQTT 5 sections 3.1.2.4, 3.1.2.5, 3.1.2.11.2, 3.1.4, 5.4.2. Promise A6: an older connection has ended before the new
CONNACK, on whichever node it is. One at another node is *expelled*: its node is told to close it, and says when it has.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.event import WARNING
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode, forward_properties
from folkmoot.mqtt.packet import Connack, Connect, Properties
from folkmoot.mqtt.packet import Will as WillPacket
from folkmoot.protocol.attach import Attaching
from folkmoot.protocol.closing import ANOTHER, Closing
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.protocol.offer import connack_properties, expiry_of
from folkmoot.protocol.subscribe import Subscribing
from folkmoot.protocol.will import Wills
from folkmoot.proxy.relay import Relays, token_of
from folkmoot.session.account import SESSION_BYTES
from folkmoot.session.connection import CLOSING, REGISTERING, Connection
from folkmoot.session.session import Session, Will
from folkmoot.store.key import SESSION, plain_key
from folkmoot.store.message import Message
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.lifetime import lifetime
from folkmoot.turn.message import EXPEL, encode_expel
from folkmoot.turn.state import State

__all__ = ["Admission"]

_EARLY_MIN: Final = 64


class Admission:
    """Finds or creates the sessions of clients.

    A client that cannot be admitted yet waits in one of two places, in state REGISTERING. *Early* are those that came
    before the subscriptions of all nodes were known: `Connecting.let_in` admits them when they are. *Parked* are those
    that must wait for the end of an older connection with their client id: `go_on` admits them. Of several with one
    client id only the newest stays parked, and the others are closed.
    """

    def __init__(
        self,
        state: State,
        fabric: Fabric,
        relays: Relays,
        wills: Wills,
        lifecycle: Lifecycle,
        closing: Closing,
        attaching: Attaching,
        subscribing: Subscribing,
    ) -> None:
        self.state = state
        self.fabric = fabric
        self.relays = relays
        self.wills = wills
        self.lifecycle = lifecycle
        self.closing = closing
        self.attaching = attaching
        self.subscribing = subscribing
        # With each connection, whether its client id was assigned by the server
        self.early: list[tuple[Connection, bool]] = []
        self._early_max = _EARLY_MIN  # so many are looked through for those that have gone
        self._parked: dict[str, tuple[Connection, bool]] = {}  # by client id
        self._newcomers: list[str] = []  # of these, clients of other nodes that take a session over in this turn
        self._settling = False  # they do so now

    def wait(self, connection: Connection, assigned: bool) -> None:
        """Make a client wait until all subscriptions are known: the will of its older connection may be due as well."""
        connection.state = REGISTERING
        if len(self.early) >= self._early_max:  # clients come and go meanwhile
            self.early = [waiting for waiting in self.early if waiting[0].state == REGISTERING]
            self._early_max = max(_EARLY_MIN, 2 * len(self.early))
        self.early.append((connection, assigned))

    def refuse_crowd(self, connection: Connection, why: str) -> None:
        """Refuse a client because the node has no room for another one.

        One at another node would get the same answer there, and may be at the very server that this node names.
        """
        code = self.closing.elsewhere if connection.remote is None else reason.SERVER_BUSY
        self.closing.refuse(connection, code, why)

    def admit(self, connection: Connection, assigned: bool) -> None:
        """Find or create the session, end its older connection, answer when both are complete (at the leader)."""
        if not self.state.routes_known:
            self.wait(connection, assigned)
            return
        self.wills.hurry(connection.client_id)
        packet = connection.connect
        assert packet is not None, "a connection is registered once"
        known = self.state.sessions
        if self._is_owned(known.get(connection.client_id), connection):
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, "this client id belongs to another user")
            return
        if connection.client_id not in known and len(known) >= self.state.limits.sessions_max:
            self.refuse_crowd(connection, "too many sessions")
            return
        if connection.client_id not in known and not self._may_begin(connection):
            return
        will = packet.will
        if will is not None and self.wills.is_crowded(connection.client_id.encode()):
            self.refuse_crowd(connection, "too many wills of this client wait for a partition that is away")
            return
        if will is not None and self.wills.is_barred(will.topic, will.retain):
            self.refuse_crowd(connection, "the will is for a partition that is away, for which too much waits")
            return
        if will is not None and connection.client_id in known:
            if not self._fits_will(connection, known[connection.client_id], len(will.payload)):
                return
        policy = self.state.policy
        if will is not None and not policy.may_publish(connection.client_id, connection.username, will.topic):
            self.state.counters.acl_denied_publish += 1
            self.closing.refuse(connection, reason.NOT_AUTHORIZED, "not allowed to publish to the will's topic")
            return
        expiry_s = expiry_of(packet, self.state.limits)
        old = known.get(connection.client_id)
        anew = packet.clean_start or self._is_another_users(old, connection)
        resumes_stored = old is not None and old.persistent and not anew  # frees room when its messages are deleted
        if self.state.storage_full and (expiry_s or will is not None) and not resumes_stored:
            self.state.counters.storage_refused += 1
            where = "" if self.fabric.alone else f" of {self.fabric.node_id}"
            why = f"no room on the disk{where} to keep a session or a will"
            self.closing.refuse(connection, reason.QUOTA_EXCEEDED, why)
            return
        assigned_id = connection.client_id if assigned else ""  # [MQTT-3.2.2-16]
        properties = connack_properties(self.state, packet, expiry_s, assigned_id) if connection.v5 else None
        if not self._fits(packet, properties):
            code = reason.IMPLEMENTATION_SPECIFIC_ERROR
            self.closing.refuse(connection, code, "the Maximum Packet Size is too small for a CONNACK")
            return
        if self._expel_or_park(old, connection, assigned):
            return
        old = self._take_over(old, anew)
        # A leader that died may have begun the session for this same CONNECT without an answer [MQTT-3.2.2-2].
        present = old is not None and not (old.begun and old.token == token_of(connection, self.state))
        session = old if old is not None else self._begin(connection, expiry_s > 0, packet.clean_start)
        session.begun = not present
        self.attaching.agree(connection, packet)
        former = session.owner
        self.attaching.attach(connection, session, packet, expiry_s)
        if session.owner != former:
            self.subscribing.end_denied(session)  # what one client may subscribe to, another need not be allowed
        # The end of a stored session is acknowledged too: the session must not return after a crash.
        wrote = session.persistent or self.lifecycle.is_ending(connection.client_id)
        if will is not None:
            self.wills.set(session, self._will_of(connection, will))
            wrote = True
        connection.connack = encode(Connack(present, reason.SUCCESS, properties), packet.version)
        connection.connect = None
        self.attaching.answer(connection, wrote or present)

    def _fits_will(self, connection: Connection, session: Session, size: int) -> bool:
        """Whether the user may have another will in the place of that of the session; if not, refuse the client."""
        account = self.state.accounts.of(connection.username)
        former = 0 if session.will is None or session.account is not account else session.will.message.size
        if size <= former or account.fits_memory(size - former):
            return True
        self.state.counters.quota_refused_sessions += 1
        self.state.refuse(account, "memory")
        self.closing.refuse(connection, reason.QUOTA_EXCEEDED, "what the user has takes too much memory")
        return False

    def _may_begin(self, connection: Connection) -> bool:
        """Whether the quota of the user and the memory of the node allow another session; if not, refuse the client."""
        if self.state.memory.refuses:
            self.state.counters.memory_refused_connections += 1
            self.refuse_crowd(connection, "the server is short of memory")
            return False
        account = self.state.accounts.of(connection.username)
        will = None if connection.connect is None else connection.connect.will
        if account.sessions >= account.quota.sessions_max:
            what = "sessions"
            why = "the user has too many sessions"
        elif not account.fits_memory(SESSION_BYTES + (0 if will is None else len(will.payload))):
            what = "memory"
            why = "what the user has takes too much memory"
        else:
            return True
        self.state.counters.quota_refused_sessions += 1
        self.state.refuse(account, what)
        self.closing.refuse(connection, reason.QUOTA_EXCEEDED, why)
        return False

    def _begin(self, connection: Connection, persistent: bool, clean_start: bool) -> Session:
        if persistent and clean_start and self.fabric.away:
            # Those who are away may have a session of the client, which it ends [MQTT-3.1.2-4]: that gets its time.
            key = connection.client_id.encode()
            partition = self.state.partition_of(key)
            self.state.writer.delete(partition, plain_key(partition, SESSION, key))
        session = self.lifecycle.begin(connection.client_id, persistent, connection.username, connection.is_proved)
        session.registration_only = connection.remote is not None and not persistent
        return session

    def _expel_or_park(self, old: Session | None, connection: Connection, assigned: bool) -> bool:
        """Park the client if an older connection must end first, and have that one closed; False: it need not wait.

        A connection at another node is expelled (A6). One that was here must have no message under way that the new
        one, at another node, could overtake (A3). A client at another node waits for the end of the turn: its CONNECT
        may have come late, with the end of its connection behind it, and would end a newer connection of the client.
        """
        other = None if old is None else old.connection
        remote = None if other is None else other.remote
        if other is not None and other.ending and other.state < CLOSING:
            self._park(connection, assigned)  # what it had sent before it ended is still being handled
            return True
        if self.fabric.planted.unfenced or (remote is None and connection.remote is None):
            return False
        if other is not None and connection.remote is not None and not self._settling:
            self._park(connection, assigned)
            self._newcomers.append(connection.client_id)
            return True
        if remote is None:
            pending_closes = self.lifecycle.pending_closes
            if other is not None and pending_closes.is_left_by(other):
                self.state.counters.takeovers += 1
                self.closing.taken_over(other)
            if not pending_closes.is_open(connection.client_id):
                return False
        self._park(connection, assigned)
        if remote is not None and not remote.expelled:
            remote.expelled = True
            self.state.counters.takeovers += 1
            body = encode_expel(remote.number, reason.SESSION_TAKEN_OVER, ANOTHER)
            self.fabric.send(remote.node_id, EXPEL, body)
        return True

    def _park(self, connection: Connection, assigned: bool) -> None:
        waiting = self._parked.get(connection.client_id)
        if waiting is not None and waiting[0] is not connection:
            self.closing.taken_over(waiting[0])
        self._parked[connection.client_id] = (connection, assigned)
        connection.state = REGISTERING

    def settle(self) -> None:
        """Let the clients of other nodes that came in this turn take their sessions over, if they are still there."""
        if self._newcomers:
            newcomers = self._newcomers
            self._newcomers = []
            self._settling = True
            for client_id in newcomers:
                self.go_on(client_id)
            self._settling = False

    def go_on(self, client_id: str) -> None:
        """Admit the client that waited for the end of its older connection, if it is still connected."""
        waiting = self._parked.pop(client_id, None)
        if waiting is not None and waiting[0].state == REGISTERING:
            self.admit(waiting[0], waiting[1])

    def release(self, partition: int) -> list[Connection]:
        """End the leadership of the partition: waiting clients ask the new leader. Return those of other nodes."""
        away: list[Connection] = []
        for connection, _ in self.early:
            if connection.remote is not None and self.state.partition_of(connection.client_id.encode()) == partition:
                away.append(connection)
        for client_id in list(self._parked):
            connection, assigned = self._parked[client_id]
            if self.state.partition_of(client_id.encode()) == partition:
                del self._parked[client_id]
                if connection.remote is not None:
                    away.append(connection)
                elif connection.state == REGISTERING:
                    self.relays.ask(connection, partition, connection.connect_body, assigned)
        return away

    def _is_owned(self, old: Session | None, connection: Connection) -> bool:
        """Whether the client id belongs to another user, by its session or by a client that is being let in.

        That of a user who was removed is free, once no connection has it. One of an anonymous client is too: nobody
        could prove to be its owner.
        """
        access = self.state.access
        if not access.client_id_owner or not access.has_users:
            return False
        owner = "" if old is None else old.owner
        if not owner:
            waiting = self._parked.get(connection.client_id)
            owner = waiting[0].username if waiting is not None and waiting[0].is_proved else ""
        if not owner or owner == connection.username:
            return False
        if access.gone(owner) and (old is None or old.connection is None):
            return False
        self._note_owner(connection, owner)
        return True

    def _note_owner(self, connection: Connection, owner: str) -> None:
        fields: dict[str, object] = {
            "client": connection.client_id,
            "user": connection.username,
            "address": connection.info.address,
            "of": owner,
        }
        self.state.event(WARNING, "session_of_another", fields)

    def _is_another_users(self, old: Session | None, connection: Connection) -> bool:
        """Whether a session belongs to another user, whose messages this one must not see (MQTT 5 section 5.4.2).

        Without passwords and certificates a user name proves nothing, so every session belongs to the client.
        """
        if old is None or not old.owner or not self.state.access.has_users:
            return False
        if old.owner == connection.username:
            return False
        self._note_owner(connection, old.owner)
        return True

    def _take_over(self, old: Session | None, clean_start: bool) -> Session | None:
        """Return the session to resume, after its older connection has ended [MQTT-3.1.4-3] (A6)."""
        if old is None:
            return None
        if old.connection is not None:
            self.state.counters.takeovers += 1
            other = old.connection
            # A will without a delay is due now, one with a delay only if the session ends here [MQTT-3.1.3-9].
            self.closing.taken_over(other)
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
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            forwarded,
            connection.client_id,
            self.state.clock.time,
            life_us,
        )
        if will.retain and connection.username and self.state.accounts.named:
            message.owner = connection.username
        return Will(message, delay_s)

    def _fits(self, packet: Connect, properties: Properties | None) -> bool:
        """Whether the CONNACK that accepts the client fits into its maximum packet size [MQTT-3.1.2-24]."""
        wish = packet.properties
        if wish is None or wish.packet_max is None:
            return True
        return len(encode(Connack(False, reason.SUCCESS, properties), 5)) <= wish.packet_max
