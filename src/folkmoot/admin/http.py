"""The HTTP server of a node: uvicorn's protocol in the node's own event loop, without its signals, ticks and logs.

Owns the sockets. It takes few requests at once and holds few bytes of each: whoever asks for more waits or is refused,
and MQTT goes on.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

__all__ = ["HttpServer"]

CONNECTIONS_MAX: Final = 256
KEEP_ALIVE_S: Final = 30
STOP_S: Final = 1.0


class HttpServer:
    """Serves an ASGI application on a bound socket until `stop`."""

    def __init__(self, app: Any, sock: socket.socket) -> None:
        self._socket = sock
        self._config = Config(
            app,
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, sock=self._socket)

    def _protocol(self) -> asyncio.Protocol:
        return HttpToolsProtocol(self._config, self._state, {})

    async def stop(self) -> None:
        """Accept no more, let requests end for a moment, then cut them off."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=STOP_S)
        for task in set(self._state.tasks):
            task.cancel()
        for connection in list(self._state.connections):
            if connection.transport is not None:
                connection.transport.abort()
