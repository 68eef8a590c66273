"""Control packets by hand: bytes that no encoder would make, and a framing that shares no code with the broker's."""

from __future__ import annotations

__all__ = [
    "binary",
    "connect",
    "packet",
    "prop",
    "props",
    "publish",
    "split",
    "subscribe",
    "text",
    "u16",
    "u32",
    "varint",
]


def u16(number: int) -> bytes:
    """Two Byte Integer, section 1.5.2."""
    return number.to_bytes(2, "big")


def u32(number: int) -> bytes:
    """Four Byte Integer, section 1.5.3."""
    return number.to_bytes(4, "big")


def varint(number: int) -> bytes:
    """Variable Byte Integer, section 1.5.5."""
    out = bytearray()
    while True:
        number, digit = divmod(number, 128)
        out.append(digit | 0x80 if number else digit)
        if not number:
            return bytes(out)


def binary(data: bytes) -> bytes:
    """Binary Data, section 1.5.6."""
    return u16(len(data)) + data


def text(string: str | bytes) -> bytes:
    """UTF-8 Encoded String, section 1.5.4; bytes are taken as they are, well-formed or not."""
    return binary(string.encode() if isinstance(string, str) else string)


def packet(first: int, *parts: bytes) -> bytes:
    """A control packet: first byte of the fixed header, remaining length, parts."""
    body = b"".join(parts)
    return bytes([first]) + varint(len(body)) + body


def prop(identifier: int, value: bytes) -> bytes:
    """A property: its identifier and its encoded value."""
    return varint(identifier) + value


def props(*properties: bytes) -> bytes:
    """The properties of a packet with their length."""
    body = b"".join(properties)
    return varint(len(body)) + body


def connect(
    version: int,
    *payload: bytes,
    flags: int = 0x02,
    keep_alive_s: int = 0,
    name: str | bytes | None = None,
    properties: bytes = b"\0",
    first: int = 0x10,
) -> bytes:
    """A CONNECT whose parts are given by hand; `payload` is client id, will, user name and password."""
    name = name if name is not None else ("MQIsdp" if version == 3 else "MQTT")
    head = text(name) + bytes([version, flags]) + u16(keep_alive_s)
    return packet(first, head, properties if version == 5 else b"", *payload)


def publish(
    version: int,
    topic: str | bytes,
    payload: bytes = b"",
    *,
    first: int = 0x30,
    packet_id: int | None = None,
    properties: bytes = b"\0",
) -> bytes:
    """A PUBLISH; the packet identifier is present only if given, whatever `first` says of the QoS."""
    identifier = b"" if packet_id is None else u16(packet_id)
    return packet(first, text(topic), identifier, properties if version == 5 else b"", payload)


def subscribe(
    version: int, *entries: tuple[str | bytes, int], packet_id: int = 1, first: int = 0x82, properties: bytes = b"\0"
) -> bytes:
    """A SUBSCRIBE of (filter, options byte) entries."""
    body = [text(topic_filter) + bytes([options]) for topic_filter, options in entries]
    return packet(first, u16(packet_id), properties if version == 5 else b"", *body)


def split(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Cut `data` into packets (first byte, body) and what is left of an incomplete one."""
    packets: list[tuple[int, bytes]] = []
    start = 0
    while True:
        length, shift, at = 0, 0, start + 1
        while at < len(data) and data[at] & 0x80:
            length |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
        if at >= len(data):
            return packets, data[start:]
        length |= data[at] << shift
        end = at + 1 + length
        if end > len(data):
            return packets, data[start:]
        packets.append((data[start], data[at + 1 : end]))
        start = end
