"""What a hostile client does with one connection: a program, drawn from a seed.

A program is valid traffic, of which some is damaged: bytes flipped, cut, repeated, spliced, lengths that are wrong.
It also draws how the bytes are sent (at once, in pieces, one by one), whether answers are read, and how it all ends.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Callable

from folkmoot.mqtt.encode import encode
from folkmoot.mqtt.packet import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    Ack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Properties,
    Publish,
    Subscribe,
    Unsubscribe,
    Will,
)

__all__ = ["KINDS", "Program", "draw"]

BYTES_MAX = 1 << 20  # of one program

# How a connection ends.
CLOSE, RESET, HALF_CLOSE, SILENCE = range(4)


class Program:
    """`chunks` to send, with a pause in seconds before each; `reads`: whether answers are taken; `end`: see above."""

    def __init__(self, kind: str, chunks: list[tuple[float, bytes]], reads: bool, end: int, held_s: float) -> None:
        self.kind = kind
        self.chunks = chunks
        self.reads = reads
        self.end = end
        self.held_s = held_s  # how long the connection stays open after the last chunk

    def __repr__(self) -> str:
        size = sum(len(data) for _, data in self.chunks)
        return f"Program({self.kind} chunks={len(self.chunks)} bytes={size} reads={self.reads} end={self.end})"


def draw(kind: str, seed: int) -> Program:
    """Return the program of a seed against a listener of this kind (a key of KINDS)."""
    rng = random.Random(f"{kind} {seed}")
    data = KINDS[kind](rng)[:BYTES_MAX]
    return Program(
        kind,
        _pieces(rng, data),
        rng.random() < 0.7,
        rng.choice([CLOSE, RESET, HALF_CLOSE, SILENCE]),
        rng.random() * 1.5,
    )


def _pieces(rng: random.Random, data: bytes) -> list[tuple[float, bytes]]:
    """Cut a stream of bytes as a network, or somebody with patience, would."""
    way = rng.randrange(4)
    if way == 0 or len(data) < 2:
        return [(0.0, data)]
    if way == 1:  # byte by byte, at the beginning
        head = min(len(data), 200)
        return [*((0.002, data[at : at + 1]) for at in range(head)), (0.0, data[head:])]
    cuts = sorted({0, len(data), *(rng.randrange(len(data)) for _ in range(rng.randrange(1, 20)))})
    return [(rng.random() * 0.1 if way == 2 else 0.0, data[a:b]) for a, b in itertools.pairwise(cuts)]


# --- damage


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with one thing wrong with them."""
    if not data:
        return data
    at = rng.randrange(len(data))
    size = rng.choice([1, 2, 4, 16, 100])
    way = rng.randrange(8)
    if way == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if way == 1:
        return data[:at]
    if way == 2:
        return data[:at] + data[at + size :]
    if way == 3:
        return data[:at] + data[at : at + size] * rng.choice([2, 10, 1000]) + data[at + size :]
    if way == 4:
        return data[:at] + rng.choice([b"\x00", b"\xff", b"\x7f", b"\x80"]) * size + data[at + size :]
    if way == 5:
        return data[:at] + rng.randbytes(size) + data[at:]
    if way == 6:
        other = rng.randrange(len(data))
        return data[:at] + data[other : other + size] + data[at:]
    return data[at:] + data[:at]


def _sequence(rng: random.Random, parts: list[bytes]) -> bytes:
    """Return parts one after the other, where some are damaged, come twice, or are missing."""
    found: list[bytes] = []
    size = 0
    for part in parts:
        if size > BYTES_MAX:
            break
        way = rng.random()
        if way < 0.08:
            found.append(_damaged(rng, part))
        elif way < 0.12:
            found.append(part * rng.randrange(2, 50) if len(part) < 10_000 else part)
        elif way < 0.97:
            found.append(part)
        size += len(found[-1]) if found else 0
    data = b"".join(found)
    return _damaged(rng, data) if rng.random() < 0.2 else data


# --- MQTT

LEVELS = [b"a", b"b", b"plant", b"+", b"#", b"", b"$SYS", b"$share", b"g", b"\xc3\xa9", b"x" * 300]


def _name(rng: random.Random) -> bytes:
    return b"/".join(rng.choice(LEVELS) for _ in range(rng.choice([1, 2, 3, 5, 14, 130])))


def _properties(rng: random.Random) -> Properties | None:
    if rng.random() < 0.5:
        return None
    made = Properties()
    made.user_properties = [("k" * rng.randrange(50), "v" * rng.randrange(50)) for _ in range(rng.choice([1, 5, 80]))]
    return made


