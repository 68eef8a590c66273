"""Reason codes: their numbers, names, the packets that may carry them, and their MQTT 3.x counterparts.

Owns table 2-6 of MQTT 5.0 and the tables of sections 3.2.2.2, 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1, 3.9.3, 3.11.3,
3.14.2.1 and 3.15.2.1. The code that detects an error chooses the reason code.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ADMINISTRATIVE_ACTION",
    "BAD_AUTHENTICATION_METHOD",
    "BAD_USER_NAME_OR_PASSWORD",
    "BANNED",
    "CLIENT_IDENTIFIER_NOT_VALID",
    "CONNECTION_RATE_EXCEEDED",
    "CONTINUE_AUTHENTICATION",
    "DISCONNECT_WITH_WILL",
    "GRANTED_QOS_0",
    "GRANTED_QOS_1",
    "GRANTED_QOS_2",
    "IMPLEMENTATION_SPECIFIC_ERROR",
    "KEEP_ALIVE_TIMEOUT",
    "MALFORMED_PACKET",
    "MAXIMUM_CONNECT_TIME",
    "MESSAGE_RATE_TOO_HIGH",
    "NORMAL_DISCONNECTION",
    "NOT_AUTHORIZED",
    "NO_MATCHING_SUBSCRIBERS",
    "NO_SUBSCRIPTION_EXISTED",
    "PACKET_IDENTIFIER_IN_USE",
    "PACKET_IDENTIFIER_NOT_FOUND",
    "PACKET_TOO_LARGE",
    "PAYLOAD_FORMAT_INVALID",
    "PROTOCOL_ERROR",
    "QOS_NOT_SUPPORTED",
    "QUOTA_EXCEEDED",
    "REAUTHENTICATE",
    "RECEIVE_MAXIMUM_EXCEEDED",
    "RETAIN_NOT_SUPPORTED",
    "SERVER_BUSY",
    "SERVER_MOVED",
    "SERVER_SHUTTING_DOWN",
    "SERVER_UNAVAILABLE",
    "SESSION_TAKEN_OVER",
    "SHARED_SUBSCRIPTIONS_NOT_SUPPORTED",
    "SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED",
    "SUCCESS",
    "TOPIC_ALIAS_INVALID",
    "TOPIC_FILTER_INVALID",
    "TOPIC_NAME_INVALID",
    "UNSPECIFIED_ERROR",
    "UNSUPPORTED_PROTOCOL_VERSION",
    "USE_ANOTHER_SERVER",
    "V3_ACCEPTED",
    "V3_BAD_USER_NAME_OR_PASSWORD",
    "V3_IDENTIFIER_REJECTED",
    "V3_NOT_AUTHORIZED",
    "V3_NO_CONNACK",
    "V3_SERVER_UNAVAILABLE",
    "V3_SUBSCRIBE_FAILURE",
    "V3_UNACCEPTABLE_PROTOCOL_VERSION",
    "WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED",
    "allowed",
    "name",
    "v3_connack",
    "v3_suback",
]

SUCCESS: Final = 0x00
NORMAL_DISCONNECTION: Final = 0x00
GRANTED_QOS_0: Final = 0x00
GRANTED_QOS_1: Final = 0x01
GRANTED_QOS_2: Final = 0x02
DISCONNECT_WITH_WILL: Final = 0x04
NO_MATCHING_SUBSCRIBERS: Final = 0x10
NO_SUBSCRIPTION_EXISTED: Final = 0x11
CONTINUE_AUTHENTICATION: Final = 0x18
REAUTHENTICATE: Final = 0x19
UNSPECIFIED_ERROR: Final = 0x80
MALFORMED_PACKET: Final = 0x81
PROTOCOL_ERROR: Final = 0x82
IMPLEMENTATION_SPECIFIC_ERROR: Final = 0x83
UNSUPPORTED_PROTOCOL_VERSION: Final = 0x84
CLIENT_IDENTIFIER_NOT_VALID: Final = 0x85
BAD_USER_NAME_OR_PASSWORD: Final = 0x86
NOT_AUTHORIZED: Final = 0x87
SERVER_UNAVAILABLE: Final = 0x88
SERVER_BUSY: Final = 0x89
BANNED: Final = 0x8A
SERVER_SHUTTING_DOWN: Final = 0x8B
BAD_AUTHENTICATION_METHOD: Final = 0x8C
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
TOPIC_FILTER_INVALID: Final = 0x8F
TOPIC_NAME_INVALID: Final = 0x90
PACKET_IDENTIFIER_IN_USE: Final = 0x91
PACKET_IDENTIFIER_NOT_FOUND: Final = 0x92
RECEIVE_MAXIMUM_EXCEEDED: Final = 0x93
TOPIC_ALIAS_INVALID: Final = 0x94
PACKET_TOO_LARGE: Final = 0x95
MESSAGE_RATE_TOO_HIGH: Final = 0x96
QUOTA_EXCEEDED: Final = 0x97
ADMINISTRATIVE_ACTION: Final = 0x98
PAYLOAD_FORMAT_INVALID: Final = 0x99
RETAIN_NOT_SUPPORTED: Final = 0x9A
QOS_NOT_SUPPORTED: Final = 0x9B
USE_ANOTHER_SERVER: Final = 0x9C
SERVER_MOVED: Final = 0x9D
SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0x9E
CONNECTION_RATE_EXCEEDED: Final = 0x9F
MAXIMUM_CONNECT_TIME: Final = 0xA0
SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED: Final = 0xA1
WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: Final = 0xA2

# MQTT 3.1.1, table 3.1: CONNACK return codes; section 3.9.3: the one SUBACK failure.
V3_ACCEPTED: Final = 0
V3_UNACCEPTABLE_PROTOCOL_VERSION: Final = 1
V3_IDENTIFIER_REJECTED: Final = 2
V3_SERVER_UNAVAILABLE: Final = 3
V3_BAD_USER_NAME_OR_PASSWORD: Final = 4
V3_NOT_AUTHORIZED: Final = 5
V3_NO_CONNACK: Final = -1
V3_SUBSCRIBE_FAILURE: Final = 0x80

_NAMES: Final[dict[int, str]] = {
    0x00: "Success",
    0x01: "Granted QoS 1",
    0x02: "Granted QoS 2",
    0x04: "Disconnect with Will Message",
    0x10: "No matching subscribers",
    0x11: "No subscription existed",
    0x18: "Continue authentication",
    0x19: "Re-authenticate",
    0x80: "Unspecified error",
    0x81: "Malformed Packet",
    0x82: "Protocol Error",
    0x83: "Implementation specific error",
    0x84: "Unsupported Protocol Version",
    0x85: "Client Identifier not valid",
    0x86: "Bad User Name or Password",
    0x87: "Not authorized",
    0x88: "Server unavailable",
    0x89: "Server busy",
    0x8A: "Banned",
    0x8B: "Server shutting down",
    0x8C: "Bad authentication method",
    0x8D: "Keep Alive timeout",
    0x8E: "Session taken over",
    0x8F: "Topic Filter invalid",
    0x90: "Topic Name invalid",
    0x91: "Packet Identifier in use",
    0x92: "Packet Identifier not found",
    0x93: "Receive Maximum exceeded",
    0x94: "Topic Alias invalid",
    0x95: "Packet too large",
    0x96: "Message rate too high",
    0x97: "Quota exceeded",
    0x98: "Administrative action",
    0x99: "Payload format invalid",
    0x9A: "Retain not supported",
    0x9B: "QoS not supported",
    0x9C: "Use another server",
    0x9D: "Server moved",
    0x9E: "Shared Subscriptions not supported",
    0x9F: "Connection rate exceeded",
    0xA0: "Maximum connect time",
    0xA1: "Subscription Identifiers not supported",
    0xA2: "Wildcard Subscriptions not supported",
}

_NONE: Final = b""
_PUBACK: Final = bytes([0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99])
_PUBREL: Final = bytes([0x00, 0x92])

# The codes by packet type (index 0 to 15). Table 2-6 lists 0x8C for DISCONNECT, section 3.14.2.1 does not. It is
# allowed, because a failed re-authentication needs it.
_ALLOWED: Final[list[bytes]] = [
    _NONE,
    _NONE,
    # CONNACK [MQTT-3.2.2-8]
    bytes([0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F]),
    _NONE,
    _PUBACK,  # PUBACK [MQTT-3.4.2-1]
    _PUBACK,  # PUBREC [MQTT-3.5.2-1]
    _PUBREL,  # PUBREL [MQTT-3.6.2-1]
    _PUBREL,  # PUBCOMP [MQTT-3.7.2-1]
    _NONE,
    # SUBACK [MQTT-3.9.3-2]
    bytes([0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2]),
    _NONE,
    # UNSUBACK [MQTT-3.11.3-2]
    bytes([0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
    _NONE,
    _NONE,
    # DISCONNECT [MQTT-3.14.2-1]
    bytes([0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)]),
    # AUTH [MQTT-3.15.2-1]
    bytes([0x00, 0x18, 0x19]),
]

_V3_CONNACK: Final[dict[int, int]] = {
    SUCCESS: V3_ACCEPTED,
    UNSUPPORTED_PROTOCOL_VERSION: V3_UNACCEPTABLE_PROTOCOL_VERSION,
    CLIENT_IDENTIFIER_NOT_VALID: V3_IDENTIFIER_REJECTED,
    UNSPECIFIED_ERROR: V3_SERVER_UNAVAILABLE,
    IMPLEMENTATION_SPECIFIC_ERROR: V3_SERVER_UNAVAILABLE,
    SERVER_UNAVAILABLE: V3_SERVER_UNAVAILABLE,
    SERVER_BUSY: V3_SERVER_UNAVAILABLE,
    SERVER_SHUTTING_DOWN: V3_SERVER_UNAVAILABLE,
    QUOTA_EXCEEDED: V3_SERVER_UNAVAILABLE,
    USE_ANOTHER_SERVER: V3_SERVER_UNAVAILABLE,
    SERVER_MOVED: V3_SERVER_UNAVAILABLE,
    CONNECTION_RATE_EXCEEDED: V3_SERVER_UNAVAILABLE,
    BAD_USER_NAME_OR_PASSWORD: V3_BAD_USER_NAME_OR_PASSWORD,
    BAD_AUTHENTICATION_METHOD: V3_BAD_USER_NAME_OR_PASSWORD,
    NOT_AUTHORIZED: V3_NOT_AUTHORIZED,
    BANNED: V3_NOT_AUTHORIZED,
    TOPIC_NAME_INVALID: V3_NOT_AUTHORIZED,
}


def name(code: int) -> str:
    """Return the name of a reason code in the specification, or `0xNN` for a number without a name."""
    return _NAMES.get(code, f"0x{code:02X}")


def allowed(kind: int, code: int) -> bool:
    """Return whether an MQTT 5.0 packet of type `kind` (1 to 15) may have the reason code."""
    return code in _ALLOWED[kind]


def v3_connack(code5: int) -> int:
    """Return the MQTT 3.x CONNACK return code for a reason code, or V3_NO_CONNACK (-1): close without a CONNACK.

    Source: MQTT 3.1.1 section 3.2.2.3; if no code fits, the server closes without an answer.
    """
    # [MQTT-3.2.2-6] of MQTT 3.1.1
    return _V3_CONNACK.get(code5, V3_NO_CONNACK)


def v3_suback(code5: int) -> int:
    """Return the MQTT 3.1.1 SUBACK return code (granted QoS or 0x80) for a SUBACK reason code."""
    return code5 if code5 < 0x80 else V3_SUBSCRIBE_FAILURE
