"""Legal packets of all types and versions, with every property that they may hold."""

from __future__ import annotations

from folkmoot.mqtt.packet import (
    V5,
    V31,
    V311,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.mqtt.case import ID, KEEP, PAIR, USER, V3_NAME, V4, V5_NAME, Valid, field, packet, properties, section


def _connect_cases() -> list[Valid]:
    will5 = Will(b"w", b"bye", 2, True, properties(payload_format=1, will_delay=5, user_properties=PAIR))
    will_section = section(b"\x01\x01", b"\x18\x00\x00\x00\x05", USER)
    everything = section(
        b"\x11\x00\x00\x00\x0a",
        b"\x15" + field(b"SCRAM"),
        b"\x16" + field(b"\x00\xff"),
        b"\x17\x00",
        b"\x19\x01",
        b"\x21\x00\x14",
        b"\x22\x00\x0a",
        USER,
        b"\x27\x00\x01\x00\x00",
    )
    connect_properties = properties(
        session_expiry=10,
        auth_method="SCRAM",
        auth_data=b"\x00\xff",
        request_problem=0,
        request_response=1,
        receive_max=20,
        topic_alias_max=10,
        user_properties=PAIR,
        packet_max=65_536,
    )
    return [
        Valid("connect 3.1", V31, packet(0x10, V3_NAME, b"\x02", KEEP, field(b"c")), Connect(V31, "c", True, 60)),
        Valid(
            "connect 3.1, fixed header flags",
            V31,
            packet(0x1F, V3_NAME, b"\x02", KEEP, field(b"c")),
            Connect(V31, "c", True, 60),
            canonical=False,
        ),
        Valid(
            "connect 3.1, flags of user name and password but no fields",
            V31,
            packet(0x10, V3_NAME, b"\xc2", KEEP, field(b"c")),
            Connect(V31, "c", True, 60),
            canonical=False,
        ),
        Valid(
            "connect 3.1, unused bits set",
            V31,
            packet(0x10, V3_NAME, b"\x3b", KEEP, field(b"c")),
            Connect(V31, "c", True, 60),
            canonical=False,
        ),
        Valid("connect 3.1.1", V311, packet(0x10, V4, b"\x00", KEEP, field(b"c")), Connect(V311, "c", False, 60)),
        Valid("connect 3.1.1, no client id", V311, packet(0x10, V4, b"\x02\x00\x00\x00\x00"), Connect(V311, "")),
        Valid(
            "connect 3.1.1, all fields",
            V311,
            packet(0x10, V4, b"\xee", KEEP, field(b"c"), field(b"w/t"), field(b""), field(b"u"), field(b"\x00\x01")),
            Connect(V311, "c", True, 60, "u", b"\x00\x01", Will(b"w/t", b"", 1, True)),
        ),
        Valid(
            "connect 3.1.1, user name without password",
            V311,
            packet(0x10, V4, b"\x82", KEEP, field(b"c"), field(b"")),
            Connect(V311, "c", True, 60, ""),
        ),
        Valid("connect 5", V5, packet(0x10, V5_NAME, b"\x02", KEEP, b"\x00", field(b"c")), Connect(V5, "c", True, 60)),
        Valid(
            "connect 5, password without user name",
            V5,
            packet(0x10, V5_NAME, b"\x40\x00\x00\x00", field(b""), field(b"pw")),
            Connect(V5, "", False, 0, None, b"pw"),
        ),
        Valid(
            "connect 5, every property",
            V5,
            packet(0x10, V5_NAME, b"\x02", KEEP, everything, field(b"c")),
            Connect(V5, "c", True, 60, properties=connect_properties),
        ),
        Valid(
            "connect 5, will with properties",
            V5,
            packet(0x10, V5_NAME, b"\x36", KEEP, b"\x00", field(b"c"), will_section, field(b"w"), field(b"bye")),
            Connect(V5, "c", True, 60, will=will5),
        ),
        Valid(
            "connect 5, byte order mark kept [MQTT-1.5.4-3]",
            V5,
            packet(0x10, V5_NAME, b"\x02", KEEP, b"\x00", field(b"\xef\xbb\xbfc")),
            Connect(V5, "\ufeffc", True, 60),
        ),
    ]


def _connack_cases() -> list[Valid]:
    data = section(
        b"\x11\xff\xff\xff\xff",
        b"\x12" + field(b"id"),
        b"\x13\x00\x1e",
        b"\x1a" + field(b"r/"),
        b"\x1c" + field(b"o"),
        b"\x1f" + field(b"why"),
        b"\x21\xff\xff",
        b"\x22\x00\x00",
        b"\x24\x01",
        b"\x25\x00",
        USER,
        b"\x27\x00\x00\x00\x01",
        b"\x28\x00",
        b"\x29\x00",
        b"\x2a\x01",
    )
    every = properties(
        session_expiry=0xFFFF_FFFF,
        assigned_client_id="id",
        server_keep_alive=30,
        response_info="r/",
        server_reference="o",
        reason="why",
        receive_max=65_535,
        topic_alias_max=0,
        max_qos=1,
        retain_available=0,
        user_properties=PAIR,
        packet_max=1,
        wildcard_available=0,
        subscription_ids_available=0,
        shared_available=1,
    )
    return [
        Valid("connack 3.1", V31, b"\x20\x02\x00\x00", Connack(False, 0)),
        Valid("connack 3.1, unused byte set", V31, b"\x20\x02\x07\x02", Connack(False, 2), canonical=False),
        Valid("connack 3.1.1, session present", V311, b"\x20\x02\x01\x00", Connack(True, 0)),
        Valid("connack 3.1.1, refused", V311, b"\x20\x02\x00\x05", Connack(False, 5)),
        Valid("connack 5", V5, b"\x20\x03\x01\x00\x00", Connack(True, 0)),
        Valid("connack 5, unsupported version", V5, b"\x20\x03\x00\x84\x00", Connack(False, 0x84)),
        Valid("connack 5, every property", V5, packet(0x20, b"\x00\x00", data), Connack(False, 0, every)),
    ]


def _publish_cases() -> list[Valid]:
    data = section(
        b"\x01\x01",
        b"\x02\x00\x00\x00\x0a",
        b"\x03" + field(b"x/y"),
        b"\x08" + field(b"r"),
        b"\x09" + field(b"\x00"),
        b"\x0b\x01",
        b"\x0b\xff\xff\xff\x7f",
        b"\x23\x00\x01",
        USER,
        b"\x26" + field(b"") + field(b""),
    )
    every = properties(
        payload_format=1,
        message_expiry=10,
        content_type="x/y",
        response_topic=b"r",
        correlation_data=b"\x00",
        subscription_ids=[1, 268_435_455],
        topic_alias=1,
        user_properties=[("k", "v"), ("", "")],
    )
    shuffled = section(USER, b"\x02\x00\x00\x00\x0a", b"\x01\x00")
    some = properties(payload_format=0, message_expiry=10, user_properties=PAIR)
    return [
        Valid("publish qos 0", V311, packet(0x30, field(b"a/b"), b"hi"), Publish(b"a/b", b"hi")),
        Valid("publish qos 0, 3.1", V31, packet(0x30, field(b"a/b"), b"hi"), Publish(b"a/b", b"hi")),
        Valid("publish no payload", V311, packet(0x31, field(b"a")), Publish(b"a", b"", retain=True)),
        Valid("publish qos 1", V311, packet(0x32, field(b"a"), ID, b"\x00"), Publish(b"a", b"\x00", 1, packet_id=258)),
        Valid(
            "publish qos 2, dup and retain",
            V311,
            packet(0x3D, field(b"/"), b"\xff\xff"),
            Publish(b"/", b"", 2, True, True, 65_535),
        ),
        Valid("publish 5", V5, packet(0x30, field(b"a"), b"\x00", b"hi"), Publish(b"a", b"hi")),
        Valid(
            "publish 5, every property",
            V5,
            packet(0x32, field(b"a"), ID, data, b"hi"),
            Publish(b"a", b"hi", 1, packet_id=258, properties=every),
        ),
        Valid(
            "publish 5, properties in another order",
            V5,
            packet(0x30, field(b"a"), shuffled),
            Publish(b"a", b"", properties=some),
            canonical=False,
        ),
        Valid(
            "publish 5, alias alone",
            V5,
            packet(0x30, field(b""), section(b"\x23\x00\x09"), b"hi"),
            Publish(b"", b"hi", properties=properties(topic_alias=9)),
        ),
        Valid(
            "publish, topic not ASCII",
            V311,
            packet(0x30, field("mööt/日本/🗳".encode())),
            Publish("mööt/日本/🗳".encode(), b""),
        ),
    ]


def _ack_cases() -> list[Valid]:
    cases = []
    for first, kind, code in [(0x40, 4, 0x10), (0x50, 5, 0x97), (0x62, 6, 0x92), (0x70, 7, 0x92)]:
        reason = section(b"\x1f" + field(b"why"), USER)
        said = properties(reason="why", user_properties=PAIR)
        cases += [
            Valid(f"ack {kind}", V311, packet(first, ID), Ack(kind, 258)),
            Valid(f"ack {kind}, 5", V5, packet(first, ID), Ack(kind, 258)),
            Valid(f"ack {kind}, 5, success said", V5, packet(first, ID, b"\x00"), Ack(kind, 258), canonical=False),
            Valid(
                f"ack {kind}, 5, no properties said",
                V5,
                packet(first, ID, b"\x00\x00"),
                Ack(kind, 258),
                canonical=False,
            ),
            Valid(f"ack {kind}, 5, code", V5, packet(first, ID, bytes([code])), Ack(kind, 258, code)),
            Valid(f"ack {kind}, 5, all", V5, packet(first, ID, bytes([code]), reason), Ack(kind, 258, code, said)),
        ]
    return [*cases, Valid("pubrel 3.1 with dup", V31, packet(0x6A, ID), Ack(6, 258), canonical=False)]


def _subscribe_cases() -> list[Valid]:
    user = properties(user_properties=PAIR)
    said = properties(reason="why", user_properties=PAIR)
    reason = section(b"\x1f" + field(b"why"), USER)
    return [
        Valid(
            "subscribe",
            V311,
            packet(0x82, ID, field(b"a/#"), b"\x01", field(b"+"), b"\x02"),
            Subscribe(258, [(b"a/#", 1), (b"+", 2)]),
        ),
        Valid(
            "subscribe 3.1 with dup",
            V31,
            packet(0x8A, ID, field(b"a"), b"\x00"),
            Subscribe(258, [(b"a", 0)]),
            canonical=False,
        ),
        Valid("subscribe 5", V5, packet(0x82, ID, b"\x00", field(b"a"), b"\x2e"), Subscribe(258, [(b"a", 0x2E)])),
        Valid(
            "subscribe 5, properties",
            V5,
            packet(0x82, ID, section(b"\x0b\x80\x01", USER), field(b"$share/g/a"), b"\x01"),
            Subscribe(258, [(b"$share/g/a", 1)], properties(subscription_ids=[128], user_properties=PAIR)),
        ),
        Valid("suback", V311, packet(0x90, ID, b"\x00\x01\x02\x80"), Suback(258, [0, 1, 2, 0x80])),
        Valid(
            "suback 5",
            V5,
            packet(0x90, ID, reason, b"\x02\x80\x83\x87\x8f\x91\x97\x9e\xa1\xa2"),
            Suback(258, [2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2], said),
        ),
        Valid("unsubscribe", V311, packet(0xA2, ID, field(b"a"), field(b"b")), Unsubscribe(258, [b"a", b"b"])),
        Valid(
            "unsubscribe 5",
            V5,
            packet(0xA2, ID, section(USER), field(b"a")),
            Unsubscribe(258, [b"a"], user),
        ),
        Valid("unsuback", V311, packet(0xB0, ID), Unsuback(258, [])),
        Valid(
            "unsuback 5",
            V5,
            packet(0xB0, ID, reason, b"\x00\x11\x80\x83\x87\x8f\x91"),
            Unsuback(258, [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91], said),
        ),
    ]


def _other_cases() -> list[Valid]:
    leave = section(b"\x11\x00\x00\x00\x00", b"\x1c" + field(b"o"), b"\x1f" + field(b"why"), USER)
    leaving = properties(session_expiry=0, server_reference="o", reason="why", user_properties=PAIR)
    sasl = section(b"\x15" + field(b"M"), b"\x16" + field(b"d"), b"\x1f" + field(b"why"), USER)
    said = properties(auth_method="M", auth_data=b"d", reason="why", user_properties=PAIR)
    return [
        Valid("pingreq", V311, b"\xc0\x00", Pingreq()),
        Valid("pingresp", V5, b"\xd0\x00", Pingresp()),
        Valid("disconnect", V311, b"\xe0\x00", Disconnect()),
        Valid("disconnect 5", V5, b"\xe0\x00", Disconnect()),
        Valid("disconnect 5, normal said", V5, b"\xe0\x01\x00", Disconnect(), canonical=False),
        Valid("disconnect 5, with will", V5, b"\xe0\x01\x04", Disconnect(4)),
        Valid("disconnect 5, no properties said", V5, b"\xe0\x02\x8e\x00", Disconnect(0x8E), canonical=False),
        Valid("disconnect 5, every property", V5, packet(0xE0, b"\x9c", leave), Disconnect(0x9C, leaving)),
        Valid("auth, success", V5, b"\xf0\x00", Auth()),
        Valid("auth, continue", V5, packet(0xF0, b"\x18", sasl), Auth(0x18, said)),
        Valid(
            "auth, again",
            V5,
            packet(0xF0, b"\x19", section(b"\x15" + field(b"M"))),
            Auth(0x19, properties(auth_method="M")),
        ),
    ]


VALID: list[Valid] = [
    *_connect_cases(),
    *_connack_cases(),
    *_publish_cases(),
    *_ack_cases(),
    *_subscribe_cases(),
    *_other_cases(),
]
