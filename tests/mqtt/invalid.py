"""Packets that end the connection, by the rule that they break.

Codes: 0x81 where the bytes cannot be parsed as the specification says, 0x82 where they can but say what the protocol
does not allow (MQTT 5.0 section 1.2), and the special codes where the specification has one. For MQTT 3.x the code
never leaves the server: it closes.
"""

from __future__ import annotations

from folkmoot.mqtt.packet import V5, V31, V311
from tests.mqtt.case import ID, KEEP, USER, V3_NAME, V4, V5_NAME, Invalid, field, packet, section

__all__ = ["INVALID"]

C = field(b"c")
A = field(b"a")

CONNECT = [
    Invalid("connect, nothing", V311, packet(0x10), 0x81),
    Invalid("connect, name cut", V311, packet(0x10, b"\x00\x04MQ"), 0x81),
    Invalid("connect, no level", V311, packet(0x10, b"\x00\x04MQTT"), 0x81),
    Invalid("connect, no flags", V311, packet(0x10, V4), 0x81),
    Invalid("connect, keep alive cut", V311, packet(0x10, V4, b"\x02\x00"), 0x81),
    Invalid("connect, no client id", V311, packet(0x10, V4, b"\x02", KEEP), 0x81),
    Invalid("connect, client id cut", V311, packet(0x10, V4, b"\x02", KEEP, b"\x00\x02c"), 0x81),
    Invalid("connect, fixed header flags", V311, packet(0x11, V4, b"\x02", KEEP, C), 0x81),
    Invalid("connect, fixed header flags, 5.0", V5, packet(0x11, V5_NAME, b"\x02", KEEP, b"\x00", C), 0x81),
    Invalid("connect, other protocol", V311, packet(0x10, b"\x00\x04AMQP\x04\x02", KEEP, C), 0x84),
    Invalid("connect, name in lower case", V311, packet(0x10, b"\x00\x04mqtt\x04\x02", KEEP, C), 0x84),
    Invalid("connect, level 6 [MQTT-3.1.2-2]", V5, packet(0x10, b"\x00\x04MQTT\x06\x02", KEEP, b"\x00", C), 0x84),
    Invalid("connect, level 3 with the new name", V31, packet(0x10, b"\x00\x04MQTT\x03\x02", KEEP, C), 0x84),
    Invalid("connect, level 4 with the old name", V31, packet(0x10, b"\x00\x06MQIsdp\x04\x02", KEEP, C), 0x84),
    Invalid("connect, reserved flag, 3.1.1", V311, packet(0x10, V4, b"\x03", KEEP, C), 0x81),
    Invalid("connect, reserved flag [MQTT-3.1.2-3]", V5, packet(0x10, V5_NAME, b"\x03", KEEP, b"\x00", C), 0x81),
    Invalid("connect, will QoS 3, 3.1", V31, packet(0x10, V3_NAME, b"\x1e", KEEP, C, A, A), 0x81),
    Invalid(
        "connect, will QoS 3 [MQTT-3.1.2-12]", V5, packet(0x10, V5_NAME, b"\x1e", KEEP, b"\x00", C, b"\x00", A, A), 0x81
    ),
    Invalid("connect, QoS without will [MQTT-3.1.2-11]", V5, packet(0x10, V5_NAME, b"\x0a", KEEP, b"\x00", C), 0x81),
    Invalid("connect, retain without will [MQTT-3.1.2-13]", V311, packet(0x10, V4, b"\x22", KEEP, C), 0x81),
    Invalid("connect, password without user name, 3.1.1", V311, packet(0x10, V4, b"\x42", KEEP, C, A), 0x81),
    Invalid("connect, will missing [MQTT-3.1.2-9]", V311, packet(0x10, V4, b"\x06", KEEP, C), 0x81),
    Invalid("connect, will payload missing", V311, packet(0x10, V4, b"\x06", KEEP, C, A), 0x81),
    Invalid("connect, user name missing [MQTT-3.1.2-17]", V311, packet(0x10, V4, b"\x82", KEEP, C), 0x81),
    Invalid("connect, password missing [MQTT-3.1.2-19]", V311, packet(0x10, V4, b"\xc2", KEEP, C, A), 0x81),
    Invalid("connect, user name not flagged [MQTT-3.1.2-16]", V311, packet(0x10, V4, b"\x02", KEEP, C, A), 0x81),
    Invalid("connect, trailing byte, 3.1", V31, packet(0x10, V3_NAME, b"\x02", KEEP, C, b"\x00"), 0x81),
    Invalid("connect, client id not UTF-8", V311, packet(0x10, V4, b"\x02", KEEP, field(b"\xc3")), 0x81),
    Invalid("connect, client id with U+0000", V311, packet(0x10, V4, b"\x02", KEEP, field(b"a\x00")), 0x81),
    Invalid("connect, user name surrogate", V311, packet(0x10, V4, b"\x82", KEEP, C, field(b"\xed\xa0\x80")), 0x81),
    Invalid("connect, will topic not UTF-8", V311, packet(0x10, V4, b"\x06", KEEP, C, field(b"\xff"), A), 0x81),
    Invalid(
        "connect, will topic with wildcard",
        V5,
        packet(0x10, V5_NAME, b"\x06", KEEP, b"\x00", C, b"\x00", field(b"a/#"), A),
        0x90,
    ),
    Invalid(
        "connect, will topic empty", V5, packet(0x10, V5_NAME, b"\x06", KEEP, b"\x00", C, b"\x00", field(b""), A), 0x90
    ),
    Invalid("connect, no properties", V5, packet(0x10, V5_NAME, b"\x02", KEEP), 0x81),
    Invalid(
        "connect, authentication data without method",
        V5,
        packet(0x10, V5_NAME, b"\x02", KEEP, section(b"\x16" + A), C),
        0x82,
    ),
    Invalid(
        "connect, will delay outside the will",
        V5,
        packet(0x10, V5_NAME, b"\x02", KEEP, section(b"\x18\x00\x00\x00\x01"), C),
        0x81,
    ),
    Invalid(
        "connect, session expiry inside the will",
        V5,
        packet(0x10, V5_NAME, b"\x06", KEEP, b"\x00", C, section(b"\x11\x00\x00\x00\x01"), A, A),
        0x81,
    ),
    Invalid("connect, receive maximum 0", V5, packet(0x10, V5_NAME, b"\x02", KEEP, section(b"\x21\x00\x00"), C), 0x82),
    Invalid(
        "connect, maximum packet size 0",
        V5,
        packet(0x10, V5_NAME, b"\x02", KEEP, section(b"\x27\x00\x00\x00\x00"), C),
        0x82,
    ),
    Invalid(
        "connect, request problem information 2",
        V5,
        packet(0x10, V5_NAME, b"\x02", KEEP, section(b"\x17\x02"), C),
        0x82,
    ),
]