def _will(rng: random.Random) -> Will | None:
    if rng.random() < 0.7:
        return None
    return Will(_name(rng), rng.randbytes(rng.choice([0, 10, 5000])), rng.randrange(3), rng.random() < 0.5)


def _packet(rng: random.Random) -> Packet:
    number = rng.choice([0, 1, 2, 65_535, rng.randrange(65_536)])
    way = rng.randrange(9)
    if way <= 2:
        payload = rng.randbytes(rng.choice([0, 1, 100, 5000, 70_000]))
        qos = rng.randrange(3)
        return Publish(_name(rng), payload, qos, rng.random() < 0.2, rng.random() < 0.1, number if qos else 0)
    if way == 3:
        return Subscribe(number, [(_name(rng), rng.randrange(3)) for _ in range(rng.choice([1, 3, 500]))])
    if way == 4:
        return Unsubscribe(number, [_name(rng) for _ in range(rng.choice([1, 3, 500]))])
    if way == 5:
        return Ack(rng.choice([PUBACK, PUBREC, PUBREL, PUBCOMP]), number)
    if way == 6:
        return Disconnect(rng.choice([0, 4, 0x8E, 0xFF]))
    return Pingreq()


def _encoded(rng: random.Random, version: int) -> bytes:
    """Return a packet of a client; what this encoder refuses is written another way."""
    try:
        return encode(_packet(rng), version)
    except Exception:  # noqa: BLE001 - it is not the encoder that is tested
        return bytes([rng.randrange(256), rng.randrange(128)]) + rng.randbytes(rng.randrange(128))


def mqtt(rng: random.Random) -> bytes:
    """Return a conversation of an MQTT client, right or wrong."""
    version = rng.choice([3, 4, 5, 5, 5])
    client = rng.choice(["", "fuzz", f"fuzz-{rng.randrange(20)}", "f" * 2000])
    user = rng.choice([None, None, "nobody"])
    connect = Connect(
        version,
        client,
        rng.random() < 0.5,
        rng.choice([0, 1, 60]),
        user,
        b"wrong" if user else None,
        _will(rng),
        _properties(rng) if version == 5 else None,
    )
    try:
        first = encode(connect, version)
    except Exception:  # noqa: BLE001 - as above
        first = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
    count = rng.choice([0, 1, 10, 100, 1000])
    few = [_encoded(rng, version) for _ in range(min(count, 30))]
    parts = [first, *(rng.choice(few) for _ in range(count))]
    return _sequence(rng, parts)


# --- WebSocket


