"""MQTT over TCP and TLS: listening sockets, and the protocol that passes chunks to the node.

Owns socket options. A protocol makes one call into the node per chunk and does nothing per packet. It has no timer and
no task of its own, so that an idle connection costs little memory.
"""

from __future__ import annotations

import errno
import socket
import time
from asyncio import BaseTransport, Protocol, Transport
from functools import partial
from typing import Any, Final, cast

from folkmoot.kernel.errors import FolkmootError
from folkmoot.runtime.acceptor import Accepted, name_of
from folkmoot.runtime.drain import reset
from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.intake import TlsTransport
from folkmoot.runtime.loop import LARGE_BYTES, Turns
from folkmoot.runtime.tls import common_name, outdated
from folkmoot.session.connection import CLOSING, NEW, PeerInfo

__all__ = [
    "ClientProtocol",
    "ListenError",
    "TcpProtocol",
    "TlsProtocol",
    "listen",
    "peer_info",
    "set_keepalive",
]

BACKLOG: Final = 4096
# A peer that disappeared without closing is detected after 60 + 3 x 20 seconds, even without MQTT keep alive.
KEEPALIVE_IDLE_S: Final = 60
KEEPALIVE_INTERVAL_S: Final = 20
KEEPALIVE_PROBES: Final = 3


class ListenError(FolkmootError):
    """An address cannot be listened on."""


def listen(host: str, port: int, reuse_port: bool = False) -> socket.socket:
    """Return a listening socket; ListenError says what to do.

    Options set here are inherited by every accepted socket (Linux, FreeBSD), so that none is set per connection.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        text = f"cannot listen on {host}:{port}: {error.strerror or error}; use an address of this machine"
        raise ListenError(text) from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host not in ("", "::")))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        set_keepalive(sock)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        advice = "stop the process that uses it, or choose another port (0 picks a free one)"
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            advice = "use an address of this machine"
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}; {advice}") from error
    return sock


def set_keepalive(sock: socket.socket) -> None:
    """Enable TCP keepalive: the system detects peers that are gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def peer_info(transport: BaseTransport, name: str, certificate_name: str | None) -> PeerInfo:
    """Return the description of a peer for the node; `name` is "tcp", "tls", "ws" or "wss"."""
    peer = transport.get_extra_info("peername")
    address = name_of(peer) if isinstance(peer, tuple) else "unknown"
    return PeerInfo(name, address, certificate_name)


class ClientProtocol(Accepted):
    """What the connections of clients have in common: they are counted, made known to the node, and lost.

    The gate counts the connection from its accept on: `arrival` is its entry there until its CONNECT is complete.
    """

    __slots__ = ("_arrival", "_connection", "_counted", "_gate", "_turns")

    def __init__(self, turns: Turns, gate: Gate, arrival: Arrival) -> None:
        super().__init__()
        self._turns = turns
        self._gate = gate
        self._counted = True
        self._arrival: Arrival | None = arrival
        self._connection: Any = None  # a Connection, once the node knows of it

    def connection_made(self, transport: BaseTransport) -> None:
        """Register the connection with the node."""
        self.made = True
        opened = cast("Transport", transport)
        if self.intake is not None:
            opened = TlsTransport(opened, self.intake)
        try:
            self._begin(opened)
        except Exception as error:  # noqa: BLE001 - whatever it is, other connections go on
            if not self._turns.spoiled(opened, "unknown", error):
                self.left()

    def _begin(self, transport: Transport) -> None:
        """Call `_register`."""
        raise NotImplementedError

    def _register(self, transport: Transport, handle: object, name: str, certificate_name: str | None) -> None:
        """Make the connection known to the node, which uses it through `handle`."""
        turns, arrival = self._turns, self._arrival
        if turns.halted or arrival is None:
            transport.abort()
            return
        arrival.cut = partial(reset, transport)
        info = peer_info(transport, name, certificate_name)
        info.waited_us = self._gate.waited_us(arrival)
        self._connection = turns.connected(handle, info)
        why = outdated(transport.get_extra_info("ssl_object")) if self.intake is not None else ""
        if why and self._connection is not None:
            turns.ask(turns.node.revoke, self._connection, why)

    def _settle(self) -> None:
        """Tell the gate when the CONNECT is complete. One that was refused stays unfinished until it is closed."""
        connection, arrival = self._connection, self._arrival
        if connection is not None and arrival is not None and NEW < connection.state < CLOSING:
            self._arrival = None
            self._gate.finish(arrival)

    def pause_writing(self) -> None:
        """The peer reads more slowly than the node sends."""
        if self._connection is not None:
            self._turns.writable(self._connection, False)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        if self._connection is not None:
            self._turns.writable(self._connection, True)

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss to the node."""
        self.left()
        if self._connection is not None:
            self._turns.lost(self._connection, str(error) if error is not None else "closed by the peer")

    def left(self) -> None:
        """Its socket is closed: tell the gate; idempotent."""
        if self._counted:
            self._counted = False
            if self._arrival is not None:
                self._gate.finish(self._arrival)
                self._arrival = None
            self._gate.leave()


class StreamProtocol(ClientProtocol):
    """One connection without frames. Its transport is the handle through which the driver carries out effects."""

    __slots__ = ()

    name: str = "tcp"

    def _begin(self, transport: Transport) -> None:
        self._register(transport, transport, self.name, self._certificate_name(transport))

    def _certificate_name(self, _transport: BaseTransport) -> str | None:
        return None

    def data_received(self, data: bytes) -> None:
        """Pass a chunk to the node."""
        turns = self._turns
        now = turns.begin()
        try:
            turns.receive(self._connection, data, now)
        except Exception as error:  # noqa: BLE001 - a fault of the node, as in `Turns.ask`, and without its price
            if self._connection is not None:
                turns.fail(error)
            return
        if self._arrival is not None:
            self._settle()
        if len(data) >= LARGE_BYTES:
            turns.took(self._connection, len(data))


class TcpProtocol(StreamProtocol, Protocol):
    """One connection without TLS."""

    __slots__ = ()


class TlsProtocol(StreamProtocol, Protocol):
    """One connection whose TLS handshake is done."""

    __slots__ = ()

    name = "tls"

    def data_received(self, data: bytes) -> None:
        """Pass a chunk to the node."""
        began_s = time.perf_counter()
        super().data_received(data)
        self._turns.slices.handled_s += time.perf_counter() - began_s

    def _certificate_name(self, transport: BaseTransport) -> str | None:
        certificate: Any = transport.get_extra_info("peercert")
        return common_name(certificate)
