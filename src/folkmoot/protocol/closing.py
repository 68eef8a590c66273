"""Ending connections: the reason code for version 5, a plain close for 3.x, a counted and logged event.

MQTT 5 sections 3.14, 4.13; MQTT 3.1.1 section 4.8.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import NEVER
from folkmoot.kernel.errors import CorruptStore
from folkmoot.kernel.event import ERROR, INFO, WARNING
from folkmoot.mqtt import reason
from folkmoot.mqtt.decode import decode
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import DISCONNECT
from folkmoot.mqtt.packet import Connack, Disconnect, Properties
from folkmoot.mqtt.varint import decode_varint
from folkmoot.protocol.lifecycle import Lifecycle
from folkmoot.protocol.presence import refused_fields
from folkmoot.session.connection import CLOSED, CLOSING, NEW, OPEN, REGISTERING, Connection
from folkmoot.session.relay import ASKED
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.state import TIMER_CONNECT, TIMER_KEEP_ALIVE, TIMER_QUOTA, State

__all__ = ["ANOTHER", "ENDED_BEFORE", "OTHER_SIDE", "Closing"]

ANOTHER: Final = "another connection uses this client id"
ENDED_BEFORE: Final = "the connection has ended at the former leader of its session"
OTHER_SIDE: Final = "the session is at the other side of a split"

# A reason may quote a string of the client, which has up to 65,535 bytes.
_REASON_CHARACTERS_MAX: Final = 1024


class Closing:
    """Refuses CONNECT, disconnects clients, and cleans up lost connections."""

    def __init__(self, state: State, fabric: Fabric, lifecycle: Lifecycle) -> None:
        self.state = state
        self.fabric = fabric
        self.lifecycle = lifecycle

    def refuse(self, connection: Connection, code: int, why: str) -> None:
        """Answer a CONNECT with a reason code, then close [MQTT-3.1.4-2] [MQTT-3.2.2-7]."""
        self.state.counters.connects_refused += 1
        if connection.v5:
            self._refuse_v5(connection, code, why)
        else:
            code3 = reason.v3_connack(code)
            if code3 > 0:
                connection.put(encode(Connack(False, code3), connection.version))
                self.state.counters.sent_connack += 1
        self._note(connection, "connect_refused", code, why)
        if self.state.listening:
            self.state.tell("refused", refused_fields(connection, code, why))
        if connection.state != CLOSING and connection.state != CLOSED:
            self.goodbye(connection)  # so that a leader that was asked publishes no will

    def _refuse_v5(self, connection: Connection, code: int, why: str) -> None:
        wish = connection.connect.properties if connection.connect is not None else None
        size_max = wish.packet_max if wish is not None and wish.packet_max is not None else NEVER
        data = encode(Connack(False, code, self._explain(code, why)), 5)
        if len(data) > size_max:  # [MQTT-3.2.2-19]
            data = encode(Connack(False, code, None), 5)
        if len(data) <= size_max:  # [MQTT-3.1.2-24]
            connection.put(data)
            self.state.counters.sent_connack += 1

    def absent(self, connection: Connection, partition: int) -> None:
        """Refuse a client whose session is in a partition that nobody leads: no copies in sync are here, or too few.

        One whose leader had been asked is only closed: its session and will may be on the disk of that leader, which
        can not be told now, and publishes the will when it comes back.
        """
        if connection.state >= CLOSING or self.hear_goodbye(connection):
            return
        why = f"partition {partition}, with the session, has no copies in sync here, or too few: try again or elsewhere"
        if connection.state == OPEN:
            self.disconnect(connection, reason.SERVER_BUSY, why)
        elif _is_announced(connection):
            self._note(connection, "disconnected", reason.SERVER_UNAVAILABLE, why)
            self.close(connection)
        else:
            self.refuse(connection, reason.SERVER_UNAVAILABLE, why)

    def disconnect(self, connection: Connection, code: int, why: str, without_will: bool = False) -> None:
        """Send DISCONNECT with a reason code (version 5 only [MQTT-3.14.0-1]), then close.

        The will remains, unless its client may not publish it any more.
        """
        remote = connection.remote
        if remote is not None:  # the node with the connection sends it
            remote.code = code
            remote.why = why[:_REASON_CHARACTERS_MAX]
            self._close(connection, without_will)
            return
        connection.end_by = "node"
        connection.end_code = code
        connection.end_why = why
        if connection.state == NEW:
            self._count(code)
            self._note(connection, "handshake_failed", code, why)
            self.close(connection)
            return
        self._count(code)
        if connection.v5 and connection.state == OPEN:
            data = encode(Disconnect(code, self._explain(code, why)), 5)
            if len(data) > connection.packet_bytes_max:  # [MQTT-3.14.2-3]
                data = encode(Disconnect(code, None), 5)
            if len(data) <= connection.packet_bytes_max:
                connection.put(data)
                self.state.counters.sent_disconnect += 1
        self._note(connection, "disconnected", code, why)
        self._close(connection, without_will)

    def _close(self, connection: Connection, without_will: bool) -> None:
        if not without_will:
            self.close(connection)
        elif connection.state < CLOSING:
            self.goodbye(connection)

    def taken_over(self, connection: Connection, merged: bool = False) -> None:
        """End a connection whose session was taken over [MQTT-3.1.4-3].

        merged: the takeover happened at the other side of a healed split, perhaps without the client's knowledge.
        """
        if self.hear_goodbye(connection):
            return
        if merged:
            self.disconnect(connection, reason.SERVER_BUSY, OTHER_SIDE)
        else:
            self.disconnect(connection, reason.SESSION_TAKEN_OVER, ANOTHER)

    def leave(self, connection: Connection, first: int, body: bytes) -> None:
        """Handle DISCONNECT [MQTT-3.14.4-3] [MQTT-3.1.2-10]; raises MalformedPacket."""
        packet = decode(first, body, connection.version)
        assert isinstance(packet, Disconnect), "the packet type says so"
        relay = connection.relay
        if relay is not None and (relay.persistent or relay.state == ASKED):
            self.lifecycle.pending_closes.disconnect(connection, relay, first, body)
        else:
            assert connection.session is not None, "who has no session yet is heard by its leader"
            self.state.counters.received_disconnect += 1
            self.lifecycle.change_expiry(connection.session, packet)
        connection.said = packet.code
        if connection.state < CLOSING:
            self._end(connection, packet.code != reason.DISCONNECT_WITH_WILL and packet.code < 0x80)

    def hear_goodbye(self, connection: Connection) -> bool:
        """A connection ends while packets wait that will not be handled: of these only DISCONNECT counts (A7).

        Once it was received no will is published [MQTT-3.14.4-3], also if it came behind a CONNECT that is not answered
        yet. The others were not answered, so the client sends them again when it returns. Return whether it was there.
        """
        if connection.state not in (REGISTERING, OPEN) or not _is_heard(connection):
            return False
        parts = connection.parts if connection.parts is not None else []
        pieces = [connection.stashed[connection.stashed_pos :]]
        if connection.stash is not None:
            pieces.append(bytes(connection.stash))
        pieces.append(b"".join([connection.rest[connection.rest_pos :], *parts]))
        for data in pieces:
            pos = 0
            while pos < len(data):
                length, body = decode_varint(data, pos + 1)
                if length < 0 or body + length > len(data):
                    break
                if data[pos] >> 4 == DISCONNECT:
                    try:
                        self.leave(connection, data[pos], data[body : body + length])
                    except MalformedPacket as fault:
                        self.disconnect(connection, fault.code, fault.text)
                    return True
                pos = body + length
        return False

    def dismiss_all(self, why: str) -> None:
        """Disconnect all clients: this node serves nobody.

        Under leases what they have not been sent yet is dropped: it may be true no more (`node.withheld`).
        """
        leased = self.state.leased
        busy = self.elsewhere if leased else reason.SERVER_BUSY
        unavailable = self.elsewhere if leased else reason.SERVER_UNAVAILABLE
        for connection in list(self.state.connections.values()):
            if leased:
                connection.out = []
                connection.out_bytes = 0
                self.state.drops.append(connection)
            if connection.state >= CLOSING:
                continue
            if leased and connection.state == OPEN and connection.bytes_out == 0:
                # Its CONNACK was among what is dropped. Who is refused has done nothing; but the will may be on other
                # disks already, and its next leader publishes it.
                session = connection.session
                has_will = not self.fabric.alone and session is not None and session.will is not None
                if connection.relay is None and not has_will:
                    self.refuse(connection, unavailable, why)
                else:
                    self.close(connection)
            elif connection.state == OPEN or connection.state == NEW:
                self.disconnect(connection, busy, why)
            elif connection.session is not None or _is_announced(connection):
                self.close(connection)  # its session and will may be on their way to the leader, so it is not refused
            else:
                self.refuse(connection, unavailable, why)

    @property
    def elsewhere(self) -> int:
        """The reason code that sends a client to another node."""
        return reason.USE_ANOTHER_SERVER if self.state.identity.server_reference else reason.SERVER_BUSY

    def unreadable(self, connection: Connection, fault: CorruptStore) -> None:
        """End only the connection whose packet needs data that cannot be read."""
        self.state.event(ERROR, "corrupt_store", {"client": connection.client_id, "what": str(fault)})
        self.disconnect(connection, reason.UNSPECIFIED_ERROR, "the server cannot read its store")

    def _explain(self, code: int, why: str) -> Properties | None:
        elsewhere = self.state.identity.server_reference if code == reason.USE_ANOTHER_SERVER else ""
        if not why and not elsewhere:
            return None
        properties = Properties()
        if why:
            properties.reason = why[:_REASON_CHARACTERS_MAX]
        if elsewhere:
            properties.server_reference = elsewhere
        return properties

    def _note(self, connection: Connection, kind: str, code: int, why: str) -> None:
        level = INFO if code in (reason.SESSION_TAKEN_OVER, reason.SERVER_SHUTTING_DOWN) else WARNING
        fields: dict[str, object] = {
            "connection": connection.id,
            "client": connection.client_id,
            "user": connection.username,
            "address": connection.info.address,
            "code": f"0x{code:02X} {reason.name(code)}",
            "why": why,
        }
        self.state.event(level, kind, fields)

    def _count(self, code: int) -> None:
        counters = self.state.counters
        if code == reason.MALFORMED_PACKET:
            counters.error_malformed += 1
        elif code == reason.PROTOCOL_ERROR:
            counters.error_protocol += 1
        elif code == reason.PACKET_TOO_LARGE:
            counters.error_too_large += 1
        elif code == reason.TOPIC_NAME_INVALID:
            counters.error_topic += 1
        elif code == reason.TOPIC_FILTER_INVALID:
            counters.error_filter += 1
        elif code == reason.TOPIC_ALIAS_INVALID:
            counters.error_alias += 1
        elif code == reason.RECEIVE_MAXIMUM_EXCEEDED:
            counters.error_receive_max += 1
        elif code == reason.UNSUPPORTED_PROTOCOL_VERSION:
            counters.error_version += 1
        elif code == reason.PAYLOAD_FORMAT_INVALID:
            counters.error_payload_format += 1

    def close(self, connection: Connection) -> None:
        """Close the connection after its output is sent; its session is detached now."""
        if connection.state in (CLOSING, CLOSED):
            return
        self._part(connection, False)

    def goodbye(self, connection: Connection) -> None:
        """End without a will: the client has sent DISCONNECT with reason 0, or was refused."""
        self._part(connection, True)

    def _part(self, connection: Connection, goodbye: bool) -> None:
        """End a connection; one at another node keeps its session until that node says that it has ended (A6, A7).

        Else its client could publish through that node beside a newer connection; and if this node died before that one
        has heard of the end, the next leader would go on with a connection whose will is published.
        """
        remote = connection.remote
        if remote is None or connection.session is None or self.fabric.planted.unfenced:
            self._end(connection, goodbye)
        else:
            remote.without_will = goodbye
            connection.state = CLOSING
            self.state.closes.append(connection)

    def _end(self, connection: Connection, goodbye: bool) -> None:
        self.lifecycle.detach(connection, goodbye)
        connection.state = CLOSING
        self.state.closes.append(connection)
        if connection.ending:  # its end has been reported, and will not be again
            self.state.work.wait(connection)

    def lost(self, connection: Connection, why: str) -> None:
        """Handle the loss of the network connection."""
        if connection.state == CLOSED:
            return
        if connection.state != CLOSING:
            if connection.state != NEW:
                fields: dict[str, object] = {
                    "connection": connection.id,
                    "client": connection.client_id,
                    "address": connection.info.address,
                    "why": why,
                }
                self.state.event(INFO, "connection_lost", fields)
            connection.end_by = "network"
            connection.end_why = why
            self.lifecycle.detach(connection, False)
        connection.state = CLOSED
        if connection.dirty:
            self.state.outputs_gone = True
        memory = self.state.memory
        memory.unsent_bytes -= connection.counted_unsent_bytes
        connection.counted_unsent_bytes = 0
        connection.unsent_bytes = 0
        memory.parts_bytes -= connection.weighed_bytes
        connection.weighed_bytes = 0
        connection.parts = None
        connection.rest = b""
        connection.rest_pos = 0
        memory.alias_bytes -= connection.alias_bytes
        connection.alias_bytes = 0
        connection.alias_in = None
        connection.out = []
        self.state.connections.pop(connection.id, None)
        self.state.timers.cancel(TIMER_KEEP_ALIVE, connection.id)
        self.state.timers.cancel(TIMER_CONNECT, connection.id)
        self.state.timers.cancel(TIMER_QUOTA, connection.id)
        self.state.counters.connections -= 1
        self.state.counters.connections_closed += 1


def _is_announced(connection: Connection) -> bool:
    """Whether a leader at another node may have the session and the will of a client on its disk."""
    return connection.relay is not None and connection.relay.announced


def _is_heard(connection: Connection) -> bool:
    """Whether what a client says concerns a session: it has one here, or its leader has been asked."""
    session = connection.session
    return connection.relay is not None or (session is not None and not session.proxy)
