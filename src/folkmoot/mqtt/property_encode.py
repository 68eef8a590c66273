"""Encoding of properties (MQTT 5.0 section 2.2.2), in the order of their identifiers.

Does not check whether a packet may contain a property: a wrong one is a bug of the caller, which the decoder of the
other side (and of the tests) detects.
"""

from __future__ import annotations

from folkmoot.mqtt.field import write_binary
from folkmoot.mqtt.packet import Properties
from folkmoot.mqtt.property import (
    ASSIGNED_CLIENT_ID,
    AUTH_DATA,
    AUTH_METHOD,
    CONTENT_TYPE,
    CORRELATION_DATA,
    MAX_QOS,
    MESSAGE_EXPIRY,
    PACKET_MAX,
    PAYLOAD_FORMAT,
    REASON,
    RECEIVE_MAX,
    REQUEST_PROBLEM,
    REQUEST_RESPONSE,
    RESPONSE_INFO,
    RESPONSE_TOPIC,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SERVER_REFERENCE,
    SESSION_EXPIRY,
    SHARED_AVAILABLE,
    SUBSCRIPTION_IDS_AVAILABLE,
    TOPIC_ALIAS,
    TOPIC_ALIAS_MAX,
    WILDCARD_AVAILABLE,
    WILL_DELAY,
)
from folkmoot.mqtt.varint import encode_varint

__all__ = [
    "encode_message_expiry",
    "encode_properties",
    "encode_subscription_id",
    "encode_topic_alias",
    "forward_properties",
    "property_section",
]


def property_section(encoded: bytes) -> bytes:
    """Return the property section of a packet: encoded properties with their length in front [MQTT-2.2.2-1]."""
    return encode_varint(len(encoded)) + encoded


def encode_properties(properties: Properties | None) -> bytes:
    """Return the property section with its length; without any property, one zero byte [MQTT-2.2.2-1]."""
    if properties is None:
        return b"\x00"
    parts: list[bytes] = []
    _message(parts, properties)
    _session(parts, properties)
    _server(parts, properties)
    _user(parts, properties)
    _u32(parts, PACKET_MAX, properties.packet_max)
    _byte(parts, WILDCARD_AVAILABLE, properties.wildcard_available)
    _byte(parts, SUBSCRIPTION_IDS_AVAILABLE, properties.subscription_ids_available)
    _byte(parts, SHARED_AVAILABLE, properties.shared_available)
    return property_section(b"".join(parts))


def forward_properties(properties: Properties) -> bytes:
    """Return the properties that a server forwards unaltered, encoded without a length.

    Payload format [MQTT-3.3.2-4], content type [MQTT-3.3.2-20], response topic [MQTT-3.3.2-15], correlation data
    [MQTT-3.3.2-16], user properties in their order [MQTT-3.3.2-17] [MQTT-3.3.2-18]. Expiry, topic alias and
    subscription identifiers differ by receiver: append them with `encode_message_expiry` and the functions below it.
    """
    parts: list[bytes] = []
    _byte(parts, PAYLOAD_FORMAT, properties.payload_format)
    _text(parts, CONTENT_TYPE, properties.content_type)
    _binary(parts, RESPONSE_TOPIC, properties.response_topic)
    _binary(parts, CORRELATION_DATA, properties.correlation_data)
    _user(parts, properties)
    return b"".join(parts)


def encode_message_expiry(expiry_s: int) -> bytes:
    """Return a Message Expiry Interval without a section length; seconds, 32 bits."""
    return b"\x02" + expiry_s.to_bytes(4, "big")


def encode_topic_alias(alias: int) -> bytes:
    """Return a Topic Alias (1 to 65,535) without a section length."""
    assert alias > 0, "[MQTT-3.3.2-8]"
    return b"\x23" + alias.to_bytes(2, "big")


def encode_subscription_id(identifier: int) -> bytes:
    """Return a Subscription Identifier (1 to 268,435,455) without a section length."""
    assert identifier > 0, "section 3.8.2.1.2"
    return b"\x0b" + encode_varint(identifier)


def _message(parts: list[bytes], properties: Properties) -> None:
    _byte(parts, PAYLOAD_FORMAT, properties.payload_format)
    _u32(parts, MESSAGE_EXPIRY, properties.message_expiry)
    _text(parts, CONTENT_TYPE, properties.content_type)
    _binary(parts, RESPONSE_TOPIC, properties.response_topic)
    _binary(parts, CORRELATION_DATA, properties.correlation_data)
    parts += [encode_subscription_id(identifier) for identifier in properties.subscription_ids]


def _session(parts: list[bytes], properties: Properties) -> None:
    _u32(parts, SESSION_EXPIRY, properties.session_expiry)
    _text(parts, ASSIGNED_CLIENT_ID, properties.assigned_client_id)
    _u16(parts, SERVER_KEEP_ALIVE, properties.server_keep_alive)
    _text(parts, AUTH_METHOD, properties.auth_method)
    _binary(parts, AUTH_DATA, properties.auth_data)
    _byte(parts, REQUEST_PROBLEM, properties.request_problem)
    _u32(parts, WILL_DELAY, properties.will_delay)
    _byte(parts, REQUEST_RESPONSE, properties.request_response)


def _server(parts: list[bytes], properties: Properties) -> None:
    _text(parts, RESPONSE_INFO, properties.response_info)
    _text(parts, SERVER_REFERENCE, properties.server_reference)
    _text(parts, REASON, properties.reason)
    _u16(parts, RECEIVE_MAX, properties.receive_max)
    _u16(parts, TOPIC_ALIAS_MAX, properties.topic_alias_max)
    _u16(parts, TOPIC_ALIAS, properties.topic_alias)
    _byte(parts, MAX_QOS, properties.max_qos)
    _byte(parts, RETAIN_AVAILABLE, properties.retain_available)


def _user(parts: list[bytes], properties: Properties) -> None:
    for name, value in properties.user_properties:
        parts.append(b"\x26")
        parts.append(write_binary(name.encode("utf-8")))
        parts.append(write_binary(value.encode("utf-8")))


def _byte(parts: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        assert 0 <= value <= 1, value
        parts.append(bytes([identifier, value]))


def _u16(parts: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        assert 0 <= value <= 0xFFFF, value
        parts.append((identifier << 16 | value).to_bytes(3, "big"))


def _u32(parts: list[bytes], identifier: int, value: int | None) -> None:
    if value is not None:
        assert 0 <= value <= 0xFFFF_FFFF, value
        parts.append((identifier << 32 | value).to_bytes(5, "big"))


def _text(parts: list[bytes], identifier: int, value: str | None) -> None:
    if value is not None:
        _binary(parts, identifier, value.encode("utf-8"))


def _binary(parts: list[bytes], identifier: int, value: bytes | None) -> None:
    if value is not None:
        parts.append(bytes([identifier]))
        parts.append(write_binary(value))
