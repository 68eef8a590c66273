"""Decoding of properties (MQTT 5.0 section 2.2.2).

Owns the rules that concern a property section alone; what needs the rest of the packet or a connection is checked
elsewhere.

A property that is not allowed in its packet, or whose value is not of its type, is malformed (section 2.2.2.2). A
repeated property, or a value outside its range, is a protocol error (chapter 3, at each property).
"""

from __future__ import annotations

from folkmoot.mqtt.error import MalformedPacket, malformed, protocol_error
from folkmoot.mqtt.field import read_binary, read_text, read_u16, read_u32, read_utf8
from folkmoot.mqtt.kind import PUBLISH, kind_name
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property import (
    ASSIGNED_CLIENT_ID,
    AUTH_DATA,
    AUTH_METHOD,
    BINARY,
    BYTE,
    CONTENT_TYPE,
    CORRELATION_DATA,
    MAX_QOS,
    MESSAGE_EXPIRY,
    PACKET_MAX,
    PAIR,
    PAYLOAD_FORMAT,
    REASON,
    RECEIVE_MAX,
    REQUEST_PROBLEM,
    REQUEST_RESPONSE,
    RESPONSE_INFO,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SERVER_REFERENCE,
    SESSION_EXPIRY,
    SHARED_AVAILABLE,
    SUBSCRIPTION_ID,
    SUBSCRIPTION_IDS_AVAILABLE,
    TEXT,
    TOPIC,
    TOPIC_ALIAS,
    TOPIC_ALIAS_MAX,
    U16,
    U32,
    USER_PROPERTY,
    VARINT,
    WILDCARD_AVAILABLE,
    WILL_DELAY,
    allowed_in,
    property_name,
    property_type,
)
from folkmoot.mqtt.reason import TOPIC_ALIAS_INVALID
from folkmoot.mqtt.text import has_wildcard
from folkmoot.mqtt.varint import decode_varint

__all__ = ["decode_properties"]


def decode_properties(data: bytes, pos: int, kind: int, stop: int = -1) -> tuple[Properties | None, int]:
    """Return (properties, position behind them) of the property section, with its length, at `pos` in a packet body.

    None stands for an empty section. `kind` is the packet type, or WILL; `stop`: where the packet ends in `data`, -1:
    at the end of `data`. Raises MalformedPacket: 0x81 for what cannot be parsed or is not allowed in this packet, 0x82
    for repetitions and values out of range, 0x94 for topic alias 0.
    """
    if stop < 0:
        stop = len(data)
    length, pos = decode_varint(data, pos)
    if length < 0 or pos > stop:
        raise malformed("the property length is not a variable byte integer")
    if length == 0:
        return None, pos
    end = pos + length
    if end > stop:
        raise malformed("the properties are longer than the rest of the packet")
    properties = Properties()
    seen = 0
    while pos < end:
        # An identifier is a variable byte integer, but all 27 fit in one byte: a longer one is unknown or padded.
        identifier = data[pos]
        if not allowed_in(identifier, kind):
            raise malformed(f"{property_name(identifier)} is not allowed in {kind_name(kind)}")
        bit = 1 << identifier
        if seen & bit != 0 and not _repeatable(identifier, kind):
            raise protocol_error(f"{property_name(identifier)} appears more than once")
        seen |= bit
        pos = _read(properties, identifier, data, pos + 1, end)
    return properties, end


def _repeatable(identifier: int, kind: int) -> bool:
    # A PUBLISH to a client names every subscription that it matches [MQTT-3.3.4-4].
    return identifier == USER_PROPERTY or (identifier == SUBSCRIPTION_ID and kind == PUBLISH)


def _read(properties: Properties, identifier: int, data: bytes, pos: int, end: int) -> int:
    shape = property_type(identifier)
    if shape == PAIR:
        name, pos = read_text(data, pos, end)
        value, pos = read_text(data, pos, end)  # [MQTT-1.5.7-1]
        properties.user_properties.append((name, value))
        return pos
    if shape == BYTE:
        if pos >= end:
            raise malformed(f"{property_name(identifier)} has no value")
        _set_byte(properties, identifier, data[pos])
        return pos + 1
    if shape == U16:
        _set_u16(properties, identifier, read_u16(data, pos, end))
        return pos + 2
    if shape == U32:
        _set_u32(properties, identifier, read_u32(data, pos, end))
        return pos + 4
    if shape == TEXT:
        text, pos = read_text(data, pos, end)
        _set_text(properties, identifier, text)
        return pos
    if shape == BINARY:
        binary, pos = read_binary(data, pos, end)
        _set_binary(properties, identifier, binary)
        return pos
    if shape == TOPIC:
        return _read_response_topic(properties, data, pos, end)
    assert shape == VARINT, identifier
    return _read_subscription_id(properties, data, pos, end)


