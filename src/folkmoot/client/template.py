"""The bytes that load clients send: built once per connection, and then only sliced.

Owns the packets of MQTT 3.1.1 and 5.0 that a load client needs, and the layout of its PUBLISH. It does not use the
codec of the broker, because a bug there would go unnoticed. Nothing here runs once per message.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ACK_BYTES",
    "PAYLOAD_BYTES_MIN",
    "PUBACK",
    "PUBCOMP",
    "PUBREC",
    "PUBREL",
    "MessageLayout",
    "MessageRing",
    "ack_ring",
    "connect_packet",
    "disconnect_packet",
    "retained_messages",
    "sequence_ring",
    "subscribe_packet",
]

PUBACK: Final = b"\x40\x02"
PUBREC: Final = b"\x50\x02"
PUBREL: Final = b"\x62\x02"
PUBCOMP: Final = b"\x70\x02"
ACK_BYTES: Final = 4
"""The size of a successful acknowledgement in 3.1.1 and 5.0: two bytes of header, two of packet id."""

# The payload starts with: mark (1 if a time stamp follows), sequence, publisher (2 bytes), time stamp in ns (8 bytes).
SEQUENCE_AT: Final = 1
SOURCE_AT: Final = 2
STAMP_AT: Final = 4
PAYLOAD_BYTES_MIN: Final = 12
FILLER: Final = b"The people met under the great oak, and none of them was king. "

SEQUENCE_CYCLE_MAX: Final = 256


def varint(value: int) -> bytes:
    """Return a variable byte integer (MQTT 5.0 section 1.5.5)."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def text(value: bytes) -> bytes:
    """Return a string or binary field: the length in two bytes, and the bytes."""
    return len(value).to_bytes(2, "big") + value


def packet(first: int, body: bytes) -> bytes:
    """Return a control packet with its fixed header (MQTT 5.0 section 2.1)."""
    return bytes([first]) + varint(len(body)) + body


def connect_packet(
    version: int,
    client_id: str,
    *,
    clean: bool = True,
    keep_alive_s: int = 0,
    session_expiry_s: int = 0,
    username: str | None = None,
    password: str | None = None,
) -> bytes:
    """Return a CONNECT for version 4 or 5 (section 3.1); the session expiry is sent in version 5 only, unless 0."""
    flags = 0x02 if clean else 0
    body = text(client_id.encode())
    if username is not None:
        flags |= 0x80
        body += text(username.encode())
    if password is not None:
        flags |= 0x40
        body += text(password.encode())
    properties = b""
    if version == 5:
        expiry = b"\x11" + session_expiry_s.to_bytes(4, "big") if session_expiry_s else b""
        properties = varint(len(expiry)) + expiry
    head = text(b"MQTT") + bytes([version, flags]) + keep_alive_s.to_bytes(2, "big")
    return packet(0x10, head + properties + body)


def subscribe_packet(version: int, packet_id: int, topic_filter: bytes, qos: int) -> bytes:
    """Return a SUBSCRIBE to one filter (section 3.8)."""
    properties = b"\x00" if version == 5 else b""
    return packet(0x82, packet_id.to_bytes(2, "big") + properties + text(topic_filter) + bytes([qos]))


def disconnect_packet() -> bytes:
    """Return a DISCONNECT with Normal disconnection; the same bytes in 3.1.1 and 5.0 (section 3.14)."""
    return b"\xe0\x00"


def ack_ring(head: bytes, size: int) -> bytes:
    """Return the acknowledgements of packet ids 1 to `size`, twice in a row, so that every slice of a ring is one."""
    return b"".join(head + number.to_bytes(2, "big") for number in range(1, size + 1)) * 2


