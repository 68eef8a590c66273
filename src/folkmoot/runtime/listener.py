"""The listeners of a node: from settings to accepting servers and their addresses.

Owns sockets from binding to closing. The node binds before it opens or reads anything, so that a wrong address is
reported at once; it accepts last.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from folkmoot.config.settings import ListenerSettings, Settings, TlsSettings
from folkmoot.config.unit import Address
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.tcp import Gate, TcpProtocol, TlsProtocol, listen
from folkmoot.runtime.tls import Certificates
from folkmoot.runtime.websocket import WebSocketProtocol, WebSocketRules

__all__ = ["Listener", "open_listeners"]

# While a TLS connection is being closed, uvloop discards what its peer still sends, without a limit in bytes.
TLS_SHUTDOWN_S: Final = 2.0


class Listener:
    """One bound socket, and the server on it once `start` has run."""

    def __init__(self, settings: ListenerSettings, tls: TlsSettings | None) -> None:
        self.settings = settings
        self.certificates = None if tls is None else Certificates(tls)
        self._socket: socket.socket | None = listen(settings.address.host, settings.address.port)
        self.address = Address(settings.address.host, self._socket.getsockname()[1])
        self._server: asyncio.Server | None = None
        self._turns: Turns | None = None
        self._gate: Gate | None = None
        self._limits: Limits | None = None

    async def start(self, turns: Turns, gate: Gate, limits: Limits) -> None:
        """Accept connections from now on."""
        self._turns, self._gate, self._limits = turns, gate, limits
        self._server = await self._serve(None if self.certificates is None else self.certificates.context)

    async def _serve(self, context: ssl.SSLContext | None) -> asyncio.Server:
        """Accept with these certificates, on the socket that stays open through a change of them."""
        assert self._socket is not None, "a listener starts once, and not after its end"
        assert self._turns is not None
        assert self._gate is not None
        assert self._limits is not None
        options: dict[str, Any] = {}
        if context is not None:
            options["ssl"] = context
            options["ssl_handshake_timeout"] = self._limits.connect_timeout_us / SECOND
            options["ssl_shutdown_timeout"] = TLS_SHUTDOWN_S
        factory = protocol_factory(self.settings, self._turns, self._gate, self._limits)
        return await self._turns.loop.create_server(factory, sock=self._socket.dup(), backlog=4096, **options)

    async def replace(self, tls: TlsSettings, context: ssl.SSLContext) -> bool:
        """Accept with another context; return whether clients may be connected that it would not accept.

        The socket stays: no client is refused meanwhile. On OSError, as without descriptors, nothing has changed.
        """
        assert self.certificates is not None, "only listeners with TLS have a context"
        former = self._server
        if former is not None:
            self._server = await self._serve(context)
            former.close()
        return self.certificates.replace(tls, context)

    def close(self) -> None:
        """Stop accepting; idempotent."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def open_listeners(settings: Settings) -> list[Listener]:
    """Bind all listeners; if one fails, close the others."""
    listeners: list[Listener] = []
    try:
        for entry in settings.listeners:
            listeners.append(Listener(entry, settings.tls_of(entry)))  # noqa: PERF401 - some may be open when one fails
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def protocol_factory(
    settings: ListenerSettings, turns: Turns, gate: Gate, limits: Limits
) -> Callable[[], asyncio.Protocol]:
    """Return the factory of the protocol for each accepted connection."""
    if settings.protocol == "mqtt":
        return lambda: TcpProtocol(turns, gate)
    if settings.protocol == "mqtts":
        return lambda: TlsProtocol(turns, gate)
    # A message may hold several packets: leave room for the largest one and some small ones.
    rules = WebSocketRules(settings.path, limits.packet_bytes_max + 65_536)
    return lambda: WebSocketProtocol(turns, gate, rules, settings.protocol)
