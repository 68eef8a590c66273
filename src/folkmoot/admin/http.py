"""The HTTP server of a node: uvicorn's protocol in the event loop of the node, without its signals, ticks and logs.

Owns the sockets. It bounds the number of connections and the bytes of each request, so that MQTT is not affected: what
exceeds the bounds waits or is refused. Idle connections are closed in favour of new ones, so that probes are always
answered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from folkmoot.runtime.drain import LINGER_S, close_in_order

__all__ = ["HttpConnection", "HttpServer"]

CONNECTIONS_MAX: Final = 256
HEAD_BYTES_MAX: Final = 65_536  # the parser itself has no limit
IDLE_S: Final = 30.0
SWEEP_S: Final = 5.0
STOP_S: Final = 1.0

Say = Callable[[str, str], object]
"""`say(level, message)` writes to the node's log."""


class HttpTransport:
    """The transport for uvicorn. It closes in order, so that the client can read an answer that was sent early."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._closing = False
        self._limit: asyncio.TimerHandle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes, unless the connection is being closed."""
        if not self._closing:
            self._transport.write(data)

    def close(self) -> None:
        """Close in order; abort if the client does not close its side in time."""
        if self.is_closing():
            return
        self._closing = True
        if close_in_order(self._transport) is not None:
            self._limit = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def lost(self) -> None:
        """Forget the time limit: the connection has ended."""
        if self._limit is not None:
            self._limit.cancel()


class HttpConnection(HttpToolsProtocol):
    """A connection with the time since which it is idle, and the size of the current request head."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.config, server.state, {})
        self._server = server
        self._head_bytes = 0
        self._in_head = True
        self.idle_s = 0.0

    def busy(self) -> bool:
        """Whether a request is being answered."""
        cycle: Any = self.cycle  # None until the first request, although uvicorn's annotation says otherwise
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Close idle connections if there are too many."""
        self._in_order = HttpTransport(transport)
        super().connection_made(self._in_order)  # type: ignore[arg-type]
        self.idle_s = self.loop.time()
        self._server.crowd()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the time limit of a connection that was being closed."""
        self._in_order.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request, up to the limit of its head; the same chunk may have a part of the body."""
        if self._in_head:
            room = HEAD_BYTES_MAX - self._head_bytes
            self._head_bytes += min(len(data), room)
            super().data_received(data[:room])
            data = data[room:]
            if data and self._in_head:
                self.transport.abort()
                return
        if data:
            super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._head_bytes = 0
        self._in_head = False
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """The answer is sent: the connection is idle again."""
        self.idle_s = self.loop.time()
        super().on_response_complete()


class HttpServer:
    """Serves an ASGI application on a bound socket until `stop`."""

    def __init__(self, app: Any, sock: socket.socket, say: Say) -> None:
        self._socket = sock
        self.config = Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(IDLE_S),
        )
        self.config.load()
        self.state = ServerState()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        take_log(say)

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), sock=self._socket)
        self._sweeper = loop.call_later(SWEEP_S, self._sweep)

    def _idle(self) -> list[HttpConnection]:
        """Return the idle connections, the longest idle first."""
        connections: Any = self.state.connections
        return sorted([one for one in connections if not one.busy()], key=lambda one: float(one.idle_s))

    def crowd(self) -> None:
        """Close idle connections, the longest idle first, while there are too many."""
        excess = len(self.state.connections) - CONNECTIONS_MAX
        if excess > 0:
            for connection in self._idle()[:excess]:
                connection.transport.abort()

    def _sweep(self) -> None:
        """Close connections that are idle for too long, including those with an incomplete request."""
        loop = asyncio.get_running_loop()
        self._sweeper = loop.call_later(SWEEP_S, self._sweep)
        for connection in self._idle():
            if connection.idle_s > loop.time() - IDLE_S:
                return
            connection.transport.abort()

    async def stop(self) -> None:
        """Stop accepting, give requests a moment to end, then abort them."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.state.connections):
            connection.shutdown()
        if self.state.tasks:
            await asyncio.wait(set(self.state.tasks), timeout=STOP_S)
        for task in set(self.state.tasks):
            task.cancel()
        for connection in list(self.state.connections):
            if connection.transport is not None:
                connection.transport.abort()


class NodeLog(logging.Handler):
    """Turns log messages of uvicorn into events of the node, whose log limits their rate."""

    def __init__(self, say: Say) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message, with its exception."""
        text = record.getMessage().strip().splitlines()[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f" {type(error).__name__}: {error}"
        self._say("error" if record.levelno >= logging.ERROR else "warning", text)


def take_log(say: Say) -> None:
    """Redirect uvicorn's messages to the log of the node."""
    logger = logging.getLogger("uvicorn.error")
    logger.propagate = False
    logger.handlers = [NodeLog(say)]
