"""MQTT over TCP and TLS: listening sockets and the protocol that hands chunks to the node.

Owns socket options and the count of sockets. A protocol does as little as possible: one call into the node per
chunk, nothing per packet, and no timer, task or socket object per connection, so that an idle one stays small.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from asyncio import BaseTransport, Transport
from typing import Any, Final, cast

from folkmoot.kernel.errors import FolkmootError
from folkmoot.runtime.loop import LARGE_BYTES, Turns
from folkmoot.runtime.tls import common_name
from folkmoot.session.connection import PeerInfo

__all__ = [
    "ClientProtocol",
    "Gate",
    "ListenError",
    "TcpProtocol",
    "TlsProtocol",
    "listen",
    "peer_info",
    "set_keepalive",
]

BACKLOG: Final = 4096
# A peer that vanished without a word is found out after 60 + 3 x 20 seconds, also without MQTT keep alive.
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
        text = f"cannot listen on {host}:{port}: {error.strerror or error}; name an address of this machine"
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
        advice = "stop what uses it, or choose another port (0 picks a free one)"
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            advice = "name an address of this machine"
        raise ListenError(f"cannot listen on {host}:{port}: {error.strerror}; {advice}") from error
    return sock


def set_keepalive(sock: socket.socket) -> None:
    """Have the system find peers that are gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Gate:
    """Counts the sockets of all listeners and refuses those beyond `sockets_max`, before the system has none left."""

    def __init__(self, sockets_max: int) -> None:
        self.sockets_max = sockets_max
        self.sockets = 0
        self.refused = 0

    def enter(self) -> bool:
        """Count one more socket; False when it is one too many (it must leave all the same)."""
        self.sockets += 1
        if self.sockets <= self.sockets_max:
            return True
        self.refused += 1
        return False

    def leave(self) -> None:
        """Count one socket less."""
        self.sockets -= 1


def peer_info(transport: BaseTransport, name: str, certificate_name: str | None) -> PeerInfo:
    """Return what the node is told about a peer; `name` is "tcp", "tls", "ws" or "wss"."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        address = "unknown"
    elif len(peer) == 4:
        address = f"[{peer[0]}]:{peer[1]}"
    else:
        address = f"{peer[0]}:{peer[1]}"
    return PeerInfo(name, address, certificate_name)


class ClientProtocol(asyncio.Protocol):
    """What the connections of clients have in common: they are counted, made known to the node, and lost."""

    __slots__ = ("_connection", "_gate", "_turns")

    def __init__(self, turns: Turns, gate: Gate) -> None:
        self._turns = turns
        self._gate = gate
        self._connection: Any = None  # a Connection, once the node knows of it

    def _register(self, transport: Transport, handle: object, name: str, certificate_name: str | None) -> None:
        """Make the connection known to the node, which uses it through `handle`; above the limit, end it at once."""
        turns = self._turns
        if not self._gate.enter():
            turns.node.counters.connections_refused += 1
            transport.abort()
            return
        connection = turns.node.connect(handle, peer_info(transport, name, certificate_name), turns.begin())
        turns.open.add(connection.id)
        self._connection = connection

    def pause_writing(self) -> None:
        """The peer reads more slowly than the node sends."""
        self._set_writable(False)

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._set_writable(True)

    def _set_writable(self, flag: bool) -> None:
        if self._connection is not None:
            self._turns.node.writable(self._connection, flag, self._turns.begin())

    def connection_lost(self, error: Exception | None) -> None:
        """Report the loss to the node."""
        self._gate.leave()
        if self._connection is not None:
            self._turns.lost(self._connection, str(error) if error is not None else "closed by the peer")


class TcpProtocol(ClientProtocol):
    """One connection. Its transport is the handle through which the driver carries out the node's effects."""

    __slots__ = ()

    name: str = "tcp"

    def connection_made(self, transport: BaseTransport) -> None:
        """Register the connection with the node."""
        self._register(cast("Transport", transport), transport, self.name, self._certificate_name(transport))

    def _certificate_name(self, _transport: BaseTransport) -> str | None:
        return None

    def data_received(self, data: bytes) -> None:
        """Pass a chunk on."""
        turns = self._turns
        if not turns.begun:
            turns.begin()
        turns.receive(self._connection, data, turns.now)
        if len(data) >= LARGE_BYTES:
            turns.took(self._connection, len(data))


class TlsProtocol(TcpProtocol):
    """One connection whose TLS handshake is done."""

    __slots__ = ()

    name = "tls"

    def _certificate_name(self, _transport: BaseTransport) -> str | None:
        certificate: Any = _transport.get_extra_info("peercert")
        return common_name(certificate)
