"""Outbound PUBLISH packets: encoded once per variant (version, QoS, retain), appended to each connection's output.

Source: MQTT 5 section 3.3, MQTT 3.1.1 section 3.3.
"""

from __future__ import annotations

from typing import Final

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.pack import U16, u32
from folkmoot.mqtt.varint import VARINT_MAX, encode_varint
from folkmoot.session.connection import Connection
from folkmoot.store.message import Message

__all__ = ["put_publish"]

_FIRST: Final[list[bytes]] = [bytes([n]) for n in range(256)]
_EXPIRY: Final = b"\x02"
_ALIAS: Final = b"\x23"
_ALIASED_BYTES_MAX: Final = 1024
"""Of a topic that gets an alias: each connection keeps its own, and nobody else may have the topic any more."""

_ROOM_BYTES: Final = 16
"""Upper bound of a PUBLISH beyond topic, properties and payload: headers, lengths, packet id, topic alias."""


def put_publish(
    connection: Connection,
    message: Message,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    identifiers: bytes,
    now: int,
) -> bool:
    """Append a PUBLISH to the output; return False if it exceeds the client's Maximum Packet Size [MQTT-3.1.2-24]."""
    first = 0x30 | qos << 1
    if retain:
        first |= 1
    if dup:
        first |= 8
    if connection.v5 and (identifiers or message.expires_us or connection.alias_out is not None):
        return _put_special(connection, message, first, packet_id, identifiers, now)
    kind = first << 1 | (1 if connection.v5 else 0)
    if message.wire_kind != kind and not _encode(message, kind, first, connection.v5):
        return False
    left = message.wire_left
    right = message.wire_right
    size = len(left) + len(right)
    if qos:
        size += 2
    if size > connection.packet_bytes_max:
        return False
    out = connection.out
    out.append(left)
    if qos:
        out.append(U16[packet_id])
    out.append(right)
    connection.out_bytes += size
    if connection.lane is not None:
        connection.lane.room -= size
    if not connection.dirty:
        connection.touch()
    return True


def _encode(message: Message, kind: int, first: int, v5: bool) -> bool:
    if v5:
        right = encode_varint(len(message.properties)) + message.properties + message.payload
    else:
        right = message.payload
    if _exceeds(message.topic, right):
        return False
    message.wire_kind = kind
    message.wire_left = _left(first, message.topic, len(right))
    message.wire_right = right
    return True


def _exceeds(topic: bytes, right: bytes) -> bool:
    """Whether MQTT cannot express the packet: one of 256 MiB may arrive without the properties that are added here."""
    return 4 + len(topic) + len(right) > VARINT_MAX


def _left(first: int, topic: bytes, right_size: int) -> bytes:
    size = 2 + len(topic) + right_size
    if first & 6:
        size += 2
    return _FIRST[first] + encode_varint(size) + U16[len(topic)] + topic


def _put_special(
    connection: Connection, message: Message, first: int, packet_id: int, identifiers: bytes, now: int
) -> bool:
    properties = message.properties + identifiers
    if message.expires_us:
        # [MQTT-3.3.2-6] the rest of the expiry interval, never zero: an expired message is not sent
        # and never more than the whole: the clock that dated the message may have been ahead
        left_us = min(message.expires_us - now, message.expires_us - message.created_us)
        left_s = (left_us + SECOND - 1) // SECOND
        properties += _EXPIRY + u32(min(max(left_s, 1), 0xFFFF_FFFF))
    topic = message.topic
    # Whether a packet is too large must not depend on aliases, which belong to a connection: a message that was sent
    # once must fit again when its flow continues over the next connection.
    whole = _ROOM_BYTES + len(topic) + len(properties) + len(message.payload)
    tight = whole > connection.packet_bytes_max
    aliases = None if tight else connection.alias_out
    fresh_alias = 0
    if aliases is not None:
        alias = aliases.get(topic, 0)
        if alias:
            properties += _ALIAS + U16[alias]
            topic = b""
        elif len(aliases) < connection.alias_out_max and len(topic) <= _ALIASED_BYTES_MAX:
            fresh_alias = len(aliases) + 1
            properties += _ALIAS + U16[fresh_alias]
    right = encode_varint(len(properties)) + properties + message.payload
    if _exceeds(topic, right):
        return False
    data = _left(first, topic, len(right)) + (U16[packet_id] if first & 6 else b"") + right
    if len(data) > connection.packet_bytes_max:
        return False
    if aliases is not None and fresh_alias:
        aliases[message.topic] = fresh_alias
    connection.put(data)
    if connection.lane is not None:
        connection.lane.room -= len(data)
    return True
