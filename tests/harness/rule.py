"""What every packet of a server must obey, on every connection of every test, whatever the test is about."""

from __future__ import annotations

from folkmoot.mqtt.packet import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Publish,
    Suback,
    Unsuback,
)
from tests.harness.wire import split

__all__ = ["CODES", "Rules"]

# Reason codes that a server may send, by packet type: MQTT 5.0 sections 3.2.2.2, 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1,
# 3.9.3, 3.11.3, 3.14.2.1 and 3.15.2.1.
CODES: dict[str, frozenset[int]] = {
    "CONNACK": frozenset(range(0x80, 0x8B)).union([0, 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F]),
    "PUBACK": frozenset([0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
    "PUBREC": frozenset([0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99]),
    "PUBREL": frozenset([0, 0x92]),
    "PUBCOMP": frozenset([0, 0x92]),
    "SUBACK": frozenset([0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]),
    "UNSUBACK": frozenset([0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
    "DISCONNECT": frozenset(range(0x93, 0xA3)).union(
        [0, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90]
    ),
    "AUTH": frozenset([0, 0x18, 0x19]),
}
ACKS = {4: "PUBACK", 5: "PUBREC", 6: "PUBREL", 7: "PUBCOMP"}


class Rules:
    """Watches both directions of one network connection; raises AssertionError at a server's fault."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.receive_max = 65_535
        self.packet_max = 0  # 0: the client set no Maximum Packet Size
        self.alias_max = 0
        self.wants_problems = True
        self.wants_response_info = False
        self.in_flight: set[int] = set()  # identifiers that the server may not give to another message
        self.unacknowledged: set[int] = set()  # those that use up Receive Maximum: sent as PUBLISH on this connection
        self.accepted = False
        self.ended = False

    def sent_connect(self, connect: Connect) -> None:
        """Note what the client asks for."""
        self.version = connect.version
        properties = connect.properties
        if properties is None:
            return
        self.receive_max = properties.receive_max or self.receive_max
        self.packet_max = properties.packet_max or 0
        self.alias_max = properties.topic_alias_max or 0
        self.wants_problems = properties.request_problem != 0
        self.wants_response_info = properties.request_response == 1

    def sent(self, data: bytes) -> None:
        """Note the acknowledgements among the client's bytes: they free packet identifiers."""
        for first, body in split(data)[0]:
            refused = len(body) > 2 and body[2] >= 0x80
            if first in (PUBACK << 4, PUBCOMP << 4) or (first == PUBREC << 4 and refused):
                packet_id = int.from_bytes(body[:2], "big")
                self.in_flight.discard(packet_id)
                self.unacknowledged.discard(packet_id)

    def received(self, packet: Packet, first: int, body: bytes) -> None:
        """Check one packet of the server."""
        assert not self.ended, f"[MQTT-3.14.4-1] {packet} after the end"
        flags = 0x02 if first >> 4 == 6 else 0x00
        assert first >> 4 == 3 or first & 0x0F == flags, f"[MQTT-2.1.3-1] reserved flags of {packet}"
        if self.packet_max:
            size = 1 + len(body) + (1 if len(body) < 128 else 2 if len(body) < 16_384 else 3)
            assert size <= self.packet_max, f"[MQTT-3.1.2-24] {packet} has {size} bytes"
        self._check_order(packet, body)
        self._check_codes(packet)
        if isinstance(packet, Publish):
            self._check_publish(packet)
        elif isinstance(packet, Ack) and packet.kind == 6:
            self.in_flight.add(packet.packet_id)  # [MQTT-4.4.0-1] a resent PUBREL takes its identifier again
        if self.version == V5:
            self._check_properties(packet)

    def _check_order(self, packet: Packet, body: bytes) -> None:
        if isinstance(packet, Connack):
            assert not self.accepted, "[MQTT-3.2.0-2] second CONNACK"
            assert body[0] & 0xFE == 0, "[MQTT-3.2.2-1] reserved CONNACK flags"
            assert packet.code == 0 or not packet.session_present, "[MQTT-3.2.2-6] session present in a refusal"
            self.accepted = packet.code == 0
            self.ended = packet.code != 0
        elif isinstance(packet, Auth):
            assert self.version == V5
        else:
            assert self.accepted, f"[MQTT-3.2.0-1] [MQTT-3.14.0-1] {packet} before CONNACK"
        if isinstance(packet, Disconnect):
            assert self.version == V5, "MQTT 3.x has no DISCONNECT from the server"
            self.ended = True

    def _check_codes(self, packet: Packet) -> None:
        if isinstance(packet, (Suback, Unsuback)):
            kind, codes = type(packet).__name__.upper(), packet.codes
        elif isinstance(packet, Ack):
            kind, codes = ACKS[packet.kind], [packet.code]
        elif isinstance(packet, (Connack, Disconnect, Auth)):
            kind, codes = type(packet).__name__.upper(), [packet.code]
        else:
            return
        allowed = CODES[kind]
        if self.version != V5 and kind in ("CONNACK", "SUBACK"):
            allowed = frozenset(range(6)) if kind == "CONNACK" else frozenset([0, 1, 2, 0x80])
        assert allowed.issuperset(codes), f"{kind} has no such code: {codes}"

    def _check_publish(self, packet: Publish) -> None:
        if packet.qos == 0:
            assert not packet.dup, "[MQTT-3.3.1-2] DUP with QoS 0"
            return
        assert packet.packet_id > 0, "[MQTT-2.2.1-4] packet identifier 0"
        assert packet.packet_id not in self.in_flight, f"[MQTT-2.2.1-4] packet identifier in use: {packet}"
        self.in_flight.add(packet.packet_id)
        self.unacknowledged.add(packet.packet_id)
        outstanding = len(self.unacknowledged)
        assert outstanding <= self.receive_max, f"[MQTT-3.3.4-9] {outstanding} in flight, {self.receive_max} allowed"

    def _check_properties(self, packet: Packet) -> None:
        properties = getattr(packet, "properties", None)
        if properties is None:
            return
        if isinstance(packet, Publish):
            alias = properties.topic_alias
            assert alias is None or 0 < alias <= self.alias_max, f"[MQTT-3.1.2-26] topic alias {alias}"
        elif not isinstance(packet, (Connack, Disconnect)) and not self.wants_problems:
            told = properties.reason is not None or properties.user_properties
            assert not told, f"[MQTT-3.1.2-29] problem information in {packet}"
        if isinstance(packet, Disconnect):
            assert properties.session_expiry is None, "[MQTT-3.14.2-2] session expiry from the server"
        if isinstance(packet, Connack) and not self.wants_response_info:
            assert properties.response_info is None, "[MQTT-3.1.2-28] response information unasked"
