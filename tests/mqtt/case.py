"""What a packet case is, and the pieces that cases are written with.

Written from the specifications, without any part of the codec: a body is shorter than 128 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from folkmoot.mqtt.packet import Packet, Properties


@dataclass(frozen=True)
class Valid:
    """Legal bytes; `canonical` when they are also what the encoder makes of the packet."""

    name: str
    version: int
    data: bytes
    packet: Packet
    canonical: bool = True


@dataclass(frozen=True)
class Invalid:
    """Bytes that end the connection, with the reason code; complete by their remaining length."""

    name: str
    version: int
    data: bytes
    code: int


def packet(first: int, *parts: bytes) -> bytes:
    """A packet with the given fixed header byte and a body below 128 bytes."""
    body = b"".join(parts)
    assert len(body) < 128
    return bytes([first, len(body)]) + body


def field(value: bytes) -> bytes:
    """Binary data or a string behind its two byte length."""
    return bytes([len(value) >> 8, len(value) & 255]) + value


def properties(**values: object) -> Properties:
    """Properties with the given attributes."""
    made = Properties()
    for name, value in values.items():
        assert hasattr(made, name)
        setattr(made, name, value)
    return made


def section(*parts: bytes) -> bytes:
    """A property section below 128 bytes."""
    body = b"".join(parts)
    assert len(body) < 128
    return bytes([len(body)]) + body


ID = b"\x01\x02"  # packet identifier 258
V4 = b"\x00\x04MQTT\x04"
V5_NAME = b"\x00\x04MQTT\x05"
V3_NAME = b"\x00\x06MQIsdp\x03"
KEEP = b"\x00\x3c"  # 60 s
USER = b"\x26" + field(b"k") + field(b"v")
PAIR = [("k", "v")]
