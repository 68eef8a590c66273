"""Acknowledgements to publishers: PUBACK, PUBREC, PUBCOMP, packet ids of QoS 2 (MQTT 5 sections 3.4 to 3.7, 4.3).

Owns the content of an answer and the rows RECEIVED. `turn.commit` decides when the answer may leave.
"""

from __future__ import annotations

from typing import Final

from folkmoot.delivery.keeping import MATCHED, REFUSED, STORED
from folkmoot.kernel.pack import U16, u16
from folkmoot.mqtt import reason
from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.error import MalformedPacket
from folkmoot.mqtt.kind import PUBACK, PUBCOMP, PUBREC
from folkmoot.mqtt.packet import Ack, Properties
from folkmoot.session.connection import Connection
from folkmoot.session.session import Session
from folkmoot.store.key import RECEIVED, name_prefix
from folkmoot.turn.commit import Commits
from folkmoot.turn.fabric import Fabric
from folkmoot.turn.receipt import Receipt
from folkmoot.turn.source import source_of
from folkmoot.turn.state import State

__all__ = ["Acknowledging"]

_PUBACK_HEAD: Final = b"\x40\x02"
_PUBREC_HEAD: Final = b"\x50\x02"
_PUBCOMP_HEAD: Final = b"\x70\x02"


class Acknowledging:
    """Answers the PUBLISH and PUBREL packets of all connections."""

    def __init__(self, state: State, fabric: Fabric, commits: Commits) -> None:
        self.state = state
        self.fabric = fabric
        self.counters = state.counters
        self.commits = commits

    def in_flight(self, connection: Connection, session: Session, packet_id: int) -> int:
        """Return how many messages of this connection are not acknowledged; a repeated QoS 2 id counts once.

        The quota of a client begins anew with the connection; a PUBREL of an older flow takes nothing from it (4.9).
        """
        received = session.received
        if received is None:
            return connection.held_pubacks
        if packet_id in received:
            return 0
        before = connection.received_before
        return connection.held_pubacks + len(received) - (len(before) if before is not None else 0)

    def finish(
        self,
        connection: Connection,
        session: Session,
        qos: int,
        packet_id: int,
        result: int,
        receipt: Receipt | None,
        own: bool,
    ) -> None:
        """Answer a message according to its result, the flags of `Publishing.publish`.

        own: this turn published the message, see `Commits.acknowledge`. Raises MalformedPacket where MQTT 3.x has no
        answer for the result.
        """
        code = 0
        if result & REFUSED:
            kind = PUBACK if qos == 1 else PUBREC
            self.answer(connection, kind, packet_id, reason.QUOTA_EXCEEDED, "too many retained messages", False)
            return
        if connection.v5 and not result & MATCHED:
            code = reason.NO_MATCHING_SUBSCRIBERS
        if qos == 1:
            self.answer(connection, PUBACK, packet_id, code, "", bool(result & STORED), receipt, own)
            return
        if session.received is None:
            session.received = {}
        session.received[packet_id] = code
        wait = bool(result & STORED)
        if session.persistent:
            key = _received_key(session, packet_id)
            self.state.writer.put(session.partition, key, bytes([code]) + source_of(connection))
            wait = True
        self.answer(connection, PUBREC, packet_id, code, "", wait, receipt, own)

    def answer(
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
        """Acknowledge a message [MQTT-3.3.4-1]; QoS 0 has no answer. own: see `Commits.acknowledge`.

        kind: PUBACK, PUBREC or PUBCOMP. wait: not before all changes up to now are complete. Raises
        MalformedPacket where MQTT 3.x has no answer for the code.
        """
        if packet_id == 0:
            return
        if connection.remote is not None:
            wait = True  # in the same message as the confirmation of the packet, or the next leader answers it again
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
            # 3.1.1 has no refusal: a message is acknowledged and dropped [MQTT-3.3.5-2 v3.1.1]. If the cause may pass
            # (no room, no leader), the connection ends: the client sends the message again [MQTT-4.8.0-2 v3.1.1].
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
        """Handle PUBREL: forget the packet id, then answer PUBCOMP [MQTT-4.3.3-11]."""
        session = connection.session
        assert session is not None, "an open connection has a session"
        received = session.received
        if received is None or packet_id not in received:
            code = reason.PACKET_IDENTIFIER_NOT_FOUND if connection.v5 else 0
            self.answer(connection, PUBCOMP, packet_id, code, "", session.persistent, own=True)
            return
        del received[packet_id]
        if connection.received_before is not None:
            connection.received_before.discard(packet_id)
        if session.persistent:
            self.state.writer.delete(session.partition, _received_key(session, packet_id))
        self.answer(connection, PUBCOMP, packet_id, 0, "", session.persistent, own=True)


def _received_key(session: Session, packet_id: int) -> bytes:
    return name_prefix(session.partition, RECEIVED, session.key) + u16(packet_id)
