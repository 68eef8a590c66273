"""Decoding of packets: all types, all three versions, both directions (MQTT 5.0 chapter 3).

Owns every rule that concerns one packet alone, and the reason code for breaking it. Does not know which side sent the
packet: the session checks, for example, that a client sends no CONNACK and no subscription identifier in a PUBLISH.
"""

from __future__ import annotations

from typing import Final

from folkmoot.mqtt.connect import connect_level, decode_connect
from folkmoot.mqtt.error import MalformedPacket, malformed, protocol_error
from folkmoot.mqtt.field import read_u16, read_utf8
from folkmoot.mqtt.kind import (
    AUTH,
    CONNACK,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBACK,
    UNSUBSCRIBE,
    V5,
    V31,
    kind_name,
)
from folkmoot.mqtt.packet import (
    Ack,
    Auth,
    Connack,
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
)
from folkmoot.mqtt.property_decode import decode_properties
from folkmoot.mqtt.reason import TOPIC_NAME_INVALID, V3_NOT_AUTHORIZED, allowed, name
from folkmoot.mqtt.text import check_utf8, has_wildcard

__all__ = ["connect_level", "decode", "decode_properties", "decode_publish"]

# Flags of the fixed header by packet type (table 2-2), except for PUBLISH.
_FLAGS: Final[bytes] = bytes([0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0])
_DUP: Final = 0x08

# Subscription options (section 3.8.3.1).
_OPTION_QOS: Final = 0x03
_OPTION_NO_LOCAL: Final = 0x04
_OPTION_RETAIN_HANDLING: Final = 0x30
_OPTION_RESERVED_V5: Final = 0xC0
_OPTION_RESERVED_V3: Final = 0xFC


def decode(first: int, body: bytes, version: int) -> Packet:
    """Return the packet with the fixed header byte `first` and the bytes `body` behind its remaining length.

    `version` is V31, V311 or V5; a CONNECT has its own. Raises MalformedPacket with the reason code.
    """
    kind = first >> 4
    if kind == PUBLISH:
        return decode_publish(first, body, version)
    if kind == CONNECT:
        connect = decode_connect(body)
        if connect.version != V31:
            # MQTT 3.1 section 3.1 does not use these flags in a CONNECT, and reserves none of them.
            _check_flags(first, connect.version)
        return connect
    _check_flags(first, version)
    if PUBACK <= kind <= PUBCOMP:
        return _decode_ack(kind, body, version)
    if kind in (PINGREQ, PINGRESP):
        if len(body) != 0:
            raise malformed(f"{kind_name(kind)} has a body")
        return Pingreq() if kind == PINGREQ else Pingresp()
    if kind == SUBSCRIBE:
        return _decode_subscribe(body, version)
    if kind == UNSUBSCRIBE:
        return _decode_unsubscribe(body, version)
    if kind == DISCONNECT:
        return _decode_disconnect(body, version)
    if kind == CONNACK:
        return _decode_connack(body, version)
    if kind == SUBACK:
        return _decode_suback(body, version)
    if kind == UNSUBACK:
        return _decode_unsuback(body, version)
    if kind == AUTH and version == V5:
        return _decode_auth(body)
    # Table 2-1: type 0 is forbidden, and so is type 15 before MQTT 5.0.
    raise malformed(f"packet type {kind} does not exist")


def decode_publish(first: int, body: bytes, version: int) -> Publish:
    """Return the PUBLISH of a fixed header byte and a body; raises MalformedPacket with the reason code.

    An empty topic is allowed only with a topic alias; the session checks whether the alias is known.
    """
    qos = first >> 1 & 3
    if qos == 3:
        # [MQTT-3.3.1-4]
        raise malformed("PUBLISH has QoS 3")
    end = len(body)
    if end < 2:
        raise malformed("PUBLISH has no topic")
    pos = 2 + (body[0] << 8 | body[1])
    if pos > end:
        raise malformed("the topic is longer than the packet")
    topic = body[2:pos]
    if not check_utf8(topic):
        # [MQTT-3.3.2-1] [MQTT-4.7.3-2]
        raise malformed("the topic is not legal UTF-8")
    if has_wildcard(topic):
        # [MQTT-3.3.2-2]
        raise MalformedPacket(TOPIC_NAME_INVALID, "the topic contains a wildcard")
    packet_id = 0
    if qos != 0:
        packet_id = _packet_id(body, pos)
        pos += 2
    elif first & _DUP != 0:
        # [MQTT-3.3.1-2]
        raise malformed("DUP is set on a PUBLISH with QoS 0")
    properties: Properties | None = None
    if version == V5:
        properties, pos = decode_properties(body, pos, PUBLISH)
    if len(topic) == 0:
        _check_empty_topic(properties, version)
    return Publish(topic, body[pos:], qos, first & 1 != 0, first & _DUP != 0, packet_id, properties)


