"""MQTT 5 as a client speaks it, from bytes to packets and back: written from the standard, without the broker's code.

Only what the clients of the history checker need: no authentication, no topic aliases (the client announces none).
Section numbers are those of MQTT Version 5.0 (OASIS, 2019).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

__all__ = [
    "CONNACK", "DISCONNECT", "NAMES", "PINGRESP", "PUBACK", "PUBCOMP", "PUBLISH", "PUBREC", "PUBREL", "SUBACK",
    "UNSUBACK", "Malformed", "Packet", "Parser", "Will", "acknowledge", "connect", "disconnect", "pingreq", "publish",
    "subscribe", "unsubscribe",
]  # fmt: skip

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14

NAMES = {
    CONNACK: "connack", PUBLISH: "publish", PUBACK: "puback", PUBREC: "pubrec", PUBREL: "pubrel", PUBCOMP: "pubcomp",
    SUBACK: "suback", UNSUBACK: "unsuback", PINGRESP: "pingresp", DISCONNECT: "disconnect",
}  # fmt: skip
"""What a server may send, and how the history calls it."""

# Identifiers of properties (2.2.2.2) by the form of their values; -1: a variable byte integer.
SIZES = {
    0x01: 1, 0x17: 1, 0x19: 1, 0x24: 1, 0x25: 1, 0x28: 1, 0x29: 1, 0x2A: 1,
    0x13: 2, 0x21: 2, 0x22: 2, 0x23: 2, 0x02: 4, 0x11: 4, 0x18: 4, 0x27: 4, 0x0B: -1,
}  # fmt: skip
TEXTS = frozenset({0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F})
USER_PROPERTY = 0x26
SESSION_EXPIRY, RECEIVE_MAX, WILL_DELAY = 0x11, 0x21, 0x18


class Malformed(Exception):
    """The server sent what no server may send."""


@dataclass
class Packet:
    """One packet from the server; fields that its type does not have keep their defaults."""

    kind: int
    code: int = 0
    id: int = 0
    present: bool = False
    topic: str = ""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    codes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Will:
    """A will message; `delay_s` counts from the end of the connection."""

    topic: str
    payload: bytes
    qos: int
    delay_s: int = 0
    retain: bool = False


class Reader:
    """Takes values from the front of a packet."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) != size:
            raise Malformed(f"{size} bytes expected, {len(found)} are left")
        self.at += size
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def varint(self) -> int:
        value = 0
        for place in range(4):
            byte = self.number(1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value
        raise Malformed("a variable byte integer has more than four bytes")

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def rest(self) -> bytes:
        return self.take(len(self.data) - self.at)

    def more(self) -> bool:
        return self.at < len(self.data)

    def skip_properties(self) -> None:
        """2.2.2: read over all of them, and refuse those that no packet has."""
        inner = Reader(self.take(self.varint()))
        while inner.more():
            name = inner.varint()
            if name == USER_PROPERTY:
                inner.text()
                inner.text()
            elif name in TEXTS:
                inner.take(inner.number(2))
            elif SIZES.get(name) == -1:
                inner.varint()
            elif name in SIZES:
                inner.take(SIZES[name])
            else:
                raise Malformed(f"property {name:#x} does not exist")


class Parser:
    """Cuts a stream of bytes into packets, whatever its chunks are."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete now; raises Malformed."""
        self.buffer += data
        found = []
        while (packet := self._next()) is not None:
            found.append(packet)
        return found

    def _next(self) -> Packet | None:
        size, at = 0, 1
        while True:
            if at >= len(self.buffer):
                return None
            byte = self.buffer[at]
            size |= (byte & 0x7F) << (7 * (at - 1))
            at += 1
            if byte < 0x80:
                break
            if at > 4:
                raise Malformed("the remaining length has more than four bytes")
        if len(self.buffer) < at + size:
            return None
        first, body = self.buffer[0], bytes(self.buffer[at : at + size])
        del self.buffer[: at + size]
        return decode(first, body)


def decode(first: int, body: bytes) -> Packet:
    """One packet from its first byte and what follows the remaining length."""
    kind, flags = first >> 4, first & 0x0F
    reader = Reader(body)
    packet = Packet(kind)
    if kind == PUBLISH:
        packet.qos, packet.retain, packet.dup = flags >> 1 & 3, bool(flags & 1), bool(flags & 8)
        packet.topic = reader.text()
        packet.id = reader.number(2) if packet.qos else 0
        reader.skip_properties()
        packet.payload = reader.rest()
        return packet
    if flags != (2 if kind == PUBREL else 0):
        raise Malformed(f"packet {kind} has the flags {flags}")
    if kind == CONNACK:
        packet.present, packet.code = bool(reader.number(1) & 1), reader.number(1)
        reader.skip_properties()
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        packet.id = reader.number(2)
        packet.code = reader.number(1) if reader.more() else 0
        if reader.more():
            reader.skip_properties()
    elif kind in (SUBACK, UNSUBACK):
        packet.id = reader.number(2)
        reader.skip_properties()
        packet.codes = list(reader.rest())
    elif kind == DISCONNECT:
        packet.code = reader.number(1) if reader.more() else 0
        if reader.more():
            reader.skip_properties()
    elif kind != PINGRESP:
        raise Malformed(f"no server sends packet {kind}")
    if reader.more():
        raise Malformed(f"packet {kind} has {len(reader.rest())} bytes too many")
    return packet


def varint(value: int) -> bytes:
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        found.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(found)


def text(value: str) -> bytes:
    return blob(value.encode())


def blob(value: bytes) -> bytes:
    return struct.pack(">H", len(value)) + value


def properties(*given: bytes) -> bytes:
    body = b"".join(given)
    return varint(len(body)) + body


def packed(first: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes([first]) + varint(len(body)) + body


def connect(client_id: str, *, clean: bool, expiry_s: int, keep_alive_s: int, will: Will | None = None) -> bytes:
    """3.1; `expiry_s` of 0xFFFFFFFF: the session never ends."""
    flags = 2 if clean else 0
    last: list[bytes] = []
    if will is not None:
        flags |= 4 | will.qos << 3 | (0x20 if will.retain else 0)
        delay = struct.pack(">BI", WILL_DELAY, will.delay_s) if will.delay_s else b""
        last = [properties(delay), text(will.topic), blob(will.payload)]
    options = properties(struct.pack(">BI", SESSION_EXPIRY, expiry_s))
    head = text("MQTT") + bytes([5, flags]) + struct.pack(">H", keep_alive_s)
    return packed(CONNECT << 4, head, options, text(client_id), *last)


def publish(topic: str, payload: bytes, *, qos: int, retain: bool, dup: bool, packet_id: int) -> bytes:
    """3.3."""
    first = PUBLISH << 4 | (8 if dup else 0) | qos << 1 | int(retain)
    return packed(first, text(topic), struct.pack(">H", packet_id) if qos else b"", properties(), payload)


def acknowledge(kind: int, packet_id: int) -> bytes:
    """3.4 to 3.7: PUBACK, PUBREC, PUBREL, PUBCOMP with the reason code 0."""
    return packed(kind << 4 | (2 if kind == PUBREL else 0), struct.pack(">H", packet_id))


def subscribe(packet_id: int, filters: list[tuple[str, int]]) -> bytes:
    """3.8; retained messages are sent at every SUBSCRIBE, and marked as retained only then."""
    body = b"".join(text(name) + bytes([qos]) for name, qos in filters)
    return packed(SUBSCRIBE << 4 | 2, struct.pack(">H", packet_id), properties(), body)


def unsubscribe(packet_id: int, filters: list[str]) -> bytes:
    """3.10."""
    return packed(UNSUBSCRIBE << 4 | 2, struct.pack(">H", packet_id), properties(), *(text(name) for name in filters))


def pingreq() -> bytes:
    """3.12."""
    return packed(PINGREQ << 4)


def disconnect(code: int = 0) -> bytes:
    """3.14; 0: no will, 4: with will."""
    return packed(DISCONNECT << 4, bytes([code]))
