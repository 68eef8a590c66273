"""Tables over HTTP from nodes in boxes: the routes of a node of a cluster, and a server for readers with a socket."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from folkmoot.admin.cluster import OwnStatus
from folkmoot.admin.source import NodeSource, answered
from folkmoot.admin.table import table_routes
from folkmoot.status.cluster_picture import picture_of
from folkmoot.status.status import NodeStatus
from tests.harness.box import Box

__all__ = ["Served", "table_app"]


class _Loop:
    """What the event loop does for a box: turns, and the ends of calls."""

    def __init__(self, box: Box) -> None:
        self.box = box

    def begin(self) -> int:
        asyncio.get_running_loop().call_soon(self.end)
        return self.box.now

    def end(self) -> None:
        self.box.run()
        calls, self.box.calls = self.box.calls, []
        for call in calls:
            answered(call)


def table_app(box: Box, token: str | None = None) -> ASGIApp:
    """Return the routes of tables of a node in a box, or of one of a cluster."""
    loop = _Loop(box)
    status = OwnStatus(NodeStatus(picture_of(box.node)), loop.begin)
    return Starlette(routes=table_routes(NodeSource(box.node, loop.begin), status, token))


class Served:
    """An application on a port of this machine, for the time of a `with`."""

    def __init__(self, app: ASGIApp) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._server.serve([self._listener]))

    def __enter__(self) -> Served:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(20)
        self._listener.close()
