"""Encoding of packets: all types, all three versions, both directions (MQTT 5.0 chapter 3).

Writes the shortest form that the specification allows. What a version cannot express (codes and properties of MQTT 3.x
acknowledgements) is left out; invalid input from the caller fails an assertion. CONNACK and SUBACK codes of MQTT 3.x
are written as given: `reason.v3_connack` and `reason.v3_suback` translate them.
"""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt.field import BINARY_BYTES_MAX, write_binary
from folkmoot.mqtt.kind import V5, V31, V311
from folkmoot.mqtt.packet import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from folkmoot.mqtt.property_encode import (
    encode_message_expiry,
    encode_properties,
    encode_subscription_id,
    encode_topic_alias,
    forward_properties,
    property_section,
)
from folkmoot.mqtt.varint import encode_varint

__all__ = [
    "body_of",
    "encode",
    "encode_ack",
    "encode_message_expiry",
    "encode_properties",
    "encode_subscription_id",
    "encode_topic_alias",
    "forward_properties",
    "property_section",
    "publish_head",
]

_NO_PROPERTIES: Final = b"\x00"
# First byte of PUBACK, PUBREC, PUBREL and PUBCOMP by packet type [MQTT-3.6.1-1].
_ACK_FIRST: Final[bytes] = bytes([0, 0, 0, 0, 0x40, 0x50, 0x62, 0x70])


def encode(packet: Packet, version: int) -> bytes:
    """Return the packet, with its fixed header, in the format of V31, V311 or V5; a CONNECT has its own version."""
    if isinstance(packet, Publish):
        return _encode_publish(packet, version)
    if isinstance(packet, Ack):
        return _encode_ack(packet, version)
    if isinstance(packet, Subscribe):
        return _encode_subscribe(packet, version)
    if isinstance(packet, Suback):
        return _encode_codes(0x90, packet.packet_id, packet.codes, packet.properties, version)
    if isinstance(packet, Unsubscribe):
        return _encode_unsubscribe(packet, version)
    if isinstance(packet, Unsuback):
        codes = packet.codes if version == V5 else []
        return _encode_codes(0xB0, packet.packet_id, codes, packet.properties, version)
    if isinstance(packet, Connect):
        return _encode_connect(packet)
    if isinstance(packet, Connack):
        return _encode_connack(packet, version)
    if isinstance(packet, Disconnect):
        return b"\xe0\x00" if version != V5 else _encode_reason(0xE0, packet.code, packet.properties)
    if isinstance(packet, Auth):
        assert version == V5, "AUTH exists in MQTT 5.0 only"
        return _encode_auth(packet)
    return b"\xc0\x00" if isinstance(packet, Pingreq) else _encode_pingresp(packet)


def body_of(data: bytes) -> bytes:
    """Return what follows the fixed header of an encoded packet."""
    pos = 1
    while data[pos] >= 128:
        pos += 1
    return data[pos + 1 :]


def encode_ack(kind: int, packet_id: int) -> bytes:
    """Return the four bytes of a successful PUBACK, PUBREC, PUBREL or PUBCOMP (`kind` 4 to 7), for all versions."""
    assert 0 < packet_id <= 65_535, packet_id
    return (_ACK_FIRST[kind] << 24 | 2 << 16 | packet_id).to_bytes(4, "big")


def publish_head(
    topic: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes,
    payload_bytes: int,
    version: int,
) -> bytes:
    """Return a PUBLISH up to its payload of `payload_bytes` bytes.

    `properties` are encoded without their length, as `forward_properties` returns them; MQTT 3.x leaves them out.
    """
    size = len(topic)
    assert size <= BINARY_BYTES_MAX, size
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        assert qos != 0, "[MQTT-3.3.1-2]"
        first |= 8
    middle = b""
    if qos != 0:
        assert 0 < packet_id <= 65_535, packet_id
        middle = packet_id.to_bytes(2, "big")
    if version == V5:
        middle += property_section(properties)
    rest = encode_varint(2 + size + len(middle) + payload_bytes)
    return b"".join([bytes([first]), rest, size.to_bytes(2, "big"), topic, middle])


def _framed(first: int, body: bytes) -> bytes:
    return b"".join([bytes([first]), encode_varint(len(body)), body])


def _section(properties: Properties | None, version: int) -> bytes:
    return encode_properties(properties) if version == V5 else b""