def _read_response_topic(properties: Properties, data: bytes, pos: int, end: int) -> int:
    topic, pos = read_utf8(data, pos, end)  # [MQTT-3.3.2-13]
    if has_wildcard(topic):
        # [MQTT-3.3.2-14]
        raise protocol_error("the Response Topic contains a wildcard")
    if topic == b"":
        # [MQTT-4.7.3-1]
        raise protocol_error("the Response Topic is empty")
    properties.response_topic = topic
    return pos


def _read_subscription_id(properties: Properties, data: bytes, pos: int, end: int) -> int:
    value, behind = decode_varint(data, pos)
    if value < 0 or behind > end:
        raise malformed("the Subscription Identifier is not a variable byte integer")
    if value == 0:
        # Section 3.8.2.1.2.
        raise protocol_error("the Subscription Identifier is 0")
    properties.subscription_ids.append(value)
    return behind


def _set_byte(properties: Properties, identifier: int, value: int) -> None:
    # All one byte properties are 0 or 1; for each, another value is a protocol error.
    if value > 1:
        raise protocol_error(f"{property_name(identifier)} is {value}")
    if identifier == PAYLOAD_FORMAT:
        properties.payload_format = value
    elif identifier == REQUEST_PROBLEM:
        properties.request_problem = value
    elif identifier == REQUEST_RESPONSE:
        properties.request_response = value
    elif identifier == MAX_QOS:
        properties.max_qos = value
    elif identifier == RETAIN_AVAILABLE:
        properties.retain_available = value
    elif identifier == WILDCARD_AVAILABLE:
        properties.wildcard_available = value
    elif identifier == SUBSCRIPTION_IDS_AVAILABLE:
        properties.subscription_ids_available = value
    else:
        assert identifier == SHARED_AVAILABLE, identifier
        properties.shared_available = value


def _set_u16(properties: Properties, identifier: int, value: int) -> None:
    if identifier == TOPIC_ALIAS:
        if value == 0:
            # [MQTT-3.3.2-8]
            raise MalformedPacket(TOPIC_ALIAS_INVALID, "the Topic Alias is 0")
        properties.topic_alias = value
    elif identifier == RECEIVE_MAX:
        if value == 0:
            # Sections 3.1.2.11.3 and 3.2.2.3.3.
            raise protocol_error("the Receive Maximum is 0")
        properties.receive_max = value
    elif identifier == TOPIC_ALIAS_MAX:
        properties.topic_alias_max = value
    else:
        assert identifier == SERVER_KEEP_ALIVE, identifier
        properties.server_keep_alive = value


def _set_u32(properties: Properties, identifier: int, value: int) -> None:
    if identifier == MESSAGE_EXPIRY:
        properties.message_expiry = value
    elif identifier == SESSION_EXPIRY:
        properties.session_expiry = value
    elif identifier == WILL_DELAY:
        properties.will_delay = value
    else:
        assert identifier == PACKET_MAX, identifier
        if value == 0:
            # Sections 3.1.2.11.4 and 3.2.2.3.6.
            raise protocol_error("the Maximum Packet Size is 0")
        properties.packet_max = value


def _set_text(properties: Properties, identifier: int, value: str) -> None:
    if identifier == CONTENT_TYPE:
        properties.content_type = value  # [MQTT-3.3.2-19]
    elif identifier == ASSIGNED_CLIENT_ID:
        properties.assigned_client_id = value
    elif identifier == AUTH_METHOD:
        properties.auth_method = value
    elif identifier == RESPONSE_INFO:
        properties.response_info = value
    elif identifier == SERVER_REFERENCE:
        properties.server_reference = value
    else:
        assert identifier == REASON, identifier
        properties.reason = value


def _set_binary(properties: Properties, identifier: int, value: bytes) -> None:
    if identifier == CORRELATION_DATA:
        properties.correlation_data = value
    else:
        assert identifier == AUTH_DATA, identifier
        properties.auth_data = value
