"""The least that a broker of this kind could cost: an event loop that forwards chunks and understands nothing.

Owns a forwarder on uvloop that answers CONNECT and SUBSCRIBE with fixed bytes and then hands every chunk of a
publisher, as it came, to the subscribers of the topic of its first message. It never parses a message: what it costs
is the system calls and the event loop, with the same chunks as a broker under the same load. QoS 0, version 3.1.1.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, cast

import uvloop

CONNECT: Final = 0x10
SUBSCRIBE: Final = 0x82
PUBLISH: Final = 0x30
CONNACK: Final = b"\x20\x02\x00\x00"
SUBACK: Final = b"\x90\x03\x00\x01\x00"
DISCONNECT: Final = b"\xe0\x00"


def text_at(data: bytes, at: int) -> bytes:
    """Return the string at `at`."""
    return data[at + 2 : at + 2 + int.from_bytes(data[at : at + 2], "big")]


def body_at(data: bytes) -> int:
    """Return where the body of the first packet begins."""
    at = 1
    while data[at] > 127:
        at += 1
    return at + 1


class Forwarder(asyncio.Protocol):
    """One connection; `subscribers` is shared by all: topic -> transports."""

    def __init__(self, subscribers: dict[bytes, list[asyncio.WriteTransport]]) -> None:
        self.subscribers = subscribers
        self.outputs: list[asyncio.WriteTransport] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        if self.outputs and data != DISCONNECT:
            for output in self.outputs:
                output.write(data)
            return
        if data[0] == CONNECT:
            self.transport.write(CONNACK)
        elif data[0] == SUBSCRIBE:
            self.subscribers.setdefault(text_at(data, body_at(data) + 2), []).append(self.transport)
            self.transport.write(SUBACK)
        elif data[0] == PUBLISH:
            self.outputs = self.subscribers[text_at(data, body_at(data))]
            self.data_received(data)


async def main() -> None:
    subscribers: dict[bytes, list[asyncio.WriteTransport]] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Forwarder(subscribers), "127.0.0.1", 0, backlog=1024)
    print(f"ready mqtt=127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except KeyboardInterrupt:
        sys.exit(0)