def _identified(packet_id: int) -> bytes:
    assert 0 < packet_id <= 65_535, packet_id
    return packet_id.to_bytes(2, "big")


def _encode_publish(packet: Publish, version: int) -> bytes:
    size = len(packet.topic)
    assert size <= BINARY_BYTES_MAX, size
    assert packet.qos != 0 or not packet.dup, "[MQTT-3.3.1-2]"
    first = 0x30 | packet.qos << 1 | int(packet.retain) | int(packet.dup) << 3
    parts = [size.to_bytes(2, "big"), packet.topic]
    if packet.qos != 0:
        parts.append(_identified(packet.packet_id))
    parts.append(_section(packet.properties, version))
    parts.append(packet.payload)
    return _framed(first, b"".join(parts))


def _encode_ack(packet: Ack, version: int) -> bytes:
    if version != V5 or (packet.code == 0 and packet.properties is None):
        return encode_ack(packet.kind, packet.packet_id)
    body = _identified(packet.packet_id) + bytes([packet.code])
    if packet.properties is not None:
        body += encode_properties(packet.properties)
    return _framed(_ACK_FIRST[packet.kind], body)


def _encode_subscribe(packet: Subscribe, version: int) -> bytes:
    parts = [_identified(packet.packet_id), _section(packet.properties, version)]
    for topic_filter, options in packet.entries:
        parts.append(write_binary(topic_filter))
        parts.append(bytes([options]))
    return _framed(0x82, b"".join(parts))


def _encode_unsubscribe(packet: Unsubscribe, version: int) -> bytes:
    parts = [_identified(packet.packet_id), _section(packet.properties, version)]
    parts += [write_binary(topic_filter) for topic_filter in packet.filters]
    return _framed(0xA2, b"".join(parts))


def _encode_codes(first: int, packet_id: int, codes: list[int], properties: Properties | None, version: int) -> bytes:
    return _framed(first, b"".join([_identified(packet_id), _section(properties, version), bytes(codes)]))


def _encode_connack(packet: Connack, version: int) -> bytes:
    assert 0 <= packet.code <= 255, "reason.V3_NO_CONNACK means: send none"
    # MQTT 3.1 reserves the first byte.
    present = packet.session_present and version != V31
    assert not (present and packet.code != 0), "[MQTT-3.2.2-6]"
    return _framed(0x20, bytes([int(present), packet.code]) + _section(packet.properties, version))


def _encode_reason(first: int, code: int, properties: Properties | None) -> bytes:
    if properties is not None:
        return _framed(first, bytes([code]) + encode_properties(properties))
    return bytes([first, 0]) if code == 0 else bytes([first, 1, code])


def _encode_auth(packet: Auth) -> bytes:
    if packet.code == 0 and packet.properties is None:
        return b"\xf0\x00"
    # AUTH may omit the code and the property length, but only both together (section 3.15.2.1).
    return _framed(0xF0, bytes([packet.code]) + encode_properties(packet.properties))


def _encode_pingresp(packet: Pingresp) -> bytes:
    assert isinstance(packet, Pingresp), packet
    return b"\xd0\x00"


def _encode_connect(packet: Connect) -> bytes:
    version = packet.version
    assert version in (V31, V311, V5), version
    assert version == V5 or packet.password is None or packet.username is not None, "a password needs a user name"
    flags = int(packet.clean_start) << 1
    will = packet.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | int(will.retain) << 5
    if packet.username is not None:
        flags |= 0x80
    if packet.password is not None:
        flags |= 0x40
    name = b"\x00\x06MQIsdp" if version == V31 else b"\x00\x04MQTT"
    parts = [name, bytes([version, flags]), packet.keep_alive_s.to_bytes(2, "big")]
    parts.append(_section(packet.properties, version))
    parts.append(write_binary(packet.client_id.encode("utf-8")))
    if will is not None:
        _append_will(parts, will, version)
    if packet.username is not None:
        parts.append(write_binary(packet.username.encode("utf-8")))
    if packet.password is not None:
        parts.append(write_binary(packet.password))
    return _framed(0x10, b"".join(parts))


def _append_will(parts: list[bytes], will: Will, version: int) -> None:
    parts.append(_section(will.properties, version))
    parts.append(write_binary(will.topic))
    parts.append(write_binary(will.payload))
