"""The checker's own MQTT: packets as section 3 of the standard has them, cut anywhere, and no code of the broker."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.jepsen import wire
from tests.jepsen.wire import Malformed, Packet, Parser, Will


def test_what_is_sent_is_as_the_standard_says() -> None:
    assert wire.connect("ab", clean=True, expiry_s=10, keep_alive_s=60) == bytes(
        [0x10, 20, 0, 4, *b"MQTT", 5, 0x02, 0, 60, 5, 0x11, 0, 0, 0, 10, 0, 2, *b"ab"]
    )
    head = bytes([0x10, 31, 0, 4, *b"MQTT", 5, 0x34, 0, 0, 5, 0x11, 0, 0, 0, 0, 0, 1, *b"a"])
    tail = bytes([5, 0x18, 0, 0, 0, 3, 0, 1, *b"w", 0, 1, *b"x"])
    will = Will("w", b"x", 2, delay_s=3, retain=True)
    assert wire.connect("a", clean=False, expiry_s=0, keep_alive_s=0, will=will) == head + tail
    assert wire.publish("a/b", b"hi", qos=1, retain=True, dup=True, packet_id=10) == bytes(
        [0x3B, 10, 0, 3, *b"a/b", 0, 10, 0, *b"hi"]
    )
    assert wire.publish("a", b"", qos=0, retain=False, dup=False, packet_id=0) == bytes([0x30, 4, 0, 1, *b"a", 0])
    assert wire.subscribe(10, [("a/b", 1), ("c", 2)]) == bytes([0x82, 13, 0, 10, 0, 0, 3, *b"a/b", 1, 0, 1, *b"c", 2])
    assert wire.unsubscribe(10, ["c"]) == bytes([0xA2, 6, 0, 10, 0, 0, 1, *b"c"])
    assert wire.acknowledge(wire.PUBREL, 258) == bytes([0x62, 2, 1, 2])
    assert wire.acknowledge(wire.PUBACK, 258) == bytes([0x40, 2, 1, 2])
    assert (wire.pingreq(), wire.disconnect(4)) == (bytes([0xC0, 0]), bytes([0xE0, 1, 4]))


# Bytes of a server, and what they say.
RECEIVED = [
    (bytes([0x20, 6, 1, 0, 3, 0x21, 0, 10]), Packet(wire.CONNACK, present=True)),
    (bytes([0x20, 3, 0, 0x87, 0]), Packet(wire.CONNACK, code=0x87)),
    (
        bytes([0x3D, 14, 0, 3, *b"a/b", 0, 10, 5, 0x26, 0, 0, 0, 0, *b"h"]),
        Packet(wire.PUBLISH, id=10, topic="a/b", payload=b"h", qos=2, retain=True, dup=True),
    ),
    (bytes([0x30, 5, 0, 1, *b"a", 0, 7]), Packet(wire.PUBLISH, topic="a", payload=b"\7")),
    (bytes([0x40, 2, 1, 2]), Packet(wire.PUBACK, id=258)),
    (bytes([0x40, 3, 1, 2, 0x10]), Packet(wire.PUBACK, id=258, code=0x10)),
    (bytes([0x50, 4, 0, 1, 0x97, 0]), Packet(wire.PUBREC, id=1, code=0x97)),
    (bytes([0x62, 2, 0, 1]), Packet(wire.PUBREL, id=1)),
    (bytes([0x70, 2, 0, 1]), Packet(wire.PUBCOMP, id=1)),
    (bytes([0x90, 5, 0, 10, 0, 1, 0x80]), Packet(wire.SUBACK, id=10, codes=[1, 0x80])),
    (bytes([0xB0, 4, 0, 10, 0, 0]), Packet(wire.UNSUBACK, id=10, codes=[0])),
    (bytes([0xD0, 0]), Packet(wire.PINGRESP)),
    (bytes([0xE0, 2, 0x8E, 0]), Packet(wire.DISCONNECT, code=0x8E)),
    (bytes([0xE0, 0]), Packet(wire.DISCONNECT)),
]


@pytest.mark.parametrize(("data", "packet"), RECEIVED)
def test_what_comes_is_read_whole_and_byte_by_byte(data: bytes, packet: Packet) -> None:
    assert Parser().feed(data) == [packet]
    parser = Parser()
    assert [found for byte in data for found in parser.feed(bytes([byte]))] == [packet]


def test_many_packets_come_at_once() -> None:
    assert Parser().feed(b"".join(data for data, _ in RECEIVED)) == [packet for _, packet in RECEIVED]


@pytest.mark.parametrize(
    "data",
    [
        bytes([0x10, 0]),  # a server sends no CONNECT
        bytes([0x60, 2, 0, 1]),  # PUBREL has the flags 2
        bytes([0x20, 2, 0]) + b"\0",  # no properties
        bytes([0x40, 1, 0]),
        bytes([0x40, 5, 0, 1, 0, 0, 9]),  # more than there may be
        bytes([0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1]),
        bytes([0x20, 5, 0, 0, 2, 0x7F, 0]),  # no such property
    ],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        Parser().feed(data)


def test_the_checker_is_an_independent_witness() -> None:
    folder = Path(__file__).parent
    taken = {
        module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for module in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert sorted(module for module in taken if module.split(".")[0] in ("folkmoot", "pyspark_folkmoot")) == []
    others = {module for module in taken if module.startswith("tests.") and not module.startswith("tests.jepsen")}
    assert others <= {"tests.integration.cluster_net", "tests.harness.soak"}, "these import nothing of it either"
