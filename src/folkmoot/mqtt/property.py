"""The 27 properties of MQTT 5.0: their identifiers, their types, and the packets that may contain them.

Owns table 2-4 (section 2.2.2.2). `property_decode` and `property_encode` read and write properties.
"""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt.kind import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    WILL,
)

__all__ = [
    "ASSIGNED_CLIENT_ID",
    "AUTH_DATA",
    "AUTH_METHOD",
    "BINARY",
    "BYTE",
    "CONTENT_TYPE",
    "CORRELATION_DATA",
    "MAX_QOS",
    "MESSAGE_EXPIRY",
    "PACKET_MAX",
    "PAIR",
    "PAYLOAD_FORMAT",
    "REASON",
    "RECEIVE_MAX",
    "REQUEST_PROBLEM",
    "REQUEST_RESPONSE",
    "RESPONSE_INFO",
    "RESPONSE_TOPIC",
    "RETAIN_AVAILABLE",
    "SERVER_KEEP_ALIVE",
    "SERVER_REFERENCE",
    "SESSION_EXPIRY",
    "SHARED_AVAILABLE",
    "SUBSCRIPTION_ID",
    "SUBSCRIPTION_IDS_AVAILABLE",
    "TEXT",
    "TOPIC",
    "TOPIC_ALIAS",
    "TOPIC_ALIAS_MAX",
    "U16",
    "U32",
    "USER_PROPERTY",
    "VARINT",
    "WILDCARD_AVAILABLE",
    "WILL_DELAY",
    "allowed_in",
    "property_name",
    "property_type",
]

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTH_METHOD: Final = 0x15
AUTH_DATA: Final = 0x16
REQUEST_PROBLEM: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE: Final = 0x19
RESPONSE_INFO: Final = 0x1A
SERVER_REFERENCE: Final = 0x1C
REASON: Final = 0x1F
RECEIVE_MAX: Final = 0x21
TOPIC_ALIAS_MAX: Final = 0x22
TOPIC_ALIAS: Final = 0x23
MAX_QOS: Final = 0x24
RETAIN_AVAILABLE: Final = 0x25
USER_PROPERTY: Final = 0x26
PACKET_MAX: Final = 0x27
WILDCARD_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDS_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

# The type of a value on the wire. A topic is a string that is kept as bytes; a pair is two strings.
BYTE: Final = 1
U16: Final = 2
U32: Final = 3
BINARY: Final = 4
TEXT: Final = 5
TOPIC: Final = 6
VARINT: Final = 7
PAIR: Final = 8

_MESSAGE: Final = [PUBLISH, WILL]
_SESSION: Final = [CONNECT, CONNACK]
_ACKS: Final = [PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK]

# (identifier, name in the specification, type, where it is allowed): table 2-4, all 27.
_TABLE: Final[list[tuple[int, str, int, list[int]]]] = [
    (PAYLOAD_FORMAT, "Payload Format Indicator", BYTE, _MESSAGE),
    (MESSAGE_EXPIRY, "Message Expiry Interval", U32, _MESSAGE),
    (CONTENT_TYPE, "Content Type", TEXT, _MESSAGE),
    (RESPONSE_TOPIC, "Response Topic", TOPIC, _MESSAGE),
    (CORRELATION_DATA, "Correlation Data", BINARY, _MESSAGE),
    (SUBSCRIPTION_ID, "Subscription Identifier", VARINT, [PUBLISH, SUBSCRIBE]),
    (SESSION_EXPIRY, "Session Expiry Interval", U32, [CONNECT, CONNACK, DISCONNECT]),
    (ASSIGNED_CLIENT_ID, "Assigned Client Identifier", TEXT, [CONNACK]),
    (SERVER_KEEP_ALIVE, "Server Keep Alive", U16, [CONNACK]),
    (AUTH_METHOD, "Authentication Method", TEXT, [CONNECT, CONNACK, AUTH]),
    (AUTH_DATA, "Authentication Data", BINARY, [CONNECT, CONNACK, AUTH]),
    (REQUEST_PROBLEM, "Request Problem Information", BYTE, [CONNECT]),
    (WILL_DELAY, "Will Delay Interval", U32, [WILL]),
    (REQUEST_RESPONSE, "Request Response Information", BYTE, [CONNECT]),
    (RESPONSE_INFO, "Response Information", TEXT, [CONNACK]),
    (SERVER_REFERENCE, "Server Reference", TEXT, [CONNACK, DISCONNECT]),
    (REASON, "Reason String", TEXT, [CONNACK, *_ACKS, DISCONNECT, AUTH]),
    (RECEIVE_MAX, "Receive Maximum", U16, _SESSION),
    (TOPIC_ALIAS_MAX, "Topic Alias Maximum", U16, _SESSION),
    (TOPIC_ALIAS, "Topic Alias", U16, [PUBLISH]),
    (MAX_QOS, "Maximum QoS", BYTE, [CONNACK]),
    (RETAIN_AVAILABLE, "Retain Available", BYTE, [CONNACK]),
    (
        USER_PROPERTY,
        "User Property",
        PAIR,
        [*_MESSAGE, *_SESSION, *_ACKS, SUBSCRIBE, UNSUBSCRIBE, DISCONNECT, AUTH],
    ),
    (PACKET_MAX, "Maximum Packet Size", U32, _SESSION),
    (WILDCARD_AVAILABLE, "Wildcard Subscription Available", BYTE, [CONNACK]),
    (SUBSCRIPTION_IDS_AVAILABLE, "Subscription Identifier Available", BYTE, [CONNACK]),
    (SHARED_AVAILABLE, "Shared Subscription Available", BYTE, [CONNACK]),
]

_LAST: Final = SHARED_AVAILABLE


def _types() -> bytes:
    types = bytearray(_LAST + 1)
    for identifier, _, shape, _ in _TABLE:
        types[identifier] = shape
    return bytes(types)


def _places() -> list[int]:
    places = [0] * (_LAST + 1)
    for identifier, _, _, kinds in _TABLE:
        for kind in kinds:
            places[identifier] |= 1 << kind
    return places


# By identifier: the type, and one bit per packet type that may contain the property (0 if there is no property).
_TYPE: Final[bytes] = _types()
_PLACES: Final[list[int]] = _places()
_NAMES: Final[dict[int, str]] = {identifier: name for identifier, name, _, _ in _TABLE}


def allowed_in(identifier: int, kind: int) -> bool:
    """Return whether a packet of type `kind` (WILL for the will) may contain the property; False if it is unknown."""
    return identifier <= _LAST and _PLACES[identifier] >> kind & 1 != 0


def property_type(identifier: int) -> int:
    """Return the type of a known property: BYTE to PAIR."""
    return _TYPE[identifier]


def property_name(identifier: int) -> str:
    """Return the name of a property in the specification, or `property 0xNN` for an unknown identifier."""
    return _NAMES.get(identifier, f"property 0x{identifier:02X}")