def _check_empty_topic(properties: Properties | None, version: int) -> None:
    if version != V5:
        # MQTT 3.1.1 [MQTT-4.7.3-1]
        raise malformed("the topic is empty")
    if properties is None or properties.topic_alias is None:
        # Section 3.3.2.1.
        raise protocol_error("the topic is empty and there is no Topic Alias")


def _check_flags(first: int, version: int) -> None:
    kind = first >> 4
    flags = first & 15
    expected = _FLAGS[kind]
    if version == V31 and expected != 0:
        # MQTT 3.1 section 2.1: these packets have QoS 1 and may carry DUP.
        flags &= ~_DUP
    if flags != expected:
        # [MQTT-2.1.3-1] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-3.15.1-1]
        raise malformed(f"{kind_name(kind) if kind != 0 else 'packet type 0'} has wrong fixed header flags")


def _packet_id(body: bytes, pos: int) -> int:
    packet_id = read_u16(body, pos, len(body))
    if packet_id == 0:
        # [MQTT-2.2.1-3] [MQTT-2.2.1-4]
        raise protocol_error("the packet identifier is 0")
    return packet_id


def _check_code(kind: int, code: int) -> None:
    if not allowed(kind, code):
        # The byte can be parsed, but is not allowed here: a protocol error, not a malformed packet (section 1.2).
        raise protocol_error(f"{kind_name(kind)} must not have the reason code 0x{code:02X} ({name(code)})")


def _tail(body: bytes, pos: int, kind: int) -> Properties | None:
    # The properties, which must be the end of the packet.
    properties, pos = decode_properties(body, pos, kind)
    if pos != len(body):
        raise malformed(f"{kind_name(kind)} has bytes behind its properties")
    return properties


def _decode_ack(kind: int, body: bytes, version: int) -> Ack:
    packet_id = _packet_id(body, 0)
    size = len(body)
    if size == 2:
        return Ack(kind, packet_id)
    if version != V5:
        raise malformed(f"{kind_name(kind)} is longer than two bytes")
    # [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]
    code = body[2]
    _check_code(kind, code)
    if size == 3:
        # Sections 3.4.2.2.1 and following: below a remaining length of 4 there is no property length.
        return Ack(kind, packet_id, code)
    return Ack(kind, packet_id, code, _tail(body, 3, kind))


def _decode_connack(body: bytes, version: int) -> Connack:
    if len(body) < 2 or (version != V5 and len(body) != 2):
        raise malformed("CONNACK has a wrong length")
    # MQTT 3.1 does not use the first byte.
    flags = 0 if version == V31 else body[0]
    if flags > 1:
        # [MQTT-3.2.2-1]
        raise malformed("CONNACK has reserved flags")
    code = body[1]
    if version == V5:
        _check_code(CONNACK, code)  # [MQTT-3.2.2-8]
    elif code > V3_NOT_AUTHORIZED:
        raise protocol_error(f"CONNACK must not have the return code {code}")
    if flags != 0 and code != 0:
        # [MQTT-3.2.2-6]
        raise protocol_error("CONNACK refuses and has a session present")
    return Connack(flags != 0, code, _tail(body, 2, CONNACK) if version == V5 else None)


def _decode_subscribe(body: bytes, version: int) -> Subscribe:
    packet_id = _packet_id(body, 0)
    pos = 2
    properties: Properties | None = None
    if version == V5:
        properties, pos = decode_properties(body, pos, SUBSCRIBE)
    end = len(body)
    entries: list[tuple[bytes, int]] = []
    while pos < end:
        topic_filter, pos = _filter(body, pos)
        if pos >= end:
            raise malformed("a topic filter has no subscription options")
        options = body[pos]
        _check_options(options, topic_filter, version)
        entries.append((topic_filter, options))
        pos += 1
    if len(entries) == 0:
        # [MQTT-3.8.3-2]
        raise protocol_error("SUBSCRIBE has no topic filter")
    return Subscribe(packet_id, entries, properties)