CONNACK = [
    Invalid("connack, one byte", V311, b"\x20\x01\x00", 0x81),
    Invalid("connack, three bytes, 3.1.1", V311, b"\x20\x03\x00\x00\x00", 0x81),
    Invalid("connack, no properties, 5", V5, b"\x20\x02\x00\x00", 0x81),
    Invalid("connack, reserved flags [MQTT-3.2.2-1]", V5, b"\x20\x03\x02\x00\x00", 0x81),
    Invalid("connack, refused with session [MQTT-3.2.2-6]", V5, b"\x20\x03\x01\x87\x00", 0x82),
    Invalid("connack, code of another packet [MQTT-3.2.2-8]", V5, b"\x20\x03\x00\x8e\x00", 0x82),
    Invalid("connack, return code 6", V311, b"\x20\x02\x00\x06", 0x82),
    Invalid("connack, trailing byte", V5, b"\x20\x04\x00\x00\x00\x00", 0x81),
    Invalid("connack, fixed header flags", V5, b"\x21\x03\x00\x00\x00", 0x81),
    Invalid("connack, maximum QoS 2", V5, packet(0x20, b"\x00\x00", section(b"\x24\x02")), 0x82),
    Invalid("connack, retain available 2", V5, packet(0x20, b"\x00\x00", section(b"\x25\x02")), 0x82),
]