class MessageLayout:
    """The layout of the PUBLISH packets of one kind. All have the same length, so that columns can be sliced.

    `head` is the fixed header (first byte and remaining length), `stride` the bytes of one packet, the others offsets
    in it: `id_at` (0 with QoS 0), `mark_at`, `sequence_at`, `source_at`, `stamp_at`.
    """

    def __init__(self, version: int, topic_bytes: int, qos: int, payload_bytes: int, retain: bool = False) -> None:
        assert payload_bytes >= PAYLOAD_BYTES_MIN, "the payload must have room for marks and a time stamp"
        body_bytes = 2 + topic_bytes + (2 if qos else 0) + (1 if version == 5 else 0) + payload_bytes
        self.version = version
        self.qos = qos
        self.payload_bytes = payload_bytes
        self.head: bytes = bytes([0x30 | qos << 1 | int(retain)]) + varint(body_bytes)
        self.stride: int = len(self.head) + body_bytes
        self.id_at: int = len(self.head) + 2 + topic_bytes if qos else 0
        self.mark_at: int = self.stride - payload_bytes
        self.sequence_at: int = self.mark_at + SEQUENCE_AT
        self.source_at: int = self.mark_at + SOURCE_AT
        self.stamp_at: int = self.mark_at + STAMP_AT

    def message(self, topic: bytes, packet_id: int, sequence: int, source: int) -> bytes:
        """Return one PUBLISH without a time stamp."""
        parts = [self.head, text(topic)]
        if self.qos:
            parts.append(packet_id.to_bytes(2, "big"))
        if self.version == 5:
            parts.append(b"\x00")
        marks = bytes([0, sequence]) + source.to_bytes(2, "big") + bytes(8)
        filler = FILLER * (self.payload_bytes // len(FILLER) + 1)
        parts += [marks, filler[: self.payload_bytes - len(marks)]]
        whole = b"".join(parts)
        assert len(whole) == self.stride, "all packets of a layout have the same length"
        return whole


class MessageRing:
    """The messages of one publisher, ready to send: a ring of `size` messages with packet ids 1 to `size`.

    In a ring that is at least twice as long as the window, no packet id is in use twice. `expected` is the column of
    sequence bytes that a subscriber sees, also a ring.
    """

    def __init__(self, layout: MessageLayout, topic: bytes, source: int, window: int) -> None:
        size = 16
        while size < 2 * window:
            size *= 2
        cycle = min(size, SEQUENCE_CYCLE_MAX)
        messages = [layout.message(topic, number + 1, number % cycle, source) for number in range(size)]
        self.layout = layout
        self.size = size
        self.cycle = cycle
        self.expected = sequence_ring(size)
        self._bytes = b"".join(messages) * 2

    def slice(self, number: int, count: int) -> bytes:
        """Return the bytes of `count` (at most `size`) messages from message `number` on."""
        stride = self.layout.stride
        start = (number & (self.size - 1)) * stride
        return self._bytes[start : start + count * stride]

    def stamped(self, number: int, count: int, every: int, first: int, stamp_ns: int) -> bytes:
        """Return the same with the time in messages `first`, `first + every`, ...; `first` is at least `number`."""
        layout = self.layout
        out = bytearray(self.slice(number, count))
        stamp = stamp_ns.to_bytes(8, "big")
        for start in range((first - number) * layout.stride, len(out), every * layout.stride):
            out[start + layout.mark_at] = 1
            out[start + layout.stamp_at : start + layout.stamp_at + 8] = stamp
        return bytes(out)


def retained_messages(layout: MessageLayout, prefix: bytes, count: int, *, empty: bool = False) -> list[bytes]:
    """Return a PUBLISH to each of the topics `prefix` + 000000, 000001, ...; empty ones remove retained messages."""
    messages = [layout.message(prefix + b"%06d" % n, n % 60_000 + 1, 0, 0) for n in range(count)]
    if not empty:
        return messages
    # The same up to the payload, with the remaining length of a packet without one.
    variable_bytes = layout.stride - len(layout.head) - layout.payload_bytes
    head = layout.head[:1] + varint(variable_bytes)
    return [head + message[len(layout.head) : layout.mark_at] for message in messages]


def sequence_ring(size: int) -> bytes:
    """Return the sequence bytes of a ring of `size` messages, twice in a row."""
    cycle = min(size, SEQUENCE_CYCLE_MAX)
    return bytes(range(cycle)) * (2 * size // cycle)
