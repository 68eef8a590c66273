"""Decoding of CONNECT, for all three versions (MQTT 5.0 and 3.1.1 section 3.1).

Owns the rules of the first packet. Never decides whether a well-formed CONNECT is accepted: the session checks client
id, credentials and limits.

MQTT 3.1 calls some bits unused that later versions reserve; they are ignored at protocol level 3 only.
"""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt.error import MalformedPacket, malformed, protocol_error
from folkmoot.mqtt.field import read_binary, read_text, read_u16, read_utf8
from folkmoot.mqtt.kind import CONNECT, V5, V31, V311, WILL
from folkmoot.mqtt.packet import Connect, Properties, Will
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.reason import TOPIC_NAME_INVALID, UNSUPPORTED_PROTOCOL_VERSION
from folkmoot.mqtt.text import has_wildcard

__all__ = ["connect_level", "decode_connect", "without_password"]

_NAME: Final = b"\x00\x04MQTT"
_NAME_V31: Final = b"\x00\x06MQIsdp"

_USERNAME: Final = 0x80
_PASSWORD: Final = 0x40
_WILL_RETAIN: Final = 0x20
_WILL_QOS: Final = 0x18
_WILL: Final = 0x04
_CLEAN: Final = 0x02
_RESERVED: Final = 0x01


def connect_level(body: bytes) -> int:
    """Return the protocol level that a CONNECT body claims (at least 1); 0 if its protocol name is not one of MQTT's.

    It determines the format of the CONNACK if `decode_connect` refuses the packet: that of MQTT 5.0 from 5 on.
    """
    if body.startswith(_NAME) and len(body) > len(_NAME):
        return max(body[len(_NAME)], 1)
    if body.startswith(_NAME_V31) and len(body) > len(_NAME_V31):
        return max(body[len(_NAME_V31)], 1)
    return 0


def decode_connect(body: bytes) -> Connect:
    """Return the packet of a CONNECT body; raises MalformedPacket, with 0x84 if name or level are not supported."""
    end = len(body)
    version, pos = _version(body)
    if pos + 3 > end:
        raise malformed("CONNECT ends before the keep alive")
    flags = body[pos]
    _check_flags(flags, version)
    keep_alive_s = read_u16(body, pos + 1, end)
    pos += 3
    properties: Properties | None = None
    if version == V5:
        properties, pos = decode_properties(body, pos, CONNECT)
        if properties is not None and properties.auth_data is not None and properties.auth_method is None:
            # Section 3.1.2.11.10.
            raise protocol_error("Authentication Data without an Authentication Method")
    # [MQTT-3.1.3-1] the order of the fields, [MQTT-3.1.3-3] [MQTT-3.1.3-4] the client identifier.
    client_id, pos = read_text(body, pos, end)
    will: Will | None = None
    if flags & _WILL != 0:
        will, pos = _will(body, pos, flags, version)
    username: str | None = None
    password: bytes | None = None
    # MQTT 3.1 section 3.1: the remaining length has precedence over the flags of user name and password.
    if flags & _USERNAME != 0 and not (version == V31 and pos == end):
        username, pos = read_text(body, pos, end)  # [MQTT-3.1.2-17] [MQTT-3.1.3-12]
    if flags & _PASSWORD != 0 and not (version == V31 and pos == end):
        password, pos = read_binary(body, pos, end)  # [MQTT-3.1.2-19]
    if pos != end:
        # [MQTT-3.1.2-16] [MQTT-3.1.2-18]
        raise malformed("CONNECT has bytes behind its last field")
    return Connect(version, client_id, flags & _CLEAN != 0, keep_alive_s, username, password, will, properties)


def without_password(body: bytes, packet: Connect) -> bytes:
    """Return `body` without its password, the last field of a CONNECT; `packet` was decoded from `body`."""
    if packet.password is None:
        return body
    flags = (len(_NAME) if packet.version != V31 else len(_NAME_V31)) + 1
    end = len(body) - len(packet.password) - 2
    return body[:flags] + bytes([body[flags] & ~_PASSWORD]) + body[flags + 1 : end]


def _version(body: bytes) -> tuple[int, int]:
    name, pos = read_binary(body, 0, len(body))
    if pos >= len(body):
        raise malformed("CONNECT ends before the protocol level")
    level = body[pos]
    # [MQTT-3.1.2-1] the name, [MQTT-3.1.2-2] the level; each name has its own levels.
    if (name == b"MQTT" and level in (V311, V5)) or (name == b"MQIsdp" and level == V31):
        return level, pos + 1
    raise MalformedPacket(UNSUPPORTED_PROTOCOL_VERSION, f"protocol {name[:16]!r} level {level} is not supported")


def _check_flags(flags: int, version: int) -> None:
    if flags & _PASSWORD != 0 and flags & _USERNAME == 0 and version != V5:
        # MQTT 3.1.1 [MQTT-3.1.2-22]; MQTT 5.0 allows it.
        raise malformed("a password without a user name")
    if flags & _WILL != 0 and flags & _WILL_QOS == _WILL_QOS:
        # [MQTT-3.1.2-12]
        raise malformed("the will has QoS 3")
    if version == V31:
        return
    if flags & _RESERVED != 0:
        # [MQTT-3.1.2-3]
        raise malformed("the reserved CONNECT flag is set")
    if flags & _WILL == 0 and flags & (_WILL_QOS | _WILL_RETAIN) != 0:
        # [MQTT-3.1.2-11] [MQTT-3.1.2-13]
        raise malformed("will QoS or will retain without a will")


def _will(body: bytes, pos: int, flags: int, version: int) -> tuple[Will, int]:
    end = len(body)
    properties: Properties | None = None
    # [MQTT-3.1.2-9] all three fields are there.
    if version == V5:
        properties, pos = decode_properties(body, pos, WILL)
    topic, pos = read_utf8(body, pos, end)  # [MQTT-3.1.3-11]
    payload, pos = read_binary(body, pos, end)
    if topic == b"":
        # [MQTT-4.7.3-1]
        raise MalformedPacket(TOPIC_NAME_INVALID, "the will topic is empty")
    if has_wildcard(topic):
        # [MQTT-4.7.0-1]
        raise MalformedPacket(TOPIC_NAME_INVALID, "the will topic contains a wildcard")
    return Will(topic, payload, (flags & _WILL_QOS) >> 3, flags & _WILL_RETAIN != 0, properties), pos