PUBLISH = [
    Invalid("publish, nothing", V311, packet(0x30), 0x81),
    Invalid("publish, topic cut", V311, packet(0x30, b"\x00\x02a"), 0x81),
    Invalid("publish, QoS 3 [MQTT-3.3.1-4]", V5, packet(0x36, A, ID, b"\x00"), 0x81),
    Invalid("publish, dup with QoS 0 [MQTT-3.3.1-2]", V5, packet(0x38, A, b"\x00"), 0x81),
    Invalid("publish, packet id 0 [MQTT-2.2.1-3]", V5, packet(0x32, A, b"\x00\x00\x00"), 0x82),
    Invalid("publish, packet id 0, 3.1.1", V311, packet(0x34, A, b"\x00\x00"), 0x82),
    Invalid("publish, packet id cut", V311, packet(0x32, A, b"\x01"), 0x81),
    Invalid("publish, wildcard + [MQTT-3.3.2-2]", V5, packet(0x30, field(b"a/+"), b"\x00"), 0x90),
    Invalid("publish, wildcard #", V311, packet(0x30, field(b"#")), 0x90),
    Invalid("publish, topic not UTF-8 [MQTT-3.3.2-1]", V5, packet(0x30, field(b"a\x80"), b"\x00"), 0x81),
    Invalid("publish, topic overlong UTF-8", V5, packet(0x30, field(b"\xc0\xaf"), b"\x00"), 0x81),
    Invalid("publish, topic above U+10FFFF", V5, packet(0x30, field(b"\xf4\x90\x80\x80"), b"\x00"), 0x81),
    Invalid("publish, topic with U+0000 [MQTT-4.7.3-2]", V5, packet(0x30, field(b"a\x00b"), b"\x00"), 0x81),
    Invalid("publish, topic empty, 3.1.1 [MQTT-4.7.3-1]", V311, packet(0x30, field(b"")), 0x81),
    Invalid("publish, topic empty without alias", V5, packet(0x30, field(b""), b"\x00"), 0x82),
    Invalid("publish, alias 0 [MQTT-3.3.2-8]", V5, packet(0x30, A, section(b"\x23\x00\x00")), 0x94),
    Invalid("publish, no properties", V5, packet(0x30, A), 0x81),
    Invalid("publish, properties cut", V5, packet(0x30, A, b"\x05\x01\x00"), 0x81),
    Invalid("publish, property length not minimal", V5, packet(0x30, A, b"\x80\x00"), 0x81),
    Invalid("publish, unknown property", V5, packet(0x30, A, section(b"\x04\x00")), 0x81),
    Invalid("publish, property of the highest byte", V5, packet(0x30, A, section(b"\x7f\x00")), 0x81),
    Invalid("publish, identifier not minimal", V5, packet(0x30, A, section(b"\x81\x00\x00")), 0x81),
    Invalid("publish, property of CONNECT", V5, packet(0x30, A, section(b"\x21\x00\x01")), 0x81),
    Invalid("publish, format twice", V5, packet(0x30, A, section(b"\x01\x00\x01\x00")), 0x82),
    Invalid("publish, content type twice", V5, packet(0x30, A, section((b"\x03" + A) * 2)), 0x82),
    Invalid("publish, format 2", V5, packet(0x30, A, section(b"\x01\x02")), 0x82),
    Invalid("publish, format without value", V5, packet(0x30, A, section(b"\x01")), 0x81),
    Invalid("publish, expiry crosses the section", V5, packet(0x30, A, b"\x03\x02\x00\x00", b"\x00\x01x"), 0x81),
    Invalid("publish, text crosses the section", V5, packet(0x30, A, b"\x04\x03\x00\x05a", b"bcde"), 0x81),
    Invalid("publish, user property cut", V5, packet(0x30, A, section(b"\x26" + A)), 0x81),
    Invalid("publish, user property not UTF-8", V5, packet(0x30, A, section(b"\x26" + A + field(b"\xff"))), 0x81),
    Invalid("publish, content type not UTF-8", V5, packet(0x30, A, section(b"\x03" + field(b"\xff"))), 0x81),
    Invalid("publish, response topic with #", V5, packet(0x30, A, section(b"\x08" + field(b"r/#"))), 0x82),
    Invalid("publish, response topic empty", V5, packet(0x30, A, section(b"\x08" + field(b""))), 0x82),
    Invalid("publish, response topic with U+0000", V5, packet(0x30, A, section(b"\x08" + field(b"\x00"))), 0x81),
    Invalid("publish, subscription id 0", V5, packet(0x30, A, section(b"\x0b\x00")), 0x82),
    Invalid("publish, subscription id of five bytes", V5, packet(0x30, A, section(b"\x0b\x80\x80\x80\x80\x01")), 0x81),
    Invalid("publish, subscription id crosses the section", V5, packet(0x30, A, b"\x02\x0b\x80", b"\x01"), 0x81),
]


