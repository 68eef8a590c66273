"""One connection of a load client: opens, sends CONNECT, and then passes on whole chunks.

Owns the socket, the bytes that could not be written yet, and the handshake. A subclass handles the traffic: it sets
`receive` when the connection is accepted.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from folkmoot.client.loadloop import READ, WRITE, Faults, LoadLoop, Ready
from folkmoot.client.packetrun import MALFORMED, find_packet_end
from folkmoot.client.template import disconnect_packet
from folkmoot.client.workload import Target

__all__ = ["Peer", "connack_limit", "open_socket"]

CHUNK_BYTES: Final = 65_536
"""Larger buffers are allocated with mmap, one more system call per read (measured: 10 us per message)."""
CONNACK: Final = 0x20
DISCONNECT: Final = 0xE0
# Chooses the port at connect, not at bind (linux/in.h), so that each server can use all ports of a source address.
IP_BIND_ADDRESS_NO_PORT: Final = 24

# The number of bytes of a property's value, by identifier (MQTT 5.0 table 2-4); strings and others have a length.
FIXED_PROPERTIES: Final = {0x11: 4, 0x13: 2, 0x21: 2, 0x22: 2, 0x24: 1, 0x25: 1, 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1}
RECEIVE_MAX: Final = 0x21
USER_PROPERTY: Final = 0x26


class Peer(Ready):
    """A non-blocking client connection. `accepted` is true after a CONNACK with code 0, `closed` after the end.

    Errors go to `faults`; all except those of `close` are fatal for a run.
    """

    def __init__(self, loop: LoadLoop, target: Target, version: int, connect: bytes, faults: Faults) -> None:
        self.loop = loop
        self.target = target
        self.version = version
        self.faults = faults
        self.accepted = False
        self.closed = False
        self.session_present = False
        self.receive_max = 65_535
        self.receive: Callable[[bytes], None] = self._handshake
        self._connect = connect
        self._pending = b""
        self._rest = b""
        self._socket: socket.socket | None = None
        self._recv: Callable[[int], bytes] = no_bytes
        self._send: Callable[[bytes], int] = len

    @property
    def settled(self) -> bool:
        """Whether the client is ready for traffic."""
        return self.accepted

    def open(self, family: int, address: tuple[str, int], source: str | None = None) -> None:
        """Begin to connect, from the address `source` if given; the CONNECT is sent once TCP is connected."""
        sock = open_socket(family, source)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._recv, self._send = sock, sock.recv, sock.send
        self._pending = self._connect
        self.loop.register(sock, READ | WRITE, self)
        code = sock.connect_ex(address)
        if code not in {0, errno.EINPROGRESS}:
            self._lose(os.strerror(code))

    def ready(self, mask: int) -> None:
        """Write pending bytes, or read a chunk and pass it to `receive`."""
        if mask & WRITE:
            self._flush()
        if mask & READ and not self.closed:
            try:
                data = self._recv(CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                self._lose(error.strerror)
                return
            if data:
                self.receive(data)
            else:
                self._lose("the broker closed a connection")

    def send(self, data: bytes) -> None:
        """Write bytes, and keep what the socket does not take for later."""
        if self._pending:
            self._pending += data
            return
        try:
            written = self._send(data)
        except BlockingIOError:
            written = 0
        except OSError as error:
            self._lose(error.strerror)
            return
        if written < len(data) and self._socket is not None:
            self._pending = data[written:]
            self.loop.change(self._socket, READ | WRITE, self)

    def _flush(self) -> None:
        data, self._pending = self._pending, b""
        if self._socket is not None:
            self.loop.change(self._socket, READ, self)
            if data:
                self.send(data)

    def _handshake(self, data: bytes) -> None:
        data = self._rest + data
        end = find_packet_end(data, 0)
        if end == 0:
            self._rest = data
            return
        if end == MALFORMED or data[0] != CONNACK or end < 4:
            self.fail("protocol", f"expected a CONNACK, got {data[:16].hex()}")
            return
        if data[3] != 0:
            self.fail("refused", f"CONNACK with code {data[3]} (0x{data[3]:02x})")
            return
        self._rest = b""
        self.session_present = bool(data[2] & 1)
        if self.version == 5:
            self.receive_max = connack_limit(data[:end])
        self.accepted = True
        self.on_accepted()
        if end < len(data):
            self.receive(data[end:])

    def on_accepted(self) -> None:
        """Set `receive` and continue: the broker has accepted the connection."""
        raise NotImplementedError

    def unexpected(self, packet: bytes) -> None:
        """End the run with an error: an unexpected packet was received."""
        if packet[0] == DISCONNECT:
            code = packet[2] if len(packet) > 2 else 0
            self.fail("disconnected", f"the broker sent DISCONNECT with code 0x{code:02x}")
        else:
            self.fail("protocol", f"unexpected packet {packet[:24].hex()}")

    def fail(self, kind: str, text: str) -> None:
        """Count an error that ends the run, and drop the connection; after the end of the run, nothing is counted."""
        if not self.closed:
            self.faults.add(kind, text, fatal=True)
            self.drop()

    def _lose(self, reason: str | None) -> None:
        kind = "connection lost" if self.accepted else "not connected"
        self.fail(kind, f"{self.target.host}:{self.target.port}: {reason}")

    def disconnect(self) -> None:
        """Send DISCONNECT and close."""
        if not self.closed:
            if self.accepted:
                self.send(disconnect_packet())
            self.drop()

    def drop(self) -> None:
        """Close the socket without DISCONNECT."""
        self.closed = True
        if self._socket is not None:
            self.loop.forget(self._socket)
            self._socket.close()
            self._socket = None


def open_socket(family: int, source: str | None) -> socket.socket:
    """Return a non-blocking socket, bound to `source` if given."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    if source is not None:
        sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind((source, 0))
    return sock


def no_bytes(_limit: int) -> bytes:
    """Replace `recv` until there is a socket."""
    return b""


def connack_limit(packet: bytes) -> int:
    """Return the Receive Maximum of a complete MQTT 5.0 CONNACK; the default is 65,535 (section 3.2.2.3.3)."""
    at = 2
    while packet[at - 1] > 127:
        at += 1
    at += 2  # flags and reason code
    while at < len(packet) and packet[at] > 127:
        at += 1
    at += 1
    while at < len(packet):
        kind = packet[at]
        if kind == RECEIVE_MAX:
            return int.from_bytes(packet[at + 1 : at + 3], "big")
        at += 1 + property_bytes(kind, packet, at + 1)
    return 65_535


def property_bytes(kind: int, packet: bytes, at: int) -> int:
    """Return the size of the value of a property of this kind at `at`."""
    if kind in FIXED_PROPERTIES:
        return FIXED_PROPERTIES[kind]
    length = 2 + int.from_bytes(packet[at : at + 2], "big")
    if kind == USER_PROPERTY:
        length += 2 + int.from_bytes(packet[at + length : at + length + 2], "big")
    return length