def _check_options(options: int, topic_filter: bytes, version: int) -> None:
    qos = options & _OPTION_QOS
    if version != V5:
        if options & _OPTION_RESERVED_V3 != 0 or qos == 3:
            # MQTT 3.1.1 [MQTT-3.8.3-4]
            raise malformed(f"subscription options 0x{options:02X}")
        return
    if options & _OPTION_RESERVED_V5 != 0:
        # [MQTT-3.8.3-5]
        raise malformed(f"subscription options 0x{options:02X} use reserved bits")
    if qos == 3:
        # Section 3.8.3.1.
        raise protocol_error("a subscription asks for QoS 3")
    if options & _OPTION_RETAIN_HANDLING == _OPTION_RETAIN_HANDLING:
        # Section 3.8.3.1.
        raise protocol_error("a subscription has Retain Handling 3")
    if options & _OPTION_NO_LOCAL != 0 and topic_filter.startswith(b"$share/"):
        # [MQTT-3.8.3-4]
        raise protocol_error("No Local is set on a shared subscription")


def _filter(body: bytes, pos: int) -> tuple[bytes, int]:
    topic_filter, pos = read_utf8(body, pos, len(body))  # [MQTT-3.8.3-1] [MQTT-3.10.3-1]
    if topic_filter == b"":
        # [MQTT-4.7.3-1]
        raise malformed("a topic filter is empty")
    return topic_filter, pos


def _decode_unsubscribe(body: bytes, version: int) -> Unsubscribe:
    packet_id = _packet_id(body, 0)
    pos = 2
    properties: Properties | None = None
    if version == V5:
        properties, pos = decode_properties(body, pos, UNSUBSCRIBE)
    filters: list[bytes] = []
    while pos < len(body):
        topic_filter, pos = _filter(body, pos)
        filters.append(topic_filter)
    if len(filters) == 0:
        # [MQTT-3.10.3-2]
        raise protocol_error("UNSUBSCRIBE has no topic filter")
    return Unsubscribe(packet_id, filters, properties)


def _codes(body: bytes, pos: int, kind: int) -> list[int]:
    codes: list[int] = list(body[pos:])
    if len(codes) == 0:
        # One code per filter, of which there is at least one [MQTT-3.8.4-6].
        raise protocol_error(f"{kind_name(kind)} has no reason code")
    for code in codes:
        _check_code(kind, code)
    return codes


def _decode_suback(body: bytes, version: int) -> Suback:
    packet_id = _packet_id(body, 0)
    if version == V5:
        properties, pos = decode_properties(body, 2, SUBACK)
        return Suback(packet_id, _codes(body, pos, SUBACK), properties)  # [MQTT-3.9.3-2]
    codes = _codes(body, 2, SUBACK)
    for code in codes:
        if code > 2 and code != 0x80:
            # MQTT 3.1.1 [MQTT-3.9.3-2]
            raise protocol_error(f"SUBACK must not have the return code 0x{code:02X}")
    return Suback(packet_id, codes)


def _decode_unsuback(body: bytes, version: int) -> Unsuback:
    packet_id = _packet_id(body, 0)
    if version == V5:
        properties, pos = decode_properties(body, 2, UNSUBACK)
        return Unsuback(packet_id, _codes(body, pos, UNSUBACK), properties)  # [MQTT-3.11.3-2]
    if len(body) != 2:
        raise malformed("UNSUBACK is longer than two bytes")
    return Unsuback(packet_id, [])


def _decode_disconnect(body: bytes, version: int) -> Disconnect:
    size = len(body)
    if size == 0:
        # Section 3.14.2.1: no reason code is Normal disconnection.
        return Disconnect()
    if version != V5:
        raise malformed("DISCONNECT has a body")
    code = body[0]
    _check_code(DISCONNECT, code)  # [MQTT-3.14.2-1]
    if size == 1:
        # Section 3.14.2.2.1: below a remaining length of 2 there is no property length.
        return Disconnect(code)
    return Disconnect(code, _tail(body, 1, DISCONNECT))


def _decode_auth(body: bytes) -> Auth:
    if len(body) == 0:
        # Section 3.15.2.1: success without properties.
        return Auth()
    code = body[0]
    _check_code(AUTH, code)  # [MQTT-3.15.2-1]
    properties = _tail(body, 1, AUTH)
    if properties is None or properties.auth_method is None:
        # Section 3.15.2.2.2.
        raise protocol_error("AUTH has no Authentication Method")
    return Auth(code, properties)