def _ack_cases() -> list[Invalid]:
    cases = []
    for first, code in [(0x40, 0x92), (0x50, 0x92), (0x62, 0x10), (0x70, 0x91)]:
        name = f"ack {first >> 4}"
        cases += [
            Invalid(f"{name}, nothing", V311, packet(first), 0x81),
            Invalid(f"{name}, one byte", V5, packet(first, b"\x01"), 0x81),
            Invalid(f"{name}, packet id 0", V5, packet(first, b"\x00\x00"), 0x82),
            Invalid(f"{name}, three bytes, 3.1.1", V311, packet(first, ID, b"\x00"), 0x81),
            Invalid(f"{name}, code of another packet", V5, packet(first, ID, bytes([code])), 0x82),
            Invalid(f"{name}, trailing byte", V5, packet(first, ID, b"\x00\x00\x00"), 0x81),
            Invalid(f"{name}, flags", V5, packet(first ^ 1, ID), 0x81),
            Invalid(f"{name}, property", V5, packet(first, ID, b"\x00", section(b"\x01\x00")), 0x81),
            Invalid(f"{name}, reason twice", V5, packet(first, ID, b"\x00", section((b"\x1f" + A) * 2)), 0x82),
        ]
    return [
        *cases,
        Invalid("pubrel, no flags [MQTT-3.6.1-1]", V311, packet(0x60, ID), 0x81),
        Invalid("pubrel, dup, 3.1.1", V311, packet(0x6A, ID), 0x81),
        Invalid("puback, dup, 3.1", V31, packet(0x48, ID), 0x81),
    ]


