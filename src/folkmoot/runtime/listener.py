"""The listeners of a node: from settings to accepting servers and their addresses.

Owns sockets from binding to closing. The node binds before it opens or reads anything, so that a wrong address is
reported at once; it accepts last.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from folkmoot.config.check import allows_anonymous
from folkmoot.config.settings import ListenerSettings, Settings, TlsSettings
from folkmoot.config.unit import Address
from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.limits import Limits
from folkmoot.runtime.acceptor import Accepted, Acceptor, Reception
from folkmoot.runtime.gate import Arrival, Gate
from folkmoot.runtime.loop import Turns
from folkmoot.runtime.origin import OriginRules
from folkmoot.runtime.tcp import TcpProtocol, TlsProtocol, listen
from folkmoot.runtime.tls import Certificates, reason_of, tls_options
from folkmoot.runtime.websocket import WebSocketProtocol, WebSocketRules

__all__ = ["Listener", "Say", "open_listeners", "report_failure"]

# While a TLS connection is being closed, uvloop discards what its peer still sends, without a limit in bytes.
TLS_SHUTDOWN_S: Final = 2.0


Say = Callable[..., None]
"""`say(level, kind, **fields)` writes an event."""


class Listener(Reception):
    """One bound socket, and what accepts on it once `start` has run; protected: clients must authenticate."""

    def __init__(self, settings: ListenerSettings, tls: TlsSettings | None, protected: bool = False) -> None:
        self.settings = settings
        self._origins = origin_rules(settings.protocol, settings.origins, protected)
        self._rules: WebSocketRules | None = None
        self.certificates = None if tls is None else Certificates(tls)
        self._socket: socket.socket | None = listen(settings.address.host, settings.address.port)
        self.address = Address(settings.address.host, self._socket.getsockname()[1])
        self._acceptor: Acceptor | None = None

    def start(self, turns: Turns, gate: Gate, limits: Limits, say: Say) -> None:
        """Accept connections from now on."""
        assert self._socket is not None, "a listener starts once"
        self._turns = turns
        self._say = say
        self._handshake_s = limits.connect_timeout_us / SECOND
        # A message may hold several packets: leave room for the largest one and some small ones.
        self._rules = WebSocketRules(self.settings.path, limits.packet_bytes_max + 65_536, self._origins)
        self._make = protocol_factory(self.settings.protocol, turns, gate, self._rules)
        self._acceptor = Acceptor(self._socket, gate, self, turns.loop, turns.slices)
        self._socket = None  # the acceptor's now
        self._acceptor.start()

    def protocol(self, arrival: Arrival) -> Accepted:
        """Return the protocol of an accepted connection."""
        return self._make(arrival)

    def options(self) -> dict[str, Any]:
        """Return the options of TLS, if there is any."""
        return tls_options(self.certificates, self._handshake_s, TLS_SHUTDOWN_S)

    def refused(self, _address: str) -> None:
        """Count a connection for which there is no room; the log has the sum."""
        self._turns.node.counters.connections_refused += 1

    def paused(self, error: OSError) -> None:
        """Say why no connection is accepted for a while."""
        self._say("warning", "accept_paused", address=str(self.address), reason=reason_of(error))

    def failed(self, address: str, error: Exception) -> None:
        """Say why a connection could not be made."""
        if isinstance(error, ConnectionAbortedError):  # uvloop: the time for the TLS handshake is over
            self._turns.node.counters.connect_timeouts += 1
        report_failure(self._turns, self._say, address, error)

    def replace(self, tls: TlsSettings, context: ssl.SSLContext) -> bool:
        """Accept with another context; return whether clients may be connected that it would not accept."""
        assert self.certificates is not None, "only listeners with TLS have a context"
        return self.certificates.replace(tls, context)

    def allow_pages(self, origins: Sequence[str], protected: bool) -> None:
        """Let in pages of these origins from now on; protected: clients must authenticate now."""
        self._origins = origin_rules(self.settings.protocol, origins, protected)
        if self._rules is not None:
            self._rules.origins = self._origins

    def close(self) -> None:
        """Stop accepting; idempotent."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def report_failure(turns: Turns, say: Say, address: str, error: Exception) -> None:
    """Log a connection that ended before it was made: what the network or TLS refused, or an unexpected error."""
    if isinstance(error, OSError):  # ssl.SSLError is one
        # Somebody who has only looked whether the port is open is not worth a line.
        level = "debug" if isinstance(error, ConnectionResetError) else "info"
        say(level, "connection_failed", address=address, reason=reason_of(error))
    else:
        turns.node.counters.connection_errors += 1
        turns.complain(address, error)


def open_listeners(settings: Settings) -> list[Listener]:
    """Bind all listeners; if one fails, close the others."""
    listeners: list[Listener] = []
    if settings.cluster.witness:
        return listeners  # it has nothing for clients
    try:
        for entry in settings.listeners:
            listener = Listener(entry, settings.tls_of(entry), not allows_anonymous(settings))
            listeners.append(listener)  # some may be open when one fails
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def origin_rules(protocol: str, origins: Sequence[str], protected: bool) -> OriginRules:
    """Return which pages may connect: with TLS, the browser has checked that this server is the one that they name."""
    return OriginRules(origins, protected or protocol == "wss")


def protocol_factory(protocol: str, turns: Turns, gate: Gate, rules: WebSocketRules) -> Callable[[Arrival], Accepted]:
    """Return the factory of the protocol for each accepted connection."""
    if protocol == "mqtt":
        return lambda arrival: TcpProtocol(turns, gate, arrival)
    if protocol == "mqtts":
        return lambda arrival: TlsProtocol(turns, gate, arrival)
    return lambda arrival: WebSocketProtocol(turns, gate, arrival, rules, protocol)
