"""TLS in pieces: what a connection has received goes to TLS in measured portions, and costly ones wait in line.

Owns the connection between the socket and the TLS of the loop. Decrypting is cheap per byte, except for what a peer may
do on purpose: records of one byte, changes of keys (27 bytes cost as much as 20 kB of data, and the protocol has no
limit for them), handshakes. TLS would take everything that the system has of a connection, megabytes, in one go.
So a portion begins with some hundred bytes, grows while it is cheap, and a connection whose portion was costly is not
read until the line (`folkmoot.runtime.slice`) has come to it.
"""

from __future__ import annotations

import asyncio
import socket
import time
from asyncio import AbstractEventLoop, BaseTransport, Transport
from typing import Any, Final

from folkmoot.runtime.slice import COSTLY_S, PIECE_BYTES_MAX, PIECE_BYTES_MIN, Slices, Waiting

try:
    # Not documented, but what `start_tls` of uvloop gives to any transport. It has been there since 0.17.
    from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]
except ImportError:  # a loop of asyncio, where there is no uvloop
    from asyncio.sslproto import SSLProtocol

__all__ = ["Intake", "TlsTransport", "accept_tls"]

_HINT: Final = 65_536


class Intake(asyncio.BufferedProtocol, Waiting):
    """The protocol of a socket, in front of that of TLS."""

    __slots__ = ("_closed", "_held", "_portion", "_slices", "_tls", "_transport", "_waits")

    def __init__(self, tls: Any, slices: Slices) -> None:
        self._tls = tls
        self._slices = slices
        self._transport: Any = None
        self._portion = PIECE_BYTES_MIN
        self._waits = False  # in the line
        self._held = False  # what is above TLS wants no more for now
        self._closed = False

    def connection_made(self, transport: BaseTransport) -> None:
        """Begin the handshake."""
        self._transport = transport
        self._tls.connection_made(transport)

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the beginning of the buffer of TLS: for one portion."""
        buffer: memoryview = self._tls.get_buffer(_HINT)
        return buffer[: self._portion]

    def buffer_updated(self, size: int) -> None:
        """Have TLS take a portion; one that was costly, not counting what the node did with it, is the last for now."""
        slices = self._slices
        handled_s = slices.handled_s
        began_s = time.perf_counter()
        self._tls.buffer_updated(size)
        cost_s = time.perf_counter() - began_s - (slices.handled_s - handled_s)
        if cost_s >= COSTLY_S:
            self._portion = max(self._portion >> 2, PIECE_BYTES_MIN)
            if not self._waits and not self._closed:
                self._waits = True
                self._transport.pause_reading()
                slices.wait(self, cost_s)
        elif size == self._portion < PIECE_BYTES_MAX:
            self._portion <<= 1

    def go_on(self) -> None:
        """Its turn has come."""
        self._waits = False
        if not self._held:
            self._resume()

    def hold(self) -> None:
        """Read no more: TLS would decrypt ahead, or keep what it does not decrypt."""
        self._held = True
        if not self._closed:
            self._transport.pause_reading()

    def release(self) -> None:
        """Read again."""
        self._held = False
        if not self._waits:
            self._resume()

    def _resume(self) -> None:
        if not self._closed and not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> bool | None:
        """The peer has ended its side."""
        result: bool | None = self._tls.eof_received()
        return result

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed."""
        self._closed = True
        self._tls.connection_lost(error)

    def unsent_bytes(self) -> int:
        """Return how many encrypted bytes the socket has not taken."""
        size: int = 0 if self._closed else self._transport.get_write_buffer_size()
        return size

    def pause_writing(self) -> None:
        """The peer reads more slowly than it is sent to."""
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._tls.resume_writing()


class TlsTransport(Transport):
    """The transport of TLS, except that reading is paused at the socket."""

    __slots__ = ("_intake", "_tls")

    def __init__(self, tls: Any, intake: Intake) -> None:
        self._tls = tls
        self._intake = intake

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what TLS or the socket knows."""
        return self._tls.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        self._tls.write(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how much may wait."""
        self._tls.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        size: int = self._tls.get_write_buffer_size() + self._intake.unsent_bytes()
        return size

    def pause_reading(self) -> None:
        """Read no more."""
        self._intake.hold()

    def resume_reading(self) -> None:
        """Read again."""
        self._intake.release()

    def is_closing(self) -> bool:
        """Whether it is being closed."""
        closing: bool = self._tls.is_closing()
        return closing

    def can_write_eof(self) -> bool:
        """TLS ends both directions at once."""
        return False

    def close(self) -> None:
        """Send what was written and the end, and wait for that of the peer."""
        self._intake.release()
        self._tls.close()

    def abort(self) -> None:
        """Close now."""
        self._tls.abort()


async def accept_tls(
    loop: AbstractEventLoop, sock: socket.socket, protocol: Any, slices: Slices, options: dict[str, Any]
) -> None:
    """Connect an accepted socket to a protocol by TLS, as `loop.connect_accepted_socket` does with these options.

    `protocol.intake` is set before its `connection_made`. Cancelling closes the socket.
    """
    waiter = loop.create_future()
    named = {name: value for name, value in options.items() if name != "ssl"}
    tls = SSLProtocol(loop, protocol, options["ssl"], waiter, server_side=True, **named)
    intake = Intake(tls, slices)
    protocol.intake = intake
    transport, _ = await loop.connect_accepted_socket(lambda: intake, sock)
    try:
        await waiter
    except BaseException:
        transport.abort()
        raise