SUBSCRIBE = [
    Invalid("subscribe, nothing", V311, packet(0x82), 0x81),
    Invalid("subscribe, no flags [MQTT-3.8.1-1]", V5, packet(0x80, ID, b"\x00", A, b"\x00"), 0x81),
    Invalid("subscribe, packet id 0", V5, packet(0x82, b"\x00\x00\x00", A, b"\x00"), 0x82),
    Invalid("subscribe, no filter [MQTT-3.8.3-2]", V5, packet(0x82, ID, b"\x00"), 0x82),
    Invalid("subscribe, no filter, 3.1.1", V311, packet(0x82, ID), 0x82),
    Invalid("subscribe, no options", V311, packet(0x82, ID, A), 0x81),
    Invalid("subscribe, filter cut", V311, packet(0x82, ID, b"\x00\x05a"), 0x81),
    Invalid("subscribe, filter empty", V5, packet(0x82, ID, b"\x00", field(b""), b"\x00"), 0x81),
    Invalid("subscribe, filter not UTF-8", V5, packet(0x82, ID, b"\x00", field(b"\xff"), b"\x00"), 0x81),
    Invalid("subscribe, second filter bad", V5, packet(0x82, ID, b"\x00", A, b"\x00", field(b"\x00"), b"\x00"), 0x81),
    Invalid("subscribe, reserved bits [MQTT-3.8.3-5]", V5, packet(0x82, ID, b"\x00", A, b"\x40"), 0x81),
    Invalid("subscribe, QoS 3", V5, packet(0x82, ID, b"\x00", A, b"\x03"), 0x82),
    Invalid("subscribe, retain handling 3", V5, packet(0x82, ID, b"\x00", A, b"\x30"), 0x82),
    Invalid("subscribe, QoS 3, 3.1.1", V311, packet(0x82, ID, A, b"\x03"), 0x81),
    Invalid("subscribe, no local, 3.1.1", V311, packet(0x82, ID, A, b"\x04"), 0x81),
    Invalid("subscribe, shared no local", V5, packet(0x82, ID, b"\x00", field(b"$share/g/a"), b"\x04"), 0x82),
    Invalid("subscribe, two subscription ids", V5, packet(0x82, ID, section(b"\x0b\x01\x0b\x02"), A, b"\x00"), 0x82),
    Invalid("subscribe, subscription id 0", V5, packet(0x82, ID, section(b"\x0b\x00"), A, b"\x00"), 0x82),
    Invalid("suback, no code", V311, packet(0x90, ID), 0x82),
    Invalid("suback, no code, 5", V5, packet(0x90, ID, b"\x00"), 0x82),
    Invalid("suback, code 3", V311, packet(0x90, ID, b"\x03"), 0x82),
    Invalid("suback, code of 5 in 3.1.1", V311, packet(0x90, ID, b"\x87"), 0x82),
    Invalid("suback, code of another packet [MQTT-3.9.3-2]", V5, packet(0x90, ID, b"\x00\x00\x11"), 0x82),
    Invalid("suback, packet id 0", V311, packet(0x90, b"\x00\x00\x00"), 0x82),
    Invalid("unsubscribe, no flags [MQTT-3.10.1-1]", V311, packet(0xA0, ID, A), 0x81),
    Invalid("unsubscribe, packet id 0", V311, packet(0xA2, b"\x00\x00", A), 0x82),
    Invalid("unsubscribe, no filter [MQTT-3.10.3-2]", V5, packet(0xA2, ID, b"\x00"), 0x82),
    Invalid("unsubscribe, filter cut", V311, packet(0xA2, ID, b"\x00"), 0x81),
    Invalid("unsubscribe, filter not UTF-8 [MQTT-3.10.3-1]", V5, packet(0xA2, ID, b"\x00", field(b"\xc1")), 0x81),
    Invalid("unsubscribe, reason string", V5, packet(0xA2, ID, section(b"\x1f" + A), A), 0x81),
    Invalid("unsuback, code in 3.1.1", V311, packet(0xB0, ID, b"\x00"), 0x81),
    Invalid("unsuback, no code, 5", V5, packet(0xB0, ID, b"\x00"), 0x82),
    Invalid("unsuback, code of another packet [MQTT-3.11.3-2]", V5, packet(0xB0, ID, b"\x00\x01"), 0x82),
]

OTHER = [
    Invalid("type 0", V5, b"\x00\x00", 0x81),
    Invalid("type 0 with flags", V311, b"\x0f\x00", 0x81),
    Invalid("type 15 in 3.1.1", V311, b"\xf0\x00", 0x81),
    Invalid("pingreq, body", V5, b"\xc0\x01\x00", 0x81),
    Invalid("pingreq, flags", V311, b"\xc1\x00", 0x81),
    Invalid("pingresp, body", V311, b"\xd0\x01\x00", 0x81),
    Invalid("disconnect, flags [MQTT-3.14.1-1]", V5, b"\xe1\x00", 0x81),
    Invalid("disconnect, body in 3.1.1", V311, b"\xe0\x01\x00", 0x81),
    Invalid("disconnect, code of another packet [MQTT-3.14.2-1]", V5, b"\xe0\x01\x10", 0x82),
    Invalid("disconnect, trailing byte", V5, b"\xe0\x03\x00\x00\x00", 0x81),
    Invalid("disconnect, expiry twice", V5, packet(0xE0, b"\x00", section(b"\x11\x00\x00\x00\x01" * 2)), 0x82),
    Invalid("auth, flags [MQTT-3.15.1-1]", V5, b"\xf1\x00", 0x81),
    Invalid("auth, code alone", V5, b"\xf0\x01\x18", 0x81),
    Invalid("auth, code of another packet [MQTT-3.15.2-1]", V5, packet(0xF0, b"\x80", section(b"\x15" + A)), 0x82),
    Invalid("auth, no method", V5, packet(0xF0, b"\x18", section(USER)), 0x82),
    Invalid("auth, data without method", V5, packet(0xF0, b"\x18", section(b"\x16" + A)), 0x82),
    Invalid("auth, trailing byte", V5, packet(0xF0, b"\x18", section(b"\x15" + A), b"\x00"), 0x81),
]

INVALID: list[Invalid] = [*CONNECT, *CONNACK, *PUBLISH, *_ack_cases(), *SUBSCRIBE, *OTHER]
