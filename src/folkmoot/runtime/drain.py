"""Closing in order: send everything, end the sending half, read and discard remaining input, then close.

If a socket is closed while bytes of its peer are unread, the system sends a reset, and the peer may lose the last bytes
sent to it, such as a DISCONNECT with its reason (RFC 1122 section 4.2.2.13, RFC 9112 section 9.6).

This module owns the order and the limit in bytes; the caller of `close_in_order` applies the limit in time.
A draining connection counts against the limits on sockets until its socket is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from abc import ABC, abstractmethod
from asyncio import BaseProtocol, Transport
from typing import Final

__all__ = ["GONE", "LINGER_BYTES_MAX", "LINGER_S", "Drain", "Handle", "close_in_order", "reset"]

# A connection that is being closed is aborted after this time: its peer does not read the last bytes, goes on
# sending, or does not close its side.
LINGER_S: Final = 5.0
# It is also aborted when its peer sends more than this while it drains. The limit is above the largest socket buffers
# of both sides (6 and 4 MiB on Linux), and discarding as much takes a few milliseconds.
LINGER_BYTES_MAX: Final = 16 << 20

# SO_LINGER with a time of zero: the socket is closed by a reset (socket(7)).
NO_LINGER: Final = struct.pack("ii", 1, 0)

# Shared by all connections: the content is never used. The size bounds what one iteration of the loop reads.
_DISCARDED: Final = memoryview(bytearray(65_536))


class Handle(ABC):
    """The methods that the driver needs of a connection's handle; transports of uvloop and asyncio have them."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Send bytes, or buffer them until the peer reads."""

    @abstractmethod
    def close(self) -> None:
        """Close after everything that was written has been sent."""

    @abstractmethod
    def abort(self) -> None:
        """Close now."""

    @abstractmethod
    def pause_reading(self) -> None:
        """Take nothing more from the peer."""

    @abstractmethod
    def resume_reading(self) -> None:
        """Take what the peer sends."""

    @abstractmethod
    def is_closing(self) -> bool:
        """Whether the connection is being closed, or closed: nothing more can be written."""

    @abstractmethod
    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""


class Gone(Handle):
    """The handle of a connection that is lost: a transport raises an error when it is used after its end."""

    __slots__ = ()

    def write(self, data: bytes) -> None:
        """Drop the bytes."""

    def close(self) -> None:
        """Nothing is left to close."""

    def abort(self) -> None:
        """Nothing is left to close."""

    def pause_reading(self) -> None:
        """Nothing more is read."""

    def resume_reading(self) -> None:
        """Nothing more is read."""

    def is_closing(self) -> bool:
        """Whether nothing more can be written: always."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet: none ever will be."""
        return 0


GONE: Final = Gone()


class Drain(asyncio.BufferedProtocol, Handle):
    """A connection whose sending half is ended: the protocol of its transport, and the handle that others may keep.

    The protocol before it is told when the connection is lost, and nothing else.
    """

    __slots__ = ("_bytes", "_bytes_max", "_protocol", "_transport")

    def __init__(self, transport: Transport, protocol: BaseProtocol, bytes_max: int) -> None:
        self._transport = transport
        self._protocol = protocol
        self._bytes = 0
        self._bytes_max = bytes_max

    def get_buffer(self, _hint: int) -> memoryview:
        """Return the buffer for received bytes."""
        return _DISCARDED

    def buffer_updated(self, size: int) -> None:
        """Count received bytes; abort if there are too many. When the peer ends its half, the transport closes."""
        self._bytes += size
        if self._bytes > self._bytes_max:
            reset(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the protocol that had the connection."""
        self._protocol.connection_lost(error)

    def write(self, data: bytes) -> None:
        """Drop the bytes: the sending half has ended."""

    def close(self) -> None:
        """Go on draining."""

    def abort(self) -> None:
        """Close now."""
        reset(self._transport)

    def pause_reading(self) -> None:
        """Go on draining."""

    def resume_reading(self) -> None:
        """Go on draining."""

    def is_closing(self) -> bool:
        """Whether nothing more can be written: always."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._transport.get_write_buffer_size()


def reset(transport: Transport) -> None:
    """Close now, by a reset: otherwise the system keeps what was sent, up to megabytes, and goes on offering it.

    That is for peers that do not read. Uvloop's `abort` alone drops only what has not been handed to the system.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None:
        # Of uvloop it is no socket that has options. Without a descriptor for a copy there is no reset.
        with contextlib.suppress(OSError):
            copy = os.dup(sock.fileno())
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, copy) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    transport.abort()


def close_in_order(transport: Transport, bytes_max: int = LINGER_BYTES_MAX) -> Handle | None:
    """Close a transport so that its peer can read everything that was written.

    bytes_max: of the peer's input that are discarded; a peer that sends more is aborted.

    Return the handle to use from now on; None: the transport goes on by itself. So does TLS: uvloop sends what was
    written and close_notify, reads and discards until the peer answers or closes, and is bounded by
    `ssl_shutdown_timeout` alone.
    """
    if transport.is_closing() or not transport.can_write_eof():
        transport.close()
        return None
    drain = Drain(transport, transport.get_protocol(), bytes_max)
    transport.set_protocol(drain)
    transport.write_eof()
    transport.resume_reading()  # it may have been paused: the peer sent more than was taken
    return drain