def _frame(rng: random.Random, data: bytes) -> bytes:
    """Return a frame of a client, RFC 6455 section 5.2, mostly well-formed."""
    opcode = rng.choice([2, 2, 2, 2, 0, 1, 8, 9, 9, 10, 3, 15])
    first = opcode | (0x80 if rng.random() < 0.85 else 0) | (rng.choice([0x10, 0x40]) if rng.random() < 0.03 else 0)
    size = len(data) if rng.random() < 0.95 else rng.choice([0, 125, 65_536, 1 << 40, 1 << 63])
    masked = 0x80 if rng.random() < 0.97 else 0
    if size < 126:
        head = struct.pack("!BB", first, masked | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first, masked | 127, size)
    key = rng.randbytes(4)
    if not masked:
        return head + data
    key_stream = (key * (len(data) // 4 + 1))[: len(data)]
    hidden = int.from_bytes(data, "big") ^ int.from_bytes(key_stream, "big")
    return head + key + hidden.to_bytes(len(data), "big")


def websocket(rng: random.Random) -> bytes:
    """Return an upgrade and what follows it."""
    lines = [
        b"GET /mqtt HTTP/1.1",
        b"Host: localhost",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Protocol: mqtt",
    ]
    if rng.random() < 0.2:
        lines.append(b"X-Long: " + b"y" * rng.choice([100, 10_000, 200_000]))
    upgrade = b"\r\n".join(line if rng.random() > 0.02 else _damaged(rng, line) for line in lines) + b"\r\n\r\n"
    data = mqtt(rng)
    frames = []
    while data:
        size = rng.choice([1, 10, 125, 1000, 70_000])
        frames.append(_frame(rng, data[:size]))
        data = data[size:]
        if len(frames) > 300:
            break
    return _sequence(rng, [upgrade, *frames])


# --- HTTP

PATHS = ["/health/live", "/health/ready", "/metrics", "/status", "/streams", "/%00", "/..", "/" + "x" * 9000, "*"]


def http(rng: random.Random) -> bytes:
    """Return requests, one after the other without waiting for the answers."""
    requests = []
    for _ in range(rng.choice([1, 2, 50, 2000])):
        method = rng.choice(["GET", "GET", "POST", "HEAD", "PUT", "BREW", "CONNECT"])
        lines = [f"{method} {rng.choice(PATHS)} HTTP/{rng.choice(['1.1', '1.1', '1.0', '2.0'])}", "Host: localhost"]
        body = b""
        way = rng.randrange(6)
        if way == 0:
            body = rng.randbytes(rng.choice([0, 10, 10_000]))
            lines.append(f"Content-Length: {len(body) + rng.choice([0, 0, 0, 1, 1_000_000, -len(body) - 1])}")
        elif way == 1:
            lines.append("Transfer-Encoding: chunked")
            body = b"".join(b"%x;e=%s\r\n%s\r\n" % (3, b"z" * rng.choice([0, 5000]), b"abc") for _ in range(30))
            body += b"0\r\n" + b"X-T: 1\r\n" * rng.choice([0, 1, 20_000]) + b"\r\n"
        elif way == 2:
            lines += [f"X-{number}: {'v' * rng.randrange(100)}" for number in range(rng.choice([1, 50, 5000]))]
        elif way == 3:
            lines.append("Authorization: Bearer wrong")
        requests.append("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
        if sum(map(len, requests)) > BYTES_MAX:
            break
    return _sequence(rng, requests)


# --- between nodes


def peer(rng: random.Random) -> bytes:
    """Return frames as nodes send them: a length of four bytes, a kind, a body."""
    parts = []
    for _ in range(rng.choice([1, 3, 50])):
        body = rng.choice([b"folkmoot\x00\x01\x00\x01", b"", b"\x01\x00\x02n9", rng.randbytes(40)])
        body += b"".join(
            struct.pack("!BH", rng.randrange(12), size) + rng.randbytes(size)
            for size in (rng.choice([0, 1, 8, 16, 300]) for _ in range(rng.randrange(8)))
        )
        size = len(body) + 1 if rng.random() < 0.9 else rng.choice([0, 1 << 20, 1 << 31])
        parts.append(struct.pack("!I", size) + bytes([rng.choice([0, 1, 2, 3, rng.randrange(256)])]) + body)
    return _sequence(rng, parts)


# --- TLS


def _client_hello(rng: random.Random) -> bytes:
    """Return the record of a ClientHello that a server accepts, RFC 8446 section 4.1.2."""

    def extension(kind: int, body: bytes) -> bytes:
        return struct.pack("!HH", kind, len(body)) + body

    name = b"localhost"
    extensions = b"".join(
        [
            extension(0, struct.pack("!HBH", len(name) + 3, 0, len(name)) + name),  # server_name
            extension(10, bytes.fromhex("0002001d")),  # supported_groups: x25519
            extension(13, bytes.fromhex("0006040308040401")),  # signature_algorithms
            extension(43, bytes.fromhex("020304")),  # supported_versions: 1.3
            extension(51, bytes.fromhex("0024001d0020") + rng.randbytes(32)),  # key_share
        ]
    )
    suites = bytes.fromhex("130113021303")
    body = b"\x03\x03" + rng.randbytes(32) + b"\x20" + rng.randbytes(32)
    body += struct.pack("!H", len(suites)) + suites + b"\x01\x00" + struct.pack("!H", len(extensions)) + extensions
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return struct.pack("!BHH", 22, 0x0301, len(handshake)) + handshake


def tls(rng: random.Random) -> bytes:
    """Return the beginning of a handshake, damaged or not, and records of all kinds (RFC 8446 section 5.1)."""
    parts = [_client_hello(rng)]
    for _ in range(rng.choice([0, 1, 20, 200])):
        body = rng.randbytes(rng.choice([0, 1, 40, 16_384]))
        size = len(body) if rng.random() < 0.9 else 65_535
        parts.append(struct.pack("!BHH", rng.choice([20, 21, 22, 23, 24, 255]), 0x0303, size) + body)
    return _sequence(rng, parts)


KINDS: dict[str, Callable[[random.Random], bytes]] = {
    "mqtt": mqtt,
    "ws": websocket,
    "admin": http,
    "peer": peer,
    "mqtts": tls,
}
"""By the name of a listener, what a client says there."""
